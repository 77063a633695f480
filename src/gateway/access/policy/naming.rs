//! How the names of an endpoint's upstreams are spelled there, as its configuration says. What the upstreams offer is
//! not known here.

use config::{EndpointConfig, Names};
use protocol::route::filter::NameFilter;
use protocol::route::{MemberAlias, Naming, Style};

/// `prefixes` are those of the endpoint's upstreams, in configured order.
pub(crate) fn naming(endpoint: &EndpointConfig, prefixes: &[String]) -> Result<Naming, globset::Error> {
    let aliases = endpoint.aliases.iter().filter_map(|alias| {
        let member = endpoint.upstreams.iter().position(|name| *name == alias.upstream)?;
        Some(MemberAlias { public: alias.public.clone(), member, inner: alias.inner.clone() })
    });
    let style = match endpoint.names {
        Names::Transparent => Style::Transparent,
        Names::Prefixed => Style::Prefixed,
        Names::Bare => Style::Bare,
    };
    let filter = NameFilter::new(&endpoint.allow, &endpoint.deny)?;
    Ok(Naming::new(style, endpoint.accept_unprefixed, prefixes, &aliases.collect::<Vec<_>>(), filter))
}
