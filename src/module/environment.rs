//! The variables that describe its job, given to a login: the plan has them, and only such.

use super::Failure;
use crate::protocol::{Variable, Variables};
use std::fmt::Debug;

/// The variables that the application will hand to the login's processes; not its own environment.
pub trait Environment: Debug {
    /// Whether there is one of that name.
    fn has(&self, name: &str) -> bool;
    /// Adds one; whether it was taken.
    fn put(&self, variable: &Variable) -> bool;
    /// Takes one away.
    fn remove(&self, name: &str);
}

/// Sets these variables, but for those that another module has set: these are root's own. The names
/// of those that were set.
/// Errors: [`Failure::Variable`]; none of them stays then.
pub(super) fn set(
    environment: &dyn Environment,
    wanted: &Variables,
) -> Result<Vec<&'static str>, Failure> {
    let mut done: Vec<&'static str> = Vec::new();
    for variable in wanted.iter().filter(|variable| !environment.has(variable.name())) {
        if !environment.put(variable) {
            done.iter().for_each(|name| environment.remove(name));
            return Err(Failure::Variable(variable.name()));
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

    impl Environment for Room {
        fn has(&self, name: &str) -> bool {
            self.held.borrow().iter().any(|held| held.starts_with(&format!("{name}=")))
        }

        fn put(&self, variable: &Variable) -> bool {
            let room = self.held.borrow().len() < self.most;
            if room {
                self.held.borrow_mut().push(variable.to_string());
            }
            room
        }

        fn remove(&self, name: &str) {
            self.held.borrow_mut().retain(|held| !held.starts_with(&format!("{name}=")));
        }
    }

    const WANTED: [&str; 3] = ["SLURM_JOB_ID=1", "SLURM_JOBID=1", "SLURM_NNODES=3"];

    fn wanted() -> Variables {
        let mut variables = Variables::default();
        WANTED.iter().for_each(|text| variables.push(text.parse().unwrap()).unwrap());
        variables
    }

    #[test]
    fn variables_are_set_and_named() {
        let room = Room::new(9, &["X=0"]);
        assert_eq!(set(&room, &wanted()).unwrap(), ["SLURM_JOB_ID", "SLURM_JOBID", "SLURM_NNODES"]);
        assert_eq!(*room.held.borrow(), [&["X=0"], &WANTED[..]].concat());
    }

    #[test]
    fn none_stays_when_one_is_not_taken() {
        let room = Room::new(3, &["X=0"]);
        assert!(matches!(set(&room, &wanted()), Err(Failure::Variable("SLURM_NNODES"))));
        assert_eq!(*room.held.borrow(), ["X=0"]);
    }

    #[test]
    fn what_another_module_has_set_stays_as_it_is() {
        let room = Room::new(2, &["SLURM_JOBID=root's"]);
        assert!(set(&room, &wanted()).is_err());
        assert_eq!(*room.held.borrow(), ["SLURM_JOBID=root's"]);
    }
}
