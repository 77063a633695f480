//! Sign-in: clients that were registered nowhere, people at a provider, and the tokens that come of it.
//!
//! | File | The question it answers |
//! |---|---|
//! | [`place`], [`browser`] | The gateway and its provider, the browser of a person, and the way of a client through both |
//! | [`flow`] | Does the whole way lead to calls, as the principal of the provider's own tokens, over restarts? |
//! | [`codes`] | When is a code good, and what ends its sign-in? |
//! | [`refreshes`] | Which refresh tokens are good, once and twice? |
//! | [`ends`] | What ends with a sign-in, and when? |
//! | [`requests`] | What of a request is refused, and how is that told? |
//! | [`forms`] | Which browser may answer a page and come back from the provider? |
//! | [`hostile`] | What do hostile pages, programs that follow links, and other gateways get? |
//! | [`cookies`] | Which cookies does a browser get? |
//! | [`documents`] | Which clients are known by a document? |
//! | [`faults`] | What happens where the provider lies or fails? |
//! | [`reloads`] | What do tokens mean after a reload? |
//! | [`many`] | What do many sign-ins cost, and what does a reload mean for all of them? |
//! | [`fleet`] | Does all of this hold at several gateways with one Redis, whatever becomes of them and of it? |
//! | [`operators`] | What do operators see and end, and where does a wrong key lead? |
//! | [`demo`] | Is a new user signed in with what `trunkline demo --sign-in` says? |
//! | [`musts`] | Do the mistakes of others happen here? |

mod browser;
mod codes;
mod cookies;
mod demo;
mod documents;
mod ends;
mod faults;
mod fleet;
mod flow;
mod forms;
mod hostile;
mod many;
mod musts;
mod operators;
mod place;
mod refreshes;
mod reloads;
mod requests;

use browser::Browser;
use place::{
    AskedTokens, CALLBACK, CHALLENGE, Place, REDIRECT, Settings, Tokens, URL, VERIFIER, form, get, post_form,
};
