//! The whole way over HTTP: discovery, visit, code, userinfo, refresh.

use std::net::{Ipv4Addr, SocketAddr};

use http_body_util::{BodyExt as _, Full};
use hyper_util::rt::TokioIo;
use serde_json::json;
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::ProviderServer;

/// Sends a request to a URL, on a connection of its own.
async fn ask(method: &str, url: &str, headers: &[(&str, &str)], body: &str) -> Response<Bytes> {
    let rest = url.strip_prefix("http://").unwrap();
    let (host, path) = rest.split_at(rest.find('/').unwrap());
    let socket = TcpStream::connect(host).await.unwrap();
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(socket)).await.unwrap();
    tokio::spawn(connection);
    let mut request = Request::builder().method(method).uri(path);
    if !headers.iter().any(|(name, _)| *name == "host") {
        request = request.header("host", host);
    }
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let request = request.body(Full::new(Bytes::copy_from_slice(body.as_bytes()))).unwrap();
    let (head, body) = sender.send_request(request).await.unwrap().into_parts();
    Response::from_parts(head, body.collect().await.unwrap().to_bytes())
}

fn json_of(response: &Response<Bytes>) -> Value {
    serde_json::from_slice(response.body()).unwrap()
}

#[tokio::test]
async fn a_client_walks_from_the_issuer_to_userinfo_and_refreshes() {
    let server = ProviderServer::bind((Ipv4Addr::LOCALHOST, 0).into(), settings()).await.unwrap();
    let (issuer, stop) = (server.issuer(), CancellationToken::new());
    let serving = tokio::spawn(server.serve(stop.clone()));
    let metadata = json_of(&ask("GET", &format!("{issuer}/.well-known/openid-configuration"), &[], "").await);
    assert_eq!(metadata["issuer"], json!(issuer));

    let page = format!("{}?{}", text(&metadata, "authorization_endpoint"), visit(&[]));
    assert_eq!(ask("GET", &page, &[], "").await.status(), StatusCode::OK);
    let back = ask("POST", &page, &[("origin", &issuer)], "user=alice").await;
    let location = back.headers()["location"].to_str().unwrap();
    let form =
        Form::read(location.strip_prefix(CALLBACK).unwrap().trim_start_matches('?').as_bytes()).unwrap();
    assert_eq!((form.get("iss"), form.get("state")), (Some(&*issuer), Some("a state&more")));

    let (endpoint, basic) = (text(&metadata, "token_endpoint"), basic());
    let headers = [("content-type", "application/x-www-form-urlencoded"), ("authorization", &*basic)];
    let tokens = json_of(&ask("POST", endpoint, &headers, &exchange(form.get("code").unwrap(), &[])).await);
    let keys = json_of(&ask("GET", text(&metadata, "jwks_uri"), &[], "").await);
    assert_eq!(claims(text(&tokens, "id_token"), &keys)["sub"], "alice");
    let tokens = json_of(&ask("POST", endpoint, &headers, &refresh(text(&tokens, "refresh_token"))).await);
    let bearer = format!("Bearer {}", text(&tokens, "access_token"));
    let userinfo = ask("GET", text(&metadata, "userinfo_endpoint"), &[("authorization", &bearer)], "").await;
    assert_eq!(json_of(&userinfo)["groups"], json!(["staff", "ops"]));

    for foreign in [("host", "evil.example"), ("origin", "https://evil.example"), ("origin", "null")] {
        assert_eq!(ask("POST", &page, &[foreign], "user=alice").await.status(), StatusCode::FORBIDDEN);
    }
    stop.cancel();
    serving.await.unwrap();
}

#[tokio::test]
async fn an_address_that_others_reach_is_refused() {
    for address in ["0.0.0.0:0", "[::]:0", "192.0.2.1:0"] {
        let address: SocketAddr = address.parse().unwrap();
        let refused = ProviderServer::bind(address, settings()).await.err().map(|error| error.kind());
        assert_eq!(refused, Some(std::io::ErrorKind::InvalidInput), "{address}");
    }
}
