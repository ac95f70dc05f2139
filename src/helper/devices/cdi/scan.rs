//! The directories of specifications, read within bounds.

use std::path::{Path, PathBuf};

use super::Format;
use super::catalog::{Catalog, File, Unusable};
use crate::helper::devices::{DeviceError, Tree};
use crate::kernel::trust::{Distrust, TrustedDir};
use nix::errno::Errno;

/// Most specifications of a directory.
pub const FILES_MAX: usize = 256;
/// Most bytes of all specifications together.
pub const BYTES_MAX: u64 = 16 * 1024 * 1024;
/// Most names of a directory, whatever they are.
const NAMES_MAX: usize = 4096;

/// Reads the directories, the last of which ranks highest. One that is not there holds nothing.
///
/// The specifications are the files whose names end in `.json` or `.yaml`, in lower case, hidden
/// ones too, of the directory itself. All have to be believed, as [`Tree::trust`] says. The highest
/// rank is read first, so that a limit cuts off what counts least; what is cut off is a file that
/// cannot be used, as any other.
pub(super) fn read(tree: &Tree, dirs: &[PathBuf]) -> Result<Catalog, DeviceError> {
    let mut scan = Scan { catalog: Catalog::of(dirs), bytes: 0 };
    for (rank, dir) in dirs.iter().enumerate().rev() {
        scan.dir(tree, dir, rank)?;
    }
    Ok(scan.catalog)
}

struct Scan {
    catalog: Catalog,
    bytes: u64,
}

impl Scan {
    fn dir(&mut self, tree: &Tree, shown: &Path, rank: usize) -> Result<(), DeviceError> {
        let path = tree.at("/").join(shown.strip_prefix("/").unwrap_or(shown));
        let dir = match tree.trust().dir(&path) {
            Err(error) if error.is_missing() => return Ok(()),
            dir => dir?,
        };
        let names = dir.all_names(NAMES_MAX)?;
        let with_format = |name: String| format_of(&name).map(|format| (name, format));
        let files: Vec<_> = names.into_iter().filter_map(with_format).collect();
        if files.len() > FILES_MAX {
            let fault = format_args!("holds more than {FILES_MAX} specifications");
            return Err(DeviceError::at(shown.display(), fault));
        }
        for (name, format) in files {
            self.file(&dir, &name, format, shown.join(&name), rank);
        }
        Ok(())
    }

    fn file(&mut self, dir: &TrustedDir, name: &str, format: Format, path: PathBuf, rank: usize) {
        let file = match self.bytes(dir, name, format) {
            Ok(Some(bytes)) => File::new(path, rank, format, bytes),
            Ok(None) => return,
            Err(unusable) => File::known(path, rank, Err(unusable)),
        };
        self.catalog.files.push(file);
    }

    /// What is in a file; `None` where it has gone since the directory was listed, which is as if it
    /// had gone before.
    fn bytes(
        &mut self,
        dir: &TrustedDir,
        name: &str,
        format: Format,
    ) -> Result<Option<Vec<u8>>, Unusable> {
        let unusable = |why: String| Unusable { why, kind: None, named: None };
        // Such a name is not the file's own, and would seem to have gone.
        if name.contains(char::REPLACEMENT_CHARACTER) {
            return Err(unusable("the name is no UTF-8".to_owned()));
        }
        if self.bytes <= BYTES_MAX {
            let bytes = match dir.read(Path::new(name), format.max_bytes() as u64) {
                Ok(bytes) => bytes,
                Err(error) if error.is_missing() => return Ok(None),
                Err(error) => {
                    let denied = *error.cause() == Distrust::Open(Errno::EACCES);
                    let other = || unusable(error.cause().to_string());
                    return Err(if denied { Unusable::unreadable(name) } else { other() });
                }
            };
            self.bytes = self.bytes.saturating_add(bytes.len() as u64);
            if self.bytes <= BYTES_MAX {
                return Ok(Some(bytes));
            }
        }
        Err(unusable(format!("the specifications have more than {BYTES_MAX} bytes in all")))
    }
}

fn format_of(name: &str) -> Option<Format> {
    match name.rsplit_once('.')?.1 {
        "json" => Some(Format::Json),
        "yaml" => Some(Format::Yaml),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::helper::devices::cdi::Spec;
    use crate::kernel::trust::tests::Scratch;

    /// A specification of `v.com/gpu` with these devices.
    fn json(devices: &[&str]) -> String {
        let device = |name: &&str| {
            format!(
                r#"{{"name":"{name}","containerEdits":{{"deviceNodes":[{{"path":"/dev/x"}}]}}}}"#
            )
        };
        let devices: Vec<String> = devices.iter().map(device).collect();
        let devices = devices.join(",");
        format!(r#"{{"cdiVersion":"0.6.0","kind":"v.com/gpu","devices":[{devices}]}}"#)
    }

    /// A specification of `v.com/gpu` with this device and this many bytes.
    fn padded(device: &str, bytes: usize) -> String {
        let text = json(&[device]);
        text.clone() + &" ".repeat(bytes - text.len())
    }

    fn scan(scratch: &Scratch, dirs: &[&str]) -> Result<Catalog, DeviceError> {
        let tree = Tree::laid_out(scratch.path(), scratch.trust());
        let dirs: Vec<PathBuf> = dirs.iter().map(PathBuf::from).collect();
        read(&tree, &dirs)
    }

    /// The file whose definition of a device counts.
    fn file_of(catalog: &Catalog, device: &str) -> Option<PathBuf> {
        let name = format!("v.com/gpu={device}").parse().unwrap();
        catalog.definition(&name).ok().map(|(file, ..)| file.path.clone())
    }

    /// The files that are found to be unusable once all have been parsed.
    fn unusable(catalog: &Catalog) -> Vec<(String, String)> {
        let fault =
            |file: &File| Some((file.path.display().to_string(), file.spec().err()?.why.clone()));
        catalog.files.iter().filter_map(fault).collect()
    }

    #[test]
    fn specifications_are_the_files_with_the_right_ends_of_the_directory_itself() {
        let scratch = Scratch::new();
        let read = ["a.json", ".hidden.json", ".json", "x.tmp.json"];
        let others = ["a.yml", "b.JSON", "c.Yaml", "d.json.tmp", "json", "e.json5", "sub/f.json"];
        for (number, name) in read.into_iter().chain(others).enumerate() {
            scratch.file(&format!("etc/cdi/{name}"), &json(&[&number.to_string()]));
        }
        let catalog = scan(&scratch, &["/etc/cdi"]).unwrap();
        for (number, name) in read.iter().enumerate() {
            let path = Path::new("/etc/cdi").join(name);
            assert_eq!(file_of(&catalog, &number.to_string()), Some(path));
        }
        for number in read.len()..read.len() + others.len() {
            assert_eq!(file_of(&catalog, &number.to_string()), None, "{number}");
        }
        assert_eq!(unusable(&catalog), []);
    }

    #[test]
    fn the_last_directory_ranks_highest_and_one_that_is_missing_holds_nothing() {
        let scratch = Scratch::new();
        scratch.file("etc/cdi/a.json", &json(&["0", "1"]));
        scratch.file("run/cdi/a.json", &json(&["1"]));
        let catalog = scan(&scratch, &["/etc/cdi", "/none/cdi", "/run/cdi"]).unwrap();
        assert_eq!(file_of(&catalog, "0"), Some("/etc/cdi/a.json".into()));
        assert_eq!(file_of(&catalog, "1"), Some("/run/cdi/a.json".into()));
        let catalog = scan(&scratch, &["/run/cdi", "/etc/cdi"]).unwrap();
        assert_eq!(file_of(&catalog, "1"), Some("/etc/cdi/a.json".into()));
    }

    #[test]
    fn a_directory_that_cannot_be_believed_or_read_fails_every_name() {
        let scratch = Scratch::new();
        scratch.file("etc/cdi/a.json", &json(&["0"]));
        scratch.file("run/file", "");
        symlink("../etc/cdi", scratch.path().join("run/link")).unwrap();
        scratch.dir("run/open");
        scratch.mode("run/open", 0o777);
        for (dir, cause) in [
            ("/run/file", Distrust::Open(Errno::ENOTDIR)),
            ("/run/link", Distrust::Open(Errno::ENOTDIR)),
            ("/run/open", Distrust::Writable(0o777)),
            ("/run/../etc/cdi", Distrust::Outside),
        ] {
            let fault = scan(&scratch, &[dir, "/etc/cdi"]).unwrap_err();
            let text = fault.to_string();
            assert!(text.contains(dir) && text.contains(&cause.to_string()), "{text}");
        }
    }

    #[test]
    fn a_file_that_is_not_believed_is_not_used_and_its_kind_not_either() {
        let scratch = Scratch::new();
        scratch.file("etc/cdi/a.json", &json(&["0"]));
        scratch.file("run/cdi/open.json", "");
        scratch.mode("run/cdi/open.json", 0o666);
        scratch.file("run/one", "");
        let bad = |name: &str| scratch.path().join("run/cdi").join(name);
        std::fs::hard_link(scratch.path().join("run/one"), bad("two.json")).unwrap();
        symlink("/etc/cdi/a.json", bad("link.json")).unwrap();
        symlink("nowhere", bad("gone.json")).unwrap();
        std::fs::create_dir(bad("sub.json")).unwrap();
        let catalog = scan(&scratch, &["/etc/cdi", "/run/cdi"]).unwrap();
        let trust = |name: &str, cause: Distrust| (format!("/run/cdi/{name}"), cause.to_string());
        let expected = [
            trust("gone.json", Distrust::Open(Errno::ELOOP)),
            trust("link.json", Distrust::Open(Errno::ELOOP)),
            trust("open.json", Distrust::Writable(0o666)),
            trust("sub.json", Distrust::NotRegular),
            trust("two.json", Distrust::Links(2)),
        ];
        for expected in &expected {
            assert!(unusable(&catalog).contains(expected), "{expected:?}");
        }
        assert_eq!(file_of(&catalog, "0"), None);
    }

    #[test]
    fn a_file_whose_name_is_no_text_is_not_taken_for_one_that_has_gone() {
        let scratch = Scratch::new();
        let dir = scratch.dir("etc/cdi");
        std::fs::write(dir.join(OsStr::from_bytes(b"\xff.json")), json(&["0"])).unwrap();
        let catalog = scan(&scratch, &["/etc/cdi"]).unwrap();
        assert_eq!(
            unusable(&catalog),
            [("/etc/cdi/\u{fffd}.json".to_owned(), "the name is no UTF-8".to_owned())]
        );
    }

    #[test]
    fn a_file_that_has_gone_since_the_listing_is_as_if_it_had_never_been_there() {
        let scratch = Scratch::new();
        let path = scratch.dir("etc/cdi");
        let mut scan = Scan { catalog: Catalog::default(), bytes: 0 };
        let dir = scratch.trust().dir(&path).unwrap();
        scan.file(&dir, "a.json", Format::Json, path.join("a.json"), 0);
        assert_eq!(scan.catalog.files.len(), 0);
    }

    #[test]
    fn what_breaks_a_rule_is_in_doubt_for_its_own_kind_and_what_has_no_end_for_all() {
        let scratch = Scratch::new();
        scratch.file("etc/cdi/a.json", &json(&["0"]));
        let broken = json(&["0"]).replace("cdiVersion", "version");
        scratch.file("run/cdi/b.json", &broken.replace("v.com", "w.com"));
        let dirs = ["/etc/cdi", "/run/cdi"];
        assert!(file_of(&scan(&scratch, &dirs).unwrap(), "0").is_some());
        for text in [broken.as_str(), broken.trim_end_matches('}'), "", "[]"] {
            scratch.file("run/cdi/b.json", text);
            let catalog = scan(&scratch, &dirs).unwrap();
            assert_eq!(file_of(&catalog, "0"), None, "{text:?}");
            let fault = Spec::parse(text.as_bytes(), Format::Json).unwrap_err().to_string();
            assert_eq!(unusable(&catalog), [("/run/cdi/b.json".to_owned(), fault)], "{text:?}");
        }
    }

    #[test]
    fn directories_are_bounded_in_names_and_in_files() {
        let scratch = Scratch::new();
        for number in 0..=FILES_MAX {
            scratch.file(&format!("etc/cdi/{number}.json"), "");
        }
        let crowded = scan(&scratch, &["/etc/cdi"]).unwrap_err();
        assert_eq!(crowded.to_string(), "/etc/cdi: holds more than 256 specifications");
        std::fs::remove_file(scratch.path().join("etc/cdi/0.json")).unwrap();
        assert_eq!(scan(&scratch, &["/etc/cdi"]).unwrap().files.len(), FILES_MAX);
        for number in 0..=NAMES_MAX {
            std::fs::write(scratch.dir("run/cdi").join(number.to_string()), "").unwrap();
        }
        let fault = scan(&scratch, &["/run/cdi"]).unwrap_err();
        let crowded = Distrust::Crowded(NAMES_MAX).to_string();
        assert!(fault.to_string().contains(&crowded), "{fault}");
    }

    #[test]
    fn a_file_is_bounded_in_bytes() {
        let scratch = Scratch::new();
        let limit = Format::Json.max_bytes();
        scratch.file("etc/cdi/a.json", &padded("0", limit));
        assert!(file_of(&scan(&scratch, &["/etc/cdi"]).unwrap(), "0").is_some());
        scratch.file("etc/cdi/a.json", &padded("0", limit + 1));
        let catalog = scan(&scratch, &["/etc/cdi"]).unwrap();
        let larger = Distrust::TooLarge(limit as u64).to_string();
        assert_eq!(unusable(&catalog), [("/etc/cdi/a.json".to_owned(), larger)]);
    }

    #[test]
    fn all_bytes_together_are_bounded_and_the_highest_directory_is_cut_last() {
        let scratch = Scratch::new();
        for name in ["a", "b", "c", "d"] {
            scratch.file(&format!("etc/cdi/{name}.json"), &padded(name, Format::Json.max_bytes()));
        }
        scratch.file("etc/cdi/e.json", "");
        scratch.mode("etc/cdi/e.json", 0o666);
        scratch.file("run/cdi/f.json", &json(&["f"]));
        let catalog = scan(&scratch, &["/etc/cdi", "/run/cdi"]).unwrap();
        // The last one is not looked at any more.
        let why = format!("the specifications have more than {BYTES_MAX} bytes in all");
        let cut = ["d", "e"].map(|name| (format!("/etc/cdi/{name}.json"), why.clone()));
        assert_eq!(unusable(&catalog), cut);
        for name in ["a", "b", "c", "f"] {
            assert!(file_of(&catalog, name).is_some(), "{name}");
        }
    }

    #[test]
    fn only_files_that_can_matter_are_parsed() {
        let scratch = Scratch::new();
        scratch.file("etc/cdi/low.json", "{");
        scratch.file("run/cdi/a.json", &json(&["0"]));
        scratch.file("run/cdi/b.json", "{");
        scratch.file("run/cdi/c.json", "{ v.com/gpu");
        scratch.file("run/cdi/d.json", "{ v.com/gpu1 x-v.com/gpu");
        let catalog = scan(&scratch, &["/etc/cdi", "/run/cdi"]).unwrap();
        assert_eq!(file_of(&catalog, "0"), Some("/run/cdi/a.json".into()));
        let parsed = |catalog: &Catalog| -> Vec<_> {
            catalog.faults().map(|fault| fault.split_once(": ").unwrap().0.to_owned()).collect()
        };
        assert_eq!(parsed(&catalog), ["/run/cdi/c.json"], "names the kind");
        assert_eq!(file_of(&catalog, "1"), None);
        assert_eq!(parsed(&catalog).len(), 4, "why it is missing is told");
        // What could have replaced a definition is looked at in full.
        let catalog = scan(&scratch, &["/run/cdi", "/etc/cdi"]).unwrap();
        assert_eq!(file_of(&catalog, "0"), None);
        assert_eq!(parsed(&catalog), ["/etc/cdi/low.json", "/run/cdi/c.json"]);
    }

    #[test]
    fn a_kind_counts_however_it_is_written() {
        let scratch = Scratch::new();
        let yaml = "cdiVersion: 0.6.0\nkind: KIND\ndevices: [{name: x, containerEdits: \
                    {deviceNodes: [{path: /dev/x}]}}]\n";
        for kind in ["v.com/gpu", "'v.com/gpu'", r#""v.com\x2fgpu""#, r#""v.\u0063om/gp\165""#] {
            scratch.file("etc/cdi/a.yaml", &yaml.replace("KIND", kind));
            let known = !kind.ends_with("165\"");
            let found = file_of(&scan(&scratch, &["/etc/cdi"]).unwrap(), "x").is_some();
            assert_eq!(found, known, "{kind}");
        }
        for kind in ["v.com\\/gpu", "v.com/\\u0067pu"] {
            scratch.file("run/cdi/a.json", &json(&["y"]).replace("v.com/gpu", kind));
            assert!(file_of(&scan(&scratch, &["/run/cdi"]).unwrap(), "y").is_some(), "{kind}");
        }
    }
}
