//! Programs that start with their first call (`lazy`): while one rests, nobody but a call starts it.
//!
//! A program rests once its tools are known, while the gateway has no process of it. Processes of clients alone, in which
//! the gateway asks nothing, change nothing about that. Where only such were used since the gateway's start, the program is
//! listed once after them, as its lists may be those of another version.

use super::Upstream;
use super::start_state::StartState;

impl Upstream {
    /// True for a program that starts with its first call.
    pub(crate) fn is_lazy(&self) -> bool {
        self.children().is_some_and(|children| children.are_lazy())
    }

    /// True for such a program while nobody but a call is to start it: lists are those that are kept, and questions wait.
    pub(crate) fn rests(&self) -> bool {
        self.is_lazy() && self.is_known_and_not_running() && !self.is_to_be_listed_after_use()
    }

    /// True for such a program while it rests, or starts for a call: no question starts it, nor again where that has failed.
    pub(crate) fn rests_but_for_calls(&self) -> bool {
        self.is_lazy() && (self.rests() || self.starts_for_a_call())
    }

    fn starts_for_a_call(&self) -> bool {
        let is_up = || self.starts().is_some_and(|starts| matches!(starts.state(), StartState::Up { .. }));
        self.is_lazy()
            && self.listing.are_tools_known()
            && self.facts.known().was_tried
            && !is_up()
            && !self.is_to_be_listed_after_use()
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

    #[cold]
    fn is_known_and_not_running(&self) -> bool {
        let has_own = self.starts().is_none_or(|starts| starts.has_own());
        !has_own && self.listing.are_tools_known() && self.facts.known().was_tried
    }
}
