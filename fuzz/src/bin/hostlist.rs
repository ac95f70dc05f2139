//! Slurm's lists of names: the first line is a list, the second a name.
//!
//! At most 1024 bytes: each name is searched in the whole list.
#![no_main]

use helper::devices::{HostList, ListSyntax};
use libfuzzer_sys::fuzz_target;

const LIMIT: usize = 200;

fuzz_target!(|text: &str| {
    let (list, name) = text.split_once('\n').unwrap_or((text, ""));
    let Ok(list) = HostList::parse(list, ListSyntax::HasSuffixes) else {
        return;
    };
    let Ok(names) = list.expand(LIMIT) else {
        return;
    };
    // As for Slurm, a list of commas has no name.
    assert!(names.len() <= LIMIT);
    for name in &names {
        assert!(
            list.contains(name),
            "{name:?} is not in the list that names it"
        );
    }
    let listed = names.iter().any(|listed| listed == name);
    assert_eq!(list.contains(name), listed, "{name:?} of {names:?}");
});
