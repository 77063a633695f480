//! Which calls are traced: decided once, from their headers.

use super::context::{Parent, TraceId};

/// Half of the trace ids there are: one bit is left out, as other programs do.
const ALL: u64 = 1 << 63;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sampler {
    /// Whether the flag of a call's parent decides.
    follows_parent: bool,
    /// The trace ids below this are traced.
    below: u64,
}

impl Sampler {
    /// Traces this share of the calls, or what their parents want.
    pub(super) fn new(ratio: f64, follows_parent: bool) -> Self {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_precision_loss,
            clippy::cast_sign_loss,
            reason = "a share of 2^63, which a float holds"
        )]
        let below = if ratio >= 1.0 { ALL } else { (ratio.max(0.0) * ALL as f64) as u64 };
        Self { follows_parent, below }
    }

    /// Whether a call is traced. `random`: the lower half of the trace id that it would get. The same trace is judged
    /// alike everywhere.
    pub(super) fn takes(self, parent: Option<&Parent>, random: u64) -> bool {
        match parent {
            Some(parent) if self.follows_parent => parent.is_sampled(),
            Some(parent) => self.is_in_share(lower_half(&parent.trace_id)),
            None => self.is_in_share(random),
        }
    }

    fn is_in_share(self, lower: u64) -> bool {
        lower >> 1 < self.below
    }
}

fn lower_half(id: &TraceId) -> u64 {
    id.iter().skip(8).fold(0, |half, byte| half << 8 | u64::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parent_or_the_share_decides() {
        let parent = |lower: u8, flags| {
            let mut trace_id = [7; 16];
            trace_id[8] = lower;
            Some(Parent { trace_id, span_id: [1; 8], flags })
        };
        for (ratio, follows, parent, random, is_taken) in [
            (1.0, true, None, u64::MAX, true),
            (0.0, true, None, 0, false),
            (0.5, true, None, 0x7fff_ffff_ffff_ffff, true),
            (0.5, true, None, 0x8000_0000_0000_0000, false),
            (0.0, true, parent(0xff, 1), u64::MAX, true),
            (1.0, true, parent(0, 0), 0, false),
            (1.0, true, parent(0, 2), 0, false),
            (1.0, false, parent(0xff, 0), u64::MAX, true),
            (0.0, false, parent(0, 1), 0, false),
            // Its own trace id counts.
            (0.5, false, parent(0x7f, 0), u64::MAX, true),
            (0.5, false, parent(0x80, 1), 0, false),
        ] {
            let sampler = Sampler::new(ratio, follows);
            assert_eq!(
                sampler.takes(parent.as_ref(), random),
                is_taken,
                "{ratio} {follows} {parent:?} {random:x}"
            );
        }
    }
}
