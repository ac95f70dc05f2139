//! `enable`: sets the node up so that logins join jobs and nothing else opens the jobs' devices. It shows
//! each change before it makes it, and a second call does nothing twice.
//!
//! With `--try` everything goes back unless the admin keeps it. The module `change` says how.

mod end;
mod memory;
mod plan;
mod questions;
mod trial;
mod verdict;

use super::change::{Pending, lock, sync_node};
use super::pam::{Door, LineOptions};
use super::part::{Part, PlaceOptions};
use super::slice_opening::{open_slices_of, report_opened};
use clap::{ArgGroup, Args};
use command::accounts::require_root;
use command::error::Error;
use command::exit_status::EXIT_FINE;
use command::options::Conf;
use command::output::Output;
use end::{keep, undo};
use plan::NodePlan;
use questions::{run_account, run_stack};
use std::io;
use std::time::Duration;
use trial::{ask_unchanged, try_change};

/// Longest trial.
const TRIAL_MAX_SECONDS: u64 = 24 * 3600;

/// Set this node up: PAM lines, users' slices, bus policy and the mount of job-adopt use
#[derive(Debug, Args)]
#[command(
    group = ArgGroup::new("what"),
    after_help = "\
Shows each file and command before it changes anything, and changes only what is missing. Parts:
  pam     our lines in the service's stack; lines that they replace are commented out
  slices  drop-ins by which what users run outside of jobs opens no GPU
  bus     a policy by which users move no process out of a job
  mount   the file system of job-adopt use
With --try it runs the service's real stack for each USER, who must have a job here or be exempt; for a user without
a job; and for root: the old one and the new one, once each. Modules with a memory, such as pam_faillock, pam_tally2
and pam_abl, take that for a login, and forget failed attempts: those are named before. All goes back at once if the new stack refuses a USER, gives one no session or the job of another
user, lets a user without a job in whom the old one refused, refuses root whom the old one let in, or gives no answer;
else after TIME or at the next boot, unless you run job-adopt enable --keep before. That needs systemd. What is
interrupted goes back by itself or in the next call. Slices of users who are logged in stay closed after what goes back
by itself; --undo opens them. --conf is for images, and where the lines name no other file.
Exit status: 0 fine, also where nothing had to change, 1 an answer by which a try goes back, or something is left after
--undo, 2 wrong usage, 3 refused or not done; the node is then as it was, or the message says what is not."
)]
pub struct Options {
    /// Go back after so long: a number with s, m or h
    #[arg(
        long = "try",
        group = "what",
        value_name = "TIME",
        value_parser = parse_time,
        requires = "users"
    )]
    length: Option<Duration>,
    /// Keep what is tried
    #[arg(long, group = "what", conflicts_with = "dry_run")]
    keep: bool,
    /// Take back what is tried or was interrupted, and open slices that are left closed
    #[arg(long, group = "what", conflicts_with = "dry_run")]
    undo: bool,
    /// Run the stack for the user in this process
    #[arg(long, group = "what", hide = true, requires = "users")]
    inside: bool,
    /// Run the account phase of the stack for the user in this process
    #[arg(long, group = "what", hide = true, requires = "users")]
    account: bool,
    /// The user without a job here whom the new stack must not let in; found if not given
    #[arg(long, value_name = "USER", requires = "length")]
    without_job: Option<String>,
    /// Whose logins are tried
    #[arg(value_name = "USER", requires = "what", conflicts_with_all = ["keep", "undo"])]
    users: Vec<String>,
    #[command(flatten)]
    lines: LineOptions,
    #[command(flatten)]
    place: PlaceOptions,
    #[command(flatten)]
    conf: Conf,
}

/// Parses the length of a trial: a number with `s`, `m` or `h`, from 1 s to a day. A number alone would be taken for
/// minutes by some, for seconds by others.
fn parse_time(text: &str) -> Result<Duration, &'static str> {
    const MISTAKE: &str = "not a time with its unit, as 90s, 15m or 2h, up to a day";
    let digits_end = text.trim_end_matches(|c: char| !c.is_ascii_digit()).len();
    let (number, unit) = text.split_at(digits_end);
    let factor = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        _ => return Err(MISTAKE),
    };
    let count = number.parse::<u64>().map_err(|_| MISTAKE)?;
    match count.checked_mul(factor) {
        Some(seconds @ 1..=TRIAL_MAX_SECONDS) => Ok(Duration::from_secs(seconds)),
        _ => Err(MISTAKE),
    }
}

/// What a call of `enable` does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verb {
    /// It shows what would change.
    Show,
    /// It asks the stack about a user: a trial gives that to a process that it starts.
    RunStack,
    /// It asks the account lines of the stack, as [`Verb::RunStack`].
    RunAccount,
    /// It ends a trial, whose change stays.
    Keep,
    /// It ends a trial or an interrupted change, which goes back.
    Undo,
    /// It changes the node, for good or as a trial.
    Change,
}

impl Options {
    fn verb(&self) -> Verb {
        if self.place.dry_run {
            Verb::Show
        } else if self.inside {
            Verb::RunStack
        } else if self.account {
            Verb::RunAccount
        } else if self.keep {
            Verb::Keep
        } else if self.undo {
            Verb::Undo
        } else {
            Verb::Change
        }
    }

    /// The first user that is named; empty without one.
    fn user(&self) -> &str {
        self.users.first().map(String::as_str).unwrap_or_default()
    }
}

/// Runs `enable`. A change that was interrupted before is taken back first. Without root's rights it can only show what
/// would change.
///
/// # Errors
///
/// [`Error`] with the exit status of the command.
pub fn execute(options: &Options, output: &mut Output<'_>) -> Result<u8, Error> {
    let service = &options.lines.service;
    let root = &options.place.root;
    let verb = options.verb();
    if verb != Verb::Show {
        require_root("change the node")?;
    }
    match verb {
        Verb::Show => show(options, output),
        Verb::RunStack => run_stack(service, options.user(), output),
        Verb::RunAccount => run_account(service, options.user()),
        Verb::Keep => {
            let _lock = lock(root)?;
            keep(Pending::read(root)?, output)
        }
        Verb::Undo => {
            let _lock = lock(root)?;
            undo(Pending::read(root)?, root, output)
        }
        Verb::Change => {
            let _lock = lock(root)?;
            match Pending::read(root)? {
                None => set_up(options, output),
                Some(pending) => set_up_after(&pending, options, output),
            }
        }
    }
}

/// Shows what would change. It fails with [`Error::Failed`] if that cannot be planned.
fn show(options: &Options, output: &mut Output<'_>) -> Result<u8, Error> {
    if let Some(pending) = Pending::read(&options.place.root)? {
        output.warn(pending.describe());
        if !pending.is_trial() {
            require_door_after_undo(&pending)?;
        }
    }
    let plan = NodePlan::new(options, output)?;
    plan.describe(output)?;
    writeln!(output.out, "{}", plan.describe_dry_run())?;
    plan.warn_of_doubts(output);
    Ok(EXIT_FINE)
}

/// Takes an interrupted change back, and then sets the node up. It fails with [`Error::Failed`] while a trial is under way,
/// and if the change cannot be planned: the node is then left as it is.
fn set_up_after(
    pending: &Pending,
    options: &Options,
    output: &mut Output<'_>,
) -> Result<u8, Error> {
    output.warn(pending.describe());
    if pending.is_trial() {
        let why = "end the try first";
        return Err(Error::failed("change", "the node", why));
    }
    require_door_after_undo(pending)?;
    require_plan(options)?;
    pending.undo_files(output)?;
    let result = set_up(options, output);
    // Not before: slices that are closed again must not open for a moment. This plan may leave them out, or fail. A try
    // that has them detaches no filter before it is kept.
    let is_tried = matches!(
        Pending::read(&options.place.root),
        Ok(Some(new)) if new.is_trial() && new.closes_slices()
    );
    if !is_tried {
        pending.open_slices(output);
    }
    result
}

/// Requires that the undo of an interrupted change leaves no node on which a profile of pam-auth-update is off that would
/// keep users without a job out: what follows the undo may fail.
///
/// # Errors
///
/// [`Error::Failed`] with what to run, and for a stack that cannot be read.
fn require_door_after_undo(pending: &Pending) -> Result<(), Error> {
    let Some((stack, restored)) = pending.read_undone_stack()? else {
        return Ok(());
    };
    let Door::ProfileOff(profile) = stack.find_door(&restored.text)? else {
        return Ok(());
    };
    let why = format!(
        "without our lines nothing keeps users without a job out: run pam-auth-update --enable {profile} and \
         job-adopt enable --undo, and begin again; or touch /etc/nologin before this and remove it after it"
    );
    Err(Error::failed("enable", stack.path.display(), why))
}

/// Requires that the change can be planned, before an interrupted one is taken back: a call that is refused leaves the
/// node as closed as it is. The plan after the undo gives the warnings. It fails as [`NodePlan::new`] does.
fn require_plan(options: &Options) -> Result<(), Error> {
    let (mut out, mut err) = (io::sink(), io::sink());
    let mut output = Output {
        out: &mut out,
        err: &mut err,
    };
    NodePlan::new(options, &mut output)?;
    Ok(())
}

/// Changes what is missing, for good or as a trial. It fails with [`Error::Failed`] if that cannot be planned or made.
fn set_up(options: &Options, output: &mut Output<'_>) -> Result<u8, Error> {
    let plan = NodePlan::new(options, output)?;
    if plan.change.is_empty() {
        sync_node(&options.place.root)?;
        writeln!(output.out, "unchanged: the node is as asked")?;
        let status = if options.length.is_some() {
            ask_unchanged(&plan, options, output)?
        } else {
            EXIT_FINE
        };
        plan.warn_of_doubts(output);
        return Ok(status);
    }
    let status = match options.length {
        Some(length) => try_change(&plan, length, options, output),
        None => make_change(&plan, output),
    }?;
    // Once more, below all else.
    plan.warn_of_doubts(output);
    Ok(status)
}

/// Makes the planned change for good: first the stack, then all else. Slices of users who are exempt from then on open
/// last: devices that they open meanwhile would stay open if the change went back. It fails with [`Error::Failed`] if a
/// step fails; the change is then taken back, and the error tells whether all is as it was.
fn make_change(plan: &NodePlan<'_>, output: &mut Output<'_>) -> Result<u8, Error> {
    plan.describe(output)?;
    plan.warn_of_penalties(output);
    plan.warn_of_doubts(output);
    plan.save_original()?;
    let pending = plan.change.begin(None, output)?;
    let made = plan
        .change
        .apply(|part| part == Part::Pam)
        .and_then(|()| plan.finish(output))
        .and_then(|()| pending.keep());
    if let Err(error) = made {
        return Err(plan.change.abandon(&pending, error, output));
    }
    let cleared = pending.clear();
    let opened = open_slices_of(|uid| plan.exempt.contains_key(&uid), output);
    report_opened(&opened, output)?;
    cleared?;
    writeln!(
        output.out,
        "enabled; job-adopt check looks at the node, and job-adopt disable takes this back"
    )?;
    Ok(EXIT_FINE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_up_to_a_day_are_parsed() {
        for (text, seconds) in [("90s", 90), ("15m", 900), ("24h", 86400)] {
            assert_eq!(parse_time(text).unwrap().as_secs(), seconds);
        }
        for text in [
            "",
            "0s",
            "15",
            "m",
            "25h",
            "1d",
            "-5m",
            "1.5h",
            "99999999999999999999h",
        ] {
            assert!(parse_time(text).is_err(), "{text}");
        }
    }
}
