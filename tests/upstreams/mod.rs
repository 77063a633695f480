//! The servers behind the gateway: how they are reached and found out, and what happens when they fail.
//!
//! | File | The question it answers |
//! |---|---|
//! | [`era_detection`] | Which eras does an upstream speak, and how long is that remembered? |
//! | [`remembered_era`] | What becomes of a program that is silent in the era in which it is known? |
//! | [`unknown_era`] | What is asked of an upstream as long as it is not known what it speaks? |
//! | [`list_faults`] | How long is it told that a list cannot be had? |
//! | [`ends`] | Which rows of problems do programs make that end, and where is their log? |
//! | [`faults`] | What does a client see of a single faulty reply? |
//! | [`breaker`] | What happens to calls while an upstream fails or hangs for long? |
//! | [`addresses`] | What does each request say of where it goes, and what is told of a wrong address? |
//! | [`openings`] | How is a session with an upstream opened, and what is told where that fails? |
//! | [`http1`] | Which bytes are a reply, and which are none? |
//! | [`idle`] | How many connections are kept that nobody uses, and for how long? |
//! | [`retries`] | What is sent again after a pooled connection died, and what must not be? |
//! | [`replicas`] | Which address of an upstream gets a call, and what if one fails? |
//! | [`concurrency`] | How many calls has an upstream at once, and whose turn is next? |
//! | [`credentials`] | What does the gateway show to an upstream: headers, passwords, tokens, secrets? |
//! | [`tls`] | Which upstream is believed over TLS, and what is seen of each fault? |
//! | [`http_sse`] | How is an upstream reached that speaks HTTP+SSE (2024-11-05)? (Clients that do: `sessions/http_sse.rs`.) |
//! | [`states`] | What are operators told of an upstream that is not up? |
//! | [`reached`] | Is an upstream that answers anything ever said not to be reached, and a name that nobody has to be unknown yet? |
//! | [`told_secrets`] | Does anything tell of the secrets that an upstream is given, and repeats? |
//! | [`stdio`] | How do upstreams work that are child processes: calls, isolation, faults, end? |
//! | [`starting`] | How often is a program started that takes its time, who waits for it, and in which turn? |
//! | [`hundreds`] | What becomes of hundreds of programs that are started at once, and of who else calls? |
//! | [`taken_away`] | What becomes of those who wait for a program that a reload, or the end of the gateway, takes away? |
//! | [`lazy`] | When is a program started that is to start with its first call, and what is shown of it before? |
//! | [`unruly_programs`] | Who is harmed by a program that ends, refuses, or answers unasked, and what is told of it? |
//! | [`session_era`] | Which revision does a session speak with a program that knows several, and over which process? |
//! | [`child_room`] | Which child process makes room for whom, where as many run as may? |
//! | [`last_lines`] | Which lines of a process are told as its last, where several run? |
//! | [`shared_process`] | How far are principals kept apart whose modern calls share a process? |
//! | [`floods`] | Who waits, and who loses what, where a child process writes faster than its client reads? |
//! | [`process_end`] | Does anything outlive the gateway, or the command, that started a child process? |

mod addresses;
mod breaker;
mod child_room;
mod concurrency;
mod credentials;
mod ends;
mod era_detection;
mod faults;
mod floods;
mod http1;
pub(crate) mod http_sse;
mod hundreds;
mod idle;
mod last_lines;
mod lazy;
mod list_faults;
mod openings;
mod process_end;
mod reached;
mod remembered_era;
mod replicas;
mod retries;
mod session_era;
mod shared_process;
mod starting;
mod states;
mod stdio;
mod taken_away;
mod tls;
mod told_secrets;
mod unknown_era;
mod unruly_programs;
