use super::interpret::BPF_RSH;
use super::*;
use kernel::bpf::allow_rules;
use kernel::bpf::generate::code::{
    BPF_ALU, BPF_ALU64, BPF_AND, BPF_JMP, BPF_JNE, BPF_K, BPF_MOV, BPF_X,
};
use protocol::{Access, Allowlist, DeviceType};

const NULL: Request = Request { kind: DeviceType::Char, major: 1, minor: 3, access: Access::RW };

fn list(rules: &[&str]) -> Allowlist {
    let mut list = Allowlist::new();
    for rule in rules {
        list.push(rule.parse().unwrap()).unwrap();
    }
    list
}

fn answer(programs: Vec<(u32, Option<Vec<Insn>>)>) -> Answer {
    Judge::over(programs).answer(NULL)
}

#[test]
fn the_nearest_level_counts_and_multi_ones_above_it() {
    use Attached::{Exclusive, Multi, Nothing, Override};
    for (levels, counts) in [
        (&[Nothing, Nothing][..], &[false, false][..]),
        (&[Nothing, Override, Nothing, Multi], &[false, true, false, true]),
        (&[Multi, Override, Multi], &[true, false, true]),
        (&[Override, Override, Exclusive], &[true, false, false]),
    ] {
        assert_eq!(counting(levels), counts, "{levels:?}");
    }
}

#[test]
fn one_that_refuses_is_enough_and_every_one_is_named() {
    let opens = allow_rules(list(&["c:1:3:rw"]).rules());
    let refuses = allow_rules(list(&["c:1:3:r"]).rules());
    assert_eq!(answer(Vec::new()).allowed(), Some(true));
    assert_eq!(answer(vec![(1, Some(opens.clone()))]).allowed(), Some(true));
    let all = vec![(1, Some(refuses.clone())), (2, Some(opens)), (3, Some(refuses))];
    let answer = answer(all);
    assert_eq!((answer.allowed(), answer.refused_by.as_slice()), (Some(false), &[1, 3][..]));
}

#[test]
fn what_is_not_understood_or_not_shown_is_never_guessed() {
    let opens = allow_rules(list(&["c:1:3:rw"]).rules());
    let call = vec![Insn::new(0x85, 0, 0, 0, 1), Insn::exit()];
    for unclear in [None, Some(call)] {
        let with = answer(vec![(1, Some(opens.clone())), (2, unclear.clone())]);
        assert_eq!((with.allowed(), with.unclear.as_slice()), (None, &[2][..]));
        // Whatever the other one says, this one refuses.
        let refuses = Some(allow_rules(list(&[]).rules()));
        assert_eq!(answer(vec![(1, unclear), (2, refuses)]).allowed(), Some(false));
    }
    assert_eq!(Judge::over(vec![(4, None), (5, Some(opens))]).hidden().collect::<Vec<_>>(), [4]);
}

/// One entry of a list: type, major, minor or any, access.
type Entry = (DeviceType, u32, Option<u32>, Access);

const ENTRIES: [Entry; 4] = [
    (DeviceType::Char, 1, Some(3), Access::ALL),
    (DeviceType::Char, 195, Some(0), Access::RW),
    (DeviceType::Block, 7, None, Access::READ),
    (DeviceType::Char, 136, None, Access::RW),
];

/// `dst != imm` compared as 64 bits: on to the end of a block of `length` of which `done` are there.
fn unless(dst: u8, imm: u32, length: usize, done: usize) -> Insn {
    let offset = i16::try_from(length - done - 1).unwrap();
    Insn::new(BPF_JMP | BPF_JNE | BPF_K, dst, 0, offset, imm as i32)
}

/// As a container runtime lays a list out: the first word of the context in two registers, and a
/// block for each entry that asks whether every access that is wanted is listed.
fn of_a_runtime(answer: u8) -> Vec<Insn> {
    let mut code = vec![
        Insn::load_word(2, 1, 0),
        Insn::alu32_imm(BPF_AND, 2, 0xffff),
        Insn::load_word(3, 1, 0),
        Insn::alu32_imm(BPF_RSH, 3, 16),
        Insn::load_word(4, 1, 4),
        Insn::load_word(5, 1, 8),
    ];
    for (kind, major, minor, access) in ENTRIES {
        let length = 7 + usize::from(minor.is_some());
        let differs = i16::try_from(length - 4).unwrap();
        let mut block = vec![
            unless(2, kind as u32, length, 0),
            Insn::alu32_reg(BPF_MOV, 1, 3),
            Insn::alu32_imm(BPF_AND, 1, access.bits() as i32),
            Insn::new(BPF_JMP | BPF_JNE | BPF_X, 1, 3, differs, 0),
            unless(4, major, length, 4),
        ];
        block.extend(minor.map(|minor| unless(5, minor, length, 5)));
        block.extend([Insn::new(answer | BPF_MOV | BPF_K, 0, 0, 0, 1), Insn::exit()]);
        assert_eq!(block.len(), length);
        code.extend(block);
    }
    code.extend([Insn::new(answer | BPF_MOV | BPF_K, 0, 0, 0, 0), Insn::exit()]);
    code
}

/// As the IMP does: the first word kept whole, and accesses that are not listed masked out of it.
fn of_the_imp() -> Vec<Insn> {
    let mut code =
        vec![Insn::load_word(2, 1, 4), Insn::load_word(3, 1, 8), Insn::load_word(4, 1, 0)];
    for (kind, major, minor, access) in ENTRIES {
        let length = 10 + usize::from(minor.is_some());
        let mut block = vec![
            Insn::alu32_reg(BPF_MOV, 5, 4),
            Insn::alu32_imm(BPF_AND, 5, 0xffff),
            unless(5, kind as u32, length, 2),
            unless(2, major, length, 3),
        ];
        block.extend(minor.map(|minor| unless(3, minor, length, 4)));
        block.extend([
            Insn::alu32_reg(BPF_MOV, 5, 4),
            Insn::alu32_imm(BPF_RSH, 5, 16),
            Insn::alu32_imm(BPF_AND, 5, !access.bits() as i32 & 7),
            unless(5, 0, 3, 0),
            Insn::mov64_imm(0, 1),
            Insn::exit(),
        ]);
        assert_eq!(block.len(), length);
        code.extend(block);
    }
    code.extend([Insn::mov64_imm(0, 0), Insn::exit()]);
    code
}

#[test]
fn the_layouts_of_others_are_understood() {
    let layouts = [
        (of_a_runtime(BPF_ALU), Owner::Runc),
        (of_a_runtime(BPF_ALU64), Owner::Runtime),
        (of_the_imp(), Owner::Imp),
    ];
    for (code, owner) in layouts {
        assert_eq!(Owner::by_looks("", Some(&code)), owner);
        let judge = Judge::over(vec![(1, Some(code))]);
        for kind in [DeviceType::Char, DeviceType::Block] {
            for (major, minor) in [(1, 3), (1, 5), (195, 0), (195, 255), (7, 0), (136, 9), (0, 0)] {
                for bits in 1..8 {
                    let access = Access::from_bits(bits).unwrap();
                    let listed = ENTRIES.iter().any(|entry| {
                        (entry.0, entry.1) == (kind, major)
                            && entry.2.is_none_or(|only| only == minor)
                            && entry.3.contains(access)
                    });
                    let request = Request { kind, major, minor, access };
                    assert_eq!(
                        judge.answer(request).allowed(),
                        Some(listed),
                        "{owner:?} {request:?}"
                    );
                }
            }
        }
    }
}
