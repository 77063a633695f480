//! Programs that start with their first call (`lazy`): while one rests, nobody but a call starts it.
//!
//! A program rests once its tools are known, and pinned where that counts, while the gateway has no process of it. Processes
//! of clients alone, in which the gateway asks nothing, change nothing about that. Where only such were used since the gateway's
//! start, the program is listed once after them, as its lists may be those of another version.

use super::Upstream;
use super::start_state::StartState;

impl Upstream {
    /// True for a program that starts with its first call.
    pub(crate) fn is_lazy(&self) -> bool {
        self.children().is_some_and(|children| children.are_lazy())
    }

    /// True for such a program while nobody but a call is to start it: lists are those that are kept, and questions wait.
    pub(crate) fn rests(&self) -> bool {
        self.is_lazy() && self.may_rest() && !self.has_own()
    }

    /// True for such a program while it rests, or starts for a call: no question starts it, nor again where that has failed.
    pub(crate) fn rests_but_for_calls(&self) -> bool {
        let is_up = || self.starts().is_some_and(|starts| matches!(starts.state(), StartState::Up { .. }));
        self.is_lazy() && self.may_rest() && (!self.has_own() || !is_up())
    }

    /// True for such a program whose clients have used processes of their own, and are gone.
    pub(crate) fn is_to_be_listed_after_use(&self) -> bool {
        self.children().is_some_and(|children| {
            children.are_lazy()
                && !children.is_for_all()
                && self.listing.is_to_be_listed_after_use()
                && matches!(children.start_watch().state(), StartState::Ended { .. })
        })
    }

    /// True if nothing is to be asked of it.
    #[cold]
    fn may_rest(&self) -> bool {
        let are_pinned = || {
            let pins = self.pins.as_ref().filter(|_| self.config.pins.is_strict());
            pins.is_none_or(|pins| !pins.are_unfinished())
        };
        let are_known = self.listing.are_tools_known() && self.facts.known().was_tried;
        are_known && !self.is_to_be_listed_after_use() && are_pinned()
    }

    fn has_own(&self) -> bool {
        self.starts().is_none_or(|starts| starts.has_own())
    }
}
