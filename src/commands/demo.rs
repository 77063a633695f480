//! `trunkline demo`: the gateway over two built-in servers, and what to try.
//!
//! The servers run on a thread of their own and are reached over loopback like any others. Ctrl-C ends both.

use std::net::SocketAddr;

use anyhow::Context as _;
use clap::Args;
use tokio_util::sync::CancellationToken;

use super::{CommandFailure, EXIT_COMMAND_LINE};
use config::ListenAddress;
use demo::{DemoKind, DemoServer};
use gateway::{Gateway, logs};
use protocol::text::shown;
use tools::terminal;

#[derive(Debug, Args)]
#[command(after_help = "\
Exit codes:
  0  stopped by Ctrl-C
  1  it cannot run, for example because an address is in use
  2  the command line is wrong")]
pub(super) struct DemoArgs {
    /// Where the gateway listens; port 0 lets the system choose
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8080")]
    address: SocketAddr,
    /// Where metrics and health are served; port 0 lets the system choose
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:9090")]
    admin: SocketAddr,
}

pub(super) fn demo(options: &DemoArgs) -> Result<(), CommandFailure> {
    if !(options.address.ip().is_loopback() && options.admin.ip().is_loopback()) {
        let error = anyhow::anyhow!("the demo has no authentication: give it loopback addresses");
        return Err(CommandFailure::with(EXIT_COMMAND_LINE)(error));
    }
    Ok(serve(options)?)
}

fn serve(options: &DemoArgs) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (weather, notes) = runtime.block_on(async {
        Ok::<_, std::io::Error>((
            DemoServer::bind(DemoKind::Weather).await?,
            DemoServer::bind(DemoKind::Notes).await?,
        ))
    })?;
    let text = configuration(options, &weather.url(), &notes.url());
    let config = config::parse(&text).map_err(|errors| anyhow::anyhow!(errors.render("demo", &text)))?;
    logs::start(&config.log)?;
    let gateway = Gateway::open(config, None, super::VERSION)?;
    let address = gateway.addresses().next().cloned().context("the demo has no listener")?;

    let admin = gateway.admin_address().context("the demo has no admin listener")?;

    let stop = CancellationToken::new();
    let stopped = stop.clone();
    let servers = std::thread::Builder::new().name("demo".into()).spawn(move || {
        runtime.block_on(async { tokio::join!(weather.serve(stopped.clone()), notes.serve(stopped)) });
    })?;
    terminal::put(what_to_try(&address, &admin));
    let result = gateway.run().map(|_| ());
    logs::finish();
    stop.cancel();
    if servers.join().is_err() {
        tracing::error!("the demo servers ended with a panic; this is a bug");
    }
    result
}

fn configuration(options: &DemoArgs, weather: &str, notes: &str) -> String {
    format!(
        r#"
[listener]
address = "{}"
[admin]
address = "{}"
[log]
level = "warn"
[drain]
quiet = "100ms"
max = "2s"
[[endpoint]]
path = "/mcp"
upstreams = ["weather", "notes"]
[[endpoint]]
path = "/mcp/weather"
upstreams = ["weather"]
[upstream.weather]
url = "{weather}"
[upstream.notes]
url = "{notes}"
"#,
        options.address, options.admin
    )
}

fn what_to_try(address: &ListenAddress, admin: &str) -> String {
    let program = std::env::current_exe()
        .map_or_else(|_| "trunkline".to_owned(), |path| shown(&path.display().to_string()));
    let meta = r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}"#;
    let curl = format!(
        r#"curl -sw '\n' http://{address}/mcp -H 'Content-Type: application/json' -H 'MCP-Protocol-Version: 2026-07-28' -H 'Mcp-Method: tools/call' -H 'Mcp-Name: weather__forecast' -H 'Mcp-Param-City: Oslo' -d '{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"weather__forecast","arguments":{{"city":"Oslo","days":2}},{meta}}}}}'"#
    );
    format!(
        "\
Trunkline runs at http://{address}/mcp, in front of two demo servers: weather and notes.
Press Ctrl-C to stop. Things to try:

1. Open the status page in a browser:
   http://{admin}/

2. In another terminal, list the tools of both servers, in one list:
   {program} tools http://{address}/mcp

3. Call a tool; the second one asks you first:
   {program} call http://{address}/mcp weather__forecast --city Oslo --days 2
   {program} call http://{address}/mcp notes__delete_note --number 1

4. The same call as it travels, without a client:
   {curl}
"
    )
}
