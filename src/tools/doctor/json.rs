//! A report for programs. Pure.

use serde_json::{Value, json};

use super::measured::Latency;
use super::report::Report;
use super::rule::Severity;
use super::sheet::RuleOutcome;
use protocol::version::Era;

impl Report {
    /// The report as JSON.
    pub fn json(&self) -> Value {
        let introduction = self.facts.introduction();
        let measured = &self.measured;
        json!({
            "server": {
                "address": self.server,
                "name": introduction.and_then(|introduction| introduction.name.as_ref()),
                "title": introduction.and_then(|introduction| introduction.title.as_ref()),
                "version": introduction.and_then(|introduction| introduction.server_version.as_ref()),
                "protocolVersions": self.versions(),
            },
            "inspected": self.is_inspected(),
            "notInspected": self.facts.not_inspected,
            "cutShort": self.facts.cut_short,
            "summary": {
                "errors": self.count(Severity::Error),
                "warnings": self.count(Severity::Warning),
                "advice": self.count(Severity::Advice),
                "kept": self.kept(),
                "ignored": self.ignored,
            },
            "findings": self.findings().into_iter().map(|outcome| finding(outcome, self.era())).collect::<Vec<_>>(),
            "kept": self.outcomes.iter().filter(|outcome| outcome.is_kept).map(kept).collect::<Vec<_>>(),
            "measured": {
                "requests": self.facts.requests,
                "tools": measured.tools,
                "toolsBytes": measured.tools_bytes,
                "toolsTokensEstimated": measured.tools_tokens,
                "prompts": measured.prompts,
                "resources": measured.resources,
                "resourceTemplates": measured.templates,
                "latency": measured.latency.map(latency),
                "calls": measured.calls.map(latency),
            },
        })
    }
}

fn finding(outcome: &RuleOutcome, era: Era) -> Value {
    let rule = outcome.rule;
    json!({
        "id": rule.id,
        "severity": rule.severity.word(),
        "area": rule.area.word(),
        "what": rule.bad,
        "seen": outcome.items,
        "seenTotal": outcome.items_total,
        "why": rule.why,
        "fix": rule.fix,
        "specification": rule.link(era),
    })
}

fn kept(outcome: &RuleOutcome) -> Value {
    json!({ "id": outcome.rule.id, "area": outcome.rule.area.word(), "what": outcome.rule.good })
}

fn latency(latency: Latency) -> Value {
    let ms = |time: std::time::Duration| (time.as_secs_f64() * 1e6).round() / 1e3;
    json!({ "count": latency.count, "p50Ms": ms(latency.median), "maxMs": ms(latency.most) })
}
