//! `trunkline demo`: what it says of itself.

use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};

use crate::harness::{Connection, call, post};

/// A demo that ends when it is dropped.
struct Demo(Child);

impl Drop for Demo {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn the_addresses_that_it_names_are_those_it_listens_at() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_trunkline"));
    command.args(["demo", "--address", "127.0.0.1:0", "--admin", "127.0.0.1:0"]);
    let mut demo = Demo(command.stdout(Stdio::piped()).spawn().expect("the demo starts"));
    let lines = BufReader::new(demo.0.stdout.take().expect("stdout is piped")).lines();
    let mut addresses = Vec::new();
    for line in lines.map_while(Result::ok) {
        let address = line.split("http://").nth(1).and_then(|rest| rest.split(['/', ' ']).next());
        addresses.extend(address.and_then(|address| address.parse::<SocketAddr>().ok()));
        if line.trim_start().starts_with("curl ") {
            break;
        }
    }
    let [endpoint, admin, ..] = addresses[..] else { panic!("no addresses: {addresses:?}") };
    let ask = |address, request: crate::harness::Request| {
        let mut connection = Connection::open(address);
        connection.write(&request.bytes());
        connection.response()
    };
    let page = ask(admin, post("").method("GET").target("/").set("Host", admin.to_string()));
    assert_eq!(page.status, 200, "{page:?}");
    let found = ask(endpoint, call("1", "weather__nothing").set("Host", endpoint.to_string()));
    assert_eq!(found.json()["error"]["code"], -32602, "{found:?}");
}
