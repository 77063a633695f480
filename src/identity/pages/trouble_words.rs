//! The words of each error: for a user of an IDE, who knows neither OAuth nor the gateway.

use super::markup::{Markup, NO_NAME};
use super::trouble::Trouble;

/// What a page of an error says.
#[derive(Debug)]
pub(super) struct Story {
    pub(super) status: u16,
    /// Begins a sentence; no value of anybody.
    pub(super) title: &'static str,
    /// The gateway or its provider is at fault, not what was asked for.
    pub(super) is_passing: bool,
    /// Paragraphs, lists.
    pub(super) cause: Markup,
    /// Likewise.
    pub(super) next: Markup,
    /// Likewise; empty where whoever runs the gateway can do nothing.
    pub(super) operator: Option<Markup>,
}

/// For whoever waits, and for whoever was interrupted.
const START_AGAIN: &str = "<p>Start the sign-in again in your app, and finish it in the browser that then opens. You can close this tab.</p>\n";
const TELL_MAKER: &str = "<p>Update the app, and try again. If that does not help, tell its maker what stands here: only they can mend it.</p>\n";
const WAIT: &str = "<p>Wait a minute, then start the sign-in again in your app. Apps that are signed in go on working.</p>\n";
/// How apps forget what they registered; none does so by itself.
const FORGET: &str = "<p>Have your app forget its registration, then sign in again:</p>\n<dl class=\"facts\">\n\
    <div><dt>VS Code</dt><dd>In the command palette, search <em>Dynamic Authentication Providers</em>, and remove the one \
    with this gateway's address.</dd></div>\n\
    <div><dt>Cursor</dt><dd>In the command palette, run <em>Cursor: Clear All MCP Tokens</em>.</dd></div>\n\
    <div><dt>Claude Code</dt><dd>Type <code>/mcp</code>, choose the server, then <em>Clear authentication</em>. Where that is \
    not offered, remove the server and add it under another name.</dd></div>\n\
    <div><dt>mcp-remote</dt><dd>Delete the folder <code>~/.mcp-auth</code>.</dd></div>\n\
    <div><dt>Other apps</dt><dd>Remove the server, and add it again. A program of your own must delete the client id that it \
    has stored.</dd></div>\n</dl>\n";

pub(super) fn story(trouble: &Trouble<'_>) -> Story {
    match *trouble {
        Trouble::RedirectRefused { client, redirect, entry } => redirect_refused(client, redirect, entry),
        Trouble::RedirectUnregistered { client, redirect } => redirect_unregistered(client, redirect),
        Trouble::ClientUnknown { client_id } => client_unknown(client_id),
        Trouble::ClientDenied { client_id } => client_denied(client_id),
        Trouble::ClientDocument { client_id, why } => client_document(client_id, why),
        Trouble::ResourceUnknown { resource } => resource_unknown(resource),
        Trouble::ProviderRefused { provider, error, description } => {
            provider_refused(provider, error, description)
        }
        Trouble::ProviderSlow { provider, waited_s } => provider_slow(provider, waited_s),
        Trouble::ProviderDown { provider } => provider_down(provider),
        Trouble::ProviderUntrusted { provider } => provider_untrusted(provider),
        Trouble::RequirementFailed { provider, person, claim } => requirement_failed(provider, person, claim),
        Trouble::OtherPerson { provider, expected, came } => other_person(provider, expected, came),
        Trouble::FormExpired { minutes } => form_expired(minutes),
        Trouble::OtherBrowser => other_browser(),
        Trouble::WrongHost { host, url } => wrong_host(host, url),
        Trouble::ParameterTwice { name } => {
            parameter(name, " stands in it twice, so nobody can say which one counts.", "")
        }
        Trouble::ParameterMissing { name } => parameter(name, " is missing in it.", ""),
        Trouble::ParameterInvalid { name, why } => parameter(name, " in it is not valid: ", why),
        Trouble::StoreAway => store_away(),
        Trouble::Busy { wait_s } => busy(wait_s),
        Trouble::NoSuchPage => no_such_page(),
    }
}

/// What was asked for cannot be done.
fn refused(status: u16, title: &'static str, cause: Markup, next: &'static str) -> Story {
    Story { status, title, is_passing: false, cause, next: Markup::of(next), operator: None }
}

/// It may be possible later.
fn passing(status: u16, title: &'static str, cause: Markup, next: &'static str) -> Story {
    Story { is_passing: true, ..refused(status, title, cause, next) }
}

fn redirect_refused(client: &str, redirect: &str, entry: Option<&str>) -> Story {
    let mut cause = Markup::of("<p>The app ");
    cause.name(client, NO_NAME).add(" wants the answer at ").code(redirect);
    cause.add(
        ". This gateway answers only programs on your own computer, and addresses that its configuration allows: else a link \
         could send your sign-in to a stranger. Nothing was sent.</p>\n",
    );
    let mut operator = Markup::new();
    match entry {
        Some(entry) => operator
            .add("<p>If you know this address, add it to the list in the configuration:</p>\n<pre>")
            .add("[sign_in]\nredirects = [")
            .code(&quoted(entry))
            .add("]</pre>\n"),
        None => operator.add(
            "<p>No line allows this address. <code>redirects</code> of <code>[sign_in]</code> takes https addresses, and links \
             to an app, such as <code>cursor://anysphere.cursor-mcp/oauth/callback</code>.</p>\n",
        ),
    };
    let next = "<p>If you have just started this sign-in yourself, show this page to whoever runs this gateway. If not, \
                close this tab.</p>\n";
    let story = refused(403, "The app's return address is not allowed here", cause, next);
    Story { operator: Some(operator), ..story }
}

/// `text` as a string of TOML.
fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

fn redirect_unregistered(client: &str, redirect: &str) -> Story {
    let mut cause = Markup::of("<p>The app ");
    cause.name(client, NO_NAME).add(" wants the answer at ").code(redirect);
    cause.add(", but has registered other addresses. Nothing was sent.</p>\n");
    refused(400, "The app has not registered its return address", cause, FORGET)
}

fn client_unknown(client_id: &str) -> Story {
    let mut cause = Markup::of("<p>The app names itself ");
    cause.code(client_id).add(
        ". That registration is not from here, or is older than the keys of this gateway. Apps keep a registration for good, \
         so trying again does not help.</p>\n",
    );
    let story = refused(400, "This gateway does not know the app", cause, FORGET);
    let operator = Markup::of(
        "<p>Registrations are good as long as the key that sealed them stands in the file of <code>key</code> of \
         <code>[sign_in]</code>. Put an old key back below the new one.</p>\n",
    );
    Story { operator: Some(operator), ..story }
}

fn client_denied(client_id: &str) -> Story {
    let mut cause = Markup::of("<p>Whoever runs this gateway has barred the app ");
    cause.code(client_id).add(".</p>\n");
    let next = "<p>Use another app, or ask whoever runs this gateway for the reason.</p>\n";
    let story = refused(403, "This app may not be used here", cause, next);
    let operator = Markup::of(
        "<p>The app, or its host, stands in <code>clients_denied</code> of <code>[sign_in]</code>.</p>\n",
    );
    Story { operator: Some(operator), ..story }
}

fn client_document(client_id: &str, why: &str) -> Story {
    let mut cause = Markup::of("<p>The app says that it is described at ");
    cause.code(client_id).add(", but that could not be used: ").value(why).add("</p>\n");
    let next = "<p>Try again in a few minutes. If it stays so, tell the app's maker what stands here.</p>\n";
    passing(502, "The app's description cannot be read", cause, next)
}

fn resource_unknown(resource: &str) -> Story {
    let mut cause = Markup::of("<p>The app wants to use ");
    cause.code(resource).add(". No MCP server with sign-in is at that address.</p>\n");
    let next = "<p>Compare the address of the server in your app with the one that you were given, also its end.</p>\n";
    let story = refused(400, "There is no such MCP server here", cause, next);
    let operator = Markup::of(
        "<p>It must be the <code>public_url</code> of an <code>[[endpoint]]</code> that has <code>sign_in</code> in \
         <code>auth</code>.</p>\n",
    );
    Story { operator: Some(operator), ..story }
}

fn provider_refused(provider: &str, error: &str, description: &str) -> Story {
    let mut cause = Markup::of("<p>");
    cause
        .value(provider)
        .add(" ended the sign-in, and says:</p>\n<dl class=\"facts\">\n<div><dt>Error</dt><dd>");
    cause.code(error).add("</dd></div>\n<div><dt>Reason</dt><dd>");
    cause
        .value(if description.trim().is_empty() { "none given" } else { description })
        .add("</dd></div>\n</dl>\n");
    let next = "<p>If you cancelled it yourself, all is well. If not, start the sign-in again in your app; if it ends here \
                again, show this page to whoever runs this gateway or your company's accounts.</p>\n";
    refused(403, "Your company's account did not sign you in", cause, next)
}

fn provider_slow(provider: &str, waited_s: u64) -> Story {
    let mut cause = Markup::of("<p>");
    cause
        .value(provider)
        .add(" did not answer this gateway within ")
        .number(waited_s)
        .add(" s. Nobody is signed in.</p>\n");
    passing(504, "Your company's sign-in is slow", cause, WAIT)
}

fn provider_down(provider: &str) -> Story {
    let mut cause = Markup::of("<p>This gateway cannot reach ");
    cause.value(provider).add(", or gets only errors from there. Nobody is signed in.</p>\n");
    passing(502, "Your company's sign-in is out of order", cause, WAIT)
}

fn provider_untrusted(provider: &str) -> Story {
    let mut cause = Markup::of("<p>The answer of ");
    cause
        .value(provider)
        .add(" does not fit the sign-in that was started, so it was not used. Nobody is signed in.</p>\n");
    refused(502, "The answer of your company's sign-in cannot be trusted", cause, START_AGAIN)
}

fn requirement_failed(provider: &str, person: &str, claim: &str) -> Story {
    let mut cause = Markup::of("<p>");
    cause.value(provider).add(" says that you are <strong>").name(person, NO_NAME);
    cause.add("</strong>. Your account is not one of those that may sign in here, by its claim ");
    cause.code(claim).add(".</p>\n");
    let next = "<p>If you have another account, sign out at that site, and start again in your app. If not, ask whoever runs \
                this gateway to let you in; they see your name in the log.</p>\n";
    let story = refused(403, "You may not sign in here", cause, next);
    let operator = Markup::of(
        "<p><code>require</code> of <code>[sign_in]</code> says who may sign in. The audit log has the \
                      values that this account lacks.</p>\n",
    );
    Story { operator: Some(operator), ..story }
}

fn other_person(provider: &str, expected: &str, came: &str) -> Story {
    let mut cause = Markup::of("<p>This sign-in is for <strong>");
    cause.name(expected, NO_NAME).add("</strong>, but ").value(provider).add(" says that you are <strong>");
    cause.name(came, NO_NAME).add("</strong>. Nothing was changed for either of you.</p>\n");
    let next = "<p>To go on as the first, sign out at that site, then start again. To go on as the second, start the \
                sign-in in your own app: a link that somebody sent you is for them.</p>\n";
    refused(403, "Somebody else came back", cause, next)
}

fn form_expired(minutes: u64) -> Story {
    let mut cause = Markup::of("<p>A page of a sign-in can be answered once, and within ");
    cause.number(minutes).add(" minutes. This one was answered before, or stood open for longer.</p>\n");
    refused(400, "This page is no longer good", cause, START_AGAIN)
}

fn other_browser() -> Story {
    let cause = Markup::of(
        "<p>This page belongs to a sign-in of another browser or another profile, or this browser keeps no cookies. Nobody is \
         signed in.</p>\n",
    );
    let next = "<p>Start the sign-in again in your app, and finish it in the browser that then opens, with cookies allowed. \
                If you have started nothing, somebody may have sent you a link: close this tab.</p>\n";
    refused(403, "This sign-in was not started in this browser", cause, next)
}

fn wrong_host(host: &str, url: &str) -> Story {
    let mut cause = Markup::of("<p>You came by ");
    cause.code(host).add(". Sign-in works at ").code(url).add(" alone.</p>\n");
    let next = "<p>Set the server in your app to an address that begins so, then start again.</p>\n";
    let story = refused(421, "Sign-in has another address", cause, next);
    let operator = Markup::of(
        "<p><code>url</code> of <code>[sign_in]</code> is the address that people use. A proxy before the gateway must hand on \
         <code>Host</code> as it came.</p>\n",
    );
    Story { operator: Some(operator), ..story }
}

fn parameter(name: &str, fault: &'static str, why: &str) -> Story {
    let mut cause = Markup::of("<p>The address that your app opened cannot be read: ");
    cause.code(name).add(fault).value(why).add("</p>\n");
    refused(400, "The app asked in a wrong way", cause, TELL_MAKER)
}

fn store_away() -> Story {
    let cause = Markup::of(
        "<p>This gateway cannot reach the place where it keeps sign-ins. Nothing was changed.</p>\n",
    );
    passing(503, "Sign-in is out of order", cause, WAIT)
}

fn busy(wait_s: u64) -> Story {
    let mut cause = Markup::of(
        "<p>More sign-ins come from your network than this gateway takes at once. Try again after ",
    );
    cause.number(wait_s).add(" s.</p>\n");
    passing(429, "Too many sign-ins at once", cause, WAIT)
}

fn no_such_page() -> Story {
    let cause = Markup::of("<p>The address is wrong, or is no longer used.</p>\n");
    let next =
        "<p>Start a sign-in in your app. You can also <a href=\"/sign-in/\">see your sign-ins</a>.</p>\n";
    refused(404, "There is no such page", cause, next)
}
