//! The drivers that `/proc/devices` lists (proc_devices(5)).

use protocol::{DeviceType, MAJOR_MAX};

/// The drivers of a node with their majors.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProcDevices(Vec<(DeviceType, u32, String)>);

impl ProcDevices {
    /// Parses the text of `/proc/devices`. A line of another form names no driver.
    pub fn parse(text: &str) -> Self {
        let mut section = None;
        let mut drivers = Vec::new();
        for line in text.lines() {
            match line.trim_end() {
                "Character devices:" => section = Some(DeviceType::Char),
                "Block devices:" => section = Some(DeviceType::Block),
                line => {
                    if let (Some(kind), Some((major, name))) = (section, parse_driver(line)) {
                        drivers.push((kind, major, name.to_owned()));
                    }
                }
            }
        }
        Self(drivers)
    }

    /// The majors of the drivers with exactly this name. Several lines may have it.
    pub fn majors_of(&self, kind: DeviceType, name: &str) -> impl Iterator<Item = u32> {
        self.drivers_of_kind(kind)
            .filter(move |(_, driver)| *driver == name)
            .map(|(major, _)| major)
    }

    /// The majors of one kind with the names of their drivers. A major may have several
    /// names, and a name several majors.
    pub fn drivers_of_kind(&self, kind: DeviceType) -> impl Iterator<Item = (u32, &str)> {
        let drivers = self
            .0
            .iter()
            .filter(move |(own_kind, _, _)| *own_kind == kind);
        drivers.map(|(_, major, driver)| (*major, driver.as_str()))
    }

    /// Lists the names of the drivers of a major: none if the major is free, several if drivers
    /// share its minors.
    pub fn names_of(&self, kind: DeviceType, major: u32) -> impl Iterator<Item = &str> {
        self.drivers_of_kind(kind)
            .filter(move |(number, _)| *number == major)
            .map(|(_, name)| name)
    }
}

/// Parses a line of blanks, the major in decimal, one blank, and the name; `None` for a line of another form or a
/// major that the kernel cannot have.
fn parse_driver(line: &str) -> Option<(u32, &str)> {
    let (major, name) = line.trim_start_matches(' ').split_once(' ')?;
    let is_decimal = major.len() <= 4 && major.bytes().all(|byte| byte.is_ascii_digit());
    let major = major
        .parse()
        .ok()
        .filter(|major| is_decimal && *major <= MAJOR_MAX)?;
    let is_plain =
        !name.is_empty() && !name.starts_with(' ') && !name.chars().any(char::is_control);
    is_plain.then_some((major, name))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "Character devices:\n  1 mem\n  5 /dev/tty\n136 pts\n137 pts\n\
                        195 nvidia\n\nBlock devices:\n  7 loop\n259 blkext\n";

    fn majors(text: &str, kind: DeviceType, name: &str) -> Vec<u32> {
        ProcDevices::parse(text).majors_of(kind, name).collect()
    }

    #[test]
    fn driver_name_matches_exactly_and_may_have_several_majors() {
        assert_eq!(majors(TEXT, DeviceType::Char, "pts"), [136, 137]);
        assert_eq!(majors(TEXT, DeviceType::Char, "/dev/tty"), [5]);
        assert_eq!(majors(TEXT, DeviceType::Block, "loop"), [7]);
        for name in [
            "pt",
            "pts ",
            "PTS",
            "*",
            "nvidia*",
            "nvidia-frontend",
            "195",
            "",
        ] {
            assert!(majors(TEXT, DeviceType::Char, name).is_empty(), "{name:?}");
        }
    }

    #[test]
    fn major_has_the_names_of_all_its_drivers() {
        let drivers = ProcDevices::parse("Character devices:\n 5 /dev/tty\n 5 ptmx\n 7 vcs\n");
        let names = |kind, major| drivers.names_of(kind, major).collect::<Vec<_>>();
        assert_eq!(names(DeviceType::Char, 5), ["/dev/tty", "ptmx"]);
        assert_eq!(names(DeviceType::Char, 6), [""; 0]);
        assert_eq!(names(DeviceType::Block, 5), [""; 0]);
    }

    #[test]
    fn character_and_block_sections_are_separate() {
        assert!(majors(TEXT, DeviceType::Char, "loop").is_empty());
        assert!(majors(TEXT, DeviceType::Block, "mem").is_empty());
        assert!(majors("  7 loop\n", DeviceType::Block, "loop").is_empty());
    }

    #[test]
    fn driver_names_of_a_major_keep_to_its_section() {
        let text = "Character devices:\n195 nvidia\n195 nvidiactl\nBlock devices:\n195 other\n";
        let drivers = ProcDevices::parse(text);
        let names = |kind, major| drivers.names_of(kind, major).collect::<Vec<_>>();
        assert_eq!(names(DeviceType::Char, 195), ["nvidia", "nvidiactl"]);
        assert_eq!(names(DeviceType::Block, 195), ["other"]);
        assert!(names(DeviceType::Char, 19).is_empty());
    }

    #[test]
    fn malformed_lines_name_no_driver() {
        for line in [
            "-1 x",
            "+1 x",
            "0x1 x",
            "4096 x",
            "99999999999 x",
            "1",
            "1 ",
            "1  x",
            "x",
            "1\tx",
        ] {
            let text = format!("Character devices:\n{line}\n");
            assert_eq!(
                ProcDevices::parse(&text),
                ProcDevices::default(),
                "{line:?}"
            );
        }
    }
}
