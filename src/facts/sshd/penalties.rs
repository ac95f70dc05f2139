//! `PerSourcePenalties` (OpenSSH 9.8): the addresses that sshd drops after refused logins, and those that
//! it spares.

use super::{Server, list_servers, read_servers};
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
pub struct Penalties {
    pub(crate) are_on: bool,
    /// The addresses and networks of `PerSourcePenaltyExemptList`.
    pub exempt: Vec<String>,
}

impl Penalties {
    /// Parses the values that `sshd -T` prints for `PerSourcePenalties` and `PerSourcePenaltyExemptList`;
    /// `exempt` is `None` if it prints no list.
    pub fn parse(value: &str, exempt: Option<&str>) -> Self {
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
    pub(crate) fn list_missing(&self, peers_are_mapped: bool) -> Vec<String> {
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
    pub(crate) fn spare_any(&self, peers_are_mapped: bool) -> bool {
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
pub(crate) fn maps_v4_peers(pid: i32) -> bool {
    let dir = Proc::host().dir(pid);
    let inodes = list_socket_inodes(&dir.join("fd"));
    let mut listeners = Listeners::read(&dir);
    listeners.retain(|listener| inodes.contains(&listener.inode));
    listeners.map_v4_peers()
}

/// Checks whether IPv4 peers reach sshd through an IPv6 socket of systemd, which listens on this port and starts an
/// sshd when somebody connects.
pub(crate) fn maps_v4_peers_of_port(port: u16) -> bool {
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

/// Penalties that cost others their connections.
#[derive(Debug, PartialEq, Eq)]
pub struct PenaltyFault {
    /// What is wrong.
    pub text: String,
    /// What to write, and where.
    pub remedy: String,
}

impl Server {
    /// Finds what is wrong with penalties that are on: an entry in IPv4 form matches nobody, because this server sees
    /// IPv4 peers as `::ffff:ADDRESS`; or no entry can match any peer, mostly since there is none. `None` if nothing is
    /// wrong, or if penalties are off.
    pub fn find_penalty_fault(&self, penalties: &Penalties) -> Option<PenaltyFault> {
        const PENALTIES: &str = "PerSourcePenalties is on: after some refused logins it drops \
                                 everybody's connections from their address for a while";
        const KEY: &str = "persourcepenaltyexemptlist";
        if !penalties.are_on {
            return None;
        }
        let missing = penalties.list_missing(self.peers_are_mapped);
        if !missing.is_empty() {
            let list = [penalties.exempt.as_slice(), &missing].concat().join(",");
            let text = format!(
                "{PENALTIES}, and entries of PerSourcePenaltyExemptList in IPv4 form spare nobody: through a socket \
                 of systemd sshd sees the peers as ::ffff:ADDRESS"
            );
            let remedy = format!(
                "write \"PerSourcePenaltyExemptList {list}\" {} and reload",
                self.where_to_write(KEY)
            );
            return Some(PenaltyFault { text, remedy });
        }
        if penalties.spare_any(self.peers_are_mapped) {
            return None;
        }
        let example = if self.peers_are_mapped {
            "::ffff:10.77.0.0/112"
        } else {
            "10.77.0.0/16"
        };
        let remedy = format!(
            "write \"PerSourcePenaltyExemptList {example}\", with the networks of your login nodes, {} \
             and reload",
            self.where_to_write(KEY)
        );
        Some(PenaltyFault {
            text: PENALTIES.to_owned(),
            remedy,
        })
    }
}

/// Describes for `enable` the fault if refusals of a user by this service cost others at the same address their
/// connections; `None` if they do not, or if no configuration of a server can be read.
pub fn warn_of_penalties(service: &str) -> Option<String> {
    for server in read_servers(&list_servers()) {
        let Ok(configuration) = &server.configuration else {
            continue;
        };
        if configuration.service != service {
            continue;
        }
        let fault = configuration
            .penalties
            .as_ref()
            .and_then(|penalties| server.find_penalty_fault(penalties));
        if let Some(PenaltyFault { text, remedy }) = fault {
            return Some(format!("sshd: {text}; {remedy}"));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::super::config_files::ConfigFiles;
    use super::super::configuration::parse_configuration;
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

    #[test]
    fn exemption_that_spares_no_peer_is_warned_of() {
        let text =
            "usepam yes\npersourcepenalties authfail:5\npersourcepenaltyexemptlist 10.9.9.0/24\n";
        let remedy = |peers_are_mapped| {
            let server = Server {
                object: "sshd".to_owned(),
                file: "/etc/site_config".into(),
                files: ConfigFiles::default(),
                configuration: Ok(parse_configuration(text, Path::new("/usr/sbin/sshd"), None)),
                unread_change: None,
                peers_are_mapped,
                reload: None,
            };
            let penalties = server
                .configuration
                .as_ref()
                .unwrap()
                .penalties
                .as_ref()
                .unwrap();
            server
                .find_penalty_fault(penalties)
                .map(|fault| fault.remedy)
        };
        assert_eq!(remedy(false), None);
        let expected = "write \"PerSourcePenaltyExemptList 10.9.9.0/24,::ffff:10.9.9.0/120\" into \
                        /etc/site_config and reload";
        assert_eq!(remedy(true).as_deref(), Some(expected));
    }
}
