//! The API of the admin listener as `OpenAPI` 3.1: its routes are said here, its objects are described by their declarations.

use serde_json::{Map, Value, json};
use status::{EndedGrants, GrantsBackUp, GrantsPage, History, Object as _, Status, ToolsPage};

pub(super) fn openapi() -> String {
    let mut schemas = Map::new();
    let [status, history, tools] =
        [Status::schema(&mut schemas), History::schema(&mut schemas), ToolsPage::schema(&mut schemas)];
    let mut paths = paths(&status, &history, &tools);
    paths["/grants"] = grants_read(&GrantsPage::schema(&mut schemas));
    paths["/grants/revoke"] = grants_revoke(&EndedGrants::schema(&mut schemas));
    paths["/grants/backup"] = grants_back_up(&GrantsBackUp::schema(&mut schemas));
    let document = json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Trunkline, admin listener",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "For operators, never for clients. Without `token` in [admin] no request needs credentials; then \
                the listener is at a loopback address or a Unix socket. Members may be added to objects; those that are \
                there keep their names and meanings.",
            "license": { "name": "Apache-2.0", "identifier": "Apache-2.0" },
        },
        "servers": [{ "url": "http://127.0.0.1:9090" }],
        "security": [{ "token": [] }, {}],
        "paths": paths,
        "components": {
            "securitySchemes": { "token": { "type": "http", "scheme": "bearer" } },
            "schemas": schemas,
            "responses": responses(),
        },
    });
    format!("{document:#}\n")
}

fn paths(status: &Value, history: &Value, tools: &Value) -> Value {
    json!({
        "/": { "get": open_read("The status page", &json!({ "200": text("text/html", "The page; it holds nothing of the gateway.") })) },
        "/livez": { "get": open_read("Whether the process runs", &json!({ "200": text("text/plain", "It does.") })) },
        "/readyz": { "get": open_read("Whether the gateway accepts calls", &json!({
            "200": text("text/plain", "It does. Operators are also told which endpoints have no healthy upstream, a line each."),
            "503": text("text/plain", "It drains, a worker thread died, or `ready = \"listed\"` waits for lists: operators are told of which upstreams."),
        })) },
        "/metrics": { "get": read("Metrics in Prometheus' text format", &json!({ "200": text("text/plain", "All metrics.") })) },
        "/status": { "get": read("The state of the gateway", &json!({ "200": object(status) })) },
        "/status/history": { "get": read("Rates and latencies of the last 60 intervals", &json!({ "200": object(history) })) },
        "/status/tools": { "get": tools_read(tools) },
        "/reload": { "post": change("Read the configuration again", &json!({ "type": "object" }), &json!({
            "200": text("text/plain", "What is different now, a line each."),
            "422": text("text/plain", "What `trunkline check` would print; the old configuration stays in force."),
            "503": text("text/plain", "The gateway is about to stop."),
        })) },
        "/log-level": { "post": change("Log at another level until a reload brings another one", &level(), &json!({
            "200": text("text/plain", "The level."),
            "400": text("text/plain", "No such level."),
        })) },
        "/drain": { "post": change("End in order, as after SIGTERM", &json!({ "type": "object" }), &json!({
            "202": text("text/plain", "The gateway drains, and then exits."),
            "403": text("text/plain", "[admin] has neither a token nor a Unix socket; or a page of another site asks."),
        })) },
    })
}

/// What needs no token.
fn open_read(summary: &str, answers: &Value) -> Value {
    json!({ "summary": summary, "security": [{}], "responses": answers })
}

fn read(summary: &str, answers: &Value) -> Value {
    json!({ "summary": summary, "responses": with_refusals(answers) })
}

fn change(summary: &str, body: &Value, answers: &Value) -> Value {
    json!({
        "summary": summary,
        "requestBody": { "required": true, "content": { "application/json": { "schema": body } } },
        "responses": with_refusals(answers),
    })
}

fn tools_read(tools: &Value) -> Value {
    let mut operation = read(
        "A page of tools",
        &json!({ "200": object(tools), "400": text("text/plain", "What is wrong with the query.") }),
    );
    let number = json!({ "type": "integer", "minimum": 0 });
    let parameter = |name: &str, about: &str, schema: &Value| json!({ "name": name, "in": "query", "description": about, "schema": schema });
    let words = json!({ "type": "string" });
    operation["parameters"] = json!([
        parameter("upstream", "Only tools of this upstream.", &words),
        parameter("q", "Only tools whose name, title or description has this text.", &words),
        parameter("sort", "In which order, such as `calls` or `p99`.", &words),
        parameter("offset", "How many to pass over.", &number),
        parameter("count", "How many at most.", &number),
    ]);
    operation
}

fn grants_read(page: &Value) -> Value {
    let mut operation = read("Who is signed in, with which client, where", &json!({ "200": object(page) }));
    let words = json!({ "type": "string" });
    let about = "`next` of the page before.";
    operation["parameters"] =
        json!([{ "name": "after", "in": "query", "description": about, "schema": words }]);
    json!({ "get": with_grants_refused(operation) })
}

fn grants_revoke(ended: &Value) -> Value {
    let words = json!({ "type": "string" });
    let chosen = json!({
        "type": "object",
        "description": "All that is given has to hold; something has to be given.",
        "properties": { "id": words, "user": words, "client": words, "endpoint": words, "all": { "type": "boolean" } },
    });
    let answers = json!({ "200": object(ended), "400": text("text/plain", "Nothing is chosen.") });
    json!({ "post": with_grants_refused(change("End sign-ins", &chosen, &answers)) })
}

fn grants_back_up(done: &Value) -> Value {
    let about = "The name of a new file in the state directory, with `.redb` at the end.";
    let wanted = json!({
        "type": "object",
        "properties": { "file": { "type": "string", "description": about } },
        "required": ["file"],
    });
    let refused = "It is no such name, or sign-ins are kept in Redis.";
    let answers = json!({ "200": object(done), "400": text("text/plain", refused) });
    json!({ "post": with_grants_refused(change("Copy the store of sign-ins to a file", &wanted, &answers)) })
}

/// The answers where sign-ins cannot be seen.
fn with_grants_refused(mut operation: Value) -> Value {
    let answers = &mut operation["responses"];
    answers["403"] =
        text("text/plain", "[admin] has neither a token nor a Unix socket; or a page of another site asks.");
    answers["404"] = text("text/plain", "There is no [sign_in].");
    answers["503"] = text("text/plain", "The store of sign-ins cannot be reached, or not be copied there.");
    operation
}

fn with_refusals(answers: &Value) -> Value {
    let mut all = answers.clone();
    for (status, name) in [("401", "Token"), ("403", "Site"), ("415", "Form")] {
        if all.get(status).is_none() {
            all[status] = json!({ "$ref": format!("#/components/responses/{name}") });
        }
    }
    all
}

fn responses() -> Value {
    json!({
        "Token": text("text/plain", "The token of [admin] is missing or wrong."),
        "Site": text("text/plain", "A page of another site is behind it, or `Host` is a name that is not this machine's."),
        "Form": text("text/plain", "What changes something comes as `application/json`."),
    })
}

fn level() -> Value {
    let levels = ["error", "warn", "info", "debug", "trace"];
    json!({ "type": "object", "properties": { "level": { "enum": levels } }, "required": ["level"] })
}

fn text(media: &str, about: &str) -> Value {
    json!({ "description": about, "content": { media: { "schema": { "type": "string" } } } })
}

fn object(schema: &Value) -> Value {
    json!({ "description": "As it is now.", "content": { "application/json": { "schema": schema } } })
}
