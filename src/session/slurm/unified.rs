//! A job's cgroups on cgroup v2: `JOB/step_extern/{slurm,user/task_special,user/task_N}`.
//!
//! The daemon is in `slurm`. Logins go to `task_special`, which the daemon makes for the first of
//! them, and where Slurm accounts by `jobacct_gather/cgroup` at once on to `task_N`, N being the
//! node's number in the job. Nothing of ours is made there: what the daemon does not know of, it
//! cannot remove.

use super::super::target::{self, not_frozen};
use super::super::{Failure, Visit};
use crate::bpf::{self, Branch, Confinement, Level, Obstacle, Outcome, Reach};
use crate::cgroup::{self, Membership, Mount, Place, stands_in};
use crate::plan::{CgroupPath, decimal};

/// The way from the step to its logins.
const WAY: [&str; 2] = ["user", "task_special"];
/// What the leaf of its accounting is called, but for the number.
const ACCOUNTED: &str = "task_";
/// Index of the job's own cgroup, counted from `task_special`.
const JOB: usize = 3;

/// Name of the leaf that a login is in, where that is one of these below `user`.
fn leaf_of<'a>(path: &'a str, user: &str) -> Option<&'a str> {
    let name = path.strip_prefix(user)?.strip_prefix('/')?;
    let numbered = name.strip_prefix(ACCOUNTED).is_some_and(|number| decimal(number).is_some());
    let [_, special] = WAY;
    (name == special || numbered).then_some(name)
}

/// An extern step's cgroup and those above it, and those below it that logins are in.
#[derive(Debug)]
pub(super) struct Step {
    /// The step's path.
    path: String,
    /// `task_special`, `user` and the step, as far as they are there, and every level above.
    place: Place,
    /// How many of `user` and `task_special` are not there: before the first login.
    missing: usize,
}

impl Step {
    /// Opens them.
    ///
    /// # Errors
    /// [`Failure::Gone`] for a step that ended meanwhile.
    pub(super) fn open(step: &CgroupPath) -> Result<Self, Failure> {
        let mut place = Mount::open()?.place(step)?;
        let mut missing = WAY.len();
        for name in WAY {
            match place.dir()?.child(name) {
                Ok(dir) => place = place.below(dir),
                Err(error) if error.is_gone() => break,
                Err(error) => return Err(error.into()),
            }
            missing -= 1;
        }
        Ok(Self { path: step.as_str().to_owned(), place, missing })
    }

    /// Where the login will be.
    pub(super) fn leaf(&self) -> String {
        let [user, leaf] = WAY;
        format!("{}/{user}/{leaf}", self.path)
    }

    /// # Errors
    /// [`Failure::Frozen`] with the cgroup that is.
    pub(super) fn not_frozen(&self) -> Result<(), Failure> {
        not_frozen(self.place.levels())
    }

    /// # Errors
    /// As [`super::super::Target::foresee`].
    pub(super) fn foresee(&self, visit: &Visit<'_>) -> Result<&'static str, Failure> {
        let job = JOB - self.missing;
        let branch = Branch { levels: self.place.levels(), job, reach: Reach::Leaf };
        target::name(bpf::foresee(branch, self.missing, &visit.plan.containment)?, visit)
    }

    /// # Errors
    /// [`Failure::Bpf`].
    pub(super) fn filters(&self) -> Result<Vec<(String, Level)>, Failure> {
        target::filters(self.place.levels())
    }

    /// Reads back that the login is in the leaf, and makes the containment hold there, which
    /// [`Arrival::verify_filters`] is to prove.
    ///
    /// # Errors
    /// [`Failure::Cgroup`] for a login that is elsewhere: the daemon says that it added one even
    /// where its own move failed. [`Failure::Bpf`].
    pub(super) fn arrive(&self, visit: &Visit<'_>) -> Result<Arrival, Failure> {
        let [user, special] = WAY;
        let found = Membership::own()?.unified().unwrap_or_default().to_owned();
        let Some(name) = leaf_of(&found, &format!("{}/{user}", self.path)) else {
            let wanted = self.leaf();
            return Err(Failure::Cgroup(cgroup::Error::Elsewhere { wanted, found }));
        };
        let place = self.way_down([user, name])?;
        // Whatever outlives its login is added anew by the daemon, and on its way to a leaf of the
        // accounting is in `task_special` for a moment: so the filters are put above both.
        let point = place.levels().get(usize::from(name != special)..).unwrap_or_default();
        let job = JOB - usize::from(name != special);
        let branch = Branch { levels: point, job, reach: Reach::Leaf };
        let containment = &visit.plan.containment;
        match bpf::confine(branch, containment, visit.budget.deadline())? {
            Outcome::Holds(confinement) => Ok(Arrival { leaf: found, place, confinement }),
            // Not with this reach.
            Outcome::NeedChild => {
                let why = Obstacle::LeafOverridden;
                Err(bpf::Error::Obstacle { object: found, why }.into())
            }
        }
    }

    /// The leaf and all above it, opened below the very step that was looked at before the login
    /// went in.
    fn way_down(&self, way: [&str; 2]) -> Result<Place, Failure> {
        let mut place = self.place.try_clone()?;
        for _ in self.missing..WAY.len() {
            place = place.above();
        }
        for name in way {
            let dir = place.dir()?.child(name)?;
            place = place.below(dir);
        }
        Ok(place)
    }
}

/// A login in the leaf.
#[derive(Debug)]
pub(super) struct Arrival {
    leaf: String,
    place: Place,
    confinement: Confinement,
}

impl Arrival {
    /// Where the login is.
    pub(super) fn leaf(&self) -> &str {
        &self.leaf
    }

    /// What holds for it.
    pub(super) fn confinement(&self) -> &Confinement {
        &self.confinement
    }

    /// # Errors
    /// [`Failure::Bpf`].
    pub(super) fn verify_filters(&self) -> Result<(), Failure> {
        Ok(self.confinement.verify(self.place.dir()?)?)
    }

    /// # Errors
    /// [`Failure::Cgroup`].
    pub(super) fn verify_place(&self) -> Result<(), Failure> {
        Ok(stands_in(self.place.dir()?, self.place.root()?)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_login_is_in_task_special_or_where_the_accounting_puts_it() {
        for name in ["task_special", "task_0", "task_17"] {
            assert_eq!(leaf_of(&format!("/job_1/step_extern/user/{name}"), USER), Some(name));
        }
        for path in [
            USER,
            "/job_1/step_extern/user/",
            "/job_1/step_extern/user/task_",
            "/job_1/step_extern/user/task_01",
            "/job_1/step_extern/user/task_0/a",
            "/job_1/step_extern/user/task_special (deleted)",
            "/job_1/step_extern/user2/task_0",
            "/job_2/step_extern/user/task_0",
        ] {
            assert_eq!(leaf_of(path, USER), None, "{path}");
        }
    }

    const USER: &str = "/job_1/step_extern/user";
}
