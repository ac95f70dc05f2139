//! Which servers listen, and asking them.

use super::super::program::distrust;
use super::{Effective, has_match, is_root};
use crate::trust::Trust;
use std::ffi::OsStr;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Where packages have it.
const USUAL: &str = "/usr/sbin/sshd";
const CONFIG: &str = "/etc/ssh/sshd_config";
/// How long one question may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// Servers of logins over the network that are not OpenSSH's, by the names of their processes.
const OTHERS: [&str; 8] =
    ["dropbear", "tinysshd", "lshd", "telnetd", "in.telnetd", "in.rlogind", "in.rshd", "rlogind"];
/// Options of sshd's that bear on its configuration, and take a value.
const KEPT: [&str; 2] = ["-f", "-o"];

/// A server of OpenSSH's, with those of its options that bear on its configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Instance {
    program: PathBuf,
    options: Vec<String>,
}

/// Why an instance was not asked, or did not answer.
#[derive(Debug)]
pub(super) enum Unasked {
    NotRoot,
    /// Somebody else than root may have put the program there.
    Distrusted(String),
    /// It says what is wrong.
    Failed(String),
    /// There is no answer.
    Silent(String),
}

/// Those that listen, each configuration once; where none does, the one that would.
pub(super) fn instances() -> Vec<Instance> {
    let mut found: Vec<Instance> = Vec::new();
    for pid in pids() {
        let new = Instance::of(&pid).filter(|instance| !found.contains(instance));
        found.extend(new);
    }
    if let (true, Ok(program)) = (found.is_empty(), Path::new(USUAL).canonicalize()) {
        found.push(Instance { program, options: Vec::new() });
    }
    found
}

/// Servers of this node that are no OpenSSH, as they are shown.
pub(super) fn others() -> Vec<String> {
    let shown = |pid: PathBuf| {
        let name = std::fs::read_to_string(pid.join("comm")).ok()?;
        let name = name.trim_end();
        let number = pid.file_name()?.to_str()?;
        (OTHERS.contains(&name) && is_roots(&pid)).then(|| format!("{name} (process {number})"))
    };
    pids().into_iter().filter_map(shown).collect()
}

/// The processes of this process's own namespace; those of containers are others' nodes.
fn pids() -> Vec<PathBuf> {
    let number = |name: &OsStr| name.to_str().is_some_and(|name| name.parse::<u32>().is_ok());
    let own = std::fs::read_link("/proc/self/ns/pid").ok();
    let here = |pid: &PathBuf| match std::fs::read_link(pid.join("ns/pid")) {
        Ok(namespace) => Some(namespace) == own,
        Err(_) => !is_root(),
    };
    let all = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbered = all.filter(|entry| number(&entry.file_name())).map(|entry| entry.path());
    numbered.filter(here).collect()
}

/// Whether root alone can have started it: all its uids are 0, also the real one.
fn is_roots(pid: &Path) -> bool {
    let status = std::fs::read_to_string(pid.join("status")).unwrap_or_default();
    status.lines().any(|line| line == "Uid:\t0\t0\t0\t0")
}

impl Instance {
    /// The listener that is this process. What it calls itself is believed, since only root can
    /// have started it and it runs sshd.
    fn of(pid: &Path) -> Option<Self> {
        if !is_roots(pid) {
            return None;
        }
        let title = std::fs::read(pid.join("cmdline")).ok()?;
        let options = options(&String::from_utf8_lossy(&title))?;
        let program = match std::fs::read_link(pid.join("exe")) {
            // After an upgrade the running one is no more, and the next start has the new one.
            Ok(path) => PathBuf::from(path.to_str()?.trim_end_matches(" (deleted)")),
            Err(_) => USUAL.into(),
        };
        let is_sshd = program.file_name() == Some(OsStr::new("sshd"));
        is_sshd.then_some(Self { program, options })
    }

    /// How it is named in findings.
    pub(super) fn shown(&self) -> String {
        let program = self.program.display().to_string();
        [&[program], self.options.as_slice()].concat().join(" ")
    }

    /// What its configuration comes to.
    ///
    /// # Errors
    /// [`Unasked`].
    pub(super) fn effective(&self) -> Result<Effective, Unasked> {
        if !is_root() {
            return Err(Unasked::NotRoot);
        }
        if let Some(why) = distrust(&Trust::root(), &self.program) {
            return Err(Unasked::Distrusted(why));
        }
        let name = self.program.file_name().and_then(OsStr::to_str).unwrap_or("sshd");
        let mut effective = Effective::parse(&self.ask(&[])?, name);
        // Of what matters here only authentication can differ between users (sshd_config(5)).
        let nobody = ["-C", "user=nobody,host=localhost,addr=127.0.0.1"];
        let theirs = has_match(&self.config()).then(|| self.ask(&nobody));
        if let Some(Ok(text)) = theirs {
            effective.keyboard |= Effective::parse(&text, name).keyboard;
        }
        Ok(effective)
    }

    fn config(&self) -> PathBuf {
        let mut pairs = self.options.iter().zip(self.options.iter().skip(1));
        let given = pairs.find(|(option, _)| *option == "-f").map(|(_, file)| file.as_str());
        PathBuf::from(given.unwrap_or(CONFIG))
    }

    fn ask(&self, more: &[&str]) -> Result<String, Unasked> {
        let mut command = Command::new(&self.program);
        command.arg("-T").args(&self.options).args(more).env_clear();
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let silent = |why: String| Unasked::Silent(format!("cannot be asked: {why}"));
        let mut child = command.spawn().map_err(|error| silent(error.to_string()))?;
        let status = wait(&mut child).map_err(silent)?;
        let text = |pipe: Option<&mut dyn Read>| {
            let mut bytes = Vec::new();
            pipe.map(|pipe| pipe.read_to_end(&mut bytes));
            String::from_utf8_lossy(&bytes).into_owned()
        };
        match status {
            true => Ok(text(child.stdout.as_mut().map(|pipe| pipe as &mut dyn Read))),
            false => {
                let said = text(child.stderr.as_mut().map(|pipe| pipe as &mut dyn Read));
                Err(Unasked::Failed(said.trim().replace(['\r', '\n'], " ")))
            }
        }
    }
}

/// Waits for the program, whose few lines fit a pipe; whether it was content.
fn wait(child: &mut Child) -> Result<bool, String> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Ok(status.success()),
            Ok(None) if Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(5));
            }
            Ok(None) => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(format!("no answer in {} s", PATIENCE.as_secs()));
            }
            Err(error) => return Err(error.to_string()),
        }
    }
}

/// The options in a listener's title, "sshd: PROGRAM OPTIONS [listener] ..." (sshd.c:
/// `prepare_proctitle`); `None` for another process.
fn options(title: &str) -> Option<Vec<String>> {
    let (command, _) = title.strip_prefix("sshd: ")?.split_once(" [listener]")?;
    let mut words = command.split_whitespace().skip(1).peekable();
    let mut options = Vec::new();
    while let Some(word) = words.next() {
        match KEPT.into_iter().find(|option| word.starts_with(option)) {
            Some(option) if word == option => {
                options.push(option.to_owned());
                options.extend(words.next().map(str::to_owned));
            }
            Some(_) => options.push(word.to_owned()),
            None => {}
        }
    }
    Some(options)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listener_tells_its_options() {
        let kept = |title: &str| options(title).map(|options| options.join(" "));
        let rest = "[listener] 0 of 10-100 startups";
        assert_eq!(kept(&format!("sshd: /usr/sbin/sshd -D {rest}")), Some(String::new()));
        let title = format!("sshd: /usr/sbin/sshd -D -f /etc/x -p 2222 -oUsePAM=no -e {rest}");
        assert_eq!(kept(&title), Some("-f /etc/x -oUsePAM=no".into()));
        assert_eq!(kept("sshd: alice [priv]"), None);
        assert_eq!(kept("vim sshd: a [listener]"), None);
    }
}
