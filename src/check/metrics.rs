//! `metrics`: counts the module's decisions and their times for Prometheus. It counts lines of the log,
//! so that the module in sshd needs no code for it.

use clap::Args;
use command::error::Error;
use command::exit_status::EXIT_FINE;
use command::options::Conf;
use command::output::Output;
use command::replace_file::replace_file;
use facts::journal::{LogEntry, read_journal};
use facts::strays;
use kernel::sys::clock::now;
use nix::fcntl::{Flock, FlockArg};
use protocol::{Decision, Phase, Reason};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::ErrorKind;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

const STATE_FILE: &str = "/var/lib/job-adopt/metrics.json";
/// Version of the state's format.
const STATE_VERSION: u32 = 2;
/// The upper bounds of the histogram of a phase's time.
const BOUNDS_MS: [u64; 12] = [2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000];

/// Count logins from the journal for Prometheus
#[derive(Debug, Args)]
#[command(after_help = "\
Adds what the journal has since the last call to the counts, and shows them for Prometheus, with the state of
the node.
Exit status: 0 fine, 2 wrong usage, 3 something could not be read or written.")]
pub struct Options {
    #[arg(long, value_name = "FILE", default_value = STATE_FILE, help = "Where the counts are kept")]
    state: PathBuf,
    /// Write to this file, for the textfile collector of node_exporter
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// As JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    conf: Conf,
}

/// Runs `metrics`: counts what was logged since the last call, and shows all counts and the state of the
/// node.
///
/// # Errors
///
/// [`Error`] with the exit status of the command.
pub fn execute(options: &Options, output: &mut Output<'_>) -> Result<u8, Error> {
    let counts = update_state(&options.state, output)?;
    let node = NodeState::read(&options.conf, output)?;
    let text = if options.json {
        format!("{}\n", counts.to_json(&node))
    } else {
        counts.to_prometheus(&node)
    };
    match &options.output {
        Some(path) => replace_file(path, &text, None)?,
        None => output.out.write_all(text.as_bytes())?,
    }
    Ok(EXIT_FINE)
}

/// Adds what was logged since the last call to the counts in the state, and returns these. If the state is
/// invalid, or the journal does not know its cursor, it warns and counts anew. It fails with [`Error::Failed`] if
/// the state can be neither locked, read nor written, or if the journal cannot be read.
fn update_state(state: &Path, output: &mut Output<'_>) -> Result<Counts, Error> {
    let folder = state.parent().unwrap_or(Path::new("/"));
    let lock = folder.join(".metrics.lock");
    let _locked = fs::create_dir_all(folder)
        .and_then(|()| take_lock(&lock))
        .map_err(|error| Error::failed("lock", lock.display(), error))?;
    let mut counts = match Counts::read(state)? {
        StoredCounts::Usable(counts) => counts,
        StoredCounts::Unusable(why) => {
            output.warn(format_args!("{}: {why}; counting anew", state.display()));
            Counts::new()
        }
    };
    if let Err(error) = counts.read_new_lines() {
        // Without a cursor the journal itself cannot be read.
        if counts.cursor.is_none() {
            return Err(error);
        }
        // The journal may not know the cursor any more. The old counts must go with it: all lines are read again.
        output.warn(format_args!("{}: {error}; counting anew", state.display()));
        counts = Counts::new();
        counts.read_new_lines()?;
    }
    let new_state = serde_json::to_string(&counts).map_err(std::io::Error::from)?;
    replace_file(state, &new_state, None)?;
    Ok(counts)
}

/// Locks a file that only root can open: a user who can open it can hold the lock for ever (flock(2)).
fn take_lock(path: &Path) -> std::io::Result<Flock<File>> {
    let file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(path)?;
    // The mode above is only for a new file, and less the umask.
    file.set_permissions(Permissions::from_mode(0o600))?;
    Flock::lock(file, FlockArg::LockExclusive).map_err(|(_, errno)| errno.into())
}

/// The present state of the node.
#[derive(Debug)]
struct NodeState {
    /// The number of processes of users who have no job here; `None` if it is unknown.
    strays: Option<i64>,
    /// The number of users' slices that are not closed; `None` if it is unknown. The slice of future
    /// users counts as one.
    slices: Option<i64>,
}

impl NodeState {
    /// Reads the present state. A number that cannot be found out is `None`. It fails with [`Error::Failed`]
    /// only if the configuration cannot be used.
    fn read(conf: &Conf, output: &mut Output<'_>) -> Result<Self, Error> {
        let config = conf.read()?;
        let strays = match strays::count_strays(&config) {
            Ok(count) => count.map(|count| count as i64),
            Err(error) => {
                output.warn(format_args!("strays: {error}"));
                None
            }
        };
        let slices = crate::count_open_slices(conf.path()?, config).map(|count| count as i64);
        Ok(Self { strays, slices })
    }
}

/// The counts of all lines so far.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Counts {
    version: u32,
    /// Where in the journal the last line is that is counted (journalctl(1)); `None` before the first one.
    cursor: Option<String>,
    /// The number of decisions by phase, decision and code, with blanks between these.
    logins: BTreeMap<String, u64>,
    /// The times by phase.
    phases: BTreeMap<String, PhaseTimes>,
    /// When a login last joined a job, in seconds since the epoch.
    last_adoption: Option<i64>,
}

/// The content of the state's file.
#[derive(Debug)]
enum StoredCounts {
    Usable(Counts),
    /// Why a readable file has no valid state: a full disk, another version's format, or decisions that the
    /// module does not make.
    Unusable(String),
}

/// The times of a phase.
#[derive(Debug, Default, Serialize, Deserialize)]
struct PhaseTimes {
    /// The number of times within each of [`BOUNDS_MS`] and above the bound before it.
    within: BTreeMap<u64, u64>,
    /// The number of all times, also above the last bound.
    count: u64,
    sum_ms: u64,
}

impl Counts {
    /// Zero counts of this version, which the default value lacks.
    fn new() -> Self {
        Self {
            version: STATE_VERSION,
            ..Self::default()
        }
    }

    /// Reads the state. Without a file all counts are zero; a file without a valid state is
    /// [`StoredCounts::Unusable`].
    ///
    /// # Errors
    ///
    /// [`Error::Failed`] for a file that cannot be read.
    fn read(path: &Path) -> Result<StoredCounts, Error> {
        let bytes = match fs::read(path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                return Ok(StoredCounts::Usable(Self::new()));
            }
            Err(error) => return Err(Error::failed("read", path.display(), error)),
        };
        let counts = match serde_json::from_slice::<Self>(&bytes) {
            Ok(counts) => counts,
            Err(error) => return Ok(StoredCounts::Unusable(error.to_string())),
        };
        if counts.version != STATE_VERSION {
            return Ok(StoredCounts::Unusable(format!(
                "is of version {}",
                counts.version
            )));
        }
        if !counts.is_valid() {
            return Ok(StoredCounts::Unusable(
                "counts what nobody decides".to_owned(),
            ));
        }
        Ok(StoredCounts::Usable(counts))
    }

    /// Whether all counts are of decisions, codes and phases that the module has.
    fn is_valid(&self) -> bool {
        self.logins.keys().all(|key| {
            let [phase, decision, code] = split_key(key);
            is_decision(phase, decision, code)
        }) && self
            .phases
            .keys()
            .all(|phase| phase.parse::<Phase>().is_ok())
    }

    /// Adds the lines behind the cursor, and moves it. It fails with [`Error::Failed`] if the journal cannot be read; the
    /// cursor then stays, though lines may have been added.
    fn read_new_lines(&mut self) -> Result<(), Error> {
        let cursor = self.cursor.clone();
        self.cursor = read_journal(cursor.as_deref(), &mut |entry| self.add(&entry))?;
        Ok(())
    }

    /// Counts the decision of a log entry, and the time of its phase if the entry has one. An entry without a
    /// decision, phase and code of the module is left out.
    fn add(&mut self, entry: &LogEntry) {
        let [decision, phase, code] = ["decision", "phase", "code"].map(|key| entry.get(key));
        if !is_decision(phase, decision, code) {
            return;
        }
        *self
            .logins
            .entry(format!("{phase} {decision} {code}"))
            .or_default() += 1;
        if decision == Decision::Adopt.as_str() {
            self.last_adoption = self.last_adoption.max(Some(entry.at));
        }
        let Ok(ms) = entry.get("ms").parse::<u64>() else {
            return;
        };
        let times = self.phases.entry(phase.to_owned()).or_default();
        if let Some(bound) = BOUNDS_MS.iter().find(|bound| ms <= **bound) {
            *times.within.entry(*bound).or_default() += 1;
        }
        times.count += 1;
        times.sum_ms = times.sum_ms.saturating_add(ms);
    }

    /// Shows the counts and the node's state in the text format of Prometheus. A metric without a value is
    /// left out.
    fn to_prometheus(&self, node: &NodeState) -> String {
        let mut text = describe_metric(
            "logins_total",
            "counter",
            "Decisions by phase, decision and code.",
        );
        for (key, count) in &self.logins {
            let [phase, decision, code] = split_key(key).map(escape_label);
            let _ = writeln!(
                text,
                "job_adopt_logins_total{{phase=\"{phase}\",decision=\"{decision}\",code=\"{code}\"}} \
                 {count}"
            );
        }
        text += &describe_metric("phase_seconds", "histogram", "The time that a phase took.");
        for (phase, times) in &self.phases {
            text += &times.to_prometheus(&escape_label(phase));
        }
        let gauges = [
            (
                "last_adoption_timestamp_seconds",
                self.last_adoption,
                "When a login last joined a job.",
            ),
            (
                "strays",
                node.strays,
                "Processes of users who have no job here.",
            ),
            (
                "slices_open",
                node.slices,
                "Users' slices that are not closed.",
            ),
            (
                "metrics_timestamp_seconds",
                Some(now()),
                "When this was counted.",
            ),
        ];
        for (name, value, help) in gauges {
            if let Some(value) = value {
                text += &describe_metric(name, "gauge", help);
                let _ = writeln!(text, "job_adopt_{name} {value}");
            }
        }
        text
    }

    /// Shows the counts and the node's state as JSON; values that are unknown are null.
    fn to_json(&self, node: &NodeState) -> serde_json::Value {
        let mut logins = Vec::new();
        for (key, count) in &self.logins {
            let [phase, decision, code] = split_key(key);
            logins.push(serde_json::json!({
                "phase": phase, "decision": decision, "code": code, "count": count,
            }));
        }
        serde_json::json!({
            "schema": 1,
            "logins": logins,
            "phases": self.phases,
            "last_adoption": self.last_adoption,
            "last_adoption_age": self.last_adoption.map(|at| (now() - at).max(0)),
            "strays": node.strays,
            "slices_open": node.slices,
        })
    }
}

impl PhaseTimes {
    /// Shows the times as a histogram in the text format of Prometheus: each bucket counts all times up to
    /// its bound, those of the buckets before it included.
    fn to_prometheus(&self, phase: &str) -> String {
        let name = "job_adopt_phase_seconds";
        let mut text = String::new();
        let mut up_to_bound = 0;
        for bound in BOUNDS_MS {
            up_to_bound += self.within.get(&bound).copied().unwrap_or_default();
            let le = seconds(bound);
            let _ = writeln!(
                text,
                "{name}_bucket{{phase=\"{phase}\",le=\"{le}\"}} {up_to_bound}"
            );
        }
        let Self { count, sum_ms, .. } = self;
        let _ = writeln!(
            text,
            "{name}_bucket{{phase=\"{phase}\",le=\"+Inf\"}} {count}"
        );
        let _ = writeln!(text, "{name}_sum{{phase=\"{phase}\"}} {}", seconds(*sum_ms));
        let _ = writeln!(text, "{name}_count{{phase=\"{phase}\"}} {count}");
        text
    }
}

/// The two lines that precede the values of a metric.
fn describe_metric(name: &str, kind: &str, help: &str) -> String {
    format!("# HELP job_adopt_{name} {help}\n# TYPE job_adopt_{name} {kind}\n")
}

/// Whether a line with these values can be one of the module's decisions: a line with others has another
/// origin. `code` may be empty: not every decision has one.
fn is_decision(phase: &str, decision: &str, code: &str) -> bool {
    decision.parse::<Decision>().is_ok()
        && phase.parse::<Phase>().is_ok()
        && (code.is_empty() || code.parse::<Reason>().is_ok())
}

/// Escapes a label's value for the quotes of Prometheus' text format.
fn escape_label(value: &str) -> String {
    value
        .replace('\\', r"\\")
        .replace('"', "\\\"")
        .replace('\n', r"\n")
}

/// Splits a key into phase, decision and code.
fn split_key(key: &str) -> [&str; 3] {
    let mut parts = key.splitn(3, ' ');
    [(); 3].map(|()| parts.next().unwrap_or_default())
}

fn seconds(ms: u64) -> f64 {
    ms as f64 / 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Scratch;

    const NODE: NodeState = NodeState {
        strays: Some(3),
        slices: Some(1),
    };

    fn count(lines: &[&str]) -> Counts {
        let mut counts = Counts::new();
        for line in lines {
            counts.add(&LogEntry::from_pairs(line, 7));
        }
        counts
    }

    const LINES: [&str; 8] = [
        "decision=admit code=JA00 user=a phase=account ms=3",
        "decision=adopt code=JA00 user=a phase=session ms=4",
        "decision=adopt code=JA00 user=a phase=session ms=12001",
        "decision=refuse code=JA01 user=b phase=account ms=2",
        "user=a job=7 warning=\"decision=adopt phase=session\"",
        "decision=forged code=JA00 phase=session",
        "decision=adopt code=JA99 phase=session",
        r#"decision=adopt code="JA\"\"" phase=session"#,
    ];

    #[test]
    fn decisions_times_and_node_are_reported() {
        let counts = count(&LINES);
        let text = counts.to_prometheus(&NODE);
        for line in [
            "job_adopt_logins_total{phase=\"account\",decision=\"admit\",code=\"JA00\"} 1",
            "job_adopt_logins_total{phase=\"account\",decision=\"refuse\",code=\"JA01\"} 1",
            "job_adopt_logins_total{phase=\"session\",decision=\"adopt\",code=\"JA00\"} 2",
            "job_adopt_phase_seconds_bucket{phase=\"account\",le=\"0.002\"} 1",
            "job_adopt_phase_seconds_bucket{phase=\"account\",le=\"0.005\"} 2",
            "job_adopt_phase_seconds_bucket{phase=\"session\",le=\"10\"} 1",
            "job_adopt_phase_seconds_bucket{phase=\"session\",le=\"+Inf\"} 2",
            "job_adopt_phase_seconds_sum{phase=\"session\"} 12.005",
            "job_adopt_phase_seconds_count{phase=\"session\"} 2",
            "job_adopt_strays 3",
            "job_adopt_slices_open 1",
        ] {
            assert!(text.lines().any(|other| other == line), "{line}: {text}");
        }
        assert_eq!(text.matches("forged").count(), 0);
        assert!(counts.last_adoption.is_some());
        // Each name is described once, before its values.
        for name in [
            "logins_total",
            "phase_seconds",
            "strays",
            "last_adoption_timestamp_seconds",
        ] {
            assert_eq!(
                text.matches(&format!("# TYPE job_adopt_{name} ")).count(),
                1
            );
        }
        let json = counts.to_json(&NODE);
        assert_eq!((&json["schema"], &json["strays"]), (&1.into(), &3.into()));
        assert_eq!(json["logins"].as_array().unwrap().len(), 3);
    }

    #[test]
    fn unknown_state_of_node_is_left_out() {
        let unknown = NodeState {
            strays: None,
            slices: None,
        };
        let text = count(&LINES).to_prometheus(&unknown);
        for name in ["strays", "slices_open"] {
            assert!(!text.contains(&format!("job_adopt_{name}")), "{text}");
        }
        assert!(count(&LINES).to_json(&unknown)["slices_open"].is_null());
    }

    #[test]
    fn valid_state_is_kept_and_other_format_is_refused() {
        let scratch = Scratch::new();
        let state = scratch.path().join("state.json");
        let text = serde_json::to_string(&count(&LINES)).unwrap();
        replace_file(&state, &text, None).unwrap();
        let StoredCounts::Usable(again) = Counts::read(&state).unwrap() else {
            panic!("{text}")
        };
        assert_eq!(again.logins, count(&LINES).logins);
        let other = text.replace("\"version\":2", "\"version\":1");
        let forged = text.replace("session adopt JA00", "session adopt JA00\\\"} 1");
        assert_ne!(forged, text);
        for wrong in ["", "{}", "\u{0}\u{0}", &text[..30], &other, &forged] {
            fs::write(&state, wrong).unwrap();
            let stored = Counts::read(&state).unwrap();
            assert!(matches!(stored, StoredCounts::Unusable(_)), "{wrong}");
        }
        fs::write(&state, [0xff, 0xfe]).unwrap();
        assert!(matches!(
            Counts::read(&state).unwrap(),
            StoredCounts::Unusable(_)
        ));
        fs::remove_file(&state).unwrap();
        let StoredCounts::Usable(new) = Counts::read(&state).unwrap() else {
            panic!()
        };
        assert_eq!(new.version, STATE_VERSION);
    }

    #[test]
    fn label_values_are_escaped_for_quotes() {
        assert_eq!(escape_label("a\\b\"c\nd"), r#"a\\b\"c\nd"#);
        let mut counts = Counts::new();
        counts.logins.insert("x\" y\n z\\".to_owned(), 1);
        let text = counts.to_prometheus(&NODE);
        let line = r#"job_adopt_logins_total{phase="x\"",decision="y\n",code="z\\"} 1"#;
        assert!(text.lines().any(|other| other == line), "{text}");
    }

    /// A panel with an unknown metric would be empty.
    #[test]
    fn dashboard_uses_only_reported_metrics() {
        let path = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../packaging/monitoring/grafana.json"
        );
        let text = fs::read_to_string(path).unwrap();
        let json: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert!(json["panels"].as_array().unwrap().len() >= 5);
        let metrics = count(&LINES).to_prometheus(&NODE);
        let is_letter = |c: char| c.is_ascii_lowercase() || c == '_';
        let words = text.split(|c| !is_letter(c));
        let names: Vec<&str> = words
            .filter(|word| word.starts_with("job_adopt_"))
            .collect();
        assert!(names.len() >= 5);
        for name in names {
            let is_reported = |end: char| metrics.contains(&format!("\n{name}{end}"));
            assert!(is_reported(' ') || is_reported('{'), "{name}");
        }
    }
}
