//! Names: what a client calls things, what their upstream calls them, and which upstream that is.
//!
//! Pure. A route is found from the decoded public name alone, so a call can be refused before its body
//! arrives. Aggregating endpoints put `upstream__` before names of tools and prompts and `upstream+` before
//! URIs and task ids; `ui://x` becomes `ui://upstream+x` because hosts refuse any other form, and `http:`
//! and `https:` URIs keep their spelling and are routed by who lists them.
//!
//! Invariant: `route(public_name(member, inner))` leads back to `(member, inner)` wherever the public name
//! is not shadowed by an alias or, in bare mode, by an upstream earlier in order.

pub mod directory;
pub mod filter;
pub mod spelling;
pub mod template;

use std::borrow::Cow;
use std::collections::HashMap;

use directory::{Directory, Offer};
use filter::NameFilter;
use spelling::{are_alike, is_odd_name};

/// What stands between an upstream's prefix and a tool's or prompt's name.
const NAME_SEPARATOR: &str = "__";
/// What stands between an upstream's prefix and a URI or task id.
const URI_SEPARATOR: char = '+';

/// How an endpoint names what its upstreams offer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// One upstream, its own names.
    Transparent,
    /// `upstream__name`, `upstream+uri`.
    Prefixed,
    /// Names as the upstreams spell them, the first in order wins; URIs and task ids as in `Prefixed`.
    Bare,
}

crate::words! {
    /// The kinds of things that have names, with the word for error messages.
    pub enum Kind reads of, says word {
        Tool = "tool",
        Prompt = "prompt",
        /// By its URI or URI template.
        Resource = "resource",
        /// By its id, of the tasks extension.
        Task = "task",
    }
}

/// Where a public name leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route<'n> {
    /// Index into the endpoint's upstreams.
    pub member: usize,
    /// The upstream's own spelling; `Borrowed` from the public name where both are the same text's tail.
    pub inner: Cow<'n, str>,
}

/// Why a public name leads nowhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoRoute {
    /// Nothing of that name is offered, or policy hides it.
    Unknown,
    /// Bare names cannot be told apart before every upstream was listed once.
    NotYetLearned,
}

/// Another public name for one tool or prompt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberAlias {
    /// What clients call it.
    pub public: String,
    /// Index into the endpoint's upstreams.
    pub member: usize,
    /// What the upstream calls it.
    pub inner: String,
}

/// The naming rules of one endpoint.
#[derive(Debug)]
pub struct Naming {
    style: Style,
    accept_unprefixed: bool,
    prefixes: Vec<Box<str>>,
    by_prefix: HashMap<Box<str>, usize>,
    aliases: HashMap<Box<str>, (usize, Box<str>)>,
    alias_of: HashMap<(usize, Box<str>), Box<str>>,
    filter: NameFilter,
}

impl Naming {
    /// `prefixes` are those of the endpoint's upstreams in configured order, each unique.
    pub fn new(
        style: Style,
        accept_unprefixed: bool,
        prefixes: &[String],
        aliases: &[MemberAlias],
        filter: NameFilter,
    ) -> Self {
        Self {
            style,
            accept_unprefixed,
            prefixes: prefixes.iter().map(|prefix| prefix.as_str().into()).collect(),
            by_prefix: prefixes.iter().enumerate().map(|(i, prefix)| (prefix.as_str().into(), i)).collect(),
            aliases: aliases
                .iter()
                .map(|alias| (alias.public.as_str().into(), (alias.member, alias.inner.as_str().into())))
                .collect(),
            alias_of: aliases
                .iter()
                .rev()
                .map(|alias| ((alias.member, alias.inner.as_str().into()), alias.public.as_str().into()))
                .collect(),
            filter,
        }
    }

    /// The endpoint's style.
    pub fn style(&self) -> Style {
        self.style
    }

    /// True if replies and lists cross exactly as the one upstream wrote them.
    pub fn is_untouched(&self) -> bool {
        self.style == Style::Transparent && self.filter.allows_everything() && self.aliases.is_empty()
    }

    /// True if some names are denied.
    pub fn denies_names(&self) -> bool {
        self.filter.denies_some()
    }

    /// True if policy hides nothing.
    pub fn hides_nothing(&self) -> bool {
        self.filter.allows_everything()
    }

    /// True if routing needs to know what the upstreams offer.
    pub fn needs_directory(&self) -> bool {
        self.style != Style::Transparent
    }

    fn takes_bare_names(&self) -> bool {
        self.accept_unprefixed || self.style == Style::Bare
    }

    /// Finds the upstream for a public name, and what it calls the thing.
    pub fn route<'n>(
        &self,
        kind: Kind,
        public: &'n str,
        directory: &Directory,
    ) -> Result<Route<'n>, NoRoute> {
        let route = match kind {
            Kind::Tool | Kind::Prompt => self.route_name(kind, public, directory)?,
            Kind::Resource => self.route_uri(public, directory)?,
            Kind::Task => self.route_task(public)?,
        };
        if kind == Kind::Task || self.filter.allows_everything() {
            return Ok(route);
        }
        if self.may_be_read_otherwise(kind, &route)
            && directory.index(kind, route.member, &route.inner).is_none()
        {
            return Err(if directory.is_settled() { NoRoute::Unknown } else { NoRoute::NotYetLearned });
        }
        if !self.shows(kind, route.member, &route.inner) || self.filter.denies(kind, public) {
            return Err(NoRoute::Unknown);
        }
        Ok(route)
    }

    /// Whether policy shows a thing of `member`, by its upstream's name for it.
    pub fn shows(&self, kind: Kind, member: usize, inner: &str) -> bool {
        if self.filter.allows_everything() {
            return true;
        }
        let is_judged = kind != Kind::Resource || !is_disguised(inner);
        let public = self.spell(kind, member, inner);
        is_judged && self.is_visible(kind, member, inner, &public)
    }

    /// Whether a server may take a name for one that is denied. It says itself which such names are its own.
    fn may_be_read_otherwise(&self, kind: Kind, route: &Route<'_>) -> bool {
        matches!(kind, Kind::Tool | Kind::Prompt) && self.filter.denies_some() && is_odd_name(&route.inner)
    }

    /// True if everything is spelled as `before` spelled it: what was found out of names there holds here.
    pub fn spells_as(&self, before: &Self) -> bool {
        (self.style, &self.prefixes, &self.aliases) == (before.style, &before.prefixes, &before.aliases)
    }

    /// What clients call a thing of `member`, or `None` if policy hides it.
    pub fn public<'i>(&self, kind: Kind, member: usize, inner: &'i str) -> Option<Cow<'i, str>> {
        let public = self.spell(kind, member, inner);
        (kind == Kind::Task || self.is_visible(kind, member, inner, &public)).then_some(public)
    }

    /// True unless `public` certainly leads to something else than `inner` of `member`.
    pub fn leads_back(&self, kind: Kind, public: &str, to: (usize, &str), directory: &Directory) -> bool {
        match self.route(kind, public, directory) {
            Ok(route) => (route.member, &*route.inner) == to,
            Err(no_route) => no_route == NoRoute::NotYetLearned,
        }
    }

    /// What clients call a thing of `member`, hidden or not.
    pub fn spell<'i>(&self, kind: Kind, member: usize, inner: &'i str) -> Cow<'i, str> {
        match self.alias(kind, member, inner) {
            Some(alias) => Cow::Owned(alias.to_owned()),
            None => self.canonical(kind, member, inner),
        }
    }

    /// What a thing is called here that has no alias.
    fn canonical<'i>(&self, kind: Kind, member: usize, inner: &'i str) -> Cow<'i, str> {
        match (self.style, kind) {
            (Style::Transparent, _) | (Style::Bare, Kind::Tool | Kind::Prompt) => Cow::Borrowed(inner),
            (Style::Prefixed, Kind::Tool | Kind::Prompt) => {
                Cow::Owned([self.prefix(member), NAME_SEPARATOR, inner].concat())
            }
            (_, Kind::Resource) => self.public_uri(member, inner),
            (_, Kind::Task) => Cow::Owned(format!("{}{URI_SEPARATOR}{inner}", self.prefix(member))),
        }
    }

    fn prefix(&self, member: usize) -> &str {
        self.prefixes.get(member).map(AsRef::as_ref).unwrap_or_default()
    }

    fn alias(&self, kind: Kind, member: usize, inner: &str) -> Option<&str> {
        if self.alias_of.is_empty() || !matches!(kind, Kind::Tool | Kind::Prompt) {
            return None;
        }
        self.alias_of.get(&(member, inner.into())).map(AsRef::as_ref)
    }

    /// Policy sees a thing under every name it has here: denied under one of them, it is hidden; it must be allowed
    /// under its canonical name or an alias, for a bare spelling opens nothing. What denies an alias denies also all that
    /// a server may take for what the alias stands for.
    fn is_visible(&self, kind: Kind, member: usize, inner: &str, used: &str) -> bool {
        if self.filter.allows_everything() {
            return true;
        }
        let names = self.names(kind, member, inner);
        let names: Vec<&str> = names.iter().map(|name| &**name).collect();
        let is_denied = || {
            self.filter.denies(kind, used)
                || self.aliases_of_alike(kind, member, inner).any(|alias| self.filter.denies(kind, alias))
        };
        self.filter.allows(kind, &names) && !(self.filter.denies_some() && is_denied())
    }

    /// The aliases of other spellings of a name, which a server may take for the same. What denies a thing goes by them,
    /// what allows it must not.
    pub fn aliases_of_alike(&self, kind: Kind, member: usize, inner: &str) -> impl Iterator<Item = &str> {
        let has_aliases = matches!(kind, Kind::Tool | Kind::Prompt);
        self.aliases.iter().filter_map(move |(alias, (of, name))| {
            let is_other = has_aliases && *of == member && **name != *inner;
            (is_other && are_alike(name, inner)).then_some(&**alias)
        })
    }

    /// Every name that a thing has here, whether or not it leads to it: the canonical one, aliases, and of web resources
    /// the prefixed one.
    pub fn names<'i>(&'i self, kind: Kind, member: usize, inner: &'i str) -> Vec<Cow<'i, str>> {
        let aliases = self.aliases.iter().filter(|(_, (of, name))| {
            matches!(kind, Kind::Tool | Kind::Prompt) && (*of, &**name) == (member, inner)
        });
        let mut names: Vec<Cow<'_, str>> = aliases.map(|(alias, _)| Cow::Borrowed(&**alias)).collect();
        names.push(self.canonical(kind, member, inner));
        if self.style != Style::Transparent && kind == Kind::Resource && is_web(inner) {
            names.push(Cow::Owned(format!("{}{URI_SEPARATOR}{inner}", self.prefix(member))));
        }
        names
    }

    fn route_name<'n>(
        &self,
        kind: Kind,
        public: &'n str,
        directory: &Directory,
    ) -> Result<Route<'n>, NoRoute> {
        if let Some((member, inner)) = self.aliases.get(public) {
            return Ok(Route { member: *member, inner: Cow::Owned(inner.to_string()) });
        }
        let offer = || directory.offer(kind, public);
        let bare = |offer: Offer| Route { member: offer.first, inner: Cow::Borrowed(public) };
        let prefixed = || {
            // The separator is two of these, and no prefix holds one.
            let (prefix, inner) = public.split_once('_')?;
            let inner = inner.strip_prefix('_')?;
            let member = *self.by_prefix.get(prefix)?;
            (!inner.is_empty()).then_some(Route { member, inner: Cow::Borrowed(inner) })
        };
        match self.style {
            Style::Transparent => Ok(Route { member: 0, inner: Cow::Borrowed(public) }),
            // Before every upstream was listed nobody can say who else offers a bare name.
            Style::Prefixed | Style::Bare if !directory.is_complete() && self.takes_bare_names() => {
                let own = || offer().filter(|offer| self.is_first_in_order(*offer, directory)).map(bare);
                own().or_else(prefixed).ok_or_else(|| {
                    self.unlearned(public.contains(NAME_SEPARATOR), offer().is_some(), directory)
                })
            }
            Style::Prefixed => prefixed()
                .or_else(|| self.accept_unprefixed.then(offer)?.filter(|offer| offer.is_only).map(bare))
                .ok_or(NoRoute::Unknown),
            Style::Bare => offer().map(bare).or_else(prefixed).ok_or(NoRoute::Unknown),
        }
    }

    /// True if a bare name leads there whatever else is offered by those that were not listed yet.
    fn is_first_in_order(&self, offer: Offer, directory: &Directory) -> bool {
        self.style == Style::Bare && (0..offer.first).all(|member| directory.was_listed(member))
    }

    /// The reason for which a name leads nowhere while not every upstream was listed. It waits for those before each was tried, but for
    /// prefixes of nobody, and where they could have what others offer.
    fn unlearned(&self, is_of_nobody: bool, is_offered: bool, directory: &Directory) -> NoRoute {
        let is_decided = directory.is_settled() || (is_of_nobody && self.style == Style::Prefixed);
        if !is_offered && is_decided { NoRoute::Unknown } else { NoRoute::NotYetLearned }
    }

    fn route_uri<'n>(&self, public: &'n str, directory: &Directory) -> Result<Route<'n>, NoRoute> {
        if self.style == Style::Transparent {
            return Ok(Route { member: 0, inner: Cow::Borrowed(public) });
        }
        if let Some(rest) = public.strip_prefix("ui://") {
            if let Some((member, inner)) = self.split_uri(rest) {
                return Ok(Route { member, inner: Cow::Owned(format!("ui://{inner}")) });
            }
        } else if let Some((member, inner)) = self.split_uri(public) {
            return Ok(Route { member, inner: Cow::Borrowed(inner) });
        }
        let is_listed_as_is = is_web(public) || self.takes_bare_names();
        let offer = is_listed_as_is.then(|| directory.offer(Kind::Resource, public)).flatten();
        // One dead upstream does not close the web resources of the others.
        let is_known =
            directory.is_complete() || (is_web(public) && offer.is_some() && directory.is_settled());
        let is_known = is_known || offer.is_some_and(|offer| self.is_first_in_order(offer, directory));
        if is_listed_as_is && !is_known {
            return Err(self.unlearned(false, offer.is_some(), directory));
        }
        match offer {
            Some(offer) if offer.is_only || self.style == Style::Bare || is_web(public) => {
                Ok(Route { member: offer.first, inner: Cow::Borrowed(public) })
            }
            _ => Err(NoRoute::Unknown),
        }
    }

    fn route_task<'n>(&self, public: &'n str) -> Result<Route<'n>, NoRoute> {
        if self.style == Style::Transparent {
            return Ok(Route { member: 0, inner: Cow::Borrowed(public) });
        }
        let (member, inner) = self.split_uri(public).ok_or(NoRoute::Unknown)?;
        Ok(Route { member, inner: Cow::Borrowed(inner) })
    }

    fn split_uri<'u>(&self, public: &'u str) -> Option<(usize, &'u str)> {
        let (prefix, inner) = public.split_once(URI_SEPARATOR)?;
        Some((*self.by_prefix.get(prefix)?, inner))
    }

    fn public_uri<'i>(&self, member: usize, inner: &'i str) -> Cow<'i, str> {
        if self.style == Style::Transparent || is_web(inner) {
            return Cow::Borrowed(inner);
        }
        let prefix = self.prefix(member);
        match inner.strip_prefix("ui://") {
            Some(rest) => Cow::Owned(format!("ui://{prefix}{URI_SEPARATOR}{rest}")),
            None => Cow::Owned(format!("{prefix}{URI_SEPARATOR}{inner}")),
        }
    }
}

/// True for spellings of a URI that a server may read as another one, and that patterns over its text therefore
/// cannot judge: dot segments, percent-encoded characters that need none, a scheme in capitals, characters that
/// readers drop, other ways to write a host.
pub fn is_disguised(uri: &str) -> bool {
    let path = uri.split(['?', '#']).next().unwrap_or_default();
    let has_dots = path.split('/').any(|segment| matches!(segment, "." | ".."));
    let (scheme, rest) = uri.split_once(':').unwrap_or_default();
    has_dots
        || has_needless_escape(uri)
        || uri.contains('\\')
        || uri.contains(char::is_control)
        || uri.trim() != uri
        || scheme.bytes().any(|byte| byte.is_ascii_uppercase())
        || match scheme {
            "file" => {
                !rest.starts_with("///")
                    || path.get(8..).is_some_and(|path| path.contains("//"))
                    || path.get(8..9) == Some("/")
            }
            "http" | "https" => has_other_host(scheme, rest),
            _ => false,
        }
}

/// Escapes of what needs none, of control characters, of an escape, and of no text at all.
fn has_needless_escape(uri: &str) -> bool {
    let hex = |at: usize| uri.get(at..at + 2).and_then(|hex| u8::from_str_radix(hex, 16).ok());
    uri.match_indices('%').any(|(at, _)| {
        hex(at + 1).is_none_or(|byte| {
            let is_plain = byte.is_ascii_alphanumeric() || b"-._~/\\".contains(&byte);
            let is_escape = byte == b'%' && hex(at + 3).is_some();
            // These begin no character of UTF-8, or one that has a shorter form.
            is_plain || is_escape || byte.is_ascii_control() || matches!(byte, 0xc0 | 0xc1 | 0xf5..)
        })
    })
}

/// Whether the host of a web address could be written in another way.
fn has_other_host(scheme: &str, rest: &str) -> bool {
    let Some(rest) = rest.strip_prefix("//") else { return true };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let own_port = if scheme == "http" { ":80" } else { ":443" };
    let host = authority.rsplit_once(':').map_or(authority, |(host, _)| host);
    authority.contains('@')
        || authority.ends_with(own_port)
        || authority.ends_with(':')
        || host.ends_with('.')
        || authority.bytes().any(|byte| byte.is_ascii_uppercase() || byte == b'%')
}

fn is_web(uri: &str) -> bool {
    let starts =
        |scheme: &str| uri.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme));
    starts("http:") || starts("https:")
}

#[cfg(test)]
mod tests;
