//! Clients that are known by a document.

use super::browser::{assert_page, sealed_form};
use super::place::{asking, authorize};
use super::{Place, REDIRECT, Settings, get};
use crate::harness::Folder;

const ID: &str = "https://app.example.com/client.json";

/// The key of `[sign_in]` for a document in this folder that says where the keys of its client are.
fn with_keys_at(folder: &Folder, url: &str) -> String {
    let path = folder.path().join("client.json");
    let document = serde_json::json!({
        "client_id": ID, "client_name": "App", "redirect_uris": [REDIRECT],
        "token_endpoint_auth_method": "private_key_jwt", "jwks_uri": url,
    });
    std::fs::write(&path, document.to_string()).expect("a file");
    format!("client_documents = [\"{}\"]\n", path.display())
}

#[test]
fn a_client_whose_keys_are_at_a_host_that_is_barred_is_barred() {
    let folder = Folder::new();
    let document = with_keys_at(&folder, "https://keys.evil.example/keys.json");
    let place = Place::with(Settings { sign_in: &document, ..Settings::default() });
    let ask = || place.daemon.send(&get(&authorize(&asking(ID))));
    sealed_form(&ask());
    let barring = format!("{document}clients_denied = [\"evil.example\"]\n");
    place.reload(Settings { sign_in: &barring, ..Settings::default() });
    assert_page(&ask(), 403, "");
}
