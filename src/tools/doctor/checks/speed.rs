//! How long requests take that do nothing.

use std::time::Duration;

use crate::doctor::facts::Facts;
use crate::doctor::measured::Measured;
use crate::doctor::rules::tools as rules;
use crate::doctor::sheet::Sheet;

/// A person notices.
const SLOW: Duration = Duration::from_millis(500);

pub(super) fn check(facts: &Facts, sheet: &mut Sheet) {
    let Some(latency) = Measured::of(facts).latency else { return };
    let seen = (latency.median > SLOW).then(|| {
        format!("half of {} requests took more than {} ms", latency.count, latency.median.as_millis())
    });
    sheet.judge(&rules::SLOW, seen);
}
