//! `trunkline grants list`, `revoke` and `backup`: the sign-ins of people, by the admin listener, since the gateway alone opens
//! their store.

use std::process::ExitCode;
use std::time::SystemTime;

use clap::Args;
use http::StatusCode;
use serde_json::json;
use status::{EndedGrants, GrantStatus, GrantsBackUp, GrantsPage, parse};

use super::admin::AdminArgs;
use super::status::unreachable;
use super::{CommandFailure, EXIT_COMMAND_LINE, EXIT_FAILED};
use protocol::text::{shown, shown_lines};
use tools::admin_client::client::AdminClient;
use tools::terminal::{self, put};

/// `trunkline grants`.
#[derive(Debug, Args)]
#[command(after_help = "\
Exit codes:
  0   done
  1   the gateway refuses: there is no [sign_in], the store cannot be reached, or the file of the back-up is there already
  2   the command line is wrong, or the token cannot be read
  3   the gateway cannot be reached, or does not answer
  78  the configuration cannot be read, or does not say where the gateway is

Environment:
  TRUNKLINE_ADMIN_TOKEN  the token of [admin], if there is no --token-file")]
pub(super) struct GrantsArgs {
    /// List who is signed in, or end sign-ins; all that is given has to hold. Or copy the store of this moment to a new file
    #[arg(value_parser = ["list", "revoke", "backup"])]
    action: String,
    /// The file of a back-up, such as monday.redb, which the gateway writes in its state directory
    file: Option<String>,
    #[command(flatten)]
    chosen: ChosenGrants,
    /// End all of them
    #[arg(long, conflicts_with_all = ["id", "user", "client", "endpoint"])]
    all: bool,
    /// Print the list as JSON, one a line
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    place: AdminArgs,
}

#[derive(Debug, Args)]
struct ChosenGrants {
    /// One of them, by its id
    #[arg(long)]
    id: Option<String>,
    /// Those of a user: the subject at the provider, or the principal's id
    #[arg(long)]
    user: Option<String>,
    /// Those of a client: its id or its name
    #[arg(long)]
    client: Option<String>,
    /// Those at an endpoint, by its public URL
    #[arg(long, value_name = "URL")]
    endpoint: Option<String>,
}

impl ChosenGrants {
    fn is_empty(&self) -> bool {
        [&self.id, &self.user, &self.client, &self.endpoint].iter().all(|condition| condition.is_none())
    }

    fn holds(&self, grant: &GrantStatus) -> bool {
        let is = |wanted: &Option<String>, names: &[&String]| {
            wanted.as_ref().is_none_or(|wanted| names.contains(&wanted))
        };
        is(&self.id, &[&grant.id])
            && is(&self.user, &[&grant.user, &grant.principal])
            && is(&self.client, &[&grant.client_id, &grant.client_name])
            && is(&self.endpoint, &[&grant.endpoint])
    }
}

/// Does what is wanted.
pub(super) fn grants(options: &GrantsArgs) -> Result<ExitCode, CommandFailure> {
    let GrantsArgs { action, file, chosen, all, json, place } = options;
    let wrong = |what: &str| Err(CommandFailure::with(EXIT_COMMAND_LINE)(anyhow::anyhow!("{what}")));
    match (&**action, file) {
        ("backup", Some(file)) if !all && chosen.is_empty() => return back_up(place, file),
        ("backup", Some(_)) => return wrong("a back-up has all sign-ins: none can be chosen"),
        ("backup", None) => return wrong("name the file of the back-up, such as monday.redb"),
        (_, Some(_)) => return wrong("a file is for `backup` alone"),
        ("list", None) => return list(place, chosen, *json),
        (_, None) if !all && chosen.is_empty() => {
            return wrong("say which sign-ins end: --id, --user, --client, --endpoint, or --all");
        }
        (_, None) => {}
    }
    let ChosenGrants { id, user, client, endpoint } = chosen;
    let wanted = json!({ "id": id, "user": user, "client": client, "endpoint": endpoint, "all": all });
    revoke(place, &wanted.to_string())
}

fn list(place: &AdminArgs, chosen: &ChosenGrants, is_json: bool) -> Result<ExitCode, CommandFailure> {
    let mut after = String::new();
    let mut count = 0;
    loop {
        let target = if after.is_empty() { "/grants".to_owned() } else { format!("/grants?after={after}") };
        let (status, body) = ask(place, &target, None)?;
        if status != StatusCode::OK {
            return Ok(refused(&body));
        }
        let page = parse::<GrantsPage>(&body).unwrap_or_default();
        for grant in page.grants.iter().filter(|grant| chosen.holds(grant)) {
            count += 1;
            put(if is_json { serde_json::to_string(grant).unwrap_or_default() } else { line(grant) });
        }
        match page.next {
            Some(next) => after = next,
            None => break,
        }
    }
    if count == 0 && !is_json {
        put("nobody is signed in");
    }
    Ok(ExitCode::SUCCESS)
}

fn line(grant: &GrantStatus) -> String {
    let client = if grant.client_name.is_empty() { &grant.client_id } else { &grant.client_name };
    let scopes = if grant.scopes.is_empty() { "no scopes".to_owned() } else { grant.scopes.join(" ") };
    format!(
        "{}  {} ({})  {}  {}  {}  used {}",
        grant.id,
        shown(&grant.user),
        shown(&grant.name),
        shown(client),
        shown(&grant.endpoint),
        shown(&scopes),
        ago(grant.used_s)
    )
}

fn revoke(place: &AdminArgs, wanted: &str) -> Result<ExitCode, CommandFailure> {
    let (status, body) = ask(place, "/grants/revoke", Some(wanted))?;
    if status != StatusCode::OK {
        return Ok(refused(&body));
    }
    let ended = parse::<EndedGrants>(&body).unwrap_or_default().ended;
    put(match ended {
        1 => "1 sign-in has ended".to_owned(),
        ended => format!("{ended} sign-ins have ended"),
    });
    Ok(ExitCode::SUCCESS)
}

fn back_up(place: &AdminArgs, file: &str) -> Result<ExitCode, CommandFailure> {
    let (status, body) = ask(place, "/grants/backup", Some(&json!({ "file": file }).to_string()))?;
    if status != StatusCode::OK {
        return Ok(refused(&body));
    }
    let GrantsBackUp { file, bytes } = parse::<GrantsBackUp>(&body).unwrap_or_default();
    put(format!("{}: {bytes} bytes", shown(&file)));
    Ok(ExitCode::SUCCESS)
}

fn refused(body: &[u8]) -> ExitCode {
    terminal::say(shown_lines(String::from_utf8_lossy(body).trim_end()));
    ExitCode::from(EXIT_FAILED)
}

fn ask(
    place: &AdminArgs,
    target: &str,
    body: Option<&str>,
) -> Result<(StatusCode, bytes::Bytes), CommandFailure> {
    let admin: AdminClient = place.client().map_err(CommandFailure::with(EXIT_COMMAND_LINE))?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build_local(tokio::runtime::LocalOptions::default())?;
    let answer = runtime.block_on(async {
        match body {
            Some(body) => admin.post(target, body.to_owned()).await,
            None => admin.ask(target).await,
        }
    });
    answer.map_err(|fault| unreachable(&admin, &fault))
}

/// The time since then, for people.
fn ago(at_s: u64) -> String {
    let now_s = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let since_s = now_s.saturating_sub(at_s);
    match since_s {
        0..120 => format!("{since_s} s ago"),
        120..7200 => format!("{} min ago", since_s / 60),
        7200..172_800 => format!("{} h ago", since_s / 3600),
        _ => format!("{} days ago", since_s / 86_400),
    }
}
