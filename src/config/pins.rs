//! `pins`: what happens when the definition of a tool changes.

use super::section::section;
use super::value::{DAY_MS, Period, SECOND_MS, choice};

section! {
    /// How the definitions of an upstream's tools are watched.
    #[derive(Copy)]
    pub struct PinsConfig {
        /// What happens when the definition of a tool changes: nothing (`off`), a metric and a log line (`warn`), the
        /// tool is withheld until it is approved with `trunkline pins approve` (`quarantine`), or all tools of the server
        /// are, and new ones need approval as well (`block`).
        mode as "pins": PinMode = "off",
        /// Age of the list of tools beyond which it is fetched anew before a call, where `pins` withholds tools.
        age_max as "pins_age_max": Period<SECOND_MS, DAY_MS> = "1m",
    }
}

choice! {
    /// What happens when a tool is no longer defined as it was first seen, or approved.
    pub enum PinMode {
        /// Nothing: definitions are not looked at.
        Off = "off",
        /// It is counted and logged; the tool goes on.
        Warn = "warn",
        /// The tool is neither listed nor called until its definition is approved. New tools are pinned as they come.
        Quarantine = "quarantine",
        /// No tool of the server is listed or called until all is approved, new tools included.
        Block = "block",
    }
}

impl PinsConfig {
    /// True if definitions are looked at.
    pub fn is_on(self) -> bool {
        self.mode != PinMode::Off
    }

    /// True if calls depend on them.
    pub fn is_strict(self) -> bool {
        matches!(self.mode, PinMode::Quarantine | PinMode::Block)
    }
}
