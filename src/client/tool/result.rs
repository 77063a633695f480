//! What the result of a call holds, piece by piece.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

/// How many pieces are taken apart.
const PIECES_MAX: usize = 1000;

/// The result of `tools/call`.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolResult {
    /// What it holds, in its order.
    pub pieces: Vec<ContentBlock>,
    /// Structured content, unless a text says the same.
    pub structured: Option<Value>,
    /// Whether the tool says that it failed.
    pub is_error: bool,
}

/// One piece of content.
#[derive(Clone, Debug, PartialEq)]
pub enum ContentBlock {
    /// Text, of a resource where that has a name.
    Text {
        /// The URI of the resource.
        of: Option<String>,
        /// The text.
        text: String,
    },
    /// Bytes: an image, sound, or a resource.
    File {
        /// What it is: `image`, `audio` or the URI of the resource.
        what: String,
        /// Its media type.
        media: String,
        /// The bytes; `None` if they are not valid base64.
        bytes: Option<Vec<u8>>,
    },
    /// A link to a resource.
    Link {
        /// Where it leads.
        uri: String,
        /// What it is.
        name: Option<String>,
    },
    /// Something else.
    Other(Value),
}

/// Takes a result apart.
pub fn read(result: &Value) -> ToolResult {
    let content = result.get("content").and_then(Value::as_array).into_iter().flatten();
    let pieces: Vec<ContentBlock> = content.take(PIECES_MAX).map(piece).collect();
    let says_the_same = |structured: &Value| {
        pieces.iter().any(|piece| match piece {
            ContentBlock::Text { text, .. } => {
                serde_json::from_str::<Value>(text).is_ok_and(|value| value == *structured)
            }
            _ => false,
        })
    };
    let structured = result.get("structuredContent").filter(|structured| !says_the_same(structured)).cloned();
    let is_error = result.get("isError").and_then(Value::as_bool).unwrap_or(false);
    ToolResult { pieces, structured, is_error }
}

fn piece(content: &Value) -> ContentBlock {
    let text = |key: &str| content.get(key).and_then(Value::as_str).map(str::to_owned);
    let other = || ContentBlock::Other(content.clone());
    match text("type").as_deref() {
        Some("text") => text("text").map_or_else(other, |text| ContentBlock::Text { of: None, text }),
        Some(what @ ("image" | "audio")) => match text("data") {
            Some(data) => file(what.to_owned(), text("mimeType"), &data),
            None => other(),
        },
        Some("resource_link") => match text("uri") {
            Some(uri) => ContentBlock::Link { uri, name: text("title").or_else(|| text("name")) },
            None => other(),
        },
        Some("resource") => content.get("resource").map_or_else(other, resource),
        _ => other(),
    }
}

fn resource(resource: &Value) -> ContentBlock {
    let text = |key: &str| resource.get(key).and_then(Value::as_str).map(str::to_owned);
    let uri = text("uri").unwrap_or_else(|| "resource".to_owned());
    match (text("text"), text("blob")) {
        (Some(text), _) => ContentBlock::Text { of: Some(uri), text },
        (None, Some(blob)) => file(uri, text("mimeType"), &blob),
        _ => ContentBlock::Other(resource.clone()),
    }
}

fn file(what: String, media: Option<String>, data: &str) -> ContentBlock {
    let bytes = STANDARD.decode(data).ok();
    ContentBlock::File { what, media: media.unwrap_or_else(|| "application/octet-stream".to_owned()), bytes }
}

/// What the name of a file of this media type ends with.
pub fn extension(media: &str) -> &'static str {
    match media.split(';').next().unwrap_or_default().trim().to_ascii_lowercase().as_str() {
        "image/png" => "png",
        "image/jpeg" => "jpg",
        "image/gif" => "gif",
        "image/webp" => "webp",
        "image/svg+xml" => "svg",
        "audio/wav" | "audio/x-wav" | "audio/wave" => "wav",
        "audio/mpeg" | "audio/mp3" => "mp3",
        "audio/ogg" => "ogg",
        "application/pdf" => "pdf",
        "application/json" => "json",
        "application/zip" => "zip",
        "application/gzip" => "gz",
        "text/plain" => "txt",
        "text/html" => "html",
        "text/csv" => "csv",
        _ => "bin",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn results_come_apart() {
        let outcome = read(&json!({
            "content": [
                {"type": "text", "text": "hello"},
                {"type": "image", "data": "AAEC", "mimeType": "image/png"},
                {"type": "audio", "data": "!!"},
                {"type": "resource_link", "uri": "a:b", "name": "n"},
                {"type": "resource", "resource": {"uri": "a:c", "text": "t"}},
                {"type": "resource", "resource": {"uri": "a:d", "blob": "AA=="}},
                {"type": "text"},
                7,
            ],
            "structuredContent": {"a": 1},
            "isError": true,
        }));
        let file = |what: &str, media: &str, bytes: Option<&[u8]>| ContentBlock::File {
            what: what.into(),
            media: media.into(),
            bytes: bytes.map(<[u8]>::to_vec),
        };
        let expected = vec![
            ContentBlock::Text { of: None, text: "hello".into() },
            file("image", "image/png", Some(&[0, 1, 2])),
            file("audio", "application/octet-stream", None),
            ContentBlock::Link { uri: "a:b".into(), name: Some("n".into()) },
            ContentBlock::Text { of: Some("a:c".into()), text: "t".into() },
            file("a:d", "application/octet-stream", Some(&[0])),
            ContentBlock::Other(json!({"type": "text"})),
            ContentBlock::Other(json!(7)),
        ];
        assert_eq!(
            outcome,
            ToolResult { pieces: expected, structured: Some(json!({"a": 1})), is_error: true }
        );
        let same =
            json!({"content": [{"type": "text", "text": "{\"a\": 1}"}], "structuredContent": {"a": 1}});
        assert_eq!(read(&same).structured, None);
        assert_eq!(read(&json!({"content": "no"})).pieces, []);
    }
}
