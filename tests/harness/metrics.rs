//! The series of `/metrics`, one at a time.
//!
//! A series is written as there: `name`, or `name{label="value",…}`. It stands for all that have this name and these labels,
//! in any order and beside others: their sum.

use super::{Daemon, eventually};

impl Daemon {
    /// The value of a series; `None` where there is none.
    pub(crate) fn find_metric(&self, series: &str) -> Option<u64> {
        let (name, labels) = series.trim_end_matches('}').split_once('{').unwrap_or((series, ""));
        let text = self.get_admin("/metrics").text();
        let values = text.lines().filter_map(|line| {
            let (found, rest) = line.split_at(line.find(['{', ' '])?);
            let has =
                |label: &str| label.is_empty() || rest.split(['{', ',', '}']).any(|found| found == label);
            let value = rest.rsplit(' ').next()?;
            (found == name && labels.split(',').all(has)).then(|| value.parse().expect("a whole number"))
        });
        values.reduce(|sum: u64, value| sum + value)
    }

    /// The same, where nothing has been counted if there is none.
    pub(crate) fn metric(&self, series: &str) -> u64 {
        self.find_metric(series).unwrap_or(0)
    }

    /// The series of this name for the upstream `up`.
    pub(crate) fn find_metric_of_up(&self, name: &str) -> Option<u64> {
        self.find_metric(&format!("{name}{{upstream=\"up\"}}"))
    }

    /// Waits until the series is there and has this value.
    pub(crate) fn wait_metric(&self, series: &str, value: u64) {
        eventually(series, || (self.find_metric(series) == Some(value)).then_some(()));
    }
}
