//! Sessions and streams, which revisions of before 2026 have.

use crate::doctor::rule::rules;

rules! {
    SESSION_ID: Error Sessions "session-id"
        good "session ids are visible ASCII, different and hard to guess"
        bad "session ids can be guessed or cannot be sent"
        why "Who knows the id of a session can use it, and hear what its client asks."
        fix "Use at least 128 random bits, as letters and digits."
        section "2025-11-25/basic/transports#session-management";
    SESSION_NEEDED: Warning Sessions "session-needed"
        good "requests without the session id are refused"
        bad "requests without the session id are not refused with HTTP 400"
        why "A client that lost its id is answered outside its session, and does not notice."
        fix "Answer 400 to requests without Mcp-Session-Id, except initialize."
        section "2025-11-25/basic/transports#session-management";
    SESSION_UNKNOWN: Error Sessions "session-unknown"
        good "unknown session ids get HTTP 404"
        bad "unknown session ids do not get HTTP 404"
        why "404 is how clients learn, after a restart of the server, that they have to begin a new \
             session."
        fix "Answer 404 to a session id that is not, or no longer, known."
        section "2025-11-25/basic/transports#session-management";
    SESSION_END: Warning Sessions "session-end"
        good "a session that was ended by DELETE is over"
        bad "DELETE does not end a session"
        why "Sessions that nobody needs stay until they expire, if ever."
        fix "End the session on DELETE and answer 404 to its id from then on; or answer 405 to DELETE."
        section "2025-11-25/basic/transports#session-management";
    SESSION_ECHO: Warning Sessions "session-of-the-past"
        good "no session ids since 2026"
        bad "gives session ids to clients that have no sessions"
        why "Since 2026-07-28 there are none; proxies may take such a server for one that has to be \
             reached at the same replica."
        fix "Send no Mcp-Session-Id with revisions since 2026-07-28."
        section "2026-07-28/basic/transports/streamable-http#earlier-streamable-http-revisions";
    GET_STREAM: Error Sessions "get-stream"
        good "GET opens a stream, or is refused with HTTP 405"
        bad "GET neither opens a stream nor is refused with HTTP 405"
        why "Clients open it after initialize, and take anything else for a fault."
        fix "Answer GET with text/event-stream, or with 405."
        section "2025-11-25/basic/transports#listening-for-messages-from-the-server";
    GET_GONE: Advice Sessions "get-of-the-past"
        good "GET is refused with HTTP 405, as it should be since 2026"
        bad "GET is not refused with HTTP 405"
        why "Older clients learn from 405 that there is no stream; anything else looks like a fault."
        fix "Answer 405 with Allow: POST to GET and DELETE."
        section "2026-07-28/basic/transports/streamable-http#earlier-streamable-http-revisions";
    VERSION_HEADER: Warning Sessions "version-header"
        good "an unknown MCP-Protocol-Version is refused"
        bad "an unknown MCP-Protocol-Version is not refused with HTTP 400"
        why "A client that speaks another version than the server believes is misunderstood later on."
        fix "Answer 400 to a version that the server does not have."
        section "2025-11-25/basic/transports#protocol-version-header";
}
