//! Who makes a call at an endpoint, and what follows from it there. Made once for a credential on a connection.

use std::sync::Arc;
use std::time::Instant;

use crate::access::policy::Class;
use crate::identity::Principal;

#[derive(Debug)]
pub(crate) struct Caller {
    pub principal: Principal,
    pub class: Arc<Class>,
    /// When its credentials end: what it holds open ends with them.
    pub ends: Option<Instant>,
}
