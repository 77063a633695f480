//! The cookies of sign-in in the headers of a browser: their names, what is set, what came back.
//!
//! Over https every name has the prefix `__Host-`: a browser then takes it from this host alone, with `Secure` and `Path=/`, so
//! no sibling of the host can plant one. Over http, which is loopback alone, a browser refuses that prefix.
//!
//! Invariants: script cannot read any of them (`HttpOnly`); another site's request brings them only where a person follows a
//! link (`SameSite=Lax`); of a name that came twice neither counts.

use tokens::sealing::hex;

/// Sign-ins of one browser that are under way at the same time; the oldest goes.
pub const SIGN_INS_MAX: usize = 3;
/// Bytes of the header `Cookie` that are looked at.
const HEADER_BYTES_MAX: usize = 16 << 10;
const SIGN_IN: &str = "trunkline-sign-in-";
const CONSENT: &str = "trunkline-consent";
const PAGE: &str = "trunkline-page";
const FORM: &str = "trunkline-form";

/// A cookie of sign-in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BrowserCookie {
    /// A visit to the provider, by its `state`.
    SignIn([u8; 16]),
    /// The answers that are remembered.
    Consent,
    /// The person on the page of their own sign-ins.
    Page,
    /// Ties a form to the browser that was shown it.
    Form,
}

/// The names of a gateway's cookies, and their attributes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CookieRules {
    is_secure: bool,
}

impl CookieRules {
    /// The rules of the gateway whose sign-in is at this `url`.
    pub fn of(url: &str) -> Self {
        Self { is_secure: url.starts_with("https:") }
    }

    /// The name of a cookie.
    pub fn name(self, cookie: BrowserCookie) -> String {
        match cookie {
            BrowserCookie::SignIn(state) => format!("{}{SIGN_IN}{}", self.prefix(), hex(&state)),
            BrowserCookie::Consent => format!("{}{CONSENT}", self.prefix()),
            BrowserCookie::Page => format!("{}{PAGE}", self.prefix()),
            BrowserCookie::Form => format!("{}{FORM}", self.prefix()),
        }
    }

    /// The header `Set-Cookie` that keeps `value` for so long.
    pub fn set(self, cookie: BrowserCookie, value: &str, life_s: u64) -> String {
        let secure = if self.is_secure { "; Secure" } else { "" };
        format!("{}={value}; Path=/; Max-Age={life_s}; HttpOnly; SameSite=Lax{secure}", self.name(cookie))
    }

    /// The header `Set-Cookie` that ends it.
    pub fn end(self, cookie: BrowserCookie) -> String {
        self.set(cookie, "", 0)
    }

    /// The value of a cookie among those that came in the headers `Cookie`.
    pub fn find<'h>(
        self,
        cookie: BrowserCookie,
        headers: impl IntoIterator<Item = &'h [u8]>,
    ) -> Option<&'h str> {
        let name = self.name(cookie);
        let mut found = pairs(headers).filter(|(present, _)| *present == name).map(|(_, value)| value);
        let value = found.next()?;
        if found.next().is_some() { None } else { Some(value) }
    }

    /// The visits that have to end before another one begins: all of this browser's but the last few.
    pub fn too_many<'h>(self, headers: impl IntoIterator<Item = &'h [u8]>) -> Vec<String> {
        let prefix = format!("{}{SIGN_IN}", self.prefix());
        let is_state = |name: &&str| {
            let state = name.strip_prefix(&*prefix);
            state.is_some_and(|state| state.len() == 32 && state.bytes().all(|byte| byte.is_ascii_hexdigit()))
        };
        let names: Vec<&str> = pairs(headers).map(|(name, _)| name).filter(is_state).collect();
        // Browsers send the oldest first (RFC 6265 §5.4).
        let over = (names.len() + 1).saturating_sub(SIGN_INS_MAX);
        let secure = if self.is_secure { "; Secure" } else { "" };
        let ended = |name: &&str| format!("{name}=; Path=/; Max-Age=0; HttpOnly; SameSite=Lax{secure}");
        names.iter().take(over).map(ended).collect()
    }

    fn prefix(self) -> &'static str {
        if self.is_secure { "__Host-" } else { "" }
    }
}

/// Names and values, as browsers write them.
fn pairs<'h>(headers: impl IntoIterator<Item = &'h [u8]>) -> impl Iterator<Item = (&'h str, &'h str)> {
    let texts = headers.into_iter().filter(|header| header.len() <= HEADER_BYTES_MAX);
    let texts = texts.filter_map(|header| std::str::from_utf8(header).ok());
    texts.flat_map(|text| text.split(';')).filter_map(|pair| {
        let (name, value) = pair.split_once('=')?;
        Some((name.trim(), value.trim()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const HTTPS: CookieRules = CookieRules { is_secure: true };
    const HTTP: CookieRules = CookieRules { is_secure: false };

    fn found<'h>(rules: CookieRules, headers: &'h [&'h str]) -> Option<&'h str> {
        rules.find(BrowserCookie::Consent, headers.iter().map(|header| header.as_bytes()))
    }

    #[test]
    fn cookies_are_of_this_host_alone() {
        assert_eq!(
            HTTPS.set(BrowserCookie::Form, "v", 600),
            "__Host-trunkline-form=v; Path=/; Max-Age=600; HttpOnly; SameSite=Lax; Secure"
        );
        assert_eq!(
            HTTP.end(BrowserCookie::Page),
            "trunkline-page=; Path=/; Max-Age=0; HttpOnly; SameSite=Lax"
        );
        assert_eq!((CookieRules::of("https://a"), CookieRules::of("http://127.0.0.1:1")), (HTTPS, HTTP));
        let state = HTTPS.name(BrowserCookie::SignIn([0xab; 16]));
        assert_eq!(state, format!("__Host-trunkline-sign-in-{}", "ab".repeat(16)));
    }

    #[test]
    fn a_cookie_is_found_where_it_came_once() {
        assert_eq!(found(HTTPS, &["a=b; __Host-trunkline-consent=x; c=d"]), Some("x"));
        assert_eq!(found(HTTPS, &["a=b", "__Host-trunkline-consent=x="]), Some("x="));
        assert_eq!(found(HTTP, &["trunkline-consent=x"]), Some("x"));
        for none in [
            &["trunkline-consent=x"][..],
            &["__Host-trunkline-consent=x; __Host-trunkline-consent=y"],
            &["__Host-trunkline-consent=x", "__Host-trunkline-consent=x"],
            &["__host-trunkline-consent=x"],
            &["__Host-trunkline-consent"],
            &[],
        ] {
            assert_eq!(found(HTTPS, none), None, "{none:?}");
        }
    }

    #[test]
    fn a_browser_has_three_visits_at_most() {
        let one = |digit: &str| format!("trunkline-sign-in-{}=x", digit.repeat(32));
        let header = |count: usize| {
            let all = ["1", "2", "3", "4"].map(one);
            format!("a=b; {}; trunkline-sign-in-short=y", all[..count].join("; "))
        };
        let ended = |count| HTTP.too_many([header(count).as_bytes()]).len();
        assert_eq!([ended(0), ended(2), ended(3), ended(4)], [0, 0, 1, 2]);
        assert!(
            HTTP.too_many([header(3).as_bytes()])[0]
                .starts_with(&format!("trunkline-sign-in-{}=;", "1".repeat(32)))
        );
    }

    proptest! {
        #[test]
        fn nothing_panics(headers: Vec<Vec<u8>>, text: String) {
            let headers = || headers.iter().map(Vec::as_slice).chain([text.as_bytes()]);
            let _ = HTTPS.find(BrowserCookie::SignIn([1; 16]), headers());
            let _ = HTTP.too_many(headers());
        }
    }
}
