//! The chapter about metrics: every one that the gateway registers, with its labels and its help.

use super::markdown_page::MarkdownPage;

const INTRODUCTION: [&str; 3] = [
    "`GET /metrics` of the admin listener answers in Prometheus' text format. `mcp_*` are OpenTelemetry's names for MCP, \
     `trunkline_*` are the gateway's own.",
    "`error_type` is empty for calls that were answered, an upstream's own error included; else it is one of the table of \
     errors. `mcp_method_name` is `_other` for methods that MCP does not have and for calls refused before theirs was read, \
     and `_notification` for notifications. `endpoint` is empty where no endpoint has the path.",
    "A series appears with its first use. Gauges of upstreams and endpoints go when a reload removes these; counters stay.",
];

pub(super) fn chapter() -> anyhow::Result<String> {
    let mut page = MarkdownPage::new("Metrics", &INTRODUCTION);
    let families = gateway::Metrics::new(1)?.families();
    let code = |name: &str| format!("`{name}`");
    let rows = families.iter().map(|family| {
        let labels: Vec<String> = family.labels.iter().map(|label| code(label)).collect();
        vec![code(&family.name), family.kind.to_owned(), labels.join(", "), family.help.clone()]
    });
    page.grid(&["Metric", "Type", "Labels", "Meaning"], rows);
    Ok(page.finish())
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_metric_has_a_sentence() {
        let families = gateway::Metrics::new(1).unwrap().families();
        assert!(families.len() > 80, "{}", families.len());
        for family in families {
            assert!(family.help.len() > 5 && family.help.ends_with('.'), "{family:?}");
        }
    }
}
