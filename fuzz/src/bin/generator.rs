//! Allowlists: the program of a list must mean the list, entry by entry.
//!
//! At most 768 bytes, which are 127 entries: each is compared with all of them.
#![no_main]

use interpreter::{Request, run};
use job_adopt_fuzz::Bytes;
use kernel::bpf::allow_rules;
use libfuzzer_sys::fuzz_target;
use protocol::{Access, DeviceRule};

fuzz_target!(|bytes: &[u8]| {
    let mut bytes = Bytes(bytes);
    let Some(request) = bytes.request() else {
        return;
    };
    let mut rules = Vec::new();
    while let Some(rule) = bytes.rule() {
        rules.push(rule);
    }
    let allow = allow_rules(&rules);
    // The request, each device of the list, and the device above it.
    let near = rules.iter().flat_map(|rule| {
        let minor = rule.minor().unwrap_or(request.minor);
        [minor, minor.wrapping_add(1) & 0xf_ffff].map(|minor| Request {
            kind: rule.kind(),
            major: rule.major(),
            minor,
            access: request.access,
        })
    });
    for request in near.take(64).chain([request]) {
        assert_eq!(
            run(&allow, request),
            Some(is_allowed(&rules, request)),
            "{request:?}"
        );
    }
    rules.reverse();
    assert!(allow_rules(&rules) == allow, "the order of entries matters");
});

fn entries(rules: &[DeviceRule], request: Request) -> impl Iterator<Item = Access> {
    rules
        .iter()
        .filter(move |rule| rule.kind() == request.kind && rule.major() == request.major)
        .filter(move |rule| rule.minor().is_none_or(|minor| minor == request.minor))
        .map(DeviceRule::access)
}

fn is_allowed(rules: &[DeviceRule], request: Request) -> bool {
    let granted = entries(rules, request).reduce(Access::union);
    granted.is_some_and(|granted| granted.contains(request.access))
}
