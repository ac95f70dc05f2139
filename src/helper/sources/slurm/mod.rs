//! Jobs of Slurm's, by the daemons of their steps on this node.
//!
//! No command of Slurm's is run and no controller asked: where jobs are, the daemons of their
//! extern steps listen at sockets in a directory of slurmd's, and say whose they are to anybody who
//! asks. The privileged half asks the chosen one once more.

mod ask;
mod owner;

use super::{Found, Job, Source, SourceError};
use crate::devices::slurm_conf::{ConfError, SlurmConfFiles, SpoolPath, with_slurm_trusted};
use crate::devices::tree;
use crate::devices::{Settings, Tree};
use crate::sources;
use ask::{Outcome, Terms, ask};
use kernel::trust::{Distrust, Trust, TrustError};
use nix::errno::Errno;
use protocol::{AbsolutePath, NodeName, Placement, SourceName, decimal};
use schedulers::stepd::{Answer, EXTERN_STEP, Error, SocketName, State, made};
use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};
use std::time::{Duration, Instant};

/// How long a daemon is waited for that cannot have the answer: while others wait for their turn, or
/// if the kernel shows that its job is another user's. Any other daemon may be that of the user's
/// newest job, and is waited for to the deadline, for a later login is better than the wrong job.
///
/// Measured with Slurm 22.05, six jobs and a seventh that came and went, on two cores with eight busy
/// loops each, in one cgroup with the daemons: of 1,932 answers 99 % came within 68 ms, the last after
/// 175 ms. In a cgroup that was full besides, with a million reclaims and 2,800 major faults, of 1,345
/// answers the last came after 143 ms. A login still met a daemon that took more than a second, while
/// a compiler, package builds and several Slurms shared such a machine.
const EACH: Duration = Duration::from_secs(1);

/// Slurm as a source.
#[derive(Debug)]
pub struct SlurmSource {
    tree: Tree,
    settings: Settings,
    spool: Option<PathBuf>,
}

impl SlurmSource {
    /// A source over the step daemons' sockets in `spool`, or in the directory that `slurm.conf`
    /// names, which is looked for as `settings` say. Where they give the node's name, only that
    /// node's count, else those of every node that this host is.
    pub fn new(tree: Tree, settings: Settings, spool: Option<PathBuf>) -> Self {
        Self { tree, settings, spool }
    }

    /// The running jobs of all users, each with its owner, and what cannot be told.
    pub fn everyones(&self, deadline: Instant) -> Result<(Vec<(u32, Job)>, Found), SourceError> {
        let mut found = Found::default();
        let heard = self.heard(&mut found, None, deadline)?;
        let running = heard.into_iter().filter(|(_, answer)| answer.state == State::Running);
        let jobs = running.map(|(socket, answer)| (answer.uid, socket.into())).collect();
        Ok((jobs, found))
    }

    /// The daemons that answered; about the others `found` tells.
    fn heard(
        &self,
        found: &mut Found,
        whose: Option<u32>,
        deadline: Instant,
    ) -> Result<Vec<(Socket, Answer)>, SourceError> {
        let spool = self.spool.as_deref();
        let sockets = sockets(&self.tree, &self.settings, spool, found)?;
        let paths: Vec<&Path> = sockets.iter().map(|socket| socket.path.as_path()).collect();
        let may_be_own = whose.map(|uid| {
            let (sockets, tree) = (&sockets, &self.tree);
            move |index: usize, pid: i32| {
                let job = sockets.get(index).map(|socket: &Socket| &socket.name.job);
                job.is_none_or(|job| owner::may_be(tree, uid, job, pid))
            }
        });
        let may_matter = may_be_own.as_ref().map(|look| look as &dyn Fn(usize, i32) -> bool);
        let owner = self.tree.trust().owner();
        let answers = ask(&paths, Terms { owner, may_matter, each: EACH, deadline });
        let (mut heard, mut gone, mut unasked) = (Vec::new(), 0, 0);
        for (socket, answer) in sockets.into_iter().zip(answers) {
            let path = socket.path.display();
            match answer {
                Some(Outcome::Done(Ok(answer))) => heard.push((socket, answer)),
                // Slurm leaves the sockets of daemons that were killed.
                Some(Outcome::Done(Err(Error::Gone))) => gone += 1,
                Some(Outcome::Done(Err(error @ (Error::Timeout | Error::Closed)))) => {
                    found.silent.push(format!("{path}: {error}"));
                }
                Some(Outcome::Done(Err(error))) => found.broken.push(format!("{path}: {error}")),
                Some(Outcome::Irrelevant) => {
                    let cause = "did not answer in time; its job is another user's";
                    found.foreign.push(format!("{path}: {cause}"));
                }
                None => unasked += 1,
            }
        }
        if unasked > 0 {
            found.silent.push(format!("{unasked} more daemons could not be asked in time"));
        }
        found.seen.push(format!("{} daemons answered, {gone} sockets are stale", heard.len()));
        Ok(heard)
    }
}

impl Source for SlurmSource {
    fn name(&self) -> SourceName {
        SourceName::Slurm
    }

    fn jobs(&self, uid: u32, deadline: Instant) -> Result<Found, SourceError> {
        let mut found = Found::default();
        for (socket, answer) in self.heard(&mut found, Some(uid), deadline)? {
            if answer.uid == uid {
                found.take(socket, answer.state);
            }
        }
        Ok(found)
    }
}

impl Found {
    fn take(&mut self, socket: Socket, state: State) {
        let id = socket.name.job.clone();
        match state {
            State::Starting => self.starting.push(id),
            State::Ending => self.ending.push(id),
            State::Running => match self.jobs.iter_mut().find(|job| job.id == id) {
                // A job of several nodes that are one host; to join one of them is to join it.
                Some(job) => {
                    let other = Job::from(socket);
                    let shown = sources::shown(&other.placement, &id);
                    self.skipped.push(format!("{shown}: the job is on several nodes of this host"));
                    if job.started < other.started {
                        *job = other;
                    }
                }
                None => self.jobs.push(socket.into()),
            },
        }
    }
}

impl From<Socket> for Job {
    fn from(Socket { name, spool, started, .. }: Socket) -> Self {
        let placement = Placement::Extern { spool, node: name.node };
        Self { id: name.job, started, ends: None, placement, record: None }
    }
}

/// Most names of a spool directory, and of one that has a directory for each node.
const NAMES_MAX: usize = 65_536;
/// Most nodes of one host that are looked for.
const NODES_MAX: usize = 64;

#[derive(Clone, Debug)]
struct Socket {
    name: SocketName,
    spool: AbsolutePath,
    path: PathBuf,
    /// When it was made, in seconds since the epoch.
    started: i64,
}

/// A directory to look in, and the node that has it to itself.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Place {
    path: PathBuf,
    node: Option<NodeName>,
}

/// The sockets of this node. What is wrong with any goes into `found`.
/// Fails: [`SourceError::Absent`] where Slurm is not on this node, [`SourceError::Failed`] where
/// its configuration or its only directory cannot be used.
fn sockets(
    tree: &Tree,
    settings: &Settings,
    spool: Option<&Path>,
    found: &mut Found,
) -> Result<Vec<Socket>, SourceError> {
    let node = settings.node_name.as_ref().and_then(|name| name.parse::<NodeName>().ok());
    let places = match spool {
        Some(path) => vec![Place { path: at(tree, path)?, node }],
        None => by_configuration(tree, settings, node)?,
    };
    let several = places.len() > 1;
    let mut sockets = Vec::new();
    for place in places {
        match look(tree, &place, found) {
            Ok(own) => sockets.extend(own),
            // One node's directory hides nothing of another's.
            Err(SourceError::Failed(cause)) if several => found.broken.push(cause),
            Err(SourceError::Absent(what)) if several => found.skipped.push(what),
            Err(error) => return Err(error),
        }
    }
    Ok(sockets)
}

fn at(tree: &Tree, path: &Path) -> Result<PathBuf, SourceError> {
    let text = path.to_str().ok_or_else(|| SourceError::Failed(format!("{path:?}: no UTF-8")))?;
    Ok(tree.locate(text))
}

fn by_configuration(
    tree: &Tree,
    settings: &Settings,
    node: Option<NodeName>,
) -> Result<Vec<Place>, SourceError> {
    let files = SlurmConfFiles::find(tree, settings).map_err(|error| absent_or_failed(&error))?;
    let lines = files.read_main_lines().map_err(|error| absent_or_failed(&error))?;
    let spool =
        SpoolPath::from_lines(&lines).map_err(|error| SourceError::Failed(error.to_string()))?;
    let host = nix::unistd::gethostname().unwrap_or_default().to_string_lossy().into_owned();
    if let Some(path) = spool.dir_of(&host, node.as_ref()) {
        return Ok(vec![Place { path: tree.locate(&path), node }]);
    }
    let Some(dirs) = spool.node_dirs(&host) else { return Ok(Vec::new()) };
    let parent = tree.locate(&dirs.parent);
    let failed = |error: std::io::Error| unusable(&parent, &error);
    let mut places = Vec::new();
    for entry in std::fs::read_dir(&parent).map_err(failed)?.take(NAMES_MAX) {
        let name = entry.map_err(failed)?.file_name();
        let Some((node, path)) = name.to_str().and_then(|name| dirs.find_node(name)) else {
            continue;
        };
        let path = tree.locate(&path);
        if path.is_dir() {
            places.push(Place { path, node: Some(node) });
        }
    }
    places.sort_by(|one, other| one.path.cmp(&other.path));
    match places.len() {
        0 => Err(SourceError::Absent(format!(
            "SlurmdSpoolDir: no directory in {} is a node's",
            parent.display()
        ))),
        1..=NODES_MAX => Ok(places),
        count => Err(SourceError::Failed(format!(
            "SlurmdSpoolDir: {} has {count} directories of nodes; give one as slurm_spool, or the \
             node's name as nodename",
            parent.display()
        ))),
    }
}

fn absent_or_failed(error: &ConfError) -> SourceError {
    match error {
        ConfError::MissingSlurmConf => SourceError::Absent(
            "no slurm.conf where it is looked for; slurm_conf in job_adopt.conf may say where it is"
                .to_owned(),
        ),
        ConfError::UnreadableFile(_) if error.is_missing() => SourceError::Absent(error.to_string()),
        error => SourceError::Failed(error.to_string()),
    }
}

fn missing(path: &Path) -> SourceError {
    SourceError::Absent(format!(
        "the spool directory {} does not exist: slurmd has not run on this node, or slurm_spool in \
         job_adopt.conf has to say where it is",
        path.display()
    ))
}

fn unusable(path: &Path, error: &std::io::Error) -> SourceError {
    match error.kind() {
        std::io::ErrorKind::NotFound => missing(path),
        _ => SourceError::Failed(format!("the spool directory {}: {error}", path.display())),
    }
}

/// The sockets of one directory. Symbolic links on the way are resolved here, since the privileged
/// half follows none.
fn look(tree: &Tree, place: &Place, found: &mut Found) -> Result<Vec<Socket>, SourceError> {
    let failed = |error: TrustError| match error.is_missing() {
        true => missing(&place.path),
        false => SourceError::Failed(distrusted(&place.path, &error)),
    };
    let path =
        with_slurm_trusted(tree.trust(), |trust| follow(trust, &place.path)).map_err(failed)?;
    let dir = with_slurm_trusted(tree.trust(), |trust| trust.dir(&path)).map_err(failed)?;
    let names = tree::list_visible_names(&dir, NAMES_MAX).map_err(failed)?;
    let spool = path.to_str().and_then(|path| path.parse::<AbsolutePath>().ok());
    let spool = spool.ok_or_else(|| SourceError::Failed(format!("{path:?} is no plain path")))?;
    let (mut sockets, mut foreign) = (Vec::new(), BTreeSet::new());
    let mut other_steps = false;
    for (name, step) in names.iter().filter_map(|name| socket_name(name)) {
        if step != EXTERN_STEP {
            other_steps = true;
            continue;
        }
        if place.node.as_ref().is_some_and(|node| *node != name.node) {
            foreign.insert(name.node.to_string());
            continue;
        }
        let path = path.join(name.to_string());
        match made(&dir, &name, tree.trust().owner()) {
            Ok(started) => sockets.push(Socket { name, spool: spool.clone(), path, started }),
            Err(Error::Gone) => {}
            Err(error) => found.broken.push(format!("{}: {error}", path.display())),
        }
    }
    found.seen.push(format!("{spool}: {} sockets of jobs", sockets.len()));
    if let (true, Some(node), Some(other)) = (sockets.is_empty(), &place.node, foreign.first()) {
        found.skipped.push(format!(
            "{spool}: no sockets of node {node}, but of {other}: is nodename what Slurm calls this \
             node?"
        ));
    }
    if sockets.is_empty() && foreign.is_empty() && other_steps {
        found.skipped.push(format!(
            "{spool}: jobs without an extern step: slurm.conf needs PrologFlags=Contain"
        ));
    }
    Ok(sockets)
}

fn distrusted(spool: &Path, error: &TrustError) -> String {
    let advice = match error.cause() {
        Distrust::Owner(_) | Distrust::Writable(_) => {
            "; it has to be root's or the account slurm's, and writable by nobody else (chown, \
             chmod 755)"
        }
        _ => "",
    };
    format!("the spool directory {}: {error}{advice}", spool.display())
}

/// The node and job of a socket's name, and the number of the step; `None` for any other name.
fn socket_name(name: &str) -> Option<(SocketName, u32)> {
    let (rest, step) = name.rsplit_once('.')?;
    let (node, job) = rest.rsplit_once('_')?;
    Some((SocketName::new(&node.parse().ok()?, &job.parse().ok()?)?, decimal(step)?))
}

/// Most links on one way, as in the kernel (path_resolution(7)).
const LINKS_MAX: usize = 40;

/// The path without links. A link is followed where the directory that it lies in is believed:
/// whoever can change a link decides what is found behind it.
/// Errors: `TrustError` for the first directory with a link in it that is not believed, for a
/// name that is missing, and for more links than the kernel would follow.
fn follow(trust: &Trust, path: &Path) -> Result<PathBuf, TrustError> {
    let mut real = PathBuf::from("/");
    let mut rest: Vec<PathBuf> = names(path);
    let mut links = 0;
    while let Some(name) = rest.pop() {
        if name == Path::new("..") {
            real.pop();
            continue;
        }
        let next = real.join(&name);
        let failed = |error: std::io::Error| {
            let errno = error.raw_os_error().map_or(Errno::EIO, Errno::from_raw);
            TrustError::new(&next, Distrust::Open(errno))
        };
        if !next.symlink_metadata().map_err(failed)?.is_symlink() {
            real = next;
            continue;
        }
        trust.dir(&real)?;
        links += 1;
        if links > LINKS_MAX {
            return Err(TrustError::new(path, Distrust::Open(Errno::ELOOP)));
        }
        let target = next.read_link().map_err(failed)?;
        if target.is_absolute() {
            real = PathBuf::from("/");
        }
        rest.extend(names(&target));
    }
    Ok(real)
}

/// The names of a path, the last one first.
fn names(path: &Path) -> Vec<PathBuf> {
    let wanted = |part: &Component<'_>| matches!(part, Component::Normal(_) | Component::ParentDir);
    path.components().rev().filter(wanted).map(|part| PathBuf::from(part.as_os_str())).collect()
}

#[cfg(test)]
pub(crate) mod tests;

#[cfg(test)]
mod spool_tests {
    use super::*;

    #[test]
    fn names_are_read_back_and_nothing_else_is_one() {
        for good in ["gpu017_4242.4294967292", "a_b_1.4294967292", "n.cluster-1_7.4294967292"] {
            let (name, step) = socket_name(good).unwrap();
            assert_eq!((name.to_string().as_str(), step), (good, EXTERN_STEP));
        }
        for other in ["gpu017_4242.0", "gpu017_4242.4294967291"] {
            assert!(socket_name(other).is_some_and(|(_, step)| step != EXTERN_STEP), "{other}");
        }
        for bad in [
            "",
            "gpu017_4242.4294967292.0",
            "gpu017_04242.4294967292",
            "gpu017_4294967296.4294967292",
            "gpu017_x.4294967292",
            "_1.4294967292",
            "gpu017.4294967292",
            "gpu/17_1.4294967292",
        ] {
            assert_eq!(socket_name(bad), None, "{bad}");
        }
    }
}

#[cfg(test)]
mod links_tests {
    use super::*;
    use crate::testing::Scratch;
    use std::os::unix::fs::symlink;

    #[test]
    fn links_in_believed_directories_lead_to_what_the_kernel_finds() {
        let scratch = Scratch::new();
        let real = scratch.dir("a/b/c");
        scratch.dir("links");
        for (name, target) in
            [("one", "../a/b"), ("two", "one/../b/c"), ("three", real.to_str().unwrap())]
        {
            symlink(target, scratch.path().join("links").join(name)).unwrap();
        }
        for path in ["a/b/c", "links/one/c", "links/two", "links/three", "links/../links/three"] {
            let path = scratch.path().join(path);
            assert_eq!(follow(&scratch.trust(), &path).unwrap(), path.canonicalize().unwrap());
        }
    }

    #[test]
    fn a_link_that_others_can_change_is_not_followed() {
        let scratch = Scratch::new();
        scratch.dir("a");
        symlink("a", scratch.path().join("first")).unwrap();
        symlink("../a", scratch.dir("open").join("link")).unwrap();
        symlink("open/link", scratch.path().join("second")).unwrap();
        scratch.mode("open", 0o777);
        assert!(follow(&scratch.trust(), &scratch.path().join("first")).is_ok());
        for path in ["open/link", "second"] {
            let error = follow(&scratch.trust(), &scratch.path().join(path)).unwrap_err();
            assert_eq!(error.path(), scratch.path().join("open"));
            assert!(matches!(error.cause(), Distrust::Writable(_)));
        }
    }

    #[test]
    fn what_is_missing_or_leads_in_a_circle_is_an_error() {
        let scratch = Scratch::new();
        symlink("round", scratch.path().join("round")).unwrap();
        let cause = |name: &str| {
            let error = follow(&scratch.trust(), &scratch.path().join(name)).unwrap_err();
            error.cause().clone()
        };
        assert_eq!(cause("round"), Distrust::Open(Errno::ELOOP));
        assert_eq!(cause("none/below"), Distrust::Open(Errno::ENOENT));
    }
}
