//! Every request of `requests.toml`, whole and a byte at a time: what its client sees, and which calls reach the upstream.

use std::collections::BTreeMap;
use std::sync::Mutex;

use serde::Deserialize;

use super::http1::{connection_of, write};
use crate::harness::{Broken, Config, Daemon, Upstream, side_by_side};

/// Requests that are sent at once.
const SENDERS: usize = 16;

#[derive(Deserialize)]
struct Fixtures {
    fields: String,
    call: String,
    #[serde(rename = "request")]
    requests: Vec<Fixture>,
}

#[derive(Deserialize)]
struct Fixture {
    name: String,
    bytes: String,
    answers: Vec<u16>,
    calls: Vec<String>,
}

impl Fixtures {
    /// The call with this id.
    fn call(&self, id: &str) -> String {
        self.call.replace("<id>", id)
    }

    /// The bytes of a fixture, whose calls have ids that end like this.
    fn bytes(&self, fixture: &Fixture, end: &str) -> String {
        let start = |line: &str| format!("{line}\r\nHost: localhost\r\n{}", self.fields);
        let last = |call: &str| {
            let body = self.call(&format!("{call}{end}"));
            format!(
                "{}Connection: close\r\nContent-Length: {}\r\n\r\n{body}",
                start("POST /mcp HTTP/1.1"),
                body.len()
            )
        };
        let (body, inner) = (self.call(&format!("first{end}")), last("inner"));
        let chunked = format!("{:x}\r\n{body}\r\n0\r\n\r\n", body.len());
        let mut bytes = fixture.bytes.clone();
        for (name, text) in [
            ("<start>", start("POST /mcp HTTP/1.1")),
            ("<start10>", start("POST /mcp HTTP/1.0")),
            ("<startabs>", start("POST http://localhost/mcp HTTP/1.1")),
            ("<startother>", start("POST /other HTTP/1.1")),
            ("<fields>", self.fields.clone()),
            ("<chunked>", chunked),
            ("<len>", body.len().to_string()),
            ("<hex>", format!("{:x}", body.len())),
            ("<HEX>", format!("{:X}", body.len())),
            ("<body>", body),
            ("<innerlen>", inner.len().to_string()),
            ("<inner>", inner),
            ("<next>", last("next")),
            ("<fill>", "x".repeat(300)),
            ("<trailers>", format!("X-A: {}\r\n", "x".repeat(300)).repeat(30)),
        ] {
            bytes = bytes.replace(name, &text);
        }
        bytes
    }
}

/// What becomes of these bytes: the statuses, of which the last says that this is the end, and how it ends.
fn exchange(daemon: &Daemon, bytes: &str, is_whole: bool) -> (Vec<u16>, String) {
    let mut connection = daemon.connect();
    write(&mut connection, bytes.as_bytes(), is_whole);
    let (mut statuses, mut is_said) = (Vec::new(), true);
    loop {
        match connection.try_response() {
            Ok(response) => {
                statuses.push(response.status);
                is_said = connection_of(&response) == Some("close");
            }
            Err(broken) if is_said => return (statuses, format!("{broken:?}")),
            Err(broken) => return (statuses, format!("{broken:?}, unsaid")),
        }
    }
}

#[test]
fn nothing_is_understood_but_what_is_plain() {
    let fixtures: Fixtures = toml::from_str(include_str!("requests.toml")).expect("fixtures");
    let upstream = Upstream::with_tools(&["echo"]);
    let limits = "header_timeout = \"1s\"\nbody_timeout = \"1s\"\nidle_timeout = \"1s\"";
    let daemon = Daemon::start(&Config::transparent(&upstream).limits(limits));
    let (faults, expected) = (Mutex::new(Vec::new()), Mutex::new(BTreeMap::new()));
    side_by_side(0..SENDERS, |sender| {
        for (number, fixture) in fixtures.requests.iter().enumerate().skip(sender).step_by(SENDERS) {
            for is_whole in [true, false] {
                let end = format!("-{number}-{is_whole}");
                let bytes = fixtures.bytes(fixture, &end);
                let seen = exchange(&daemon, &bytes, is_whole);
                if seen != (fixture.answers.clone(), format!("{:?}", Broken::Closed)) {
                    faults.lock().unwrap().push(format!("{}, {is_whole}: {seen:?}", fixture.name));
                }
                let calls = fixture.calls.iter().map(|call| format!("{call}{end}"));
                expected.lock().unwrap().extend(calls.map(|id| (fixtures.call(&id), fixture.name.as_str())));
            }
        }
    });
    let mut expected = expected.into_inner().unwrap();
    let mut faults = faults.into_inner().unwrap();
    for received in upstream.forwarded() {
        let body = String::from_utf8_lossy(&received.body).into_owned();
        if expected.remove(&body).is_none() {
            faults.push(format!("came upstream, and should not, or twice: {body}"));
        }
    }
    faults.extend(expected.into_values().map(|name| format!("{name}: a call never came upstream")));
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}
