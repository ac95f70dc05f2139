//! The node's `/dev/log`, read from outside the node.

use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Facility `LOG_AUTHPRIV` of syslog(3).
const AUTHPRIV: u32 = 10;
/// Sent after the messages to wait for. No line of the log contains it.
const MARKER: &str = "read up to here";
/// Time for a line to arrive.
const READ_TIMEOUT: Duration = Duration::from_secs(30);

/// A line of the log.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) text: String,
}

impl Entry {
    /// Returns the value of a logfmt field, without its quotes.
    pub(crate) fn field(&self, key: &str) -> Option<&str> {
        let start = format!(" {key}=");
        let value = &self.text[self.text.find(&start)? + start.len()..];
        match value.strip_prefix('"') {
            Some(quoted) => quoted.split('"').next(),
            None => value.split_whitespace().next(),
        }
    }

    fn priority(&self) -> u32 {
        let digits = self
            .text
            .strip_prefix('<')
            .and_then(|rest| rest.split('>').next());
        digits
            .and_then(|digits| digits.parse().ok())
            .unwrap_or(u32::MAX)
    }

    /// Returns the `LOG_*` severity of syslog(3).
    pub(crate) fn severity(&self) -> u32 {
        self.priority() % 8
    }

    pub(crate) fn is_authpriv(&self) -> bool {
        self.priority() / 8 == AUTHPRIV
    }

    /// Returns whether this is one of our decisions with that code.
    fn is_decision(&self, code: &str) -> bool {
        self.text.contains("decision=") && self.field("code") == Some(code)
    }
}

/// Collects the log of a node.
#[derive(Debug)]
pub(crate) struct Syslog {
    path: PathBuf,
    lines: Arc<Mutex<Vec<Entry>>>,
    /// Receives one message for each marker that was read.
    markers: Mutex<Receiver<()>>,
    reader: Option<JoinHandle<()>>,
    stop: Arc<std::sync::atomic::AtomicBool>,
}

impl Syslog {
    pub(super) fn listen(path: &Path) -> Self {
        let socket = UnixDatagram::bind(path).unwrap();
        std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o666))
            .unwrap();
        socket
            .set_read_timeout(Some(Duration::from_millis(50)))
            .unwrap();
        let lines = Arc::new(Mutex::new(Vec::new()));
        let stop = Arc::new(std::sync::atomic::AtomicBool::new(false));
        let (marked, markers) = channel();
        let sink = Arc::clone(&lines);
        let end = Arc::clone(&stop);
        let reader = std::thread::spawn(move || {
            let mut buffer = vec![0; 64 * 1024];
            while !end.load(std::sync::atomic::Ordering::Relaxed) {
                if let Ok(length) = socket.recv(&mut buffer) {
                    let text = String::from_utf8_lossy(&buffer[..length]);
                    let text = text.trim_end_matches(['\0', '\n']).to_owned();
                    if text == MARKER {
                        let _ = marked.send(());
                    } else {
                        sink.lock().unwrap().push(Entry { text });
                    }
                }
            }
        });
        let markers = Mutex::new(markers);
        Self {
            path: path.to_owned(),
            lines,
            markers,
            reader: Some(reader),
            stop,
        }
    }

    /// Waits until everything sent so far is read.
    fn catch_up(&self) {
        let markers = self.markers.lock().unwrap();
        UnixDatagram::unbound()
            .unwrap()
            .send_to(MARKER.as_bytes(), &self.path)
            .unwrap();
        markers
            .recv_timeout(READ_TIMEOUT)
            .expect("the log is not read");
    }

    /// Returns everything sent so far.
    pub(crate) fn entries(&self) -> Vec<Entry> {
        self.catch_up();
        self.lines.lock().unwrap().clone()
    }

    /// Discards everything sent so far.
    pub(crate) fn clear(&self) {
        self.catch_up();
        self.lines.lock().unwrap().clear();
    }

    /// Waits for the first entry that matches, and returns it.
    #[track_caller]
    pub(crate) fn find(&self, what: &str, fits: impl Fn(&Entry) -> bool) -> Entry {
        let deadline = Instant::now() + READ_TIMEOUT;
        loop {
            if let Some(entry) = self.entries().into_iter().find(&fits) {
                return entry;
            }
            assert!(Instant::now() < deadline, "not in the log: {what}\n{self}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Waits for the decision with that code, and returns it.
    #[track_caller]
    pub(crate) fn decision(&self, code: &str) -> Entry {
        self.find(code, |entry| entry.is_decision(code))
    }

    /// Waits for the first line that contains `text`, and returns it.
    #[track_caller]
    pub(crate) fn line(&self, text: &str) -> Entry {
        self.find(text, |entry| entry.text.contains(text))
    }
}

impl std::fmt::Display for Syslog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.entries()
            .iter()
            .try_for_each(|entry| writeln!(f, "    {}", entry.text))
    }
}

impl Drop for Syslog {
    fn drop(&mut self) {
        self.stop.store(true, std::sync::atomic::Ordering::Relaxed);
        // If the socket is gone, the reader stops by itself.
        let _ = UnixDatagram::unbound().and_then(|it| it.send_to(MARKER.as_bytes(), &self.path));
        if let Some(reader) = self.reader.take() {
            let _ = reader.join();
        }
    }
}
