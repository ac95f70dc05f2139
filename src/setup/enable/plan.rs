//! What `enable` changes on a node: the parts that it has, their files, and the steps that make the node use them.

use super::Options;
use crate::change::{Change, Command, MountStep};
use crate::drop_ins::{
    BUS_POLICY_PATH, build_drop_ins, plan_bus_policy, plan_drop_ins, plan_opening,
};
use crate::file_change::at;
use crate::missing_names::{describe_missing, require_files};
use crate::pam::{LinesPlan, Stack, plan_lines, read_conf_argument};
use crate::part::{Part, PlaceOptions};
use crate::slice_opening::find_filtered_slices;
use crate::use_mount::{MOUNT_UNIT, find_unit, plan_link};
use command::error::Error;
use command::output::Output;
use facts::exempt_accounts::{ExemptAccounts, read_service_lines};
use facts::sshd::penalties::warn_of_penalties;
use facts::systemd;
use helper::Config;
use helper::devices::Resolver;
use helper::node::Tree;
use kernel::trust::Trust;
use module::Settings;
use std::collections::BTreeMap;
use std::path::Path;

/// The changes that make the node right.
pub(super) struct NodePlan<'a> {
    pub(super) change: Change,
    /// `None` if the options leave the PAM stack out.
    pub(super) lines: Option<PlannedLines<'a>>,
    /// What the admin may have meant otherwise: exempt users and groups that do not exist.
    doubts: Vec<String>,
    /// The uids whose slices stay open, each with the reason; none if the change leaves slices as they are.
    pub(super) exempt: BTreeMap<u32, String>,
    is_trial: bool,
}

/// The stack, and the arguments that our lines get.
pub(super) struct PlannedLines<'a> {
    pub(super) stack: Stack<'a>,
    pub(super) settings: Settings,
}

impl<'a> NodePlan<'a> {
    /// Plans what `enable` changes in the parts that the options select, and the steps that make the node use
    /// it; nothing is changed yet. While the lines observe, or the configuration enforces nothing here, it
    /// leaves slices and bus out with a warning, unless the options name them. It fails with
    /// [`Error::Failed`] if a part cannot be read or planned, or if slices are closed while the lines observe.
    pub(super) fn new(options: &'a Options, output: &mut Output<'_>) -> Result<Self, Error> {
        let place = &options.place;
        let root = place.root.as_path();
        let mut change = Change::new(Command::Enable, root, &options.lines.service);
        let lines = if place.has(Part::Pam) {
            Some(PlannedLines::plan(options, &mut change, output)?)
        } else {
            None
        };
        let settings = lines.as_ref().map(|lines| &lines.settings);
        let config = if place.has(Part::Slices) {
            Some(read_config(options, settings)?)
        } else {
            None
        };
        let doubts = describe_missing(settings, config.as_ref(), root);
        let parts = MeantParts {
            place,
            outside: find_why_outside(settings, config.as_ref()),
        };
        if settings.is_some_and(|settings| settings.observe) {
            parts.require_no_closed_slices()?;
        }
        parts.warn_of_those_left_out(output);
        let mut exempt = BTreeMap::new();
        if let Some(config) = config.filter(|_| parts.has(Part::Slices)) {
            let open = list_open_slices(options, settings, &config)?;
            let resolver = Resolver::new(Tree::host(), config.devices.clone());
            let drop_ins = build_drop_ins(&config, &open, &resolver, output)?;
            change.add(Part::Slices, plan_drop_ins(root, &drop_ins)?);
            if systemd::reads(root) && change.has(Part::Slices) {
                exempt = open;
            }
        }
        if parts.has(Part::Bus) {
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
            parts.add_steps(&mut change);
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
    pub(super) fn describe(&self, output: &mut Output<'_>) -> Result<(), Error> {
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
    pub(super) fn warn_of_doubts(&self, output: &mut Output<'_>) {
        // Standard error has no buffer, and the admin reads both.
        let _ = output.out.flush();
        for text in &self.doubts {
            output.warn(format_args!("warning: {text}"));
        }
    }

    pub(super) fn describe_dry_run(&self) -> &'static str {
        if self.change.is_empty() {
            "unchanged: the node is as asked"
        } else {
            "unchanged: that would change (--dry-run)"
        }
    }

    /// Changes all parts but the stack, and makes the node use the new files.
    pub(super) fn finish(&self, output: &mut Output<'_>) -> Result<(), Error> {
        self.change.apply(|part| part != Part::Pam)?;
        self.change.activate(output)
    }

    /// Warns if, with the planned lines, refusals of a user would cost others at the same address their
    /// connections.
    pub(super) fn warn_of_penalties(&self, output: &mut Output<'_>) {
        let Some(lines) = self.lines.as_ref() else {
            return;
        };
        if let Some(warning) = warn_of_penalties(&lines.stack.service) {
            output.warn(warning);
        }
    }

    /// Saves the stack without our lines, for the admin.
    pub(super) fn save_original(&self) -> Result<(), Error> {
        match &self.lines {
            Some(lines) if self.change.has(Part::Pam) => lines.stack.save_original(),
            _ => Ok(()),
        }
    }
}

impl<'a> PlannedLines<'a> {
    /// Plans our lines in the stack of the service, and adds them to the change. It fails with [`Error::Failed`] for a
    /// stack that cannot be read or planned, and for a file of the lines that logins cannot use.
    fn plan(
        options: &'a Options,
        change: &mut Change,
        output: &mut Output<'_>,
    ) -> Result<Self, Error> {
        let root = options.place.root.as_path();
        let stack = Stack::read(root, &options.lines.service)?;
        let LinesPlan {
            change: of_stack,
            settings,
            replaced_modules,
        } = plan_lines(&stack, options.lines.arguments.as_deref(), output)?;
        change.add(Part::Pam, of_stack);
        change.modules = replaced_modules;
        require_files(&settings, root)?;
        Ok(Self { stack, settings })
    }
}

/// Tells why logins stay outside of jobs; `None` if they do not. Closed slices and the bus policy would take their devices
/// and their containers.
fn find_why_outside(settings: Option<&Settings>, config: Option<&Config>) -> Option<&'static str> {
    if settings.is_some_and(|settings| settings.observe) {
        return Some("the lines observe");
    }
    let enforces_nothing = config.is_some_and(|config| config.missing_enforce_path().is_some());
    enforces_nothing.then_some("the configuration enforces nothing here")
}

/// The parts that the change has.
struct MeantParts<'a> {
    place: &'a PlaceOptions,
    /// Why logins stay outside of jobs, if they do.
    outside: Option<&'static str>,
}

impl MeantParts<'_> {
    /// Tells whether the change has this part: not slices and bus while logins stay outside of jobs, unless the options name
    /// them.
    fn has(&self, part: Part) -> bool {
        let is_for_jobs = matches!(part, Part::Slices | Part::Bus);
        self.place.has(part)
            && (!is_for_jobs || self.outside.is_none() || self.place.is_named(part))
    }

    /// Requires that no earlier `enable` has closed slices which this change would leave closed to its logins.
    fn require_no_closed_slices(&self) -> Result<(), Error> {
        let leaves_slices = self.place.has(Part::Slices) && !self.has(Part::Slices);
        if leaves_slices && !plan_opening(&self.place.root)?.is_empty() {
            let why = "slices are closed to logins outside of jobs; job-adopt disable --only slices,bus first";
            return Err(Error::failed("enable", "lines that observe", why));
        }
        Ok(())
    }

    fn warn_of_those_left_out(&self, output: &mut Output<'_>) {
        if let Some(outside) = self.outside.filter(|_| !self.has(Part::Slices)) {
            output.warn(format_args!(
                "slices, bus: left out, since {outside}, and logins stay in users' slices"
            ));
        }
    }

    /// Adds the steps by which systemd and the bus use the files of the change.
    fn add_steps(&self, change: &mut Change) {
        change.steps.reload_units = change.has(Part::Slices)
            || change.has(Part::Mount)
            || self.has(Part::Slices) && systemd::has_old_slices();
        change.steps.reload_bus = change.has(Part::Bus)
            || self.has(Part::Bus) && systemd::has_old_bus(Path::new(BUS_POLICY_PATH));
        let has_mount = self.has(Part::Mount) && find_unit(&self.place.root).is_some();
        if has_mount && !systemd::is_active(MOUNT_UNIT) {
            change.steps.mount = Some(MountStep::Start);
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
