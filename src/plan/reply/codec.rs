//! The reply's bytes: one fixed order of keys.

use super::{Containment, Plan, Refusal, Reply, Rule, Stack, Verdict};
use crate::plan::{
    Allowlist, DecodeError, DeviceRule, JobId, LeafName, MAX_ENTRIES, MAX_PROBES, MAX_VARIABLES,
    Placement, Probe, Reader, Reason, SourceName, VERSION, Variable, Variables, Writer,
};

/// Most bytes of the scheduler's command, and of the site's text.
const HINT_MAX: usize = 80;
const MESSAGE_MAX: usize = 400;
/// Most texts in one list of a reply.
const TEXTS_MAX: usize = 256;

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
        let hint = short(&mut input, "hint", HINT_MAX)?;
        let message = short(&mut input, "message", MESSAGE_MAX)?;
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
pub(in crate::plan) fn check_version(found: &str) -> Result<(), DecodeError> {
    if found == VERSION {
        return Ok(());
    }
    let legible = found.chars().take(32).map(|c| if c.is_ascii_graphic() { c } else { '?' });
    Err(DecodeError::Version(legible.collect()))
}

fn write_plan(out: &mut Writer, plan: &Plan) {
    out.string("verdict", "admit")
        .string("job", plan.job.as_str())
        .string("rule", plan.rule.as_str());
    write_placement(out, &plan.placement);
    out.int("ends", plan.ends.unwrap_or(0))
        .int("gpus", plan.gpus.into())
        .string("mode", plan.containment.as_str());
    if let Some(list) = plan.containment.list() {
        write_devices(out, "device", list);
    }
    let probes: Vec<String> = plan.probes.iter().map(ToString::to_string).collect();
    write_texts(out, "probe", &probes);
    write_texts(out, "dropped", &plan.dropped);
    let env: Vec<String> = plan.env.iter().map(ToString::to_string).collect();
    write_texts(out, "env", &env);
}

fn write_devices(out: &mut Writer, key: &str, list: &Allowlist) {
    let entries: Vec<String> = list.rules().iter().map(ToString::to_string).collect();
    write_texts(out, key, &entries);
}

fn read_plan(input: &mut Reader<'_>) -> Result<Plan, DecodeError> {
    let job = parsed(input, "job")?;
    let rule = read_rule(input)?;
    let placement = read_placement(input)?;
    let source = placement.source();
    Ok(Plan {
        rule,
        placement,
        ends: time(input, "ends")?,
        gpus: u32::try_from(input.int("gpus")?).map_err(|_| DecodeError::value("gpus"))?,
        containment: match input.string("mode")? {
            "none" => Containment::None,
            "inherit" => Containment::Inherit,
            "enforce" => Containment::Enforce(read_devices(input, "device", MAX_ENTRIES)?),
            "inherit+enforce" => Containment::Both(read_devices(input, "device", MAX_ENTRIES)?),
            _ => return Err(DecodeError::value("mode")),
        },
        probes: read_probes(input)?,
        dropped: read_texts(input, "dropped")?,
        env: read_env(input, &job, source)?,
        job,
    })
}

fn read_rule(input: &mut Reader<'_>) -> Result<Rule, DecodeError> {
    match input.string("rule")? {
        "only-job" => Ok(Rule::OnlyJob),
        "caller" => Ok(Rule::Caller),
        "chosen" => Ok(Rule::Chosen),
        "newest" => Ok(Rule::Newest),
        _ => Err(DecodeError::value("rule")),
    }
}

fn write_placement(out: &mut Writer, placement: &Placement) {
    out.string("source", placement.source().as_str());
    match placement {
        Placement::Cgroup { path, leaf } => out
            .string("cgroup", path.as_str())
            .string("leaf", leaf.as_ref().map_or("", LeafName::as_str)),
        Placement::Extern { spool, node } => {
            out.string("spool", spool.as_str()).string("node", node.as_str())
        }
        Placement::Unit { path, flux } => {
            out.string("cgroup", path.as_str()).int("manager", i64::from(*flux))
        }
    };
}

fn read_placement(input: &mut Reader<'_>) -> Result<Placement, DecodeError> {
    match input.string("source")? {
        "registry" => Ok(Placement::Cgroup {
            path: parsed(input, "cgroup")?,
            leaf: match input.string("leaf")? {
                "" => None,
                name => Some(name.parse().map_err(|_| DecodeError::value("leaf"))?),
            },
        }),
        "slurm" => {
            Ok(Placement::Extern { spool: parsed(input, "spool")?, node: parsed(input, "node")? })
        }
        "flux" => {
            let manager = |_| DecodeError::value("manager");
            Ok(Placement::Unit {
                path: parsed(input, "cgroup")?,
                flux: u32::try_from(input.int("manager")?).map_err(manager)?,
            })
        }
        _ => Err(DecodeError::value("source")),
    }
}

fn read_probes(input: &mut Reader<'_>) -> Result<Vec<Probe>, DecodeError> {
    (0..input.count("probe.count", MAX_PROBES)?)
        .map(|index| parsed(input, &format!("probe.{index}")))
        .collect()
}

fn read_env(
    input: &mut Reader<'_>,
    job: &JobId,
    source: SourceName,
) -> Result<Variables, DecodeError> {
    let mut env = Variables::default();
    for index in 0..input.count("env.count", MAX_VARIABLES)? {
        let key = format!("env.{index}");
        let variable: Variable = parsed(input, &key)?;
        if !variable.is_of(job, source) {
            return Err(DecodeError::value(&key));
        }
        env.push(variable).map_err(|_| DecodeError::value(&key))?;
    }
    Ok(env)
}

fn read_devices(input: &mut Reader<'_>, name: &str, most: usize) -> Result<Allowlist, DecodeError> {
    let mut list = Allowlist::new();
    for index in 0..input.count(&format!("{name}.count"), most)? {
        let key = format!("{name}.{index}");
        let before = list.len();
        let text = input.string(&key)?;
        let rule: DeviceRule = text.parse().map_err(|_| DecodeError::value(&key))?;
        list.push(rule).map_err(|_| DecodeError::value(&key))?;
        // An access has several spellings to an admin, and one here.
        if list.len() == before || rule.to_string() != text {
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

/// A text that the user will read, of so many bytes at the most.
fn short(input: &mut Reader<'_>, key: &str, most: usize) -> Result<String, DecodeError> {
    let text = input.string(key)?;
    if text.len() <= most { Ok(text.to_owned()) } else { Err(DecodeError::value(key)) }
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
