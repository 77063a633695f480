//! Is there a row about each bound in the table of `docs/security/fairness.md`, is each row whole, and does a test take it?

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::Value;

const MANUAL: &str = include_str!("../../docs/security/fairness.md");
const SCHEMA: &str = include_str!("../../config/trunkline.schema.json");
const METRICS: &str = include_str!("../../src/gateway/telemetry/metrics/families.rs");
const COLUMNS: [&str; 7] =
    ["Resource", "Bound", "Who is charged", "For one at most", "Who is over it", "What makes room", "Metric"];

/// Keys that bound nothing that clients share, each with its reason.
const OF_ONE_THING: [(&str, &str); 26] = [
    ("breaker.failures_max", "failures in a row, which a breaker counts and nobody holds"),
    ("breaker.open_time_max", "a time"),
    ("bridge.input_requests_max", "the questions of one call"),
    ("bridge.state_bytes_max", "the state of one call; those that wait are bounded in number"),
    ("endpoint.list_page_bytes_max", "the size of one page that is given out"),
    ("jwt.jwks_stale_max", "a time"),
    ("limits.body_bytes_max", "the size of one body; all together are `buffered_bytes_max`"),
    ("limits.connection_age_max", "a time"),
    ("limits.header_bytes_max", "the size of one head, of which a connection has one at a time"),
    ("limits.headers_max", "the fields of one head"),
    ("limits.json_depth_max", "the nesting of one message"),
    ("limits.list_bytes_max", "the size of one list of one upstream"),
    ("limits.list_entries_max", "the entries of one list of one upstream"),
    ("limits.list_pages_max", "the pages of one list of one upstream"),
    ("limits.pins_bytes_max", "what one upstream says of its tools; no client adds to it"),
    ("limits.reply_bytes_max", "the size of one reply; all together are `buffered_bytes_max`"),
    ("limits.token_bytes_max", "the size of one token"),
    ("log.buffer_bytes_max", "lines of the log: what does not fit is left out, and no call waits for it"),
    ("log.refusals_per_second_max", "lines of the log: what is beyond is counted, and no call waits for it"),
    ("metrics.tools_max", "names of upstreams' tools in metrics; no client adds to them"),
    ("session.initialize_rate_max", "a rate that each principal or address has to itself"),
    ("sign_in.grant_idle_max", "a time"),
    ("upstream.calls_wait_max", "a time"),
    ("upstream.idle_connections_max", "connections that nobody uses; calls open others"),
    ("upstream.pins_age_max", "a time"),
    ("upstream.stream_duration_max", "a time"),
];

/// Where the table has a dash: the resource, the column, the reason.
const DASHES: [(&str, &str, &str); 8] = [
    ("what the kernel keeps of a reply before it is sent", "Metric", "the kernel counts it"),
    ("requests of one connection", "Metric", "the client has them to itself"),
    ("names of one subscription", "What makes room", "another subscription may name more"),
    ("names of one subscription", "Metric", "the client has them to itself"),
    ("messages of a session that wait for an upstream", "Metric", "the client has them to itself"),
    (
        "messages without an answer on their way to an upstream",
        "Metric",
        "they wait in their sessions' queues",
    ),
    ("visits of one browser to the provider", "Metric", "its own cookies hold them"),
    (
        "callers that a worker knows by their credentials",
        "Metric",
        "nothing of a call depends on it but its cost",
    ),
];

/// The test that takes each resource: a function, and the file below `tests` or `src` where it is.
const TAKEN_BY: [(&str, &str, &str); 38] = [
    ("connections of clients", "tests/fairness/shares.rs", "one_address_leaves_connections_to_another"),
    ("TLS handshakes at once", "tests/edge/tls.rs", "a_flood_of_handshakes_keeps_nobody_out"),
    ("requests of one connection", "tests/edge/http2.rs", "streams_beyond_the_limit_wait_their_turn"),
    ("memory for messages", "tests/fairness/shares.rs", "unfinished_bodies_of_one_leave_memory_to_another"),
    (
        "what the kernel keeps of a reply before it is sent",
        "src/net/socket.rs",
        "the_kernel_keeps_little_of_what_nobody_reads",
    ),
    (
        "connections to an upstream",
        "tests/fairness/shares.rs",
        "calls_of_one_leave_connections_of_the_upstream_to_another",
    ),
    (
        "calls of an upstream at once, and those that wait",
        "tests/fairness/shares.rs",
        "calls_of_one_leave_an_upstream_that_takes_few_to_another",
    ),
    ("sessions with state", "tests/fairness/sessions.rs", "sessions_of_one_leave_room_for_another"),
    (
        "sessions with upstreams",
        "tests/fairness/sessions.rs",
        "upstream_sessions_of_one_leave_room_for_another",
    ),
    (
        "the gateway's own sessions for lists",
        "tests/lists/list_sessions.rs",
        "nobody_is_pushed_out_by_one_who_has_more",
    ),
    (
        "sessions of the bridge with a legacy upstream",
        "tests/fairness/sessions.rs",
        "bridged_sessions_of_one_do_not_oust_those_of_others",
    ),
    (
        "starts of child processes",
        "tests/upstreams/hundreds.rs",
        "hundreds_of_programs_that_do_not_start_harm_nobody_and_are_told",
    ),
    ("child processes", "tests/fairness/shares.rs", "child_processes_of_one_leave_room_for_another"),
    (
        "streams that clients open with GET",
        "tests/fairness/sessions.rs",
        "streams_of_one_leave_room_for_another",
    ),
    (
        "what waits for such a stream",
        "tests/sessions/get_streams.rs",
        "a_client_that_does_not_read_loses_its_stream_only",
    ),
    ("streams of upstreams", "tests/fairness/sessions.rs", "upstream_streams_of_one_leave_room_for_another"),
    ("subscriptions", "tests/fairness/names.rs", "subscriptions_of_one_leave_room_for_another"),
    ("names of one subscription", "tests/lists/subscriptions.rs", "filters_in_doubt_are_refused"),
    (
        "names that one upstream is asked to tell of",
        "tests/fairness/names.rs",
        "names_of_four_leave_some_to_a_fifth",
    ),
    (
        "notifications that wait for their readers",
        "src/gateway/tables/subscriptions/inbox.rs",
        "a_notice_is_held_once_for_all_and_only_while_there_is_room",
    ),
    (
        "calls that wait for answers of their clients",
        "tests/bridge/faults.rs",
        "as_many_calls_are_parked_as_may_be",
    ),
    (
        "messages of a session that wait for an upstream",
        "tests/sessions/message_order.rs",
        "what_waits_for_an_upstream_is_bounded",
    ),
    (
        "messages without an answer on their way to an upstream",
        "tests/sessions/message_order.rs",
        "a_client_whose_messages_are_not_accepted_leaves_room_for_others",
    ),
    (
        "requests of sign-in under way",
        "tests/access/sign_in/many.rs",
        "requests_of_one_address_leave_room_for_another",
    ),
    (
        "visits of one browser to the provider",
        "tests/access/sign_in/cookies.rs",
        "three_sign_ins_of_a_browser_are_under_way_at_most",
    ),
    (
        "documents of clients that are fetched at once",
        "src/gateway/access/auth/sign_in/memory.rs",
        "documents_that_one_network_has_fetched_leave_room_for_another",
    ),
    (
        "documents of clients in memory, and sets of their keys",
        "src/gateway/access/auth/sign_in/fetched.rs",
        "documents_are_kept_in_a_bounded_number",
    ),
    (
        "accounts that the provider is asked about off the line",
        "src/gateway/access/auth/sign_in/memory.rs",
        "accounts_that_are_asked_about_are_few_at_once",
    ),
    (
        "records of sign-ins in the file",
        "src/store/tests/records.rs",
        "one_record_too_many_is_refused_and_the_rest_goes_on",
    ),
    (
        "callers that a worker knows by their credentials",
        "src/gateway/access/auth/caller_cache.rs",
        "a_worker_remembers_a_bounded_number",
    ),
    (
        "sign-ins of a person",
        "tests/access/sign_in/ends.rs",
        "a_new_sign_in_ends_the_one_that_was_unused_for_longest",
    ),
    ("owners of tasks", "tests/access/tasks.rs", "who_makes_many_tasks_forgets_its_own"),
    ("keys of limits", "tests/access/rates.rs", "spraying_values_resets_nothing"),
    ("lists kept for restarts", "tests/lists/kept_lists.rs", "a_gateway_works_where_nothing_can_be_kept"),
    ("lists in memory", "tests/fairness/names.rs", "lists_that_find_no_memory_are_fetched_again"),
    (
        "exchanges whose client has left",
        "tests/fairness/sessions.rs",
        "exchanges_that_one_has_left_leave_room_for_another",
    ),
    (
        "answers to `initialize` that came too late for whoever asked, waited for to close their sessions",
        "src/gateway/upstream/closing/tests.rs",
        "an_upstream_that_is_slow_leaves_room_for_the_sessions_of_others",
    ),
    (
        "connections to the admin listener",
        "src/gateway/admin/connection_limiter.rs",
        "the_oldest_makes_room_but_not_at_once",
    ),
];

/// Rows that no test takes, each with its reason.
const NOT_TAKEN: [(&str, &str); 1] =
    [("upstreams asked at once for lists", "a list has them to itself, and so has the gateway")];

/// The rows of the table, each with what its columns say.
fn rows() -> Vec<Vec<&'static str>> {
    let section = MANUAL.split("\n## The table\n").nth(1).and_then(|rest| rest.split("\n## ").next());
    let lines = section.expect("the section").lines().filter(|line| line.starts_with('|'));
    let mut rows: Vec<Vec<&str>> =
        lines.map(|line| line.trim_matches('|').split(" | ").map(str::trim).collect()).collect();
    assert_eq!(rows.remove(0), COLUMNS);
    rows.remove(0);
    rows
}

/// What stands in backquotes.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// The table that the schema calls so: `SignIn` is `sign_in`.
fn table_of(section: &str) -> String {
    let mut table = String::new();
    for (at, letter) in section.char_indices() {
        if letter.is_uppercase() && at > 0 {
            table.push('_');
        }
        table.extend(letter.to_lowercase());
    }
    table
}

/// The keys that end in `_max`, each behind the name of its section.
fn bounds() -> BTreeSet<String> {
    let schema: Value = serde_json::from_str(SCHEMA).expect("a schema");
    let sections = schema["$defs"].as_object().expect("sections");
    let keys = sections.iter().flat_map(|(section, schema)| {
        let keys = schema["properties"].as_object().into_iter().flatten();
        keys.filter(|(key, _)| key.ends_with("_max"))
            .map(move |(key, _)| format!("{}.{key}", table_of(section)))
    });
    keys.collect()
}

#[test]
fn every_bound_has_a_row() {
    let rows = rows();
    let in_table: BTreeSet<&str> = rows.iter().flat_map(|row| quoted(row[1])).collect();
    let of_one_thing: BTreeSet<&str> = OF_ONE_THING.iter().map(|(key, _)| *key).collect();
    let found = bounds();
    let named = |key: &&String| in_table.contains(key.as_str()) || of_one_thing.contains(key.as_str());
    let missing: Vec<&String> = found.iter().filter(|key| !named(key)).collect();
    assert!(
        missing.is_empty(),
        "no row names {missing:?}: say who is charged, and what the one over it gets"
    );
    let gone: Vec<_> = in_table.union(&of_one_thing).filter(|key| !found.contains(**key)).collect();
    assert!(gone.is_empty(), "there are no such keys: {gone:?}");
    let twice: Vec<_> = in_table.intersection(&of_one_thing).collect();
    assert!(twice.is_empty(), "{twice:?} have a row: no exemption is needed");
}

#[test]
fn every_row_is_whole() {
    let rows = rows();
    for row in &rows {
        assert_eq!(row.len(), COLUMNS.len(), "{row:?}");
        for (column, cell) in COLUMNS.iter().zip(row) {
            let may_be_empty = DASHES.iter().any(|(resource, of, _)| resource == &row[0] && of == column);
            let is_empty = matches!(*cell, "" | "–" | "-" | "—");
            assert_eq!(is_empty, may_be_empty, "{column} of {}: {cell}", row[0]);
        }
        for metric in quoted(row[6]) {
            assert!(METRICS.contains(&format!("\"{metric}\"")), "there is no metric {metric}");
        }
    }
    for (resource, column, _) in DASHES {
        assert!(rows.iter().any(|row| row[0] == resource), "{resource}, {column}");
    }
}

#[test]
fn every_row_is_taken_by_a_test() {
    let resources: BTreeSet<&str> = rows().iter().map(|row| row[0]).collect();
    let not_taken = NOT_TAKEN.iter().map(|(resource, _)| *resource);
    let taken: BTreeSet<&str> = TAKEN_BY.iter().map(|(resource, ..)| *resource).chain(not_taken).collect();
    assert_eq!(resources, taken);
    for (resource, file, test) in TAKEN_BY {
        let text = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(file));
        let text = text.unwrap_or_else(|error| panic!("{file}: {error}"));
        assert!(text.contains(&format!("fn {test}(")), "{resource}: {file} has no {test}");
    }
}
