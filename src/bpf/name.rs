//! The name under which a program of ours is loaded.

use std::hash::{DefaultHasher, Hash, Hasher};

use super::Insn;

/// What the names of our programs begin with.
const PREFIX: &str = "ja_";

/// Whether a name is of the form that [`program_name`] gives.
pub(crate) fn is_ours(name: &str) -> bool {
    name.strip_prefix(PREFIX).is_some_and(|digits| {
        digits.len() == 12 && digits.bytes().all(|digit| digit.is_ascii_hexdigit())
    })
}

/// The upper 16 bits of the hash are left out: a name has 15 bytes (`BPF_OBJ_NAME_LEN` less NUL).
const LABEL_MASK: u64 = (1 << 48) - 1;

/// A name for a program: `ja_` and 12 hexadecimal digits, the same for the same instructions.
///
/// By this name a login finds the filter that an earlier one attached. The hash is not
/// cryptographic and may differ between builds, which costs one replacement; nobody but root can
/// load a program or write the records that lists come from. Reading the instructions back would
/// not do: where constants are blinded (`net.core.bpf_jit_harden`) they differ at every reading.
pub(super) fn program_name(program: &[Insn]) -> String {
    let mut hasher = DefaultHasher::new();
    program.hash(&mut hasher);
    format!("{PREFIX}{:012x}", hasher.finish() & LABEL_MASK)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_fits_and_follows_the_instructions() {
        let refuse = [Insn::mov64_imm(0, 0), Insn::exit()];
        let allow = [Insn::mov64_imm(0, 1), Insn::exit()];
        let name = program_name(&refuse);
        assert_eq!(name.len(), 15);
        let digits = name.strip_prefix("ja_").unwrap();
        assert!(digits.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')), "{name}");
        assert_eq!(name, program_name(&refuse));
        assert_ne!(name, program_name(&allow));
        assert!(is_ours(&name));
        for other in ["sd_devices", "ja_", "ja_00000000000g", "ja_0123456789ab0", "xja_0123456789a"]
        {
            assert!(!is_ours(other), "{other}");
        }
    }
}
