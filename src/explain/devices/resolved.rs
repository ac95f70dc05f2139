//! Reports which devices of this node names stand for.

use super::nodes::{cell, driver_names, driver_warning, type_name};
use super::requested::{NameKind, RequestedName};
use command::error::Error;
use command::exit_status::{EXIT_FINDINGS, EXIT_FINE};
use command::output::Output;
use facts::restricted_nodes::{NodeUser, RestrictedNodes, container_warnings};
use helper::devices::DeviceName;
use helper::node::{ContainerParts, Device, ResolvedDevices};
use helper::printable;
use naming::NameResolver;
use serde::Serialize;

/// One device that a name stands for.
#[derive(Debug, Serialize)]
struct NamedDevice {
    specifier: String,
    node: String,
    r#type: &'static str,
    major: u32,
    /// `None` for every minor.
    minor: Option<u32>,
    access: String,
    driver: Option<String>,
}

/// A name that does not resolve here.
#[derive(Debug, Serialize)]
struct UnresolvedName {
    specifier: String,
    why: String,
}

/// The devices of all names, and the names that do not resolve.
#[derive(Debug, Default, Serialize)]
pub(super) struct NameReport {
    schema: u32,
    devices: Vec<NamedDevice>,
    refused: Vec<UnresolvedName>,
    warnings: Vec<String>,
    /// Names that stand for no device, for example an empty directory. JSON has them in no list.
    #[serde(skip)]
    empty: Vec<String>,
}

impl NameReport {
    /// Resolves each name by itself, so that a wrong one hides no other. Modes of nodes are judged for this
    /// user, or for everyone.
    pub(super) fn resolve(
        names: &[RequestedName],
        resolver: &NameResolver,
        user: Option<&NodeUser>,
    ) -> Self {
        let mut report = Self {
            schema: 1,
            ..Self::default()
        };
        for name in names {
            let specifier = printable(&name.text);
            match resolve_name(name, resolver).and_then(require_loaded) {
                Ok(resolved) => {
                    let is_cdi = matches!(name.kind, NameKind::Named(DeviceName::Cdi(_)));
                    let restricted = find_restricted(&resolved.devices, resolver, user);
                    report.warn_of_modes(&specifier, &restricted, is_cdi);
                    report.warn_of_container(&specifier, &resolved.container, resolver, user);
                    report.add(&specifier, resolved, resolver);
                }
                Err(why) => {
                    let why = printable(&resolver.specifiers.tree.strip_root(&why));
                    report.refused.push(UnresolvedName { specifier, why });
                }
            }
        }
        report
            .warnings
            .extend(driver_warning(&resolver.specifiers.tree));
        report
    }

    /// Warns of nodes that their mode keeps from users, whatever the filter allows. A CDI specification (`is_cdi`)
    /// may name groups that open them, but gives these to containers only.
    fn warn_of_modes(&mut self, specifier: &str, restricted: &RestrictedNodes, is_cdi: bool) {
        for warning in restricted.warnings() {
            let hint = if is_cdi {
                "; additionalGids of a specification are for containers, not for logins"
            } else {
                ""
            };
            self.warnings.push(format!("{specifier}: {warning}{hint}"));
        }
    }

    /// Warns of what a specification gives to containers and logins do not get: groups that `user` lacks (none are named
    /// without a user), files that this node lacks, network devices, `intelRdt`, variables, and modes of nodes.
    fn warn_of_container(
        &mut self,
        specifier: &str,
        container: &ContainerParts,
        resolver: &NameResolver,
        user: Option<&NodeUser>,
    ) {
        let missing = container.missing_files(&resolver.specifiers.tree);
        let warnings = container_warnings(container, user, &missing);
        for warning in warnings.into_iter().chain(container.usual_parts()) {
            self.warnings
                .push(format!("{specifier}: {}", printable(&warning)));
        }
    }

    /// Adds what a specifier resolved to: its devices, and its warnings under its name, with the paths that they
    /// have on the node, not below `--root`. A specifier without devices is listed as empty.
    fn add(&mut self, specifier: &str, resolved: ResolvedDevices, resolver: &NameResolver) {
        if resolved.devices.is_empty() {
            self.empty.push(specifier.to_owned());
        }
        for Device { node, rule } in resolved.devices {
            self.devices.push(NamedDevice {
                specifier: specifier.to_owned(),
                node: printable(&node),
                r#type: type_name(rule.kind()),
                major: rule.major(),
                minor: rule.minor(),
                access: rule.access().to_string(),
                driver: driver_names(&resolver.specifiers.tree, rule.kind(), rule.major()),
            });
        }
        let on_node = |warning: String| printable(&resolver.specifiers.tree.strip_root(&warning));
        let with_name = |warning: String| format!("{specifier}: {}", on_node(warning));
        self.warnings
            .extend(resolved.warnings.into_iter().map(with_name));
    }

    pub(super) fn exit_code(&self) -> u8 {
        if self.refused.is_empty() {
            EXIT_FINE
        } else {
            EXIT_FINDINGS
        }
    }

    /// Writes the report as JSON or as a table, and its warnings as such. Names without devices and refused
    /// ones have the last rows.
    pub(super) fn write(&self, json: bool, output: &mut Output<'_>) -> Result<(), Error> {
        for warning in &self.warnings {
            output.warn(format_args!("warning: {warning}"));
        }
        if json {
            return output.json(self);
        }
        let head = [
            "SPECIFIER",
            "NODE",
            "TYPE",
            "MAJOR:MINOR",
            "ACCESS",
            "DRIVER",
        ];
        let empty = self
            .empty
            .iter()
            .map(|name| row_without_device(name, "no device".into()));
        let refused = self
            .refused
            .iter()
            .map(|name| row_without_device(&name.specifier, format!("refused: {}", name.why)));
        output.table(
            head,
            self.devices
                .iter()
                .map(NamedDevice::row)
                .chain(empty)
                .chain(refused),
        )
    }
}

/// Finds the nodes among these devices that the user cannot open; without a user, those that not everyone can.
fn find_restricted(
    devices: &[Device],
    resolver: &NameResolver,
    user: Option<&NodeUser>,
) -> RestrictedNodes {
    let mut restricted = RestrictedNodes::new(user);
    for device in devices {
        restricted.add_if_restricted(
            &resolver.specifiers.tree,
            &device.node,
            device.rule.access(),
        );
    }
    restricted
}

/// Resolves a name into its devices. The error is the reason, which names an entry of a directory if that is
/// what was refused.
fn resolve_name(name: &RequestedName, resolver: &NameResolver) -> Result<ResolvedDevices, String> {
    match &name.kind {
        NameKind::Specifier(specifier) => resolver
            .specifiers
            .resolve_specifier(specifier)
            .map_err(|error| error.to_string()),
        NameKind::Named(requested) => {
            resolver
                .resolve_names(std::slice::from_ref(requested))
                .map_err(|error| {
                    // The row begins with the requested name, so it is not repeated. If that is a directory, the error
                    // names one of its entries: this name is kept.
                    if error.name == requested.to_string() {
                        error.why.to_string()
                    } else {
                        error.to_string()
                    }
                })
        }
    }
}

/// Refuses what `register` refuses: devices that lack a shared one, since its driver is not loaded yet.
fn require_loaded(resolved: ResolvedDevices) -> Result<ResolvedDevices, String> {
    if resolved.late.is_empty() {
        return Ok(resolved);
    }
    Err(resolved.late.join("; "))
}

impl NamedDevice {
    /// Builds the row of the table; `*` stands for all minor numbers.
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

/// Returns the row of a name without a device. The reason is last, where its length moves no column.
fn row_without_device(specifier: &str, why: String) -> [String; 6] {
    let none = || "-".to_owned();
    [specifier.to_owned(), none(), none(), none(), none(), why]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Scratch;
    use helper::devices::{DeviceName, DeviceSettings};
    use helper::node::Tree;

    fn report(scratch: &Scratch, names: &[RequestedName]) -> (u8, String, String) {
        let tree = Tree::with_root(scratch.path(), scratch.trust());
        let report = NameReport::resolve(
            names,
            &NameResolver::new(tree, DeviceSettings::default()),
            None,
        );
        crate::devices::tests::assert_documented(&report);
        let write = |json| {
            let mut out = Vec::new();
            let mut err = Vec::new();
            let mut output = Output {
                out: &mut out,
                err: &mut err,
            };
            report.write(json, &mut output).unwrap();
            [out, err].map(|bytes| String::from_utf8(bytes).unwrap())
        };
        let ([text, warnings], [json, _]) = (write(false), write(true));
        (report.exit_code(), text + &warnings, json)
    }

    fn specifier(text: &str) -> RequestedName {
        RequestedName {
            text: text.into(),
            kind: NameKind::Specifier(text.parse().unwrap()),
        }
    }

    fn named(text: &str, name: DeviceName) -> RequestedName {
        RequestedName {
            text: text.into(),
            kind: NameKind::Named(name),
        }
    }

    #[test]
    fn name_is_shown_with_numbers_and_driver() {
        let scratch = Scratch::new();
        scratch.file("dev/nvidia0", "c 195:0");
        scratch.file("proc/devices", "Character devices:\n136 pts\n195 nvidia\n");
        let (code, text, json) = report(
            &scratch,
            &[specifier("/dev/nvidia0"), specifier("char-pts r")],
        );
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

    #[test]
    fn node_whose_mode_keeps_users_out_is_a_warning() {
        let scratch = Scratch::new();
        scratch.file("dev/kfd", "c 238:0");
        scratch.file("proc/devices", "Character devices:\n238 kfd\n");
        let spec = r#"{"cdiVersion":"0.7.0","kind":"amd.com/gpu","devices":[{"name":"0",
            "containerEdits":{"deviceNodes":[{"path":"/dev/kfd"}],"additionalGids":[109]}}]}"#;
        scratch.file("etc/cdi/amd.json", spec);
        let names = [
            specifier("/dev/kfd"),
            named("amd.com/gpu=0", DeviceName::Cdi("amd.com/gpu=0".into())),
        ];
        let (_, open_text, _) = report(&scratch, &names);
        assert!(!open_text.contains("warning"), "{open_text}");
        scratch.mode("dev/kfd", 0o600);
        let (code, text, json) = report(&scratch, &names);
        assert_eq!(code, EXIT_FINE);
        let warning = "/dev/kfd: mode 0600, for its owner alone, whatever the filter lets through \
                       (udev sets the mode)";
        assert!(
            text.contains(&format!("warning: /dev/kfd: {warning}\n")),
            "{text}"
        );
        let groups = "additionalGids of a specification are for containers, not for logins";
        assert!(
            text.contains(&format!("warning: amd.com/gpu=0: {warning}; {groups}\n")),
            "{text}"
        );
        assert!(json.contains(warning), "{json}");
    }

    #[test]
    fn what_only_containers_get_is_a_warning() {
        let scratch = Scratch::new();
        scratch.file("dev/kfd", "c 238:0");
        scratch.file("proc/devices", "Character devices:\n238 kfd\n");
        let spec = r#"{"cdiVersion":"1.1.0","kind":"amd.com/gpu","devices":[{"name":"0",
            "containerEdits":{"deviceNodes":[{"path":"/dev/kfd"}],"additionalGids":[1,4294967],
            "mounts":[{"hostPath":"/usr/lib/libgone.so","containerPath":"/x"}],
            "netDevices":[{"hostInterfaceName":"ib0","name":"ib1"}]}}]}"#;
        scratch.file("etc/cdi/amd.json", spec);
        let names = [named(
            "amd.com/gpu=0",
            DeviceName::Cdi("amd.com/gpu=0".into()),
        )];
        let tree = Tree::with_root(scratch.path(), scratch.trust());
        let resolver = NameResolver::new(tree, DeviceSettings::default());
        // uid 1 is daemon, whose group is 1, on every node.
        let user = NodeUser::find(1).unwrap();
        let report = NameReport::resolve(&names, &resolver, Some(&user));
        for text in [
            "amd.com/gpu=0: containers get the groups 4294967; daemon lacks them",
            "amd.com/gpu=0: this node lacks /usr/lib/libgone.so, which the specification gives to \
             containers: generate it anew",
            "amd.com/gpu=0: network devices are for containers: a login does not get ib0",
        ] {
            assert!(
                report.warnings.iter().any(|warning| warning == text),
                "{:?}",
                report.warnings
            );
        }
    }

    /// With `--root` the report has the paths that the files have on the node.
    #[test]
    fn report_has_paths_without_root() {
        let scratch = Scratch::new();
        scratch.file("proc/devices", "Character devices:\n1 mem\n");
        scratch.file("etc/cdi/open.json", "");
        scratch.mode("etc/cdi", 0o777);
        let dir = named("/list", DeviceName::Dir("/list".into()));
        let cdi = named("v.com/x=0", DeviceName::Cdi("v.com/x=0".into()));
        let (_, text, json) = report(&scratch, &[dir, cdi]);
        let root = scratch.path().to_str().unwrap();
        assert!(!text.contains(root) && !json.contains(root), "{text}");
        assert!(text.contains("refused: /list: cannot open"), "{text}");
        assert!(
            text.contains("refused: /etc/cdi: writable by others"),
            "{text}"
        );
        let tree = Tree::with_root(std::path::Path::new("/a"), scratch.trust());
        let shown = tree.strip_root("/a/b: /b/a/c, /ab, (/a/a/d)");
        assert_eq!(shown, "/b: /b/a/c, /ab, (/a/d)");
    }

    #[test]
    fn name_without_device_is_a_row_and_no_error() {
        let scratch = Scratch::new();
        scratch.dir("dev");
        scratch.dir("run/site/4242");
        scratch.file("proc/devices", "Character devices:\n1 mem\n");
        let path = "/run/site/4242";
        let dir = named(path, DeviceName::Dir(path.into()));
        for names in [
            &[dir.clone(), specifier("@hpc")][..],
            &[specifier("@hpc"), dir],
        ] {
            let (code, text, json) = report(&scratch, names);
            assert_eq!(code, EXIT_FINE, "{text}");
            for name in [path, "@hpc"] {
                let line = text.lines().find(|line| line.starts_with(name)).unwrap();
                assert!(
                    line.ends_with("  -     -            -       no device"),
                    "{text}"
                );
            }
            assert!(
                json.contains(r#""devices":[],"refused":[]"#) && !json.contains("none"),
                "{json}"
            );
        }
    }

    #[test]
    fn unresolved_name_is_a_row_and_hides_no_other() {
        let scratch = Scratch::new();
        scratch.file("dev/null", "c 1:3");
        let odd = named("a\nb", DeviceName::Gpu("a\nb".into()));
        let (code, text, json) = report(
            &scratch,
            &[specifier("/dev/gone"), odd, specifier("/dev/null")],
        );
        assert_eq!(code, EXIT_FINDINGS);
        assert!(text.contains("/dev/gone  -"), "{text}");
        assert!(
            text.contains("refused: No such file or directory\n"),
            "{text}"
        );
        assert!(
            text.contains("/dev/null  /dev/null  char  1:3          rw      -\n"),
            "{text}"
        );
        assert!(text.contains("a?b") && !text.contains("a\nb"), "{text}");
        assert!(
            text.contains("warning: no driver is named: read /proc/devices: "),
            "{text}"
        );
        let parsed: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(parsed["refused"][1]["specifier"], "a?b");
        assert_eq!(parsed["devices"][0]["driver"], serde_json::Value::Null);
    }
}
