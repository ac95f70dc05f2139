//! Records the changes for a login and rolls them back. If a step fails between the first change
//! and the last check, even by a panic, the login leaves nothing behind.

use super::Failure;
use super::job::KeeperHandle;
use kernel::cgroup::{Dir, MADE_XATTR, Origin, set_mark};
use protocol::{LeafName, Reason, Variable};

/// Requires that root owns a leaf, which root has made.
fn require_root_owner(leaf: &Dir) -> Result<(), Failure> {
    match leaf.owner()? {
        0 => Ok(()),
        uid => {
            let cause = format!("{} is uid {uid}'s, and not the leaf that was made", leaf.path());
            Err(Failure::new(Reason::AdoptionFailed, cause))
        }
    }
}

/// The changes so far. Its drop rolls them back.
#[derive(Debug)]
pub(super) struct Undo {
    /// The cgroups of the login before the move.
    pub(super) origin: Origin,
    /// The job's cgroup, and the name of the leaf that this login made there.
    made_leaf: Option<(Dir, LeafName)>,
    /// The keeper of the leaf, if this login has started it.
    pub(super) keeper: Option<KeeperHandle>,
    /// The login may be in the job.
    pub(super) moved: bool,
}

impl Undo {
    /// Starts without any change.
    pub(super) fn new(origin: Origin) -> Self {
        Self { origin, made_leaf: None, keeper: None, moved: false }
    }

    /// Makes the leaf of that name below `job`, unless it exists.
    ///
    /// # Errors
    ///
    /// The errors of [`Dir::make_child`] and [`set_mark`]; a new leaf is rolled back like the
    /// other changes. The user of a job may own its cgroup, and so replace the new leaf: one that is
    /// not root's is never marked.
    pub(super) fn make_leaf(&mut self, job: &Dir, name: &LeafName) -> Result<(), Failure> {
        let below = job.clone();
        if !job.make_child(name.as_str())? {
            return Ok(());
        }
        self.made_leaf = Some((below, name.clone()));
        let leaf = job.child(name.as_str())?;
        require_root_owner(&leaf)?;
        Ok(set_mark(&leaf, MADE_XATTR)?)
    }

    /// Keeps all changes; `drop` then rolls nothing back.
    pub(super) fn commit(mut self) {
        self.made_leaf = None;
        self.moved = false;
        if let Some(keeper) = self.keeper.take() {
            keeper.confirm_login();
        }
    }

    /// Rolls back all changes. Returns the failure to report: the given one, or
    /// [`Failure::MoveBackFailed`].
    pub(super) fn roll_back(&mut self, failure: Failure) -> Failure {
        match self.restore() {
            Ok(()) => failure,
            Err(error) => Failure::MoveBackFailed(Box::new(failure), error),
        }
    }

    fn restore(&mut self) -> kernel::cgroup::Result<()> {
        let moved_back =
            if std::mem::take(&mut self.moved) { self.origin.move_back() } else { Ok(()) };
        if let Some((job, name)) = self.made_leaf.take() {
            // Ignore the error: another login may have joined, and needs the leaf then.
            let _ = job.remove_child(name.as_str());
        }
        // Release the keeper last: it checks itself whether the leaf is still needed.
        self.keeper = None;
        moved_back
    }
}

impl Drop for Undo {
    fn drop(&mut self) {
        let _ = self.restore();
    }
}

/// Access to the variables that the application passes to the login's processes. They are not its
/// own environment.
#[derive(Clone, Copy)]
pub struct Environment<'a> {
    /// Returns whether a variable of that name is set.
    pub has: &'a dyn Fn(&str) -> bool,
    /// Sets `NAME=VALUE`, or removes `NAME`; returns whether that was done.
    pub put: &'a dyn Fn(&str) -> bool,
}

/// Sets these variables, except for those that another module has set: that is the admin's own
/// choice. Returns the names of those that it set.
///
/// # Errors
///
/// libpam refused a variable; those that were set are removed again.
pub(super) fn set_variables(
    environment: Environment<'_>,
    variables: &[&Variable],
) -> Result<Vec<&'static str>, Failure> {
    let mut names: Vec<&'static str> = Vec::new();
    for variable in variables.iter().filter(|variable| !(environment.has)(variable.name())) {
        if !(environment.put)(&variable.to_string()) {
            names.iter().for_each(|name| _ = (environment.put)(name));
            let name = variable.name();
            let cause = format!("set {name} for the login: libpam did not take it");
            return Err(Failure::new(Reason::AdoptionFailed, cause));
        }
        names.push(variable.name());
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    /// The user of a job that owns its cgroup can put one in the place of the new leaf.
    #[test]
    fn leaf_of_another_account_is_not_taken_for_the_one_that_was_made() {
        if !nix::unistd::Uid::effective().is_root() {
            return crate::testing::skip("needs root");
        }
        let path = std::env::temp_dir().join(format!("job-adopt-leaf-{}", std::process::id()));
        std::fs::create_dir(&path).unwrap();
        let leaf = Dir::new(std::fs::File::open(&path).unwrap().into(), "/job/job-adopt");
        assert!(require_root_owner(&leaf).is_ok());
        std::os::unix::fs::chown(&path, Some(1001), None).unwrap();
        let refused = require_root_owner(&leaf);
        std::fs::remove_dir(&path).unwrap();
        assert!(refused.is_err());
    }

    /// An environment with a limited number of variables.
    #[derive(Debug)]
    struct LimitedEnvironment {
        max: usize,
        variables: RefCell<Vec<String>>,
    }

    impl LimitedEnvironment {
        fn new(max: usize, variables: &[&str]) -> Self {
            let variables = variables.iter().map(ToString::to_string).collect();
            Self { max, variables: RefCell::new(variables) }
        }

        fn has(&self, name: &str) -> bool {
            let is_named = |variable: &String| variable.starts_with(&format!("{name}="));
            self.variables.borrow().iter().any(is_named)
        }

        fn put(&self, text: &str) -> bool {
            if !text.contains('=') {
                let is_other = |variable: &String| !variable.starts_with(&format!("{text}="));
                self.variables.borrow_mut().retain(is_other);
                return true;
            }
            let has_capacity = self.variables.borrow().len() < self.max;
            if has_capacity {
                self.variables.borrow_mut().push(text.to_owned());
            }
            has_capacity
        }

        fn set_variables(&self) -> Result<Vec<&'static str>, Failure> {
            let (has, put) = (|name: &str| self.has(name), |text: &str| self.put(text));
            let variables = VARIABLES.map(|text| text.parse().unwrap());
            set_variables(Environment { has: &has, put: &put }, &variables.each_ref())
        }
    }

    const VARIABLES: [&str; 3] = ["SLURM_JOB_ID=1", "SLURM_JOBID=1", "SLURM_NNODES=3"];

    #[test]
    fn variables_are_set_and_named() {
        let environment = LimitedEnvironment::new(9, &["X=0"]);
        let names = environment.set_variables().unwrap();
        assert_eq!(names, ["SLURM_JOB_ID", "SLURM_JOBID", "SLURM_NNODES"]);
        assert_eq!(*environment.variables.borrow(), [&["X=0"], &VARIABLES[..]].concat());
    }

    #[test]
    fn refused_variable_removes_those_that_were_set() {
        let environment = LimitedEnvironment::new(3, &["X=0"]);
        let failure = environment.set_variables().unwrap_err();
        assert_eq!(failure.reason(), Reason::AdoptionFailed);
        assert!(failure.to_string().starts_with("set SLURM_NNODES "), "{failure}");
        assert_eq!(*environment.variables.borrow(), ["X=0"]);
    }

    #[test]
    fn variable_of_another_module_stays() {
        let environment = LimitedEnvironment::new(2, &["SLURM_JOBID=root's"]);
        assert!(environment.set_variables().is_err());
        assert_eq!(*environment.variables.borrow(), ["SLURM_JOBID=root's"]);
    }
}
