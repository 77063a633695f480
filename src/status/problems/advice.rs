//! Commands for what a problem advises to do. Pure.

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

/// The command that shows lines of the gateway's log.
pub(super) fn journal(since: &str, text: &str) -> String {
    command(["journalctl", "--unit", "trunkline", "--since", since, "--grep", text])
}
