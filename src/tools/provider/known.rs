//! Providers that need lines of their own, by their issuers. The book has a page for each, which says where that is from.

use identity::uri::Uri;

/// A provider that needs something of its own.
#[derive(Debug)]
pub(super) struct KnownProvider {
    /// Its page of the book, if it has one.
    pub(super) page: Option<&'static str>,
    /// The claim that names a person for good, if not `sub`.
    pub(super) subject_claim: Option<&'static str>,
    /// The claim with groups, if not `groups`.
    pub(super) groups_claim: Option<&'static str>,
    /// A claim that says who belongs to the organisation, with a value in the place of its own; `None`: the groups.
    pub(super) member_claim: Option<(&'static str, &'static str)>,
    /// An example of a group.
    pub(super) group: &'static str,
    /// `parameters`.
    pub(super) parameters: &'static [(&'static str, &'static str)],
    /// Its applications take the secret in the body unless told otherwise.
    pub(super) prefers_post: bool,
    /// The way to have it tell groups; `None`: it has none to tell.
    pub(super) groups: Option<&'static str>,
}

static OTHER: KnownProvider = USUAL;
const USUAL: KnownProvider = KnownProvider {
    page: None,
    subject_claim: None,
    groups_claim: None,
    member_claim: None,
    group: "staff",
    parameters: &[],
    prefers_post: false,
    groups: Some("have it put the groups of a person into the ID token or into userinfo"),
};

static ENTRA: KnownProvider = KnownProvider {
    page: Some("entra"),
    subject_claim: Some("oid"),
    group: "aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee",
    prefers_post: true,
    groups: Some("there, under Token configuration, add the groups claim; groups come as object ids"),
    ..USUAL
};
static GOOGLE: KnownProvider = KnownProvider {
    page: Some("google"),
    member_claim: Some(("hd", "example.com")),
    parameters: &[("access_type", "offline"), ("prompt", "consent")],
    groups: None,
    ..USUAL
};
static OKTA: KnownProvider = KnownProvider {
    page: Some("okta"),
    groups: Some("there, add a claim for groups, or a filter for them, to ID tokens"),
    ..USUAL
};
static AUTH0: KnownProvider = KnownProvider {
    page: Some("auth0"),
    groups_claim: Some("https://mcp.example.com/groups"),
    parameters: &[("audience", "https://mcp.example.com/")],
    prefers_post: true,
    groups: Some("there, an Action has to write roles to a claim of a name like this"),
    ..USUAL
};
static KEYCLOAK: KnownProvider = KnownProvider {
    page: Some("keycloak"),
    groups: Some("there, add the mapper Group Membership, with Add to ID token on"),
    ..USUAL
};

impl KnownProvider {
    /// The one of this issuer, or what is usual.
    pub(super) fn of(issuer: &str) -> &'static Self {
        let Ok(uri) = Uri::read(issuer) else { return &OTHER };
        let host = uri.host.unwrap_or_default().to_ascii_lowercase();
        let is_below = |domain: &str| host.strip_suffix(domain).is_some_and(|rest| rest.ends_with('.'));
        match &*host {
            "accounts.google.com" => &GOOGLE,
            host if host.starts_with("login.microsoftonline.") => &ENTRA,
            _ if ["okta.com", "oktapreview.com", "okta-emea.com"].into_iter().any(is_below) => &OKTA,
            _ if is_below("auth0.com") => &AUTH0,
            _ if uri.path.contains("/realms/") => &KEYCLOAK,
            _ => &OTHER,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn providers_are_known_by_their_issuers() {
        for (issuer, page) in [
            ("https://login.microsoftonline.com/11111111-2222-3333-4444-555555555555/v2.0", Some("entra")),
            ("https://accounts.google.com", Some("google")),
            ("https://example.okta.com/oauth2/default", Some("okta")),
            ("https://example.eu.auth0.com/", Some("auth0")),
            ("https://sso.example.com/realms/staff", Some("keycloak")),
            ("https://evilokta.com", None),
            ("https://login.example.com", None),
            ("no URL", None),
        ] {
            assert_eq!(KnownProvider::of(issuer).page, page, "{issuer}");
        }
    }
}
