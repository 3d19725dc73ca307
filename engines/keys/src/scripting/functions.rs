//! Libraries of functions: what is known of them, without the interpreter.
//!
//! A library is a script that is run once, and registers functions then. One thread decides which libraries come; the others are told.

use std::collections::BTreeMap;
use std::sync::Arc;

use hashbrown::HashMap;

use crate::error::CommandError;

/// Bytes that the texts of all libraries have together.
const LIBRARIES_BYTES_MAX: usize = 64 << 20;

/// What a function may say of itself.
pub(super) const FLAGS: [&str; 5] = [NO_WRITES, ALLOW_OOM, "allow-stale", "no-cluster", "allow-cross-slot-keys"];
pub(super) const NO_WRITES: &str = "no-writes";
pub(super) const ALLOW_OOM: &str = "allow-oom";

type Name = Box<[u8]>;

/// A function of a library.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Function {
    /// Its name.
    pub name: Name,
    /// What it is for, if the library says so.
    pub description: Option<Box<[u8]>>,
    /// What it says of itself, of [`FLAGS`].
    pub flags: Vec<&'static str>,
}

impl Function {
    /// Whether it says that it changes nothing.
    pub(crate) fn is_readonly(&self) -> bool {
        self.flags.contains(&NO_WRITES)
    }
}

/// A library.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Library {
    /// Its text, with the line that names it.
    pub text: Arc<[u8]>,
    /// What it has registered.
    pub functions: Vec<Function>,
}

/// What becomes of libraries that are there when others are restored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// They stay; one with the name of another is refused.
    Append,
    /// They stay, but for those with the name of another.
    Replace,
    /// They are deleted.
    Flush,
}

/// How libraries are to change.
#[derive(Clone, Debug)]
pub enum LibraryRequest {
    /// One is to come.
    Load {
        /// Its text.
        text: Vec<u8>,
        /// Whether it may take another one's place.
        replaces: bool,
    },
    /// One is to go.
    Delete(Vec<u8>),
    /// All are to go.
    Flush,
    /// Several are to come.
    Restore {
        /// Their texts.
        texts: Vec<Vec<u8>>,
        /// What becomes of those that are there.
        policy: Policy,
    },
}

impl LibraryRequest {
    /// About how many bytes it takes in the log.
    pub(crate) fn byte_count(&self) -> usize {
        match self {
            Self::Load { text, .. } => text.len(),
            Self::Delete(name) => name.len(),
            Self::Flush => 0,
            Self::Restore { texts, .. } => texts.iter().map(Vec::len).sum(),
        }
    }
}

/// What has become of libraries: those that went, then those that came.
#[derive(Clone, Debug, Default)]
pub struct LibraryChange {
    /// Whether all that were there went.
    pub(crate) removes_all: bool,
    /// Those that went.
    pub(crate) removed: Vec<Name>,
    /// Those that came, or took the place of another.
    pub(crate) new: Vec<(Name, Library)>,
}

/// All libraries, by name.
#[derive(Clone, Debug, Default)]
pub(crate) struct Libraries {
    by_name: BTreeMap<Name, Library>,
    /// Which library a function is of, by its name in small letters.
    owners: HashMap<Name, Name>,
}

impl Libraries {
    /// All, by name.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&[u8], &Library)> {
        self.by_name.iter().map(|(name, library)| (&**name, library))
    }

    /// How many functions there are.
    pub(crate) fn function_count(&self) -> usize {
        self.owners.len()
    }

    /// A library.
    pub(crate) fn get(&self, name: &[u8]) -> Option<&Library> {
        self.by_name.get(name)
    }

    /// A function by its name in any letters, and the name of its library.
    pub(crate) fn function(&self, name: &[u8]) -> Option<(&[u8], &Function)> {
        let owner = self.owners.get(&*name.to_ascii_lowercase())?;
        let mut functions = self.by_name.get(owner)?.functions.iter();
        Some((owner, functions.find(|function| function.name.eq_ignore_ascii_case(name))?))
    }

    /// Takes a library in, instead of the one of its name.
    ///
    /// # Errors
    /// If it has no functions or one of another library, or if there is no room for it. Nothing has changed then.
    pub(super) fn insert(&mut self, name: &[u8], library: Library) -> Result<(), CommandError> {
        if library.functions.is_empty() {
            return Err(CommandError::text("ERR No functions registered"));
        }
        let owner = |function: &Function| self.owners.get(&*function.name.to_ascii_lowercase());
        let of_another = |function: &&Function| owner(function).is_some_and(|owner| **owner != *name);
        if let Some(function) = library.functions.iter().find(of_another) {
            let name = function.name.escape_ascii();
            return Err(CommandError::from(format!("ERR Function {name} already exists")));
        }
        let others = self.by_name.iter().filter(|(other, _)| ***other != *name);
        let bytes = others.map(|(_, library)| library.text.len()).sum::<usize>();
        if bytes + library.text.len() > LIBRARIES_BYTES_MAX {
            return Err(CommandError::text(
                "ERR all libraries together have at most 64 MiB; FUNCTION DELETE removes those that nobody uses",
            ));
        }
        self.put(name, library);
        Ok(())
    }

    /// Takes a library in that another thread has.
    pub(super) fn put(&mut self, name: &[u8], library: Library) {
        self.remove(name);
        self.owners
            .extend(library.functions.iter().map(|function| (function.name.to_ascii_lowercase().into(), name.into())));
        self.by_name.insert(name.into(), library);
    }

    /// Forgets a library. Says whether there was one.
    pub(super) fn remove(&mut self, name: &[u8]) -> bool {
        let removed = self.by_name.remove(name);
        removed
            .iter()
            .flat_map(|library| &library.functions)
            .for_each(|function| drop(self.owners.remove(&*function.name.to_ascii_lowercase())));
        removed.is_some()
    }
}

/// The name of a library out of its first line, and the text without it. (The line stays as an empty one.)
///
/// # Errors
/// If there is none, or no library can have it.
pub(super) fn name_of(text: &[u8]) -> Result<(&[u8], &[u8]), CommandError> {
    let line = text.strip_prefix(b"#!").ok_or(CommandError::text("ERR Missing library metadata"))?;
    let end = line.iter().position(|byte| *byte == b'\n').ok_or(CommandError::text("ERR Invalid library metadata"))?;
    let (line, rest) = line.split_at(end);
    let mut words = line.split(u8::is_ascii_whitespace);
    // Nothing may stand before it.
    let engine = words.next().unwrap_or_default();
    let mut name = None;
    for word in words.filter(|word| !word.is_empty()) {
        let Some(given) = word.strip_prefix(b"name=") else {
            return Err(CommandError::from(format!("ERR Invalid metadata value given: {}", word.escape_ascii())));
        };
        let given = match given {
            [b'"', quoted @ .., b'"'] | [b'\'', quoted @ .., b'\''] => quoted,
            plain => plain,
        };
        if name.replace(given).is_some() {
            return Err(CommandError::text("ERR Invalid metadata value, name argument was given multiple times"));
        }
    }
    let name = name.ok_or(CommandError::text("ERR Library name was not given"))?;
    if !is_name(name) {
        return Err(no_name());
    }
    if !engine.eq_ignore_ascii_case(b"lua") {
        return Err(CommandError::from(format!("ERR Engine '{}' not found", engine.escape_ascii())));
    }
    Ok((name, rest))
}

/// Whether a library, or a function, may have a name.
pub(super) fn is_name(name: &[u8]) -> bool {
    !name.is_empty() && name.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'_')
}

/// What a name is refused with.
pub(super) const fn no_name() -> CommandError {
    CommandError::text(
        "ERR Library names can only contain letters, numbers, or underscores(_) and must be at least one character long",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn library(functions: &[&str]) -> Library {
        let function = |name: &&str| Function { name: name.as_bytes().into(), description: None, flags: Vec::new() };
        Library { text: Arc::from(&b"text"[..]), functions: functions.iter().map(function).collect() }
    }

    #[test]
    fn the_first_line_names_a_library() {
        assert_eq!(name_of(b"#!lua name=lib_1\nx").ok(), Some((&b"lib_1"[..], &b"\nx"[..])));
        assert!(name_of(b"#!LUA  name=a \n").is_ok());
        assert_eq!(name_of(b"#!lua name=\"a\"\n").ok(), Some((&b"a"[..], &b"\n"[..])));
        for bad in [
            "x",
            "#!lua name=a",
            "#!lua\n",
            "#!js name=a\n",
            "#! name=a\n",
            "#!lua name=a-b\n",
            "#!lua name=\n",
            "#!lua name=a name=b\n",
        ] {
            assert!(name_of(bad.as_bytes()).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_function_is_of_one_library() {
        let mut libraries = Libraries::default();
        libraries.insert(b"one", library(&["f", "g"])).expect("it is new");
        assert!(libraries.insert(b"two", library(&["g"])).is_err());
        assert!(libraries.insert(b"two", library(&[])).is_err());
        assert_eq!((libraries.function_count(), libraries.get(b"two")), (2, None), "nothing has changed");
        // Replaced, it gives up what it had.
        libraries.insert(b"one", library(&["f", "h"])).expect("its own functions are in nobody's way");
        libraries.insert(b"two", library(&["g"])).expect("it is free by now");
        assert_eq!(libraries.function(b"h").map(|(owner, _)| owner), Some(&b"one"[..]));
        assert!(libraries.remove(b"one") && !libraries.remove(b"one"));
        assert!(libraries.function(b"h").is_none() && libraries.function(b"g").is_some());
        assert!(libraries.get(b"two").is_some());
    }
}
