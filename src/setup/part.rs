//! The parts of a node that `enable` sets up and `disable` takes back, and the options of both.

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// A part of the set-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Part {
    /// The lines in the service's PAM stack.
    Pam,
    /// The drop-ins that close users' slices.
    Slices,
    /// The policy of the system bus.
    Bus,
    /// The file system of `job-adopt use`.
    Mount,
}

impl Part {
    const ALL: [Self; 4] = [Self::Pam, Self::Slices, Self::Bus, Self::Mount];

    /// Returns the name of the part in `--only` and in messages.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Pam => "pam",
            Self::Slices => "slices",
            Self::Bus => "bus",
            Self::Mount => "mount",
        }
    }

    fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|part| part.name() == name)
    }
}

fn part_parser() -> impl TypedValueParser<Value = Part> {
    PossibleValuesParser::new(Part::ALL.map(Part::name))
        .try_map(|name| Part::parse(&name).ok_or("no part of the set-up"))
}

/// What is changed, and where.
#[derive(Clone, Debug, Args)]
pub(super) struct PlaceOptions {
    /// Only this part; may be repeated
    #[arg(long, value_name = "PART", value_parser = part_parser(), value_delimiter = ',')]
    only: Vec<Part>,
    /// Show what would change
    #[arg(long)]
    pub(super) dry_run: bool,
    /// Change the image of a node below DIR
    #[arg(
        long,
        value_name = "DIR",
        default_value = "/",
        hide_default_value = true
    )]
    pub(super) root: PathBuf,
}

impl PlaceOptions {
    pub(super) fn has(&self, part: Part) -> bool {
        self.only.is_empty() || self.only.contains(&part)
    }

    /// Whether `--only` names the part.
    pub(super) fn is_named(&self, part: Part) -> bool {
        self.only.contains(&part)
    }
}
