//! Things that sign-in fetches, kept for as long as they are good, and failures for a moment.
//!
//! Invariant: of one URL there is one fetch at a time; whoever else wants it waits for that, and gets what came of it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use moka::sync::Cache;

use crate::clock;
use crate::flight::Flights;

/// Things of one kind, by their URLs.
pub(crate) struct Fetched<T, E> {
    kept: Cache<String, Kept<T, E>>,
    flights: Arc<Flights<String, Result<Arc<T>, E>>>,
}

/// The outcome of a fetch.
#[derive(Debug)]
pub(crate) struct Kept<T, E> {
    pub outcome: Result<Arc<T>, E>,
    fetched: Instant,
    until: Instant,
}

impl<T, E> std::fmt::Debug for Fetched<T, E> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Fetched").finish_non_exhaustive()
    }
}

impl<T, E: Clone> Clone for Kept<T, E> {
    fn clone(&self) -> Self {
        Self { outcome: self.outcome.clone(), fetched: self.fetched, until: self.until }
    }
}

impl<T, E> Kept<T, E> {
    /// The outcome of a fetch that ends now, kept for so long. One that is kept for no time is its own fetcher's alone: the
    /// others try by themselves.
    pub(crate) fn new(outcome: Result<Arc<T>, E>, lasts: Duration) -> Self {
        let now = clock::now();
        Self { outcome, fetched: now, until: now + lasts }
    }

    /// The time for which it is still kept; zero where that is over.
    pub(crate) fn lasts(&self) -> Duration {
        self.until.saturating_duration_since(clock::now())
    }

    /// True where it may be used, and is not older than it may be.
    fn is_good(&self, age_max: Option<Duration>) -> bool {
        !self.lasts().is_zero() && age_max.is_none_or(|age_max| clock::since(self.fetched) < age_max)
    }
}

impl<T: Send + Sync + 'static, E: Clone + Send + Sync + 'static> Fetched<T, E> {
    /// Keeps so many at most.
    pub(crate) fn new(count_max: u64) -> Self {
        Self { kept: Cache::new(count_max), flights: Arc::default() }
    }

    /// The outcome of the last fetch of a URL, good or over.
    pub(crate) fn last(&self, url: &str) -> Option<Kept<T, E>> {
        self.kept.get(url)
    }

    /// In the place of a failure the thing that was fetched last, while it is not older than it may be. It is kept for as long as
    /// the failure would be, and gets no younger.
    pub(crate) fn last_instead(&self, failure: Kept<T, E>, url: &str, age_max: Duration) -> Kept<T, E> {
        match self.last(url) {
            Some(last) if last.outcome.is_ok() && clock::since(last.fetched) < age_max => {
                Kept { until: clock::now() + failure.lasts(), ..last }
            }
            _ => failure,
        }
    }

    /// The thing at a URL: the one that is kept, else by `fetch`. `age_max`: an older one is fetched again, though it is good.
    pub(crate) async fn get(
        &self,
        url: &str,
        age_max: Option<Duration>,
        fetch: impl Future<Output = Kept<T, E>>,
    ) -> Result<Arc<T>, E> {
        let key = url.to_owned();
        let landing = loop {
            let (flight, landing) = self.flights.join(&key).parts();
            // After the place in the flight: the one before may have ended just now.
            if let Some(kept) = self.last(url).filter(|kept| kept.is_good(age_max)) {
                return kept.outcome;
            }
            if let Some(landing) = landing {
                break landing;
            }
            if let Some(outcome) = flight.landed().await {
                return outcome;
            }
        };
        let fetched = fetch.await;
        let outcome = fetched.outcome.clone();
        if fetched.is_good(None) {
            self.kept.insert(key, fetched);
            landing.land(outcome.clone());
        }
        outcome
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use futures_util::future::join_all;

    use super::*;

    const URL: &str = "https://a.example/c";
    const LIFE: Duration = Duration::from_mins(5);
    const PAUSE: Duration = Duration::from_secs(10);

    /// Counts fetches, each of which takes a second.
    async fn fetch(count: &Cell<u32>, lasts: Duration) -> Kept<u32, &'static str> {
        tokio::time::sleep(Duration::from_secs(1)).await;
        count.set(count.get() + 1);
        let outcome = if lasts == LIFE { Ok(Arc::new(count.get())) } else { Err("away") };
        Kept::new(outcome, lasts)
    }

    #[tokio::test(start_paused = true)]
    async fn one_fetches_for_all_who_want_it() {
        let (all, count) = (Fetched::new(4), Cell::new(0));
        let got = join_all((0..50).map(|_| all.get(URL, None, fetch(&count, LIFE)))).await;
        assert!(got.iter().all(|got| got.as_deref() == Ok(&1)), "{got:?}");
        tokio::time::advance(LIFE / 2).await;
        assert_eq!(all.get(URL, None, fetch(&count, LIFE)).await.as_deref(), Ok(&1));
        assert_eq!(all.get(URL, Some(PAUSE), fetch(&count, LIFE)).await.as_deref(), Ok(&2));
        assert_eq!(all.get(URL, Some(PAUSE), fetch(&count, LIFE)).await.as_deref(), Ok(&2), "it is new");
        tokio::time::advance(LIFE).await;
        assert_eq!(all.get(URL, None, fetch(&count, LIFE)).await.as_deref(), Ok(&3));
        assert!(all.last("https://a.example/d").is_none());
    }

    #[tokio::test]
    async fn documents_are_kept_in_a_bounded_number() {
        const COUNT_MAX: u64 = 100;
        let all = Fetched::<(), &str>::new(COUNT_MAX);
        for number in 0..4 * COUNT_MAX {
            let url = format!("https://app.example/{number}");
            assert!(all.get(&url, None, async { Kept::new(Err("none"), PAUSE) }).await.is_err());
        }
        all.kept.run_pending_tasks();
        let kept = all.kept.entry_count();
        assert!((1..=COUNT_MAX).contains(&kept), "{kept}");
    }

    #[tokio::test(start_paused = true)]
    async fn after_a_failure_there_is_a_pause() {
        let (all, count) = (Fetched::new(4), Cell::new(0));
        for _ in 0..3 {
            let got = join_all((0..5).map(|_| all.get(URL, None, fetch(&count, PAUSE)))).await;
            assert!(got.iter().all(Result::is_err));
        }
        assert_eq!(count.get(), 1);
        tokio::time::advance(PAUSE).await;
        assert!(all.get(URL, None, fetch(&count, LIFE)).await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn for_a_while_the_last_one_stands_in_for_a_failure() {
        const AGE_MAX: Duration = Duration::from_hours(24);
        let (all, count) = (Fetched::new(4), Cell::new(0));
        let get = async |lasts: Duration| {
            let fetched = async {
                let fetched = fetch(&count, lasts).await;
                if fetched.outcome.is_err() { all.last_instead(fetched, URL, AGE_MAX) } else { fetched }
            };
            all.get(URL, None, fetched).await
        };
        assert_eq!(get(PAUSE).await, Err("away"), "there is no other");
        tokio::time::advance(PAUSE).await;
        assert_eq!(get(LIFE).await.as_deref(), Ok(&2));
        tokio::time::advance(LIFE).await;
        for _ in 0..3 {
            assert_eq!(get(PAUSE).await.as_deref(), Ok(&2));
        }
        assert_eq!(count.get(), 3, "after a failure there is a pause all the same");
        tokio::time::advance(PAUSE).await;
        // The way of one for whom there is no place.
        assert_eq!(get(Duration::ZERO).await.as_deref(), Ok(&2));
        assert_eq!((get(PAUSE).await.as_deref(), count.get()), (Ok(&2), 5), "that one is nobody else's");
        tokio::time::advance(AGE_MAX.saturating_sub(LIFE + PAUSE)).await;
        assert_eq!(get(PAUSE).await, Err("away"), "it has got no younger");
    }

    #[tokio::test(start_paused = true)]
    async fn an_outcome_that_is_not_kept_is_nobody_elses() {
        let (all, count) = (Fetched::new(4), Cell::new(0));
        let kept_not = all.get(URL, None, fetch(&count, Duration::ZERO));
        let (one, another) = tokio::join!(kept_not, all.get(URL, None, fetch(&count, LIFE)));
        assert_eq!((one, another.as_deref()), (Err("away"), Ok(&2)));
    }
}
