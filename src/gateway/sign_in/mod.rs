//! Sign-in: the authorization server that the gateway is for its clients (MCP 2025-03-26, authorization; OAuth 2.1).
//!
//! Requests and answers are plain values here: who brings them speaks HTTP ([`crate::line`]). What is read, sealed and shown is
//! the crate `identity`'s; grants are kept by [`crate::grants`]; a call with a token never comes here.
//!
//! | file | what it answers |
//! |---|---|
//! | `authorize.rs` | `/authorize`: the page that asks for consent, or the way to the provider |
//! | `consent.rs` | the answer to that page |
//! | `callback.rs` | a browser that comes back from the provider |
//! | `token.rs` | `/token`: codes and refresh tokens |
//! | `register.rs`, `revoke.rs` | `/register`, `/revoke` |
//! | `sign_ins.rs` | a person's own sign-ins |
//! | `clients.rs`, `documents.rs` | how a client is known |
//! | `visit.rs` | a visit to the provider |
//! | `provider.rs`, `person.rs` | requests to the provider, and who it says somebody is |
//! | `account_check.rs` | asking the provider again |
//! | `desk.rs` | a request, and all that it is answered with |
//! | `reply.rs`, `troubles.rs` | answers, and pages of errors |
//!
//! Invariants: `Host` is that of `url`; nothing is stored before a person has come back from the provider; until somebody has
//! answered the page every error is a page and never a redirect; a failure of the store or the provider ends nothing.

mod account_check;
mod authorize;
mod callback;
mod clients;
mod consent;
mod desk;
mod documents;
mod person;
mod provider;
mod register;
mod reply;
mod revoke;
mod sign_ins;
mod token;
mod troubles;
mod visit;

use http::Method;
use identity::oauth_error::{Answer, ErrorCode, Fault, OAuthError};
use identity::pages::Trouble;
use identity::server_metadata::{
    AUTHORIZE_PATH, PATH as METADATA_PATH, REGISTER_PATH, REVOKE_PATH, ServerMetadata, TOKEN_PATH,
};

pub(crate) use self::account_check::{known_of, note_use};
pub(crate) use self::desk::{SignInDesk, SignInRequest, is_at_host};

use self::reply::{Cors, not_allowed, page_of, with_cors};
use crate::access::auth::sign_in::settings::SignIn;

/// All pages are below it.
const PAGES: &str = "/sign-in/";
/// The longest body of a request; a registration has the longest.
pub(crate) const BODY_BYTES_MAX: usize = 16 << 10;

/// Seconds after which somebody tries again of whose network too much is under way.
const BUSY_S: u32 = 1;

/// The kind of a path that sign-in answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SignInPath {
    Metadata,
    Authorize,
    Token,
    Register,
    Revoke,
    /// A page below `/sign-in/`.
    Page,
}

impl SignInPath {
    /// `None`: none of sign-in's.
    pub(crate) fn of(path: &str) -> Option<Self> {
        Some(match path {
            METADATA_PATH => Self::Metadata,
            AUTHORIZE_PATH => Self::Authorize,
            TOKEN_PATH => Self::Token,
            REGISTER_PATH => Self::Register,
            REVOKE_PATH => Self::Revoke,
            path if path.starts_with(PAGES) => Self::Page,
            _ => return None,
        })
    }

    /// True for what people look at.
    pub(crate) fn is_page(self) -> bool {
        matches!(self, Self::Authorize | Self::Page)
    }
}

/// The answer where too much of one network is under way. Clients read an error of OAuth, and people a page.
pub(crate) fn busy(path: SignInPath, id: &str) -> Answer {
    if path.is_page() {
        let mut answer = page_of(&Trouble::Busy { wait_s: BUSY_S.into() }, id);
        answer.headers.push(("retry-after", BUSY_S.to_string()));
        return answer;
    }
    let why = "more requests of sign-in come from this network than are taken at once";
    let error = OAuthError::new(ErrorCode::TemporarilyUnavailable, why).by(Fault::Client);
    with_cors(error.retry_after(BUSY_S).answer(false), Cors::Post)
}

/// The answer at another host than that of sign-in. `None`: there is nothing at that path.
pub(crate) fn at_another_host(settings: &SignIn, path: SignInPath, host: &str, id: &str) -> Option<Answer> {
    path.is_page().then(|| page_of(&Trouble::WrongHost { host, url: &settings.config.url }, id))
}

impl SignInDesk {
    /// Answers a request at the host of sign-in.
    pub(crate) async fn answer(&self, path: SignInPath, request: &SignInRequest) -> Answer {
        let answer = match path {
            SignInPath::Metadata => return with_cors(self.metadata(request), Cors::Get),
            SignInPath::Token | SignInPath::Register | SignInPath::Revoke
                if request.method == Method::OPTIONS =>
            {
                reply::no_content()
            }
            SignInPath::Token | SignInPath::Register | SignInPath::Revoke
                if request.method != Method::POST =>
            {
                not_allowed("POST, OPTIONS")
            }
            SignInPath::Token => self.token(request).await,
            SignInPath::Register => self.register(request),
            SignInPath::Revoke => self.revoke(request).await,
            SignInPath::Authorize if request.method == Method::GET => return self.authorize(request).await,
            SignInPath::Authorize => return not_allowed("GET"),
            SignInPath::Page => return self.pages(request).await,
        };
        with_cors(answer, Cors::Post)
    }

    fn metadata(&self, request: &SignInRequest) -> Answer {
        match request.method {
            Method::OPTIONS => reply::no_content(),
            Method::GET | Method::HEAD => {
                let config = &self.settings.config;
                let document = ServerMetadata {
                    issuer: &config.url,
                    has_registration: config.registration,
                    has_client_documents: config.client_documents != config::ClientDocuments::Off,
                    documentation: None,
                }
                .document();
                let mut answer = Answer::json(200, &document);
                answer.headers.retain(|(name, _)| *name == "content-type");
                answer.headers.push(("cache-control", "public, max-age=300".to_owned()));
                answer
            }
            _ => not_allowed("GET, HEAD, OPTIONS"),
        }
    }
}
