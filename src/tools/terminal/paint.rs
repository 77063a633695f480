//! Colours: few, the terminal's own, and never the only thing that says something.

use std::fmt::Display;

use anstyle::{AnsiColor, Style};

/// Headings.
pub const STRONG: Style = Style::new().bold();
/// What matters less.
pub const FAINT: Style = Style::new().dimmed();
/// Healthy.
pub const GOOD: Style = AnsiColor::Green.on_default();
/// A warning.
pub const WARNING: Style = AnsiColor::Yellow.on_default();
/// An error.
pub const BAD: Style = AnsiColor::Red.on_default();
/// What a person could type or follow.
pub const USE: Style = AnsiColor::Cyan.on_default();

/// `text` in this style. To be written through `anstream`, which takes the style away where it is not wanted.
pub fn painted(style: Style, text: impl Display) -> String {
    format!("{style}{text}{style:#}")
}
