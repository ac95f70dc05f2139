//! What `gres.conf` says of the resources of one node (gres.conf(5)).

use std::collections::BTreeSet;
use std::path::Path;

use super::{GresFault, HostList};
use crate::device::slurm::{At, Line, Text, joined};

/// Most files of one resource name.
pub(super) const FILES_MAX: usize = 1024;
/// The keys of a record.
const KEYS: [&str; 13] = [
    "AutoDetect",
    "Count",
    "CPUs",
    "Cores",
    "File",
    "Files",
    "Flags",
    "Link",
    "Links",
    "MultipleFiles",
    "Name",
    "NodeName",
    "Type",
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
    here: Result<bool, GresFault>,
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

/// Which indexes a record gives.
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
    ///
    /// # Errors
    /// The number of the line at fault, and what is wrong with it.
    pub fn parse(text: &str, node: &str) -> Result<Self, (usize, GresFault)> {
        let at = |line| At { file: Path::new("").into(), line };
        let texts = joined(text).into_iter().map(|(line, text)| Text { at: at(line), text });
        let conf = Self::of(&texts.collect::<Vec<_>>(), node);
        conf.map_err(|(at, fault)| (at.line, fault))
    }

    /// The same by the lines of the file and of what it includes.
    ///
    /// Slurm takes all records without `NodeName=` first, then those with it (`gres.c`, which reads
    /// two arrays one after the other), so that the indexes of a name do not follow the lines.
    ///
    /// # Errors
    /// Where the line stands, and what is wrong with it.
    pub fn of(texts: &[Text], node: &str) -> Result<Self, (At, GresFault)> {
        let mut conf = Self::default();
        for text in texts {
            let fault = |fault| (text.at.clone(), fault);
            let line = text.pairs().map_err(|why| fault(GresFault::Line(why)))?;
            conf.take(line, node).map_err(fault)?;
        }
        conf.lines.sort_by_key(|line| line.here != Ok(false));
        Ok(conf)
    }

    /// Whether Slurm looks for the GPUs of the node itself. What is said for the node goes before
    /// what is said for all; where both ways are said, it counts as on.
    #[must_use]
    pub fn auto_detect(&self) -> bool {
        self.here.or(self.everywhere).unwrap_or(false)
    }

    /// The records of the resource `name`. Those of other names do not matter.
    ///
    /// # Errors
    /// The record at fault. There is no answer then, since indexes count across records.
    pub fn resources(&self, name: &str) -> Result<Resources, (At, GresFault)> {
        let is_asked = |line: &&NodeLine| line.name().is_some_and(|own| is(own, name));
        let (mut found, mut files) = (Resources::default(), 0);
        for line in self.lines.iter().filter(is_asked) {
            let Some(record) = line.record(FILES_MAX.saturating_sub(files))? else { continue };
            if let Some(file) = found.again(&record) {
                return Err((record.at.clone(), GresFault::Again(file.to_owned())));
            }
            files += record.files().len();
            found.0.push(record);
        }
        Ok(found)
    }

    /// The records of all names.
    pub fn records(&self) -> impl Iterator<Item = Result<Record, (At, GresFault)>> {
        self.lines.iter().filter_map(|line| line.record(FILES_MAX).transpose())
    }

    fn take(&mut self, line: Line, node: &str) -> Result<(), GresFault> {
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
            return Err(GresFault::NoName);
        }
        self.lines.push(NodeLine { line, here });
        Ok(())
    }
}

impl Resources {
    /// The first record of another type than the one before it. Slurm takes the types in the
    /// order in which `Gres=` of `slurm.conf` has them, and leaves out those that it has not.
    #[must_use]
    pub fn other_type(&self) -> Option<&At> {
        let pairs = self.0.iter().zip(self.0.iter().skip(1));
        let mut others = pairs.filter(|(one, next)| !is(&one.kind, &next.kind));
        others.next().map(|(_, other)| &other.at)
    }

    /// How many there are.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.0.iter().fold(0, |count, record| count.saturating_add(record.count()))
    }

    /// The resource with this index, from 0, by its record and its files: the records in their
    /// order, their files in the order in which they are listed.
    #[must_use]
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
    fn record(&self, most: usize) -> Result<Option<Record>, (At, GresFault)> {
        let record = self.here.clone().and_then(|_| Record::of(&self.line, most));
        record.map_err(|fault| (self.line.at.clone(), fault))
    }
}

impl Record {
    fn of(line: &Line, most: usize) -> Result<Option<Self>, GresFault> {
        if let Some(key) = line.keys().find(|key| !KEYS.iter().any(|known| is(known, key))) {
            return Err(GresFault::Unknown(key.to_owned()));
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
            _ => return Err(GresFault::Both),
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

    /// All its files.
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
fn for_node(line: &Line, node: &str) -> Result<Option<bool>, GresFault> {
    let Some(nodes) = list(line, "NodeName")? else { return Ok(Some(false)) };
    if !line.keys().next().is_some_and(|first| is(first, "NodeName")) {
        return Err(GresFault::NodeName);
    }
    // Whole, or up to its first dot.
    let short = node.split('.').next().unwrap_or(node);
    Ok((nodes.contains(node) || nodes.contains(short)).then_some(true))
}

/// The files of a key.
fn files(line: &Line, key: &'static str, most: usize) -> Result<Option<Vec<String>>, GresFault> {
    let Some(list) = list(line, key)? else { return Ok(None) };
    let files = list.names(most).map_err(|error| GresFault::List(key, error))?;
    let outside =
        |file: &&String| !file.starts_with("/dev/") || file.split('/').any(|part| part == "..");
    match files.iter().find(outside) {
        Some(file) => Err(GresFault::Outside(file.clone())),
        None => Ok(Some(files)),
    }
}

fn list(line: &Line, key: &'static str) -> Result<Option<HostList>, GresFault> {
    let list = line.value(key).map(HostList::parse).transpose();
    list.map_err(|error| GresFault::List(key, error))
}

/// A number, or one of multiples of 1,024 by the letter behind it.
fn count(text: &str) -> Result<u64, GresFault> {
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let shift = match text.get(digits.len()..).unwrap_or_default() {
        "" => 0,
        "k" | "K" => 10,
        "m" | "M" => 20,
        "g" | "G" => 30,
        "t" | "T" => 40,
        "p" | "P" => 50,
        _ => return Err(GresFault::Count),
    };
    let plain = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    let number: Option<u64> = plain.then(|| digits.parse().ok()).flatten();
    number.and_then(|number| number.checked_mul(1 << shift)).ok_or(GresFault::Count)
}

#[cfg(test)]
mod tests;
