//! The messages that the benchmarks read: everyday ones by size, and hostile ones of one megabyte.

const MEGABYTE: usize = 1 << 20;

/// A call as clients send it, about `bytes` long. Most of a large one is a text full of line ends.
pub(crate) fn call(bytes: usize) -> Vec<u8> {
    let text = "fn main() {\\n    println!(\\\"Grüße\\\");\\n}\\n";
    call_with(&format!(r#""text":"{}""#, text.repeat(bytes.saturating_sub(380) / text.len())))
}

/// A call whose arguments are structured data: many short strings and numbers.
pub(crate) fn structured_call(bytes: usize) -> Vec<u8> {
    let row = r#"{"id":4711,"name":"Ada","tags":["a","b"],"score":0.25,"active":true},"#;
    call_with(&format!(r#""rows":[{}null]"#, row.repeat(bytes.saturating_sub(380) / row.len())))
}

/// Bodies of about a megabyte that are legal and made to be slow to read.
pub(crate) fn hostile() -> [(&'static str, Vec<u8>); 5] {
    let keys: Vec<String> = (0..200_000).map(|number| format!(r#""k{number}":0"#)).collect();
    let escaped = r#""\u006bey":0,"#;
    [
        ("ones", call_with(&format!(r#""a":[{}1]"#, "1,".repeat(MEGABYTE / 2)))),
        ("objects", call_with(&format!(r#""a":[{}{{}}]"#, "{},".repeat(MEGABYTE / 3)))),
        (
            "keys",
            format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call",{}}}"#, keys.join(",")).into_bytes(),
        ),
        (
            "escaped_keys",
            format!(
                r#"{{{}"jsonrpc":"2.0","id":1,"method":"tools/call"}}"#,
                escaped.repeat(MEGABYTE / escaped.len())
            )
            .into_bytes(),
        ),
        ("big_number_last", call_with(&format!(r#""a":[{}1e999]"#, "1,".repeat(MEGABYTE / 2)))),
    ]
}

/// A reply of a tool with `links` resource links between texts of 200 bytes.
pub(crate) fn reply(links: usize) -> Vec<u8> {
    let link = r#"{"type":"resource_link","uri":"file:///srv/report.md","name":"report.md"},"#;
    let text = format!(r#"{{"type":"text","text":"{}"}},"#, "during the security review, ".repeat(7));
    format!(
        r#"{{"jsonrpc":"2.0","id":42,"result":{{"content":[{}{{"type":"text","text":""}}],"isError":false,"resultType":"complete"}}}}"#,
        format!("{text}{link}").repeat(links)
    )
    .into_bytes()
}

/// A reply of a tool that holds text only.
pub(crate) fn text_reply(bytes: usize) -> Vec<u8> {
    let text = "during the security review, ";
    format!(
        r#"{{"jsonrpc":"2.0","id":42,"result":{{"content":[{{"type":"text","text":"{}"}}],"resultType":"complete"}}}}"#,
        text.repeat(bytes / text.len())
    )
    .into_bytes()
}

fn call_with(arguments: &str) -> Vec<u8> {
    format!(
        r#"{{"jsonrpc":"2.0","id":42,"method":"tools/call","params":{{"name":"weather__forecast","arguments":{{{arguments}}},"_meta":{{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{{"name":"bench","version":"1.0.0"}},"io.modelcontextprotocol/clientCapabilities":{{"elicitation":{{}}}},"progressToken":7}}}}}}"#
    )
    .into_bytes()
}
