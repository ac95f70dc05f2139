//! Recognizes the program that attached a filter, by its name or its instructions.

use crate::closed_slices::SYSTEMD_FILTER;
use kernel::bpf::generate::code::{
    ACCESS_SHIFT, BPF_ALU, BPF_ALU64, BPF_AND, BPF_K, BPF_MOV, CTX_ACCESS_TYPE, CTX_MAJOR,
    CTX_MINOR,
};
use kernel::bpf::{INSN_BYTES, Insn, is_ours};
use protocol::string_enum;

/// Arithmetic of other programs: `dst >>= operand`, filling with zeros.
const BPF_RSH: u8 = 0x70;

/// Slurm's name of its programs (`BPF_OBJ_NAME_LEN` of `linux/bpf.h` cuts names at 15 bytes).
const SLURM_PROGRAM: &str = "Slurm_Cgroup_v2";

string_enum! {
    /// The program that attached a filter. Only root can load or name one, so a name can be trusted;
    /// the shape of instructions is a hint.
    Owner {
        /// This project's filter of a job, by its name.
        Ours = "ours",
        /// A copy of another level's program that this project attached, so that its own filter does
        /// not replace that program.
        Pin = "pin",
        /// Slurm's, by its name.
        Slurm = "slurm",
        /// systemd's, by its name.
        Systemd = "systemd",
        /// Flux's IMP, by the shape of its instructions.
        Imp = "flux-imp",
        /// runc, by the shape of its instructions.
        Runc = "runc",
        /// Another container runtime (crun, youki), by the shape of its instructions.
        Runtime = "container-runtime",
        /// An unknown program.
        Unknown = "unknown",
    }
}

impl Owner {
    /// Recognizes the owner by name and by the bytes of the instructions, if the kernel shows these. A pin
    /// looks like its original.
    pub(super) fn from_program(name: &str, insns: Option<&[u8]>) -> Self {
        match name {
            SLURM_PROGRAM => Self::Slurm,
            SYSTEMD_FILTER => Self::Systemd,
            name if is_ours(name) => Self::Ours,
            "" => insns.map_or(Self::Unknown, owner_from_shape),
            _ => Self::Unknown,
        }
    }
}

/// Recognizes the owner of a program without a name by its first and last instructions. The first word of the context
/// (`bpf_cgroup_dev_ctx`) holds type and access. The IMP loads major, minor and this word into registers 2 to 4.
/// Container runtimes put the type into register 2, the access into 3, major and minor into 4 and 5; of these, runc sets
/// the result by a move of 32 bits, the others by one of 64 bits. systemd's programs begin in the same way, but have a
/// name.
fn owner_from_shape(program: &[u8]) -> Owner {
    const RETURN_32: u8 = BPF_ALU | BPF_MOV | BPF_K;
    const RETURN_64: u8 = BPF_ALU64 | BPF_MOV | BPF_K;
    let imp = [(2, CTX_MAJOR), (3, CTX_MINOR), (4, CTX_ACCESS_TYPE)];
    if begins_with(
        program,
        &imp.map(|(register, field)| Insn::load_word(register, 1, field)),
    ) {
        return Owner::Imp;
    }
    let split = [
        Insn::load_word(2, 1, CTX_ACCESS_TYPE),
        Insn::alu32_imm(BPF_AND, 2, (1 << ACCESS_SHIFT) - 1),
        Insn::load_word(3, 1, CTX_ACCESS_TYPE),
        Insn::alu32_imm(BPF_RSH, 3, ACCESS_SHIFT as i32),
        Insn::load_word(4, 1, CTX_MAJOR),
        Insn::load_word(5, 1, CTX_MINOR),
    ];
    if !begins_with(program, &split) {
        return Owner::Unknown;
    }
    let before_exit = program.strip_suffix(&Insn::exit().to_bytes());
    // The code, and the registers: the result goes to register 0.
    match before_exit.and_then(<[u8]>::last_chunk::<INSN_BYTES>) {
        Some([RETURN_32, 0, ..]) => Owner::Runc,
        Some([RETURN_64, 0, ..]) => Owner::Runtime,
        _ => Owner::Unknown,
    }
}

fn begins_with(program: &[u8], insns: &[Insn]) -> bool {
    let bytes: Vec<u8> = insns.iter().flat_map(|insn| insn.to_bytes()).collect();
    program.starts_with(&bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_decides_owner_and_shape_only_without_name() {
        let owner = |name, insns: &[Insn]| {
            let bytes: Vec<u8> = insns.iter().flat_map(|insn| insn.to_bytes()).collect();
            Owner::from_program(name, Some(&bytes))
        };
        let imp = [
            Insn::load_word(2, 1, 4),
            Insn::load_word(3, 1, 8),
            Insn::load_word(4, 1, 0),
            Insn::mov64_imm(0, 0),
            Insn::exit(),
        ];
        assert_eq!(owner("", &imp), Owner::Imp);
        assert_eq!(owner("other", &imp), Owner::Unknown);
        assert_eq!(owner("Slurm_Cgroup_v2", &imp), Owner::Slurm);
        assert_eq!(owner("sd_devices", &[]), Owner::Systemd);
        assert_eq!(Owner::from_program("ja_0123456789ab", None), Owner::Ours);
        assert_eq!(Owner::from_program("", None), Owner::Unknown);
        let runtime = |result: Insn| {
            let split = [
                Insn::load_word(2, 1, 0),
                Insn::alu32_imm(BPF_AND, 2, 0xffff),
                Insn::load_word(3, 1, 0),
                Insn::alu32_imm(BPF_RSH, 3, 16),
                Insn::load_word(4, 1, 4),
                Insn::load_word(5, 1, 8),
                result,
                Insn::exit(),
            ];
            owner("", &split)
        };
        assert_eq!(runtime(Insn::alu32_imm(BPF_MOV, 0, 0)), Owner::Runc);
        assert_eq!(runtime(Insn::mov64_imm(0, 0)), Owner::Runtime);
        assert_eq!(runtime(Insn::alu32_reg(BPF_MOV, 0, 2)), Owner::Unknown);
        assert_eq!(owner("", &kernel::bpf::allow_rules(&[])), Owner::Unknown);
    }
}
