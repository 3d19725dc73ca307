//! Keys and libraries out of a file of Redis, before anybody is served.

use savanna_lattice::UnixMillis;

use super::{Actor, FIRST};
use crate::error::CommandError;
use crate::keyspace::entry::LATEST_EXPIRY;
use crate::keyspace::{DATABASES, Value, payload};
use crate::placement::group_of;
use crate::scripting::{LibraryRequest, Scripts};

/// What a file had.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Loaded {
    /// Keys that are there now.
    pub keys: u64,
    /// Keys whose time had come.
    pub expired: u64,
    /// Libraries of functions.
    pub libraries: u64,
}

/// Whether the log of a node's actors had a part of a file. It is void, and there are no keys.
#[must_use]
pub fn is_half_loaded(actors: &[Actor]) -> bool {
    actors.first().is_some_and(|first| first.is_half_loaded)
}

/// Says what of a file cannot be taken, before any of it is.
#[derive(Debug, Default)]
pub struct Check {
    scripts: Scripts,
}

impl Check {
    /// Looks at a key.
    ///
    /// # Errors
    /// A text that says why it cannot be taken.
    pub fn key(&self, database: u64, value: &[u8]) -> Result<(), String> {
        number_of(database)?;
        value_of(value).map(drop)
    }

    /// Looks at a library of functions.
    ///
    /// # Errors
    /// If it cannot be loaded, beside those before it.
    pub fn library(&mut self, text: Vec<u8>) -> Result<(), CommandError> {
        self.scripts.change_libraries(&LibraryRequest::Load { text, replaces: true }).map(drop)
    }
}

fn number_of(database: u64) -> Result<u8, String> {
    let number = u8::try_from(database).ok().filter(|number| *number < DATABASES);
    number.ok_or_else(|| format!("expected a database below {DATABASES}, found {database}"))
}

fn value_of(payload: &[u8]) -> Result<Value, String> {
    payload::restore(payload).map_err(|error| match error {
        payload::NoValue::Memory => error.to_string(),
        _ => "its value is of no type that there is here (values of modules are not)".to_owned(),
    })
}

/// Actors, all of a node in the order of their numbers, that take what a file has.
#[derive(Debug)]
pub struct Loading<'a> {
    actors: &'a mut [Actor],
    now: UnixMillis,
    loaded: Loaded,
}

impl<'a> Loading<'a> {
    /// Actors that serve nobody yet, at this time.
    #[must_use]
    pub fn new(actors: &'a mut [Actor], now: UnixMillis) -> Self {
        actors.iter_mut().for_each(|actor| actor.keys.set_now(now));
        Self { actors, now, loaded: Loaded::default() }
    }

    /// Takes a key, in the place of what is there. Says which actor has changes now.
    ///
    /// # Errors
    /// A text that says why it cannot be taken.
    pub fn key(
        &mut self,
        database: u64,
        key: &[u8],
        expires_at: Option<u64>,
        value: &[u8],
    ) -> Result<&mut Actor, String> {
        let (number, value) = (number_of(database)?, value_of(value)?);
        let actor = self.actors[FIRST.index()].routes.actor_of(group_of(key));
        let actor = &mut self.actors[actor.index()];
        let expires_at = expires_at.map_or(UnixMillis::NEVER, |at| UnixMillis(at).min(LATEST_EXPIRY));
        if expires_at <= self.now {
            self.loaded.expired += 1;
        } else {
            actor.keys.select(number);
            actor.keys.put(key, value, expires_at);
            self.loaded.keys += 1;
        }
        Ok(actor)
    }

    /// Takes a library of functions. Gives the actor that has changes now.
    ///
    /// # Errors
    /// If it cannot be loaded.
    pub fn library(&mut self, text: Vec<u8>) -> Result<Option<&mut Actor>, CommandError> {
        self.loaded.libraries += 1;
        Actor::load_library(self.actors, &LibraryRequest::Load { text, replaces: true })
    }

    /// Ends, and says what there was.
    pub fn end(self) -> Loaded {
        for actor in self.actors {
            actor.loaded = self.loaded;
            actor.keys.select(0);
        }
        self.loaded
    }
}
