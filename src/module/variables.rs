//! Sets the variables of a login.

use crate::error::Failure;
use protocol::{Reason, Variable};

/// Access to the variables that the application passes to the login's processes. They are not its
/// own environment.
#[derive(Clone, Copy)]
pub struct Environment<'a> {
    /// Tells whether a variable of that name is set (pam_getenv(3)).
    pub has: &'a dyn Fn(&str) -> bool,
    /// Sets `NAME=VALUE`, or removes `NAME`; tells whether that was done (pam_putenv(3)).
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
    variables: &[Variable],
) -> Result<Vec<&'static str>, Failure> {
    let mut names: Vec<&'static str> = Vec::new();
    for variable in variables
        .iter()
        .filter(|variable| !(environment.has)(variable.name()))
    {
        if !(environment.put)(&variable.to_string()) {
            for name in names {
                // A name without a value removes the variable.
                (environment.put)(name);
            }
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
    use super::*;
    use std::cell::RefCell;

    /// An environment with a limited number of variables.
    #[derive(Debug)]
    struct LimitedEnvironment {
        max: usize,
        variables: RefCell<Vec<String>>,
    }

    impl LimitedEnvironment {
        fn new(max: usize, variables: &[&str]) -> Self {
            let variables = variables.iter().map(ToString::to_string).collect();
            Self {
                max,
                variables: RefCell::new(variables),
            }
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
            let has = |name: &str| self.has(name);
            let put = |text: &str| self.put(text);
            let variables = VARIABLES.map(|text| text.parse().unwrap());
            set_variables(
                Environment {
                    has: &has,
                    put: &put,
                },
                &variables,
            )
        }
    }

    const VARIABLES: [&str; 3] = ["SLURM_JOB_ID=1", "SLURM_JOBID=1", "SLURM_NNODES=3"];

    #[test]
    fn variables_are_set_and_named() {
        let environment = LimitedEnvironment::new(9, &["X=0"]);
        let names = environment.set_variables().unwrap();
        assert_eq!(names, ["SLURM_JOB_ID", "SLURM_JOBID", "SLURM_NNODES"]);
        assert_eq!(
            *environment.variables.borrow(),
            [&["X=0"], &VARIABLES[..]].concat()
        );
    }

    #[test]
    fn refused_variable_removes_those_that_were_set() {
        let environment = LimitedEnvironment::new(3, &["X=0"]);
        let failure = environment.set_variables().unwrap_err();
        assert_eq!(failure.reason(), Reason::AdoptionFailed);
        assert!(
            failure.to_string().starts_with("set SLURM_NNODES "),
            "{failure}"
        );
        assert_eq!(*environment.variables.borrow(), ["X=0"]);
    }

    #[test]
    fn variable_of_another_module_stays() {
        let environment = LimitedEnvironment::new(2, &["SLURM_JOBID=root's"]);
        assert!(environment.set_variables().is_err());
        assert_eq!(*environment.variables.borrow(), ["SLURM_JOBID=root's"]);
    }
}
