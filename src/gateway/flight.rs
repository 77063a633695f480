//! One at a time for each key, across threads: who comes first does the work, everybody else waits for its outcome.
//!
//! Nothing here spawns or times out. If the work ends without an outcome, because its thread ended or it panicked,
//! those who wait are told so and never hang.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::Hash;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use tokio::sync::watch;

#[derive(Debug)]
pub(crate) struct Flights<K, V>(Mutex<HashMap<K, Arc<Flight<V>>>>);

#[derive(Debug)]
pub(crate) struct Flight<V> {
    /// The count of changes that the work goes by; not set before it really begins.
    pub count: OnceLock<u64>,
    /// The number of clients that wait for it, where the work goes by that.
    pub clients: Arc<AtomicUsize>,
    outcome: watch::Receiver<Option<V>>,
}

/// A place in some work.
#[derive(Debug)]
pub(crate) enum FlightRole<K: Eq + Hash + Clone, V> {
    Begin(Landing<K, V>),
    Wait(Arc<Flight<V>>),
}

/// The duty to finish a flight. Dropping it gives it up.
#[derive(Debug)]
pub(crate) struct Landing<K: Eq + Hash + Clone, V> {
    pub flight: Arc<Flight<V>>,
    flights: Arc<Flights<K, V>>,
    key: K,
    outcome: watch::Sender<Option<V>>,
}

impl<K: Eq + Hash + Clone, V> FlightRole<K, V> {
    /// The work, and the duty to do it where that is this one's.
    pub(crate) fn parts(self) -> (Arc<Flight<V>>, Option<Landing<K, V>>) {
        match self {
            Self::Begin(landing) => (Arc::clone(&landing.flight), Some(landing)),
            Self::Wait(flight) => (flight, None),
        }
    }
}

impl<K, V> Default for Flights<K, V> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Eq + Hash + Clone, V: Clone> Flights<K, V> {
    pub(crate) fn join(self: &Arc<Self>, key: &K) -> FlightRole<K, V> {
        match self.0.lock().entry(key.clone()) {
            Entry::Occupied(flight) => FlightRole::Wait(Arc::clone(flight.get())),
            Entry::Vacant(place) => {
                let (sender, receiver) = watch::channel(None);
                let flight =
                    Arc::new(Flight { count: OnceLock::new(), clients: Arc::default(), outcome: receiver });
                place.insert(Arc::clone(&flight));
                let flights = Arc::clone(self);
                FlightRole::Begin(Landing { flight, flights, key: key.clone(), outcome: sender })
            }
        }
    }
}

impl<K: Eq + Hash, V> Flights<K, V> {
    pub(crate) fn under_way(&self, key: &K) -> Option<Arc<Flight<V>>> {
        self.0.lock().get(key).cloned()
    }
}

impl<V: Clone> Flight<V> {
    /// The outcome, where there is one by now.
    pub(crate) fn outcome(&self) -> Option<V> {
        self.outcome.borrow().clone()
    }

    /// True if the work ended without an outcome.
    pub(crate) fn is_given_up(&self) -> bool {
        self.outcome.has_changed().is_err() && self.outcome.borrow().is_none()
    }

    /// Waits for the outcome. `None`: it was given up.
    pub(crate) async fn landed(&self) -> Option<V> {
        let mut outcome = self.outcome.clone();
        let landed = outcome.wait_for(Option::is_some).await.ok()?;
        landed.clone()
    }
}

impl<K: Eq + Hash + Clone, V> Landing<K, V> {
    /// Tells everybody who waits. The next who comes begins anew.
    pub(crate) fn land(self, outcome: V) {
        self.flights.0.lock().remove(&self.key);
        self.outcome.send_replace(Some(outcome));
    }
}

impl<K: Eq + Hash + Clone, V> Drop for Landing<K, V> {
    fn drop(&mut self) {
        let mut flights = self.flights.0.lock();
        if flights.get(&self.key).is_some_and(|flight| Arc::ptr_eq(flight, &self.flight)) {
            flights.remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn one_does_the_work_and_all_get_its_outcome() {
        let flights: Arc<Flights<u8, u32>> = Arc::default();
        let FlightRole::Begin(landing) = flights.join(&1) else { panic!("nothing is under way") };
        assert!(matches!(flights.join(&2), FlightRole::Begin(_)), "another key is other work");
        assert!(flights.under_way(&1).is_some() && flights.under_way(&3).is_none());
        let FlightRole::Wait(first) = flights.join(&1) else { panic!("it is under way") };
        let FlightRole::Wait(second) = flights.join(&1) else { panic!("it is under way") };
        landing.land(7);
        assert!(!first.is_given_up(), "it has an outcome");
        assert_eq!((first.landed().await, second.landed().await), (Some(7), Some(7)));
        assert!(matches!(flights.join(&1), FlightRole::Begin(_)), "it is over");
    }

    #[tokio::test]
    async fn work_that_is_given_up_leaves_nobody_waiting() {
        let flights: Arc<Flights<u8, u32>> = Arc::default();
        let FlightRole::Begin(landing) = flights.join(&1) else { panic!("nothing is under way") };
        let FlightRole::Wait(flight) = flights.join(&1) else { panic!("it is under way") };
        assert!(!flight.is_given_up());
        drop(landing);
        assert!(flight.is_given_up());
        assert_eq!(flight.landed().await, None);
        assert!(matches!(flights.join(&1), FlightRole::Begin(_)));
    }
}
