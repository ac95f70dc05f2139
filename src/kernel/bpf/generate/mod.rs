//! Allowlist in, instructions out. Pure: the same set of entries gives the same instructions.
//!
//! A device number becomes one 32-bit key, major above minor. For each device type the entries
//! become steps: keys at which the listed access changes. A program loads its context
//! once, finds the step of the requested key as in a balanced binary tree, and ends in a leaf that
//! all steps with the same access share: is an access requested that the leaf refuses?
//!
//! The kernel's verifier drops instructions that it can prove idle. There are none here, so the
//! program can be read back and compared: both ways of every jump are possible, and no jump goes
//! to the instruction after it. Jumps compare 32 bits (kernel 5.1), and only register 0, which is
//! returned, is written as 64 bits, so no extension of the sign or of zeros is put in either.

mod assembler;
mod steps;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use self::assembler::{Assembler, Label};
use self::steps::{Step, steps};
use super::insn::{
    ACCESS_SHIFT, BPF_AND, BPF_JGE, BPF_JNE, BPF_JSET, BPF_LSH, BPF_OR, CTX_ACCESS_TYPE, CTX_MAJOR,
    CTX_MINOR, Insn, Register,
};
use crate::protocol::{Access, Allowlist, DeviceRule, DeviceType};

/// The answer, 0 or 1.
const ANSWER: Register = 0;
/// `struct bpf_cgroup_dev_ctx` on entry.
const CONTEXT: Register = 1;
/// The first word of the context: the type below, the requested access above.
const ACCESS_TYPE: Register = 2;
/// Major above minor.
const KEY: Register = 3;
/// The minor while the key is made.
const MINOR: Register = 4;
/// The device type alone.
const TYPE: Register = 5;

/// Bits of a key that hold the minor (`MINORBITS` of `linux/kdev_t.h`); the major has the rest. The
/// kernel's own `dev_t` is these 32 bits, so no two of its numbers share a key.
const MINOR_BITS: u32 = 20;

/// The part of the first word that holds the type.
const TYPE_MASK: u32 = (1 << ACCESS_SHIFT) - 1;

/// A program that allows what is listed and refuses everything else.
///
/// A request is allowed if its device is listed and every access that it wants is, by any of the
/// device's entries. One that wants none is allowed for listed devices only.
#[must_use]
pub fn allow(list: &Allowlist) -> Vec<Insn> {
    allow_rules(list.rules())
}

/// As [`allow`], for any number of entries.
///
/// Jumps reach 32,767 instructions, which is enough for 8,192 entries of any kind. Where a longer
/// list does not fit, the program refuses everything.
#[must_use]
pub fn allow_rules(rules: &[DeviceRule]) -> Vec<Insn> {
    program(rules).unwrap_or_else(|| answer(false).to_vec())
}

fn program(rules: &[DeviceRule]) -> Option<Vec<Insn>> {
    // Most devices are character devices: their tree comes first.
    let trees: Vec<(DeviceType, Vec<Step>)> = [DeviceType::Char, DeviceType::Block]
        .into_iter()
        .filter(|kind| rules.iter().any(|rule| rule.kind() == *kind))
        .map(|kind| (kind, steps(kind, rules)))
        .collect();
    if trees.is_empty() {
        return Some(answer(false).to_vec());
    }
    let mut code = Assembler::default();
    let leaves = Leaves::new(&mut code, &trees);
    code.extend(&prologue());
    let mut rest = trees.iter().peekable();
    while let Some((kind, steps)) = rest.next() {
        let other = if rest.peek().is_some() { code.label() } else { leaves.unlisted };
        code.jump_if(BPF_JNE, TYPE, *kind as u32, other);
        search(&mut code, &leaves, steps)?;
        if other != leaves.unlisted {
            code.place(other);
        }
    }
    leaves.emit(&mut code);
    code.finish()
}

/// Requested bits of which each alone refuses a listed device. Bits that the kernel may add to the
/// access one day are not allowed by any list of today.
fn refused(listed: Access) -> u32 {
    !listed.bits() << ACCESS_SHIFT
}

/// Returns at once.
fn answer(allowed: bool) -> [Insn; 2] {
    [Insn::mov64_imm(ANSWER, i32::from(allowed)), Insn::exit()]
}

/// Everything of the context into registers.
fn prologue() -> [Insn; 7] {
    [
        Insn::load_word(ACCESS_TYPE, CONTEXT, CTX_ACCESS_TYPE),
        Insn::load_word(KEY, CONTEXT, CTX_MAJOR),
        Insn::load_word(MINOR, CONTEXT, CTX_MINOR),
        Insn::alu32_imm(BPF_LSH, KEY, MINOR_BITS as i32),
        Insn::alu32_reg(BPF_OR, KEY, MINOR),
        Insn::mov32_reg(TYPE, ACCESS_TYPE),
        Insn::alu32_imm(BPF_AND, TYPE, TYPE_MASK as i32),
    ]
}

/// Goes on in the leaf of the step that holds the key: one comparison halves the steps.
fn search(code: &mut Assembler, leaves: &Leaves, steps: &[Step]) -> Option<()> {
    if let [only] = steps {
        code.jump(leaves.of(only.access)?);
        return Some(());
    }
    // The odd step goes below: a single step above needs no jump of its own.
    let (lower, upper) = steps.split_at_checked(steps.len().div_ceil(2))?;
    let bound = upper.first()?.start;
    if let [only] = upper {
        code.jump_if(BPF_JGE, KEY, bound, leaves.of(only.access)?);
        return search(code, leaves, lower);
    }
    let above = code.label();
    code.jump_if(BPF_JGE, KEY, bound, above);
    search(code, leaves, lower)?;
    code.place(above);
    search(code, leaves, upper)
}

/// Where a search ends: one leaf for each set of listed accesses, shared by all steps with it.
struct Leaves {
    listed: BTreeMap<Access, Label>,
    unlisted: Label,
    refuse: Label,
}

impl Leaves {
    fn new(code: &mut Assembler, trees: &[(DeviceType, Vec<Step>)]) -> Self {
        let mut listed = BTreeMap::new();
        for step in trees.iter().flat_map(|(_, steps)| steps) {
            if step.access != Access::NONE {
                listed.entry(step.access).or_insert_with(|| code.label());
            }
        }
        Self { listed, unlisted: code.label(), refuse: code.label() }
    }

    fn of(&self, access: Access) -> Option<Label> {
        if access == Access::NONE { Some(self.unlisted) } else { self.listed.get(&access).copied() }
    }

    fn emit(&self, code: &mut Assembler) {
        for (access, label) in &self.listed {
            code.place(*label);
            code.jump_if(BPF_JSET, ACCESS_TYPE, refused(*access), self.refuse);
            code.extend(&answer(true));
        }
        code.place(self.unlisted);
        code.place(self.refuse);
        code.extend(&answer(false));
    }
}
