//! `callerid`: answers one question of another node's: which job of this node owns a connection.

use super::{Conf, EXIT_FAILED, EXIT_FINE, Error, Output, log};
use clap::Args;
use helper::callerid::{Answer, Connection, ConnectionError, Flow, Timeouts, diag};
use helper::{Config, Node};
use kernel::log::{Line, Severity};
use module::node_name;
use std::cell::Cell;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// Minimum time from the start of this process to its end. A socket unit limits how many of these
/// processes exist, and systemd before 255 does not limit how many start: with this minimum the first
/// limit is one of starts per second, for each host and for all. Each start costs systemd more time than
/// the question costs this process, and any user of the node can ask without end.
const LIFETIME_MIN: Duration = Duration::from_secs(2);

/// Tell another node which job a connection is of (systemd, inetd)
#[derive(Debug, Args)]
#[command(after_help = "\
Answers one question of the Identification Protocol (RFC 1413) on standard input. See
job-adopt-callerid(8).
Exit status: 0 answered, or nobody asked, 2 no TCP connection, 3 cannot tell.")]
pub(super) struct Options {
    #[command(flatten)]
    conf: Conf,
}

/// Once there is a connection, nothing but the answer may be written: standard error is the
/// connection as well, where inetd(8) runs this.
pub(super) fn execute(options: &Options, _output: &mut Output<'_>) -> Result<u8, Error> {
    let began = Instant::now();
    let config = options.conf.read();
    let status = connection()?.map_or(EXIT_FINE, |connection| answer_once(connection, config));
    std::thread::sleep(LIFETIME_MIN.saturating_sub(began.elapsed()));
    Ok(status)
}

/// Answers one question and ends the connection; returns the exit status.
fn answer_once(connection: Connection, config: Result<Config, Error>) -> u8 {
    let config = config.map_err(|error| fault("", error));
    // Without a configuration nobody may be told anything, and is told so.
    let networks = config.as_ref().map_or(&[][..], |config| &config.callerid_networks);
    let fine = Cell::new(config.is_ok());
    connection.answer_query(networks, Timeouts::DEFAULT, &|flow, deadline| {
        let Ok(config) = &config else { return Answer::Hidden };
        job(flow, config, deadline).unwrap_or_else(|cause| {
            fault(&flow.server.ip().to_string(), cause);
            fine.set(false);
            Answer::Unknown
        })
    });
    connection.close();
    if fine.get() { EXIT_FINE } else { EXIT_FAILED }
}

/// The connection that a question comes in on; `None` where nobody is left to ask.
fn connection() -> Result<Option<Connection>, Error> {
    let own = std::io::stdin().as_fd().try_clone_to_owned();
    let own = own.map_err(|error| Error::failed("duplicate", "standard input", error))?;
    let (error, hint) = match Connection::from_socket(own) {
        Ok(connection) => return Ok(Some(connection)),
        Err(ConnectionError::PeerGone) => return Ok(None),
        Err(error @ ConnectionError::ListeningSocket) => {
            let hint = "it has to be Accept=yes in a socket unit, nowait in inetd.conf";
            // Where inetd runs this, standard error goes nowhere.
            fault("", format!("standard input is no TCP connection: {error}; {hint}"));
            (error, hint)
        }
        Err(error) => (error, "systemd or inetd runs this for each connection"),
    };
    let text = format!("standard input is no TCP connection: {error}\n{hint}");
    Err(Error::Input(format!("{text}; see job-adopt-callerid(8)")))
}

/// The job that a connection is of: one of its owner's own. A question that cannot be answered for
/// sure is none that has the answer "no job".
fn job(flow: Flow, config: &Config, deadline: Instant) -> Result<Answer, String> {
    let owner = diag::find_owner(flow.client, flow.server).map_err(|error| error.to_string())?;
    let Some(owner) = owner else { return Ok(Answer::NoUser) };
    let node = Node::here();
    // The asker has the same limit, as a rule, and gives up at its end.
    let now = Instant::now();
    let deadline = deadline.min(now + config.callerid_timeout);
    // One half is for finding the right job among them, so that a silent daemon cannot use it up.
    let half = now + deadline.saturating_duration_since(now) / 2;
    let (jobs, warnings) = node.find_running_jobs(config, &node_name(), owner.uid, half)?;
    match node.job_of_cgroup(&jobs, owner.cgroup, deadline) {
        Some(id) => Ok(Answer::Job(id.clone())),
        None if warnings.is_empty() => Ok(Answer::NoUser),
        None => Err(warnings.join("; ")),
    }
}

/// Says in the log what the administrator of this node has to look after.
fn fault(asker: &str, cause: impl std::fmt::Display) {
    log(Line::new(Severity::Error)
        .with("callerid", "unknown")
        .with("asker", asker)
        .with("cause", cause));
}
