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
    self, Account, AuthLines, Budget, Environment, Exemption, Failure, Line, LoginContext, Outcome,
    Ruling, Scope, Settings, Severity, UNKNOWN_UID, write_log,
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

/// By what a login is judged: the arguments of the line, and the time.
struct Terms<'a> {
    settings: &'a Settings,
    exemption: Option<&'a Exemption>,
    arguments: &'a [String],
    budget: &'a Budget,
    /// Number of the process that makes the call.
    process: u32,
}

impl Terms<'_> {
    /// Asks the helper, which runs as this account ([`module::ask_helper`]).
    fn ask_helper(&self, helper: Option<Account>, request: &Request) -> Result<Reply, Failure> {
        module::ask_helper(&self.settings.helper, helper, request, self.budget)
    }
}

/// How a phase comes by the helper's replies.
struct Question<'a> {
    /// The helper's account, if there is one.
    helper: Option<Account>,
    ask_helper: &'a dyn Fn(&Request) -> Result<Reply, Failure>,
    /// The replies that `account` was given, for `session`.
    carried_replies: &'a [(Request, Reply)],
}

impl Call<'_> {
    /// Judges the login by these settings, and reports the outcome.
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
        let terms = Terms {
            settings,
            exemption,
            arguments,
            budget: &Budget::start(settings.timeout),
            process: std::process::id(),
        };
        let mut memory = Memory::take(self.handle);
        let outcome = match self.login.phase {
            Phase::Account => self.judge_account(&terms, &mut memory),
            Phase::Session => self.judge_session(&terms, &mut memory),
        };
        self.keep(memory);
        self.report(&outcome, settings.log_level, flags)
    }

    /// Judges the login in `account`, and keeps the helper's admitting replies for `session`.
    fn judge_account(&self, terms: &Terms<'_>, memory: &mut Memory) -> Outcome {
        let helper = self.handle.find_account(HELPER_USER);
        let made_at = Instant::now();
        let replies: RefCell<Vec<(Request, Reply)>> = RefCell::default();
        let ask_helper = |request: &Request| {
            let reply = terms.ask_helper(helper, request)?;
            if matches!(reply.verdict, Verdict::Admit(_)) {
                replies.borrow_mut().push((request.clone(), reply.clone()));
            }
            Ok(reply)
        };
        let question = Question {
            helper,
            ask_helper: &ask_helper,
            carried_replies: &[],
        };
        let outcome = self.judge_by(terms, &question, &memory.auth_lines);
        memory.replies = Some(CarriedReplies {
            process: terms.process,
            made_at,
            arguments: terms.arguments.to_vec(),
            helper,
            replies: replies.into_inner(),
        });
        outcome
    }

    /// Judges the login in `session`, by the replies that `account` kept if they are valid, and keeps the namespaces to
    /// join for the auth lines.
    fn judge_session(&self, terms: &Terms<'_>, memory: &mut Memory) -> Outcome {
        // The replies of `account` serve one call of `session`, and no later one.
        let carried = memory
            .replies
            .take()
            .filter(|carried| carried.is_valid_for(terms.process, terms.arguments));
        let (helper, carried_replies) = match &carried {
            Some(carried) => (carried.helper, carried.replies.as_slice()),
            None => (self.handle.find_account(HELPER_USER), [].as_slice()),
        };
        let question = Question {
            helper,
            ask_helper: &|request| terms.ask_helper(helper, request),
            carried_replies,
        };
        let mut outcome = self.judge_by(terms, &question, &memory.auth_lines);
        memory
            .auth_lines
            .set_join(terms.process, outcome.namespaces.take());
        outcome
    }

    /// Judges the login by these terms and the replies to this question.
    fn judge_by(
        &self,
        terms: &Terms<'_>,
        question: &Question<'_>,
        auth_lines: &AuthLines,
    ) -> Outcome {
        module::judge_login(LoginContext {
            login: &self.login,
            settings: terms.settings,
            ask_helper: question.ask_helper,
            carried_replies: question.carried_replies,
            // sshd passes the PAM environment to the login's processes.
            environment: Environment {
                has: &|name| self.handle.has_env(name),
                put: &|text| self.handle.put_env(text),
            },
            find_slurm_user: &|| {
                let account = self.handle.find_account(SLURM_USER)?;
                Some(account.uid)
            },
            helper_group: question.helper.map(|account| account.gid),
            exemption: terms.exemption.map(Exemption::argument),
            ran_auth_lines: auth_lines.ran_in(terms.process) && module::is_inside_sshd(&self.login),
            budget: terms.budget,
        })
    }

    /// Keeps the memory for later calls. Ends the process if that fails with namespaces to join: the login would be
    /// outside of its job's private files.
    fn keep(&self, memory: Box<Memory>) {
        let has_join = memory.auth_lines.has_join();
        if !self.handle.store_value(memory) && has_join {
            module::end_process();
        }
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
