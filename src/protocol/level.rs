//! Levels of `logging/setLevel`.

crate::words! {
    /// Severity of an upstream's log lines (RFC 5424); later ones are more severe.
    #[derive(PartialOrd, Ord, Hash)]
    pub enum Level reads of, says as_str {
        Debug = "debug",
        Info = "info",
        Notice = "notice",
        Warning = "warning",
        Error = "error",
        Critical = "critical",
        Alert = "alert",
        Emergency = "emergency",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_it_writes() {
        for level in Level::ALL {
            assert_eq!(Level::of(level.as_str()), Some(level));
        }
        for text in ["", "Debug", "warn", "trace"] {
            assert_eq!(Level::of(text), None, "{text}");
        }
        assert!(Level::ALL.is_sorted());
    }
}
