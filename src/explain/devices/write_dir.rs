//! `devices --write-dir`: writes the names of GPUs as a directory, in the form of `device_dir`.

use std::fs::{DirBuilder, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use super::Options;
use super::attached::find_record;
use super::requested::{NameKind, requested_names};
use command::accounts::{require_root, with_login_rights};
use command::error::Error;
use command::exit_status::EXIT_FINE;
use helper::devices::DeviceName;
use helper::jobs::records::RecordDevices;
use helper::node::Tree;
use helper::printable;
use kernel::trust::Trust;
use naming::NameResolver;

const WRITE: &str = "write a directory of devices";

/// Writes a directory of devices for the names on the command line, or for those in the record of a job. Specifiers of a
/// record have no place in such a directory, and are left out.
pub(super) fn execute(options: &Options, dir: &Path) -> Result<u8, Error> {
    require_root(WRITE)?;
    let names = match &options.job {
        Some(id) => {
            let record = find_record(id, options)?;
            let failed = |cause: &str| Error::failed(WRITE, format!("job {id}"), cause);
            match record.devices() {
                RecordDevices::Requested(_) => record.device_names(),
                RecordDevices::Uncontained => {
                    return Err(failed("it has every device of the node"));
                }
                RecordDevices::Unspecified => {
                    return Err(failed("its record says nothing about devices"));
                }
            }
        }
        None => require_names(options)?,
    };
    let resolver = NameResolver::new(Tree::host(), options.conf.read()?.devices);
    // Logins resolve the directory by these rights.
    let entries = with_login_rights(|| resolver.list_directory_entries(&names))?;
    let entries = entries.map_err(|error| {
        let name = printable(&error.name);
        Error::failed(WRITE, name, printable(&error.why.to_string()))
    })?;
    write_entries(
        dir,
        &entries.into_iter().collect::<Vec<_>>(),
        &Trust::root(),
    )?;
    Ok(EXIT_FINE)
}

/// Lists the names on the command line, which must all have a place in a directory.
fn require_names(options: &Options) -> Result<Vec<DeviceName>, Error> {
    let mut names = Vec::new();
    for name in requested_names(options) {
        match name.kind {
            NameKind::Named(named) => names.push(named),
            NameKind::Specifier(_) => {
                let text = printable(&name.text);
                let cause = "a directory has names of GPUs, CDI devices and IMEX channels alone";
                return Err(Error::Input(format!(
                    "devices --write-dir: {text}: {cause}"
                )));
            }
        }
    }
    Ok(names)
}

/// Makes the directory, or fills an empty one, with an empty file for each entry. It appears at once: it is written
/// under another name first. It fails with [`Error::Failed`] if others than root could replace it, or if it has files.
fn write_entries(dir: &Path, entries: &[String], trust: &Trust) -> Result<(), Error> {
    let shown = || printable(&dir.to_string_lossy());
    let failed = |cause: &dyn std::fmt::Display| Error::failed(WRITE, shown(), cause);
    let parent = dir
        .parent()
        .ok_or_else(|| failed(&"no path of a directory"))?;
    let name = dir
        .file_name()
        .ok_or_else(|| failed(&"no path of a directory"))?;
    // Only root may be able to put another directory in the place of this one.
    trust.dir(parent).map_err(|error| failed(&error))?;
    let unfinished = parent.join(format!(
        ".{}.{}",
        name.to_string_lossy(),
        std::process::id()
    ));
    let result = fill(&unfinished, entries).and_then(|()| std::fs::rename(&unfinished, dir));
    result.map_err(|error| {
        let _ = std::fs::remove_dir_all(&unfinished);
        match error.kind() {
            io::ErrorKind::DirectoryNotEmpty | io::ErrorKind::AlreadyExists => {
                failed(&"it exists and is not empty: remove it first")
            }
            _ => failed(&error),
        }
    })
}

/// Makes the directory `dir` with an empty read-only file for each entry, and directories for entries with a
/// slash. It fails if `dir` or an entry exists already.
fn fill(dir: &Path, entries: &[String]) -> io::Result<()> {
    make_dir(dir)?;
    for entry in entries {
        let mut path: PathBuf = dir.to_owned();
        let mut parts = entry.split('/').peekable();
        while let Some(part) = parts.next() {
            path.push(part);
            if parts.peek().is_some() && !path.is_dir() {
                make_dir(&path)?;
            }
        }
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o444)
            .open(&path)?;
        file.set_permissions(Permissions::from_mode(0o444))?;
    }
    Ok(())
}

/// Makes a directory that everyone can read, whatever the umask.
fn make_dir(path: &Path) -> io::Result<()> {
    DirBuilder::new().mode(0o755).create(path)?;
    std::fs::set_permissions(path, Permissions::from_mode(0o755))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Scratch;
    use helper::devices::DeviceSettings;

    const UUID: &str = "GPU-edfee158-11c1-52b8-0517-92f30e7fac88";

    fn list(entries: &[&str]) -> Vec<String> {
        entries.iter().map(|&entry| entry.to_owned()).collect()
    }

    #[test]
    fn written_directory_is_read_with_the_same_devices() {
        let scratch = Scratch::new();
        let information = format!("GPU UUID: \t {UUID}\nDevice Minor: \t 3\n");
        let file = "proc/driver/nvidia/gpus/0000:1b:00.0/information";
        scratch.file(file, &information);
        scratch.dir("sys/bus/pci/devices/0000:1b:00.0");
        let driver = scratch
            .path()
            .join("sys/bus/pci/devices/0000:1b:00.0/driver");
        std::os::unix::fs::symlink("nvidia", driver).unwrap();
        scratch.file(
            "proc/devices",
            "Character devices:\n195 nvidia\n236 nvidia-caps-imex-channels\n",
        );
        scratch.file("dev/nvidia3", "c 195:3");
        scratch.file("dev/nvidia-caps-imex-channels/channel7", "c 236:7");
        scratch.file("dev/x", "c 195:3");
        let spec = r#"{"cdiVersion":"0.6.0","kind":"v.com/x","devices":[{"name":"0",
            "containerEdits":{"deviceNodes":[{"path":"/dev/x"}]}}]}"#;
        scratch.file("etc/cdi/x.json", spec);
        let tree = Tree::with_root(scratch.path(), scratch.trust());
        let resolver = NameResolver::new(tree, DeviceSettings::default());
        let names = [
            DeviceName::Gpu("0".to_owned()),
            DeviceName::Gpu("1b:00.0".to_owned()),
            DeviceName::Imex(7),
            DeviceName::Cdi("v.com/x=0".to_owned()),
        ];
        let entries: Vec<String> = resolver
            .list_directory_entries(&names)
            .unwrap()
            .into_iter()
            .collect();
        assert_eq!(entries, [UUID, "cdi/v.com/x/0", "imex/7"]);
        scratch.dir("run");
        let dir = scratch.path().join("run/list");
        write_entries(&dir, &entries, &scratch.trust()).unwrap();
        let read = [DeviceName::Dir("/run/list".into())];
        let sorted = |each: &[DeviceName]| {
            let mut devices = resolver.resolve_names(each).unwrap().devices;
            devices.sort();
            devices
        };
        assert_eq!(sorted(&read), sorted(&names));
        // Only its folder is left, and a second list does not mix with it.
        let again = write_entries(&dir, &entries, &scratch.trust());
        assert!(again.unwrap_err().to_string().contains("not empty"));
        let folders = std::fs::read_dir(scratch.path().join("run")).unwrap();
        assert_eq!(folders.count(), 1);
    }

    #[test]
    fn instances_have_folders_and_modes_do_not_depend_on_umask() {
        let scratch = Scratch::new();
        scratch.dir("run");
        let dir = scratch.path().join("run/list");
        let entries = list(&[&format!("MIG-{UUID}/2/0"), &format!("MIG-{UUID}/3/0")]);
        write_entries(&dir, &entries, &scratch.trust()).unwrap();
        for (path, mode) in [
            (String::new(), 0o755),
            (format!("MIG-{UUID}/2"), 0o755),
            (format!("MIG-{UUID}/3/0"), 0o444),
        ] {
            let found = dir.join(path).metadata().unwrap().permissions().mode();
            assert_eq!(found & 0o7777, mode);
        }
    }

    #[test]
    fn folder_that_others_can_write_is_refused() {
        let scratch = Scratch::new();
        scratch.dir("run");
        scratch.mode("run", 0o777);
        let dir = scratch.path().join("run/list");
        let result = write_entries(&dir, &list(&["void"]), &scratch.trust());
        scratch.mode("run", 0o755);
        assert!(result.is_err() && !dir.exists());
    }
}
