//! `check`: everything that an admin should know before going live.
//!
//! Each check looks at one thing and changes nothing; a finding says what is the matter and what to
//! do about it.

mod finding;
mod live;
mod node;
mod report;
mod scene;
mod site;

use super::options::Known;
use super::{Error, Options, Output, conf, help, show};
use crate::resolve::Config;
use crate::trust::Trust;
use finding::{Check, Finding, Severity};
use report::Report;
use scene::Scene;
use std::ffi::OsString;
use std::path::PathBuf;

const KNOWN: [Known; 5] = [
    Known::Once("--service"),
    Known::Once("--conf"),
    Known::Once("--live"),
    Known::Flag("--json"),
    Known::Flag("--verbose"),
];

pub(super) fn command(
    arguments: impl IntoIterator<Item = OsString>,
    output: &mut Output<'_>,
) -> Result<u8, Error> {
    let options = Options::parse("check", &KNOWN, arguments)?;
    if options.has("--help") {
        return show(help::CHECK, output);
    }
    options.no_operands()?;
    let scene = scene(&options)?;
    let mut findings = site::findings(&scene);
    findings.extend(node::findings(&scene));
    if let Some(user) = options.value("--live") {
        findings.extend(live::live(user, &scene));
    }
    let report = Report::of(findings);
    match options.has("--json") {
        true => report.write_json(output.out)?,
        false => report.write_text(options.has("--verbose"), output.out)?,
    }
    Ok(report.code())
}

/// The node, as it is told by the options.
fn scene(options: &Options) -> Result<Scene, Error> {
    let conf = conf(options)?.to_owned();
    let service = options.value("--service").unwrap_or("sshd").to_owned();
    if service.is_empty() || service.contains('/') || service.starts_with('.') {
        return Err(options.usage(format!("option --service: {service} is no PAM service")));
    }
    // What is wrong with it is one of the findings.
    let config = Config::read(&conf, &Trust::root()).unwrap_or_default();
    Ok(Scene { root: PathBuf::from("/"), service, conf, config })
}
