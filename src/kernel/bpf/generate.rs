//! Generates the instructions of a filter from an allowlist. The same set of entries gives the same
//! instructions.
//!
//! A device number becomes one 32-bit key, major above minor. For each device type the entries become steps:
//! keys at which the listed access changes. A program loads its context once, finds the step of the requested
//! key in a balanced binary tree, and ends in a leaf, which all steps with the same access share. The leaf
//! tests whether an access is requested that it refuses.
//!
//! The kernel's verifier removes instructions that it can prove dead. A program has none, so it can be read
//! back and compared: both branches of every jump are possible, and no jump goes to the instruction after it.
//! Jumps compare 32 bits (kernel 5.1), and only register 0, the return value, is written with 64 bits. So the
//! verifier adds no extension of sign or zeros either.

use protocol::{Access, DeviceRule, DeviceType};

/// Codes of instructions, with the names of `linux/bpf.h`.
#[allow(missing_docs, reason = "a comment stands beside each")]
pub mod code {
    pub const BPF_LDX: u8 = 0x01; // class: load from memory into a register
    pub const BPF_ALU: u8 = 0x04; // class: 32-bit arithmetic; clears the destination's upper half
    pub const BPF_JMP: u8 = 0x05; // class: jumps that compare 64 bits, and exit
    pub const BPF_JMP32: u8 = 0x06; // class: jumps that compare the lower 32 bits (kernel 5.1)
    pub const BPF_ALU64: u8 = 0x07; // class: 64-bit arithmetic

    pub const BPF_W: u8 = 0x00; // size of a load: 4 bytes
    pub const BPF_MEM: u8 = 0x60; // mode of a load: register plus offset
    pub const BPF_K: u8 = 0x00; // second operand: the immediate
    pub const BPF_X: u8 = 0x08; // second operand: the source register

    pub const BPF_OR: u8 = 0x40; // dst |= operand
    pub const BPF_AND: u8 = 0x50; // dst &= operand
    pub const BPF_LSH: u8 = 0x60; // dst <<= operand
    pub const BPF_MOV: u8 = 0xb0; // dst = operand

    pub const BPF_JA: u8 = 0x00; // jump always
    pub const BPF_JGE: u8 = 0x30; // jump if greater or equal, unsigned
    pub const BPF_JSET: u8 = 0x40; // jump if a bit of the operand is set
    pub const BPF_JNE: u8 = 0x50; // jump if not equal
    pub const BPF_EXIT: u8 = 0x90; // return from the program with the value of register 0

    // Offsets in struct bpf_cgroup_dev_ctx, and in its first word.
    pub const CTX_ACCESS_TYPE: i16 = 0; // the type in the lower half, the requested access above
    pub const CTX_MAJOR: i16 = 4;
    pub const CTX_MINOR: i16 = 8;
    pub const ACCESS_SHIFT: u32 = 16; // how far the access is shifted to the left
}
use code::*;

/// Bytes of an instruction.
pub const INSN_BYTES: usize = 8;

/// Shift of `dst_reg`, the first member of the C bit field. The byte order decides which half it is.
pub const DST_SHIFT: u32 = if cfg!(target_endian = "little") { 0 } else { 4 };
/// Shift of `src_reg`, the second member of the C bit field.
pub const SRC_SHIFT: u32 = 4 - DST_SHIFT;

/// A register, 0 to 10: 0 is the return value, 1 is the context at the start.
pub type Register = u8;

/// `struct bpf_insn` of `linux/bpf.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct Insn {
    /// Class, operation and kind of operand, or class, size and mode.
    pub code: u8,
    /// Destination and source register, four bits each, in an order that depends on the byte order.
    pub registers: u8,
    /// Instructions that a jump skips, or bytes that are added to an address.
    pub offset: i16,
    /// Immediate operand.
    pub imm: i32,
}

impl Insn {
    /// Creates an instruction from its five fields.
    pub const fn new(code: u8, dst: Register, src: Register, offset: i16, imm: i32) -> Self {
        Self {
            code,
            registers: (dst & 0xf) << DST_SHIFT | (src & 0xf) << SRC_SHIFT,
            offset,
            imm,
        }
    }

    /// Creates `dst = *(u32 *)(src + offset)`.
    pub const fn load_word(dst: Register, src: Register, offset: i16) -> Self {
        Self::new(BPF_LDX | BPF_W | BPF_MEM, dst, src, offset, 0)
    }

    /// Creates `dst = imm` on 64 bits.
    pub const fn mov64_imm(dst: Register, imm: i32) -> Self {
        Self::new(BPF_ALU64 | BPF_MOV | BPF_K, dst, 0, 0, imm)
    }

    /// Creates `dst = dst operation imm` on 32 bits.
    pub const fn alu32_imm(operation: u8, dst: Register, imm: i32) -> Self {
        Self::new(BPF_ALU | operation | BPF_K, dst, 0, 0, imm)
    }

    /// Creates `dst = dst operation src` on 32 bits.
    pub const fn alu32_reg(operation: u8, dst: Register, src: Register) -> Self {
        Self::new(BPF_ALU | operation | BPF_X, dst, src, 0, 0)
    }

    /// Creates a jump over `offset` instructions if `dst condition imm` holds for 32 unsigned bits.
    pub const fn jump32_imm(condition: u8, dst: Register, imm: u32, offset: i16) -> Self {
        Self::new(BPF_JMP32 | condition | BPF_K, dst, 0, offset, imm as i32)
    }

    /// Creates a jump over `offset` instructions.
    pub const fn jump(offset: i16) -> Self {
        Self::new(BPF_JMP | BPF_JA, 0, 0, offset, 0)
    }

    /// Creates the end of the program.
    pub const fn exit() -> Self {
        Self::new(BPF_JMP | BPF_EXIT, 0, 0, 0, 0)
    }

    /// The bytes that the kernel reads.
    pub fn to_bytes(self) -> [u8; INSN_BYTES] {
        let [offset_0, offset_1] = self.offset.to_ne_bytes();
        let [imm_0, imm_1, imm_2, imm_3] = self.imm.to_ne_bytes();
        [
            self.code,
            self.registers,
            offset_0,
            offset_1,
            imm_0,
            imm_1,
            imm_2,
            imm_3,
        ]
    }
}

/// Register with the return value, 0 or 1.
const RESULT: Register = 0;
/// Register with `struct bpf_cgroup_dev_ctx` at the start.
const CONTEXT: Register = 1;
/// Register with the first word of the context: the type below, the requested access above.
const ACCESS_TYPE: Register = 2;
/// Register with the key: major above minor.
const KEY: Register = 3;
/// Register with the minor until it is part of the key.
const MINOR: Register = 4;
/// Register with the device type alone.
const TYPE: Register = 5;

/// Ends the program and allows the access.
const ALLOW: [Insn; 2] = [Insn::mov64_imm(RESULT, 1), Insn::exit()];
/// Ends the program and refuses the access.
const REFUSE: [Insn; 2] = [Insn::mov64_imm(RESULT, 0), Insn::exit()];

/// Bits of a key that hold the minor (`MINORBITS` of `linux/kdev_t.h`); the major has the rest. The
/// kernel's own `dev_t` is these 32 bits, so no two of its numbers share a key.
const MINOR_BITS: u32 = 20;

/// Bits of the first word that hold the type.
const TYPE_MASK: u32 = (1 << ACCESS_SHIFT) - 1;

/// Generates a program that allows the listed accesses and refuses all others.
///
/// A request is allowed if its device is listed and entries of the device allow every requested access. A
/// request without any access is allowed for listed devices only. Jumps reach 32,767 instructions, which is
/// enough for 8,192 entries of any kind. A list that is too long gives a program that refuses everything.
pub fn allow_rules(rules: &[DeviceRule]) -> Vec<Insn> {
    assemble(rules).unwrap_or_else(|| REFUSE.to_vec())
}

/// Assembles the program, from its end to its beginning: the refusal, a leaf for each listed access, the tree of each
/// device type, and the loads, which run first. `None` if a jump would be too long.
fn assemble(rules: &[DeviceRule]) -> Option<Vec<Insn>> {
    // Most devices are character devices: their tree comes first.
    let trees: Vec<(DeviceType, Vec<Step>)> = [DeviceType::Char, DeviceType::Block]
        .into_iter()
        .filter(|kind| rules.iter().any(|rule| rule.kind() == *kind))
        .map(|kind| (kind, access_steps(kind, rules)))
        .collect();
    if trees.is_empty() {
        return Some(REFUSE.to_vec());
    }
    let mut code = ReverseAssembler::default();
    let refuse = code.prepend(&REFUSE);
    let mut listed: Vec<Access> = Vec::new();
    for step in trees.iter().flat_map(|(_, steps)| steps) {
        if step.access != Access::NONE && !listed.contains(&step.access) {
            listed.push(step.access);
        }
    }
    let mut leaves = vec![(Access::NONE, refuse)];
    for access in listed.into_iter().rev() {
        code.prepend(&ALLOW);
        let refused = refused_bits(access);
        leaves.push((
            access,
            code.prepend_jump_if(BPF_JSET, ACCESS_TYPE, refused, refuse)?,
        ));
    }
    // A device of another type than the tree's goes on to the next tree, and after the last one is refused.
    let mut other_type = refuse;
    for (kind, steps) in trees.iter().rev() {
        prepend_search(&mut code, &leaves, steps)?;
        other_type = code.prepend_jump_if(BPF_JNE, TYPE, *kind as u32, other_type)?;
    }
    code.prepend(&load_context());
    code.0.reverse();
    Some(code.0)
}

/// The requested bits of which each alone refuses a listed device. They include bits that the kernel
/// may add to the access one day.
fn refused_bits(listed: Access) -> u32 {
    !listed.bits() << ACCESS_SHIFT
}

/// Loads the whole context into registers.
fn load_context() -> [Insn; 7] {
    [
        Insn::load_word(ACCESS_TYPE, CONTEXT, CTX_ACCESS_TYPE),
        Insn::load_word(KEY, CONTEXT, CTX_MAJOR),
        Insn::load_word(MINOR, CONTEXT, CTX_MINOR),
        Insn::alu32_imm(BPF_LSH, KEY, MINOR_BITS as i32),
        Insn::alu32_reg(BPF_OR, KEY, MINOR),
        Insn::alu32_reg(BPF_MOV, TYPE, ACCESS_TYPE),
        Insn::alu32_imm(BPF_AND, TYPE, TYPE_MASK as i32),
    ]
}

/// Prepends a search that continues in the leaf of the step with the key: one comparison halves the steps. All
/// steps with the same access share a leaf. Returns the label of its first instruction; `None` if a jump would be too
/// long.
fn prepend_search(
    code: &mut ReverseAssembler,
    leaves: &[(Access, Label)],
    steps: &[Step],
) -> Option<Label> {
    let leaf = |step: &Step| leaves.iter().find(|(access, _)| *access == step.access);
    if let [only] = steps {
        return code.prepend_jump(leaf(only)?.1);
    }
    // The odd step goes to the lower half: a single step in the upper half needs no jump.
    let (lower, upper) = steps.split_at_checked(steps.len().div_ceil(2))?;
    let above = match upper {
        [only] => leaf(only)?.1,
        _ => prepend_search(code, leaves, upper)?,
    };
    prepend_search(code, leaves, lower)?;
    code.prepend_jump_if(BPF_JGE, KEY, upper.first()?.start, above)
}

/// A range of keys with the same listed access. It ends at the next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Step {
    /// First key of the range.
    start: u32,
    /// Union of all entries for these devices; empty if no entry lists them.
    access: Access,
}

/// Converts the entries of one device type to a step function over all device numbers: the first step begins
/// at 0, starts ascend, and neighbours differ in access.
///
/// The access of a device is the union of its entries and of the entries for all minors of its major.
fn access_steps(kind: DeviceType, rules: &[DeviceRule]) -> Vec<Step> {
    let mut devices = Vec::new();
    let mut majors = Vec::new();
    // The access may change at the first key of each entry and at the first key after it. No access belongs to these
    // keys yet: they are pairs to be sorted and merged as the others are.
    let mut starts = vec![(0, Access::NONE)];
    for rule in rules.iter().filter(|rule| rule.kind() == kind) {
        let first = rule.major() << MINOR_BITS | rule.minor().unwrap_or(0);
        let (list, length) = match rule.minor() {
            Some(_) => (&mut devices, 1),
            None => (&mut majors, 1 << MINOR_BITS),
        };
        list.push((first, rule.access()));
        starts.push((first, Access::NONE));
        // No key follows the last major.
        starts.extend(first.checked_add(length).map(|after| (after, Access::NONE)));
    }
    let devices = merge_by_key(devices);
    let majors = merge_by_key(majors);
    let mut steps = Vec::new();
    for (start, _) in merge_by_key(starts) {
        let first_of_major = start >> MINOR_BITS << MINOR_BITS;
        let of_major = access_at(&majors, first_of_major);
        steps.push(Step {
            start,
            access: access_at(&devices, start).union(of_major),
        });
    }
    steps.dedup_by_key(|step| step.access);
    steps
}

/// Sorts a list by key and merges entries with the same key: each has all their accesses.
fn merge_by_key(mut list: Vec<(u32, Access)>) -> Vec<(u32, Access)> {
    list.sort_unstable_by_key(|(key, _)| *key);
    list.dedup_by(|(key, access), (kept_key, kept_access)| {
        if key != kept_key {
            return false;
        }
        *kept_access = kept_access.union(*access);
        true
    });
    list
}

/// Finds the access of a key in a sorted list; the empty set if the list does not have the key.
fn access_at(list: &[(u32, Access)], key: u32) -> Access {
    match list.binary_search_by_key(&key, |(listed, _)| *listed) {
        Ok(index) => list.get(index).map_or(Access::NONE, |(_, access)| *access),
        Err(_) => Access::NONE,
    }
}

/// A target of jumps: the number of instructions from it to the end.
type Label = usize;

/// A program under construction, its last instruction first. So the target of each jump exists before it.
#[derive(Default)]
struct ReverseAssembler(Vec<Insn>);

impl ReverseAssembler {
    /// Prepends instructions; returns the label of the first of them.
    fn prepend(&mut self, insns: &[Insn]) -> Label {
        // The last instruction comes first, so this prepends; a label counts from the end.
        self.0.extend(insns.iter().rev());
        self.0.len()
    }

    /// Counts the instructions that a prepended jump skips; `None` if 16 bits cannot hold the number.
    fn jump_offset(&self, to: Label) -> Option<i16> {
        self.0.len().checked_sub(to)?.try_into().ok()
    }

    /// Prepends a jump, unless its target comes next: the verifier would remove it.
    fn prepend_jump(&mut self, to: Label) -> Option<Label> {
        match self.jump_offset(to)? {
            0 => Some(to),
            offset => Some(self.prepend(&[Insn::jump(offset)])),
        }
    }

    /// Prepends a jump that is taken if `register condition imm` holds for 32 unsigned bits; `None` if it is too long.
    fn prepend_jump_if(
        &mut self,
        condition: u8,
        register: Register,
        imm: u32,
        to: Label,
    ) -> Option<Label> {
        let offset = self.jump_offset(to)?;
        Some(self.prepend(&[Insn::jump32_imm(condition, register, imm, offset)]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::MINOR_MAX;

    #[test]
    fn access_unknown_to_lists_is_refused() {
        assert_eq!(refused_bits(Access::ALL), 0xfff8_0000);
    }

    fn steps(rules: &[&str]) -> Vec<(u32, u32, String)> {
        let rules: Vec<DeviceRule> = rules.iter().map(|rule| rule.parse().unwrap()).collect();
        let mut parts = Vec::new();
        for Step { start, access } in access_steps(DeviceType::Char, &rules) {
            parts.push((start >> MINOR_BITS, start & MINOR_MAX, access.to_string()));
        }
        parts
    }

    fn step(major: u32, minor: u32, access: &str) -> (u32, u32, String) {
        (major, minor, access.to_owned())
    }

    #[test]
    fn empty_list_is_one_step() {
        assert_eq!(steps(&["b:1:3:rw"]), [step(0, 0, "")]);
    }

    #[test]
    fn consecutive_minors_are_one_step() {
        let rules = ["c:195:2:rw", "c:195:0:rw", "c:195:1:rw", "c:195:4:rw"];
        let expected = [
            (0, 0, ""),
            (195, 0, "rw"),
            (195, 3, ""),
            (195, 4, "rw"),
            (195, 5, ""),
        ];
        assert_eq!(
            steps(&rules),
            expected.map(|(major, minor, access)| step(major, minor, access))
        );
    }

    #[test]
    fn entries_and_wildcards_of_one_device_add_up() {
        let rules = ["c:1:-1:r", "c:1:3:w", "c:1:5:m", "c:1:5:w", "c:1:7:r"];
        let expected = [
            (0, 0, ""),
            (1, 0, "r"),
            (1, 3, "rw"),
            (1, 4, "r"),
            (1, 5, "rwm"),
            (1, 6, "r"),
            (2, 0, ""),
        ];
        assert_eq!(
            steps(&rules),
            expected.map(|(major, minor, access)| step(major, minor, access))
        );
    }

    #[test]
    fn smallest_and_largest_number_are_steps() {
        let rules = ["c:0:0:r", "c:4095:1048575:w"];
        let expected = [step(0, 0, "r"), step(0, 1, ""), step(4095, 1_048_575, "w")];
        assert_eq!(steps(&rules), expected);
        assert_eq!(
            steps(&["c:4095:-1:r"]),
            [step(0, 0, ""), step(4095, 0, "r")]
        );
        assert_eq!(steps(&["c:0:-1:r"]), [step(0, 0, "r"), step(1, 0, "")]);
    }

    #[test]
    fn layout_matches_kernel() {
        assert_eq!(size_of::<Insn>(), INSN_BYTES);
        let jump = Insn::new(BPF_JMP32 | BPF_JSET, 2, 5, -2, 0x0102_0304);
        let bytes = if cfg!(target_endian = "little") {
            [0x46, 0x52, 0xfe, 0xff, 4, 3, 2, 1]
        } else {
            [0x46, 0x25, 0xff, 0xfe, 1, 2, 3, 4]
        };
        assert_eq!(jump.to_bytes(), bytes);
    }

    #[test]
    fn codes_match_kernel() {
        let codes = [
            (Insn::load_word(2, 1, CTX_MAJOR), 0x61),
            (Insn::mov64_imm(0, 1), 0xb7),
            (Insn::alu32_imm(BPF_AND, 5, 0xffff), 0x54),
            (Insn::alu32_reg(BPF_OR, 3, 4), 0x4c),
            (Insn::jump32_imm(BPF_JGE, 3, u32::MAX, 1), 0x36),
            (Insn::jump(1), 0x05),
            (Insn::exit(), 0x95),
        ];
        for (insn, code) in codes {
            assert_eq!(insn.code, code, "{insn:?}");
        }
    }
}
