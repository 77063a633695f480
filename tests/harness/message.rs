//! Requests as a modern client writes them, each part of which a test can spoil.

/// The protocol version under test.
pub(crate) const VERSION: &str = "2026-07-28";

/// A complete `_meta` of that version.
pub(crate) const META: &str = r#"{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"blackbox","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}"#;

/// An HTTP/1.1 request: headers as they will be written, in order, and a body.
#[derive(Clone)]
pub(crate) struct Request {
    pub(crate) method: String,
    pub(crate) target: String,
    pub(crate) headers: Vec<(String, Vec<u8>)>,
    pub(crate) body: Vec<u8>,
}

impl Request {
    /// Appends a header, beside one of the same name that may be there.
    pub(crate) fn with(mut self, name: &str, value: impl AsRef<[u8]>) -> Self {
        self.headers.push((name.into(), value.as_ref().to_vec()));
        self
    }

    /// Replaces a header.
    pub(crate) fn set(self, name: &str, value: impl AsRef<[u8]>) -> Self {
        self.without(name).with(name, value)
    }

    /// Removes a header.
    pub(crate) fn without(mut self, name: &str) -> Self {
        self.headers.retain(|(present, _)| !present.eq_ignore_ascii_case(name));
        self
    }

    /// Replaces the body.
    pub(crate) fn body(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.body = body.into();
        self
    }

    /// Replaces one text in the body, which must be there.
    pub(crate) fn replacing(mut self, from: &str, to: &str) -> Self {
        let body = String::from_utf8(self.body).expect("the body is text");
        assert!(body.contains(from), "{from} is not in {body}");
        self.body = body.replacen(from, to, 1).into_bytes();
        self
    }

    /// Replaces the HTTP method.
    pub(crate) fn method(mut self, method: &str) -> Self {
        self.method = method.into();
        self
    }

    /// Replaces the target.
    pub(crate) fn target(mut self, target: &str) -> Self {
        self.target = target.into();
        self
    }

    /// The head, with `Content-Length` unless the test wrote its own framing.
    pub(crate) fn head(&self) -> Vec<u8> {
        let mut head = format!("{} {} HTTP/1.1\r\n", self.method, self.target).into_bytes();
        let mut framed = false;
        for (name, value) in &self.headers {
            framed |=
                name.eq_ignore_ascii_case("content-length") || name.eq_ignore_ascii_case("transfer-encoding");
            head.extend_from_slice(&[name.as_bytes(), b": ", value, b"\r\n"].concat());
        }
        if !framed {
            head.extend_from_slice(format!("Content-Length: {}\r\n", self.body.len()).as_bytes());
        }
        head.extend_from_slice(b"\r\n");
        head
    }

    /// The whole request as it goes on the wire.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        [self.head(), self.body.clone()].concat()
    }

    /// The whole request with its body in chunks of this many bytes.
    pub(crate) fn bytes_chunked(&self, size: usize) -> Vec<u8> {
        let mut bytes = self.clone().without("content-length").set("Transfer-Encoding", "chunked").head();
        for chunk in self.body.chunks(size) {
            bytes.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
            bytes.extend_from_slice(&[chunk, b"\r\n"].concat());
        }
        bytes.extend_from_slice(b"0\r\n\r\n");
        bytes
    }
}

/// A JSON-RPC request: `id` and `params` are JSON as it stands.
pub(crate) fn body(id: &str, method: &str, params: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{params}}}"#)
}

/// A POST to `/mcp` with what every modern request needs, for the given method and (where it has one) name.
pub(crate) fn modern(method: &str, name: Option<&str>, body: impl Into<Vec<u8>>) -> Request {
    let request = post(body).with("MCP-Protocol-Version", VERSION).with("Mcp-Method", method);
    match name {
        Some(name) => request.with("Mcp-Name", name),
        None => request,
    }
}

/// A POST to `/mcp` without any header of MCP.
pub(crate) fn post(body: impl Into<Vec<u8>>) -> Request {
    let request =
        Request { method: "POST".into(), target: "/mcp".into(), headers: Vec::new(), body: body.into() };
    request
        .with("Host", "localhost")
        .with("Content-Type", "application/json")
        .with("Accept", "application/json, text/event-stream")
}

/// A `tools/call` of this tool without arguments. The id is JSON as it stands.
pub(crate) fn call(id: &str, tool: &str) -> Request {
    let params = format!(r#"{{"name":"{tool}","arguments":{{}},"_meta":{META}}}"#);
    modern("tools/call", Some(tool), body(id, "tools/call", &params))
}

/// A call of the tool `echo` by a client with these capabilities.
pub(crate) fn call_as(id: &str, capabilities: &str) -> Request {
    let declared = format!(r#""io.modelcontextprotocol/clientCapabilities":{capabilities}"#);
    call(id, "echo").replacing(r#""io.modelcontextprotocol/clientCapabilities":{}"#, &declared)
}

/// A `prompts/get` of this prompt.
pub(crate) fn get_prompt(id: &str, name: &str) -> Request {
    let params = format!(r#"{{"name":"{name}","_meta":{META}}}"#);
    modern("prompts/get", Some(name), body(id, "prompts/get", &params))
}

/// A `subscriptions/listen` with this filter; both are JSON as it stands.
pub(crate) fn listen(id: &str, filter: &str) -> Request {
    let params = format!(r#"{{"notifications":{filter},"_meta":{META}}}"#);
    modern("subscriptions/listen", None, body(id, "subscriptions/listen", &params))
}

/// The same request of somebody who has this API key or token.
pub(crate) fn with_key(request: Request, key: &str) -> Request {
    request.set("Authorization", format!("Bearer {key}"))
}

/// A request of a method that has no name, such as the lists and `server/discover`.
pub(crate) fn list(id: &str, method: &str) -> Request {
    modern(method, None, body(id, method, &format!(r#"{{"_meta":{META}}}"#)))
}

/// A `resources/read` of this URI.
pub(crate) fn read_resource(id: &str, uri: &str) -> Request {
    let params = format!(r#"{{"uri":"{uri}","_meta":{META}}}"#);
    modern("resources/read", Some(uri), body(id, "resources/read", &params))
}
