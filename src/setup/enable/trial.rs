//! `enable --try`: makes a change until it is kept, and asks the old and the new stack about the users.

use super::Options;
use super::plan::{NodePlan, PlannedLines};
use super::questions::StackChange;
use super::verdict::Trial;
use crate::change::Pending;
use crate::drop_ins::closed_drop_in_path;
use crate::pam::Door;
use crate::part::Part;
use command::accounts;
use command::error::Error;
use command::exit_status::{EXIT_FINDINGS, EXIT_FINE};
use command::output::Output;
use facts::jobs::NodeJobs;
use facts::systemd;
use helper::Config;
use kernel::trust::Trust;
use std::path::Path;
use std::time::Duration;

/// Makes the planned change until `length` is over or the admin keeps it. It asks the old stack about the
/// users, about one without a job and about root, and then asks the new one. If the new answers are not as
/// expected, it takes all back at once and returns [`EXIT_FINDINGS`]. It fails with [`Error::Failed`] if a
/// trial is not possible here, or if a step fails; what was changed is then taken back.
pub(super) fn try_change(
    plan: &NodePlan<'_>,
    length: Duration,
    options: &Options,
    output: &mut Output<'_>,
) -> Result<u8, Error> {
    let failed = |why: &str| Error::failed("try", "the change", why);
    let Some(lines) = &plan.lines else {
        return Err(failed(
            "logins are tried with the part pam; leave --only out",
        ));
    };
    if !systemd::reads(&options.place.root) {
        return Err(failed(
            "systemd does not run here, so nothing would bring the files back",
        ));
    }
    let change = if plan.change.has(Part::Pam) {
        StackChange::Changes
    } else {
        StackChange::Stays
    };
    if let Door::ProfileOff(profile) | Door::Shut(Some(profile)) =
        lines.stack.find_door(&lines.stack.text)?
    {
        output.warn(format_args!(
            "warning: once this goes back, nothing keeps users without a job out: pam-auth-update --enable {profile} \
             then, also if it goes back by itself"
        ));
    }
    let trial = begin_trial(lines, change, options, output)?;
    plan.describe(output)?;
    plan.warn_of_penalties(output);
    plan.warn_of_doubts(output);
    plan.save_original()?;
    let mut pending = plan.change.begin(Some(length), output)?;
    match carry_out_try(plan, &mut pending, &trial, output) {
        Ok(true) => {}
        Ok(false) => {
            let undone = plan.change.roll_back(&pending, output)?;
            writeln!(output.out, "{}", undone.describe())?;
            return Ok(EXIT_FINDINGS);
        }
        Err(error) => {
            // If the time was over, the undo took away what the failed step needed.
            let cause = require_armed(&pending).err().unwrap_or(error);
            return Err(plan.change.abandon(&pending, cause, output));
        }
    }
    writeln!(
        output.out,
        "it goes back in {} s, and when the node starts, unless you run: job-adopt enable --keep",
        length.as_secs()
    )?;
    if plan.change.creates(&closed_drop_in_path()) {
        writeln!(
            output.out,
            "slices of users who are logged in stay closed then, until you run: job-adopt enable --undo"
        )?;
    }
    Ok(EXIT_FINE)
}

/// Runs the stack of a node that is as asked for the users of a trial. Returns [`EXIT_FINDINGS`] if an answer is not as
/// expected. It fails with [`Error::Failed`] as [`begin_trial`] does.
pub(super) fn ask_unchanged(
    plan: &NodePlan<'_>,
    options: &Options,
    output: &mut Output<'_>,
) -> Result<u8, Error> {
    writeln!(output.out, "nothing is tried, and no timer runs")?;
    output.out.flush()?;
    let lines = plan.lines.as_ref();
    let Some(lines) = lines.filter(|_| systemd::reads(&options.place.root)) else {
        return Ok(EXIT_FINE);
    };
    let trial = begin_trial(lines, StackChange::Stays, options, output)?;
    if trial.report_answers(output)? {
        Ok(EXIT_FINE)
    } else {
        Ok(EXIT_FINDINGS)
    }
}

/// Asks the stack, as it is now, about the users of a trial, if the trial changes it. It fails with [`Error::Failed`] for a user who does not
/// exist, if no user without a job is found, and without an answer.
fn begin_trial<'a>(
    lines: &'a PlannedLines<'_>,
    change: StackChange,
    options: &Options,
    output: &mut Output<'_>,
) -> Result<Trial<'a>, Error> {
    let users = &options.users;
    for user in users {
        if accounts::require_user(user)?.uid.is_root() {
            output
                .warn("root gets in whatever these lines do: log in as a user with a job here too");
        }
    }
    let settings = &lines.settings;
    let config = Config::read(Path::new(&settings.conf), &Trust::root())?;
    let jobs = NodeJobs::read(&config)?;
    for doubt in &jobs.doubts {
        output.warn(&doubt.cause);
    }
    let jobless = options.without_job.as_deref();
    Trial::begin(&lines.stack, change, users, jobless, settings, jobs, output)
}

/// Changes the stack and asks it, and then changes all else and begins the trial. If an answer is not as expected,
/// changes nothing else and returns false. The timer of the undo has run since the change began: it fails with
/// [`Error::Failed`] if that goes off before all is in place, or if a step fails.
fn carry_out_try(
    plan: &NodePlan<'_>,
    pending: &mut Pending,
    trial: &Trial<'_>,
    output: &mut Output<'_>,
) -> Result<bool, Error> {
    plan.change.apply(|part| part == Part::Pam)?;
    require_armed(pending)?;
    if !trial.report_answers(output)? {
        return Ok(false);
    }
    plan.finish(output)?;
    require_armed(pending)?;
    pending.begin_trial()?;
    // begin_trial writes the journal. If the undo had removed it just before, it is there again, but no timer waits.
    require_armed(pending)?;
    Ok(true)
}

/// Fails if the undo has begun meanwhile.
fn require_armed(pending: &Pending) -> Result<(), Error> {
    if pending.is_armed() {
        return Ok(());
    }
    let why = "the time was over before all was in place; try a longer one";
    Err(Error::failed("try", "the change", why))
}
