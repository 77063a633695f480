//! HTTP/1.1: whatever is read, hyper reads the same of it, in whatever pieces it comes; where hyper reads more, that stands
//! in the table of the crate.

use http1::differential;

/// The first bytes are the sizes of the pieces.
pub fn requests(input: &[u8]) {
    let Some((sizes, bytes)) = super::sizes(input) else { return };
    differential::check_requests(bytes, &sizes);
}

/// As [`requests`].
pub fn replies(input: &[u8]) {
    let Some((sizes, bytes)) = super::sizes(input) else { return };
    differential::check_replies(bytes, &sizes);
}
