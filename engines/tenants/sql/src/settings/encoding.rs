//! How a client's texts are written.

use savanna_tenants_values::error::{Result, SqlError};

/// An encoding of texts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Encoding {
    /// As they are kept.
    #[default]
    Utf8,
    /// The same bytes, of which nothing is said. What comes has to be UTF-8 yet, as in PostgreSQL.
    SqlAscii,
}

impl Encoding {
    /// The encoding of a name, in which PostgreSQL looks at letters and digits alone.
    ///
    /// # Errors
    /// 0A000 for others.
    pub(super) fn parse(name: &str) -> Result<Self> {
        let bare: String = name.chars().filter(char::is_ascii_alphanumeric).collect();
        match bare.to_ascii_lowercase().as_str() {
            "utf8" | "unicode" => Ok(Self::Utf8),
            "sqlascii" => Ok(Self::SqlAscii),
            _ => Err(SqlError::unsupported(format_args!("client_encoding of \"{name}\""))
                .hint("Texts are UTF-8: let the client convert them, or set client_encoding to UTF8 or SQL_ASCII.")),
        }
    }

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Utf8 => "UTF8",
            Self::SqlAscii => "SQL_ASCII",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_postgresql_reads_them() {
        for name in ["UTF8", "utf-8", "'utf_8'", "Unicode"] {
            assert_eq!(Encoding::parse(name), Ok(Encoding::Utf8), "{name}");
        }
        assert_eq!(Encoding::parse("sql_ascii").map(Encoding::name), Ok("SQL_ASCII"));
        assert_eq!(Encoding::parse("latin1").unwrap_err().state, "0A000");
    }
}
