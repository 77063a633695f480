//! `pins`: what happens when the definition of a tool changes.

use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;

use super::file;

/// What happens when a tool is no longer defined as it was first seen, or approved.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum PinMode {
    /// Nothing: definitions are not looked at.
    #[default]
    Off,
    /// It is counted and logged; the tool goes on.
    Warn,
    /// The tool is neither listed nor called until its definition is approved. New tools are pinned as they come.
    Quarantine,
    /// No tool of the server is listed or called until all is approved, new tools included.
    Block,
}

impl PinMode {
    /// Its name in the configuration.
    pub fn label(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Warn => "warn",
            Self::Quarantine => "quarantine",
            Self::Block => "block",
        }
    }
}

/// How the definitions of an upstream's tools are watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pins {
    /// What happens on a change.
    pub mode: PinMode,
    /// Age of the definitions beyond which they are looked at before a call.
    pub age_max: Duration,
}

impl Pins {
    /// True if definitions are looked at.
    pub fn is_on(self) -> bool {
        self.mode != PinMode::Off
    }

    /// True if calls depend on them.
    pub fn is_strict(self) -> bool {
        matches!(self.mode, PinMode::Quarantine | PinMode::Block)
    }
}

pub(super) fn resolve(written: &file::Upstream) -> Pins {
    Pins {
        mode: written.pins.value().copied().unwrap_or_default(),
        age_max: written.pins_age_max.or(Duration::from_mins(1)),
    }
}
