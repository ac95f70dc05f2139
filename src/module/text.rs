//! Writes the texts for users, with the node's name and the user's own job ids, and without paths and error numbers.
//! A refusal has two lines of at most 80 ASCII characters: the event and its cause, then the remedy. Launchers look
//! for the code in brackets.

use kernel::sys::clock::{local_time, now};
use protocol::{ChoiceRule, JobId, Plan, Reason, Refusal, Request};

/// The texts of a reply: see [`protocol::Reply`].
#[derive(Clone, Debug, Default)]
pub(super) struct ReplyTexts {
    pub(super) auth_fault: String,
    /// The scheduler's command for the user.
    pub(super) hint: String,
    /// The site's text.
    pub(super) message: String,
    pub(super) warnings: Vec<String>,
}

/// The facts that a refusal's text may contain.
#[derive(Clone, Copy, Debug)]
pub(super) struct RefusalFacts<'a> {
    pub(super) login: &'a Request,
    pub(super) refusal: &'a Refusal,
    /// The texts of the helper's reply.
    pub(super) reply: Option<&'a ReplyTexts>,
    /// Milliseconds since the start of the phase.
    pub(super) elapsed_ms: u128,
    /// True if module and helper are of different versions.
    pub(super) is_upgrade: bool,
}

impl RefusalFacts<'_> {
    /// The node's name in ASCII.
    fn node(&self) -> String {
        to_ascii(&self.login.node)
    }

    /// Returns the line for the help desk.
    fn report_line(&self, lead: &str) -> String {
        format!("{lead} report: {} {}", self.node(), format_time(now()))
    }
}

/// Maximum characters of a line.
const LINE_CHARACTERS_MAX: usize = 80;
/// Maximum characters of the second line before its code.
const REMEDY_CHARACTERS_MAX: usize = LINE_CHARACTERS_MAX - " [JA05]".len();
/// The names of the months, which need no locale.
const MONTHS: [&str; 12] = [
    "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
];
/// Maximum characters of a device's name.
const DEVICE_CHARACTERS_MAX: usize = 40;

/// Returns the text of a refusal, without a final newline.
pub(super) fn refusal_text(facts: &RefusalFacts<'_>) -> String {
    let [first, second] = refusal_lines(facts);
    let mut text = format!(
        "{}: {first}\n{second} [{}]",
        facts.node(),
        facts.refusal.reason
    );
    let message = facts.reply.map_or("", |reply| reply.message.trim());
    if !message.is_empty() {
        text.push('\n');
        text.extend(
            message
                .chars()
                .map(|c| if c == '\n' { c } else { to_ascii_char(c) }),
        );
    }
    text
}

/// Returns the text for an interactive login that has joined its job. `gpus` is `None` if their number is
/// not known.
pub(super) fn success_text(plan: &Plan, gpus: Option<u32>, node: &str) -> String {
    let mut facts = Vec::new();
    match gpus {
        Some(0) => facts.push("no GPUs".to_owned()),
        Some(1) => facts.push("1 GPU".to_owned()),
        Some(count) => facts.push(format!("{count} GPUs")),
        None => {}
    }
    if let Some(ends) = plan.ends.and_then(local_time) {
        facts.push(format!("ends {}", date_and_time(ends, local_time(now()))));
    }
    let facts = if facts.is_empty() {
        String::new()
    } else {
        format!(": {}", facts.join(", "))
    };
    let node = to_ascii(node);
    let why = if plan.rule == ChoiceRule::Newest {
        ", your newest here"
    } else {
        ""
    };
    format!(
        "Joined job {} on {node}{why}{facts}. This login ends with the job.",
        plan.job
    )
}

/// Returns the two lines of a refusal, without node and code.
fn refusal_lines(facts: &RefusalFacts<'_>) -> [String; 2] {
    let job = facts
        .refusal
        .jobs
        .first()
        .map_or("job".into(), |job| format!("job {job}"));
    let report_fault = || facts.report_line("Not your fault. Please");
    match facts.refusal.reason {
        // No refusal has the code of an admission.
        Reason::NoJob | Reason::Admitted => {
            let user = to_ascii(&facts.login.user);
            [
                format!("login refused: you ({user}) have no running job on this node."),
                own_jobs_line(facts),
            ]
        }
        Reason::Starting => [
            format!("login refused: your {job} is still starting here."),
            "Try again in a few seconds.".to_owned(),
        ],
        Reason::Ended => [
            format!("login refused: your {job} here {}.", end_phrase(facts)),
            hint_line(
                facts,
                "Start a new job. Your other jobs:",
                "Start a new job.",
            ),
        ],
        Reason::Suspended => [
            format!("login refused: your {job} is suspended here."),
            "Its scheduler or your site may have paused it. Try again when it runs.".to_owned(),
        ],
        // The other jobs take logins, but none from inside of this one.
        Reason::LoginsClosed if facts.refusal.jobs.len() > 1 => [
            format!("login refused: your ssh runs in {job}, which takes no logins."),
            "To join another job of yours here, type ssh on a login node.".to_owned(),
        ],
        Reason::LoginsClosed => [
            format!("login refused: your {job} here takes no logins."),
            hint_line(
                facts,
                "Work in it by:",
                "Work in it through its scheduler, or ask your site.",
            ),
        ],
        Reason::ChoiceNeeded => [several_jobs_line(facts), choice_line(facts)],
        Reason::CannotConfine => [
            "login refused: this node cannot limit it to your job's devices.".to_owned(),
            report_fault(),
        ],
        // Some of its causes are the user's, such as a wrong password before the key: another try may help.
        Reason::AdoptionFailed => [
            format!("your login could not join {job} and was refused."),
            facts.report_line("Try again. If it persists,"),
        ],
        Reason::Timeout => {
            let seconds = (facts.elapsed_ms + 500).max(1000) / 1000;
            let cause = if facts.is_upgrade {
                "the software for logins is being upgraded.".to_owned()
            } else {
                format!("finding or joining your job took longer than {seconds} s.")
            };
            let report = facts.report_line("Try again in a minute. If it persists,");
            [format!("login refused: {cause}"), report]
        }
        Reason::Configuration => [
            "this node is not set up correctly, so logins are refused.".to_owned(),
            report_fault(),
        ],
        Reason::DeviceUnknown => [
            format!(
                "login refused: {} of your {job} is not usable here.",
                device_name(facts)
            ),
            report_fault(),
        ],
        Reason::NoScheduler => [
            "login refused: no scheduler with jobs was found on this node.".to_owned(),
            facts.report_line("With a job here, or on a login node, please"),
        ],
    }
}

/// Returns the line with the scheduler's command; `without_hint` if there is none.
fn hint_line(facts: &RefusalFacts<'_>, lead: &str, without_hint: &str) -> String {
    match to_ascii(facts.reply.map_or("", |reply| reply.hint.trim())) {
        hint if hint.is_empty() => without_hint.to_owned(),
        // The blanks set the command apart from the code behind it.
        hint => format!("{lead} {hint}  "),
    }
}

/// Returns the line with the command that lists the user's jobs, and whom to tell if it contradicts the refusal.
fn own_jobs_line(facts: &RefusalFacts<'_>) -> String {
    let without_hint = "Log in while a job of yours is running here.";
    let line = hint_line(facts, "Your jobs:", without_hint);
    let with_advice = format!("{line} If it shows one running here, tell your site.");
    if line == without_hint || with_advice.len() > REMEDY_CHARACTERS_MAX {
        line
    } else {
        with_advice
    }
}

/// Returns the line about several jobs, with as many of their ids as fit.
fn several_jobs_line(facts: &RefusalFacts<'_>) -> String {
    let jobs = &facts.refusal.jobs;
    let count = jobs.len();
    let line = |ids_max: usize| {
        let mut ids: Vec<&str> = jobs.iter().take(ids_max).map(JobId::as_str).collect();
        if ids_max < count {
            ids.push("...");
        }
        format!(
            "login refused: you have {count} jobs here ({}).",
            ids.join(", ")
        )
    };
    let capacity = LINE_CHARACTERS_MAX.saturating_sub(facts.node().len() + ": ".len());
    let longest = (1..=count)
        .rev()
        .map(line)
        .find(|line| line.len() <= capacity);
    longest.unwrap_or_else(|| format!("login refused: you have {count} jobs here."))
}

/// Returns the line about how to choose a job: the scheduler's command for the first job, or else one
/// to type in a job, each if it fits.
fn choice_line(facts: &RefusalFacts<'_>) -> String {
    let inside = |job: &str| format!("In a shell or script of one of them: job-adopt use {job}  ");
    let Some(job) = facts.refusal.jobs.first() else {
        return inside("JOB");
    };
    // The lines with the command are empty without one, and passed over as those that are too long are.
    let lines = [
        hint_line(facts, &format!("Choose {job}:"), ""),
        hint_line(facts, "Choose one:", ""),
        inside(job.as_str()),
    ];
    let mut fitting = lines
        .into_iter()
        .filter(|line| (1..=REMEDY_CHARACTERS_MAX).contains(&line.len()));
    fitting.next().unwrap_or_else(|| inside("JOB"))
}

/// The name of the refusal's device in ASCII, shortened to fit the line; `a device` if the helper gave none.
fn device_name(facts: &RefusalFacts<'_>) -> String {
    let device = to_ascii(&facts.refusal.device);
    let name: String = device.chars().take(DEVICE_CHARACTERS_MAX).collect();
    if name.is_empty() {
        "a device".into()
    } else {
        name
    }
}

/// The words for a job that is over: `ended at HH:MM`, or `is ending` if the time is not known.
fn end_phrase(facts: &RefusalFacts<'_>) -> String {
    let time = facts.refusal.ended.and_then(local_time);
    time.map_or_else(
        || "is ending".into(),
        |time| format!("ended at {}", hour_and_minute(time)),
    )
}

fn hour_and_minute(time: libc::tm) -> String {
    format!("{:02}:{:02}", time.tm_hour, time.tm_min)
}

/// Returns a time of day, and before it the date unless that is the date of `today`.
fn date_and_time(time: libc::tm, today: Option<libc::tm>) -> String {
    let clock = hour_and_minute(time);
    if today.is_some_and(|day| (day.tm_year, day.tm_yday) == (time.tm_year, time.tm_yday)) {
        return clock;
    }
    let month = usize::try_from(time.tm_mon).ok();
    let name = month.and_then(|month| MONTHS.get(month)).unwrap_or(&"");
    format!("{} {name} {clock}", time.tm_mday)
}

/// Returns a time of day with seconds.
fn format_time(epoch: i64) -> String {
    let text = |time: libc::tm| format!("{}:{:02}", hour_and_minute(time), time.tm_sec);
    local_time(epoch).map(text).unwrap_or_default()
}

/// Returns the text with `?` for each character that is no printable ASCII.
fn to_ascii(text: &str) -> String {
    text.chars().map(to_ascii_char).collect()
}

/// Returns the character if it is printable ASCII, else `?`.
fn to_ascii_char(character: char) -> char {
    if character.is_ascii_graphic() || character == ' ' {
        character
    } else {
        '?'
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Failure;
    use protocol::LoginLimits;

    /// Returns the text of a refusal with these jobs and this message of the site.
    fn text(reason: Reason, jobs: &[&str], message: &str) -> String {
        let jobs = jobs.iter().map(|job| job.parse().unwrap()).collect();
        let device = "nvidia.com/gpu=3".to_owned();
        format_refusal(
            &Refusal {
                reason,
                jobs,
                ended: Some(1_795_201_200),
                device,
            },
            "gpu017",
            message,
        )
    }

    fn format_refusal(refusal: &Refusal, node: &str, message: &str) -> String {
        format_with_hint(refusal, node, message, "squeue --me")
    }

    fn format_with_hint(refusal: &Refusal, node: &str, message: &str, hint: &str) -> String {
        let login = Request {
            user: "alice".into(),
            node: node.into(),
            ..Request::default()
        };
        let reply = ReplyTexts {
            hint: hint.into(),
            message: message.into(),
            ..ReplyTexts::default()
        };
        let facts = RefusalFacts {
            login: &login,
            refusal,
            reply: Some(&reply),
            elapsed_ms: 5100,
            is_upgrade: false,
        };
        refusal_text(&facts)
    }

    const JOBS: [&str; 2] = ["4242", "4250"];

    #[test]
    fn every_text_has_two_short_ascii_lines_and_its_code() {
        for reason in Reason::ALL {
            let text = text(reason, &JOBS, "");
            let lines: Vec<&str> = text.lines().collect();
            assert_eq!(lines.len(), 2, "{text}");
            assert!(
                lines.iter().all(|line| line.len() <= 80 && line.is_ascii()),
                "{text}"
            );
            assert!(lines[0].starts_with("gpu017: "), "{text}");
            assert!(text.contains("refused"), "{text}");
            assert!(lines[1].ends_with(&format!(" [{reason}]")), "{text}");
        }
    }

    #[test]
    fn refusal_without_job_names_the_command_for_jobs() {
        assert_eq!(
            text(Reason::NoJob, &JOBS, ""),
            "gpu017: login refused: you (alice) have no running job on this node.\n\
             Your jobs: squeue --me   If it shows one running here, tell your site. [JA01]"
        );
        let line = |hint: &str| {
            let refusal = Failure::new(Reason::NoJob, "none").to_refusal(None);
            let text = format_with_hint(&refusal, "gpu017", "", hint);
            text.lines().last().unwrap().to_owned()
        };
        let longer = "h".repeat(20);
        assert_eq!(line(&longer), format!("Your jobs: {longer}   [JA01]"));
        let without = "Log in while a job of yours is running here. [JA01]";
        assert_eq!(line(""), without);
    }

    #[test]
    fn refusal_by_a_closed_job_names_the_way_into_it_or_around_it() {
        let command = "srun --jobid=4242 --overlap --pty bash";
        let refusal = |jobs: &[&str]| Refusal {
            jobs: jobs.iter().map(|job| job.parse().unwrap()).collect(),
            ..Failure::new(Reason::LoginsClosed, "closed").to_refusal(None)
        };
        assert_eq!(
            format_with_hint(&refusal(&["4242"]), "gpu017", "", command),
            "gpu017: login refused: your job 4242 here takes no logins.\n\
             Work in it by: srun --jobid=4242 --overlap --pty bash   [JA12]"
        );
        assert_eq!(
            format_with_hint(&refusal(&JOBS), "gpu017", "", command),
            "gpu017: login refused: your ssh runs in job 4242, which takes no logins.\n\
             To join another job of yours here, type ssh on a login node. [JA12]"
        );
    }

    #[test]
    fn refusal_for_a_device_blames_no_user() {
        let text = text(Reason::DeviceUnknown, &JOBS, "");
        let begin = "gpu017: login refused: nvidia.com/gpu=3 of your job 4242 is not usable here.\n\
                     Not your fault. Please report: gpu017 ";
        assert!(text.starts_with(begin), "{text}");
    }

    #[test]
    fn refusal_after_the_job_has_its_end_if_known() {
        let line = |ended| {
            let jobs = vec!["4242".parse().unwrap()];
            let refusal = Refusal {
                reason: Reason::Ended,
                jobs,
                ended,
                device: String::new(),
            };
            let text = format_refusal(&refusal, "gpu017", "");
            text.lines()
                .next()
                .map(|line| line.replace(|character: char| character.is_ascii_digit(), "0"))
        };
        let begin = "gpu000: login refused: your job 0000 here";
        assert_eq!(
            line(Some(1_795_201_200)),
            Some(format!("{begin} ended at 00:00."))
        );
        assert_eq!(line(None), Some(format!("{begin} is ending.")));
        let remedy = "Start a new job. Your other jobs: squeue --me   [JA03]";
        assert!(text(Reason::Ended, &JOBS, "").ends_with(remedy));
    }

    #[test]
    fn refusal_during_an_upgrade_asks_for_patience() {
        let login = Request {
            node: "gpu017".into(),
            ..Request::default()
        };
        let refusal = Failure::new(Reason::Timeout, "late").to_refusal(None);
        let text = |is_upgrade| {
            let facts = RefusalFacts {
                login: &login,
                refusal: &refusal,
                reply: None,
                elapsed_ms: 2,
                is_upgrade,
            };
            refusal_text(&facts)
        };
        let upgrade =
            "gpu017: login refused: the software for logins is being upgraded.\nTry again in";
        assert!(text(true).starts_with(upgrade), "{}", text(true));
        assert!(
            text(false).contains("took longer than 1 s.\nTry again in"),
            "{}",
            text(false)
        );
    }

    #[test]
    fn end_on_another_day_has_its_date() {
        let time = |epoch| local_time(epoch).unwrap();
        let day = 24 * 60 * 60;
        let ends = 1_795_201_200;
        let today = date_and_time(time(ends), Some(time(ends)));
        assert_eq!(today.len(), "14:05".len(), "{today}");
        for other in [ends + day, ends - day, ends - 365 * day] {
            let text = date_and_time(time(ends), Some(time(other)));
            assert!(text.ends_with(&format!(" Nov {today}")), "{text}");
        }
    }

    #[test]
    fn welcome_counts_the_gpus_and_explains_the_choice() {
        let mut plan = Plan {
            job: "4242".parse().unwrap(),
            rule: protocol::ChoiceRule::OnlyJob,
            placement: protocol::Placement::Cgroup {
                path: "/a".parse().unwrap(),
                leaf: None,
            },
            ends: None,
            gpus: 0,
            containment: protocol::Containment::None,
            limits: LoginLimits::default(),
            end_grace: 0,
            namespaces: None,
            probes: Vec::new(),
            dropped: Vec::new(),
            env: protocol::Variables::default(),
        };
        for (gpus, shown) in [
            (None, ""),
            (Some(0), ": no GPUs"),
            (Some(1), ": 1 GPU"),
            (Some(2), ": 2 GPUs"),
        ] {
            assert_eq!(
                success_text(&plan, gpus, "gpu017"),
                format!("Joined job 4242 on gpu017{shown}. This login ends with the job.")
            );
        }
        plan.rule = ChoiceRule::Newest;
        assert_eq!(
            success_text(&plan, Some(2), "gpu017"),
            "Joined job 4242 on gpu017, your newest here: 2 GPUs. This login ends with the job."
        );
    }

    #[test]
    fn refusal_for_several_jobs_has_the_command_that_chooses() {
        let refusal = |jobs: [&str; 2]| Refusal {
            jobs: jobs.map(|job| job.parse().unwrap()).into(),
            ..Failure::new(Reason::ChoiceNeeded, "two jobs").to_refusal(None)
        };
        let text = |hint: &str| format_with_hint(&refusal(JOBS), "gpu017", "", hint);
        let first = "gpu017: login refused: you have 2 jobs here (4242, 4250).\n";
        let inside = "In a shell or script of one of them: job-adopt use 4242   [JA05]";
        assert_eq!(text(""), format!("{first}{inside}"));
        let command = "srun --jobid=4242 --overlap job-adopt use 4242";
        assert_eq!(
            text(command),
            format!("{first}Choose 4242: {command}   [JA05]")
        );
        let longer = "h".repeat(59);
        assert_eq!(
            text(&longer),
            format!("{first}Choose one: {longer}   [JA05]")
        );
        assert_eq!(text(&"h".repeat(60)), format!("{first}{inside}"));
    }

    #[test]
    fn refusal_for_several_jobs_names_as_many_as_fit() {
        for (count, length) in [(2, 64), (3, 24), (5, 25), (9, 7), (256, 4), (256, 64)] {
            let jobs: Vec<String> = (0..count)
                .map(|number| format!("{number:0length$}"))
                .collect();
            let jobs: Vec<&str> = jobs.iter().map(String::as_str).collect();
            let text = text(Reason::ChoiceNeeded, &jobs, "");
            assert!(text.lines().all(|line| line.len() <= 80), "{text}");
            assert!(
                text.contains(&format!("you have {count} jobs here")),
                "{text}"
            );
            assert!(
                length > 40 || text.contains(&format!("({}", jobs[0])),
                "{text}"
            );
        }
        let jobs = JOBS.map(|job| job.parse().unwrap()).into();
        let device = String::new();
        let refusal = Refusal {
            reason: Reason::ChoiceNeeded,
            jobs,
            ended: None,
            device,
        };
        let shortest = format_refusal(&refusal, &"n".repeat(64), "");
        assert!(
            shortest
                .lines()
                .next()
                .unwrap()
                .ends_with("you have 2 jobs here."),
            "{shortest}"
        );
    }

    #[test]
    fn text_of_the_site_follows_without_control_characters() {
        let text = text(Reason::NoJob, &JOBS, "Help:\u{1b}[2J\nhttps://x\n");
        assert!(text.ends_with("[JA01]\nHelp:?[2J\nhttps://x"), "{text:?}");
    }
}
