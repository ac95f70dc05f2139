//! The child: a login as sshd makes it, but for who asks for it.
//!
//! It goes through libpam as sshd does after it has authenticated somebody: account, credentials,
//! session, and at the end session and credentials again. It starts in the cgroup of the sshd that
//! listens, so that pam_systemd takes it for a new login and not for a part of the caller's.

use super::event::{Event, Step};
use super::look;
use crate::cgroup::{Membership, Mount};
use crate::cli::sys::pam_client::{Code, Transaction};
use crate::cli::sys::process::{clear_environment, keep_standard_descriptors_only};
use crate::plan::CgroupPath;
use std::fs::File;
use std::io::Write;

/// Where sshd says that a login comes from; one that has no address is no other node's.
const RHOST: &str = "localhost";
/// What sshd says of the terminal (`auth-pam.c`), whichever there will be.
const TTY: &str = "ssh";

/// What the child is to do.
#[derive(Clone, Copy, Debug)]
pub(super) struct Order<'a> {
    pub(super) service: &'a str,
    pub(super) user: &'a str,
    /// The sshd to start beside.
    pub(super) sshd: Option<i32>,
}

/// Tells its parent.
#[derive(Clone, Copy, Debug)]
struct Teller<'a>(&'a File);

impl Teller<'_> {
    /// A parent that is gone needs nothing to be told.
    fn tell(self, event: &Event) {
        if let Ok(mut line) = serde_json::to_vec(event) {
            line.push(b'\n');
            let mut file = self.0;
            let _ = file.write_all(&line);
        }
    }

    fn trouble(self, what: &str, error: impl std::fmt::Display) {
        self.tell(&Event::Trouble(format!("{what}: {error}")));
    }
}

/// Runs the stack and tells what happens. Never returns to what the caller was doing.
pub(super) fn run(order: Order<'_>, out: &File) -> i32 {
    let teller = Teller(out);
    if let Err(errno) = nix::unistd::setsid() {
        teller.trouble("setsid", errno.desc());
    }
    if let Err(error) = alone() {
        teller.trouble("close what the caller has open", error);
    }
    clear_environment();
    if let Err(why) = leave(order.sshd) {
        teller.trouble("leave the cgroup of the caller", why);
    }
    login(order, teller);
    0
}

/// Standard streams to nowhere, and nothing else for programs that modules execute.
fn alone() -> std::io::Result<()> {
    let null = File::options().read(true).write(true).open("/dev/null")?;
    nix::unistd::dup2_stdin(&null)?;
    nix::unistd::dup2_stdout(&null)?;
    nix::unistd::dup2_stderr(&null)?;
    keep_standard_descriptors_only()
}

/// Into the cgroup of that sshd, or into the root: into what is no session of anybody's.
fn leave(sshd: Option<i32>) -> crate::cgroup::Result<()> {
    let membership = sshd.and_then(|pid| Membership::of(pid).ok());
    let path = membership.as_ref().and_then(Membership::unified);
    let path: Option<CgroupPath> = path.and_then(|path| path.parse().ok());
    let mount = Mount::open()?;
    match path {
        Some(path) => mount.place(&path)?.dir()?.write("cgroup.procs", "0"),
        None => mount.root().write("cgroup.procs", "0"),
    }
}

fn login(order: Order<'_>, teller: Teller<'_>) {
    teller.tell(&Event::Began(Step::Start));
    let Ok(copy) = teller.0.try_clone() else { return };
    let hear = Box::new(move |text: &str| Teller(&copy).tell(&Event::Said(text.to_owned())));
    let mut pam = match Transaction::start(order.service, order.user, hear) {
        Ok(pam) => pam,
        Err(code) => {
            let words = format!("code {}", code.number());
            teller.tell(&Event::Answered { step: Step::Start, fine: false, words });
            return;
        }
    };
    pam.set_tty(TTY);
    pam.set_rhost(RHOST);
    let before = look::limits();
    let step = |pam: &mut Transaction, step, call: fn(&mut Transaction) -> Code| {
        teller.tell(&Event::Began(step));
        let code = call(pam);
        let (fine, words) = (code.is_success(), pam.words(code));
        teller.tell(&Event::Answered { step, fine, words });
        fine
    };
    if !step(&mut pam, Step::Account, Transaction::account) {
        return;
    }
    // sshd goes on where these fail (`do_pam_setcred`), and so does the session.
    let credentials = step(&mut pam, Step::Credentials, |pam| pam.credentials(true));
    let opened = step(&mut pam, Step::Open, Transaction::open_session);
    match look::place(&before) {
        Ok(place) => teller.tell(&Event::Stands(place)),
        Err(why) => teller.tell(&Event::Trouble(why)),
    }
    if opened {
        step(&mut pam, Step::Close, Transaction::close_session);
    }
    if credentials {
        step(&mut pam, Step::Delete, |pam| pam.credentials(false));
    }
}
