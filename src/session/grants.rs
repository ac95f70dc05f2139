//! What a login is given besides its place in the job: variables and groups. The helper asks; a
//! fixed table of a job's own variables and the arguments of the PAM line decide.

use std::fmt::{Debug, Display};

use super::job_variables::is_of_job;
use super::{Failure, Settings};
use crate::plan::{GroupId, Plan, Variable, VariableName};

/// The variables that the application will hand to the login's processes; not its own environment.
pub trait Environment: Debug {
    /// Whether there is one of that name.
    fn has(&self, name: &VariableName) -> bool;
    /// Adds one; whether it was taken.
    fn put(&self, variable: &Variable) -> bool;
    /// Takes one away.
    fn remove(&self, name: &VariableName);
}

/// What the plan asks for and what is let through of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Grants {
    pub(super) variables: Vec<Variable>,
    pub(super) groups: Vec<GroupId>,
    /// What they do not let through, for the log.
    withheld: Vec<String>,
}

impl Grants {
    /// By default the arguments name nothing, and nothing is let through but what describes the job.
    pub(super) fn of(plan: &Plan, settings: &Settings) -> Self {
        let listed = |variable: &Variable| {
            is_of_job(variable, plan) || settings.cdi_env.contains(variable.name())
        };
        let (variables, others): (Vec<_>, Vec<_>) = plan.env.iter().cloned().partition(listed);
        let listed = |group: &GroupId| settings.cdi_gids.contains(group);
        let (groups, foreign): (Vec<_>, Vec<_>) = plan.groups.iter().copied().partition(listed);
        let mut withheld = Vec::new();
        if !others.is_empty() {
            let names = shown(others.iter().map(Variable::name));
            withheld.push(format!("argument cdi_env does not name {names}"));
        }
        if !foreign.is_empty() {
            withheld.push(format!("argument cdi_gids does not name {}", shown(&foreign)));
        }
        Self { variables, groups, withheld }
    }

    /// What the log has to name of a login that was given the variables `put`.
    pub(super) fn remarks(&self, put: &[VariableName]) -> Vec<String> {
        let mut remarks = self.withheld.clone();
        let names = self.variables.iter().map(Variable::name);
        let set_before: Vec<_> = names.filter(|name| !put.contains(name)).collect();
        if !set_before.is_empty() {
            remarks.push(format!("set by another module: {}", shown(set_before)));
        }
        remarks
    }
}

/// A list on one line.
pub(super) fn shown<T: Display>(items: impl IntoIterator<Item = T>) -> String {
    items.into_iter().map(|item| item.to_string()).collect::<Vec<_>>().join(" ")
}

/// Variables on their way to a login. Dropping this takes back those that were put.
#[derive(Debug)]
pub(super) struct Giving<'a> {
    environment: &'a dyn Environment,
    wanted: &'a [Variable],
    put: Vec<VariableName>,
}

impl<'a> Giving<'a> {
    /// Nothing has been put yet.
    pub(super) fn new(environment: &'a dyn Environment, wanted: &'a [Variable]) -> Self {
        Self { environment, wanted, put: Vec::new() }
    }

    /// Puts them, but for those that another module has set: these are root's own.
    ///
    /// # Errors
    /// [`Failure::Variable`]; those put so far stay until this is dropped.
    pub(super) fn put(&mut self) -> Result<(), Failure> {
        for variable in self.wanted {
            if self.environment.has(variable.name()) {
                continue;
            }
            if !self.environment.put(variable) {
                return Err(Failure::Variable(variable.name().clone()));
            }
            self.put.push(variable.name().clone());
        }
        Ok(())
    }

    /// Leaves them there, and says which.
    pub(super) fn keep(&mut self) -> Vec<VariableName> {
        std::mem::take(&mut self.put)
    }

    /// Takes them back.
    pub(super) fn take_back(&mut self) {
        for name in self.keep() {
            self.environment.remove(&name);
        }
    }
}

impl Drop for Giving<'_> {
    fn drop(&mut self) {
        self.take_back();
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;
    use crate::plan::{Containment, Placement, Rule, Variables};

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

    impl Environment for Room {
        fn has(&self, name: &VariableName) -> bool {
            self.held.borrow().iter().any(|held| held.starts_with(&format!("{name}=")))
        }

        fn put(&self, variable: &Variable) -> bool {
            let room = self.held.borrow().len() < self.most;
            if room {
                self.held.borrow_mut().push(variable.to_string());
            }
            room
        }

        fn remove(&self, name: &VariableName) {
            self.held.borrow_mut().retain(|held| !held.starts_with(&format!("{name}=")));
        }
    }

    fn wanted() -> Vec<Variable> {
        ["A=1", "B=2", "C=3"].map(|text| text.parse().unwrap()).into()
    }

    #[test]
    fn variables_are_put_and_stay_when_they_are_kept() {
        let (room, wanted) = (Room::new(9, &["X=0"]), wanted());
        let mut giving = Giving::new(&room, &wanted);
        giving.put().unwrap();
        assert_eq!(shown(giving.keep()), "A B C");
        drop(giving);
        assert_eq!(*room.held.borrow(), ["X=0", "A=1", "B=2", "C=3"]);
    }

    #[test]
    fn none_stays_when_one_is_not_taken_or_the_login_fails_later() {
        let (room, wanted) = (Room::new(3, &["X=0"]), wanted());
        let mut giving = Giving::new(&room, &wanted);
        assert!(matches!(giving.put(), Err(Failure::Variable(name)) if name.as_str() == "C"));
        drop(giving);
        assert_eq!(*room.held.borrow(), ["X=0"]);
        let room = Room::new(9, &[]);
        Giving::new(&room, &wanted).put().unwrap();
        assert!(room.held.borrow().is_empty());
    }

    #[test]
    fn what_another_module_has_set_stays_as_it_is() {
        let (room, wanted) = (Room::new(9, &["B=root's"]), wanted());
        let mut giving = Giving::new(&room, &wanted);
        giving.put().unwrap();
        giving.take_back();
        assert_eq!(*room.held.borrow(), ["B=root's"]);
    }

    fn plan() -> Plan {
        let mut env = Variables::default();
        wanted().into_iter().for_each(|variable| env.push(variable).unwrap());
        Plan {
            job: "4242".parse().unwrap(),
            rule: Rule::OnlyJob,
            placement: Placement::Cgroup { path: "/a".parse().unwrap(), leaf: None },
            ends: None,
            gpus: 0,
            containment: Containment::None,
            probes: Vec::new(),
            dropped: Vec::new(),
            env,
            groups: ["44", "105"].map(|gid| gid.parse().unwrap()).into(),
        }
    }

    #[test]
    fn only_what_the_arguments_name_is_let_through() {
        let none = Grants::of(&plan(), &Settings::default());
        assert!(none.variables.is_empty() && none.groups.is_empty());
        let withheld =
            ["argument cdi_env does not name A B C", "argument cdi_gids does not name 44 105"];
        assert_eq!(none.withheld, withheld);
        let settings = Settings {
            cdi_env: vec!["B".parse().unwrap(), "D".parse().unwrap()],
            cdi_gids: vec!["105".parse().unwrap(), "7".parse().unwrap()],
            ..Settings::default()
        };
        let some = Grants::of(&plan(), &settings);
        assert_eq!((shown(&some.variables), shown(&some.groups)), ("B=2".into(), "105".into()));
        assert_eq!(some.withheld.len(), 2);
    }

    /// What is let through of these variables, without arguments.
    fn let_through(placement: Placement, asked: &[&str]) -> String {
        let mut env = Variables::default();
        asked.iter().for_each(|text| env.push(text.parse().unwrap()).unwrap());
        shown(Grants::of(&Plan { placement, env, ..plan() }, &Settings::default()).variables)
    }

    fn slurms() -> Placement {
        Placement::Extern { spool: "/spool".parse().unwrap(), node: "n".parse().unwrap() }
    }

    #[test]
    fn what_describes_a_job_of_slurms_needs_no_argument() {
        let set = [
            "SLURM_JOB_ID=4242",
            "SLURM_JOBID=4242",
            "SLURM_JOB_NODELIST=n[1-2]",
            "SLURM_TASKS_PER_NODE=2(x2),1",
            "SLURM_SUBMIT_DIR=/home/alice",
            "CUDA_VISIBLE_DEVICES=0,1",
        ];
        assert_eq!(let_through(slurms(), &set), set.join(" "));
        let registry = plan().placement;
        assert_eq!(let_through(registry, &set), "");
    }

    #[test]
    fn nothing_else_is_slipped_in_among_it() {
        for other in [
            "SLURM_JOB_ID=4243",
            "SLURM_JOBID=4242,1",
            "SLURM_SUBMIT_DIR=$(id)",
            "SLURM_JOB_NODELIST=n1,-oProxyCommand=/tmp/x",
            "SLURM_NNODES=PATH=1",
            "SLURM_TASKS_PER_NODE=2(x3),y",
            "SLURM_JOB_ACCOUNT=a b",
            "SLURM_JOB_ACCOUNT=",
            "SLURM_PROCID=0",
            "SLURM_STEP_ID=0",
            "SLURM_NTASKS=2",
            "SLURM_EXPORT_ENV=ALL",
            "CUDA_CACHE_PATH=/tmp/x",
            "A=1",
        ] {
            assert_eq!(let_through(slurms(), &[other]), "", "{other}");
        }
    }
}
