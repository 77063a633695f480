//! `trunkline demo`: the gateway over two built-in servers, and what to try.
//!
//! The servers run on a thread of their own and are reached over loopback like any others. Ctrl-C ends both. With `--sign-in`
//! there is a provider as well (`sign_in.rs`), and a folder (`folder.rs`) for what sign-in keeps. A signal at any
//! moment ends all of it in order (`early_signals.rs`).

mod early_signals;
mod folder;
mod sign_in;

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

use self::early_signals::EarlySignals;
use self::sign_in::SignInDemo;

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
    /// Have people sign in, at a built-in provider with two users
    #[arg(long)]
    sign_in: bool,
}

pub(super) fn demo(options: &DemoArgs) -> Result<(), CommandFailure> {
    if !(options.address.ip().is_loopback() && options.admin.ip().is_loopback()) {
        let error = anyhow::anyhow!("the demo has no authentication: give it loopback addresses");
        return Err(CommandFailure::with(EXIT_COMMAND_LINE)(error));
    }
    if options.sign_in && !sign_in::is_usual(options.address) {
        let error = anyhow::anyhow!(
            "browsers keep cookies of sign-in at 127.0.0.1 or ::1 alone: give --address one of them"
        );
        return Err(CommandFailure::with(EXIT_COMMAND_LINE)(error));
    }
    Ok(serve(options)?)
}

/// The two servers, before anybody is answered.
struct Servers {
    weather: DemoServer,
    notes: DemoServer,
}

fn serve(options: &DemoArgs) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let signals = runtime.block_on(async { EarlySignals::catch() })?;
    let servers = runtime.block_on(async {
        Ok::<_, std::io::Error>(Servers {
            weather: DemoServer::bind(DemoKind::Weather).await?,
            notes: DemoServer::bind(DemoKind::Notes).await?,
        })
    })?;
    let sign_in =
        if options.sign_in { Some(runtime.block_on(SignInDemo::start(options.address))?) } else { None };
    let text = configuration(options, &servers, sign_in.as_ref());
    let config = config::parse(&text).map_err(|errors| anyhow::anyhow!(errors.render("demo", &text)))?;
    logs::start(&config.log)?;
    let gateway = Gateway::open(config, None, super::VERSION)?;
    let address = gateway.addresses().next().cloned().context("the demo has no listener")?;
    let admin = gateway.admin_address().context("the demo has no admin listener")?;
    let what_to_try = match &sign_in {
        Some(sign_in) => sign_in.what_to_try(&program(), &admin, &servers),
        None => what_to_try(&program(), &address, &admin),
    };

    let stop = CancellationToken::new();
    let stopped = stop.clone();
    // The folder goes when the gateway has ended.
    let (provider, _folder) = sign_in.map(|sign_in| (sign_in.provider, sign_in.folder)).unzip();
    let serving = std::thread::Builder::new().name("demo".into()).spawn(move || {
        let Servers { weather, notes } = servers;
        let of_provider = stopped.clone();
        let provider = async {
            if let Some(provider) = provider {
                provider.serve(of_provider).await;
            }
        };
        let end = stopped.clone();
        let told = async {
            tokio::select! {
                () = end.cancelled() => {}
                handed_over = signals.hand_over(&admin) => match handed_over {
                    Ok(()) => terminal::put(what_to_try),
                    Err(error) => tracing::error!(%error, "the demo does not answer"),
                },
            }
        };
        let servers = async { tokio::join!(weather.serve(stopped.clone()), notes.serve(stopped)) };
        runtime.block_on(async { tokio::join!(servers, provider, told) });
    })?;
    let result = gateway.run().map(|_| ());
    logs::finish();
    stop.cancel();
    if serving.join().is_err() {
        tracing::error!("the demo servers ended with a panic; this is a bug");
    }
    result
}

/// The way to this program, for commands to paste.
fn program() -> String {
    std::env::current_exe().map_or_else(|_| "trunkline".to_owned(), |path| shown(&path.display().to_string()))
}

fn configuration(options: &DemoArgs, servers: &Servers, sign_in: Option<&SignInDemo>) -> String {
    let address = sign_in.map_or(options.address, |sign_in| sign_in.address);
    let endpoints = sign_in.map_or_else(|| OPEN_ENDPOINTS.to_owned(), SignInDemo::sections);
    let state = sign_in.map(SignInDemo::state).unwrap_or_default();
    let token = sign_in.map(SignInDemo::operators_token).unwrap_or_default();
    format!(
        r#"
{state}
[listener]
address = "{address}"
[admin]
address = "{}"
{token}
[log]
level = "warn"
[drain]
quiet = "100ms"
max = "2s"
[upstream.weather]
url = "{}"
[upstream.notes]
url = "{}"
{endpoints}
"#,
        options.admin,
        servers.weather.url(),
        servers.notes.url(),
    )
}

/// Everybody may call.
const OPEN_ENDPOINTS: &str = r#"
[[endpoint]]
path = "/mcp"
upstreams = ["weather", "notes"]
[[endpoint]]
path = "/mcp/weather"
upstreams = ["weather"]
"#;

fn what_to_try(program: &str, address: &ListenAddress, admin: &str) -> String {
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
