//! `disable`: takes all of `enable` back, and names what it leaves.

use super::change::{Change, Command, MountStep, Pending, lock, sync_node};
use super::file_change::at;
use super::pam::{Door, Restored, Stack, plan_removal, warn_of_remaining_lines};
use super::part::{Part, PlaceOptions};
use super::slice_opening::{find_closed_slices, open_slices, report_opened};
use super::use_mount::{MOUNT_UNIT, plan_link};
use crate::drop_ins::{plan_open_bus, plan_opening};
use clap::Args;
use command::accounts::require_root;
use command::error::Error;
use command::exit_status::{EXIT_FINDINGS, EXIT_FINE};
use command::options::parse_service;
use command::output::Output;
use facts::systemd;
use std::fs;
use std::path::{Path, PathBuf};

/// The folder of the admin's units and drop-ins.
const UNIT_DIR: &str = "/etc/systemd/system";
/// The folder of the site's PAM stacks.
const PAM_DIR: &str = "/etc/pam.d";
/// The file that has podman keep containers in the job.
const CONTAINERS_FILE: &str = "/etc/containers/containers.conf.d/job-adopt.conf";

/// Take back what enable set up: logins are as before, and users' slices are open
#[derive(Debug, Args)]
#[command(after_help = "\
Shows each file and command before it changes anything. First our lines go, and the lines that they replaced come
back; then users' slices open, the bus allows what it did, and the mount of job-adopt use goes. A try ends as well.
Names what stays: lines in files of several services, slices that could not be opened, drop-ins that were copied by
hand. Refuses while the other module's profile of pam-auth-update is off, which ours took the place of: turn that on
first. While another service has lines of ours, slices, bus and mount stay, unless --only names them. The packages leave
configuration, records and accounts until they are purged (apt purge). At once, without this: touch
/run/job-adopt/off.
Exit status: 0 fine, also where nothing had to change, 1 lines of ours are left, or nothing keeps users without a job
out, 2 wrong usage, 3 refused or not done; the node is then as it was, or the message says what is not.")]
pub struct Options {
    /// The PAM service
    #[arg(long, value_name = "NAME", default_value = "sshd", value_parser = parse_service)]
    service: String,
    #[command(flatten)]
    place: PlaceOptions,
}

/// Runs `disable`: takes the set-up back. A trial, or a change that was interrupted, is taken back first.
/// Returns [`EXIT_FINDINGS`] if lines of ours stay, or if nothing keeps users without a job out; a dry run changes
/// nothing, returns [`EXIT_FINE`], and is refused where the call without it would be before it changes anything.
///
/// # Errors
///
/// [`Error`] with the exit status of the command.
pub fn execute(options: &Options, output: &mut Output<'_>) -> Result<u8, Error> {
    let root = options.place.root.as_path();
    if options.place.dry_run {
        if let Some(pending) = Pending::read(root)? {
            output.warn(pending.describe());
            require_door_after_undo(&pending, options, output)?;
        }
        let plan = NodePlan::new(options, output)?;
        plan.describe(output)?;
        plan.report_left(options, output)?;
        writeln!(output.out, "unchanged (--dry-run)")?;
        return Ok(EXIT_FINE);
    }
    require_root("change the node")?;
    let _lock = lock(root)?;
    let pending = Pending::read(root)?;
    if let Some(pending) = &pending {
        output.warn(pending.describe());
        require_door_after_undo(pending, options, output)?;
        pending.undo_files_and_slices(output)?;
    }
    let plan = NodePlan::new(options, output)?;
    plan.describe(output)?;
    let cleared = if plan.change.is_empty() {
        sync_node(root)
    } else {
        plan.make_change(output)?.clear()
    };
    // Before all that may fail: the change is kept.
    let opened = if plan.opens_slices {
        open_slices(output)
    } else {
        Vec::new()
    };
    report_opened(&opened, output)?;
    let is_left = plan.report_left(options, output)?;
    cleared?;
    let result = if pending.is_none() && plan.change.is_empty() && opened.is_empty() {
        "unchanged: the node is as asked"
    } else {
        "disabled"
    };
    writeln!(output.out, "{result}")?;
    Ok(if is_left { EXIT_FINDINGS } else { EXIT_FINE })
}

/// The changes that take the set-up back.
struct NodePlan<'a> {
    change: Change,
    /// The PAM stack as it is, and its planned text; `None` if the options leave the stack out.
    stack: Option<(Stack<'a>, Restored)>,
    /// The other services that still have lines of ours.
    other_services: Vec<String>,
    /// Set if the slices of users who are logged in open as well.
    opens_slices: bool,
}

impl<'a> NodePlan<'a> {
    /// Plans what `disable` changes in the parts that the options select, and the steps that make the node
    /// use it; nothing is changed yet. While another service has lines of ours, it leaves out, with a
    /// warning, the other parts, which that service's logins need, unless the options name them. It fails with
    /// [`Error::Failed`] if a part cannot be read or planned.
    fn new(options: &'a Options, output: &mut Output<'_>) -> Result<Self, Error> {
        let place = &options.place;
        let root = place.root.as_path();
        let mut change = Change::new(Command::Disable, root, &options.service);
        let mut stack = None;
        if place.has(Part::Pam) {
            let read = Stack::read(root, &options.service)?;
            let (lines, restored) = plan_removal(&read, output)?;
            if lines.is_some() {
                require_door(&read, &restored, output)?;
            }
            change.add(Part::Pam, lines);
            // If the change fails, our lines come back, and they need our module.
            change.modules = read.our_module().into_iter().collect();
            stack = Some((read, restored));
        }
        let other_services = find_other_services(root, &options.service);
        let is_shared = !other_services.is_empty();
        let is_meant = |part| place.has(part) && (!is_shared || place.is_named(part));
        if is_shared && place.has(Part::Slices) && !is_meant(Part::Slices) {
            output.warn(format_args!(
                "slices, bus, mount: left out, since {} still has lines of pam_job_adopt.so",
                other_services.join(", ")
            ));
        }
        let is_opening = is_meant(Part::Slices);
        if is_opening {
            change.add(Part::Slices, plan_opening(root)?);
        }
        if is_meant(Part::Bus) {
            change.add(Part::Bus, plan_open_bus(root)?);
        }
        let has_mount = is_meant(Part::Mount);
        if has_mount {
            change.add(Part::Mount, plan_link(root, None)?);
        }
        if systemd::reads(root) {
            change.steps.reload_units = change.has(Part::Slices)
                || change.has(Part::Mount)
                || is_opening && systemd::has_old_slices();
            change.steps.reload_bus = change.has(Part::Bus);
            let is_mounted = || systemd::is_active(MOUNT_UNIT);
            change.steps.mount = (has_mount && is_mounted()).then_some(MountStep::Stop);
        }
        Ok(Self {
            change,
            stack,
            other_services,
            opens_slices: is_opening && systemd::reads(root),
        })
    }

    /// Writes what will change.
    fn describe(&self, output: &mut Output<'_>) -> Result<(), Error> {
        self.change.describe(output)?;
        if !self.opens_slices {
            return Ok(());
        }
        if self.change.has(Part::Slices) {
            writeln!(
                output.out,
                "slices: detach systemd's filter from those of users who are logged in, unless another file closes them"
            )?;
        } else {
            for slice in find_closed_slices() {
                writeln!(output.out, "slices: {slice}: detach systemd's filter")?;
            }
        }
        Ok(output.out.flush()?)
    }

    /// Makes the change for good; what could take it back is still to be cleared. It fails with [`Error::Failed`] if a
    /// step fails; the change is then taken back, and the error tells whether all is as it was.
    fn make_change(&self, output: &mut Output<'_>) -> Result<Pending, Error> {
        let pending = self.change.begin(None, output)?;
        let made = self
            .change
            .apply(|_| true)
            .and_then(|()| self.change.activate(output))
            .and_then(|()| pending.keep());
        match made {
            Ok(()) => Ok(pending),
            Err(error) => Err(self.change.abandon(&pending, error, output)),
        }
    }

    /// Warns of what stays after the change. Returns whether lines of ours are among it, or nothing keeps users without a
    /// job out: other things that stay do not matter to that.
    fn report_left(&self, options: &Options, output: &mut Output<'_>) -> Result<bool, Error> {
        let root = options.place.root.as_path();
        let mut is_left = false;
        if let Some((stack, restored)) = &self.stack {
            is_left |= warn_of_remaining_lines(stack, restored, output)?;
            is_left |= stack.warn_if_open(restored, output)?;
            for service in &self.other_services {
                is_left = true;
                output.warn(format_args!(
                    "{PAM_DIR}/{service}: its lines of pam_job_adopt.so are left: job-adopt disable --service {service}"
                ));
            }
        }
        if options.place.has(Part::Slices) {
            for path in find_copied_files(root) {
                output.warn(format_args!(
                    "{}: stays, since it was copied by hand; remove it and restart its service",
                    path.display()
                ));
            }
        }
        Ok(is_left)
    }
}

/// Requires that the other module's profile, which the admin turned off for ours, is on again before our lines go, or
/// that pam_nologin lets nobody in meanwhile. It warns if nothing else keeps users without a job out, as on a node that
/// never had another module.
fn require_door(
    stack: &Stack<'_>,
    restored: &Restored,
    output: &mut Output<'_>,
) -> Result<(), Error> {
    let path = stack.path.display();
    match stack.find_door(&restored.text)? {
        Door::Judged => {}
        Door::ProfileOff(profile) => {
            return Err(Error::failed(
                "disable",
                path,
                format_args!(
                    "without our lines nothing keeps users without a job out: run pam-auth-update --enable {profile}, \
                     and then this again; to let everybody in, touch /etc/nologin before this and remove it after it"
                ),
            ));
        }
        Door::Shut(Some(profile)) => output.warn(format_args!(
            "{path}: only nologin keeps users without a job out: run pam-auth-update --enable {profile} before you \
             remove it"
        )),
        Door::Shut(None) | Door::Open if restored.is_complete() => output.warn(format_args!(
            "{path}: no other line keeps users without a job out"
        )),
        // Named with the module that is missing.
        Door::Shut(None) | Door::Open => {}
    }
    Ok(())
}

/// Requires a door, as [`require_door`] does, before our lines go with the undo of a pending change: those of the service
/// all go, and those of another service, or if the options leave the stack out, as far as that change brought them; then
/// those of the service itself have to leave a door as well, since nothing is taken back for a plan that fails. The undo of
/// an interrupted `disable` brings lines back, and the plan behind it judges these.
fn require_door_after_undo(
    pending: &Pending,
    options: &Options,
    output: &mut Output<'_>,
) -> Result<(), Error> {
    if !pending.is_of_enable() {
        return Ok(());
    }
    let has_stack = options.place.has(Part::Pam);
    if !has_stack || !pending.is_of_service(&options.service) {
        if let Some((stack, restored)) = pending.read_undone_stack()? {
            require_door(&stack, &restored, output)?;
        }
    }
    if has_stack {
        let stack = Stack::read(&options.place.root, &options.service)?;
        let restored = stack.without_our_lines()?;
        if restored.text != stack.text {
            require_door(&stack, &restored, output)?;
        }
    }
    Ok(())
}

/// Finds the other services with lines of ours in their own files, in order. Files that services include are left out
/// (Debian's `common-`), and a folder that cannot be read has none.
fn find_other_services(root: &Path, service: &str) -> Vec<String> {
    let mut services: Vec<String> = fs::read_dir(at(root, Path::new(PAM_DIR)))
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| name != service && !name.starts_with('.') && !name.starts_with("common-"))
        .filter(|name| names_our_module(&at(root, &Path::new(PAM_DIR).join(name))))
        .collect();
    services.sort();
    services
}

/// Whether a file has our module in a line that is no comment.
fn names_our_module(path: &Path) -> bool {
    let text = fs::read(path).unwrap_or_default();
    String::from_utf8_lossy(&text)
        .lines()
        .filter_map(|line| line.split('#').next())
        .any(|line| line.contains("pam_job_adopt"))
}

/// Finds drop-ins of ours that an admin has copied, for services of the system or for podman, in order. A folder that
/// cannot be read has none.
fn find_copied_files(root: &Path) -> Vec<PathBuf> {
    let folders = fs::read_dir(at(root, Path::new(UNIT_DIR)));
    let mut paths: Vec<PathBuf> = folders
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok())
        // The drop-ins of users' slices are removed by `disable` itself.
        .filter(|name| name.ends_with(".d") && !name.starts_with("user-"))
        .map(|name| Path::new(UNIT_DIR).join(name).join("job-adopt.conf"))
        .chain([CONTAINERS_FILE.into()])
        .filter(|path| at(root, path).exists())
        .collect();
    paths.sort();
    paths
}
