//! The chapter about errors: a row for each that the gateway answers with.

use std::time::Duration;

use super::document_writer::DocumentWriter as _;
use super::markdown_page::MarkdownPage;
use protocol::error::{WireError, causes};

const INTRODUCTION: [&str; 2] = [
    "What the gateway refuses or cannot do is answered with a JSON-RPC error. Its message says what to do next, and whether \
     the call may have been executed. An upstream's own JSON-RPC errors are relayed as they are; only to lists they become \
     502, as a list is not one upstream's.",
    "`error_type` is the label of metrics, logs and traces. `Retry-After` is in seconds.",
];

const REMARKS: [&str; 7] = [
    "`data.retryAfterMs` of the error says in milliseconds what `Retry-After` says in seconds, to clients that see no \
     headers. HTTP 403 is for what other credentials may allow: with `insufficient_scope` in `WWW-Authenticate` where more \
     scopes would help, else without a challenge. `forbidden_errors = \"jsonrpc\"` on an endpoint makes `forbidden` an HTTP 200. \
     No credential lifts a rule on arguments or a pin, so that these are told in an HTTP 200.",
    "To clients with sessions, and over HTTP+SSE, the failure of a request is told in an HTTP 200 with the same code, because \
     some of them give up the session at any other status. `legacy_errors = \
     \"http\"` on an endpoint gives it the status. A header mismatch has the code -32001 there.",
    "`server/discover` is answered whatever state the upstreams are in, as clients take a 429 for a server of an older \
     revision and a 5xx for none: what is unknown counts as having tools, prompts and resources. Only limits and states of the \
     gateway itself refuse it.",
    "`cancelled` has no answer where the client left before its reply was complete: it is in metrics and logs only.",
    "A request head over `header_bytes_max` or `headers_max` gets 431. Over HTTP/1.1, what two readers could take for \
     different messages ends the connection with 400, or with 501 for any coding but `chunked`: `Content-Length` beside \
     `Transfer-Encoding`, either of them twice, a length with a sign, a leading zero or a comma, a line that ends with a bare \
     line feed, chunks that are not well formed. If an upstream does it, the call fails with 502.",
    "An error in the middle of an event stream is its last event; in the middle of a JSON reply the connection is cut.",
    "A request that failed on a pooled connection is sent again once, but only if it was not sent or is safe to repeat. \
     `tools/call` is not, unless `retry` says so.",
];

pub(super) fn chapter() -> String {
    let mut page = MarkdownPage::new("Errors", &INTRODUCTION);
    let rows = causes().into_iter().map(|(error, when)| {
        let WireError { status, code, reason, retry_after } = error.outcome();
        let retry_after = match retry_after {
            None => String::new(),
            Some(Duration::ZERO) => "varies".to_owned(),
            Some(after) => after.as_secs().to_string(),
        };
        let reason = format!("`{}`", reason.label());
        vec![status.as_str().into(), code.to_string(), reason, retry_after, when.into(), error.to_string()]
    });
    page.grid(&["HTTP", "Code", "error_type", "Retry-After", "When", "Message"], rows);
    page.section("REMARKS");
    for remark in REMARKS {
        page.paragraph(remark);
    }
    page.finish()
}
