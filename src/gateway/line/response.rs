//! The line's answer to a request, whichever HTTP carries it.

use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};

use super::relay::ReplyBody;
use protocol::media::Media;

const JSON: &str = "content-type: application/json\r\n";
/// Nobody on the way is to keep events back.
const EVENTS: &str =
    "content-type: text/event-stream\r\ncache-control: no-cache\r\nx-accel-buffering: no\r\n";

/// The answer to a client's request.
pub(crate) struct ClientResponse {
    pub status: StatusCode,
    /// What the body is, which no other header says.
    pub media: Media,
    /// Most responses have none but those of their media type.
    headers: Option<Box<HeaderMap>>,
    pub body: ReplyBody,
}

impl ClientResponse {
    pub(crate) fn new(status: StatusCode, media: Media, body: ReplyBody) -> Self {
        Self { status, media, headers: None, body }
    }

    /// Without a body.
    pub(crate) fn empty(status: StatusCode) -> Self {
        Self::new(status, Media::Other, ReplyBody::empty())
    }

    /// The headers beside those of the media type.
    pub(crate) fn headers(&self) -> Option<&HeaderMap> {
        self.headers.as_deref()
    }

    pub(crate) fn headers_mut(&mut self) -> &mut HeaderMap {
        self.headers.get_or_insert_default()
    }
}

/// The headers that go with a media type, as lines of HTTP/1.1.
pub(crate) fn header_lines_of(media: Media) -> &'static str {
    match media {
        Media::Json => JSON,
        Media::Sse => EVENTS,
        Media::Other => "",
    }
}

/// As HTTP/2 takes it.
impl From<ClientResponse> for Response<ReplyBody> {
    fn from(response: ClientResponse) -> Self {
        let ClientResponse { status, media, headers, body } = response;
        let mut response = Self::new(body);
        *response.status_mut() = status;
        *response.headers_mut() = headers.map(|headers| *headers).unwrap_or_default();
        for (name, value) in header_lines_of(media).lines().filter_map(|line| line.split_once(": ")) {
            let (name, value) = (HeaderName::from_static(name), HeaderValue::from_static(value));
            response.headers_mut().insert(name, value);
        }
        response
    }
}
