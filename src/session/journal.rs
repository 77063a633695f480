//! The journal's text: one line for each change of a session's state.
//!
//! A line is a checksum, what happened, and to what, separated by single spaces. Lines that are damaged, torn
//! or not understood are skipped and counted; every other line still counts. Of what is read only the last
//! state is kept, without what has expired.
//!
//! Deliberately not here: files and threads (see `writer.rs`).

use std::collections::HashMap;
use std::fmt::Write as _;
use std::io::{self, BufRead};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::HeaderValue;

use super::SessionId;
use super::entry::UpstreamSession;
use super::level::Level;
use super::subscribed::Subscribed;
use super::tasks::{Origin, TaskKey};
use crate::protocol::version::LegacyVersion;
use crate::upstream::ReplicaKey;

/// Upstream session ids longer than this are not written.
const UPSTREAM_ID_BYTES_MAX: usize = 4 << 10;
const CHECKSUM_CHARS: usize = 8;
/// Tasks that are read back: others must not take the journal's room from sessions.
const TASKS_MAX: usize = 200_000;

/// A change of a session's state.
#[derive(Clone, Copy, Debug)]
pub(super) enum Record<'a> {
    /// An upstream session was opened.
    Opened { session: SessionId, expires_s: u64, upstream: &'a str, opened: &'a UpstreamSession },
    /// An upstream session is gone.
    Lost { session: SessionId, upstream: &'a str },
    /// The log level was set.
    Level { session: SessionId, expires_s: u64, level: Level },
    /// The client wants to be told when a resource changes.
    Subscribed { session: SessionId, expires_s: u64, upstream: &'a str, uri: &'a str },
    /// It no longer wants to.
    Unsubscribed { session: SessionId, upstream: &'a str, uri: &'a str },
    /// The session was ended.
    Ended { session: SessionId, expires_s: u64 },
    /// The session's state was dropped, not the session.
    Dropped { session: SessionId },
}

impl Record<'_> {
    /// Whose state changes.
    pub(super) fn session(&self) -> SessionId {
        match *self {
            Self::Opened { session, .. }
            | Self::Lost { session, .. }
            | Self::Level { session, .. }
            | Self::Subscribed { session, .. }
            | Self::Unsubscribed { session, .. }
            | Self::Ended { session, .. }
            | Self::Dropped { session } => session,
        }
    }

    /// The line, with its end. `None` if it would be longer than any line may be.
    pub(super) fn line(&self) -> Option<String> {
        // The checksum is put where these stand.
        let mut line = "00000000 ".to_owned();
        // Writing to a string does not fail.
        let _ = match *self {
            Self::Opened { session, expires_s, upstream, opened } => {
                let version = opened.version.as_str();
                let id = match &opened.id {
                    Some(id) if id.len() > UPSTREAM_ID_BYTES_MAX => return None,
                    Some(id) => format!("={}", URL_SAFE_NO_PAD.encode(id)),
                    None => "-".to_owned(),
                };
                let replica = opened.replica.map(|ReplicaKey(key)| format!(" {key:x}")).unwrap_or_default();
                write!(line, "opened {session:?} {expires_s} {upstream} {version} {id}{replica}")
            }
            Self::Lost { session, upstream } => write!(line, "lost {session:?} {upstream}"),
            Self::Level { session, expires_s, level } => {
                write!(line, "level {session:?} {expires_s} {}", level.as_str())
            }
            Self::Subscribed { session, expires_s, upstream, uri } => {
                write!(line, "subscribed {session:?} {expires_s} {upstream} ={}", URL_SAFE_NO_PAD.encode(uri))
            }
            Self::Unsubscribed { session, upstream, uri } => {
                write!(line, "unsubscribed {session:?} {upstream} ={}", URL_SAFE_NO_PAD.encode(uri))
            }
            Self::Ended { session, expires_s } => write!(line, "ended {session:?} {expires_s}"),
            Self::Dropped { session } => write!(line, "dropped {session:?}"),
        };
        with_checksum(line)
    }
}

/// The line that says how a task was made, with its end.
pub(super) fn task_line(key: &TaskKey, expires_s: u64, origin: &Origin) -> String {
    let key = u128::from_be_bytes(*key);
    let session = origin.session.map_or_else(|| "-".to_owned(), |session| format!("{session:?}"));
    let tool = URL_SAFE_NO_PAD.encode(&*origin.tool);
    with_checksum(format!("00000000 task {key:032x} {expires_s} {session} ={tool}")).unwrap_or_default()
}

/// What such a line says, if it is about this task.
pub(super) fn read_task(line: &[u8], key: &TaskKey) -> Option<(u64, Origin)> {
    Replay::read(line, 0).ok()?.tasks.remove(key)
}

/// Puts the checksum in its place, and an end to the line.
fn with_checksum(mut line: String) -> Option<String> {
    let checksum = checksum(line.get(CHECKSUM_CHARS + 1..)?);
    line.replace_range(..CHECKSUM_CHARS, &checksum);
    line.push('\n');
    Some(line)
}

/// What a journal says in the end.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Replay {
    pub(super) sessions: HashMap<SessionId, Replayed>,
    pub(super) revoked: HashMap<SessionId, u64>,
    /// When each task is forgotten, and how it was made.
    pub(super) tasks: HashMap<TaskKey, (u64, Origin)>,
    /// Lines that said nothing.
    pub(super) lines_skipped: u64,
}

/// The state of one session.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Replayed {
    pub(super) expires_s: u64,
    pub(super) level: Option<Level>,
    pub(super) upstreams: HashMap<Box<str>, UpstreamSession>,
    pub(super) subscribed: Subscribed,
}

impl Replay {
    /// Reads a journal. What has expired by `now_s` is left out.
    pub(super) fn read(mut journal: impl BufRead, now_s: u64) -> io::Result<Self> {
        let mut replay = Self::default();
        let mut line = Vec::new();
        while journal.read_until(b'\n', &mut line)? > 0 {
            let is_whole = line.pop_if(|last| *last == b'\n').is_some();
            // The end of a line that could not be written whole leaves an empty one.
            if !line.is_empty() && (!is_whole || replay.apply(&line).is_none()) {
                replay.lines_skipped += 1;
            }
            line.clear();
        }
        replay.revoked.retain(|_, expires_s| *expires_s > now_s);
        replay.tasks.retain(|_, (expires_s, _)| *expires_s > now_s);
        replay.drop_tasks_beyond(TASKS_MAX);
        replay.sessions.retain(|_, session| {
            let has_state = session.level.is_some() || !session.subscribed.is_empty();
            session.expires_s > now_s && (has_state || !session.upstreams.is_empty())
        });
        Ok(replay)
    }

    /// The shortest journal that says the same.
    pub(super) fn lines(&self) -> impl Iterator<Item = String> {
        let ended = self.revoked.iter().filter_map(|(session, expires_s)| {
            Record::Ended { session: *session, expires_s: *expires_s }.line()
        });
        let live = self.sessions.iter().flat_map(|(session, replayed)| {
            let (session, expires_s) = (*session, replayed.expires_s);
            let level = replayed.level.map(|level| Record::Level { session, expires_s, level });
            let opened = replayed.upstreams.iter().map(move |(upstream, opened)| Record::Opened {
                session,
                expires_s,
                upstream,
                opened,
            });
            let subscribed = replayed.subscribed.iter().map(move |(upstream, uri)| Record::Subscribed {
                session,
                expires_s,
                upstream,
                uri,
            });
            level.into_iter().chain(subscribed).chain(opened).filter_map(|record| record.line())
        });
        let tasks = self.tasks.iter().map(|(key, (expires_s, origin))| task_line(key, *expires_s, origin));
        ended.chain(live).chain(tasks)
    }

    /// Keeps those that live longest.
    fn drop_tasks_beyond(&mut self, tasks_max: usize) {
        if self.tasks.len() <= tasks_max {
            return;
        }
        let mut ends: Vec<u64> = self.tasks.values().map(|(expires_s, _)| *expires_s).collect();
        ends.sort_unstable_by_key(|expires_s| std::cmp::Reverse(*expires_s));
        let last_s = ends.get(tasks_max).copied().unwrap_or_default();
        self.tasks.retain(|_, (expires_s, _)| *expires_s > last_s);
    }

    /// `None` if the line cannot be understood.
    fn apply(&mut self, line: &[u8]) -> Option<()> {
        let (sum, record) = std::str::from_utf8(line).ok()?.split_once(' ')?;
        if sum != checksum(record) {
            return None;
        }
        let mut words = record.split(' ');
        let what = words.next()?;
        let session = SessionId(u128::from_str_radix(words.next()?, 16).ok()?);
        match what {
            "opened" => {
                let expires_s = words.next()?.parse().ok()?;
                let upstream = words.next()?.into();
                let version = LegacyVersion::of(words.next()?)?;
                let id = match words.next()? {
                    "-" => None,
                    id => Some(upstream_id(id)?),
                };
                let replica = match words.next() {
                    Some(key) => Some(ReplicaKey(u64::from_str_radix(key, 16).ok()?)),
                    None => None,
                };
                if let Some(live) = self.live(session, expires_s) {
                    live.upstreams.insert(upstream, UpstreamSession::new(id, version).at(replica));
                }
            }
            "lost" => {
                let upstream = words.next()?;
                if let Some(live) = self.sessions.get_mut(&session) {
                    live.upstreams.remove(upstream);
                }
            }
            "level" => {
                let expires_s = words.next()?.parse().ok()?;
                let level = Level::of(words.next()?)?;
                if let Some(live) = self.live(session, expires_s) {
                    live.level = Some(level);
                }
            }
            "subscribed" => {
                let expires_s = words.next()?.parse().ok()?;
                let (upstream, uri) = (words.next()?, text(words.next()?)?);
                if let Some(live) = self.live(session, expires_s) {
                    // It was within the bound when it was written.
                    let _ = live.subscribed.add(upstream, &uri, usize::MAX);
                }
            }
            "unsubscribed" => {
                let (upstream, uri) = (words.next()?, text(words.next()?)?);
                if let Some(live) = self.sessions.get_mut(&session) {
                    live.subscribed.remove(upstream, &uri);
                }
            }
            "ended" => {
                self.revoked.insert(session, words.next()?.parse().ok()?);
                self.sessions.remove(&session);
            }
            "dropped" => {
                self.sessions.remove(&session);
            }
            "task" => {
                let expires_s = words.next()?.parse().ok()?;
                let made_in = match words.next()? {
                    "-" => None,
                    id => Some(SessionId(u128::from_str_radix(id, 16).ok()?)),
                };
                let origin = Origin { session: made_in, tool: text(words.next()?)?.into() };
                self.tasks.insert(session.0.to_be_bytes(), (expires_s, origin));
            }
            _ => return None,
        }
        Some(())
    }

    /// The session's state, unless it was ended.
    fn live(&mut self, session: SessionId, expires_s: u64) -> Option<&mut Replayed> {
        if self.revoked.contains_key(&session) {
            return None;
        }
        let live = self.sessions.entry(session).or_default();
        live.expires_s = expires_s;
        Some(live)
    }
}

fn upstream_id(word: &str) -> Option<HeaderValue> {
    let mut id = HeaderValue::from_bytes(&URL_SAFE_NO_PAD.decode(word.strip_prefix('=')?).ok()?).ok()?;
    id.set_sensitive(true);
    Some(id)
}

fn text(word: &str) -> Option<String> {
    String::from_utf8(URL_SAFE_NO_PAD.decode(word.strip_prefix('=')?).ok()?).ok()
}

/// FNV-1a: notices what a disk or a stopped process does to a line, and keeps nobody from writing one.
fn checksum(record: &str) -> String {
    let sum =
        record.bytes().fold(0x811c_9dc5_u32, |sum, byte| (sum ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    format!("{sum:08x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: SessionId = SessionId(0xa << 100);
    const B: SessionId = SessionId(0xb << 100);

    fn opened(id: Option<&'static str>) -> UpstreamSession {
        UpstreamSession::new(id.map(HeaderValue::from_static), LegacyVersion::V2025_06_18)
    }

    fn text(records: &[Record<'_>]) -> String {
        records.iter().map(|record| record.line().expect("a line")).collect()
    }

    fn read(text: impl AsRef<[u8]>, now_s: u64) -> Replay {
        Replay::read(text.as_ref(), now_s).expect("memory")
    }

    fn session(expires_s: u64, level: Option<Level>, upstreams: &[(&str, UpstreamSession)]) -> Replayed {
        let upstreams = upstreams.iter().map(|(name, opened)| ((*name).into(), opened.clone())).collect();
        Replayed { expires_s, level, upstreams, subscribed: Subscribed::default() }
    }

    #[test]
    fn the_replica_that_knows_it_is_kept() {
        for (id, replica, kept) in [
            (Some("one"), Some(ReplicaKey(u64::MAX)), Some(ReplicaKey(u64::MAX))),
            (Some("one"), Some(ReplicaKey(0)), Some(ReplicaKey(0))),
            (Some("one"), None, None),
            (None, Some(ReplicaKey(7)), None),
        ] {
            let opened = opened(id).at(replica);
            let record = Record::Opened { session: A, expires_s: 100, upstream: "x", opened: &opened };
            let replay = read(text(&[record]), 1);
            assert_eq!(replay.sessions[&A].upstreams["x"].replica, kept, "{id:?} {replica:?}");
        }
    }

    #[test]
    fn the_last_word_counts() {
        let (one, two, none) = (opened(Some("one =?")), opened(Some("two")), opened(None));
        let open = |session, upstream, opened| Record::Opened { session, expires_s: 100, upstream, opened };
        let lost = |session, upstream| Record::Lost { session, upstream };
        let ended = |session| Record::Ended { session, expires_s: 100 };
        let level = |session, level| Record::Level { session, expires_s: 100, level };
        let subscribed = |upstream, uri| Record::Subscribed { session: A, expires_s: 100, upstream, uri };
        let unsubscribed = |upstream, uri| Record::Unsubscribed { session: A, upstream, uri };
        let own = SessionId::own(LegacyVersion::NEWEST);
        for (name, records, sessions, revoked) in [
            (
                "opened",
                vec![open(A, "x", &one)],
                vec![(A, session(100, None, &[("x", one.clone())]))],
                vec![],
            ),
            (
                "opened again",
                vec![open(A, "x", &one), lost(A, "x"), open(A, "x", &two), open(A, "y", &none)],
                vec![(A, session(100, None, &[("x", two.clone()), ("y", none.clone())]))],
                vec![],
            ),
            ("lost", vec![open(A, "x", &one), lost(A, "x")], vec![], vec![]),
            (
                "level",
                vec![level(A, Level::Info), level(A, Level::Error), lost(A, "x")],
                vec![(A, session(100, Some(Level::Error), &[]))],
                vec![],
            ),
            (
                "subscribed",
                vec![
                    subscribed("x", "u v"),
                    subscribed("x", "w"),
                    unsubscribed("x", "w"),
                    unsubscribed("y", "u v"),
                ],
                vec![(A, {
                    let mut replayed = session(100, None, &[]);
                    replayed.subscribed.add("x", "u v", 1).expect("room");
                    replayed
                })],
                vec![],
            ),
            ("unsubscribed", vec![subscribed("x", "u v"), unsubscribed("x", "u v")], vec![], vec![]),
            (
                "ended",
                vec![open(A, "x", &one), ended(A), open(A, "y", &two), level(A, Level::Info)],
                vec![],
                vec![A],
            ),
            (
                "dropped and used again",
                vec![open(A, "x", &one), Record::Dropped { session: A }, open(A, "y", &two)],
                vec![(A, session(100, None, &[("y", two.clone())]))],
                vec![],
            ),
            (
                "several",
                vec![open(A, "x", &one), ended(B), open(own, "x", &none)],
                vec![
                    (A, session(100, None, &[("x", one.clone())])),
                    (own, session(100, None, &[("x", none.clone())])),
                ],
                vec![B],
            ),
        ] {
            let replay = read(text(&records), 50);
            let expected = Replay {
                tasks: HashMap::new(),
                sessions: sessions.into_iter().collect(),
                revoked: revoked.into_iter().map(|session| (session, 100)).collect(),
                lines_skipped: 0,
            };
            assert_eq!(replay, expected, "{name}");
            assert_eq!(read(replay.lines().collect::<String>(), 50), expected, "{name}, written anew");
            assert_eq!(read(text(&records), 100), Replay::default(), "{name}, expired");
        }
    }

    #[test]
    fn damage_costs_the_damaged_lines_only() {
        let one = opened(Some("one"));
        let first = Record::Opened { session: A, expires_s: 100, upstream: "x", opened: &one };
        let last = Record::Ended { session: B, expires_s: 100 };
        let (first, last) = (text(&[first]).into_bytes(), text(&[last]).into_bytes());
        let whole = read([&*first, &last].concat(), 0);
        assert_eq!((whole.sessions.len(), whole.revoked.len()), (1, 1));
        for garbage in
            [&b"\xff\xfe\0"[..], b"00000000 ended 1 2", b"no such thing", b" ", &vec![b'x'; 1 << 20]]
        {
            let replay = read([&*first, garbage, b"\n\n", &last].concat(), 0);
            assert_eq!(replay, Replay { lines_skipped: 1, ..read([&*first, &last].concat(), 0) });
        }
        for end in 1..last.len() {
            let replay = read([&*first, &last[..end]].concat(), 0);
            assert_eq!(
                (replay.sessions.len(), replay.revoked.len(), replay.lines_skipped),
                (1, 0, 1),
                "{end}"
            );
        }
        for byte in 0..first.len() - 1 {
            let mut damaged = first.clone();
            damaged[byte] ^= 1;
            assert!(read(&damaged, 0).sessions.is_empty(), "byte {byte}");
        }
    }

    #[test]
    fn tasks_are_kept_until_they_expire() {
        let origin = |session| Origin { session, tool: "a tool".into() };
        let (one, two) = ([1; 16], [0xff; 16]);
        let lines = task_line(&one, 10, &origin(None)) + &task_line(&two, 20, &origin(Some(A)));
        let replay = read(&lines, 5);
        assert_eq!(replay.lines_skipped, 0);
        assert_eq!(replay.tasks, [(one, (10, origin(None))), (two, (20, origin(Some(A))))].into());
        let again: String = replay.lines().collect();
        assert_eq!(read(again, 10).tasks, [(two, (20, origin(Some(A))))].into());
        assert_eq!(read_task(lines.as_bytes(), &one), Some((10, origin(None))));
        assert_eq!(read_task(lines.as_bytes(), &[7; 16]), None);
        let mut replay = read(&lines, 5);
        replay.drop_tasks_beyond(1);
        assert_eq!(replay.tasks.keys().collect::<Vec<_>>(), [&two]);
    }

    #[test]
    fn what_no_line_can_hold_is_not_written() {
        let id = HeaderValue::from_str(&"x".repeat(UPSTREAM_ID_BYTES_MAX + 1)).expect("a value");
        let opened = UpstreamSession::new(Some(id), LegacyVersion::NEWEST);
        assert!(Record::Opened { session: A, expires_s: 1, upstream: "x", opened: &opened }.line().is_none());
    }
}
