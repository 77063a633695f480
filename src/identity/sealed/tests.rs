use std::sync::LazyLock;

use proptest::prelude::*;

use super::access_token::{AccessToken, KnownOfPrincipal, PRINCIPAL_BYTES_MAX};
use super::account::{AccountRecord, CheckDue, GRANTS_MAX, KNOWN_BYTES_MAX};
use super::authorization_code::AuthorizationCode;
use super::client_id::{AuthMethod, RegisteredClient};
use super::cookies::{CONSENTS_MAX, ConsentCookie, PageCookie, SignInCookie, VisitPurpose};
use super::fingerprint::{Fingerprint, GrantId};
use super::form::{Form, JudgedRequest, PageForm, place};
use super::grant::GrantRecord;
use super::mark::Mark;
use super::news::News;
use super::refresh_token::RefreshToken;
use super::*;
use crate::pkce::CodeChallenge;
use crate::presented::Presented;

const ISSUER: &str = "https://mcp.example.com";
const NONCE: Nonce = [9; NONCE_BYTES];
const NOW_S: u64 = 1_000_000;
const CHECK_AGE_S: u64 = 15 * 60;
const CONSENT_LIFE_S: u64 = 30 * 24 * 60 * 60;
const GRANT_IDLE_S: u64 = 7 * 24 * 60 * 60;

fn key(digit: &str) -> String {
    format!("{}\n", digit.repeat(64))
}

/// Made once: tests of many values would do little else.
fn seals() -> &'static Seals {
    static SEALS: LazyLock<Seals> = LazyLock::new(|| Seals::from_text(&key("7")).expect("keys"));
    &SEALS
}

fn request() -> JudgedRequest {
    JudgedRequest {
        client_id: "client".into(),
        client_name: "Client".into(),
        redirect_uri: "https://claude.ai/cb".into(),
        endpoint: "https://mcp.example.com/mcp".into(),
        scopes: vec!["b".into(), "a".into()],
        state: Some("state".into()),
        challenge: CodeChallenge([1; 32]),
    }
}

fn code() -> AuthorizationCode {
    let of = |text| Fingerprint::of(&[text]);
    AuthorizationCode {
        grant: GrantId([1; 16]),
        client: of("client"),
        redirect_uri: of("redirect"),
        endpoint: of("endpoint"),
        challenge: CodeChallenge([1; 32]),
        expires_s: NOW_S + 60,
    }
}

fn access_token() -> AccessToken {
    AccessToken {
        grant: GrantId([1; 16]),
        endpoint: Fingerprint::of(&["https://mcp.example.com/mcp"]),
        client: Fingerprint::of(&["client"]),
        principal: "jwt:https://login.example.com ann".into(),
        issued_s: NOW_S,
        expires_s: NOW_S + 3600,
        known: Some(KnownOfPrincipal::default()),
    }
}

fn refresh_token() -> RefreshToken {
    let client = Fingerprint::of(&["client"]);
    RefreshToken { grant: GrantId([1; 16]), generation: 3, client, expires_s: NOW_S + 60 }
}

fn grant() -> GrantRecord {
    GrantRecord {
        id: GrantId([1; 16]),
        account: Fingerprint([2; 32]),
        principal: "jwt:https://login.example.com ann".into(),
        client_id: "client".into(),
        client_name: "Client".into(),
        endpoint: "https://mcp.example.com/mcp".into(),
        scopes: vec!["a".into()],
        opened_s: NOW_S,
        used_s: NOW_S,
        ends_s: NOW_S + 60,
        idle_max_s: GRANT_IDLE_S,
        generation: 1,
        rotated_s: NOW_S,
    }
}

fn account() -> AccountRecord {
    AccountRecord {
        issuer: "https://login.example.com".into(),
        subject: "ann".into(),
        principal: "jwt:https://login.example.com ann".into(),
        name: "Ann".into(),
        groups: vec!["staff".into(), "ops".into()],
        claims: vec![("hd".into(), "example.com".into()), ("x".into(), "y".into())],
        refresh_token: Some(Presented::new("of the provider")),
        checked_s: NOW_S,
        unanswered_since_s: None,
        grants: vec![GrantId([1; 16])],
    }
}

fn registered() -> RegisteredClient {
    RegisteredClient {
        registered_s: NOW_S,
        name: "Client".into(),
        redirect_uris: vec!["http://localhost/callback".into()],
        auth_method: AuthMethod::Basic,
    }
}

fn sign_in() -> SignInCookie {
    SignInCookie {
        purpose: VisitPurpose::Client(request()),
        state: [3; 16],
        nonce: [4; 16],
        verifier: Presented::new("verifier"),
        remembered_for: None,
        expires_s: NOW_S + 600,
    }
}

/// A text of each kind that is no MAC.
fn texts(seals: &Seals) -> Vec<(Kind, String)> {
    fn one<S: Sealable>(seals: &Seals, value: &S) -> (Kind, String) {
        (S::KIND, seals.seal(NONCE, ISSUER, value).expect("sealed"))
    }
    vec![
        one(seals, &registered()),
        one(seals, &code()),
        one(seals, &access_token()),
        one(seals, &refresh_token()),
        one(seals, &sign_in()),
        one(seals, &ConsentCookie::default()),
        one(seals, &PageCookie { principal: "p".into(), name: "n".into(), expires_s: NOW_S + 1 }),
        one(seals, &Form { request: request(), expires_s: NOW_S + 1 }),
        one(seals, &PageForm { principal: "p".into(), expires_s: NOW_S + 1 }),
        one(seals, &grant()),
        one(seals, &account()),
        one(seals, &News::ChangedAt(NOW_S)),
        one(seals, &Mark { until_s: NOW_S }),
    ]
}

/// Opens a text as each kind, and tells as which it opens.
fn opens_as(seals: &Seals, text: &str, place: &str) -> Vec<Kind> {
    fn is_one<S: Sealable>(seals: &Seals, body: &str, place: &str) -> Option<Kind> {
        let text = format!("{}{body}", S::KIND.prefix());
        seals.open::<S>(&text, place, NOW_S).is_ok().then_some(S::KIND)
    }
    let body = Kind::ALL
        .iter()
        .find_map(|kind| text.strip_prefix(kind.prefix()).filter(|_| !kind.prefix().is_empty()));
    let body = body.unwrap_or(text);
    let found = [
        is_one::<RegisteredClient>(seals, body, place),
        is_one::<AuthorizationCode>(seals, body, place),
        is_one::<AccessToken>(seals, body, place),
        is_one::<RefreshToken>(seals, body, place),
        is_one::<SignInCookie>(seals, body, place),
        is_one::<ConsentCookie>(seals, body, place),
        is_one::<PageCookie>(seals, body, place),
        is_one::<Form>(seals, body, place),
        is_one::<PageForm>(seals, body, place),
        is_one::<GrantRecord>(seals, body, place),
        is_one::<AccountRecord>(seals, body, place),
        is_one::<News>(seals, body, place),
        is_one::<Mark>(seals, body, place),
    ];
    found.into_iter().flatten().collect()
}

#[test]
fn must_16_no_kind_passes_for_another_and_none_is_moved() {
    let seals = seals();
    let texts = texts(seals);
    assert_eq!(texts.len() + 1, Kind::ALL.len(), "all kinds but the MAC");
    for (kind, text) in texts {
        assert_eq!(opens_as(seals, &text, ISSUER), [kind]);
        assert_eq!(opens_as(seals, &text, "https://other.example.com"), [], "{kind:?} elsewhere");
        let safe = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        assert!(text.chars().all(safe), "{kind:?}");
    }
}

#[test]
fn purposes_and_prefixes_stand_once() {
    for (index, kind) in Kind::ALL.iter().enumerate() {
        assert_eq!(*kind as usize, index);
        for other in &Kind::ALL[..index] {
            assert_ne!(kind.purpose(), other.purpose());
            assert!(kind.prefix().is_empty() || kind.prefix() != other.prefix());
        }
    }
}

#[test]
fn nothing_opens_after_its_time() {
    let seals = seals();
    let text = seals.seal(NONCE, ISSUER, &code()).expect("sealed");
    assert_eq!(seals.open(&text, ISSUER, NOW_S + 59), Ok(code()));
    assert_eq!(seals.open::<AuthorizationCode>(&text, ISSUER, NOW_S + 60), Err(OpenFault::Expired));
    let record = GrantRecord { ends_s: NOW_S + 2 * GRANT_IDLE_S, ..grant() };
    let name = record.id.record_name();
    let sealed = seals.seal_record(NONCE, &name, &record).expect("sealed");
    let at = |now_s| seals.open_record::<GrantRecord>(&sealed, &name, now_s).map(|_| ());
    assert_eq!((at(NOW_S + GRANT_IDLE_S - 1), at(NOW_S + GRANT_IDLE_S)), (Ok(()), Err(OpenFault::Expired)));
    assert!(!record.is_over(NOW_S + GRANT_IDLE_S - 1) && record.is_over(NOW_S + GRANT_IDLE_S));
}

#[test]
fn a_new_key_seals_and_old_ones_open() {
    let (old, both, new) = (seals(), format!("{}{}", key("8"), key("7")), key("8"));
    let (both, new) = (Seals::from_text(&both).expect("keys"), Seals::from_text(&new).expect("keys"));
    for (kind, text) in texts(old) {
        assert_eq!(opens_as(&both, &text, ISSUER), [kind]);
        assert_eq!(opens_as(&new, &text, ISSUER), []);
    }
    let sealed = old.seal_record(NONCE, "name", &grant()).expect("sealed");
    assert!(both.is_by_old_key(Kind::Grant, &sealed) && !old.is_by_old_key(Kind::Grant, &sealed));
    let sealed = both.seal_record(NONCE, "name", &grant()).expect("sealed");
    assert!(!both.is_by_old_key(Kind::Grant, &sealed));
    assert_eq!(both.open_record::<GrantRecord>(&sealed, "other name", NOW_S), Err(OpenFault::Unknown));
}

#[test]
fn a_text_names_its_key_where_that_is_unknown() {
    let (old, both) = (seals(), Seals::from_text(&format!("{}{}", key("8"), key("7"))).expect("keys"));
    for (kind, text) in texts(&both) {
        let id = old.unknown_key(kind, &text).expect("the key is unknown");
        assert_eq!(hex(&id), both.key_names().split(',').next().expect("a key"));
        assert_eq!(both.unknown_key(kind, &text), None);
        for nothing in ["", kind.prefix(), &text[..20], &format!("{}!", kind.prefix()), &"A".repeat(1 << 17)]
        {
            assert_eq!(old.unknown_key(kind, nothing), None, "{kind:?} {nothing:.30}");
        }
    }
    assert_eq!(old.unknown_key(Kind::RefreshToken, &texts(old)[3].1), None);
}

#[test]
fn what_ended_stays_ended_and_the_later_change_counts() {
    let (early, late) = (News::ChangedAt(3), News::ChangedAt(5));
    for (one, another, counts) in [
        (early, late, late),
        (late, early, late),
        (late, News::Ended, News::Ended),
        (News::Ended, late, News::Ended),
        (News::Ended, News::Ended, News::Ended),
    ] {
        assert_eq!(one.or(another), counts);
    }
    for news in [early, News::Ended] {
        let sealed = seals().seal_record(NONCE, "news/1", &news).expect("sealed");
        assert_eq!(seals().open_record(&sealed, "news/1", NOW_S), Ok(news));
        assert_eq!(seals().open_record::<News>(&sealed, "news/2", NOW_S), Err(OpenFault::Unknown));
    }
}

#[test]
fn a_secret_is_the_mac_of_its_id_under_any_key_of_the_file() {
    let (old, both) = (seals(), Seals::from_text(&format!("{}{}", key("8"), key("7"))).expect("keys"));
    let (id, secret) = registered().issue(old, NONCE, ISSUER).expect("issued");
    let secret = secret.expect("a secret");
    for seals in [old, &both] {
        assert!(seals.is_mac_of(Kind::ClientSecret, &id, &secret));
        assert!(!seals.is_mac_of(Kind::ClientSecret, &format!("{id}x"), &secret));
        assert!(!seals.is_mac_of(Kind::AccessToken, &id, &secret.replace("tls_", "tla_")));
        for wrong in ["", "tls_", "tls_!", &secret[..secret.len() - 1], &secret[4..], &"tls_a".repeat(40)] {
            assert!(!seals.is_mac_of(Kind::ClientSecret, &id, wrong), "{wrong}");
        }
    }
    let new = Seals::from_text(&key("8")).expect("keys");
    assert!(!new.is_mac_of(Kind::ClientSecret, &id, &secret));
    let public = RegisteredClient { auth_method: AuthMethod::None, ..registered() };
    assert_eq!(public.issue(old, NONCE, ISSUER).expect("issued").1, None);
}

#[test]
fn an_access_token_has_its_size_whatever_its_principal_is_in() {
    let seals = seals();
    let texts = |word: &str| (0..200).map(|n| format!("{word} {n}")).collect::<Vec<_>>();
    let few = KnownOfPrincipal {
        scopes: vec!["s".into()],
        groups: vec!["ops".into()],
        rules: 7,
        ..Default::default()
    };
    let many = KnownOfPrincipal { groups: texts("group"), ..few.clone() };
    // Without them, no scope may come back that a refresh has not asked for.
    let scopes = KnownOfPrincipal { groups: vec![], rules: !7, ..few.clone() };
    let too_many = KnownOfPrincipal { scopes: texts("scope"), ..many.clone() };
    let longest = "p".repeat(PRINCIPAL_BYTES_MAX);
    for (principal, known, kept) in [
        ("p", &few, Some(&few)),
        (&longest, &few, Some(&few)),
        ("p", &many, Some(&scopes)),
        (&longest, &many, Some(&scopes)),
        ("p", &too_many, None),
        (&longest, &too_many, None),
    ] {
        let known = Some(known.clone());
        let token = AccessToken { principal: principal.to_owned(), known, ..access_token() };
        let text = token.issue(seals, NONCE, ISSUER).expect("a token");
        assert!(text.starts_with("tla_") && text.len() <= 1024);
        let opened: AccessToken = seals.open(&text, ISSUER, NOW_S).expect("open");
        assert_eq!(opened.known.as_ref(), kept);
    }
    let token = AccessToken { principal: "p".repeat(PRINCIPAL_BYTES_MAX + 1), ..access_token() };
    assert_eq!(token.issue(seals, NONCE, ISSUER), None);
    assert!(
        access_token().is_for("https://mcp.example.com/mcp")
            && !access_token().is_for("https://mcp.example.com")
    );
    assert_eq!((access_token().expires_in_s(NOW_S), access_token().expires_in_s(NOW_S + 3590)), (3540, 0));
}

#[test]
fn must_2_a_remembered_answer_is_for_one_person_client_redirect_endpoint_and_set_of_scopes() {
    let mut cookie = ConsentCookie::default();
    cookie.remember("ann", &request(), NOW_S, NOW_S + CONSENT_LIFE_S);
    let ann = Some(Fingerprint::of(&["ann"]));
    let same = JudgedRequest { scopes: vec!["a".into(), "b".into()], state: None, ..request() };
    assert_eq!(cookie.principal_for(&same, NOW_S), ann);
    assert_eq!(cookie.principal_for(&same, NOW_S + CONSENT_LIFE_S), None);
    for other in [
        JudgedRequest { client_id: "other".into(), ..request() },
        JudgedRequest { redirect_uri: "https://claude.ai/cb2".into(), ..request() },
        JudgedRequest { endpoint: "https://mcp.example.com/other".into(), ..request() },
        JudgedRequest { scopes: vec!["a".into()], ..request() },
        JudgedRequest { scopes: vec!["a".into(), "b".into(), "c".into()], ..request() },
    ] {
        assert_eq!(cookie.principal_for(&other, NOW_S), None, "{other:?}");
    }
    for number in 0..CONSENTS_MAX {
        let other = JudgedRequest { client_id: number.to_string(), ..request() };
        cookie.remember("bob", &other, NOW_S, NOW_S + CONSENT_LIFE_S);
    }
    assert_eq!(cookie.principal_for(&request(), NOW_S), None, "the oldest goes");
    let text = seals().seal(NONCE, ISSUER, &cookie).expect("the most answers fit");
    assert_eq!(seals().open(&text, ISSUER, NOW_S), Ok(cookie));
}

#[test]
fn a_form_belongs_to_the_browser_that_was_shown_it() {
    let form = Form { request: request(), expires_s: NOW_S + 1 };
    let text = seals().seal(NONCE, &place(ISSUER, "cookie"), &form).expect("sealed");
    assert_eq!(seals().open(&text, &place(ISSUER, "cookie"), NOW_S), Ok(form));
    for other in [place(ISSUER, "other"), place(ISSUER, ""), ISSUER.to_owned()] {
        assert_eq!(seals().open::<Form>(&text, &other, NOW_S), Err(OpenFault::Unknown));
    }
}

#[test]
fn an_account_is_asked_about_in_time() {
    let due = |account: &AccountRecord, after_s| account.check_due(NOW_S + after_s, CHECK_AGE_S, 3600);
    let silent = AccountRecord { unanswered_since_s: Some(NOW_S + 1000), ..account() };
    let unasked = AccountRecord { refresh_token: None, ..account() };
    assert_eq!(
        (due(&account(), CHECK_AGE_S - 1), due(&account(), CHECK_AGE_S)),
        (CheckDue::No, CheckDue::Yes)
    );
    assert_eq!((due(&silent, 4599), due(&silent, 4600)), (CheckDue::Yes, CheckDue::Overdue));
    assert_eq!(due(&unasked, 1 << 40), CheckDue::Never);
    let known = account().known(vec!["s".into()], |group| group == "ops", |claim| claim == "hd", 5);
    let expected = KnownOfPrincipal {
        scopes: vec!["s".into()],
        groups: vec!["ops".into()],
        claims: vec![("hd".into(), "example.com".into())],
        rules: 5,
    };
    assert_eq!(known, expected);
    assert!(account().fits());
    assert!(!AccountRecord { groups: vec!["g".repeat(KNOWN_BYTES_MAX)], ..account() }.fits());
    let largest = AccountRecord {
        groups: vec!["g".repeat(KNOWN_BYTES_MAX - 20)],
        refresh_token: Some(Presented::new(&"r".repeat(16 << 10))),
        grants: vec![GrantId([1; 16]); GRANTS_MAX],
        ..account()
    };
    assert!(seals().seal_record(NONCE, "name", &largest).is_some(), "the largest fits");
}

#[test]
fn no_secret_is_shown() {
    let shown = format!("{:?} {:?} {:?}", account(), sign_in(), seals());
    assert!(
        !shown.contains("of the provider") && !shown.contains("verifier\"") && !shown.contains("777"),
        "{shown}"
    );
    let text = seals().seal(NONCE, ISSUER, &account()).expect("sealed");
    let opened: AccountRecord = seals().open(&text, ISSUER, NOW_S).expect("open");
    assert!(opened.refresh_token.is_some_and(|token| token.is("of the provider")));
}

proptest! {
    #[test]
    fn a_registration_is_read_back_or_refused(
        name in "\\PC{0,80}", uris in proptest::collection::vec("[a-z:/]{0,200}", 0..8), method in 0..4_usize
    ) {
        let client = RegisteredClient {
            registered_s: NOW_S, name, redirect_uris: uris, auth_method: AuthMethod::ALL[method],
        };
        if let Some((id, secret)) = client.issue(seals(), NONCE, ISSUER) {
            prop_assert!(id.len() <= 1024);
            prop_assert_eq!(secret.is_some(), client.auth_method.has_secret());
            prop_assert_eq!(seals().open(&id, ISSUER, u64::MAX), Ok(client));
        }
    }

    #[test]
    fn a_request_is_read_back(
        id in "\\PC{0,40}", scopes in proptest::collection::vec("[a-z]{0,9}", 0..8), state: Option<String>
    ) {
        let request = JudgedRequest { client_id: id, scopes, state, ..request() };
        let cookie = SignInCookie { purpose: VisitPurpose::Client(request.clone()), remembered_for: Some(Fingerprint([5; 32])), ..sign_in() };
        if let Some(text) = seals().seal(NONCE, ISSUER, &cookie) {
            let opened: SignInCookie = seals().open(&text, ISSUER, NOW_S).expect("open");
            prop_assert_eq!((opened.purpose, opened.remembered_for), (VisitPurpose::Client(request), cookie.remembered_for));
        }
    }

    /// One changed character is enough.
    #[test]
    fn a_changed_text_is_not_opened(at: proptest::sample::Index, by in 1..64_usize) {
        const DIGITS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
        for (_, text) in texts(seals()) {
            let mut bytes = text.clone().into_bytes();
            let at = at.index(bytes.len());
            let digit = DIGITS.iter().position(|digit| *digit == bytes[at]).expect("a digit");
            bytes[at] = DIGITS[(digit + by) % DIGITS.len()];
            let changed = String::from_utf8(bytes).expect("text");
            if changed.as_bytes()[..4] == text.as_bytes()[..4] {
                prop_assert_eq!(opens_as(seals(), &changed, ISSUER), Vec::<Kind>::new());
            }
        }
    }

    #[test]
    fn nothing_panics(text in any::<String>(), record: Vec<u8>) {
        let seals = seals();
        opens_as(seals, &text, ISSUER);
        let _ = seals.open_record::<GrantRecord>(&record, &text, NOW_S);
        let _ = seals.is_by_old_key(Kind::Grant, &record);
        let _ = seals.is_mac_of(Kind::ClientSecret, &text, &format!("tls_{text}"));
    }

    /// A text of an older form that our own key sealed is refused, not misread.
    #[test]
    fn foreign_records_of_our_own_do_not_panic(record: Vec<u8>) {
        let mut fields = FieldReader::new(&record);
        let _ = AccountRecord::read(&mut fields);
        let _ = SignInCookie::read(&mut FieldReader::new(&record));
        let _ = ConsentCookie::read(&mut FieldReader::new(&record));
        let _ = AccessToken::read(&mut FieldReader::new(&record));
        let _ = GrantRecord::read(&mut FieldReader::new(&record));
    }
}
