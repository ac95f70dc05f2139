//! A planned change of one file of the node, or of a node's image.

use command::disk;
use command::error::Error;
use command::output::Output;
use command::replace_file::replace_file;
use helper::printable;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// What a path names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Content {
    Text(Vec<u8>),
    /// The target of a symbolic link.
    Link(PathBuf),
}

impl Content {
    /// Reads what a path names; `None` if there is nothing.
    ///
    /// # Errors
    ///
    /// [`Error::Failed`] if it cannot be read, or is neither a regular file nor a link.
    pub(super) fn read(path: &Path) -> Result<Option<Self>, Error> {
        let failed = |error| Error::failed("read", path.display(), error);
        let meta = match fs::symlink_metadata(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            other => other.map_err(failed)?,
        };
        if meta.is_symlink() {
            return Ok(Some(Self::Link(fs::read_link(path).map_err(failed)?)));
        }
        if !meta.is_file() {
            return Err(Error::failed("read", path.display(), "is no regular file"));
        }
        Ok(Some(Self::Text(fs::read(path).map_err(failed)?)))
    }

    /// Splits the content into lines for comparison; a link has one, which names its target.
    fn lines(&self) -> Vec<String> {
        match self {
            Self::Text(text) => String::from_utf8_lossy(text)
                .lines()
                .map(str::to_owned)
                .collect(),
            Self::Link(target) => vec![format!("link to {}", target.display())],
        }
    }
}

/// A change of one file. Nothing is changed until [`FileChange::apply`].
#[derive(Debug)]
pub(super) struct FileChange {
    /// The path on the node: in an image, without the image's folder.
    pub(super) path: PathBuf,
    /// What the path named when the change was planned; `None` if there was nothing.
    pub(super) old: Option<Content>,
    /// What it is to name; `None` removes it.
    pub(super) new: Option<Content>,
    /// The lines that go and come, with `-` and `+`, for the admin.
    pub(super) lines: Vec<String>,
}

impl FileChange {
    /// Plans a change of what `path` names below `root` to `new` or, if that is `None`, its removal. Returns `None` if
    /// nothing has to change.
    ///
    /// # Errors
    ///
    /// [`Error::Failed`] if it cannot be read, or is neither a regular file nor a link, or if its folder leads out of
    /// the image.
    pub(super) fn plan(
        root: &Path,
        path: PathBuf,
        new: Option<Content>,
    ) -> Result<Option<Self>, Error> {
        require_inside(root, &path)?;
        let old = Content::read(&at(root, &path))?;
        if old == new {
            return Ok(None);
        }
        let lines = differing_lines(old.as_ref(), new.as_ref());
        Ok(Some(Self {
            path,
            old,
            new,
            lines,
        }))
    }

    /// Writes what will change.
    pub(super) fn describe(&self, output: &mut Output<'_>) -> Result<(), Error> {
        let verb = match (&self.old, &self.new) {
            (None, _) => "create",
            (_, None) => "remove",
            _ => "change",
        };
        writeln!(output.out, "{verb} {}", self.path.display())?;
        // The whole text of a file that goes tells nothing.
        let lines = if self.new.is_some() {
            &self.lines[..]
        } else {
            &[]
        };
        for line in lines {
            writeln!(output.out, "  {}", printable(line))?;
        }
        Ok(())
    }

    /// Makes the change, on the disk too. Readers see the old content of a file or the new one.
    ///
    /// # Errors
    ///
    /// [`Error::Failed`] if the path names something else than when the change was planned, and if the change
    /// cannot be made.
    pub(super) fn apply(&self, root: &Path) -> Result<(), Error> {
        let path = at(root, &self.path);
        if Content::read(&path)? != self.old {
            let why = "was edited meanwhile; run this again";
            return Err(Error::failed("change", path.display(), why));
        }
        match &self.new {
            Some(content) => write_content(&path, content),
            None => disk::remove_file(&path)
                .map_err(|error| Error::failed("remove", path.display(), error)),
        }
    }
}

/// Writes a file or a link, with its folder, to the disk. A file keeps the owner and mode of the one that it replaces, and
/// readers see the old content or the new one; an old link or file is removed before a link is made.
///
/// # Errors
///
/// [`Error::Failed`] with the cause.
pub(super) fn write_content(path: &Path, content: &Content) -> Result<(), Error> {
    disk::make_folder(path.parent().unwrap_or(Path::new("/")))?;
    let target = match content {
        Content::Text(text) => {
            return replace_file(path, text, fs::symlink_metadata(path).ok().as_ref());
        }
        Content::Link(target) => target,
    };
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            return Err(Error::failed("replace", path.display(), error));
        }
        _ => {}
    }
    disk::link(target, path).map_err(|error| Error::failed("link", path.display(), error))
}

/// The place of a node's path below the folder of its image.
pub(super) fn at(root: &Path, path: &Path) -> PathBuf {
    root.join(path.strip_prefix("/").unwrap_or(path))
}

/// Checks that the folder of a node's path lies in the image: an absolute link of the image leads to the host
/// that changes it.
///
/// # Errors
///
/// [`Error::Failed`] with the folder that leads elsewhere, or that cannot be resolved.
pub(super) fn require_inside(root: &Path, path: &Path) -> Result<(), Error> {
    if root == Path::new("/") {
        return Ok(());
    }
    let full = at(root, path);
    // What is missing is made below the last folder that is there.
    let there = full
        .ancestors()
        .skip(1)
        .find(|folder| fs::symlink_metadata(folder).is_ok());
    let Some(folder) = there else {
        return Ok(());
    };
    let failed = |error| Error::failed("change", folder.display(), error);
    let target = fs::canonicalize(folder).map_err(failed)?;
    if target.starts_with(fs::canonicalize(root).map_err(failed)?) {
        return Ok(());
    }
    let why = format!("leads out of the image, to {}", target.display());
    Err(Error::failed("change", folder.display(), why))
}

/// Lists the lines between the common beginning and the common end of two contents: the old ones with
/// `-`, and then the new ones with `+`. Comments of a new file are left out.
fn differing_lines(old: Option<&Content>, new: Option<&Content>) -> Vec<String> {
    let old_lines = old.map(Content::lines).unwrap_or_default();
    let mut new_lines = new.map(Content::lines).unwrap_or_default();
    if old.is_none() {
        drop_comments(&mut new_lines);
    }
    let shorter = old_lines.len().min(new_lines.len());
    let head = old_lines
        .iter()
        .zip(&new_lines)
        .take_while(|(one, other)| one == other)
        .count();
    let tail = old_lines
        .iter()
        .rev()
        .zip(new_lines.iter().rev())
        // A line of the common beginning is none of the end too.
        .take(shorter - head)
        .take_while(|(one, other)| one == other)
        .count();
    let gone = old_lines
        .iter()
        .take(old_lines.len() - tail)
        .skip(head)
        .map(|line| format!("- {line}"));
    let come = new_lines
        .iter()
        .take(new_lines.len() - tail)
        .skip(head)
        .map(|line| format!("+ {line}"));
    gone.chain(come).collect()
}

/// Drops empty lines, and the comments of a unit's file or of XML.
fn drop_comments(lines: &mut Vec<String>) {
    let mut is_in_xml_comment = false;
    lines.retain(|line| {
        let text = line.trim_start();
        is_in_xml_comment |= text.starts_with("<!--");
        let is_dropped = is_in_xml_comment || text.starts_with('#') || text.is_empty();
        is_in_xml_comment &= !text.contains("-->");
        !is_dropped
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Scratch;
    use std::os::unix::fs::symlink;

    fn text(text: &str) -> Option<Content> {
        Some(Content::Text(text.into()))
    }

    #[test]
    fn common_lines_are_not_shown() {
        for (old, new, expected) in [
            (text("a\nb\nc\n"), text("a\nx\nc\n"), &["- b", "+ x"][..]),
            (text("a\na\n"), text("a\na\na\n"), &["+ a"]),
            (text("a\na\n"), text("a\n"), &["- a"]),
            (None, text("# comment\n\n[Slice]\n"), &["+ [Slice]"]),
            (
                None,
                text("<!-- one -->\n<a>\n  <!-- two\n  lines -->\n</a>\n"),
                &["+ <a>", "+ </a>"],
            ),
            (None, Some(Content::Link("/x".into())), &["+ link to /x"]),
        ] {
            assert_eq!(differing_lines(old.as_ref(), new.as_ref()), expected);
        }
    }

    #[test]
    fn absolute_link_in_an_image_is_not_followed() {
        let host = Scratch::new();
        let image = Scratch::new();
        fs::create_dir_all(image.path().join("usr/lib")).unwrap();
        symlink("usr/lib", image.path().join("lib")).unwrap();
        symlink(host.path(), image.path().join("etc")).unwrap();
        symlink("/missing", image.path().join("var")).unwrap();
        let plan = |path: &str| FileChange::plan(image.path(), path.into(), text("x\n"));
        assert!(plan("/lib/new/x").is_ok());
        for path in ["/etc/x", "/etc/new/x", "/var/lib/x"] {
            assert!(plan(path).is_err(), "{path}");
        }
    }

    #[test]
    fn file_that_was_edited_after_the_plan_stays() {
        let scratch = Scratch::new();
        let path = scratch.file("etc/x", "old\n");
        let plan = || FileChange::plan(scratch.path(), "/etc/x".into(), text("new\n")).unwrap();
        let early = plan().unwrap();
        fs::write(&path, "edited\n").unwrap();
        let error = early.apply(scratch.path()).unwrap_err().to_string();
        assert!(error.contains("edited meanwhile"), "{error}");
        assert_eq!(fs::read_to_string(&path).unwrap(), "edited\n");
        plan().unwrap().apply(scratch.path()).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "new\n");
        assert!(plan().is_none());
        fs::remove_file(&path).unwrap();
        assert!(early.apply(scratch.path()).is_err());
        assert!(!path.exists());
    }
}
