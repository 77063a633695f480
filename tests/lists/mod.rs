//! What clients find and by which name: lists of several upstreams as one, names and URIs, and notices of changes.
//!
//! | File | The question it answers |
//! |---|---|
//! | [`naming`] | Which name does a client use, which upstream gets the call, and under which name? |
//! | [`mapping`] | Which names and URIs in a result are rewritten? |
//! | [`merging`] | How do lists of several upstreams become one, page by page, and what does `server/discover` say? |
//! | [`cache`] | How long is a list kept, who waits while it is fetched, and what can a server do wrong? |
//! | [`malformed`] | Of which entries would clients refuse the whole list, and who gets the others? |
//! | [`watched_lists`] | When is a list of a legacy upstream kept, because a stream tells of its changes? |
//! | [`undeclared`] | Which lists is a server not asked for, as it does not declare them? |
//! | [`list_sessions`] | In which sessions does the gateway ask legacy upstreams for lists, how many, at whose expense? |
//! | [`kept_lists`] | Which lists outlive restarts, of programs and of the gateway, and what can be wrong with them? |
//! | [`starting`] | What do clients see while programs start, and from which of their processes do lists come? |
//! | [`program_changes`] | How often are clients told that lists of programs have changed? |
//! | [`own_lists`] | Which lists are one client's own, and who is shown them? |
//! | [`subscriptions`] | What does `subscriptions/listen` tell to whom, and is anything lost? |
//! | [`subscription_faults`] | Who notices when an upstream refuses what one client wants to listen to? |

mod cache;
mod kept_lists;
mod list_sessions;
mod malformed;
mod mapping;
mod merging;
mod naming;
mod own_lists;
mod program_changes;
mod starting;
mod subscription_faults;
mod subscriptions;
mod undeclared;
mod watched_lists;
