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

    /// True if it may be granted these scopes, with blanks between, for the asking: only tokens come from an authorization
    /// server, and of our own it is known which it would grant.
    pub fn may_get(&self, scopes: &str) -> bool {
        let Self::Known(identity) = self else { return false };
        let may_get = |scope: &str| {
            let obtainable = identity.obtainable.as_ref();
            obtainable.is_none_or(|obtainable| obtainable.iter().any(|one| **one == *scope))
        };
        identity.id.starts_with("jwt:")
            && scopes.split(' ').all(|scope| self.has_scope(scope) || may_get(scope))
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
