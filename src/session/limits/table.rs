//! Which limits are taken, and how the kernel writes them down (`proc_pid_limits` in
//! `fs/proc/base.c`).
//!
//! Four of the sixteen stay as they are: the processor time, the size of files, the address space
//! and the data of a process. sshd's own process gets the limits as well, and goes on as root: it
//! writes login records, runs what other modules do when the session closes, and allocates. A value
//! that a user chose would end it, or have that fail halfway, wherever it happens to be. In the
//! job's cgroup its memory and processor time are limited all the same. For those that are taken
//! there is a least value where sshd needs one.

use super::LimitsFailure;
use nix::sys::resource::Resource;
use std::fmt;

/// No limit: `RLIM_INFINITY`.
const UNLIMITED: u64 = libc::RLIM_INFINITY;

/// A limit by its names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Kind {
    pub(super) resource: Resource,
    /// As in limits.conf(5).
    pub(super) name: &'static str,
    /// As in `/proc/PID/limits`.
    title: &'static str,
    /// Least soft limit with which sshd does its work.
    least: u64,
}

const fn kind(resource: Resource, name: &'static str, title: &'static str, least: u64) -> Kind {
    Kind { resource, name, title, least }
}

/// The limits that are taken. A descriptor's number is limited by the first: sshd and modules of
/// PAM have some dozen open.
const TAKEN: [Kind; 12] = [
    kind(Resource::RLIMIT_NOFILE, "nofile", "Max open files", 64),
    kind(Resource::RLIMIT_STACK, "stack", "Max stack size", 256 * 1024),
    kind(Resource::RLIMIT_CORE, "core", "Max core file size", 0),
    kind(Resource::RLIMIT_RSS, "rss", "Max resident set", 0),
    kind(Resource::RLIMIT_NPROC, "nproc", "Max processes", 0),
    kind(Resource::RLIMIT_MEMLOCK, "memlock", "Max locked memory", 0),
    kind(Resource::RLIMIT_LOCKS, "locks", "Max file locks", 0),
    kind(Resource::RLIMIT_SIGPENDING, "sigpending", "Max pending signals", 0),
    kind(Resource::RLIMIT_MSGQUEUE, "msgqueue", "Max msgqueue size", 0),
    kind(Resource::RLIMIT_NICE, "nice", "Max nice priority", 0),
    kind(Resource::RLIMIT_RTPRIO, "rtprio", "Max realtime priority", 0),
    kind(Resource::RLIMIT_RTTIME, "rttime", "Max realtime timeout", 0),
];

/// Soft and hard value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Limit {
    pub(super) soft: u64,
    /// Not below the soft one.
    pub(super) hard: u64,
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |value: u64| match value {
            UNLIMITED => "unlimited".to_owned(),
            value => value.to_string(),
        };
        write!(f, "{}:{}", shown(self.soft), shown(self.hard))
    }
}

/// One value for each limit that is taken, none below what sshd needs.
#[derive(Debug, PartialEq, Eq)]
pub(in super::super) struct Limits(Vec<(Kind, Limit)>);

impl Limits {
    /// Reads the text of such a file.
    ///
    /// # Errors
    /// [`LimitsFailure::Malformed`] with `object` where one is missing, stands there twice or is
    /// no pair of numbers; [`LimitsFailure::TooLow`].
    pub(super) fn parse(text: &str, object: &str) -> Result<Self, LimitsFailure> {
        let mut limits = Vec::new();
        for kind in TAKEN {
            let mut lines = text.lines().filter_map(|line| line.strip_prefix(kind.title));
            let found = match (lines.next(), lines.next()) {
                (Some(line), None) => pair(line),
                _ => None,
            };
            let limit = found.ok_or_else(|| LimitsFailure::Malformed(object.to_owned()))?;
            if limit.soft < kind.least {
                let (name, limit) = (kind.name, limit.to_string());
                return Err(LimitsFailure::TooLow { name, limit });
            }
            limits.push((kind, limit));
        }
        Ok(Self(limits))
    }

    pub(super) fn iter(&self) -> std::slice::Iter<'_, (Kind, Limit)> {
        self.0.iter()
    }
}

/// The rest of a line behind its title: soft limit, hard limit and mostly a unit, between blanks.
fn pair(rest: &str) -> Option<Limit> {
    let mut fields = rest.strip_prefix(' ')?.split_ascii_whitespace();
    let limit = Limit { soft: value(fields.next()?)?, hard: value(fields.next()?)? };
    let whole = fields.count() <= 1;
    (whole && limit.soft <= limit.hard).then_some(limit)
}

fn value(text: &str) -> Option<u64> {
    match text {
        "unlimited" => Some(UNLIMITED),
        text => text.parse().ok().filter(|value: &u64| value.to_string() == text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
Limit                     Soft Limit           Hard Limit           Units     \n\
Max cpu time              unlimited            unlimited            seconds   \n\
Max file size             unlimited            unlimited            bytes     \n\
Max data size             unlimited            unlimited            bytes     \n\
Max stack size            8388608              unlimited            bytes     \n\
Max core file size        0                    unlimited            bytes     \n\
Max resident set          unlimited            unlimited            bytes     \n\
Max processes             96365                96365                processes \n\
Max open files            1024                 20000                files     \n\
Max locked memory         8388608              8388608              bytes     \n\
Max address space         unlimited            unlimited            bytes     \n\
Max file locks            unlimited            unlimited            locks     \n\
Max pending signals       96365                96365                signals   \n\
Max msgqueue size         819200               819200               bytes     \n\
Max nice priority         0                    0                    \n\
Max realtime priority     0                    0                    \n\
Max realtime timeout      unlimited            unlimited            us        \n";

    fn shown(text: &str, name: &str) -> String {
        let limits = Limits::parse(text, "x").unwrap();
        limits.iter().find(|(kind, _)| kind.name == name).unwrap().1.to_string()
    }

    #[test]
    fn what_the_kernel_writes_is_read() {
        assert_eq!(shown(TEXT, "nofile"), "1024:20000");
        assert_eq!(shown(TEXT, "stack"), "8388608:unlimited");
        assert_eq!(shown(TEXT, "nice"), "0:0");
        let own = std::fs::read_to_string("/proc/self/limits").unwrap();
        for (kind, limit) in Limits::parse(&own, "x").unwrap().iter() {
            let now = nix::sys::resource::getrlimit(kind.resource).unwrap();
            assert_eq!((limit.soft, limit.hard), now, "{}", kind.name);
        }
    }

    #[test]
    fn nothing_else_is() {
        for (good, bad) in [
            ("Max open files ", "Max open file "),
            ("Max open files            1024", "Max open files            -1"),
            ("Max open files            1024", "Max open files            01024"),
            ("Max open files            1024", "Max open files            +1024"),
            ("Max open files            1024", "Max open files            1024x"),
            ("Max open files            1024", "Max open files1024"),
            ("Max open files            1024", "Max open files            20001"),
            ("1024                 20000", "1024"),
            ("20000                files", "20000  1 files"),
            ("20000 ", "18446744073709551616 "),
            ("Max nice priority         0 ", "Max nice priority         "),
            ("Max file size  ", "Max open files "),
        ] {
            let text = TEXT.replacen(good, bad, 1);
            assert_ne!(text, TEXT, "{good}");
            let error = Limits::parse(&text, "x").unwrap_err();
            assert!(matches!(error, LimitsFailure::Malformed(_)), "{bad}: {error}");
        }
        assert!(Limits::parse("", "x").is_err());
    }

    #[test]
    fn what_sshd_cannot_do_with_is_named() {
        for (good, bad, named) in [
            ("1024                 20000", "63 20000", "nofile of 63:20000"),
            ("8388608              unlimited", "262143 unlimited", "stack of 262143:unlimited"),
        ] {
            let error = Limits::parse(&TEXT.replacen(good, bad, 1), "x").unwrap_err().to_string();
            assert_eq!(error, format!("limits of the job: {named} is lower than sshd needs"));
        }
    }

    /// A user could end sshd's own process with them, or have it fail halfway.
    #[test]
    fn what_ends_a_process_is_left_out() {
        for left in ["Max cpu time", "Max file size", "Max data size", "Max address space"] {
            assert!(TAKEN.iter().all(|kind| kind.title != left), "{left}");
        }
        assert!(Limits::parse(&TEXT.replace("Max file size ", "x "), "x").is_ok());
    }
}
