//! Compares what the helper says of a PAM stack with what the libpam of this machine does, over
//! generated stacks with our lines at every place. `JOB_ADOPT_SEED` names another series of stacks.

mod barrier;
mod dispatch;
mod loading;

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

use helper::stack::{Group, StackFinding, judge_stack};

use crate::support::{Node, Tool, on_node};

const PAM_SUCCESS: i32 = 0;
const PAM_NEW_AUTHTOK_REQD: i32 = 12;
/// Files that lines of the service's file include, each of which may include the later ones.
const INCLUDED: [&str; 2] = ["inner", "innermost"];
/// A file of the distribution's, which Debian's libpam does not find by `include`.
const VENDOR: &str = "vendor";

/// Whatever other modules return: where a line of ours is called effective, its refusal counts.
#[test]
fn login_never_gets_past_a_line_that_is_called_effective() {
    on_node(|node| {
        let mut libpam = Libpam::start(node);
        let mut random = Random::new();
        let mut stacks = 0;
        let mut effective = 0;
        while stacks < 2000 {
            let base = Stack::generate(&mut random, &Kind::ANY);
            for place in 0..=base.places() {
                let stack = base.with_our_lines(place, OUR_REFUSALS, &mut random);
                stacks += 1;
                for round in 0..4 {
                    let files = stack.render(&mut random, RETURNS);
                    let verdict = libpam.ask(&files);
                    let called = verdict
                        .findings
                        .iter()
                        .filter(|finding| is_effective(finding))
                        .count();
                    effective += called;
                    let admits = verdict.admits();
                    for (finding, is_admitted) in verdict.findings.iter().zip(admits) {
                        let gets_past = is_effective(finding) && is_admitted;
                        assert!(
                            !gets_past,
                            "{} stack {stacks}: {verdict:?}\n{files}",
                            random.seed
                        );
                    }
                    if called == 0 && round == 0 {
                        break;
                    }
                }
            }
        }
        assert!(
            effective > 1000,
            "only {effective} lines in {stacks} stacks are called effective"
        );
    });
}

/// Where all modules succeed and no control refuses that, libpam refuses only what it rejects.
#[test]
fn effective_stack_refuses_nobody_by_itself() {
    on_node(|node| {
        let mut libpam = Libpam::start(node);
        let mut random = Random::new();
        let mut stacks = 0;
        let mut effective = 0;
        while stacks < 1000 {
            let base = Stack::generate(&mut random, &Kind::ADMITTING);
            for place in 0..=base.places() {
                let stack = base.with_our_lines(place, "", &mut random);
                stacks += 1;
                let files = stack.render(&mut random, &["success"]);
                let verdict = libpam.ask(&files);
                // What keeps libpam from loading the service at all is named for one group at least.
                if verdict.codes == [-1, -1] && !verdict.findings.iter().all(is_effective) {
                    continue;
                }
                for (finding, admits) in verdict.findings.iter().zip(verdict.admits()) {
                    effective += usize::from(is_effective(finding));
                    let unnoticed = is_effective(finding) && !admits;
                    assert!(
                        !unnoticed,
                        "{} stack {stacks}: {verdict:?}\n{files}",
                        random.seed
                    );
                }
            }
        }
        assert!(
            effective > 200,
            "only {effective} lines in {stacks} stacks are called effective"
        );
    });
}

fn is_effective(finding: &StackFinding) -> bool {
    matches!(finding, StackFinding::Effective(_))
}

/// What the helper says of both groups, and the results of libpam.
#[derive(Debug)]
struct Verdict {
    findings: [StackFinding; 2],
    codes: [i32; 2],
}

impl Verdict {
    /// Returns whether sshd goes on after account, and after session.
    fn admits(&self) -> [bool; 2] {
        admits(self.codes)
    }
}

/// Returns whether sshd goes on after account, and after session.
fn admits([account, session]: [i32; 2]) -> [bool; 2] {
    [
        [PAM_SUCCESS, PAM_NEW_AUTHTOK_REQD].contains(&account),
        session == PAM_SUCCESS,
    ]
}

/// libpam in a process of the node, in which a module that returns what its arguments say stands for
/// ours.
struct Libpam<'a> {
    node: &'a Node,
    process: Child,
    questions: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl<'a> Libpam<'a> {
    fn start(node: &'a Node) -> Self {
        let module = node.module();
        let folder = Path::new(&module).parent().unwrap().display().to_string();
        node.install(&Tool::Verdicts.path(), "/usr/bin/verdicts");
        node.sh(&format!("mount --bind {folder}/pam_debug.so {module}"))
            .ok();
        node.create_dir("/usr/lib/pam.d", 0o755);
        node.write(
            &format!("/usr/lib/pam.d/{VENDOR}"),
            "session optional pam_permit.so\n",
        );
        let (process, questions, answers) = start_process(node);
        Self {
            node,
            process,
            questions,
            answers,
        }
    }

    fn ask(&mut self, files: &Files) -> Verdict {
        let codes = self.run(files);
        Verdict {
            findings: self.judge(),
            codes,
        }
    }

    /// Judges the files of the last run.
    fn judge(&self) -> [StackFinding; 2] {
        let root = self.node.path("/");
        [Group::Account, Group::Session].map(|group| judge_stack(&root, "sshd", group))
    }

    /// Writes the files and runs both groups; returns their results.
    fn run(&mut self, files: &Files) -> [i32; 2] {
        for (name, text) in &files.0 {
            self.node.write(&format!("/etc/pam.d/{name}"), text);
        }
        self.questions.write_all(b"\n").unwrap();
        let mut line = String::new();
        self.answers.read_line(&mut line).unwrap();
        if let Some((account, session)) = line.trim_end().split_once(' ') {
            return [account, session].map(|code| code.parse().unwrap());
        }
        // libpam before 1.6 reads some long lines for ever.
        self.process.wait().unwrap();
        (self.process, self.questions, self.answers) = start_process(self.node);
        [-1, -1]
    }
}

fn start_process(node: &Node) -> (Child, ChildStdin, BufReader<ChildStdout>) {
    let mut command = node.command("verdicts");
    let mut process = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let questions = process.stdin.take().unwrap();
    let answers = BufReader::new(process.stdout.take().unwrap());
    (process, questions, answers)
}

impl Drop for Libpam<'_> {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Names and texts of files in `/etc/pam.d`.
struct Files(Vec<(&'static str, String)>);

impl std::fmt::Display for Files {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0
            .iter()
            .try_for_each(|(name, text)| writeln!(f, "{name}: {text:?}"))
    }
}

/// SplitMix64.
struct Random {
    seed: String,
    state: u64,
}

impl Random {
    fn new() -> Self {
        let seed = std::env::var("JOB_ADOPT_SEED").unwrap_or_else(|_| "39".to_owned());
        let state = seed.parse().unwrap();
        Self {
            seed: format!("JOB_ADOPT_SEED={seed}"),
            state,
        }
    }

    fn below(&mut self, end: usize) -> usize {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((mixed ^ (mixed >> 31)) % end as u64).unwrap()
    }

    fn happens(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    fn pick<'a>(&mut self, words: &[&'a str]) -> &'a str {
        words[self.below(words.len())]
    }
}

/// Replaced by arguments that fix what `pam_debug.so` returns.
const VALUES: &str = "{values}";
/// Replaced by letters up to the byte at which libpam before 1.6 ends a line, or one beside it.
const PADDING: &str = "{padding}";
/// Fixes what the module in place of ours returns.
const OUR_REFUSALS: &str = " acct=perm_denied open_session=session_err";
const RETURNS: &[&str] = &[
    "success",
    "success",
    "success",
    "success",
    "success",
    "ignore",
    "new_authtok_reqd",
    "new_authtok_reqd",
    "perm_denied",
    "user_unknown",
    "authinfo_unavail",
    "module_unknown",
];
const GROUPS: [&str; 2] = ["account", "session"];

/// The kinds of lines that a stack is made of.
struct Kind {
    controls: &'static [&'static str],
    modules: &'static [&'static str],
    /// Percentage of lines whose text is not what a careful admin writes.
    odd: usize,
}

impl Kind {
    const ANY: Self = Self {
        controls: &[
            "required",
            "required",
            "Required",
            "requisite",
            "optional",
            "optional",
            "sufficient",
            "[required]",
            "[success=1 default=ignore]",
            "[success=2 default=ignore]",
            "[default=1]",
            "[success=3 new_authtok_reqd=done default=ignore]",
            "[success=ok default=1]",
            "[default=bad success=ok user_unknown=ignore]",
            "[success=ok ignore=ignore default=die]",
            "[success=done default=die]",
            "[new_authtok_reqd=bad default=ignore]",
            "[default=reset]",
            "[success=reset default=ok]",
            "[success=okignore=ignore default = bad]",
            "[]",
            "[success=2147483647 default=ignore]",
            "[success=01 default=ignore]",
            "[default=ignore]",
            "[success=bad default=ignore]",
            "[new_authtok_reqd=die default=ok]",
        ],
        modules: &[
            "pam_debug.so {values}",
            "pam_debug.so {values}",
            "pam_debug.so {values}",
            "pam_permit.so",
            "pam_deny.so",
            "pam_gone.so",
        ],
        odd: 5,
    };
    /// Controls and modules that refuse no login whose modules all succeed.
    const ADMITTING: Self = Self {
        controls: &[
            "required",
            "requisite",
            "optional",
            "sufficient",
            "[success=ok default=bad]",
            "[default=ok]",
            "[success=done default=die]",
            "[success=ok ignore=ignore default = bad]",
        ],
        modules: &[
            "pam_debug.so {values}",
            "pam_permit.so",
            "pam_debug.so {values} [a b\\]] c]d",
        ],
        odd: 6,
    };
}

/// A stack with placeholders. Each text is a line, or a few physical ones.
#[derive(Clone)]
struct Stack {
    sshd: Vec<String>,
    included: Vec<Vec<String>>,
    other: String,
}

impl Stack {
    fn generate(random: &mut Random, kind: &Kind) -> Self {
        let included = (0..INCLUDED.len())
            .map(|file| {
                (0..1 + random.below(3))
                    .map(|_| line(random, kind, file + 1))
                    .collect()
            })
            .collect();
        let sshd = (0..2 + random.below(6))
            .map(|_| line(random, kind, 0))
            .collect();
        let other = if random.happens(4) {
            line(random, kind, INCLUDED.len()) + if random.happens(50) { " \\" } else { "" }
        } else {
            "account required pam_deny.so\nsession required pam_deny.so".to_owned()
        };
        Self {
            sshd,
            included,
            other: format!("{other}\n"),
        }
    }

    /// Returns the number of places for our lines: before each line of the service's file and of the
    /// first included one, and behind the last.
    fn places(&self) -> usize {
        self.sshd.len() + 1 + self.included[0].len()
    }

    fn with_our_lines(&self, place: usize, arguments: &str, random: &mut Random) -> Self {
        let control = random.pick(&[
            "required",
            "required",
            "required",
            "requisite",
            "[success=ok ignore=ignore default=bad]",
            "[success=done ignore=ignore default=die]",
            "optional",
            "[success=ok perm_denied=1 default=bad]",
        ]);
        let mut stack = self.clone();
        for group in GROUPS {
            let words = format!("{group} {control} pam_job_adopt.so{arguments}");
            let text = if random.happens(10) {
                oddly(random, &words)
            } else {
                words
            };
            match place.checked_sub(self.sshd.len() + 1) {
                None => stack.sshd.insert(place, text),
                Some(inner) => stack.included[0].insert(inner, text),
            }
        }
        stack
    }

    /// Returns the files, in which modules return some of these values.
    fn render(&self, random: &mut Random, returns: &[&str]) -> Files {
        let mut files = vec![("sshd", fill(&self.sshd, random, returns))];
        for (name, lines) in INCLUDED.into_iter().zip(&self.included) {
            files.push((name, fill(lines, random, returns)));
        }
        files.push((
            "other",
            fill(std::slice::from_ref(&self.other), random, returns),
        ));
        Files(files)
    }
}

/// Returns a line of the file with this depth.
fn line(random: &mut Random, kind: &Kind, depth: usize) -> String {
    if random.happens(kind.odd) {
        return odd_line(random);
    }
    let group = random.pick(&[
        "account", "session", "account", "session", "auth", "Session", "-account",
    ]);
    if random.happens(20) {
        return include(random, group, depth);
    }
    if random.happens(6) {
        return random
            .pick(&["", " \t", "# words", "\t# words \\", "#"])
            .to_owned();
    }
    let control = random.pick(kind.controls);
    let blank = random.pick(&[" ", "\t", "   "]);
    let words = format!(
        "{group}{blank}{control}{blank}{}",
        random.pick(kind.modules)
    );
    if random.happens(kind.odd) {
        oddly(random, &words)
    } else {
        words
    }
}

fn include(random: &mut Random, group: &str, depth: usize) -> String {
    let names = [INCLUDED.as_slice(), &[VENDOR, "gone"]].concat();
    let name = if random.happens(4) || depth >= INCLUDED.len() {
        names[INCLUDED.len() + random.below(2)]
    } else {
        names[depth + random.below(INCLUDED.len() - depth)]
    };
    let path = if random.happens(30) {
        format!("/etc/pam.d/{name}")
    } else {
        name.to_owned()
    };
    match random.below(5) {
        0 => format!("{group} include {path}"),
        1 => format!("{group} SubStack {path}"),
        2 => format!("@include {path}"),
        _ => format!("-@Include {path}"),
    }
}

/// Returns a line that is no use, or whose reading is a matter of versions.
fn odd_line(random: &mut Random) -> String {
    let group = random.pick(&GROUPS);
    let jump = random.pick(&[
        "4294967294",
        "4294967297",
        "4294967298",
        "2147483648",
        "0",
        "99999999999",
        "1x",
    ]);
    match random.below(16) {
        0 => group.to_owned(),
        1 => format!("{group} required"),
        2 => "nonsense".to_owned(),
        3 => format!("{group}s required pam_permit.so"),
        4 => format!("{group} mandatory pam_permit.so"),
        5..=8 => format!("{group} [success={jump} default=ignore] pam_debug.so {VALUES}"),
        9 => format!("{group} [success=1\u{a0}default=ignore] pam_permit.so"),
        10 => format!("{group} [success=ok default=ignore pam_permit.so"),
        11 => format!("{group} required /lib/.so"),
        12 => "\u{feff}# words".to_owned(),
        // What is left of the line is a line before 1.6.
        _ => format!("#{PADDING}{group} sufficient pam_permit.so"),
    }
}

/// Writes a line in an odd way.
fn oddly(random: &mut Random, words: &str) -> String {
    let blanks: Vec<usize> = words.match_indices(' ').map(|(at, _)| at).collect();
    let Some(at) = (!blanks.is_empty()).then(|| blanks[random.below(blanks.len())]) else {
        return words.to_owned();
    };
    let (before, after) = words.split_at(at);
    let group = random.pick(&GROUPS);
    match random.below(12) {
        0 => format!("{words}\r"),
        1 => format!("{before}\u{b}{after}"),
        2 => format!("{words} {PADDING}{group} sufficient pam_permit.so"),
        3 => format!("{before} \\\n{after} {PADDING}{group} sufficient pam_permit.so"),
        4 | 5 => format!("{before} \\\n\n{after}"),
        6 => format!("{before} \\ \n # words\n{after}"),
        7 => format!("{words} \\\n"),
        8 => format!("{words} # words \\"),
        _ => format!("{before} \\\t\n{after}"),
    }
}

/// Joins lines to a file, and fills its placeholders in.
fn fill(lines: &[String], random: &mut Random, returns: &[&str]) -> String {
    let mut text = String::new();
    for physical in lines.iter().flat_map(|line| line.split('\n')) {
        let values = format!(
            "acct={} open_session={}",
            random.pick(returns),
            random.pick(returns)
        );
        let line = physical.replace(VALUES, &values);
        let end = 1022 + random.below(4);
        let width = end.saturating_sub(line.find(PADDING).unwrap_or(end));
        writeln!(text, "{}", line.replace(PADDING, &"x".repeat(width))).unwrap();
    }
    text
}
