//! Socket units of systemd that were to open our sockets: a listener whose socket is our own beside such a unit refuses
//! connections while the process restarts.
//!
//! Once a socket unit has failed, systemd starts the service without it, and says so nowhere. Units count that are enabled
//! and start this service. A user's own systemd is not looked at.

use std::collections::BTreeMap;
use std::net::{Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};

use super::inherited_sockets::{is_role, name_of};
use super::service_unit;
use config::ListenAddress;

/// The folders of units. A unit in an earlier folder counts before one of the same name in a later folder.
const UNIT_FOLDERS: [&str; 4] = [
    "/etc/systemd/system",
    "/run/systemd/system",
    "/usr/local/lib/systemd/system",
    "/usr/lib/systemd/system",
];
/// In each of them, the socket units that are enabled.
const ENABLED: &str = "sockets.target.wants";

/// The socket units of the service that this process is.
#[derive(Debug, Default)]
pub(super) struct SocketUnits(Vec<SocketUnit>);

#[derive(Debug)]
struct SocketUnit {
    name: String,
    /// The name under which its sockets are passed.
    passes: String,
    streams: Vec<String>,
}

/// Files as systemd reads them.
trait UnitFiles {
    /// The names in a folder; none where there is no such folder.
    fn names(&self, folder: &Path) -> Vec<String>;
    fn text(&self, file: &Path) -> Option<String>;
}

struct OfSystem;

impl SocketUnits {
    /// Those that are enabled on this machine.
    pub(super) fn of_process() -> Self {
        service_unit::of_process().map(|service| Self::of(&service, &OfSystem)).unwrap_or_default()
    }

    fn of(service: &str, files: &impl UnitFiles) -> Self {
        let enabled = UNIT_FOLDERS.iter().flat_map(|folder| files.names(&Path::new(folder).join(ENABLED)));
        let mut names: Vec<_> = enabled.filter(|name| name.ends_with(".socket")).collect();
        names.sort_unstable();
        names.dedup();
        Self(names.into_iter().filter_map(|name| SocketUnit::of(name, service, files)).collect())
    }

    /// The unit that is for the listener at `place` in the configuration.
    pub(super) fn unit_for(&self, place: usize, address: &ListenAddress) -> Option<&str> {
        self.0.iter().find(|unit| unit.is_for(place, address)).map(|unit| &*unit.name)
    }
}

impl SocketUnit {
    /// `None`: it starts another service, or is masked.
    fn of(name: String, service: &str, files: &impl UnitFiles) -> Option<Self> {
        let text = UNIT_FOLDERS.iter().find_map(|folder| files.text(&Path::new(folder).join(&name)))?;
        let (mut starts, mut passes, mut streams) =
            (name.replace(".socket", ".service"), name.clone(), Vec::new());
        let texts: Vec<String> = std::iter::once(text).chain(drop_ins(&name, files)).collect();
        for (key, value) in texts.iter().flat_map(|text| settings(text)) {
            match key {
                "Service" => value.clone_into(&mut starts),
                "FileDescriptorName" => value.clone_into(&mut passes),
                // An empty one takes back those before it.
                "ListenStream" if value.is_empty() => streams.clear(),
                "ListenStream" => streams.push(value.to_owned()),
                _ => {}
            }
        }
        (starts == service && !streams.is_empty()).then_some(Self { name, passes, streams })
    }

    /// By name, or by address where the name says nothing: as a socket that was passed finds its listener.
    fn is_for(&self, place: usize, address: &ListenAddress) -> bool {
        self.passes == name_of(place)
            || (!is_role(&self.passes) && self.streams.iter().any(|stream| is_at(stream, address)))
    }
}

impl UnitFiles for OfSystem {
    fn names(&self, folder: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
    }

    fn text(&self, file: &Path) -> Option<String> {
        std::fs::read_to_string(file).ok()
    }
}

/// The texts that change a unit, in the order in which they do so.
fn drop_ins(unit: &str, files: &impl UnitFiles) -> Vec<String> {
    let folder = format!("{unit}.d");
    let mut places: BTreeMap<String, PathBuf> = BTreeMap::new();
    for folder in UNIT_FOLDERS.iter().map(|parent| Path::new(parent).join(&folder)) {
        let is_drop_in = |name: &String| Path::new(name).extension().is_some_and(|ending| ending == "conf");
        for name in files.names(&folder).into_iter().filter(is_drop_in) {
            let place = folder.join(&name);
            places.entry(name).or_insert(place);
        }
    }
    places.values().filter_map(|place| files.text(place)).collect()
}

/// The lines of a unit's text that set something, of whatever section.
fn settings(text: &str) -> impl Iterator<Item = (&str, &str)> {
    let lines = text.lines().map(str::trim).filter(|line| !line.starts_with(['#', ';']));
    lines.filter_map(|line| line.split_once('=')).map(|(key, value)| (key.trim(), value.trim()))
}

/// True if a `ListenStream=` is this address. A port alone is an IPv6 address to systemd.
fn is_at(stream: &str, address: &ListenAddress) -> bool {
    match address {
        ListenAddress::Socket(path) => Path::new(stream) == path,
        ListenAddress::Address(address) => {
            let of_port = |port| SocketAddr::from((Ipv6Addr::UNSPECIFIED, port));
            stream.parse().ok().or_else(|| stream.parse().ok().map(of_port)) == Some(*address)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNIT: &str = include_str!("../../../systemd/trunkline.socket");
    const ADMIN: &str = include_str!("../../../systemd/trunkline-admin.socket");

    impl UnitFiles for &[(&str, &str)] {
        fn names(&self, folder: &Path) -> Vec<String> {
            let inside = self.iter().filter_map(|(file, _)| Path::new(file).strip_prefix(folder).ok());
            inside.filter_map(Path::to_str).filter(|name| !name.contains('/')).map(str::to_owned).collect()
        }

        fn text(&self, file: &Path) -> Option<String> {
            self.iter().find(|(name, _)| Path::new(name) == file).map(|(_, text)| (*text).to_owned())
        }
    }

    #[test]
    fn a_unit_that_is_enabled_and_starts_this_service_is_for_a_listener() {
        const ENABLED: (&str, &str) = ("/etc/systemd/system/sockets.target.wants/trunkline.socket", "");
        const PACKAGED: (&str, &str) = ("/usr/lib/systemd/system/trunkline.socket", UNIT);
        const EDITED: &str = "/etc/systemd/system/trunkline.socket.d/override.conf";
        let at = |text: &str| text.parse::<SocketAddr>().map(ListenAddress::Address).expect("an address");
        let (configured, other) = (at("127.0.0.1:8080"), at("0.0.0.0:8443"));
        let unit = Some("trunkline.socket");
        let renamed = "[Socket]\nFileDescriptorName=clients\nListenStream=\nListenStream = 0.0.0.0:8443\n";
        for (files, place, address, expected) in [
            (&[ENABLED, PACKAGED][..], 0, &configured, unit),
            (&[ENABLED, PACKAGED], 0, &other, unit),
            (&[ENABLED, PACKAGED], 1, &configured, None),
            (&[PACKAGED], 0, &configured, None),
            (&[ENABLED], 0, &configured, None),
            (&[ENABLED, PACKAGED, ("/etc/systemd/system/trunkline.socket", "")], 0, &configured, None),
            (&[ENABLED, PACKAGED, (EDITED, renamed)], 1, &other, unit),
            (&[ENABLED, PACKAGED, (EDITED, renamed)], 0, &configured, None),
            (&[ENABLED, PACKAGED, (EDITED, "[Socket]\nService=other.service\n")], 0, &configured, None),
            (&[ENABLED, PACKAGED, (EDITED, "[Socket]\n#Service=other.service\n")], 0, &configured, unit),
            (
                &[
                    ("/usr/lib/systemd/system/sockets.target.wants/trunkline-admin.socket", ""),
                    ("/usr/lib/systemd/system/trunkline-admin.socket", ADMIN),
                ],
                0,
                &at("127.0.0.1:9090"),
                None,
            ),
        ] {
            let units = SocketUnits::of("trunkline.service", &files);
            assert_eq!(units.unit_for(place, address), expected, "{files:?} {place} {address}");
        }
        assert_eq!(SocketUnits::of("b.service", &&[ENABLED, PACKAGED][..]).unit_for(0, &configured), None);
    }

    #[test]
    fn addresses_are_read_as_systemd_does() {
        let address = |text: &str| text.parse().map(ListenAddress::Address).expect("an address");
        for (stream, at, expected) in [
            ("127.0.0.1:8080", address("127.0.0.1:8080"), true),
            ("[::1]:8080", address("[::1]:8080"), true),
            ("8080", address("[::]:8080"), true),
            ("8080", address("0.0.0.0:8080"), false),
            ("/run/mcp.sock", ListenAddress::Socket("/run/mcp.sock".into()), true),
            ("@mcp", address("127.0.0.1:8080"), false),
        ] {
            assert_eq!(is_at(stream, &at), expected, "{stream} {at}");
        }
    }
}
