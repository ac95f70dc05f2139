//! Tests that a generated program allows exactly the accesses of its list.

use crate::testing::Random;
use crate::{Request, run};
use kernel::bpf::generate::code::{
    BPF_EXIT, BPF_JA, BPF_JGE, BPF_JMP, BPF_JMP32, BPF_JNE, BPF_JSET, BPF_K,
};
use kernel::bpf::{Insn, allow_rules};
use protocol::{ALLOWLIST_ENTRIES_MAX, Access, DeviceRule, DeviceType, MAJOR_MAX, MINOR_MAX};

/// Evaluates a list entry by entry.
fn is_listed(rules: &[DeviceRule], request: Request) -> bool {
    let of_device = rules.iter().filter(|rule| {
        rule.kind() == request.kind
            && rule.major() == request.major
            && rule.minor().is_none_or(|minor| minor == request.minor)
    });
    let accesses: Vec<Access> = of_device.map(DeviceRule::access).collect();
    let listed = |access: Access| accesses.iter().any(|entry| entry.contains(access));
    let mut requested = [Access::READ, Access::WRITE, Access::MKNOD]
        .into_iter()
        .filter(|access| request.access.contains(*access));
    !accesses.is_empty() && requested.all(listed)
}

fn assert_allows(rules: &[DeviceRule], requests: &[Request]) {
    let program = allow_rules(rules);
    for request in requests {
        let expected = is_listed(rules, *request);
        assert_eq!(
            run(&program, *request),
            Some(expected),
            "{request:?} of {rules:?}"
        );
    }
}

fn rules(texts: &[&str]) -> Vec<DeviceRule> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

/// Lists all accesses to the device and to its neighbours, of both types.
fn requests_around(major: u32, minor: u32) -> Vec<Request> {
    let mut requests = Vec::new();
    for kind in [DeviceType::Block, DeviceType::Char] {
        for near_major in major.saturating_sub(1)..=(major + 1).min(MAJOR_MAX) {
            for near_minor in minor.saturating_sub(1)..=(minor + 1).min(MINOR_MAX) {
                for bits in 0..8 {
                    let access = Access::from_bits(bits).unwrap();
                    requests.push(Request {
                        kind,
                        major: near_major,
                        minor: near_minor,
                        access,
                    });
                }
            }
        }
    }
    requests
}

impl Random {
    fn rule(&mut self, majors: u32, minors: u32) -> DeviceRule {
        let kind = if self.below(3) == 0 {
            DeviceType::Block
        } else {
            DeviceType::Char
        };
        let minor = (self.below(40) != 0).then(|| self.below(minors));
        let access = Access::from_bits(1 + self.below(7)).unwrap();
        DeviceRule::from_numbers(kind, self.below(majors), minor, access).unwrap()
    }

    fn shuffle(&mut self, rules: &mut [DeviceRule]) {
        for index in (1..rules.len()).rev() {
            rules.swap(index, self.below(index as u32 + 1) as usize);
        }
    }
}

/// Builds the list of `count` entries with the most steps: gaps between all, and no equal neighbours.
fn alternating(count: u32) -> Vec<DeviceRule> {
    let access = |index: u32| Access::from_bits(1 + index % 7).unwrap();
    let rule = |index: u32| {
        DeviceRule::from_numbers(DeviceType::Char, 195, Some(2 * index), access(index)).unwrap()
    };
    (0..count).map(rule).collect()
}

#[test]
fn every_subset_of_small_universe_is_decided_by_list() {
    let all = rules(&[
        "c:1:-1:r",
        "c:1:3:w",
        "c:1:4:rwm",
        "c:1:0:rw",
        "c:2:0:m",
        "c:0:1048575:rw",
        "c:4095:1048575:rw",
        "b:1:3:rw",
        "b:4095:-1:w",
        "b:0:0:r",
    ]);
    let devices = [
        (0, 0),
        (1, 0),
        (1, 3),
        (1, MINOR_MAX),
        (4095, 0),
        (4095, MINOR_MAX),
    ];
    let mut requests: Vec<Request> = devices
        .iter()
        .flat_map(|(major, minor)| requests_around(*major, *minor))
        .collect();
    requests.push(Request {
        kind: DeviceType::Char,
        major: 0,
        minor: MINOR_MAX,
        access: Access::RW,
    });
    for subset in 0_u32..1 << all.len() {
        let chosen = all
            .iter()
            .enumerate()
            .filter(|(index, _)| subset >> index & 1 == 1);
        let chosen: Vec<DeviceRule> = chosen.map(|(_, rule)| *rule).collect();
        assert_allows(&chosen, &requests);
    }
}

#[test]
fn random_big_lists_are_decided_by_list() {
    let mut random = Random::new(0x6a6f_625f_6164_6f70);
    for (majors, minors) in [(2, 30), (6, 300), (4096, 1 << 20), (1, 1 << 20), (4096, 2)] {
        let list: Vec<DeviceRule> = (0..300).map(|_| random.rule(majors, minors)).collect();
        let sample: Vec<Request> = (0..60)
            .flat_map(|_| {
                let rule = list[random.below(300) as usize];
                let minor = rule.minor().unwrap_or_else(|| random.below(minors));
                requests_around(rule.major(), minor)
            })
            .collect();
        assert_allows(&list, &sample);
    }
}

#[test]
fn entries_of_one_device_add_up_for_one_open() {
    let program = allow_rules(&rules(&["c:195:0:r", "c:195:-1:w"]));
    let request = Request {
        kind: DeviceType::Char,
        major: 195,
        minor: 0,
        access: Access::RW,
    };
    assert_eq!(run(&program, request), Some(true));
    assert_eq!(
        run(
            &program,
            Request {
                minor: 1,
                ..request
            }
        ),
        Some(false)
    );
}

#[test]
fn empty_list_refuses_at_once() {
    assert_eq!(allow_rules(&[]), [Insn::mov64_imm(0, 0), Insn::exit()]);
}

#[test]
fn order_of_entries_changes_no_program() {
    let mut random = Random::new(7);
    let mut list: Vec<DeviceRule> = (0..400).map(|_| random.rule(8, 200)).collect();
    let allowed = allow_rules(&list);
    for _ in 0..10 {
        random.shuffle(&mut list);
        assert!(allow_rules(&list) == allowed);
    }
}

#[test]
fn thousands_of_entries_keep_their_meaning() {
    let list = alternating(4096);
    let allowed = allow_rules(&list);
    for rule in &list {
        for bits in 0..8 {
            let access = Access::from_bits(bits).unwrap();
            let minor = rule.minor().unwrap();
            let request = Request {
                kind: DeviceType::Char,
                major: 195,
                minor,
                access,
            };
            assert_eq!(run(&allowed, request), Some(rule.access().contains(access)));
            let gap = Request {
                minor: minor + 1,
                ..request
            };
            assert_eq!(run(&allowed, gap), Some(false));
        }
    }
}

#[test]
fn list_too_long_for_jumps_refuses_every_request() {
    assert!(allow_rules(&alternating(8192)).len() > 2);
    let refuse = [Insn::mov64_imm(0, 0), Insn::exit()];
    assert!(allow_rules(&alternating(16_384)) == refuse);
}

/// A walk over all paths that the verifier explores, with the bounds of the key that it knows.
struct PathWalk<'a> {
    program: &'a [Insn],
    visited: Vec<bool>,
    longest: usize,
}

impl PathWalk<'_> {
    fn new(program: &[Insn]) -> PathWalk<'_> {
        let mut walk = PathWalk {
            program,
            visited: vec![false; program.len()],
            longest: 0,
        };
        walk.visit(0, 1, (0, u32::MAX));
        walk
    }

    fn visit(&mut self, index: usize, length: usize, key: (u32, u32)) {
        let insn = self.program[index];
        self.visited[index] = true;
        let target = || {
            assert!(insn.offset > 0, "instruction {index} jumps nowhere");
            index + 1 + insn.offset as usize
        };
        const JA: u8 = BPF_JMP | BPF_JA;
        const EXIT: u8 = BPF_JMP | BPF_EXIT;
        const JGE: u8 = BPF_JMP32 | BPF_JGE | BPF_K;
        const JNE: u8 = BPF_JMP32 | BPF_JNE | BPF_K;
        const JSET: u8 = BPF_JMP32 | BPF_JSET | BPF_K;
        match insn.code {
            EXIT => self.longest = self.longest.max(length),
            JA => self.visit(target(), length + 1, key),
            JGE => {
                let bound = insn.imm as u32;
                assert!(
                    key.0 < bound && bound <= key.1,
                    "instruction {index} is decided already"
                );
                self.visit(index + 1, length + 1, (key.0, bound - 1));
                self.visit(target(), length + 1, (bound, key.1));
            }
            JNE | JSET => {
                self.visit(index + 1, length + 1, key);
                self.visit(target(), length + 1, key);
            }
            _ => self.visit(index + 1, length + 1, key),
        }
    }
}

#[test]
fn verifier_drops_no_instruction() {
    let mut random = Random::new(42);
    let mut lists: Vec<Vec<DeviceRule>> = vec![
        rules(&[]),
        rules(&["c:1:3:rw"]),
        rules(&["c:0:0:rw"]),
        rules(&["c:4095:-1:rw"]),
        rules(&["b:0:-1:r"]),
        rules(&["b:7:-1:r", "c:195:0:rw", "c:195:255:rw"]),
        (0..=MAJOR_MAX)
            .map(|major| {
                DeviceRule::from_numbers(DeviceType::Char, major, None, Access::RW).unwrap()
            })
            .collect(),
        alternating(4096),
    ];
    for length in 1..60 {
        lists.push((0..length).map(|_| random.rule(3, 12)).collect());
    }
    for list in lists {
        let walk = PathWalk::new(&allow_rules(&list)).visited;
        assert_eq!(walk.iter().position(|visited| !visited), None, "{list:?}");
    }
}

#[test]
fn cost_is_logarithmic_in_time_and_linear_in_space() {
    for (entries, longest) in [
        (8, 17),
        (512, 23),
        (ALLOWLIST_ENTRIES_MAX as u32, 24),
        (4096, 26),
    ] {
        let program = allow_rules(&alternating(entries));
        assert!(
            program.len() <= 35 + 3 * entries as usize,
            "{entries}: {}",
            program.len()
        );
        let walk = PathWalk::new(&program);
        assert!(walk.longest <= longest, "{entries}: {}", walk.longest);
    }
    let run: Vec<DeviceRule> = (0..1024)
        .map(|minor| {
            DeviceRule::from_numbers(DeviceType::Char, 195, Some(minor), Access::RW).unwrap()
        })
        .collect();
    assert!(allow_rules(&run).len() <= 16, "{}", allow_rules(&run).len());
}
