//! The C edge: what libpam calls (pam_sm_acct_mgmt(3), pam_sm_open_session(3)), and what is said to it.
//! Runs as root inside sshd.
//!
//! But for what libpam keeps, nothing here outlives a call: no state, no thread, no handler; a panic
//! ends at the entry point as a refusal.

#![allow(unsafe_code)]

mod handle;

use handle::{Handle, arguments};
use kernel::log::{self, Log};
use kernel::namespace::NamespaceOrigin;
use module::{self, Budget, Environment, Line, Means, Outcome, Ruling, Settings, Severity};
use pam_sys::{PamFlag, PamHandle, PamItemType, PamMessageStyle, PamReturnCode};
use protocol::{Phase, Reason, Reply, Request, Verdict};
use std::any::Any;
use std::cell::RefCell;
use std::ffi::{c_char, c_int};
use std::panic::{catch_unwind, set_hook};
use std::time::{Duration, Instant};

/// `account`: has the user a job here? Moves nothing.
#[unsafe(no_mangle)]
pub extern "C" fn pam_sm_acct_mgmt(
    handle: *mut PamHandle,
    flags: c_int,
    argc: c_int,
    argv: *const *const c_char,
) -> c_int {
    caught(Phase::Account, handle, flags, argc, argv)
}

/// `session`: takes the login into the job.
#[unsafe(no_mangle)]
pub extern "C" fn pam_sm_open_session(
    handle: *mut PamHandle,
    flags: c_int,
    argc: c_int,
    argv: *const *const c_char,
) -> c_int {
    caught(Phase::Session, handle, flags, argc, argv)
}

/// Entry points that answer the same to whatever they are asked.
macro_rules! always {
    ($($(#[$doc:meta])* $name:ident $answer:ident;)*) => {$(
        $(#[$doc])*
        #[unsafe(no_mangle)]
        pub extern "C" fn $name(
            _handle: *mut PamHandle,
            _flags: c_int,
            _argc: c_int,
            _argv: *const *const c_char,
        ) -> c_int {
            PamReturnCode::$answer as c_int
        }
    )*};
}

/// `session` at its end: goes back to the node's namespaces, so that neither a module after this line nor sshd
/// works on paths that the user made. The login itself ends with its processes.
#[unsafe(no_mangle)]
pub extern "C" fn pam_sm_close_session(
    handle: *mut PamHandle,
    _flags: c_int,
    _argc: c_int,
    _argv: *const *const c_char,
) -> c_int {
    close_session(handle)
}

fn close_session(handle: *mut PamHandle) -> c_int {
    set_hook(Box::new(|_| {}));
    let closed = catch_unwind(move || {
        // SAFETY: libpam passes the handle of this call, and lends it until we return.
        let handle = unsafe { Handle::from_raw(handle) };
        handle.map_or(PamReturnCode::SESSION_ERR, |handle| close(&handle))
    });
    closed.unwrap_or(PamReturnCode::SESSION_ERR) as c_int
}

/// The first line of this module that closes goes back; for the others nothing is left to do.
fn close(handle: &Handle) -> PamReturnCode {
    let Some(Ok(outside)) = handle.take().map(<Box<dyn Any>>::downcast::<NamespaceOrigin>) else {
        return PamReturnCode::SUCCESS;
    };
    let Err(error) = outside.leave() else { return PamReturnCode::SUCCESS };
    let line = Line::new(Severity::Alert).with("action", "close").with("error", error);
    let service = handle.item(PamItemType::SERVICE).unwrap_or_default();
    write_log(None, &[line], Severity::Alert, &service, Phase::Session);
    // The next line tries again.
    handle.keep(outside);
    PamReturnCode::SESSION_ERR
}

always! {
    /// Nothing is ours to answer in `auth`. A line of ours there is left to the other modules, where
    /// a missing function would refuse root as well.
    pam_sm_authenticate IGNORE;
    /// As [`pam_sm_authenticate`].
    pam_sm_setcred IGNORE;
}

/// No panic crosses into C: it becomes a refusal, and what was begun has been undone on the way.
fn caught(
    phase: Phase,
    handle: *mut PamHandle,
    flags: c_int,
    argc: c_int,
    argv: *const *const c_char,
) -> c_int {
    let refused = match phase {
        Phase::Account => PamReturnCode::PERM_DENIED,
        Phase::Session => PamReturnCode::SESSION_ERR,
    };
    // The default hook would write to sshd's standard error. This one belongs to this library's
    // own copy of the standard library and is nobody else's.
    set_hook(Box::new(|_| {}));
    let answered = catch_unwind(move || {
        // SAFETY: libpam passes the handle of this call, and lends it until we return.
        let Some(handle) = (unsafe { Handle::from_raw(handle) }) else { return refused };
        // SAFETY: libpam passes argc strings, or null when there are none.
        let arguments = unsafe { arguments(argc, argv) };
        answer(phase, &handle, flags, &arguments)
    });
    let code = answered.unwrap_or_else(|payload| {
        let words = payload.downcast_ref::<&str>().map(|&text| text.to_owned());
        let words = words.or_else(|| payload.downcast_ref::<String>().cloned());
        let _ = catch_unwind(|| panicked(phase, &words.unwrap_or_default()));
        refused
    });
    code as c_int
}

/// System user that the unprivileged half runs as.
const HELPER_USER: &str = "job-adopt";
/// System user that Slurm's daemons run as at most sites (`SlurmUser` of slurm.conf(5)).
const SLURM_USER: &str = "slurm";

/// The uid that nobody has (credentials(7)), for a user without an account.
const UNKNOWN: u32 = u32::MAX;

/// How old an answer may be that `session` takes from `account`.
const CARRIED: Duration = Duration::from_secs(2);

/// What the helper has answered in `account`, with the requests. sshd opens the session of a public
/// key login in the same process, a moment later.
struct Carried {
    process: u32,
    at: Instant,
    arguments: Vec<String>,
    answers: Vec<(Request, Reply)>,
}

impl Carried {
    fn holds(&self, arguments: &[String]) -> bool {
        self.process == std::process::id()
            && self.at.elapsed() < CARRIED
            && self.arguments == arguments
    }
}

/// Answers `pam_sm_acct_mgmt` and `pam_sm_open_session`.
fn answer(phase: Phase, handle: &Handle, flags: i32, arguments: &[String]) -> PamReturnCode {
    let user = handle.item(PamItemType::USER).unwrap_or_default();
    let account = handle.account(&user);
    // Root first of all: no typo further down may lock it out.
    if account.is_some_and(|account| account.uid == 0) {
        return PamReturnCode::IGNORE;
    }
    let login = Request {
        phase,
        user,
        uid: account.map_or(UNKNOWN, |account| account.uid),
        service: handle.item(PamItemType::SERVICE).unwrap_or_default(),
        rhost: handle.item(PamItemType::RHOST).unwrap_or_default(),
        ssh_connection: handle.env(c"SSH_CONNECTION").unwrap_or_default(),
        node: module::node_name(),
        ..Request::default()
    };
    let call = Call { handle, login };
    if module::is_off() {
        call.log(Severity::Info, &[call.line(Severity::Alert, "ignore").with("off", module::OFF)]);
        return PamReturnCode::IGNORE;
    }
    match Settings::parse(arguments) {
        Ok(settings) => call.with_settings(&settings, arguments, flags),
        Err(error) => call.tell(&module::misconfigured(&call.login, &error), Severity::Info, flags),
    }
}

/// Logs a panic: it was caught, the login is refused, and somebody should read this.
fn panicked(phase: Phase, words: &str) {
    let line = Line::new(Severity::Alert)
        .with("decision", "refuse")
        .with("code", Reason::Configuration)
        .with("phase", phase.as_str())
        .with("error", format_args!("internal error, please report: {words}"));
    write_log(None, &[line], Severity::Alert, "pam", phase);
}

struct Call<'a> {
    handle: &'a Handle,
    login: Request,
}

impl Call<'_> {
    fn with_settings(
        mut self,
        settings: &Settings,
        arguments: &[String],
        flags: i32,
    ) -> PamReturnCode {
        if self.login.service != settings.service.as_deref().unwrap_or("sshd") {
            if let Some(name) = &settings.service {
                // Perhaps mistyped, and then it lets everybody in.
                let line = self.line(Severity::Warning, "ignore");
                self.log(settings.log_level, &[line.with("knob", format_args!("service={name}"))]);
            }
            return PamReturnCode::IGNORE;
        }
        if settings.close_only {
            return match self.login.phase {
                Phase::Session => PamReturnCode::IGNORE,
                Phase::Account => {
                    let why = "argument close_only: is for session lines";
                    self.tell(&module::misconfigured(&self.login, why), settings.log_level, flags)
                }
            };
        }
        if self.login.uid == UNKNOWN {
            return PamReturnCode::USER_UNKNOWN;
        }
        if let Some(why) = self.exemption(settings) {
            let line = self.line(Severity::Info, "exempt").with("knob", why);
            self.log(settings.log_level, &[line]);
            return PamReturnCode::IGNORE;
        }
        if let Some(node) = &settings.node {
            self.login.node.clone_from(node);
        }
        let budget = Budget::start(settings.timeout);
        let helper = self.handle.account(HELPER_USER);
        let slurm_user = || self.handle.account(SLURM_USER).map(|account| account.uid);
        let in_account = self.login.phase == Phase::Account;
        let (outside, kept) =
            match self.handle.take().map(<Box<dyn Any>>::downcast::<NamespaceOrigin>) {
                // Another line of ours has joined the namespaces, and knows the way back.
                Some(Ok(outside)) => (Some(outside), None),
                Some(Err(kept)) => (None, kept.downcast::<Carried>().ok()),
                None => (None, None),
            };
        let carried = kept.filter(|carried| !in_account && carried.holds(arguments));
        let (at, answers) = (Instant::now(), RefCell::default());
        let ask = |request: &Request| {
            let reply = module::ask(&settings.helper, helper, request, &budget)?;
            if in_account && matches!(reply.verdict, Verdict::Admit(_)) {
                Vec::push(&mut answers.borrow_mut(), (request.clone(), reply.clone()));
            }
            Ok(reply)
        };
        // sshd hands the PAM environment to the login's processes.
        let has = |name: &str| self.handle.has_env(name);
        let put = |text: &str| self.handle.put_env(text);
        let means = Means {
            login: &self.login,
            settings,
            ask: &ask,
            carried: carried.as_ref().map(|carried| &carried.answers[..]).unwrap_or_default(),
            environment: Environment { has: &has, put: &put },
            slurm_user: &slurm_user,
            helper_group: helper.map(|account| account.gid),
            look: None,
            budget: &budget,
        };
        let mut outcome = module::judge(means);
        if in_account {
            let (process, arguments) = (std::process::id(), arguments.to_vec());
            let answers = answers.into_inner();
            self.handle.keep(Box::new(Carried { process, at, arguments, answers }));
        } else if let Some(outside) = outside.or(outcome.outside.take().map(Box::new)) {
            self.handle.keep(outside);
        }
        self.tell(&outcome, settings.log_level, flags)
    }

    /// The argument that exempts the user, if one does.
    fn exemption(&self, settings: &Settings) -> Option<&'static str> {
        if settings.exempt_uids.contains(&self.login.uid) {
            return Some("exempt_uids");
        }
        let exempt = |group: &String| self.handle.in_group(&self.login.user, group);
        settings.exempt_groups.iter().any(exempt).then_some("exempt_groups")
    }

    /// Writes the log, speaks to the user, and turns the ruling into libpam's code.
    fn tell(&self, outcome: &Outcome, least: Severity, flags: i32) -> PamReturnCode {
        let Request { service, phase, .. } = &self.login;
        write_log(outcome.log.as_ref(), &outcome.lines, least, service, *phase);
        if flags & PamFlag::SILENT as i32 == 0 {
            if let (Some(text), Ruling::Refuse) = (&outcome.refusal, outcome.ruling) {
                self.handle.say(PamMessageStyle::ERROR_MSG, text);
            }
            if let Some(text) = &outcome.welcome {
                self.handle.say(PamMessageStyle::TEXT_INFO, text);
            }
        }
        match (outcome.ruling, self.login.phase) {
            (Ruling::Admit, _) => PamReturnCode::SUCCESS,
            (Ruling::Ignore, _) => PamReturnCode::IGNORE,
            (Ruling::Refuse, Phase::Account) => PamReturnCode::PERM_DENIED,
            (Ruling::Refuse, Phase::Session) => PamReturnCode::SESSION_ERR,
        }
    }

    fn line(&self, severity: Severity, decision: &str) -> Line {
        module::decision_line(severity, decision, None, &self.login)
    }

    fn log(&self, least: Severity, lines: &[Line]) {
        write_log(None, lines, least, &self.login.service, self.login.phase);
    }
}

/// Writes lines under the service's name, which is what sshd itself logs under, and with the prefix
/// of pam_syslog(3), which log readers know.
fn write_log(open: Option<&Log>, lines: &[Line], least: Severity, service: &str, phase: Phase) {
    let prefix = format!("pam_job_adopt({service}:{}): ", phase.as_str());
    match open {
        Some(open) => open.write(lines, least, service, &prefix),
        None => log::write(lines, least, service, &prefix),
    }
}
