//! What comes from the terminal.

use ratatui::crossterm::event::{Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

/// What a person does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeyInput {
    Key(Key),
    /// Columns and rows.
    Resize(u16, u16),
}

/// A key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Key {
    Char(char),
    Enter,
    Esc,
    Backspace,
    Up,
    Down,
    Left,
    Right,
    PageUp,
    PageDown,
    Home,
    End,
    Tab,
    BackTab,
    /// Ctrl and this letter.
    Control(char),
}

/// What an event means; `None`: nothing.
pub(super) fn input(event: &Event) -> Option<KeyInput> {
    match event {
        Event::Key(key) if key.kind != KeyEventKind::Release => self::key(key).map(KeyInput::Key),
        Event::Resize(columns, rows) => Some(KeyInput::Resize(*columns, *rows)),
        _ => None,
    }
}

fn key(event: &KeyEvent) -> Option<Key> {
    Some(match event.code {
        KeyCode::Char(c) if event.modifiers.contains(KeyModifiers::CONTROL) => {
            Key::Control(c.to_ascii_lowercase())
        }
        KeyCode::Char(_) if event.modifiers.contains(KeyModifiers::ALT) => return None,
        KeyCode::Char(c) => Key::Char(c),
        KeyCode::Enter => Key::Enter,
        KeyCode::Esc => Key::Esc,
        KeyCode::Backspace | KeyCode::Delete => Key::Backspace,
        KeyCode::Up => Key::Up,
        KeyCode::Down => Key::Down,
        KeyCode::Left => Key::Left,
        KeyCode::Right => Key::Right,
        KeyCode::PageUp => Key::PageUp,
        KeyCode::PageDown => Key::PageDown,
        KeyCode::Home => Key::Home,
        KeyCode::End => Key::End,
        KeyCode::Tab => Key::Tab,
        KeyCode::BackTab => Key::BackTab,
        _ => return None,
    })
}
