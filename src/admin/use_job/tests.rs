use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::PathBuf;

use super::*;
use crate::testing::Scratch;
use helper::read_choice;

/// A node on which root, the user and the helper's group are the test's own.
struct Bench {
    scratch: Scratch,
    choices: Choices,
    uid: u32,
    group: u32,
}

impl Bench {
    fn new() -> Self {
        let scratch = Scratch::new();
        let choices = Choices::below(scratch.path(), scratch.trust());
        let (uid, group) = (nix::unistd::geteuid().as_raw(), nix::unistd::getegid().as_raw());
        Self { scratch, choices, uid, group }
    }

    /// With a directory and a choice in it.
    fn chosen() -> Self {
        let bench = Self::new();
        bench.choices.make(bench.uid, bench.group).unwrap();
        put(&bench.choices, bench.uid, &"4242".parse().unwrap()).unwrap();
        bench
    }

    fn path(&self) -> PathBuf {
        self.choices.user_dir(self.uid)
    }

    fn file(&self) -> PathBuf {
        self.path().join(FILE)
    }

    fn read(&self) -> Result<Option<String>, String> {
        let read = read_choice(&self.choices, self.uid);
        read.map(|id| id.map(|id| id.to_string())).map_err(|error| error.to_string())
    }

    /// What is wrong with the file, which is there.
    #[track_caller]
    fn wrong(&self) -> Distrust {
        match read_choice(&self.choices, self.uid) {
            Err(error) if error.path().starts_with(self.path()) => error.cause().clone(),
            other => panic!("{other:?}"),
        }
    }
}

fn mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn a_choice_is_made_read_and_undone() {
    let bench = Bench::new();
    assert_eq!(bench.read(), Ok(None));
    assert!(matches!(clear(&bench.choices, bench.uid), Err(error) if error.is_missing()));
    let id = "4242".parse().unwrap();
    assert!(matches!(put(&bench.choices, bench.uid, &id), Err(error) if error.is_missing()));
    bench.choices.make(bench.uid, bench.group).unwrap();
    assert_eq!(bench.read(), Ok(None));
    for text in ["4242", "4250.a"] {
        put(&bench.choices, bench.uid, &text.parse().unwrap()).unwrap();
        assert_eq!(bench.read(), Ok(Some(text.into())));
    }
    let meta = bench.file().metadata().unwrap();
    assert_eq!((meta.mode() & 0o7777, meta.gid()), (0o640, bench.group));
    assert_eq!(std::fs::read_dir(bench.path()).unwrap().count(), 1, "one file and no other");
    assert!(clear(&bench.choices, bench.uid).unwrap());
    assert!(!clear(&bench.choices, bench.uid).unwrap());
    assert_eq!(bench.read(), Ok(None));
}

#[test]
fn a_choice_that_cannot_be_kept_leaves_nothing() {
    let bench = Bench::chosen();
    std::fs::remove_file(bench.file()).unwrap();
    std::fs::create_dir(bench.file()).unwrap();
    put(&bench.choices, bench.uid, &"1".parse().unwrap()).unwrap_err();
    assert_eq!(std::fs::read_dir(bench.path()).unwrap().count(), 1);
}

#[test]
fn what_an_earlier_process_left_is_in_nobodys_way() {
    let bench = Bench::chosen();
    let left = bench.path().join(format!(".{FILE}.{}", std::process::id()));
    std::fs::write(&left, "9\n").unwrap();
    put(&bench.choices, bench.uid, &"1".parse().unwrap()).unwrap();
    assert_eq!(bench.read(), Ok(Some("1".into())));
    assert!(!left.exists());
}

#[test]
fn an_id_as_long_as_they_get_fits() {
    let bench = Bench::chosen();
    let id = "j".repeat(64);
    put(&bench.choices, bench.uid, &id.parse().unwrap()).unwrap();
    assert_eq!(bench.read(), Ok(Some(id)));
}

#[test]
fn making_it_again_changes_nothing_but_what_the_user_has_spoilt() {
    let bench = Bench::chosen();
    let before = bench.path().metadata().unwrap();
    assert_eq!(before.mode() & 0o7777, USER_MODE);
    bench.choices.make(bench.uid, bench.group).unwrap();
    let after = bench.path().metadata().unwrap();
    assert_eq!((after.ino(), after.ctime_nsec()), (before.ino(), before.ctime_nsec()));
    mode(&bench.path(), 0o700);
    put(&bench.choices, bench.uid, &"1".parse().unwrap()).unwrap_err();
    bench.choices.make(bench.uid, bench.group).unwrap();
    assert_eq!(bench.path().metadata().unwrap().mode() & 0o7777, USER_MODE);
    assert_eq!(bench.read(), Ok(Some("4242".into())));
}

#[test]
fn what_is_there_and_is_no_directory_is_left_alone() {
    let bench = Bench::new();
    bench.choices.make(bench.uid, bench.group).unwrap();
    let elsewhere = bench.scratch.dir("elsewhere");
    std::fs::remove_dir(bench.path()).unwrap();
    symlink(&elsewhere, bench.path()).unwrap();
    let made = bench.choices.make(bench.uid, bench.group);
    assert_eq!(*made.unwrap_err().cause(), Distrust::Open(Errno::ENOTDIR));
    assert!(bench.read().unwrap_err().contains("or no directory"));
    assert_eq!(elsewhere.metadata().unwrap().mode() & 0o7777, 0o755);
    std::fs::remove_file(bench.path()).unwrap();
    std::fs::write(bench.path(), "4242\n").unwrap();
    assert!(bench.choices.make(bench.uid, bench.group).is_err());
    assert_eq!(std::fs::read(bench.path()).unwrap(), b"4242\n");
}

#[test]
fn nothing_is_made_below_what_others_can_write() {
    let bench = Bench::new();
    bench.scratch.dir("run/job-adopt");
    bench.scratch.mode("run/job-adopt", 0o777);
    let made = bench.choices.make(bench.uid, bench.group);
    assert_eq!(*made.unwrap_err().cause(), Distrust::Writable(0o777));
    assert!(!bench.scratch.path().join("run/job-adopt/use").exists());
    assert!(bench.read().unwrap_err().contains("writable by others"));
}

#[test]
fn only_a_plain_file_of_the_users_own_is_read() {
    let bench = Bench::chosen();
    let file = bench.file();
    for changed in [0o660, 0o642] {
        mode(&file, changed);
        assert_eq!(bench.wrong(), Distrust::WrongMode(changed));
    }
    mode(&file, 0o640);
    std::fs::hard_link(&file, bench.path().join("second")).unwrap();
    assert_eq!(bench.wrong(), Distrust::SeveralNames(2));
    std::fs::rename(&file, bench.path().join("first")).unwrap();
    symlink("first", &file).unwrap();
    assert_eq!(bench.wrong(), Distrust::NotRegular);
    std::fs::remove_file(&file).unwrap();
    nix::unistd::mkfifo(&file, Mode::S_IRUSR).unwrap();
    assert_eq!(bench.wrong(), Distrust::NotRegular);
    std::fs::remove_file(&file).unwrap();
    std::fs::create_dir(&file).unwrap();
    assert_eq!(bench.wrong(), Distrust::NotRegular);
}

#[test]
fn a_directory_that_others_may_write_holds_no_choice() {
    let bench = Bench::chosen();
    mode(&bench.path(), 0o770);
    assert_eq!(bench.wrong(), Distrust::WrongMode(0o770));
}

#[test]
fn only_an_id_on_a_line_of_its_own_is_one() {
    let bench = Bench::chosen();
    for text in [
        "", "\n", "4242", "4242\n\n", "4242\r\n", " 4242\n", "4242 \n", "../4242\n", "-4242\n",
        "4242\n4250\n", "42\x0042\n", "4\u{fc}\n",
    ] {
        std::fs::write(bench.file(), text).unwrap();
        assert_eq!(bench.wrong(), Distrust::Lacks("job's id"), "{text:?}");
    }
    for length in [65, 4096, 1 << 20] {
        std::fs::write(bench.file(), "4".repeat(length) + "\n").unwrap();
        assert_eq!(bench.wrong(), Distrust::TooLarge(65));
    }
}
