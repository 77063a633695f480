//! Which revisions the server speaks, and how it says so.

use crate::doctor::rule::rules;

rules! {
    MODERN: Advice Versions "modern"
        good "speaks a revision of 2026 or later"
        bad "speaks no revision of 2026 or later"
        why "Those have no sessions: any replica can answer any request, lists can be cached, and \
             proxies can route by headers."
        fix "Update the SDK, or put a gateway in front of the server that translates."
        section "2026-07-28/basic/versioning#backward-compatibility-with-initialization-based-versions";
    LEGACY: Advice Versions "legacy"
        good "speaks revisions of before 2026 as well"
        bad "speaks no revision of before 2026"
        why "Clients that know only the initialize handshake cannot use the server."
        fix "Serve the initialize handshake as well, or put a gateway in front of the server that \
             translates."
        section "2026-07-28/basic/versioning#backward-compatibility-with-initialization-based-versions";
    HTTP_SSE: Error Versions "http-sse-only"
        good "speaks Streamable HTTP"
        bad "speaks only the deprecated HTTP+SSE transport"
        why "Current clients give it up one after another, and it keeps a connection open for every client."
        fix "Serve Streamable HTTP, which every current SDK has."
        section "2025-11-25/basic/transports#backwards-compatibility";
    DISCOVER: Error Versions "discover"
        good "server/discover says versions, capabilities and caching hints"
        bad "server/discover does not say what it must"
        why "Clients choose the version by supportedVersions and what they offer by capabilities."
        fix "Answer with supportedVersions (an array of strings), capabilities (an object) and \
             resultType \"complete\"."
        section "2026-07-28/server/discover#response";
    UNKNOWN_VERSION: Error Versions "unknown-version"
        good "an unknown version is refused with a list of those that are known"
        bad "an unknown version is not refused as it must be"
        why "Clients of other versions learn from error -32022 which version to use; without it they \
             cannot connect."
        fix "Answer HTTP 400 and error -32022 whose data.supported lists the versions."
        section "2026-07-28/basic/versioning#protocol-version-negotiation";
    NEGOTIATION: Error Versions "negotiation"
        good "initialize is answered with the version asked for, or one that the server has"
        bad "initialize is answered with the wrong version"
        why "The answer says which version both sides speak from then on; a client that does not know it \
             leaves."
        fix "Answer with the requested version if the server has it, else with the newest that it has."
        section "2025-11-25/basic/lifecycle#version-negotiation";
    INITIALIZE_HINT: Advice Versions "initialize-hint"
        good "older clients are told which versions there are"
        bad "older clients are not told why they cannot connect"
        why "Clients that begin with initialize show the error's text to people; nothing else can help \
             them."
        fix "Name the supported versions in the error that initialize gets."
        section "2026-07-28/basic/versioning#backward-compatibility-with-initialization-based-versions";
    SERVER_INFO: Advice Versions "server-info"
        good "says its name and version"
        bad "does not say its name and version"
        why "People who look at logs of a client cannot tell which server, and which release of it, they \
             see."
        fix "Send serverInfo with name and version (in _meta since 2026-07-28)."
        section "2026-07-28/basic#meta";
}
