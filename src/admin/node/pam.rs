//! `pam`: installs the lines of this module in a service's PAM stack, and removes them.
//!
//! A service file is bytes: its comments may be in any encoding. Lines go in, out and behind a comment
//! mark by their numbers, and all other bytes stay. The parser reads a copy in which bytes that are no
//! UTF-8 are replaced; its lines have the same numbers.

mod arguments;
mod lines;
mod managed;
mod plan;
#[cfg(test)]
mod recipes;
mod refusal;
mod replacement;
mod stack;

use crate::accounts::require_root;
use crate::error::Error;
use crate::exit_status::{EXIT_FINDINGS, EXIT_FINE};
use crate::options::parse_service;
use crate::output::Output;
use clap::{ArgGroup, Args};
use helper::stack::Group;
pub(super) use lines::changed_lines;
use plan::SHARED_REMEDY;
pub(super) use stack::Stack;
use std::fs;
use std::path::PathBuf;

/// Put both lines of pam_job_adopt.so into a PAM stack, or take them out
#[derive(Debug, Args)]
#[command(
    group = ArgGroup::new("what").required(true),
    after_help = "\
Only the service's own file changes, at once. Lines of pam_slurm_adopt.so in it are commented out, and their
arguments are taken over; so are lines that would refuse users with a job, whom they never judged before.
What cannot be done safely is refused, with the reason.
Exit status: 0 fine, also where nothing had to change, 1 lines in other files are left, or nothing keeps users
without a job out, 2 wrong usage, 3 refused or not done."
)]
pub(crate) struct Options {
    /// Show the file as it would be
    #[arg(long, group = "what")]
    print: bool,
    /// Write our lines (root)
    #[arg(long, group = "what")]
    install: bool,
    /// Take the lines out, and restore those commented out (root)
    #[arg(long, group = "what")]
    remove: bool,
    #[command(flatten)]
    lines: LineOptions,
    /// Change the image of a node below DIR
    #[arg(
        long,
        value_name = "DIR",
        default_value = "/",
        hide_default_value = true
    )]
    root: PathBuf,
}

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

pub(crate) fn execute(options: &Options, output: &mut Output<'_>) -> Result<u8, Error> {
    let stack = Stack::read(&options.root, &options.lines.service)?;
    if options.remove {
        return remove_lines(&stack, output);
    }
    let plan = stack.with_our_lines(options.lines.arguments.as_deref())?;
    for note in &plan.notes {
        output.warn(note);
    }
    if options.print {
        output.out.write_all(&plan.text)?;
        return Ok(EXIT_FINE);
    }
    require_root("change a PAM stack")?;
    let path = stack.path.display();
    if stack.text == plan.text {
        writeln!(output.out, "{path}: unchanged")?;
        return Ok(EXIT_FINE);
    }
    stack.save_original()?;
    stack.write(&plan.text)?;
    writeln!(
        output.out,
        "{path}: changed; as it was: {}",
        stack.original_path().display()
    )?;
    Ok(EXIT_FINE)
}

fn remove_lines(stack: &Stack<'_>, output: &mut Output<'_>) -> Result<u8, Error> {
    require_root("change a PAM stack")?;
    let path = stack.path.display();
    let restored = stack.without_our_lines()?;
    restored.warn(&stack.path, output);
    let text = &restored.text;
    if *text == stack.text {
        writeln!(output.out, "{path}: unchanged")?;
    } else if stack.vendor_text.as_ref() == Some(text) {
        fs::remove_file(&stack.path).map_err(|error| Error::failed("remove", &path, error))?;
        writeln!(
            output.out,
            "{path}: removed; the distribution's own file counts again"
        )?;
    } else {
        stack.write(text)?;
        writeln!(output.out, "{path}: changed")?;
    }
    let mut lines_remain = false;
    for group in [Group::Auth, Group::Account, Group::Session] {
        let entries = stack.read_entries(group, text)?;
        for entry in entries.iter().filter(|entry| entry.is_our_module()) {
            lines_remain = true;
            output.warn(format_args!(
                "{}: a line of pam_job_adopt.so is left; {SHARED_REMEDY}",
                entry.place
            ));
        }
    }
    let is_open = stack.warn_if_open(&restored, output)?;
    Ok(if lines_remain || is_open {
        EXIT_FINDINGS
    } else {
        EXIT_FINE
    })
}

#[cfg(test)]
mod tests;
