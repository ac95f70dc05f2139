//! The settings that the helper reads from `slurm.conf` and `cgroup.conf`, and the pattern of the
//! spool directory.
#![no_main]

use std::path::Path;

use helper::slurm_conf::{ConfLine, ConfPosition, SpoolPath, join_lines, parse_constrain_devices};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let at = |line| ConfPosition {
        file: Path::new("/slurm.conf").into(),
        line,
    };
    let lines = join_lines(text)
        .into_iter()
        .map(|(line, text)| ConfLine { at: at(line), text });
    let lines: Vec<ConfLine> = lines.collect();
    let mut last = 0;
    for ConfLine { at, text: own } in &lines {
        assert!(
            at.line > last && at.line <= text.lines().count(),
            "line {}",
            at.line
        );
        // As isspace(3) sees it: the byte that Rust leaves out is a vertical tab.
        assert!(
            own.bytes()
                .any(|byte| !byte.is_ascii_whitespace() && byte != 0x0b),
            "{own:?}"
        );
        last = at.line;
    }
    for own in &lines {
        let line = own.parse_pairs();
        assert!(
            line.later_keys().all(|key| line.value(key).is_some()),
            "{line:?}"
        );
    }
    let _ = parse_constrain_devices(&lines);
    let Ok(spool) = SpoolPath::from_lines(&lines) else {
        return;
    };
    let node = "gpu017".parse().expect("a node's name");
    let known = spool
        .dir_of("gpu017.site", Some(&node))
        .expect("the node is known");
    assert!(
        known.starts_with('/') && known.split('/').all(|part| part != ".."),
        "{known:?}"
    );
    match spool.node_dirs("gpu017.site") {
        None => assert_eq!(spool.dir_of("gpu017.site", None), Some(known)),
        // Directories of the node are found without its name as well.
        Some(dirs) => {
            let parent = straight(&dirs.parent);
            let known = straight(&known);
            let below = known
                .strip_prefix(parent.as_slice())
                .expect("below the parent");
            let name = below.first().expect("a name");
            let (found_node, path) = dirs.find_node(name).expect("the node's directory");
            assert_eq!((found_node, straight(&path)), (node, known));
        }
    }
});

/// Returns the names of a path.
fn straight(path: &str) -> Vec<String> {
    path.split('/')
        .filter(|part| !part.is_empty())
        .map(str::to_owned)
        .collect()
}
