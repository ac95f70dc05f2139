//! The site's own text below a refusal.

use std::path::Path;

use crate::trust::{Trust, TrustError};

/// Most bytes of the text.
const MESSAGE_MAX: u64 = 400;

/// Reads the text: plain ASCII, lines kept, anything else replaced.
///
/// # Errors
/// [`TrustError`] where the file is missing, not believed or too large.
pub(super) fn message(path: &Path, trust: &Trust) -> Result<String, TrustError> {
    let bytes = trust.read(path, MESSAGE_MAX)?;
    let plain = |byte: &u8| match *byte {
        b'\n' => Some('\n'),
        b'\t' => Some(' '),
        byte if byte.is_ascii_control() => None,
        byte if byte.is_ascii() => Some(char::from(byte)),
        _ => Some('?'),
    };
    Ok(bytes.iter().filter_map(plain).collect::<String>().trim_end().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trust::tests::Scratch;

    #[test]
    fn only_plain_text_passes() {
        let scratch = Scratch::new();
        let path = scratch.file("motd", "Help:\thpc@x\r\n\x1b[31mred\x07\u{e4}\n\n");
        assert_eq!(message(&path, &scratch.trust()).unwrap(), "Help: hpc@x\n[31mred??");
        scratch.file("motd", &"x".repeat(401));
        assert!(message(&path, &scratch.trust()).is_err());
    }
}
