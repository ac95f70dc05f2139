//! What `gres.conf` says of one resource on one node (gres.conf(5)).

use std::path::Path;

use super::{GresFault, HostList};
use crate::device::slurm::{At, Line, Text, joined};

/// Most files of one resource name.
pub(super) const FILES_MAX: usize = 1024;
/// The keys of a record.
pub(super) const KEYS: [&str; 13] = [
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

/// The records of one resource name that count on one node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GresConf {
    records: Vec<Record>,
    everywhere: Option<bool>,
    here: Option<bool>,
}

/// One resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resource<'a> {
    /// Its type; empty where the record gives none.
    pub kind: &'a str,
    /// Its files below `/dev`; none where the record only counts.
    pub files: &'a [String],
    /// Where its record stands.
    pub at: &'a At,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Record {
    at: At,
    kind: String,
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
    /// Reads what the text of `gres.conf` says of the resource `name` on the node `node`. Of the
    /// records of other names and other nodes nothing matters but that their lines can be read.
    ///
    /// # Errors
    /// The number of the line at fault, and what is wrong with it. There is no answer then, since
    /// indexes count across lines.
    pub fn parse(text: &str, name: &str, node: &str) -> Result<Self, (usize, GresFault)> {
        let at = |line| At { file: Path::new("").into(), line };
        let texts = joined(text).into_iter().map(|(line, text)| Text { at: at(line), text });
        let conf = Self::of(&texts.collect::<Vec<_>>(), name, node);
        conf.map_err(|(at, fault)| (at.line, fault))
    }

    /// The same by the lines of the file and of what it includes.
    ///
    /// # Errors
    /// As [`GresConf::parse`], with where the line stands.
    pub fn of(texts: &[Text], name: &str, node: &str) -> Result<Self, (At, GresFault)> {
        let mut conf = Self::default();
        for text in texts {
            let fault = |fault| (text.at.clone(), fault);
            let line = text.pairs().map_err(|why| fault(GresFault::Line(why)))?;
            conf.line(&line, name, node).map_err(fault)?;
        }
        Ok(conf)
    }

    /// Whether Slurm looks for the GPUs of the node itself. What is said for the node goes before
    /// what is said for all; where both ways are said, it counts as on.
    #[must_use]
    pub fn auto_detect(&self) -> bool {
        self.here.or(self.everywhere).unwrap_or(false)
    }

    /// The first record of another type than the one before it. Slurm takes the types in the
    /// order in which `Gres=` of `slurm.conf` has them, and leaves out those that it has not.
    #[must_use]
    pub fn other_type(&self) -> Option<&At> {
        let pairs = self.records.iter().zip(self.records.iter().skip(1));
        let mut others = pairs.filter(|(one, next)| !one.kind.eq_ignore_ascii_case(&next.kind));
        others.next().map(|(_, other)| &other.at)
    }

    /// How many there are.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.records.iter().fold(0, |count, record| count.saturating_add(record.has.count()))
    }

    /// The resource with this index, from 0: the records in the order of their lines, their files
    /// in the order in which they are listed.
    #[must_use]
    pub fn resource(&self, index: u64) -> Option<Resource<'_>> {
        let mut left = index;
        for record in &self.records {
            let count = record.has.count();
            if left < count {
                let files = record.has.files(left)?;
                return Some(Resource { kind: &record.kind, files, at: &record.at });
            }
            left -= count;
        }
        None
    }

    fn line(&mut self, line: &Line, name: &str, node: &str) -> Result<(), GresFault> {
        let asked = match line.value("Name") {
            Some(own) => own.eq_ignore_ascii_case(name),
            None => true,
        };
        let auto_detect = line.value("AutoDetect");
        if !asked && auto_detect.is_none() {
            return Ok(());
        }
        let nodes = list(line, "NodeName")?;
        if nodes.as_ref().is_some_and(|nodes| !names_node(nodes, node)) {
            return Ok(());
        }
        if let Some(value) = auto_detect {
            let on = !value.eq_ignore_ascii_case("off");
            let said = if nodes.is_some() { &mut self.here } else { &mut self.everywhere };
            *said = Some(said.unwrap_or(false) || on);
        }
        match line.value("Name") {
            Some(_) if asked => self.record(line),
            None if auto_detect.is_none() => Err(GresFault::NoName),
            _ => Ok(()),
        }
    }

    fn record(&mut self, line: &Line) -> Result<(), GresFault> {
        let known = |key: &&str| KEYS.iter().any(|known| known.eq_ignore_ascii_case(key));
        if let Some(key) = line.keys().find(|key| !known(key)) {
            return Err(GresFault::Unknown(key.to_owned()));
        }
        let kind = line.value("Type").unwrap_or_default().to_owned();
        let count = line.value("Count").map_or(Ok(1), count)?;
        let has = match (
            self.files(line, "File")?,
            self.files(line, "Files")?,
            self.files(line, "MultipleFiles")?,
        ) {
            (Some(files), None, None) | (None, Some(files), None) => self.apart(files)?,
            (None, None, Some(files)) => Has::Together(files),
            (None, None, None) => Has::Counted(count),
            _ => return Err(GresFault::Both),
        };
        self.records.push(Record { at: line.at.clone(), kind, has });
        Ok(())
    }

    /// The files of a key, as many as the name may still have.
    fn files(&self, line: &Line, key: &'static str) -> Result<Option<Vec<String>>, GresFault> {
        let Some(list) = list(line, key)? else { return Ok(None) };
        let known: usize = self.records.iter().map(|record| record.has.all().len()).sum();
        let files = list.names(FILES_MAX.saturating_sub(known));
        let files = files.map_err(|error| GresFault::List(key, error))?;
        let outside =
            |file: &&String| !file.starts_with("/dev/") || file.split('/').any(|part| part == "..");
        match files.iter().find(outside) {
            Some(file) => Err(GresFault::Outside(file.clone())),
            None => Ok(Some(files)),
        }
    }

    /// Files of which each is an index of its own. One that has two would shift those behind it,
    /// one way here and perhaps another in Slurm.
    fn apart(&self, files: Vec<String>) -> Result<Has, GresFault> {
        for (at, file) in files.iter().enumerate() {
            let before = files.iter().take(at).chain(self.records.iter().flat_map(Record::apart));
            if before.into_iter().any(|known| known == file) {
                return Err(GresFault::Again(file.clone()));
            }
        }
        Ok(Has::Each(files))
    }
}

impl Record {
    fn apart(&self) -> &[String] {
        match &self.has {
            Has::Each(files) => files,
            Has::Together(_) | Has::Counted(_) => &[],
        }
    }
}

impl Has {
    fn count(&self) -> u64 {
        match self {
            Self::Each(files) => files.len() as u64,
            Self::Together(_) => 1,
            Self::Counted(count) => *count,
        }
    }

    fn all(&self) -> &[String] {
        match self {
            Self::Each(files) | Self::Together(files) => files,
            Self::Counted(_) => &[],
        }
    }

    fn files(&self, index: u64) -> Option<&[String]> {
        match self {
            Self::Each(files) => files.get(usize::try_from(index).ok()?).map(std::slice::from_ref),
            Self::Together(_) | Self::Counted(_) => Some(self.all()),
        }
    }
}

pub(super) fn list(line: &Line, key: &'static str) -> Result<Option<HostList>, GresFault> {
    let list = line.value(key).map(HostList::parse).transpose();
    list.map_err(|error| GresFault::List(key, error))
}

/// Whether a list has the node's name, whole or up to its first dot.
pub(super) fn names_node(nodes: &HostList, node: &str) -> bool {
    let short = node.split('.').next().unwrap_or(node);
    nodes.contains(node) || nodes.contains(short)
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
