//! The page that asks whether a client may sign in.
//!
//! It says what the answer allows, to whom it goes, and how much of that is known: a name is chosen by the client, the host
//! of its id and its redirect are not. The request travels sealed in the form.

use super::markup::{Markup, NO_NAME};
use super::paths::{ALLOW, ANSWER_FIELD, CONSENT_PATH, DENY, FORM_FIELD};
use super::sheet::{Page, Sheet, shapes};

/// So many scopes are shown; of the others it is said how many there are.
const SCOPES_MAX: usize = 40;
/// A client that asks, and for what.
#[derive(Clone, Copy, Debug)]
pub struct ConsentPage<'a> {
    /// As the client calls itself; may be empty.
    pub client: &'a str,
    /// How far that can be believed.
    pub known_by: KnownBy<'a>,
    /// Where the answer goes.
    pub returns_to: ReturnsTo<'a>,
    /// The URL of the endpoint.
    pub endpoint: &'a str,
    /// Those that it asks for and may get.
    pub scopes: &'a [&'a str],
    /// Those that it asks for and does not get.
    pub scopes_dropped: &'a [&'a str],
    /// Host of the provider.
    pub provider: &'a str,
    /// The person who came back from the provider, if the page is shown after that.
    pub person: Option<&'a str>,
    /// The sealed request.
    pub request: &'a str,
}

/// How a client is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KnownBy<'a> {
    /// By its document, which is at this host.
    Host(&'a str),
    /// By the configuration of the gateway.
    Configuration,
    /// It registered itself.
    Nothing,
}

/// Where the answer to a client goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReturnsTo<'a> {
    /// To this host, by https.
    Host(&'a str),
    /// To a program on the user's computer that listens there.
    Loopback(&'a str),
    /// To the app that opens links of this scheme, which is given without its colon.
    Scheme(&'a str),
}

/// Asks whether the client may sign in.
pub fn consent(asked: &ConsentPage<'_>) -> Page {
    let name = if asked.client.trim().is_empty() { "an app" } else { asked.client };
    let mut main = Markup::of("<h1>Let ");
    main.name(name, "").add(" use tools in your name?</h1>\n");
    write_person(asked, &mut main);
    write_facts(asked, &mut main);
    write_warning(asked, &mut main);
    main.add("<form class=\"answer\" method=\"post\" autocomplete=\"off\" action=\"")
        .add(CONSENT_PATH)
        .add("\">\n");
    main.hidden(FORM_FIELD, asked.request);
    main.add("<button class=\"allow\" name=\"")
        .add(ANSWER_FIELD)
        .add("\" value=\"")
        .add(ALLOW)
        .add("\">Allow</button>\n");
    main.add("<button name=\"")
        .add(ANSWER_FIELD)
        .add("\" value=\"")
        .add(DENY)
        .add("\">Deny</button>\n</form>\n");
    main.add("<p class=\"note\">If you allow it, ");
    match asked.person {
        Some(_) => main.add("you go back to the app at once."),
        None => main.value(asked.provider).add(" asks next who you are."),
    };
    main.add(" If you deny it, the app learns only that. You can end a sign-in at any time.</p>\n");
    Sheet { status: 200, title: "Allow an app to sign in?", main, ..Sheet::default() }.page()
}

fn write_person(asked: &ConsentPage<'_>, main: &mut Markup) {
    main.add("<p>");
    match asked.person {
        Some(person) => {
            main.value(asked.provider).add(" says that you are <strong>").name(person, NO_NAME).add(
                "</strong>. If that is not who you want to be here, deny, and sign out there first.</p>\n",
            )
        }
        None => {
            main.add("It asks to sign in here. Allow it only if you have just started that yourself.</p>\n")
        }
    };
}

fn write_facts(asked: &ConsentPage<'_>, main: &mut Markup) {
    main.add("<dl class=\"facts\">\n<div><dt>App</dt><dd><strong>")
        .name(asked.client, NO_NAME)
        .add("</strong></dd></div>\n");
    main.add("<div><dt>Known by</dt><dd>");
    match asked.known_by {
        KnownBy::Host(host) => main
            .add("<strong>")
            .value(host)
            .add("</strong><span class=\"note\">The site that describes this app.</span>"),
        KnownBy::Configuration => main
            .add("<strong>this gateway</strong><span class=\"note\">Whoever runs it has registered the app.</span>"),
        KnownBy::Nothing => main.add(
            "<strong>unverified</strong><span class=\"note\">The app chose its name itself, and nobody has checked it.</span>",
        ),
    };
    main.add("</dd></div>\n<div><dt>Answer goes to</dt><dd><strong>");
    match asked.returns_to {
        ReturnsTo::Host(host) => main.value(host).add("</strong>"),
        ReturnsTo::Loopback(host) => {
            main.value(host).add("</strong><span class=\"note\">A program on your computer.</span>")
        }
        ReturnsTo::Scheme(scheme) => {
            main.value(scheme).add(":</strong><span class=\"note\">An app that opens such links.</span>")
        }
    };
    main.add("</dd></div>\n<div><dt>MCP server</dt><dd>").code(asked.endpoint).add("</dd></div>\n");
    main.add("<div><dt>Permissions</dt><dd>");
    if asked.scopes.is_empty() {
        main.add("your own");
    }
    write_scopes(asked.scopes, main);
    main.add("<span class=\"note\">The app can use the tools that you may use here, and no others.</span></dd></div>\n");
    if !asked.scopes_dropped.is_empty() {
        main.add("<div><dt>Not given</dt><dd>");
        write_scopes(asked.scopes_dropped, main);
        main.add("<span class=\"note\">The app asked for it, and does not get it.</span></dd></div>\n");
    }
    main.add("</dl>\n");
}

fn write_scopes(scopes: &[&str], main: &mut Markup) {
    if scopes.is_empty() {
        return;
    }
    main.add("<ul class=\"scopes\">");
    for scope in scopes.iter().take(SCOPES_MAX) {
        main.add("<li>").code(scope).add("</li>\n");
    }
    let more = scopes.len().saturating_sub(SCOPES_MAX);
    if more > 0 {
        main.add("<li>").number(more as u64).add(" more</li>\n");
    }
    main.add("</ul>");
}

fn write_warning(asked: &ConsentPage<'_>, main: &mut Markup) {
    if matches!(asked.returns_to, ReturnsTo::Host(_)) {
        return;
    }
    main.add("<div class=\"warning\" role=\"note\">").add(shapes::WARN).add("<p><strong>Warning:</strong> ");
    match asked.returns_to {
        ReturnsTo::Scheme(scheme) => main.add("any app on your computer can take links that begin with ").value(scheme).add(
            ":, and none can prove its name. Allow this only if you have just started it yourself.</p></div>\n",
        ),
        _ => main.add(
            "the answer goes to a program on your computer, which cannot prove its name. Allow this only if you have just \
             started it yourself.</p></div>\n",
        ),
    };
}
