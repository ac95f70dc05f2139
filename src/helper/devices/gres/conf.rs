//! The resources of one node in `gres.conf` (gres.conf(5)).

use std::collections::BTreeSet;
use std::path::Path;

use super::HostList;
use crate::devices::slurm_conf::{ConfLine, ConfPosition, KeyValues, join_lines};

/// Maximum files of one resource name.
pub(super) const FILES_MAX: usize = 1024;
const KEYS: [&str; 13] = [
    "AutoDetect", "Count", "CPUs", "Cores", "File", "Files", "Flags", "Link", "Links",
    "MultipleFiles", "Name", "NodeName", "Type",
];

/// The lines of `gres.conf` for one node, in the order in which Slurm takes them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GresConf {
    lines: Vec<NodeLine>,
    /// `AutoDetect` of lines for every node.
    every_node_auto_detect: Option<bool>,
    /// `AutoDetect` of lines that name this node.
    this_node_auto_detect: Option<bool>,
}

/// The nodes that a line is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NodeScope {
    EveryNode,
    ThisNode,
}

/// The records of one resource name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resources(Vec<GresRecord>);

/// A line with the nodes that its `NodeName=` selects, or the fault of that key.
#[derive(Clone, Debug, PartialEq, Eq)]
struct NodeLine {
    line: KeyValues,
    scope: Result<NodeScope, String>,
}

/// The resources of one line: they have one name and one type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GresRecord {
    /// The place of the first part of the line.
    pub at: ConfPosition,
    /// The name of the resource.
    pub name: String,
    /// The type of the resource; empty if the record gives none.
    pub kind: String,
    files: ResourceFiles,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum ResourceFiles {
    /// Each file is one resource.
    OnePerResource(Vec<String>),
    /// All files together are one resource.
    AllForOne(Vec<String>),
    /// This many resources without files.
    CountOnly(u64),
}

impl GresConf {
    /// Parses the text of `gres.conf` for the node `node`.
    ///
    /// # Errors
    ///
    /// The number of a malformed line, and its fault.
    pub fn parse(text: &str, node: &str) -> Result<Self, (usize, String)> {
        let at = |line| ConfPosition { file: Path::new("").into(), line };
        let lines = join_lines(text).into_iter();
        let lines = lines.map(|(number, text)| ConfLine { at: at(number), text });
        let conf = Self::from_lines(&lines.collect::<Vec<_>>(), node);
        conf.map_err(|(at, fault)| (at.line, fault))
    }

    /// Returns the configuration of the node `node` by the lines of the file and of the files that it
    /// includes.
    ///
    /// Slurm takes all records without `NodeName=` first, then those with it (`gres.c`, which reads
    /// two arrays one after the other), so that the indexes of a name do not follow the lines.
    ///
    /// # Errors
    ///
    /// The place of a malformed line, and its fault.
    pub fn from_lines(lines: &[ConfLine], node: &str) -> Result<Self, (ConfPosition, String)> {
        let mut conf = Self::default();
        for line in lines {
            let fault = |fault| (line.at.clone(), fault);
            conf.add_line(line.parse_pairs().map_err(fault)?, node).map_err(fault)?;
        }
        conf.lines.sort_by_key(|line| line.scope != Ok(NodeScope::EveryNode));
        Ok(conf)
    }

    /// Returns whether Slurm detects the GPUs of the node itself. Lines that name the node override
    /// lines for every node; among equal lines, one that turns detection on is enough.
    pub fn has_auto_detect(&self) -> bool {
        self.this_node_auto_detect.or(self.every_node_auto_detect).unwrap_or(false)
    }

    /// Returns the records of the resource `name`. Faults in records of other names do not matter.
    ///
    /// # Errors
    ///
    /// A malformed record. The others are not returned then, since indexes count across records.
    pub fn resources(&self, name: &str) -> Result<Resources, (ConfPosition, String)> {
        let has_name =
            |line: &&NodeLine| line.name().is_some_and(|own| eq_ignoring_case(own, name));
        let (mut resources, mut file_count) = (Resources::default(), 0);
        for line in self.lines.iter().filter(has_name) {
            let max = FILES_MAX.saturating_sub(file_count);
            let Some(record) = line.parse_record(max)? else { continue };
            if let Some(file) = resources.find_repeated_file(&record) {
                return Err((record.at.clone(), format!("{file} stands in two records")));
            }
            file_count += record.files().len();
            resources.0.push(record);
        }
        Ok(resources)
    }

    /// Returns the records of all names.
    pub fn records(&self) -> impl Iterator<Item = Result<GresRecord, (ConfPosition, String)>> {
        self.lines.iter().filter_map(|line| line.parse_record(FILES_MAX).transpose())
    }

    /// Adds a line unless it is for other nodes. A faulty `NodeName=` beside `Name=` is stored, and
    /// reported only when that name is requested.
    ///
    /// It fails for a faulty `NodeName=` beside `AutoDetect=`, and for a line with neither key.
    fn add_line(&mut self, line: KeyValues, node: &str) -> Result<(), String> {
        let Some(scope) = parse_scope(&line, node).transpose() else { return Ok(()) };
        if let Some(value) = line.value("AutoDetect") {
            let auto_detect = match scope.clone()? {
                NodeScope::ThisNode => &mut self.this_node_auto_detect,
                NodeScope::EveryNode => &mut self.every_node_auto_detect,
            };
            let is_on = !eq_ignoring_case(value, "off");
            *auto_detect = Some(auto_detect.unwrap_or(false) || is_on);
        } else if line.value("Name").is_none() {
            scope.clone()?;
            return Err("neither Name= nor AutoDetect=".to_owned());
        }
        self.lines.push(NodeLine { line, scope });
        Ok(())
    }
}

impl Resources {
    /// Returns whether the records have several types. Slurm takes types in the order of `Gres=` in
    /// `slurm.conf`, and leaves out those that are missing there.
    pub fn has_several_types(&self) -> bool {
        let Some(first) = self.0.first() else { return false };
        self.0.iter().any(|other| !eq_ignoring_case(&first.kind, &other.kind))
    }

    /// Returns the number of resources.
    pub fn count(&self) -> u64 {
        self.0.iter().fold(0, |count, record| count.saturating_add(record.count()))
    }

    /// Returns record and files of the resource with this index, from 0. Indexes follow the order of
    /// the records, and in a record the order of its files.
    pub fn resource(&self, index: u64) -> Option<(&GresRecord, &[String])> {
        let mut left = index;
        for record in &self.0 {
            let count = record.count();
            if left < count {
                return Some((record, record.files_at(left)?));
            }
            left -= count;
        }
        None
    }

    /// Returns a file of a record that already has an index. It would shift the indexes after it,
    /// perhaps differently than in Slurm.
    fn find_repeated_file<'a>(&self, record: &'a GresRecord) -> Option<&'a str> {
        let files = record.single_files();
        let mut known = self.0.iter().flat_map(GresRecord::single_files).collect::<BTreeSet<_>>();
        files.iter().find(|file| !known.insert(file)).map(String::as_str)
    }
}

impl NodeLine {
    fn name(&self) -> Option<&str> {
        self.line.value("Name")
    }

    /// Parses the record of the line, with at most `max` files; `None` if the line contains only
    /// `AutoDetect=`.
    fn parse_record(&self, max: usize) -> Result<Option<GresRecord>, (ConfPosition, String)> {
        let record = self.scope.clone().and_then(|_| GresRecord::parse(&self.line, max));
        record.map_err(|fault| (self.line.at.clone(), fault))
    }
}

impl GresRecord {
    fn parse(line: &KeyValues, max: usize) -> Result<Option<Self>, String> {
        let is_unknown = |key: &&str| !KEYS.iter().any(|known| eq_ignoring_case(known, key));
        if let Some(key) = line.keys().find(is_unknown) {
            return Err(format!("unknown key {key}"));
        }
        let Some(name) = line.value("Name") else { return Ok(None) };
        let kind = line.value("Type").unwrap_or_default().to_owned();
        let count = line.value("Count").map_or(Ok(1), parse_count)?;
        let files = match (
            parse_files(line, "File", max)?,
            parse_files(line, "Files", max)?,
            parse_files(line, "MultipleFiles", max)?,
        ) {
            (Some(files), None, None) | (None, Some(files), None) => {
                ResourceFiles::OnePerResource(files)
            }
            (None, None, Some(files)) => ResourceFiles::AllForOne(files),
            (None, None, None) => ResourceFiles::CountOnly(count),
            _ => return Err("File=, Files= and MultipleFiles= exclude each other".to_owned()),
        };
        Ok(Some(Self { at: line.at.clone(), name: name.to_owned(), kind, files }))
    }

    fn count(&self) -> u64 {
        match &self.files {
            ResourceFiles::OnePerResource(files) => files.len() as u64,
            ResourceFiles::AllForOne(_) => 1,
            ResourceFiles::CountOnly(count) => *count,
        }
    }

    pub(super) fn files(&self) -> &[String] {
        match &self.files {
            ResourceFiles::OnePerResource(files) | ResourceFiles::AllForOne(files) => files,
            ResourceFiles::CountOnly(_) => &[],
        }
    }

    /// Returns the first file of each resource.
    pub(super) fn first_files(&self) -> &[String] {
        match &self.files {
            ResourceFiles::AllForOne(files) => files.get(..1).unwrap_or_default(),
            ResourceFiles::OnePerResource(_) | ResourceFiles::CountOnly(_) => self.files(),
        }
    }

    /// Returns the files that are one resource each.
    fn single_files(&self) -> &[String] {
        match &self.files {
            ResourceFiles::OnePerResource(files) => files,
            ResourceFiles::AllForOne(_) | ResourceFiles::CountOnly(_) => &[],
        }
    }

    fn files_at(&self, index: u64) -> Option<&[String]> {
        match &self.files {
            ResourceFiles::OnePerResource(files) => {
                files.get(usize::try_from(index).ok()?).map(std::slice::from_ref)
            }
            ResourceFiles::AllForOne(_) | ResourceFiles::CountOnly(_) => Some(self.files()),
        }
    }
}

/// Returns whether two words are the same to Slurm.
fn eq_ignoring_case(one: &str, other: &str) -> bool {
    one.eq_ignore_ascii_case(other)
}

/// Returns the nodes that a line is for; `None` if it names other nodes only.
fn parse_scope(line: &KeyValues, node: &str) -> Result<Option<NodeScope>, String> {
    let Some(nodes) = parse_list(line, "NodeName")? else {
        return Ok(Some(NodeScope::EveryNode));
    };
    if !line.keys().next().is_some_and(|first| eq_ignoring_case(first, "NodeName")) {
        let why = "NodeName= must be the first key, or Slurm takes the record for every node";
        return Err(why.to_owned());
    }
    let short = node.split('.').next().unwrap_or(node);
    Ok((nodes.contains(node) || nodes.contains(short)).then_some(NodeScope::ThisNode))
}

fn parse_files(
    line: &KeyValues,
    key: &'static str,
    max: usize,
) -> Result<Option<Vec<String>>, String> {
    let Some(list) = parse_list(line, key)? else { return Ok(None) };
    let files = list.expand(max).map_err(|error| format!("{key}=: {error}"))?;
    let is_outside =
        |file: &&String| !file.starts_with("/dev/") || file.split('/').any(|part| part == "..");
    match files.iter().find(is_outside) {
        Some(file) => Err(format!("{file} is not below /dev")),
        None => Ok(Some(files)),
    }
}

fn parse_list(line: &KeyValues, key: &'static str) -> Result<Option<HostList>, String> {
    let list = line.value(key).map(HostList::parse).transpose();
    list.map_err(|error| format!("{key}=: {error}"))
}

fn invalid_count() -> String {
    "Count= is not a number".to_owned()
}

/// Parses a number, which a letter after it multiplies by a power of 1,024.
fn parse_count(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let shift = match text.get(digits.len()..).unwrap_or_default() {
        "" => 0,
        "k" | "K" => 10,
        "m" | "M" => 20,
        "g" | "G" => 30,
        "t" | "T" => 40,
        "p" | "P" => 50,
        _ => return Err(invalid_count()),
    };
    let is_decimal = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    let number: Option<u64> = is_decimal.then(|| digits.parse().ok()).flatten();
    number.and_then(|number| number.checked_mul(1 << shift)).ok_or_else(invalid_count)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Random;

    fn resources_of(text: &str, name: &str, node: &str) -> Result<Resources, (usize, String)> {
        GresConf::parse(text, node)?.resources(name).map_err(|(at, fault)| (at.line, fault))
    }

    fn gpus_of(text: &str, node: &str) -> Resources {
        resources_of(text, "gpu", node).unwrap()
    }

    /// Returns the files of each index.
    fn files(conf: &Resources) -> Vec<Vec<&str>> {
        let resources = (0..conf.count()).map(|index| conf.resource(index).unwrap());
        resources.map(|(_, files)| files.iter().map(String::as_str).collect()).collect()
    }

    #[test]
    fn each_file_is_an_index_and_indexes_continue_across_lines() {
        let text = "NAME=gpu type=a100 FILE=/dev/nvidia[0,2-3] Cores=0-7\n\
                Name=nic File=/dev/nic0 Strange=1\n\
                Name=GPU Type=h100 Files=/dev/nvidia1 Count=1 Flags=nvidia_gpu_env\n";
        let conf = gpus_of(text, "n1");
        let expected = ["/dev/nvidia0", "/dev/nvidia2", "/dev/nvidia3", "/dev/nvidia1"];
        assert_eq!(files(&conf), expected.map(|file| vec![file]));
        let kinds: Vec<_> =
            (0..4).map(|index| conf.resource(index).unwrap().0.kind.as_str()).collect();
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
            vec!["/dev/nvidia0", "/dev/nvidia-caps/nvidia-cap21", "/dev/nvidia-caps/nvidia-cap22"],
            vec!["/dev/nvidia0", "/dev/nvidia-caps/nvidia-cap30", "/dev/nvidia-caps/nvidia-cap31"],
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
        assert!(resources_of(text, "gpu", "gpu004").is_err());
    }

    /// Otherwise index 0 would be the GPU that Slurm gives to another job.
    #[test]
    fn records_for_every_node_come_first_as_in_slurm() {
        let text = "NodeName=tux3 Name=gpu File=/dev/nvidia2\nName=gpu File=/dev/nvidia[0-1]\n\
                NodeName=tux3 Name=gpu File=/dev/nvidia4\nName=gpu File=/dev/nvidia3\n";
        let order = [0, 1, 3, 2, 4].map(|index| vec![format!("/dev/nvidia{index}")]);
        assert_eq!(files(&gpus_of(text, "tux3")), order);
    }

    #[test]
    fn node_name_after_another_key_is_refused() {
        for text in ["Name=gpu NodeName=n2 File=/dev/nvidia0", "Name=gpu File=/dev/x nodename=n1"] {
            let (line, fault) = resources_of(text, "gpu", "n1").unwrap_err();
            assert!(line == 1 && fault.starts_with("NodeName= must be the first key"), "{text}");
            assert_eq!(resources_of(text, "nic", "n1").unwrap().count(), 0, "{text}");
        }
        let text = "AutoDetect=nvml NodeName=n1";
        let (line, fault) = GresConf::parse(text, "n1").unwrap_err();
        assert!(line == 1 && fault.starts_with("NodeName= must be the first key"), "{fault}");
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
        let conf = gpus_of("Name=gpu Count=2\nName=gpu File=/dev/nvidia0\n", "n");
        assert_eq!(conf.count(), 3);
        assert!(conf.resource(1).unwrap().1.is_empty());
        assert_eq!(conf.resource(2).unwrap().1, ["/dev/nvidia0"]);
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
            ("AutoDetect=full\nAutoDetect=off", true),
            ("NodeName=n1 Name=nic AutoDetect=nvidia File=/dev/nic0", true),
        ] {
            assert_eq!(GresConf::parse(text, "n1").unwrap().has_auto_detect(), on, "{text:?}");
        }
    }

    #[test]
    fn malformed_line_of_the_name_is_an_error_with_its_number() {
        let list = |key: &str| format!("{key}=: {}", super::super::HostListError);
        for (line, fault) in [
            ("Name=gpu Fil=/dev/nvidia1", "unknown key Fil"),
            (
                "Name=gpu File=/dev/nvidia0 MultipleFiles=/dev/nvidia1",
                "File=, Files= and MultipleFiles= exclude each other",
            ),
            (
                "Name=gpu File=/dev/nvidia0 Files=/dev/nvidia1",
                "File=, Files= and MultipleFiles= exclude each other",
            ),
            ("Name=gpu File=/etc/passwd", "/etc/passwd is not below /dev"),
            ("Name=gpu File=/dev/../etc/x", "/dev/../etc/x is not below /dev"),
            ("Name=gpu File=/dev/nvidia9", "/dev/nvidia9 stands in two records"),
            ("Name=gpu File=/dev/a,/dev/a", "/dev/a stands in two records"),
            ("Name=gpu Count=x", "Count= is not a number"),
            ("Name=gpu Count=99999999P", "Count= is not a number"),
            ("Name=gpu Count=", "not of the form Key=value Key=value"),
            ("Name=gpu File=/dev/nvidia[0", list("File").as_str()),
            ("Name=gpu File=/dev/n[0-1024]", list("File").as_str()),
            ("NodeName=n[ Name=gpu", list("NodeName").as_str()),
            ("File=/dev/nvidia0", "neither Name= nor AutoDetect="),
            ("Include other", "not of the form Key=value Key=value"),
        ] {
            let text = format!("# GPUs\nName=gpu File=/dev/nvidia9\n{line}\n");
            assert_eq!(resources_of(&text, "gpu", "n1"), Err((3, fault.to_owned())), "{line}");
        }
    }

    #[test]
    fn malformed_record_of_another_name_is_ignored() {
        let text =
            "Name=nic Fil=/x Count=? File=[\nNodeName=[ Name=nic\nName=gpu File=/dev/nvidia0\n";
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
        let (line, fault) = resources_of(&multiple, "gpu", "n").unwrap_err();
        assert!(line == 2 && fault.contains("or of too many"), "{fault}");
    }

    #[test]
    fn random_files_have_the_indexes_of_their_expanded_lists() {
        let mut random = Random::new(5);
        for _ in 0..500 {
            let (mut text, mut next) = (String::new(), 0);
            let (mut expected, mut of_this_node) = (Vec::new(), Vec::new());
            for _ in 0..random.below(6) {
                let size = 1 + random.below(4);
                let names: Vec<_> = (next..next + size).map(|at| format!("/dev/x{at}")).collect();
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
