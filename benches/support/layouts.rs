//! Layouts of device programs to compare with ours.

use interpreter::BPF_RSH;
use kernel::bpf::generate::code::{
    ACCESS_SHIFT, BPF_AND, BPF_JMP, BPF_JNE, BPF_K, BPF_MOV, CTX_ACCESS_TYPE, CTX_MAJOR, CTX_MINOR,
};
use kernel::bpf::generate::{Insn, Register};
use protocol::DeviceRule;

const MAJOR: Register = 2;
const MINOR: Register = 3;
const ACCESS_TYPE: Register = 4;
const SCRATCH: Register = 5;

/// Returns a program that allows everything: the cost of having any program.
pub(crate) fn allow_all() -> Vec<Insn> {
    answer(true).to_vec()
}

/// Returns one block of 10 or 11 instructions for each entry, checked one after the other, in the
/// layout of the Flux IMP. Entries for one device do not add up.
///
/// Long lists load only if every entry grants all three accesses. Otherwise a denied access
/// continues with the minor known, the verifier walks the rest again for each entry, and gives up
/// (`E2BIG`) before 1,024 entries.
pub(crate) fn rule_by_rule(rules: &[DeviceRule]) -> Vec<Insn> {
    let mut program = vec![
        Insn::load_word(MAJOR, 1, CTX_MAJOR),
        Insn::load_word(MINOR, 1, CTX_MINOR),
        Insn::load_word(ACCESS_TYPE, 1, CTX_ACCESS_TYPE),
    ];
    for rule in rules {
        program.extend(entry_instructions(rule));
    }
    program.extend(answer(false));
    program
}

fn answer(allowed: bool) -> [Insn; 2] {
    [Insn::mov64_imm(0, i32::from(allowed)), Insn::exit()]
}

fn entry_instructions(rule: &DeviceRule) -> Vec<Insn> {
    let refused = !rule.access().bits() & 7;
    let test = [
        Insn::alu32_reg(BPF_MOV, SCRATCH, ACCESS_TYPE),
        Insn::alu32_imm(BPF_RSH, SCRATCH, ACCESS_SHIFT as i32),
        Insn::alu32_imm(BPF_AND, SCRATCH, refused as i32),
        unless_equal(SCRATCH, 0, 2),
    ];
    let compared = [
        (SCRATCH, Some(rule.kind() as u32)),
        (MAJOR, Some(rule.major())),
        (MINOR, rule.minor()),
    ];
    let compared: Vec<(Register, u32)> = compared
        .into_iter()
        .filter_map(|(register, value)| Some((register, value?)))
        .collect();

    let mut block = vec![
        Insn::alu32_reg(BPF_MOV, SCRATCH, ACCESS_TYPE),
        Insn::alu32_imm(BPF_AND, SCRATCH, (1 << ACCESS_SHIFT) - 1),
    ];
    for (at, (register, value)) in compared.iter().enumerate() {
        let rest = compared.len() - at - 1 + test.len() + answer(true).len();
        block.push(unless_equal(*register, *value, rest as i16));
    }
    block.extend(test);
    block.extend(answer(true));
    block
}

/// Skips `offset` instructions unless the register holds the value, compared as 64 bits.
fn unless_equal(register: Register, value: u32, offset: i16) -> Insn {
    Insn::new(BPF_JMP | BPF_JNE | BPF_K, register, 0, offset, value as i32)
}
