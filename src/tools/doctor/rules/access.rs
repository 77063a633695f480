//! Who can reach the server, and what it tells those whom it does not let in.

use crate::doctor::rule::rules;

rules! {
    CLEAR_TEXT: Warning Access "clear-text"
        good "the transport is encrypted, or stays on this machine"
        bad "everything is sent in clear text"
        why "Keys, arguments and results can be read and changed by everybody between client and server."
        fix "Serve https, or put a gateway with TLS in front of the server."
        section "2026-07-28/basic/authorization/security-considerations#communication-security";
    ORIGIN: Error Access "origin"
        good "requests from foreign web pages are refused"
        bad "requests from foreign web pages are answered"
        why "A page can make a browser send requests to servers that only the visitor can reach (DNS \
             rebinding); the Origin header tells them apart."
        fix "Answer 403 to an Origin that is not on a list of allowed ones; requests without Origin may \
             pass."
        section "2026-07-28/basic/transports/streamable-http";
    HOST: Advice Access "host"
        good "requests for a foreign host name are refused"
        bad "requests for a foreign host name are answered"
        why "In DNS rebinding a page reaches a server on the visitor's machine under the page's own host \
             name. Browsers send no Origin with a page's GET to its own host; the Host header still tells."
        fix "While only this machine is listened to, answer 4xx to a Host other than localhost, 127.0.0.1 \
             or [::1]."
        section "2025-11-25/basic/transports#security-warning";
    CHALLENGE: Error Access "challenge"
        good "who is not let in is told how to get in"
        bad "who is not let in is not told how to get in"
        why "Clients learn from the WWW-Authenticate header of a 401 where to get a token; without it \
             people see only that it failed."
        fix "Send WWW-Authenticate: Bearer with every 401, with resource_metadata if tokens are to be \
             had somewhere."
        section "2026-07-28/basic/authorization#authorization-server-discovery";
    METADATA: Warning Access "resource-metadata"
        good "the metadata of the protected resource can be read and fits"
        bad "the metadata of the protected resource cannot be used"
        why "Clients that support OAuth read it (RFC 9728) to learn which authorization server to ask \
             for a token."
        fix "Serve a JSON object with resource (this server's URL) and authorization_servers at the \
             address that the challenge names or at /.well-known/oauth-protected-resource, open to \
             everybody."
        section "2026-07-28/basic/authorization#authorization-server-discovery";
    OPEN_WITHOUT_KEY: Advice Access "key-not-needed"
        good "requests without the key are refused"
        bad "requests without the key are answered as well"
        why "The key was given to protect something, but everybody who reaches the server gets the same \
             answer."
        fix "Ask for the key on every request, or stop handing keys out."
        section "2026-07-28/basic/authorization#access-token-usage";
}
