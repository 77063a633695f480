//! How the server takes requests that are not as they should be, and the form of its answers.

use crate::doctor::rule::rules;

rules! {
    ANSWER_FORM: Error Requests "answer-form"
        good "answers are JSON-RPC 2.0, carry the id of their request and an allowed content type"
        bad "answers do not have the form that clients rely on"
        why "Clients match answers by id, type included, and read them by Content-Type; others are \
             dropped or waited for."
        fix "Send jsonrpc \"2.0\", the very id of the request, and application/json or text/event-stream."
        section "2026-07-28/basic#responses";
    UNKNOWN_METHOD: Warning Requests "unknown-method"
        good "an unknown method gets error -32601"
        bad "an unknown method is not refused as it must be"
        why "Clients find out what a server has by asking. To clients of before 2026, HTTP 404 says that \
             the session is gone; since 2026, 404 with -32601 says that the method is not there."
        fix "Answer error -32601, since 2026-07-28 with HTTP 404, before with HTTP 200."
        section "2026-07-28/basic/transports/streamable-http#protocol-version-header";
    HEADER_MISSING: Error Requests "header-missing"
        good "requests without the headers that they need are refused"
        bad "requests without the headers that they need are accepted"
        why "Proxies route and refuse by these headers: a request that has none passes them by."
        fix "Answer HTTP 400 and error -32020 if MCP-Protocol-Version, Mcp-Method or Mcp-Name is missing."
        section "2026-07-28/basic/transports/streamable-http#server-validation";
    HEADER_MISMATCH: Error Requests "header-mismatch"
        good "requests whose headers contradict their body are refused"
        bad "requests whose headers contradict their body are accepted"
        why "What a proxy allowed by the header would not be what the server does."
        fix "Compare MCP-Protocol-Version, Mcp-Method and Mcp-Name with the body; answer HTTP 400 and \
             error -32020."
        section "2026-07-28/basic/transports/streamable-http#server-validation";
    NAME_ENCODING: Warning Requests "name-encoding"
        good "an Mcp-Name in Base64 form is decoded before it is compared"
        bad "an Mcp-Name in Base64 form is not understood"
        why "Names and URIs with other than plain ASCII characters can only be sent in this form."
        fix "Decode =?base64?…?= before comparing with the body."
        section "2026-07-28/basic/transports/streamable-http#value-encoding";
    META_MISSING: Warning Requests "meta-missing"
        good "requests without the required _meta are refused"
        bad "requests without the required _meta are accepted"
        why "A server that guesses what a client can do asks it what it cannot answer."
        fix "Answer error -32602, over HTTP with status 400, if version or capabilities are missing in \
             _meta."
        section "2026-07-28/basic#meta";
    REFUSAL: Warning Requests "refusal"
        good "what contradicts itself is refused with the error that clients know"
        bad "what contradicts itself is refused with another error than clients know"
        why "Clients learn from -32020 that their headers, or their list of tools, are wrong, and repair that; \
             from others only that it failed."
        fix "Answer HTTP 400, and error -32020 for headers or -32602 for _meta."
        section "2026-07-28/basic/transports/streamable-http#server-validation";
    GARBAGE: Warning Requests "garbage"
        good "what is not JSON is refused, and the server goes on"
        bad "what is not JSON is not refused as it should be"
        why "A broken client must learn of it, and must not take the server down for the others."
        fix "Answer HTTP 400, best with error -32700, and go on; on standard input, at least go on."
        section "2026-07-28/basic#error-codes";
    BATCH: Warning Requests "batch"
        good "batches, which only 2025-03-26 has, are refused"
        bad "batches are accepted, which only 2025-03-26 has"
        why "Proxies that check single messages cannot check what is in a batch."
        fix "Answer HTTP 400 and error -32600 to a body that is an array."
        section "2026-07-28/basic/transports/streamable-http#sending-messages";
    BATCH_OLD: Advice Requests "old-batch"
        good "batches are answered in sessions of 2025-03-26"
        bad "batches are not answered in sessions of 2025-03-26"
        why "That revision alone obliges servers to take them; few clients ever sent one."
        fix "Take batches in sessions of 2025-03-26, or do not offer that version."
        section "2025-03-26/basic#batching";
    CONTENT_TYPE: Advice Requests "content-type"
        good "bodies that are not declared as JSON are refused"
        bad "bodies that are not declared as JSON are accepted"
        why "Web pages can send text/plain to other origins without being asked; JSON they cannot."
        fix "Answer 415 to a Content-Type that is not application/json."
        section "";
    ACCEPT: Advice Requests "accept"
        good "requests whose Accept lacks one of the two forms are answered in the other, or refused"
        bad "requests whose Accept lacks one of the two forms get neither an answer in the other nor a refusal"
        why "Clients must list application/json and text/event-stream. Scripts often list only the first, or \
             nothing: refused plainly they are soon mended, while a stream looks to them like a broken answer."
        fix "Answer HTTP 406 to an Accept that lacks text/event-stream, or answer in JSON; without Accept, \
             either form will do."
        section "2026-07-28/basic/transports/streamable-http#sending-messages";
    NOTIFICATION: Warning Requests "notification"
        good "a notification gets HTTP 202 without body, or is refused"
        bad "a notification gets neither HTTP 202 without body nor a refusal"
        why "Clients wait for an answer, or fail on one that they do not expect."
        fix "Answer 202 without a body, or a status of 400 and above."
        section "2026-07-28/basic/transports/streamable-http#sending-messages";
    UNKNOWN_NAME: Warning Requests "unknown-name"
        good "an unknown name gets error -32602"
        bad "an unknown name does not get error -32602"
        why "Clients take it as a sign that their list is old and ask for a new one."
        fix "Answer error -32602 to a name that is not in the list."
        section "2026-07-28/server/tools#error-handling";
    BAD_CURSOR: Advice Requests "bad-cursor"
        good "a cursor that the server never gave gets error -32602"
        bad "a cursor that the server never gave is accepted"
        why "A client whose cursor is no longer valid learns nothing and shows an incomplete list."
        fix "Answer error -32602 to a cursor that is not one of the server's own."
        section "2026-07-28/server/utilities/pagination#error-handling";
    LISTEN: Error Requests "listen"
        good "subscriptions/listen is acknowledged first"
        bad "subscriptions/listen does not begin with its acknowledgement"
        why "A declared listChanged or subscribe is a promise of news, which come by this stream alone; \
             clients wait for the acknowledgement before they rely on it."
        fix "Send notifications/subscriptions/acknowledged with the subscriptionId at once, or do not \
             declare news."
        section "2026-07-28/basic/patterns/subscriptions#acknowledgment";
    BUFFERING: Advice Requests "stream-buffering"
        good "streams tell proxies not to hold them back"
        bad "streams do not tell proxies not to hold them back"
        why "Proxies such as nginx collect a stream before they pass it on, so that progress arrives at \
             the end."
        fix "Send X-Accel-Buffering: no with every text/event-stream."
        section "2026-07-28/basic/transports/streamable-http#receiving-messages";
    PING: Error Requests "ping"
        good "answers ping"
        bad "does not answer ping"
        why "Clients take a server that does not answer for dead and close the session."
        fix "Answer ping with an empty result."
        section "2025-11-25/basic/utilities/ping#behavior-requirements";
    SILENCE: Error Requests "silence"
        good "every request was answered in time"
        bad "some requests were not answered in time"
        why "Clients wait until they give up; a request that cannot be served needs an error."
        fix "Answer every request, what is wrong with it included."
        section "2026-07-28/basic#responses";
}
