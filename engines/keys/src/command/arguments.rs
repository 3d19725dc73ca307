//! The arguments of commands, as `COMMAND DOCS` gives them: `redis-cli` shows them while a command is typed.

use crate::access::Permission;
use crate::reply::Reply;

/// A line for each command that has any; how they are written is said there.
const ALL: &str = include_str!("arguments.txt");

/// An argument of a command.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Argument {
    name: String,
    kind: Kind,
    /// The word that comes before it, or that it is.
    token: Option<&'static str>,
    /// Which of Redis' specifications of keys describes it.
    key_spec: Option<i64>,
    since: Option<&'static str>,
    deprecated_since: Option<&'static str>,
    is_optional: bool,
    is_multiple: bool,
    /// Whether the token comes each time.
    repeats_token: bool,
    parts: Vec<Self>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Kind {
    #[default]
    String,
    Key,
    Integer,
    Double,
    UnixTime,
    Pattern,
    Token,
    OneOf,
    Block,
}

impl Kind {
    fn of(name: &str) -> Option<Self> {
        Some(match name {
            "string" => Self::String,
            "key" => Self::Key,
            "integer" => Self::Integer,
            "double" => Self::Double,
            "unix-time" => Self::UnixTime,
            "pattern" => Self::Pattern,
            "token" => Self::Token,
            _ => return None,
        })
    }

    const fn name(self) -> &'static str {
        match self {
            Self::String => "string",
            Self::Key => "key",
            Self::Integer => "integer",
            Self::Double => "double",
            Self::UnixTime => "unix-time",
            Self::Pattern => "pattern",
            Self::Token => "pure-token",
            Self::OneOf => "oneof",
            Self::Block => "block",
        }
    }
}

/// The arguments of a command or subcommand.
pub(crate) fn arguments_of(named: &Permission) -> Vec<Argument> {
    let name = named.name();
    let line = ALL.lines().find_map(|line| line.strip_prefix(&*name)?.strip_prefix(' '));
    line.and_then(|line| Line(line).all()).unwrap_or_default()
}

/// What is left of a line.
struct Line(&'static str);

impl Line {
    fn all(mut self) -> Option<Vec<Argument>> {
        let (arguments, are_alternatives) = self.list()?;
        (self.0.is_empty() && !are_alternatives).then_some(arguments)
    }

    /// Arguments up to what ends them, and whether they are alternatives.
    fn list(&mut self) -> Option<(Vec<Argument>, bool)> {
        let (mut arguments, mut are_alternatives) = (vec![self.argument()?], false);
        while self.takes(" ") {
            are_alternatives |= self.takes("| ");
            arguments.push(self.argument()?);
        }
        Some((arguments, are_alternatives))
    }

    fn argument(&mut self) -> Option<Argument> {
        if self.takes("[") {
            let argument = self.item()?;
            return self.takes("]").then_some(Argument { is_optional: true, ..argument });
        }
        self.item()
    }

    fn item(&mut self) -> Option<Argument> {
        let mut argument = named(self.word())?;
        if self.takes("@") {
            argument.key_spec = Some(self.word().parse().ok()?);
        }
        if self.takes("(") {
            let (parts, are_alternatives) = self.list()?;
            argument.kind = if are_alternatives { Kind::OneOf } else { Kind::Block };
            argument.parts = parts;
            if !self.takes(")") {
                return None;
            }
        }
        argument.since = self.takes("^").then(|| self.word());
        argument.deprecated_since = self.takes("!").then(|| self.word());
        argument.is_multiple = self.takes("+");
        argument.repeats_token = argument.is_multiple && self.takes("+");
        Some(argument)
    }

    /// What comes before the next sign.
    fn word(&mut self) -> &'static str {
        let end = self.0.find([' ', '(', ')', '[', ']', '@', '^', '!', '+']).unwrap_or(self.0.len());
        let (word, rest) = self.0.split_at(end);
        self.0 = rest;
        word
    }

    fn takes(&mut self, sign: &str) -> bool {
        let rest = self.0.strip_prefix(sign);
        self.0 = rest.unwrap_or(self.0);
        rest.is_some()
    }
}

/// An argument with a name, perhaps a type, and perhaps a token.
fn named(word: &'static str) -> Option<Argument> {
    let is_token = word.starts_with(|first: char| first.is_ascii_uppercase()) && !word.contains('=');
    let (name, token) = if is_token {
        (word, Some(word))
    } else {
        word.split_once('=').map_or((word, None), |(name, token)| (name, Some(token)))
    };
    // There are names with colons.
    let typed = name.rsplit_once(':').and_then(|(name, kind)| Some((name, Kind::of(kind)?)));
    let (name, kind) = match typed {
        Some(typed) => typed,
        None if is_token => (name, Kind::Token),
        None if name == "key" => (name, Kind::Key),
        None => (name, Kind::String),
    };
    let key_spec = (kind == Kind::Key).then_some(0);
    (!name.is_empty()).then(|| Argument {
        name: name.to_ascii_lowercase(),
        kind,
        token,
        key_spec,
        ..Argument::default()
    })
}

/// Tells of arguments.
pub(crate) fn describe(arguments: &[Argument], reply: &mut dyn Reply) {
    reply.array(arguments.len());
    arguments.iter().for_each(|argument| argument.describe(reply));
}

impl Argument {
    fn describe(&self, reply: &mut dyn Reply) {
        let texts = [
            ("name", Some(&*self.name)),
            ("type", Some(self.kind.name())),
            ("token", self.token),
            ("since", self.since),
            ("deprecated_since", self.deprecated_since),
        ];
        let flags =
            [(self.is_optional, "optional"), (self.is_multiple, "multiple"), (self.repeats_token, "multiple_token")];
        let texts = || texts.iter().filter_map(|(name, text)| Some((name, (*text)?)));
        let flags = || flags.iter().filter(|(is_set, _)| *is_set);
        let has = [self.key_spec.is_some(), flags().count() > 0, !self.parts.is_empty()];
        reply.map(texts().count() + has.into_iter().filter(|has| *has).count());
        for (name, text) in texts() {
            reply.bulk(name.as_bytes());
            reply.bulk(text.as_bytes());
        }
        if let Some(number) = self.key_spec {
            reply.bulk(b"key_spec_index");
            reply.integer(number);
        }
        if flags().count() > 0 {
            reply.bulk(b"flags");
            reply.set(flags().count());
            flags().for_each(|(_, name)| reply.simple(name));
        }
        if !self.parts.is_empty() {
            reply.bulk(b"arguments");
            describe(&self.parts, reply);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::access::permissions;

    #[test]
    fn each_line_is_that_of_a_command_and_can_be_read() {
        let lines = || ALL.lines().filter(|line| !line.starts_with('#'));
        let names: BTreeSet<&str> = lines().filter_map(|line| line.split(' ').next()).collect();
        assert_eq!(names.len(), lines().count(), "no command twice");
        for named in permissions().iter().filter(|named| names.contains(&*named.name())) {
            assert!(!arguments_of(named).is_empty(), "{}", named.name());
        }
        let known: BTreeSet<String> = permissions().iter().map(Permission::name).collect();
        let unknown: Vec<&&str> = names.iter().filter(|name| !known.contains(**name)).collect();
        assert!(unknown.is_empty(), "{unknown:?}");
    }

    #[test]
    fn an_argument_says_all_that_is_written_of_it() {
        let read = |line| Line(line).all().expect("arguments");
        let name = |name: &str| Argument { name: name.to_owned(), ..Argument::default() };
        let token = |token| Argument { kind: Kind::Token, token: Some(token), ..name(&token.to_ascii_lowercase()) };
        assert_eq!(read("key")[0], Argument { kind: Kind::Key, key_spec: Some(0), ..name("key") });
        assert_eq!(
            read("[on(ON | count:integer=COUNT^6.2.0)+]")[0],
            Argument {
                kind: Kind::OneOf,
                is_optional: true,
                is_multiple: true,
                parts: vec![
                    token("ON"),
                    Argument { kind: Kind::Integer, token: Some("COUNT"), since: Some("6.2.0"), ..name("count") },
                ],
                ..name("on")
            }
        );
        assert_eq!(
            read("equal:token==")[0],
            Argument { token: Some("="), ..Argument { kind: Kind::Token, ..name("equal") } }
        );
        assert_eq!(read("ip:port=ADDR")[0], Argument { token: Some("ADDR"), ..name("ip:port") });
        for wrong in ["", "a(", "a(b", "[a", "a]", "a | b", "a  b", "a@x"] {
            assert_eq!(Line(wrong).all(), None, "{wrong}");
        }
    }
}
