//! Lists of upstreams as they were fetched, and of endpoints as clients get them.

pub mod cache;
pub mod dialect;
pub mod flight;
pub mod kind;
pub mod part;

pub use self::cache::Catalog;
pub use self::dialect::Dialect;
pub use self::kind::{CatalogQuery, List};
