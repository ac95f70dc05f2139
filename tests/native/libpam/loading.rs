//! Which module a line's name loads (libpam's `tst-dlopen` opens each of its modules), and which the helper calls
//! missing.

use std::os::unix::fs::symlink;
use std::path::Path;

use super::{Files, Libpam};
use crate::support::{Node, on_node};
use helper::stack::is_missing_module;

const PAM_MODULE_UNKNOWN: i32 = 28;

/// What libpam makes of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    /// It loads the module.
    Module,
    /// It finds a file that it cannot load. The helper opens no module, and takes the file for one.
    OtherFile,
    /// It finds nothing.
    Nothing,
}

/// What a name is, the name, in which `FOLDER` is that of the stock modules, and what libpam finds by it.
const NAMES: [(&str, &str, Found); 20] = [
    ("stock module", "pam_permit.so", Found::Module),
    ("stock module that refuses", "pam_deny.so", Found::Module),
    ("stock module that obeys", "pam_debug.so", Found::Module),
    ("our module", "pam_job_adopt.so", Found::Module),
    ("path", "FOLDER/pam_permit.so", Found::Module),
    (
        "path with a way up",
        "FOLDER/../security/pam_permit.so",
        Found::Module,
    ),
    ("path below the folder", "more/pam_here.so", Found::Module),
    ("path elsewhere", "/opt/pam_here.so", Found::Module),
    ("link to a module", "pam_link.so", Found::Module),
    ("link to a module elsewhere", "pam_far.so", Found::Module),
    ("file without a mode", "pam_closed.so", Found::Module),
    ("name without an ending", "pam_bare", Found::Module),
    // Debian's libpam, as on every machine of these tests, looks there besides its own folder.
    ("module of all word sizes", "pam_common.so", Found::Module),
    ("text", "pam_text.so", Found::OtherFile),
    ("empty file", "pam_empty.so", Found::OtherFile),
    ("folder", "pam_folder.so", Found::OtherFile),
    ("no file", "pam_gone.so", Found::Nothing),
    ("no file at a path", "FOLDER/pam_gone.so", Found::Nothing),
    ("no folder", "/gone/pam_permit.so", Found::Nothing),
    ("dangling link", "pam_dangling.so", Found::Nothing),
];

/// Lays out the files of [`NAMES`].
fn lay_out(node: &Node, folder: &str) {
    let stock = node.path(&format!("{folder}/pam_permit.so"));
    for dir in ["more", "pam_folder.so"] {
        node.create_dir(&format!("{folder}/{dir}"), 0o755);
    }
    node.create_dir("/usr/lib/security", 0o755);
    node.create_dir("/opt", 0o755);
    for copy in [
        format!("{folder}/more/pam_here.so"),
        format!("{folder}/pam_closed.so"),
        format!("{folder}/pam_bare"),
        "/opt/pam_here.so".to_owned(),
        "/usr/lib/security/pam_common.so".to_owned(),
    ] {
        node.install(&stock, &copy);
    }
    node.set_mode(&format!("{folder}/pam_closed.so"), 0);
    for (target, link) in [
        ("pam_permit.so", "pam_link.so"),
        ("/opt/pam_here.so", "pam_far.so"),
        ("gone", "pam_dangling.so"),
    ] {
        symlink(target, node.path(&format!("{folder}/{link}"))).unwrap();
    }
    node.write(&format!("{folder}/pam_text.so"), "no library\n");
    node.write(&format!("{folder}/pam_empty.so"), "");
}

#[test]
fn module_is_called_missing_exactly_if_libpam_finds_no_file() {
    on_node(|node| {
        let mut libpam = Libpam::start(node);
        let module = node.module();
        let folder = Path::new(&module).parent().unwrap().display().to_string();
        lay_out(node, &folder);
        let mut differences = Vec::new();
        for (what, name, found) in NAMES {
            let name = name.replace("FOLDER", &folder);
            let text = format!("account required {name}\nsession required {name}\n");
            let codes = libpam.run(&Files(vec![("sshd", text), ("other", String::new())]));
            let is_loaded = !codes.contains(&PAM_MODULE_UNKNOWN);
            let is_missing = is_missing_module(&node.path("/"), &name);
            let seen = match (is_loaded, is_missing) {
                (true, false) => Found::Module,
                (false, false) => Found::OtherFile,
                (false, true) => Found::Nothing,
                (true, true) => {
                    differences.push(format!("{what}: {name} is loaded and called missing"));
                    continue;
                }
            };
            if seen != found {
                differences.push(format!("{what}: {name}: {seen:?}, {codes:?}"));
            }
        }
        assert!(differences.is_empty(), "{}", differences.join("\n"));
    });
}
