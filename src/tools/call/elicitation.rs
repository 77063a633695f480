//! A question of a server, asked at the terminal: a form field by field, or an address to visit.

use serde_json::{Map, Value, json};

use super::form::{ElicitationForm, FormField};
use super::typed_input::TypedInput;
use crate::terminal::paint::{BAD, FAINT, STRONG, USE, painted};
use crate::terminal::{self, width};
use client::NoAnswer;
use client::tool::words::said;
use protocol::text::{fit, shown, shown_lines, wrapped};

/// How often a field is asked for again.
const ATTEMPTS_MAX: usize = 20;
/// How much of a question is shown, and how long an address may be.
const MESSAGE_COLUMNS_MAX: usize = 8000;
const URL_BYTES_MAX: usize = 4096;
const DECLINE: &str = ":decline";
const CANCEL: &str = ":cancel";

/// Who asks, and who may answer.
pub(super) struct Elicitation<'a> {
    pub(super) server: &'a str,
    pub(super) answers: &'a [(String, String)],
    /// `None`: nobody can type.
    pub(super) input: Option<&'a TypedInput>,
}

/// What the user does instead of answering.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum UserRefusal {
    Decline,
    Cancel,
}

impl UserRefusal {
    fn result(self) -> Value {
        json!({"action": match self { Self::Decline => "decline", Self::Cancel => "cancel" }})
    }
}

impl Elicitation<'_> {
    /// The result of `elicitation/create`.
    pub(super) async fn ask(&self, params: &Value) -> Result<Value, NoAnswer> {
        let message = params.get("message").and_then(Value::as_str).unwrap_or_default();
        match params.get("mode").and_then(Value::as_str).unwrap_or("form") {
            "form" => self.form(message, params).await,
            "url" => self.visit(message, params).await,
            other => Err(NoAnswer::because(format!("this client knows no elicitation of mode {other:?}"))),
        }
    }

    async fn form(&self, message: &str, params: &Value) -> Result<Value, NoAnswer> {
        let form = ElicitationForm::read(params.get("requestedSchema").unwrap_or(&Value::Null));
        let form = form.map_err(NoAnswer::because)?;
        let given = self.given(&form)?;
        let is_complete =
            form.fields.iter().all(|field| !field.is_required() || given.contains_key(&field.name));
        let Some(input) = self.input else {
            // Silence agrees to nothing.
            return if is_complete && !given.is_empty() {
                Ok(accepted(&given))
            } else {
                Err(unanswered(&form))
            };
        };
        input.forget().await;
        self.introduce(message);
        terminal::say(painted(FAINT, format!("  Answer, or type {DECLINE} to say no, {CANCEL} to end it.")));
        if form.fields.is_empty() {
            return Ok(match confirm("  Agree?", input).await {
                Ok(true) => accepted(&Map::new()),
                Ok(false) => UserRefusal::Decline.result(),
                Err(instead) => instead.result(),
            });
        }
        let mut content = given;
        loop {
            for field in &form.fields {
                match ask_field(field, content.get(&field.name), input).await {
                    Ok(Some(value)) => drop(content.insert(field.name.clone(), value)),
                    Ok(None) => drop(content.remove(&field.name)),
                    Err(instead) => return Ok(instead.result()),
                }
            }
            if form.fields.len() == 1 {
                return Ok(accepted(&content));
            }
            // An answer of too many lines does not send itself.
            input.forget().await;
            match review(&content, input).await {
                Ok(true) => return Ok(accepted(&content)),
                Ok(false) => {}
                Err(instead) => return Ok(instead.result()),
            }
        }
    }

    /// The answers that were given before.
    fn given(&self, form: &ElicitationForm) -> Result<Map<String, Value>, NoAnswer> {
        let mut given = Map::new();
        for field in &form.fields {
            let Some((_, text)) = self.answers.iter().find(|(name, _)| *name == field.name) else { continue };
            let value = field.value(text, None);
            let value = value.map_err(|why| NoAnswer::because(format!("--answer {}: {why}", field.name)))?;
            given.extend(value.map(|value| (field.name.clone(), value)));
        }
        Ok(given)
    }

    async fn visit(&self, message: &str, params: &Value) -> Result<Value, NoAnswer> {
        let url = params.get("url").and_then(Value::as_str).unwrap_or_default();
        let parsed = config::server_url(url.split('#').next().unwrap_or_default());
        let parsed = parsed.map_err(|why| NoAnswer::because(format!("its URL cannot be visited: {why}")))?;
        if url.len() > URL_BYTES_MAX {
            return Err(NoAnswer::because("its URL is too long"));
        }
        let Some(input) = self.input else {
            return Err(NoAnswer::because("it wants a page to be visited, and nobody can be asked here"));
        };
        input.forget().await;
        self.introduce(message);
        terminal::say(format_args!(
            "  It wants you to visit a page of {}:",
            painted(STRONG, shown(&parsed.host))
        ));
        terminal::say(format_args!("    {}", painted(USE, shown(url))));
        if !parsed.is_tls {
            terminal::say(format_args!(
                "  {}",
                painted(BAD, "The page is not encrypted: what you type there can be read.")
            ));
        }
        Ok(match confirm("  Will you visit it?", input).await {
            Ok(true) => {
                terminal::say_text("  Open it in your browser, and press Enter when you are done. ");
                match input.line().await {
                    Some(_) => json!({"action": "accept"}),
                    None => UserRefusal::Cancel.result(),
                }
            }
            Ok(false) => UserRefusal::Decline.result(),
            Err(instead) => instead.result(),
        })
    }

    fn introduce(&self, message: &str) {
        let server = if self.server.is_empty() { "The server" } else { self.server };
        terminal::say(format_args!("{} asks:", painted(STRONG, shown(server))));
        for line in wrapped(&shown_lines(&fit(message, MESSAGE_COLUMNS_MAX)), width().saturating_sub(2)) {
            terminal::say(format_args!("  {line}"));
        }
    }
}

/// Why a form is not answered where nobody can type.
fn unanswered(form: &ElicitationForm) -> NoAnswer {
    let is_any_required = form.fields.iter().any(FormField::is_required);
    let needed = form.fields.iter().filter(|field| field.is_required() || !is_any_required);
    let needed: Vec<String> = needed.map(|field| format!("--answer {}=VALUE", field.name)).collect();
    NoAnswer::because(match needed.as_slice() {
        [] => "it wants to be agreed to, and nobody can be asked here: call it at a terminal".to_owned(),
        needed => format!("nobody can be asked here: give {}", needed.join(" ")),
    })
}

/// A value as a person reads it.
fn easy(value: &Value) -> String {
    match value {
        Value::Bool(true) => "yes".to_owned(),
        Value::Bool(false) => "no".to_owned(),
        other => said(other),
    }
}

fn accepted(content: &Map<String, Value>) -> Value {
    json!({"action": "accept", "content": content})
}

async fn ask_field(
    field: &FormField,
    before: Option<&Value>,
    input: &TypedInput,
) -> Result<Option<Value>, UserRefusal> {
    for line in field.introduction() {
        terminal::say(format_args!("  {line}"));
    }
    for _ in 0..ATTEMPTS_MAX {
        let default = before.or(field.default());
        let default = default.map(|value| format!(" [{}]", shown(&easy(value)))).unwrap_or_default();
        terminal::say_text(format_args!("  {}{default}: ", painted(STRONG, shown(field.prompt()))));
        let text = typed(input).await?;
        match field.value(&text, before) {
            Ok(value) => return Ok(value),
            Err(why) => terminal::say(format_args!("  {}", painted(BAD, shown(&why)))),
        }
    }
    Err(UserRefusal::Cancel)
}

/// Whether what was typed shall be sent; false: it shall be typed again.
async fn review(content: &Map<String, Value>, input: &TypedInput) -> Result<bool, UserRefusal> {
    terminal::say("  This will be sent:");
    for (name, value) in content {
        terminal::say(format_args!("    {}: {}", shown(name), shown(&easy(value))));
    }
    loop {
        terminal::say_text(format_args!(
            "  {} ",
            painted(STRONG, "Send it? (yes, edit, decline, cancel) [yes]:")
        ));
        match typed(input).await?.to_ascii_lowercase().as_str() {
            "" | "y" | "yes" => return Ok(true),
            "e" | "edit" => return Ok(false),
            "d" | "n" | "no" | "decline" => return Err(UserRefusal::Decline),
            "c" | "cancel" => return Err(UserRefusal::Cancel),
            _ => {}
        }
    }
}

async fn confirm(question: &str, input: &TypedInput) -> Result<bool, UserRefusal> {
    loop {
        terminal::say_text(format_args!("{} ", painted(STRONG, format!("{question} (yes, no):"))));
        match typed(input).await?.to_ascii_lowercase().as_str() {
            "y" | "yes" => return Ok(true),
            "n" | "no" => return Ok(false),
            _ => {}
        }
    }
}

async fn typed(input: &TypedInput) -> Result<String, UserRefusal> {
    let Some(line) = input.line().await else {
        terminal::say("");
        return Err(UserRefusal::Cancel);
    };
    match line.trim() {
        DECLINE => Err(UserRefusal::Decline),
        CANCEL => Err(UserRefusal::Cancel),
        text => Ok(text.to_owned()),
    }
}
