//! The plan of a change: the arguments and places of our lines, and the lines that they replace.

use super::arguments;
use super::lines::{self, NewLine, decode, is_our_line};
use super::managed::{ManagedBlock, find_blocks};
use super::refusal::Refusal;
use super::replacement::{AccountChange, Replacement, SLURM_MODULE, require_no_jump_over_slurm};
use super::stack::{Stack, is_rival};
use command::error::Error;
use facts::pam_rejection::rejection_remedy;
use facts::rival_modules::module_name;
use helper::stack::{
    Entry, FileLine, Group, LogicalLine, Rejection, StackFinding, is_close_only, judge_stack_with,
    parse_lines, read_entries_with,
};
use module::Settings;

/// What to do about a line in another file than the service's own.
pub(super) const SHARED_REMEDY: &str = "take the line out there (pam-auth-update, or by hand)";

/// The planned text of a service's file.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) text: Vec<u8>,
    /// The arguments of our lines.
    pub(crate) settings: Settings,
    /// Notes for the admin.
    pub(crate) notes: Vec<String>,
}

/// The stack as it is without our lines.
#[derive(Debug)]
struct OldStack {
    /// The text of the service's own file.
    text: Vec<u8>,
    auth: Vec<Entry>,
    account: Vec<Entry>,
    session: Vec<Entry>,
    /// The blocks in the text.
    blocks: Vec<ManagedBlock>,
}

impl OldStack {
    /// Finds the lines of modules that decide about logins, as ours does.
    fn rivals(&self) -> Vec<&Entry> {
        self.account
            .iter()
            .chain(&self.session)
            .filter(|entry| is_rival(entry))
            .collect()
    }

    fn block_at(&self, line: usize) -> Option<&ManagedBlock> {
        self.blocks.iter().find(|block| block.contains(line))
    }

    fn block_around(&self, before: usize) -> Option<&ManagedBlock> {
        self.blocks.iter().find(|block| block.encloses(before))
    }

    /// The number of the first line at or above this one in front of which ours is in no block.
    fn outside_blocks(&self, before: usize) -> usize {
        self.block_around(before)
            .map_or(before, |block| block.first)
    }

    /// The places of account lines, by their indices.
    fn places_of(&self, lines: &[usize]) -> Vec<&FileLine> {
        lines
            .iter()
            .filter_map(|index| self.account.get(*index))
            .map(|entry| &entry.place)
            .collect()
    }

    /// Finds the lines in front of which our auth lines go, by their numbers: the first auth line, and the
    /// line below the last one, but none in a block. `None` if the service has no auth lines of its own.
    fn auth_places(&self) -> Option<[usize; 2]> {
        // Lines of `other`, which libpam takes in place of missing ones, have 0.
        if self.auth.iter().all(|entry| entry.top == 0) {
            return None;
        }
        let mut lines = parse_lines(&decode(&self.text))?;
        // A line that includes a file for auth counts even if that has no auth lines yet: it may get some later.
        lines.retain(|line| {
            is_in_group(line, Group::Auth) || self.auth.iter().any(|entry| entry.top == line.number)
        });
        let above = lines.first()?.number;
        let below = lines.last()?.last + 1;
        let below_block = self
            .block_around(below)
            .map_or(below, |block| block.last + 1);
        Some([self.outside_blocks(above), below_block])
    }
}

/// Our lines, and the lines of the old stack in front of which they go.
#[derive(Debug)]
struct OurLines {
    words: Vec<String>,
    /// The same in the form of a PAM line.
    arguments: String,
    settings: Settings,
    /// The places of our two auth lines ([`OldStack::auth_places`]). `None`: there are no such lines, which only
    /// logins to jobs with private files need.
    before_auth: Option<[usize; 2]>,
    /// The place of our account line; [`usize::MAX`] for the end of the file.
    before_account: usize,
}

impl OurLines {
    fn line_of(&self, group: &str) -> String {
        let line = format!(
            "{group}    required     pam_job_adopt.so {}",
            self.arguments
        );
        line.trim_end().to_owned()
    }
}

/// The lines that ours replace, and what the admin should know about them.
struct Replaced<'a> {
    /// All are in the service's own file.
    places: Vec<&'a FileLine>,
    notes: Vec<String>,
}

impl Stack<'_> {
    /// Plans the text with our lines at their places: account before the first line that may end the stack
    /// or that includes another file, session below all other lines, and auth around all others. The auth
    /// lines are left out, with a note, if they would not be enough. `arguments` are the admin's, if any are given.
    ///
    /// # Errors
    ///
    /// [`Error::Failed`], which names the line or argument that prevents it.
    pub(crate) fn with_our_lines(&self, arguments: Option<&str>) -> Result<Plan, Error> {
        let old = self.read_old_stack()?;
        let mut ours = self.plan_our_lines(&old, arguments)?;
        let Replaced { places, mut notes } = self.find_replaced(&old, &ours, arguments)?;
        self.require_outside_blocks(&old, &places)?;
        let mut text = self.assemble(&old, &ours, &places);
        if let Some(fault) = self.find_auth_fault(&ours, &text) {
            notes.push(fault);
            ours.before_auth = None;
            text = self.assemble(&old, &ours, &places);
        }
        self.require_effective(&text)?;
        Ok(Plan {
            text,
            settings: ours.settings,
            notes,
        })
    }

    /// Reads the stack without our lines. If a module that ours replaced is gone, all that was commented
    /// out with it stays so: the other lines alone would judge users whom they never judged. It fails with
    /// [`Error::Failed`] if the service lacks account or session lines, or has a line of ours in an included file.
    fn read_old_stack(&self) -> Result<OldStack, Error> {
        let text = self.without_our_lines()?.text;
        let auth = self.read_entries(Group::Auth, &text)?;
        let account = self.read_entries(Group::Account, &text)?;
        let session = self.read_entries(Group::Session, &text)?;
        for (group, entries) in [("account", &account), ("session", &session)] {
            // The service has no line of its own.
            if entries.iter().all(|entry| entry.top == 0) {
                return Err(self.refusal(format!(
                    "has no {group} line, so libpam takes those of \"other\"; ours would replace them"
                )));
            }
        }
        for entries in [&auth, &account, &session] {
            if let Some(entry) = entries.iter().find(|entry| entry.is_our_module()) {
                let place = &entry.place;
                return Err(self.refusal(format!(
                    "a line of pam_job_adopt.so is at {place} already; {SHARED_REMEDY}"
                )));
            }
        }
        let blocks = find_blocks(&decode(&text));
        Ok(OldStack {
            text,
            auth,
            account,
            session,
            blocks,
        })
    }

    /// Chooses the arguments and places of our lines; `given` are the admin's arguments, or `None` if the admin gave
    /// none. It fails with [`Error::Failed`] if the old lines differ in their arguments, if our module does not take
    /// them, or if no PAM line can have them.
    fn plan_our_lines(&self, old: &OldStack, given: Option<&str>) -> Result<OurLines, Error> {
        let words = self
            .choose_words(old, given)
            .map_err(|why| self.refusal(why))?;
        let settings = Settings::parse(&words).map_err(|why| {
            self.refusal(format!(
                "{why} (--arguments NAME=VALUE replaces what is taken over)"
            ))
        })?;
        let arguments = arguments::join(&words).map_err(|why| self.refusal(why))?;
        // The first account line that may spare users our line, or that is in another file and may do so later.
        let first_end = old
            .account
            .iter()
            .find(|entry| {
                // Our line observes logins that a rival refuses, too.
                self.is_elsewhere(&entry.place)
                    || !entry.is_pass_through()
                    || settings.observe && is_rival(entry)
            })
            .map_or(usize::MAX, |entry| entry.top);
        let before_account = old.outside_blocks(first_end);
        // Only a login that joins the namespaces of its job needs auth lines.
        let before_auth = if settings.join_container {
            old.auth_places()
        } else {
            None
        };
        Ok(OurLines {
            words,
            arguments,
            settings,
            before_auth,
            before_account,
        })
    }

    /// Chooses the arguments of our lines: without given ones those that our line has already. Otherwise, or
    /// if there is no such line, they are those of the lines that ours replace, with the given ones in place
    /// of those of the same name. Another service than sshd is named in any case.
    fn choose_words(&self, old: &OldStack, given: Option<&str>) -> Result<Vec<String>, Refusal> {
        let current = if given.is_none() {
            self.find_our_words()
        } else {
            None
        };
        let mut words = match current {
            Some(words) => words,
            None => {
                let mut slurm = old.rivals();
                slurm.retain(|entry| entry.file() == SLURM_MODULE);
                arguments::merge(&slurm, &arguments::split(given.unwrap_or_default())?)?
            }
        };
        // By default the module ignores any service but sshd.
        let is_named = words.iter().any(|word| arguments::name(word) == "service");
        if self.service != "sshd" && !is_named {
            words.push(format!("service={}", self.service));
        }
        Ok(words)
    }

    /// Finds the lines that ours replace, and what the admin should know about them. If ours only observes,
    /// no line goes, and each line of a rival gets a note. It fails with [`Error::Failed`] if the line of a rival cannot be
    /// commented out, or if without it the stack would judge users otherwise than before.
    fn find_replaced<'s>(
        &self,
        old: &'s OldStack,
        ours: &OurLines,
        given: Option<&str>,
    ) -> Result<Replaced<'s>, Error> {
        let rivals = old.rivals();
        if ours.settings.observe {
            let notes = rivals
                .iter()
                .map(|rival| describe_other_judge(rival))
                .collect();
            return Ok(Replaced {
                places: Vec::new(),
                notes,
            });
        }
        self.require_replaceable(&rivals, old)?;
        // In the account stack `compare` judges jumps. Nothing compares the session stack, so a jump over a replaced line
        // there is refused outright.
        require_no_jump_over_slurm(&old.session).map_err(|why| self.refusal(why))?;
        let mut places: Vec<&FileLine> = rivals.iter().map(|rival| &rival.place).collect();
        let mut notes = Vec::new();
        // In the account stack other lines may have to go too.
        if let Some(slurm) = old
            .account
            .iter()
            .find(|entry| entry.file() == SLURM_MODULE)
        {
            let replacement = self
                .compare(old, ours, slurm, given)
                .map_err(|why| self.refusal(why))?;
            places.extend(old.places_of(&replacement.lines));
            notes.extend(replacement.notes);
        }
        if rivals.iter().any(|rival| rival.file() == SLURM_MODULE) {
            notes.push(DEFAULTS_NOTE.to_owned());
        }
        Ok(Replaced { places, notes })
    }

    /// Finds the arguments of our account or session line in the file. `None` if there is none but lines that do
    /// nothing, as earlier versions wrote them ([`is_close_only`]).
    fn find_our_words(&self) -> Option<Vec<String>> {
        let lines = parse_lines(&decode(&self.text))?;
        let ours = lines.iter().find(|line| {
            is_our_line(line) && !is_in_group(line, Group::Auth) && !is_close_only(&line.words)
        })?;
        Some(ours.words.get(3..).unwrap_or_default().to_vec())
    }

    /// Checks that each line of a rival is one of pam_slurm_adopt, whose arguments ours takes over, and is in the
    /// service's own file, where it can be commented out. It fails with [`Error::Failed`], which says what to do about
    /// another one.
    fn require_replaceable(&self, rivals: &[&Entry], old: &OldStack) -> Result<(), Error> {
        let lines = parse_lines(&decode(&old.text)).unwrap_or_default();
        for entry in rivals {
            let file = module_name(entry);
            let place = &entry.place;
            if file != SLURM_MODULE {
                let by = if self.is_elsewhere(place) {
                    " (pam-auth-update, or by hand)"
                } else {
                    ""
                };
                return Err(self.refusal(format!(
                    "{file} at {place} decides about logins as well: take that line out first{by}, \
                     or try ours beside it by --arguments observe"
                )));
            }
            let is_line_of_file = lines.iter().any(|line| line.number == place.line);
            if self.is_elsewhere(place) || !is_line_of_file {
                return Err(self.refusal(format!(
                    "{file} is at {place}; {SHARED_REMEDY}, and give its arguments here"
                )));
            }
        }
        Ok(())
    }

    /// Compares whom the account stack admits before and after our line takes the place of pam_slurm_adopt's, of
    /// which `slurm` is the first, and finds the lines that have to go as well.
    fn compare(
        &self,
        old: &OldStack,
        ours: &OurLines,
        slurm: &Entry,
        given: Option<&str>,
    ) -> Result<Replacement, Refusal> {
        let change = AccountChange {
            before: &old.account,
            after: &|lines| {
                let text = self.assemble(old, ours, &old.places_of(lines));
                let file = Some((self.path.as_path(), text.as_slice()));
                Ok(read_entries_with(
                    self.root,
                    &self.service,
                    Group::Account,
                    file,
                )?)
            },
            is_own: &|entry| !self.is_elsewhere(&entry.place),
            settings: &ours.settings,
            service: &self.service,
            states_no_jobs: states_no_jobs(&ours.words, given),
            by_hand: by_hand(slurm, ours.before_account, &ours.arguments),
        };
        change.find_replaced()
    }

    /// Checks that no replaced line is in a block that another program would write again, and that no such block
    /// reaches to the end of the file, where our session line goes. The other lines of ours have places outside of
    /// blocks already ([`OldStack::outside_blocks`]).
    fn require_outside_blocks(&self, old: &OldStack, replaced: &[&FileLine]) -> Result<(), Error> {
        let path = self.path.display();
        for place in replaced {
            if let Some(block) = old.block_at(place.line) {
                return Err(self.refusal(format!(
                    "{place} is in the block that another program writes from {path}:{} on ({}) and \
                     would write again: have that program leave the line out, or take its block out, \
                     and give its arguments here",
                    block.first, block.title
                )));
            }
        }
        if let Some(block) = old.blocks.iter().find(|block| block.is_open) {
            return Err(self.refusal(format!(
                "another program writes all lines from {path}:{} on ({}), and our session line has \
                 to be the last: have that program write both lines, or end its block by a comment \
                 \"# END\"",
                block.first, block.title
            )));
        }
        Ok(())
    }

    /// Puts our lines into the old text, comments the replaced ones out, and returns the new text.
    fn assemble(&self, old: &OldStack, ours: &OurLines, replaced: &[&FileLine]) -> Vec<u8> {
        let mut new = vec![
            NewLine {
                before: ours.before_account,
                text: ours.line_of("account"),
            },
            NewLine {
                before: usize::MAX,
                text: ours.line_of("session"),
            },
        ];
        for before in ours.before_auth.into_iter().flatten() {
            new.push(NewLine {
                before,
                text: AUTH_LINE.to_owned(),
            });
        }
        // The number of a line in another file would be that of another line here.
        let numbers: Vec<usize> = replaced
            .iter()
            .filter(|place| !self.is_elsewhere(place))
            .map(|place| place.line)
            .collect();
        lines::edit(&old.text, &new, &numbers)
    }

    /// What to do about a line of this text that skips our last auth line. A file is taken in by `include` if one of its lines
    /// does so, but as a substack it would refuse a jump past its end.
    fn unskip_auth(&self, by: &FileLine, text: &[u8]) -> &'static str {
        let entries = self.read_entries(Group::Auth, text).unwrap_or_default();
        let can_jump = entries
            .iter()
            .any(|entry| entry.place == *by && entry.can_jump());
        if can_jump {
            ": lower the number of its jump, and run this again"
        } else if self.is_elsewhere(by) {
            ": write substack in place of include for the file of that line, and run this again"
        } else {
            ": move that line and those that it skips into a file of their own, which substack takes in, and run this again"
        }
    }

    /// Describes why our auth lines would not be enough in this text, and what to do about it; `None` if they
    /// are, and if no auth lines are planned.
    fn find_auth_fault(&self, ours: &OurLines, text: &[u8]) -> Option<String> {
        ours.before_auth?;
        let instead = Some((self.path.as_path(), text));
        let finding = judge_stack_with(self.root, &self.service, Group::Auth, instead);
        let remedy = match &finding {
            // If our module is missing, `write` refuses the text.
            StackFinding::Effective(_) | StackFinding::Rejected(_, Rejection::MissingModule(_)) => {
                return None;
            }
            StackFinding::Skipped { by, .. } => self.unskip_auth(by, text),
            _ => "",
        };
        let fault = finding.describe(Group::Auth);
        Some(format!(
            "no auth lines are written, without which logins to jobs with private files are refused: \
             {fault}{remedy}"
        ))
    }

    /// Checks that libpam cannot skip our lines in this text, and that no line undoes them.
    ///
    /// # Errors
    ///
    /// [`Error::Failed`], which names the line.
    pub(super) fn require_effective(&self, text: &[u8]) -> Result<(), Error> {
        for group in [Group::Account, Group::Session] {
            let instead = Some((self.path.as_path(), text));
            match judge_stack_with(self.root, &self.service, group, instead) {
                // If our module is missing, `write` refuses the text.
                StackFinding::Effective(_)
                | StackFinding::Rejected(_, Rejection::MissingModule(_)) => {}
                StackFinding::Rejected(place, why) => {
                    let remedy = rejection_remedy(&why);
                    return Err(self.refusal(format!("with our lines {place} {why}: {remedy}")));
                }
                other => {
                    let fault = other.describe(group);
                    return Err(self.refusal(format!("our lines would not be enough: {fault}")));
                }
            }
        }
        Ok(())
    }
}

fn is_in_group(line: &LogicalLine, group: Group) -> bool {
    let word = line
        .words
        .first()
        .map_or("", |word| word.strip_prefix('-').unwrap_or(word));
    word.eq_ignore_ascii_case(group.as_str())
}

/// Describes a line that decides while ours only observes.
fn describe_other_judge(rival: &Entry) -> String {
    format!(
        "{} at {} goes on to decide; ours only observes",
        module_name(rival),
        rival.place
    )
}

/// Our first and our last auth line. They need no arguments, since the session line decides what they do.
pub(super) const AUTH_LINE: &str = "auth       required     pam_job_adopt.so";

const DEFAULTS_NOTE: &str = "note: what pam_slurm_adopt.so leaves open unless told otherwise, ours refuses: \
                        action_adopt_failure and action_generic_failure are deny unless given";

/// Whether the admin decides about users without a job: by the arguments given now, or by those of our
/// line, which were given before.
fn states_no_jobs(current: &[String], given: Option<&str>) -> bool {
    // Arguments that cannot be split were refused before, with the reason.
    let given_words = given.map(|text| arguments::split(text).unwrap_or_default());
    let words = given_words.as_deref().unwrap_or(current);
    words
        .iter()
        .any(|word| arguments::name(word) == "action_no_jobs")
}

/// Describes what the admin can write by hand if a line below `slurm`, the old one, prevents the change. If ours
/// would go to the place of the old line, it can have a control like that one, which spares users with a job all
/// lines below it; if it would go elsewhere, that control would spare them other lines.
fn by_hand(slurm: &Entry, before_account: usize, arguments: &str) -> String {
    if before_account != slurm.top {
        return format!(
            "By hand: put that line above {SLURM_MODULE}, if it lets in users with a job, or take \
             it out of this service's stack; then run this again"
        );
    }
    let call = format!("pam_job_adopt.so {arguments}");
    let call = call.trim_end();
    format!(
        "By hand: in place of {} write \"account [success=done ignore=ignore default=die] {call}\", \
         with exempt_groups=NAMES for those whom the lines below it let in, and as the last line \
         \"session required {call}\"",
        slurm.place
    )
}
