//! `guard`: keeps what users run outside of jobs from the guarded devices.

mod target;

use super::register::PATIENCE;
use super::{Conf, Error, Output, require_root, show};
use crate::cgroup::Mount;
use crate::device::{Resolver, Tree};
use crate::guard::{self, Ensured, Judged};
use crate::log::{Line, Severity};
use crate::plan::Allowlist;
use crate::resolve::{Config, Enforce, Guarded, Guarding, guarding, spared};
use crate::switch;
use clap::Args;
use std::time::Instant;
use target::{Target, Whose};

/// Keep what users run outside of jobs from GPUs (root)
#[derive(Debug, Args)]
pub(super) struct Options {
    #[command(flatten)]
    whose: Whose,
    /// Take the guard off
    #[arg(long)]
    remove: bool,
    #[command(flatten)]
    conf: Conf,
}

pub(super) fn command(options: &Options, output: &mut Output<'_>) -> Result<u8, Error> {
    if options.whose.is_roots() {
        // Nothing that is broken here may keep root from logging in.
        return show("root's slice is never guarded\n", output);
    }
    require_root("guard slice")?;
    Mount::open()?.require_own_namespace()?;
    let targets = Target::of(&options.whose)?;
    let site = if options.remove { None } else { Some(Site::read(&options.conf, output)?) };
    if targets.is_empty() {
        writeln!(output.out, "no user has a slice here: nothing to guard")?;
    }
    let mut code = super::EXIT_FINE;
    for target in targets {
        let done = match &site {
            Some(site) => site.guard(&target, output),
            None => unguard(&target, "", output),
        };
        // One that fails keeps no other from being guarded.
        if let Err((bad, why)) = done {
            super::log(line(Severity::Error, "guard", &target).with("error", &why));
            output.warn(format_args!("{target}: not guarded: {why}"));
            code = code.max(bad);
        }
    }
    Ok(code)
}

/// The exit code of what failed, and why it did.
type Trouble = (u8, String);

fn trouble(error: &guard::Error) -> Trouble {
    let code = if error.is_obstacle() { super::EXIT_FINDINGS } else { super::EXIT_FAILED };
    (code, error.to_string())
}

/// What the site says of guards.
struct Site {
    config: Config,
    list: Allowlist,
    /// Why nothing is guarded on this node.
    off: Option<String>,
}

impl Site {
    fn read(conf: &Conf, output: &mut Output<'_>) -> Result<Self, Error> {
        let config = conf.read()?;
        let resolver = Resolver::new(Tree::here(), config.devices.clone());
        let Guarding { list, warnings } = guarding(&config, &resolver).map_err(Error::Failed)?;
        warnings.iter().for_each(|text| output.warn(format_args!("warning: {text}")));
        let off = match &config.enforce {
            _ if switch::is_off() => Some(format!("{} is there", switch::OFF)),
            Enforce::IfExists(path) if std::fs::symlink_metadata(path).is_err_and(is_missing) => {
                Some(format!("{} does not exist", path.display()))
            }
            _ if config.guarded == Guarded::Nothing => Some("guarded = none".into()),
            _ if list.is_empty() => Some("no device of this node is guarded".into()),
            _ => None,
        };
        Ok(Self { config, list, off })
    }

    /// Guards what is to be guarded, and takes the guard off what is not.
    fn guard(&self, target: &Target, output: &mut Output<'_>) -> Result<(), Trouble> {
        let mut warnings = Vec::new();
        let why = self.off.clone().or_else(|| {
            let spared = spared(target.uid?, None, &self.config, &mut warnings);
            spared.map(|spared| spared.to_string())
        });
        warnings.iter().for_each(|text| output.warn(format_args!("warning: {text}")));
        if let Some(why) = why {
            return unguard(target, &why, output);
        }
        let deadline = Instant::now() + PATIENCE;
        let done = guard::ensure(&target.path, &self.list, deadline);
        let done = match done.map_err(|error| trouble(&error))? {
            Judged::Free(done) => done,
            Judged::Unseen(done, why) => {
                output.warn(format_args!(
                    "warning: {target}: not all of it could be looked through for jobs: {why}"
                ));
                done
            }
            Judged::HoldsJob(job) => {
                let text = format!("not guarded: it holds the cgroup of job {job}");
                return say(target, &text, output);
            }
        };
        let text = match done {
            // What a site asks for by name is not left out in silence.
            Ensured::NoSlice if target.uid.is_none() => {
                return Err((
                    super::EXIT_FINDINGS,
                    format!("does not exist ({})", target.absent()),
                ));
            }
            Ensured::NoSlice => format!("does not exist ({}): nothing to guard", target.absent()),
            Ensured::Held => "is guarded".into(),
            Ensured::Missing => "is not guarded".into(),
            Ensured::Attached => {
                super::log(line(Severity::Info, "guard", target).with("devices", self.list.len()));
                "is guarded now".into()
            }
        };
        say(target, &text, output)
    }
}

fn is_missing(error: std::io::Error) -> bool {
    error.kind() == std::io::ErrorKind::NotFound
}

/// Takes the guard off, and says why, where there is a reason.
fn unguard(target: &Target, why: &str, output: &mut Output<'_>) -> Result<(), Trouble> {
    let removed = guard::remove(&target.path, Instant::now() + PATIENCE);
    let removed = removed.map_err(|error| trouble(&error))?;
    if removed {
        super::log(line(Severity::Info, "unguard", target).with("reason", why));
    }
    let text = if removed { "is not guarded any more" } else { "not guarded" };
    let why = if why.is_empty() { String::new() } else { format!(": {why}") };
    say(target, &format!("{text}{why}"), output)
}

fn say(target: &Target, text: &str, output: &mut Output<'_>) -> Result<(), Trouble> {
    let failed = |error: std::io::Error| (super::EXIT_FAILED, format!("write: {error}"));
    writeln!(output.out, "{target}: {text}").map_err(failed)
}

fn line(severity: Severity, action: &str, target: &Target) -> Line {
    Line::new(severity)
        .with("action", action)
        .with("uid", target.uid.map_or(String::new(), |uid| uid.to_string()))
        .with("cgroup", &target.path)
}
