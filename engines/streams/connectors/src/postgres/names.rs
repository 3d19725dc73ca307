//! Names of tables in PostgreSQL.

use std::fmt;

/// The longest name, in bytes: PostgreSQL cuts longer ones, which would then be another's.
const LONGEST: usize = 63;
/// Where tables are that name no schema.
const PUBLIC: &str = "public";

/// A table with its schema. It is shown as it stands in SQL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TableName {
    pub(super) schema: String,
    pub(super) name: String,
}

impl TableName {
    /// `name` or `schema.name`, each as it is or in double quotes.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (first, rest) = part(text)?;
        if rest.is_empty() {
            return Some(Self { schema: PUBLIC.to_owned(), name: first });
        }
        match part(rest.strip_prefix('.')?)? {
            (name, "") => Some(Self { schema: first, name }),
            _ => None,
        }
    }

    /// Another table of the same schema.
    pub(super) fn beside(&self, name: &str) -> Self {
        Self { schema: self.schema.clone(), name: name.to_owned() }
    }
}

impl fmt::Display for TableName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", quoted(&self.schema), quoted(&self.name))
    }
}

/// A name that stands at the beginning, and what follows it.
fn part(text: &str) -> Option<(String, &str)> {
    let (name, rest) = match text.strip_prefix('"') {
        Some(quoted) => {
            let mut name = String::new();
            let mut rest = quoted;
            loop {
                let (before, behind) = rest.split_once('"')?;
                name += before;
                match behind.strip_prefix('"') {
                    Some(behind) => (name.push('"'), rest = behind).1,
                    None => break (name, behind),
                }
            }
        }
        None => {
            let end = text.find(['.', '"']).unwrap_or(text.len());
            (text[..end].to_owned(), &text[end..])
        }
    };
    is_name(&name).then_some((name, rest))
}

/// Whether something can be called so.
pub(super) fn is_name(name: &str) -> bool {
    !name.is_empty() && name.len() <= LONGEST && !name.contains('\0')
}

/// A name as it stands in SQL: the case matters, and any letter may be in it.
pub(super) fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// Names as they stand in SQL, with commas between them.
pub(super) fn listed<'n>(names: impl IntoIterator<Item = &'n String>) -> String {
    names.into_iter().map(|name| quoted(name)).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_may_name_its_schema_and_have_any_letters_in_quotes() {
        for (text, shown) in [
            ("counts", r#""public"."counts""#),
            ("shop.Counts", r#""shop"."Counts""#),
            (r#""my.shop"."a ""b""""#, r#""my.shop"."a ""b""""#),
            ("shop.\"x; DROP TABLE y\"", "\"shop\".\"x; DROP TABLE y\""),
        ] {
            assert_eq!(TableName::parse(text).unwrap().to_string(), shown);
        }
        let long = "x".repeat(64);
        for text in ["", ".", "a.", ".a", "a.b.c", "\"a", "a\"b\"", "\"a\"b", long.as_str(), "a\0"] {
            assert_eq!(TableName::parse(text), None, "{text}");
        }
    }
}
