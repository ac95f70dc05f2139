//! `config`: shows the settings in force, and where each comes from.

use super::resolve::PamLine;
use clap::Args;
use command::error::Error;
use command::exit_status::EXIT_FINE;
use command::options::{Conf, parse_service};
use command::output::Output;
use helper::Config;
use helper::node::Tree;
use helper::slurm_conf::{SlurmConfSearch, read_constrain_devices};
use helper::stack::Group;
use kernel::trust::Trust;
use protocol::Request;
use serde_json::json;
use std::path::PathBuf;

/// Show the settings in force, and where each comes from
#[derive(Debug, Args)]
#[command(after_help = "\
Shows the service's lines in /etc/pam.d, whether Slurm confines its jobs to their devices, and all keys of the file
that these lines name with conf=, or of --conf.
Exit status: 0 fine, 3 the file refuses every login.")]
pub struct Options {
    /// The PAM service
    #[arg(long, value_name = "NAME", default_value = "sshd", value_parser = parse_service)]
    service: String,
    /// As JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    conf: Conf,
}

/// A setting as it is shown: its name, its value and its origin.
type Row = [String; 3];

/// Runs `config`: shows the PAM lines and each key with its file and line, or `default`. The file is that of
/// `--conf`, else that of the account line. It fails if logins could not use the file.
///
/// # Errors
///
/// [`Error`] with the exit status of the command.
pub fn execute(options: &Options, output: &mut Output<'_>) -> Result<u8, Error> {
    let account = PamLine::find(&options.service, Group::Account);
    let session = PamLine::find(&options.service, Group::Session);
    let path = match options.conf.option()? {
        Some(path) => path,
        None => conf_of(&account),
    };
    let mut rows = vec![
        row_of_line("account line", account),
        row_of_line("session line", session),
    ];
    let keys = Config::keys_in_force(&path, &Trust::root());
    // Slurm's prolog asks for this, also where a fault of our file refuses every login.
    if let Ok(slurm_conf) = Config::read_slurm_conf(&path, &Trust::root()) {
        rows.extend(row_of_slurm(slurm_conf));
    }
    for key in keys.as_deref().unwrap_or_default() {
        let origin = match key.line {
            Some(line) => format!("{}:{line}", path.display()),
            None => "default".to_owned(),
        };
        rows.push([key.key.clone(), key.value.clone(), origin]);
    }
    if options.json {
        let settings: Vec<_> = rows
            .iter()
            .map(|[key, value, origin]| json!({ "key": key, "value": value, "from": origin }))
            .collect();
        output.json(&json!({ "schema": 1, "settings": settings }))?;
    } else {
        for [_, value, _] in &mut rows {
            if value.is_empty() {
                "-".clone_into(value);
            }
        }
        output.table(["KEY", "VALUE", "FROM"], rows)?;
    }
    keys?;
    Ok(EXIT_FINE)
}

/// The row of Slurm's own containment, which logins follow: `yes`, `no`, or why it is not known. `None` on a node without
/// Slurm.
fn row_of_slurm(slurm_conf: Option<PathBuf>) -> Option<Row> {
    let search = SlurmConfSearch::new(Tree::host(), slurm_conf);
    let files = match search.files() {
        Ok(files) => files,
        Err(error) if error.is_missing() => return None,
        Err(error) => return Some(slurm_row(error.to_string(), String::new())),
    };
    let value = match read_constrain_devices(files) {
        Ok(true) => "yes".to_owned(),
        Ok(false) => "no".to_owned(),
        Err(error) => error.to_string(),
    };
    let path = files.path_of("cgroup.conf");
    Some(slurm_row(value, path.display().to_string()))
}

fn slurm_row(value: String, origin: String) -> Row {
    ["ConstrainDevices".to_owned(), value, origin]
}

/// The configuration that a line of our module names, or the default one.
fn conf_of(line: &PamLine) -> PathBuf {
    let arguments = line.arguments.iter();
    let mut named = arguments.filter_map(|argument| argument.strip_prefix("conf="));
    named.next().unwrap_or(Request::DEFAULT_CONF).into()
}

/// The row of a PAM line, with its arguments.
fn row_of_line(name: &str, line: PamLine) -> Row {
    let origin = line
        .place
        .unwrap_or_else(|| "no line of pam_job_adopt.so".to_owned());
    [name.to_owned(), line.arguments.join(" "), origin]
}
