//! What is searched, and what must hold there.

mod configuration;
mod http1;
mod json;
mod provider;
mod proxy_header;
mod replies;
mod seals;
mod sign_in;
mod splices;
mod sse;
mod tokens;

/// Each target by its name.
pub const ALL: [(&str, fn(&[u8])); 16] = [
    ("envelope", json::envelope),
    ("arguments", json::arguments),
    ("splices", splices::splices),
    ("sse", sse::events),
    ("replies", replies::answer_ids),
    ("proxy_header", proxy_header::prefix_and_rest),
    ("configuration", configuration::parse),
    ("http1_requests", http1::requests),
    ("http1_replies", http1::replies),
    ("session_token", tokens::session_token),
    ("task_id", tokens::task_id),
    ("request_state", tokens::request_state),
    ("jwt", tokens::jwt),
    ("sign_in", sign_in::requests),
    ("provider", provider::documents),
    ("seals", seals::sealed),
];

/// The sizes of pieces that the first bytes of an input stand for, and the rest of it.
fn sizes(input: &[u8]) -> Option<([usize; 3], &[u8])> {
    let (head, rest) = input.split_first_chunk::<3>()?;
    Some((head.map(|byte| usize::from(byte) % 90 + 1), rest))
}

/// The input in pieces of these sizes, in turn.
fn pieces<'i>(mut input: &'i [u8], sizes: &'i [usize]) -> impl Iterator<Item = &'i [u8]> {
    let mut turns = sizes.iter().cycle();
    std::iter::from_fn(move || {
        let size = *turns.next()?;
        let (piece, rest) = input.split_at(input.len().min(size));
        input = rest;
        (!piece.is_empty()).then_some(piece)
    })
}
