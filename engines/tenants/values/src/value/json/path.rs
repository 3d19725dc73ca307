//! `jsonpath`: what leads to parts of a `jsonb`, as PostgreSQL understands the SQL/JSON path language.
//!
//! A value of the type is kept as its text in the form that [`Path`] shows. What a path finds is in the crate that computes expressions.

mod read;
mod tokens;

use std::fmt::{Display, Formatter};

use bigdecimal::BigDecimal;

use super::write_string;
use crate::error::Result;

/// A path that was read.
#[derive(Clone, Debug, PartialEq)]
pub struct Path {
    /// Whether a structure that the path does not expect is an error (`strict`). In `lax` mode arrays are taken apart and made where that helps.
    pub strict: bool,
    /// What is asked.
    pub root: Chain,
}

/// Something, and what is done with it step by step: `$.a[*] ? (..)`
#[derive(Clone, Debug, PartialEq)]
pub struct Chain {
    /// Where it begins.
    pub head: Head,
    /// From there on.
    pub steps: Vec<Step>,
}

/// What a chain begins with.
#[derive(Clone, Debug, PartialEq)]
pub enum Head {
    /// `null`
    Null,
    /// `true`, `false`
    Bool(bool),
    /// A number.
    Number(BigDecimal),
    /// A string.
    String(String),
    /// `$name`
    Variable(String),
    /// `$`
    Root,
    /// `@`: what a filter looks at.
    Current,
    /// `last`: the last subscript of the array.
    Last,
    /// An operator between two operands.
    Binary(Operator, Box<Chain>, Box<Chain>),
    /// `-` or `+` before an operand.
    Sign {
        /// Whether it is `-`.
        negative: bool,
        /// Of what.
        of: Box<Chain>,
    },
    /// `!(..)`
    Not(Box<Chain>),
    /// `(..) is unknown`
    IsUnknown(Box<Chain>),
    /// `exists (..)`
    Exists(Box<Chain>),
    /// `.. like_regex ".." flag ".."`
    Like {
        /// What is compared.
        of: Box<Chain>,
        /// A regular expression.
        pattern: String,
        /// Its flags, each once: `i`, `s`, `m`, `x`, `q`
        flags: String,
    },
}

/// An operator between two operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operator {
    /// `||`
    Or,
    /// `&&`
    And,
    /// `==`
    Equal,
    /// `!=`, `<>`
    NotEqual,
    /// `<`
    Less,
    /// `<=`
    LessOrEqual,
    /// `>`
    Greater,
    /// `>=`
    GreaterOrEqual,
    /// `starts with`
    StartsWith,
    /// `+`
    Add,
    /// `-`
    Subtract,
    /// `*`
    Multiply,
    /// `/`
    Divide,
    /// `%`
    Remainder,
}

/// A step of a chain.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// `.key`
    Key(String),
    /// `.*`
    AnyKey,
    /// `[*]`
    AnyElement,
    /// `[1, 2 to 3]`: from, and perhaps to.
    Elements(Vec<(Chain, Option<Chain>)>),
    /// `.**{2 to 3}`: what is so many levels below, itself being level 0; `None` is `last`.
    Any {
        /// From this level on; `None` is only of interest with `to: None`: the values that have nothing below them.
        from: Option<u32>,
        /// Up to this level.
        to: Option<u32>,
    },
    /// `? (..)`
    Filter(Chain),
    /// `.size()` and others
    Method(Method),
    /// `.datetime("template")`
    Datetime(Option<String>),
}

/// A method without arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// `.abs()`
    Abs,
    /// `.ceiling()`
    Ceiling,
    /// `.double()`
    Double,
    /// `.floor()`
    Floor,
    /// `.keyvalue()`
    KeyValue,
    /// `.size()`
    Size,
    /// `.type()`
    Type,
}

impl Path {
    /// The path of a text.
    ///
    /// # Errors
    /// 42601, also for what is not allowed where it stands; 54000 if it is too long, 54001 if it is nested too deeply.
    pub fn parse(text: &str) -> Result<Self> {
        read::path(text)
    }

    /// The path of a text that one was shown as, however long it is.
    ///
    /// # Errors
    /// 42601.
    pub fn parse_again(text: &str) -> Result<Self> {
        read::shown(text)
    }
}

impl Operator {
    /// How it is written.
    pub const fn sign(self) -> &'static str {
        match self {
            Self::Or => "||",
            Self::And => "&&",
            Self::Equal => "==",
            Self::NotEqual => "!=",
            Self::Less => "<",
            Self::LessOrEqual => "<=",
            Self::Greater => ">",
            Self::GreaterOrEqual => ">=",
            Self::StartsWith => "starts with",
            Self::Add => "+",
            Self::Subtract => "-",
            Self::Multiply => "*",
            Self::Divide => "/",
            Self::Remainder => "%",
        }
    }

    /// How strongly it binds.
    const fn priority(self) -> u8 {
        match self {
            Self::Or => 0,
            Self::And => 1,
            Self::Add | Self::Subtract => 3,
            Self::Multiply | Self::Divide | Self::Remainder => 4,
            _ => 2,
        }
    }
}

impl Method {
    /// All of them.
    const ALL: [Self; 7] =
        [Self::Abs, Self::Ceiling, Self::Double, Self::Floor, Self::KeyValue, Self::Size, Self::Type];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Abs => "abs",
            Self::Ceiling => "ceiling",
            Self::Double => "double",
            Self::Floor => "floor",
            Self::KeyValue => "keyvalue",
            Self::Size => "size",
            Self::Type => "type",
        }
    }

    fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|method| method.name() == name)
    }
}

impl Chain {
    /// Whether it says true, false or unknown.
    pub fn is_predicate(&self) -> bool {
        self.steps.is_empty()
            && match &self.head {
                Head::Binary(operator, ..) => operator.priority() < 3,
                Head::Not(_) | Head::IsUnknown(_) | Head::Exists(_) | Head::Like { .. } => true,
                _ => false,
            }
    }

    const fn priority(&self) -> u8 {
        match &self.head {
            Head::Binary(operator, ..) => operator.priority(),
            Head::Sign { .. } => 5,
            _ => 6,
        }
    }

    fn write(&self, brackets: bool, out: &mut String) {
        // Steps are of all that stands before them, not of an operand.
        let brackets = (brackets || !self.steps.is_empty())
            && matches!(self.head, Head::Binary(..) | Head::Sign { .. } | Head::Like { .. })
            || !self.steps.is_empty() && matches!(self.head, Head::Not(_) | Head::IsUnknown(_) | Head::Exists(_));
        out.extend(brackets.then_some('('));
        let operand = |of: &Self, out: &mut String| of.write(of.priority() <= self.priority(), out);
        match &self.head {
            Head::Null => out.push_str("null"),
            Head::Bool(value) => out.push_str(if *value { "true" } else { "false" }),
            Head::Number(number) if self.steps.is_empty() => out.push_str(&number.to_plain_string()),
            // Its point would be that of the first step.
            Head::Number(number) => out.push_str(&format!("({})", number.to_plain_string())),
            Head::String(text) => write_string(text, out),
            Head::Variable(name) => {
                out.push('$');
                write_string(name, out);
            }
            Head::Root => out.push('$'),
            Head::Current => out.push('@'),
            Head::Last => out.push_str("last"),
            Head::Binary(operator, left, right) => {
                operand(left, out);
                out.push_str(&format!(" {} ", operator.sign()));
                operand(right, out);
            }
            Head::Sign { negative, of } => {
                out.push(if *negative { '-' } else { '+' });
                operand(of, out);
            }
            Head::Not(of) => within("!(", of, ")", out),
            Head::IsUnknown(of) => within("(", of, ") is unknown", out),
            Head::Exists(of) => within("exists (", of, ")", out),
            Head::Like { of, pattern, flags } => {
                operand(of, out);
                out.push_str(" like_regex ");
                write_string(pattern, out);
                if !flags.is_empty() {
                    out.push_str(&format!(" flag \"{flags}\""));
                }
            }
        }
        out.extend(brackets.then_some(')'));
        self.steps.iter().for_each(|step| step.write(out));
    }
}

fn within(before: &str, of: &Chain, after: &str, out: &mut String) {
    out.push_str(before);
    of.write(false, out);
    out.push_str(after);
}

impl Step {
    fn write(&self, out: &mut String) {
        match self {
            Self::Key(key) => {
                out.push('.');
                write_string(key, out);
            }
            Self::AnyKey => out.push_str(".*"),
            Self::AnyElement => out.push_str("[*]"),
            Self::Elements(all) => {
                for (at, (from, to)) in all.iter().enumerate() {
                    out.push(if at > 0 { ',' } else { '[' });
                    from.write(false, out);
                    if let Some(to) = to {
                        within(" to ", to, "", out);
                    }
                }
                out.push(']');
            }
            Self::Any { from, to } => {
                let level = |of: &Option<u32>| of.map_or("last".to_owned(), |level| level.to_string());
                out.push_str(".**");
                match (from, to) {
                    (Some(0), None) => {}
                    (from, to) if from == to => out.push_str(&format!("{{{}}}", level(from))),
                    (from, to) => out.push_str(&format!("{{{} to {}}}", level(from), level(to))),
                }
            }
            Self::Filter(condition) => within("?(", condition, ")", out),
            Self::Method(method) => out.push_str(&format!(".{}()", method.name())),
            Self::Datetime(template) => {
                out.push_str(".datetime(");
                if let Some(template) = template {
                    write_string(template, out);
                }
                out.push(')');
            }
        }
    }
}

impl Display for Path {
    fn fmt(&self, out: &mut Formatter<'_>) -> std::fmt::Result {
        let mut text = String::from(if self.strict { "strict " } else { "" });
        self.root.write(true, &mut text);
        out.write_str(&text)
    }
}
