//! The results the stub answers with, made once at start, each as `"result":{…}` in the form of its era: only modern
//! ones carry `resultType`, `ttlMs` and `cacheScope`.

/// All results of one era.
pub(crate) struct Results {
    /// Of every `tools/call`.
    pub(crate) call: Vec<u8>,
    lists: [(&'static str, Vec<u8>); 4],
    others: &'static [(&'static str, &'static [u8])],
}

const MODERN_ONLY: &[(&str, &[u8])] = &[("server/discover", DISCOVER)];
const LEGACY_ONLY: &[(&str, &[u8])] = &[("ping", br#""result":{}"#)];

impl Results {
    /// As a server of 2026-07-28 answers. `reply_bytes` is the size of the body of a tool's reply, as nearly as its
    /// smallest form allows.
    pub(crate) fn modern(tools_count: usize, reply_bytes: usize, ttl_ms: u64) -> Self {
        let kind = r#""resultType":"complete","#;
        let freshness = format!(r#","ttlMs":{ttl_ms},"cacheScope":"public""#);
        Self::new(kind, &freshness, MODERN_ONLY, tools_count, reply_bytes)
    }

    /// As one of an earlier revision does.
    pub(crate) fn legacy(tools_count: usize, reply_bytes: usize) -> Self {
        Self::new("", "", LEGACY_ONLY, tools_count, reply_bytes)
    }

    fn new(
        kind: &str,
        freshness: &str,
        others: &'static [(&'static str, &'static [u8])],
        tools_count: usize,
        reply_bytes: usize,
    ) -> Self {
        let call = |text: &str| {
            format!(r#""result":{{{kind}"content":[{{"type":"text","text":"{text}"}}],"isError":false}}"#)
        };
        let envelope_bytes = r#"{"jsonrpc":"2.0","id":1000000000,}"#.len() + call("").len();
        let text = "x".repeat(reply_bytes.saturating_sub(envelope_bytes));
        let list = |key: &str, items: &str| {
            format!(r#""result":{{{kind}"{key}":[{items}]{freshness}}}"#).into_bytes()
        };
        let tools: Vec<_> = (0..tools_count).map(tool).collect();
        Self {
            call: call(&text).into_bytes(),
            lists: [
                ("tools/list", list("tools", &tools.join(","))),
                ("prompts/list", list("prompts", "")),
                ("resources/list", list("resources", "")),
                ("resources/templates/list", list("resourceTemplates", "")),
            ],
            others,
        }
    }

    /// The result of `method`, unless it depends on the request or there is no such method.
    pub(crate) fn of(&self, method: &str) -> Option<&[u8]> {
        if method == "tools/call" {
            return Some(&self.call);
        }
        let lists = self.lists.iter().map(|(name, result)| (*name, result.as_slice()));
        let mut all = lists.chain(self.others.iter().copied());
        all.find(|(name, _)| *name == method).map(|(_, result)| result)
    }
}

/// The result of `initialize`.
pub(crate) fn initialize(version: &str) -> Vec<u8> {
    format!(
        r#""result":{{"protocolVersion":"{version}","capabilities":{CAPABILITIES},"serverInfo":{{"name":"stub","version":"1"}}}}"#
    )
    .into_bytes()
}

const CAPABILITIES: &str =
    r#"{"tools":{"listChanged":true},"prompts":{"listChanged":true},"resources":{"listChanged":true}}"#;
const DISCOVER: &[u8] = br#""result":{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{"listChanged":true},"prompts":{"listChanged":true},"resources":{"listChanged":true}},"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"stub","version":"1"}},"ttlMs":3600000,"cacheScope":"public"}"#;

/// About what real servers list, and of their sizes: 250 to 400 bytes.
fn tool(number: usize) -> String {
    let (title, description, property) = match number % 4 {
        0 => (
            "Search records",
            "Searches the records of this store and returns those that match, best first.",
            r#""limit":{"type":"integer"}"#,
        ),
        1 => (
            "Read file",
            "Reads a file of the workspace as text. Fails where the path leaves the workspace.",
            r#""limit":{"type":"integer","minimum":1,"description":"How many lines"}"#,
        ),
        2 => (
            "Forecast",
            "Tells the weather of a place for the next days, in metric units.",
            r#""limit":{"type":"integer","maximum":14},"units":{"type":"string","enum":["metric","imperial"]}"#,
        ),
        _ => (
            "Create ticket",
            "Creates a ticket in the tracker and returns its number. Asks nobody, so ask the user first.",
            r#""limit":{"type":"integer","default":10},"labels":{"type":"array","items":{"type":"string"}}"#,
        ),
    };
    format!(
        r#"{{"name":"tool_{number}","title":"{title}","description":"{description}","inputSchema":{{"type":"object","properties":{{"query":{{"type":"string","description":"What to look for"}},{property}}},"required":["query"]}}}}"#
    )
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn parsed(result: &[u8]) -> Value {
        let text = format!("{{{}}}", String::from_utf8(result.to_vec()).unwrap());
        serde_json::from_str::<Value>(&text).unwrap()["result"].take()
    }

    #[test]
    fn tools_are_of_realistic_sizes() {
        for number in [0, 1, 2, 3, 24_999] {
            let tool = tool(number);
            assert!((250..=400).contains(&tool.len()), "{}: {tool}", tool.len());
        }
    }

    #[test]
    fn lists_have_the_form_of_their_era() {
        let (modern, legacy) = (Results::modern(7, 256, 60_000), Results::legacy(7, 256));
        let (new, old) = (parsed(modern.of("tools/list").unwrap()), parsed(legacy.of("tools/list").unwrap()));
        assert_eq!(new["tools"].as_array().unwrap().len(), 7);
        assert_eq!(new["tools"], old["tools"]);
        assert_eq!(new["ttlMs"], 60_000);
        assert_eq!(old.as_object().unwrap().len(), 1);
        for method in ["prompts/list", "resources/list", "resources/templates/list"] {
            assert_eq!(parsed(modern.of(method).unwrap())["resultType"], "complete", "{method}");
        }
    }

    #[test]
    fn methods_belong_to_their_era() {
        let (modern, legacy) = (Results::modern(1, 256, 60_000), Results::legacy(1, 256));
        assert!(modern.of("server/discover").is_some_and(|result| !parsed(result).is_null()));
        assert!(modern.of("ping").is_none());
        assert!(legacy.of("server/discover").is_none());
        assert!(legacy.of("ping").is_some());
        assert_eq!(parsed(&initialize("2025-06-18"))["protocolVersion"], "2025-06-18");
    }

    #[test]
    fn calls_of_both_eras_are_equally_long() {
        for results in [Results::modern(1, 256, 60_000), Results::legacy(1, 256)] {
            assert_eq!(results.call.len() + r#"{"jsonrpc":"2.0","id":1000000000,}"#.len(), 256);
        }
    }
}
