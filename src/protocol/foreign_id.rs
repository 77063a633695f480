//! The id of an upstream's request as the client sees it, and its progress tokens, which are spelled the same.
//!
//! Upstreams number their requests as they like, and two of them will use the same numbers. The client therefore sees
//! the string `<upstream>.<generation>.<n|s><inner>`: the upstream's name, which of the gateway's sessions with it asks,
//! whether the id is an integer or a string, and the id. Deliberately absent: which of them are still to be answered.
//!
//! Invariant: what [`ForeignId::read`] takes, [`spell`] writes, and the other way round.

use std::borrow::Cow;

use super::json::{Literal, is_integer, quote};

/// A longer id is refused: it would be kept and repeated with every message about the request.
const INNER_BYTES_MAX: usize = 256;

/// A public id, read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ForeignId<'a> {
    /// The upstream's name.
    pub upstream: &'a str,
    /// The generation of the session with it.
    pub generation: u64,
    inner: InnerId<'a>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum InnerId<'a> {
    Integer(&'a str),
    Text(&'a str),
}

/// The public id, not yet as a JSON string. `literal` is the upstream's own id as it stands in its message. `None`: it is
/// too long, no Unicode, or neither a string nor an integer.
pub fn spell(upstream: &str, generation: u64, literal: &[u8]) -> Option<String> {
    let (kind, inner) = if literal.starts_with(b"\"") {
        ('s', Literal::at(0..literal.len(), literal).decode(literal)?)
    } else {
        let digits = std::str::from_utf8(literal).ok().filter(|_| is_integer(literal))?;
        ('n', Cow::Borrowed(digits))
    };
    (inner.len() <= INNER_BYTES_MAX).then(|| format!("{upstream}.{generation}.{kind}{inner}"))
}

impl<'a> ForeignId<'a> {
    /// Reads a public id; `None` if it is none.
    pub fn read(public: &'a str) -> Option<Self> {
        let (upstream, rest) = public.split_once('.')?;
        let (generation, inner) = rest.split_once('.')?;
        let number: u64 = generation.parse().ok()?;
        let inner = match inner.split_at_checked(1)? {
            ("n", digits) if is_json_integer(digits) => InnerId::Integer(digits),
            ("s", text) => InnerId::Text(text),
            _ => return None,
        };
        let (InnerId::Integer(text) | InnerId::Text(text)) = inner;
        // Numbers have one spelling here.
        let is_ours = text.len() <= INNER_BYTES_MAX && number.to_string() == generation;
        is_ours.then_some(Self { upstream, generation: number, inner })
    }

    /// The upstream's own id, as a JSON literal.
    pub fn inner_literal(self) -> String {
        match self.inner {
            InnerId::Integer(digits) => digits.to_owned(),
            InnerId::Text(text) => quote(text),
        }
    }
}

/// Whether the text is an integer as JSON spells it.
fn is_json_integer(text: &str) -> bool {
    let digits = text.strip_prefix('-').unwrap_or(text);
    !digits.is_empty()
        && digits.bytes().all(|byte| byte.is_ascii_digit())
        && (digits == "0" || !digits.starts_with('0'))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn integers_and_strings_stay_apart() {
        for (literal, public) in [
            ("7", "files.3.n7"),
            ("-1", "files.3.n-1"),
            ("\"7\"", "files.3.s7"),
            ("\"\"", "files.3.s"),
            (r#""a.b.c""#, "files.3.sa.b.c"),
            (r#""\u0061\"""#, "files.3.sa\""),
        ] {
            assert_eq!(spell("files", 3, literal.as_bytes()).as_deref(), Some(public), "{literal}");
            let read = ForeignId::read(public).expect("a public id");
            assert_eq!((read.upstream, read.generation), ("files", 3));
            let (inner, own) = (read.inner_literal(), literal);
            let value = |text: &str| serde_json::from_str::<serde_json::Value>(text).expect("JSON");
            assert_eq!(value(&inner), value(own));
        }
    }

    #[test]
    fn what_is_too_long_or_no_id_is_refused() {
        let long = "x".repeat(INNER_BYTES_MAX);
        assert!(spell("a", 1, quote(&long).as_bytes()).is_some());
        for literal in
            [quote(&format!("{long}x")), "1.5".into(), "1e3".into(), r#""\ud800""#.into(), String::new()]
        {
            assert_eq!(spell("a", 1, literal.as_bytes()), None, "{literal}");
        }
        for public in
            ["", "a", "a.1", "a.1.", "a.1.x1", "a.1.n", "a.1.n1.5", "a.1.n01", "a.01.n1", "a.+1.n1", "a.-1.s"]
        {
            assert_eq!(ForeignId::read(public), None, "{public}");
        }
    }

    proptest! {
        #[test]
        fn texts_round_trip(upstream in "[a-z][a-z0-9-]{0,31}", generation: u64, text in ".{0,60}") {
            let public = spell(&upstream, generation, quote(&text).as_bytes()).expect("it is short");
            let read = ForeignId::read(&public).expect("it was just spelled");
            prop_assert_eq!((read.upstream, read.generation), (&*upstream, generation));
            prop_assert_eq!(read.inner_literal(), quote(&text));
        }

        #[test]
        fn integers_round_trip(generation: u64, number: i64) {
            let public = spell("a", generation, number.to_string().as_bytes()).expect("an integer");
            prop_assert_eq!(ForeignId::read(&public).map(ForeignId::inner_literal), Some(number.to_string()));
        }

        #[test]
        fn what_reads_is_spelled_the_same(text in "[a-c]{0,2}[.]?[0-9]{0,3}[.]?[nsx]?[0-9a.-]{0,4}") {
            if let Some(read) = ForeignId::read(&text) {
                let again = spell(read.upstream, read.generation, read.inner_literal().as_bytes());
                prop_assert_eq!(again, Some(text));
            }
        }
    }
}
