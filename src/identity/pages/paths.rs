//! Where forms and links of the pages lead, and the fields of the forms.

/// The answer to the consent page is posted here.
pub const CONSENT_PATH: &str = "/sign-in/consent";
/// One's own sign-ins.
pub const SIGN_INS_PATH: &str = "/sign-in/";
/// Ends the sign-in that [`GRANT_FIELD`] names.
pub const END_PATH: &str = "/sign-in/end";
/// Ends all of them.
pub const END_ALL_PATH: &str = "/sign-in/end-all";
/// Ends the session of the page itself.
pub const SIGN_OUT_PATH: &str = "/sign-in/sign-out";

/// Every form has it: the sealed form, or the sealed request.
pub const FORM_FIELD: &str = "form";
/// [`ALLOW`] or [`DENY`].
pub const ANSWER_FIELD: &str = "answer";
/// The client may sign in.
pub const ALLOW: &str = "allow";
/// It may not.
pub const DENY: &str = "deny";
/// The sign-in that is to end.
pub const GRANT_FIELD: &str = "grant";
