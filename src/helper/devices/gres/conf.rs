//! What `gres.conf` says of the resources of one node (gres.conf(5)).

use std::collections::BTreeSet;
use std::path::Path;

use super::HostList;
use crate::helper::devices::slurm::{At, Line, Text, joined};

/// Most files of one resource name.
pub(super) const FILES_MAX: usize = 1024;
const KEYS: [&str; 13] = [
    "AutoDetect", "Count", "CPUs", "Cores", "File", "Files", "Flags", "Link", "Links",
    "MultipleFiles", "Name", "NodeName", "Type",
];

/// The lines of the file that count on one node, in the order in which Slurm takes them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GresConf {
    lines: Vec<NodeLine>,
    everywhere: Option<bool>,
    here: Option<bool>,
}

/// The records of one resource name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resources(Vec<Record>);

/// A line with what its `NodeName=` means.
#[derive(Clone, Debug, PartialEq, Eq)]
struct NodeLine {
    line: Line,
    /// Whether it names this node, and not every one.
    here: Result<bool, String>,
}

/// What stands in one line: resources of one name and type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Where it stands.
    pub at: At,
    /// The name of the resource.
    pub name: String,
    /// Its type; empty where the record gives none.
    pub kind: String,
    has: Has,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Has {
    /// Each file is one.
    Each(Vec<String>),
    /// All files together are one.
    Together(Vec<String>),
    /// So many, of which no file is known.
    Counted(u64),
}

impl GresConf {
    /// Reads what the text of `gres.conf` says of the node `node`.
    /// Fails: the number of the line at fault, and what is wrong with it.
    pub fn parse(text: &str, node: &str) -> Result<Self, (usize, String)> {
        let at = |line| At { file: Path::new("").into(), line };
        let texts = joined(text).into_iter().map(|(line, text)| Text { at: at(line), text });
        let conf = Self::of(&texts.collect::<Vec<_>>(), node);
        conf.map_err(|(at, fault)| (at.line, fault))
    }

    /// The same by the lines of the file and of what it includes.
    ///
    /// Slurm takes all records without `NodeName=` first, then those with it (`gres.c`, which reads
    /// two arrays one after the other), so that the indexes of a name do not follow the lines.
    /// Fails: where the line stands, and what is wrong with it.
    pub fn of(texts: &[Text], node: &str) -> Result<Self, (At, String)> {
        let mut conf = Self::default();
        for text in texts {
            let fault = |fault| (text.at.clone(), fault);
            let line = text.pairs().map_err(fault)?;
            conf.take(line, node).map_err(fault)?;
        }
        conf.lines.sort_by_key(|line| line.here != Ok(false));
        Ok(conf)
    }

    /// Whether Slurm looks for the GPUs of the node itself. What is said for the node goes before
    /// what is said for all; where both ways are said, it counts as on.
    pub fn auto_detect(&self) -> bool {
        self.here.or(self.everywhere).unwrap_or(false)
    }

    /// The records of the resource `name`. Those of other names do not matter.
    /// Fails: the record at fault. There is no answer then, since indexes count across records.
    pub fn resources(&self, name: &str) -> Result<Resources, (At, String)> {
        let is_asked = |line: &&NodeLine| line.name().is_some_and(|own| is(own, name));
        let (mut found, mut files) = (Resources::default(), 0);
        for line in self.lines.iter().filter(is_asked) {
            let Some(record) = line.record(FILES_MAX.saturating_sub(files))? else { continue };
            if let Some(file) = found.again(&record) {
                return Err((record.at.clone(), format!("{file} stands in two records")));
            }
            files += record.files().len();
            found.0.push(record);
        }
        Ok(found)
    }

    /// The records of all names.
    pub fn records(&self) -> impl Iterator<Item = Result<Record, (At, String)>> {
        self.lines.iter().filter_map(|line| line.record(FILES_MAX).transpose())
    }

    fn take(&mut self, line: Line, node: &str) -> Result<(), String> {
        let here = match for_node(&line, node) {
            Ok(None) => return Ok(()),
            Ok(Some(here)) => Ok(here),
            Err(fault) => Err(fault),
        };
        if let Some(value) = line.value("AutoDetect") {
            let on = !is(value, "off");
            let said = if here.clone()? { &mut self.here } else { &mut self.everywhere };
            *said = Some(said.unwrap_or(false) || on);
        } else if line.value("Name").is_none() {
            here.clone()?;
            return Err("neither Name= nor AutoDetect=".to_owned());
        }
        self.lines.push(NodeLine { line, here });
        Ok(())
    }
}

impl Resources {
    /// Whether they are of several types. Slurm takes these in the order in which `Gres=` of
    /// `slurm.conf` has them, and leaves out those that it has not.
    pub fn several_types(&self) -> bool {
        self.0.first().is_some_and(|first| self.0.iter().any(|other| !is(&first.kind, &other.kind)))
    }

    /// How many there are.
    pub fn count(&self) -> u64 {
        self.0.iter().fold(0, |count, record| count.saturating_add(record.count()))
    }

    /// The resource with this index, from 0, by its record and its files: the records in their
    /// order, their files in the order in which they are listed.
    pub fn resource(&self, index: u64) -> Option<(&Record, &[String])> {
        let mut left = index;
        for record in &self.0 {
            let count = record.count();
            if left < count {
                return Some((record, record.files_of(left)?));
            }
            left -= count;
        }
        None
    }

    /// A file of a record's that is an index already. It would shift those behind it, one way here
    /// and perhaps another in Slurm.
    fn again<'a>(&self, record: &'a Record) -> Option<&'a str> {
        let files = record.apart();
        let mut known = self.0.iter().flat_map(Record::apart).collect::<BTreeSet<_>>();
        files.iter().find(|file| !known.insert(file)).map(String::as_str)
    }
}

impl NodeLine {
    fn name(&self) -> Option<&str> {
        self.line.value("Name")
    }

    /// The record of the line, with no more files than `most`; none where it says only how GPUs are
    /// found.
    fn record(&self, most: usize) -> Result<Option<Record>, (At, String)> {
        let record = self.here.clone().and_then(|_| Record::of(&self.line, most));
        record.map_err(|fault| (self.line.at.clone(), fault))
    }
}

impl Record {
    fn of(line: &Line, most: usize) -> Result<Option<Self>, String> {
        if let Some(key) = line.keys().find(|key| !KEYS.iter().any(|known| is(known, key))) {
            return Err(format!("unknown key {key}"));
        }
        let Some(name) = line.value("Name") else { return Ok(None) };
        let kind = line.value("Type").unwrap_or_default().to_owned();
        let count = line.value("Count").map_or(Ok(1), count)?;
        let has = match (
            files(line, "File", most)?,
            files(line, "Files", most)?,
            files(line, "MultipleFiles", most)?,
        ) {
            (Some(files), None, None) | (None, Some(files), None) => Has::Each(files),
            (None, None, Some(files)) => Has::Together(files),
            (None, None, None) => Has::Counted(count),
            _ => return Err("File=, Files= and MultipleFiles= exclude each other".to_owned()),
        };
        Ok(Some(Self { at: line.at.clone(), name: name.to_owned(), kind, has }))
    }

    fn count(&self) -> u64 {
        match &self.has {
            Has::Each(files) => files.len() as u64,
            Has::Together(_) => 1,
            Has::Counted(count) => *count,
        }
    }

    pub(super) fn files(&self) -> &[String] {
        match &self.has {
            Has::Each(files) | Has::Together(files) => files,
            Has::Counted(_) => &[],
        }
    }

    /// Of each of its resources the first file.
    pub(super) fn first_files(&self) -> &[String] {
        match &self.has {
            Has::Together(files) => files.get(..1).unwrap_or_default(),
            Has::Each(_) | Has::Counted(_) => self.files(),
        }
    }

    /// The files of which each is a resource of its own.
    fn apart(&self) -> &[String] {
        match &self.has {
            Has::Each(files) => files,
            Has::Together(_) | Has::Counted(_) => &[],
        }
    }

    fn files_of(&self, index: u64) -> Option<&[String]> {
        match &self.has {
            Has::Each(files) => files.get(usize::try_from(index).ok()?).map(std::slice::from_ref),
            Has::Together(_) | Has::Counted(_) => Some(self.files()),
        }
    }
}

/// Whether two words are the same to Slurm.
fn is(one: &str, other: &str) -> bool {
    one.eq_ignore_ascii_case(other)
}

/// Whether a line names this node, and not every one; `None` where it names others only.
fn for_node(line: &Line, node: &str) -> Result<Option<bool>, String> {
    let Some(nodes) = list(line, "NodeName")? else { return Ok(Some(false)) };
    if !line.keys().next().is_some_and(|first| is(first, "NodeName")) {
        let why = "NodeName= must be the first key, or Slurm takes the record for every node";
        return Err(why.to_owned());
    }
    // Whole, or up to its first dot.
    let short = node.split('.').next().unwrap_or(node);
    Ok((nodes.contains(node) || nodes.contains(short)).then_some(true))
}

fn files(line: &Line, key: &'static str, most: usize) -> Result<Option<Vec<String>>, String> {
    let Some(list) = list(line, key)? else { return Ok(None) };
    let files = list.names(most).map_err(|error| format!("{key}=: {error}"))?;
    let outside =
        |file: &&String| !file.starts_with("/dev/") || file.split('/').any(|part| part == "..");
    match files.iter().find(outside) {
        Some(file) => Err(format!("{file} is not below /dev")),
        None => Ok(Some(files)),
    }
}

fn list(line: &Line, key: &'static str) -> Result<Option<HostList>, String> {
    let list = line.value(key).map(HostList::parse).transpose();
    list.map_err(|error| format!("{key}=: {error}"))
}

fn no_number() -> String {
    "Count= is not a number".to_owned()
}

/// A number, or one of multiples of 1,024 by the letter behind it.
fn count(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let shift = match text.get(digits.len()..).unwrap_or_default() {
        "" => 0,
        "k" | "K" => 10,
        "m" | "M" => 20,
        "g" | "G" => 30,
        "t" | "T" => 40,
        "p" | "P" => 50,
        _ => return Err(no_number()),
    };
    let plain = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    let number: Option<u64> = plain.then(|| digits.parse().ok()).flatten();
    number.and_then(|number| number.checked_mul(1 << shift)).ok_or_else(no_number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Random;

    fn named(text: &str, name: &str, node: &str) -> Result<Resources, (usize, String)> {
        GresConf::parse(text, node)?.resources(name).map_err(|(at, fault)| (at.line, fault))
    }

    fn conf(text: &str, node: &str) -> Resources {
        named(text, "gpu", node).unwrap()
    }

    /// The files of each index.
    fn files(conf: &Resources) -> Vec<Vec<&str>> {
        let resources = (0..conf.count()).map(|index| conf.resource(index).unwrap());
        resources.map(|(_, files)| files.iter().map(String::as_str).collect()).collect()
    }

    #[test]
    fn each_file_is_an_index_and_lines_go_on_counting() {
        let text = "NAME=gpu type=a100 FILE=/dev/nvidia[0,2-3] Cores=0-7\n\
                Name=nic File=/dev/nic0 Strange=1\n\
                Name=GPU Type=h100 Files=/dev/nvidia1 Count=1 Flags=nvidia_gpu_env\n";
        let conf = conf(text, "n1");
        let expected = ["/dev/nvidia0", "/dev/nvidia2", "/dev/nvidia3", "/dev/nvidia1"];
        assert_eq!(files(&conf), expected.map(|file| vec![file]));
        let kinds: Vec<_> =
            (0..4).map(|index| conf.resource(index).unwrap().0.kind.as_str()).collect();
        assert_eq!(kinds, ["a100", "a100", "a100", "h100"]);
        assert_eq!(conf.resource(3).unwrap().0.at.line, 3);
        assert_eq!(conf.resource(4), None);
    }

    #[test]
    fn a_record_of_multiple_files_is_one_index() {
        let text = "Name=gpu Type=1g.5gb MultipleFiles=/dev/nvidia0,/dev/nvidia-caps/nvidia-cap[21-22]\n\
                Name=gpu Type=1g.5gb MultipleFiles=/dev/nvidia0,/dev/nvidia-caps/nvidia-cap[30-31]\n\
                Name=gpu Type=a100 File=/dev/nvidia1\n";
        let expected = [
            vec!["/dev/nvidia0", "/dev/nvidia-caps/nvidia-cap21", "/dev/nvidia-caps/nvidia-cap22"],
            vec!["/dev/nvidia0", "/dev/nvidia-caps/nvidia-cap30", "/dev/nvidia-caps/nvidia-cap31"],
            vec!["/dev/nvidia1"],
        ];
        assert_eq!(files(&conf(text, "n1")), expected);
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
            assert_eq!(files(&conf(text, node)), expected, "{node}");
        }
        assert!(named(text, "gpu", "gpu004").is_err());
    }

    /// Else index 0 here would be another job's GPU there.
    #[test]
    fn records_for_every_node_come_first_as_in_slurm() {
        let text = "NodeName=tux3 Name=gpu File=/dev/nvidia2\nName=gpu File=/dev/nvidia[0-1]\n\
                NodeName=tux3 Name=gpu File=/dev/nvidia4\nName=gpu File=/dev/nvidia3\n";
        let order = [0, 1, 3, 2, 4].map(|index| vec![format!("/dev/nvidia{index}")]);
        assert_eq!(files(&conf(text, "tux3")), order);
    }

    #[test]
    fn a_name_of_a_node_behind_another_key_is_refused() {
        for text in ["Name=gpu NodeName=n2 File=/dev/nvidia0", "Name=gpu File=/dev/x nodename=n1"] {
            let (line, fault) = named(text, "gpu", "n1").unwrap_err();
            assert!(line == 1 && fault.starts_with("NodeName= must be the first key"), "{text}");
            assert_eq!(named(text, "nic", "n1").unwrap().count(), 0, "{text}");
        }
        let text = "AutoDetect=nvml NodeName=n1";
        let (line, fault) = GresConf::parse(text, "n1").unwrap_err();
        assert!(line == 1 && fault.starts_with("NodeName= must be the first key"), "{fault}");
    }

    #[test]
    fn names_that_share_a_file_are_counted_apart() {
        let text = "Name=gpu File=/dev/nvidia[0-1]\nName=shard Count=8 File=/dev/nvidia[0-1]\n";
        assert_eq!(conf(text, "n").count(), 2);
        assert_eq!(named(text, "shard", "n").unwrap().count(), 2);
        assert_eq!(named(text, "mps", "n").unwrap().count(), 0);
    }

    #[test]
    fn what_is_only_counted_has_indexes_and_no_files() {
        let conf = conf("Name=gpu Count=2\nName=gpu File=/dev/nvidia0\n", "n");
        assert_eq!(conf.count(), 3);
        assert!(conf.resource(1).unwrap().1.is_empty());
        assert_eq!(conf.resource(2).unwrap().1, ["/dev/nvidia0"]);
        let lots = named("Name=bandwidth Count=4G\n", "bandwidth", "n").unwrap();
        assert_eq!(lots.count(), 4 << 30);
    }

    #[test]
    fn auto_detect_is_off_where_the_node_says_so() {
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
            assert_eq!(GresConf::parse(text, "n1").unwrap().auto_detect(), on, "{text:?}");
        }
    }

    #[test]
    fn a_broken_line_of_the_name_is_an_error_with_its_number() {
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
            assert_eq!(named(&text, "gpu", "n1"), Err((3, fault.to_owned())), "{line}");
        }
    }

    #[test]
    fn a_broken_record_of_another_name_hides_nothing() {
        let text =
            "Name=nic Fil=/x Count=? File=[\nNodeName=[ Name=nic\nName=gpu File=/dev/nvidia0\n";
        assert_eq!(files(&conf(text, "n1")), [["/dev/nvidia0"]]);
    }

    #[test]
    fn files_of_a_name_are_bounded_over_all_its_records() {
        let text = "Name=gpu File=/dev/a[0-1023]\n";
        assert_eq!(conf(text, "n").count(), 1024);
        let more = format!("{text}Name=gpu File=/dev/b\n");
        let (line, fault) = named(&more, "gpu", "n").unwrap_err();
        assert!(line == 2 && fault.contains("or of too many"), "{fault}");
        let multiple = format!("{text}Name=gpu MultipleFiles=/dev/b\n");
        let (line, fault) = named(&multiple, "gpu", "n").unwrap_err();
        assert!(line == 2 && fault.contains("or of too many"), "{fault}");
    }

    #[test]
    fn random_files_give_the_indexes_that_their_lists_give_one_by_one() {
        let mut random = Random::new(5);
        for _ in 0..500 {
            let (mut text, mut next) = (String::new(), 0);
            let (mut expected, mut here) = (Vec::new(), Vec::new());
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
                        here.extend(names.into_iter().map(|name| vec![name]));
                    }
                }
            }
            expected.extend(here);
            assert_eq!(files(&conf(&text, "n1")), expected, "{text}");
        }
    }
}
