//! The provider of the demo as a program, for tests: it can be told to lie and fail by `POST /faults`.
//!
//! Its one argument is JSON: `client_id`, `client_secret`, `redirect_uris`, and `address`, whose default is a free port. Prints
//! `listening ISSUER` on standard output when it is ready, and ends with its standard input.

#![allow(clippy::print_stdout, reason = "its caller reads the address there")]

use std::error::Error;
use std::io::Read as _;
use std::net::SocketAddr;

use serde_json::Value;
use tokio_util::sync::CancellationToken;
use trunkline_demo::{ProviderServer, ProviderSettings};

fn main() -> Result<(), Box<dyn Error>> {
    let argument = std::env::args().nth(1).ok_or("its settings are missing, as JSON")?;
    let mut settings: Value = serde_json::from_str(&argument)?;
    settings["takes_faults"] = Value::Bool(true);
    let address = settings.as_object_mut().and_then(|settings| settings.shift_remove("address"));
    let address: SocketAddr = address.as_ref().and_then(Value::as_str).unwrap_or("127.0.0.1:0").parse()?;
    let settings: ProviderSettings = serde_json::from_value(settings)?;

    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let server = runtime.block_on(ProviderServer::bind(address, settings))?;
    println!("listening {}", server.issuer());
    let stop = CancellationToken::new();
    let stopped = stop.clone();
    std::thread::spawn(move || {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        stopped.cancel();
    });
    runtime.block_on(server.serve(stop));
    Ok(())
}
