//! The page of an error: what happened, what to do next, and for whoever runs the gateway, the line to change.

use super::markup::Markup;
use super::sheet::{Page, Sheet, shapes};
use super::trouble::Trouble;
use super::trouble_words::story;

/// Names the cause and the next step. `request_id` is what the logs name the request by.
pub fn trouble(trouble: &Trouble<'_>, request_id: &str) -> Page {
    let story = story(trouble);
    let mut main = Markup::of("<h1 class=\"state\">");
    main.add(if story.is_passing { shapes::WARN } else { shapes::BAD })
        .add("<span>")
        .add(story.title)
        .add("</span></h1>\n");
    main.part(&story.cause).add("<h2>What you can do</h2>\n").part(&story.next);
    if let Some(operator) = &story.operator {
        main.add("<h2>For whoever runs this gateway</h2>\n").part(operator);
    }
    let mut footer =
        Markup::of("<p>Whoever runs this gateway finds the whole cause in its log by request id ");
    footer.code(request_id).add("</p>\n");
    Sheet { status: story.status, title: story.title, main, footer, ..Sheet::default() }.page()
}
