//! Why a text is no specifier.

use thiserror::Error;

/// Why a text is no specifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum SpecifierError {
    /// The text has none of the forms.
    #[error("not a path below /dev, char-NAME, block-NAME or @hpc")]
    UnknownForm,
    /// Users choose the content of the directory, for instance a link to another job's device.
    #[error("in a directory of users, who decide nothing about devices")]
    UserWritableDirectory,
    /// The numbers have another spelling, or are larger than the kernel's.
    #[error(
        "not MAJOR:MINOR, or char- or block- and MAJOR, with a major up to 4095 and a minor up to \
         1048575"
    )]
    InvalidNumbers,
    /// The text is no pattern, or a pattern with too many wild components.
    #[error("not a pattern of *, ? and [abc], [a-z] or [!a] with at most 255 bytes in a name")]
    InvalidPattern,
    /// A path has `**`, which other programs take for any number of directories.
    #[error("** does not stand for directories: write one * for each, as in /dev/*/*")]
    RecursivePattern,
    /// The word after `@` is neither `hpc` nor a name that a site may give.
    #[error(
        "no name of a preset: @hpc, or @ and a name of lower-case letters, digits, _, -, . and :"
    )]
    UnknownPreset,
    /// The access is not made of the letters r, w and m.
    #[error("access is not one to three letters out of r, w, m")]
    InvalidAccess,
}
