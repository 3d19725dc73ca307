//! Names of objects, as SQL takes and writes them.

/// The longest name, PostgreSQL's.
pub const NAME_BYTES_MAX: usize = 63;

/// The part of a name that PostgreSQL keeps.
#[must_use]
pub fn cut(name: &str) -> &str {
    &name[..name.floor_char_boundary(NAME_BYTES_MAX)]
}

/// A word as SQL takes it: in lower case unless it is quoted. As in PostgreSQL, only letters of ASCII are folded.
pub fn folded(word: &str, quote: Option<char>) -> String {
    if quote.is_some() { word.to_owned() } else { word.to_ascii_lowercase() }
}

/// A name as SQL has to write it.
pub fn quoted(name: &str) -> String {
    let mut characters = name.chars();
    let plain = characters.next().is_some_and(|first| first.is_ascii_lowercase() || first == '_')
        && characters.all(|character| character.is_ascii_lowercase() || character.is_ascii_digit() || character == '_');
    if plain { name.to_owned() } else { format!("\"{}\"", name.replace('"', "\"\"")) }
}
