//! A strict reader of HTML: it knows no mending, so it fails where a browser would begin to guess.

const VOID: [&str; 2] = ["meta", "input"];

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Element {
    pub(super) tag: String,
    pub(super) attributes: Vec<Attribute>,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Attribute {
    pub(super) name: String,
    /// As it stands there, escaped.
    pub(super) value: String,
}

impl Element {
    pub(super) fn attribute(&self, name: &str) -> Option<&str> {
        self.attributes.iter().find(|attribute| attribute.name == name).map(|attribute| &*attribute.value)
    }
}

/// A document in parts.
#[derive(Debug, Default)]
pub(super) struct Document {
    /// In the order of their beginnings.
    pub(super) elements: Vec<Element>,
    /// Between tags, but for the style.
    pub(super) texts: Vec<String>,
    pub(super) style: String,
}

pub(super) fn read(html: &str) -> Document {
    let mut document = Document::default();
    let mut open: Vec<String> = Vec::new();
    let mut rest = html.strip_prefix("<!doctype html>").expect("a doctype");
    while let Some((text, after)) = rest.split_once('<') {
        if open.last().is_some_and(|tag| tag == "style") {
            document.style.push_str(text);
        } else {
            assert!(!text.contains('>'), "{text}");
            document.texts.push(text.to_owned());
        }
        let (tag, after) = after.split_once('>').expect("a tag ends");
        rest = after;
        if let Some(closed) = tag.strip_prefix('/') {
            assert_eq!(
                open.pop().as_deref(),
                Some(closed),
                "…{}",
                &after.chars().take(80).collect::<String>()
            );
            continue;
        }
        let element = element(tag.trim_end_matches('/'));
        if !VOID.contains(&&*element.tag) && !tag.ends_with('/') {
            open.push(element.tag.clone());
        }
        document.elements.push(element);
    }
    assert!(open.is_empty(), "{open:?}");
    assert_eq!(rest, "\n");
    document
}

fn element(text: &str) -> Element {
    let (tag, mut rest) = text.split_at(text.find(' ').unwrap_or(text.len()));
    assert!(!tag.is_empty() && tag.bytes().all(|byte| byte.is_ascii_alphanumeric()), "{text}");
    let mut attributes = Vec::new();
    while !rest.is_empty() {
        let (name, after) = rest.strip_prefix(' ').and_then(|rest| rest.split_once("=\"")).expect(text);
        let (value, after) = after.split_once('"').expect(text);
        assert!(name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-'), "{text}");
        assert!(attributes.iter().all(|other: &Attribute| other.name != name), "{text}");
        attributes.push(Attribute { name: name.to_owned(), value: value.to_owned() });
        rest = after;
    }
    Element { tag: tag.to_owned(), attributes }
}
