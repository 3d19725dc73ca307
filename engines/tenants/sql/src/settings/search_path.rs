//! The setting `search_path`: names of schemas with commas between them.

use std::fmt;

use savanna_tenants_catalog::name::{cut, folded, quoted};
use savanna_tenants_values::error::{Result, SqlError, state};
use sqlparser::tokenizer::Token;

use crate::{interrupt::Interrupts, parse::words};

/// What stands for the schema that has the user's name.
const USER: &str = "$user";

/// The names of schemas in which a session looks for names, the first one first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SearchPath(Vec<String>);

impl Default for SearchPath {
    fn default() -> Self {
        Self(vec![USER.to_owned(), "public".to_owned()])
    }
}

impl SearchPath {
    /// Reads the names as SQL writes them.
    pub(crate) fn parse(text: &str) -> Result<Self> {
        let wrong = || {
            let message = format!("invalid value for parameter \"search_path\": \"{text}\"");
            SqlError::new(state::INVALID_PARAMETER_VALUE, message).detail("List syntax is invalid.")
        };
        let tokens = words::tokens(text, &Interrupts::default()).map_err(|_| wrong())?;
        let mut names = Vec::new();
        let mut wants_name = true;
        for token in tokens.into_iter().map(|token| token.token).filter(|token| !matches!(token, Token::Whitespace(_)))
        {
            let name = match token {
                Token::Comma if !wants_name => {
                    wants_name = true;
                    continue;
                }
                Token::Word(word) => folded(&word.value, word.quote_style),
                Token::SingleQuotedString(name) => name,
                Token::Placeholder(name) => folded(&name, None),
                _ => return Err(wrong()),
            };
            if !wants_name {
                return Err(wrong());
            }
            names.push(cut(&name).to_owned());
            wants_name = false;
        }
        if wants_name && !names.is_empty() { Err(wrong()) } else { Ok(Self(names)) }
    }

    /// The names for a user.
    pub fn names<'a>(&'a self, user: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().map(move |name| if name == USER { user } else { name })
    }
}

impl fmt::Display for SearchPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<String> = self.0.iter().map(|name| quoted(name)).collect();
        f.write_str(&names.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_shown_as_it_is_read() {
        let shown = |text: &str| SearchPath::parse(text).map(|path| path.to_string()).map_err(|error| error.state);
        assert_eq!(shown("$user, public").as_deref(), Ok("\"$user\", public"));
        assert_eq!(shown("A,\"B\" , 'c d'").as_deref(), Ok("a, \"B\", \"c d\""));
        assert_eq!(shown("\"\"").as_deref(), Ok("\"\""));
        assert_eq!(shown(""), Ok(String::new()));
        for text in ["a,", "a b", ",", "1", "a;b", "\"a"] {
            assert_eq!(shown(text), Err(state::INVALID_PARAMETER_VALUE), "{text}");
        }
        assert_eq!(SearchPath::default().names("me").collect::<Vec<_>>(), ["me", "public"]);
    }
}
