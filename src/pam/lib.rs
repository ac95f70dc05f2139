//! The C edge: the entry points that libpam calls (pam_sm_acct_mgmt(3), pam_sm_open_session(3)),
//! and the return codes. Runs as root inside sshd.
//!
//! Except for one value that libpam stores, nothing here outlives a call: no state, no thread, no
//! handler. A panic ends at the entry point as a refusal.

#![allow(unsafe_code)]

mod handle;

use handle::{Handle, copy_arguments};
use kernel::log::{self, Log};
use kernel::namespace::NamespaceOrigin;
use module::{
    self, Account, Budget, Environment, Line, LoginContext, Outcome, Ruling, Settings, Severity,
};
use pam_sys::{PamFlag, PamHandle, PamItemType, PamMessageStyle, PamReturnCode};
use protocol::{Phase, Reason, Reply, Request, Verdict};
use std::any::Any;
use std::cell::RefCell;
use std::ffi::{c_char, c_int};
use std::panic::{catch_unwind, set_hook};
use std::time::{Duration, Instant};

/// `account`: admits a user with a job on this node. Moves nothing.
#[unsafe(no_mangle)]
pub extern "C" fn pam_sm_acct_mgmt(
    handle: *mut PamHandle,
    flags: c_int,
    argc: c_int,
    argv: *const *const c_char,
) -> c_int {
    catch_panics(Phase::Account, handle, flags, argc, argv)
}

/// `session`: moves the login into the job.
#[unsafe(no_mangle)]
pub extern "C" fn pam_sm_open_session(
    handle: *mut PamHandle,
    flags: c_int,
    argc: c_int,
    argv: *const *const c_char,
) -> c_int {
    catch_panics(Phase::Session, handle, flags, argc, argv)
}

/// Defines entry points that always return the same code.
macro_rules! constant_entry_points {
    ($($(#[$doc:meta])* $name:ident $code:ident;)*) => {$(
        $(#[$doc])*
        #[unsafe(no_mangle)]
        pub extern "C" fn $name(
            _handle: *mut PamHandle,
            _flags: c_int,
            _argc: c_int,
            _argv: *const *const c_char,
        ) -> c_int {
            PamReturnCode::$code as c_int
        }
    )*};
}

/// `session` at its end: goes back to the node's namespaces, so that neither a module after this
/// line nor sshd uses paths that the user made. The login itself ends with its processes.
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
    let code = catch_unwind(move || {
        // SAFETY: libpam passes the handle of this call, and lends it until we return.
        let handle = unsafe { Handle::from_raw(handle) };
        handle.map_or(PamReturnCode::SESSION_ERR, |handle| leave_namespaces(&handle))
    });
    code.unwrap_or(PamReturnCode::SESSION_ERR) as c_int
}

/// Goes back to the node's namespaces. Only the first of several lines of this module has to.
fn leave_namespaces(handle: &Handle) -> PamReturnCode {
    let stored = handle.take_stored_value();
    let Some(Ok(origin)) = stored.map(<Box<dyn Any>>::downcast::<NamespaceOrigin>) else {
        return PamReturnCode::SUCCESS;
    };
    let Err(error) = origin.leave() else { return PamReturnCode::SUCCESS };
    let line = Line::new(Severity::Alert).with("action", "close").with("error", error);
    let service = handle.item(PamItemType::SERVICE).unwrap_or_default();
    write_log(None, &[line], Severity::Alert, &service, Phase::Session);
    // The next line tries again.
    handle.store_value(origin);
    PamReturnCode::SESSION_ERR
}

constant_entry_points! {
    /// Leaves an `auth` line to the other modules. If the function were missing, such a line would
    /// refuse root as well.
    pam_sm_authenticate IGNORE;
    /// Does nothing, for the same reason as [`pam_sm_authenticate`].
    pam_sm_setcred IGNORE;
}

/// Runs a phase for libpam. A panic becomes a refusal, so that none unwinds into C; unwinding rolls back all
/// changes.
fn catch_panics(
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
    // The default hook would write to sshd's standard error. This library has a copy of the
    // standard library to itself, so the hook affects no other code.
    set_hook(Box::new(|_| {}));
    let code = catch_unwind(move || {
        // SAFETY: libpam passes the handle of this call, and lends it until we return.
        let Some(handle) = (unsafe { Handle::from_raw(handle) }) else { return refused };
        // SAFETY: libpam passes argc strings, or null when there are none.
        let arguments = unsafe { copy_arguments(argc, argv) };
        handle_call(phase, &handle, flags, &arguments)
    });
    let code = code.unwrap_or_else(|payload| {
        let text = payload.downcast_ref::<&str>().map(|&text| text.to_owned());
        let text = text.or_else(|| payload.downcast_ref::<String>().cloned());
        let _ = catch_unwind(|| log_panic(phase, &text.unwrap_or_default()));
        refused
    });
    code as c_int
}

/// System user that the unprivileged half runs as.
const HELPER_USER: &str = "job-adopt";
/// System user that Slurm's daemons run as at most sites (`SlurmUser` of slurm.conf(5)).
const SLURM_USER: &str = "slurm";

/// The uid that no account has (credentials(7)), for a user without an account.
const UNKNOWN_UID: u32 = u32::MAX;

/// Maximum age of the replies to `account` that `session` uses.
const CARRIED_AGE_MAX: Duration = Duration::from_secs(2);

/// The helper's account and its replies in `account`, with their requests. sshd opens the session of
/// a public key login in the same process, a moment later.
struct CarriedReplies {
    process: u32,
    made_at: Instant,
    arguments: Vec<String>,
    helper: Option<Account>,
    replies: Vec<(Request, Reply)>,
}

impl CarriedReplies {
    /// Returns whether a line with these arguments may still use the replies.
    fn is_valid_for(&self, arguments: &[String]) -> bool {
        self.process == std::process::id()
            && self.made_at.elapsed() < CARRIED_AGE_MAX
            && self.arguments == arguments
    }
}

/// Handles a call of `pam_sm_acct_mgmt` or `pam_sm_open_session`.
fn handle_call(phase: Phase, handle: &Handle, flags: i32, arguments: &[String]) -> PamReturnCode {
    let user = handle.item(PamItemType::USER).unwrap_or_default();
    let account = handle.find_account(&user);
    // Decide on root first: no typo further down may lock it out.
    if account.is_some_and(|account| account.uid == 0) {
        return PamReturnCode::IGNORE;
    }
    let login = Request {
        phase,
        user,
        uid: account.map_or(UNKNOWN_UID, |account| account.uid),
        service: handle.item(PamItemType::SERVICE).unwrap_or_default(),
        rhost: handle.item(PamItemType::RHOST).unwrap_or_default(),
        ssh_connection: handle.env(c"SSH_CONNECTION").unwrap_or_default(),
        node: module::node_name(),
        ..Request::default()
    };
    let call = Call { handle, login };
    if module::is_off() {
        call.log(
            Severity::Info,
            &[call.line(Severity::Alert, "ignore").with("off", module::OFF_SWITCH_PATH)],
        );
        return PamReturnCode::IGNORE;
    }
    match Settings::parse(arguments) {
        Ok(settings) => call.judge(&settings, arguments, flags),
        Err(error) => call.report(
            &module::misconfiguration_outcome(&call.login, &error),
            Severity::Info,
            flags,
        ),
    }
}

/// Returns whether this process is sshd's, by its name: `sshd`, from OpenSSH 9.8 on `sshd-session`.
fn is_inside_sshd() -> bool {
    std::fs::read("/proc/self/comm").is_ok_and(|name| name.starts_with(b"sshd"))
}

/// Logs a panic that was caught, so that an admin can report it.
fn log_panic(phase: Phase, text: &str) {
    let line = Line::new(Severity::Alert)
        .with("decision", "refuse")
        .with("code", Reason::Configuration)
        .with("phase", phase.as_str())
        .with("error", format_args!("internal error, please report: {text}"));
    write_log(None, &[line], Severity::Alert, "pam", phase);
}

/// One call of `account` or `session`, and the facts of its login.
struct Call<'a> {
    handle: &'a Handle,
    login: Request,
}

impl Call<'_> {
    /// Judges the login by these settings, and reports the outcome.
    fn judge(mut self, settings: &Settings, arguments: &[String], flags: i32) -> PamReturnCode {
        if self.login.service != settings.service.as_deref().unwrap_or("sshd") {
            // A mistyped name would admit all users, and so would a missing one in the stack of a second sshd.
            // Files that all services include have our lines without a name for cron, su and the like.
            if settings.service.is_some() || is_inside_sshd() {
                let name = settings.service.as_deref().unwrap_or("sshd");
                let line = self.line(Severity::Warning, "ignore");
                self.log_outside(settings, line.with("knob", format_args!("service={name}")));
            }
            return PamReturnCode::IGNORE;
        }
        if settings.close_only {
            return match self.login.phase {
                Phase::Session => PamReturnCode::IGNORE,
                Phase::Account => {
                    let why = "argument close_only: is for session lines";
                    self.report(
                        &module::misconfiguration_outcome(&self.login, why),
                        settings.log_level,
                        flags,
                    )
                }
            };
        }
        if self.login.uid == UNKNOWN_UID {
            return PamReturnCode::USER_UNKNOWN;
        }
        let exemption = self.find_exemption(settings);
        if let (Some(knob), false) = (exemption, settings.exempt_join) {
            self.log_outside(settings, self.line(Severity::Info, "exempt").with("knob", knob));
            return PamReturnCode::IGNORE;
        }
        if let Some(node) = &settings.node {
            self.login.node.clone_from(node);
        }
        let budget = Budget::start(settings.timeout);
        let find_slurm_user = || self.handle.find_account(SLURM_USER).map(|account| account.uid);
        let in_account = self.login.phase == Phase::Account;
        let stored = self.handle.take_stored_value();
        let (origin, carried) = match stored.map(<Box<dyn Any>>::downcast::<NamespaceOrigin>) {
            // Another line of this module has joined the namespaces, and stored the way back.
            Some(Ok(origin)) => (Some(origin), None),
            Some(Err(value)) => (None, value.downcast::<CarriedReplies>().ok()),
            None => (None, None),
        };
        let carried = carried.filter(|carried| !in_account && carried.is_valid_for(arguments));
        let helper = match &carried {
            Some(carried) => carried.helper,
            None => self.handle.find_account(HELPER_USER),
        };
        let (made_at, replies) = (Instant::now(), RefCell::default());
        let ask_helper = |request: &Request| {
            let reply = module::ask_helper(&settings.helper, helper, request, &budget)?;
            if in_account && matches!(reply.verdict, Verdict::Admit(_)) {
                Vec::push(&mut replies.borrow_mut(), (request.clone(), reply.clone()));
            }
            Ok(reply)
        };
        // sshd passes the PAM environment to the login's processes.
        let has = |name: &str| self.handle.has_env(name);
        let put = |text: &str| self.handle.put_env(text);
        let context = LoginContext {
            login: &self.login,
            settings,
            ask_helper: &ask_helper,
            carried_replies: carried
                .as_ref()
                .map(|carried| &carried.replies[..])
                .unwrap_or_default(),
            environment: Environment { has: &has, put: &put },
            find_slurm_user: &find_slurm_user,
            helper_group: helper.map(|account| account.gid),
            exemption,
            observer: None,
            budget: &budget,
        };
        let mut outcome = module::judge_login(context);
        if in_account {
            let (process, arguments) = (std::process::id(), arguments.to_vec());
            let replies = replies.into_inner();
            let carried = CarriedReplies { process, made_at, arguments, helper, replies };
            self.handle.store_value(Box::new(carried));
        } else if let Some(origin) = origin.or(outcome.namespace_origin.take().map(Box::new)) {
            self.handle.store_value(origin);
        }
        self.report(&outcome, settings.log_level, flags)
    }

    /// Returns the argument that exempts the user, if one does.
    fn find_exemption(&self, settings: &Settings) -> Option<&'static str> {
        if settings.exempt_uids.contains(&self.login.uid) {
            return Some("exempt_uids");
        }
        let has_user = |group: &String| self.handle.is_in_group(&self.login.user, group);
        settings.exempt_groups.iter().any(has_user).then_some("exempt_groups")
    }

    /// Writes the log, sends the user's text, and returns libpam's code for the ruling.
    fn report(&self, outcome: &Outcome, min: Severity, flags: i32) -> PamReturnCode {
        let Request { service, phase, .. } = &self.login;
        write_log(outcome.log.as_ref(), &outcome.lines, min, service, *phase);
        if flags & PamFlag::SILENT as i32 == 0 {
            if let (Some(text), Ruling::Refuse) = (&outcome.refusal, outcome.ruling) {
                self.handle.send_message(PamMessageStyle::ERROR_MSG, text);
            }
            if let Some(text) = &outcome.welcome {
                self.handle.send_message(PamMessageStyle::TEXT_INFO, text);
            }
        }
        match (outcome.ruling, self.login.phase) {
            (Ruling::Admit, _) => PamReturnCode::SUCCESS,
            (Ruling::Ignore, _) => PamReturnCode::IGNORE,
            (Ruling::Refuse, Phase::Account) => PamReturnCode::PERM_DENIED,
            (Ruling::Refuse, Phase::Session) => PamReturnCode::SESSION_ERR,
        }
    }

    /// Returns a log line with a decision that needs no code for the user.
    fn line(&self, severity: Severity, decision: &str) -> Line {
        module::decision_line(severity, decision, None, &self.login)
    }

    /// Writes the decision to ignore a login. In the session phase, which leaves the login outside of
    /// jobs, `log_level` does not filter it.
    fn log_outside(&self, settings: &Settings, line: Line) {
        let line = if self.login.phase == Phase::Session { line.unfiltered() } else { line };
        self.log(settings.log_level, &[line]);
    }

    /// Writes lines of at least this severity.
    fn log(&self, min: Severity, lines: &[Line]) {
        write_log(None, lines, min, &self.login.service, self.login.phase);
    }
}

/// Writes lines under the service's name, as sshd itself does, and with the prefix of
/// pam_syslog(3), which log readers know.
fn write_log(open: Option<&Log>, lines: &[Line], min: Severity, service: &str, phase: Phase) {
    let prefix = format!("pam_job_adopt({service}:{}): ", phase.as_str());
    match open {
        Some(open) => open.write(lines, min, service, &prefix),
        None => log::write(lines, min, service, &prefix),
    }
}
