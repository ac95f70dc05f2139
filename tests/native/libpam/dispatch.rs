//! Stacks that libpam's own tests run (`tst-pam_dispatch`, `tst-pam_substack`, `tst-pam_authfail` and others), in the
//! groups that matter here: first without a line of ours, whether this machine's libpam answers as its authors say;
//! then with one at every place, whether it counts exactly where the helper says so.

use std::fmt::Write as _;

use super::{Files, GROUPS, Libpam, OUR_REFUSALS, PAM_SUCCESS, admits, is_effective};
use crate::support::on_node;

/// The line that begins the substack of a stack.
const SUBSTACK: Line = ("substack", "inner");
/// Values of `pam_debug.so` that have different effects: `default=` covers all others.
const RETURNS: [&str; 4] = ["success", "new_authtok_reqd", "perm_denied", "ignore"];
const PAM_PERM_DENIED: i32 = 6;
const PAM_AUTH_ERR: i32 = 7;

/// A control, and the value that the line's module returns.
type Line = (&'static str, &'static str);

/// A stack, and what libpam returns for it.
struct PublishedStack {
    name: &'static str,
    lines: &'static [Line],
    /// The lines of [`SUBSTACK`].
    inner: &'static [Line],
    code: i32,
}

const STACKS: [PublishedStack; 21] = [
    PublishedStack {
        name: "a module that wants to be ignored counts as bad",
        lines: &[("[default=bad]", "ignore")],
        inner: &[],
        code: PAM_PERM_DENIED,
    },
    PublishedStack {
        name: "a module that wants to be ignored ends the stack",
        lines: &[("[default=die]", "ignore")],
        inner: &[],
        code: PAM_PERM_DENIED,
    },
    PublishedStack {
        name: "a sufficient line after an optional failure ends the stack",
        lines: &[
            ("optional", "auth_err"),
            ("sufficient", "success"),
            ("required", "perm_denied"),
        ],
        inner: &[],
        code: PAM_SUCCESS,
    },
    PublishedStack {
        name: "a jump to the end keeps a success",
        lines: &[
            ("required", "success"),
            ("[success=1 default=ignore]", "success"),
            ("required", "perm_denied"),
        ],
        inner: &[],
        code: PAM_SUCCESS,
    },
    PublishedStack {
        name: "a jump to the end is no success",
        lines: &[
            ("[success=1 default=ignore]", "success"),
            ("required", "perm_denied"),
        ],
        inner: &[],
        code: PAM_PERM_DENIED,
    },
    PublishedStack {
        name: "a jump past the end refuses",
        lines: &[
            ("[success=2 default=bad]", "success"),
            ("required", "perm_denied"),
        ],
        inner: &[],
        code: PAM_PERM_DENIED,
    },
    PublishedStack {
        name: "a sufficient success mends no required failure",
        lines: &[("required", "perm_denied"), ("sufficient", "success")],
        inner: &[],
        code: PAM_PERM_DENIED,
    },
    PublishedStack {
        name: "a sufficient failure spoils no required success",
        lines: &[("sufficient", "auth_err"), ("required", "success")],
        inner: &[],
        code: PAM_SUCCESS,
    },
    PublishedStack {
        name: "a sufficient line ends its substack alone",
        lines: &[SUBSTACK, ("required", "auth_err")],
        inner: &[("sufficient", "success")],
        code: PAM_AUTH_ERR,
    },
    PublishedStack {
        name: "a reset takes the failure of a substack back",
        lines: &[
            SUBSTACK,
            ("[success=reset]", "success"),
            ("required", "success"),
        ],
        inner: &[("requisite", "auth_err")],
        code: PAM_SUCCESS,
    },
    PublishedStack {
        name: "a reset in a substack goes back to its start",
        lines: &[("required", "success"), SUBSTACK],
        inner: &[("required", "auth_err"), ("[success=reset]", "success")],
        code: PAM_SUCCESS,
    },
    PublishedStack {
        name: "a jump counts a substack as one line",
        lines: &[
            ("[success=1]", "success"),
            SUBSTACK,
            ("required", "success"),
        ],
        inner: &[
            ("required", "auth_err"),
            ("required", "auth_err"),
            ("required", "auth_err"),
        ],
        code: PAM_SUCCESS,
    },
    PublishedStack {
        name: "a requisite failure ends its substack before a reset",
        lines: &[("required", "success"), SUBSTACK],
        inner: &[("requisite", "auth_err"), ("[success=reset]", "success")],
        code: PAM_AUTH_ERR,
    },
    // The other sides of these questions, which the authors do not ask.
    PublishedStack {
        name: "an included file is no substack: its sufficient line ends all",
        lines: &[("include", "inner"), ("required", "auth_err")],
        inner: &[("sufficient", "success")],
        code: PAM_SUCCESS,
    },
    PublishedStack {
        name: "an included file is no substack: a jump counts its lines",
        lines: &[
            ("[success=1]", "success"),
            ("include", "inner"),
            ("required", "success"),
        ],
        inner: &[("required", "success"), ("required", "auth_err")],
        code: PAM_AUTH_ERR,
    },
    PublishedStack {
        name: "an included file is no substack: a reset goes back to the start of all",
        lines: &[
            ("required", "auth_err"),
            ("include", "inner"),
            ("required", "success"),
        ],
        inner: &[("[success=reset]", "success")],
        code: PAM_SUCCESS,
    },
    PublishedStack {
        name: "a reset in a substack keeps the failure before it",
        lines: &[("required", "auth_err"), SUBSTACK],
        inner: &[("[success=reset]", "success")],
        code: PAM_AUTH_ERR,
    },
    PublishedStack {
        name: "a jump in a substack does not leave it",
        lines: &[("required", "success"), SUBSTACK],
        inner: &[("[success=2]", "success"), ("required", "success")],
        code: PAM_PERM_DENIED,
    },
    PublishedStack {
        name: "a jump over a substack that is the last line is no success",
        lines: &[("[success=1]", "success"), SUBSTACK],
        inner: &[("required", "success")],
        code: PAM_PERM_DENIED,
    },
    PublishedStack {
        name: "the first failure is the answer",
        lines: &[("required", "auth_err"), ("required", "perm_denied")],
        inner: &[],
        code: PAM_AUTH_ERR,
    },
    PublishedStack {
        name: "a stack of which every line is ignored refuses",
        lines: &[("optional", "ignore"), ("required", "ignore")],
        inner: &[],
        code: PAM_PERM_DENIED,
    },
];

#[test]
fn libpam_answers_its_own_stacks_as_published() {
    on_node(|node| {
        let mut libpam = Libpam::start(node);
        let mut differences = Vec::new();
        for stack in &STACKS {
            let values: Vec<&str> = stack.values().collect();
            let verdict = libpam.ask(&stack.render(None, &values));
            for (group, code) in GROUPS.iter().zip(verdict.codes) {
                if code != stack.code {
                    let expected = stack.code;
                    differences.push(format!("{}: {group}: {code}, not {expected}", stack.name));
                }
            }
        }
        // A blank line in four pieces of 512 bytes. Versions differ in whether they run the stack at all.
        let blank = format!("{}\\\n", " ".repeat(511)).repeat(4);
        let text =
            format!("{blank}account required pam_deny.so\n{blank}session required pam_deny.so\n");
        let verdict = libpam.ask(&Files(vec![("sshd", text), ("other", String::new())]));
        if verdict.admits().contains(&true) || verdict.findings.iter().any(is_effective) {
            differences.push(format!("a blank line of 2,048 bytes: {verdict:?}"));
        }
        assert!(differences.is_empty(), "{}", differences.join("\n"));
    });
}

/// The helper assumes that any other module can return anything. So where it calls a line of ours effective, no
/// values of the others let a login past its refusal, and where it does not, some do.
#[test]
fn line_in_a_published_stack_is_effective_exactly_if_no_login_gets_past_it() {
    on_node(|node| {
        let mut libpam = Libpam::start(node);
        let mut differences = Vec::new();
        let mut rows = 0;
        for stack in &STACKS {
            for place in stack.places() {
                for control in ["required", "requisite"] {
                    rows += 1;
                    let passed = stack.find_passed_groups(&mut libpam, (place, control));
                    let stands = stack.describe(place);
                    for (group, why) in GROUPS.iter().zip(passed).filter_map(only_fault) {
                        differences
                            .push(format!("{}: {stands} {control} {group}: {why}", stack.name));
                    }
                }
            }
        }
        assert!(differences.is_empty(), "{}", differences.join("\n"));
        assert!(rows > 150, "only {rows}");
    });
}

/// Keeps the fault of a group, if there is one.
fn only_fault<'a>((group, why): (&'a &str, Option<String>)) -> Option<(&'a str, String)> {
    Some((group, why?))
}

/// Where a line of ours stands: before a line of the service's file, or of the included one; the number of lines
/// means behind the last.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Service(usize),
    Inner(usize),
}

impl PublishedStack {
    /// Lists all places of a line of ours.
    fn places(&self) -> Vec<Place> {
        let mut places: Vec<Place> = (0..=self.lines.len()).map(Place::Service).collect();
        if !self.inner.is_empty() {
            places.extend((0..=self.inner.len()).map(Place::Inner));
        }
        places
    }

    /// Names a place in words.
    fn describe(&self, place: Place) -> String {
        let (file, at) = match place {
            Place::Service(at) => ("the service", at),
            Place::Inner(at) => ("the included file", at),
        };
        format!("ours as line {} of {file}", at + 1)
    }

    /// Iterates over the values of its modules, the service's first.
    fn values(&self) -> impl Iterator<Item = &'static str> {
        let all = self.lines.iter().chain(self.inner);
        all.filter(|line| !is_include(line))
            .map(|(_, value)| *value)
    }

    /// Writes the stack with these values, and with a line of ours, if any, at a place with a control.
    fn render(&self, ours: Option<(Place, &str)>, values: &[&str]) -> Files {
        let mut values = values.iter();
        let mut files = Vec::new();
        for (name, lines, place) in [
            ("sshd", self.lines, Place::Service as fn(usize) -> Place),
            ("inner", self.inner, Place::Inner),
        ] {
            let mut text = String::new();
            for at in 0..=lines.len() {
                if let Some((_, control)) = ours.filter(|(own, _)| *own == place(at)) {
                    for group in GROUPS {
                        let words = format!("{group} {control} pam_job_adopt.so{OUR_REFUSALS}");
                        writeln!(text, "{words}").unwrap();
                    }
                }
                let Some((control, file)) = lines.get(at) else {
                    break;
                };
                let module = if is_include(&(control, file)) {
                    (*file).to_owned()
                } else {
                    let value = values.next().unwrap();
                    format!("pam_debug.so acct={value} open_session={value}")
                };
                for group in GROUPS {
                    writeln!(text, "{group} {control} {module}").unwrap();
                }
            }
            files.push((name, text));
        }
        files.push(("other", String::new()));
        Files(files)
    }

    /// Tells for both groups what is wrong with the helper's finding: it calls our line effective and a login gets
    /// past its refusal, or it does not and none does, whatever the other modules return.
    fn find_passed_groups(
        &self,
        libpam: &mut Libpam<'_>,
        ours: (Place, &str),
    ) -> [Option<String>; 2] {
        let count = self.values().count();
        // A longer stack has too many values; none of its controls names what is left out.
        let returns = if count > 3 {
            &RETURNS[..3]
        } else {
            RETURNS.as_slice()
        };
        let mut witnesses = [None, None];
        for number in 0..returns.len().pow(u32::try_from(count).unwrap()) {
            let digits =
                (0..count).map(|at| number / returns.len().pow(u32::try_from(at).unwrap()));
            let values: Vec<&str> = digits.map(|digit| returns[digit % returns.len()]).collect();
            let codes = libpam.run(&self.render(Some(ours), &values));
            for (witness, is_admitted) in witnesses.iter_mut().zip(admits(codes)) {
                if is_admitted && witness.is_none() {
                    *witness = Some(values.join(", "));
                }
            }
            if witnesses.iter().all(Option::is_some) {
                break;
            }
        }
        let findings = libpam.judge();
        let mut faults = [None, None];
        for ((fault, finding), witness) in faults.iter_mut().zip(&findings).zip(witnesses) {
            *fault = match (is_effective(finding), witness) {
                (true, Some(values)) => Some(format!("called effective, and passed by {values}")),
                (false, None) => Some(format!("nothing gets past it, and {finding:?}")),
                _ => None,
            };
        }
        faults
    }
}

/// Tells whether a line takes a file in.
fn is_include((control, _): &Line) -> bool {
    ["include", "substack"].contains(control)
}
