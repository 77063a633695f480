//! A response to a client that does not read.

use std::cell::Cell;
use std::rc::Rc;
use std::task::Waker;

use tokio::net::{TcpListener, TcpSocket};
use tokio::runtime::{Builder, LocalOptions};

use super::*;
use crate::access::limit::shares::Shares;
use crate::line::relay::{EventsKind, events_response};

const PIECE: Bytes = Bytes::from_static(&[b'x'; 1500]);

/// As much as a piece at a time gives an unfinished write of each length.
const PIECES_MAX: usize = 10_000;

/// A body that has nothing more to say is asked once for each time that its task is woken: one that is asked more often may
/// take that for a sign.
#[test]
fn a_body_that_waits_for_a_client_that_does_not_read_is_not_asked_twice() {
    let runtime = Builder::new_current_thread().enable_all().build_local(LocalOptions::default());
    runtime.expect("a runtime").block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a listener");
        let deaf = TcpSocket::new_v4().expect("a socket");
        deaf.set_recv_buffer_size(4096).expect("a small buffer");
        let connected = deaf.connect(listener.local_addr().expect("an address"));
        let (accepted, _deaf) = tokio::join!(listener.accept(), connected);
        let mut stream = MaybeTls::Clear(accepted.expect("a client").0);

        let (asked, ready) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
        let (count, pieces) = (Rc::clone(&asked), Rc::clone(&ready));
        let response = events_response(EventsKind::Answer, move |_| {
            count.set(count.get() + 1);
            match pieces.get() {
                0 => Poll::Pending,
                more => {
                    pieces.set(more - 1);
                    Poll::Ready(Some(PIECE))
                }
            }
        });
        let form = ResponseForm { is_head: false, is_old: false, is_persistent: true };
        let buffers = Buffers::default();
        let mut writer = ResponseWriter::new(response, form, true, &buffers);
        let memory = Shares::of_bytes(1 << 20);
        let mut cx = Context::from_waker(Waker::noop());
        let mut poll = || {
            let polled = writer.poll(&mut cx, &mut stream, &buffers, |_| memory.open(Payer::OTHERS));
            assert!(polled.is_pending());
            (writer.is_blocked, writer.out.len() - writer.out_written)
        };
        let mut blocked = Vec::new();
        for _ in 0..PIECES_MAX {
            ready.set(1);
            poll();
            // Nothing came since.
            asked.set(0);
            let (is_blocked, waiting_bytes) = poll();
            assert!(asked.get() <= 1, "asked {} times with {waiting_bytes} bytes waiting", asked.get());
            blocked.extend(is_blocked.then_some(waiting_bytes));
            if waiting_bytes >= HELD_BYTES_MAX {
                break;
            }
        }
        assert!(blocked.first().is_some_and(|bytes| *bytes < COPIED_BYTES_MAX), "{blocked:?}");
        assert!(
            blocked.last().is_some_and(|bytes| *bytes >= HELD_BYTES_MAX),
            "it was read ahead: {blocked:?}"
        );
    });
}
