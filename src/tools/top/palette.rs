//! Colours: few, the terminal's own, and never the only thing that says something. Pure.

use ratatui::style::{Color, Modifier, Style};

/// What something looks like.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Look {
    #[default]
    Plain,
    /// Headings.
    Strong,
    /// What matters less.
    Faint,
    /// Healthy.
    Good,
    /// A warning.
    Warning,
    /// An error.
    Bad,
    /// Keys, and what can be typed.
    Use,
    /// Curves.
    Curve,
    /// What is chosen.
    Chosen,
}

/// How things look on this terminal.
#[derive(Clone, Copy, Debug)]
pub(super) struct Palette {
    is_colored: bool,
}

impl Palette {
    pub(super) fn new(is_colored: bool) -> Self {
        Self { is_colored }
    }

    /// The style of a look.
    pub(super) fn style(self, look: Look) -> Style {
        let (color, modifier) = match look {
            Look::Plain => (Color::Reset, Modifier::empty()),
            Look::Strong => (Color::Reset, Modifier::BOLD),
            Look::Faint => (Color::Reset, Modifier::DIM),
            Look::Good => (Color::Green, Modifier::empty()),
            Look::Warning => (Color::Yellow, Modifier::empty()),
            Look::Bad => (Color::Red, Modifier::BOLD),
            Look::Use | Look::Curve => (Color::Cyan, Modifier::empty()),
            Look::Chosen => (Color::Reset, Modifier::REVERSED),
        };
        let style = Style::new().add_modifier(modifier);
        if self.is_colored && color != Color::Reset { style.fg(color) } else { style }
    }
}
