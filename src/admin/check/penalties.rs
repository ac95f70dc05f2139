//! `PerSourcePenalties` (OpenSSH 9.8): the addresses that sshd drops after refused logins, and those that
//! it spares.

use helper::jobs::sources::processes;
use kernel::proc::{self, Proc};
use std::collections::BTreeSet;
use std::fs;
use std::net::Ipv4Addr;

/// The settings of one sshd.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Penalties {
    pub(super) are_on: bool,
    /// `PerSourcePenaltyExemptList`
    pub(super) exempt: Vec<String>,
}

impl Penalties {
    /// Parses the values of `sshd -T`.
    pub(super) fn parse(value: &str, exempt: Option<&str>) -> Self {
        let exempt = exempt.filter(|list| *list != "none").unwrap_or_default();
        let exempt = exempt.split(',').map(str::trim).filter(|entry| !entry.is_empty());
        Self { are_on: value != "no", exempt: exempt.map(str::to_owned).collect() }
    }

    /// Returns the entries that spare no address, in the form in which they would.
    pub(super) fn list_missing(&self, peers_are_mapped: bool) -> Vec<String> {
        if !peers_are_mapped {
            return Vec::new();
        }
        let mapped = self.exempt.iter().filter_map(|entry| map_to_v6(entry));
        mapped.filter(|entry| !self.exempt.contains(entry)).collect()
    }

    /// Returns whether an entry spares somebody.
    pub(super) fn spare_any(&self, peers_are_mapped: bool) -> bool {
        self.exempt.iter().any(|entry| !peers_are_mapped || entry.contains(':'))
    }
}

/// Returns an entry with an IPv4 address or network as that of IPv4-mapped IPv6 addresses.
fn map_to_v6(entry: &str) -> Option<String> {
    let (address, bits) = match entry.split_once('/') {
        Some((address, bits)) => (address, Some(bits.parse::<u8>().ok()?)),
        None => (entry, None),
    };
    address.parse::<Ipv4Addr>().ok()?;
    let bits = bits.map(|bits| format!("/{}", u32::from(bits) + 96));
    Some(format!("::ffff:{address}{}", bits.unwrap_or_default()))
}

/// A listening socket of `/proc/net/tcp` or `/proc/net/tcp6`.
#[derive(Debug, PartialEq, Eq)]
struct Listener {
    port: String,
    is_any_address: bool,
    inode: String,
}

/// Returns whether IPv4 peers reach this server through IPv6 sockets, so that it sees them as
/// `::ffff:ADDRESS`: systemd's sockets take both families, but sshd itself opens one for each.
pub(super) fn maps_v4_peers(pid: i32) -> bool {
    let dir = Proc::host().dir(pid);
    let descriptors = dir.join("fd");
    let inodes: BTreeSet<String> = processes::list_numbers::<u32>(&descriptors)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|number| fs::read_link(descriptors.join(number.to_string())).ok())
        .filter_map(|link| {
            let link = link.to_string_lossy().into_owned();
            Some(link.strip_prefix("socket:[")?.strip_suffix(']')?.to_owned())
        })
        .collect();
    let [v4, v6] = ["net/tcp", "net/tcp6"].map(|table| {
        let mut listeners = parse_listeners(&proc::read(dir.join(table)).unwrap_or_default());
        listeners.retain(|listener| inodes.contains(&listener.inode));
        listeners
    });
    are_mapped(&v4, &v6)
}

/// The same for the socket by which systemd starts the first sshd on this port.
pub(super) fn maps_v4_peers_of_port(port: u16) -> bool {
    let port = format!("{port:04X}");
    let [v4, v6] = ["net/tcp", "net/tcp6"].map(|table| {
        let table = proc::read(std::path::Path::new("/proc").join(table)).unwrap_or_default();
        let mut listeners = parse_listeners(&table);
        listeners.retain(|listener| listener.port == port);
        listeners
    });
    are_mapped(&v4, &v6)
}

fn are_mapped(v4: &[Listener], v6: &[Listener]) -> bool {
    v6.iter().any(|listener| {
        listener.is_any_address && !v4.iter().any(|other| other.port == listener.port)
    })
}

/// Parses the sockets in state 0A of a table (Documentation/networking/proc_net_tcp.rst).
fn parse_listeners(table: &str) -> Vec<Listener> {
    let mut listeners = Vec::new();
    for line in table.lines() {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let [_, local, _, "0A", _, _, _, _, _, inode, ..] = *fields else { continue };
        let Some((address, port)) = local.split_once(':') else { continue };
        listeners.push(Listener {
            port: port.to_owned(),
            is_any_address: address.bytes().all(|byte| byte == b'0'),
            inode: inode.to_owned(),
        });
    }
    listeners
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn v4_entries_spare_no_mapped_peer() {
        let missing = |list| Penalties::parse("yes", Some(list)).list_missing(true);
        assert_eq!(missing("10.9.9.0/24"), ["::ffff:10.9.9.0/120"]);
        assert_eq!(missing("10.9.9.1,fd77::/64"), ["::ffff:10.9.9.1"]);
        assert_eq!(missing("10.9.9.0/24,::ffff:10.9.9.0/120"), [""; 0]);
        assert_eq!(missing("::ffff:10.9.9.0/120"), [""; 0]);
        let own = Penalties::parse("yes", Some("10.9.9.0/24"));
        assert_eq!(own.list_missing(false), [""; 0]);
        assert!(own.spare_any(false) && !own.spare_any(true));
        assert!(!Penalties::parse("yes", Some("none")).spare_any(false));
        assert!(!Penalties::parse("no", None).are_on);
    }

    #[test]
    fn socket_of_both_families_maps_v4_peers() {
        let head = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n";
        let line = |local: &str, inode| {
            format!("   0: {local} 0:0 0A 0:0 00:0 0 0 0 {inode} 1 0 100 0 0 10 0\n")
        };
        let any = "00000000000000000000000000000000:0016";
        let v6 = parse_listeners(&format!("{head}{}", line(any, 7)));
        assert_eq!(v6.len(), 1);
        let v4 = parse_listeners(&format!("{head}{}", line("00000000:0016", 8)));
        assert!(are_mapped(&[], &v6) && !are_mapped(&v4, &v6) && !are_mapped(&v4, &[]));
        let local = parse_listeners(&line("00000000000000000000000001000000:0016", 9));
        assert!(!are_mapped(&[], &local));
        assert!(parse_listeners(&line(any, 7).replace("0A", "01")).is_empty());
    }
}
