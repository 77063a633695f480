//! Calls that say in their arguments what the server does meanwhile, so that both sides know what must come of them.
//!
//! A call has a tag of its own. Every question carries it and a number, every answer carries its question, and the
//! result carries all answers in order: whatever crosses shows where it came from.

use std::fmt;

use serde_json::{Value, json};

/// The member of `_meta` by which a question is known.
const QUESTION: &str = "test/question";
/// What stands for the answer to a question that the client could not be asked.
pub(crate) const REFUSED: &str = "refused";

/// What a client is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Elicitation,
    Sampling,
    Roots,
}

/// A step of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Act {
    /// Ask all of this at once, and wait for all answers.
    Ask(Vec<Kind>),
    /// The same, by a legacy server on the stream of the session.
    AskBeside(Vec<Kind>),
    /// Let the client come again without an answer; only a modern server can.
    Again,
    /// A log line.
    Log,
    /// A notice of progress.
    Progress,
}

/// What a call says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Script {
    pub(crate) tag: String,
    pub(crate) acts: Vec<Act>,
}

impl Kind {
    pub(crate) const ALL: [Self; 3] = [Self::Elicitation, Self::Sampling, Self::Roots];

    /// The capability that a client declares who can be asked so.
    pub(crate) fn capability(self) -> &'static str {
        match self {
            Self::Elicitation => "elicitation",
            Self::Sampling => "sampling",
            Self::Roots => "roots",
        }
    }

    fn method(self) -> &'static str {
        match self {
            Self::Elicitation => "elicitation/create",
            Self::Sampling => "sampling/createMessage",
            Self::Roots => "roots/list",
        }
    }

    /// The question of this number in the call of this tag: a request without its id.
    pub(crate) fn question(self, tag: &str, number: usize) -> Value {
        let question = format!("{tag}/{number}");
        let mut params = match self {
            Self::Elicitation => json!({
                "message": question,
                "requestedSchema": {"type": "object", "properties": {"said": {"type": "string"}}},
            }),
            Self::Sampling => json!({
                "messages": [{"role": "user", "content": {"type": "text", "text": question}}],
                "maxTokens": 9,
            }),
            Self::Roots => json!({}),
        };
        params["_meta"] = json!({ QUESTION: question });
        json!({"method": self.method(), "params": params})
    }
}

impl fmt::Display for Act {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (word, kinds) = match self {
            Self::Ask(kinds) => ("ask", kinds.as_slice()),
            Self::AskBeside(kinds) => ("beside", kinds.as_slice()),
            Self::Again => ("again", [].as_slice()),
            Self::Log => ("log", [].as_slice()),
            Self::Progress => ("progress", [].as_slice()),
        };
        f.write_str(word)?;
        kinds.iter().try_for_each(|kind| write!(f, " {}", kind.capability()))
    }
}

impl Act {
    fn of(words: &str) -> Self {
        let (word, kinds) = words.split_once(' ').unwrap_or((words, ""));
        let kind = |name: &str| Kind::ALL.into_iter().find(|kind| kind.capability() == name);
        let kinds = kinds.split(' ').filter_map(kind).collect();
        match word {
            "ask" => Self::Ask(kinds),
            "beside" => Self::AskBeside(kinds),
            "again" => Self::Again,
            "log" => Self::Log,
            "progress" => Self::Progress,
            _ => panic!("no such step: {words}"),
        }
    }

    /// What is asked in it.
    pub(crate) fn kinds(&self) -> &[Kind] {
        match self {
            Self::Ask(kinds) | Self::AskBeside(kinds) => kinds,
            Self::Again | Self::Log | Self::Progress => &[],
        }
    }
}

impl Script {
    pub(crate) fn new(tag: &str, acts: &[Act]) -> Self {
        Self { tag: tag.into(), acts: acts.into() }
    }

    /// A call in which this is asked, one after another.
    pub(crate) fn asking(tag: &str, kinds: &[Kind]) -> Self {
        Self { tag: tag.into(), acts: kinds.iter().map(|kind| Act::Ask(vec![*kind])).collect() }
    }

    /// As it stands in `arguments`.
    pub(crate) fn arguments(&self) -> Value {
        let acts: Vec<String> = self.acts.iter().map(ToString::to_string).collect();
        json!({"tag": self.tag, "script": acts})
    }

    /// What `arguments` say.
    pub(crate) fn of(arguments: &Value) -> Option<Self> {
        let acts = arguments["script"].as_array()?.iter();
        let acts = acts.map(|act| act.as_str().map(Act::of)).collect::<Option<_>>()?;
        Some(Self { tag: arguments["tag"].as_str()?.into(), acts })
    }

    /// The text of the result once all this was said.
    pub(crate) fn text(&self, said: &[String]) -> String {
        [std::slice::from_ref(&self.tag), said].concat().join(" ")
    }

    /// The text of the result where `who` answers, who can be asked only what `can` holds for.
    pub(crate) fn expected(&self, who: &str, can: impl Fn(Kind) -> bool) -> String {
        let kinds = self.acts.iter().flat_map(Act::kinds).enumerate();
        let said =
            kinds.map(
                |(number, kind)| {
                    if can(*kind) { format!("{}/{number}/{who}", self.tag) } else { REFUSED.into() }
                },
            );
        self.text(&said.collect::<Vec<_>>())
    }
}

/// Which question this is, of which call: `TAG/NUMBER`.
pub(crate) fn question_of(request: &Value) -> &str {
    request["params"]["_meta"][QUESTION].as_str().unwrap_or_else(|| panic!("whose question is {request}?"))
}

/// The answer of `who` to a question.
pub(crate) fn answer(request: &Value, who: &str) -> Value {
    let said = format!("{}/{who}", question_of(request));
    match request["method"].as_str() {
        Some("elicitation/create") => json!({"action": "accept", "content": {"said": said}}),
        Some("sampling/createMessage") => {
            json!({"role": "assistant", "content": {"type": "text", "text": said}, "model": "m"})
        }
        Some("roots/list") => json!({"roots": [{"uri": format!("file:///{said}")}]}),
        _ => panic!("nobody asks {request}"),
    }
}

/// What an answer says.
pub(crate) fn said(result: &Value) -> String {
    let texts = [&result["content"]["said"], &result["content"]["text"], &result["action"]];
    let text = texts.into_iter().find_map(Value::as_str);
    let root = || result["roots"][0]["uri"].as_str()?.strip_prefix("file:///");
    text.or_else(root).unwrap_or(REFUSED).to_owned()
}
