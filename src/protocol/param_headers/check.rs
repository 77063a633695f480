//! Comparing `Mcp-Param-*` headers with the arguments that they mirror.

use super::super::arguments::{FoundArgument, Spellings, find};
use super::super::fields::Fields;
use super::super::header;
use super::super::json::{Decimal, JsonKind, Literal, Span, Value};
use super::Annotation;

/// A header that does not say what the arguments say.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{header} {fault}")]
pub struct ParamMismatch {
    /// The header's name in lower case.
    pub header: Box<str>,
    /// What is wrong.
    pub fault: ParamFault,
}

/// What is wrong with a header, or with the argument that it mirrors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParamFault {
    /// There is a value and no header.
    #[error("is missing")]
    Missing,
    /// There is a header, and no value or `null`.
    #[error("is sent without a value in params.arguments")]
    Unexpected,
    /// The header occurs more than once.
    #[error("is sent twice")]
    SentTwice,
    /// The header has bytes outside visible ASCII, or broken Base64.
    #[error("holds invalid characters or broken base64")]
    Malformed,
    /// The header has another value.
    #[error("does not match its value in params.arguments")]
    Different,
    /// The value is an object or an array, for which no header can stand.
    #[error("mirrors a string, a number or a boolean, but its value in params.arguments is none")]
    NotPrimitive,
    /// Readers could disagree about the value: a key on the way to it stands twice, or is written in a way
    /// that some take for it.
    #[error("mirrors a value of params.arguments whose key stands twice or is written in an ambiguous way")]
    Ambiguous,
}

/// Checks that `headers` mirror `arguments`, which is `params.arguments` of a call, as `annotations` ask.
///
/// Headers that no annotation names are ignored. Numbers are compared by value, whatever their size: safe
/// integers are a rule for clients, and a header that agrees misleads nobody.
pub fn check(
    annotations: &[Annotation],
    arguments: Option<Value<'_>>,
    headers: &Fields,
) -> Result<(), ParamMismatch> {
    if annotations.is_empty() {
        return Ok(());
    }
    let text = arguments.map(Value::text).unwrap_or_default();
    let values = values(annotations, arguments)
        .map_err(|index| mismatch(annotations, index, ParamFault::Ambiguous))?;
    for (index, (annotation, value)) in annotations.iter().zip(values).enumerate() {
        compare(&annotation.header, value, text, headers)
            .map_err(|fault| mismatch(annotations, index, fault))?;
    }
    Ok(())
}

/// What the annotations mirror, in their order. An error is the annotation whose value is ambiguous.
pub(super) fn values(
    annotations: &[Annotation],
    arguments: Option<Value<'_>>,
) -> Result<Vec<Option<(JsonKind, Span)>>, usize> {
    let found = find(Spellings::OfOneTool, annotations.iter().map(|annotation| &*annotation.path), arguments);
    let value = |(index, found)| match found {
        FoundArgument::Nothing => Ok(None),
        FoundArgument::Value(kind, span) => Ok(Some((kind, span))),
        FoundArgument::Ambiguous => Err(index),
    };
    found.into_iter().enumerate().map(value).collect()
}

fn mismatch(annotations: &[Annotation], index: usize, fault: ParamFault) -> ParamMismatch {
    let header = annotations.get(index).map(|annotation| annotation.header.clone()).unwrap_or_default();
    ParamMismatch { header, fault }
}

fn compare(
    name: &str,
    value: Option<(JsonKind, Span)>,
    text: &[u8],
    headers: &Fields,
) -> Result<(), ParamFault> {
    let mut sent = headers.named(name);
    let (header, second) = (sent.next(), sent.next());
    let Some((kind, span)) = value.filter(|(kind, _)| *kind != JsonKind::Null) else {
        return if header.is_some() { Err(ParamFault::Unexpected) } else { Ok(()) };
    };
    if matches!(kind, JsonKind::Object | JsonKind::Array) {
        return Err(ParamFault::NotPrimitive);
    }
    let header = header.ok_or(ParamFault::Missing)?;
    if second.is_some() {
        return Err(ParamFault::SentTwice);
    }
    let header = header::decode_value(header).ok_or(ParamFault::Malformed)?;
    if agrees(&header, kind, span, text) { Ok(()) } else { Err(ParamFault::Different) }
}

fn agrees(header: &str, kind: JsonKind, span: Span, text: &[u8]) -> bool {
    let raw = text.get(span.clone()).and_then(|raw| std::str::from_utf8(raw).ok()).unwrap_or_default();
    match kind {
        JsonKind::String => Literal::at(span, text).decode(text).as_deref() == Some(header),
        JsonKind::Number => Decimal::read(header).is_some_and(|sent| Some(sent) == Decimal::read(raw)),
        _ => header == raw, // true and false are written alike on both sides
    }
}
