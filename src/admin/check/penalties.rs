//! `PerSourcePenalties` (OpenSSH 9.8): the addresses that sshd drops after refused logins, and those that
//! it spares.

use helper::jobs::sources::processes;
use kernel::proc::{self, Proc};
use std::collections::BTreeSet;
use std::fs;
use std::net::Ipv4Addr;
use std::path::Path;

/// The settings of one sshd.
///
/// The methods' `peers_are_mapped` tells that the sshd sees its IPv4 peers as `::ffff:ADDRESS`, which no entry in
/// IPv4 form matches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Penalties {
    pub(super) are_on: bool,
    /// The addresses and networks of `PerSourcePenaltyExemptList`.
    pub(super) exempt: Vec<String>,
}

impl Penalties {
    /// Parses the values that `sshd -T` prints for `PerSourcePenalties` and `PerSourcePenaltyExemptList`;
    /// `exempt` is `None` if it prints no list.
    pub(super) fn parse(value: &str, exempt: Option<&str>) -> Self {
        let list = exempt.filter(|list| *list != "none").unwrap_or_default();
        let entries = list
            .split(',')
            .map(str::trim)
            .filter(|entry| !entry.is_empty());
        Self {
            are_on: value != "no",
            exempt: entries.map(str::to_owned).collect(),
        }
    }

    /// Lists the entries that match no peer because these are mapped, in the mapped form, which matches. An
    /// entry that is in the list in both forms is left out.
    pub(super) fn list_missing(&self, peers_are_mapped: bool) -> Vec<String> {
        if !peers_are_mapped {
            return Vec::new();
        }
        self.exempt
            .iter()
            .filter_map(|entry| map_to_v6(entry))
            .filter(|entry| !self.exempt.contains(entry))
            .collect()
    }

    /// Checks whether an entry can match a peer: a mapped one only if the entry has the form of IPv6.
    pub(super) fn spare_any(&self, peers_are_mapped: bool) -> bool {
        self.exempt
            .iter()
            .any(|entry| !peers_are_mapped || entry.contains(':'))
    }
}

/// Converts an entry with an IPv4 address or network into that of IPv4-mapped IPv6 addresses; `None` for any
/// other entry.
fn map_to_v6(entry: &str) -> Option<String> {
    let Some((address, bits)) = entry.split_once('/') else {
        entry.parse::<Ipv4Addr>().ok()?;
        return Some(format!("::ffff:{entry}"));
    };
    address.parse::<Ipv4Addr>().ok()?;
    let bits = u32::from(bits.parse::<u8>().ok()?) + 96;
    Some(format!("::ffff:{address}/{bits}"))
}

/// A listening socket of `/proc/net/tcp` or `/proc/net/tcp6`.
#[derive(Debug, PartialEq, Eq)]
struct Listener {
    /// In hexadecimal, as the table has it.
    port: String,
    /// It takes connections to every address of the node.
    is_any_address: bool,
    inode: String,
}

/// The listening TCP sockets of a network namespace.
#[derive(Debug, Default)]
struct Listeners {
    v4: Vec<Listener>,
    v6: Vec<Listener>,
}

impl Listeners {
    /// Reads the tables in a process's folder of proc(5), or in `/proc` itself those of this process. A table that
    /// cannot be read has no sockets.
    fn read(process_dir: &Path) -> Self {
        let read =
            |table| parse_listeners(&proc::read(process_dir.join(table)).unwrap_or_default());
        Self {
            v4: read("net/tcp"),
            v6: read("net/tcp6"),
        }
    }

    fn retain(&mut self, is_kept: impl Fn(&Listener) -> bool) {
        self.v4.retain(&is_kept);
        self.v6.retain(&is_kept);
    }

    /// Checks whether an IPv6 socket takes the IPv4 peers of its port: it does if it is for every address, and
    /// no IPv4 socket has the port.
    fn map_v4_peers(&self) -> bool {
        self.v6.iter().any(|listener| {
            listener.is_any_address && !self.v4.iter().any(|other| other.port == listener.port)
        })
    }
}

/// Checks whether IPv4 peers reach this server through IPv6 sockets, so that it sees them as
/// `::ffff:ADDRESS`: systemd's sockets take both families, but sshd itself opens one for each.
pub(super) fn maps_v4_peers(pid: i32) -> bool {
    let dir = Proc::host().dir(pid);
    let inodes = list_socket_inodes(&dir.join("fd"));
    let mut listeners = Listeners::read(&dir);
    listeners.retain(|listener| inodes.contains(&listener.inode));
    listeners.map_v4_peers()
}

/// Checks whether IPv4 peers reach sshd through an IPv6 socket of systemd, which listens on this port and starts an
/// sshd when somebody connects.
pub(super) fn maps_v4_peers_of_port(port: u16) -> bool {
    let port = format!("{port:04X}");
    let mut listeners = Listeners::read(Path::new("/proc"));
    listeners.retain(|listener| listener.port == port);
    listeners.map_v4_peers()
}

/// Lists the inodes of the sockets among the descriptors in a folder of proc(5), as far as they can be read.
fn list_socket_inodes(descriptors: &Path) -> BTreeSet<String> {
    let numbers = processes::list_numbers::<u32>(descriptors)
        .into_iter()
        .flatten()
        .flatten();
    numbers
        .filter_map(|number| fs::read_link(descriptors.join(number.to_string())).ok())
        .filter_map(|link| {
            let inode = link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?;
            Some(inode.to_owned())
        })
        .collect()
}

/// Parses the sockets in state 0A (`TCP_LISTEN`) of a table (Documentation/networking/proc_net_tcp.rst).
fn parse_listeners(table: &str) -> Vec<Listener> {
    let mut listeners = Vec::new();
    for line in table.lines() {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let [_, local, _, "0A", _, _, _, _, _, inode, ..] = *fields else {
            continue;
        };
        let Some((address, port)) = local.split_once(':') else {
            continue;
        };
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
        let maps = |v4: &str, v6: &str| {
            Listeners {
                v4: parse_listeners(v4),
                v6: parse_listeners(v6),
            }
            .map_v4_peers()
        };
        let v6 = format!("{head}{}", line(any, 7));
        let v4 = format!("{head}{}", line("00000000:0016", 8));
        assert_eq!(parse_listeners(&v6).len(), 1);
        assert!(maps("", &v6) && !maps(&v4, &v6) && !maps(&v4, ""));
        assert!(!maps("", &line("00000000000000000000000001000000:0016", 9)));
        assert!(parse_listeners(&line(any, 7).replace("0A", "01")).is_empty());
    }
}
