//! Requests of sign-in, as the line brings them there and takes the answer back. They are no calls: nothing of MCP is in them.

use std::sync::Arc;

use bytes::Bytes;
use http::header::{COOKIE, HeaderName, HeaderValue};
use http::{Method as HttpMethod, StatusCode};
use identity::oauth_error::Answer;

use super::{LineAnswer, Proxy};
use crate::access::auth::sign_in::settings::SignIn;
use crate::context::call::Call;
use crate::context::worker::View;
use crate::line::intake::Intake;
use crate::line::relay::{ReplyBody, json_response};
use crate::line::request_header::RequestHeader;
use crate::line::response::ClientResponse;
use crate::sign_in::{
    BODY_BYTES_MAX, SignInDesk, SignInPath, SignInRequest, at_another_host, busy, is_at_host,
};
use config::LimitsConfig;
use protocol::error::{ClientError, Error, GatewayError};
use protocol::fields::FieldName;
use tokio::sync::oneshot;
use zeroize::Zeroizing;

impl Proxy {
    /// Answers a request of sign-in. `None`: it is none, or there is no sign-in.
    pub(super) async fn sign_in(
        &self,
        view: &View,
        request: &RequestHeader,
        intake: &mut Intake,
        call: &Call,
        host: Result<&str, ClientError>,
    ) -> Result<Option<LineAnswer>, Error> {
        let Some(settings) = &view.snapshot.sign_ins.settings else { return Ok(None) };
        let Ok(path) = std::str::from_utf8(request.path()) else { return Ok(None) };
        let Some(kind) = SignInPath::of(path) else { return Ok(None) };
        let (host, id) = (host?, &*call.watch.request_id.to_string());
        if !is_at_host(settings, host) {
            let answer = at_another_host(settings, kind, host, id);
            return Ok(answer.map(|answer| line_answer(kind, answer, &request.method)));
        }
        let Some(share) = settings.memory.admit(call.client_address()) else {
            self.worker.state.metrics.sign_in.refused.with_label_values(&["busy"]).inc();
            return Ok(Some(line_answer(kind, busy(kind, id), &request.method)));
        };
        let Some(desk) = self.desk(settings) else { return Ok(None) };
        let body = if request.method == HttpMethod::POST {
            let limits = &view.snapshot.limits;
            let bytes_max = limits.body_bytes_max.min(BODY_BYTES_MAX);
            let limits = LimitsConfig { body_bytes_max: bytes_max, ..(**limits).clone() };
            intake.collect(&limits, &self.worker.state.buffered, || call.payer()).await?
        } else {
            Bytes::new()
        };
        let fields = &request.fields;
        let text = |name| fields.only(name).and_then(|value| std::str::from_utf8(value).ok());
        let asked = SignInRequest {
            method: request.method.clone(),
            path: path.to_owned(),
            query: request.query().unwrap_or_default().to_owned(),
            origin: text(FieldName::Origin).map(str::to_owned),
            authorization: fields.first(FieldName::Authorization).map(<[u8]>::to_vec),
            content_type: fields.only(FieldName::ContentType).map(<[u8]>::to_vec),
            cookies: fields.named(COOKIE.as_str()).map(<[u8]>::to_vec).collect(),
            body,
            client: call.client_address(),
            id: id.to_owned(),
        };
        // A client that leaves cancels nothing: what was committed is told, and what the provider gave is stored.
        let (sender, answered) = oneshot::channel();
        let tasks = desk.fetcher.tasks.clone();
        tasks.spawn(async move {
            let _share = share;
            let _ = sender.send(desk.answer(kind, &asked).await);
        });
        let answer = answered.await.map_err(|_| GatewayError::SignIns)?;
        Ok(Some(line_answer(kind, answer, &request.method)))
    }

    /// The things that sign-in needs of this thread. `None`: there is no store.
    pub(super) fn desk(&self, settings: &Arc<SignIn>) -> Option<SignInDesk> {
        let state = &self.worker.state;
        let grants = state.grants.load_full()?;
        let fetcher = self.worker.client.fetcher.clone();
        Some(SignInDesk {
            settings: Arc::clone(settings),
            grants,
            series: state.metrics.sign_in.clone(),
            fetcher,
        })
    }
}

fn line_answer(kind: SignInPath, answer: Answer, method: &HttpMethod) -> LineAnswer {
    let response = response(answer, method);
    if kind.is_page() { LineAnswer::Page(response) } else { LineAnswer::Response(response) }
}

/// Codes and tokens in it are gone from memory once they were sent.
fn response(answer: Answer, method: &HttpMethod) -> ClientResponse {
    let status = StatusCode::from_u16(answer.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let body_bytes = answer.body.len();
    let mut response = if body_bytes == 0 {
        ClientResponse::empty(status)
    } else {
        let mut response = json_response(status, Bytes::from_owner(Zeroizing::new(answer.body)));
        // The headers of the answer say it.
        response.media = protocol::media::Media::Other;
        response
    };
    let headers = response.headers_mut();
    for (name, value) in answer.headers {
        let name = HeaderName::from_static(name);
        // A body is as long as it is.
        let is_length = name == http::header::CONTENT_LENGTH && body_bytes > 0;
        let value = HeaderValue::from_maybe_shared(Bytes::from_owner(Zeroizing::new(value)));
        if let (false, Ok(value)) = (is_length, value) {
            headers.append(name, value);
        }
    }
    if *method == HttpMethod::HEAD {
        headers.insert(http::header::CONTENT_LENGTH, HeaderValue::from(body_bytes));
        response.body = ReplyBody::empty();
    }
    response
}
