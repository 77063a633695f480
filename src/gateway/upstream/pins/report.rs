//! Telling operators of what a list brought.

use super::PinState;
use super::pin_book::{PinChange, PinFinding};
use crate::clock;
use crate::telemetry::logs::shorten;
use crate::telemetry::metrics::families::PinSeries;
use crate::upstream::Upstream;

const VARIES: &str = "the definition of a tool differs from process to process, so that no approval lasts; mend the server, or let pins = \"warn\"";

impl PinState {
    pub(super) fn report(&mut self, series: &PinSeries, upstream: &Upstream, findings: &[PinFinding]) {
        let name = &upstream.config.name;
        for PinFinding { tool, hash, what } in findings {
            series.changes.inc();
            if self.pace.next(clock::now()).is_none() {
                continue;
            }
            let (full_name, mode) = (tool, upstream.config.pins.mode.label());
            let tool = shorten(tool);
            let sha256 = tracing::field::display(hash);
            match what {
                PinChange::Changed => {
                    let compared = self.book.compare(full_name, *hash);
                    let varies = compared.as_ref().is_some_and(|(pending, _)| pending.is_beside);
                    let member = compared.map(|(_, member)| shorten(&member));
                    let what = if varies { VARIES } else { "the definition of a tool changed" };
                    tracing::warn!(upstream = name, tool, sha256, mode, member, "{what}");
                }
                PinChange::New => {
                    tracing::warn!(upstream = name, tool, sha256, mode, "a new tool waits for approval");
                }
                PinChange::NoRoom => {
                    tracing::error!(
                        upstream = name,
                        tool,
                        sha256,
                        mode,
                        "there is no room for the definition of a tool; raise pins_bytes_max"
                    );
                }
            }
        }
    }
}
