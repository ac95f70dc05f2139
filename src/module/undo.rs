//! What is changed for a login. If anything fails between the first change and the proof, also by a
//! panic, this login leaves nothing behind.

use super::Failure;
use super::job::Started;
use kernel::cgroup::{Dir, MADE, Origin, mark};
use kernel::namespace::{Namespace, NamespaceOrigin};
use protocol::{LeafName, Reason, Variable};

/// What has been changed so far, and how to change it back. Dropping it does so.
#[derive(Debug)]
pub(super) struct Undo {
    pub(super) origin: Origin,
    made: Option<(Dir, LeafName)>,
    /// That of the leaf, if this login has started it.
    pub(super) keeper: Option<Started>,
    /// Whether the login may be in the job.
    pub(super) moved: bool,
    outside: Option<NamespaceOrigin>,
}

impl Undo {
    /// Nothing has been changed yet.
    pub(super) fn new(origin: Origin) -> Self {
        Self { origin, made: None, keeper: None, moved: false, outside: None }
    }

    /// Makes the leaf of that name below `job`, unless it is there.
    /// Errors: As [`Dir::make_child`] and [`mark`]; what was made is then undone like the rest.
    pub(super) fn make_leaf(&mut self, job: &Dir, name: &LeafName) -> Result<(), Failure> {
        let below = job.try_clone()?;
        if !job.make_child(name.as_str())? {
            return Ok(());
        }
        self.made = Some((below, name.clone()));
        Ok(mark(&job.child(name.as_str())?, MADE)?)
    }

    /// Joins the job's namespaces.
    /// Errors: As [`NamespaceOrigin::enter`].
    pub(super) fn enter(
        &mut self,
        inside: &[Namespace],
        private: &[String],
    ) -> Result<(), Failure> {
        match inside {
            [] => Ok(()),
            _ => Ok(self.outside.insert(NamespaceOrigin::open(inside)?).enter(inside, private)?),
        }
    }

    /// Keeps all changes. Returns the way out of the job's namespaces, if the login is in some.
    pub(super) fn commit(mut self) -> Option<NamespaceOrigin> {
        self.made = None;
        self.moved = false;
        if let Some(keeper) = self.keeper.take() {
            keeper.keep();
        }
        self.outside.take()
    }

    /// Changes everything back and returns the failure to report: the one that led here, or that
    /// the way back is barred as well.
    pub(super) fn back(&mut self, failure: Failure) -> Failure {
        match self.change_back() {
            Ok(()) => failure,
            Err(error) => Failure::Stuck(Box::new(failure), error),
        }
    }

    fn change_back(&mut self) -> kernel::cgroup::Result<()> {
        // First: the job's namespaces may have another /proc.
        let left = self.outside.take().map_or(Ok(()), |outside| outside.leave());
        let result = if std::mem::take(&mut self.moved) { self.origin.back() } else { Ok(()) };
        if let Some((job, name)) = self.made.take() {
            // Another login may have joined meanwhile; then the leaf is theirs.
            let _ = job.remove_child(name.as_str());
        }
        // Last of all, since it looks for itself whether the leaf is still needed.
        self.keeper = None;
        Ok(left?).and(result)
    }
}

impl Drop for Undo {
    fn drop(&mut self) {
        let _ = self.change_back();
    }
}

/// The variables that the application will hand to the login's processes; not its own environment.
#[derive(Clone, Copy)]
pub struct Environment<'a> {
    /// Whether there is one of that name.
    pub has: &'a dyn Fn(&str) -> bool,
    /// Sets `NAME=VALUE`, or takes `NAME` away; whether that was done.
    pub put: &'a dyn Fn(&str) -> bool,
}

/// Sets these variables, but for those that another module has set: these are root's own. The names
/// of those that were set.
/// Errors: where one is not taken; none of them stays then.
pub(super) fn set(
    environment: Environment<'_>,
    wanted: &[&Variable],
) -> Result<Vec<&'static str>, Failure> {
    let mut done: Vec<&'static str> = Vec::new();
    for variable in wanted.iter().filter(|variable| !(environment.has)(variable.name())) {
        if !(environment.put)(&variable.to_string()) {
            done.iter().for_each(|name| _ = (environment.put)(name));
            let why = format!("set {} for the login: libpam did not take it", variable.name());
            return Err(Failure::Why(Reason::AdoptionFailed, why));
        }
        done.push(variable.name());
    }
    Ok(done)
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    /// An environment that takes so many variables.
    #[derive(Debug)]
    struct Room {
        most: usize,
        held: RefCell<Vec<String>>,
    }

    impl Room {
        fn new(most: usize, held: &[&str]) -> Self {
            Self { most, held: RefCell::new(held.iter().map(ToString::to_string).collect()) }
        }
    }

    impl Room {
        fn has(&self, name: &str) -> bool {
            self.held.borrow().iter().any(|held| held.starts_with(&format!("{name}=")))
        }

        fn put(&self, text: &str) -> bool {
            if !text.contains('=') {
                self.held.borrow_mut().retain(|held| !held.starts_with(&format!("{text}=")));
                return true;
            }
            let room = self.held.borrow().len() < self.most;
            if room {
                self.held.borrow_mut().push(text.to_owned());
            }
            room
        }

        fn set(&self) -> Result<Vec<&'static str>, Failure> {
            let (has, put) = (|name: &str| self.has(name), |text: &str| self.put(text));
            let wanted = WANTED.map(|text| text.parse().unwrap());
            set(Environment { has: &has, put: &put }, &wanted.each_ref())
        }
    }

    const WANTED: [&str; 3] = ["SLURM_JOB_ID=1", "SLURM_JOBID=1", "SLURM_NNODES=3"];

    #[test]
    fn variables_are_set_and_named() {
        let room = Room::new(9, &["X=0"]);
        assert_eq!(room.set().unwrap(), ["SLURM_JOB_ID", "SLURM_JOBID", "SLURM_NNODES"]);
        assert_eq!(*room.held.borrow(), [&["X=0"], &WANTED[..]].concat());
    }

    #[test]
    fn none_stays_when_one_is_not_taken() {
        let room = Room::new(3, &["X=0"]);
        let failure = room.set().unwrap_err();
        assert_eq!(failure.reason(), Reason::AdoptionFailed);
        assert!(failure.to_string().starts_with("set SLURM_NNODES "), "{failure}");
        assert_eq!(*room.held.borrow(), ["X=0"]);
    }

    #[test]
    fn what_another_module_has_set_stays_as_it_is() {
        let room = Room::new(2, &["SLURM_JOBID=root's"]);
        assert!(room.set().is_err());
        assert_eq!(*room.held.borrow(), ["SLURM_JOBID=root's"]);
    }
}
