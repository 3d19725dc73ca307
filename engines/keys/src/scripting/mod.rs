//! Scripts and functions in Lua 5.1, as Redis has them.
//!
//! A script is a transaction over the keys that it declares: it runs where they all are, or where they were borrowed to
//! (see [`crate::actor`]). It sees nothing but its arguments, the keys, and the libraries that Redis gives to scripts, and
//! leaves nothing behind. One that runs too long or takes too much memory is stopped with an error; what it wrote before
//! stays, as with any other error.
//!
//! A function is a script that stays: a library registers it once, under a name. What a library keeps between calls, in local variables, each
//! thread keeps for itself, and loses when its interpreter is made anew.

mod bits;
mod convert;
mod functions;
mod json;
mod libraries;
mod msgpack;
mod pattern;
mod strings;
mod structs;
mod watch;

use std::cell::{Cell, RefCell};
use std::time::Duration;

use hashbrown::{HashMap, HashSet};
use mlua::{Function, Lua, LuaOptions, MultiValue, StdLib, Table, Value};

pub(crate) use self::functions::{Libraries, Library, LibraryChange, LibraryRequest, Policy};
pub(crate) use self::watch::{Kill, Watch};
use self::watch::{Steps, Stopped};
use crate::actor::Actor;
use crate::commands::server::REDIS_VERSION;
use crate::error::CommandError;
use crate::reply::{self, Reply, Tape};
use crate::request::OwnedArgs;

/// Bytes that a script may take.
const MEMORY_BYTES_MAX: usize = 256 << 20;
/// Bytes that an interpreter may keep when no script runs.
const KEPT_BYTES_MAX: usize = 64 << 20;
/// Bytes of the texts that an actor knows.
const SOURCE_BYTES_MAX: usize = 64 << 20;
/// [`REDIS_VERSION`] as a number, a byte per part.
const REDIS_VERSION_NUMBER: u32 = 0x07_00_0f;
/// The names of a script's text in messages, and of a library's.
const CHUNK: &str = "@user_script";
const LIBRARY_CHUNK: &str = "@user_function";

/// The name of a script: the hexadecimal SHA-1 of its text.
pub(crate) type Digest = [u8; 40];

/// The scripts that an actor knows, and what runs them.
#[derive(Debug, Default)]
pub(crate) struct Scripts {
    machine: Option<Machine>,
    sources: HashMap<Digest, Source>,
    source_bytes: usize,
    libraries: Libraries,
    /// Over the script that runs.
    watch: Watch,
}

/// A script's text.
#[derive(Debug)]
struct Source {
    text: Box<[u8]>,
    /// Whether it is kept until somebody wants all to be forgotten: it came by `SCRIPT LOAD`, and not to be run once.
    is_loaded: bool,
}

/// An interpreter with compiled scripts.
#[derive(Debug)]
struct Machine {
    lua: Lua,
    /// The functions of the prelude.
    run: Function,
    load: Function,
    invoke: Function,
    compiled: HashMap<Digest, Compiled>,
    /// What libraries have registered, by their names.
    loaded: HashMap<Box<[u8]>, Callbacks>,
}

/// Functions of a library, by their names.
type Callbacks = HashMap<Box<[u8]>, Function>;

#[derive(Clone, Debug)]
struct Compiled {
    function: Function,
    nature: Nature,
}

/// What a script or function says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Nature {
    /// Whether it may change nothing.
    is_readonly: bool,
    room: Room,
}

/// What becomes of it where there is no room for more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Room {
    /// Its commands are refused that may need some: it says nothing of itself.
    OfCommands,
    /// It does not run.
    Needed,
    /// It runs, and so do its commands.
    Unneeded,
}

impl Nature {
    /// Of a script that says nothing of itself.
    const UNSAID: Self = Self { is_readonly: false, room: Room::OfCommands };

    /// Of what has these flags.
    fn of<'a>(flags: impl IntoIterator<Item = &'a str>) -> Self {
        let mut nature = Self { is_readonly: false, room: Room::Needed };
        for flag in flags {
            nature.is_readonly |= flag == functions::NO_WRITES;
            if matches!(flag, functions::NO_WRITES | functions::ALLOW_OOM) {
                nature.room = Room::Unneeded;
            }
        }
        nature
    }
}

/// What is run.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Named<'a> {
    /// A script.
    Script(&'a Digest),
    /// A function of a library.
    Function(&'a [u8]),
}

impl Named<'_> {
    /// What it is called in messages, and its text.
    fn in_messages(&self) -> (std::borrow::Cow<'_, str>, &'static str) {
        match self {
            Self::Script(digest) => (String::from_utf8_lossy(&digest[..]), CHUNK),
            Self::Function(name) => (String::from_utf8_lossy(name), LIBRARY_CHUNK),
        }
    }
}

/// What a script runs with.
pub(crate) struct Invocation<'a> {
    /// Which it is.
    pub named: Named<'a>,
    /// The keys that it declares.
    pub keys: Vec<&'a [u8]>,
    /// Its other arguments.
    pub arguments: Vec<&'a [u8]>,
    /// Whether it may change nothing.
    pub is_readonly: bool,
}

/// A refusal by one of the libraries.
struct Refused(String);

type Given = Result<MultiValue, Refused>;
type LibraryFunction = fn(&Lua, &[Value]) -> Given;

impl From<mlua::Error> for Refused {
    fn from(error: mlua::Error) -> Self {
        Self(message(&error))
    }
}

impl From<Stopped> for Refused {
    fn from(Stopped(text): Stopped) -> Self {
        Self(text)
    }
}

impl From<&str> for Refused {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

/// A reply of a command that a script raises as an error.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct RefusedCommand(String);

/// The text of an error that a script raised, and whether it is a reply.
fn raised(error: &mlua::Error) -> (String, bool) {
    match error.downcast_ref::<RefusedCommand>() {
        Some(RefusedCommand(text)) => (text.clone(), true),
        None => (message(error), false),
    }
}

/// An error's own text, without where Rust saw it.
fn message(error: &mlua::Error) -> String {
    match error {
        mlua::Error::RuntimeError(text) | mlua::Error::SyntaxError { message: text, .. } => text.clone(),
        mlua::Error::MemoryError(_) => "not enough memory".to_owned(),
        mlua::Error::CallbackError { cause, .. } => message(cause),
        other => other.to_string(),
    }
}

/// The name of a script.
pub(crate) fn digest(source: &[u8]) -> Digest {
    use sha1::Digest as _;
    let mut hexadecimal = [0; 40];
    for (pair, byte) in hexadecimal.as_chunks_mut::<2>().0.iter_mut().zip(sha1::Sha1::digest(source)) {
        *pair = [byte >> 4, byte & 15].map(|digit| b"0123456789abcdef"[usize::from(digit)]);
    }
    hexadecimal
}

impl Scripts {
    /// Bytes that the interpreter takes.
    pub(crate) fn memory(&self) -> usize {
        self.machine.as_ref().map_or(0, |machine| machine.lua.used_memory())
    }

    /// Bytes of the scripts' texts.
    pub(crate) const fn source_bytes(&self) -> usize {
        self.source_bytes
    }

    /// How many scripts there are.
    pub(crate) fn count(&self) -> usize {
        self.sources.len()
    }

    /// Whether a script is known.
    pub(crate) fn knows(&self, digest: &[u8]) -> bool {
        self.sources.contains_key(digest)
    }

    /// The text of a script that is known.
    pub(crate) fn text(&self, digest: &Digest) -> Option<&[u8]> {
        self.sources.get(digest).map(|source| &*source.text)
    }

    /// Whether the script that a request of this command names, by its text or its digest, or the function, says that it changes nothing.
    pub(crate) fn only_reads(&self, command: &str, named: &[u8]) -> bool {
        if command == "fcall" {
            return self.libraries.function(named).is_some_and(|(_, function)| function.is_readonly());
        }
        let source = if command == "evalsha" {
            let digest = Digest::try_from(named.to_ascii_lowercase());
            digest.ok().and_then(|digest| self.sources.get(&digest)).map(|source| &*source.text)
        } else {
            Some(named)
        };
        source.is_some_and(|source| without_first_line(source).is_ok_and(|(nature, _)| nature.is_readonly))
    }

    /// Keeps a script, for ever if it is loaded; others are forgotten when they are too many. Says whether it is new.
    ///
    /// # Errors
    /// If those that are loaded leave no room for it.
    pub(crate) fn learn(&mut self, digest: Digest, text: &[u8], is_loaded: bool) -> Result<bool, CommandError> {
        if let Some(known) = self.sources.get_mut(&digest) {
            known.is_loaded |= is_loaded;
            return Ok(false);
        }
        if self.source_bytes + text.len() > SOURCE_BYTES_MAX {
            self.sources.retain(|_, source| source.is_loaded);
            self.source_bytes = self.sources.values().map(|source| source.text.len()).sum();
            // With what it compiled of them.
            self.machine = None;
        }
        if self.source_bytes + text.len() > SOURCE_BYTES_MAX {
            return Err(CommandError::text(
                "ERR all loaded scripts together have at most 64 MiB; SCRIPT FLUSH removes them",
            ));
        }
        self.source_bytes += text.len();
        self.sources.insert(digest, Source { text: text.into(), is_loaded });
        Ok(true)
    }

    /// Forgets a script.
    pub(crate) fn unlearn(&mut self, digest: &Digest) {
        if let Some(source) = self.sources.remove(digest) {
            self.source_bytes -= source.text.len();
        }
    }

    /// Gives back what the interpreter took for scripts that have ended. Lua 5.1 does so only as it goes: left to itself, it
    /// would refuse the next script for what the last one has left behind.
    fn give_back(&mut self) {
        let keeps_much = |machine: &Machine| machine.lua.used_memory() > KEPT_BYTES_MAX;
        if let Some(machine) = self.machine.as_ref().filter(|machine| keeps_much(machine))
            && (machine.lua.gc_collect().is_err() || keeps_much(machine))
        {
            self.machine = None;
        }
    }

    /// Forgets all scripts.
    pub(crate) fn forget(&mut self) {
        (self.machine, self.source_bytes) = (None, 0);
        self.sources.clear();
    }

    /// The watch over the script that runs.
    pub(crate) const fn watch(&self) -> &Watch {
        &self.watch
    }

    /// Compiles a script that is known.
    ///
    /// # Errors
    /// The compiler's, or if it is not known.
    pub(crate) fn compile(&mut self, digest: &Digest) -> Result<(), CommandError> {
        let outcome = self.compiled(digest).map(drop);
        self.give_back();
        outcome
    }

    fn compiled(&mut self, digest: &Digest) -> Result<Compiled, CommandError> {
        let source =
            self.sources.get(digest).ok_or(CommandError::text("NOSCRIPT No matching script. Please use EVAL."))?;
        let machine = machine(&mut self.machine, &self.watch)?;
        if let Some(compiled) = machine.compiled.get(digest) {
            return Ok(compiled.clone());
        }
        let (nature, text) = without_first_line(&source.text)?;
        let chunk = machine.lua.load(text).set_name(CHUNK).set_mode(mlua::chunk::ChunkMode::Text);
        let function = chunk.into_function().map_err(|error| {
            CommandError::from(format!("ERR Error compiling script (new function): {}", one_line(&message(&error))))
        })?;
        let compiled = Compiled { function, nature };
        machine.compiled.insert(*digest, compiled.clone());
        Ok(compiled)
    }
}

/// The interpreter, which is made if there is none.
fn machine<'a>(machine: &'a mut Option<Machine>, watch: &Watch) -> Result<&'a mut Machine, CommandError> {
    match machine {
        Some(machine) => Ok(machine),
        none => {
            Ok(none.insert(Machine::new(watch).map_err(|error| {
                CommandError::from(format!("ERR could not make an interpreter: {}", message(&error)))
            })?))
        }
    }
}

/// What `#!lua flags=...` in the first line says, and the script without it. (The line stays as an empty one.)
fn without_first_line(source: &[u8]) -> Result<(Nature, &[u8]), CommandError> {
    if !source.starts_with(b"#!") {
        return Ok((Nature::UNSAID, source));
    }
    let end = source.iter().position(|byte| *byte == b'\n');
    let end = end.ok_or(CommandError::text("ERR Invalid script shebang"))?;
    let line = String::from_utf8_lossy(&source[2..end]);
    let mut words = line.split_whitespace();
    let engine = words.next().unwrap_or_default();
    if engine != "lua" {
        return Err(CommandError::from(format!("ERR Unexpected engine in script shebang: #!{engine}")));
    }
    let mut given = Vec::new();
    for word in words {
        let flags = word
            .strip_prefix("flags=")
            .ok_or_else(|| CommandError::from(format!("ERR Unknown lua shebang option: {word}")))?;
        given.extend(flags.split(',').filter(|flag| !flag.is_empty()));
    }
    if let Some(other) = given.iter().find(|flag| !functions::FLAGS.contains(flag)) {
        return Err(CommandError::from(format!("ERR Unexpected flag in script shebang: {other}")));
    }
    Ok((Nature::of(given), &source[end..]))
}

fn one_line(text: &str) -> String {
    text.replace(['\r', '\n'], " ")
}

impl Machine {
    fn new(watch: &Watch) -> mlua::Result<Self> {
        let libraries = StdLib::TABLE | StdLib::STRING | StdLib::MATH;
        let lua = Lua::new_with(libraries, LuaOptions::default())?;
        lua.set_memory_limit(MEMORY_BYTES_MAX)?;
        lua.set_app_data(watch.clone());
        let native = lua.create_table()?;
        native.raw_set("bit", library(&lua, bits::FUNCTIONS)?)?;
        let cjson = library(&lua, json::FUNCTIONS)?;
        cjson.raw_set("null", Value::NULL)?;
        native.raw_set("cjson", cjson)?;
        native.raw_set("cmsgpack", library(&lua, msgpack::FUNCTIONS)?)?;
        native.raw_set("struct", library(&lua, structs::FUNCTIONS)?)?;
        native.raw_set("string", library(&lua, strings::FUNCTIONS)?)?;
        let over = watch.clone();
        native.raw_set("stopped", lua.create_function(move |_, ()| Ok(over.stopped().map(|stopped| stopped.0)))?)?;
        let redis = library(&lua, &[("sha1hex", sha1hex), ("log", log)])?;
        redis.raw_set("REDIS_VERSION", REDIS_VERSION)?;
        redis.raw_set("REDIS_VERSION_NUM", REDIS_VERSION_NUMBER)?;
        native.raw_set("redis", redis)?;
        let over = watch.clone();
        native.raw_set("look", lua.create_function(move |_, ()| Ok(over.look()?))?)?;
        let over = watch.clone();
        native.raw_set("pace", lua.create_function(move |lua, ()| over.pace(lua))?)?;
        native.raw_set("memory", MEMORY_BYTES_MAX)?;
        native.raw_set("flags", lua.create_table_from(functions::FLAGS.map(|flag| (flag, true)))?)?;
        native.raw_set("check_name", lua.create_function(|_, name: mlua::LuaString| check_name(&name))?)?;
        native.raw_set("message", lua.create_function(|_, error: mlua::Error| Ok(raised(&error)))?)?;
        native.raw_set("line", lua.create_function(|lua, ()| Ok(present_line(lua).map(|(_, line)| line)))?)?;
        let (run, load, invoke) = lua.load(include_str!("prelude.lua")).set_name("=prelude").call(native)?;
        Ok(Self { lua, run, load, invoke, compiled: HashMap::new(), loaded: HashMap::new() })
    }
}

/// Raises an error if no function may have a name.
fn check_name(name: &mlua::LuaString) -> mlua::Result<()> {
    match functions::is_name(&name.as_bytes()) {
        true => Ok(()),
        false => Err(mlua::Error::external(RefusedCommand(functions::no_name().to_string()))),
    }
}

/// The line of the script or function that runs now, behind the name of its text.
fn present_line(lua: &Lua) -> Option<(&'static str, usize)> {
    const DEPTH: usize = 32;
    (1..DEPTH).find_map(|level| {
        lua.inspect_stack(level, |frame| {
            let source = frame.source().source?;
            let chunk = [CHUNK, LIBRARY_CHUNK].into_iter().find(|chunk| source == *chunk)?;
            Some((chunk, frame.current_line()?))
        })?
    })
}

fn library(lua: &Lua, functions: &[(&str, LibraryFunction)]) -> mlua::Result<Table> {
    let table = lua.create_table()?;
    for (name, function) in functions {
        let function = *function;
        let raising = lua.create_function(move |lua, args: MultiValue| {
            let args: Vec<Value> = args.into_iter().collect();
            let given = function(lua, &args).map_err(|refused| raising(lua, refused))?;
            if let Some(watch) = lua.app_data_ref::<Watch>() {
                watch.look()?;
                watch.pace(lua)?;
            }
            Ok(given)
        })?;
        table.raw_set(*name, raising)?;
    }
    Ok(table)
}

/// A library's refusal as an error, with the line of the script.
fn raising(lua: &Lua, Refused(text): Refused) -> mlua::Error {
    mlua::Error::RuntimeError(match present_line(lua) {
        Some((chunk, line)) => format!("{}:{line}: {text}", &chunk[1..]),
        None => text,
    })
}

/// A byte string among a library function's arguments, numbers included.
fn bytes_at(args: &[Value], index: usize) -> Result<Vec<u8>, Refused> {
    match args.get(index) {
        Some(Value::String(text)) => Ok(text.as_bytes().to_vec()),
        Some(Value::Integer(number)) => Ok(number.to_string().into_bytes()),
        Some(Value::Number(number)) => Ok(crate::number::general(*number, 14).into_bytes()),
        _ => Err(Refused(format!("bad argument #{} (string expected)", index + 1))),
    }
}

/// A number among a library function's arguments.
fn number_at(args: &[Value], index: usize) -> Result<f64, Refused> {
    match args.get(index) {
        Some(Value::Integer(number)) => Some(*number as f64),
        Some(Value::Number(number)) => Some(*number),
        Some(Value::String(text)) => str::from_utf8(&text.as_bytes()).ok().and_then(|text| text.trim().parse().ok()),
        _ => None,
    }
    .ok_or_else(|| Refused(format!("bad argument #{} (number expected)", index + 1)))
}

fn text(lua: &Lua, bytes: &[u8]) -> Given {
    Ok(MultiValue::from_iter([Value::String(lua.create_string(bytes)?)]))
}

/// `redis.sha1hex(text)`
fn sha1hex(lua: &Lua, args: &[Value]) -> Given {
    if args.len() != 1 {
        return Err("wrong number of arguments".into());
    }
    text(lua, &digest(&bytes_at(args, 0)?))
}

/// `redis.log(level, text ...)`
fn log(_: &Lua, args: &[Value]) -> Given {
    if args.len() < 2 {
        return Err("redis.log() requires two arguments or more.".into());
    }
    let level = number_at(args, 0).map_err(|_| Refused::from("First argument must be a number (log level)."))?;
    if !(0.0..=3.0).contains(&level) {
        return Err("Invalid log level.".into());
    }
    let words: Vec<Vec<u8>> = (1..args.len()).filter_map(|index| bytes_at(args, index).ok()).collect();
    let words = words.join(&b' ');
    let words = String::from_utf8_lossy(&words);
    match level as u8 {
        0 | 1 => tracing::debug!(script = %words),
        2 => tracing::info!(script = %words),
        _ => tracing::warn!(script = %words),
    }
    Ok(MultiValue::new())
}

impl Actor {
    /// Runs a script that is known, and whose keys are all at hand.
    ///
    /// # Errors
    /// If it is not known or cannot be compiled.
    pub(crate) fn run_script(
        &mut self,
        invocation: &Invocation<'_>,
        database: u8,
        reply: &mut dyn Reply,
    ) -> Result<(), CommandError> {
        let mut scripts = std::mem::take(&mut self.scripts);
        self.begin_script();
        self.keys.is_in_script = true;
        let compiled = match invocation.named {
            Named::Script(digest) => scripts.compiled(digest),
            Named::Function(name) => scripts.loaded(name),
        };
        let had_room = self.script_has_room;
        let outcome = compiled.and_then(|compiled| {
            match compiled.nature.room {
                Room::Needed if !had_room => {
                    return Err(CommandError::text(
                        "OOM allow-oom flag is not set on the script, can not run it when used memory > 'maxmemory'",
                    ));
                }
                Room::Unneeded => self.script_has_room = true,
                Room::Needed | Room::OfCommands => {}
            }
            if let Some(machine) = &scripts.machine
                && let Err(error) = self.run_compiled(machine, &scripts.watch, &compiled, invocation, database, reply)
            {
                reply.error(&failure(&message(&error), None, &invocation.named));
            }
            Ok(())
        });
        self.script_has_room = had_room;
        scripts.give_back();
        self.keys.is_in_script = false;
        self.end_script();
        // Nothing that ran could learn a script meanwhile.
        self.scripts = scripts;
        outcome
    }

    fn run_compiled(
        &mut self,
        machine: &Machine,
        watch: &Watch,
        compiled: &Compiled,
        invocation: &Invocation<'_>,
        database: u8,
        reply: &mut dyn Reply,
    ) -> mlua::Result<()> {
        let lua = &machine.lua;
        json::forget_options(lua);
        let (limit, patience) = (self.config.script_time(), Duration::from_millis(self.config.busy_millis));
        let is_readonly = invocation.is_readonly || compiled.nature.is_readonly;
        let declared: HashSet<&[u8]> = invocation.keys.iter().copied().collect();
        let keys = convert::strings(lua, &invocation.keys)?;
        let arguments = convert::strings(lua, &invocation.arguments)?;
        watch.hook(lua)?;
        watch.note_function(matches!(invocation.named, Named::Function(_)));
        watch.start(limit, patience);
        let mut session = crate::session::Session::of_script(database, self.users());
        let protocol = Cell::new(2);
        let actor = RefCell::new(self);
        let run = RefCell::new(|args: MultiValue| {
            let args: Vec<Value> = args.into_iter().collect();
            let mut tape = Tape::new();
            match convert::words(&args) {
                Ok(words) => {
                    let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
                    let request = OwnedArgs::of_words(&words);
                    actor.borrow_mut().run_from_script(
                        &mut session,
                        request.args(),
                        &declared,
                        is_readonly,
                        watch,
                        &mut tape,
                    );
                }
                Err(refusal) => tape.error(refusal),
            }
            tape
        });
        let outcome: mlua::Result<()> = lua.scope(|scope| {
            let pcall = scope.create_function(|lua, args| {
                watch.look()?;
                let value = convert::to_lua(lua, &(run.borrow_mut())(args), protocol.get(), watch)?;
                watch.pace(lua)?;
                Ok(value)
            })?;
            let call = scope.create_function(|lua, args| {
                watch.look()?;
                let tape = (run.borrow_mut())(args);
                match tape.first() {
                    Some(reply::Value::Error(text)) => Err(mlua::Error::external(RefusedCommand(text.to_owned()))),
                    _ => {
                        let value = convert::to_lua(lua, &tape, protocol.get(), watch)?;
                        watch.pace(lua)?;
                        Ok(value)
                    }
                }
            })?;
            watch.let_look_up(scope.create_function(|_, ()| {
                // Not while a command runs.
                if let Ok(mut actor) = actor.try_borrow_mut() {
                    actor.look_up(watch.is_busy());
                }
                Ok(())
            })?);
            let setresp = scope.create_function(|_, version: Value| match number_at(&[version], 0) {
                Ok(version) if version == 2.0 || version == 3.0 => {
                    protocol.set(version as u8);
                    Ok(())
                }
                _ => Err(mlua::Error::external(RefusedCommand("ERR RESP version must be 2 or 3.".to_owned()))),
            })?;
            let acl_check_cmd = scope.create_function(|_, args: MultiValue| {
                let args: Vec<Value> = args.into_iter().collect();
                let refusal = |text: &str| mlua::Error::external(RefusedCommand(text.to_owned()));
                let words = convert::words(&args).map_err(refusal)?;
                let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
                let allowed = actor.borrow().may_run_from_script(OwnedArgs::of_words(&words).args());
                allowed.map_err(|error| refusal(&error.to_string()))
            })?;
            let entry = match invocation.named {
                Named::Script(_) => &machine.run,
                Named::Function(_) => &machine.invoke,
            };
            let ended: mlua::Result<(bool, Value)> =
                entry.call((&compiled.function, keys, arguments, call, pcall, setresp, acl_check_cmd));
            lua.remove_hook();
            let told = match ended {
                _ if watch.stopped().is_some() => Err(mlua::Error::runtime("stopped")),
                Ok((true, value)) => convert::answer(&value, protocol.get(), watch, reply),
                Ok((false, error)) => refuse(&error, &invocation.named, reply),
                Err(error) => Err(error),
            };
            match (told, watch.stopped()) {
                (Err(_), Some(stopped)) => {
                    reply.error(&failure(&format!("ERR {}", stopped.0), None, &invocation.named));
                    Ok(())
                }
                (told, _) => told,
            }
        });
        lua.remove_hook();
        watch.end();
        outcome
    }
}

/// Answers with the error that a script ended with.
fn refuse(error: &Value, named: &Named<'_>, reply: &mut dyn Reply) -> mlua::Result<()> {
    match error {
        Value::Table(error) => {
            let text: mlua::LuaString = error.raw_get("err")?;
            let line: Option<usize> = error.raw_get("line")?;
            reply.error(&failure(&text.to_string_lossy(), line, named));
        }
        other => reply.error(&failure(&format!("ERR {}", other.to_string()?), None, named)),
    }
    Ok(())
}

/// An error's text with the script and the line where it happened.
fn failure(text: &str, line: Option<usize>, named: &Named<'_>) -> String {
    let text = one_line(text);
    let (name, chunk) = named.in_messages();
    match line {
        Some(line) => format!("{text} script: {name}, on {chunk}:{line}."),
        None => format!("{text} script: {name}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_is_named_by_its_digest() {
        assert_eq!(&digest(b"return 1"), b"e0e1f9fabfc9d4800c877a703b823ac0578ff8db");
    }

    #[test]
    fn the_first_line_tells_how_a_script_runs() {
        assert_eq!(without_first_line(b"return 1").ok(), Some((Nature::UNSAID, &b"return 1"[..])));
        let reading = Nature { is_readonly: true, room: Room::Unneeded };
        assert_eq!(without_first_line(b"#!lua flags=no-writes\nx").ok(), Some((reading, &b"\nx"[..])));
        let writing = Nature { is_readonly: false, room: Room::Needed };
        assert_eq!(without_first_line(b"#!lua flags=\nx").ok(), Some((writing, &b"\nx"[..])));
        for bad in ["#!lua", "#!js\n", "#!lua name=x\n", "#!lua flags=x\n"] {
            assert!(without_first_line(bad.as_bytes()).is_err(), "{bad}");
        }
    }
}
