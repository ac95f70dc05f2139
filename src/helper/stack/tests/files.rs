//! Where service files are, and what libpam reads in them.

use super::*;

#[test]
fn service_files_are_found_in_libpams_order() {
    assert_effective(&[("usr/lib/pam.d/sshd", OURS)]);
    assert_missing(
        &[
            ("usr/lib/pam.d/sshd", OURS),
            ("sshd", "session required pam_unix.so"),
        ],
        "no session",
    );
    assert_effective(&[("sshd", "session include a"), ("usr/lib/pam.d/a", OURS)]);
    assert_effective(&[("sshd", "session include /opt/a"), ("opt/a", OURS)]);
    assert_effective(&[("other", OURS)]);
    assert_effective(&[("sshd", "auth required pam_unix.so"), ("other", OURS)]);
    assert_missing(
        &[("sshd", "session required pam_unix.so"), ("other", OURS)],
        "no session line",
    );
}

#[test]
fn unreadable_stack_is_missing() {
    assert_missing(
        &[("sshd", &format!("{OURS}session include gone"))],
        "gone: no such service file",
    );
    assert_missing(
        &[("sshd", &format!("{OURS}session include"))],
        "sshd:2 includes nothing",
    );
    assert_missing(
        &[("sshd", &format!("{OURS}@include sshd"))],
        "more than 16 deep",
    );
    assert_missing(
        &[("sshd", &format!("{OURS}session substack sshd"))],
        "more than 16 deep",
    );
    assert_missing(
        &[("sshd", &format!("{OURS}session \\\n"))],
        "sshd:2 ends in a line's middle",
    );
    assert_missing(
        &[("sshd", &OURS.repeat(1001))],
        "more than 1000 session lines",
    );
    assert_effective(&[("sshd", &format!("{OURS}auth include gone"))]);
}

/// libpam runs no line of a service `other` that is not used: versions need not read them alike.
#[test]
fn unused_fallback_needs_only_to_be_loadable() {
    for other in [
        "auth required pam_deny.so\r\n".to_owned(),
        "\u{feff}# words\nsession\u{a0}required pam_deny.so\n".to_owned(),
        format!("# {}\n", "-".repeat(1100)),
        "\nauth required \\\n#\n pam_deny.so\n".to_owned(),
    ] {
        assert_effective(&[("sshd", OURS), ("other", &other)]);
    }
    let used = "session required pam_job_adopt.so debug\r\n";
    assert_missing(&[("other", used)], "other:1 has a carriage return (U+000D)");
}

#[test]
fn null_device_and_folder_are_files_without_lines() {
    let scratch = Scratch::new();
    let dir = scratch.dir("etc/pam.d");
    let null = Path::new("/dev/null");
    let judge = || judge_stack(scratch.path(), "sshd", Group::Session);
    scratch.file("etc/pam.d/sshd", &format!("session include x\n{OURS}"));
    for name in ["x", "other"] {
        std::os::unix::fs::symlink(null, dir.join(name)).unwrap();
    }
    assert_eq!(
        judge().session_line(),
        SessionLine::Effective,
        "{}",
        judge()
    );
    std::fs::remove_file(dir.join("other")).unwrap();
    scratch.dir("etc/pam.d/other");
    assert_eq!(
        judge().session_line(),
        SessionLine::Effective,
        "{}",
        judge()
    );
    std::fs::remove_file(dir.join("x")).unwrap();
    nix::unistd::mkfifo(&dir.join("x"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    assert!(
        judge().to_string().ends_with("x: not a regular file"),
        "{}",
        judge()
    );
    std::fs::remove_file(dir.join("sshd")).unwrap();
    std::os::unix::fs::symlink(null, dir.join("sshd")).unwrap();
    assert_eq!(judge(), StackFinding::Absent);
}

#[test]
fn include_of_fallback_that_the_helper_may_not_look_for_is_there() {
    let scratch = Scratch::new();
    scratch.file("etc/pam.d/sshd", OURS);
    scratch.file("etc/pam.d/other", "@include /hidden/common-auth\n");
    scratch.file("hidden/common-auth", "auth required pam_deny.so\n");
    scratch.mode("hidden", 0);
    scratch.mode("", 0o755);
    // A thread of its own: root's user for file access stays as it is in all others.
    let finding = std::thread::scope(|scope| {
        let judge = || {
            nix::unistd::setfsuid(nix::unistd::Uid::from_raw(65534));
            judge_stack(scratch.path(), "sshd", Group::Session)
        };
        scope.spawn(judge).join().unwrap()
    });
    scratch.mode("hidden", 0o700);
    assert_eq!(finding.session_line(), SessionLine::Effective, "{finding}");
}

/// A byte that is no UTF-8 counts as one, in the file and in what replaces its content.
#[test]
fn comment_in_another_encoding_has_as_many_bytes_as_the_file() {
    let scratch = Scratch::new();
    let path = scratch.file("etc/pam.d/sshd", "");
    let judge = |bytes: usize, replacement: bool| {
        let text = [b"#".as_slice(), &vec![0xe4; bytes], b"\n", OURS.as_bytes()].concat();
        if replacement {
            let file = Some((path.as_path(), text.as_slice()));
            return judge_stack_with(scratch.path(), "sshd", Group::Session, file);
        }
        std::fs::write(&path, &text).unwrap();
        judge_stack(scratch.path(), "sshd", Group::Session)
    };
    for replacement in [true, false] {
        for bytes in [350, 1022] {
            let finding = judge(bytes, replacement);
            assert_eq!(finding.session_line(), SessionLine::Effective, "{finding}");
        }
        let rejected = Rejection::TooLong(1024);
        let place = FileLine {
            file: path.clone(),
            line: 1,
        };
        assert_eq!(
            judge(1023, replacement),
            StackFinding::Rejected(place, rejected)
        );
    }
}

#[test]
fn broken_fallback_that_the_helper_may_not_read_is_left_alone() {
    let scratch = Scratch::new();
    scratch.file("etc/pam.d/sshd", OURS);
    scratch.file("etc/pam.d/other", "auth \\\n");
    scratch.mode("etc/pam.d/other", 0);
    let finding = judge_stack(scratch.path(), "sshd", Group::Session);
    // Root may read every file.
    let may_read = std::fs::File::open(scratch.path().join("etc/pam.d/other")).is_ok();
    assert_eq!(
        finding.session_line() == SessionLine::Missing,
        may_read,
        "{finding}"
    );
}

/// Debian's libpam takes in files by `@include`, and looks for included files in `/etc` alone.
/// Without a library that tells, both ways of reading must run our line.
#[test]
fn include_of_debian_counts_as_its_libpam_reads_it() {
    let library = |text: &'static str| ("usr/lib64/libpam.so.0", text);
    let debian = library("\0...\0@include\0");
    let upstream = library("\0include\0");
    let x = ("x", OURS);
    let skips = ("y", "session sufficient pam_x.so");
    for line in ["@include", "-@include", "@INCLUDE"] {
        let sshd = format!("{line} x\n");
        assert_effective(&[("sshd", &sshd), x, debian]);
        assert_missing(&[("sshd", &sshd), x, upstream], "no session line");
        assert_missing(&[("sshd", &sshd), x], "no session line");
        let before_ours = format!("{line} y\n{OURS}");
        assert_missing(
            &[("sshd", &before_ours), skips, debian],
            "can be skipped by etc/pam.d/y:1",
        );
        assert_missing(
            &[("sshd", &before_ours), skips],
            "can be skipped by etc/pam.d/y:1",
        );
        assert_effective(&[("sshd", &before_ours), skips, upstream]);
    }
    let nested = ("z", "@include x\n");
    assert_effective(&[("sshd", "session include z"), nested, x, debian]);
    assert_missing(
        &[("sshd", "session include z"), nested, x, upstream],
        "z:1 begins with @include",
    );
    let vendor = [("sshd", "session include a"), ("usr/lib/pam.d/a", OURS)];
    assert_effective(&[&vendor[..], &[upstream]].concat());
    assert_missing(
        &[&vendor[..], &[debian]].concat(),
        "sshd:1: a: no such service file",
    );
}

/// As authselect makes them.
#[test]
fn absolute_link_of_an_image_leads_to_its_own_file() {
    let scratch = Scratch::new();
    scratch.file("etc/authselect/system-auth", OURS);
    scratch.file("etc/pam.d/sshd", "session include system-auth\n");
    let link = scratch.path().join("etc/pam.d/system-auth");
    std::os::unix::fs::symlink("/etc/authselect/system-auth", link).unwrap();
    let finding = judge_stack(scratch.path(), "sshd", Group::Session);
    assert_eq!(finding.session_line(), SessionLine::Effective, "{finding}");
}
