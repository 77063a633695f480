//! Pages between two places: the way on, and the end of it.

use super::markup::{Markup, NO_NAME};
use super::paths::SIGN_INS_PATH;
use super::sheet::{Page, Sheet, shapes};
use super::target::PageTarget;

/// Who is signed in where, and the way back.
#[derive(Clone, Copy, Debug)]
pub struct SignedInPage<'a> {
    /// As the client calls itself; may be empty.
    pub client: &'a str,
    /// The name of who is signed in.
    pub person: &'a str,
    /// The URL of the endpoint.
    pub endpoint: &'a str,
    /// The answer to the client, if the page has to bring it there.
    pub back: Option<&'a PageTarget>,
}

/// What has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SignedOutPage {
    /// The session of the page; apps stay signed in.
    Here,
    /// All sign-ins as well.
    Everywhere,
}

/// Moves on to `target` by itself, and has a link for browsers that do not.
///
/// A redirect would not do where a form was answered: browsers hold what it leads to against the form's policy.
pub fn moving_on(target: &PageTarget) -> Page {
    let mut main = Markup::of("<h1>On to ");
    main.value(target.place()).add("</h1>\n<p>");
    main.add(if target.is_of_app() {
        "Your browser may ask whether it may open the app. If nothing happens:</p>\n"
    } else {
        "This takes a moment. If nothing happens:</p>\n"
    });
    main.link(target).add("Continue</a>\n");
    Sheet { status: 200, title: "One moment", moves_to: Some(target), main, ..Sheet::default() }.page()
}

/// Says that all is done, and goes back to the client.
pub fn signed_in(done: &SignedInPage<'_>) -> Page {
    let mut main = Markup::of("<h1 class=\"state\">");
    main.add(shapes::OK).add("<span>You are signed in</span></h1>\n<p>");
    main.name(done.client, "The app").add(" may use ").code(done.endpoint).add(" as <strong>");
    main.name(done.person, NO_NAME).add("</strong>.</p>\n<p>");
    match done.back {
        Some(back) => {
            main.add("Your browser may ask whether it may open the app. If nothing happens:</p>\n");
            main.link(back).add("Back to the app</a>\n")
        }
        None => main.add("Go back to your app. You can close this tab.</p>\n"),
    };
    let mut footer = Markup::of("<p><a href=\"");
    footer.add(SIGN_INS_PATH).add("\">See and end your sign-ins</a></p>\n");
    Sheet { status: 200, title: "You are signed in", moves_to: done.back, main, footer, ..Sheet::default() }
        .page()
}

/// Says what has ended.
pub fn signed_out(ended: SignedOutPage) -> Page {
    let mut main = Markup::of("<h1 class=\"state\">");
    main.add(shapes::OFF).add("<span>You are signed out</span></h1>\n<p>");
    main.add(match ended {
        SignedOutPage::Here => {
            "This browser no longer shows your sign-ins. Your apps stay signed in.</p>\n<p>Your company's account is still \
             signed in in this browser. On a computer that others use, sign out there as well.</p>\n"
        }
        SignedOutPage::Everywhere => {
            "All your sign-ins have ended, within a second at every gateway. An app that you use next asks you to sign in \
             again.</p>\n<p>Your company's account is still signed in in this browser. On a computer that others use, sign out \
             there as well.</p>\n"
        }
    });
    let mut footer = Markup::of("<p><a href=\"");
    footer.add(SIGN_INS_PATH).add("\">Sign in to see your sign-ins</a></p>\n");
    Sheet { status: 200, title: "You are signed out", main, footer, ..Sheet::default() }.page()
}
