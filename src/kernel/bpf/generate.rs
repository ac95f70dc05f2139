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

use protocol::{Access, DeviceRule, DeviceType};

/// How an instruction is coded, by the names of `linux/bpf.h`.
#[allow(missing_docs, reason = "said beside each")]
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

/// Length of an instruction in bytes.
pub const INSN_LEN: usize = 8;

/// The C bit field puts its first member, `dst_reg`, where the byte order puts its first byte.
pub const DST_SHIFT: u32 = if cfg!(target_endian = "little") { 0 } else { 4 };
/// Where its second member, `src_reg`, is.
pub const SRC_SHIFT: u32 = 4 - DST_SHIFT;

/// A register, 0 to 10: 0 is the return value, 1 the context on entry.
pub type Register = u8;

/// `struct bpf_insn` of `linux/bpf.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct Insn {
    /// Class, operation and kind of operand, or class, size and mode.
    pub code: u8,
    /// Destination and source register, four bits each, as the byte order has them.
    pub registers: u8,
    /// Instructions to skip by a jump, or bytes to add to an address.
    pub offset: i16,
    /// The immediate operand.
    pub imm: i32,
}

impl Insn {
    /// An instruction of its five fields.
    pub const fn new(code: u8, dst: Register, src: Register, offset: i16, imm: i32) -> Self {
        Self { code, registers: (dst & 0xf) << DST_SHIFT | (src & 0xf) << SRC_SHIFT, offset, imm }
    }

    /// `dst = *(u32 *)(src + offset)`
    pub const fn load_word(dst: Register, src: Register, offset: i16) -> Self {
        Self::new(BPF_LDX | BPF_W | BPF_MEM, dst, src, offset, 0)
    }

    /// `dst = imm`, all 64 bits.
    pub const fn mov64_imm(dst: Register, imm: i32) -> Self {
        Self::new(BPF_ALU64 | BPF_MOV | BPF_K, dst, 0, 0, imm)
    }

    /// `dst = dst operation imm` on 32 bits.
    pub const fn alu32_imm(operation: u8, dst: Register, imm: i32) -> Self {
        Self::new(BPF_ALU | operation | BPF_K, dst, 0, 0, imm)
    }

    /// `dst = dst operation src` on 32 bits.
    pub const fn alu32_reg(operation: u8, dst: Register, src: Register) -> Self {
        Self::new(BPF_ALU | operation | BPF_X, dst, src, 0, 0)
    }

    /// Skips `offset` instructions if `dst condition imm` holds for 32 unsigned bits.
    pub const fn jump32_imm(condition: u8, dst: Register, imm: u32, offset: i16) -> Self {
        Self::new(BPF_JMP32 | condition | BPF_K, dst, 0, offset, imm as i32)
    }

    /// Skips `offset` instructions.
    pub const fn jump(offset: i16) -> Self {
        Self::new(BPF_JMP | BPF_JA, 0, 0, offset, 0)
    }

    /// Ends the program.
    pub const fn exit() -> Self {
        Self::new(BPF_JMP | BPF_EXIT, 0, 0, 0, 0)
    }

    /// The instruction as the kernel reads it.
    pub fn to_bytes(self) -> [u8; INSN_LEN] {
        let [offset_0, offset_1] = self.offset.to_ne_bytes();
        let [imm_0, imm_1, imm_2, imm_3] = self.imm.to_ne_bytes();
        [self.code, self.registers, offset_0, offset_1, imm_0, imm_1, imm_2, imm_3]
    }
}

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
/// device's entries. One that wants none is allowed for listed devices only. Jumps reach 32,767
/// instructions, which is enough for 8,192 entries of any kind: a longer list that does not fit gives a
/// program that refuses everything.
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
    let mut code = Backwards::default();
    let refuse = code.put(&answer(false));
    let mut listed: Vec<Access> = Vec::new();
    for step in trees.iter().flat_map(|(_, steps)| steps) {
        if step.access != Access::NONE && !listed.contains(&step.access) {
            listed.push(step.access);
        }
    }
    let mut leaves = vec![(Access::NONE, refuse)];
    for access in listed.into_iter().rev() {
        code.put(&answer(true));
        leaves.push((access, code.jump_if(BPF_JSET, ACCESS_TYPE, refused(access), refuse)?));
    }
    let mut other = refuse;
    for (kind, steps) in trees.iter().rev() {
        search(&mut code, &leaves, steps)?;
        other = code.jump_if(BPF_JNE, TYPE, *kind as u32, other)?;
    }
    code.put(&prologue());
    code.0.reverse();
    Some(code.0)
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
        Insn::alu32_reg(BPF_MOV, TYPE, ACCESS_TYPE),
        Insn::alu32_imm(BPF_AND, TYPE, TYPE_MASK as i32),
    ]
}

/// Goes on in the leaf of the step that holds the key: one comparison halves the steps. All steps with
/// the same access share a leaf.
fn search(code: &mut Backwards, leaves: &[(Access, Place)], steps: &[Step]) -> Option<Place> {
    let leaf = |step: &Step| leaves.iter().find(|(access, _)| *access == step.access);
    if let [only] = steps {
        return code.jump(leaf(only)?.1);
    }
    // The odd step goes below: a single step above needs no jump of its own.
    let (lower, upper) = steps.split_at_checked(steps.len().div_ceil(2))?;
    let above = match upper {
        [only] => leaf(only)?.1,
        _ => search(code, leaves, upper)?,
    };
    search(code, leaves, lower)?;
    code.jump_if(BPF_JGE, KEY, upper.first()?.start, above)
}

/// From `start` up to the next step, the same access is listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Step {
    /// Major above minor.
    start: u32,
    /// Union of all entries for these devices; empty where there is none.
    access: Access,
}

/// The entries of one device type as a step function over all device numbers: the first begins at
/// 0, starts ascend, neighbours differ in access.
///
/// Entries for the same device are added up, and so are those for all minors of its major.
fn steps(kind: DeviceType, rules: &[DeviceRule]) -> Vec<Step> {
    let (mut devices, mut majors) = (Vec::new(), Vec::new());
    // Every key at which the access may change: the first of each entry, and the first after it.
    let mut starts = vec![(0, Access::NONE)];
    for rule in rules.iter().filter(|rule| rule.kind() == kind) {
        let first = rule.major() << MINOR_BITS | rule.minor().unwrap_or(0);
        let length = match rule.minor() {
            Some(_) => 1,
            None => 1 << MINOR_BITS,
        };
        let list = if rule.minor().is_some() { &mut devices } else { &mut majors };
        list.push((first, rule.access()));
        // There is no key after the last major's.
        let after = first.checked_add(length);
        starts.extend([Some(first), after].into_iter().flatten().map(|key| (key, Access::NONE)));
    }
    let (devices, majors) = (added_up(devices), added_up(majors));
    let access =
        |key| listed(&devices, key).union(listed(&majors, key >> MINOR_BITS << MINOR_BITS));
    let starts = added_up(starts).into_iter();
    let mut steps: Vec<Step> =
        starts.map(|(start, _)| Step { start, access: access(start) }).collect();
    steps.dedup_by_key(|step| step.access);
    steps
}

/// The list by ascending key, each key once and with all its accesses.
fn added_up(mut list: Vec<(u32, Access)>) -> Vec<(u32, Access)> {
    list.sort_unstable_by_key(|(key, _)| *key);
    list.dedup_by(|(key, access), (kept, all)| {
        *all = if key == kept { all.union(*access) } else { *all };
        key == kept
    });
    list
}

fn listed(list: &[(u32, Access)], key: u32) -> Access {
    let found = list.binary_search_by_key(&key, |(listed, _)| *listed).ok();
    found.and_then(|at| list.get(at)).map(|(_, access)| *access).unwrap_or_default()
}

/// A place in the program: how many instructions there are from it to the end.
type Place = usize;

/// The program as it is made, its last instruction first: what a jump goes to is there already.
#[derive(Default)]
struct Backwards(Vec<Insn>);

impl Backwards {
    /// Puts these before all others.
    fn put(&mut self, insns: &[Insn]) -> Place {
        self.0.extend(insns.iter().rev());
        self.0.len()
    }

    /// How many instructions a jump skips that is put before all others; `None` where they are too
    /// many for 16 bits.
    fn skipped(&self, to: Place) -> Option<i16> {
        self.0.len().checked_sub(to)?.try_into().ok()
    }

    /// Jumps, unless that is where it goes on anyway: the verifier would drop such a jump.
    fn jump(&mut self, to: Place) -> Option<Place> {
        match self.skipped(to)? {
            0 => Some(to),
            offset => Some(self.put(&[Insn::jump(offset)])),
        }
    }

    /// Jumps if `register condition imm` holds for 32 unsigned bits.
    fn jump_if(&mut self, condition: u8, on: Register, imm: u32, to: Place) -> Option<Place> {
        let offset = self.skipped(to)?;
        Some(self.put(&[Insn::jump32_imm(condition, on, imm, offset)]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::MINOR_MAX;

    #[test]
    fn accesses_that_no_list_knows_are_not_allowed() {
        assert_eq!(refused(Access::ALL), 0xfff8_0000);
    }

    fn of(rules: &[&str]) -> Vec<(u32, u32, String)> {
        let rules: Vec<DeviceRule> = rules.iter().map(|rule| rule.parse().unwrap()).collect();
        let minor = MINOR_MAX;
        let split = |step: Step| (step.start >> MINOR_BITS, step.start & minor, step.access);
        let steps = steps(DeviceType::Char, &rules).into_iter().map(split);
        steps.map(|(major, minor, access)| (major, minor, access.to_string())).collect()
    }

    fn step(major: u32, minor: u32, access: &str) -> (u32, u32, String) {
        (major, minor, access.to_owned())
    }

    #[test]
    fn nothing_listed_is_one_step() {
        assert_eq!(of(&["b:1:3:rw"]), [step(0, 0, "")]);
    }

    #[test]
    fn consecutive_minors_are_one_step() {
        let rules = ["c:195:2:rw", "c:195:0:rw", "c:195:1:rw", "c:195:4:rw"];
        let steps = [(0, 0, ""), (195, 0, "rw"), (195, 3, ""), (195, 4, "rw"), (195, 5, "")];
        assert_eq!(of(&rules), steps.map(|(major, minor, access)| step(major, minor, access)));
    }

    #[test]
    fn equal_devices_and_wildcards_add_up() {
        let rules = ["c:1:-1:r", "c:1:3:w", "c:1:5:m", "c:1:5:w", "c:1:7:r"];
        let steps = [
            (0, 0, ""),
            (1, 0, "r"),
            (1, 3, "rw"),
            (1, 4, "r"),
            (1, 5, "rwm"),
            (1, 6, "r"),
            (2, 0, ""),
        ];
        assert_eq!(of(&rules), steps.map(|(major, minor, access)| step(major, minor, access)));
    }

    #[test]
    fn the_ends_of_the_numbers_are_steps_too() {
        let rules = ["c:0:0:r", "c:4095:1048575:w"];
        let steps = [step(0, 0, "r"), step(0, 1, ""), step(4095, 1_048_575, "w")];
        assert_eq!(of(&rules), steps);
        assert_eq!(of(&["c:4095:-1:r"]), [step(0, 0, ""), step(4095, 0, "r")]);
        assert_eq!(of(&["c:0:-1:r"]), [step(0, 0, "r"), step(1, 0, "")]);
    }

    #[test]
    fn layout_is_that_of_the_kernel() {
        assert_eq!(size_of::<Insn>(), INSN_LEN);
        let jump = Insn::new(BPF_JMP32 | BPF_JSET, 2, 5, -2, 0x0102_0304);
        let bytes = if cfg!(target_endian = "little") {
            [0x46, 0x52, 0xfe, 0xff, 4, 3, 2, 1]
        } else {
            [0x46, 0x25, 0xff, 0xfe, 1, 2, 3, 4]
        };
        assert_eq!(jump.to_bytes(), bytes);
    }

    #[test]
    fn codes_are_those_of_the_kernel() {
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
