//! What holds for a function, and for all.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::meter::Micros;

const SECOND: Micros = 1_000_000;

/// What holds for all functions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Work that all instances together may have.
    pub concurrency: u32,
    /// An instance with nothing to do ends after this.
    pub idle: Micros,
    /// An instance has to be ready after this.
    pub init: Micros,
    /// What an event waits after its first attempt, and after all others.
    pub waits: [Micros; 2],
}

impl Default for Options {
    fn default() -> Self {
        Self { concurrency: 100, idle: 300 * SECOND, init: 10 * SECOND, waits: [60 * SECOND, 120 * SECOND] }
    }
}

/// Code, with the settings that it runs under. It never changes: what is changed is another build.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Build {
    /// Its number, unique in the host.
    pub number: u64,
    /// How long it may take.
    pub timeout: Micros,
    /// Its memory, which is paid for.
    pub megabytes: u32,
}

/// What a version or an alias stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// The build.
    pub build: Build,
    /// Another one, and how many of a million go there.
    pub other: Option<(Build, u32)>,
}

/// What becomes of events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventSettings {
    /// How often one may run.
    pub attempts: u32,
    /// How old it may become.
    pub age: Micros,
    /// Who is told of success.
    pub on_success: Option<Arc<str>>,
    /// Who is told of the opposite.
    pub on_failure: Option<Arc<str>>,
}

impl Default for EventSettings {
    fn default() -> Self {
        Self { attempts: 3, age: 6 * 3_600 * SECOND, on_success: None, on_failure: None }
    }
}

/// What holds for a function.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// Work that it may have at once, and that is kept for it.
    pub reserved: Option<u32>,
    /// What its versions and aliases stand for.
    pub routes: BTreeMap<Arc<str>, Route>,
    /// What becomes of events, by version or alias; those of others have defaults.
    pub events: BTreeMap<Arc<str>, EventSettings>,
    /// Where events go that did not succeed, if nobody is told.
    pub dead_letter: Option<Arc<str>>,
}

impl Settings {
    /// Whether any version or alias stands for a build.
    pub(super) fn wants(&self, build: u64) -> bool {
        self.routes
            .values()
            .any(|route| route.build.number == build || route.other.is_some_and(|(other, _)| other.number == build))
    }
}
