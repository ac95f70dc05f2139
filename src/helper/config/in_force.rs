//! Lists the keys of a configuration that are in force, each with its origin.

use super::{Config, ConfigError, ConfigLine, KEY_RULES, NAMES_SECTION, parse_line};
use crate::text::printable;
use kernel::trust::Trust;
use std::path::Path;

/// A key of the configuration with the value in force. Both are printable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyInForce {
    /// The key, or `[devices] NAME` for a name of the site.
    pub key: String,
    /// The value as the file has it, or the default; empty if a key without one is not set.
    pub value: String,
    /// The number of its line in the file, from 1; `None` for a default.
    pub line: Option<usize>,
}

impl Config {
    /// Lists all keys in the order of job_adopt.conf(5), and then the site's names of devices, as they hold
    /// with the file at `path`. If the default file is missing, the defaults hold.
    ///
    /// # Errors
    ///
    /// The errors of [`Config::read`]: with such a file no key is in force.
    pub fn keys_in_force(path: &Path, trust: &Trust) -> Result<Vec<KeyInForce>, ConfigError> {
        let bytes = Self::read_bytes(path, trust)?;
        Self::parse(&bytes)
            .map_err(|(line, fault)| ConfigError::InvalidLine(path.to_owned(), line, fault))?;
        let mut names = Vec::new();
        let mut keys = Vec::new();
        for rule in &KEY_RULES {
            keys.push(KeyInForce {
                key: rule.name.to_owned(),
                value: rule.default.to_owned(),
                line: None,
            });
        }
        let mut has_names = false;
        for (index, line) in bytes.split(|&byte| byte == b'\n').enumerate() {
            let number = Some(index + 1);
            match parse_line(line) {
                // `parse` has accepted the file, so this is the section of names, and no line is an error.
                Ok(ConfigLine::Section(_)) => has_names = true,
                Ok(ConfigLine::Pair(name, value)) if has_names => names.push(KeyInForce {
                    key: printable(&format!("[{NAMES_SECTION}] {name}")),
                    value: printable(value),
                    line: number,
                }),
                Ok(ConfigLine::Pair(name, value)) => {
                    if let Some(known) = keys.iter_mut().find(|known| known.key == name) {
                        known.value = printable(value);
                        known.line = number;
                    }
                }
                _ => {}
            }
        }
        keys.extend(names);
        Ok(keys)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Scratch;

    fn read(text: &str) -> Result<Vec<KeyInForce>, ConfigError> {
        let scratch = Scratch::new();
        scratch.file("site.conf", text);
        Config::keys_in_force(&scratch.path().join("site.conf"), &scratch.trust())
    }

    #[test]
    fn each_default_is_that_of_the_parser() {
        let with_default = KEY_RULES.iter().filter(|rule| !rule.default.is_empty());
        for rule in with_default {
            let line = format!("{} = {}", rule.name, rule.default);
            let parsed = Config::parse(line.as_bytes());
            assert_eq!(parsed, Ok(Config::default()), "{line}");
        }
        let keys: Vec<String> = read("").unwrap().into_iter().map(|key| key.key).collect();
        assert_eq!(keys, KEY_RULES.map(|rule| rule.name));
    }

    #[test]
    fn key_has_its_line_or_is_a_default() {
        let text = "# env = full\nenv = gpus # for CUDA\n\n always_allowed=/dev/fuse,\t@fpga\n\
                    [devices]\nfpga = /dev/xdma0\nnet = /dev/net\n";
        let keys = read(text).unwrap();
        let find = |name: &str| {
            let key = keys.iter().find(|key| key.key == name).unwrap();
            (key.value.as_str(), key.line)
        };
        assert_eq!(find("env"), ("gpus", Some(2)));
        assert_eq!(find("always_allowed").1, Some(4));
        assert_eq!(find("end_grace"), ("2", None));
        assert_eq!(find("hint"), ("", None));
        assert_eq!(find("[devices] fpga"), ("/dev/xdma0", Some(6)));
        assert_eq!(find("[devices] net"), ("/dev/net", Some(7)));
        assert_eq!(keys.len(), KEY_RULES.len() + 2);
    }

    #[test]
    fn file_that_no_login_accepts_has_no_keys_in_force() {
        let error = read("env = id\nenv = gpus\n").unwrap_err().to_string();
        assert!(
            error.ends_with("site.conf:2: key env stands twice"),
            "{error}"
        );
    }
}
