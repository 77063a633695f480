//! Commands for what a problem advises to do. Pure.

use crate::gateway::{LogStatus, Status};

/// Words as a shell reads them.
pub(super) fn command<'w>(words: impl IntoIterator<Item = &'w str>) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_@%+=:,./-".contains(c);
    let quoted = |word: &str| {
        if !word.is_empty() && word.chars().all(is_plain) {
            word.to_owned()
        } else {
            format!("'{}'", word.replace('\'', r"'\''"))
        }
    };
    words.into_iter().map(quoted).collect::<Vec<_>>().join(" ")
}

/// Commands about the process of the gateway, by what it tells of that.
pub(super) struct Advice<'s> {
    /// The unit of systemd that it runs in.
    unit: Option<&'s str>,
    log: &'s LogStatus,
}

impl<'s> Advice<'s> {
    pub(super) fn of(status: &'s Status) -> Self {
        let unit = status.service.as_deref().map(|unit| unit.strip_suffix(".service").unwrap_or(unit));
        Self { unit, log: &status.log }
    }

    /// The command that shows lines of its log with this text; `None`: its log is at a terminal, or in the hands of others.
    pub(super) fn log_lines(&self, since: &str, text: &str) -> Option<String> {
        match (&*self.log.place, self.unit, &self.log.file) {
            ("journal", Some(unit), _) => {
                Some(command(["journalctl", "--unit", unit, "--since", since, "--grep", text]))
            }
            ("file", _, Some(file)) => Some(command(["grep", "-E", text, file])),
            _ => None,
        }
    }

    /// The command that starts it anew; `None`: systemd does not start it.
    pub(super) fn restart(&self) -> Option<String> {
        Some(command(["systemctl", "restart", self.unit?]))
    }

    /// The commands that start it with the socket of this unit.
    pub(super) fn restart_with(&self, socket_unit: &str) -> Option<String> {
        let unit = self.unit?;
        let steps = [
            command(["systemctl", "stop", unit]),
            command(["systemctl", "reset-failed", unit, socket_unit]),
            command(["systemctl", "start", socket_unit, unit]),
        ];
        Some(steps.join("; "))
    }
}
