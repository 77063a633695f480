//! The pages of sign-in as text: consent, the way on, errors, one's own sign-ins.
//!
//! Each is made of plain values, and is one HTML document with its one style in it, beside the headers that it is served
//! with. It has no script and no frame, and asks for nothing from elsewhere.
//!
//! Invariants: strangers choose names, addresses and errors, so every value passes through [`markup`], where it gets a
//! length and loses what could end an element, hide or turn around; markup itself is written here only. The elements,
//! attributes, forms and links of a page are the same, whatever its values are.

mod consent;
mod markup;
mod passage;
mod paths;
mod sheet;
mod sign_ins;
mod target;
mod trouble;
mod trouble_page;
mod trouble_words;

#[cfg(test)]
mod tests;

pub use self::consent::{ConsentPage, KnownBy, ReturnsTo, consent};
pub use self::passage::{SignedInPage, SignedOutPage, moving_on, signed_in, signed_out};
pub use self::paths::{
    ALLOW, ANSWER_FIELD, CONSENT_PATH, DENY, END_ALL_PATH, END_PATH, FORM_FIELD, GRANT_FIELD, SIGN_INS_PATH,
    SIGN_OUT_PATH,
};
pub use self::sheet::{Page, PageHeader};
pub use self::sign_ins::{SignInRow, SignInsPage, sign_ins};
pub use self::target::PageTarget;
pub use self::trouble::Trouble;
pub use self::trouble_page::trouble;
