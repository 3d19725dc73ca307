//! What the interpreter does for libraries: it runs them once, and keeps what they register.

use std::time::Duration;

use hashbrown::HashMap;
use mlua::{Function, LuaString, Table, Value};

use super::functions::{self, Libraries, Library, Policy};
use super::{Compiled, LIBRARY_CHUNK, Machine, Scripts, Watch, machine, message, one_line};
use crate::error::CommandError;

/// How long a library may run to register its functions.
const LOAD_TIME: Duration = Duration::from_secs(5);

type Callbacks = HashMap<Box<[u8]>, Function>;

impl Scripts {
    /// All libraries.
    pub(crate) const fn libraries(&self) -> &Libraries {
        &self.libraries
    }

    /// Loads a library, and gives its name.
    ///
    /// # Errors
    /// Why it is none, or not to come. Nothing has changed then.
    pub(crate) fn load_library(&mut self, text: &[u8], replaces: bool) -> Result<Box<[u8]>, CommandError> {
        let outcome = self.try_to_load(text, replaces, |name| format!("ERR Library '{name}' already exists"));
        self.give_back();
        outcome
    }

    /// Loads a library; what it is refused with if there is one of its name is the caller's, as Redis has two ways to say so.
    fn try_to_load(
        &mut self,
        text: &[u8],
        replaces: bool,
        is_there: impl FnOnce(std::slice::EscapeAscii<'_>) -> String,
    ) -> Result<Box<[u8]>, CommandError> {
        let (name, code) = functions::name_of(text)?;
        if !replaces && self.libraries.get(name).is_some() {
            return Err(CommandError::from(is_there(name.escape_ascii())));
        }
        let machine = machine(&mut self.machine, &self.watch)?;
        let (functions, callbacks) = machine.register(code, &self.watch)?;
        self.libraries.insert(name, Library { text: text.into(), functions })?;
        machine.loaded.insert(name.into(), callbacks);
        Ok(name.into())
    }

    /// Loads libraries beside those that are there, or instead of them.
    ///
    /// # Errors
    /// Why one of them is not to come. Nothing has changed then.
    pub(crate) fn restore_libraries(&mut self, texts: &[Vec<u8>], policy: Policy) -> Result<(), CommandError> {
        let before = self.libraries.clone();
        if policy == Policy::Flush {
            self.forget_libraries();
        }
        let replaces = policy == Policy::Replace;
        let is_there = |name: std::slice::EscapeAscii<'_>| format!("ERR Library {name} already exists");
        let outcome = texts.iter().try_for_each(|text| self.try_to_load(text, replaces, is_there).map(drop));
        if outcome.is_err() {
            self.forget_libraries();
            self.libraries = before;
        }
        self.give_back();
        outcome
    }

    /// Forgets a library. Says whether there was one.
    pub(crate) fn forget_library(&mut self, name: &[u8]) -> bool {
        if let Some(machine) = &mut self.machine {
            machine.loaded.remove(name);
        }
        self.libraries.remove(name)
    }

    /// Forgets all libraries.
    pub(crate) fn forget_libraries(&mut self) {
        if let Some(machine) = &mut self.machine {
            machine.loaded.clear();
        }
        self.libraries = Libraries::default();
    }

    /// A function of a library, which is loaded again if the interpreter is a new one.
    pub(super) fn loaded(&mut self, function: &[u8]) -> Result<Compiled, CommandError> {
        let unknown = || CommandError::text("ERR Function not found");
        let (name, found) = self.libraries.function(function).ok_or_else(unknown)?;
        let is_readonly = found.is_readonly();
        let machine = machine(&mut self.machine, &self.watch)?;
        if !machine.loaded.contains_key(name) {
            let library = self.libraries.get(name).ok_or_else(unknown)?;
            let (_, code) = functions::name_of(&library.text)?;
            let (_, callbacks) = machine.register(code, &self.watch)?;
            machine.loaded.insert(name.into(), callbacks);
        }
        let callback = machine.loaded.get(name).and_then(|callbacks| callbacks.get(function)).ok_or_else(unknown)?;
        Ok(Compiled { function: callback.clone(), is_readonly })
    }
}

impl Machine {
    /// Runs a library, and gives what it registers.
    fn register(&self, code: &[u8], watch: &Watch) -> Result<(Vec<functions::Function>, Callbacks), CommandError> {
        let chunk = self.lua.load(code).set_name(LIBRARY_CHUNK).set_mode(mlua::chunk::ChunkMode::Text);
        let chunk = chunk.into_function().map_err(|error| {
            CommandError::from(format!("ERR Error compiling function: {}", one_line(&message(&error))))
        })?;
        watch.start(LOAD_TIME);
        let registered = watch.hook(&self.lua).and_then(|()| self.load.call::<(bool, Value)>(chunk));
        self.lua.remove_hook();
        let stopped = watch.stopped();
        watch.end();
        let refused = |why: &str| CommandError::from(format!("ERR Error registering functions: {}", one_line(why)));
        if let Some(stopped) = stopped {
            return Err(refused(&format!("ERR {}", stopped.0)));
        }
        match registered {
            Ok((true, entries)) => entries_of(&entries).map_err(|error| refused(&message(&error))),
            Ok((false, Value::Table(refusal))) => {
                let text = refusal.raw_get::<LuaString>("err").map(|text| text.to_string_lossy());
                Err(refused(&text.unwrap_or_else(|error| message(&error))))
            }
            Ok((false, _)) => Err(refused("ERR unknown error")),
            Err(error) => Err(refused(&message(&error))),
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
