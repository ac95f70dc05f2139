//! Runs a device program without the kernel, and predicts its decision: the oracle of the generator's
//! tests.
//!
//! It covers the instructions that service managers, container runtimes and schedulers generate, and
//! those by which the kernel replaces them. In a program that is read back constants may be blinded
//! (`bpf_jit_blind_constants` in `kernel/bpf/core.c`: each is computed from two others in the
//! auxiliary register), and moves of a register to itself clear its upper half (`insn_is_zext` in
//! `linux/filter.h`). The result of a program with other instructions (calls, maps, own memory) is
//! unknown.

#![forbid(unsafe_code)]

use std::ops::ControlFlow::{self, Break, Continue};

use kernel::bpf::generate::code::{
    ACCESS_SHIFT, BPF_ALU, BPF_ALU64, BPF_AND, BPF_JGE, BPF_JMP, BPF_JMP32, BPF_JNE, BPF_JSET,
    BPF_LDX, BPF_LSH, BPF_MEM, BPF_MOV, BPF_OR, BPF_W, BPF_X, CTX_ACCESS_TYPE, CTX_MAJOR,
    CTX_MINOR,
};
use kernel::bpf::generate::{DST_SHIFT, INSN_BYTES, Insn, Register, SRC_SHIFT};
use protocol::{Access, DeviceType};

// Codes of `linux/bpf.h` that other programs use, and those of this project do not.
/// Size of a load: 2 bytes.
const BPF_H: u8 = 0x08;
/// Arithmetic: `dst += operand`.
const BPF_ADD: u8 = 0x00;
/// Arithmetic: `dst >>= operand`, filling with zeros.
pub const BPF_RSH: u8 = 0x70;
/// Arithmetic: `dst ^= operand`.
const BPF_XOR: u8 = 0xa0;
/// Jump if equal.
const BPF_JEQ: u8 = 0x10;
/// Jump if greater, unsigned.
const BPF_JGT: u8 = 0x20;
/// Jump if less, unsigned.
const BPF_JLT: u8 = 0xa0;
/// Jump if less or equal, unsigned.
const BPF_JLE: u8 = 0xb0;

/// Returns the destination register.
const fn dst_register(insn: Insn) -> Register {
    insn.registers >> DST_SHIFT & 0xf
}

/// Returns the source register.
const fn src_register(insn: Insn) -> Register {
    insn.registers >> SRC_SHIFT & 0xf
}

/// Decodes an instruction in the kernel's byte order.
#[must_use]
pub fn decode(bytes: [u8; INSN_BYTES]) -> Insn {
    let [
        code,
        registers,
        offset_0,
        offset_1,
        imm_0,
        imm_1,
        imm_2,
        imm_3,
    ] = bytes;
    Insn {
        code,
        registers,
        offset: i16::from_ne_bytes([offset_0, offset_1]),
        imm: i32::from_ne_bytes([imm_0, imm_1, imm_2, imm_3]),
    }
}

/// Lower three bits of a code.
const CLASS_MASK: u8 = 0x07;
/// Upper four bits of a code of arithmetic or a jump.
const OPERATION_MASK: u8 = 0xf0;
/// Offset of the upper half of the first word of the context.
const CTX_SECOND_HALF: i16 = CTX_ACCESS_TYPE + 2;
/// Number of registers, 0 to 11. Only instructions of the kernel use the last one (`BPF_REG_AX`).
const REGISTERS: usize = 12;
/// The read-only frame pointer (`BPF_REG_FP`), which no known program needs.
const FRAME_POINTER: Register = 10;

/// A request of the kernel to a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Block or character device.
    pub kind: DeviceType,
    /// Device major; the kernel requests only 0 to [`protocol::MAJOR_MAX`].
    pub major: u32,
    /// Device minor; the kernel requests only 0 to [`protocol::MINOR_MAX`].
    pub minor: u32,
    /// All accesses that are requested at once; none for `access(2)` with `F_OK`.
    pub access: Access,
}

/// Returns whether `program` allows `request`; `None` if the program has an unknown instruction, reads
/// an unset register, loops, ends without an exit, or returns anything but 0 or 1.
///
/// It runs at most as many instructions as the program has, which suffices without loops.
#[must_use]
pub fn run(program: &[Insn], request: Request) -> Option<bool> {
    let mut machine = Machine::new(request);
    for _ in program {
        if let Break(allowed) = machine.step(*program.get(machine.next)?)? {
            return Some(allowed);
        }
    }
    None
}

/// The content of a register.
#[derive(Clone, Copy)]
enum Value {
    Unset,
    Context,
    Number(u64),
}

struct Machine {
    request: Request,
    registers: [Value; REGISTERS],
    next: usize,
}

/// The methods return `None` for an instruction that the interpreter does not understand.
impl Machine {
    fn new(request: Request) -> Self {
        let mut registers = [Value::Unset; REGISTERS];
        if let Some(first) = registers.get_mut(1) {
            *first = Value::Context;
        }
        Self {
            request,
            registers,
            next: 0,
        }
    }

    fn step(&mut self, insn: Insn) -> Option<ControlFlow<bool>> {
        self.next = self.next.checked_add(1)?;
        match insn.code & CLASS_MASK {
            BPF_LDX => self.load(insn)?,
            BPF_ALU | BPF_ALU64 => self.arithmetic(insn)?,
            BPF_JMP if insn == Insn::exit() => return self.exit(),
            BPF_JMP if insn == Insn::jump(insn.offset) => self.skip(insn.offset)?,
            BPF_JMP | BPF_JMP32 => self.branch(insn)?,
            _ => return None,
        }
        Some(Continue(()))
    }

    fn exit(&self) -> Option<ControlFlow<bool>> {
        match self.number(0)? {
            0 => Some(Break(false)),
            1 => Some(Break(true)),
            _ => None,
        }
    }

    fn load(&mut self, insn: Insn) -> Option<()> {
        let Value::Context = self.get(src_register(insn))? else {
            return None;
        };
        if insn.imm != 0 {
            return None;
        }
        let size = insn.code & !CLASS_MASK ^ BPF_MEM;
        let value = read_context(&self.request, size, insn.offset)?;
        self.set(dst_register(insn), Value::Number(u64::from(value)))
    }

    fn arithmetic(&mut self, insn: Insn) -> Option<()> {
        // A move with an offset is another instruction: it extends the sign.
        if insn.offset != 0 {
            return None;
        }
        let operation = insn.code & OPERATION_MASK;
        let wide = insn.code & CLASS_MASK == BPF_ALU64;
        let by_register = insn.code & BPF_X != 0;
        let same_register = by_register && src_register(insn) == dst_register(insn);
        match operation {
            // Blinding makes this of a move of zero, so the register may be unset.
            BPF_XOR if same_register && insn.imm == 0 => {
                return self.set(dst_register(insn), Value::Number(0));
            }
            BPF_MOV if wide && by_register && insn.imm == 0 => {
                return self.set(dst_register(insn), self.get(src_register(insn))?);
            }
            _ => {}
        }
        // The kernel marks its own moves that clear an upper half.
        let clears = operation == BPF_MOV && !wide && same_register && insn.imm == 1;
        let right = if clears {
            self.number(src_register(insn))?
        } else {
            self.operand(insn)?
        };
        let left = if operation == BPF_MOV {
            0
        } else {
            self.number(dst_register(insn))?
        };
        let result = compute(operation, if wide { 64 } else { 32 }, left, right)?;
        self.set(dst_register(insn), Value::Number(result))
    }

    fn branch(&mut self, insn: Insn) -> Option<()> {
        let mut right = self.operand(insn)?;
        let mut left = self.number(dst_register(insn))?;
        if insn.code & CLASS_MASK == BPF_JMP32 {
            left &= u64::from(u32::MAX);
            right &= u64::from(u32::MAX);
        }
        if compare(insn.code & OPERATION_MASK, left, right)? {
            self.skip(insn.offset)
        } else {
            Some(())
        }
    }

    /// Returns the second operand, with the sign of an immediate extended.
    fn operand(&self, insn: Insn) -> Option<u64> {
        if insn.code & BPF_X == 0 {
            return (src_register(insn) == 0).then_some(i64::from(insn.imm) as u64);
        }
        if insn.imm == 0 {
            self.number(src_register(insn))
        } else {
            None
        }
    }

    fn skip(&mut self, offset: i16) -> Option<()> {
        self.next = self.next.checked_add_signed(isize::from(offset))?;
        Some(())
    }

    fn get(&self, register: Register) -> Option<Value> {
        self.registers.get(usize::from(register)).copied()
    }

    fn set(&mut self, register: Register, value: Value) -> Option<()> {
        if matches!(value, Value::Unset) || register == FRAME_POINTER {
            return None;
        }
        *self.registers.get_mut(usize::from(register))? = value;
        Some(())
    }

    fn number(&self, register: Register) -> Option<u64> {
        match self.get(register)? {
            Value::Number(number) => Some(number),
            Value::Unset | Value::Context => None,
        }
    }
}

/// Reads a field of `struct bpf_cgroup_dev_ctx`. The kernel allows reading halves only of the first
/// word.
fn read_context(request: &Request, size: u8, offset: i16) -> Option<u32> {
    let access_type = request.access.bits() << ACCESS_SHIFT | request.kind as u32;
    let [byte_0, byte_1, byte_2, byte_3] = access_type.to_ne_bytes();
    match (size, offset) {
        (BPF_W, CTX_ACCESS_TYPE) => Some(access_type),
        (BPF_W, CTX_MAJOR) => Some(request.major),
        (BPF_W, CTX_MINOR) => Some(request.minor),
        (BPF_H, CTX_ACCESS_TYPE) => Some(u32::from(u16::from_ne_bytes([byte_0, byte_1]))),
        (BPF_H, CTX_SECOND_HALF) => Some(u32::from(u16::from_ne_bytes([byte_2, byte_3]))),
        _ => None,
    }
}

/// Computes a result with so many bits from operands with so many bits.
fn compute(operation: u8, bits: u32, left: u64, right: u64) -> Option<u64> {
    let mask = u64::MAX >> (64 - bits);
    let left = left & mask;
    let right = right & mask;
    let distance = || {
        u32::try_from(right)
            .ok()
            .filter(|distance| *distance < bits)
    };
    let result = match operation {
        BPF_ADD => left.wrapping_add(right),
        BPF_OR => left | right,
        BPF_AND => left & right,
        BPF_XOR => left ^ right,
        BPF_LSH => left << distance()?,
        BPF_RSH => left >> distance()?,
        BPF_MOV => right,
        _ => return None,
    };
    Some(result & mask)
}

fn compare(condition: u8, left: u64, right: u64) -> Option<bool> {
    match condition {
        BPF_JEQ => Some(left == right),
        BPF_JNE => Some(left != right),
        BPF_JGT => Some(left > right),
        BPF_JGE => Some(left >= right),
        BPF_JLT => Some(left < right),
        BPF_JLE => Some(left <= right),
        BPF_JSET => Some(left & right != 0),
        _ => None,
    }
}

#[cfg(test)]
mod generated;
#[cfg(test)]
mod instructions;
#[cfg(test)]
mod layouts;
#[cfg(test)]
#[path = "../../src/testing.rs"]
mod testing;
