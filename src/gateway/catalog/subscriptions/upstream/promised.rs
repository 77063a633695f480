//! What an upstream of the legacy era says of its lists when a session is opened.

use crate::upstream::changes::ChangedList;
use protocol::json::{Document, Scratch, Value};
use protocol::subscription::Lists;

/// What an upstream says of its lists when a session is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ListCapabilities {
    /// It has them, as far as is known.
    pub(super) had: Lists,
    /// It tells of their changes.
    pub(super) told: Lists,
}

impl Default for ListCapabilities {
    fn default() -> Self {
        Self { had: Lists::ALL, told: Lists::default() }
    }
}

impl ListCapabilities {
    pub(super) fn of(result: &[u8], scratch: &mut Scratch, depth_max: usize) -> Self {
        let root = scratch.index(result, depth_max).map(Document::root).ok();
        let Some(capabilities) = root.and_then(|root| root.get("capabilities")) else {
            return Self::default();
        };
        let (mut had, mut told) = (Lists::default(), Lists::default());
        for changed in ChangedList::ALL {
            let Some(capability) = capabilities.get(changed.capability()) else { continue };
            had.add(changed as usize);
            if capability.get("listChanged").map(Value::raw) == Some(b"true") {
                told.add(changed as usize);
            }
        }
        Self { had, told }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_watched_if_the_upstream_says_so() {
        let (none, all) = (Lists::default(), Lists::ALL);
        let [tools, prompts] =
            [ChangedList::Tools, ChangedList::Prompts].map(|changed| Lists::one(changed as usize));
        for (result, had, told) in [
            ("{}", all, none),
            (r#"{"capabilities":{}}"#, none, none),
            (r#"{"capabilities":{"tools":{}}}"#, tools, none),
            (r#"{"capabilities":{"tools":{"listChanged":false}}}"#, tools, none),
            (r#"{"capabilities":{"tools":{"listChanged":"true"}}}"#, tools, none),
            (r#"{"capabilities":{"tools":{"listChanged":true},"logging":{}}}"#, tools, tools),
            (r#"{"capabilities":{"prompts":{"listChanged": true }}}"#, prompts, prompts),
        ] {
            let promised = ListCapabilities::of(result.as_bytes(), &mut Scratch::default(), 64);
            assert_eq!(promised, ListCapabilities { had, told }, "{result}");
        }
    }
}
