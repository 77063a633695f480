//! A connection between a caller and a scripted other side.

use super::state::FIRST_ID;
use super::*;
use crate::access::limit::shares::Shares;
use protocol::json::Scratch;

fn connection() -> (MuxConnection, WriteHalf, ReadHalf) {
    let budget = Shares::of_bytes(1024 * 1024);
    MuxConnection::new(MuxBounds {
        waiting_bytes_max: 4096,
        json_depth_max: 16,
        budget,
        payer: Payer::GATEWAY,
    })
}

fn message(text: &str) -> (Bytes, Envelope) {
    let message = Bytes::copy_from_slice(text.as_bytes());
    let envelope = Envelope::parse(&mut Scratch::default(), &message, 16).expect("a message");
    (message, envelope)
}

/// A request in the one session.
fn asking<'a>(message: &'a Bytes, envelope: &'a Envelope, era: Era) -> MuxRequest<'a> {
    MuxRequest {
        payer: Payer::GATEWAY,
        session: ONLY_SESSION,
        message,
        envelope,
        trace: &[None; 3],
        is_own: false,
        era,
        deadline: None,
        place: None,
        owner: None,
    }
}

async fn call(
    connection: &MuxConnection,
    session: u64,
    text: &str,
    era: Era,
) -> (queue::PieceReceiver, MuxCall) {
    let (message, envelope) = message(text);
    let far = clock::now() + Duration::from_mins(1);
    let request = MuxRequest { session, deadline: Some(far), ..asking(&message, &envelope, era) };
    connection.call(request).await.expect("sent")
}

fn request(id: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"_meta":{{"progressToken":{id}}}}}}}"#
    )
}

fn text(message: &Segments) -> String {
    String::from_utf8(message.to_bytes().to_vec()).expect("text")
}

fn receive(read_half: &mut ReadHalf, message: &str) -> Disposition {
    read_half.receive(&Bytes::copy_from_slice(message.as_bytes()))
}

async fn next(receiver: &mut queue::PieceReceiver) -> (String, bool) {
    let piece = receiver.next().await.expect("a piece").expect("unbroken");
    (String::from_utf8(piece.data.to_vec()).expect("text"), piece.is_answer)
}

/// The id of a request by its number, from 1.
fn own(number: u64) -> u64 {
    FIRST_ID - 1 + number
}

fn answer(number: u64) -> String {
    let id = own(number);
    format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#)
}

fn progress(number: u64) -> String {
    let token = own(number);
    format!(
        r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":{token},"progress":1}}}}"#
    )
}

#[tokio::test]
async fn before_a_session_is_open_every_question_is_answered() {
    let (connection, mut write_half, mut read_half) = connection();
    connection.begin_session(false);
    let (initialize, envelope) = message(r#"{"jsonrpc":"2.0","id":1,"method":"initialize"}"#);
    let request = MuxRequest { is_own: true, ..asking(&initialize, &envelope, Era::Legacy) };
    let (mut answered, _call) = connection.call(request).await.expect("sent");
    write_half.next().await.expect("sent");
    for (method, expected) in [
        ("roots/list", "-32601"),
        ("sampling/createMessage", "-32601"),
        ("elicitation/create", "-32601"),
        ("ping", "{}"),
    ] {
        let question = format!(r#"{{"jsonrpc":"2.0","id":"q","method":"{method}"}}"#);
        assert_eq!(receive(&mut read_half, &question), Disposition::Delivered);
        let told = text(&write_half.next().await.expect("answered"));
        assert!(told.contains(r#""id":"q""#) && told.contains(expected), "{method}: {told}");
    }
    assert_eq!(receive(&mut read_half, &answer(1)), Disposition::Delivered);
    next(&mut answered).await;
    // From now on its client answers.
    let mut listening = connection.listen(ONLY_SESSION).expect("a stream");
    let question = r#"{"jsonrpc":"2.0","id":"q","method":"roots/list"}"#;
    assert_eq!(receive(&mut read_half, question), Disposition::Delivered);
    assert!(next(&mut listening).await.0.contains("roots/list"));
}

#[tokio::test]
async fn ids_and_tokens_of_callers_never_meet() {
    let (connection, mut write_half, mut read_half) = connection();
    let (mut one, _one) = call(&connection, 0, &request("\"a\""), Era::Legacy).await;
    let (mut two, _two) = call(&connection, 0, &request("\"a\""), Era::Legacy).await;
    assert!(text(&write_half.next().await.expect("sent")).contains(&format!("\"id\":{},", own(1))));
    let sent = text(&write_half.next().await.expect("sent"));
    let expected = [format!("\"id\":{},", own(2)), format!("\"progressToken\":{}", own(2))];
    assert!(expected.iter().all(|expected| sent.contains(expected)), "{sent}");

    assert_eq!(receive(&mut read_half, &progress(2)), Disposition::Delivered);
    assert_eq!(receive(&mut read_half, &answer(1)), Disposition::Delivered);
    assert_eq!(receive(&mut read_half, &answer(2)), Disposition::Delivered);
    assert_eq!(receive(&mut read_half, &answer(2)), Disposition::Unasked, "a second answer");
    assert_eq!(receive(&mut read_half, &progress(2)), Disposition::Unasked, "after the answer");
    assert_eq!(receive(&mut read_half, &answer(77)), Disposition::Unasked);
    assert_eq!(receive(&mut read_half, "listening…"), Disposition::Garbage);

    // Answered at once, a reply is plain JSON; a part makes it a stream.
    assert_eq!(next(&mut one).await, (r#"{"jsonrpc":"2.0","id":"a","result":{}}"#.into(), true));
    let (part, is_answer) = next(&mut two).await;
    assert!(part.starts_with('{') && part.contains(r#""progressToken":"a""#) && !is_answer, "{part}");
    let (last, is_answer) = next(&mut two).await;
    assert_eq!((&*last, is_answer), ("{\"jsonrpc\":\"2.0\",\"id\":\"a\",\"result\":{}}", true));
    assert!(two.next().await.is_none());
    assert!(connection.lock().pending.is_idle() && connection.has_answered());
}

#[tokio::test]
async fn an_answer_to_nothing_is_none() {
    let (connection, mut write_half, mut read_half) = connection();
    receive(&mut read_half, r#"{"jsonrpc":"2.0","id":7,"id":7}"#);
    assert!(!connection.fail(8, UpstreamError::Nonsense) && !connection.has_answered());
    let (_one, _call) = call(&connection, 0, &request("1"), Era::Legacy).await;
    write_half.next().await.expect("sent");
    receive(&mut read_half, &answer(7));
    assert!(!connection.has_answered(), "it answers no call");
    assert!(connection.fail(own(1), UpstreamError::Nonsense) && connection.has_answered());
}

#[tokio::test]
async fn what_belongs_to_no_call_finds_a_reader() {
    const ROOTS: &str = r#"{"jsonrpc":"2.0","id":5,"method":"roots/list"}"#;
    const CHANGED: &str = r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#;
    let (connection, _write_half, mut read_half) = connection();
    connection.begin_session(false);
    // Nobody calls and nobody listens: it waits.
    assert_eq!(receive(&mut read_half, ROOTS), Disposition::Delivered);
    let mut stream = connection.listen(ONLY_SESSION).expect("a session");
    assert!(next(&mut stream).await.0.contains("roots/list"));
    // One call takes requests, and the stream the rest.
    let (mut one, _one) = call(&connection, 0, &request("1"), Era::Legacy).await;
    receive(&mut read_half, CHANGED);
    receive(&mut read_half, ROOTS);
    assert!(next(&mut one).await.0.contains("roots/list"));
    assert!(next(&mut stream).await.0.contains("list_changed"));
    // Of several calls none is the right one while there is a stream.
    let (mut two, _two) = call(&connection, 0, &request("2"), Era::Legacy).await;
    receive(&mut read_half, ROOTS);
    assert!(next(&mut stream).await.0.contains("roots/list"));
    drop(stream);
    receive(&mut read_half, ROOTS);
    assert!(next(&mut two).await.0.contains("roots/list"), "the newest call");
    assert!(connection.listen(1).is_none(), "there is no such session");
}

#[tokio::test]
async fn what_belongs_to_one_of_several_callers_reaches_none() {
    const LOG: &str =
        r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":1}}"#;
    let (connection, _write_half, mut read_half) = connection();
    let (mut one, _one) = call(&connection, 0, &request("1"), Era::Modern).await;
    assert_eq!(receive(&mut read_half, LOG), Disposition::Delivered);
    let (mut two, _two) = call(&connection, 0, &request("2"), Era::Modern).await;
    assert_eq!(receive(&mut read_half, LOG), Disposition::Unasked);
    receive(&mut read_half, &answer(1));
    receive(&mut read_half, &answer(2));
    assert!(next(&mut one).await.0.contains("notifications/message"));
    assert!(next(&mut one).await.1 && next(&mut two).await.1);
}

#[tokio::test]
async fn what_the_gateway_asks_for_itself_takes_nobodys_messages() {
    let (connection, _write_half, mut read_half) = connection();
    connection.begin_session(false);
    let (message, envelope) = message(&request("1"));
    let own = MuxRequest { is_own: true, ..asking(&message, &envelope, Era::Legacy) };
    let (mut own, _own) = connection.call(own).await.expect("sent");
    receive(&mut read_half, r#"{"jsonrpc":"2.0","id":5,"method":"roots/list"}"#);
    receive(&mut read_half, &answer(1));
    assert!(next(&mut own).await.1, "nothing but its answer");
    let mut stream = connection.listen(ONLY_SESSION).expect("a session");
    assert!(next(&mut stream).await.0.contains("roots/list"));
}

#[tokio::test]
async fn a_reader_that_leaves_cancels_a_modern_call_only() {
    let (connection, mut write_half, mut read_half) = connection();
    let (_, legacy) = call(&connection, 0, &request("1"), Era::Legacy).await;
    let (_, modern) = call(&connection, 0, &request("2"), Era::Modern).await;
    assert_eq!(connection.own_id(0, b"1"), Some(own(1)));
    drop(legacy);
    assert_eq!(connection.own_id(0, b"1"), Some(own(1)), "it runs on");
    drop(modern);
    assert!(connection.lock().pending.is_idle());
    for expected in ["tools/call", "tools/call", &format!("\"requestId\":{}", own(2))] {
        let sent = text(&write_half.next().await.expect("sent"));
        assert!(sent.contains(expected), "{sent}");
    }
    assert!(write_half.next_ready().is_none());
    assert_eq!(
        receive(&mut read_half, &answer(1)),
        Disposition::Delivered,
        "its answer is expected, and dropped"
    );
    assert_eq!(receive(&mut read_half, &answer(2)), Disposition::Unasked);
}

#[tokio::test]
async fn a_legacy_call_is_cancelled_when_it_is_too_late() {
    let (connection, mut write_half, _read_half) = connection();
    let (message, envelope) = message(&request("1"));
    let request = MuxRequest { deadline: Some(clock::now()), ..asking(&message, &envelope, Era::Legacy) };
    drop(connection.call(request).await.expect("sent"));
    write_half.next().await.expect("the request");
    assert!(text(&write_half.next().await.expect("sent")).contains("notifications/cancelled"));
    assert_eq!(connection.own_id(0, b"1"), None);
}

#[tokio::test]
async fn who_does_not_read_harms_nobody_else() {
    for era in Era::ALL {
        let (connection, _write_half, mut read_half) = connection();
        let (mut slow, _slow) = call(&connection, 0, &request("1"), era).await;
        let (mut quick, _quick) = call(&connection, 0, &request("2"), era).await;
        for _ in 0..100 {
            receive(&mut read_half, &progress(1));
        }
        receive(&mut read_half, &answer(2));
        assert!(next(&mut quick).await.1);
        let mut pieces = 0;
        let end = loop {
            match slow.next().await {
                Some(Ok(_)) => pieces += 1,
                end => break end,
            }
        };
        assert!(matches!(end, Some(Err(_))), "it is told that something is missing");
        assert!(pieces > 3 && pieces < 100, "{pieces}");
    }
}

#[tokio::test]
async fn nobody_waits_for_what_is_gone() {
    let (connection, write_half, read_half) = connection();
    connection.begin_session(false);
    let mut stream = connection.listen(ONLY_SESSION).expect("a session");
    let (mut waiting, _waiting) = call(&connection, 0, &request("1"), Era::Modern).await;
    assert!(!connection.is_over());
    drop(read_half);
    assert!(matches!(waiting.next().await, Some(Err(_))));
    assert!(matches!(stream.next().await, Some(Err(_))));
    assert!(connection.is_over() && connection.listen(ONLY_SESSION).is_none());
    connection.0.gone.cancelled().await;
    drop(write_half);
    assert_eq!(connection.tell(Segments::from(Bytes::new())).await, Err(UpstreamError::Unreachable));
}

#[tokio::test]
async fn what_reads_no_more_answers_and_takes_no_call() {
    let (connection, write_half, mut read_half) = connection();
    let (mut waiting, _waiting) = call(&connection, 0, &request("1"), Era::Modern).await;
    drop(write_half);
    assert!(connection.is_over());
    assert_eq!(connection.tell(Segments::from(Bytes::new())).await, Err(UpstreamError::Unreachable));
    assert_eq!(receive(&mut read_half, &answer(1)), Disposition::Delivered);
    assert!(next(&mut waiting).await.1);
}

#[tokio::test]
async fn what_is_about_to_end_takes_no_call() {
    let (connection, _write_half, mut read_half) = connection();
    let (_one, _in_flight) = call(&connection, 0, &request("1"), Era::Modern).await;
    assert!(
        !connection.close_if_unused_for(Duration::ZERO, GatewayUse::Counts)
            && !connection.close_if_uncalled()
    );
    receive(&mut read_half, &answer(1));
    assert!(connection.close_if_unused_for(Duration::ZERO, GatewayUse::Counts) && connection.is_over());
    let (message, envelope) = message(&request("2"));
    let late = asking(&message, &envelope, Era::Modern);
    assert_eq!(connection.call(late).await.err(), Some(UpstreamError::Unreachable), "it was not sent");
}

#[tokio::test]
async fn a_subscription_is_a_call() {
    let (connection, _write_half, mut read_half) = connection();
    let listen = r#"{"jsonrpc":"2.0","id":"s","method":"subscriptions/listen","params":{}}"#;
    let (mut stream, _open) = call(&connection, 0, listen, Era::Modern).await;
    let id = own(1);
    let notice = format!(
        r#"{{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{{"_meta":{{"io.modelcontextprotocol/subscriptionId":{id}}}}}}}"#
    );
    assert_eq!(receive(&mut read_half, &notice), Disposition::Delivered);
    assert!(next(&mut stream).await.0.contains(r#"subscriptionId":"s""#));
    let end =
        format!(r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{id}}}}}"#);
    assert_eq!(receive(&mut read_half, &end), Disposition::Delivered);
    assert!(stream.next().await.is_none(), "a graceful end");
}

#[tokio::test]
async fn a_request_that_reaches_no_client_is_answered_at_once() {
    const PING: &str = r#"{"jsonrpc":"2.0","id":"p","method":"ping"}"#;
    const ROOTS: &str = r#"{"jsonrpc":"2.0","id":5,"method":"roots/list"}"#;
    const PONG: &str = r#"{"jsonrpc":"2.0","id":"p","result":{}}"#;
    let (connection, mut write_half, mut read_half) = connection();
    receive(&mut read_half, PING);
    assert_eq!(text(&write_half.next().await.expect("an answer")), PONG, "there is no session yet");
    receive(&mut read_half, ROOTS);
    assert!(text(&write_half.next().await.expect("an answer")).contains(r#""id":5,"error""#));
    connection.begin_session(false);
    let (message, envelope) = message(r#"{"jsonrpc":"2.0","id":1,"method":"initialize"}"#);
    let initialize = MuxRequest { is_own: true, ..asking(&message, &envelope, Era::Legacy) };
    let (mut opening, _opening) = connection.call(initialize).await.expect("sent");
    write_half.next().await.expect("initialize");
    receive(&mut read_half, PING);
    assert_eq!(text(&write_half.next().await.expect("an answer")), PONG, "it is not initialized yet");
    receive(&mut read_half, &answer(1));
    assert!(next(&mut opening).await.1);
    receive(&mut read_half, PING);
    assert_eq!(text(&write_half.next().await.expect("an answer")), PONG, "no client hears it");
    // A client that hears it answers it.
    let mut stream = connection.listen(ONLY_SESSION).expect("a session");
    receive(&mut read_half, PING);
    assert!(next(&mut stream).await.0.contains("ping") && write_half.next_ready().is_none());
}

/// So many bytes for the call of this token.
fn long(number: u64) -> String {
    let token = own(number);
    let filler = "x".repeat(3000);
    format!(
        r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":{token},"message":"{filler}"}}}}"#
    )
}

fn offer(read_half: &mut ReadHalf, message: &str) -> Option<Disposition> {
    read_half.offer(&Bytes::copy_from_slice(message.as_bytes()))
}

#[tokio::test]
async fn a_reader_that_is_alone_is_waited_for() {
    let (connection, _write_half, mut read_half) = connection();
    let (mut alone, _in_flight) = call(&connection, ONLY_SESSION, &request("1"), Era::Modern).await;
    for message in [long(1), answer(1)] {
        // Room for one, and for half of another.
        while offer(&mut read_half, &long(1)).is_some() {}
        assert_eq!(connection.stalls() % 2, 1);
        let settling = tokio::time::timeout(Duration::from_millis(20), read_half.settle());
        assert!(settling.await.is_err(), "nothing was read");
        next(&mut alone).await;
        assert_eq!(read_half.settle().await, Disposition::Delivered);
        assert_eq!(connection.stalls() % 2, 0);
        if offer(&mut read_half, &message).is_none() {
            next(&mut alone).await;
            assert_eq!(read_half.settle().await, Disposition::Delivered);
        }
    }
    while !next(&mut alone).await.1 {}
}

#[tokio::test]
async fn a_reader_that_is_not_alone_loses_its_call_and_learns_why() {
    let (connection, _write_half, mut read_half) = connection();
    let (mut slow, _in_flight) = call(&connection, ONLY_SESSION, &request("1"), Era::Modern).await;
    while offer(&mut read_half, &long(1)).is_some() {}
    let (mut other, _other) = call(&connection, ONLY_SESSION, &request("2"), Era::Modern).await;
    read_half.settle().await;
    assert_eq!(offer(&mut read_half, &answer(2)), Some(Disposition::Delivered));
    assert!(next(&mut other).await.1);
    next(&mut slow).await;
    assert!(matches!(slow.next().await, Some(Err(_))));
    assert_eq!(slow.fault(), UpstreamError::SlowClient);
}

#[tokio::test]
async fn a_reader_that_goes_or_cancels_is_not_waited_for() {
    for cancels in [false, true] {
        let (connection, _write_half, mut read_half) = connection();
        let (slow, in_flight) = call(&connection, ONLY_SESSION, &request("1"), Era::Legacy).await;
        while offer(&mut read_half, &long(1)).is_some() {}
        if cancels {
            connection.cancel(in_flight.own);
        } else {
            drop(slow);
        }
        assert_eq!(read_half.settle().await, Disposition::Unasked);
    }
}
