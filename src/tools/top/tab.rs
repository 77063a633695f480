//! The tabs, and the table of each. Pure.

use super::table::{Column, Row};
use super::{calls, listing};

/// What there is to look at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tab {
    Upstreams,
    Endpoints,
    Tools,
    Limits,
    Problems,
    Errors,
    Callers,
    Gateway,
}

impl Tab {
    pub(super) const COUNT: usize = 8;
    pub(super) const ALL: [Self; Self::COUNT] = [
        Self::Upstreams,
        Self::Endpoints,
        Self::Tools,
        Self::Limits,
        Self::Problems,
        Self::Errors,
        Self::Callers,
        Self::Gateway,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Upstreams => "Upstreams",
            Self::Endpoints => "Endpoints",
            Self::Tools => "Tools",
            Self::Limits => "Limits",
            Self::Problems => "Problems",
            Self::Errors => "Errors",
            Self::Callers => "Callers",
            Self::Gateway => "Gateway",
        }
    }

    pub(super) fn at(self) -> usize {
        Self::ALL.iter().position(|tab| *tab == self).unwrap_or_default()
    }

    pub(super) fn columns(self) -> &'static [Column] {
        match self {
            Self::Upstreams => listing::UPSTREAMS,
            Self::Endpoints => listing::ENDPOINTS,
            Self::Tools => listing::TOOLS,
            Self::Limits => listing::LIMITS,
            Self::Problems => listing::PROBLEMS,
            Self::Errors => calls::ERRORS,
            Self::Callers => calls::CALLERS,
            Self::Gateway => &[],
        }
    }
}

/// How a table is looked at.
#[derive(Clone, Debug, Default)]
pub(super) struct TabView {
    /// The row that is chosen.
    pub(super) cursor: usize,
    /// The first row that is shown.
    pub(super) top: usize,
    /// The column that it is sorted by; `None`: as it comes.
    pub(super) by: Option<usize>,
    pub(super) is_reversed: bool,
    pub(super) filter: String,
    /// What the chosen row is about, so that it stays chosen wherever it moves to; `None` at the top.
    pub(super) chosen: Option<String>,
}

/// A table.
#[derive(Debug)]
pub(super) struct ListView {
    pub(super) columns: &'static [Column],
    pub(super) rows: Vec<Row>,
    /// Which row of all the first one is.
    pub(super) first: usize,
    /// How many there are, wherever they are.
    pub(super) total: usize,
}

impl ListView {
    pub(super) fn row(&self, at: usize) -> Option<&Row> {
        self.rows.get(at.checked_sub(self.first)?)
    }
}
