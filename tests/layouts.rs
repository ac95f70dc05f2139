//! The layouts that the benchmark compares have the meaning that it assumes.

#[path = "../benches/support/layouts.rs"]
mod layouts;

use admin::filters::interpret::{Request, run};
use kernel::bpf::allow_rules;
use protocol::{Access, DeviceRule, DeviceType};

fn requests() -> impl Iterator<Item = Request> {
    let kinds = [DeviceType::Block, DeviceType::Char].into_iter();
    let numbers = kinds.flat_map(|kind| (0..40).map(move |at| (kind, at / 10, at % 10)));
    let accesses = || (0..8).filter_map(Access::from_bits);
    numbers.flat_map(move |(kind, major, minor)| {
        accesses().map(move |access| Request { kind, major, minor, access })
    })
}

#[test]
fn allow_all_allows_everything() {
    assert!(requests().all(|request| run(&layouts::allow_all(), request) == Some(true)));
}

#[test]
fn layouts_agree_without_duplicate_entries() {
    let rules: Vec<DeviceRule> = ["c:1:3:rw", "c:1:4:r", "c:2:-1:m", "b:1:3:rwm", "b:3:9:w"]
        .map(|text| text.parse().unwrap())
        .to_vec();
    for count in 0..=rules.len() {
        let one_by_one = layouts::rule_by_rule(&rules[..count]);
        let exact = rules[..count].iter().filter(|rule| rule.minor().is_some()).count();
        assert_eq!(one_by_one.len(), 5 + 10 * count + exact);
        let tree = allow_rules(&rules[..count]);
        for request in requests() {
            assert_eq!(run(&one_by_one, request), run(&tree, request), "{request:?}");
        }
    }
}

#[test]
fn duplicate_entries_add_up_only_in_tree() {
    let rules: Vec<DeviceRule> = ["c:1:3:r", "c:1:3:w"].map(|text| text.parse().unwrap()).to_vec();
    let both = Request { kind: DeviceType::Char, major: 1, minor: 3, access: Access::RW };
    assert_eq!(run(&layouts::rule_by_rule(&rules), both), Some(false));
    assert_eq!(run(&allow_rules(&rules), both), Some(true));
}
