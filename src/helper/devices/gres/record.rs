//! The records of `gres.conf`: the resources of one line, and those of one name.

use super::dialect::Dialect;
use super::fault::{FaultyRecord, RecordFault};
use super::hostlist::HostList;
use crate::slurm_conf::{ConfPosition, KeyValues};

/// The keys of a record after its first one in every release (`_gres_options` in `gres.c`).
const RECORD_KEYS: [&str; 12] = [
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
    "Type",
];

/// Resources that may have any `Count=` beside their files.
const SHARING_NAMES: [&str; 2] = ["mps", "shard"];

/// The records of one resource name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resources(pub(super) Vec<GresRecord>);

impl Resources {
    /// Tells whether the records have several types. Slurm takes types in the order of `Gres=` in
    /// `slurm.conf`, and leaves out those that are missing there.
    pub fn has_several_types(&self) -> bool {
        let Some((first, others)) = self.0.split_first() else {
            return false;
        };
        others
            .iter()
            .any(|other| !eq_ignoring_case(&first.kind, &other.kind))
    }

    /// Checks what slurmd checks for each record, and for the records of one name together
    /// (`_foreach_gres_conf`). Records in slurmd's own report need no check.
    ///
    /// # Errors
    ///
    /// The first record that slurmd refuses, and its fault.
    pub fn check_as_slurmd(&self) -> Result<(), FaultyRecord> {
        let Some((first, others)) = self.0.split_first() else {
            return Ok(());
        };
        self.0.iter().try_for_each(GresRecord::check_as_slurmd)?;
        for other in others {
            if other.has_file() != first.has_file() {
                return Err(other.faulty(RecordFault::MixedFiles));
            }
            if first.kind.is_empty() != other.kind.is_empty() {
                return Err(other.faulty(RecordFault::MixedTypes));
            }
            // The first record has neither files nor a type, and so has the other one: both only count.
            if !first.has_file() && first.kind.is_empty() {
                return Err(other.faulty(RecordFault::RepeatedCount));
            }
        }
        Ok(())
    }

    /// The records in the order of their indexes.
    pub fn records(&self) -> &[GresRecord] {
        &self.0
    }

    /// Counts the resources.
    pub fn count(&self) -> u64 {
        self.0
            .iter()
            .fold(0, |count, record| count.saturating_add(record.count()))
    }

    /// Finds record and files of the resource with this index, from 0; `None` if there are fewer resources. Indexes
    /// follow the order of the records, and in a record the order of its files.
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
    /// True if Slurm only counts the resources and keeps no device from a job.
    pub is_count_only: bool,
    files: ResourceFiles,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum ResourceFiles {
    /// Each file is one resource.
    OnePerResource(Vec<String>),
    /// All files together are one resource.
    AllForOne(Vec<String>),
    /// This many resources with an empty list of files.
    EmptyList(u64),
    /// This many resources without files.
    CountOnly(u64),
}

impl GresRecord {
    /// Parses a record of the resource `name`, with at most `max` files.
    ///
    /// # Errors
    ///
    /// The first fault for which slurmd refuses the record, or a list beyond the bounds.
    pub(super) fn parse(
        line: &KeyValues,
        name: &str,
        max: usize,
        dialect: Dialect,
    ) -> Result<Self, RecordFault> {
        check_form(line, dialect)?;
        let kind = line.value("Type").unwrap_or_default().to_owned();
        let count = line.value("Count").map(parse_count).transpose()?;
        // `Files=` is another spelling of `File=`, and is ignored beside it.
        let file_list = match parse_files(line, "File", max, dialect)? {
            Some(files) => Some(files),
            None => parse_files(line, "Files", max, dialect)?,
        };
        let multiple_files = parse_files(line, "MultipleFiles", max, dialect)?;
        let later_key = line.later_keys().find(|key| dialect.has_later_key(key));
        let files = match (file_list, multiple_files) {
            (Some(_), Some(_)) => return Err(RecordFault::SeveralLists),
            (Some(files), None) if files.is_empty() => ResourceFiles::EmptyList(count.unwrap_or(1)),
            (Some(files), None) => ResourceFiles::OnePerResource(files),
            (None, Some(files)) => ResourceFiles::AllForOne(files),
            (None, None) => match later_key {
                Some(key) => return Err(RecordFault::DeviceByOtherKey(key.to_owned())),
                None => ResourceFiles::CountOnly(count.unwrap_or(1)),
            },
        };
        let flags = line.value("Flags").unwrap_or_default().to_ascii_lowercase();
        let is_count_only = flags.contains("countonly");
        let record = Self {
            at: line.at.clone(),
            name: name.to_owned(),
            kind,
            is_count_only,
            files,
        };
        let is_sharing = SHARING_NAMES
            .iter()
            .any(|sharing| eq_ignoring_case(sharing, name));
        if count.is_some_and(|count| count != record.count()) && !is_sharing {
            return Err(RecordFault::WrongCount);
        }
        Ok(record)
    }

    /// Checks that `MultipleFiles=` has several.
    ///
    /// # Errors
    ///
    /// The record, with its fault.
    pub fn check_as_slurmd(&self) -> Result<(), FaultyRecord> {
        match &self.files {
            ResourceFiles::AllForOne(files) if files.len() < 2 => {
                Err(self.faulty(RecordFault::SingleFile))
            }
            _ => Ok(()),
        }
    }

    /// Describes a fault of this record.
    pub(super) fn faulty(&self, fault: RecordFault) -> FaultyRecord {
        FaultyRecord {
            at: self.at.clone(),
            name: self.name.clone(),
            fault,
        }
    }

    /// The number of resources of the record.
    fn count(&self) -> u64 {
        match &self.files {
            ResourceFiles::OnePerResource(files) => files.len() as u64,
            ResourceFiles::AllForOne(_) => 1,
            ResourceFiles::EmptyList(count) | ResourceFiles::CountOnly(count) => *count,
        }
    }

    /// Tells whether the record has a key for files, even with an empty list.
    fn has_file(&self) -> bool {
        !matches!(self.files, ResourceFiles::CountOnly(_))
    }

    /// Lists all files of the record.
    pub(super) fn files(&self) -> &[String] {
        match &self.files {
            ResourceFiles::OnePerResource(files) | ResourceFiles::AllForOne(files) => files,
            ResourceFiles::EmptyList(_) | ResourceFiles::CountOnly(_) => &[],
        }
    }

    /// Lists the files of each resource that has any.
    pub fn file_groups(&self) -> Vec<&[String]> {
        match &self.files {
            ResourceFiles::OnePerResource(files) => files.chunks(1).collect(),
            ResourceFiles::AllForOne(files) => vec![files],
            ResourceFiles::EmptyList(_) | ResourceFiles::CountOnly(_) => Vec::new(),
        }
    }

    /// Lists the first file of each resource.
    pub(super) fn first_files(&self) -> &[String] {
        match &self.files {
            ResourceFiles::AllForOne(files) => files.get(..1).unwrap_or_default(),
            _ => self.files(),
        }
    }

    /// Lists the files that are one resource each.
    pub(super) fn single_files(&self) -> &[String] {
        match &self.files {
            ResourceFiles::OnePerResource(files) => files,
            _ => &[],
        }
    }

    /// Lists the files of the resource with this index in the record: one file, all of `MultipleFiles=`, or none.
    /// `None` past the last file.
    fn files_at(&self, index: u64) -> Option<&[String]> {
        match &self.files {
            ResourceFiles::OnePerResource(files) => files
                .get(usize::try_from(index).ok()?)
                .map(std::slice::from_ref),
            _ => Some(self.files()),
        }
    }
}

/// Tells whether two words are the same to Slurm.
pub(super) fn eq_ignoring_case(one: &str, other: &str) -> bool {
    one.eq_ignore_ascii_case(other)
}

/// Checks that a record has keys only that its slurmd knows, and no text that belongs to none. Slurmd refuses the
/// file otherwise.
pub(super) fn check_form(line: &KeyValues, dialect: Dialect) -> Result<(), RecordFault> {
    for key in line.later_keys() {
        let is_known = RECORD_KEYS.iter().any(|known| eq_ignoring_case(known, key));
        if !is_known && !dialect.has_later_key(key) {
            return Err(unknown_key(key));
        }
    }
    Ok(line.require_complete()?)
}

/// The fault of a key that a record does not have, or not in that place.
pub(super) fn unknown_key(key: &str) -> RecordFault {
    if eq_ignoring_case(key, "NodeName") {
        return RecordFault::LateNodeName;
    }
    RecordFault::UnknownKey(key.to_owned())
}

/// Parses the list of files under a key; `None` without the key.
///
/// # Errors
///
/// A list that is malformed or has more than `max` files, and a file outside of `/dev`.
pub(super) fn parse_files(
    line: &KeyValues,
    key: &'static str,
    max: usize,
    dialect: Dialect,
) -> Result<Option<Vec<String>>, RecordFault> {
    let Some(value) = line.value(key) else {
        return Ok(None);
    };
    let files = HostList::parse(value, dialect.file_list_syntax())
        .and_then(|list| list.expand(max))
        .map_err(|error| RecordFault::InvalidList(key, error))?;
    for file in &files {
        if !file.starts_with("/dev/") || file.split('/').any(|part| part == "..") {
            return Err(RecordFault::FileOutsideDev(file.clone()));
        }
    }
    Ok(Some(files))
}

/// Parses a number with a suffix, as Slurm does (`suffix_mult`): `k` and `KiB` multiply it by 1,024, `kB` by 1,000;
/// likewise m, g, t and p, in any case.
pub(super) fn parse_count(text: &str) -> Result<u64, RecordFault> {
    let signed = text.trim_start();
    let unsigned = signed.strip_prefix('+').unwrap_or(signed);
    let end = unsigned
        .find(|letter: char| !letter.is_ascii_digit())
        .unwrap_or(unsigned.len());
    let (digits, suffix) = unsigned.split_at(end);
    let (power, base): (u32, u64) = match suffix.to_ascii_lowercase().as_str() {
        "" => (0, 1024),
        "k" | "kib" => (1, 1024),
        "m" | "mib" => (2, 1024),
        "g" | "gib" => (3, 1024),
        "t" | "tib" => (4, 1024),
        "p" | "pib" => (5, 1024),
        "kb" => (1, 1000),
        "mb" => (2, 1000),
        "gb" => (3, 1000),
        "tb" => (4, 1000),
        "pb" => (5, 1000),
        _ => return Err(RecordFault::InvalidCount),
    };
    // As strtoll(3): no digits are 0.
    let number: u64 = match digits {
        "" => 0,
        digits => digits.parse().map_err(|_| RecordFault::InvalidCount)?,
    };
    number
        .checked_mul(base.pow(power))
        .ok_or(RecordFault::InvalidCount)
}
