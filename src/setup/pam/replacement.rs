//! The account lines that go when ours replaces those of pam_slurm_adopt.so.
//!
//! A `sufficient` line ends the stack for owners of jobs, so the lines below it never judged them.
//! Below our `required` line they would. A jump over a replaced line would skip another line
//! instead. The stack with and without these lines is compared for owners of jobs, users without a
//! job, exempt users and root: each of them gets in as before, or the change is refused.

use super::refusal::Refusal;
use helper::stack::{
    ComparedLine, Comparison, Entry, ModuleReturn, Side, Step, compare_stacks, jump_targets,
};
use module::{Action, Settings};

/// The module whose arguments our module understands.
pub(super) const SLURM_MODULE: &str = "pam_slurm_adopt.so";

/// Modules that decide who may log in.
const GATES: [&str; 8] = [
    "pam_access.so",
    "pam_deny.so",
    "pam_listfile.so",
    "pam_localuser.so",
    "pam_succeed_if.so",
    "pam_time.so",
    "pam_usertype.so",
    "pam_wheel.so",
];
/// Modules besides pam_unix.so that refuse no accounts but those that are locked or expired, or all
/// accounts while logins are closed.
const ACCOUNT_CHECKS: [&str; 11] = [
    "pam_faillock.so",
    "pam_krb5.so",
    "pam_lastlog.so",
    "pam_ldap.so",
    "pam_nologin.so",
    "pam_sepermit.so",
    "pam_sss.so",
    "pam_systemd_home.so",
    "pam_tally.so",
    "pam_tally2.so",
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

/// Reads the stack with ours and without the lines of these indices.
type AfterChange<'a> = dyn Fn(&[usize]) -> Result<Vec<Entry>, Refusal> + 'a;

/// The account stack in which ours replaces other lines.
pub(super) struct AccountChange<'a> {
    /// The stack without ours.
    pub(super) before: &'a [Entry],
    /// Reads the stack with ours and without the lines of these indices.
    pub(super) after: &'a AfterChange<'a>,
    /// Whether a line is in the service's own file, where it can be commented out.
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
    /// [`Refusal`], which says for whom the new stack would differ, by which line, and what to write.
    pub(super) fn find_replaced(&self) -> Result<Replacement, Refusal> {
        let rivals: Vec<usize> = (0..self.before.len())
            .filter(|index| self.is_rival(*index))
            .collect();
        // Each line that would refuse users with a job goes as well, and then the stacks are compared again.
        let mut gates: Vec<usize> = Vec::new();
        let change = loop {
            let change = self.plan_without([rivals.as_slice(), &gates].concat())?;
            let Some(path) = self.find_difference(&change, LoginClass::JobOwner, Side::Before)?
            else {
                break change;
            };
            gates.push(self.gate_that_refuses(&path)?);
        };
        self.require_same_jumps(&change)?;
        if let Some(path) = self.find_difference(&change, LoginClass::JobOwner, Side::After)? {
            // The old line that refused them, and that the new stack lacks.
            let by = refusing_step(&path, Side::Before);
            // A line that goes only since it jumps over others that go.
            let jump = change
                .lines
                .iter()
                .find(|line| !rivals.contains(line) && !gates.contains(line));
            return Err(match (jump, by) {
                // Another line than the jump refused the login, so the jump is what the new stack lacks.
                (Some(jump), Some(by)) if index_of(by.position) != *jump => {
                    refuse_jump(self.before.get(*jump))
                }
                _ => self.unlike("would no longer refuse users with a job", by),
            });
        }
        // The old stack may let users without a job in, if the admin has decided about them.
        if let Some(path) = self.find_difference(&change, LoginClass::Jobless, Side::Before)? {
            self.require_exemption(&rivals, &path)?;
        }
        if let Some(path) = self.find_difference(&change, LoginClass::Jobless, Side::After)? {
            let by = refusing_step(&path, Side::Before);
            return Err(self.unlike("would no longer refuse users without a job", by));
        }
        for class in [
            LoginClass::Exempt,
            LoginClass::ExemptOwner,
            LoginClass::Root,
        ] {
            if let Some(path) = self.find_difference(&change, class, Side::Before)? {
                // The line that refuses them now, and that did not judge them before.
                let by = refusing_step(&path, Side::After);
                return Err(self.unlike("would refuse exempt users or root", by));
            }
        }
        let mut notes = Vec::new();
        for line in change.lines.iter().filter(|line| !rivals.contains(line)) {
            notes.extend(self.note(*line, gates.contains(line)));
        }
        Ok(Replacement {
            lines: change.lines,
            notes,
        })
    }

    /// Whether this line of the old stack is one of `pam_slurm_adopt`; `false` past the end.
    fn is_rival(&self, index: usize) -> bool {
        self.before
            .get(index)
            .is_some_and(|entry| entry.file() == SLURM_MODULE)
    }

    /// Plans the stack with ours and without these lines and those that jump over one of them. It fails with
    /// [`Refusal`] if that stack cannot be read.
    fn plan_without(&self, lines: Vec<usize>) -> Result<Change, Refusal> {
        let lines = self.with_jumps(lines);
        let after = (self.after)(&lines)?;
        let positions = positions_after(self.before.len(), &lines, &after)?;
        Ok(Change {
            lines,
            after,
            positions,
        })
    }

    /// Adds to these lines those of the service's own file that jump over one of them, and those that jump
    /// over an added line.
    fn with_jumps(&self, mut lines: Vec<usize>) -> Vec<usize> {
        // Jumps lead down the stack, so from its end one pass is enough.
        for index in (0..self.before.len()).rev() {
            let skipped = skipped_lines(self.before, index).concat();
            let skips_one = lines.iter().any(|line| skipped.contains(line));
            if self.is_own(index) && !lines.contains(&index) && skips_one {
                lines.push(index);
            }
        }
        lines.sort_unstable();
        lines
    }

    /// Refuses jumps that would skip other lines than before: one that stays must skip the same lines but for those
    /// that go, and one that goes must have skipped only lines that go. The jumps of pam_slurm_adopt's own lines may
    /// go in any case, since whom they let in is compared.
    fn require_same_jumps(&self, change: &Change) -> Result<(), Refusal> {
        for index in 0..self.before.len() {
            let skipped = skipped_lines(self.before, index);
            let is_same = if change.lines.contains(&index) {
                let skips_only_gone = skipped
                    .concat()
                    .iter()
                    .all(|line| change.lines.contains(line));
                self.is_rival(index) || skips_only_gone
            } else {
                change.jumps_of(index) == Some(change.positions_of_kept(&skipped))
            };
            if !is_same {
                return Err(refuse_jump(self.before.get(index)));
            }
        }
        Ok(())
    }

    /// Finds a path through the stack on which a login of this class is admitted on one side alone: before the change
    /// and refused after it ([`Side::Before`]), or the other way round ([`Side::After`]). `None` if there is no such
    /// path. It fails with [`Refusal`] if there are too many paths to compare.
    fn find_difference(
        &self,
        change: &Change,
        class: LoginClass,
        admitted: Side,
    ) -> Result<Option<Vec<Step>>, Refusal> {
        let mut old = Vec::new();
        for (index, entry) in self.before.iter().enumerate() {
            let returns = self.returns(class, entry);
            old.push(ComparedLine {
                position: position_of(index),
                returns,
            });
        }
        let mut new = Vec::new();
        for (entry, position) in change.after.iter().zip(&change.positions) {
            new.push(ComparedLine {
                position: *position,
                returns: self.returns(class, entry),
            });
        }
        match compare_stacks((self.before, &old), (&change.after, &new), admitted) {
            Comparison::Same => Ok(None),
            Comparison::Differs(path) => Ok(Some(path)),
            Comparison::TooManyPaths => {
                Err("has too many ways through it to compare them: use fewer jumps".into())
            }
        }
    }

    /// What a module returns for a user of this class; [`ModuleReturn::Any`] for one about which nothing is known.
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

    /// What pam_slurm_adopt returns at this line, by the line's own arguments. It ignores root, and every
    /// login to another service than its `service=`, and it knows nothing of those whom ours exempts.
    fn old_return(&self, class: LoginClass, entry: &Entry) -> ModuleReturn {
        let service = last_value(entry, "service").unwrap_or("sshd");
        if service != "*" && !service.eq_ignore_ascii_case(self.service) {
            return ModuleReturn::Ignore;
        }
        let no_jobs = last_value(entry, "action_no_jobs").unwrap_or_default();
        match class {
            LoginClass::Root => ModuleReturn::Ignore,
            LoginClass::JobOwner | LoginClass::ExemptOwner => ModuleReturn::Success,
            LoginClass::Jobless | LoginClass::Exempt if no_jobs.eq_ignore_ascii_case("ignore") => {
                ModuleReturn::Ignore
            }
            LoginClass::Jobless | LoginClass::Exempt => ModuleReturn::Denied,
        }
    }

    /// Finds the line that after the change would refuse a user with a job on this path; returns its index. It fails
    /// with [`Refusal`] if that line must not go: only one of [`GATES`] in the service's own file may.
    fn gate_that_refuses(&self, path: &[Step]) -> Result<usize, Refusal> {
        let refusing = refusing_step(path, Side::After).map(|step| index_of(step.position));
        let line = refusing.and_then(|index| Some((index, self.before.get(index)?)));
        let Some((index, entry)) = line else {
            return Err(self.unlike("would refuse users with a job", None));
        };
        let is_gate = GATES.contains(&entry.file());
        if is_gate && self.is_own(index) {
            return Ok(index);
        }
        let why = if is_gate {
            "would refuse users with a job"
        } else {
            "may refuse users with a job, by rules of its own"
        };
        let by_hand = if self.is_own(index) {
            self.by_hand.as_str()
        } else {
            "Other services have its file too. By hand: put the lines of that file into \
             this service's in place of the line that takes it in, and run this again"
        };
        Err(Refusal::from(format!(
            "{} at {} {why}: {SLURM_MODULE} let them in without it. {by_hand}",
            entry.file(),
            entry.place
        )))
    }

    /// Refuses to lock out users whom a line of the old stack let in without a job, unless our arguments
    /// exempt somebody. `path` is the path of such a user through the stack, and `rivals` are the lines of
    /// pam_slurm_adopt, at least one. If no other line let the user in, the admin must say what to do with users
    /// without a job.
    fn require_exemption(&self, rivals: &[usize], path: &[Step]) -> Result<(), Refusal> {
        let first = rivals.first().copied().unwrap_or_default();
        // The lines of the old stack on the path.
        let mut passed = Vec::new();
        for step in path.iter().filter(|step| step.alone != Some(Side::After)) {
            let index = index_of(step.position);
            if let Some(entry) = self.before.get(index) {
                passed.push((index, step, entry));
            }
        }
        let is_asked = passed.iter().any(|(index, ..)| rivals.contains(index));
        let admitting = if is_asked {
            // A line below, such as pam_access.so below a sufficient one.
            passed.iter().find(|(index, step, entry)| {
                *index > first && step.succeeded && GATES.contains(&entry.file())
            })
        } else {
            // The last line above, which ended the stack or jumped over pam_slurm_adopt.
            passed
                .iter()
                .take_while(|(index, ..)| *index < first)
                .last()
        };
        let Some((_, _, entry)) = admitting else {
            return self.require_stated_action(first);
        };
        let Settings {
            exempt_uids,
            exempt_groups,
            ..
        } = self.settings;
        if !exempt_uids.is_empty() || !exempt_groups.is_empty() {
            return Ok(());
        }
        let whom = if is_asked {
            format!("whom {SLURM_MODULE} refuses")
        } else {
            format!("before {SLURM_MODULE} is asked")
        };
        let file = entry.file();
        let place = &entry.place;
        Err(Refusal::from(format!(
            "{file} at {place} lets users in {whom}; {NAME_THEM}"
        )))
    }

    /// Refuses to lock out users without a job whom the old line, which is at this index, let in, unless the
    /// admin said what to do with them.
    fn require_stated_action(&self, slurm: usize) -> Result<(), Refusal> {
        if self.states_no_jobs {
            return Ok(());
        }
        let place = self
            .before
            .get(slurm)
            .map(|entry| entry.place.to_string())
            .unwrap_or_default();
        Err(Refusal::from(format!(
            "{SLURM_MODULE} at {place} keeps no user out who has no job, by its control or its \
             arguments, and ours would: --arguments action_no_jobs=deny refuses them, \
             action_no_jobs=ignore leaves them to the other modules"
        )))
    }

    /// Describes a difference for which no change of this command makes up.
    fn unlike(&self, what: &str, by: Option<&Step>) -> Refusal {
        let line = match by.and_then(|step| self.before.get(index_of(step.position))) {
            Some(entry) => format!("{} at {}", entry.file(), entry.place),
            None => "the new stack".to_owned(),
        };
        Refusal::from(format!("{line} {what}, unlike before. {}", self.by_hand))
    }

    fn is_own(&self, index: usize) -> bool {
        self.before.get(index).is_some_and(self.is_own)
    }

    /// Explains why a line other than one of `pam_slurm_adopt` is commented out with it: `is_gate` tells a
    /// line that would judge users with a job from one that only jumps over such lines. `None` if the old
    /// stack has no line with this index.
    fn note(&self, index: usize, is_gate: bool) -> Option<String> {
        let entry = self.before.get(index)?;
        let file = entry.file();
        let place = &entry.place;
        let why = if is_gate {
            "it never judged users with a job, and would refuse them. It no longer judges exempt \
             users and root either"
        } else {
            "all that it jumps over is"
        };
        Some(format!(
            "note: {file} at {place} is commented out too: {why}"
        ))
    }
}

/// The stack after a change.
struct Change {
    /// The indices of the lines that went.
    lines: Vec<usize>,
    after: Vec<Entry>,
    /// For each line of `after` its number in a count of the lines of both stacks ([`position_of`]): odd for a line
    /// of the old stack, even for ours.
    positions: Vec<usize>,
}

impl Change {
    /// Finds for each jump of the line with this index in the old stack the positions of the lines that it skips in
    /// the new one. Jumps past the end of the stack are left out, as in [`skipped_lines`]. `None` if the line went.
    fn jumps_of(&self, index: usize) -> Option<Vec<Vec<usize>>> {
        let at = self
            .positions
            .iter()
            .position(|own| *own == position_of(index))?;
        let mut jumps = Vec::new();
        for last in jump_targets(&self.after, at).into_iter().flatten() {
            jumps.push(
                self.positions
                    .get(at + 1..=last)
                    .unwrap_or_default()
                    .to_vec(),
            );
        }
        Some(jumps)
    }

    /// Finds for each jump, which is the list of the old lines that it skips, the positions of those that stay.
    fn positions_of_kept(&self, jumps: &[Vec<usize>]) -> Vec<Vec<usize>> {
        let mut positions = Vec::new();
        for skipped in jumps {
            let kept = skipped.iter().filter(|line| !self.lines.contains(line));
            positions.push(kept.map(|line| position_of(*line)).collect());
        }
        positions
    }
}

/// Finds the line that refuses the login on this path and that only one side runs; `None` if there is no such line.
fn refusing_step(path: &[Step], side: Side) -> Option<&Step> {
    path.iter()
        .find(|step| step.alone == Some(side) && step.refuses)
}

/// Finds the value of an argument of pam_slurm_adopt, which takes the last of several, with a name in any
/// case; `None` if the line lacks it.
fn last_value<'a>(entry: &'a Entry, key: &str) -> Option<&'a str> {
    let mut pairs = entry
        .arguments
        .iter()
        .rev()
        .filter_map(|word| word.split_once('='));
    pairs
        .find(|(name, _)| name.eq_ignore_ascii_case(key))
        .map(|(_, value)| value)
}

/// Refuses a stack in which a line jumps over one of pam_slurm_adopt.so: once that is gone, the jump would skip another
/// line.
///
/// # Errors
///
/// [`Refusal`], which names the line that jumps.
pub(super) fn require_no_jump_over_slurm(stack: &[Entry]) -> Result<(), Refusal> {
    for (index, entry) in stack.iter().enumerate() {
        for line in skipped_lines(stack, index).concat() {
            if stack
                .get(line)
                .is_some_and(|skipped| skipped.file() == SLURM_MODULE)
            {
                return Err(refuse_jump(Some(entry)));
            }
        }
    }
    Ok(())
}

/// Finds for each jump of a line the indices of the lines that it skips. Jumps past the end of the stack are left out:
/// they skip no lines, since libpam refuses the login at them.
fn skipped_lines(stack: &[Entry], index: usize) -> Vec<Vec<usize>> {
    let targets = jump_targets(stack, index);
    targets
        .into_iter()
        .flatten()
        .map(|last| (index + 1..=last).collect())
        .collect()
}

/// Refuses a jump that can neither stay nor be commented out.
fn refuse_jump(line: Option<&Entry>) -> Refusal {
    let name = line
        .map(|entry| format!("{} at {}", entry.file(), entry.place))
        .unwrap_or_default();
    Refusal::from(format!(
        "{name} jumps over {SLURM_MODULE} and over lines that stay, and without {SLURM_MODULE} would \
         jump over others. By hand: give these lines controls that need no jump, and run this \
         again"
    ))
}

/// The position of the line with this index in the old stack, by which lines of both stacks are compared: an
/// odd number. Our line has the even number before the line that follows it.
fn position_of(index: usize) -> usize {
    2 * index + 1
}

/// The index in the old stack of the line with this position; for our line that of the line that follows it.
fn index_of(position: usize) -> usize {
    position / 2
}

/// Finds the position ([`position_of`]) of each line of the new stack, given the number of lines in the old one, which
/// has none of ours, and the indices of those that are gone. All lines but ours are taken for the remaining old ones in
/// their order: they are counted, not compared. It fails with [`Refusal`] if there are more or fewer of them.
fn positions_after(
    old_count: usize,
    gone: &[usize],
    after: &[Entry],
) -> Result<Vec<usize>, Refusal> {
    // The lines that must follow in `after`.
    let mut kept = (0..old_count)
        .filter(|index| !gone.contains(index))
        .peekable();
    let mut positions = Vec::new();
    for entry in after {
        if entry.is_our_module() {
            // Ours: the even number before the next line that stays, or past the end.
            positions.push(2 * kept.peek().copied().unwrap_or(old_count));
        } else {
            positions.push(position_of(
                kept.next().ok_or("has lines that came from nowhere")?,
            ));
        }
    }
    if kept.next().is_some() {
        return Err("would lose lines".into());
    }
    Ok(positions)
}
