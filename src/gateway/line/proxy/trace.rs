//! The trace that a message names in its `_meta` alone (SEP-414): heard of once its body was read, which is after its headers
//! have decided whether the call is traced.
//!
//! The message that goes on names the span of the exchange in both places: a server reads one trace, wherever it looks.

use bytes::Bytes;

use super::Proxy;
use super::context::RequestContext;
use crate::context::call::Call;
use crate::context::worker::View;
use crate::line::message::Message;
use protocol::envelope::MessageKind;
use protocol::fields::Fields;
use protocol::trace_meta::{TraceMeta, TraceNames, renamed};
use protocol::version::Eras;

/// A larger `_meta` would hold up its worker: it names no trace.
const META_BYTES_MAX: usize = 64 * 1024;

impl Proxy {
    /// Takes the trace of a message from its `_meta`.
    #[cold]
    #[inline(never)]
    pub(super) fn hear_of_trace(&self, cx: &mut RequestContext<'_>, message: &mut Message) {
        let depth_max = cx.depth_max();
        self.hear_of_trace_of(cx.call, message, cx.fields, depth_max);
    }

    /// The same of a call that is refused, where that was decided before its body was looked at.
    pub(super) fn hear_of_refused(&self, call: &mut Call, body: &Bytes, fields: &Fields, view: &View) {
        if call.watch.trace.has_parent || !call.looks_for_trace() {
            return;
        }
        if let Some(mut message) = self.reader(view, Eras::BOTH).look(body) {
            self.hear_of_trace_of(call, &mut message, fields, view.snapshot.limits.json_depth_max);
        }
    }

    fn hear_of_trace_of(&self, call: &mut Call, message: &mut Message, fields: &Fields, depth_max: usize) {
        let meta = message.envelope.meta.as_ref().map(|meta| &meta.span);
        let Some(meta) = meta.filter(|meta| call.looks_for_trace() && meta.len() <= META_BYTES_MAX) else {
            return;
        };
        let scratch = &mut self.worker.scratch.borrow_mut();
        let Some(said) = TraceMeta::read(scratch, &message.body, meta, depth_max) else { return };
        let Some((parent, state)) = call.hears_of_trace(&said, fields) else { return };
        // Where a header alone names the trace, nothing is written anew; nor in what has no answer, whose way on is no span.
        if said.names_trace() && message.envelope.kind == MessageKind::Request {
            let names = TraceNames { parent: &parent, state };
            let renamed = renamed(scratch, &message.body, &message.envelope, depth_max, names);
            if let Some((body, envelope)) = renamed {
                (message.body, message.envelope) = (body, envelope);
            }
        }
    }
}
