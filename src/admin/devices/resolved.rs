//! What names of devices stand for on this node.

use super::super::{EXIT_FINDINGS, EXIT_FINE, Error, Output};
use super::asked::{Asked, What};
use super::nodes::{cell, driver, no_drivers, type_name};
use helper::devices::{Device, ResolvedDevices, Resolver};
use helper::printable;
use serde::Serialize;

/// One device of a name.
#[derive(Debug, Serialize)]
struct Shown {
    specifier: String,
    node: String,
    r#type: &'static str,
    major: u32,
    /// `None` for every minor.
    minor: Option<u32>,
    access: String,
    driver: Option<String>,
}

/// A name that stands for nothing here.
#[derive(Debug, Serialize)]
struct Refused {
    specifier: String,
    why: String,
}

/// What came of all names.
#[derive(Debug, Default, Serialize)]
pub(super) struct Report {
    schema: u32,
    devices: Vec<Shown>,
    refused: Vec<Refused>,
    warnings: Vec<String>,
    /// Names that stand for no device, as an empty directory does. In JSON they are in no list.
    #[serde(skip)]
    none: Vec<String>,
}

impl Report {
    /// Looks the names up one by one, so that one that does not resolve hides no other.
    pub(super) fn of(asked: &[Asked], resolver: &Resolver) -> Self {
        let mut report = Self { schema: 1, ..Self::default() };
        for one in asked {
            let specifier = printable(&one.text);
            match look_up(one, resolver) {
                Ok(found) => report.take(&specifier, found, resolver),
                Err(why) => {
                    let why = printable(&resolver.tree.strip_root(&why));
                    report.refused.push(Refused { specifier, why });
                }
            }
        }
        report.warnings.extend(no_drivers(&resolver.tree));
        report
    }

    fn take(&mut self, specifier: &str, found: ResolvedDevices, resolver: &Resolver) {
        if found.devices.is_empty() {
            self.none.push(specifier.to_owned());
        }
        for Device { node, rule } in found.devices {
            self.devices.push(Shown {
                specifier: specifier.to_owned(),
                node: printable(&node),
                r#type: type_name(rule.kind()),
                major: rule.major(),
                minor: rule.minor(),
                access: rule.access().to_string(),
                driver: driver(&resolver.tree, rule.kind(), rule.major()),
            });
        }
        let on_node = |warning: String| printable(&resolver.tree.strip_root(&warning));
        let warned = |warning: String| format!("{specifier}: {}", on_node(warning));
        self.warnings.extend(found.warnings.into_iter().map(warned));
    }

    pub(super) fn code(&self) -> u8 {
        if self.refused.is_empty() { EXIT_FINE } else { EXIT_FINDINGS }
    }

    pub(super) fn write(&self, json: bool, output: &mut Output<'_>) -> Result<(), Error> {
        self.warnings.iter().for_each(|warning| output.warn(format_args!("warning: {warning}")));
        if json {
            return output.json(self);
        }
        let head = ["SPECIFIER", "NODE", "TYPE", "MAJOR:MINOR", "ACCESS", "DRIVER"];
        let none = self.none.iter().map(|specifier| without(specifier, "no device".into()));
        let refused = |one: &Refused| without(&one.specifier, format!("refused: {}", one.why));
        let refused = self.refused.iter().map(refused);
        output.table(head, self.devices.iter().map(Shown::row).chain(none).chain(refused))
    }
}

fn look_up(asked: &Asked, resolver: &Resolver) -> Result<ResolvedDevices, String> {
    match &asked.what {
        What::Specifier(specifier) => {
            resolver.resolve_specifier(specifier).map_err(|error| error.to_string())
        }
        What::Named(name) => {
            resolver.resolve_names(std::slice::from_ref(name)).map_err(|error| {
                // The name stands in front already, unless it is that of an entry of a directory.
                match error.name == name.to_string() {
                    true => error.why.to_string(),
                    false => error.to_string(),
                }
            })
        }
    }
}

impl Shown {
    fn row(&self) -> [String; 6] {
        let minor = self.minor.map_or("*".into(), |minor| minor.to_string());
        [
            self.specifier.clone(),
            self.node.clone(),
            self.r#type.into(),
            format!("{}:{minor}", self.major),
            self.access.clone(),
            cell(self.driver.clone()),
        ]
    }
}

/// The row of a name without a device. The reason stands last, where its length moves no column.
fn without(specifier: &str, why: String) -> [String; 6] {
    let none = || "-".to_owned();
    [specifier.to_owned(), none(), none(), none(), none(), why]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Scratch;
    use helper::devices::{DeviceName, Settings, Tree};

    fn report(scratch: &Scratch, asked: &[Asked]) -> (u8, String, String) {
        let tree = Tree::with_root(scratch.path(), scratch.trust());
        let report = Report::of(asked, &Resolver::new(tree, Settings::default()));
        super::super::tests::documented(&report);
        let write = |json| {
            let (mut out, mut err) = (Vec::new(), Vec::new());
            let mut output = Output { out: &mut out, err: &mut err };
            report.write(json, &mut output).unwrap();
            [out, err].map(|bytes| String::from_utf8(bytes).unwrap())
        };
        let ([text, warned], [json, _]) = (write(false), write(true));
        (report.code(), text + &warned, json)
    }

    fn specifier(text: &str) -> Asked {
        Asked { text: text.into(), what: What::Specifier(text.parse().unwrap()) }
    }

    #[test]
    fn a_name_is_shown_with_its_numbers_and_its_driver() {
        let scratch = Scratch::new();
        scratch.file("dev/nvidia0", "c 195:0");
        scratch.file("proc/devices", "Character devices:\n136 pts\n195 nvidia\n");
        let (code, text, json) =
            report(&scratch, &[specifier("/dev/nvidia0"), specifier("char-pts r")]);
        assert_eq!(code, EXIT_FINE);
        assert_eq!(
            text,
            "SPECIFIER     NODE          TYPE  MAJOR:MINOR  ACCESS  DRIVER\n\
             /dev/nvidia0  /dev/nvidia0  char  195:0        rw      nvidia\n\
             char-pts r    char-pts      char  136:*        r       pts\n"
        );
        assert_eq!(
            json,
            "{\"schema\":1,\"devices\":[\
             {\"specifier\":\"/dev/nvidia0\",\"node\":\"/dev/nvidia0\",\"type\":\"char\",\
             \"major\":195,\"minor\":0,\"access\":\"rw\",\"driver\":\"nvidia\"},\
             {\"specifier\":\"char-pts r\",\"node\":\"char-pts\",\"type\":\"char\",\"major\":136,\
             \"minor\":null,\"access\":\"r\",\"driver\":\"pts\"}],\"refused\":[],\"warnings\":[]}\n"
        );
    }

    /// Whoever tried names on files below a directory reads of them as they are on the node.
    #[test]
    fn paths_are_those_of_the_node() {
        let scratch = Scratch::new();
        scratch.file("proc/devices", "Character devices:\n1 mem\n");
        scratch.file("etc/cdi/open.json", "");
        scratch.mode("etc/cdi", 0o777);
        let dir =
            Asked { text: "/list".into(), what: What::Named(DeviceName::Dir("/list".into())) };
        let cdi = Asked {
            text: "v.com/x=0".into(),
            what: What::Named(DeviceName::Cdi("v.com/x=0".into())),
        };
        let (_, text, json) = report(&scratch, &[dir, cdi]);
        let root = scratch.path().to_str().unwrap();
        assert!(!text.contains(root) && !json.contains(root), "{text}");
        assert!(text.contains("refused: /list: cannot open"), "{text}");
        assert!(text.contains("refused: /etc/cdi: writable by others"), "{text}");
        let tree = Tree::with_root(std::path::Path::new("/a"), scratch.trust());
        let shown = tree.strip_root("/a/b: /b/a/c, /ab, (/a/a/d)");
        assert_eq!(shown, "/b: /b/a/c, /ab, (/a/d)");
    }

    #[test]
    fn a_name_that_stands_for_no_device_is_a_row_and_fine() {
        let scratch = Scratch::new();
        scratch.dir("dev");
        scratch.dir("run/site/4242");
        scratch.file("proc/devices", "Character devices:\n1 mem\n");
        let path = "/run/site/4242";
        let dir = Asked { text: path.into(), what: What::Named(DeviceName::Dir(path.into())) };
        for asked in [&[dir.clone(), specifier("@hpc")][..], &[specifier("@hpc"), dir]] {
            let (code, text, json) = report(&scratch, asked);
            assert_eq!(code, EXIT_FINE, "{text}");
            for name in [path, "@hpc"] {
                let line = text.lines().find(|line| line.starts_with(name)).unwrap();
                assert!(line.ends_with("  -     -            -       no device"), "{text}");
            }
            assert!(
                json.contains(r#""devices":[],"refused":[]"#) && !json.contains("none"),
                "{json}"
            );
        }
    }

    #[test]
    fn what_does_not_resolve_is_a_row_and_hides_no_other() {
        let scratch = Scratch::new();
        scratch.file("dev/null", "c 1:3");
        let odd = Asked { text: "a\nb".into(), what: What::Named(DeviceName::Gpu("a\nb".into())) };
        let (code, text, json) =
            report(&scratch, &[specifier("/dev/gone"), odd, specifier("/dev/null")]);
        assert_eq!(code, EXIT_FINDINGS);
        assert!(text.contains("/dev/gone  -"), "{text}");
        assert!(text.contains("refused: No such file or directory\n"), "{text}");
        assert!(text.contains("/dev/null  /dev/null  char  1:3          rw      -\n"), "{text}");
        assert!(text.contains("a?b") && !text.contains("a\nb"), "{text}");
        assert!(text.contains("warning: no driver is named: read /proc/devices: "), "{text}");
        let parsed: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(parsed["refused"][1]["specifier"], "a?b");
        assert_eq!(parsed["devices"][0]["driver"], serde_json::Value::Null);
    }
}
