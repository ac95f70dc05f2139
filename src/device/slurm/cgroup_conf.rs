//! What `cgroup.conf` says of devices (cgroup.conf(5)).

use super::{ConfError, Files, LineFault, Text};

/// The key.
const KEY: &str = "ConstrainDevices";
const YES: [&str; 4] = ["yes", "up", "true", "1"];
const NO: [&str; 4] = ["no", "down", "false", "0"];

/// Whether Slurm keeps its jobs from the devices that are not theirs. Without the file it does not.
///
/// # Errors
/// [`ConfError`].
pub fn constrains_devices(files: &Files) -> Result<bool, ConfError> {
    let path = files.path("cgroup.conf");
    match files.lines("cgroup.conf") {
        Ok(texts) => constrains(&texts),
        Err(ConfError::File(error)) if error.is_missing() && error.path() == path => Ok(false),
        Err(error) => Err(error),
    }
}

/// The same by the lines of the file. The last one counts.
///
/// # Errors
/// [`ConfError::Line`].
pub fn constrains(texts: &[Text]) -> Result<bool, ConfError> {
    let mut constrains = false;
    for text in texts {
        let Some(value) = text.setting(KEY) else { continue };
        let value = value.map_err(|fault| ConfError::line(&text.at, fault))?;
        let is = |words: [&str; 4]| words.iter().any(|word| word.eq_ignore_ascii_case(value));
        constrains = match (is(YES), is(NO)) {
            (true, _) => true,
            (_, true) => false,
            _ => return Err(ConfError::line(&text.at, LineFault::Value(KEY))),
        };
    }
    Ok(constrains)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::{Settings, Tree};
    use crate::trust::tests::Scratch;

    fn read(scratch: &Scratch) -> Result<bool, ConfError> {
        let tree = Tree::laid_out(scratch.path(), scratch.trust());
        constrains_devices(&Files::find(&tree, &Settings::default()).unwrap())
    }

    #[test]
    fn devices_are_constrained_where_the_last_line_says_so() {
        let scratch = Scratch::new();
        scratch.file("etc/slurm/slurm.conf", "");
        assert_eq!(read(&scratch), Ok(false), "no file");
        for (text, constrains) in [
            ("", false),
            ("ConstrainDevices=yes", true),
            ("CgroupPlugin=x\n constraindevices = \"TRUE\" # no", true),
            ("ConstrainDevices=up\nConstrainDevices=down\n", false),
            ("ConstrainDevices=0\nConstrainDevices=1\n", true),
            ("ConstrainRAMSpace=yes", false),
            ("#ConstrainDevices=yes", false),
            ("Constrain\\\nDevices=yes", true),
        ] {
            scratch.file("etc/slurm/cgroup.conf", text);
            assert_eq!(read(&scratch), Ok(constrains), "{text:?}");
        }
    }

    #[test]
    fn what_cannot_be_told_is_a_fault_and_not_no() {
        let scratch = Scratch::new();
        scratch.file("etc/slurm/slurm.conf", "");
        for text in ["ConstrainDevices=maybe", "ConstrainDevices=", "ConstrainDevices=yes\\n"] {
            scratch.file("etc/slurm/cgroup.conf", text);
            assert!(matches!(read(&scratch), Err(ConfError::Line(_, 1, _))), "{text}");
        }
        scratch.file("etc/slurm/cgroup.conf", "Include gone.conf");
        assert!(read(&scratch).unwrap_err().to_string().contains("gone.conf"));
        scratch.file("etc/slurm/cgroup.conf", "ConstrainDevices=no");
        scratch.mode("etc/slurm/cgroup.conf", 0o666);
        assert!(read(&scratch).unwrap_err().to_string().contains("mode 0666"));
    }
}
