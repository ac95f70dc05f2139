//! `/proc/devices`: which driver names have which majors (proc_devices(5)).

use crate::plan::{DeviceType, MAJOR_MAX};

/// The drivers of this node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProcDevices(Vec<(DeviceType, u32, String)>);

impl ProcDevices {
    /// Reads the text of `/proc/devices`. A line that is not of its form names no driver.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let mut section = None;
        let mut drivers = Vec::new();
        for line in text.lines() {
            match line.trim_end() {
                "Character devices:" => section = Some(DeviceType::Char),
                "Block devices:" => section = Some(DeviceType::Block),
                line => {
                    if let (Some(kind), Some((major, name))) = (section, driver(line)) {
                        drivers.push((kind, major, name.to_owned()));
                    }
                }
            }
        }
        Self(drivers)
    }

    /// The majors whose driver has exactly this name; several lines may.
    pub fn majors(&self, kind: DeviceType, name: &str) -> impl Iterator<Item = u32> {
        self.of_kind(kind).filter(move |(_, driver)| *driver == name).map(|(major, _)| major)
    }

    /// The majors of one kind with the names of their drivers. A major may have several, and a
    /// name may have several majors.
    pub fn of_kind(&self, kind: DeviceType) -> impl Iterator<Item = (u32, &str)> {
        let own = self.0.iter().filter(move |(of, _, _)| *of == kind);
        own.map(|(_, major, driver)| (*major, driver.as_str()))
    }

    /// The names of the drivers that have a major; none where it is free, several where they share
    /// its minors.
    pub fn names(&self, kind: DeviceType, major: u32) -> impl Iterator<Item = &str> {
        self.0
            .iter()
            .filter(move |(of, number, _)| *of == kind && *number == major)
            .map(|(_, _, name)| name.as_str())
    }
}

/// Blanks, the major in decimal, one blank, the name.
fn driver(line: &str) -> Option<(u32, &str)> {
    let (major, name) = line.trim_start_matches(' ').split_once(' ')?;
    let digits = major.len() <= 4 && major.bytes().all(|byte| byte.is_ascii_digit());
    let major = major.parse().ok().filter(|major| digits && *major <= MAJOR_MAX)?;
    let plain = !name.is_empty() && !name.starts_with(' ') && !name.chars().any(char::is_control);
    plain.then_some((major, name))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "Character devices:\n  1 mem\n  5 /dev/tty\n136 pts\n137 pts\n\
                        195 nvidia\n\nBlock devices:\n  7 loop\n259 blkext\n";

    fn majors(text: &str, kind: DeviceType, name: &str) -> Vec<u32> {
        ProcDevices::parse(text).majors(kind, name).collect()
    }

    #[test]
    fn names_are_exact_and_may_have_several_majors() {
        assert_eq!(majors(TEXT, DeviceType::Char, "pts"), [136, 137]);
        assert_eq!(majors(TEXT, DeviceType::Char, "/dev/tty"), [5]);
        assert_eq!(majors(TEXT, DeviceType::Block, "loop"), [7]);
        for name in ["pt", "pts ", "PTS", "*", "nvidia*", "nvidia-frontend", "195", ""] {
            assert!(majors(TEXT, DeviceType::Char, name).is_empty(), "{name:?}");
        }
    }

    #[test]
    fn sections_are_kept_apart() {
        assert!(majors(TEXT, DeviceType::Char, "loop").is_empty());
        assert!(majors(TEXT, DeviceType::Block, "mem").is_empty());
        assert!(majors("  7 loop\n", DeviceType::Block, "loop").is_empty());
    }

    #[test]
    fn a_major_is_told_with_all_its_drivers() {
        let text = "Character devices:\n195 nvidia\n195 nvidiactl\nBlock devices:\n195 other\n";
        let drivers = ProcDevices::parse(text);
        let names = |kind, major| drivers.names(kind, major).collect::<Vec<_>>();
        assert_eq!(names(DeviceType::Char, 195), ["nvidia", "nvidiactl"]);
        assert_eq!(names(DeviceType::Block, 195), ["other"]);
        assert!(names(DeviceType::Char, 19).is_empty());
    }

    #[test]
    fn odd_lines_name_no_driver() {
        for line in
            ["-1 x", "+1 x", "0x1 x", "4096 x", "99999999999 x", "1", "1 ", "1  x", "x", "1\tx"]
        {
            let text = format!("Character devices:\n{line}\n");
            assert_eq!(ProcDevices::parse(&text), ProcDevices::default(), "{line:?}");
        }
    }
}
