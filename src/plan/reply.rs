//! What the unprivileged half answers.

use super::{
    Allowlist, CgroupPath, DecodeError, JobId, LeafName, MAX_ENTRIES, Reader, Reason, VERSION,
    Writer,
};

/// Most bytes of a reply.
pub const REPLY_MAX: usize = 64 * 1024;
/// Most texts in one list of a reply.
const TEXTS_MAX: usize = 256;

/// Where a job was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SourceName {
    /// Root-owned job records.
    Registry,
}

impl SourceName {
    /// The name in configuration, protocol and log.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Registry => "registry",
        }
    }
}

/// Which rule chose the job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// It is the user's only job here.
    OnlyJob,
    /// It started last.
    Newest,
}

impl Rule {
    /// The name in protocol and log.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::OnlyJob => "only-job",
            Self::Newest => "newest",
        }
    }
}

/// What the service's flattened PAM stack says about our session line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stack {
    /// A line of ours must succeed before a session opens.
    Effective,
    /// There is none, it is optional, or another line can skip it.
    Missing,
    /// Not judged: the session phase is itself the proof.
    Unchecked,
}

impl Stack {
    fn as_str(self) -> &'static str {
        match self {
            Self::Effective => "effective",
            Self::Missing => "missing",
            Self::Unchecked => "unchecked",
        }
    }
}

/// What must hold for the login's devices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Containment {
    /// The job was spelled out to have none; a filter found at the job is kept all the same.
    None,
    /// The scheduler constrains the job; a filter of its has to be in force.
    Inherit,
    /// This list holds besides whatever is in force already.
    Enforce(Allowlist),
}

impl Containment {
    /// The name in protocol and log.
    #[must_use]
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Inherit => "inherit",
            Self::Enforce(_) => "enforce",
        }
    }
}

/// Everything that the privileged half needs for one login.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The job to join.
    pub job: JobId,
    /// Where it was found.
    pub source: SourceName,
    /// Why this job and no other of the user's.
    pub rule: Rule,
    /// The job's cgroup.
    pub cgroup: CgroupPath,
    /// The child that the record wants its logins in; else the privileged half decides.
    pub leaf: Option<LeafName>,
    /// When the job ends, in seconds since the epoch, where the source knows it.
    pub ends: Option<i64>,
    /// Number of GPUs in the allowlist, for the line that the user reads.
    pub gpus: u32,
    /// What must hold for the devices.
    pub containment: Containment,
    /// Device specifiers that were asked for and could not be resolved, each with the reason.
    pub dropped: Vec<String>,
}

/// Why there is no plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The code; never [`Reason::Admitted`].
    pub reason: Reason,
    /// The user's own jobs that the text names.
    pub jobs: Vec<JobId>,
    /// When the named job ended, in seconds since the epoch.
    pub ended: Option<i64>,
    /// The device that the text names, else empty.
    pub device: String,
}

/// The answer proper.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Join this job.
    Admit(Plan),
    /// Refuse, for this reason.
    Refuse(Refusal),
    /// The configuration says that this node does not enforce (`enforce = if-exists:PATH`).
    NotEnforced,
}

/// One answer of the unprivileged half.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// What the PAM stack says about our session line.
    pub stack: Stack,
    /// The cause in full, for the log; never shown to the user.
    pub detail: String,
    /// What else the log has to name: broken records, sources that erred.
    pub warnings: Vec<String>,
    /// The scheduler's own command for "my jobs".
    pub hint: String,
    /// The site's text below ours, at most 400 bytes.
    pub message: String,
    /// The answer proper.
    pub verdict: Verdict,
}

impl Reply {
    /// The reply as RFC 38 key-values.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Writer::new();
        out.string("version", VERSION)
            .string("stack", self.stack.as_str())
            .string("detail", &self.detail)
            .string("hint", &self.hint)
            .string("message", &self.message);
        write_texts(&mut out, "warning", &self.warnings);
        match &self.verdict {
            Verdict::Admit(plan) => write_plan(&mut out, plan),
            Verdict::Refuse(refusal) => write_refusal(&mut out, refusal),
            Verdict::NotEnforced => {
                out.string("verdict", "not-enforced");
            }
        }
        out.bool("end", true);
        out.finish()
    }

    /// Reads a reply.
    ///
    /// # Errors
    /// [`DecodeError`] for anything but the bytes that [`Reply::encode`] of this version writes.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut input = Reader::new(bytes);
        check_version(input.string("version")?)?;
        let stack = match input.string("stack")? {
            "effective" => Stack::Effective,
            "missing" => Stack::Missing,
            "unchecked" => Stack::Unchecked,
            _ => return Err(DecodeError::value("stack")),
        };
        let detail = input.string("detail")?.to_owned();
        let hint = input.string("hint")?.to_owned();
        let message = input.string("message")?.to_owned();
        let warnings = read_texts(&mut input, "warning")?;
        let verdict = match input.string("verdict")? {
            "admit" => Verdict::Admit(read_plan(&mut input)?),
            "refuse" => Verdict::Refuse(read_refusal(&mut input)?),
            "not-enforced" => Verdict::NotEnforced,
            _ => return Err(DecodeError::value("verdict")),
        };
        if !input.bool("end")? {
            return Err(DecodeError::value("end"));
        }
        input.end()?;
        Ok(Self { stack, detail, warnings, hint, message, verdict })
    }
}

/// Refuses a peer of another version.
pub(super) fn check_version(found: &str) -> Result<(), DecodeError> {
    if found == VERSION {
        return Ok(());
    }
    let legible = found.chars().take(32).map(|c| if c.is_ascii_graphic() { c } else { '?' });
    Err(DecodeError::Version(legible.collect()))
}

fn write_plan(out: &mut Writer, plan: &Plan) {
    out.string("verdict", "admit")
        .string("job", plan.job.as_str())
        .string("source", plan.source.as_str())
        .string("rule", plan.rule.as_str())
        .string("cgroup", plan.cgroup.as_str())
        .string("leaf", plan.leaf.as_ref().map_or("", LeafName::as_str))
        .int("ends", plan.ends.unwrap_or(0))
        .int("gpus", plan.gpus.into())
        .string("mode", plan.containment.as_str());
    if let Containment::Enforce(list) = &plan.containment {
        let entries: Vec<String> = list.rules().iter().map(ToString::to_string).collect();
        write_texts(out, "device", &entries);
    }
    write_texts(out, "dropped", &plan.dropped);
}

fn read_plan(input: &mut Reader<'_>) -> Result<Plan, DecodeError> {
    Ok(Plan {
        job: parsed(input, "job")?,
        source: match input.string("source")? {
            "registry" => SourceName::Registry,
            _ => return Err(DecodeError::value("source")),
        },
        rule: match input.string("rule")? {
            "only-job" => Rule::OnlyJob,
            "newest" => Rule::Newest,
            _ => return Err(DecodeError::value("rule")),
        },
        cgroup: parsed(input, "cgroup")?,
        leaf: match input.string("leaf")? {
            "" => None,
            name => Some(name.parse().map_err(|_| DecodeError::value("leaf"))?),
        },
        ends: time(input, "ends")?,
        gpus: u32::try_from(input.int("gpus")?).map_err(|_| DecodeError::value("gpus"))?,
        containment: match input.string("mode")? {
            "none" => Containment::None,
            "inherit" => Containment::Inherit,
            "enforce" => Containment::Enforce(read_devices(input)?),
            _ => return Err(DecodeError::value("mode")),
        },
        dropped: read_texts(input, "dropped")?,
    })
}

fn read_devices(input: &mut Reader<'_>) -> Result<Allowlist, DecodeError> {
    let mut list = Allowlist::new();
    for index in 0..input.count("device.count", MAX_ENTRIES)? {
        let key = format!("device.{index}");
        let before = list.len();
        let rule = parsed(input, &key)?;
        list.push(rule).map_err(|_| DecodeError::value(&key))?;
        if list.len() == before {
            return Err(DecodeError::value(&key));
        }
    }
    Ok(list)
}

fn write_refusal(out: &mut Writer, refusal: &Refusal) {
    let jobs: Vec<String> = refusal.jobs.iter().map(ToString::to_string).collect();
    out.string("verdict", "refuse").string("code", refusal.reason.code());
    write_texts(out, "job", &jobs);
    out.int("ended", refusal.ended.unwrap_or(0)).string("device", &refusal.device);
}

fn read_refusal(input: &mut Reader<'_>) -> Result<Refusal, DecodeError> {
    let reason = match parsed(input, "code")? {
        Reason::Admitted => return Err(DecodeError::value("code")),
        reason => reason,
    };
    let jobs = read_texts(input, "job")?;
    let jobs: Result<_, _> = jobs.iter().map(|job| job.parse()).collect();
    Ok(Refusal {
        reason,
        jobs: jobs.map_err(|_| DecodeError::value("job"))?,
        ended: time(input, "ended")?,
        device: input.string("device")?.to_owned(),
    })
}

/// Writes `KEY.count` and `KEY.0` on; past [`MAX_ENTRIES`] and [`TEXTS_MAX`] texts are left out.
fn write_texts(out: &mut Writer, key: &str, texts: &[String]) {
    let most = if key == "device" { MAX_ENTRIES } else { TEXTS_MAX };
    let kept = texts.len().min(most);
    out.int(&format!("{key}.count"), i64::try_from(kept).unwrap_or(0));
    for (index, text) in texts.iter().take(kept).enumerate() {
        out.string(&format!("{key}.{index}"), text);
    }
}

fn read_texts(input: &mut Reader<'_>, key: &str) -> Result<Vec<String>, DecodeError> {
    let count = input.count(&format!("{key}.count"), TEXTS_MAX)?;
    (0..count).map(|index| Ok(input.string(&format!("{key}.{index}"))?.to_owned())).collect()
}

fn parsed<T: std::str::FromStr>(input: &mut Reader<'_>, key: &str) -> Result<T, DecodeError> {
    input.string(key)?.parse().map_err(|_| DecodeError::value(key))
}

/// Seconds since the epoch, 0 for "not known".
fn time(input: &mut Reader<'_>, key: &str) -> Result<Option<i64>, DecodeError> {
    match input.int(key)? {
        0 => Ok(None),
        seconds if seconds > 0 => Ok(Some(seconds)),
        _ => Err(DecodeError::value(key)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan() -> Plan {
        let mut list = Allowlist::new();
        list.push("c:195:0:rw".parse().unwrap()).unwrap();
        list.push("c:136:-1:rw".parse().unwrap()).unwrap();
        Plan {
            job: "4242".parse().unwrap(),
            source: SourceName::Registry,
            rule: Rule::Newest,
            cgroup: "/system.slice/site-job-4242.scope".parse().unwrap(),
            leaf: Some("logins".parse().unwrap()),
            ends: Some(1_795_201_200),
            gpus: 1,
            containment: Containment::Enforce(list),
            dropped: vec!["/dev/nvidia7: no such file".into()],
        }
    }

    fn reply(verdict: Verdict) -> Reply {
        Reply {
            stack: Stack::Effective,
            detail: "cause".into(),
            warnings: vec!["one".into(), "two".into()],
            hint: "squeue --me".into(),
            message: String::new(),
            verdict,
        }
    }

    fn refusal() -> Refusal {
        Refusal {
            reason: Reason::ChoiceNeeded,
            jobs: vec!["1".parse().unwrap(), "2".parse().unwrap()],
            ended: None,
            device: String::new(),
        }
    }

    #[test]
    fn round_trips() {
        for verdict in [
            Verdict::Admit(plan()),
            Verdict::Admit(Plan { containment: Containment::None, leaf: None, ..plan() }),
            Verdict::Admit(Plan { containment: Containment::Inherit, ends: None, ..plan() }),
            Verdict::Refuse(refusal()),
            Verdict::NotEnforced,
        ] {
            let reply = reply(verdict);
            assert_eq!(Reply::decode(&reply.encode()), Ok(reply));
        }
    }

    #[test]
    fn every_truncation_is_refused() {
        let bytes = reply(Verdict::Admit(plan())).encode();
        for length in 0..bytes.len() {
            assert!(Reply::decode(&bytes[..length]).is_err(), "{length} bytes");
        }
    }

    /// Every single entry left out, doubled, or swapped with its neighbour.
    #[test]
    fn every_disorder_is_refused() {
        let bytes = reply(Verdict::Admit(plan())).encode();
        let fields: Vec<&[u8]> = bytes.split_inclusive(|&byte| byte == 0).collect();
        let entries: Vec<&[&[u8]]> = fields.chunks(2).collect();
        let refused = |entries: &[&[&[u8]]], what: &str| {
            let bytes = entries.concat().concat();
            assert!(Reply::decode(&bytes).is_err(), "{what}: {:?}", String::from_utf8(bytes));
        };
        for index in 0..entries.len() {
            let mut less = entries.clone();
            less.remove(index);
            refused(&less, "left out");
            let mut more = entries.clone();
            more.insert(index, entries[index]);
            refused(&more, "doubled");
            if index > 0 {
                let mut swapped = entries.clone();
                swapped.swap(index - 1, index);
                refused(&swapped, "swapped");
            }
        }
    }

    #[test]
    fn a_missing_mode_is_fatal() {
        let bytes = reply(Verdict::Admit(Plan { containment: Containment::None, ..plan() }));
        let text = String::from_utf8(bytes.encode()).unwrap();
        let without = text.replace("mode\0snone\0", "");
        assert_ne!(text, without);
        assert_eq!(Reply::decode(without.as_bytes()), Err(DecodeError::Key("mode".into())));
    }

    #[test]
    fn numbers_out_of_range_are_refused() {
        let text = String::from_utf8(reply(Verdict::Admit(plan())).encode()).unwrap();
        for (good, bad) in [
            ("device.count\0i2", "device.count\0i1025"),
            ("device.count\0i2", "device.count\0i-1"),
            ("sc:195:0:rw", "sc:4096:0:rw"),
            ("sc:195:0:rw", "sc:136:-1:rw"),
            ("warning.count\0i2", "warning.count\0i257"),
            ("ends\0i1795201200", "ends\0i-1"),
            ("/system.slice", "/.."),
            ("job\0s4242", "job\0s../4242"),
            ("leaf\0slogins", "leaf\0scgroup.procs"),
        ] {
            let changed = text.replacen(good, bad, 1);
            assert_ne!(changed, text, "{good}");
            assert!(Reply::decode(changed.as_bytes()).is_err(), "{bad} was taken");
        }
    }

    #[test]
    fn a_full_allowlist_fits_the_limit() {
        let mut list = Allowlist::new();
        for minor in 0..MAX_ENTRIES {
            list.push(format!("c:4095:{}:rwm", 1_000_000 + minor).parse().unwrap()).unwrap();
        }
        let plan = Plan { containment: Containment::Enforce(list), ..plan() };
        assert!(reply(Verdict::Admit(plan)).encode().len() < REPLY_MAX);
    }
}
