//! Every page with hostile values in every field: its elements, attributes, forms and links stay those of a harmless one.

mod reader;
mod samples;

use std::sync::LazyLock;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use proptest::prelude::*;
use sha2::{Digest as _, Sha256};

use self::reader::{Attribute, Document, read};
use self::samples::{Sample, VALUES, samples};
use super::markup::is_seen;
use super::*;

/// Of a page with ordinary values, its style included.
const PAGE_BYTES_MAX: usize = 14 << 10;
/// Longer than any value that is shown with the words around it.
const TEXT_CHARS_MAX: usize = 330;

const HOSTILE: [&str; 18] = [
    "</form><script>alert(1)</script>",
    "</title></style></main><iframe src=//evil.example>",
    "\" onclick=\"alert(1)",
    "' autofocus onfocus='alert(1)",
    "\"><meta http-equiv=refresh content=\"0;url=//evil.example\">",
    "&lt;script&gt; &#60;b&#62; &amp",
    "<!-- ",
    "]]>",
    "abc\u{202e}exe.fdp\u{202c}",
    "zero\u{200b}width\u{2066}\u{feff}",
    "two\r\nlines\u{2028}\t",
    "\0\u{1b}[31m\u{85}",
    "\u{e0041}\u{fff9}\u{115f}",
    "   ",
    "",
    "漢字天気 ﷽ e\u{301}\u{302}\u{303}",
    "javascript:alert(1)",
    "`${x}` {{x}} %s \\u{41}",
];

fn harmless() -> Vec<String> {
    (0..VALUES).map(|at| format!("value{at}")).collect()
}

/// The skeletons of all pages with harmless values.
static HARMLESS: LazyLock<Vec<Vec<String>>> =
    LazyLock::new(|| samples(&harmless()).iter().map(|sample| skeleton(&read(&sample.page.html))).collect());

/// Tags and attributes, without the values of those that hold something of somebody.
fn skeleton(document: &Document) -> Vec<String> {
    let named = |attribute: &Attribute| match &*attribute.name {
        name @ ("value" | "href" | "content") => name.to_owned(),
        name => format!("{name}={}", attribute.value),
    };
    let elements = document.elements.iter();
    elements
        .map(|element| {
            format!("{} {}", element.tag, element.attributes.iter().map(named).collect::<Vec<_>>().join(" "))
        })
        .collect()
}

/// The values of an attribute of all elements with this tag.
fn all<'d>(document: &'d Document, tag: &str, attribute: &str) -> Vec<&'d str> {
    let elements = document.elements.iter().filter(|element| element.tag == tag);
    elements.filter_map(|element| element.attribute(attribute)).collect()
}

/// Holds for every page, whatever is in it.
fn check(sample: &Sample, like: &[String]) {
    let name = sample.name;
    let document = read(&sample.page.html);
    assert_eq!(skeleton(&document), like, "{name}");
    assert_eq!(all(&document, "form", "action"), sample.forms, "{name}");
    let target =
        sample.target.as_ref().map(|target| target.url().replace('&', "&amp;").replace('\'', "&#39;"));
    let links: Vec<&str> = target.as_deref().into_iter().chain(sample.links.iter().copied()).collect();
    assert_eq!(all(&document, "a", "href"), links, "{name}");
    let refresh = document.elements.iter().find(|element| element.attribute("http-equiv").is_some());
    let moves_to = refresh.and_then(|element| element.attribute("content"));
    assert_eq!(moves_to, target.map(|url| format!("0; url={url}")).as_deref(), "{name}");
    for text in &document.texts {
        let unseen = text.chars().find(|c| !is_seen(*c) && *c != '\n');
        assert_eq!(unseen, None, "{name}: {text}");
        assert!(unescaped(text).chars().count() <= TEXT_CHARS_MAX, "{name}: {text}");
        for (at, _) in text.match_indices('&') {
            let is_ours =
                ["&lt;", "&gt;", "&amp;", "&quot;", "&#39;"].iter().any(|e| text[at..].starts_with(e));
            assert!(is_ours, "{name}: {text}");
        }
    }
}

fn check_all(values: &[String]) {
    for (sample, like) in samples(values).iter().zip(&*HARMLESS) {
        check(sample, like);
    }
}

#[test]
fn hostile_values_change_no_page() {
    for hostile in HOSTILE {
        check_all(&vec![hostile.to_owned(); VALUES]);
        check_all(&vec![format!("Claude {hostile} Code"); VALUES]);
        check_all(&vec![hostile.repeat(5000 / hostile.len().max(1)); VALUES]);
    }
}

fn value() -> impl Strategy<Value = String> {
    let part = prop_oneof![
        3 => proptest::sample::select(&HOSTILE[..]).prop_map(str::to_owned),
        2 => any::<String>(),
        1 => proptest::collection::vec(proptest::sample::select(&['<', '>', '"', '\'', '&', ';', '=', '/', ' ', '\u{202e}', '\n'][..]), 0..300)
            .prop_map(String::from_iter),
    ];
    proptest::collection::vec(part, 0..4).prop_map(|parts| parts.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn no_values_change_a_page(values in proptest::collection::vec(value(), VALUES)) {
        check_all(&values);
    }
}

#[test]
fn each_page_is_whole() {
    for sample in samples(&harmless()) {
        let name = sample.name;
        let document = read(&sample.page.html);
        let count = |tag: &str| document.elements.iter().filter(|element| element.tag == tag).count();
        for tag in ["html", "title", "style", "body", "header", "main", "footer", "h1"] {
            assert_eq!(count(tag), 1, "{name}: {tag}");
        }
        for tag in ["script", "iframe", "img", "link", "object", "base"] {
            assert_eq!(count(tag), 0, "{name}: {tag}");
        }
        assert_eq!(all(&document, "html", "lang"), ["en"], "{name}");
        for element in &document.elements {
            for attribute in &element.attributes {
                assert!(
                    !attribute.name.starts_with("on") && attribute.name != "style",
                    "{name}: {attribute:?}"
                );
            }
        }
        assert!(all(&document, "form", "method").iter().all(|method| *method == "post"), "{name}");
        let is_long = name.contains("too many") || name.contains("another person");
        assert!(
            is_long || sample.page.html.len() <= PAGE_BYTES_MAX,
            "{name}: {} bytes",
            sample.page.html.len()
        );
        assert!((200..=504).contains(&sample.page.status), "{name}");
    }
}

#[test]
fn headers_let_nothing_in_but_the_style() {
    let headers = Page::headers();
    let value = |name: &str| {
        headers.iter().find(|header| header.name == name).map(|header| header.value).expect(name)
    };
    for sample in samples(&harmless()) {
        let digest = STANDARD.encode(Sha256::digest(read(&sample.page.html).style.as_bytes()));
        assert_eq!(
            value("content-security-policy"),
            format!(
                "default-src 'none'; style-src 'sha256-{digest}'; form-action 'self'; base-uri 'none'; \
                 frame-ancestors 'none'"
            )
        );
    }
    for (name, expected) in [
        ("content-type", "text/html; charset=utf-8"),
        ("cache-control", "no-store"),
        ("referrer-policy", "same-origin"),
        ("x-content-type-options", "nosniff"),
        ("cross-origin-opener-policy", "same-origin"),
    ] {
        assert_eq!(value(name), expected);
    }
}

#[test]
fn forms_carry_what_was_sealed_whole() {
    let sealed = "A-z_0".repeat(800);
    let values = vec![sealed.clone(); VALUES];
    for sample in samples(&values).iter().filter(|sample| !sample.forms.is_empty()) {
        let document = read(&sample.page.html);
        let hidden = document.elements.iter().filter(|element| element.attribute("type") == Some("hidden"));
        let hidden: Vec<_> =
            hidden.map(|element| (element.attribute("name"), element.attribute("value"))).collect();
        assert_eq!(hidden, vec![(Some(FORM_FIELD), Some(&*sealed)); sample.forms.len()], "{}", sample.name);
        let buttons: Vec<_> = all(&document, "button", "value");
        let expected: Vec<&str> = match sample.forms {
            [CONSENT_PATH] => vec![ALLOW, DENY],
            _ => vec![&*sealed; buttons.len()],
        };
        assert_eq!(buttons, expected, "{}", sample.name);
    }
}

fn unescaped(text: &str) -> String {
    let text = text.replace("&quot;", "\"").replace("&#39;", "'").replace("&lt;", "<").replace("&gt;", ">");
    text.replace("&amp;", "&")
}

/// The words that a person reads, on one line.
fn words(page: &Page) -> String {
    unescaped(&read(&page.html).texts.concat()).split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn consent_says_who_asks_for_what() {
    let asked = ConsentPage {
        client: "Claude\u{202e} Code",
        known_by: KnownBy::Nothing,
        returns_to: ReturnsTo::Loopback("127.0.0.1:8123"),
        endpoint: "https://mcp.example.com/mcp",
        scopes: &["mcp:read"],
        scopes_dropped: &["mcp:admin"],
        provider: "login.example.com",
        person: None,
        request: "sealed",
    };
    let said = words(&consent(&asked));
    for part in [
        "Let Claude\\u{202e} Code use tools in your name?",
        "Known byunverified",
        "Answer goes to127.0.0.1:8123A program on your computer.",
        "MCP serverhttps://mcp.example.com/mcp",
        "Permissionsmcp:read",
        "Not givenmcp:admin",
        "Warning: the answer goes to a program on your computer",
        "login.example.com asks next who you are",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    let site = ConsentPage {
        known_by: KnownBy::Host("claude.ai"),
        returns_to: ReturnsTo::Host("claude.ai"),
        scopes_dropped: &[],
        ..asked
    };
    let said = words(&consent(&site));
    assert!(
        said.contains("Known byclaude.ai") && !said.contains("Warning") && !said.contains("unverified"),
        "{said}"
    );
    let scheme = words(&consent(&ConsentPage {
        returns_to: ReturnsTo::Scheme("cursor"),
        person: Some("bob"),
        ..asked
    }));
    assert!(
        scheme.contains("Warning: any app on your computer can take links that begin with cursor:"),
        "{scheme}"
    );
    assert!(scheme.contains("login.example.com says that you are bob"), "{scheme}");
    let scopeless = words(&consent(&ConsentPage { scopes: &[], ..asked }));
    assert!(scopeless.contains("your ownThe app can use the tools that you may use here"), "{scopeless}");
    let nameless = words(&consent(&ConsentPage { client: " ", ..asked }));
    assert!(
        nameless.contains("Let an app use tools in your name?") && nameless.contains("App(no name)"),
        "{nameless}"
    );
}

#[test]
fn errors_name_the_cause_and_the_next_step() {
    for (one, status, parts) in [
        (
            Trouble::RedirectRefused {
                client: "X",
                redirect: "https://x.example/cb",
                entry: Some("https://x.example/\"\\"),
            },
            403,
            &["https://x.example/cb", "[sign_in] redirects = [\"https://x.example/\\\"\\\\\"]"][..],
        ),
        (
            Trouble::RedirectRefused { client: "X", redirect: "http://x.example/cb", entry: None },
            403,
            &["No line allows this address"],
        ),
        (
            Trouble::ClientUnknown { client_id: "tlc_old" },
            400,
            &["tlc_old", "Dynamic Authentication Providers", "Clear All MCP Tokens", "/mcp", "~/.mcp-auth"],
        ),
        (
            Trouble::ProviderRefused {
                provider: "login.example.com",
                error: "access_denied",
                description: "",
            },
            403,
            &["login.example.com", "access_denied", "none given"],
        ),
        (
            Trouble::RequirementFailed { provider: "login.example.com", person: "bob", claim: "groups" },
            403,
            &["says that you are bob", "by its claim groups", "require of [sign_in]", "audit log"],
        ),
        (Trouble::ProviderSlow { provider: "login.example.com", waited_s: 10 }, 504, &["within 10 s"]),
        (Trouble::FormExpired { minutes: 10 }, 400, &["within 10 minutes", "Start the sign-in again"]),
        (Trouble::OtherBrowser, 403, &["another browser", "close this tab"]),
        (
            Trouble::OtherPerson { provider: "login.example.com", expected: "ann", came: "bob" },
            403,
            &["is for ann", "you are bob"],
        ),
        (
            Trouble::WrongHost { host: "10.0.0.1", url: "https://mcp.example.com" },
            421,
            &["10.0.0.1", "https://mcp.example.com", "url of [sign_in]"],
        ),
        (Trouble::ParameterTwice { name: "state" }, 400, &["state stands in it twice"]),
        (Trouble::ParameterMissing { name: "code_challenge" }, 400, &["code_challenge is missing"]),
        (Trouble::StoreAway, 503, &["keeps sign-ins"]),
    ] {
        let page = trouble(&one, "req-17");
        let said = words(&page);
        assert_eq!(page.status, status, "{one:?}");
        for part in parts.iter().chain(&["What you can do", "by request id req-17"]) {
            assert!(said.contains(part), "{part}: {said}");
        }
    }
}
