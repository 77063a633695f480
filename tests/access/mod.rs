//! Who may do what: credentials, rules, rates, and what belongs to one principal alone.
//!
//! What the gateway itself shows to upstreams is in `upstreams/credentials.rs`.
//!
//! | File | The question it answers |
//! |---|---|
//! | [`api_keys`] | Which API keys pass, and where must a key never appear? |
//! | [`jwt`] | Which tokens pass, and where do the keys come from that decide? |
//! | [`oauth`] | What does a client without a token find: challenges, and metadata of the authorization server? |
//! | [`client_certificates`] | Whom does a client certificate name, alone and beside keys and tokens? (Which are valid: `edge/tls.rs`.) |
//! | [`certificate_streams`] | Which streams end with the certificate of their connection, or with its authority? |
//! | [`policy`] | Which tools, prompts and resources may somebody use, by every name, in both eras? |
//! | [`completion`] | Does `completion/complete` give away what somebody may not use? |
//! | [`pins`] | What happens when the definition of a tool changes, and how is the change approved? |
//! | [`shared_pins`] | What of that do gateways share, and what if what they share is away, lost or tampered with? |
//! | [`arguments`] | What do rules and limits make of the arguments that a tool is called with? |
//! | [`rates`] | How many calls per time, counted for whom, and what is a refused client told? |
//! | [`sign_in`] | How do people sign in at the provider for clients that nobody knows, and what are their tokens good for? |
//! | [`tasks`] | Whose is a task, and who reads, lists, cancels or hears of it? |

mod api_keys;
mod arguments;
mod certificate_streams;
mod client_certificates;
mod completion;
mod jwt;
mod oauth;
mod pins;
mod policy;
mod rates;
mod shared_pins;
mod sign_in;
mod tasks;
