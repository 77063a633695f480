//! What an entry says, by all the names that clients have for the same thing.

use serde_json::{Map, Value};

use super::assigned;
use super::toml_text::quoted;

/// What is taken of one list or table of an entry.
const ITEMS_MAX: usize = 1000;
const NEEDS_SHELL: &str =
    "Its command is a line for a shell: put that into a script, and the script's path into `command`";
/// How much is said of one entry.
const REMARKS_MAX: usize = 50;

/// A server, as a client is told of it.
#[derive(Debug, Default)]
pub(super) struct Entry {
    /// Where it is, if it is elsewhere.
    pub(super) url: Option<String>,
    /// Whether it speaks HTTP+SSE.
    pub(super) is_sse: bool,
    /// The program and its arguments, if it is one.
    pub(super) words: Vec<String>,
    pub(super) env: Vec<(String, String)>,
    /// Variables that it inherits.
    pub(super) env_pass: Vec<String>,
    pub(super) headers: Vec<(String, String)>,
    pub(super) directory: Option<String>,
    pub(super) is_disabled: bool,
    pub(super) timeout_ms: Option<u64>,
    /// Tools that the client is not to use.
    pub(super) tools_off: Vec<String>,
    /// The only tools that the client is to use, if it says so.
    pub(super) tools_on: Vec<String>,
    /// What is not carried over, and why.
    pub(super) remarks: Vec<String>,
    /// How many more of these there are.
    pub(super) remarks_left_out: usize,
    /// What a person has to do instead.
    pub(super) gaps: Vec<String>,
}

impl Entry {
    /// Reads the members of an entry.
    pub(super) fn read(members: &Map<String, Value>) -> Self {
        let mut entry = Self::default();
        let (mut program, mut args) = (Vec::new(), Vec::new());
        for (key, value) in members {
            match key.as_str() {
                "type" | "transport" | "transportType" => entry.transport(value),
                // Where there are several, that of the newer transport counts.
                "url" | "serverUrl" | "baseUrl" | "uri" | "endpoint" => {
                    entry.url = entry.url.take().or_else(|| text(value));
                }
                "httpUrl" => entry.url = text(value),
                "command" | "cmd" => program = entry.command(value),
                "args" | "arguments" => args = entry.texts(key, value),
                "env" | "environment" | "envs" => entry.env.extend(pairs(value)),
                "env_vars" => entry.env_pass = entry.texts(key, &names(value)),
                "headers" | "http_headers" | "requestInit" | "requestOptions" => {
                    entry.headers.extend(pairs(value.get("headers").unwrap_or(value)));
                }
                "env_http_headers" => {
                    let named =
                        pairs(value).into_iter().map(|(header, name)| (header, format!("${{env:{name}}}")));
                    entry.headers.extend(named);
                }
                "bearer_token_env_var" | "bearerTokenEnvVar" => {
                    entry.bearer(&format!("${{env:{}}}", text(value).unwrap_or_default()));
                }
                "bearer_token" | "bearerToken" | "authorization_token" | "authorizationToken" => {
                    entry.bearer(&text(value).unwrap_or_default());
                }
                "authorization" | "Authorization" if value.is_string() => {
                    entry.authorize(&text(value).unwrap_or_default());
                }
                "cwd" | "directory" | "workingDirectory" => entry.directory = text(value),
                "disabled" => entry.is_disabled |= value.as_bool() == Some(true),
                "enabled" | "isActive" => entry.is_disabled |= value.as_bool() == Some(false),
                "timeout" => entry.timeout_ms = timeout_ms(value),
                "tool_timeout_sec" | "timeoutSeconds" => {
                    entry.timeout_ms = value.as_f64().and_then(|seconds| milliseconds(seconds * 1000.0));
                }
                "excludeTools" | "disabledTools" | "disabled_tools" => {
                    entry.tools_off = entry.texts(key, value);
                }
                "includeTools" | "enabledTools" | "enabled_tools" | "tools" => entry.tools_on(key, value),
                other => entry.remark(other, value),
            }
        }
        if program.first().is_some_and(|program| !program.is_empty()) {
            entry.words = program;
            entry.words.append(&mut args);
            entry.split_line();
            assigned::take(&mut entry.words, &mut entry.env);
        }
        entry.bound();
        entry
    }

    /// Some clients take a program and its arguments as one line. Where it needs no shell to read it, it becomes words.
    fn split_line(&mut self) {
        let [line] = self.words.as_slice() else { return };
        if assigned::is_assignment(line) {
            match assigned::words(line) {
                Some(words) => self.words = words.into_iter().take(ITEMS_MAX).collect(),
                None => self.gaps.push(NEEDS_SHELL.to_owned()),
            }
            return;
        }
        let is_path = line.starts_with('/') || line.contains(['"', '\'', '\\']);
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        if is_path || words.len() < 2 {
            return;
        }
        if words.len() > ITEMS_MAX {
            self.remarks
                .push(format!("Its command has {} words: the first {ITEMS_MAX} are taken", words.len()));
        }
        self.words = words.into_iter().take(ITEMS_MAX).collect();
    }

    /// Leaves out what is too much, and says so.
    fn bound(&mut self) {
        for (list, what) in [(&mut self.env, "environment variables"), (&mut self.headers, "headers")] {
            if list.len() > ITEMS_MAX {
                self.remarks.push(format!("It has {} {what}: the first {ITEMS_MAX} are taken", list.len()));
                list.truncate(ITEMS_MAX);
            }
        }
        if self.remarks_left_out > 0 {
            self.remarks.push(format!("{} more members are not carried over", self.remarks_left_out));
        }
    }

    /// Without a scheme it is the token of the usual one.
    fn authorize(&mut self, value: &str) {
        if value.trim().contains(' ') {
            self.headers.push(("Authorization".to_owned(), value.to_owned()));
        } else {
            self.bearer(value);
        }
    }

    fn bearer(&mut self, token: &str) {
        self.headers.push(("Authorization".to_owned(), format!("Bearer {token}")));
    }

    fn transport(&mut self, value: &Value) {
        match value {
            Value::String(transport) => self.is_sse |= transport.eq_ignore_ascii_case("sse"),
            // Some write the transport with all that belongs to it.
            Value::Object(members) => {
                let inner = Self::read(members);
                self.is_sse |= inner.is_sse;
                self.url = self.url.take().or(inner.url);
                self.headers.extend(inner.headers);
            }
            _ => {}
        }
    }

    /// A program, a program with its arguments, or (Zed, before) a table of these.
    fn command(&mut self, value: &Value) -> Vec<String> {
        match value {
            Value::Object(members) => {
                let program = members.get("path").or_else(|| members.get("command")).and_then(text);
                let args = members.get("args").map(|args| self.texts("args", args)).unwrap_or_default();
                self.env.extend(members.get("env").map(pairs).unwrap_or_default());
                program.into_iter().chain(args).collect()
            }
            Value::Array(_) => self.texts("command", value),
            _ => text(value).filter(|program| !program.is_empty()).into_iter().collect(),
        }
    }

    fn texts(&mut self, key: &str, value: &Value) -> Vec<String> {
        let Some(values) = value.as_array() else { return text(value).into_iter().collect() };
        if values.len() > ITEMS_MAX {
            self.remarks.push(format!(
                "{} has {} elements: the first {ITEMS_MAX} are taken",
                quoted(key),
                values.len()
            ));
        }
        values.iter().take(ITEMS_MAX).filter_map(text).collect()
    }

    fn tools_on(&mut self, key: &str, value: &Value) {
        let tools = self.texts(key, value);
        if !tools.iter().any(|tool| tool == "*") {
            self.tools_on = tools;
        }
    }

    fn remark(&mut self, key: &str, value: &Value) {
        let is_empty = match value {
            Value::Null | Value::Bool(false) => true,
            Value::Array(elements) => elements.is_empty(),
            Value::Object(members) => members.is_empty(),
            Value::String(text) => text.is_empty(),
            _ => false,
        };
        let why = match key {
            // What is for people, or already in the name.
            "name" | "description" | "title" | "$schema" | "gallery" | "version" | "source" | "icon"
            | "id" => return,
            _ if is_empty => return,
            "autoApprove" | "alwaysAllow" | "trust" | "autoApproved" | "default_tools_approval_mode" => {
                "whether a person is asked before a call is the client's own matter: it stays with the client"
            }
            "envFile" | "env_file" => {
                self.gaps.push(format!(
                    "Put the variables of its {} into `env`, secrets with `{{ file = \"…\" }}`",
                    quoted(key)
                ));
                return;
            }
            "oauth" | "auth" | "authProviderType" | "scopes" | "oauth_resource" => {
                "a sign-in of a user in a browser is not for a gateway: give it credentials of its own, with `bearer` or \
                 `oauth`"
            }
            "startup_timeout_sec" | "startup_timeout_ms" | "initTimeout" => {
                "the gateway gives a start `list_timeout` and `response_timeout`"
            }
            "dev" | "sandbox" | "sandboxEnabled" => "a matter of the client",
            _ => "not known here",
        };
        if self.remarks.len() < REMARKS_MAX {
            self.remarks.push(format!("{} is not carried over: {why}", quoted(key)));
        } else {
            self.remarks_left_out += 1;
        }
    }
}

/// Variables by their names, where some say more of them: `{ name = "A", source = "remote" }`.
fn names(variables: &Value) -> Value {
    let name = |variable: &Value| variable.get("name").unwrap_or(variable).clone();
    variables.as_array().map_or(Value::Null, |variables| variables.iter().map(name).collect())
}

/// A text, or a number or truth value as one.
fn text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(truth) => Some(truth.to_string()),
        _ => None,
    }
}

/// The members of an object that are texts; or `["Name: value", …]`, as some write headers.
fn pairs(value: &Value) -> Vec<(String, String)> {
    match value {
        Value::Object(members) => {
            members.iter().filter_map(|(name, value)| Some((name.clone(), text(value)?))).collect()
        }
        Value::Array(lines) => lines
            .iter()
            .filter_map(|line| line.as_str()?.split_once([':', '=']))
            .map(|(name, value)| (name.trim().to_owned(), value.trim().to_owned()))
            .collect(),
        _ => Vec::new(),
    }
}

/// Clients count `timeout` in seconds or in milliseconds; nobody waits a thousand seconds, or less than a second.
fn timeout_ms(value: &Value) -> Option<u64> {
    let number = value.as_f64().or_else(|| value.get("request")?.as_f64())?;
    milliseconds(if number < 1000.0 { number * 1000.0 } else { number })
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is in range")]
fn milliseconds(number: f64) -> Option<u64> {
    let most = 24.0 * 60.0 * 60.0 * 1000.0;
    (number >= 1.0).then(|| number.min(most) as u64)
}
