//! Which eras an endpoint serves: those in which all of its upstreams are reached, natively or over the bridge, as far
//! as that is known.
//!
//! An upstream of unknown eras excludes none. Where the upstreams have no era in common, the first one whose eras are
//! known decides, and those that do not speak its era are missing from the endpoint.
//!
//! Computed whenever something becomes known, by one thread; a call reads one number.

use std::sync::atomic::{AtomicU8, Ordering};

use protocol::version::Eras;

/// The eras an endpoint serves now; shared by all threads.
#[derive(Debug)]
pub(crate) struct ServedEras(AtomicU8);

const LEGACY: u8 = 1;
const MODERN: u8 = 2;

impl Default for ServedEras {
    fn default() -> Self {
        Self(AtomicU8::new(LEGACY | MODERN))
    }
}

impl ServedEras {
    pub(crate) fn get(&self) -> Eras {
        let bits = self.0.load(Ordering::Relaxed);
        Eras { legacy: bits & LEGACY != 0, modern: bits & MODERN != 0 }
    }

    pub(crate) fn set(&self, eras: Eras) {
        let bits = (u8::from(eras.legacy) * LEGACY) | (u8::from(eras.modern) * MODERN);
        self.0.store(bits, Ordering::Relaxed);
    }
}

/// What an endpoint over upstreams of these eras serves, in their order; `None` is unknown. Never nothing.
pub(crate) fn served(upstreams: impl Iterator<Item = Option<Eras>> + Clone) -> Eras {
    let mut known = upstreams.flatten();
    let first = known.clone().next().unwrap_or(Eras::BOTH);
    let common = known.try_fold(Eras::BOTH, |common, eras| {
        let common = common.and(eras);
        (!common.is_empty()).then_some(common)
    });
    common.unwrap_or(first)
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::version::Era;

    #[test]
    fn an_endpoint_serves_what_its_upstreams_have_in_common() {
        let (unknown, both) = (None, Some(Eras::BOTH));
        let (modern, legacy) = (Some(Eras::only(Era::Modern)), Some(Eras::only(Era::Legacy)));
        for (upstreams, expected) in [
            (vec![unknown], both),
            (vec![unknown, unknown], both),
            (vec![modern], modern),
            (vec![unknown, legacy], legacy),
            (vec![both, unknown, both], both),
            (vec![both, modern], modern),
            (vec![modern, legacy], modern),
            (vec![legacy, both, modern], legacy),
            (vec![unknown, both, legacy, modern], both),
            (vec![], both),
        ] {
            assert_eq!(Some(served(upstreams.iter().copied())), expected, "{upstreams:?}");
        }
    }

    #[test]
    fn what_is_set_is_read() {
        let served = ServedEras::default();
        for eras in [Eras::BOTH, Eras::only(Era::Modern), Eras::only(Era::Legacy)] {
            served.set(eras);
            assert_eq!(served.get(), eras);
        }
    }
}
