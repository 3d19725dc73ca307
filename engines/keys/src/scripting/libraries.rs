//! What the interpreter does for libraries: it runs them once, and keeps what they register.

use std::slice::EscapeAscii;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mlua::{LuaString, Table, Value};

use super::functions::{self, Libraries, Library, LibraryChange, LibraryRequest, Policy};
use super::{Callbacks, Compiled, LIBRARY_CHUNK, Machine, Nature, Scripts, Watch, machine, message, one_line};
use crate::error::CommandError;

/// How long the libraries of one request may run to register their functions.
const LOAD_TIME: Duration = Duration::from_secs(5);

impl Scripts {
    /// All libraries.
    pub(crate) const fn libraries(&self) -> &Libraries {
        &self.libraries
    }

    /// Changes libraries, and says what the others are to take.
    ///
    /// # Errors
    /// Why they cannot be changed so. Nothing has changed then.
    pub(crate) fn change_libraries(&mut self, request: &LibraryRequest) -> Result<LibraryChange, CommandError> {
        let before = self.libraries.clone();
        let change = self.try_to_change(request);
        if change.is_err() {
            // Of some, what had been loaded is another library's by now.
            self.forget_loaded();
            self.libraries = before;
        }
        self.give_back();
        change
    }

    fn try_to_change(&mut self, request: &LibraryRequest) -> Result<LibraryChange, CommandError> {
        let mut change = LibraryChange::default();
        let until = Instant::now() + LOAD_TIME;
        match request {
            LibraryRequest::Load { text, replaces } => {
                let is_there = |name: EscapeAscii<'_>| format!("ERR Library '{name}' already exists");
                change.new.push(self.load(text, *replaces, until, is_there)?);
            }
            LibraryRequest::Delete(name) => {
                if self.libraries.get(name).is_none() {
                    return Err(CommandError::text("ERR Library not found"));
                }
                change.removed.push(name.as_slice().into());
                self.take_libraries(&change);
            }
            LibraryRequest::Flush => {
                change.removes_all = true;
                self.take_libraries(&change);
            }
            LibraryRequest::Restore { texts, policy } => {
                change.removes_all = *policy == Policy::Flush;
                self.take_libraries(&change);
                let is_there = |name: EscapeAscii<'_>| format!("ERR Library {name} already exists");
                for text in texts {
                    change.new.push(self.load(text, *policy == Policy::Replace, until, is_there)?);
                }
            }
        }
        Ok(change)
    }

    /// Loads a library; what it is refused with if there is one of its name is the caller's, as Redis has two ways to say so.
    fn load(
        &mut self,
        text: &[u8],
        replaces: bool,
        until: Instant,
        is_there: impl FnOnce(EscapeAscii<'_>) -> String,
    ) -> Result<(Box<[u8]>, Library), CommandError> {
        let (name, code) = functions::name_of(text)?;
        if !replaces && self.libraries.get(name).is_some() {
            return Err(CommandError::from(is_there(name.escape_ascii())));
        }
        let (functions, callbacks) = self.register(code, until)?;
        let library = Library { text: text.into(), functions };
        self.libraries.insert(name, library.clone())?;
        if let Some(machine) = &mut self.machine {
            machine.loaded.insert(name.into(), callbacks);
        }
        Ok((name.into(), library))
    }

    /// Takes what another thread has made of the libraries.
    pub(crate) fn take_libraries(&mut self, change: &LibraryChange) {
        if change.removes_all {
            self.forget_loaded();
            self.libraries = Libraries::default();
        }
        for name in change.removed.iter().chain(change.new.iter().map(|(name, _)| name)) {
            if let Some(machine) = &mut self.machine {
                machine.loaded.remove(name);
            }
            self.libraries.remove(name);
        }
        change.new.iter().for_each(|(name, library)| self.libraries.put(name, library.clone()));
    }

    fn forget_loaded(&mut self) {
        if let Some(machine) = &mut self.machine {
            machine.loaded.clear();
        }
    }

    /// Runs a library, and gives what it registers. After one that did not end, the interpreter is made anew.
    fn register(&mut self, code: &[u8], until: Instant) -> Result<(Vec<functions::Function>, Callbacks), CommandError> {
        let registered = machine(&mut self.machine, &self.watch)?.register(code, &self.watch, until);
        registered.map_err(|refusal| {
            if refusal.has_broken_off {
                self.machine = None;
            }
            CommandError::from(refusal.text)
        })
    }

    /// A function of a library, which is loaded again if the interpreter is a new one.
    pub(super) fn loaded(&mut self, function: &[u8]) -> Result<Compiled, CommandError> {
        let unknown = || CommandError::text("ERR Function not found");
        let (name, found) = self.libraries.function(function).ok_or_else(unknown)?;
        let (nature, function) = (Nature::of(found.flags.iter().copied()), found.name.clone());
        let loaded = |machine: &Option<Machine>, name: &[u8]| {
            machine
                .as_ref()
                .and_then(|machine| machine.loaded.get(name))
                .and_then(|found| found.get(&function).cloned())
        };
        if let Some(function) = loaded(&self.machine, name) {
            return Ok(Compiled { function, nature });
        }
        let (name, text) = (name.to_vec(), Arc::clone(&self.libraries.get(name).ok_or_else(unknown)?.text));
        let (_, code) = functions::name_of(&text)?;
        let (_, callbacks) = self.register(code, Instant::now() + LOAD_TIME)?;
        if let Some(machine) = &mut self.machine {
            machine.loaded.insert(name.clone().into(), callbacks);
        }
        let function = loaded(&self.machine, &name).ok_or_else(unknown)?;
        Ok(Compiled { function, nature })
    }
}

/// Why a library does not come.
struct Refusal {
    text: String,
    /// Whether it did not end by itself.
    has_broken_off: bool,
}

impl Machine {
    fn register(
        &self,
        code: &[u8],
        watch: &Watch,
        until: Instant,
    ) -> Result<(Vec<functions::Function>, Callbacks), Refusal> {
        let refused = |what: &str, why: &str, has_broken_off| Refusal {
            text: format!("ERR Error {what}: {}", one_line(why)),
            has_broken_off,
        };
        let registering = |why: &str, has_broken_off| refused("registering functions", why, has_broken_off);
        let chunk = self.lua.load(code).set_name(LIBRARY_CHUNK).set_mode(mlua::chunk::ChunkMode::Text);
        let chunk = chunk.into_function().map_err(|error| refused("compiling function", &message(&error), false))?;
        watch.start(until.saturating_duration_since(Instant::now()), Duration::ZERO);
        let registered = watch.hook(&self.lua).and_then(|()| self.load.call::<(bool, Value)>(chunk));
        self.lua.remove_hook();
        let stopped = watch.stopped();
        watch.end();
        match (registered, stopped) {
            (_, Some(_)) => Err(registering("FUNCTION LOAD timeout", true)),
            (Ok((true, entries)), None) => entries_of(&entries).map_err(|error| registering(&message(&error), true)),
            (Ok((false, Value::Table(refusal))), None) => {
                let text = refusal.raw_get::<LuaString>("err").map(|text| text.to_string_lossy());
                Err(registering(&text.unwrap_or_else(|error| message(&error)), false))
            }
            (Ok((false, _)), None) => Err(registering("ERR unknown error", true)),
            (Err(error), None) => Err(registering(&message(&error), true)),
        }
    }
}

/// What a library has registered, out of the prelude's list.
fn entries_of(entries: &Value) -> mlua::Result<(Vec<functions::Function>, Callbacks)> {
    let (mut known, mut callbacks) = (Vec::new(), Callbacks::new());
    let Value::Table(entries) = entries else { return Ok((known, callbacks)) };
    for entry in entries.sequence_values::<Table>() {
        let entry = entry?;
        let name: Box<[u8]> = entry.raw_get::<LuaString>("name")?.as_bytes().to_vec().into();
        let description = entry.raw_get::<Option<LuaString>>("description")?;
        let description = description.map(|text| text.as_bytes().to_vec().into());
        let given: Vec<String> = entry.raw_get("flags")?;
        let flags = functions::FLAGS.into_iter().filter(|flag| given.iter().any(|given| given == flag)).collect();
        known.push(functions::Function { name: name.clone(), description, flags });
        callbacks.insert(name, entry.raw_get("callback")?);
    }
    Ok((known, callbacks))
}
