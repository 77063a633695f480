//! Which endpoint a request is for: by its path, and where several share the path, by the host that it names.
//!
//! A path that one endpoint has costs one look-up, and the host is not looked at.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::Endpoint;
use protocol::error::{ClientError, Error, PolicyError};

#[derive(Debug)]
pub(super) struct RoutingTable {
    /// Indexes of the endpoints at each path.
    by_path: BTreeMap<Box<[u8]>, Box<[usize]>>,
    by_name: HashMap<Box<str>, usize>,
}

impl RoutingTable {
    pub(super) fn new(endpoints: &[Arc<Endpoint>]) -> Self {
        let mut by_path: BTreeMap<Box<[u8]>, Vec<usize>> = BTreeMap::new();
        let mut by_name = HashMap::new();
        for (index, endpoint) in endpoints.iter().enumerate() {
            by_path.entry(endpoint.config.path.as_bytes().into()).or_default().push(index);
            by_name.insert(endpoint.config.name.as_str().into(), index);
        }
        let by_path = by_path.into_iter().map(|(path, indexes)| (path, indexes.into_boxed_slice()));
        Self { by_path: by_path.collect(), by_name }
    }

    /// The endpoint at `path`. `host`: the one that the request names.
    pub(super) fn find<'h>(
        &self,
        endpoints: &[Arc<Endpoint>],
        path: &[u8],
        host: impl FnOnce() -> Result<&'h str, ClientError>,
    ) -> Result<Option<usize>, Error> {
        match self.by_path.get(path).map(|indexes| &**indexes) {
            // No path is configured with a final slash, and clients that are given one may add it.
            None => match path.strip_suffix(b"/") {
                Some(shorter) if !path.ends_with(b"//") && self.by_path.contains_key(shorter) => {
                    self.find(endpoints, shorter, host)
                }
                _ => Ok(None),
            },
            Some([only]) => Ok(Some(*only)),
            Some(several) => {
                let fitting = best_for(endpoints, several, host()?);
                fitting.map(Some).ok_or_else(|| PolicyError::Host.into())
            }
        }
    }

    pub(super) fn named(&self, name: &str) -> Option<usize> {
        self.by_name.get(name).copied()
    }
}

/// Which of these endpoints is for `host`, if one is.
pub(super) fn best_for(endpoints: &[Arc<Endpoint>], indexes: &[usize], host: &str) -> Option<usize> {
    let fit = |index: &usize| endpoints.get(*index).and_then(|endpoint| endpoint.doors.fit(host));
    // The first of those that fit alike.
    let best = indexes.iter().rev().filter(|index| fit(index).is_some()).max_by_key(|index| fit(index));
    best.copied()
}
