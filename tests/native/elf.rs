//! Contents of the installed files. The module runs inside sshd, so it links and contains as little
//! as possible.

use std::process::Command;

use crate::support::{Artifact, Outcome, artifact_path, finished_dir, skip};

/// Returns the path of the stripped module that `make` has built.
fn module_path() -> Option<String> {
    if finished_dir().is_none() {
        skip("needs optimised programs: make test-release");
        return None;
    }
    Some(
        artifact_path(Artifact::Module)
            .to_string_lossy()
            .into_owned(),
    )
}

/// Reads a file with a replacement character for all that is not UTF-8. The standard library searches text fast
/// even in a program that is not optimised.
fn read_as_text(path: impl AsRef<std::path::Path>) -> String {
    String::from_utf8_lossy(&std::fs::read(path).unwrap()).into_owned()
}

fn run_inspector(program: &str, arguments: &[&str]) -> String {
    Outcome::run(Command::new(program).args(arguments))
        .ok()
        .stdout
}

#[test]
fn module_exports_only_pam_entry_points() {
    let Some(module) = module_path() else { return };
    let symbols = run_inspector("nm", &["-D", "--defined-only", &module]);
    let mut names: Vec<&str> = symbols
        .lines()
        .filter_map(|line| line.split_whitespace().nth(2))
        .collect();
    names.sort_unstable();
    let expected = [
        "pam_sm_acct_mgmt",
        "pam_sm_authenticate",
        "pam_sm_close_session",
        "pam_sm_open_session",
        "pam_sm_setcred",
    ];
    assert_eq!(names, expected);
}

/// Each further library would cost every connection: libgcc_s took half of the time to load the module.
#[test]
fn module_needs_only_libc_and_libpam() {
    let Some(module) = module_path() else { return };
    for line in run_inspector("readelf", &["-dW", &module])
        .lines()
        .filter(|l| l.contains("(NEEDED)"))
    {
        let library = line.split(['[', ']']).nth(1).unwrap();
        let known = ["libc.so.", "libpam.so.", "ld-linux"];
        assert!(
            known.iter().any(|known| library.starts_with(known)),
            "{library}"
        );
    }
}

/// Lists the symbol versions that a file requires of its libraries: the version's prefix and its
/// number.
fn symbol_versions(file: &str) -> Vec<(String, Vec<u32>)> {
    let listed = run_inspector("readelf", &["-VW", file]);
    let needs = listed.lines().filter(|line| !line.contains("File:"));
    let names = needs.filter_map(|line| line.split("Name: ").nth(1)?.split(' ').next());
    let parted = names.map(|name| {
        let (word, number) = name
            .rsplit_once('_')
            .unwrap_or_else(|| panic!("{file}: {name}"));
        (
            word.to_owned(),
            number
                .split('.')
                .map(|part| part.parse().unwrap())
                .collect(),
        )
    });
    parted.collect()
}

/// EL 8 has glibc 2.28 and Linux-PAM 1.3.1.
#[test]
fn all_four_files_need_only_symbols_of_oldest_distribution() {
    if finished_dir().is_none() || std::env::var("GLIBC").is_ok_and(|version| version != "2.28") {
        return skip("needs programs for glibc 2.28: make test-release");
    }
    for file in [
        Artifact::Module,
        Artifact::Helper,
        Artifact::Keeper,
        Artifact::Program,
    ] {
        let path = artifact_path(file);
        let path = path.to_str().unwrap();
        assert!(
            !run_inspector("readelf", &["-dW", path]).contains("RELR"),
            "{path}"
        );
        let found = symbol_versions(path);
        assert_eq!(
            found.is_empty(),
            file == Artifact::Helper,
            "{path}: {found:?}"
        );
        for (word, number) in found {
            let max = match word.as_str() {
                "GLIBC" => vec![2, 28],
                "LIBPAM" | "LIBPAM_MODUTIL" => vec![1, 0],
                _ => panic!("{path}: {word} {number:?}"),
            };
            assert!(number <= max, "{path}: {word} {number:?}");
        }
    }
}

/// A guessable address or a writable jump table would make any memory error worse.
#[test]
fn all_four_files_are_hardened() {
    if finished_dir().is_none() {
        return skip("needs optimised programs: make test-release");
    }
    for file in [
        Artifact::Module,
        Artifact::Helper,
        Artifact::Keeper,
        Artifact::Program,
    ] {
        let path = artifact_path(file);
        let path = path.to_str().unwrap();
        let dynamic = run_inspector("readelf", &["-dW", path]);
        assert!(dynamic.contains("NOW"), "{dynamic}");
        assert_eq!(
            dynamic.contains("NODELETE"),
            file == Artifact::Module,
            "{dynamic}"
        );
        assert!(
            !dynamic.contains("TEXTREL") && !dynamic.contains("RUNPATH"),
            "{dynamic}"
        );
        assert!(
            run_inspector("readelf", &["-hW", path]).contains("DYN ("),
            "{path}: not relocatable"
        );
        let segments = run_inspector("readelf", &["-lW", path]);
        assert!(segments.contains("GNU_RELRO"), "{segments}");
        let stack = segments
            .lines()
            .find(|line| line.contains("GNU_STACK"))
            .unwrap();
        assert!(!stack.contains("RWE"), "{stack}");
    }
}

/// The helper starts without the dynamic linker and without name service lookups, since each login
/// waits for it.
#[test]
fn helper_is_statically_linked() {
    if module_path().is_none() {
        return;
    }
    let helper = artifact_path(Artifact::Helper);
    let helper = helper.to_str().unwrap();
    assert!(run_inspector("readelf", &["-lW", helper]).contains("LOAD"));
    assert!(!run_inspector("readelf", &["-lW", helper]).contains("INTERP"));
    assert!(!run_inspector("readelf", &["-dW", helper]).contains("(NEEDED)"));
    let text = read_as_text(artifact_path(Artifact::Helper));
    assert!(text.contains("/etc/passwd") && !text.contains("nsswitch.conf"));
}

#[test]
fn module_is_small_and_stripped() {
    let Some(module) = module_path() else { return };
    let bytes = std::fs::metadata(&module).unwrap().len();
    // What it grew by lately: variables of each scheduler, and the unwinder, which was a library of 120 KiB.
    assert!(bytes < 800 * 1024, "{bytes} bytes");
    let sections = run_inspector("readelf", &["-SW", &module]);
    assert!(
        !sections.contains(".symtab") && !sections.contains(".debug_"),
        "{sections}"
    );
}

/// Only the unprivileged half parses configuration and records.
#[test]
fn module_contains_no_parser() {
    if module_path().is_none() {
        return;
    }
    let module = read_as_text(artifact_path(Artifact::Module));
    let helper = read_as_text(artifact_path(Artifact::Helper));
    // Words of both grammars and of the JSON parser.
    for word in [
        "DevicePolicy",
        "a record has",
        "block-NAME",
        "missing field",
        "unknown field",
    ] {
        assert!(!module.contains(word), "the module knows {word:?}");
        assert!(
            helper.contains(word),
            "the helper does not know {word:?}: a word to replace here"
        );
    }
}

/// Only the admin's command contains a command line parser.
#[test]
fn files_of_login_contain_no_command_line_parser() {
    if module_path().is_none() {
        return;
    }
    let module = read_as_text(artifact_path(Artifact::Module));
    let program = read_as_text(artifact_path(Artifact::Program));
    let helpers =
        [Artifact::Helper, Artifact::Keeper].map(|file| read_as_text(artifact_path(file)));
    for word in [
        "unrecognized subcommand",
        "unexpected argument found",
        "a command is needed",
        // Words of the TOML parser, and of the code of `check` that uses it.
        "cannot extend value of type array",
        "sdexec-properties",
    ] {
        assert!(program.contains(word), "{word:?} is a word to replace here");
        assert!(
            !helpers.iter().any(|helper| helper.contains(word)),
            "a helper knows {word:?}"
        );
        assert!(!module.contains(word), "the module knows {word:?}");
    }
}
