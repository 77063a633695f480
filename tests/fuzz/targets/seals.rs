//! Things that sign-in seals: whatever is handed in as a text or record of a kind is read or refused; what was sealed as fields is
//! the same once written again, opens at its place, in its time and as its kind alone, and not with one bit changed.

use std::marker::PhantomData;
use std::sync::LazyLock;

use ::tokens::fields::{FieldReader, FieldWriter};
use identity::authorize::Returned;
use identity::client::Client;
use identity::presented::Presented;
use identity::sealed::access_token::AccessToken;
use identity::sealed::account::{AccountRecord, CheckDue};
use identity::sealed::authorization_code::AuthorizationCode;
use identity::sealed::client_id::RegisteredClient;
use identity::sealed::cookies::{ConsentCookie, PageCookie, SignInCookie, VisitPurpose};
use identity::sealed::fingerprint::Fingerprint;
use identity::sealed::form::{Form, PageForm};
use identity::sealed::grant::GrantRecord;
use identity::sealed::mark::Mark;
use identity::sealed::news::News;
use identity::sealed::refresh_token::RefreshToken;
use identity::sealed::{Kind, OpenFault, Sealable, Seals};
use identity::token_request::{Use, check_code, use_code, use_refresh_token};

use super::sign_in::{ISSUER, NONCE, SEALS};

static OTHER_SEALS: LazyLock<Seals> = LazyLock::new(|| Seals::from_text(&"8".repeat(64)).expect("a key"));
const REUSE_S: u64 = 60;

/// Two bytes are the kind and a number; the rest is a text or record, and then the fields of one.
pub fn sealed(input: &[u8]) {
    let Some((&[kind, number], input)) = input.split_first_chunk::<2>() else { return };
    let number = usize::from(number);
    match kind % 13 {
        0 => check(input, number, client_id),
        1 => check(input, number, code),
        2 => check(input, number, access_token),
        3 => check(input, number, |_: &RefreshToken| ()),
        4 => check(input, number, sign_in),
        5 => check(input, number, consents),
        6 => check(input, number, |_: &PageCookie| ()),
        7 => check(input, number, |_: &Form| ()),
        8 => check(input, number, |_: &PageForm| ()),
        9 => check(input, number, grant),
        10 => check(input, number, account),
        11 => check(input, number, |_: &News| ()),
        _ => check(input, number, |_: &Mark| ()),
    }
}

/// The fields of a value of this kind, as they are.
struct Written<'f, S>(&'f [u8], PhantomData<S>);

impl<S: Sealable> Sealable for Written<'_, S> {
    const KIND: Kind = S::KIND;

    fn expires_s(&self) -> Option<u64> {
        None
    }

    fn write(&self, to: &mut FieldWriter) {
        to.fixed(self.0);
    }

    fn read(_: &mut FieldReader<'_>) -> Option<Self> {
        None
    }
}

fn check<S: Sealable>(input: &[u8], number: usize, judge: impl Fn(&S)) {
    assert!(SEALS.open_record::<S>(input, ISSUER, 0).is_err());
    if let Ok(text) = std::str::from_utf8(input)
        && let Ok(value) = SEALS.open::<S>(text, ISSUER, 0)
    {
        judge(&value);
    }
    let written = Written::<S>(input, PhantomData);
    let Some(record) = SEALS.seal_record(NONCE, ISSUER, &written) else { return };
    let mut fields = FieldReader::new(input);
    let read = S::read(&mut fields).filter(|_| fields.is_at_end());
    let Ok(value) = SEALS.open_record::<S>(&record, ISSUER, 0) else {
        assert!(read.is_none_or(|read| read.expires_s() == Some(0)));
        return;
    };
    let mut again = FieldWriter::default();
    value.write(&mut again);
    assert_eq!(again.finish().as_deref(), Some(input), "it is the same once written again");
    assert_alone::<S>(&record, &value, number);
    if let Some(text) = SEALS.seal(NONCE, ISSUER, &value) {
        assert!(text.len() <= S::KIND.size_max() && text.bytes().all(is_plain));
        assert!(SEALS.open::<S>(&text, ISSUER, 0).is_ok());
    }
    judge(&value);
}

/// It opens nowhere else, not after its time, not changed, under no other keys, and as no other kind.
fn assert_alone<S: Sealable>(record: &[u8], value: &S, number: usize) {
    let is_unknown = |seals: &Seals, record: &[u8], place: &str| {
        seals.open_record::<S>(record, place, 0).err() == Some(OpenFault::Unknown)
    };
    assert!(is_unknown(&SEALS, record, "https://mcp.example.co"));
    assert!(is_unknown(&OTHER_SEALS, record, ISSUER));
    let mut changed = record.to_vec();
    let bit = number % (8 * changed.len());
    changed[bit / 8] ^= 1 << (bit % 8);
    assert!(is_unknown(&SEALS, &changed, ISSUER));
    if let Some(expires_s) = value.expires_s() {
        assert!(SEALS.open_record::<S>(record, ISSUER, expires_s - 1).is_ok());
        assert_eq!(SEALS.open_record::<S>(record, ISSUER, expires_s).err(), Some(OpenFault::Expired));
    }
    let opens = [
        opens_as::<RegisteredClient>(record),
        opens_as::<AuthorizationCode>(record),
        opens_as::<AccessToken>(record),
        opens_as::<RefreshToken>(record),
        opens_as::<SignInCookie>(record),
        opens_as::<ConsentCookie>(record),
        opens_as::<PageCookie>(record),
        opens_as::<Form>(record),
        opens_as::<PageForm>(record),
        opens_as::<GrantRecord>(record),
        opens_as::<AccountRecord>(record),
        opens_as::<News>(record),
        opens_as::<Mark>(record),
    ];
    assert_eq!(opens.into_iter().flatten().collect::<Vec<_>>(), [S::KIND]);
}

fn opens_as<S: Sealable>(record: &[u8]) -> Option<Kind> {
    SEALS.open_record::<S>(record, ISSUER, 0).is_ok().then_some(S::KIND)
}

fn client_id(client: &RegisteredClient) {
    let Some((id, secret)) = client.issue(&SEALS, NONCE, ISSUER) else { return };
    let read = Client::registered(&id, &SEALS, ISSUER).expect("its id holds it");
    assert_eq!((&read.name, &read.redirect_uris), (&client.name, &client.redirect_uris));
    assert_eq!(secret.is_some(), client.auth_method.has_secret());
}

/// A code that somebody shows who has nothing else.
fn code(code: &AuthorizationCode) {
    let verifier = Presented::new(&"v".repeat(43));
    let Ok(checked) = check_code(code, "client", None, &verifier) else { return };
    assert!(matches!(use_code(checked, None, None, 1), Use::Refuse(_)));
}

fn access_token(token: &AccessToken) {
    for now_s in [0, token.issued_s, u64::MAX] {
        assert!(token.expires_in_s(now_s) <= token.expires_s.saturating_sub(now_s));
    }
    if let Some(text) = token.clone().issue(&SEALS, NONCE, ISSUER) {
        let opened: AccessToken = SEALS.open(&text, ISSUER, 0).expect("its text holds it");
        assert_eq!(
            (&opened.principal, opened.grant, opened.endpoint),
            (&token.principal, token.grant, token.endpoint)
        );
    }
}

/// An answer that was remembered for somebody is of nobody else.
fn sign_in(cookie: &SignInCookie) {
    let is_of = cookie.remembered_for.is_none_or(|remembered| remembered.is_of(&["ann"]));
    match cookie.clone().returned(Some("ann")) {
        Returned::SignIns => assert_eq!(cookie.purpose, VisitPurpose::SignIns),
        Returned::Answered(_) => assert!(is_of),
        Returned::Unanswered(_) => assert!(!is_of),
    }
}

/// However many answers there are, one more fits.
fn consents(cookie: &ConsentCookie) {
    let mut cookie = cookie.clone();
    let request = super::sign_in::judged();
    cookie.remember("ann", &request, 0, 1);
    assert_eq!(cookie.principal_for(&request, 0), Some(Fingerprint::of(&["ann"])));
    assert_eq!(cookie.principal_for(&request, 1), None);
    assert!(SEALS.seal(NONCE, ISSUER, &cookie).is_some());
}

/// Each generation has one successor, and nothing but the one before gets it again.
fn grant(record: &GrantRecord) {
    let client = Fingerprint::of(&[&record.client_id]);
    let of = |generation| RefreshToken { grant: record.id, generation, client, expires_s: u64::MAX };
    for now_s in [0, record.used_s, record.rotated_s, u64::MAX] {
        assert_eq!(record.is_over(now_s), now_s >= record.over_s());
        for generation in
            [record.generation, record.generation.saturating_sub(1), record.generation.saturating_add(1), 0]
        {
            let used =
                |client_id| use_refresh_token(&of(generation), Some(record), client_id, None, now_s, REUSE_S);
            match used(&record.client_id) {
                Use::Next(next) => {
                    assert!(generation == record.generation && generation > 0 && !record.is_over(now_s));
                    assert_eq!((next.generation, next.id), (generation.saturating_add(1), record.id));
                }
                Use::Again => assert!(generation > 0 && record.generation - generation <= 1),
                Use::End(_) | Use::Refuse(_) => {}
            }
            assert!(matches!(used("another client"), Use::Refuse(_)) || record.client_id == "another client");
        }
    }
}

fn account(account: &AccountRecord) {
    for (now_s, age_s, patience_s) in
        [(0, 900, 3600), (account.checked_s, 900, 3600), (u64::MAX, 0, u64::MAX)]
    {
        let due = account.check_due(now_s, age_s, patience_s);
        assert_eq!(due == CheckDue::Never, account.refresh_token.is_none());
    }
    let known = account.known(Vec::new(), |group| group == "ops", |claim| claim == "hd", 7);
    assert!(
        known.groups.iter().all(|group| group == "ops") && known.claims.iter().all(|(name, _)| name == "hd")
    );
    assert!(account.fingerprint().is_of(&[&account.issuer, &account.subject]));
    let _ = account.fits();
}

fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-_".contains(&byte)
}
