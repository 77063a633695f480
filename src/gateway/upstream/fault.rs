//! Why an upstream does not serve: what its questions and calls met last, in words for operators.
//!
//! Each replica keeps its latest fault with its time, and so does the upstream for what belongs to no replica. A fault
//! stands until a question is answered again, or a call where it was none of an answer. Only failures write here, and
//! questions that were answered. Texts of servers are cut and masked before they come here; none is told to a client.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use arc_swap::ArcSwapOption;
use http::StatusCode;

use super::health::clock_ms;
use crate::clock;
use net::tls::TlsFault;
use protocol::error::{NotOpened, ProcessBound, UpstreamError};

/// The cause where nothing is known of the end of a process.
pub(crate) const PROCESS_ENDED: &str = "the process ended";
/// A fault of an answer that nobody asks about again is believed for so long.
const BELIEVED_MS: u64 = 60_000;

/// A fault of an upstream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// No connection came about.
    Connect(&'static str),
    /// Nor did it in this time.
    ConnectTimedOut(Duration),
    /// The name of its host leads to no address.
    Name,
    Tls(TlsFault),
    /// An answer without a message of MCP; of it what it says it is made of.
    Http {
        status: StatusCode,
        media: Option<Box<str>>,
    },
    Redirected {
        status: StatusCode,
        to: Box<str>,
    },
    Encoded(Box<str>),
    TimedOut(Duration),
    /// The connection, or the pipe, ended before the answer.
    Closed,
    /// It is no answer that came.
    NotMcp,
    TooLarge,
    /// An error of JSON-RPC, by the method that it answers.
    Refused {
        method: &'static str,
        code: i64,
        text: Box<str>,
    },
    /// It opens sessions of no revision that the gateway does.
    Revision(Box<str>),
    /// A process ended, and this were its last words.
    Ended {
        /// The kind of end, of which there are only so many.
        cause: &'static str,
        status: Box<str>,
        said: Box<str>,
    },
    /// A process cannot be started.
    NotStarted(Box<str>),
    /// As many run as may.
    NoPlace(ProcessBound),
    /// Something of the gateway's own keeps it.
    Other(Box<str>),
}

impl Fault {
    /// Of an attempt to connect.
    pub(crate) fn of_connect(error: &io::Error) -> Self {
        use io::ErrorKind as Kind;
        Self::Connect(match error.kind() {
            Kind::ConnectionRefused => "refused",
            Kind::NetworkUnreachable | Kind::HostUnreachable => "no route to host",
            Kind::ConnectionReset | Kind::ConnectionAborted => "reset",
            Kind::TimedOut => "timed out",
            Kind::PermissionDenied => "not permitted",
            Kind::AddrNotAvailable => "no address to connect from",
            _ if error.raw_os_error().is_none() => return Self::Name,
            _ => "failed",
        })
    }

    /// The fault that an error names by itself; `None`: whoever met it knows more.
    pub(crate) fn of_error(error: &UpstreamError, told: impl Fn(&str) -> Box<str>) -> Option<Self> {
        Some(match error {
            UpstreamError::NotOpened(why) => match &**why {
                NotOpened::Failed(error) => return Self::of_error(error, told),
                NotOpened::Revision(_) => Self::Revision(told(&why.to_string())),
                NotOpened::Refused { code, message } => {
                    Self::Refused { method: "initialize", code: *code, text: told(message) }
                }
            },
            UpstreamError::Refused(refusal) => {
                Self::Refused { method: refusal.method, code: refusal.code, text: told(&refusal.message) }
            }
            UpstreamError::Status { status, media } => Self::Http { status: *status, media: media.clone() },
            UpstreamError::Redirected(redirect) => {
                Self::Redirected { status: redirect.status(), to: super::masking::plain(redirect.target()) }
            }
            UpstreamError::Encoded { coding } => Self::Encoded(super::masking::plain(coding)),
            UpstreamError::OtherMedia { media } => {
                let essence = media.split(';').next().unwrap_or_default().trim();
                Self::Http { status: StatusCode::OK, media: Some(super::masking::plain(essence)) }
            }
            UpstreamError::TooLarge | UpstreamError::LineTooLarge { .. } => Self::TooLarge,
            UpstreamError::TooManyChildren { bound } => Self::NoPlace(*bound),
            UpstreamError::NoToken => Self::Other("no access token".into()),
            UpstreamError::SessionLost => Self::Other("its sessions are lost at once".into()),
            UpstreamError::Busy { status, .. } => Self::Http { status: *status, media: None },
            _ => return None,
        })
    }

    /// The HTTP status that it came with.
    pub(crate) fn status(&self) -> Option<StatusCode> {
        match self {
            Self::Http { status, .. } | Self::Redirected { status, .. } => Some(*status),
            _ => None,
        }
    }

    /// A word for programs.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Connect(_) | Self::ConnectTimedOut(_) => "connect",
            Self::Name => "dns",
            Self::Tls(_) => "tls",
            Self::Http { .. } => "http",
            Self::Redirected { .. } => "redirect",
            Self::Encoded(_) => "encoding",
            Self::TimedOut(_) => "timeout",
            Self::Closed => "closed",
            Self::NotMcp => "not_mcp",
            Self::TooLarge => "too_large",
            Self::Refused { .. } => "error",
            Self::Ended { .. } | Self::NotStarted(_) | Self::NoPlace(_) => "process",
            Self::Revision(_) | Self::Other(_) => "other",
        }
    }

    /// The fault without any text of a server's: of these there are only so many, so that a metric can have one.
    pub(crate) fn cause(&self) -> String {
        match self {
            Self::ConnectTimedOut(_) => "connect: timed out".into(),
            Self::Http { status, .. } | Self::Redirected { status, .. } => {
                format!("HTTP {}", status.as_u16())
            }
            Self::Encoded(_) => "Content-Encoding".into(),
            Self::TimedOut(_) => "timed out".into(),
            Self::Refused { method, .. } => format!("{method}: error"),
            Self::Revision(_) => "initialize: another revision".into(),
            Self::Ended { cause, .. } => (*cause).into(),
            Self::NotStarted(_) => "the process cannot be started".into(),
            other => other.to_string(),
        }
    }

    /// True if it says that the server does not know the method, or what goes with it: servers refuse an era that they do
    /// not speak like this.
    pub(crate) fn is_era_refused(&self) -> bool {
        matches!(self, Self::Refused { code: -32602..=-32600, .. })
    }

    /// True if it is none of an answer, so that the answer to any call contradicts it.
    fn is_of_silence(&self) -> bool {
        matches!(
            self,
            Self::Connect(_)
                | Self::ConnectTimedOut(_)
                | Self::Name
                | Self::Tls(_)
                | Self::TimedOut(_)
                | Self::Closed
        )
    }

    /// True if a call that meets it says something of the server, and not of that call alone.
    pub(crate) fn is_of_server(&self) -> bool {
        (self.is_of_silence() && !matches!(self, Self::TimedOut(_)))
            || matches!(self, Self::Redirected { .. } | Self::Encoded(_))
            || self.status().is_some_and(|status| matches!(status.as_u16(), 200 | 401 | 403 | 407 | 421))
    }

    /// True if a call may have failed by it that was told this.
    pub(crate) fn explains(&self, error: &UpstreamError) -> bool {
        match error {
            UpstreamError::Unreachable => matches!(
                self,
                Self::Connect(_) | Self::ConnectTimedOut(_) | Self::Name | Self::Tls(_) | Self::Closed
            ),
            UpstreamError::Reset => matches!(self, Self::Closed | Self::Ended { .. }),
            UpstreamError::TimedOut => matches!(self, Self::TimedOut(_) | Self::ConnectTimedOut(_)),
            UpstreamError::NotStarted { .. } => matches!(self, Self::Ended { .. } | Self::NotStarted(_)),
            UpstreamError::TooManyChildren { bound } => *self == Self::NoPlace(*bound),
            UpstreamError::Credentials | UpstreamError::ClientCredentials { .. } => {
                self.status().is_some_and(|status| matches!(status.as_u16(), 401 | 403))
            }
            UpstreamError::Nonsense => matches!(self, Self::NotMcp | Self::Http { .. }),
            UpstreamError::UpstreamHost => self.status() == Some(StatusCode::MISDIRECTED_REQUEST),
            UpstreamError::OutOfOrder { .. } => true,
            UpstreamError::NotOpened(why) => {
                matches!(&**why, NotOpened::Failed(error) if self.explains(error))
            }
            _ => false,
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connect(why) => write!(f, "connect: {why}"),
            Self::ConnectTimedOut(after) => write!(f, "connect: timed out after {}", Told(*after)),
            Self::Name => f.write_str("DNS: its name does not resolve"),
            Self::Tls(fault) => write!(f, "TLS: {}", of_tls(*fault)),
            Self::Http { status, media: None } => write!(f, "HTTP {}", status.as_u16()),
            Self::Http { status, media: Some(media) } => write!(f, "HTTP {} {media}", status.as_u16()),
            Self::Redirected { status, to } => write!(f, "HTTP {} to {to}", status.as_u16()),
            Self::Encoded(coding) => write!(f, "Content-Encoding {coding}"),
            Self::TimedOut(after) => write!(f, "timed out after {}", Told(*after)),
            Self::Closed => f.write_str("connection closed"),
            Self::NotMcp => f.write_str("not an answer of MCP"),
            Self::TooLarge => f.write_str("an answer larger than reply_bytes_max"),
            Self::Refused { method, code, text } if text.is_empty() => write!(f, "{method}: error {code}"),
            Self::Refused { method, code, text } => write!(f, "{method}: {text} ({code})"),
            Self::Ended { status, said, .. } => {
                write!(f, "its process ended")?;
                if !status.is_empty() {
                    write!(f, ", {status}")?;
                }
                if said.is_empty() { Ok(()) } else { write!(f, ": {said}") }
            }
            Self::NotStarted(why) => write!(f, "its process cannot be started: {why}"),
            Self::NoPlace(bound) => write!(f, "{bound}"),
            Self::Revision(why) | Self::Other(why) => f.write_str(why),
        }
    }
}

fn of_tls(fault: TlsFault) -> &'static str {
    match fault {
        TlsFault::UnknownIssuer => "certificate of an authority that is not trusted",
        TlsFault::OtherName | TlsFault::NoName => "certificate for another name",
        TlsFault::Authority => "certificate of an authority, not of a server",
        TlsFault::OtherPurpose => "certificate not for servers",
        TlsFault::Unsupported => "certificate of a kind that is not supported",
        TlsFault::Expired => "certificate expired",
        TlsFault::NotYetValid => "certificate not valid yet",
        TlsFault::Certificate => "certificate not accepted",
        TlsFault::OurCertificate => "our certificate was refused",
        TlsFault::Refused => "handshake refused",
        TlsFault::NotTls => "the server does not speak TLS",
        TlsFault::BrokenOff => "handshake broken off",
    }
}

/// A span as people say it.
struct Told(Duration);

impl fmt::Display for Told {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.as_secs_f64();
        if seconds < 0.95 {
            write!(f, "{} ms", self.0.as_millis().max(1))
        } else {
            write!(f, "{} s", seconds.round())
        }
    }
}

/// A fault, and when it was met.
#[derive(Debug)]
pub(crate) struct NotedFault {
    pub(crate) fault: Fault,
    /// When it was met last, in seconds since 1970.
    pub(crate) at_s: u64,
    /// When the first of those alike was, with nothing else between.
    pub(crate) first_s: u64,
    pub(crate) at_ms: u64,
    /// The number of calls that had been answered by then.
    answered: u64,
    /// True if it says how the server is.
    is_standing: bool,
}

/// The latest fault of one thing.
#[derive(Debug, Default)]
pub(crate) struct LastFault {
    noted: ArcSwapOption<NotedFault>,
    /// When a question was answered as it should be; 0: never.
    good_ms: AtomicU64,
}

impl LastFault {
    /// A fault was met, after so many answers. `is_standing`: it says how the server is, until that is asked again.
    #[cold]
    pub(crate) fn note(&self, fault: Fault, answered: u64, is_standing: bool) {
        let (at_s, now_ms) = (clock::now_s(), clock_ms(clock::now()));
        let before = self.noted.load();
        let stands = |before: &NotedFault| before.is_standing && !self.is_over(before, answered);
        if !is_standing && before.as_ref().is_some_and(|before| stands(before)) {
            return;
        }
        let alike = before.as_ref().filter(|before| {
            before.fault == fault && before.is_standing == is_standing && !self.is_over(before, answered)
        });
        let first_s = alike.map_or(at_s, |before| before.first_s);
        self.noted.store(Some(Arc::new(NotedFault {
            fault,
            at_s,
            first_s,
            at_ms: now_ms,
            answered,
            is_standing,
        })));
    }

    /// A question was answered as it should be.
    pub(crate) fn is_good(&self) {
        if self.noted.load().is_some() {
            self.good_ms.store(clock_ms(clock::now()), Ordering::Relaxed);
        }
    }

    /// A connection came about: a fault that kept it from that is over.
    pub(crate) fn note_connected(&self) {
        let is_of_connection = |fault: &Fault| {
            matches!(fault, Fault::Connect(_) | Fault::ConnectTimedOut(_) | Fault::Name | Fault::Tls(_))
        };
        if self.noted.load().as_ref().is_some_and(|noted| is_of_connection(&noted.fault)) {
            self.is_good();
        }
    }

    /// The latest, even if it is over.
    pub(crate) fn latest(&self) -> Option<Arc<NotedFault>> {
        self.noted.load_full()
    }

    /// True if `noted` says how the server is now, after so many answers. `is_asked`: questions would find out.
    pub(crate) fn stands(&self, noted: &NotedFault, answered: u64, is_asked: bool, now: Instant) -> bool {
        let is_old = !is_asked && clock_ms(now).saturating_sub(noted.at_ms) > BELIEVED_MS;
        noted.is_standing && !self.is_over(noted, answered) && !is_old
    }

    fn is_over(&self, noted: &NotedFault, answered: u64) -> bool {
        let good_ms = self.good_ms.load(Ordering::Relaxed);
        good_ms >= noted.at_ms || (noted.fault.is_of_silence() && answered > noted.answered)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_fault_has_its_words() {
        let http = |status, media: Option<&str>| Fault::Http {
            status: StatusCode::from_u16(status).expect("a status"),
            media: media.map(Box::from),
        };
        let redirected = Fault::Redirected { status: StatusCode::TEMPORARY_REDIRECT, to: "/mcp/".into() };
        let refused = |text: &str| Fault::Refused { method: "initialize", code: -32603, text: text.into() };
        let connect = |kind: io::ErrorKind| Fault::of_connect(&io::Error::from(kind));
        for (fault, words, cause) in [
            (Fault::of_connect(&io::Error::from_raw_os_error(111)), "connect: refused", "connect: refused"),
            (
                Fault::of_connect(&io::Error::from_raw_os_error(113)),
                "connect: no route to host",
                "connect: no route to host",
            ),
            (
                connect(io::ErrorKind::Other),
                "DNS: its name does not resolve",
                "DNS: its name does not resolve",
            ),
            (Fault::Tls(TlsFault::Expired), "TLS: certificate expired", "TLS: certificate expired"),
            (http(421, Some("text/plain")), "HTTP 421 text/plain", "HTTP 421"),
            (http(404, None), "HTTP 404", "HTTP 404"),
            (redirected, "HTTP 307 to /mcp/", "HTTP 307"),
            (Fault::Encoded("gzip".into()), "Content-Encoding gzip", "Content-Encoding"),
            (Fault::TimedOut(Duration::from_millis(5004)), "timed out after 5 s", "timed out"),
            (Fault::TimedOut(Duration::from_millis(300)), "timed out after 300 ms", "timed out"),
            (refused("database is down"), "initialize: database is down (-32603)", "initialize: error"),
            (refused(""), "initialize: error -32603", "initialize: error"),
        ] {
            assert_eq!((fault.to_string(), fault.cause()), (words.to_owned(), cause.to_owned()));
        }
    }

    #[test]
    fn an_answer_ends_what_was_silence() {
        let (last, now) = (LastFault::default(), clock::now());
        last.note(Fault::Connect("refused"), 7, true);
        let noted = last.latest().expect("one");
        assert!(last.stands(&noted, 7, true, now));
        assert!(!last.stands(&noted, 8, true, now), "a call was answered");
        last.note(Fault::Http { status: StatusCode::UNAUTHORIZED, media: None }, 8, true);
        let noted = last.latest().expect("one");
        assert!(last.stands(&noted, 9, true, now), "that is an answer, too");
        assert!(!last.stands(&noted, 9, false, now + Duration::from_secs(90)), "nobody asks");
        last.is_good();
        assert!(!last.stands(&noted, 9, true, now));
        assert!(last.latest().is_some(), "it is still the last one");
        last.note(Fault::TimedOut(Duration::from_secs(1)), 9, false);
        assert!(!last.stands(&last.latest().expect("one"), 9, true, now), "it says nothing of the server");
    }
}
