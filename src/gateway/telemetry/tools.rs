//! Which tools are told apart in metrics.
//!
//! A tool is known by what its upstream lists, never by what a client writes: whoever makes up names makes no
//! series. It gets a number at its first call, as long as there are any, and keeps it: through changes of
//! lists, through reloads, and while its upstream is away. All others are [`ToolId::OTHER`].

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwap;
use parking_lot::Mutex;

/// Longer names are not told apart: every scrape repeats them many times.
const NAME_BYTES_MAX: usize = 128;
/// Names remembered of one upstream; beyond it only those of the latest list, and those with numbers.
const NAMES_MAX: usize = 65_536;

/// A tool that is told apart, or all the others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ToolId(u32);

impl ToolId {
    /// All that are not told apart.
    pub(crate) const OTHER: Self = Self(0);
    /// What these are called.
    pub(crate) const OTHER_LABEL: &'static str = "_other";

    /// A dense index; 0 for all that are not told apart.
    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }
}

/// The tools of all upstreams.
#[derive(Clone, Debug)]
pub(crate) struct ToolIds {
    numbers: Arc<Numbers>,
    upstreams: Arc<Mutex<HashMap<Box<str>, Arc<UpstreamTools>>>>,
}

#[derive(Debug)]
pub(crate) struct UpstreamTools {
    names: ArcSwap<HashMap<Box<str>, Arc<OnceLock<ToolId>>>>,
    numbers: Arc<Numbers>,
}

/// The numbers that are left. Process-wide.
#[derive(Debug)]
struct Numbers {
    taken: AtomicU32,
    max: u32,
}

impl Numbers {
    fn next(&self) -> Option<ToolId> {
        let next = |taken| (taken < self.max).then_some(taken + 1);
        self.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).ok().map(|last| ToolId(last + 1))
    }

    fn are_left(&self) -> bool {
        self.taken.load(Ordering::Relaxed) < self.max
    }
}

impl ToolIds {
    /// Tells at most `max` apart.
    pub(crate) fn new(max: usize) -> Self {
        let numbers = Numbers { taken: AtomicU32::new(0), max: u32::try_from(max).unwrap_or(u32::MAX - 1) };
        Self { numbers: Arc::new(numbers), upstreams: Arc::default() }
    }

    /// How many are told apart at most, [`ToolId::OTHER`] among them.
    pub(crate) fn indexes(&self) -> usize {
        self.numbers.max as usize + 1
    }

    /// The tools of the upstream of this name, the same ones for everybody who asks.
    pub(crate) fn of(&self, upstream: &str) -> Arc<UpstreamTools> {
        let mut upstreams = self.upstreams.lock();
        let new = || UpstreamTools { names: ArcSwap::default(), numbers: Arc::clone(&self.numbers) };
        Arc::clone(upstreams.entry(upstream.into()).or_insert_with(|| Arc::new(new())))
    }
}

impl UpstreamTools {
    /// A tool, by the upstream's own name for it.
    pub(crate) fn find(&self, name: &str) -> ToolId {
        let names = self.names.load();
        let Some(tool) = names.get(name) else { return ToolId::OTHER };
        if let Some(tool) = tool.get() {
            return *tool;
        }
        // One that found no number may find one later: nothing is settled for it.
        if !self.numbers.are_left() {
            return ToolId::OTHER;
        }
        *tool.get_or_init(|| self.numbers.next().unwrap_or_default())
    }

    /// Whether a tool has a number, or would get one. Gives none out.
    pub(crate) fn tells_apart(&self, name: &str) -> bool {
        let names = self.names.load();
        match names.get(name) {
            Some(tool) => tool.get().map_or_else(|| self.numbers.are_left(), |tool| *tool != ToolId::OTHER),
            None => self.numbers.are_left() && name.len() <= NAME_BYTES_MAX,
        }
    }

    /// The upstream lists these. Lists differ by the capabilities of those who ask: nothing is said of the others.
    pub(crate) fn publish<'n>(&self, listed: impl Iterator<Item = Cow<'n, str>>) {
        // Without numbers names are of no use.
        if !self.numbers.are_left() {
            return;
        }
        let known = self.names.load_full();
        let new: Vec<Cow<'n, str>> = listed
            .filter(|name| name.len() <= NAME_BYTES_MAX && !known.contains_key(&**name))
            .take(NAMES_MAX)
            .collect();
        if new.is_empty() {
            return;
        }
        // Another thread may publish another list meanwhile.
        self.names.rcu(|known| {
            let is_room = known.len() + new.len() <= NAMES_MAX;
            let kept = known.iter().filter(|(_, tool)| is_room || tool.get().is_some());
            let mut names: HashMap<_, _> =
                kept.map(|(name, tool)| (name.clone(), Arc::clone(tool))).collect();
            for name in &new {
                names.entry(Box::from(&**name)).or_default();
            }
            names
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn publish(tools: &UpstreamTools, names: &[&str]) {
        tools.publish(names.iter().map(|name| Cow::Borrowed(*name)));
    }

    #[test]
    fn only_listed_tools_are_told_apart_as_long_as_there_is_room() {
        let tools = ToolIds::new(2);
        let (one, two) = (tools.of("one"), tools.of("two"));
        publish(&one, &["a", "b", "c"]);
        publish(&two, &["a"]);
        assert_eq!(one.find("made up"), ToolId::OTHER);
        assert!(["a", "b", "c", "new"].iter().all(|name| one.tells_apart(name)));
        let (first, second) = (one.find("c"), two.find("a"));
        assert_eq!([first.index(), second.index()], [1, 2]);
        assert_eq!([one.find("a"), one.find("b")], [ToolId::OTHER; 2]);
        assert_eq!(["a", "b", "c", "new"].map(|name| one.tells_apart(name)), [false, false, true, false]);
        assert_eq!([one.find("c"), two.find("a")], [first, second]);
        assert_eq!(tools.indexes(), 3);
    }

    #[test]
    fn numbers_outlive_lists_and_upstreams() {
        let tools = ToolIds::new(10);
        publish(&tools.of("u"), &["a", "b"]);
        let (a, b) = (tools.of("u").find("a"), tools.of("u").find("b"));
        publish(&tools.of("u"), &["b", "c"]);
        assert_eq!([tools.of("u").find("a"), tools.of("u").find("b")], [a, b]);
        assert_ne!(tools.of("u").find("c"), ToolId::OTHER);
    }

    #[test]
    fn lists_published_at_once_are_all_known() {
        let tools = ToolIds::new(1000).of("u");
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let tools = &tools;
                scope.spawn(move || (0..100).for_each(|tool| publish(tools, &[&format!("{thread}.{tool}")])));
            }
        });
        assert_eq!(tools.names.load().len(), 400);
    }

    #[test]
    fn names_are_bounded() {
        let tools = ToolIds::new(10);
        let one = tools.of("u");
        let long = "x".repeat(NAME_BYTES_MAX + 1);
        publish(&one, &[&long, "a"]);
        assert_eq!(one.find(&long), ToolId::OTHER);
        let a = one.find("a");
        for round in 0..3 {
            let names: Vec<String> = (0..NAMES_MAX - 10).map(|i| format!("{round}.{i}")).collect();
            one.publish(names.iter().map(|name| Cow::Borrowed(name.as_str())));
            assert!(one.names.load().len() <= NAMES_MAX, "{}", one.names.load().len());
        }
        assert_eq!(one.find("a"), a);
        assert_eq!(ToolIds::new(0).of("u").find("a"), ToolId::OTHER);
    }
}
