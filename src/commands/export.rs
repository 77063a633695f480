//! `trunkline export`: the entry by which a client reaches the gateway. It never holds a key.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::builder::PossibleValuesParser;
use clap::{Args, ValueHint};

use protocol::text::shown;
use tools::client_config::{self, DesktopClient, Export, ExportKey, GatewayUrl};
use tools::terminal::{self, paint, put, put_text};

#[derive(Debug, Args)]
#[command(after_help = "\
The entry goes to standard output, what else there is to do to standard error. It holds no key: clients take it from an \
environment variable or ask for it, and for those that do neither `trunkline connect` reads it from a file.

Exit codes:
  0   done
  1   the configuration has no such endpoint, or no address that a client can use
  2   the command line is wrong
  78  the configuration is wrong or cannot be read")]
pub(super) struct ExportArgs {
    /// Whose entry; --list shows them
    #[arg(long, value_name = "CLIENT", required_unless_present = "list", hide_possible_values = true,
          value_parser = PossibleValuesParser::new(DesktopClient::all().iter().map(|client| client.name)))]
    client: Option<String>,
    /// List the clients that are known, and where their entries stand
    #[arg(long, conflicts_with = "client")]
    list: bool,
    /// The URL of the gateway, if not by its configuration
    #[arg(long, value_name = "URL", value_hint = ValueHint::Url, conflicts_with = "endpoint")]
    url: Option<String>,
    /// The configuration file of the gateway
    #[arg(short, long, value_name = "FILE", env = super::CONFIG_VARIABLE, hide_env_values = true, default_value = super::CONFIG_FILE,
          value_hint = ValueHint::FilePath)]
    config: PathBuf,
    /// The endpoint, where the configuration has several
    #[arg(long, value_name = "PATH")]
    endpoint: Option<String>,
    /// What the client is to call the gateway
    #[arg(long, value_name = "NAME", default_value = "trunkline")]
    name: String,
    /// With a key, from this environment variable of the client; without --url, the configuration says whether
    #[arg(long, value_name = "VARIABLE", num_args = 0..=1, require_equals = true,
          default_missing_value = KEY_VARIABLE)]
    key: Option<String>,
    /// Where `trunkline connect` is to read the key. Default: ~/.config/trunkline/key
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    key_file: Option<PathBuf>,
    /// Have the client start `trunkline connect` although it speaks HTTP
    #[arg(long)]
    stdio: bool,
    /// Where the client finds the program. Default: where this one is
    #[arg(long, value_name = "FILE", value_hint = ValueHint::ExecutablePath)]
    program: Option<PathBuf>,
}

const KEY_VARIABLE: &str = "TRUNKLINE_KEY";

pub(super) fn export(options: &ExportArgs) -> anyhow::Result<()> {
    let Some(client) = options.client.as_deref().and_then(DesktopClient::named) else {
        list();
        return Ok(());
    };
    let gateway = match &options.url {
        Some(url) => {
            config::server_url(url).map_err(|why| anyhow::anyhow!("{url:?}: {why}"))?;
            GatewayUrl { url: url.clone(), wants_key: false, note: None }
        }
        None => GatewayUrl::of(&super::load(&options.config)?, options.endpoint.as_deref())?,
    };
    let program = match &options.program {
        Some(program) => program.clone(),
        None => std::env::current_exe().context("where is this program? Say it with --program")?,
    };
    let key_file = match &options.key_file {
        Some(file) => std::path::absolute(file)?,
        None => {
            Path::new(&std::env::var_os("HOME").unwrap_or_else(|| "/".into())).join(".config/trunkline/key")
        }
    };
    let text =
        |path: &Path| path.to_str().map(str::to_owned).context("a path that is not UTF-8 fits into no entry");
    let (program, key_file) = (text(&program)?, text(&key_file)?);
    let variable = options.key.as_deref().or(gateway.wants_key.then_some(KEY_VARIABLE));
    let entry = client_config::export(Export {
        client,
        name: &options.name,
        url: &gateway.url,
        key: variable.map(|variable| ExportKey { variable, file: &key_file }),
        program: &program,
        as_program: options.stdio,
    });
    put_text(entry.text);
    let section = client.section();
    terminal::say(format_args!("{} {}", paint::painted(paint::STRONG, "Into:"), client.file));
    terminal::say(format_args!("If `{section}` is there already, add to it."));
    for note in entry.notes.iter().map(String::as_str).chain(gateway.note) {
        terminal::say(format_args!("{}.", shown(note)));
    }
    Ok(())
}

fn list() {
    for client in DesktopClient::all() {
        let how = if client.is_for_programs_alone() { "program" } else { "http" };
        put(format_args!("{:<15} {:<15} {how:<8} {}", client.name, client.title, client.file));
    }
}
