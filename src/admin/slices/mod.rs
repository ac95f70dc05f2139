//! `slices`: the files by which systemd keeps what users run outside of jobs from GPUs, and moves no
//! login out of its job.

use super::pam::replace_file;
use super::{Conf, Error, Output, accounts, require_root};
use clap::Args;
use helper::Config;
use helper::devices::{DeviceRequest, Policy, Resolver, Tree, build_allowlist};
use protocol::{DeviceRule, parse_decimal};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

/// Where an admin's drop-ins are.
const UNITS: &str = "/etc/systemd/system";
/// Where an admin's policies of the system bus are, which count before those of packages.
const BUS: &str = "/etc/dbus-1/system.d";
/// One name in every folder, so that the file of an account replaces that of all users.
const FILE: &str = "job-adopt.conf";
/// For all users, but for what the site adds.
const CLOSED: &str = include_str!("../../../packaging/systemd/user-.slice.d/job-adopt.conf");
/// For root, and for each account that is exempt.
const EXEMPT: &str = include_str!("../../../packaging/systemd/user-0.slice.d/job-adopt.conf");

/// Denies users what has systemd move a login out of its job.
const LOGINS: &str = include_str!("../../../packaging/dbus/logins.conf");

/// Have systemd keep what users run outside of jobs from GPUs, and logins in their jobs
#[derive(Debug, Args)]
#[command(after_help = "\
Shows the drop-ins by which systemd closes users' slices, so that what users run outside of jobs opens no GPU.
Root, exempt_uids, exempt_groups and flux_user stay open. A policy of the system bus keeps users from moving
processes out of their job. Then run systemctl daemon-reload and systemctl reload dbus.
Exit status: 0 fine, 2 wrong usage, 3 a device, user or group is not known here, or not written.")]
pub(super) struct Options {
    /// Write them, and remove those of accounts no longer exempt (root)
    #[arg(long)]
    write: bool,
    /// Change the image of a node below DIR
    #[arg(long, value_name = "DIR", default_value = "/", hide_default_value = true)]
    root: PathBuf,
    #[command(flatten)]
    conf: Conf,
}

pub(super) fn execute(options: &Options, output: &mut Output<'_>) -> Result<u8, Error> {
    let config = options.conf.read()?;
    let files = files(&config, &Resolver::new(Tree::host(), config.devices.clone()), output)?;
    if !options.write {
        for (name, text) in files {
            writeln!(output.out, "# {UNITS}/{name}/{FILE}\n{text}")?;
        }
        writeln!(output.out, "# {BUS}/{FILE}\n{LOGINS}")?;
        return Ok(super::EXIT_FINE);
    }
    require_root("write drop-ins")?;
    let at = |folder: &str| options.root.join(folder.trim_start_matches('/'));
    let units = put(&at(UNITS), &files, output)?;
    if place(&at(BUS), LOGINS, output)? || units {
        writeln!(output.out, "now run: systemctl daemon-reload && systemctl reload dbus")?;
    }
    Ok(super::EXIT_FINE)
}

/// The names of the folders, and what their files say.
/// Errors: [`Error`] for an entry of `always_allowed` that is no device here, and for an account or
/// group that cannot be looked up: nothing is left out in silence.
fn files(
    config: &Config,
    resolver: &Resolver,
    output: &mut Output<'_>,
) -> Result<BTreeMap<String, String>, Error> {
    let closed = format!("{CLOSED}{}", always_allowed(config, resolver, output)?);
    let mut files = BTreeMap::from([("user-.slice.d".to_owned(), closed)]);
    for (uid, why) in exempt_accounts(config)? {
        let head = if uid == 0 { String::new() } else { format!("# {why}\n#\n") };
        files.insert(format!("user-{uid}.slice.d"), format!("{head}{EXEMPT}"));
    }
    Ok(files)
}

/// What a closed slice lets through, as far as it is known here.
pub(super) fn allowed(config: &Config, resolver: &Resolver) -> Vec<DeviceRule> {
    let lines = CLOSED.lines().filter_map(|line| line.strip_prefix("DeviceAllow="));
    let pair = |line: &str| line.split_once(' ').map(|(spec, access)| (spec.into(), access.into()));
    let allow: Vec<(String, String)> = lines.filter_map(pair).collect();
    let wanted = DeviceRequest { policy: Policy::Closed, allow: &allow, names: Vec::new() };
    let resolved = build_allowlist(&wanted, &config.always_allowed, resolver);
    resolved.map(|resolved| resolved.list.rules().to_vec()).unwrap_or_default()
}

/// The devices of `always_allowed`, as systemd names them.
fn always_allowed(
    config: &Config,
    resolver: &Resolver,
    output: &mut Output<'_>,
) -> Result<String, Error> {
    let mut lines = String::from("# always_allowed of job_adopt.conf(5):");
    if config.always_allowed.is_empty() {
        lines.push_str(" none");
    }
    lines.push('\n');
    for specifier in &config.always_allowed {
        let failed = |why: &dyn std::fmt::Display| {
            Error::Failed(format!("always_allowed: {specifier}: {why}; no drop-in was written"))
        };
        let found = resolver.resolve_specifier(specifier).map_err(|error| failed(&error))?;
        for warning in &found.warnings {
            output.warn(format_args!("warning: always_allowed: {warning}"));
        }
        if found.devices.is_empty() {
            let text = format!("{specifier} is no device of this node");
            output.warn(format_args!("warning: always_allowed: {text}"));
            let _ = writeln!(lines, "# {text}");
        }
        for device in found.devices {
            // What systemd would read as a quote, an escape or a specifier of its own.
            if device.node.contains(|c: char| !c.is_ascii_graphic() || "\"'\\%".contains(c)) {
                return Err(failed(&format_args!("systemd has no spelling of {}", device.node)));
            }
            let _ = writeln!(lines, "DeviceAllow={} {}", device.node, device.rule.access());
        }
    }
    Ok(lines)
}

/// Whose slices are not closed, and why.
/// Errors: [`Error::Failed`] for what cannot be looked up.
pub(super) fn exempt_accounts(config: &Config) -> Result<BTreeMap<u32, String>, Error> {
    let mut exempt = BTreeMap::from([(0, "root".to_owned())]);
    let mut add = |uid: u32, why: String| {
        exempt.entry(uid).or_insert(why);
    };
    for uid in &config.exempt_uids {
        add(*uid, format!("uid {uid}: exempt_uids of job_adopt.conf(5)"));
    }
    let flux = &config.flux_user;
    let uid = match parse_decimal(flux) {
        Some(uid) => Some(uid),
        None => accounts::find_user(flux)?.map(|user| user.uid.as_raw()),
    };
    if let Some(uid) = uid {
        add(uid, format!("{flux}: Flux runs jobs in this slice"));
    }
    for name in &config.exempt_groups {
        let group = accounts::find_group(name)?;
        let group = group.ok_or_else(|| Error::failed("look up group", name, "no such group"))?;
        for member in group.mem {
            let uid = accounts::require_user(&member)?.uid.as_raw();
            add(uid, format!("{member}: in the group {name} of exempt_groups"));
        }
    }
    Ok(exempt)
}

/// Writes what is not there yet, and takes away what an earlier call wrote for an account that is
/// not exempt any more; whether anything was changed.
fn put(
    units: &Path,
    files: &BTreeMap<String, String>,
    output: &mut Output<'_>,
) -> Result<bool, Error> {
    let mut changed = false;
    for (name, text) in files {
        changed |= place(&units.join(name), text, output)?;
    }
    for path in stale(units, files)? {
        fs::remove_file(&path).map_err(|error| Error::failed("remove", path.display(), error))?;
        writeln!(output.out, "removed {}", path.display())?;
        // It stays where something else is in it.
        let _ = path.parent().map(fs::remove_dir);
        changed = true;
    }
    Ok(changed)
}

/// Writes what is not there yet; whether it was not.
fn place(folder: &Path, text: &str, output: &mut Output<'_>) -> Result<bool, Error> {
    let path = folder.join(FILE);
    if fs::read(&path).is_ok_and(|there| there == text.as_bytes()) {
        return Ok(false);
    }
    // At once, so that systemd never reads half of it.
    fs::create_dir_all(folder).map_err(|error| Error::failed("make", folder.display(), error))?;
    replace_file(&path, text, None)?;
    writeln!(output.out, "wrote {}", path.display())?;
    Ok(true)
}

fn stale(units: &Path, files: &BTreeMap<String, String>) -> Result<Vec<PathBuf>, Error> {
    let entries = fs::read_dir(units).map_err(|e| Error::failed("read", units.display(), e))?;
    let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    let is_stale = |name: &String| {
        let uid = name.strip_prefix("user-").and_then(|name| name.strip_suffix(".slice.d"));
        uid.is_some_and(|uid| uid.parse::<u32>().is_ok()) && !files.contains_key(name)
    };
    let paths = names.filter(is_stale).map(|name| units.join(name).join(FILE));
    Ok(paths.filter(|path| fs::symlink_metadata(path).is_ok()).collect())
}

#[cfg(test)]
mod tests;
