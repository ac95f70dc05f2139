//! Modules of others that remember whom a trial asks about.

use crate::pam::Stack;
use command::error::Error;
use helper::stack::Group;

/// What a module does when it is asked.
type Memory = (Group, &'static str, &'static str);

const FORGETS_FAILURES: &str = "forgets failed attempts of those it lets in";
const RECORDS_LOGIN: &str = "records a login";

/// The modules that change what they remember in the phases that a trial runs.
const MEMORIES: [Memory; 6] = [
    (Group::Account, "pam_abl.so", FORGETS_FAILURES),
    (Group::Account, "pam_faillock.so", FORGETS_FAILURES),
    (Group::Account, "pam_tally.so", FORGETS_FAILURES),
    (Group::Account, "pam_tally2.so", FORGETS_FAILURES),
    (Group::Session, "pam_lastlog.so", RECORDS_LOGIN),
    (Group::Session, "pam_lastlog2.so", RECORDS_LOGIN),
];

/// Describes the modules of the stack that remember a trial's questions about these people. Ours has no memory, and
/// otherwise the new stack has only modules of the old one.
///
/// # Errors
///
/// [`Error::Failed`] for a stack that cannot be read.
pub(super) fn describe_memories(stack: &Stack<'_>, people: &[&str]) -> Result<Vec<String>, Error> {
    let mut texts = Vec::new();
    for group in [Group::Account, Group::Session] {
        for entry in stack.read_entries(group, &stack.text)? {
            let file = entry.file();
            let memory = MEMORIES
                .iter()
                .find(|(in_group, module, _)| *in_group == group && *module == file);
            if let Some((_, _, effect)) = memory {
                texts.push(format!(
                    "{file} at {}: takes the question about {} for a login, and {effect}",
                    entry.place,
                    people.join(", ")
                ));
            }
        }
    }
    Ok(texts)
}
