//! Looks at the name service (nsswitch.conf(5)): without `files` no program finds the accounts of passwd(5), and the
//! helper's is one of these.

use super::file_edit::FileEdit;
use super::remedy::Remedy;
use super::site::Site;
use helper::stack::FileLine;
use std::fs;
use std::path::PathBuf;

const CONF_PATH: &str = "/etc/nsswitch.conf";
const DATABASE: &str = "passwd";
/// Services that read passwd(5).
const SERVICES_OF_PASSWD: [&str; 2] = ["files", "compat"];

/// The line of nsswitch.conf(5) by which no program reads passwd(5).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PasswdUnread {
    pub(super) place: FileLine,
    /// The line without its comment.
    text: String,
}

impl PasswdUnread {
    /// Finds the line; `None` if passwd(5) is read.
    pub(super) fn find(site: &Site) -> Option<Self> {
        let file = site.at(CONF_PATH);
        let text = fs::read(&file).ok()?;
        Self::parse(file, &String::from_utf8_lossy(&text))
    }

    /// Finds the line in the text of the file. Without a line for the database, the C library reads passwd(5).
    fn parse(file: PathBuf, text: &str) -> Option<Self> {
        for (line, content) in (1..).zip(text.lines()) {
            let content = content.split('#').next().unwrap_or_default().trim();
            let Some((database, services)) = content.split_once(':') else {
                continue;
            };
            if database.trim() != DATABASE {
                continue;
            }
            let reads = services
                .split_whitespace()
                .any(|service| SERVICES_OF_PASSWD.contains(&service));
            return (!reads).then(|| Self {
                place: FileLine { file, line },
                text: content.to_owned(),
            });
        }
        None
    }

    /// What should stand in the line.
    pub(super) fn remedy(&self) -> Remedy {
        let services = self
            .text
            .split_once(':')
            .map_or("", |(_, services)| services);
        let new = format!("{DATABASE}: files {}", services.trim());
        FileEdit::replace(&self.place, &self.text, new.trim_end())
            .to_string()
            .into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_without_files_is_found() {
        let parse = |text: &str| PasswdUnread::parse("/n".into(), text);
        let found = parse("# x\ngroup: sss\npasswd:  sss systemd # files\n").unwrap();
        assert_eq!(found.place.line, 3);
        let remedy = found.remedy();
        let advice = remedy.advice();
        assert!(advice.contains("/n:3"), "{advice}");
        assert!(advice.contains("\"passwd: files sss systemd\""), "{advice}");
        for text in [
            "",
            "passwd: files sss\n",
            "passwd: sss [NOTFOUND=return] files\n",
            "passwd: compat\n",
            "passwd_compat: nis\n",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
