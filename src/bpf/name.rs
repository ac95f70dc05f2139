//! The name under which a program of ours is loaded.

#![forbid(unsafe_code)]

use std::hash::{DefaultHasher, Hash, Hasher};

use super::Insn;

/// What a program of ours is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// The devices of one job.
    Job,
    /// The guard: what nothing of a user's outside of jobs may open. Never a filter of a job's,
    /// whether it stands at the job or above it.
    Guard,
}

impl Purpose {
    /// What the names of its programs begin with.
    fn prefix(self) -> &'static str {
        match self {
            Self::Job => "ja_",
            Self::Guard => "jg_",
        }
    }

    /// What a program is for whose name is of the form that [`program_name`] gives; `None` for
    /// another name.
    pub(super) fn of(name: &str) -> Option<Self> {
        let is_label = |digits: &str| {
            digits.len() == 12 && digits.bytes().all(|digit| digit.is_ascii_hexdigit())
        };
        [Self::Job, Self::Guard]
            .into_iter()
            .find(|purpose| name.strip_prefix(purpose.prefix()).is_some_and(is_label))
    }
}

/// The upper 16 bits of the hash are left out: a name has 15 bytes (`BPF_OBJ_NAME_LEN` less NUL).
const LABEL_MASK: u64 = (1 << 48) - 1;

/// A name for a program: `ja_`, or `jg_` for a guard, and 12 hexadecimal digits, the same for the
/// same instructions.
///
/// By this name a login finds the filter that an earlier one attached. The hash is not
/// cryptographic and may differ between builds, which costs one replacement; nobody but root can
/// load a program or write the records that lists come from. Reading the instructions back would
/// not do: where constants are blinded (`net.core.bpf_jit_harden`) they differ at every reading.
#[must_use]
pub fn program_name(purpose: Purpose, program: &[Insn]) -> String {
    let mut hasher = DefaultHasher::new();
    program.hash(&mut hasher);
    format!("{}{:012x}", purpose.prefix(), hasher.finish() & LABEL_MASK)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_fits_and_follows_the_instructions() {
        let refuse = [Insn::mov64_imm(0, 0), Insn::exit()];
        let allow = [Insn::mov64_imm(0, 1), Insn::exit()];
        for (purpose, prefix) in [(Purpose::Job, "ja_"), (Purpose::Guard, "jg_")] {
            let name = program_name(purpose, &refuse);
            assert_eq!(name.len(), 15);
            let digits = name.strip_prefix(prefix).unwrap();
            assert!(digits.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')), "{name}");
            assert_eq!(name, program_name(purpose, &refuse));
            assert_ne!(name, program_name(purpose, &allow));
            assert_eq!(Purpose::of(&name), Some(purpose));
        }
        for other in ["sd_devices", "ja_", "ja_00000000000g", "ja_0123456789ab0", "xja_0123456789a"]
        {
            assert_eq!(Purpose::of(other), None, "{other}");
        }
    }
}
