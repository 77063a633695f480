//! Text → [`File`], with an error for each key that does not fit.
//!
//! serde stops at the first error, so every key of every table is first tried alone, against the same type that then
//! reads the whole. A key that fails is taken out: what is left always deserialises. Of what is in it, each key of a table
//! and each element of an array is tried alone again, and all that fail are reported.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::ops::Range;

use serde::de::value::Error as Introspected;
use serde::de::{Deserialize, DeserializeOwned, Deserializer, Error as _, IntoDeserializer, Visitor};
use serde::forward_to_deserialize_any;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::admin::{WrittenAdmin, WrittenReload};
use super::credentials::looks_secret;
use super::error::{ConfigError, nearest};
use super::file::{ApiKey, Drain, Endpoint, File, Limits, Listener, Session, Upstream};
use super::identity::{ClientCertificateFile, JwtFile};
use super::log::WrittenLog;
use super::metrics::WrittenMetrics;
use super::policy::RuleFile;
use super::rate::WrittenLimit;
use super::shared::WrittenShared;
use super::trace::WrittenTrace;

/// What was read, and what was wrong on the way.
#[derive(Debug)]
pub(super) struct Document {
    /// What fits.
    pub(super) file: File,
    /// What does not.
    pub(super) errors: Vec<ConfigError>,
    /// Tables from which a key was taken out: nobody should say of them that a key is missing.
    pub(super) damaged: Damaged,
}

/// Tables that lost a key, by where they stand in the text.
#[derive(Debug, Default)]
pub(super) struct Damaged {
    root: bool,
    tables: BTreeSet<(usize, usize)>,
}

impl Damaged {
    /// Whether a key of the top level was taken out.
    pub(super) fn root(&self) -> bool {
        self.root
    }

    /// Whether a key of the table at `span` was taken out.
    pub(super) fn table(&self, span: &Range<usize>) -> bool {
        self.tables.contains(&(span.start, span.end))
    }
}

/// Syntax errors that are reported.
const SYNTAX_ERRORS_MAX: usize = 3;

/// Reads `text`. Of text that is not TOML the first syntax errors are reported, and nothing else is looked at.
pub(super) fn read(text: &str) -> Result<Document, Vec<ConfigError>> {
    let (root, syntax_errors) = DeTable::parse_recoverable(text);
    if !syntax_errors.is_empty() {
        return Err(first_syntax_errors(text, syntax_errors.iter().map(not_toml)));
    }

    let root_span = root.span();
    let mut root = root.into_inner();
    let mut reader = Reader { errors: Vec::new(), damaged: Damaged::default() };
    make_listener_an_array(&mut root);
    reader.take_out_bad_keys(&mut root);
    let file = match File::deserialize(Spanned::new(root_span, DeValue::Table(root)).into_deserializer()) {
        Ok(file) => file,
        Err(error) => {
            reader.errors.push(ConfigError::new(error.span().unwrap_or_default(), error.message()));
            return Err(reader.errors);
        }
    };
    Ok(Document { file, errors: reader.errors, damaged: reader.damaged })
}

fn not_toml(error: &toml::de::Error) -> ConfigError {
    ConfigError::new(error.span().unwrap_or_default(), format!("not TOML: {}", error.message()))
}

/// The first error of each line. What follows is mostly its echo, and so is all that follows an unclosed bracket.
fn first_syntax_errors(text: &str, errors: impl Iterator<Item = ConfigError>) -> Vec<ConfigError> {
    let line_of =
        |error: &ConfigError| text.get(..error.span.start).map(|before| before.matches('\n').count());
    let mut lines = BTreeSet::new();
    errors.filter(|error| lines.insert(line_of(error))).take(SYNTAX_ERRORS_MAX).collect()
}

/// `[listener]` is `[[listener]]` with one element.
fn make_listener_an_array(root: &mut DeTable<'_>) {
    if let Some(listener) = root.get_mut("listener")
        && listener.get_ref().is_table()
    {
        let table = listener.clone();
        *listener.get_mut() = DeValue::Array([table].into_iter().collect());
    }
}

struct Reader {
    errors: Vec<ConfigError>,
    damaged: Damaged,
}

impl Reader {
    /// From the inside out, so that a table is tried when its own keys are in order.
    fn take_out_bad_keys(&mut self, root: &mut DeTable<'_>) {
        let mut bad = Vec::new();
        for (key, value) in root.iter_mut() {
            let is_shaped = match key.get_ref().as_ref() {
                "listener" => self.array::<Listener>(value, "[listener]"),
                "admin" => self.table::<WrittenAdmin>(value, "[admin]"),
                "metrics" => self.table::<WrittenMetrics>(value, "[metrics]"),
                "trace" => self.table::<WrittenTrace>(value, "[trace]"),
                "reload" => self.table::<WrittenReload>(value, "[reload]"),
                "limits" => self.table::<Limits>(value, "[limits]"),
                "drain" => self.table::<Drain>(value, "[drain]"),
                "session" => self.table::<Session>(value, "[session]"),
                "log" => self.table::<WrittenLog>(value, "[log]"),
                "shared" => self.table::<WrittenShared>(value, "[shared]"),
                "limit" => self.array::<WrittenLimit>(value, "[[limit]]"),
                "api_key" => self.array::<ApiKey>(value, "[[api_key]]"),
                "jwt" => self.array::<JwtFile>(value, "[[jwt]]"),
                "client_certificate" => self.table::<ClientCertificateFile>(value, "[client_certificate]"),
                "rule" => self.array::<RuleFile>(value, "[[rule]]"),
                "endpoint" => self.array::<Endpoint>(value, "[[endpoint]]"),
                "upstream" => self.upstreams(value),
                _ => true,
            };
            if !is_shaped {
                bad.push(key.get_ref().to_string());
            }
        }
        for key in &bad {
            root.remove(key.as_str());
        }
        let some_do_not_fit = self.keys::<File>(root, "");
        self.damaged.root = some_do_not_fit || !bad.is_empty();
    }

    /// Whether `value` is an array of tables.
    fn array<T: DeserializeOwned>(&mut self, value: &mut Spanned<DeValue<'_>>, place: &str) -> bool {
        let span = value.span();
        let DeValue::Array(elements) = value.get_mut() else { return self.is_not(span, place) };
        let mut all_are_tables = true;
        for element in elements.iter_mut() {
            all_are_tables &= self.table::<T>(element, place);
        }
        all_are_tables
    }

    /// Whether `value` is a table of tables.
    fn upstreams(&mut self, value: &mut Spanned<DeValue<'_>>) -> bool {
        let span = value.span();
        let DeValue::Table(upstreams) = value.get_mut() else { return self.is_not(span, "[upstream.NAME]") };
        let mut all_are_tables = true;
        for (name, upstream) in upstreams.iter_mut() {
            all_are_tables &= self.table::<Upstream>(upstream, &format!("[upstream.{}]", name.get_ref()));
        }
        all_are_tables
    }

    /// Whether `value` is a table. Not left to serde, which also reads a struct from an array of its values.
    fn table<T: DeserializeOwned>(&mut self, value: &mut Spanned<DeValue<'_>>, place: &str) -> bool {
        let span = value.span();
        let DeValue::Table(table) = value.get_mut() else { return self.is_not(span, place) };
        if self.keys::<T>(table, place) {
            self.damaged.tables.insert((span.start, span.end));
        }
        true
    }

    fn is_not(&mut self, span: Range<usize>, place: &str) -> bool {
        self.errors.push(ConfigError::new(span, format!("expected {place}, followed by its keys")));
        false
    }

    /// Reports and removes the keys of `table` that `T` does not take. Whether there were any.
    fn keys<T: DeserializeOwned>(&mut self, table: &mut DeTable<'_>, place: &str) -> bool {
        let known = field_names::<T>();
        let errors_before = self.errors.len();
        let mut bad = Vec::new();
        for (key, value) in table.iter() {
            let errors = if known.contains(&key.get_ref().as_ref()) {
                faults::<T>(key, value)
            } else {
                vec![unknown_key(key.get_ref(), key.span(), known, place)]
            };
            if !errors.is_empty() {
                self.errors.extend(errors);
                bad.push(key.get_ref().to_string());
            }
        }
        for key in &bad {
            table.remove(key.as_str());
        }
        self.errors.len() > errors_before
    }
}

/// Everything for which the table `T` with only this key cannot be read.
fn faults<'i, T: DeserializeOwned>(
    key: &Spanned<Cow<'i, str>>,
    value: &Spanned<DeValue<'i>>,
) -> Vec<ConfigError> {
    let read = |value: &Spanned<DeValue<'i>>| {
        let alone: DeTable<'i> = [(key.clone(), value.clone())].into_iter().collect();
        T::deserialize(Spanned::new(value.span(), DeValue::Table(alone)).into_deserializer()).err()
    };
    let mut faults = Vec::new();
    find_faults(&read, value, key.get_ref(), &mut faults);
    if MAY_HOLD_SECRETS.contains(&key.get_ref().as_ref()) {
        faults = faults.into_iter().map(ConfigError::secret).collect();
    }
    faults
}

/// Why `value` cannot be read, and each part of it that can be tried alone. `read` reads another value in its place.
fn find_faults<'i>(
    read: &dyn Fn(&Spanned<DeValue<'i>>) -> Option<toml::de::Error>,
    value: &Spanned<DeValue<'i>>,
    path: &str,
    faults: &mut Vec<ConfigError>,
) {
    let Some(error) = read(value) else { return };
    let faults_before = faults.len();
    let read_instead = |value_instead| read(&Spanned::new(value.span(), value_instead));
    let table_of = |entries: Option<(Spanned<Cow<'i, str>>, Spanned<DeValue<'i>>)>| {
        DeValue::Table(entries.into_iter().collect())
    };
    let array_of = |element: Option<Spanned<DeValue<'i>>>| DeValue::Array(element.into_iter().collect());
    match value.get_ref() {
        // Where nothing has to stand, each key can stand alone.
        DeValue::Table(table) if read_instead(table_of(None)).is_none() => {
            for (key, inner) in table {
                let read_inner =
                    |inner: &Spanned<DeValue<'i>>| read_instead(table_of(Some((key.clone(), inner.clone()))));
                let unknown = read_inner(inner).and_then(|error| unknown_nested_key(key, &error, path));
                match unknown {
                    Some(unknown) => faults.push(unknown),
                    None => find_faults(&read_inner, inner, &format!("{path}.{}", key.get_ref()), faults),
                }
            }
        }
        DeValue::Array(array) if read_instead(array_of(None)).is_none() => {
            for inner in array {
                let read_inner = |inner: &Spanned<DeValue<'i>>| read_instead(array_of(Some(inner.clone())));
                find_faults(&read_inner, inner, path, faults);
            }
        }
        _ => {}
    }
    if faults.len() == faults_before {
        let message = without_value(path, &in_toml_terms(error.message()));
        faults.push(ConfigError::new(
            error.span().unwrap_or_else(|| value.span()),
            format!("`{path}`: {message}"),
        ));
    }
}

/// The error of a key that its table does not know, if it is that.
fn unknown_nested_key(
    key: &Spanned<Cow<'_, str>>,
    error: &toml::de::Error,
    path: &str,
) -> Option<ConfigError> {
    let name = key.get_ref();
    let expected = error.message().strip_prefix(&format!("unknown field `{name}`, expected "))?;
    let known: Vec<&str> = expected.split('`').skip(1).step_by(2).collect();
    Some(unknown_key(name, key.span(), &known, &format!("`{path}`")))
}

/// Keys under which somebody may have written a secret.
const MAY_HOLD_SECRETS: [&str; 9] =
    ["basic", "bearer", "env", "forward_headers", "headers", "key", "oauth", "password", "tls"];

/// serde says what it found and what it expected: only the latter, where the former may be a secret.
fn without_value(path: &str, message: &str) -> String {
    let key = path.split('.').next().unwrap_or(path);
    if !MAY_HOLD_SECRETS.contains(&key) {
        return message.to_owned();
    }
    match message.rsplit_once(", expected ") {
        Some((found, expected)) if found.starts_with("invalid ") => format!("expected {expected}"),
        _ => message.to_owned(),
    }
}

/// serde and the TOML reader speak of what they implement; the operator wrote TOML.
fn in_toml_terms(message: &str) -> String {
    let terms = [
        ("wanted string or table", "expected a string"),
        ("invalid type: map", "invalid type: table"),
        ("invalid type: sequence", "invalid type: array"),
        ("expected a map", "expected a table"),
        ("expected a sequence", "expected an array"),
    ];
    terms.iter().fold(message.to_owned(), |message, (theirs, ours)| message.replace(theirs, ours))
}

fn unknown_key(name: &str, span: Range<usize>, known: &[&str], place: &str) -> ConfigError {
    let message = match place {
        "" => format!("unknown key `{name}`"),
        place => format!("unknown key `{name}` in {place}"),
    };
    let suggestion = nearest(name, known.iter().copied())
        .unwrap_or_else(|| format!("the keys here are: {}", known.join(", ")));
    let error = ConfigError::new(span, message).suggest(Some(suggestion));
    if looks_secret(name) { error.secret() } else { error }
}

/// The keys that the struct `T` takes, as serde's derive names them.
fn field_names<T: DeserializeOwned>() -> &'static [&'static str] {
    let mut names: &'static [&'static str] = &[];
    // The deserialiser has no value to give, only ears for the question.
    let _: Result<T, Introspected> = T::deserialize(FieldNames(&mut names));
    names
}

struct FieldNames<'a>(&'a mut &'static [&'static str]);

impl<'de> Deserializer<'de> for FieldNames<'_> {
    type Error = Introspected;

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        _: V,
    ) -> Result<V::Value, Introspected> {
        *self.0 = fields;
        Err(Introspected::custom("only the names"))
    }

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Introspected> {
        Err(Introspected::custom("only the names"))
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit
        unit_struct newtype_struct seq tuple tuple_struct map enum identifier ignored_any
    }
}
