//! The accounts of a node.

/// An account. Its password is its name followed by `-secret`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct User {
    pub(crate) name: &'static str,
    pub(crate) uid: u32,
}

pub(crate) const ROOT: User = User {
    name: "root",
    uid: 0,
};
/// A user with jobs.
pub(crate) const ALICE: User = User {
    name: "alice",
    uid: 1001,
};
/// A second user with jobs.
pub(crate) const BOB: User = User {
    name: "bob",
    uid: 1002,
};
/// A user who never has a job.
pub(crate) const CAROL: User = User {
    name: "carol",
    uid: 1003,
};
/// A member of the group `ops`, which tests may exempt.
pub(crate) const OPS: User = User {
    name: "opsuser",
    uid: 1004,
};
/// The account that the helper runs as.
pub(crate) const HELPER: User = User {
    name: "job-adopt",
    uid: 990,
};

/// The account of Slurm's controller at some sites.
pub(crate) const SLURM: User = User {
    name: "slurm",
    uid: 991,
};

/// The account of Flux.
pub(crate) const FLUX: User = User {
    name: "flux",
    uid: 992,
};

/// Accounts that log in.
pub(crate) const PEOPLE: [User; 4] = [ALICE, BOB, CAROL, OPS];

impl User {
    pub(crate) fn home(self) -> String {
        if self == ROOT {
            "/root".into()
        } else {
            format!("/home/{}", self.name)
        }
    }

    pub(crate) fn password(self) -> String {
        format!("{}-secret", self.name)
    }

    fn passwd(self) -> String {
        let User { name, uid } = self;
        format!("{name}:x:{uid}:{uid}::{}:/bin/bash\n", self.home())
    }
}

/// Returns `/etc/passwd` of a node.
pub(super) fn passwd() -> String {
    let system = "sshd:x:989:65534::/run/sshd:/usr/sbin/nologin\n\
                  job-adopt:x:990:990::/nonexistent:/usr/sbin/nologin\n\
                  slurm:x:991:991::/nonexistent:/usr/sbin/nologin\n\
                  flux:x:992:992::/nonexistent:/usr/sbin/nologin\n\
                  nobody:x:65534:65534::/nonexistent:/usr/sbin/nologin\n";
    let people: String = PEOPLE.iter().map(|user| user.passwd()).collect();
    format!("{}{system}{people}", ROOT.passwd())
}

/// Returns `/etc/group` of a node.
pub(super) fn group() -> String {
    let people: String = PEOPLE
        .iter()
        .map(|user| format!("{}:x:{}:\n", user.name, user.uid))
        .collect();
    format!(
        "root:x:0:\ntty:x:5:\nshadow:x:42:\njob-adopt:x:990:\nslurm:x:991:\nflux:x:992:\nnogroup:x:65534:\n\
         ops:x:1100:{}\n{people}",
        OPS.name
    )
}

/// Returns `/etc/shadow` of a node, with a password hash for each person.
pub(super) fn shadow(hash: impl Fn(User) -> String) -> String {
    let people: String = PEOPLE
        .iter()
        .map(|user| format!("{}:{}:20000:0:99999:7:::\n", user.name, hash(*user)))
        .collect();
    format!("root:*:20000:0:99999:7:::\nsshd:!:20000::::::\njob-adopt:!:20000:::::1:\n{people}")
}
