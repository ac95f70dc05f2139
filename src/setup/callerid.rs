//! `callerid`: answers a query of another node: which job of this node owns a connection.

use clap::Args;
use command::error::Error;
use command::exit_status::{EXIT_FAILED, EXIT_FINE};
use command::options::Conf;
use command::output::{Output, log};
use helper::callerid::{Answer, Connection, ConnectionError, Flow, Timeouts, diag};
use helper::{Config, Deadline, Node, RunningJobs};
use kernel::log::{Line, Severity};
use module::node_name;
use std::cell::Cell;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// Minimum time from the start of this process to its end. A socket unit limits how many of these
/// processes exist, and systemd before 255 does not limit how many start: with this minimum the first
/// limit is one of starts per second, for each host and for all. Each start costs systemd more time than
/// the question costs this process (3 to 4 ms), and any user of the node can ask without end.
const LIFETIME_MIN: Duration = Duration::from_secs(5);

/// Tell another node which job a connection is of (systemd, inetd)
#[derive(Debug, Args)]
#[command(after_help = "\
Answers one question of the Identification Protocol (RFC 1413) on standard input. See
job-adopt-callerid(8).
Exit status: 0 answered, or nobody asked, 2 no TCP connection, 3 cannot tell.")]
pub struct Options {
    #[command(flatten)]
    conf: Conf,
}

/// Answers one query and stays for `LIFETIME_MIN`; returns the exit status, which is [`EXIT_FINE`] also if the other
/// side has closed the connection. As soon as there is a connection, only the answer may be written: inetd(8) makes
/// standard error the connection as well, so faults go to the log. It fails at once if there is no connection.
///
/// # Errors
///
/// [`Error`] with the exit status of the command.
pub fn execute(options: &Options, _output: &mut Output<'_>) -> Result<u8, Error> {
    let began = Instant::now();
    let config = options.conf.read();
    let status = open_connection()?.map_or(EXIT_FINE, |connection| answer_once(connection, config));
    std::thread::sleep(LIFETIME_MIN.saturating_sub(began.elapsed()));
    Ok(status)
}

/// Answers one query and ends the connection; returns [`EXIT_FAILED`] if the configuration cannot be used or the job
/// of the connection cannot be found out. Then the cause is in the log.
fn answer_once(connection: Connection, config: Result<Config, Error>) -> u8 {
    let config = config.map_err(|error| log_fault("", error));
    // Without a configuration no network is allowed, so every query is answered with `Answer::Hidden`.
    let networks = config
        .as_ref()
        .map_or(&[][..], |config| &config.callerid_networks);
    let is_fine = Cell::new(config.is_ok());
    connection.answer_query(networks, Timeouts::DEFAULT, &|flow, deadline| {
        let Ok(config) = &config else {
            return Answer::Hidden;
        };
        find_job(flow, config, deadline).unwrap_or_else(|cause| {
            log_fault(&flow.server.ip().to_string(), cause);
            is_fine.set(false);
            Answer::Unknown
        })
    });
    connection.close();
    if is_fine.get() {
        EXIT_FINE
    } else {
        EXIT_FAILED
    }
}

/// Opens the connection of a query, which is standard input; `None` if the other side has closed it. It fails with
/// [`Error::Usage`] if standard input is no TCP connection.
fn open_connection() -> Result<Option<Connection>, Error> {
    let socket = std::io::stdin()
        .as_fd()
        .try_clone_to_owned()
        .map_err(|error| Error::failed("duplicate", "standard input", error))?;
    let (error, hint) = match Connection::from_socket(socket) {
        Ok(connection) => return Ok(Some(connection)),
        Err(ConnectionError::PeerGone) => return Ok(None),
        Err(error @ ConnectionError::ListeningSocket) => {
            let hint = "it has to be Accept=yes in a socket unit, nowait in inetd.conf";
            // inetd discards standard error, so the log has the cause as well.
            log_fault(
                "",
                format!("standard input is no TCP connection: {error}; {hint}"),
            );
            (error, hint)
        }
        Err(error) => (error, "systemd or inetd runs this for each connection"),
    };
    Err(Error::Usage {
        fault: format!("standard input is no TCP connection: {error}"),
        hint: format!("{hint}; see job-adopt-callerid(8)"),
    })
}

/// Finds the job of a connection, among the jobs of its owner. [`Answer::NoUser`] means that it is in none of them, or
/// that this node knows no owner of such a connection.
///
/// # Errors
///
/// A text with the causes, if the connection may be in a job that could not be found.
fn find_job(flow: Flow, config: &Config, deadline: Deadline) -> Result<Answer, String> {
    let owner = diag::find_owner(flow.client, flow.server).map_err(|error| error.to_string())?;
    let Some(owner) = owner else {
        return Ok(Answer::NoUser);
    };
    let node = Node::host();
    // Other nodes usually have the same limit, and give up at its end.
    let deadline = deadline.within(config.callerid_timeout);
    // One half is left for the search among the jobs, so that a silent daemon cannot use it up.
    let half = deadline.within(deadline.remaining() / 2);
    let RunningJobs {
        mut jobs,
        closed,
        warnings,
    } = node
        .find_running_jobs(config, &node_name(), owner.uid, half)
        .map_err(|error| error.to_string())?;
    // Jobs that take no logins are answers too: the node that asks decides what follows from one.
    jobs.extend(closed);
    match node.job_of_cgroup(&jobs, owner.cgroup, deadline) {
        Some(id) => Ok(Answer::Job(id.clone())),
        None if warnings.is_empty() => Ok(Answer::NoUser),
        None => Err(warnings.join("; ")),
    }
}

/// Logs a fault that the administrator of this node must repair. `asker` is the address of the other node, or empty if
/// nothing was asked yet.
fn log_fault(asker: &str, cause: impl std::fmt::Display) {
    log(Line::new(Severity::Error)
        .with("callerid", "unknown")
        .with("asker", asker)
        .with("cause", cause));
}
