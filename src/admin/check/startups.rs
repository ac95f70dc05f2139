//! `MaxStartups` and `PerSourceMaxStartups`: how many logins sshd lets wait to be authenticated before it drops
//! further connections (sshd_config(5)).

/// The limits of one sshd.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Startups {
    /// The number of waiting logins above which sshd drops connections, some or all of them.
    dropped_above: u32,
}

impl Startups {
    /// Parses the values of `sshd -T`: `max` is one number or, as `10:30:100`, three, of which the first counts;
    /// `per_source` is a number or, without a limit, `none`. `None` if `max` is of another form.
    pub(super) fn parse(max: &str, per_source: Option<&str>) -> Option<Self> {
        let (start, _) = max.split_once(':').unwrap_or((max, ""));
        let start: u32 = start.parse().ok()?;
        let of_one_source = per_source.and_then(|number| number.parse().ok());
        Some(Self {
            dropped_above: of_one_source.map_or(start, |own: u32| own.min(start)),
        })
    }

    /// Describes what a launcher loses that starts a rank for each of `cores` by a login of its own; `None` if
    /// it loses nothing.
    pub(super) fn find_fault(self, cores: usize) -> Option<String> {
        let dropped_above = self.dropped_above;
        if usize::try_from(dropped_above).is_ok_and(|logins| logins >= cores) {
            return None;
        }
        Some(format!(
            "drops connections while more than {dropped_above} logins wait to be authenticated: a launcher that \
             starts a rank for each of the {cores} cores by ssh loses some (MaxStartups, PerSourceMaxStartups)"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limit_below_number_of_cores_loses_ranks() {
        for (max, per_source, kept, lost) in [
            ("10:30:100", None, 10, 11),
            ("10:30:100", Some("none"), 10, 11),
            ("1024", None, 1024, 1025),
            ("1024:30:2048", Some("8"), 8, 9),
            ("4:30:100", Some("8"), 4, 5),
        ] {
            let startups = Startups::parse(max, per_source).unwrap();
            assert_eq!(startups.find_fault(kept), None, "{max} {per_source:?}");
            let fault = startups.find_fault(lost).unwrap();
            assert!(fault.contains(&format!("more than {kept} ")), "{fault}");
        }
        assert_eq!(Startups::parse("", None), None);
    }
}
