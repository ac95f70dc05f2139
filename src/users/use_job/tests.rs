//! Tests of choices: written, read and removed, by the user and by others.

use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

use super::*;
use crate::testing::Scratch;

/// A node on which the test's own account is root, the user and the helper's group.
struct TestNode {
    scratch: Scratch,
    choice: UserChoice,
    group: u32,
}

impl TestNode {
    fn new() -> Self {
        let scratch = Scratch::new();
        let choices = Choices::below(scratch.path(), scratch.trust());
        let uid = nix::unistd::geteuid().as_raw();
        let group = nix::unistd::getegid().as_raw();
        Self {
            scratch,
            choice: UserChoice { choices, uid },
            group,
        }
    }

    /// Creates a node with the user's directory and a choice in it.
    fn with_choice() -> Self {
        let node = Self::new();
        node.make_dir().unwrap();
        node.write("4242").unwrap();
        node
    }

    /// Makes the user's directory, as the module does.
    fn make_dir(&self) -> Result<(), TrustError> {
        self.choice.choices.make(self.choice.uid, self.group)
    }

    fn write(&self, id: &str) -> Result<(), TrustError> {
        self.choice.write(&id.parse().unwrap())
    }

    fn path(&self) -> PathBuf {
        self.choice.dir()
    }

    fn file(&self) -> PathBuf {
        self.path().join(FILE)
    }

    fn read(&self) -> Result<Option<String>, String> {
        let choice = self.choice.read();
        choice
            .map(|id| id.map(|id| id.to_string()))
            .map_err(|error| error.to_string())
    }

    /// The fault of the file, which must exist.
    #[track_caller]
    fn fault(&self) -> Distrust {
        match self.choice.read() {
            Err(error) if error.path().starts_with(self.path()) => error.cause().clone(),
            other => panic!("{other:?}"),
        }
    }
}

fn mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn choice_is_written_read_and_removed() {
    let node = TestNode::new();
    assert_eq!(node.read(), Ok(None));
    assert!(matches!(node.choice.remove(), Err(error) if error.is_missing()));
    assert!(matches!(node.write("4242"), Err(error) if error.is_missing()));
    node.make_dir().unwrap();
    assert_eq!(node.read(), Ok(None));
    for text in ["4242", "4250.a"] {
        node.write(text).unwrap();
        assert_eq!(node.read(), Ok(Some(text.into())));
    }
    let meta = node.file().metadata().unwrap();
    assert_eq!((meta.mode() & 0o7777, meta.gid()), (0o640, node.group));
    assert_eq!(
        std::fs::read_dir(node.path()).unwrap().count(),
        1,
        "one file and no other"
    );
    assert!(node.choice.remove().unwrap());
    assert!(!node.choice.remove().unwrap());
    assert_eq!(node.read(), Ok(None));
}

#[test]
fn choice_that_cannot_be_written_leaves_no_file() {
    let node = TestNode::with_choice();
    std::fs::remove_file(node.file()).unwrap();
    std::fs::create_dir(node.file()).unwrap();
    node.write("1").unwrap_err();
    assert_eq!(std::fs::read_dir(node.path()).unwrap().count(), 1);
}

#[test]
fn leftover_of_earlier_process_is_replaced() {
    let node = TestNode::with_choice();
    let leftover = node.path().join(format!(".{FILE}.{}", std::process::id()));
    std::fs::write(&leftover, "9\n").unwrap();
    node.write("1").unwrap();
    assert_eq!(node.read(), Ok(Some("1".into())));
    assert!(!leftover.exists());
}

#[test]
fn longest_id_can_be_chosen() {
    let node = TestNode::with_choice();
    let id = "j".repeat(64);
    node.write(&id).unwrap();
    assert_eq!(node.read(), Ok(Some(id)));
}

#[test]
fn second_make_repairs_only_wrong_mode() {
    let node = TestNode::with_choice();
    let before = node.path().metadata().unwrap();
    assert_eq!(before.mode() & 0o7777, USER_MODE);
    node.make_dir().unwrap();
    let after = node.path().metadata().unwrap();
    assert_eq!(
        (after.ino(), after.ctime_nsec()),
        (before.ino(), before.ctime_nsec())
    );
    mode(&node.path(), 0o700);
    node.write("1").unwrap_err();
    node.make_dir().unwrap();
    assert_eq!(node.path().metadata().unwrap().mode() & 0o7777, USER_MODE);
    assert_eq!(node.read(), Ok(Some("4242".into())));
}

#[test]
fn link_or_file_instead_of_directory_stays() {
    let node = TestNode::new();
    node.make_dir().unwrap();
    let elsewhere = node.scratch.dir("elsewhere");
    std::fs::remove_dir(node.path()).unwrap();
    symlink(&elsewhere, node.path()).unwrap();
    let result = node.make_dir();
    assert_eq!(*result.unwrap_err().cause(), Distrust::Open(Errno::ENOTDIR));
    assert!(node.read().unwrap_err().contains("or no directory"));
    assert_eq!(elsewhere.metadata().unwrap().mode() & 0o7777, 0o755);
    std::fs::remove_file(node.path()).unwrap();
    std::fs::write(node.path(), "4242\n").unwrap();
    assert!(node.make_dir().is_err());
    assert_eq!(std::fs::read(node.path()).unwrap(), b"4242\n");
}

#[test]
fn directory_below_writable_one_is_refused() {
    let node = TestNode::new();
    node.scratch.dir("run/job-adopt");
    node.scratch.mode("run/job-adopt", 0o777);
    let result = node.make_dir();
    assert_eq!(*result.unwrap_err().cause(), Distrust::Writable(0o777));
    assert!(!node.scratch.path().join("run/job-adopt/use").exists());
    assert!(node.read().unwrap_err().contains("writable by others"));
}

#[test]
fn only_private_regular_file_is_read() {
    let node = TestNode::with_choice();
    let file = node.file();
    for changed in [0o660, 0o642] {
        mode(&file, changed);
        assert_eq!(node.fault(), Distrust::WrongMode(changed));
    }
    mode(&file, 0o640);
    std::fs::hard_link(&file, node.path().join("second")).unwrap();
    assert_eq!(node.fault(), Distrust::SeveralNames(2));
    std::fs::rename(&file, node.path().join("first")).unwrap();
    symlink("first", &file).unwrap();
    assert_eq!(node.fault(), Distrust::NotRegular);
    std::fs::remove_file(&file).unwrap();
    nix::unistd::mkfifo(&file, Mode::S_IRUSR).unwrap();
    assert_eq!(node.fault(), Distrust::NotRegular);
    std::fs::remove_file(&file).unwrap();
    std::fs::create_dir(&file).unwrap();
    assert_eq!(node.fault(), Distrust::NotRegular);
}

#[test]
fn choice_in_directory_that_others_write_is_refused() {
    let node = TestNode::with_choice();
    mode(&node.path(), 0o770);
    assert_eq!(node.fault(), Distrust::WrongMode(0o770));
}

#[test]
fn only_single_line_with_id_is_read() {
    let node = TestNode::with_choice();
    for text in [
        "",
        "\n",
        "4242",
        "4242\n\n",
        "4242\r\n",
        " 4242\n",
        "4242 \n",
        "../4242\n",
        "-4242\n",
        "4242\n4250\n",
        "42\x0042\n",
        "4\u{fc}\n",
    ] {
        std::fs::write(node.file(), text).unwrap();
        assert_eq!(
            node.fault(),
            Distrust::MissingContent("job's id"),
            "{text:?}"
        );
    }
    for length in [65, 4096, 1 << 20] {
        std::fs::write(node.file(), "4".repeat(length) + "\n").unwrap();
        assert_eq!(node.fault(), Distrust::TooLarge(65));
    }
}
