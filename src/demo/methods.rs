//! The methods of the protocol, answered from the content of one demo server.
//!
//! [`ServerContent`] is what a server has to say; [`McpServer`] gives it the protocol's form: pages, caching hints,
//! `resultType`, the server's name on every result, progress, changes for the subscribers. Nothing here
//! depends on the era or on HTTP.

use std::time::Duration;

use futures_util::future::BoxFuture;
use serde_json::{Map, Value, json};
use tokio::sync::broadcast;
use tokio_util::sync::CancellationToken;

use super::listen::{ResourceSet, Subscription};
use super::request::RpcRequest;
use super::rpc::{self, PROTOCOL_VERSION, RpcFault};
use super::{headers, schema};

const PAGE_ENTRIES_MAX: usize = 50;
/// Changes a slow subscriber may be behind.
const CHANGES_MAX: usize = 64;
/// Before each progress notification and before the result that follows them.
const STEP_PAUSE: Duration = Duration::from_millis(150);
/// Freshness of what never changes while the process lives.
const CONSTANT_TTL_MS: u64 = 300_000;

/// What a server says of itself, and never changes. Lists keep one order.
pub(super) struct Profile {
    /// In `serverInfo`.
    pub(super) name: &'static str,
    pub(super) title: &'static str,
    pub(super) instructions: &'static str,
    pub(super) capabilities: Value,
    pub(super) tools: Vec<Value>,
    pub(super) resource_templates: Vec<Value>,
    pub(super) prompts: Vec<Value>,
    /// How long and by whom `resources/list` and `resources/read` may be cached.
    pub(super) resource_caching: Caching,
}

/// What a server offers.
pub(super) trait ServerContent: Send + Sync {
    fn profile(&self) -> Profile;
    fn resources(&self) -> Vec<Value>;
    /// Runs the tool `name`; it is one of the profile and `arguments` fit its input schema.
    fn call_tool(
        &self,
        name: &str,
        arguments: &Map<String, Value>,
        request: &RpcRequest,
    ) -> Result<ToolOutcome, RpcFault>;
    /// The contents of a resource, or `None` where there is none.
    fn read_resource(&self, uri: &str) -> Option<Value>;
    /// The contents of the messages of the prompt `name`; it is one of the profile and the required arguments are there.
    fn prompt_messages(&self, name: &str, arguments: &Map<String, Value>) -> Vec<Value>;
    /// The values that `argument` of a prompt (its name) or template (its URI template) can take, best first.
    fn completions(&self, reference: &str, argument: &str) -> Vec<String>;
    /// Whether the resource at `uri` can change, now or once it exists.
    fn can_change(&self, uri: &str) -> bool;
}

/// Caching hints of a result.
pub(super) struct Caching {
    pub(super) ttl_ms: u64,
    pub(super) scope: &'static str,
}

/// What a tool call led to.
#[derive(Default)]
pub(super) struct ToolOutcome {
    /// The result, `resultType` left out when it is complete.
    pub(super) result: Value,
    /// What there is to say on the way, for clients that asked for progress.
    pub(super) steps: Vec<String>,
    pub(super) change: Option<ResourceSet>,
}

impl ToolOutcome {
    /// A result for the model: `text`, and the same as data.
    pub(super) fn structured(text: &str, data: &Value) -> Self {
        let result = json!({ "content": [{ "type": "text", "text": text }], "structuredContent": data });
        Self { result, ..Self::default() }
    }

    /// A failure the model can read and do something about.
    pub(super) fn failed(text: impl Into<String>) -> Self {
        let result = json!({ "content": [{ "type": "text", "text": text.into() }], "isError": true });
        Self { result, ..Self::default() }
    }

    /// The same with a link to `resource`.
    pub(super) fn linked(mut self, mut resource: Value) -> Self {
        resource["type"] = json!("resource_link");
        if let Some(content) = self.result["content"].as_array_mut() {
            content.push(resource);
        }
        self
    }
}

/// How a request is answered.
pub(super) enum RpcReply {
    /// There is nothing to say.
    Accepted,
    Result(Value),
    /// The result of `initialize`, and the id of the session.
    Opened {
        session: String,
        result: Value,
    },
    /// `pause` before each notification and before the result.
    Steps {
        pause: Duration,
        notifications: Vec<Value>,
        result: Value,
    },
    /// A question to the client, and what comes of the call once it is answered.
    Question {
        message: Value,
        outcome: BoxFuture<'static, Result<Value, RpcFault>>,
    },
    Subscription(Subscription),
}

pub(super) struct McpServer {
    profile: Profile,
    content: Box<dyn ServerContent>,
    changes: broadcast::Sender<ResourceSet>,
    /// Ends subscriptions.
    stop: CancellationToken,
}

impl McpServer {
    pub(super) fn new(content: Box<dyn ServerContent>, stop: CancellationToken) -> Self {
        Self { profile: content.profile(), content, changes: broadcast::Sender::new(CHANGES_MAX), stop }
    }

    pub(super) fn answer(&self, request: &RpcRequest) -> Result<RpcReply, RpcFault> {
        let constant = Caching { ttl_ms: CONSTANT_TTL_MS, scope: "public" };
        let Profile { tools, prompts, resource_templates, resource_caching, .. } = &self.profile;
        let result = match request.method.as_str() {
            "server/discover" => cached(self.discover(), &constant),
            "tools/list" => cached(page("tools", tools, request)?, &constant),
            "prompts/list" => cached(page("prompts", prompts, request)?, &constant),
            "resources/templates/list" => {
                cached(page("resourceTemplates", resource_templates, request)?, &constant)
            }
            "resources/list" => {
                cached(page("resources", &self.content.resources(), request)?, resource_caching)
            }
            "resources/read" => cached(self.read_resource(request)?, resource_caching),
            "prompts/get" => self.get_prompt(request)?,
            "completion/complete" => self.complete(request)?,
            "tools/call" => return self.call_tool(request),
            "subscriptions/listen" => return self.listen(request),
            method => return Err(RpcFault::unknown_method(method)),
        };
        Ok(RpcReply::Result(self.finished(result)))
    }

    fn discover(&self) -> Value {
        json!({
            "supportedVersions": [PROTOCOL_VERSION],
            "capabilities": self.profile.capabilities,
            "instructions": self.profile.instructions,
        })
    }

    fn call_tool(&self, request: &RpcRequest) -> Result<RpcReply, RpcFault> {
        let name = request.text("name")?;
        let tool = find("tool", &self.profile.tools, name)?;
        let arguments = request.arguments()?;
        if let Some(headers) = &request.headers {
            headers::compare_parameters(headers, &tool["inputSchema"], &arguments)?;
        }
        schema::check(&tool["inputSchema"], &Value::Object(arguments.clone())).map_err(|fault| {
            RpcFault::invalid_params(format!("Invalid arguments for tool {name}: {fault}"))
        })?;
        let progress_token = request.progress_token()?;

        let outcome = self.content.call_tool(name, &arguments, request)?;
        if let Some(change) = outcome.change {
            // An error says that nobody listens.
            let _ = self.changes.send(change);
        }
        let result = self.finished(outcome.result);
        Ok(match progress_token {
            Some(token) if !outcome.steps.is_empty() => {
                RpcReply::Steps { pause: STEP_PAUSE, notifications: progress(token, &outcome.steps), result }
            }
            _ => RpcReply::Result(result),
        })
    }

    fn read_resource(&self, request: &RpcRequest) -> Result<Value, RpcFault> {
        let uri = request.text("uri")?;
        match self.content.read_resource(uri) {
            Some(contents) => Ok(json!({ "contents": [contents] })),
            None => Err(RpcFault {
                data: Some(json!({ "uri": uri })),
                ..RpcFault::invalid_params("Resource not found")
            }),
        }
    }

    fn get_prompt(&self, request: &RpcRequest) -> Result<Value, RpcFault> {
        let name = request.text("name")?;
        let prompt = find("prompt", &self.profile.prompts, name)?;
        let arguments = request.arguments()?;
        let invalid =
            |fault: &str| RpcFault::invalid_params(format!("Invalid arguments for prompt {name}: {fault}"));
        for argument in prompt["arguments"].as_array().into_iter().flatten() {
            let argument_name = argument["name"].as_str().unwrap_or_default();
            if argument["required"] == true && !arguments.contains_key(argument_name) {
                return Err(invalid(&format!("'{argument_name}' is required")));
            }
        }
        if !arguments.values().all(Value::is_string) {
            return Err(invalid("every argument must be a string"));
        }
        let messages = self.content.prompt_messages(name, &arguments).into_iter();
        let messages: Vec<Value> =
            messages.map(|content| json!({ "role": "user", "content": content })).collect();
        Ok(json!({ "description": prompt["description"], "messages": messages }))
    }

    fn complete(&self, request: &RpcRequest) -> Result<Value, RpcFault> {
        let params = Value::Object(request.params.clone());
        let reference = match params["ref"]["type"].as_str() {
            Some("ref/prompt") => params["ref"]["name"].as_str(),
            Some("ref/resource") => params["ref"]["uri"].as_str(),
            _ => None,
        };
        let (argument, start) = (params["argument"]["name"].as_str(), params["argument"]["value"].as_str());
        let (Some(reference), Some(argument), Some(start)) = (reference, argument, start) else {
            return Err(RpcFault::invalid_params(
                "params must have a ref and an argument with name and value",
            ));
        };
        let is_of = |known: &[Value], key: &str| known.iter().any(|one| one[key] == reference);
        if !is_of(&self.profile.prompts, "name") && !is_of(&self.profile.resource_templates, "uriTemplate") {
            return Err(RpcFault::invalid_params(format!("Nothing to complete for {reference}")));
        }
        let mut values = self.content.completions(reference, argument);
        values.retain(|value| value.to_lowercase().starts_with(&start.to_lowercase()));
        let total = values.len();
        values.truncate(100);
        Ok(json!({ "completion": { "values": values, "total": total, "hasMore": total > values.len() } }))
    }

    fn listen(&self, request: &RpcRequest) -> Result<RpcReply, RpcFault> {
        let lists_change = self.profile.capabilities["resources"]["listChanged"] == true;
        let filter =
            ResourceSet::read_filter(&request.params, lists_change, |uri| self.content.can_change(uri))?;
        Ok(RpcReply::Subscription(Subscription {
            id: request.id.clone(),
            filter,
            changes: self.changes.subscribe(),
            result: self.finished(json!({})),
            stop: self.stop.clone(),
        }))
    }

    /// What every result carries.
    fn finished(&self, mut result: Value) -> Value {
        if result.get("resultType").is_none() {
            result["resultType"] = json!("complete");
        }
        result["_meta"]["io.modelcontextprotocol/serverInfo"] = json!({
            "name": self.profile.name,
            "title": self.profile.title,
            "version": env!("CARGO_PKG_VERSION"),
        });
        result
    }
}

fn cached(mut result: Value, caching: &Caching) -> Value {
    result["ttlMs"] = json!(caching.ttl_ms);
    result["cacheScope"] = json!(caching.scope);
    result
}

/// The page of `entries` that the request's cursor asks for. A cursor is the number of entries before the page.
fn page(key: &str, entries: &[Value], request: &RpcRequest) -> Result<Value, RpcFault> {
    let start = match request.params.get("cursor") {
        None => Some(0),
        Some(cursor) => {
            cursor.as_str().and_then(|cursor| cursor.parse().ok()).filter(|start| *start < entries.len())
        }
    };
    let start: usize = start.ok_or_else(|| RpcFault::invalid_params("Invalid cursor"))?;
    let end = entries.len().min(start + PAGE_ENTRIES_MAX);
    let mut result = json!({ key: &entries[start..end] });
    if end < entries.len() {
        result["nextCursor"] = json!(end.to_string());
    }
    Ok(result)
}

fn progress(token: &Value, steps: &[String]) -> Vec<Value> {
    let total = steps.len();
    let notification = |(index, step): (usize, &String)| {
        let params =
            json!({ "progressToken": token, "progress": index + 1, "total": total, "message": step });
        rpc::notification("notifications/progress", &params)
    };
    steps.iter().enumerate().map(notification).collect()
}

fn find<'e>(what: &str, entries: &'e [Value], name: &str) -> Result<&'e Value, RpcFault> {
    let entry = entries.iter().find(|entry| entry["name"] == name);
    entry.ok_or_else(|| RpcFault::invalid_params(format!("Unknown {what}: {name}")))
}
