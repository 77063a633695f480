//! One era's messages in the words of the other: bytes in, bytes out.
//!
//! Everything is spliced where it stands; what no rule here is about stays as its sender wrote it. What cannot be said
//! in the other era, and who has to be told so, is the bridge's business (`bridge`).

pub mod answer;
pub mod asker;
pub mod capabilities;
pub mod declared;
pub mod elicitation;
pub mod input;
pub mod introduction;
pub mod late;
pub mod members;
pub mod notification;
pub mod question;
pub mod request;
pub mod result;
pub mod tool;
