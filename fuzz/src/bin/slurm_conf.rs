//! What is read of Slurm's `slurm.conf` and `cgroup.conf`, and its pattern of the spool directory.
#![no_main]

use std::path::Path;

use libfuzzer_sys::fuzz_target;
use pam_job_adopt::helper::devices::slurm::{At, SpoolPath, Text, constrains, joined};

fuzz_target!(|text: &str| {
    let at = |line| At { file: Path::new("/slurm.conf").into(), line };
    let texts = joined(text).into_iter().map(|(line, text)| Text { at: at(line), text });
    let texts: Vec<Text> = texts.collect();
    let mut last = 0;
    for Text { at, text: own } in &texts {
        assert!(at.line > last && at.line <= text.lines().count(), "line {}", at.line);
        assert!(!own.is_empty() && own.trim() == own, "{own:?}");
        last = at.line;
    }
    for own in &texts {
        if let Ok(line) = own.pairs() {
            assert!(own.includes().is_none() || own.text.contains('='), "{own:?}");
            assert!(line.keys().all(|key| line.value(key).is_some()), "{line:?}");
        }
    }
    let _ = constrains(&texts);
    let Ok(spool) = SpoolPath::read(&texts) else { return };
    let node = "gpu017".parse().expect("a node's name");
    let known = spool.directory("gpu017.site", Some(&node)).expect("the node is known");
    assert!(known.starts_with('/') && known.split('/').all(|part| part != ".."), "{known:?}");
    match spool.directories("gpu017.site") {
        None => assert_eq!(spool.directory("gpu017.site", None), Some(known)),
        // What is there for the node is found without its name as well.
        Some(dirs) => {
            let (parent, known) = (straight(&dirs.parent), straight(&known));
            let below = known.strip_prefix(parent.as_slice()).expect("below the parent");
            let name = below.first().expect("a name");
            let (found, path) = dirs.of(name).expect("the node's directory");
            assert_eq!((found, straight(&path)), (node, known));
        }
    }
});

/// The names of a path.
fn straight(path: &str) -> Vec<String> {
    path.split('/').filter(|part| !part.is_empty()).map(str::to_owned).collect()
}
