//! The command line, declared once: the parser, `--help`, hints for mistyped names and the shells'
//! completions come from it, and so do the synopsis and the options of job-adopt(1).

use check::metrics;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::error::ErrorKind;
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use clap_complete::Shell;
use command::error::Error;
use command::options::parse_value;
use explain::{compare, config, devices, list, resolve};
use helper::printable;
use jobs::{notify, register, run, strays, unregister};
use protocol::VERSION;
use setup::{callerid, disable, enable};
use std::ffi::OsString;
use std::fmt::Write as _;
use users::{enter, use_job};

/// Jobs of this node, and the ssh logins that join them
#[derive(Debug, Parser)]
#[command(
    name = "job-adopt",
    version = VERSION,
    disable_help_subcommand = true,
    subcommand_value_name = "COMMAND",
    after_help = "\
Exit status: 0 fine, 1 a login would be refused, a name does not resolve, a record is broken,
something is amiss with the node or a job is not running here, 2 wrong usage, 3 could not be told
or done. See job-adopt(1)."
)]
pub(super) struct CommandLine {
    #[command(subcommand)]
    pub(super) command: Command,
}

/// A command with its options.
#[derive(Debug, Subcommand)]
pub(super) enum Command {
    Run(run::Options),
    Register(register::Options),
    Unregister(unregister::Options),
    List(list::Options),
    Resolve(resolve::Options),
    Devices(devices::Options),
    Check(check::Options),
    Compare(compare::Options),
    Config(config::Options),
    Metrics(metrics::Options),
    Notify(notify::Options),
    Enable(enable::Options),
    Disable(disable::Options),
    Strays(strays::Options),
    Use(use_job::Options),
    Enter(enter::Options),
    Callerid(callerid::Options),
    /// Write what a shell needs to complete this command's names
    #[command(hide = true)]
    Completions {
        /// Which shell
        #[arg(value_parser = shell_parser())]
        shell: Shell,
    },
}

fn shell_parser() -> impl TypedValueParser<Value = Shell> {
    PossibleValuesParser::new(["bash", "zsh", "fish"]).try_map(|name| parse_value::<Shell>(&name))
}

/// The declaration of the command line, with all of its commands and options.
pub fn declaration() -> clap::Command {
    CommandLine::command()
}

/// A parsed command line: a command, or a text for standard output such as the help.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "there is one")]
pub(super) enum Invocation {
    Command(Command),
    Text(String),
}

/// The commands in the groups and the order of the help, each with an example.
const HELP_GROUPS: [(&str, &[(&str, &str)]); 5] = [
    (
        "Set up a node",
        &[
            ("enable", "job-adopt enable --try 15m alice"),
            ("disable", "job-adopt disable --dry-run"),
            (
                "callerid",
                "systemctl enable --now job-adopt-callerid.socket",
            ),
            ("notify", "systemctl enable --now job-adopt-notify.timer"),
        ],
    ),
    (
        "Look at it",
        &[
            ("check", "job-adopt check"),
            ("list", "job-adopt list"),
            ("resolve", "job-adopt resolve --user alice"),
            ("devices", "job-adopt devices --job 4242"),
            ("compare", "job-adopt compare"),
            ("config", "job-adopt config"),
        ],
    ),
    (
        "Prolog and epilog",
        &[
            (
                "register",
                "job-adopt register --id 4242 --user alice --cgroup /site-4242.scope --gpu 0",
            ),
            ("unregister", "job-adopt unregister 4242 --strays"),
            ("strays", "job-adopt strays --kill"),
            ("run", "job-adopt run --user alice --gpu 0 -- ./train"),
        ],
    ),
    (
        "Users",
        &[
            ("use", "job-adopt use 4242"),
            ("enter", "job-adopt enter -- nvidia-smi"),
        ],
    ),
    ("Monitoring", &[("metrics", "job-adopt metrics --json")]),
];

/// Writes the commands of [`HELP_GROUPS`] for the help, each with the description that it declares and its example.
fn list_commands(declared: &clap::Command) -> String {
    let mut text = String::new();
    for (title, commands) in HELP_GROUPS {
        _ = writeln!(text, "{title}:");
        for (name, example) in commands {
            let about = declared
                .find_subcommand(name)
                .and_then(clap::Command::get_about)
                .map(ToString::to_string)
                .unwrap_or_default();
            _ = writeln!(text, "  {name:10}  {about}\n              {example}");
        }
        text.push('\n');
    }
    text
}

/// Parses the words behind the program's name. `build` is the version that `--version` shows.
///
/// # Errors
///
/// [`Error::Usage`], which names the mistake, and a similar name if there is one.
pub(super) fn parse(words: &[OsString], build: &'static str) -> Result<Invocation, Error> {
    let all = std::iter::once(OsString::from("job-adopt")).chain(words.iter().cloned());
    let mut declared = CommandLine::command().version(build);
    let commands = list_commands(&declared);
    declared = declared.help_template(format!(
        "{{about}}\n\n{{usage-heading}} {{usage}}\n\n{commands}Options:\n{{options}}{{after-help}}"
    ));
    let matches = declared.try_get_matches_from(all);
    match matches.and_then(|matches| CommandLine::from_arg_matches(&matches)) {
        Ok(line) => Ok(Invocation::Command(line.command)),
        Err(error)
            if matches!(
                error.kind(),
                ErrorKind::DisplayHelp | ErrorKind::DisplayVersion
            ) =>
        {
            Ok(Invocation::Text(error.render().to_string()))
        }
        Err(error) => Err(usage_error(&error, words)),
    }
}

/// Generates the completions of a shell.
pub(super) fn generate_completions(shell: Shell) -> Vec<u8> {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut CommandLine::command(), "job-adopt", &mut text);
    text
}

/// Puts the parser's error into one line, with a hint at the help of the command, or at the general help if the first
/// word is no command.
fn usage_error(error: &clap::Error, words: &[OsString]) -> Error {
    let Some(first) = words.first() else {
        return Error::usage("", "a command is needed");
    };
    let all = CommandLine::command();
    let command = all
        .get_subcommands()
        .map(clap::Command::get_name)
        .find(|name| first == *name);
    Error::usage(command.unwrap_or_default(), render_error(error))
}

/// Renders the parser's message in one line: the error and its hint, without the usage.
fn render_error(error: &clap::Error) -> String {
    let text = error.render().to_string();
    let mut parts = text.strip_prefix("error: ").unwrap_or(&text).split("\n\n");
    let first = join_lines(parts.next().unwrap_or_default());
    match parts.find_map(|part| part.trim_start().strip_prefix("tip: ")) {
        Some(hint) => format!("{first}; {}", join_lines(hint)),
        None => first,
    }
}

fn join_lines(part: &str) -> String {
    printable(&part.split_whitespace().collect::<Vec<_>>().join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(line: &str) -> String {
        let words: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
        let error = parse(&words, "").unwrap_err();
        assert_eq!(error.exit_code(), 2, "{line}");
        error.to_string()
    }

    #[test]
    fn declaration_passes_checks_of_clap() {
        CommandLine::command().debug_assert();
    }

    #[test]
    fn mistaken_name_of_a_device_is_reported_with_its_option() {
        for (line, begin) in [
            (
                &["a\u{1b}[1m"][..],
                "'a?[1m' for '[NAME]...': no specifier, ",
            ),
            (&["@HPC"], "'@HPC' for '[NAME]...': no name of a preset: "),
            (&["0,1"], "'0,1' for '[NAME]...': one GPU per option"),
            (
                &["gpu:0-3"],
                "'gpu:0-3' for '[NAME]...': ranges are not taken",
            ),
            (&[""], "'' for '[NAME]...': no specifier, "),
            (
                &["--gpu", "nvidia0"],
                "'nvidia0' for '--gpu <GPU>': not the name of a GPU: ",
            ),
            (&["--gpu", ""], "'' for '--gpu <GPU>': "),
            (
                &["--device", "@HPC"],
                "'@HPC' for '--device <SPEC ACCESS>': no name of a preset: ",
            ),
        ] {
            let words: Vec<OsString> = ["devices"].iter().chain(line).map(OsString::from).collect();
            let error = parse(&words, "").unwrap_err().to_string();
            assert!(
                error.starts_with(&format!("devices: invalid value {begin}")),
                "{error}"
            );
        }
    }

    #[test]
    fn mistake_is_reported_in_two_lines_with_hint() {
        for (line, expected) in [
            ("", "a command is needed\ntry: job-adopt --help"),
            (
                "chek",
                "unrecognized subcommand 'chek'; a similar subcommand exists: 'check'\n",
            ),
            (
                "list --jsno",
                "list: unexpected argument '--jsno' found; a similar argument exists: '--json'\n",
            ),
            (
                "list x",
                "list: unexpected argument 'x' found\ntry: job-adopt list --help",
            ),
            (
                "list --user",
                "list: a value is required for '--user <USER>' but none was supplied\n",
            ),
            (
                "list --user a --user b",
                "list: the argument '--user <USER>' cannot be used multiple times\n",
            ),
            (
                "run -- true",
                "run: the following required arguments were not provided: --user <USER>\n",
            ),
            (
                "list --conf x",
                "list: invalid value 'x' for '--conf <FILE>': not an absolute path\n",
            ),
            (
                "check --service=",
                "check: invalid value '' for '--service <NAME>': not the name",
            ),
            (
                "unregister ../x",
                "unregister: invalid value '../x' for '<ID>': a job id is 1 to 64",
            ),
            (
                "register --policy close",
                "register: invalid value 'close' for '--policy <POLICY>' [possible values: ",
            ),
        ] {
            let error = refusal(line);
            assert!(error.starts_with(expected), "{line}: {error}");
            assert_eq!(error.lines().count(), 2, "{line}: {error}");
        }
    }

    #[test]
    fn help_and_version_are_no_mistakes() {
        for line in ["--help", "-h", "--version", "-V", "run --help", "check -h"] {
            let words: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
            assert!(
                matches!(parse(&words, ""), Ok(Invocation::Text(_))),
                "{line}"
            );
        }
    }

    #[test]
    fn help_lists_each_command_once_with_a_valid_example() {
        let Ok(Invocation::Text(help)) = parse(&[OsString::from("--help")], "") else {
            panic!("no help");
        };
        let all = CommandLine::command();
        let mut declared: Vec<_> = all
            .get_subcommands()
            .filter(|command| !command.is_hide_set())
            .map(clap::Command::get_name)
            .collect();
        let mut listed = Vec::new();
        for (title, commands) in HELP_GROUPS {
            assert!(help.contains(&format!("\n{title}:\n")), "{help}");
            for (name, example) in commands {
                listed.push(*name);
                assert!(
                    help.contains(&format!("\n              {example}\n")),
                    "{help}"
                );
                let Some(line) = example.strip_prefix("job-adopt ") else {
                    continue;
                };
                assert_eq!(line.split(' ').next(), Some(*name));
                let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
                assert!(parse(&words, "").is_ok(), "{example}");
            }
        }
        declared.sort_unstable();
        listed.sort_unstable();
        assert_eq!(listed, declared);
    }

    #[test]
    fn every_shell_completes_every_command() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let text = String::from_utf8(generate_completions(shell)).unwrap();
            let all = CommandLine::command();
            for command in all
                .get_subcommands()
                .filter(|command| !command.is_hide_set())
            {
                assert!(
                    text.contains(command.get_name()),
                    "{shell}: {}",
                    command.get_name()
                );
            }
        }
    }

    /// Escapes a text for roff.
    fn roff(text: &str) -> String {
        text.replace('\\', "\\e")
            .replace('-', "\\-")
            .replace('\'', "\\(aq")
    }

    /// A option's name and the name of its value.
    fn option(arg: &clap::Arg) -> Option<(String, String)> {
        let mut value = String::new();
        if arg.get_action().takes_values() {
            if let Some(name) = arg.get_value_names().into_iter().flatten().next() {
                value = name.to_string();
            }
        }
        Some((roff(&format!("--{}", arg.get_long()?)), roff(&value)))
    }

    /// Whether an option names devices; the synopsis shows these together.
    fn names_devices(command: &clap::Command, arg: &clap::Arg) -> bool {
        let mut groups = command
            .get_groups()
            .filter(|group| group.get_id() == "DeviceOptions");
        groups.any(|group| group.get_args().any(|member| member == arg.get_id()))
    }

    fn is_shown(arg: &clap::Arg) -> bool {
        arg.get_long() != Some("help") && !arg.is_hide_set()
    }

    fn synopsis(command: &clap::Command) -> String {
        let mut text = format!(".SY \"job\\-adopt {}\"\n", command.get_name());
        for arg in command.get_arguments().filter(|arg| is_shown(arg)) {
            let line = match (names_devices(command, arg), option(arg)) {
                (true, _) => "[\\fIdevice\\~options\\fR]\n".to_owned(),
                (false, Some((name, value))) => match (value.as_str(), arg.is_required_set()) {
                    ("", _) => format!("[\\fB{name}\\fR]\n"),
                    (value, true) => format!("\\fB{name}\\~\\fI{value}\\fR\n"),
                    (value, false) => format!("[\\fB{name}\\~\\fI{value}\\fR]\n"),
                },
                (false, None) => {
                    let name = arg.get_value_names().into_iter().flatten().next().unwrap();
                    let many = arg
                        .get_num_args()
                        .is_some_and(|count| count.max_values() > 1);
                    let more = if many { "\\~...\\&" } else { "" };
                    match (arg.is_last_set(), arg.is_required_set()) {
                        (true, true) => format!("\\fB\\-\\-\\~\\fI{name}\\fR{more}\n"),
                        (true, false) => format!("[\\fB\\-\\-\\~\\fI{name}\\fR{more}]\n"),
                        (false, true) => format!("\\fI{name}\\fR\n"),
                        (false, false) => format!("[\\fI{name}\\fR{more}]\n"),
                    }
                }
            };
            if !text.ends_with(&line) {
                text += &line;
            }
        }
        text + ".YS\n"
    }

    /// The help of an option, with its possible values and its default.
    fn help(arg: &clap::Arg) -> String {
        let mut text = roff(&arg.get_help().unwrap().to_string());
        let takes = arg.get_action().takes_values();
        let words = if takes {
            arg.get_possible_values()
        } else {
            Vec::new()
        };
        let words: Vec<_> = words
            .iter()
            .map(clap::builder::PossibleValue::get_name)
            .collect();
        if !words.is_empty() {
            text = format!("{text}: {}", words.join(", "));
        }
        let is_shown = takes && !arg.is_hide_default_value_set();
        match arg.get_default_values().first() {
            Some(default) if is_shown => {
                format!("{text}; {} unless given", default.to_string_lossy())
            }
            _ => text,
        }
    }

    /// Lists every option by name, with its help and the commands that have it.
    fn options(all: &clap::Command, commands: &[&clap::Command]) -> String {
        let mut entries: std::collections::BTreeMap<(String, String), Vec<&str>> = [].into();
        for command in commands {
            for arg in command.get_arguments().filter(|arg| is_shown(arg)) {
                let Some((name, value)) = option(arg) else {
                    continue;
                };
                let value = if value.is_empty() {
                    value
                } else {
                    format!("\\~\\fI{value}")
                };
                let head = format!("\\fB{name}{value}\\fR");
                entries
                    .entry((head, help(arg)))
                    .or_default()
                    .push(command.get_name());
            }
        }
        let of_commands = entries.iter().map(|((head, text), names)| {
            let names = roff(&names.join(", "));
            format!(".TP\n{head}\n{names}: {}.\n", text.trim_end_matches('.'))
        });
        let general = all.get_arguments().filter_map(|arg| {
            let short = arg.get_short()?;
            let (long, _) = option(arg)?;
            Some(format!(
                ".TP\n\\fB\\-{short}\\fR, \\fB{long}\\fR\n{}.\n",
                help(arg)
            ))
        });
        of_commands.chain(general).collect()
    }

    /// Run this with `JOB_ADOPT_WRITE_PAGE=1` to write the two sections anew.
    #[test]
    fn page_has_synopsis_and_options_of_declaration() {
        let mut all = CommandLine::command();
        all.build();
        let commands: Vec<_> = all
            .get_subcommands()
            .filter(|command| !command.is_hide_set())
            .collect();
        let synopses: Vec<_> = commands.iter().map(|command| synopsis(command)).collect();
        let synopsis = synopses.concat()
            + ".SY job\\-adopt\n[\\fICOMMAND\\fR] \\fB\\-\\-help\\fR\n.YS\n.SY job\\-adopt\n\\fB\\-\\-version\\fR\n.YS\n";
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/man/job-adopt.1");
        let page = std::fs::read_to_string(path).unwrap();
        let mut written = page.clone();
        for (name, text) in [
            ("SYNOPSIS", synopsis),
            ("OPTIONS", options(&all, &commands)),
        ] {
            let (before, rest) = written.split_once(&format!(".SH {name}\n")).unwrap();
            let (_, after) = rest.split_once("\n.SH ").unwrap();
            written = format!(
                "{before}.SH {name}\n.\\\" From the declarations of the commands in src.\n{text}.SH {after}"
            );
        }
        if std::env::var_os("JOB_ADOPT_WRITE_PAGE").is_some() {
            std::fs::write(path, &written).unwrap();
        }
        assert!(
            page == written,
            "the page differs; see above for how to write it anew"
        );
    }
}
