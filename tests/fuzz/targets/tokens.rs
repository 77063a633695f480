//! Tokens: whatever is handed in is read or refused, within its bounds; what is sealed opens to the same for whom it was
//! sealed, for nobody else, and not with one bit changed; a JSON web token is read as `serde_json` reads its parts.

use std::sync::LazyLock;

use ::tokens::grant::{ClientInfo, Grant, NoSession, SessionId};
use ::tokens::jwt::{Token, is_token, seconds};
use ::tokens::request_state::{self, Binding, RequestState, STATE_CHARS};
use ::tokens::sealing::{NONCE_BYTES, SealingKeys};
use ::tokens::session_token::{self, CAPABILITIES_BYTES_MAX, CLIENT_TEXT_BYTES_MAX, TOKEN_CHARS_MAX};
use ::tokens::task_id::{self, SEALED_CHARS_MAX, TaskOf, TaskTarget};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use protocol::json::{Document, Scratch};
use protocol::version::LegacyVersion;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

static KEYS: LazyLock<SealingKeys> = LazyLock::new(|| keys("7"));
static OTHER_KEYS: LazyLock<SealingKeys> = LazyLock::new(|| keys("8"));
const NONCE: [u8; NONCE_BYTES] = [9; NONCE_BYTES];
const VERSION: u8 = 1;
const TASK_ID_BYTES_MAX: usize = 1024;
const TOOL_BYTES_MAX: usize = 255;
const TEXTS_MAX: usize = 1024;
const TYPES: [&str; 4] = ["jwt", "at+jwt", "application/jwt", "application/at+jwt"];

fn keys(digit: &str) -> SealingKeys {
    SealingKeys::from_text(&digit.repeat(64)).expect("a key")
}

/// The whole input is a session id, and then a record; then 16 bytes are its numbers, and texts follow.
pub fn session_token(input: &[u8]) {
    if let Ok(text) = std::str::from_utf8(input)
        && let Ok(grant) = session_token::open(&KEYS, text, "/mcp", "key:ci")
    {
        assert_grant(&grant);
        assert_eq!(session_token::open(&OTHER_KEYS, text, "/mcp", "key:ci"), Err(NoSession::Unknown));
    }
    session_record(input);
    let Some((number, [endpoint, principal, name, title, version, capabilities])) = fields(input) else {
        return;
    };
    let client = ClientInfo {
        name: session_token::cut(&name).into(),
        title: session_token::cut(&title).into(),
        version: session_token::cut(&version).into(),
    };
    let mut grant = Grant {
        id: SessionId(number),
        endpoint: endpoint.into(),
        version: LegacyVersion::ALL[(number % LegacyVersion::ALL.len() as u128) as usize],
        client,
        capabilities: capabilities.into(),
        principal: principal.into(),
        issued_s: number as u64,
        expires_s: (number >> 64) as u64,
    };
    grant.capabilities = session_token::fit_capabilities(&grant);
    let (endpoint, principal) = (&*grant.endpoint, &*grant.principal);
    let token = session_token::seal(&KEYS, NONCE, &grant).expect("sealed");
    let open =
        |token: &str, endpoint: &str, principal: &str| session_token::open(&KEYS, token, endpoint, principal);
    assert!(token.len() <= TOKEN_CHARS_MAX && is_plain(&token));
    assert_eq!(open(&token, endpoint, principal).as_ref(), Ok(&grant));
    let capabilities: &RawValue = serde_json::from_str(&grant.capabilities).expect("JSON");
    assert!(capabilities.get().starts_with('{'));
    assert_grant(&grant);
    for (other_endpoint, other_principal) in
        [(&*format!("{endpoint}x"), principal), (endpoint, &*format!("{principal}x"))]
    {
        assert_eq!(open(&token, other_endpoint, other_principal), Err(NoSession::Foreign));
    }
    assert!(endpoint == principal || open(&token, principal, endpoint) == Err(NoSession::Foreign));
    assert_eq!(open(&flipped(&token, number), endpoint, principal), Err(NoSession::Unknown));
}

/// Clear bytes: what the record says does not depend on the seal, is within its bounds, and is the same once written again.
fn session_record(record: &[u8]) {
    let read = session_token::read_record(record, "/mcp", "key:ci");
    let clear = [&[VERSION][..], &KEYS.sealing_id()].concat();
    let mut sealed = record.to_vec();
    let tag = KEYS.seal(NONCE, &clear, &mut sealed).expect("sealed");
    let token = URL_SAFE_NO_PAD.encode([&clear[..], &NONCE, &sealed, &tag].concat());
    let opened = session_token::open(&KEYS, &token, "/mcp", "key:ci");
    let is_long = token.len() > TOKEN_CHARS_MAX;
    assert_eq!(opened, read.clone().filter(|_| !is_long).unwrap_or(Err(NoSession::Unknown)));
    let Some(Ok(grant)) = read else { return };
    assert_grant(&grant);
    let mut again = Vec::new();
    session_token::write_record(&grant, &mut again);
    assert_eq!(session_token::read_record(&again, "/mcp", "key:ci"), Some(Ok(grant)));
}

fn assert_grant(grant: &Grant) {
    let ClientInfo { name, title, version } = &grant.client;
    assert!([name, title, version].iter().all(|text| text.len() <= CLIENT_TEXT_BYTES_MAX));
    assert!(grant.capabilities.len() <= CAPABILITIES_BYTES_MAX);
}

/// The whole input is the id of a task, and then a record; then 16 bytes are a number, and texts follow.
pub fn task_id(input: &[u8]) {
    let stranger = TaskOf { endpoint: "/mcp", principal: "key:ci", upstream: "up", id: "" };
    if let Ok(text) = std::str::from_utf8(input)
        && let Some(target) = task_id::open(&KEYS, stranger, text)
    {
        assert_target(&target, stranger);
    }
    if let Some(target) = task_id::read_record(input) {
        assert_target(&target, stranger);
    }
    let Some((number, [endpoint, principal, upstream, tool, id])) = fields(input) else { return };
    let task = TaskOf { endpoint: &endpoint, principal: &principal, upstream: &upstream, id: &id };
    let sealed = task_id::seal(&KEYS, task, &tool);
    assert_eq!(sealed.is_some(), tool.len() <= TOOL_BYTES_MAX && id.len() <= TASK_ID_BYTES_MAX);
    let Some(sealed) = sealed else { return };
    assert!(sealed.len() <= SEALED_CHARS_MAX && is_plain(&sealed));
    assert_target(&TaskTarget { tool, id: id.clone() }, task);
    let others = [&endpoint, &principal, &upstream].map(|text| format!("{text}x"));
    for other in [
        TaskOf { endpoint: &others[0], ..task },
        TaskOf { principal: &others[1], ..task },
        TaskOf { upstream: &others[2], ..task },
        TaskOf { endpoint: "", principal: &format!("{endpoint}{principal}x"), ..task },
    ] {
        assert_eq!(task_id::open(&KEYS, other, &sealed), None);
    }
    assert_eq!(task_id::open(&KEYS, task, &flipped(&sealed, number)), None);
    assert_eq!(task_id::open(&OTHER_KEYS, task, &sealed), None);
}

/// It is within its bounds, so that it can be sealed, and opens to the same.
fn assert_target(target: &TaskTarget, owner: TaskOf<'_>) {
    let sealed =
        task_id::seal(&KEYS, TaskOf { id: &target.id, ..owner }, &target.tool).expect("within its bounds");
    assert_eq!(task_id::open(&KEYS, owner, &sealed).as_ref(), Some(target));
}

/// The whole input is a state; then 16 bytes are its numbers, and upstream, principal and message follow.
pub fn request_state(input: &[u8]) {
    if let Ok(text) = std::str::from_utf8(input) {
        let opened = request_state::open(&KEYS, text);
        assert!(opened.is_none() || text.len() == STATE_CHARS);
    }
    let Some((number, [upstream, principal, message])) = fields(input) else { return };
    let (mut scratch, message) = (Scratch::default(), Bytes::from(message));
    let mut bind = |upstream: &str, principal: &str, message: &Bytes| {
        Binding::of((upstream, principal), message, (&mut scratch, 64))
    };
    let Some(binding) = bind(&upstream, &principal, &message) else { return };
    for (upstream, principal) in
        [(&*format!("{upstream}x"), &*principal), (&*upstream, &*format!("{principal}x"))]
    {
        assert_ne!(bind(upstream, principal, &message), Some(binding));
    }
    if let Some(retry) = retry(&message) {
        assert_eq!(bind(&upstream, &principal, &retry), Some(binding));
    }
    let stated = RequestState { parked: number as u64, expires_s: (number >> 64) as u64, binding };
    let state = request_state::seal(&KEYS, NONCE, stated).expect("sealed");
    assert!(state.len() == STATE_CHARS && is_plain(&state));
    assert_eq!(request_state::open(&KEYS, &state), Some(stated));
    assert_eq!(request_state::open(&KEYS, &flipped(&state, number)), None);
    assert_eq!(request_state::open(&OTHER_KEYS, &state), None);
}

/// The message with what a retry has. `None`: it has no parameters.
fn retry(message: &Bytes) -> Option<Bytes> {
    let mut scratch = Scratch::default();
    let params = scratch.index(message, 64).map(Document::root).ok()?.object("params")?;
    let comma = if params.entries().next().is_some() { "," } else { "" };
    let (before, after) = message.split_at(params.span().start as usize + 1);
    let members = format!(r#""requestState":"s", "inputResponses":{{"q":[]}} {comma}"#);
    Some([before, members.as_bytes(), after].concat().into())
}

/// The whole input is a token; then it is a header and claims, with a zero byte between.
pub fn jwt(input: &[u8]) {
    if let Ok(text) = std::str::from_utf8(input)
        && Token::read(text).is_some()
    {
        assert!(is_token(text));
    }
    let Some(at) = input.iter().position(|byte| *byte == 0) else { return };
    let (header, payload) = (&input[..at], &input[at + 1..]);
    let text = format!("{}.{}.c2ln", URL_SAFE_NO_PAD.encode(header), URL_SAFE_NO_PAD.encode(payload));
    let (read, expected) = (Token::read(&text), header_of(header).zip(members_of(payload)));
    let (Some(token), Some(((algorithm, key_id), claims))) = (&read, &expected) else {
        assert_eq!(read.is_some(), expected.is_some());
        return;
    };
    assert_eq!((&token.algorithm, token.key_id.as_deref()), (algorithm, key_id.as_deref()));
    assert_eq!(format!("{}.{}", token.message, token.signature), text);
    let texts = token.claims.texts();
    assert!(texts.len() <= TEXTS_MAX);
    for (name, value) in claims {
        assert_eq!(token.claims.get(name), Some(value));
        if let Some(said) = value.as_str() {
            assert!(texts.iter().any(|(known, text)| **known == **name && **text == *said));
        }
        if let Some(seconds) = seconds(value) {
            let exact = value.as_f64().expect("a number");
            assert!(
                exact >= 0.0
                    && seconds as f64 <= exact
                    && (seconds as f64) + 1.0 > exact * (1.0 - f64::EPSILON)
            );
        }
    }
    for (name, _) in &texts {
        assert!(claims.keys().any(|claim| name.starts_with(&**claim)));
    }
}

/// The algorithm and the name of the key, if it is a header that is understood.
fn header_of(text: &[u8]) -> Option<(String, Option<String>)> {
    let header = members_of(text)?;
    let text = |name: &str| match header.get(name) {
        None | Some(Value::Null) => Some(None),
        Some(value) => value.as_str().map(|text| Some(text.to_owned())),
    };
    let is_known = |typ: String| TYPES.iter().any(|known| typ.eq_ignore_ascii_case(known));
    let is_understood = !header.contains_key("crit") && text("typ")?.is_none_or(is_known);
    is_understood.then_some((text("alg")??, text("kid")?))
}

/// The members of an object in which each stands once, by two readers.
fn members_of(text: &[u8]) -> Option<Map<String, Value>> {
    let members: Map<String, Value> = serde_json::from_slice(text).ok()?;
    let mut scratch = Scratch::default();
    let count = scratch.index(text, 256).expect("the other reader takes it").root().entries().count();
    (count == members.len()).then_some(members)
}

/// 16 bytes as a number, and so many texts, with zero bytes between.
fn fields<const N: usize>(input: &[u8]) -> Option<(u128, [String; N])> {
    let (number, rest) = input.split_first_chunk::<16>()?;
    let mut texts = rest.splitn(N, |byte| *byte == 0);
    let texts = [(); N].map(|()| String::from_utf8_lossy(texts.next().unwrap_or_default()).into_owned());
    Some((u128::from_be_bytes(*number), texts))
}

/// The token with one of its bits changed, which the number says.
fn flipped(token: &str, number: u128) -> String {
    let mut bytes = URL_SAFE_NO_PAD.decode(token).expect("base64");
    let bit = (number % (8 * bytes.len() as u128)) as usize;
    bytes[bit / 8] ^= 1 << (bit % 8);
    URL_SAFE_NO_PAD.encode(bytes)
}

fn is_plain(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_graphic())
}
