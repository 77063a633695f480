//! Names that the common model APIs refuse, and characters that nobody sees. Pure.

/// What a model API takes as the name of a tool.
struct Taste {
    who: &'static str,
    chars_max: usize,
    others: &'static [char],
    is_digit_first: bool,
}

/// As they stood in November 2026, the most generous limit where documents differ: `OpenAI` in its API
/// reference (letters, digits, `_` and `-`, at most 64); Anthropic in its API's error messages of 2025 and 2026
/// (`^[a-zA-Z0-9_-]{1,128}$`, before that 64); Gemini in the references of Vertex AI and its own API (begins with
/// a letter or `_`; `.`, `:` and `-`; 128 there, 64 here); Bedrock in the reference of its `ToolSpecification`
/// (`[a-zA-Z0-9_-]+`, at most 64).
const TASTES: &[Taste] = &[
    Taste { who: "OpenAI", chars_max: 64, others: &['_', '-'], is_digit_first: true },
    Taste { who: "Anthropic", chars_max: 128, others: &['_', '-'], is_digit_first: true },
    Taste { who: "Bedrock", chars_max: 64, others: &['_', '-'], is_digit_first: true },
    Taste { who: "Gemini", chars_max: 128, others: &['_', '-', '.', ':'], is_digit_first: false },
];

/// Of a flag, as in `gbeng` with its end.
const FLAG_TAGS_MAX: usize = 7;

/// The prefix that a host puts before names, where it knows the server by a name of usual length.
const HOST_PREFIX: &str = "mcp__trunkline__";

/// Whose APIs refuse a tool of this name, and why; or would as soon as a host puts its own name for the server before it.
pub(super) fn refused_by(name: &str) -> Option<String> {
    let by_itself = refusals(|taste| taste.refusal(name));
    let refusals = if by_itself.is_empty() {
        let length = HOST_PREFIX.len() + name.len();
        refusals(|taste| {
            let most = taste.chars_max;
            (length > most).then(|| format!("has more than {most} characters with `{HOST_PREFIX}` before it"))
        })
    } else {
        by_itself
    };
    let texts: Vec<_> = refusals.iter().map(|(why, who)| format!("{why} ({})", who.join(", "))).collect();
    (!texts.is_empty()).then(|| texts.join("; "))
}

/// The interfaces that refuse, by reason.
fn refusals(refusal: impl Fn(&Taste) -> Option<String>) -> Vec<(String, Vec<&'static str>)> {
    let mut refusals: Vec<(String, Vec<&str>)> = Vec::new();
    for taste in TASTES {
        let Some(why) = refusal(taste) else { continue };
        match refusals.iter_mut().find(|(known, _)| *known == why) {
            Some((_, who)) => who.push(taste.who),
            None => refusals.push((why, vec![taste.who])),
        }
    }
    refusals
}

impl Taste {
    fn refusal(&self, name: &str) -> Option<String> {
        let is_other = |c: char| !c.is_ascii_alphanumeric() && !self.others.contains(&c);
        if name.is_empty() {
            Some("is empty".to_owned())
        } else if let Some(other) = name.chars().find(|c| is_other(*c)) {
            Some(format!("has the character {other:?}"))
        } else if name.len() > self.chars_max {
            Some(format!("has more than {} characters", self.chars_max))
        } else if !self.is_digit_first && !name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') {
            Some("does not begin with a letter or _".to_owned())
        } else {
            None
        }
    }
}

/// Whether the specification allows the name.
pub(super) fn is_specified(name: &str) -> bool {
    (1..=128).contains(&name.len())
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.'))
}

/// Characters in a text that nobody sees, by their numbers. Lines and tabs are no secret, nor is what scripts and
/// emoji need to be written.
pub(super) fn hidden(text: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    let is_right_to_left = text.chars().any(|c| matches!(c, '\u{590}'..='\u{8ff}' | '\u{fb1d}'..='\u{fefc}'));
    let mut previous = ' ';
    let mut flag_tags = 0;
    for c in text.chars() {
        let is_hidden = match c {
            '\n' | '\r' | '\t' => false,
            // Joins emoji, and letters of some scripts.
            '\u{200d}' | '\u{200c}' => previous.is_ascii(),
            '\u{200e}' | '\u{200f}' | '\u{61c}' => !is_right_to_left,
            // One of these chooses how an ideograph is drawn.
            '\u{e0100}'..='\u{e01ef}' => !is_ideograph(previous),
            // A few of these make a flag of a region.
            '\u{e0020}'..='\u{e007f}' if flag_tags > 0 => false,
            c => {
                c.is_control()
                    || matches!(c, '\u{ad}' | '\u{115f}' | '\u{1160}' | '\u{180e}' | '\u{200b}' | '\u{202a}'..='\u{202e}'
                        | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{feff}' | '\u{ffa0}' | '\u{fff9}'..='\u{fffb}'
                        | '\u{e0000}'..='\u{e0fff}')
            }
        };
        flag_tags = match c {
            '\u{1f3f4}' => FLAG_TAGS_MAX,
            '\u{e0020}'..='\u{e007e}' => flag_tags.saturating_sub(1),
            _ => 0,
        };
        previous = c;
        let number = format!("U+{:04X}", u32::from(c));
        if is_hidden && !found.contains(&number) {
            found.push(number);
            if found.len() == 4 {
                break;
            }
        }
    }
    found
}

fn is_ideograph(c: char) -> bool {
    matches!(c, '\u{3400}'..='\u{9fff}' | '\u{f900}'..='\u{faff}' | '\u{20000}'..='\u{3ffff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_judged_by_each_api() {
        for (name, specified, refused) in [
            ("get_weather", true, None),
            ("a.b", true, Some("has the character '.' (OpenAI, Anthropic, Bedrock)")),
            ("2fa", true, Some("does not begin with a letter or _ (Gemini)")),
            ("get weather", false, Some("has the character ' ' (OpenAI, Anthropic, Bedrock, Gemini)")),
            ("", false, Some("is empty (OpenAI, Anthropic, Bedrock, Gemini)")),
            ("naïve", false, Some("has the character 'ï' (OpenAI, Anthropic, Bedrock, Gemini)")),
        ] {
            assert_eq!(is_specified(name), specified, "{name}");
            assert_eq!(refused_by(name).as_deref(), refused, "{name}");
        }
        assert!(refused_by(&"x".repeat(48)).is_none() && is_specified(&"x".repeat(128)));
        let refusal = refused_by(&"x".repeat(64));
        let expected = "has more than 64 characters with `mcp__trunkline__` before it (OpenAI, Bedrock)";
        assert_eq!(refusal.as_deref(), Some(expected));
        let refusal = refused_by(&"x".repeat(65));
        assert_eq!(refusal.as_deref(), Some("has more than 64 characters (OpenAI, Bedrock)"));
        assert!(!is_specified(&"x".repeat(129)));
    }

    #[test]
    fn hidden_characters_are_found_and_emoji_are_not() {
        for (text, expected) in [
            ("plain\n\ttext – 天気 👍🏽", vec![]),
            ("👩\u{200d}👩", vec![]),
            ("a\u{200d}b", vec!["U+200D"]),
            ("a\u{200b}b\u{202e}\u{200b}", vec!["U+200B", "U+202E"]),
            ("🏴\u{e0067}\u{e0062}\u{e0065}\u{e006e}\u{e0067}\u{e007f} x", vec![]),
            ("🏴\u{e0069}\u{e0067}\u{e006e}\u{e006f}\u{e0072}\u{e0065}\u{e0020}\u{e0061}", vec!["U+E0061"]),
            ("葛\u{e0100}城", vec![]),
            ("a\u{e0101}\u{e0102}", vec!["U+E0101", "U+E0102"]),
            ("שלום\u{200f}!", vec![]),
            ("a\u{200f}b", vec!["U+200F"]),
            ("a\u{3164}b", vec!["U+3164"]),
            ("\u{1b}[31m", vec!["U+001B"]),
            ("\u{e0041}", vec!["U+E0041"]),
            ("\u{feff}x", vec!["U+FEFF"]),
        ] {
            assert_eq!(hidden(text), expected, "{text:?}");
        }
    }
}
