//! Which modules libpam finds.

use super::*;

#[test]
fn name_of_module_counts_if_a_folder_of_modules_has_it() {
    let stock = ("usr/lib64/security/pam_permit.so", "");
    let ours = ("lib/security/pam_job_adopt.so", "");
    assert_missing(
        &[("sshd", OURS), stock],
        "sshd:1 names pam_job_adopt.so, which does not exist",
    );
    assert_effective(&[("sshd", OURS), stock, ours]);
    let other = OURS.replace("pam_job", "libpam_job");
    assert_missing(
        &[("sshd", &other), stock, ours],
        "names libpam_job_adopt.so",
    );
    assert_effective(&[("sshd", &other)]);
}

/// libpam looks into the folder of its own word size; Debian's also into those that all share.
#[test]
fn module_is_missing_if_libpam_looks_into_no_folder_that_has_it() {
    let multiarch = format!("usr/lib/{}-linux-gnu/security", std::env::consts::ARCH);
    let other_size = ["usr/lib64/security", "lib64/security"];
    let common = ["usr/lib/security", "lib/security"];
    let is_missing = |stock: &str, folder: &str, library: &str| {
        let scratch = Scratch::new();
        scratch.file(&format!("{stock}/pam_permit.so"), "");
        scratch.file(&format!("{folder}/pam_x.so"), "");
        scratch.file("usr/lib/libpam.so.0", library);
        is_missing_module(scratch.path(), "pam_x.so")
    };
    let debian = "\0@include\0";
    let upstream = "\0include\0";
    for folder in common {
        assert!(!is_missing(&multiarch, folder, debian), "{folder}");
        assert!(
            is_missing("usr/lib64/security", folder, upstream),
            "{folder}"
        );
        assert!(!is_missing(folder, folder, upstream), "{folder}");
    }
    for folder in other_size {
        assert!(is_missing(&multiarch, folder, debian), "{folder}");
        assert!(is_missing("usr/lib/security", folder, upstream), "{folder}");
        assert!(!is_missing(folder, folder, upstream), "{folder}");
    }
    assert!(is_missing("lib/security", &multiarch, debian));
    assert!(!is_missing(&multiarch, &multiarch, debian));
}

/// libpam puts a folder for `$ISA`, and the loader for `$LIB`.
#[test]
fn module_with_variable_in_its_path_is_not_missing() {
    let stock = ("lib/security/pam_permit.so", "");
    for path in [
        "/lib/security/$ISA/pam_job_adopt.so",
        "$ISA/pam_job_adopt.so",
    ] {
        assert_effective(&[("sshd", &OURS.replace("pam_job_adopt.so", path)), stock]);
    }
}
