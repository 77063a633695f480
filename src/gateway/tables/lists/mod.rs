//! Lists of upstreams as they were fetched, and of endpoints as clients get them.

pub(crate) mod cache;
pub(crate) mod dialect;
pub(crate) mod digest;
pub(crate) mod failing;
pub(crate) mod kept;
pub(crate) mod kind;
pub(crate) mod part;

pub(crate) use self::cache::Catalog;
pub(crate) use self::dialect::{Dialect, DialectKey};
pub(crate) use self::kind::{CatalogQuery, List};
