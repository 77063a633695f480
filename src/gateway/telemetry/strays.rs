//! Clients that ask for paths where nothing is, as those do that look for metadata at ten places: one line of the log for
//! each in a while.
//!
//! Bounded: beyond [`CLIENTS_MAX`] the one that was heard of first is forgotten.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// Clients that are remembered.
const CLIENTS_MAX: usize = 256;
/// A client has one line in this time.
const INTERVAL: Duration = Duration::from_mins(1);

/// Clients that asked lately.
#[derive(Debug, Default)]
pub(crate) struct Strays(Mutex<VecDeque<Stray>>);

#[derive(Debug)]
struct Stray {
    client: IpAddr,
    /// When it had its line.
    since: Instant,
    left_out: u64,
}

impl Strays {
    /// Asks for a line about this client; how many were left out since its last one. `None`: this one is, too.
    pub(crate) fn admit(&self, client: IpAddr, now: Instant) -> Option<u64> {
        let mut strays = self.0.lock();
        let known = strays.iter_mut().find(|stray| stray.client == client);
        if let Some(stray) = known {
            if now.saturating_duration_since(stray.since) < INTERVAL {
                stray.left_out += 1;
                return None;
            }
            stray.since = now;
            return Some(std::mem::take(&mut stray.left_out));
        }
        if strays.len() >= CLIENTS_MAX {
            strays.pop_front();
        }
        strays.push_back(Stray { client, since: now, left_out: 0 });
        Some(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_has_one_line_in_a_while() {
        let (strays, now) = (Strays::default(), crate::clock::now());
        let [one, other] = [[203, 0, 113, 7], [203, 0, 113, 8]].map(IpAddr::from);
        assert_eq!(strays.admit(one, now), Some(0));
        for _ in 0..9 {
            assert_eq!(strays.admit(one, now), None);
        }
        assert_eq!(strays.admit(other, now), Some(0), "another one has its own");
        assert_eq!(strays.admit(one, now + INTERVAL), Some(9));
        for client in 0..u16::MAX {
            let [high, low] = client.to_be_bytes();
            strays.admit(IpAddr::from([10, 0, high, low]), now);
        }
        assert!(strays.0.lock().len() <= CLIENTS_MAX);
    }
}
