//! A change that is not over: what `--keep` ends, and `--undo`, the timer or the boot takes back.

use super::journal::{JOURNAL, Journal, JournalFile, State, copy_path, hash};
use super::{Command, remove_empty_drop_in_folder, rename_copy, systemd, undo_unit};
use crate::file_change::{Content, at, require_inside};
use crate::pam::{Restored, Stack};
use crate::part::Part;
use crate::slice_opening::{open_slices, report_opened};
use command::disk;
use command::error::Error;
use command::output::Output;
use command::replace_file::{new_path, replace_file};
use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// A file of a change that is not as it was before.
struct ChangedFile {
    path: PathBuf,
    /// What it was before; `None` if there was no file.
    copy: Option<Content>,
    /// Whether somebody else has edited it since.
    is_edited: bool,
    /// Whether it is the PAM stack with what `enable` wrote.
    is_enabled_stack: bool,
}

/// What taking a change back has left.
#[derive(Debug, Default)]
pub(crate) struct Undone {
    /// Set if something is not as it was.
    pub(crate) is_changed: bool,
    /// Set if nothing keeps users without a job out.
    pub(crate) is_open: bool,
}

impl Undone {
    pub(crate) fn describe(&self) -> &'static str {
        if self.is_changed {
            "taken back, but for what is named above"
        } else {
            "taken back: the node is as it was"
        }
    }
}

/// A change that is not over.
#[derive(Debug)]
pub(crate) struct Pending {
    root: PathBuf,
    pub(super) journal: Journal,
}

impl Pending {
    pub(super) fn new(root: &Path, journal: Journal) -> Self {
        Self {
            root: root.to_owned(),
            journal,
        }
    }

    /// Reads the journal; `None` if no change is under way.
    ///
    /// # Errors
    ///
    /// [`Error::Failed`] for a journal that cannot be read, is malformed, or is of another version.
    pub(crate) fn read(root: &Path) -> Result<Option<Self>, Error> {
        require_inside(root, Path::new(JOURNAL))?;
        let path = at(root, Path::new(JOURNAL));
        let failed = |error: std::io::Error| Error::failed("read", path.display(), error);
        let text = match fs::read(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            other => other.map_err(failed)?,
        };
        let journal: Journal =
            serde_json::from_slice(&text).map_err(|error| failed(error.into()))?;
        if journal.version != Journal::VERSION {
            return Err(failed(std::io::Error::other("is of another version")));
        }
        Ok(Some(Self::new(root, journal)))
    }

    /// Writes the journal, and replaces an earlier one. It fails with [`Error::Failed`] and the cause.
    pub(super) fn write(&self) -> Result<(), Error> {
        let path = self.journal_path();
        disk::make_folder(path.parent().unwrap_or(&self.root))?;
        let text = serde_json::to_string(&self.journal).map_err(std::io::Error::from)?;
        replace_file(&path, text, None)
    }

    fn journal_path(&self) -> PathBuf {
        at(&self.root, Path::new(JOURNAL))
    }

    pub(super) fn is_written(&self) -> bool {
        self.journal_path().exists()
    }

    /// Whether the change is made as a whole, and waits for `--keep`.
    pub(crate) fn is_trial(&self) -> bool {
        self.journal.state == State::Trying
    }

    /// Whether `enable` made the change.
    pub(crate) fn is_of_enable(&self) -> bool {
        self.journal.command == Command::Enable
    }

    /// Whether the change may have the stack of this service, whose name libpam takes in lower case.
    pub(crate) fn is_of_service(&self, service: &str) -> bool {
        self.journal.service.eq_ignore_ascii_case(service)
    }

    /// Warns if a profile is off that would keep users without a job out of the service, and nothing else does
    /// ([`Stack::warn_if_profile_off`]). Returns whether nothing does, or that cannot be told.
    pub(crate) fn warn_if_profile_off(&self, output: &mut Output<'_>) -> bool {
        let result = Stack::read(&self.root, &self.journal.service)
            .and_then(|stack| stack.warn_if_profile_off(output));
        // The change is over in any case.
        result.unwrap_or_else(|error| {
            output.warn(error);
            true
        })
    }

    /// Says which change is not over, and what becomes of it in a call that changes more.
    pub(crate) fn describe(&self) -> String {
        if self.is_trial() {
            return "a try is under way; job-adopt enable --keep and --undo end it, and disable takes it back"
                .to_owned();
        }
        format!(
            "an earlier job-adopt {} was interrupted; what it changed is taken back first",
            self.journal.command.name()
        )
    }

    /// Whether the change will be taken back unless it is kept: the journal is there and, if systemd reads the files,
    /// the timer waits. The timer begins before the first file changes, so it may be over before the last one has.
    pub(crate) fn is_armed(&self) -> bool {
        self.is_written() && (!systemd::reads(&self.root) || undo_unit::is_armed())
    }

    /// Marks the change as one that waits for `--keep`.
    ///
    /// # Errors
    ///
    /// [`Error::Failed`] if the journal cannot be written.
    pub(crate) fn begin_trial(&mut self) -> Result<(), Error> {
        self.journal.state = State::Trying;
        self.write()
    }

    /// Ends the change and keeps what is made: nothing takes it back from then on, also after a power cut.
    ///
    /// # Errors
    ///
    /// [`Error::Failed`] as of [`Pending::stop_timer`] and [`Pending::remove_journal`].
    pub(crate) fn keep(&self) -> Result<(), Error> {
        self.stop_timer()?;
        self.remove_journal()
    }

    /// Stops the timer of the change, which then goes back at the next boot alone.
    ///
    /// # Errors
    ///
    /// [`Error::Failed`] if the change has gone back before, also in part.
    pub(crate) fn stop_timer(&self) -> Result<(), Error> {
        if systemd::reads(&self.root) {
            undo_unit::stop_timer();
        }
        if !self.is_written() {
            return Err(Error::failed(
                "keep",
                "the change",
                "the time was over before",
            ));
        }
        self.require_in_place()
    }

    /// Ends the change, on the disk too.
    ///
    /// # Errors
    ///
    /// [`Error::Failed`] if the journal may still be on the disk; it is then written again, so that this process and the
    /// next boot find the same.
    pub(crate) fn remove_journal(&self) -> Result<(), Error> {
        let path = self.journal_path();
        match disk::remove_file(&path) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                let cause = Error::failed("remove", path.display(), error);
                match self.write() {
                    Ok(()) => Err(cause),
                    Err(second) => Err(Error::Failed(format!("{cause}; {second}"))),
                }
            }
            _ => Ok(()),
        }
    }

    /// Checks that the unit has brought no file back: if it stopped at a later one, the journal is still there. A file
    /// that is back has no copy any more or, if there was none before the change, is gone itself. It fails with
    /// [`Error::Failed`] and the first such file.
    fn require_in_place(&self) -> Result<(), Error> {
        for file in &self.journal.files {
            let path = at(&self.root, &file.path);
            let gone_if_back = if file.has_copy {
                copy_path(&path)
            } else {
                path.clone()
            };
            if Content::read(&gone_if_back)?.is_none() {
                let why = "it went back already; job-adopt enable --undo takes the others back";
                return Err(Error::failed("keep", path.display(), why));
            }
        }
        Ok(())
    }

    /// Removes the copies and the unit of a change that is over: they have no effect without the journal.
    ///
    /// # Errors
    ///
    /// [`Error::Failed`] with the first that cannot be removed from the disk; the others are.
    pub(crate) fn clear(&self) -> Result<(), Error> {
        let mut failures = Vec::new();
        let mut folders = BTreeSet::new();
        for file in &self.journal.files {
            let path = at(&self.root, &file.path);
            for left in [copy_path(&path), new_path(&path)] {
                match fs::remove_file(&left) {
                    Err(error) if error.kind() == ErrorKind::NotFound => {}
                    Err(error) => failures.push(Error::failed("remove", left.display(), error)),
                    Ok(()) => {
                        folders.insert(path.parent().unwrap_or(&self.root).to_owned());
                    }
                }
            }
        }
        for folder in folders {
            if let Err(error) = disk::sync_folder(&folder) {
                failures.push(Error::failed("write", folder.display(), error));
            }
        }
        for file in &self.journal.files {
            failures.extend(remove_empty_drop_in_folder(&at(&self.root, &file.path)).err());
        }
        if systemd::reads(&self.root) {
            failures.extend(undo_unit::disarm().err());
        }
        match failures.into_iter().next() {
            Some(error) => Err(Error::Failed(format!(
                "{error}; that is left of a change which is over, and has no effect"
            ))),
            None => Ok(()),
        }
    }

    /// Removes the journal, and then the rest of the way back.
    ///
    /// # Errors
    ///
    /// [`Error::Failed`] with the first that cannot be removed from the disk.
    pub(super) fn forget(&self) -> Result<(), Error> {
        self.remove_journal()?;
        self.clear()
    }

    /// Takes all of the change back: the files, as [`Pending::undo_files`] does, and then the slices
    /// ([`Pending::open_slices`]). It fails as [`Pending::undo_files`] does.
    pub(crate) fn undo_files_and_slices(&self, output: &mut Output<'_>) -> Result<Undone, Error> {
        let undone = self.undo_files(output)?;
        self.open_slices(output);
        Ok(undone)
    }

    /// Opens the slices of users who are logged in, if the change had drop-ins for them and no unit file closes them now.
    /// Names them, and warns of those that stay closed.
    pub(crate) fn open_slices(&self, output: &mut Output<'_>) {
        if systemd::reads(&self.root) && self.closes_slices() {
            let opened = open_slices(output);
            // The change is over, also if nobody reads that.
            let _ = report_opened(&opened, output);
        }
    }

    /// Brings the old files back, and makes the node use them; does nothing without a journal, since then they are
    /// back already. What was edited meanwhile stays, but for our lines in the PAM stack. Slices with a user stay
    /// closed, as systemd leaves them, until [`Pending::open_slices`].
    ///
    /// # Errors
    ///
    /// [`Error::Failed`] with the first file that cannot be brought back. The others are, and a second call
    /// tries again.
    pub(crate) fn undo_files(&self, output: &mut Output<'_>) -> Result<Undone, Error> {
        if systemd::reads(&self.root) {
            undo_unit::stop_timer();
        }
        let mut undone = Undone::default();
        if !self.is_written() {
            return Ok(undone);
        }
        let mut failure = None;
        for file in &self.journal.files {
            if let Err(error) = self.restore(file, &mut undone, output) {
                failure = failure.or(Some(error));
            }
        }
        if let Some(error) = failure {
            // A trial of which a part is back must not be kept. If this cannot be written, `require_in_place`
            // finds the part.
            let mut interrupted = self.journal.clone();
            interrupted.state = State::Changing;
            let _ = Self::new(&self.root, interrupted).write();
            return Err(error);
        }
        if systemd::reads(&self.root) && !self.journal.steps.back().run_or_warn(output) {
            undone.is_changed = true;
        }
        self.forget()?;
        Ok(undone)
    }

    /// Whether the change had drop-ins that close slices.
    pub(crate) fn closes_slices(&self) -> bool {
        let mut parts = self.journal.files.iter().map(|file| file.part);
        self.journal.command == Command::Enable && parts.any(|part| part == Part::Slices)
    }

    /// Reads a file of the change as its undo finds it; `None` if it is as it was before. It fails with
    /// [`Error::Failed`] if it cannot be read.
    fn read_changed(&self, file: &JournalFile) -> Result<Option<ChangedFile>, Error> {
        let path = at(&self.root, &file.path);
        let current = Content::read(&path)?;
        let copy = if file.has_copy {
            Content::read(&copy_path(&path))?
        } else {
            None
        };
        // Without its copy the file is back: the copy was renamed. If it is as before, it was not changed yet.
        if file.has_copy && copy.is_none() || current == copy {
            return Ok(None);
        }
        let is_edited = current.as_ref().map(hash) != file.new_hash;
        let is_stack = file.part == Part::Pam && self.journal.command == Command::Enable;
        Ok(Some(ChangedFile {
            path,
            // A file that somebody has removed comes back.
            is_edited: is_edited && current.is_some(),
            is_enabled_stack: is_stack && current.is_some(),
            copy,
        }))
    }

    /// Reads the stack that [`Pending::undo_files`] would take our lines out of, and plans its text then. `None` if the
    /// undo leaves the stack as it is, or has lines of ours come back, as after `disable`.
    ///
    /// # Errors
    ///
    /// [`Error::Failed`] if a file cannot be read.
    pub(crate) fn read_undone_stack(&self) -> Result<Option<(Stack<'_>, Restored)>, Error> {
        for file in &self.journal.files {
            if let Some(changed) = self
                .read_changed(file)?
                .filter(|changed| changed.is_enabled_stack)
            {
                return self.plan_stack(&changed).map(Some);
            }
        }
        Ok(None)
    }

    /// Brings one file back to what it was before the change. A file that was edited since the change stays
    /// and is reported in `undone`; a PAM stack that `enable` changed is left to [`Pending::restore_stack`]. It fails
    /// with [`Error::Failed`] if the file cannot be read or brought back, or if our module, which the old stack calls,
    /// is gone.
    fn restore(
        &self,
        file: &JournalFile,
        undone: &mut Undone,
        output: &mut Output<'_>,
    ) -> Result<(), Error> {
        let Some(changed) = self.read_changed(file)? else {
            return Ok(());
        };
        undone.is_changed |= changed.is_edited;
        if changed.is_enabled_stack {
            return self.restore_stack(&changed, undone, output);
        }
        let ChangedFile {
            path,
            copy,
            is_edited,
            ..
        } = changed;
        if is_edited {
            output.warn(format_args!(
                "{}: was edited meanwhile, and stays",
                path.display()
            ));
            return Ok(());
        }
        match copy {
            // The old stack may have lines of ours, as after `disable`: then our module must be there.
            Some(Content::Text(text)) if file.part == Part::Pam => {
                Stack::read(&self.root, &self.journal.service)?.require_module(&text)?;
                rename_copy(&path)
            }
            Some(_) => rename_copy(&path),
            None => disk::remove_file(&path)
                .map_err(|error| Error::failed("remove", path.display(), error)),
        }
    }

    /// Plans the text that the undo gives a stack. Of one that was edited meanwhile only our lines go; else it is what it
    /// was before `enable`. It fails with [`Error::Failed`] for a stack that cannot be read.
    fn plan_stack(&self, changed: &ChangedFile) -> Result<(Stack<'_>, Restored), Error> {
        let stack = Stack::read(&self.root, &self.journal.service)?;
        let before = match &changed.copy {
            Some(Content::Text(text)) => Some(text),
            // There was none in the site's folder: without ours, libpam reads the distribution's again.
            _ => stack.vendor_text.as_ref(),
        };
        let restored = match before {
            Some(text) if !changed.is_edited => stack.restore(text)?,
            _ => stack.without_our_lines()?,
        };
        Ok((stack, restored))
    }

    /// Brings the stack back to what it was before `enable`. If the module of a line that ours replaced is gone, all
    /// these lines stay commented out. Of a stack that was edited meanwhile only our lines go. `undone` gets what is
    /// not as it was.
    fn restore_stack(
        &self,
        changed: &ChangedFile,
        undone: &mut Undone,
        output: &mut Output<'_>,
    ) -> Result<(), Error> {
        let (stack, restored) = self.plan_stack(changed)?;
        let path = &stack.path;
        restored.warn(path, output);
        if changed.is_edited {
            output.warn(format_args!(
                "{}: was edited meanwhile: our lines are taken out, and the edit stays",
                path.display()
            ));
            stack.write(&restored.text)?;
        } else if !restored.is_complete() {
            // The copy has the lines that must not come back.
            undone.is_changed = true;
            stack.write(&restored.text)?;
        } else if changed.copy.is_some() {
            rename_copy(path)?;
        } else {
            disk::remove_file(path)
                .map_err(|error| Error::failed("remove", path.display(), error))?;
        }
        undone.is_open |= stack.warn_if_open(&restored, output)?;
        Ok(())
    }
}
