//! The pages of the provider: one button for each user, or the reason why there is none.
//!
//! Invariant: no script, no picture, nothing from elsewhere; light and dark; all text is escaped.

use std::fmt::Write as _;

use super::AUTHORIZE;
use super::answer::Answer;
use super::faults::Faults;
use super::users::{USERS, User};
use crate::html::escaped;

const HEAD: &str = r#"<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Demo sign-in</title>
<style>
:root { color-scheme: light dark; --page: #fff; --text: #1a1d21; --muted: #5c6670; --line: #8a939c; --hover: #eef2f6; }
@media (prefers-color-scheme: dark) {
  :root { --page: #121518; --text: #e6e9ec; --muted: #9aa5b0; --line: #6b7680; --hover: #1f252b; }
}
body { margin: 0 auto; max-width: 26rem; padding: 3rem 1rem; background: var(--page); color: var(--text);
  font: 1rem/1.5 system-ui, sans-serif; overflow-wrap: anywhere; }
h1 { margin: 0 0 .5rem; font-size: 1.5rem; }
p { margin: 0 0 1.5rem; color: var(--muted); }
button { display: block; width: 100%; margin: 0 0 .75rem; padding: .75rem 1rem; border: 1px solid var(--line);
  border-radius: .5rem; background: var(--page); color: inherit; font: inherit; text-align: start; cursor: pointer; }
button:hover { background: var(--hover); }
button:focus-visible { outline: 3px solid; outline-offset: 2px; }
button span { display: block; color: var(--muted); font-size: .9rem; }
</style>
"#;

/// The page of a visit. Its form goes to the address of the visit.
pub(super) fn sign_in(query: &str, redirect_uri: &str, hint: Option<&str>, faults: &Faults) -> Answer {
    let mut html = HEAD.to_owned();
    let _ = write!(
        html,
        "<h1>Sign in to the demo</h1>\n<p>These users are made up and have no passwords. You go on to {}.\n\
         <form method=\"post\" action=\"{AUTHORIZE}?{}\">\n",
        escaped(origin(redirect_uri)),
        escaped(query)
    );
    for user in USERS.iter().filter_map(|user| User::find(user.name, faults)) {
        let focus = if hint == Some(user.name) { " autofocus" } else { "" };
        let _ = writeln!(
            html,
            "<button name=\"user\" value=\"{}\"{focus}><b>{}</b><span>{}, in {}</span></button>",
            user.name,
            user.full_name,
            user.name,
            escaped(&user.groups(faults).join(" and "))
        );
    }
    html.push_str("<button name=\"cancel\" value=\"yes\">Cancel</button>\n</form>\n");
    Answer::Page { status: hyper::StatusCode::OK, html }
}

/// The scheme and the host, which is all that a person looks at.
fn origin(uri: &str) -> &str {
    let host_at = uri.find("://").map_or(0, |at| at + "://".len());
    let (_, rest) = uri.split_at(host_at);
    let end = rest.find(['/', '?']).map_or(uri.len(), |at| host_at + at);
    uri.split_at(end).0
}

/// The page of a visit that goes nowhere.
pub(super) fn refused(why: &str) -> String {
    format!("{HEAD}<h1>This sign-in cannot go on</h1>\n<p>{}\n", escaped(why))
}
