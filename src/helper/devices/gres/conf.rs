//! The resources of one node in `gres.conf` (gres.conf(5)).

use std::collections::BTreeSet;
use std::path::Path;

use super::dialect::{Detection, Dialect, ListSyntax};
use super::fault::{FaultyLine, FaultyRecord, RecordFault};
use super::hostlist::{HostList, HostListError};
use super::record::{GresRecord, Resources, check_form, eq_ignoring_case, unknown_key};
use crate::slurm_conf::{ConfLine, KeyValues};

/// Maximum files of one resource name.
pub(super) const FILES_MAX: usize = 1024;

/// The lines of `gres.conf` for one node, in the order in which Slurm takes them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GresConf {
    dialect: Dialect,
    lines: Vec<NodeLine>,
    /// Lines that may be records of any name.
    faulty_lines: Vec<FaultyLine>,
    /// `AutoDetect` of lines for every node; `None` without one that slurmd understands.
    every_node_detection: Option<Detection>,
    /// `AutoDetect` of lines that name this node; `None` without one that slurmd understands.
    this_node_detection: Option<Detection>,
}

/// The nodes that a line is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NodeScope {
    EveryNode,
    ThisNode,
}

/// The line of a record, whose faults matter only when its name is requested.
#[derive(Clone, Debug, PartialEq, Eq)]
struct NodeLine {
    line: KeyValues,
    name: String,
    /// Which nodes the line is for, or why its `NodeName=` cannot be compared with this node.
    scope: Result<NodeScope, RecordFault>,
}

impl GresConf {
    /// Parses the text of `gres.conf` for the node `node`.
    ///
    /// # Errors
    ///
    /// As [`GresConf::require_readable`].
    pub fn parse(text: &str, node: &str, dialect: Dialect) -> Result<Self, FaultyLine> {
        let conf = Self::from_lines(&ConfLine::parse_all(text, Path::new("")), node, dialect);
        conf.require_readable()?;
        Ok(conf)
    }

    /// Collects the configuration of the node `node` from the lines of the file and of the files that it
    /// includes, as the slurmd of `dialect` reads them.
    ///
    /// Slurm takes all records without `NodeName=` first, then those with it (`gres.c`, which reads
    /// two arrays one after the other), so that the indexes of a name do not follow the lines.
    ///
    /// A fault is stored: in a record it matters only for its name. Records for other nodes are
    /// skipped whatever is in them, although slurmd reads them.
    pub fn from_lines(lines: &[ConfLine], node: &str, dialect: Dialect) -> Self {
        let mut conf = Self {
            dialect,
            ..Self::default()
        };
        for line in lines {
            if let Err(fault) = conf.add_line(line.parse_pairs(), node) {
                conf.faulty_lines.push(FaultyLine {
                    at: line.at.clone(),
                    fault,
                });
            }
        }
        // `false` sorts first; the lines of each kind keep their order.
        conf.lines
            .sort_by_key(|line| line.scope != Ok(NodeScope::EveryNode));
        conf
    }

    /// Requires that no line is faulty that could be a record of any name.
    ///
    /// # Errors
    ///
    /// The first such line.
    pub fn require_readable(&self) -> Result<(), FaultyLine> {
        match self.faulty_lines.first() {
            Some(line) => Err(line.clone()),
            None => Ok(()),
        }
    }

    /// The lines that slurmd refuses and that could be records of any name.
    pub(super) fn faulty_lines(&self) -> &[FaultyLine] {
        &self.faulty_lines
    }

    /// Tells whether Slurm detects the GPUs of the node itself. Lines that name the node override
    /// lines for every node. Of several lines that name the node, one that turns detection on is
    /// enough; of lines for every node the last one counts. A line that cannot be read leaves it uncertain.
    pub(super) fn detection(&self) -> Detection {
        if !self.faulty_lines.is_empty() {
            return Detection::Uncertain;
        }
        self.this_node_detection
            .or(self.every_node_detection)
            .unwrap_or(Detection::Off)
    }

    /// Tells whether Slurm may detect the GPUs of the node itself.
    pub fn has_auto_detect(&self) -> bool {
        self.detection() != Detection::Off
    }

    /// Collects the records of the resource `name` as [`GresConf::records_of`] does, but refuses a file that stands
    /// twice.
    ///
    /// # Errors
    ///
    /// A faulty record. The others are not returned then, since indexes count across records.
    pub fn resources(&self, name: &str) -> Result<Resources, FaultyRecord> {
        let resources = self.records_of(name)?;
        let mut known = BTreeSet::new();
        for record in &resources.0 {
            // A repeated file would shift the indexes after it, perhaps differently than in Slurm. A `MultipleFiles=`
            // list is one resource, so a repeat in it shifts none.
            for file in record.single_files() {
                if !known.insert(file) {
                    return Err(record.faulty(RecordFault::RepeatedFile(file.clone())));
                }
            }
        }
        Ok(resources)
    }

    /// Collects the records of the resource `name`, in which a file may stand twice: for the inventory, which counts
    /// no indexes.
    ///
    /// # Errors
    ///
    /// A faulty record, or one with which the records have more than 1,024 files.
    pub fn records_of(&self, name: &str) -> Result<Resources, FaultyRecord> {
        let mut resources = Resources::default();
        let mut file_count = 0;
        for line in self
            .lines
            .iter()
            .filter(|line| eq_ignoring_case(&line.name, name))
        {
            let record = line.parse_record(FILES_MAX.saturating_sub(file_count), self.dialect)?;
            file_count += record.files().len();
            resources.0.push(record);
        }
        Ok(resources)
    }

    /// Lists the names of the records, each once.
    pub fn names(&self) -> Vec<&str> {
        let mut names: Vec<&str> = Vec::new();
        for line in &self.lines {
            if !names
                .iter()
                .any(|known| eq_ignoring_case(known, &line.name))
            {
                names.push(&line.name);
            }
        }
        names
    }

    /// Adds a line unless it is for other nodes: `AutoDetect=` as a setting, a record unparsed, since its faults matter
    /// only for its name.
    ///
    /// # Errors
    ///
    /// A fault for which slurmd refuses the file, and that may concern a record of any name.
    fn add_line(&mut self, line: KeyValues, node: &str) -> Result<(), RecordFault> {
        // Lines are never empty, so that one which begins with no pair is an error.
        let Some((key, value)) = line.first() else {
            return Ok(line.require_complete()?);
        };
        if eq_ignoring_case(key, "AutoDetect") {
            let detection = self.dialect.detection(value);
            if let Some(later) = line.later_keys().next() {
                return Err(unknown_key(later));
            }
            line.require_complete()?;
            self.every_node_detection = detection;
        } else if eq_ignoring_case(key, "Name") {
            let name = value.to_owned();
            self.lines.push(NodeLine {
                line,
                name,
                scope: Ok(NodeScope::EveryNode),
            });
        } else if eq_ignoring_case(key, "NodeName") {
            let scope = match lists_node(value, node, self.dialect) {
                Ok(false) => return Ok(()),
                Ok(true) => Ok(NodeScope::ThisNode),
                Err(fault) => Err(fault),
            };
            self.add_node_line(line, scope)?;
        } else {
            return Err(RecordFault::UnknownLine);
        }
        Ok(())
    }

    /// Adds a line with `NodeName=` first: what it says about `AutoDetect=`, and its record, if it has a `Name=`.
    ///
    /// # Errors
    ///
    /// The form of a line without `Name=` is wrong; or a line has `AutoDetect=`, and whether it names this node is not
    /// certain.
    fn add_node_line(
        &mut self,
        line: KeyValues,
        scope: Result<NodeScope, RecordFault>,
    ) -> Result<(), RecordFault> {
        if let Some(value) = line.value("AutoDetect") {
            // Detection concerns every name, so it must be certain whether the line is for this node.
            scope.clone()?;
            // `None` sorts first.
            self.this_node_detection = self.this_node_detection.max(self.dialect.detection(value));
        }
        match line.value("Name") {
            Some(name) => {
                let name = name.to_owned();
                self.lines.push(NodeLine { line, name, scope });
                Ok(())
            }
            // Slurm ignores a record without a name.
            None => check_form(&line, self.dialect),
        }
    }
}

impl NodeLine {
    /// Parses the record of the line, with at most `max` files.
    fn parse_record(&self, max: usize, dialect: Dialect) -> Result<GresRecord, FaultyRecord> {
        let record = match &self.scope {
            Ok(_) => GresRecord::parse(&self.line, &self.name, max, dialect),
            Err(fault) => Err(fault.clone()),
        };
        record.map_err(|fault| FaultyRecord {
            at: self.line.at.clone(),
            name: self.name.clone(),
            fault,
        })
    }
}

/// Tells whether the slurmd of `dialect` finds the node in the value of `NodeName=`, in which it finds none if the list is
/// malformed.
///
/// # Errors
///
/// The list is beyond the bounds here, or releases of which each may be the node's read it differently.
fn lists_node(value: &str, node: &str, dialect: Dialect) -> Result<bool, RecordFault> {
    let read = |syntax: ListSyntax| match HostList::parse(value, syntax) {
        Ok(nodes) => Ok(is_listed(&nodes, node)),
        Err(HostListError::Malformed) => Ok(false),
        Err(error) => Err(RecordFault::InvalidList("NodeName", error)),
    };
    let mut readings = dialect.list_syntaxes().iter().map(|syntax| read(*syntax));
    let first = readings.next().unwrap_or(Ok(false))?;
    for reading in readings {
        if reading? != first {
            return Err(RecordFault::ReleaseDependentNodes);
        }
    }
    Ok(first)
}

/// Tells whether a list of nodes has this node, by its name in full or up to the first dot.
fn is_listed(nodes: &HostList, node: &str) -> bool {
    let short = node.split('.').next().unwrap_or(node);
    nodes.contains(node) || nodes.contains(short)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Random;

    fn resources_of(text: &str, name: &str, node: &str) -> Result<Resources, (usize, String)> {
        let resources = parse(text, node)?.resources(name);
        resources.map_err(|faulty| (faulty.at.line, faulty.fault.to_string()))
    }

    fn parse(text: &str, node: &str) -> Result<GresConf, (usize, String)> {
        GresConf::parse(text, node, Dialect::default())
            .map_err(|faulty| (faulty.at.line, faulty.fault.to_string()))
    }

    fn gpus_of(text: &str, node: &str) -> Resources {
        resources_of(text, "gpu", node).unwrap()
    }

    /// The files of each index.
    fn files(conf: &Resources) -> Vec<Vec<&str>> {
        let resources = (0..conf.count()).map(|index| conf.resource(index).unwrap());
        resources
            .map(|(_, files)| files.iter().map(String::as_str).collect())
            .collect()
    }

    #[test]
    fn each_file_is_an_index_and_indexes_continue_across_lines() {
        let text = "NAME=gpu type=a100 FILE=/dev/nvidia[0,2-3] Cores=0-7\n\
                Name=nic File=/dev/nic0 Strange=1\n\
                Name=GPU Type=h100 Files=/dev/nvidia1 Count=1 Flags=nvidia_gpu_env\n";
        let conf = gpus_of(text, "n1");
        let expected = [
            "/dev/nvidia0",
            "/dev/nvidia2",
            "/dev/nvidia3",
            "/dev/nvidia1",
        ];
        assert_eq!(files(&conf), expected.map(|file| vec![file]));
        let kinds: Vec<_> = (0..4)
            .map(|index| conf.resource(index).unwrap().0.kind.as_str())
            .collect();
        assert_eq!(kinds, ["a100", "a100", "a100", "h100"]);
        assert_eq!(conf.resource(3).unwrap().0.at.line, 3);
        assert_eq!(conf.resource(4), None);
    }

    #[test]
    fn record_of_multiple_files_is_one_index() {
        let text = "Name=gpu Type=1g.5gb MultipleFiles=/dev/nvidia0,/dev/nvidia-caps/nvidia-cap[21-22]\n\
                Name=gpu Type=1g.5gb MultipleFiles=/dev/nvidia0,/dev/nvidia-caps/nvidia-cap[30-31]\n\
                Name=gpu Type=a100 File=/dev/nvidia1\n";
        let expected = [
            vec![
                "/dev/nvidia0",
                "/dev/nvidia-caps/nvidia-cap21",
                "/dev/nvidia-caps/nvidia-cap22",
            ],
            vec![
                "/dev/nvidia0",
                "/dev/nvidia-caps/nvidia-cap30",
                "/dev/nvidia-caps/nvidia-cap31",
            ],
            vec!["/dev/nvidia1"],
        ];
        assert_eq!(files(&gpus_of(text, "n1")), expected);
    }

    #[test]
    fn records_of_other_nodes_do_not_count() {
        let text = "NodeName=gpu[001-002],x Name=gpu File=/dev/nvidia0\n\
                NodeName=gpu003 Name=gpu File=/dev/nvidia1\n\
                NodeName=gpu004 Name=gpu Strange=1 File=/etc/passwd\n\
                Name=gpu File=/dev/nvidia2\n";
        for (node, expected) in [
            ("gpu001", vec!["/dev/nvidia2", "/dev/nvidia0"]),
            ("gpu002.site.example", vec!["/dev/nvidia2", "/dev/nvidia0"]),
            ("gpu003", vec!["/dev/nvidia2", "/dev/nvidia1"]),
            ("gpu1", vec!["/dev/nvidia2"]),
            ("GPU001", vec!["/dev/nvidia2"]),
        ] {
            let expected: Vec<_> = expected.into_iter().map(|file| vec![file]).collect();
            assert_eq!(files(&gpus_of(text, node)), expected, "{node}");
        }
        let outside = (3, "/etc/passwd is not below /dev".to_owned());
        let text = text.replace("Strange=1 ", "");
        assert_eq!(resources_of(&text, "gpu", "gpu004"), Err(outside));
    }

    /// Slurm counts the records without `NodeName=` first. In another order, index 0 would be a GPU that Slurm gives
    /// to another job.
    #[test]
    fn records_for_every_node_come_first_as_in_slurm() {
        let text = "NodeName=tux3 Name=gpu File=/dev/nvidia2\nName=gpu File=/dev/nvidia[0-1]\n\
                NodeName=tux3 Name=gpu File=/dev/nvidia4\nName=gpu File=/dev/nvidia3\n";
        let order = [0, 1, 3, 2, 4].map(|index| vec![format!("/dev/nvidia{index}")]);
        assert_eq!(files(&gpus_of(text, "tux3")), order);
    }

    #[test]
    fn node_name_after_another_key_is_refused() {
        for text in [
            "Name=gpu NodeName=n2 File=/dev/nvidia0",
            "Name=gpu File=/dev/x nodename=n1",
        ] {
            let (line, fault) = resources_of(text, "gpu", "n1").unwrap_err();
            assert!(
                line == 1 && fault.starts_with("NodeName= must be the first key"),
                "{text}"
            );
            assert_eq!(
                resources_of(text, "nic", "n1").unwrap().count(),
                0,
                "{text}"
            );
        }
        let text = "AutoDetect=nvml NodeName=n1";
        let (line, fault) = parse(text, "n1").unwrap_err();
        assert!(
            line == 1 && fault.starts_with("NodeName= must be the first key"),
            "{fault}"
        );
    }

    #[test]
    fn names_that_share_a_file_are_counted_separately() {
        let text = "Name=gpu File=/dev/nvidia[0-1]\nName=shard Count=8 File=/dev/nvidia[0-1]\n";
        assert_eq!(gpus_of(text, "n").count(), 2);
        assert_eq!(resources_of(text, "shard", "n").unwrap().count(), 2);
        assert_eq!(resources_of(text, "mps", "n").unwrap().count(), 0);
    }

    #[test]
    fn count_without_files_has_indexes_and_no_files() {
        let conf = gpus_of("Name=gpu Count=2\n", "n");
        assert_eq!(conf.count(), 2);
        assert!(conf.resource(1).unwrap().1.is_empty());
        let empty = gpus_of("Name=gpu File=, Count=2\nName=gpu File=/dev/nvidia0\n", "n");
        assert!(empty.resource(1).unwrap().1.is_empty());
        assert_eq!(empty.resource(2).unwrap().1, ["/dev/nvidia0"]);
        let lots = resources_of("Name=bandwidth Count=4G\n", "bandwidth", "n").unwrap();
        assert_eq!(lots.count(), 4 << 30);
    }

    #[test]
    fn lines_for_the_node_override_auto_detect_for_every_node() {
        for (text, on) in [
            ("", false),
            ("AutoDetect=nvml", true),
            ("autodetect=OFF", false),
            ("AutoDetect=nvml\nNodeName=n1 AutoDetect=off", false),
            ("NodeName=n1 AutoDetect=off\nAutoDetect=nvml", false),
            ("AutoDetect=off\nNodeName=n1 Name=gpu AutoDetect=rsmi", true),
            ("AutoDetect=off\nNodeName=n2 AutoDetect=rsmi", false),
            ("AutoDetect=off\nAutoDetect=full", true),
            ("AutoDetect=full\nAutoDetect=off", false),
            (
                "NodeName=n1 AutoDetect=full\nNodeName=n1 AutoDetect=off",
                true,
            ),
            ("AutoDetect=other", false),
            ("Name=gpu AutoDetect=nvml File=/dev/nvidia0", false),
            ("NodeName=n[ AutoDetect=nvml", false),
            (
                "NodeName=n1 Name=nic AutoDetect=nvidia File=/dev/nic0",
                true,
            ),
        ] {
            assert_eq!(parse(text, "n1").unwrap().has_auto_detect(), on, "{text:?}");
        }
    }

    #[test]
    fn malformed_line_of_the_name_is_an_error_with_its_number() {
        let list = |key: &str| format!("{key}=: {}", HostListError::Malformed);
        let no_pairs = "not of the form Key=value Key=value";
        for (line, fault) in [
            ("Name=gpu Fil=/dev/nvidia1", "unknown key Fil"),
            ("Name=gpu File=/dev/nvidia0 x", no_pairs),
            (
                "Name=gpu File=/dev/nvidia0 MultipleFiles=/dev/nvidia1",
                "File=, Files= and MultipleFiles= exclude each other",
            ),
            (
                "Name=gpu MultipleFiles=/dev/nvidia0 Files=/dev/nvidia1",
                "File=, Files= and MultipleFiles= exclude each other",
            ),
            ("Name=gpu File=/etc/passwd", "/etc/passwd is not below /dev"),
            (
                "Name=gpu File=/dev/../etc/x",
                "/dev/../etc/x is not below /dev",
            ),
            (
                "Name=gpu File=/dev/nvidia9",
                "/dev/nvidia9 stands twice in the records of the name",
            ),
            (
                "Name=gpu File=/dev/a,/dev/a",
                "/dev/a stands twice in the records of the name",
            ),
            ("Name=gpu Count=x", "Count= is not a number"),
            ("Name=gpu Count=-5", "Count= is not a number"),
            ("Name=gpu Count=1kbb", "Count= is not a number"),
            ("Name=gpu Count=99999999P", "Count= is not a number"),
            (
                "Name=gpu File=/dev/a,/dev/b Count=3",
                "Count= is not the number of files",
            ),
            (
                "Name=gpu MultipleFiles=/dev/a,/dev/b Count=2",
                "Count= is not the number of files",
            ),
            ("Name=gpu Count=", no_pairs),
            ("Name=gpu File=/dev/nvidia[0", list("File").as_str()),
            ("Name=gpu File=/dev/n[0-1024]", list("File").as_str()),
            (
                "NodeName=n[1][1][1][1][1] Name=gpu",
                list("NodeName").as_str(),
            ),
            (
                "NodeName=n[1][1][1][1][1] AutoDetect=nvml",
                list("NodeName").as_str(),
            ),
            ("NodeName=n1 Fil=x", "unknown key Fil"),
            ("File=/dev/nvidia0", "neither Name= nor AutoDetect="),
            ("AutoDetect=nvml x=y", "unknown key x"),
            ("AutoDetect=nvml x", no_pairs),
            ("Include other", no_pairs),
        ] {
            let text = format!("# GPUs\nName=gpu File=/dev/nvidia9\n{line}\n");
            let own = if fault.contains("two records") {
                "gpu"
            } else {
                "GPU"
            };
            assert_eq!(
                resources_of(&text, own, "n1"),
                Err((3, fault.to_owned())),
                "{line}"
            );
        }
    }

    /// What slurmd accepts, and sites write.
    #[test]
    fn records_are_read_as_slurmd_reads_them() {
        for (line, expected) in [
            ("Name=gpu Count=2 Count=1 File=/dev/a", vec!["/dev/a"]),
            ("Name=gpu File=/dev/a,", vec!["/dev/a"]),
            ("Name=gpu File=/dev/a,,/dev/b", vec!["/dev/a", "/dev/b"]),
            ("Name=gpu File=\"/dev/a, /dev/b\"", vec!["/dev/a", "/dev/b"]),
            ("Name=gpu File=/dev/b Files=/dev/a", vec!["/dev/b"]),
            ("Name=gpu Name=nic File=/dev/a", vec!["/dev/a"]),
            ("NodeName=n1 Fil\\e=/dev/a Name=gpu", vec!["/dev/a"]),
            ("NodeName=n1, File=/dev/a Name=nic Name=gpu", vec!["/dev/a"]),
            ("NodeName=n1\n Name=gpu File=/dev/a", vec!["/dev/a"]),
            (
                "NodeName=n[1 Name=gpu File=/dev/b\nName=gpu File=/dev/a",
                vec!["/dev/a"],
            ),
            (
                "NodeName=n2 Name=gpu Fil=x y\nName=gpu File=/dev/a",
                vec!["/dev/a"],
            ),
            ("Name=gpu Type= File=/dev/b File=/dev/a", vec!["/dev/a"]),
        ] {
            let expected: Vec<_> = expected.into_iter().map(|file| vec![file]).collect();
            assert_eq!(files(&gpus_of(line, "n1")), expected, "{line}");
        }
        for (count, number) in [
            ("1500GB", 1_500_000_000_000),
            ("2k", 2048),
            ("2KiB", 2048),
            ("2kb", 2000),
            ("1PIB", 1 << 50),
            ("\" 3\"", 3),
            ("k", 0),
        ] {
            assert_eq!(
                gpus_of(&format!("Name=gpu Count={count}"), "n").count(),
                number,
                "{count}"
            );
        }
    }

    /// Slurmd starts with none of these files.
    #[test]
    fn records_of_one_name_agree() {
        for (text, at) in [
            ("Name=gpu Count=2\nName=gpu File=/dev/a", 2),
            ("Name=gpu File=/dev/a\nName=gpu File=/dev/b\nName=gpu", 3),
            ("Name=gpu File=/dev/a\nName=gpu File=/dev/b Type=x", 2),
            ("Name=gpu Count=1\nName=gpu Count=1", 2),
            ("Name=gpu MultipleFiles=/dev/a", 1),
        ] {
            assert_eq!(
                gpus_of(text, "n").check_as_slurmd().unwrap_err().at.line,
                at,
                "{text}"
            );
        }
        for text in [
            "",
            "Name=gpu Type=a Count=1\nName=gpu Type=b Count=1",
            "Name=gpu File=,",
        ] {
            assert_eq!(gpus_of(text, "n").check_as_slurmd(), Ok(()), "{text}");
        }
    }

    #[test]
    fn malformed_record_of_another_name_is_ignored() {
        let text = "Name=nic Fil=/x Count=? File=[\nNodeName=n[1][1][1][1][1] Name=nic\nName=gpu File=/dev/nvidia0\n";
        assert_eq!(files(&gpus_of(text, "n1")), [["/dev/nvidia0"]]);
    }

    #[test]
    fn files_of_a_name_are_bounded_over_all_records() {
        let text = "Name=gpu File=/dev/a[0-1023]\n";
        assert_eq!(gpus_of(text, "n").count(), 1024);
        let more = format!("{text}Name=gpu File=/dev/b\n");
        let (line, fault) = resources_of(&more, "gpu", "n").unwrap_err();
        assert!(line == 2 && fault.contains("or of too many"), "{fault}");
        let multiple = format!("{text}Name=gpu MultipleFiles=/dev/b\n");
        let (other_line, other_fault) = resources_of(&multiple, "gpu", "n").unwrap_err();
        assert!(
            other_line == 2 && other_fault.contains("or of too many"),
            "{other_fault}"
        );
    }

    #[test]
    fn random_files_have_the_indexes_of_their_expanded_lists() {
        let mut random = Random::new(5);
        for _ in 0..500 {
            let mut text = String::new();
            let mut next = 0;
            let mut expected = Vec::new();
            let mut of_this_node = Vec::new();
            for _ in 0..random.below(6) {
                let size = 1 + random.below(4);
                let names: Vec<_> = (next..next + size)
                    .map(|at| format!("/dev/x{at}"))
                    .collect();
                next += size;
                let list = format!("/dev/x[{}-{}]", next - size, next - 1);
                match random.below(4) {
                    0 => {
                        text += &format!("Name=gpu MultipleFiles={list}\n");
                        expected.push(names);
                    }
                    1 => text += &format!("NodeName=n2 Name=gpu File={list}\n"),
                    2 => text += &format!("Name=nic File={list}\n"),
                    _ => {
                        text += &format!("NodeName=n[0-1] Name=gpu File={list}\n");
                        of_this_node.extend(names.into_iter().map(|name| vec![name]));
                    }
                }
            }
            expected.extend(of_this_node);
            assert_eq!(files(&gpus_of(&text, "n1")), expected, "{text}");
        }
    }
}
