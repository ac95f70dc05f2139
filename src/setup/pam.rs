//! The lines of this module in a service's PAM stack: how they go in, and out again.
//!
//! A service file is bytes: its comments may be in any encoding. Lines go in, out and behind a comment
//! mark by their numbers, and all other bytes stay. The parser reads a copy in which bytes that are no
//! UTF-8 are replaced; its lines have the same numbers.

mod arguments;
mod lines;
mod managed;
mod plan;
mod profile;
#[cfg(test)]
mod recipes;
mod refusal;
mod replacement;
mod stack;

use super::file_change::FileChange;
use clap::Args;
use command::error::Error;
use command::options::parse_service;
use command::output::Output;
use helper::stack::{Group, read_entries};
pub(super) use lines::Restored;
use module::Settings;
use plan::SHARED_REMEDY;
pub(super) use profile::Door;
pub(super) use stack::Stack;
use std::path::{Path, PathBuf};

/// The service, and the arguments of both lines.
#[derive(Clone, Debug, Args)]
pub(super) struct LineOptions {
    /// Arguments of both lines, besides those taken over
    #[arg(long, value_name = "WORDS")]
    pub(super) arguments: Option<String>,
    /// The PAM service
    #[arg(long, value_name = "NAME", default_value = "sshd", value_parser = parse_service)]
    pub(super) service: String,
}

/// A planned change of a service's stack.
#[derive(Debug)]
pub(super) struct LinesPlan {
    /// `None` if the file stays as it is.
    pub(super) change: Option<FileChange>,
    /// The arguments of our lines.
    pub(super) settings: Settings,
    /// The modules that the old stack calls and the new one does not.
    pub(super) replaced_modules: Vec<PathBuf>,
}

/// Plans our lines with these arguments, or with those that they have or take over if none are given, and writes
/// notes for the admin. Without given arguments, lines that `pam-auth-update` wrote into files of several services
/// stay as they are.
///
/// # Errors
///
/// [`Error::Failed`], which names the line or argument that prevents it.
pub(super) fn plan_lines(
    stack: &Stack<'_>,
    arguments: Option<&str>,
    output: &mut Output<'_>,
) -> Result<LinesPlan, Error> {
    let shared = if arguments.is_none() {
        stack.shared_lines()?
    } else {
        None
    };
    if let Some([account, session]) = shared {
        output.warn(format_args!(
            "pam: the lines at {} and {} stay: they are of pam-auth-update, or were written by hand",
            account.place, session.place
        ));
        let settings = Settings::parse(&account.arguments).map_err(|why| stack.refusal(why))?;
        return Ok(LinesPlan {
            change: None,
            settings,
            replaced_modules: Vec::new(),
        });
    }
    let plan = stack.with_our_lines(arguments)?;
    for note in &plan.notes {
        output.warn(note);
    }
    Ok(LinesPlan {
        replaced_modules: stack.replaced_modules(&plan.text)?,
        change: stack.plan_change(Some(plan.text))?,
        settings: plan.settings,
    })
}

/// Reads the path of the configuration that the service's account line of ours names, as an argument or by default. `None`
/// if there is no such line, if its arguments are wrong, or if the stack cannot be read.
pub(super) fn read_conf_argument(root: &Path, service: &str) -> Option<String> {
    let entries = read_entries(root, service, Group::Account).ok()?;
    let line = entries.iter().find(|entry| entry.is_for_service())?;
    let settings = Settings::parse(&line.arguments).ok()?;
    Some(settings.conf)
}

/// Plans the file without our lines and with those that they replaced, and warns of each that stays commented out.
/// Returns the change, which is `None` if the file stays as it is, and the planned text.
///
/// # Errors
///
/// [`Error::Failed`] for a text that ends within a line, or if the folder leads out of the image.
pub(super) fn plan_removal(
    stack: &Stack<'_>,
    output: &mut Output<'_>,
) -> Result<(Option<FileChange>, Restored), Error> {
    let restored = stack.without_our_lines()?;
    restored.warn(&stack.path, output);
    if restored.text == stack.text {
        return Ok((None, restored));
    }
    // A file with the distribution's text is removed: libpam then reads the distribution's own file, also the next
    // version of it.
    let is_vendors = stack.vendor_text.as_ref() == Some(&restored.text);
    let new = (!is_vendors).then(|| restored.text.clone());
    Ok((stack.plan_change(new)?, restored))
}

/// Warns of each line of ours that the service still has with the `restored` text; returns whether there is one. The
/// text itself has none, so these are in files that several services include.
///
/// # Errors
///
/// [`Error::Failed`] for a stack that cannot be read.
pub(super) fn warn_of_remaining_lines(
    stack: &Stack<'_>,
    restored: &Restored,
    output: &mut Output<'_>,
) -> Result<bool, Error> {
    let mut do_lines_remain = false;
    for group in [Group::Auth, Group::Account, Group::Session] {
        let entries = stack.read_entries(group, &restored.text)?;
        for entry in entries.iter().filter(|entry| entry.is_our_module()) {
            do_lines_remain = true;
            output.warn(format_args!(
                "{}: a line of pam_job_adopt.so is left; {SHARED_REMEDY}",
                entry.place
            ));
        }
    }
    Ok(do_lines_remain)
}

#[cfg(test)]
mod tests;
