//! One eBPF instruction, and the few constants of `linux/bpf.h` that device programs need.

/// Class: load from memory into a register.
pub const BPF_LDX: u8 = 0x01;
/// Class: 32-bit arithmetic; clears the upper half of the destination.
pub const BPF_ALU: u8 = 0x04;
/// Class: jumps that compare 64 bits, and exit.
pub const BPF_JMP: u8 = 0x05;
/// Class: jumps that compare the lower 32 bits (kernel 5.1).
pub const BPF_JMP32: u8 = 0x06;
/// Class: 64-bit arithmetic.
pub const BPF_ALU64: u8 = 0x07;

/// Size of a load: 4 bytes.
pub const BPF_W: u8 = 0x00;
/// Mode of a load: register plus offset.
pub const BPF_MEM: u8 = 0x60;

/// Second operand: the immediate.
pub const BPF_K: u8 = 0x00;
/// Second operand: the source register.
pub const BPF_X: u8 = 0x08;

/// Arithmetic: `dst |= operand`.
pub const BPF_OR: u8 = 0x40;
/// Arithmetic: `dst &= operand`.
pub const BPF_AND: u8 = 0x50;
/// Arithmetic: `dst <<= operand`.
pub const BPF_LSH: u8 = 0x60;
/// Arithmetic: `dst = operand`.
pub const BPF_MOV: u8 = 0xb0;

/// Jump always.
pub const BPF_JA: u8 = 0x00;
/// Jump if greater or equal, unsigned.
pub const BPF_JGE: u8 = 0x30;
/// Jump if a bit of the operand is set.
pub const BPF_JSET: u8 = 0x40;
/// Jump if not equal.
pub const BPF_JNE: u8 = 0x50;
/// Return from the program with the value of register 0.
pub const BPF_EXIT: u8 = 0x90;

/// Offset of the type (lower half) and the requested access (upper half) in
/// `struct bpf_cgroup_dev_ctx`.
pub const CTX_ACCESS_TYPE: i16 = 0;
/// Offset of the major in `struct bpf_cgroup_dev_ctx`.
pub const CTX_MAJOR: i16 = 4;
/// Offset of the minor in `struct bpf_cgroup_dev_ctx`.
pub const CTX_MINOR: i16 = 8;
/// How far the requested access is shifted to the left in the first word of the context.
pub const ACCESS_SHIFT: u32 = 16;

/// Length of an instruction in bytes.
pub const INSN_LEN: usize = 8;

/// The C bit field puts its first member, `dst_reg`, where the byte order puts its first byte.
pub(crate) const DST_SHIFT: u32 = if cfg!(target_endian = "little") { 0 } else { 4 };
pub(crate) const SRC_SHIFT: u32 = 4 - DST_SHIFT;

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

#[cfg(test)]
mod tests {
    use super::*;

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
        assert_eq!(Insn::from_bytes(bytes), jump);
        assert_eq!((jump.dst(), jump.src()), (2, 5));
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
