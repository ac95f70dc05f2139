//! The last program of `cargo test`: it reports how many tests were skipped, and why.

#![allow(clippy::print_stdout, reason = "a report")]
#![forbid(unsafe_code)]

mod notes;

use std::collections::BTreeMap;

fn main() {
    if std::env::args().any(|argument| argument == "--list") {
        return;
    }
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for reason in notes::take() {
        *counts.entry(reason).or_default() += 1;
    }
    if counts.is_empty() {
        return;
    }
    println!("\nskipped tests, which `make test-all` runs as root (most of them `make test`):");
    for (reason, count) in counts {
        println!("{count:>6}  {reason}");
    }
}
