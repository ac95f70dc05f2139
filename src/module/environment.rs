//! The variables that describe its job, given to a login: the plan has them, and only such.

use super::Failure;
use crate::protocol::{Reason, Variable};

/// The variables that the application will hand to the login's processes; not its own environment.
#[derive(Clone, Copy)]
pub(crate) struct Environment<'a> {
    /// Whether there is one of that name.
    pub(crate) has: &'a dyn Fn(&str) -> bool,
    /// Sets `NAME=VALUE`, or takes `NAME` away; whether that was done.
    pub(crate) put: &'a dyn Fn(&str) -> bool,
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
