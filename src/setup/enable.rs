//! `enable`: sets the node up so that logins join jobs and nothing else opens the jobs' devices. It shows
//! each change before it makes it, and a second call does nothing twice.
//!
//! With `--try` everything goes back unless the admin keeps it. The module `change` says how.

mod memory;
mod questions;
mod verdict;

use super::change::{Change, Command, MountStep, Pending, lock, sync_node};
use super::file_change::at;
use super::missing_names::{describe_missing, require_files};
use super::pam::{Door, LineOptions, LinesPlan, Stack, plan_lines, read_conf_argument};
use super::part::{Part, PlaceOptions};
use super::slice_opening::{find_filtered_slices, open_slices, open_slices_of, report_opened};
use super::use_mount::{MOUNT_UNIT, find_unit, plan_link};
use crate::drop_ins::{
    BUS_POLICY_PATH, build_drop_ins, closed_drop_in_path, plan_bus_policy, plan_drop_ins,
    plan_opening,
};
use clap::{ArgGroup, Args};
use command::error::Error;
use command::exit_status::{EXIT_FINDINGS, EXIT_FINE};
use command::options::Conf;
use command::output::Output;
use facts::accounts::{self, require_root};
use facts::exempt_accounts::{ExemptAccounts, read_service_lines};
use facts::jobs::NodeJobs;
use facts::sshd::penalties::warn_of_penalties;
use facts::systemd;
use helper::Config;
use helper::devices::Resolver;
use helper::node::Tree;
use kernel::trust::Trust;
use module::Settings;
use questions::{StackChange, run_account, run_stack};
use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::time::Duration;
use verdict::Trial;

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

/// Runs `enable`: sets the node up, for good or as a trial, or ends a trial. A change that was interrupted
/// before is taken back first. Without root's rights it can only show what would change. With `--inside` or
/// `--account`, which a trial gives to processes that it starts, it only asks the stack about one user.
///
/// # Errors
///
/// [`Error`] with the exit status of the command.
pub fn execute(options: &Options, output: &mut Output<'_>) -> Result<u8, Error> {
    let service = &options.lines.service;
    let root = &options.place.root;
    if options.place.dry_run {
        if let Some(pending) = Pending::read(root)? {
            output.warn(pending.describe());
            if !pending.is_trial() {
                require_door_after_undo(&pending)?;
            }
        }
        let plan = NodePlan::new(options, output)?;
        plan.describe(output)?;
        writeln!(output.out, "{}", plan.describe_dry_run())?;
        plan.warn_of_doubts(output);
        return Ok(EXIT_FINE);
    }
    require_root("change the node")?;
    if options.inside || options.account {
        let user = options
            .users
            .first()
            .map(String::as_str)
            .unwrap_or_default();
        return if options.inside {
            run_stack(service, user, output)
        } else {
            run_account(service, user)
        };
    }
    let _lock = lock(root)?;
    let pending = Pending::read(root)?;
    if options.keep {
        return keep(pending, output);
    }
    if options.undo {
        return undo(pending, root, output);
    }
    let Some(pending) = pending else {
        return set_up(options, output);
    };
    output.warn(pending.describe());
    if pending.is_trial() {
        let why = "end the try first";
        return Err(Error::failed("change", "the node", why));
    }
    require_door_after_undo(&pending)?;
    require_plan(options)?;
    pending.undo_files(output)?;
    let result = set_up(options, output);
    // Not before: slices that are closed again must not open for a moment. This plan may leave them out, or fail. A try
    // that has them detaches no filter before it is kept.
    let is_tried =
        matches!(Pending::read(root), Ok(Some(new)) if new.is_trial() && new.closes_slices());
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

/// The changes that make the node right.
struct NodePlan<'a> {
    change: Change,
    /// `None` if the options leave the PAM stack out.
    lines: Option<PlannedLines<'a>>,
    /// What the admin may have meant otherwise: exempt users and groups that do not exist.
    doubts: Vec<String>,
    /// The uids whose slices stay open, each with the reason; none if the change leaves slices as they are.
    exempt: BTreeMap<u32, String>,
    is_trial: bool,
}

/// The stack, and the arguments that our lines get.
struct PlannedLines<'a> {
    stack: Stack<'a>,
    settings: Settings,
}

impl<'a> NodePlan<'a> {
    /// Plans what `enable` changes in the parts that the options select, and the steps that make the node use
    /// it; nothing is changed yet. While the lines observe, or the configuration enforces nothing here, it
    /// leaves slices and bus out with a warning, unless the options name them. It fails with
    /// [`Error::Failed`] if a part cannot be read or planned, or if slices are closed while the lines observe.
    fn new(options: &'a Options, output: &mut Output<'_>) -> Result<Self, Error> {
        let place = &options.place;
        let root = place.root.as_path();
        let service = &options.lines.service;
        let mut change = Change::new(Command::Enable, root, service);
        let mut lines = None;
        if place.has(Part::Pam) {
            let stack = Stack::read(root, service)?;
            let plan = plan_lines(&stack, options.lines.arguments.as_deref(), output)?;
            let LinesPlan {
                change: stack_change,
                settings,
                replaced_modules,
            } = plan;
            change.add(Part::Pam, stack_change);
            change.modules = replaced_modules;
            require_files(&settings, root)?;
            lines = Some(PlannedLines { stack, settings });
        }
        let settings = lines.as_ref().map(|lines| &lines.settings);
        let config = if place.has(Part::Slices) {
            Some(read_config(options, settings)?)
        } else {
            None
        };
        let doubts = describe_missing(settings, config.as_ref(), root);
        let is_observing = lines.as_ref().is_some_and(|lines| lines.settings.observe);
        // Why logins stay outside of jobs, if they do: closed slices and the bus policy would take their devices and
        // their containers.
        let reason = if is_observing {
            Some("the lines observe")
        } else if config
            .as_ref()
            .is_some_and(|config| config.missing_enforce_path().is_some())
        {
            Some("the configuration enforces nothing here")
        } else {
            None
        };
        let is_meant = |part| place.has(part) && (reason.is_none() || place.is_named(part));
        // An earlier `enable` has closed slices, and nothing here would open them.
        if is_observing
            && place.has(Part::Slices)
            && !is_meant(Part::Slices)
            && !plan_opening(root)?.is_empty()
        {
            let why = "slices are closed to logins outside of jobs; job-adopt disable --only slices,bus first";
            return Err(Error::failed("enable", "lines that observe", why));
        }
        if let Some(reason) = reason.filter(|_| !is_meant(Part::Slices)) {
            output.warn(format_args!(
                "slices, bus: left out, since {reason}, and logins stay in users' slices"
            ));
        }
        let is_closing = is_meant(Part::Slices);
        let has_bus = is_meant(Part::Bus);
        let mut exempt = BTreeMap::new();
        if let Some(config) = config.filter(|_| is_closing) {
            let open = list_open_slices(options, settings, &config)?;
            let resolver = Resolver::new(Tree::host(), config.devices.clone());
            let drop_ins = build_drop_ins(&config, &open, &resolver, output)?;
            change.add(Part::Slices, plan_drop_ins(root, &drop_ins)?);
            if systemd::reads(root) && change.has(Part::Slices) {
                exempt = open;
            }
        }
        if has_bus {
            change.add(Part::Bus, plan_bus_policy(root)?);
        }
        if place.has(Part::Mount) {
            match find_unit(root) {
                Some(unit) => change.add(Part::Mount, plan_link(root, Some(unit))?),
                None => output.warn(format_args!(
                    "mount: left out: {MOUNT_UNIT} is not installed"
                )),
            }
        }
        if systemd::reads(root) {
            let is_mounted = || systemd::is_active(MOUNT_UNIT);
            let has_mount = place.has(Part::Mount) && find_unit(root).is_some();
            change.steps.reload_units = change.has(Part::Slices)
                || change.has(Part::Mount)
                || is_closing && systemd::has_old_slices();
            change.steps.reload_bus = change.has(Part::Bus)
                || has_bus && systemd::has_old_bus(Path::new(BUS_POLICY_PATH));
            change.steps.mount = (has_mount && !is_mounted()).then_some(MountStep::Start);
        }
        Ok(Self {
            change,
            lines,
            doubts,
            exempt,
            is_trial: options.length.is_some(),
        })
    }

    /// Writes what will change.
    fn describe(&self, output: &mut Output<'_>) -> Result<(), Error> {
        self.change.describe(output)?;
        let when = if self.is_trial {
            ", once this is kept"
        } else {
            ""
        };
        for slice in find_filtered_slices(|uid| self.exempt.contains_key(&uid)) {
            writeln!(
                output.out,
                "slices: {slice}: detach systemd's filter, unless another file closes it{when}"
            )?;
        }
        Ok(output.out.flush()?)
    }

    /// Warns of what would lock operators out, or take their devices.
    fn warn_of_doubts(&self, output: &mut Output<'_>) {
        // Standard error has no buffer, and the admin reads both.
        let _ = output.out.flush();
        for text in &self.doubts {
            output.warn(format_args!("warning: {text}"));
        }
    }

    fn describe_dry_run(&self) -> &'static str {
        if self.change.is_empty() {
            "unchanged: the node is as asked"
        } else {
            "unchanged: that would change (--dry-run)"
        }
    }

    /// Changes all parts but the stack, and makes the node use the new files.
    fn finish(&self, output: &mut Output<'_>) -> Result<(), Error> {
        self.change.apply(|part| part != Part::Pam)?;
        self.change.activate(output)
    }

    /// Warns if, with the planned lines, refusals of a user would cost others at the same address their
    /// connections.
    fn warn_of_penalties(&self, output: &mut Output<'_>) {
        let Some(lines) = self.lines.as_ref() else {
            return;
        };
        if let Some(warning) = warn_of_penalties(&lines.stack.service) {
            output.warn(warning);
        }
    }

    /// Saves the stack without our lines, for the admin.
    fn save_original(&self) -> Result<(), Error> {
        match &self.lines {
            Some(lines) if self.change.has(Part::Pam) => lines.stack.save_original(),
            _ => Ok(()),
        }
    }
}

/// Lists the uids whose slices stay open, each with the reason: by the configuration, by the planned lines of the service
/// in place of those that it has, and by those of all other services.
///
/// # Errors
///
/// [`Error::Failed`] if an account or group cannot be looked up, and as [`read_service_lines`].
fn list_open_slices(
    options: &Options,
    settings: Option<&Settings>,
    config: &Config,
) -> Result<BTreeMap<u32, String>, Error> {
    let mut lines = read_service_lines(&options.place.root)?;
    if let Some(settings) = settings {
        let planned = &options.lines.service;
        lines.retain(|(service, _)| service != planned);
        lines.push((planned.clone(), settings.clone()));
    }
    Ok(ExemptAccounts::read(config, &lines)?.into_uids())
}

/// Reads the configuration that logins use: the one of our planned lines or, if these are left out, of those that the
/// service has. For an image, or without lines of ours, the option may name a file of this host.
///
/// # Errors
///
/// [`Error::Failed`] for a file that cannot be used, and if the option names another one than logins use: it may exempt
/// other users.
fn read_config(options: &Options, settings: Option<&Settings>) -> Result<Config, Error> {
    let root = options.place.root.as_path();
    let lines_conf = match settings {
        Some(settings) => Some(settings.conf.clone()),
        None => read_conf_argument(root, &options.lines.service),
    };
    let path = match (options.conf.option()?, lines_conf) {
        (Some(path), Some(conf)) if root == Path::new("/") && path != Path::new(&conf) => {
            let why = format!(
                "logins use {conf}: leave --conf out, or have the lines name it by --arguments conf=FILE"
            );
            return Err(Error::failed("enable by", path.display(), why));
        }
        (Some(path), _) => path,
        (None, Some(conf)) => at(root, Path::new(&conf)),
        (None, None) => at(root, &options.conf.path()?),
    };
    Ok(Config::read(&path, &Trust::root())?)
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

/// Makes the planned change until `length` is over or the admin keeps it. It asks the old stack about the
/// users, about one without a job and about root, and then asks the new one. If the new answers are not as
/// expected, it takes all back at once and returns [`EXIT_FINDINGS`]. It fails with [`Error::Failed`] if a
/// trial is not possible here, or if a step fails; what was changed is then taken back.
fn try_change(
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

/// Runs the stack of a node that is as asked for the users of a trial. Returns [`EXIT_FINDINGS`] if an answer is not as
/// expected. It fails with [`Error::Failed`] as [`begin_trial`] does.
fn ask_unchanged(
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

/// Ends a trial and keeps its change. It fails with [`Error::Failed`] if nothing is pending, if the pending
/// change was interrupted before all of it was made, or if it has gone back meanwhile.
fn keep(pending: Option<Pending>, output: &mut Output<'_>) -> Result<u8, Error> {
    let failed = |why: &str| Error::failed("keep", "the change", why);
    let Some(pending) = pending else {
        return Err(failed(
            "nothing is tried: it went back, or was kept, already",
        ));
    };
    if !pending.is_trial() {
        return Err(failed(
            "it was interrupted before all was in place; job-adopt enable --undo takes it back",
        ));
    }
    pending.stop_timer()?;
    pending.remove_journal().map_err(|error| {
        Error::Failed(format!(
            "{error}; it is not kept, and the next boot takes it back: job-adopt enable --keep tries again"
        ))
    })?;
    let cleared = pending.clear();
    // Not in the try: what a mistyped account opens stays open. systemd may open a slice when it reads the drop-in.
    pending.open_slices(output);
    cleared?;
    writeln!(output.out, "kept; job-adopt disable takes it back")?;
    Ok(EXIT_FINE)
}

/// Takes back a trial, or a change that was interrupted, and opens the slices that it or an earlier trial has left
/// closed. Returns [`EXIT_FINDINGS`] if something is not as it was before, or if nothing keeps users without a job
/// out now. It fails with [`Error::Failed`] if there is nothing to take back, or if a file cannot be brought back.
fn undo(pending: Option<Pending>, root: &Path, output: &mut Output<'_>) -> Result<u8, Error> {
    let Some(pending) = pending else {
        return open_left_slices(root, output);
    };
    let undone = pending.undo_files(output)?;
    if systemd::reads(root) {
        report_opened(&open_slices(output), output)?;
    }
    let is_open = pending.warn_if_profile_off(output) || undone.is_open;
    writeln!(output.out, "{}", undone.describe())?;
    Ok(if undone.is_changed || is_open {
        EXIT_FINDINGS
    } else {
        EXIT_FINE
    })
}

/// Opens the slices of users who are logged in that no unit file closes: a trial that goes back by itself leaves them
/// closed. It fails with [`Error::Failed`] if none opens.
fn open_left_slices(root: &Path, output: &mut Output<'_>) -> Result<u8, Error> {
    let opened = if systemd::reads(root) {
        open_slices(output)
    } else {
        Vec::new()
    };
    if opened.is_empty() {
        let why = "nothing is tried or was interrupted, and no slice opens; job-adopt disable takes back what was kept";
        return Err(Error::failed("undo", "the change", why));
    }
    report_opened(&opened, output)?;
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
