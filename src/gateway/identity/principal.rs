//! A principal: who makes a call, whatever key, token or connection it uses.

use std::sync::Arc;

/// Who makes a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Principal {
    /// The endpoint asks for no credentials.
    Anonymous,
    /// Somebody whose credentials were checked.
    Known(Arc<VerifiedIdentity>),
}

/// What checked credentials say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VerifiedIdentity {
    /// What sessions, limits and queues are bound to: the same for every key, token and connection of the principal, and
    /// for no other, such as `key:ci`.
    pub id: Box<str>,
    /// The name for logs and rules.
    pub name: Box<str>,
    /// The groups it is in.
    pub groups: Vec<Box<str>>,
    /// The scopes it was granted.
    pub scopes: Vec<Box<str>>,
    /// What else its token says: claims with text, number or truth values, each as text; of an array one each.
    pub claims: Vec<(Box<str>, Box<str>)>,
    /// The scopes that another sign-in would grant. `None`: another server decides that.
    pub obtainable: Option<Vec<Box<str>>>,
    /// When its credentials end, in seconds since 1970.
    pub expires_s: Option<u64>,
}

impl Principal {
    /// The holder of the API key `name`.
    pub fn api_key(name: &str) -> Self {
        let id = format!("key:{name}").into();
        Self::Known(Arc::new(VerifiedIdentity { id, name: name.into(), ..VerifiedIdentity::default() }))
    }

    /// What it is bound to; empty for nobody.
    pub fn id(&self) -> &str {
        match self {
            Self::Anonymous => "",
            Self::Known(identity) => &identity.id,
        }
    }

    /// True if it was granted this scope.
    pub fn has_scope(&self, scope: &str) -> bool {
        matches!(self, Self::Known(identity) if identity.scopes.iter().any(|granted| **granted == *scope))
    }

    /// The scopes to ask for where all of these are needed. `None`: no visit to an authorization server would grant them.
    pub fn step_up_to_all(&self, scopes: &[String]) -> Option<Arc<str>> {
        let needed = scopes.iter().map(String::as_str);
        let may_have = |scope: &str| self.has_scope(scope) || self.may_get(scope);
        needed.clone().all(may_have).then(|| self.asked(needed))
    }

    /// The scopes to ask for where one of these is enough, with blanks between: those that a visit would grant.
    pub fn step_up_to_one(&self, scopes: &str) -> Option<Arc<str>> {
        let helpful: Vec<&str> = scopes.split(' ').filter(|scope| self.may_get(scope)).collect();
        (!helpful.is_empty()).then(|| self.asked(helpful.into_iter()))
    }

    /// True if it may be granted this scope for the asking: only tokens come from an authorization server, and of our own it is
    /// known which it would grant.
    fn may_get(&self, scope: &str) -> bool {
        let Self::Known(identity) = self else { return false };
        let obtainable = identity.obtainable.as_ref();
        identity.id.starts_with("jwt:")
            && obtainable.is_none_or(|obtainable| obtainable.iter().any(|one| **one == *scope))
    }

    /// These scopes, and those that our own sign-in granted already: clients lose what they do not ask for again.
    fn asked<'s>(&'s self, scopes: impl Iterator<Item = &'s str>) -> Arc<str> {
        let granted = match self {
            Self::Known(identity) if identity.obtainable.is_some() => identity.scopes.as_slice(),
            _ => &[],
        };
        let further = scopes.filter(|scope| !granted.iter().any(|one| **one == **scope));
        granted.iter().map(|scope| &**scope).chain(further).collect::<Vec<_>>().join(" ").into()
    }

    /// True if the certificate of its connection named it.
    pub fn is_by_certificate(&self) -> bool {
        self.id().starts_with("cert:")
    }

    /// The name for logs.
    pub fn name(&self) -> &str {
        match self {
            Self::Anonymous => "-",
            Self::Known(identity) => &identity.name,
        }
    }
}
