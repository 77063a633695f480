//! Sign-ins as an operator sees and ends them.

use std::process::{Command, Stdio};

use super::place::OPERATOR;
use super::{Place, Settings, Tokens};
use crate::harness::{api_key, call, with_key};

const KEY: &str = "tl_0123456789abcdefghijklmnopqrstuvwxyz";

/// `trunkline grants` with these arguments: its exit code, standard output and standard error.
pub(super) fn grants(place: &Place, arguments: &[&str]) -> (Option<i32>, String, String) {
    let admin = place.daemon.admin().to_string();
    let output = Command::new(env!("CARGO_BIN_EXE_trunkline"))
        .arg("grants")
        .args(arguments)
        .args(["--admin", &admin])
        .env("TRUNKLINE_ADMIN_TOKEN", OPERATOR)
        .stdin(Stdio::null())
        .output()
        .expect("the program starts");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
    (output.status.code(), text(output.stdout), text(output.stderr))
}

#[test]
fn an_operator_sees_who_is_signed_in_and_ends_it() {
    let place = Place::with(Settings { has_operators: true, ..Settings::default() });
    assert_eq!(grants(&place, &["list"]), (Some(0), "nobody is signed in\n".to_owned(), String::new()));
    let (alice, bob): (Tokens, Tokens) = (place.signed_in("alice"), place.signed_in("bob"));
    let (code, told, _) = grants(&place, &["list", "--user", "alice"]);
    assert!(
        code == Some(0) && told.contains("alice") && told.contains("Try") && !told.contains("bob"),
        "{told}"
    );
    for secret in [&alice.access, &alice.refresh, &bob.access] {
        assert!(!told.contains(&**secret));
    }
    assert_eq!(grants(&place, &["list"]).1.lines().count(), 2);
    let (code, told, _) = grants(&place, &["revoke", "--user", "alice", "--client", "another"]);
    assert_eq!((code, &*told), (Some(0), "0 sign-ins have ended\n"), "all that is given has to hold");
    assert_eq!(place.call(&alice.access), 200);
    assert_eq!(grants(&place, &["revoke", "--user", "alice"]).1, "1 sign-in has ended\n");
    assert_eq!((place.call(&alice.access), place.call(&bob.access)), (401, 200));
    assert_eq!(grants(&place, &["revoke", "--all"]).1, "1 sign-in has ended\n");
    assert_eq!(place.call(&bob.access), 401);
    let (code, _, told) = grants(&place, &["revoke"]);
    assert!(code == Some(2) && told.contains("--all"), "{told}");
}

#[test]
fn a_back_up_of_the_store_is_made_while_it_is_in_use_and_can_be_put_back() {
    let settings = Settings { has_operators: true, ..Settings::default() };
    let mut place = Place::with(settings);
    let alice = place.signed_in("alice");
    let (code, told, _) = grants(&place, &["backup", "monday.redb"]);
    let copy = place.state().join("monday.redb");
    let bytes = std::fs::metadata(&copy).expect("a copy").len();
    assert_eq!((code, told), (Some(0), format!("{}: {bytes} bytes\n", copy.display())));
    let bob = place.signed_in("bob");
    for (arguments, code, says) in [
        (&["backup", "monday.redb"][..], 1, "there is a file already"),
        (&["backup", "sign-ins.redb"], 1, "not a name for a back-up"),
        (&["backup", "../monday.redb"], 1, "not a name for a back-up"),
        (&["backup"], 2, "name the file"),
        (&["backup", "tuesday.redb", "--user", "alice"], 2, "has all sign-ins"),
        (&["list", "tuesday.redb"], 2, "for `backup` alone"),
    ] {
        let (ended, _, told) = grants(&place, arguments);
        assert!(ended == Some(code) && told.contains(says), "{arguments:?}: {ended:?} {told}");
    }
    let store = place.state().join("sign-ins.redb");
    place.restart_after(settings, || std::fs::rename(&copy, &store).expect("put back"));
    assert_eq!((place.call(&alice.access), place.call(&bob.access)), (200, 200), "tokens last by themselves");
    let listed = grants(&place, &["list"]).1;
    assert!(listed.contains("alice") && !listed.contains("bob"), "{listed}");
}

#[test]
fn status_tells_how_much_is_kept_and_how_sign_ins_end() {
    let place = Place::with(Settings { sign_in: "store_records_max = 1000", ..Settings::default() });
    place.signed_in("alice");
    place.signed_in("alice");
    let status = place.daemon.get_admin("/status").json();
    let told = &status["sign_in"];
    assert_eq!((&told["place"], &told["opened"]), (&"file".into(), &2.into()), "{told}");
    let store = &told["store"];
    let counts = ["accounts", "grants", "records_max"].map(|member| store[member].as_u64());
    assert_eq!(counts, [Some(1), Some(2), Some(1000)], "{told}");
    assert!(store["file_bytes"].as_u64() > Some(0) && told["store_fault"].is_null(), "{told}");
    let report = Command::new(env!("CARGO_BIN_EXE_trunkline"))
        .args(["status", "--admin", &place.daemon.admin().to_string()])
        .output()
        .expect("the program starts");
    let report = String::from_utf8(report.stdout).expect("text");
    assert!(report.contains("sign-in   1 person, 2 sign-ins; since the start 2 sign-ins opened"), "{report}");
    assert_eq!(place.daemon.metric("trunkline_sign_in_records_max"), 1000);
}

#[test]
fn where_everybody_on_the_machine_is_an_operator_sign_ins_are_not_shown() {
    let place = Place::start();
    let refused = place.daemon.get_admin("/grants");
    assert_eq!(refused.status, 403);
    assert!(refused.text().contains("`token` or a Unix socket"), "{}", refused.text());
}

#[test]
fn a_wrong_key_leads_to_no_browser() {
    let entry = api_key("ci", KEY);
    let settings =
        Settings { endpoint: "auth = [\"sign_in\", \"api_key\"]", sections: &entry, ..Settings::default() };
    let place = Place::with(settings);
    assert_eq!(place.call(KEY), 200);
    let challenge = |key: &str| {
        let refused = place.daemon.send(&with_key(call("1", "echo"), key));
        assert_eq!(refused.status, 401);
        refused.header("www-authenticate").expect("a challenge").to_owned()
    };
    assert!(!challenge("tl_0123456789abcdefghijklmnopqrstuvwxyZ").contains("resource_metadata"));
    assert!(challenge("tla_0123").contains("resource_metadata"), "a sign-in may mend it");
    let missing = place.daemon.send(&call("1", "echo"));
    assert!(missing.header("www-authenticate").expect("a challenge").contains("resource_metadata"));
}
