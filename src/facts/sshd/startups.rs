//! `MaxStartups` and `PerSourceMaxStartups`: how many logins sshd lets wait to be authenticated before it drops
//! further connections (sshd_config(5)).

use command::number_list::NumberList;
use std::fs;

/// The cores of the node that run, in the form of `Cpus_allowed_list` (`admin-guide/cputopology.rst`).
const ONLINE_FILE: &str = "/sys/devices/system/cpu/online";

/// Counts the cores of the node that run, also those that this process may not use; `None` if they cannot be read.
pub fn count_online_cores() -> Option<usize> {
    let online: NumberList = fs::read_to_string(ONLINE_FILE)
        .ok()?
        .trim_end()
        .parse()
        .ok()?;
    Some(online.numbers().count())
}

/// The limit of one sshd that is reached first, if all logins come from one address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Startups {
    /// The key that sets it.
    pub key: &'static str,
    /// The number of waiting logins above which sshd drops connections, some or all of them.
    dropped_above: u32,
}

impl Startups {
    /// Parses the values of `sshd -T`: `10:30:100`, of which the first number counts, and a number or `none`.
    /// `None` if `max` has no number.
    pub fn parse(max: &str, per_source: Option<&str>) -> Option<Self> {
        let (start, _) = max.split_once(':').unwrap_or((max, ""));
        let of_all = Self {
            key: "MaxStartups",
            dropped_above: start.parse().ok()?,
        };
        match per_source.and_then(|number| number.parse().ok()) {
            Some(dropped_above) if dropped_above < of_all.dropped_above => Some(Self {
                key: "PerSourceMaxStartups",
                dropped_above,
            }),
            _ => Some(of_all),
        }
    }

    /// Describes what a launcher loses that starts a rank for each of `cores` by a login of its own; `None` if
    /// it loses nothing.
    pub fn find_fault(self, cores: usize) -> Option<String> {
        let Self { key, dropped_above } = self;
        if usize::try_from(dropped_above).is_ok_and(|logins| logins >= cores) {
            return None;
        }
        Some(format!(
            "drops connections while more than {dropped_above} logins wait to be authenticated ({key}): a launcher \
             that starts a rank for each of the {cores} cores by ssh loses some"
        ))
    }

    /// The line of sshd_config(5) with which such a launcher loses nothing on a node of `cores`. Above that number
    /// connections are still dropped at random, so that nobody can fill the node with waiting servers.
    pub fn sufficient_line(self, cores: usize) -> String {
        if self.key == "MaxStartups" {
            format!("MaxStartups {cores}:30:{}", 2 * cores)
        } else {
            format!("{} {cores}", self.key)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limit_below_number_of_cores_loses_ranks() {
        for (max, per_source, kept, line) in [
            ("10:30:100", None, 10, "MaxStartups 11:30:22"),
            ("10:30:100", Some("none"), 10, "MaxStartups 11:30:22"),
            ("1024", None, 1024, "MaxStartups 1025:30:2050"),
            ("1024:30:2048", Some("8"), 8, "PerSourceMaxStartups 9"),
            ("4:30:100", Some("8"), 4, "MaxStartups 5:30:10"),
        ] {
            let startups = Startups::parse(max, per_source).unwrap();
            assert_eq!(startups.find_fault(kept), None, "{max} {per_source:?}");
            let fault = startups.find_fault(kept + 1).unwrap();
            assert!(fault.contains(&format!("more than {kept} ")), "{fault}");
            assert_eq!(startups.sufficient_line(kept + 1), line);
        }
        assert_eq!(Startups::parse("", None), None);
    }
}
