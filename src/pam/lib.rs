//! The C edge: the entry points that libpam calls (pam_sm_acct_mgmt(3), pam_sm_open_session(3)),
//! and the return codes. Runs as root inside sshd.
//!
//! Except for one value that libpam stores, nothing here outlives a call: no state, no thread, no
//! handler. A panic ends at the entry point as a refusal; in `pam_sm_setcred`, which cannot refuse, it ends the
//! process.

#![allow(unsafe_code)]

mod handle;

use handle::{Handle, copy_arguments};
use module::{
    self, Account, AuthLines, Budget, Environment, Exemption, Line, LoginContext, Outcome, Ruling,
    Scope, Settings, Severity, UNKNOWN_UID, write_log,
};
use pam_sys::{PamFlag, PamHandle, PamItemType, PamMessageStyle, PamReturnCode};
use protocol::{Decision, Phase, Reason, Reply, Request, Verdict};
use std::any::Any;
use std::cell::RefCell;
use std::convert::Infallible;
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

/// `auth` when the process gets its credentials: joins the job's namespaces in the process of sshd that becomes
/// the user. See [`AuthLines`].
#[unsafe(no_mangle)]
pub extern "C" fn pam_sm_setcred(
    handle: *mut PamHandle,
    flags: c_int,
    _argc: c_int,
    _argv: *const *const c_char,
) -> c_int {
    set_credentials(handle, flags);
    PamReturnCode::IGNORE as c_int
}

/// Runs an auth line of this module in `pam_setcred(3)`, unless the call deletes the credentials. A panic ends the
/// process: sshd takes no notice of an error of `pam_setcred(3)` if PAM did not authenticate the user, as with a public
/// key, and would let the user in outside of the job's namespaces.
fn set_credentials(handle: *mut PamHandle, flags: c_int) {
    silence_panics();
    let run = catch_unwind(move || {
        // SAFETY: libpam passes the handle of this call, and lends it until we return.
        let handle = unsafe { Handle::from_raw(handle) };
        if let (Some(handle), 0) = (handle, flags & PamFlag::DELETE_CRED as c_int) {
            let mut memory = Memory::take(&handle);
            memory.auth_lines.run(std::process::id());
            // Only the first value of a transaction can fail to be stored; then no job with private files takes the
            // login, since not both lines have run.
            handle.store_value(memory);
        }
    });
    if let Err(payload) = run {
        log_panic("setcred", payload);
        module::end_process();
    }
}

constant_entry_points! {
    /// Leaves an `auth` line to the other modules. If the function were missing, such a line would
    /// refuse root as well.
    pam_sm_authenticate IGNORE;
    /// Does nothing: the login ends with its processes.
    pam_sm_close_session SUCCESS;
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
    silence_panics();
    let code = catch_unwind(move || {
        // SAFETY: libpam passes the handle of this call, and lends it until we return.
        let Some(handle) = (unsafe { Handle::from_raw(handle) }) else {
            return refused;
        };
        // SAFETY: libpam passes argc strings, or null when there are none.
        let arguments = unsafe { copy_arguments(argc, argv) };
        handle_call(phase, &handle, flags, &arguments)
    });
    let code = code.unwrap_or_else(|payload| {
        log_panic(phase.as_str(), payload);
        refused
    });
    code as c_int
}

/// Sets a panic hook that writes nothing: the default one would write to sshd's standard error. This library has a copy
/// of the standard library to itself, so the hook affects no other code.
fn silence_panics() {
    set_hook(Box::new(|_| {}));
}

/// System user that the unprivileged half runs as.
const HELPER_USER: &str = "job-adopt";
/// System user that Slurm's daemons run as at most sites (`SlurmUser` of slurm.conf(5)).
const SLURM_USER: &str = "slurm";

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
    /// Returns whether a line with these arguments may still use the replies in this process.
    fn is_valid_for(&self, process: u32, arguments: &[String]) -> bool {
        self.process == process
            && self.made_at.elapsed() < CARRIED_AGE_MAX
            && self.arguments == arguments
    }
}

/// What the calls of a transaction keep for later ones.
#[derive(Default)]
struct Memory {
    replies: Option<CarriedReplies>,
    auth_lines: AuthLines,
}

impl Memory {
    /// Takes what an earlier call has stored; an empty memory if there is nothing.
    fn take(handle: &Handle) -> Box<Self> {
        let stored = handle.take_stored_value().map(<Box<dyn Any>>::downcast);
        stored.and_then(Result::ok).unwrap_or_default()
    }
}

/// Handles a call of `pam_sm_acct_mgmt` or `pam_sm_open_session`: collects the facts of the login, and judges it if it
/// is in the scope of the line.
fn handle_call(phase: Phase, handle: &Handle, flags: i32, arguments: &[String]) -> PamReturnCode {
    let user = handle.item(PamItemType::USER).unwrap_or_default();
    let account = handle.find_account(&user);
    // Root comes before anything else is read: no fault further down may lock it out.
    if account.is_some_and(|account| module::is_never_judged(account.uid)) {
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
    let is_in_group = |group: &str| Ok::<_, Infallible>(handle.is_in_group(&login.user, group));
    let Ok(scope) = Scope::of_login(&login, arguments, is_in_group);
    let call = Call { handle, login };
    match scope {
        Scope::Judged {
            settings,
            exemption,
        } => call.judge(&settings, exemption.as_ref(), arguments, flags),
        Scope::Ignored { cause, log_level } => {
            call.report(&cause.outcome(&call.login), log_level, flags)
        }
        Scope::Refused { fault, log_level } => call.report(
            &module::misconfiguration_outcome(&call.login, &fault),
            log_level,
            flags,
        ),
        Scope::NoAccount => PamReturnCode::USER_UNKNOWN,
    }
}

/// Logs a panic that was caught, so that an admin can report it.
fn log_panic(phase: &str, payload: Box<dyn Any + Send>) {
    let text = payload.downcast_ref::<&str>().map(|&text| text.to_owned());
    let text = text.or_else(|| payload.downcast_ref::<String>().cloned());
    // A second panic, while this is logged, must not unwind into C either.
    let _ = catch_unwind(|| {
        let text = text.unwrap_or_default();
        let line = Line::new(Severity::Alert)
            .with("decision", Decision::Refuse)
            .with("code", Reason::Configuration)
            .with("phase", phase)
            .with(
                "error",
                format_args!("internal error, please report: {text}"),
            );
        write_log(None, &[line], Severity::Alert, "pam", phase);
    });
}

/// One call of `account` or `session`, and the facts of its login.
struct Call<'a> {
    handle: &'a Handle,
    login: Request,
}

impl Call<'_> {
    /// Judges the login by these settings, and reports the outcome. `account` keeps its replies for `session`, which
    /// keeps the namespaces to join for the auth lines.
    fn judge(
        mut self,
        settings: &Settings,
        exemption: Option<&Exemption>,
        arguments: &[String],
        flags: i32,
    ) -> PamReturnCode {
        if let Some(node) = &settings.node {
            self.login.node.clone_from(node);
        }
        let budget = Budget::start(settings.timeout);
        let find_slurm_user = || {
            self.handle
                .find_account(SLURM_USER)
                .map(|account| account.uid)
        };
        let in_account = self.login.phase == Phase::Account;
        let process = std::process::id();
        let mut memory = Memory::take(self.handle);
        // The replies of `account` serve one call of `session`, and no later one.
        let carried = memory.replies.take();
        let carried =
            carried.filter(|carried| !in_account && carried.is_valid_for(process, arguments));
        let helper = match &carried {
            Some(carried) => carried.helper,
            None => self.handle.find_account(HELPER_USER),
        };
        let made_at = Instant::now();
        // What `account` keeps for `session`.
        let replies: RefCell<Vec<(Request, Reply)>> = RefCell::default();
        let ask_helper = |request: &Request| {
            let reply = module::ask_helper(&settings.helper, helper, request, &budget)?;
            if in_account && matches!(reply.verdict, Verdict::Admit(_)) {
                replies.borrow_mut().push((request.clone(), reply.clone()));
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
            environment: Environment {
                has: &has,
                put: &put,
            },
            find_slurm_user: &find_slurm_user,
            helper_group: helper.map(|account| account.gid),
            exemption: exemption.map(Exemption::argument),
            ran_auth_lines: memory.auth_lines.ran_in(process)
                && module::is_inside_sshd(&self.login),
            budget: &budget,
        };
        let mut outcome = module::judge_login(context);
        if in_account {
            let arguments = arguments.to_vec();
            let replies = replies.into_inner();
            memory.replies = Some(CarriedReplies {
                process,
                made_at,
                arguments,
                helper,
                replies,
            });
        } else {
            memory
                .auth_lines
                .set_join(process, outcome.namespaces.take());
        }
        let has_join = memory.auth_lines.has_join();
        if !self.handle.store_value(memory) && has_join {
            // The login would be outside of its job's private files.
            module::end_process();
        }
        self.report(&outcome, settings.log_level, flags)
    }

    /// Writes the log, sends the user's text unless the application wants none (`PAM_SILENT`), and returns libpam's code
    /// for the ruling.
    fn report(&self, outcome: &Outcome, min: Severity, flags: i32) -> PamReturnCode {
        let Request { service, phase, .. } = &self.login;
        write_log(None, &outcome.lines, min, service, phase.as_str());
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
}
