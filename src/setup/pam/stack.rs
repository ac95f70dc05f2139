//! A service's own file: what it has without our lines, and how it is written.

use super::lines::{self, Restored, decode, is_our_line};
use crate::file_change::{Content, FileChange, require_inside};
use command::disk;
use command::error::Error;
use command::output::Output;
use command::replace_file::replace_file;
use facts::rival_modules::{RIVAL_MODULES, module_name};
use helper::stack::{
    Entry, FileLine, Group, MODULE_FILES, parse_lines, read_entries_with, service_dirs,
};
use helper::stack::{find_module, find_module_folder};
use std::fs::{self, Metadata};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// The folder of the original files.
const ORIGINALS_DIR: &str = "var/lib/job-adopt/pam";

/// A service's own file.
#[derive(Debug)]
pub(crate) struct Stack<'a> {
    pub(super) root: &'a Path,
    pub(crate) service: String,
    /// The path of the file, which may not exist yet.
    pub(crate) path: PathBuf,
    /// The text of the file; if it does not exist, that of the distribution's file.
    pub(crate) text: Vec<u8>,
    /// Owner and mode of the file; `None` if it does not exist.
    pub(crate) meta: Option<Metadata>,
    /// The text of the distribution's own file, in another folder of libpam's; `None` if there is none.
    pub(crate) vendor_text: Option<Vec<u8>>,
}

impl<'a> Stack<'a> {
    /// Reads the site's file of the service, and the first file of the distribution, which libpam reads if the site
    /// has none.
    ///
    /// # Errors
    ///
    /// [`Error::Failed`] if there is neither, if the site's is a link, or if one cannot be read.
    pub(crate) fn read(root: &'a Path, service: &str) -> Result<Self, Error> {
        // libpam looks every service up in lower case.
        let service = service.to_ascii_lowercase();
        // libpam reads the site's folder first.
        let mut dirs = service_dirs(root).into_iter();
        let path = dirs
            .next()
            .unwrap_or_else(|| root.join("etc/pam.d"))
            .join(&service);
        let mut vendor_text = None;
        for dir in dirs {
            vendor_text = read_text(&dir.join(&service))?;
            if vendor_text.is_some() {
                break;
            }
        }
        let meta = fs::symlink_metadata(&path).ok();
        if meta.as_ref().is_some_and(|meta| !meta.is_file()) {
            let why = "is no regular file. Whatever made the link, as authselect does, would undo the \
                       change: have it make a file here, or put both lines into what it copies";
            return Err(Error::failed("change", path.display(), why));
        }
        let text = if meta.is_some() {
            read_text(&path)?
        } else {
            vendor_text.clone()
        };
        let Some(text) = text else {
            let why = "is not there, so the service has no stack";
            return Err(Error::failed("change", path.display(), why));
        };
        Ok(Self {
            root,
            service,
            path,
            text,
            meta,
            vendor_text,
        })
    }

    /// The error for a stack that cannot be changed, with the cause.
    pub(super) fn refusal(&self, cause: impl std::fmt::Display) -> Error {
        Error::failed("change", self.path.display(), cause)
    }

    /// Whether a line is in another file, which other services use too and which may grow.
    pub(super) fn is_elsewhere(&self, place: &FileLine) -> bool {
        place.file != self.path
    }

    /// Reads the lines of a group as if the file had this text.
    ///
    /// # Errors
    ///
    /// [`Error::Failed`] for a stack that cannot be read.
    pub(crate) fn read_entries(&self, group: Group, text: &[u8]) -> Result<Vec<Entry>, Error> {
        let instead = Some((self.path.as_path(), text));
        read_entries_with(self.root, &self.service, group, instead).map_err(|why| self.refusal(why))
    }

    /// The text without our lines, and with the lines that they replaced.
    ///
    /// # Errors
    ///
    /// [`Error::Failed`] for a text that ends within a line.
    pub(crate) fn without_our_lines(&self) -> Result<Restored, Error> {
        lines::without_our_lines(self.root, &self.text)
            .ok_or_else(|| self.refusal("ends in a line's middle"))
    }

    /// Prepares `before`, which is the file as it was, without lines that ours replaced and whose module
    /// is gone.
    ///
    /// # Errors
    ///
    /// [`Error::Failed`] for a text that ends within a line.
    pub(crate) fn restore(&self, before: &[u8]) -> Result<Restored, Error> {
        lines::restore(self.root, before, &self.text)
            .ok_or_else(|| self.refusal("ends in a line's middle"))
    }

    /// Warns if lines stay commented out and no other line keeps users without a job out; returns whether
    /// that is so.
    ///
    /// # Errors
    ///
    /// [`Error::Failed`] for a stack that cannot be read.
    pub(crate) fn warn_if_open(
        &self,
        restored: &Restored,
        output: &mut Output<'_>,
    ) -> Result<bool, Error> {
        if restored.is_complete() {
            return Ok(false);
        }
        if self.has_judge(&restored.text)? {
            return Ok(false);
        }
        output.warn(format_args!(
            "{}: nothing keeps users without a job out now: put our lines back (job-adopt enable), or \
             install the missing module and run job-adopt disable",
            self.path.display()
        ));
        Ok(true)
    }

    /// Whether a line keeps users without a job out if the file has this text. It fails with [`Error::Failed`] for a
    /// stack that cannot be read.
    pub(super) fn has_judge(&self, text: &[u8]) -> Result<bool, Error> {
        for group in [Group::Account, Group::Session] {
            if self.read_entries(group, text)?.iter().any(judges_logins) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Finds the files of the modules that the old text calls in lines which are commented out in `new`. A module
    /// that no folder has gets the path in the usual folder; one with `$` in its name is left out.
    ///
    /// # Errors
    ///
    /// [`Error::Failed`] for a text that ends within a line.
    pub(crate) fn replaced_modules(&self, new: &[u8]) -> Result<Vec<PathBuf>, Error> {
        let modules = lines::replaced_modules(&self.text, new)
            .ok_or_else(|| self.refusal("ends in a line's middle"))?;
        let mut files: Vec<PathBuf> = modules
            .iter()
            .filter_map(|module| find_module(self.root, module))
            .collect();
        files.dedup();
        Ok(files)
    }

    /// The path of the original file.
    pub(crate) fn original_path(&self) -> PathBuf {
        self.root.join(ORIGINALS_DIR).join(&self.service)
    }

    /// Saves the file without our lines as the original.
    ///
    /// # Errors
    ///
    /// [`Error::Failed`] if it cannot be written.
    pub(crate) fn save_original(&self) -> Result<(), Error> {
        let path = self.original_path();
        disk::make_folder(path.parent().unwrap_or(self.root))?;
        replace_file(&path, self.without_our_lines()?.text, self.meta.as_ref())
    }

    /// Replaces the file.
    ///
    /// # Errors
    ///
    /// [`Error::Failed`] as of [`Stack::require_module`], and if it cannot be written.
    pub(crate) fn write(&self, text: &[u8]) -> Result<(), Error> {
        self.require_module(text)?;
        replace_file(&self.path, text, self.meta.as_ref())
    }

    /// Checks that our module is installed if the text names it.
    ///
    /// # Errors
    ///
    /// [`Error::Failed`] if it is not: libpam would refuse every login, root's too.
    pub(crate) fn require_module(&self, text: &[u8]) -> Result<(), Error> {
        let has_our_line = parse_lines(&decode(text))
            .unwrap_or_default()
            .iter()
            .any(is_our_line);
        let is_installed = self.our_module().is_some_and(|module| module.exists());
        if has_our_line && !is_installed {
            return Err(self.refusal("pam_job_adopt.so is not installed: nobody could log in"));
        }
        Ok(())
    }

    /// The path that our module has if it is installed.
    pub(crate) fn our_module(&self) -> Option<PathBuf> {
        find_module_folder(self.root).map(|folder| folder.join(MODULE_FILES[0]))
    }

    /// The path of the file on the node: in an image, without the image's folder.
    pub(crate) fn node_path(&self) -> PathBuf {
        let below = self.path.strip_prefix(self.root).unwrap_or(&self.path);
        Path::new("/").join(below)
    }

    /// Plans the change of the file to this text or, without one, its removal; `None` if it has that text already.
    ///
    /// # Errors
    ///
    /// [`Error::Failed`] if the text names our module and it is not installed, or if the folder leads out of
    /// the image.
    pub(crate) fn plan_change(&self, new: Option<Vec<u8>>) -> Result<Option<FileChange>, Error> {
        // After a removal libpam reads the distribution's file.
        let new_text = new.as_deref().or(self.vendor_text.as_deref());
        let new_text = new_text.unwrap_or_default();
        if new_text == self.text && new.is_some() {
            return Ok(None);
        }
        self.require_module(new_text)?;
        require_inside(self.root, &self.node_path())?;
        let lines = lines::changed_lines(&self.text, new_text);
        Ok(Some(FileChange {
            path: self.node_path(),
            old: self
                .meta
                .is_some()
                .then(|| Content::Text(self.text.clone())),
            new: new.map(Content::Text),
            lines,
        }))
    }

    /// Finds our account and session lines in files that several services include, in this order and the last one of
    /// each; `None` unless both are there, as `pam-auth-update` writes them.
    ///
    /// # Errors
    ///
    /// [`Error::Failed`] for a stack that cannot be read.
    pub(crate) fn shared_lines(&self) -> Result<Option<[Entry; 2]>, Error> {
        let mut shared = Vec::new();
        for group in [Group::Account, Group::Session] {
            let mut entries = self.read_entries(group, &self.text)?;
            entries.retain(|entry| entry.is_our_module() && self.is_elsewhere(&entry.place));
            shared.extend(entries.into_iter().next_back());
        }
        Ok(shared.try_into().ok())
    }
}

/// Whether a line keeps users without a job out.
fn judges_logins(entry: &Entry) -> bool {
    is_rival(entry) || entry.is_our_module() && !entry.is_close_only()
}

/// Reads a service file; `None` if there is none.
fn read_text(path: &Path) -> Result<Option<Vec<u8>>, Error> {
    match fs::read(path) {
        Ok(text) if text.contains(&0) => {
            Err(Error::failed("read", path.display(), "is not a text"))
        }
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Error::failed("read", path.display(), error)),
    }
}

/// Tells whether this line is of a module that decides about logins, as ours does.
pub(super) fn is_rival(entry: &Entry) -> bool {
    RIVAL_MODULES.contains(&module_name(entry))
}
