//! How an sshd was or will be started: its program, and the options that change its configuration.

use super::config_files::DEFAULT_FILE;
use crate::systemd::read_properties;
use keeper::sshd::parse_listener_title;
use kernel::proc::Proc;
use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

/// Options of sshd that change its configuration, and take a value.
const CONFIG_OPTIONS: [&str; 2] = ["-f", "-o"];

/// Finds the program that a socket of systemd starts for connections, with the options that change its
/// configuration; `None` if no such socket listens.
pub(crate) fn find_socket_command() -> Option<(PathBuf, Vec<String>)> {
    for name in ["ssh", "sshd"] {
        let socket = read_properties(&format!("{name}.socket"), "ActiveState,Accept")?;
        if !socket.contains("ActiveState=active") {
            continue;
        }
        let instance = if socket.contains("Accept=yes") {
            "@x"
        } else {
            ""
        };
        let service = format!("{name}{instance}.service");
        let unit = read_properties(&service, "ExecStart,EnvironmentFiles")?;
        let read = |file: &str| fs::read_to_string(file).unwrap_or_default();
        if let Some(command) = parse_unit_command(&unit, read) {
            return Some(command);
        }
    }
    None
}

/// Parses the properties `ExecStart` and `EnvironmentFiles` of sshd's unit, as systemctl shows them: the program,
/// and those of its options that change its configuration. `read` returns the text of a file with variables. `None` for
/// a unit without a command.
fn parse_unit_command(unit: &str, read: impl Fn(&str) -> String) -> Option<(PathBuf, Vec<String>)> {
    let (_, command) = unit.split_once("argv[]=")?;
    let (command, _) = command.split_once(" ;")?;
    let mut variables = BTreeMap::new();
    for line in unit.lines() {
        let Some(files) = line.strip_prefix("EnvironmentFiles=") else {
            continue;
        };
        let text = read(files.split(" (").next().unwrap_or_default());
        for (name, value) in text
            .lines()
            .filter_map(|assignment| assignment.trim().split_once('='))
        {
            let value = value.trim().trim_matches(['"', '\'']);
            variables.insert(name.to_owned(), value.to_owned());
        }
    }
    let mut words = Vec::new();
    for word in command.split_whitespace() {
        match word.strip_prefix('$') {
            Some(name) => {
                let name = name.trim_matches(['{', '}']);
                let value = variables.get(name).map_or("", String::as_str);
                words.extend(value.split_whitespace());
            }
            None => words.push(word),
        }
    }
    let program = PathBuf::from(words.first()?);
    Some((program, pick_config_options(words.into_iter().skip(1))))
}

/// Finds the main file of the configuration: the value of the last `-f` among options of [`parse_title`], be it
/// attached or the next word, or the default.
pub(crate) fn config_file(options: &[String]) -> PathBuf {
    let mut words = options.iter();
    let mut file = DEFAULT_FILE;
    while let Some(option) = words.next() {
        match option.strip_prefix("-f") {
            Some("") => file = words.next().map_or(file, String::as_str),
            Some(attached) => file = attached,
            None => {}
        }
    }
    PathBuf::from(file)
}

/// Reads the program of a process, with the options that change its configuration; `None` if the process has
/// ended. The caller runs the program as root with these options, so it asks for processes of
/// [`keeper::sshd::is_sshd_process`] alone: no user can start the program of one as root, nor choose its title.
pub(crate) fn read_command(pid: i32) -> Option<(PathBuf, Vec<String>)> {
    let title = fs::read(Proc::host().dir(pid).join("cmdline")).ok()?;
    let program = fs::read_link(Proc::host().dir(pid).join("exe")).ok()?;
    // After an upgrade the running file is deleted, and the next start runs the new one.
    let program = PathBuf::from(program.to_str()?.trim_end_matches(" (deleted)"));
    // OpenSSH before 8.2 has no options in its title.
    Some((
        program,
        parse_title(&String::from_utf8_lossy(&title)).unwrap_or_default(),
    ))
}

/// Reads the name by which a listener was started, which is its PAM service before OpenSSH 9.8: that of the link, if the
/// program was started by one. `None` if its title does not show it.
pub(crate) fn read_started_name(pid: i32) -> Option<String> {
    let title = fs::read(Proc::host().dir(pid).join("cmdline")).ok()?;
    let title = String::from_utf8_lossy(&title).into_owned();
    parse_listener_title(&title).map(|(name, _)| name.to_owned())
}

/// Parses the options in a listener's title, and keeps those of [`CONFIG_OPTIONS`] with their values. `None` for another
/// process.
fn parse_title(title: &str) -> Option<Vec<String>> {
    let (_, command) = parse_listener_title(title)?;
    Some(pick_config_options(command.split_whitespace().skip(1)))
}

/// Picks the options that change the configuration from those of a command line.
fn pick_config_options<'a>(mut words: impl Iterator<Item = &'a str>) -> Vec<String> {
    let mut options = Vec::new();
    while let Some(word) = words.next() {
        match CONFIG_OPTIONS
            .into_iter()
            .find(|option| word.starts_with(option))
        {
            Some(option) if word == option => {
                options.push(option.to_owned());
                options.extend(words.next().map(str::to_owned));
            }
            // The value is attached.
            Some(_) => options.push(word.to_owned()),
            None => {}
        }
    }
    options
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn file_of_the_configuration_is_that_of_the_options() {
        let file = |options: &[&str]| {
            let options: Vec<String> = options.iter().map(|word| (*word).to_owned()).collect();
            config_file(&options).display().to_string()
        };
        assert_eq!(file(&[]), "/etc/ssh/sshd_config");
        assert_eq!(
            file(&["-oUsePAM=no", "-f", "/etc/site_config"]),
            "/etc/site_config"
        );
        assert_eq!(
            file(&["-f/etc/site_config", "-o", "Port=3"]),
            "/etc/site_config"
        );
    }

    #[test]
    fn configuration_options_are_read_from_title_of_listener() {
        let options = |title: &str| parse_title(title).map(|options| options.join(" "));
        let rest = "[listener] 0 of 10-100 startups";
        assert_eq!(
            options(&format!("sshd: /usr/sbin/sshd -D {rest}")),
            Some(String::new())
        );
        let title = format!("sshd: /usr/sbin/sshd -D -f /etc/x -p 2222 -oUsePAM=no -e {rest}");
        assert_eq!(options(&title), Some("-f /etc/x -oUsePAM=no".into()));
        let fork = format!("hpnsshd: /opt/hpn/sbin/hpnsshd -f /etc/hpn {rest}");
        assert_eq!(options(&fork), Some("-f /etc/hpn".into()));
        assert_eq!(options("sshd: alice [priv]"), None);
        assert_eq!(options("vim sshd: a [listener]"), None);
    }

    #[test]
    fn command_of_a_socket_is_that_of_its_unit() {
        let unit = "ExecStart={ path=/usr/sbin/sshd ; argv[]=/usr/sbin/sshd -i $SSHD_OPTS ; ignore_errors=yes ; \
                    pid=0 }\nEnvironmentFiles=/etc/default/ssh (ignore_errors=yes)\n";
        for (variables, options) in [
            ("# none\nSSHD_OPTS=\n", ""),
            ("SSHD_OPTS=\"-f /etc/ssh/other -4\"\n", "-f /etc/ssh/other"),
            ("A=1\nSSHD_OPTS=-oUsePAM=no\n", "-oUsePAM=no"),
        ] {
            let read = |file: &str| {
                assert_eq!(file, "/etc/default/ssh");
                variables.to_owned()
            };
            let (program, parsed) = parse_unit_command(unit, read).unwrap();
            assert_eq!(program, Path::new("/usr/sbin/sshd"));
            assert_eq!(parsed.join(" "), options);
        }
        assert_eq!(parse_unit_command("ExecStart=\n", |_| String::new()), None);
    }
}
