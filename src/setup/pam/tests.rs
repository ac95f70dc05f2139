use super::lines::{REPLACED_MARK, decode};
use super::plan::AUTH_LINE;
use super::*;
use crate::testing::Scratch;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::process::Command;

const SHAPES: [&str; 10] = [
    "debian",
    "el",
    "el7",
    "el-sssd",
    "el-sssd-features",
    "el-winbind",
    "el-winbind-features",
    "suse",
    "suse-sss",
    "ubuntu",
];
const OURS: &str = "required     pam_job_adopt.so";

/// Lays out a node with a stack of this shape.
pub(super) fn node(shape: &str) -> Scratch {
    let scratch = Scratch::new();
    let from = format!(
        "{}/../../tests/fixtures/pam/{shape}/.",
        env!("CARGO_MANIFEST_DIR")
    );
    assert!(
        Command::new("cp")
            .arg("-r")
            .arg(from)
            .arg(scratch.path())
            .status()
            .unwrap()
            .success()
    );
    let others = [
        "pam_access.so",
        "pam_deny.so",
        "pam_listfile.so",
        "pam_permit.so",
        "pam_slurm_adopt.so",
        "pam_sss.so",
        "pam_succeed_if.so",
        "pam_time.so",
        "pam_winbind.so",
    ];
    for name in others.into_iter().chain(["pam_job_adopt.so"]) {
        scratch.file(&format!("usr/lib64/security/{name}"), "");
    }
    if ["debian", "ubuntu"].contains(&shape) {
        // Only this libpam knows the word.
        scratch.file("usr/lib64/libpam.so.0", "@include\0");
    }
    scratch
}

pub(super) fn read(scratch: &Scratch) -> Stack<'_> {
    Stack::read(scratch.path(), "sshd").unwrap()
}

pub(super) fn text_of(scratch: &Scratch) -> String {
    decode(&read(scratch).text)
}

/// The text that would be written.
pub(super) fn planned(scratch: &Scratch, arguments: Option<&str>) -> String {
    decode(&read(scratch).with_our_lines(arguments).unwrap().text)
}

/// The text with our lines.
fn install(scratch: &Scratch, arguments: Option<&str>) -> String {
    planned(scratch, arguments)
}

fn refusal(scratch: &Scratch, arguments: Option<&str>) -> String {
    read(scratch)
        .with_our_lines(arguments)
        .unwrap_err()
        .to_string()
}

fn line_before<'a>(text: &'a str, line: &str) -> &'a str {
    let index = text.lines().position(|other| other == line).unwrap();
    text.lines().nth(index - 1).unwrap()
}

/// Lays out a node with Debian's stack, in whose file for sshd `to` replaces `from`.
fn debian(from: &str, to: &str) -> Scratch {
    let scratch = node("debian");
    let text = fs::read_to_string(scratch.path().join("etc/pam.d/sshd")).unwrap();
    assert!(text.contains(from));
    scratch.file("etc/pam.d/sshd", &text.replacen(from, to, 1));
    scratch
}
const OAR: &str = "account required pam_exec.so quiet stdout /usr/sbin/pam_oar_adopt -a\n";
const THEIRS: &str = "-account required pam_slurm_adopt.so action_adopt_failure=deny nodename=n1\n";
fn beside_theirs(theirs: &str) -> Scratch {
    let include = "@include common-account\n";
    debian(include, &format!("{include}{theirs}"))
}

#[test]
fn both_lines_are_inserted_at_their_places_in_every_shape() {
    for shape in SHAPES {
        let scratch = node(shape);
        let text = install(&scratch, None);
        let account = format!("account    {OURS}");
        let session = format!("session    {OURS}");
        assert!(
            line_before(&text, &account).contains("pam_nologin.so"),
            "{text}"
        );
        assert_eq!(text.lines().last().unwrap(), session);
        let is_auth = |line: &&str| {
            line.trim_start_matches('-').starts_with("auth") || *line == "@include common-auth"
        };
        let auth: Vec<&str> = text.lines().filter(is_auth).collect();
        if shape == "suse-sss" {
            // A sufficient line of common-auth skips the last one.
            assert_eq!(text.matches("pam_job_adopt").count(), 2, "{text}");
        } else {
            assert_eq!(text.matches("pam_job_adopt").count(), 4, "{text}");
            assert_eq!([auth[0], auth[auth.len() - 1]], [AUTH_LINE; 2], "{text}");
        }
        // All other lines stay.
        let stack = read(&scratch);
        let others: String = text
            .split_inclusive('\n')
            .filter(|line| !line.contains("pam_job_adopt"))
            .collect();
        assert_eq!(others.as_bytes(), stack.text);
    }
}

#[test]
fn second_write_changes_no_text_and_removal_restores_old_text() {
    for shape in SHAPES {
        for arguments in [None, Some("observe exempt_groups=ops")] {
            let scratch = node(shape);
            let old = text_of(&scratch);
            let text = install(&scratch, arguments);
            read(&scratch).save_original().unwrap();
            read(&scratch).write(text.as_bytes()).unwrap();
            assert_eq!(install(&scratch, None), text);
            assert_eq!(install(&scratch, arguments), text);
            assert_eq!(
                read(&scratch).without_our_lines().unwrap().text,
                old.as_bytes()
            );
            let original = fs::read_to_string(read(&scratch).original_path());
            assert_eq!(original.unwrap(), old);
            // Arguments that are given replace those that are there.
            assert_eq!(install(&scratch, Some("")).matches("observe").count(), 0);
        }
    }
}

#[test]
fn written_file_has_owner_and_mode_of_old_file() {
    let scratch = node("el");
    scratch.mode("etc/pam.d/sshd", 0o640);
    read(&scratch)
        .write(b"session required pam_permit.so\n")
        .unwrap();
    let meta = fs::metadata(scratch.path().join("etc/pam.d/sshd")).unwrap();
    assert_eq!(meta.mode() & 0o7777, 0o640);
    assert_eq!(
        fs::read_dir(scratch.path().join("etc/pam.d"))
            .unwrap()
            .count(),
        3
    );
}

#[test]
fn line_of_pam_slurm_adopt_is_replaced_and_its_arguments_are_kept() {
    let scratch = beside_theirs(THEIRS);
    let old = text_of(&scratch);
    let plan = read(&scratch).with_our_lines(Some("timeout=9")).unwrap();
    let text = decode(&plan.text);
    assert!(text.contains(&format!("{REPLACED_MARK}{THEIRS}")), "{text}");
    let words = "action_adopt_failure=deny nodename=n1 timeout=9\n";
    assert_eq!(
        text.matches(&format!("{OURS} {words}")).count(),
        2,
        "{text}"
    );
    assert!(
        plan.notes
            .iter()
            .any(|note| note.contains("action_generic_failure"))
    );
    read(&scratch).write(text.as_bytes()).unwrap();
    assert_eq!(
        read(&scratch).without_our_lines().unwrap().text,
        old.as_bytes()
    );
    // A logical line of several physical lines is replaced as a whole.
    let continued = beside_theirs("account required \\\n  pam_slurm_adopt.so \\\n  nodename=n1\n");
    let replaced = install(&continued, None);
    assert_eq!(replaced.matches(REPLACED_MARK).count(), 3, "{replaced}");
    assert!(
        replaced.contains(&format!("{OURS} nodename=n1\n")),
        "{replaced}"
    );
}

#[test]
fn given_argument_wins_over_argument_of_replaced_line() {
    let scratch = beside_theirs("account required pam_slurm_adopt.so Action_Unknown=allow\n");
    let why = refusal(&scratch, None);
    assert!(
        why.contains("Action_Unknown=allow") && why.contains("newest or deny"),
        "{why}"
    );
    let text = install(&scratch, Some("action_unknown=deny"));
    assert!(
        text.contains(&format!("{OURS} action_unknown=deny\n")),
        "{text}"
    );
}

#[test]
fn observing_line_leaves_rival_line_in_place() {
    let scratch = beside_theirs(THEIRS);
    let plan = read(&scratch).with_our_lines(Some("observe")).unwrap();
    assert!(
        decode(&plan.text).contains(&format!("\n{THEIRS}")),
        "{plan:?}"
    );
    assert!(
        plan.notes
            .iter()
            .any(|note| note.contains("goes on to decide"))
    );
    // Installing without `observe` replaces the rival line.
    read(&scratch).write(&plan.text).unwrap();
    assert!(install(&scratch, Some("")).contains(&format!("{REPLACED_MARK}{THEIRS}")));
}

#[test]
fn observing_line_comes_before_rival_that_refuses() {
    let include = "@include common-account\n";
    let theirs = format!("account requisite pam_flux.so\n{include}");
    let text = install(&debian(include, &theirs), Some("observe"));
    assert!(
        text.contains(&format!("{OURS} observe\n{theirs}")),
        "{text}"
    );
}

#[test]
fn rival_that_is_not_understood_is_refused() {
    assert!(
        refusal(&beside_theirs("account required pam_flux.so\n"), None).contains("pam_flux.so")
    );
    let scratch = node("debian");
    scratch.file("etc/pam.d/common-account", OAR);
    let why = refusal(&scratch, None);
    assert!(
        why.contains("pam_oar_adopt at ") && why.contains("common-account:1"),
        "{why}"
    );
    assert!(
        why.contains("take that line out first (pam-auth-update"),
        "{why}"
    );
    let plan = read(&scratch).with_our_lines(Some("observe")).unwrap();
    assert!(
        plan.notes
            .iter()
            .any(|note| note.starts_with("pam_oar_adopt at "))
    );
    let of_all_services = beside_theirs("account required pam_slurm_adopt.so service=*\n");
    assert!(refusal(&of_all_services, None).contains("name one"));
    let with_unknown_argument = beside_theirs("account required pam_slurm_adopt.so no_such=1\n");
    assert!(refusal(&with_unknown_argument, None).contains("no_such=1"));
}

#[test]
fn change_that_would_lock_operators_out_is_refused() {
    let include = "@include common-account\n";
    let lists = format!("account sufficient pam_access.so\n{include}{THEIRS}");
    let scratch = debian(include, &lists);
    assert!(refusal(&scratch, None).contains("exempt_groups"));
    assert!(install(&scratch, Some("exempt_groups=ops")).contains("exempt_groups=ops"));
}

#[test]
fn line_in_file_of_many_services_is_refused() {
    let scratch = node("debian");
    scratch.file("etc/pam.d/common-account", THEIRS);
    assert!(refusal(&scratch, None).contains("common-account:1"));
    scratch.file(
        "etc/pam.d/common-account",
        "account required pam_job_adopt.so\n",
    );
    assert!(refusal(&scratch, None).contains("already"));
}

#[test]
fn stack_whose_session_line_can_be_skipped_is_refused() {
    let leap = "session [success=1 default=ignore] pam_permit.so\n";
    let scratch = debian("@include common-password", leap);
    assert!(refusal(&scratch, None).contains("can be skipped"));
}

/// libpam uses the service `other` then.
#[test]
fn stack_without_account_line_is_refused() {
    let scratch = node("debian");
    scratch.file("etc/pam.d/other", "account required pam_deny.so\n");
    scratch.file("etc/pam.d/sshd", "session required pam_permit.so\n");
    assert!(refusal(&scratch, None).contains("no account line"));
}

#[test]
fn stack_that_not_every_libpam_reads_alike_is_refused() {
    let include = "@include common-account\n";
    let scratch = debian(
        include,
        &format!("account optional pam_x.so \\\n#\n{include}"),
    );
    let continued = refusal(&scratch, None);
    assert!(
        continued.contains("is continued over") && continued.contains("remove the empty"),
        "{continued}"
    );
    // A line that names many groups would be too long for libpam before 1.6.
    let groups = "a-group-of-the-site,".repeat(49);
    let too_long = refusal(&node("el"), Some(&format!("exempt_groups={groups}ops")));
    assert!(
        too_long.contains("has 1038 bytes") && too_long.contains("one group"),
        "{too_long}"
    );
    install(&node("el"), Some(&format!("exempt_groups={groups}")[..982]));
    // So would be the comment that a replaced line becomes.
    let theirs = format!(
        "account required pam_slurm_adopt.so{}nodename=n1\n",
        " ".repeat(970)
    );
    let too_long_as_comment = refusal(&beside_theirs(&theirs), None);
    assert!(
        too_long_as_comment.contains("has 1028 bytes"),
        "{too_long_as_comment}"
    );
}

#[test]
fn account_line_comes_before_a_line_whose_failure_would_outweigh_it() {
    let sss = "account [default=bad success=ok user_unknown=ignore] pam_sss.so\n";
    let include = "@include common-account\n";
    let scratch = debian(include, &format!("{sss}{include}"));
    let text = install(&scratch, None);
    assert!(
        text.contains(&format!("account    {OURS}\n{sss}")),
        "{text}"
    );
}

#[test]
fn link_and_missing_service_are_refused() {
    let scratch = node("el");
    let error = |service| {
        Stack::read(scratch.path(), service)
            .unwrap_err()
            .to_string()
    };
    assert!(error("nothing").contains("is not there"));
    let folder = scratch.path().join("etc/pam.d");
    std::os::unix::fs::symlink("sshd", folder.join("linked")).unwrap();
    assert!(error("linked").contains("authselect"));
}

#[test]
fn other_service_is_named_and_missing_module_is_refused() {
    let scratch = node("el");
    fs::copy(
        scratch.path().join("etc/pam.d/sshd"),
        scratch.path().join("etc/pam.d/alt"),
    )
    .unwrap();
    let stack = Stack::read(scratch.path(), "Alt").unwrap();
    let text = decode(&stack.with_our_lines(None).unwrap().text);
    assert_eq!(
        text.matches(&format!("{OURS} service=alt\n")).count(),
        2,
        "{text}"
    );
    fs::remove_file(scratch.path().join("usr/lib64/security/pam_job_adopt.so")).unwrap();
    let why = stack.write(text.as_bytes()).unwrap_err().to_string();
    assert!(why.contains("not installed"), "{why}");
}

/// Writes the planned lines, and returns the text without them.
fn remove(scratch: &Scratch) -> (String, String) {
    let restored = read(scratch).without_our_lines().unwrap();
    let mut out = Vec::new();
    let mut err = Vec::new();
    restored.warn(
        &read(scratch).path,
        &mut Output {
            out: &mut out,
            err: &mut err,
        },
    );
    (decode(&restored.text), decode(&err))
}

#[test]
fn line_whose_module_is_gone_is_not_restored() {
    let several = "account required \\\n  pam_slurm_adopt.so \\\n  nodename=n1\n";
    for theirs in [
        THEIRS,
        several,
        "account sufficient pam_slurm_adopt.so\naccount required pam_access.so\n",
    ] {
        let scratch = beside_theirs(theirs);
        let old = text_of(&scratch);
        let text = install(&scratch, Some("exempt_groups=ops"));
        read(&scratch).write(text.as_bytes()).unwrap();
        assert_eq!(remove(&scratch), (old.clone(), String::new()));
        let module = scratch.path().join("usr/lib64/security/pam_slurm_adopt.so");
        fs::rename(&module, module.with_extension("gone")).unwrap();
        let (restored, warnings) = remove(&scratch);
        assert_eq!(
            warnings.matches("pam_slurm_adopt.so is not there").count(),
            1,
            "{warnings}"
        );
        assert!(
            restored
                .lines()
                .all(|line| line.starts_with('#') || !line.contains("slurm"))
        );
        assert_eq!(restored.replace(REPLACED_MARK, ""), old);
        // This line never judged users with a job.
        assert!(
            !restored.contains("\naccount required pam_access.so\n"),
            "{restored}"
        );
        // Our lines go on to work without the old module.
        assert_eq!(install(&scratch, None), text);
        fs::rename(module.with_extension("gone"), &module).unwrap();
        assert_eq!(remove(&scratch).0, old);
    }
}

/// `enable --undo` goes back to the file as it was.
#[test]
fn line_whose_module_went_during_a_trial_is_not_restored() {
    let scratch = beside_theirs(THEIRS);
    let old = text_of(&scratch);
    read(&scratch)
        .write(install(&scratch, None).as_bytes())
        .unwrap();
    assert_eq!(
        decode(&read(&scratch).restore(old.as_bytes()).unwrap().text),
        old
    );
    fs::remove_file(scratch.path().join("usr/lib64/security/pam_slurm_adopt.so")).unwrap();
    let after = read(&scratch).restore(old.as_bytes()).unwrap();
    assert!(!after.is_complete());
    assert_eq!(
        decode(&after.text),
        old.replace(THEIRS, &format!("{REPLACED_MARK}{THEIRS}"))
    );
}

/// A jump alone would skip another line.
#[test]
fn jump_is_not_restored_without_the_line_that_it_skips() {
    let jump = "account [success=1 default=ignore] pam_succeed_if.so user ingroup ops\n";
    let slurm = "account required pam_slurm_adopt.so\n";
    let scratch = beside_theirs(&format!("{jump}{slurm}account required pam_time.so\n"));
    let old = text_of(&scratch);
    let new = install(&scratch, Some("exempt_groups=ops"));
    let folder = scratch.path().join("usr/lib64/security");
    let modules = ["pam_succeed_if.so", "pam_slurm_adopt.so"].map(|name| folder.join(name));
    assert_eq!(
        read(&scratch).replaced_modules(new.as_bytes()).unwrap(),
        modules
    );
    read(&scratch).write(new.as_bytes()).unwrap();
    assert_eq!(remove(&scratch), (old.clone(), String::new()));
    fs::remove_file(folder.join("pam_slurm_adopt.so")).unwrap();
    let (restored, warnings) = remove(&scratch);
    let left_out = old
        .replace(jump, &format!("{REPLACED_MARK}{jump}"))
        .replace(slurm, &format!("{REPLACED_MARK}{slurm}"));
    assert_eq!(restored, left_out);
    assert_eq!(
        warnings.matches("stays commented out").count(),
        2,
        "{warnings}"
    );
    assert_eq!(
        decode(&read(&scratch).restore(old.as_bytes()).unwrap().text),
        left_out
    );
}

#[test]
fn replaced_lines_are_told_from_equal_ones_and_at_the_end() {
    let scratch = node("debian");
    fs::remove_file(scratch.path().join("usr/lib64/security/pam_slurm_adopt.so")).unwrap();
    let time = "account required pam_time.so";
    let slurm = "account sufficient pam_slurm_adopt.so";
    let before = format!("{time}\n{slurm}\n{time}");
    let current = format!("{time}\n{REPLACED_MARK}{slurm}\n{REPLACED_MARK}{time}");
    for end in ["", "\n"] {
        let current = format!("{current}\n");
        let restored = lines::restore(
            scratch.path(),
            format!("{before}{end}").as_bytes(),
            current.as_bytes(),
        );
        assert_eq!(
            decode(&restored.unwrap().text).trim_end(),
            current.trim_end()
        );
    }
}

/// Users without a job get in unless another line decides by jobs.
#[test]
fn open_stack_is_reported_after_removal() {
    let scratch = beside_theirs(THEIRS);
    read(&scratch)
        .write(install(&scratch, None).as_bytes())
        .unwrap();
    let report = || {
        let stack = read(&scratch);
        let restored = stack.without_our_lines().unwrap();
        let mut out = Vec::new();
        let mut err = Vec::new();
        let mut output = Output {
            out: &mut out,
            err: &mut err,
        };
        let is_open = stack.warn_if_open(&restored, &mut output).unwrap();
        assert_eq!(
            is_open,
            decode(&err).contains("nothing keeps users without a job out now")
        );
        is_open
    };
    assert!(!report());
    fs::remove_file(scratch.path().join("usr/lib64/security/pam_slurm_adopt.so")).unwrap();
    assert!(report());
    let account = scratch.path().join("etc/pam.d/common-account");
    let text = fs::read_to_string(&account).unwrap();
    fs::write(account, text + "account required pam_job_adopt.so\n").unwrap();
    assert!(!report());
}

#[test]
fn arguments_with_blanks_keep_their_brackets() {
    let conf = "[conf=/etc/site hpc/x.conf]";
    let groups = "[exempt_groups=hpc admins@ad.example,ops]";
    for arguments in [conf, groups, &format!("{conf} {groups} debug")] {
        let scratch = node("debian");
        let text = install(&scratch, Some(arguments));
        assert_eq!(
            text.matches(&format!("{OURS} {arguments}\n")).count(),
            2,
            "{text}"
        );
        read(&scratch).write(text.as_bytes()).unwrap();
        assert_eq!(install(&scratch, None), text);
    }
    let theirs = "account required pam_slurm_adopt.so [log_level=info] nodename=n1\n";
    let text = install(&beside_theirs(theirs), Some(groups));
    assert!(
        text.contains(&format!("{OURS} log_level=info nodename=n1 {groups}\n")),
        "{text}"
    );
    let why = refusal(&node("debian"), Some("debug # all"));
    assert!(why.contains("cannot have #"), "{why}");
}

#[test]
fn comment_in_another_encoding_is_as_long_as_its_bytes() {
    let scratch = node("debian");
    let comment = [b"#".as_slice(), &[0xb0; 1022], b"\n"].concat();
    let text = [comment.as_slice(), text_of(&scratch).as_bytes()].concat();
    fs::write(scratch.path().join("etc/pam.d/sshd"), text).unwrap();
    assert!(
        read(&scratch)
            .with_our_lines(None)
            .unwrap()
            .text
            .starts_with(&comment)
    );
}

#[test]
fn bytes_that_are_no_utf8_stay() {
    let scratch = beside_theirs(THEIRS);
    let comment = b"# f\xfcr die Z\xfcge \xff\xfe\n";
    let mut old = comment.to_vec();
    old.extend_from_slice(text_of(&scratch).as_bytes());
    old.extend_from_slice(b"session optional pam_permit.so # \xe9\n");
    fs::write(scratch.path().join("etc/pam.d/sshd"), &old).unwrap();
    let plan = read(&scratch).with_our_lines(None).unwrap();
    assert!(plan.text.starts_with(comment));
    read(&scratch).save_original().unwrap();
    read(&scratch).write(&plan.text).unwrap();
    assert_eq!(read(&scratch).without_our_lines().unwrap().text, old);
    assert_eq!(fs::read(read(&scratch).original_path()).unwrap(), old);
}

#[test]
fn argument_that_is_no_utf8_is_not_taken_over() {
    let scratch = beside_theirs("");
    let path = scratch.path().join("etc/pam.d/sshd");
    let mut text = fs::read(&path).unwrap();
    text.extend_from_slice(b"account required pam_slurm_adopt.so nodename=\xfc\n");
    fs::write(&path, text).unwrap();
    assert!(refusal(&scratch, None).contains("nodename="));
    install(&scratch, Some("nodename=u"));
}

const BLOCKS: [(&str, &str); 3] = [
    (
        "# BEGIN ANSIBLE MANAGED BLOCK\n",
        "# END ANSIBLE MANAGED BLOCK\n",
    ),
    ("#### Kit: Do not edit ####\n", "#### Kit: end ####\n"),
    ("# >>> kit >>>\n", "# <<< kit <<<\n"),
];

#[test]
fn our_lines_are_in_no_block_of_another_program() {
    for (begin, end) in BLOCKS {
        for (lines, replaces) in [
            (
                "account sufficient pam_localuser.so\naccount include common-account\n",
                false,
            ),
            (
                "session required pam_limits.so\nsession optional pam_umask.so\n",
                false,
            ),
            (
                "account required pam_time.so\naccount required pam_slurm_adopt.so\n",
                true,
            ),
        ] {
            let block = format!("{begin}{lines}{end}");
            let scratch = debian("account    required     pam_nologin.so\n", &block);
            if replaces {
                let why = refusal(&scratch, Some("exempt_groups=ops"));
                assert!(why.contains("another program writes") && why.contains(begin.trim()));
            } else {
                let text = install(&scratch, Some("exempt_groups=ops"));
                assert!(text.contains(&block), "{text}");
                assert!(text.ends_with(&format!("session    {OURS} exempt_groups=ops\n")));
            }
            // The block may be the last thing in the file.
            let ends_in_block = node("debian");
            let old = text_of(&ends_in_block) + &block;
            ends_in_block.file("etc/pam.d/sshd", &old);
            if !replaces {
                assert!(install(&ends_in_block, None).contains(&block));
            }
        }
    }
    let scratch = node("debian");
    let open = "#### Kit. Do not edit below ####\nsession required pam_limits.so\n";
    scratch.file("etc/pam.d/sshd", &(text_of(&scratch) + open));
    let why = refusal(&scratch, None);
    assert!(
        why.contains("has to be the last") && why.contains("sshd:"),
        "{why}"
    );
}

/// A stack that only the distribution has, where its libpam looks for it.
#[test]
fn stack_of_a_vendor_folder_is_copied() {
    for folder in ["usr/etc/pam.d", "opt/vendor/pam.d", "usr/lib/pam.d"] {
        let scratch = node("debian");
        let library = format!("\0/etc/pam.d/%s\0/usr/lib/pam.d/%s\0/{folder}/%s\0");
        scratch.file("usr/lib64/libpam.so.0", &library);
        let old = text_of(&scratch);
        let site = scratch.path().join("etc/pam.d");
        scratch.dir(folder);
        for entry in fs::read_dir(&site).unwrap().map(Result::unwrap) {
            fs::rename(
                entry.path(),
                scratch.path().join(folder).join(entry.file_name()),
            )
            .unwrap();
        }
        let text = install(&scratch, None);
        assert_eq!(text.matches("pam_job_adopt").count(), 2, "{text}");
        read(&scratch).write(text.as_bytes()).unwrap();
        assert_eq!(fs::read_to_string(site.join("sshd")).unwrap(), text);
        assert_eq!(
            decode(&fs::read(scratch.path().join(folder).join("sshd")).unwrap()),
            old
        );
        let stack = read(&scratch);
        assert_eq!(
            stack.vendor_text,
            Some(stack.without_our_lines().unwrap().text)
        );
    }
}

#[test]
fn stack_of_a_folder_that_libpam_does_not_read_is_refused() {
    let scratch = node("debian");
    let sshd = scratch.path().join("etc/pam.d/sshd");
    scratch.file("usr/etc/pam.d/sshd", &text_of(&scratch));
    fs::remove_file(sshd).unwrap();
    assert!(
        Stack::read(scratch.path(), "sshd")
            .unwrap_err()
            .to_string()
            .contains("is not there")
    );
}
