//! The events of a reply that is a stream, however its bytes arrive.
//!
//! Deliberately only what the servers under test send: chunked framing, one line of data per event.

use memchr::memmem;

use crate::http1;
use crate::tally::Fault;

/// Bytes of one stream's reply, from the status line on.
#[derive(Default)]
pub(crate) struct Inbox {
    /// As they came, with chunked framing.
    pub(crate) framed: Vec<u8>,
    /// Whether the last chunk has come.
    pub(crate) has_ended: bool,
    /// Without it, up to an event that is not whole yet.
    text: Vec<u8>,
    pub(crate) is_past_head: bool,
}

impl Inbox {
    /// The data of the next whole event; comments and events without data are passed over.
    pub(crate) fn next_event(&mut self) -> Result<Option<Vec<u8>>, Fault> {
        if !self.is_past_head {
            let Some(head) = http1::parse_head(&self.framed) else { return Ok(None) };
            let status = head.start_line().get(9..12).unwrap_or_default();
            if status != b"200" {
                return Err(Fault::Status(String::from_utf8_lossy(status).into_owned()));
            }
            if !head.header("content-type").is_some_and(|kind| kind.starts_with(b"text/event-stream")) {
                return Err(Fault::Malformed);
            }
            let length = head.length;
            self.framed.drain(..length);
            self.is_past_head = true;
        }
        while let Some((data, length)) = http1::next_chunk(&self.framed).map_err(|_| Fault::Malformed)? {
            self.has_ended = data.is_empty();
            self.text.extend_from_slice(data);
            self.framed.drain(..length);
        }
        while let Some(end) = memmem::find(&self.text, b"\n\n") {
            let event: Vec<u8> = self.text.drain(..end + 2).collect();
            let data = event.split(|&byte| byte == b'\n').find_map(|line| line.strip_prefix(b"data:"));
            if let Some(data) = data.filter(|data| !data.trim_ascii().is_empty()) {
                return Ok(Some(data.to_vec()));
            }
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str =
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";

    fn events(bytes: &[u8], step: usize) -> Result<Vec<String>, Fault> {
        let (mut inbox, mut events) = (Inbox::default(), Vec::new());
        for part in bytes.chunks(step) {
            inbox.framed.extend_from_slice(part);
            while let Some(event) = inbox.next_event()? {
                events.push(String::from_utf8(event).unwrap());
            }
        }
        Ok(events)
    }

    #[test]
    fn events_are_found_however_they_arrive() {
        let text = format!("{HEAD}8\r\ndata: a\n\r\n1\r\n\n\r\n6\r\n: b\n\nd\r\nA\r\nata:{{}}\n\nda\r\n");
        for step in 1..text.len() {
            assert_eq!(events(text.as_bytes(), step).unwrap(), [" a", "{}"], "{step}");
        }
    }

    #[test]
    fn the_end_is_seen() {
        let mut inbox =
            Inbox { framed: format!("{HEAD}6\r\n: b\n\n\n\r\n0\r\n\r\n").into(), ..Inbox::default() };
        assert_eq!((inbox.next_event().unwrap(), inbox.has_ended), (None, true));
    }

    #[test]
    fn what_is_no_stream_is_a_fault() {
        let refused = "HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\r\n";
        let json = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}";
        for (text, fault) in [(refused, Fault::Status("503".into())), (json, Fault::Malformed)] {
            assert_eq!(events(text.as_bytes(), text.len()), Err(fault), "{text}");
        }
    }
}
