//! Whose a filter is, by what its program looks like.

use super::interpret::{BPF_RSH, dst};
use kernel::bpf::generate::code::{
    ACCESS_SHIFT, BPF_ALU, BPF_ALU64, BPF_AND, BPF_K, BPF_MOV, CTX_ACCESS_TYPE, CTX_MAJOR,
    CTX_MINOR,
};
use kernel::bpf::{Insn, is_ours};
use protocol::string_enum;

/// Names that others give their programs (`BPF_OBJ_NAME_LEN` of `linux/bpf.h` cuts at 15 bytes).
const SLURM: &str = "Slurm_Cgroup_v2";
const SYSTEMD: &str = "sd_devices";

string_enum! {
    /// Whose a filter is. Only root can load or name one, so a name is believed; a shape is a hint.
    Owner {
        /// One of ours for a job, by its name.
        Ours = "ours",
        /// A copy of another level's program that we attached, so that ours does not switch it off.
        Pin = "pin",
        /// Slurm's, by its name.
        Slurm = "slurm",
        /// systemd's, by its name.
        Systemd = "systemd",
        /// That of Flux's IMP, by the shape of its instructions.
        Imp = "flux-imp",
        /// That of runc, by the shape of its instructions.
        Runc = "runc",
        /// That of another container runtime (crun, youki), by the shape of its instructions.
        Runtime = "container-runtime",
        /// Somebody else's.
        Unknown = "unknown",
    }
}

impl Owner {
    /// By name and instructions alone; a pin looks like what it is a copy of.
    pub(super) fn by_looks(name: &str, insns: Option<&[Insn]>) -> Self {
        match name {
            SLURM => Self::Slurm,
            SYSTEMD => Self::Systemd,
            name if is_ours(name) => Self::Ours,
            "" => insns.map_or(Self::Unknown, by_shape),
            _ => Self::Unknown,
        }
    }
}

/// By how a program without a name begins and ends. The IMP loads major, minor and the first word
/// into registers 2 to 4; container runtimes split the first word into registers 2 and 3 before
/// they load major and minor into 4 and 5, as systemd does, and differ in how they return.
fn by_shape(insns: &[Insn]) -> Owner {
    let imp = [(2, CTX_MAJOR), (3, CTX_MINOR), (4, CTX_ACCESS_TYPE)];
    if insns.starts_with(&imp.map(|(register, field)| Insn::load_word(register, 1, field))) {
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
    const ANSWER_32: u8 = BPF_ALU | BPF_MOV | BPF_K;
    const ANSWER_64: u8 = BPF_ALU64 | BPF_MOV | BPF_K;
    match (insns.starts_with(&split), insns) {
        (true, [.., answer, exit]) if *exit == Insn::exit() && dst(*answer) == 0 => {
            match answer.code {
                ANSWER_32 => Owner::Runc,
                ANSWER_64 => Owner::Runtime,
                _ => Owner::Unknown,
            }
        }
        _ => Owner::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_known_and_shapes_are_for_the_nameless() {
        let looks = |name, insns: &[Insn]| Owner::by_looks(name, Some(insns));
        let imp = [
            Insn::load_word(2, 1, 4),
            Insn::load_word(3, 1, 8),
            Insn::load_word(4, 1, 0),
            Insn::mov64_imm(0, 0),
            Insn::exit(),
        ];
        assert_eq!(looks("", &imp), Owner::Imp);
        assert_eq!(looks("other", &imp), Owner::Unknown);
        assert_eq!(looks("Slurm_Cgroup_v2", &imp), Owner::Slurm);
        assert_eq!(looks("sd_devices", &[]), Owner::Systemd);
        assert_eq!(Owner::by_looks("ja_0123456789ab", None), Owner::Ours);
        assert_eq!(Owner::by_looks("", None), Owner::Unknown);
        let runtime = |answer: Insn| {
            let split = [
                Insn::load_word(2, 1, 0),
                Insn::alu32_imm(BPF_AND, 2, 0xffff),
                Insn::load_word(3, 1, 0),
                Insn::alu32_imm(BPF_RSH, 3, 16),
                Insn::load_word(4, 1, 4),
                Insn::load_word(5, 1, 8),
                answer,
                Insn::exit(),
            ];
            looks("", &split)
        };
        assert_eq!(runtime(Insn::alu32_imm(BPF_MOV, 0, 0)), Owner::Runc);
        assert_eq!(runtime(Insn::mov64_imm(0, 0)), Owner::Runtime);
        assert_eq!(runtime(Insn::alu32_reg(BPF_MOV, 0, 2)), Owner::Unknown);
        assert_eq!(looks("", &kernel::bpf::allow_rules(&[])), Owner::Unknown);
    }
}
