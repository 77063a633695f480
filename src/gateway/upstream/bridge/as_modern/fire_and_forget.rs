//! Messages to a legacy server that nobody waits for: cancellations, and answers to requests that reach no client.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;

use super::response_reader::{SessionName, with_asker};
use crate::upstream::Upstream;
use crate::upstream::ask::{AskRequest, Asker};
use crate::upstream::exchange::Client;
use protocol::envelope::{Envelope, MessageKind};
use protocol::translation::question::unasked_answer;

/// On their way at once; of more, the last wait.
pub(crate) const TELLING_MAX: usize = 64;
/// So many may wait: all that a listener's clients had under way, should they leave at once. Of more, the last are not
/// sent.
const WAITING_MAX: usize = 8192;
const TELL_TIMEOUT: Duration = Duration::from_secs(10);
/// What is read of what the server says to it.
const REMARK_BYTES_MAX: usize = 64 * 1024;

/// Sends a message of its own accord.
pub(crate) fn tell(
    client: &Client,
    upstream: &Arc<Upstream>,
    session: &SessionName,
    message: impl Into<Bytes>,
) {
    let turns = &upstream.bridge.as_modern.telling;
    // The bridge itself holds one.
    if Arc::strong_count(turns) > WAITING_MAX {
        return;
    }
    let (turns, message) = (Arc::clone(turns), message.into());
    let (teller, upstream, session) = (client.clone(), Arc::clone(upstream), session.clone());
    client.pipes.run(async move {
        let Ok(_turn) = turns.acquire().await else { return };
        let question = question(&session, message, REMARK_BYTES_MAX, TELL_TIMEOUT);
        let told = with_asker(&teller, async |asker: Asker<'_>| asker.ask(&upstream, question).await).await;
        if let Err(error) = told {
            tracing::debug!(upstream = upstream.config.name, %error, "cannot tell the server");
        }
    });
}

/// Says that nobody waits for the answer to the request with this id, a literal.
pub(crate) fn cancel(client: &Client, upstream: &Arc<Upstream>, session: &SessionName, id: &str) {
    tell(
        client,
        upstream,
        session,
        format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{id},"reason":"the client has left"}}}}"#
        ),
    );
}

/// Answers what a server asks where there is nobody to be asked; other messages are let be.
pub(crate) fn refuse(client: &Client, upstream: &Arc<Upstream>, session: &SessionName, message: &Bytes) {
    let depth_max = client.pipes.shared.limits().json_depth_max;
    let envelope = Envelope::parse(&mut client.pipes.scratch.borrow_mut(), message, depth_max);
    let Ok(Envelope { kind: MessageKind::Request, id: Some(id), method: Some(method), .. }) = envelope else {
        return;
    };
    let id = message.get(id).unwrap_or_default();
    tell(client, upstream, session, unasked_answer(id, method.equals(message, "ping")));
}

/// A message of the gateway's own within a session.
pub(crate) fn question(
    session: &SessionName,
    body: Bytes,
    bytes_max: usize,
    patience: Duration,
) -> AskRequest {
    AskRequest {
        headers: session.headers(),
        body,
        is_safe_to_repeat: false,
        replica: session.replica,
        bytes_max,
        deadline: Instant::now() + patience,
    }
}
