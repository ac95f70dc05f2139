//! What users read. Line 1: what and why; line 2: what to do. 80 columns, ASCII, the node's name,
//! their own job ids, no paths and no errno. Launchers look for the code in brackets.

use kernel::sys::clock::{local_time, now};
use protocol::{JobId, Plan, Reason, Refusal, Reply, Request};

/// The facts that a refusal's text may name.
#[derive(Clone, Copy, Debug)]
pub(super) struct Words<'a> {
    pub(super) login: &'a Request,
    pub(super) refusal: &'a Refusal,
    /// The scheduler's own command for "my jobs", and the site's text.
    pub(super) reply: Option<&'a Reply>,
    /// Milliseconds that the look-up has taken.
    pub(super) waited: u128,
}

impl Words<'_> {
    fn node(&self) -> String {
        ascii(&self.login.node)
    }

    /// What a help desk wants to know.
    fn report(&self, lead: &str) -> String {
        format!("{lead} report: {} {}", self.node(), clock(now()))
    }
}

/// Most characters of a line.
const COLUMNS: usize = 80;

/// The text of a refusal, without a final newline.
pub(super) fn refusal_text(words: &Words<'_>) -> String {
    let [first, second] = lines(words);
    let mut text = format!("{}: {first}\n{second} [{}]", words.node(), words.refusal.reason);
    let message = words.reply.map_or("", |reply| reply.message.trim());
    if !message.is_empty() {
        text.push('\n');
        text.extend(message.chars().map(|c| if c == '\n' { c } else { ascii_char(c) }));
    }
    text
}

/// What an interactive login reads once it is in its job.
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

fn lines(words: &Words<'_>) -> [String; 2] {
    let job = words.refusal.jobs.first().map_or("job".into(), |job| format!("job {job}"));
    let report = || words.report("Not your fault. Please");
    let own = |sentence: &str| sentence.to_owned();
    match words.refusal.reason {
        Reason::NoJob | Reason::Admitted => {
            let user = ascii(&words.login.user);
            [
                format!("login refused: you ({user}) have no running job on this node."),
                your_jobs(words, "Your jobs:", "Log in while a job of yours is running here."),
            ]
        }
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
        Reason::Timeout => {
            let seconds = (words.waited + 500).max(1000) / 1000;
            [
                format!("the job look-up did not answer in {seconds} s. Try again in a minute."),
                words.report("If it persists,"),
            ]
        }
        Reason::Configuration => {
            [own("this node is not set up correctly, so logins are refused."), report()]
        }
        Reason::DeviceUnknown => [
            format!("{job} asks for {}, which this node does not have.", device(words)),
            words.report("Login refused. Please"),
        ],
        Reason::NoScheduler => {
            [own("no job service runs on this node, so only operators may log in."), report()]
        }
    }
}

fn your_jobs(words: &Words<'_>, lead: &str, without_hint: &str) -> String {
    match ascii(words.reply.map_or("", |reply| reply.hint.trim())) {
        hint if hint.is_empty() => without_hint.to_owned(),
        hint => format!("{lead} {hint}  "),
    }
}

/// As many of the jobs as the line has room for.
fn several(words: &Words<'_>) -> String {
    let jobs = &words.refusal.jobs;
    let count = jobs.len();
    let sentence = |named: usize| {
        let mut names: Vec<&str> = jobs.iter().take(named).map(JobId::as_str).collect();
        if named < count {
            names.push("...");
        }
        format!("login refused: you have {count} jobs here ({}).", names.join(", "))
    };
    let room = COLUMNS.saturating_sub(words.node().len() + ": ".len());
    let fits = (1..=count).rev().map(sentence).find(|line| line.len() <= room);
    fits.unwrap_or_else(|| format!("login refused: you have {count} jobs here."))
}

/// How to choose, by an example where there is room for one.
fn choose(words: &Words<'_>) -> String {
    let line = |job: &str| format!("From inside one of them, choose: job-adopt use {job}  ");
    let room = COLUMNS - " [JA05]".len();
    let example = words.refusal.jobs.first().map(|job| line(job.as_str()));
    example.filter(|line| line.len() <= room).unwrap_or_else(|| line("JOB"))
}

fn device(words: &Words<'_>) -> String {
    let name: String = ascii(&words.refusal.device).chars().take(40).collect();
    if name.is_empty() { "a device".into() } else { name }
}

fn ended(words: &Words<'_>) -> String {
    let time = words.refusal.ended.and_then(local_time);
    time.map_or_else(|| "is ending".into(), |time| format!("ended at {}", hour_and_minute(time)))
}

fn hour_and_minute(time: libc::tm) -> String {
    format!("{:02}:{:02}", time.tm_hour, time.tm_min)
}

fn clock(epoch: i64) -> String {
    let text = |time: libc::tm| format!("{}:{:02}", hour_and_minute(time), time.tm_sec);
    local_time(epoch).map(text).unwrap_or_default()
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
    use protocol::{Stack, Verdict};

    /// The text of a refusal that names these jobs, with this hint and this message.
    fn text(reason: Reason, jobs: &[&str], message: &str) -> String {
        let jobs = jobs.iter().map(|job| job.parse().unwrap()).collect();
        let device = "nvidia.com/gpu=3".to_owned();
        said(&Refusal { reason, jobs, ended: Some(1_795_201_200), device }, "gpu017", message)
    }

    fn said(refusal: &Refusal, node: &str, message: &str) -> String {
        let login = Request { user: "alice".into(), node: node.into(), ..Request::default() };
        let reply = Reply {
            stack: Stack::Effective,
            detail: String::new(),
            hint: "squeue --me".into(),
            message: message.into(),
            warnings: Vec::new(),
            verdict: Verdict::NotEnforced,
        };
        refusal_text(&Words { login: &login, refusal, reply: Some(&reply), waited: 5100 })
    }

    const JOBS: [&str; 2] = ["4242", "4250"];

    #[test]
    fn every_text_has_two_short_ascii_lines_and_its_code() {
        for reason in Reason::ALL {
            let text = text(reason, &JOBS, "");
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
            text(Reason::NoJob, &JOBS, ""),
            "gpu017: login refused: you (alice) have no running job on this node.\n\
             Your jobs: squeue --me   [JA01]"
        );
    }

    #[test]
    fn a_job_has_ended_at_some_time_or_is_ending() {
        let line = |ended| {
            let jobs = vec!["4242".parse().unwrap()];
            let refusal = Refusal { reason: Reason::Ended, jobs, ended, device: String::new() };
            let text = said(&refusal, "gpu017", "");
            text.lines().next().map(|line| line.replace(|one: char| one.is_ascii_digit(), "0"))
        };
        let begin = "gpu000: login refused: your job 0000 here";
        assert_eq!(line(Some(1_795_201_200)), Some(format!("{begin} ended at 00:00.")));
        assert_eq!(line(None), Some(format!("{begin} is ending.")));
    }

    #[test]
    fn the_text_for_several_jobs_names_those_that_it_has_room_for() {
        assert_eq!(
            text(Reason::ChoiceNeeded, &JOBS, ""),
            "gpu017: login refused: you have 2 jobs here (4242, 4250).\n\
             From inside one of them, choose: job-adopt use 4242   [JA05]"
        );
        for (count, length) in [(2, 64), (3, 24), (5, 25), (9, 7), (256, 4), (256, 64)] {
            let jobs: Vec<String> = (0..count).map(|number| format!("{number:0length$}")).collect();
            let jobs: Vec<&str> = jobs.iter().map(String::as_str).collect();
            let text = text(Reason::ChoiceNeeded, &jobs, "");
            assert!(text.lines().all(|line| line.len() <= 80), "{text}");
            assert!(text.contains(&format!("you have {count} jobs here")), "{text}");
            assert!(length > 40 || text.contains(&format!("({}", jobs[0])), "{text}");
        }
        let jobs = JOBS.map(|job| job.parse().unwrap()).into();
        let device = String::new();
        let refusal = Refusal { reason: Reason::ChoiceNeeded, jobs, ended: None, device };
        let tight = said(&refusal, &"n".repeat(64), "");
        assert!(tight.lines().next().unwrap().ends_with("you have 2 jobs here."), "{tight}");
    }

    #[test]
    fn the_sites_text_follows_without_control_characters() {
        let text = text(Reason::NoJob, &JOBS, "Help:\u{1b}[2J\nhttps://x\n");
        assert!(text.ends_with("[JA01]\nHelp:?[2J\nhttps://x"), "{text:?}");
    }
}
