//! Tests of programs in the layouts of other owners.

use super::{BPF_RSH, Request, run};
use kernel::bpf::Insn;
use kernel::bpf::generate::code::{
    BPF_ALU, BPF_ALU64, BPF_AND, BPF_JMP, BPF_JNE, BPF_K, BPF_MOV, BPF_X,
};
use protocol::{Access, DeviceType};

/// One entry of a list: type, major, minor or any, access.
type Entry = (DeviceType, u32, Option<u32>, Access);

const ENTRIES: [Entry; 4] = [
    (DeviceType::Char, 1, Some(3), Access::ALL),
    (DeviceType::Char, 195, Some(0), Access::RW),
    (DeviceType::Block, 7, None, Access::READ),
    (DeviceType::Char, 136, None, Access::RW),
];

/// Jumps to the end of a block if `dst != imm`, compared as 64 bits. The block has `length`
/// instructions, of which `done` come before this one.
fn jump_unless(dst: u8, imm: u32, length: usize, done: usize) -> Insn {
    let offset = i16::try_from(length - done - 1).unwrap();
    Insn::new(BPF_JMP | BPF_JNE | BPF_K, dst, 0, offset, imm as i32)
}

/// Generates a list's program as container runtimes do: the first word of the context is in two
/// registers, and each entry has a block that checks that it lists every requested access.
fn runtime_program(class: u8) -> Vec<Insn> {
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
            jump_unless(2, kind as u32, length, 0),
            Insn::alu32_reg(BPF_MOV, 1, 3),
            Insn::alu32_imm(BPF_AND, 1, access.bits() as i32),
            Insn::new(BPF_JMP | BPF_JNE | BPF_X, 1, 3, differs, 0),
            jump_unless(4, major, length, 4),
        ];
        block.extend(minor.map(|minor| jump_unless(5, minor, length, 5)));
        block.extend([Insn::new(class | BPF_MOV | BPF_K, 0, 0, 0, 1), Insn::exit()]);
        assert_eq!(block.len(), length);
        code.extend(block);
    }
    code.extend([Insn::new(class | BPF_MOV | BPF_K, 0, 0, 0, 0), Insn::exit()]);
    code
}

/// Generates a list's program as the IMP does: it keeps the first word whole, and masks the listed
/// accesses out of it.
fn imp_program() -> Vec<Insn> {
    let mut code = vec![
        Insn::load_word(2, 1, 4),
        Insn::load_word(3, 1, 8),
        Insn::load_word(4, 1, 0),
    ];
    for (kind, major, minor, access) in ENTRIES {
        let length = 10 + usize::from(minor.is_some());
        let mut block = vec![
            Insn::alu32_reg(BPF_MOV, 5, 4),
            Insn::alu32_imm(BPF_AND, 5, 0xffff),
            jump_unless(5, kind as u32, length, 2),
            jump_unless(2, major, length, 3),
        ];
        block.extend(minor.map(|minor| jump_unless(3, minor, length, 4)));
        block.extend([
            Insn::alu32_reg(BPF_MOV, 5, 4),
            Insn::alu32_imm(BPF_RSH, 5, 16),
            Insn::alu32_imm(BPF_AND, 5, !access.bits() as i32 & 7),
            jump_unless(5, 0, 3, 0),
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
fn layouts_of_other_programs_are_understood() {
    let layouts = [
        ("runc", runtime_program(BPF_ALU)),
        ("container-runtime", runtime_program(BPF_ALU64)),
        ("flux-imp", imp_program()),
    ];
    for (owner, code) in layouts {
        for kind in [DeviceType::Char, DeviceType::Block] {
            for (major, minor) in [
                (1, 3),
                (1, 5),
                (195, 0),
                (195, 255),
                (7, 0),
                (136, 9),
                (0, 0),
            ] {
                for bits in 1..8 {
                    let access = Access::from_bits(bits).unwrap();
                    let listed = ENTRIES.iter().any(|entry| {
                        (entry.0, entry.1) == (kind, major)
                            && entry.2.is_none_or(|only| only == minor)
                            && entry.3.contains(access)
                    });
                    let request = Request {
                        kind,
                        major,
                        minor,
                        access,
                    };
                    assert_eq!(run(&code, request), Some(listed), "{owner} {request:?}");
                }
            }
        }
    }
}
