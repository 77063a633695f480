//! Tools: those that stand out in `/status`, and `/status/tools`, a page at a time.

use crate::calls::share;

objects! {
    /// Tools that stand out.
    struct Rankings {
        known: Option<u64>,
        most_called: Vec<ToolStatus>,
        slowest: Vec<ToolStatus>,
        failing: Vec<ToolStatus>,
    }

    /// A page of tools.
    struct ToolsPage {
        total: u64,
        matched: Option<u64>,
        offset: u64,
        tools: Vec<ToolStatus>,
    }

    /// A tool. In rankings without what its definition says.
    struct ToolStatus {
        upstream: String,
        name: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        title: Option<String>,
        #[serde(skip_serializing_if = "Option::is_none")]
        description: Option<String>,
        /// Whether it says that it changes nothing.
        #[serde(skip_serializing_if = "Option::is_none")]
        read_only: Option<bool>,
        /// Whether it says that it may destroy.
        #[serde(skip_serializing_if = "Option::is_none")]
        destructive: Option<bool>,
        #[serde(skip_serializing_if = "Option::is_none")]
        definition_bytes: Option<u64>,
        /// Calls since the start; unknown where it is not told apart from others.
        calls: Option<u64>,
        errors: Option<u64>,
        #[serde(skip_serializing_if = "Option::is_none")]
        seconds: Option<f64>,
        p50_s: Option<f64>,
        p99_s: Option<f64>,
        calls_per_s: Option<f64>,
        #[serde(skip_serializing_if = "Option::is_none")]
        pin: Option<String>,
        #[serde(skip_serializing_if = "Option::is_none")]
        left_out: Option<String>,
        #[serde(skip_serializing_if = "Option::is_none")]
        public: Option<Vec<PublicName>>,
    }

    /// What clients call a tool at one endpoint.
    struct PublicName {
        endpoint: String,
        name: String,
    }
}

impl Rankings {
    /// Whether nothing is measured: then it is not written.
    pub fn is_unmeasured(&self) -> bool {
        self.known.is_none()
    }
}

impl ToolsPage {
    /// How many tools fit the question, wherever they are.
    pub fn matched(&self) -> u64 {
        self.matched.unwrap_or(self.tools.len() as u64)
    }
}

impl ToolStatus {
    /// The share of calls that failed.
    pub fn error_share(&self) -> Option<f64> {
        share(self.errors?, self.calls?)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::object::Object;

    #[test]
    fn a_page_is_read_whatever_is_in_it() {
        assert_eq!(ToolsPage::read(&json!({})), Some(ToolsPage::default()));
        let answer =
            json!({"total": 9, "tools": [7, {"name": "a", "public": [{"name": "b"}], "p99_s": "x"}]});
        let page = ToolsPage::read(&answer).unwrap_or_default();
        assert_eq!((page.total, page.matched(), page.tools.len()), (9, 1, 1));
        assert_eq!(
            page.tools[0].public.as_deref(),
            Some(&[PublicName { endpoint: String::new(), name: "b".to_owned() }][..])
        );
        assert_eq!(page.tools[0].p99_s, None);
    }
}
