//! What users read. Line 1: what and why; line 2: what to do. 80 columns, ASCII, the node's name,
//! their own job ids, no paths and no errno. Launchers look for the code in brackets.

use crate::kernel::sys::clock::local_time;
use crate::protocol::{JobId, Plan, Reason};

/// The facts that a refusal's text may name.
#[derive(Clone, Debug, Default)]
pub(super) struct Words {
    /// Name of the node.
    pub(super) node: String,
    /// Name of the user.
    pub(super) user: String,
    /// The user's own jobs.
    pub(super) jobs: Vec<JobId>,
    /// When the job ended, in seconds since the epoch.
    pub(super) ended: Option<i64>,
    /// A device that the job asks for.
    pub(super) device: String,
    /// The scheduler's own command for "my jobs".
    pub(super) hint: String,
    /// The site's text.
    pub(super) message: String,
    /// Milliseconds that the look-up has taken.
    pub(super) waited: u128,
    /// Now, in seconds since the epoch.
    pub(super) now: i64,
}

/// Most characters of a line.
const COLUMNS: usize = 80;

/// The text of a refusal, without a final newline.
#[must_use]
pub(super) fn refusal_text(reason: Reason, words: &Words) -> String {
    let [first, second] = lines(reason, words);
    let node = ascii(&words.node);
    let mut text = format!("{node}: {first}\n{second} [{reason}]");
    let message = words.message.trim();
    if !message.is_empty() {
        text.push('\n');
        text.extend(message.chars().map(|c| if c == '\n' { c } else { ascii_char(c) }));
    }
    text
}

/// What an interactive login reads once it is in its job.
#[must_use]
pub(super) fn success_text(plan: &Plan, gpus: u32, node: &str) -> String {
    let mut about = Vec::new();
    if gpus > 0 {
        about.push(format!("GPUs {gpus}"));
    }
    if let Some(ends) = plan.ends.and_then(local_time) {
        about.push(format!("ends {}", hour_and_minute(ends)));
    }
    let about = if about.is_empty() { String::new() } else { format!(": {}", about.join(", ")) };
    let node = ascii(node);
    format!("Joined job {} on {node}{about}. This login ends with the job.", plan.job)
}

fn lines(reason: Reason, words: &Words) -> [String; 2] {
    let job = words.jobs.first().map(|job| format!("job {job}")).unwrap_or("job".into());
    let report =
        || format!("Not your fault. Please report: {} {}", ascii(&words.node), clock(words.now));
    let own = |sentence: &str| sentence.to_owned();
    match reason {
        Reason::NoJob | Reason::Admitted => [
            format!(
                "login refused: you ({}) have no running job on this node.",
                ascii(&words.user)
            ),
            your_jobs(words, "Your jobs:", "Log in while a job of yours is running here."),
        ],
        Reason::Starting => {
            [format!("your {job} is still starting here."), own("Try again in a few seconds.")]
        }
        Reason::Ended => [
            format!("login refused: your {job} here {}.", ended(words)),
            your_jobs(words, "Start a new job, or see:", "Start a new job."),
        ],
        Reason::Suspended => [
            format!("your {job} is suspended; a login would freeze with it."),
            own("Try again when it has been resumed."),
        ],
        Reason::ChoiceNeeded => [several(words), choose(words)],
        Reason::CannotConfine => {
            [own("login refused: this node cannot confine it to your job's devices."), report()]
        }
        Reason::AdoptionFailed => {
            [format!("your login could not join {job} and was refused."), report()]
        }
        Reason::Timeout => [
            format!(
                "the job look-up did not answer in {} s. Try again in a minute.",
                (words.waited + 500).max(1000) / 1000
            ),
            format!("If it persists, report: {} {}", ascii(&words.node), clock(words.now)),
        ],
        Reason::Configuration => {
            [own("this node is not set up correctly, so logins are refused."), report()]
        }
        Reason::DeviceUnknown => [
            format!("{job} asks for {}, which this node does not have.", device(words)),
            format!("Login refused. Please report: {} {}", ascii(&words.node), clock(words.now)),
        ],
        Reason::NoScheduler => {
            [own("no job service runs on this node, so only operators may log in."), report()]
        }
    }
}

fn your_jobs(words: &Words, lead: &str, without_hint: &str) -> String {
    match ascii(words.hint.trim()) {
        hint if hint.is_empty() => without_hint.to_owned(),
        hint => format!("{lead} {hint}  "),
    }
}

/// As many of the jobs as the line has room for.
fn several(words: &Words) -> String {
    let count = words.jobs.len();
    let sentence = |named: usize| {
        let mut names: Vec<&str> = words.jobs.iter().take(named).map(JobId::as_str).collect();
        if named < count {
            names.push("...");
        }
        format!("login refused: you have {count} jobs here ({}).", names.join(", "))
    };
    let room = COLUMNS.saturating_sub(ascii(&words.node).len() + ": ".len());
    let fits = (1..=count).rev().map(sentence).find(|line| line.len() <= room);
    fits.unwrap_or_else(|| format!("login refused: you have {count} jobs here."))
}

/// How to choose, by an example where there is room for one.
fn choose(words: &Words) -> String {
    let line = |job: &str| format!("From inside one of them, choose: job-adopt use {job}  ");
    let room = COLUMNS - " [JA05]".len();
    let example = words.jobs.first().map(|job| line(job.as_str()));
    example.filter(|line| line.len() <= room).unwrap_or_else(|| line("JOB"))
}

fn device(words: &Words) -> String {
    let name: String = ascii(&words.device).chars().take(40).collect();
    if name.is_empty() { "a device".into() } else { name }
}

fn ended(words: &Words) -> String {
    let time = words.ended.and_then(local_time);
    time.map_or_else(|| "is ending".into(), |time| format!("ended at {}", hour_and_minute(time)))
}

fn hour_and_minute(time: libc::tm) -> String {
    format!("{:02}:{:02}", time.tm_hour, time.tm_min)
}

fn clock(epoch: i64) -> String {
    match local_time(epoch) {
        Some(time) => format!("{}:{:02}", hour_and_minute(time), time.tm_sec),
        None => String::new(),
    }
}

fn ascii(text: &str) -> String {
    text.chars().map(ascii_char).collect()
}

fn ascii_char(character: char) -> char {
    if character.is_ascii_graphic() || character == ' ' { character } else { '?' }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words() -> Words {
        Words {
            node: "gpu017".into(),
            user: "alice".into(),
            jobs: vec!["4242".parse().unwrap(), "4250".parse().unwrap()],
            ended: Some(1_795_201_200),
            device: "nvidia.com/gpu=3".into(),
            hint: "squeue --me".into(),
            message: String::new(),
            waited: 5100,
            now: 1_795_201_209,
        }
    }

    #[test]
    fn every_text_has_two_short_ascii_lines_and_its_code() {
        for reason in Reason::ALL {
            let text = refusal_text(reason, &words());
            let lines: Vec<&str> = text.lines().collect();
            assert_eq!(lines.len(), 2, "{text}");
            assert!(lines.iter().all(|line| line.len() <= 80 && line.is_ascii()), "{text}");
            assert!(lines[0].starts_with("gpu017: "), "{text}");
            assert!(lines[1].ends_with(&format!(" [{reason}]")), "{text}");
        }
    }

    #[test]
    fn the_text_for_no_job() {
        assert_eq!(
            refusal_text(Reason::NoJob, &words()),
            "gpu017: login refused: you (alice) have no running job on this node.\n\
             Your jobs: squeue --me   [JA01]"
        );
    }

    #[test]
    fn a_job_has_ended_at_some_time_or_is_ending() {
        let line = |words: &Words| {
            let text = refusal_text(Reason::Ended, words);
            text.lines().next().map(|line| line.replace(|one: char| one.is_ascii_digit(), "0"))
        };
        let begin = "gpu000: login refused: your job 0000 here";
        assert_eq!(line(&words()), Some(format!("{begin} ended at 00:00.")));
        let words = Words { ended: None, ..words() };
        assert_eq!(line(&words), Some(format!("{begin} is ending.")));
    }

    #[test]
    fn the_text_for_several_jobs_names_those_that_it_has_room_for() {
        assert_eq!(
            refusal_text(Reason::ChoiceNeeded, &words()),
            "gpu017: login refused: you have 2 jobs here (4242, 4250).\n\
             From inside one of them, choose: job-adopt use 4242   [JA05]"
        );
        for (count, length) in [(2, 64), (3, 24), (5, 25), (9, 7), (256, 4), (256, 64)] {
            let id = |number| format!("{number:0length$}").parse().unwrap();
            let words = Words { jobs: (0..count).map(id).collect(), ..words() };
            let text = refusal_text(Reason::ChoiceNeeded, &words);
            assert!(text.lines().all(|line| line.len() <= 80), "{text}");
            assert!(text.contains(&format!("you have {count} jobs here")), "{text}");
            assert!(length > 40 || text.contains(&format!("({}", id(0))), "{text}");
        }
        let tight = Words { node: "n".repeat(64), ..words() };
        let text = refusal_text(Reason::ChoiceNeeded, &tight);
        assert!(text.lines().next().unwrap().ends_with("you have 2 jobs here."), "{text}");
    }

    #[test]
    fn the_sites_text_follows_without_control_characters() {
        let words = Words { message: "Help:\u{1b}[2J\nhttps://x\n".into(), ..words() };
        let text = refusal_text(Reason::NoJob, &words);
        assert!(text.ends_with("[JA01]\nHelp:?[2J\nhttps://x"), "{text:?}");
    }
}
