//! The gateway in one process with clients and servers that do what a seed says, in time that passes only when nobody has
//! anything to do: a minute takes some hundredths of a second.
//!
//! | file | what it is |
//! |---|---|
//! | `dice.rs` | what a seed says |
//! | `faults.rs` | connections whose reads and writes are short, late, or their last |
//! | `server.rs` | an upstream's replicas: both eras, sessions, streams, lists that change, crashes |
//! | `answers.rs` | what they answer with, and how that is read |
//! | `client.rs` | clients of both eras: calls, lists, sessions with streams, subscriptions |
//! | `model.rs` | what must have come of all that |
//! | `world.rs` | the gateway between them, with reloads and storms |
//! | `repairs.rs` | replicas that leave, crash and come back, one after another |
//! | `leases.rs` | sessions that servers forget, and those for lists, of which there are fewer than kinds of clients |
//!
//! Deliberately absent: processes, TLS, disks; gateways beside this one, which share nothing or what is in Redis; the
//! calendar, by which the gateway's own sessions expire. The sockets are real ones of loopback addresses. The gateway's
//! own random numbers are no part of a seed: one that failed may pass the next time.

mod answers;
mod client;
mod dice;
mod faults;
mod leases;
mod model;
mod repairs;
mod server;
mod world;

use std::time::{Duration, Instant as WallInstant, SystemTime};

use self::world::play;

/// Seeds that found something once.
const KNOWN_SEEDS: [u64; 6] = [1, 2, 3, 4, 2002, 2003];
/// The first of the further seeds, instead of one of the day.
const SEED_VARIABLE: &str = "TRUNKLINE_SIMULATION_SEED";
/// How long further seeds are played, in seconds.
const SECONDS_VARIABLE: &str = "TRUNKLINE_SIMULATION_SECONDS";

fn check(seed: u64) {
    let faults = play(seed);
    assert!(faults.is_empty(), "seed {seed}:\n{}", faults.join("\n"));
}

#[test]
fn known_seeds_are_played() {
    KNOWN_SEEDS.into_iter().for_each(check);
}

#[test]
#[expect(clippy::disallowed_methods, reason = "it is about the time that the test takes")]
fn the_seeds_of_the_day_are_played() {
    let seconds = std::env::var(SECONDS_VARIABLE).ok().and_then(|text| text.parse().ok()).unwrap_or(2);
    let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("a calendar");
    let first = since_1970.as_secs() / 86_400 * 1_000_000;
    let started = WallInstant::now();
    let mut seed = std::env::var(SEED_VARIABLE).ok().and_then(|text| text.parse().ok()).unwrap_or(first);
    let first = seed;
    while started.elapsed() < Duration::from_secs(seconds) {
        check(seed);
        seed += 1;
    }
    println!("seeds {first} to {} in {:.0?}", seed - 1, started.elapsed());
}
