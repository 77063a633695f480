//! One's own sign-ins, and the forms that end them.

use super::consent::KnownBy;
use super::markup::{Markup, NO_NAME};
use super::paths::{END_ALL_PATH, END_PATH, FORM_FIELD, GRANT_FIELD, SIGN_OUT_PATH};
use super::sheet::{Page, Sheet};

/// More than a principal may have; of the others it is said how many there are.
const ROWS_MAX: usize = 100;

/// A person's sign-ins.
#[derive(Clone, Copy, Debug)]
pub struct SignInsPage<'a> {
    /// The person's name.
    pub person: &'a str,
    /// Their sign-ins, in the order in which they are shown.
    pub rows: &'a [SignInRow<'a>],
    /// The sealed form of this session, which each form on the page carries.
    pub form: &'a str,
    /// So many have just ended.
    pub ended: usize,
}

/// One client at one endpoint.
#[derive(Clone, Copy, Debug)]
pub struct SignInRow<'a> {
    /// As the client calls itself; may be empty.
    pub client: &'a str,
    /// How far that can be believed.
    pub known_by: KnownBy<'a>,
    /// The URL of the endpoint.
    pub endpoint: &'a str,
    /// The day on which it began, as it is to be read.
    pub since: &'a str,
    /// The time of its last use, likewise.
    pub last_used: &'a str,
    /// Names it in the form that ends it.
    pub grant: &'a str,
}

/// Shows them.
pub fn sign_ins(shown: &SignInsPage<'_>) -> Page {
    let mut main =
        Markup::of("<h1>Your sign-ins</h1>\n<div class=\"bar\"><p>Apps that may use tools here as <strong>");
    main.name(shown.person, NO_NAME).add("</strong>. End what you do not know or no longer use.</p>\n");
    write_form(SIGN_OUT_PATH, shown.form, &mut main);
    main.add("<button>Sign out of this page</button></form></div>\n");
    if shown.ended > 0 {
        main.add("<p class=\"told\" role=\"status\">").number(shown.ended as u64);
        main.add(if shown.ended == 1 { " sign-in has ended.</p>\n" } else { " sign-ins have ended.</p>\n" });
    }
    if shown.rows.is_empty() {
        main.add("<p class=\"note\">No app is signed in as you.</p>\n");
    } else {
        write_table(shown, &mut main);
    }
    Sheet { status: 200, title: "Your sign-ins", is_wide: true, main, ..Sheet::default() }.page()
}

fn write_table(shown: &SignInsPage<'_>, main: &mut Markup) {
    write_form(END_PATH, shown.form, main);
    main.add(
        "<table>\n<thead><tr><th scope=\"col\">App</th><th scope=\"col\">MCP server</th><th scope=\"col\">Since</th>\
         <th scope=\"col\">Last used</th><th scope=\"col\"><span class=\"unseen\">End</span></th></tr></thead>\n<tbody>\n",
    );
    for row in shown.rows.iter().take(ROWS_MAX) {
        write_row(row, main);
    }
    main.add("</tbody>\n</table>\n</form>\n");
    let more = shown.rows.len().saturating_sub(ROWS_MAX);
    if more > 0 {
        main.add("<p class=\"note\">There are ").number(more as u64).add(" more.</p>\n");
    }
    main.add("<div class=\"all\">");
    write_form(END_ALL_PATH, shown.form, main);
    main.add("<button>End all sign-ins</button></form></div>\n");
}

fn write_row(row: &SignInRow<'_>, main: &mut Markup) {
    main.add("<tr><td><strong>").name(row.client, NO_NAME).add("</strong><span class=\"note\">");
    match row.known_by {
        KnownBy::Host(host) => main.add("of ").value(host),
        KnownBy::Configuration => main.add("registered here"),
        KnownBy::Nothing => main.add("unverified"),
    };
    main.add("</span></td>\n<td>").code(row.endpoint);
    main.add("</td>\n<td class=\"time\"><span class=\"label\">since </span>").value(row.since);
    main.add("</td>\n<td class=\"time\"><span class=\"label\">last used </span>").value(row.last_used);
    main.add("</td>\n<td><button name=\"").add(GRANT_FIELD).add("\"").attribute(" value=\"", row.grant);
    main.add(">End<span class=\"unseen\"> the sign-in of ")
        .name(row.client, NO_NAME)
        .add("</span></button></td></tr>\n");
}

fn write_form(path: &'static str, form: &str, main: &mut Markup) {
    main.add("<form method=\"post\" autocomplete=\"off\" action=\"")
        .add(path)
        .add("\">\n")
        .hidden(FORM_FIELD, form);
}
