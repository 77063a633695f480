//! What replicas tell each other as it happens: a message of one channel.
//!
//! A message is the teller's number, a letter and what it is about. One that cannot be read is left out: it is of a
//! version that says something else.

use redis::cmd;

use super::{Redis, Urgency};

/// Bytes of the name of an upstream's lists.
pub(crate) const NAME_BYTES: usize = 32;
const REPLICA_BYTES: usize = 8;
/// Bytes of the name of a grant.
const GRANT_BYTES: usize = 16;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PeerMessage {
    /// A session was ended; sealed, for those who keep sessions.
    Ended(Vec<u8>),
    /// A call was cancelled that was not in flight at the teller; sealed, for those who keep sessions.
    Cancelled(Vec<u8>),
    /// Something happened to a grant of sign-in: its name, and what.
    GrantNews([u8; GRANT_BYTES], Vec<u8>),
    /// Lists have changed: the digest of an upstream's session key, and a bit for each kind.
    Changed(Vec<([u8; NAME_BYTES], u8)>),
}

impl Redis {
    /// The name of what an upstream's lists are known by to all replicas.
    pub(crate) fn name_of_lists(session_key: &str) -> [u8; NAME_BYTES] {
        let digest = super::digest(&[b"lists", session_key.as_bytes()]);
        digest.as_bytes().try_into().unwrap_or([0; NAME_BYTES])
    }

    /// Tells the other replicas, behind whatever was told before.
    pub(crate) fn announce(&self, message: &PeerMessage, urgency: Urgency) {
        self.tell(vec![self.publish(message)], urgency);
    }

    pub(crate) fn publish(&self, message: &PeerMessage) -> redis::Cmd {
        let mut command = cmd("PUBLISH");
        command.arg(self.channel()).arg(write(self.replica, message));
        command
    }

    pub(super) fn channel(&self) -> String {
        self.name("news")
    }

    /// `None`: nothing that was told by somebody else, or nothing that can be read.
    pub(super) fn read_message(&self, message: &[u8]) -> Option<PeerMessage> {
        let (replica, news) = message.split_at_checked(REPLICA_BYTES)?;
        if replica == self.replica.to_be_bytes() {
            return None;
        }
        let news = read(news);
        if news.is_none() {
            tracing::debug!("a message of another replica cannot be read");
        }
        news
    }
}

fn write(replica: u64, message: &PeerMessage) -> Vec<u8> {
    let mut text = replica.to_be_bytes().to_vec();
    match message {
        PeerMessage::Ended(sealed) => {
            text.push(b'e');
            text.extend_from_slice(sealed);
        }
        PeerMessage::Cancelled(sealed) => {
            text.push(b'x');
            text.extend_from_slice(sealed);
        }
        PeerMessage::GrantNews(grant, news) => {
            text.push(b'g');
            text.extend_from_slice(grant);
            text.extend_from_slice(news);
        }
        PeerMessage::Changed(lists) => {
            text.push(b'c');
            for (name, kinds) in lists {
                text.extend_from_slice(name);
                text.push(*kinds);
            }
        }
    }
    text
}

fn read(news: &[u8]) -> Option<PeerMessage> {
    let (letter, body) = news.split_first()?;
    match letter {
        b'e' => Some(PeerMessage::Ended(body.to_vec())),
        b'x' => Some(PeerMessage::Cancelled(body.to_vec())),
        b'g' => {
            let (grant, news) = body.split_first_chunk()?;
            Some(PeerMessage::GrantNews(*grant, news.to_vec()))
        }
        b'c' => {
            let (lists, rest) = body.as_chunks::<{ NAME_BYTES + 1 }>();
            let list = |list: &[u8; NAME_BYTES + 1]| {
                let (name, kinds) = list.split_first_chunk()?;
                Some((*name, *kinds.first()?))
            };
            rest.is_empty().then(|| lists.iter().filter_map(list).collect()).map(PeerMessage::Changed)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let name = Redis::name_of_lists("a");
        assert_ne!(name, Redis::name_of_lists("b"));
        for news in [
            PeerMessage::Ended(b"sealed".to_vec()),
            PeerMessage::Ended(Vec::new()),
            PeerMessage::Cancelled(b"sealed".to_vec()),
            PeerMessage::Changed(vec![(name, 5), (Redis::name_of_lists("b"), 1)]),
            PeerMessage::Changed(Vec::new()),
        ] {
            let message = write(7, &news);
            assert_eq!(message[..REPLICA_BYTES], 7_u64.to_be_bytes());
            assert_eq!(read(&message[REPLICA_BYTES..]), Some(news));
        }
        for nonsense in [&b""[..], b"y", b"c1", b"\xff\xff"] {
            assert_eq!(read(nonsense), None, "{nonsense:?}");
        }
    }
}
