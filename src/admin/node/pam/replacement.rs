//! The account lines that go when ours replaces those of pam_slurm_adopt.so.
//!
//! A `sufficient` line ends the stack for owners of jobs, so the lines below it never judged them.
//! Below our `required` line they would. A jump over a replaced line would skip another line
//! instead. The stack with and without these lines is compared for owners of jobs, users without a
//! job, exempt users and root: each of them gets in as before, or the change is refused.

use helper::stack::{
    ComparedLine, Comparison, Entry, ModuleReturn, Side, Step, compare_stacks, jump_targets,
};
use module::{Action, Settings};

/// The module whose arguments our module understands.
pub(super) const SLURM_MODULE: &str = "pam_slurm_adopt.so";

/// Modules that decide who may log in.
const GATES: [&str; 8] = [
    "pam_access.so", "pam_deny.so", "pam_listfile.so", "pam_localuser.so", "pam_succeed_if.so",
    "pam_time.so", "pam_usertype.so", "pam_wheel.so",
];
/// Modules besides pam_unix.so that refuse no accounts but those that are locked or expired, or all
/// accounts while logins are closed.
const ACCOUNT_CHECKS: [&str; 11] = [
    "pam_faillock.so", "pam_krb5.so", "pam_lastlog.so", "pam_ldap.so", "pam_nologin.so",
    "pam_sepermit.so", "pam_sss.so", "pam_systemd_home.so", "pam_tally.so", "pam_tally2.so",
    "pam_winbind.so",
];
/// The way to name users whom another line let in without a job.
const NAME_THEM: &str = "name them by --arguments exempt_groups=NAMES or exempt_uids=NUMBERS \
                         (exempt_uids=0 if there are none but root)";

/// A user whose way through the old and the new stack is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LoginClass {
    /// A user with a job, whom both modules let in.
    JobOwner,
    /// A user without a job, whom ours refuses.
    Jobless,
    /// A user without a job, whom ours exempts.
    Exempt,
    /// A user with a job, whom ours exempts.
    ExemptOwner,
    /// Root, whom both modules ignore.
    Root,
}

/// Returns the stack with ours and without the lines of these indices.
type AfterChange<'a> = dyn Fn(&[usize]) -> Result<Vec<Entry>, String> + 'a;

/// The account stack in which ours replaces other lines.
pub(super) struct AccountChange<'a> {
    /// The stack without ours.
    pub(super) before: &'a [Entry],
    /// Returns the stack with ours and without the lines of these indices.
    pub(super) after: &'a AfterChange<'a>,
    /// Returns whether a line is in the service's own file, where it can be commented out.
    pub(super) is_own: &'a dyn Fn(&Entry) -> bool,
    /// The arguments of our lines.
    pub(super) settings: &'a Settings,
    /// The PAM service.
    pub(super) service: &'a str,
    /// Set if the admin gave `action_no_jobs`.
    pub(super) states_no_jobs: bool,
    /// A text that proposes lines which the admin can write instead.
    pub(super) by_hand: String,
}

/// The lines that go, by their indices, and what the admin should know about them.
#[derive(Debug)]
pub(super) struct Replacement {
    pub(super) lines: Vec<usize>,
    pub(super) notes: Vec<String>,
}

impl AccountChange<'_> {
    /// Finds the lines that go, beginning with those of pam_slurm_adopt.so.
    ///
    /// # Errors
    ///
    /// A text that says for whom the new stack would differ, by which line, and what to write.
    pub(super) fn find_replaced(&self) -> Result<Replacement, String> {
        let rivals: Vec<usize> =
            (0..self.before.len()).filter(|index| self.is_rival(*index)).collect();
        let mut gates: Vec<usize> = Vec::new();
        let (lines, after) = loop {
            let lines = self.with_jumps([rivals.as_slice(), &gates].concat());
            let after = (self.after)(&lines)?;
            match self.differs(&lines, &after, LoginClass::JobOwner, Side::Before)? {
                None => break (lines, after),
                Some(path) => gates.push(self.gate_that_refuses(&path)?),
            }
        };
        self.require_same_jumps(&lines, &after)?;
        if let Some(path) = self.differs(&lines, &after, LoginClass::JobOwner, Side::After)? {
            let by = path.iter().find(|step| step.alone == Some(Side::Before) && step.refuses);
            let jump = lines.iter().find(|index| !rivals.contains(index) && !gates.contains(index));
            return Err(match (jump, by) {
                (Some(jump), Some(by)) if index_of(by.position) != *jump => {
                    describe_jump(self.before.get(*jump))
                }
                _ => self.unlike("would no longer refuse users with a job", by),
            });
        }
        if let Some(path) = self.differs(&lines, &after, LoginClass::Jobless, Side::Before)? {
            self.require_exemption(&rivals, &path)?;
        }
        if let Some(path) = self.differs(&lines, &after, LoginClass::Jobless, Side::After)? {
            let by = path.iter().find(|step| step.alone == Some(Side::Before) && step.refuses);
            return Err(self.unlike("would no longer refuse users without a job", by));
        }
        for class in [LoginClass::Exempt, LoginClass::ExemptOwner, LoginClass::Root] {
            if let Some(path) = self.differs(&lines, &after, class, Side::Before)? {
                let by = path.iter().find(|step| step.alone == Some(Side::After) && step.refuses);
                return Err(self.unlike("would refuse exempt users or root", by));
            }
        }
        let others = lines.iter().filter(|index| !rivals.contains(index));
        let notes = others.filter_map(|index| self.note(*index, gates.contains(index))).collect();
        Ok(Replacement { lines, notes })
    }

    /// Returns whether this line of the old stack is one of `pam_slurm_adopt`; `false` past the end.
    fn is_rival(&self, index: usize) -> bool {
        self.before.get(index).is_some_and(|entry| entry.file() == SLURM_MODULE)
    }

    /// Returns these lines and those of the service's own file that jump over one of them.
    fn with_jumps(&self, mut lines: Vec<usize>) -> Vec<usize> {
        for index in (0..self.before.len()).rev() {
            let skips = |line: &usize| {
                skipped_lines(self.before, index).iter().flatten().any(|one| one == line)
            };
            if self.is_own(index) && !lines.contains(&index) && lines.iter().any(skips) {
                lines.push(index);
            }
        }
        lines.sort_unstable();
        lines
    }

    /// Refuses a jump over lines that go and lines that stay, whether it goes or stays itself: both
    /// would change which lines run.
    fn require_same_jumps(&self, lines: &[usize], after: &[Entry]) -> Result<(), String> {
        let positions = positions_after(self.before.len(), lines, after)?;
        for index in 0..self.before.len() {
            let skipped = skipped_lines(self.before, index);
            let stays = |line: &usize| !lines.contains(line);
            let is_same = if lines.contains(&index) {
                self.is_rival(index) || !skipped.iter().flatten().any(stays)
            } else {
                let at = positions.iter().position(|own| *own == position_of(index));
                let targets = at.map(|at| (at, jump_targets(after, at)));
                let left = |line: &usize| stays(line).then(|| position_of(*line));
                let expected: Vec<Vec<usize>> =
                    skipped.iter().map(|one| one.iter().filter_map(left).collect()).collect();
                targets.is_some_and(|(at, targets)| {
                    let skips =
                        |last: usize| positions.get(at + 1..=last).unwrap_or_default().to_vec();
                    targets.into_iter().flatten().map(skips).collect::<Vec<_>>() == expected
                })
            };
            if !is_same {
                return Err(describe_jump(self.before.get(index)));
            }
        }
        Ok(())
    }

    /// Returns the path of a login of this class that only one side admits.
    fn differs(
        &self,
        lines: &[usize],
        after: &[Entry],
        class: LoginClass,
        side: Side,
    ) -> Result<Option<Vec<Step>>, String> {
        let compared = |entry: &Entry, position: usize| ComparedLine {
            position,
            returns: self.returns(class, entry),
        };
        let old: Vec<ComparedLine> = self
            .before
            .iter()
            .enumerate()
            .map(|(index, entry)| compared(entry, position_of(index)))
            .collect();
        let positions = positions_after(self.before.len(), lines, after)?;
        let new: Vec<ComparedLine> =
            after.iter().zip(positions).map(|(entry, own)| compared(entry, own)).collect();
        match compare_stacks((self.before, &old), (after, &new), side) {
            Comparison::Same => Ok(None),
            Comparison::Differs(path) => Ok(Some(path)),
            Comparison::TooManyPaths => {
                Err("has too many ways through it to compare them: use fewer jumps".to_owned())
            }
        }
    }

    /// Returns what a module returns for a user of this class.
    fn returns(&self, class: LoginClass, entry: &Entry) -> ModuleReturn {
        if entry.is_our_module() {
            return self.our_return(class);
        }
        match entry.file() {
            SLURM_MODULE => self.old_return(class, entry),
            "pam_permit.so" => ModuleReturn::Success,
            "pam_deny.so" => ModuleReturn::Denied,
            "pam_unix.so" => ModuleReturn::AccountCheck,
            file if ACCOUNT_CHECKS.contains(&file) => ModuleReturn::IgnorableAccountCheck,
            _ => ModuleReturn::Any,
        }
    }

    fn our_return(&self, class: LoginClass) -> ModuleReturn {
        match class {
            LoginClass::JobOwner => ModuleReturn::Success,
            LoginClass::Jobless if self.settings.no_jobs == Action::Deny => ModuleReturn::Denied,
            _ => ModuleReturn::Ignore,
        }
    }

    /// Returns what pam_slurm_adopt returns at one line, whose own arguments count. It ignores root, and
    /// every login to another service than its `service=`.
    fn old_return(&self, class: LoginClass, entry: &Entry) -> ModuleReturn {
        // The module takes the last of several values, in any case.
        let value = |key: &str| {
            let mut pairs = entry.arguments.iter().rev().filter_map(|word| word.split_once('='));
            pairs.find(|(name, _)| name.eq_ignore_ascii_case(key)).map(|(_, value)| value)
        };
        let service = value("service").unwrap_or("sshd");
        let is_asked = service == "*" || service.eq_ignore_ascii_case(self.service);
        let ignores_jobless =
            value("action_no_jobs").is_some_and(|action| action.eq_ignore_ascii_case("ignore"));
        match class {
            _ if !is_asked => ModuleReturn::Ignore,
            LoginClass::Root => ModuleReturn::Ignore,
            LoginClass::JobOwner | LoginClass::ExemptOwner => ModuleReturn::Success,
            LoginClass::Jobless | LoginClass::Exempt if ignores_jobless => ModuleReturn::Ignore,
            LoginClass::Jobless | LoginClass::Exempt => ModuleReturn::Denied,
        }
    }

    /// Returns the line that refuses a user with a job on this path, if it may go: a module that
    /// decides who may log in, in the service's own file.
    fn gate_that_refuses(&self, path: &[Step]) -> Result<usize, String> {
        let by = path.iter().find(|step| step.alone == Some(Side::After) && step.refuses);
        let index = by.map(|step| index_of(step.position));
        let Some((index, entry)) = index.and_then(|index| Some((index, self.before.get(index)?)))
        else {
            return Err(self.unlike("would refuse users with a job", None));
        };
        let why = match GATES.contains(&entry.file()) {
            true if self.is_own(index) => return Ok(index),
            true => "would refuse users with a job",
            false => "may refuse users with a job, by rules of its own",
        };
        let by_hand = match self.is_own(index) {
            true => self.by_hand.clone(),
            false => "Other services have its file too. By hand: put the lines of that file into \
                      this service's in place of the line that takes it in, and run this again"
                .to_owned(),
        };
        let (file, place) = (entry.file(), &entry.place);
        Err(format!("{file} at {place} {why}: {SLURM_MODULE} let them in without it. {by_hand}"))
    }

    /// Refuses to lock out users whom a line let in without a job, unless the arguments name them.
    fn require_exemption(&self, rivals: &[usize], path: &[Step]) -> Result<(), String> {
        let settings = self.settings;
        let exempts = !(settings.exempt_uids.is_empty() && settings.exempt_groups.is_empty());
        let first = rivals.first().copied().unwrap_or_default();
        let passed = || {
            let old = path.iter().filter(|step| step.alone != Some(Side::After));
            old.filter_map(|step| {
                let index = index_of(step.position);
                Some((index, step, self.before.get(index)?))
            })
        };
        let is_asked = passed().any(|(index, ..)| rivals.contains(&index));
        let by = if is_asked {
            passed().find(|(index, step, entry)| {
                *index > first && step.succeeded && GATES.contains(&entry.file())
            })
        } else {
            passed().take_while(|(index, ..)| *index < first).last()
        };
        match by {
            Some(_) if exempts => Ok(()),
            Some((_, _, entry)) => {
                let (file, place) = (entry.file(), &entry.place);
                let whom = match is_asked {
                    true => format!("whom {SLURM_MODULE} refuses"),
                    false => format!("before {SLURM_MODULE} is asked"),
                };
                Err(format!("{file} at {place} lets users in {whom}; {NAME_THEM}"))
            }
            None if self.states_no_jobs => Ok(()),
            None => {
                let place = self.before.get(first).map(|entry| &entry.place);
                let place = place.map(ToString::to_string).unwrap_or_default();
                Err(format!(
                    "{SLURM_MODULE} at {place} keeps no user out who has no job, by its control or its \
                     arguments, and ours would: --arguments action_no_jobs=deny refuses them, \
                     action_no_jobs=ignore leaves them to the other modules"
                ))
            }
        }
    }

    /// Describes a difference for which no change of this command makes up.
    fn unlike(&self, what: &str, by: Option<&Step>) -> String {
        let entry = by.and_then(|step| self.before.get(index_of(step.position)));
        let line = entry.map(|entry| format!("{} at {} {what}", entry.file(), entry.place));
        let line = line.unwrap_or_else(|| format!("the new stack {what}"));
        format!("{line}, unlike before. {}", self.by_hand)
    }

    fn is_own(&self, index: usize) -> bool {
        self.before.get(index).is_some_and(self.is_own)
    }

    fn note(&self, index: usize, is_gate: bool) -> Option<String> {
        let entry = self.before.get(index)?;
        let (file, place) = (entry.file(), &entry.place);
        Some(match is_gate {
            true => format!(
                "note: {file} at {place} is commented out too: it never judged users with a job, \
                 and would refuse them. It no longer judges exempt users and root either"
            ),
            false => {
                format!("note: {file} at {place} is commented out too: all that it jumps over is")
            }
        })
    }
}

/// Refuses a stack in which a line jumps over one of pam_slurm_adopt.so.
///
/// # Errors
///
/// A text that names the line that jumps.
pub(super) fn require_no_jump_over_slurm(stack: &[Entry]) -> Result<(), String> {
    let is_slurm =
        |line: &usize| stack.get(*line).is_some_and(|entry| entry.file() == SLURM_MODULE);
    let jumps = |index: &usize| skipped_lines(stack, *index).iter().flatten().any(is_slurm);
    match (0..stack.len()).find(jumps) {
        None => Ok(()),
        Some(index) => Err(describe_jump(stack.get(index))),
    }
}

/// Returns for each jump of a line the lines that it skips.
fn skipped_lines(stack: &[Entry], index: usize) -> Vec<Vec<usize>> {
    let targets = jump_targets(stack, index);
    targets.into_iter().flatten().map(|last| (index + 1..=last).collect()).collect()
}

/// Describes a jump that can neither stay nor be commented out.
fn describe_jump(line: Option<&Entry>) -> String {
    let line = line.map(|entry| format!("{} at {}", entry.file(), entry.place));
    format!(
        "{} jumps over {SLURM_MODULE} and over lines that stay, and without {SLURM_MODULE} would \
         jump over others. By hand: give these lines controls that need no jump, and run this \
         again",
        line.unwrap_or_default()
    )
}

/// Returns the position of a line of the old stack; ours is in front of a line.
fn position_of(index: usize) -> usize {
    2 * index + 1
}

fn index_of(position: usize) -> usize {
    position / 2
}

/// Returns the positions of the new stack's lines.
fn positions_after(before: usize, lines: &[usize], after: &[Entry]) -> Result<Vec<usize>, String> {
    let mut kept = (0..before).filter(|index| !lines.contains(index)).peekable();
    let mut positions = Vec::new();
    for entry in after {
        positions.push(match entry.is_our_module() {
            true => 2 * kept.peek().copied().unwrap_or(before),
            false => position_of(kept.next().ok_or("has lines that came from nowhere")?),
        });
    }
    match kept.next() {
        None => Ok(positions),
        Some(_) => Err("would lose lines".to_owned()),
    }
}
