//! What operators show at the admin listener, and scrapers at that of metrics: one token each, where there is one.

use http::HeaderValue;

use config::{Admin, ListenAddress, MetricsConfig};
use net::secret::{Secret, SecretError};

#[derive(Clone, Debug, Default)]
pub(crate) struct Operators {
    place: Option<ListenAddress>,
    token: Option<Secret>,
}

impl Operators {
    /// Reads the token. While the place is another than that of `old`, where the listener is, the old token stays:
    /// what would do at the new place may be too little at the old one.
    pub(crate) fn read(admin: Option<&Admin>, old: Option<&Self>) -> Result<Self, SecretError> {
        let place = admin.map(|admin| admin.place.clone());
        if let Some(old) = old.filter(|old| old.place != place) {
            return Ok(old.clone());
        }
        let source = admin.and_then(|admin| admin.token.as_ref());
        Ok(Self { place, token: source.map(Secret::read).transpose()? })
    }

    /// Those who may scrape: the listener moves with its token.
    pub(crate) fn of_metrics(metrics: &MetricsConfig) -> Result<Self, SecretError> {
        Ok(Self { place: None, token: metrics.token.as_ref().map(Secret::read).transpose()? })
    }

    /// Whether everybody who reaches the listener may use it.
    pub(crate) fn is_open(&self) -> bool {
        self.token.is_none()
    }

    /// Whether a request with this `Authorization` may be answered. Takes as long whatever differs.
    pub(crate) fn admit(&self, authorization: Option<&HeaderValue>) -> bool {
        let Some(token) = &self.token else { return true };
        let shown = authorization.and_then(|value| bearer(value.as_bytes()));
        shown.is_some_and(|shown| Secret::from_bytes(shown.to_vec()) == *token)
    }
}

fn bearer(value: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = value.split_at_checked("Bearer ".len())?;
    scheme.eq_ignore_ascii_case(b"bearer ").then(|| token.trim_ascii())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use config::SecretSource;

    fn admin(port: u16, token: Option<&SecretSource>) -> Admin {
        let place = ListenAddress::Address(([127, 0, 0, 1], port).into());
        Admin { place, token: token.cloned(), ready: config::ReadyWhen::Serving }
    }

    #[test]
    fn only_the_token_opens() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("token");
        fs::write(&path, "swordfish\n").expect("written");
        let source = SecretSource::File(path.clone());
        let operators = Operators::read(Some(&admin(1, Some(&source))), None).expect("read");
        let cases = [
            (Some("Bearer swordfish"), true),
            (Some("bearer swordfish"), true),
            (Some("Bearer  swordfish "), true),
            (Some("Bearer swordfis"), false),
            (Some("Bearer swordfishes"), false),
            (Some("Bearer "), false),
            (Some("Basic swordfish"), false),
            (Some("swordfish"), false),
            (Some(""), false),
            (None, false),
        ];
        for (shown, expected) in cases {
            let value = shown.map(HeaderValue::from_static);
            assert_eq!(operators.admit(value.as_ref()), expected, "{shown:?}");
        }
        fs::write(&path, "marlin\n").expect("written");
        let reread = Operators::read(Some(&admin(1, Some(&source))), Some(&operators)).expect("read");
        assert!(reread.admit(Some(&HeaderValue::from_static("Bearer marlin"))));
    }

    #[test]
    fn a_listener_that_is_to_move_keeps_its_token() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("token");
        fs::write(&path, "swordfish").expect("written");
        let source = SecretSource::File(path);
        let old = Operators::read(Some(&admin(1, Some(&source))), None).expect("read");
        for new in [None, Some(admin(2, None))] {
            let new = Operators::read(new.as_ref(), Some(&old)).expect("read");
            assert!(!new.is_open() && !new.admit(None), "{new:?}");
        }
        let new = Operators::read(Some(&admin(1, None)), Some(&old)).expect("read");
        assert!(new.is_open() && new.admit(None));
    }
}
