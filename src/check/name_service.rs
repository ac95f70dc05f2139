//! Looks at the name service (nsswitch.conf(5)): where it does not read passwd(5), no program finds the accounts in there, and
//! the helper's is one of these.
//!
//! The C library is right about what its own release reads: lines are looked at only for an account that it does not find, and
//! then as any release reads them.

use super::file_edit::FileEdit;
use super::remedy::Remedy;
use super::site::Site;
use helper::stack::FileLine;
use std::fs;
use std::path::Path;

const CONF_PATH: &str = "/etc/nsswitch.conf";
const DATABASE: &str = "passwd";
/// Services that read passwd(5).
const SERVICES_OF_PASSWD: [&str; 2] = ["files", "compat"];
/// The databases of the GNU C Library (`nss/databases.def`): of other names it passes over the line.
const DATABASES: [&str; 17] = [
    "aliases",
    "ethers",
    "group",
    "group_compat",
    "gshadow",
    "hosts",
    "initgroups",
    "netgroup",
    "networks",
    DATABASE,
    "passwd_compat",
    "protocols",
    "publickey",
    "rpc",
    "services",
    "shadow",
    "shadow_compat",
];

/// The line of nsswitch.conf(5) by which no program reads passwd(5).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PasswdUnread {
    pub(super) place: FileLine,
    fault: Fault,
}

/// What keeps programs from passwd(5).
#[derive(Clone, Debug, PartialEq, Eq)]
enum Fault {
    /// The line of the database has no service that reads passwd(5).
    LacksFiles {
        /// The line without its comment.
        text: String,
        services: String,
    },
    /// An answer of a service before them may end the search: actions in brackets stand behind it.
    EndsBefore { services: String },
    /// From glibc 2.34 on a mistake in the actions of one database, in brackets, leaves all databases without services.
    BadActions { text: String },
}

impl PasswdUnread {
    /// Finds the line by which an account that passwd(5) has is not found; `None` if passwd(5) lacks it, or no line explains
    /// it.
    pub(super) fn find(site: &Site, account: &str) -> Option<Self> {
        let mut accounts = site.local_accounts().into_iter();
        accounts.find(|local| local.name == account)?;
        let file = site.at(CONF_PATH);
        let text = fs::read(&file).ok()?;
        Self::parse(&file, &String::from_utf8_lossy(&text))
    }

    /// Finds the line in the text of the file. Of several lines of the database the last one counts; without one the C
    /// library reads passwd(5).
    fn parse(file: &Path, text: &str) -> Option<Self> {
        let mut of_database = None;
        for (number, line) in (1..).zip(text.split_inclusive('\n')) {
            let Some(line) = DatabaseLine::parse(line) else {
                continue;
            };
            let place = FileLine {
                file: file.to_owned(),
                line: number,
            };
            let Some(services) = list_services(line.services) else {
                let fault = Fault::BadActions {
                    text: line.text.to_owned(),
                };
                return Some(Self { place, fault });
            };
            if line.database == DATABASE {
                of_database = Some((place, line, services));
            }
        }
        let (place, line, services) = of_database?;
        let fault = Fault::of_services(&line, &services)?;
        Some(Self { place, fault })
    }

    /// Says why the file is not read, as the object of a sentence with "since".
    pub(super) fn cause(&self) -> String {
        let place = &self.place;
        match self.fault {
            Fault::LacksFiles { .. } => format!("{place} reads no /etc/passwd"),
            Fault::EndsBefore { .. } => {
                format!("by {place} another service answers before /etc/passwd is read")
            }
            Fault::BadActions { .. } => format!(
                "{place} has a mistake in its brackets, for which the C library reads no /etc/passwd"
            ),
        }
    }

    /// What should stand in the line.
    pub(super) fn remedy(&self) -> Remedy {
        match &self.fault {
            Fault::LacksFiles { text, services } => {
                let new = format!("{DATABASE}: files {services}");
                FileEdit::replace(&self.place, text, new.trim_end())
                    .to_string()
                    .into()
            }
            Fault::EndsBefore { services } => {
                format!("{}: write files as the first of \"{services}\"", self.place).into()
            }
            Fault::BadActions { text } => format!(
                "{}: correct the actions in brackets of \"{text}\": man nsswitch.conf has them all",
                self.place
            )
            .into(),
        }
    }
}

impl Fault {
    /// Judges the services of the database's line; `None` if one that reads passwd(5) is surely asked.
    fn of_services(line: &DatabaseLine<'_>, services: &[Service<'_>]) -> Option<Self> {
        // Before glibc 2.34 a comment began at any "#".
        let mut before_comment = services
            .iter()
            .take_while(|service| !service.name.starts_with('#'));
        let position =
            before_comment.position(|service| SERVICES_OF_PASSWD.contains(&service.name));
        let Some(position) = position else {
            let cut = |text: &str| {
                let content = text.split('#').next().unwrap_or_default();
                content.trim_end_matches(is_space).to_owned()
            };
            return Some(Self::LacksFiles {
                text: cut(line.text),
                services: cut(line.services),
            });
        };
        let mut before = services.iter().take(position);
        before
            .any(|service| service.has_actions)
            .then(|| Self::EndsBefore {
                services: line.services.to_owned(),
            })
    }
}

/// A line of one of [`DATABASES`].
struct DatabaseLine<'a> {
    database: &'a str,
    services: &'a str,
    /// The line without the blanks around it.
    text: &'a str,
}

impl<'a> DatabaseLine<'a> {
    /// Parses a line, as `process_line` of `nss/nss_database.c` does: blanks or colons end the name. `None` for one that
    /// the C library passes over, as that of a comment.
    fn parse(line: &'a str) -> Option<Self> {
        let content = line.trim_start_matches(is_space);
        let end = content.find(|c| is_space(c) || c == ':')?;
        let (database, rest) = content.split_at(end);
        DATABASES.contains(&database).then(|| Self {
            database,
            services: rest
                .trim_start_matches(|c| is_space(c) || c == ':')
                .trim_end_matches(is_space),
            text: content.trim_end_matches(is_space),
        })
    }
}

/// Checks for a character of `isspace` in the locale C.
fn is_space(c: char) -> bool {
    c.is_ascii_whitespace() || c == '\u{b}'
}

/// A service of a line.
struct Service<'a> {
    name: &'a str,
    /// Actions in brackets stand behind it.
    has_actions: bool,
}

/// Lists the services of a line, as `nss_action_parse` of `nss/nss_action_parse.c` does; `None` if the actions behind one are
/// wrong. Brackets without a service before them end the list.
fn list_services(text: &str) -> Option<Vec<Service<'_>>> {
    let mut services = Vec::new();
    let mut rest = text.trim_start_matches(is_space);
    loop {
        let end = rest.find(|c| is_space(c) || c == '[').unwrap_or(rest.len());
        let (name, behind) = rest.split_at(end);
        if name.is_empty() {
            return Some(services);
        }
        rest = behind.trim_start_matches(is_space);
        let actions = rest.strip_prefix('[');
        services.push(Service {
            name,
            has_actions: actions.is_some(),
        });
        if let Some(actions) = actions {
            let (actions, next) = actions.split_once(']')?;
            require_actions(actions)?;
            rest = next.trim_start_matches(is_space);
        }
    }
}

/// Requires one `STATUS=ACTION` or more, with `!` before a status for all others; `None` for another text.
fn require_actions(text: &str) -> Option<()> {
    const STATUSES: [&str; 4] = ["SUCCESS", "NOTFOUND", "UNAVAIL", "TRYAGAIN"];
    const ACTIONS: [&str; 3] = ["RETURN", "CONTINUE", "MERGE"];
    let is_one_of =
        |word: &str, words: &[&str]| words.iter().any(|known| known.eq_ignore_ascii_case(word));
    let mut rest = text.trim_start_matches(is_space);
    loop {
        let (status, behind) = rest.split_once('=')?;
        let status = status.trim_end_matches(is_space);
        let status = status.strip_prefix('!').unwrap_or(status);
        let behind = behind.trim_start_matches(is_space);
        let end = behind
            .find(|c| is_space(c) || c == '=')
            .unwrap_or(behind.len());
        let (action, behind) = behind.split_at(end);
        if !is_one_of(status, &STATUSES) || !is_one_of(action, &ACTIONS) {
            return None;
        }
        rest = behind.trim_start_matches(is_space);
        if rest.is_empty() {
            return Some(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Option<PasswdUnread> {
        PasswdUnread::parse(Path::new("/n"), text)
    }

    #[test]
    fn line_without_files_is_found() {
        let found = parse("# x\ngroup: sss\npasswd:  sss systemd # files\n").unwrap();
        assert_eq!(found.place.line, 3);
        let remedy = found.remedy();
        let advice = remedy.advice();
        assert!(advice.contains("/n:3"), "{advice}");
        assert!(advice.contains("\"passwd: files sss systemd\""), "{advice}");
    }

    /// Each answer is that of glibc 2.36 to `getent passwd` with that text in its file. It also finds `files` in comments,
    /// and earlier releases do not.
    #[test]
    fn lines_are_read_as_the_c_library_reads_them() {
        for text in [
            "",
            "passwd: files sss\n",
            "passwd: files # sss\n",
            "passwd: files [NOTFOUND=return] sss\n",
            "# passwd: sss\n",
            "passwd: compat\n",
            "passwd_compat: nis\n",
            ":passwd: sss\n",
            "PASSWD: sss\n",
            "  passwd\t: files\r\n",
            "passwd files",
            "passwd",
            "passwd: sss\npasswd: files\n",
            "passwd: files [ notfound = return ]\n",
            "passwd: files [!NOTFOUND=return UNAVAIL=continue]x\n",
            "group: [x\n",
            "foo: files [x\npasswd: files\n",
            "subid: files [x\n",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
        for (text, line) in [
            ("passwd sss\n", 1),
            ("passwd sss:\n", 1),
            ("passwd:: sss\n", 1),
            ("passwd\u{b}sss\n", 1),
            ("passwd\n", 1),
            ("passwd: #files\n", 1),
            ("passwd: files,\n", 1),
            ("passwd: sss # files\n", 1),
            ("passwd: files # [x\n", 1),
            ("passwd: [NOTFOUND=return] files\n", 1),
            ("passwd: files\npasswd: sss\n", 2),
            ("passwd: files\npasswd: [x\n", 2),
            ("passwd: files [\n", 1),
            ("passwd: files []\n", 1),
            ("passwd: files [NOTFOUND=bogus]\n", 1),
            ("passwd: files [!!NOTFOUND=return]\n", 1),
            ("passwd: files [success=return x]\n", 1),
            ("passwd: files\nhosts: files [NOTFUND=return] dns\n", 2),
            ("initgroups: files [x\n", 1),
        ] {
            let found = parse(text).unwrap_or_else(|| panic!("{text}"));
            assert_eq!(found.place.line, line, "{text}");
        }
    }

    /// As sssd does, where it knows no such account.
    #[test]
    fn service_that_ends_the_search_before_files_is_named() {
        let found = parse("passwd: sss[NOTFOUND=return] files\n").unwrap();
        assert!(found.cause().contains("answers before"), "{found:?}");
        let remedy = found.remedy();
        let advice = remedy.advice();
        assert!(
            advice.starts_with("/n:1: write files as the first"),
            "{advice}"
        );
    }

    #[test]
    fn mistake_in_another_databases_actions_is_named() {
        let found = parse("passwd: files\nhosts: files [NOTFUND=return] dns\n").unwrap();
        assert!(
            found
                .cause()
                .starts_with("/n:2 has a mistake in its brackets")
        );
        let remedy = found.remedy();
        let advice = remedy.advice();
        assert!(
            advice.contains("\"hosts: files [NOTFUND=return] dns\""),
            "{advice}"
        );
    }
}
