//! A function, with its versions and aliases.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::core;
use crate::meter::Micros;
use crate::names::LATEST;

/// A zip, by its content.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Code {
    /// SHA-256, 64 hexadecimal digits.
    pub sha256: String,
    /// Bytes of the zip.
    pub size: u64,
}

/// What runs the code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RuntimeKind {
    /// `bootstrap` of the zip.
    Provided,
    /// The machine's program for a language, of a version such as `3.11`, or `22` of Node.js.
    Interpreted(Language, String),
}

/// What handlers are written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Language {
    /// Python.
    Python,
    /// JavaScript, run by Node.js.
    Node,
}

impl RuntimeKind {
    /// What a name of Lambda's stands for, if it is offered.
    #[must_use]
    pub fn of(name: &str) -> Option<Self> {
        match name {
            "provided" | "provided.al2" | "provided.al2023" => Some(Self::Provided),
            _ => match name.strip_prefix("nodejs") {
                Some(version) => {
                    let major: u8 = version.strip_suffix(".x")?.parse().ok()?;
                    let is_offered = (18..=26).contains(&major) && major.is_multiple_of(2);
                    is_offered.then(|| Self::Interpreted(Language::Node, major.to_string()))
                }
                None => {
                    let minor: u8 = name.strip_prefix("python3.")?.parse().ok()?;
                    (8..=15).contains(&minor).then(|| Self::Interpreted(Language::Python, format!("3.{minor}")))
                }
            },
        }
    }

    /// What is offered, in words.
    pub(super) const OFFERED: &str =
        "provided, provided.al2, provided.al2023, python3.8 to python3.15, nodejs18.x to nodejs26.x (even numbers)";
}

/// What a function runs under.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// Lambda's name of what runs the code.
    pub runtime: String,
    /// What is called in it.
    pub handler: String,
    /// The role, as its client says; nothing here asks for it.
    pub role: String,
    /// In words.
    pub description: String,
    /// Seconds that an invocation may take.
    pub timeout: u32,
    /// Megabytes of memory.
    pub memory: u32,
    /// Megabytes of `/tmp`.
    pub storage: u32,
    /// Its environment.
    pub environment: BTreeMap<String, String>,
    /// Where events go that did not succeed.
    pub dead_letter: Option<String>,
    /// Where it runs, as its client says.
    pub architecture: String,
}

/// Code and settings that belong together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Version {
    /// Unique in the host.
    pub build: u64,
    /// What it runs under.
    pub settings: Settings,
    /// What runs.
    pub code: Code,
    /// When it was changed.
    pub modified: Micros,
    /// Another one after each change.
    pub revision: String,
}

/// A name for one or two versions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Alias {
    /// A version.
    pub version: String,
    /// Another one, and how many of a million invocations go there.
    pub other: Option<(String, u32)>,
    /// In words.
    pub description: String,
    /// Another one after each change.
    pub revision: String,
}

/// What becomes of events of a version or an alias.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventConfig {
    /// How often one runs again.
    pub retries: Option<u32>,
    /// Seconds that one may wait.
    pub age: Option<u32>,
    /// Who is told of success.
    pub on_success: Option<String>,
    /// Who is told of the opposite.
    pub on_failure: Option<String>,
    /// When it was changed.
    pub modified: Micros,
}

/// What happens to a function that calls itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Recursion {
    /// It may.
    Allow,
    /// It ends after 16 times.
    #[default]
    Terminate,
}

/// A function.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Function {
    /// Its name.
    pub name: String,
    /// What can be changed.
    pub latest: Version,
    /// What cannot.
    pub versions: BTreeMap<u64, Version>,
    /// The number of the next version.
    pub next_version: u64,
    /// Names of versions.
    pub aliases: BTreeMap<String, Alias>,
    /// Invocations that it may have at once, and that are kept for it.
    pub concurrency: Option<u32>,
    /// What becomes of events, by version or alias.
    pub events: BTreeMap<String, EventConfig>,
    /// What happens if it calls itself.
    pub recursion: Recursion,
    /// Words of its client.
    pub tags: BTreeMap<String, String>,
}

/// The number of a version, in the one form that it has: `01` and `+1` are none.
pub(super) fn number(version: &str) -> Option<u64> {
    version.parse().ok().filter(|number: &u64| number.to_string() == version)
}

impl Function {
    /// All code and settings of it.
    pub fn builds(&self) -> impl Iterator<Item = &Version> {
        self.versions.values().chain([&self.latest])
    }

    /// A build by its number, and the name of its version.
    #[must_use]
    pub fn build(&self, build: u64) -> Option<(String, &Version)> {
        let published = self.versions.iter().find(|(_, version)| version.build == build);
        let published = published.map(|(number, version)| (number.to_string(), version));
        published.or_else(|| (self.latest.build == build).then(|| (LATEST.to_owned(), &self.latest)))
    }

    /// What a version is; of an alias its first one.
    #[must_use]
    pub fn version(&self, qualifier: &str) -> Option<(String, &Version)> {
        if qualifier == LATEST {
            return Some((LATEST.to_owned(), &self.latest));
        }
        let version = self.aliases.get(qualifier).map_or(qualifier, |alias| &alias.version);
        if version == LATEST {
            return Some((LATEST.to_owned(), &self.latest));
        }
        Some((version.to_owned(), self.versions.get(&number(version)?)?))
    }

    /// What the core keeps to.
    #[must_use]
    pub fn core_settings(&self) -> core::Settings {
        let build = |version: &Version| core::Build {
            number: version.build,
            timeout: Micros::from(version.settings.timeout) * 1_000_000,
            megabytes: version.settings.memory,
        };
        let route =
            |name: &str, version: &Version, other| (Arc::from(name), core::Route { build: build(version), other });
        let versions = self.versions.iter().map(|(number, version)| route(&number.to_string(), version, None));
        let aliases = self.aliases.iter().filter_map(|(name, alias)| {
            let (_, version) = self.version(&alias.version)?;
            let other = alias.other.as_ref().and_then(|(other, share)| Some((build(self.version(other)?.1), *share)));
            Some(route(name, version, other))
        });
        let routes = versions.chain(aliases).chain([route(LATEST, &self.latest, None)]).collect();
        let defaults = core::EventSettings::default();
        let events = self.events.iter().map(|(qualifier, config)| {
            let settings = core::EventSettings {
                attempts: config.retries.map_or(defaults.attempts, |retries| retries + 1),
                age: config.age.map_or(defaults.age, |age| Micros::from(age) * 1_000_000),
                on_success: config.on_success.as_deref().map(Arc::from),
                on_failure: config.on_failure.as_deref().map(Arc::from),
            };
            (Arc::from(qualifier.as_str()), settings)
        });
        core::Settings {
            reserved: self.concurrency,
            routes,
            events: events.collect(),
            dead_letter: self.latest.settings.dead_letter.as_deref().map(Arc::from),
        }
    }
}
