//! How `COPY` writes rows down: what its options say. Whoever talks to clients reads and writes the bytes.

/// The formats of `COPY`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CopyKind {
    /// A line per row, with backslashes before what would be misunderstood.
    #[default]
    Text,
    /// A line per row, with quotes around what would be misunderstood.
    Csv,
    /// The protocol's binary values, each after its length.
    Binary,
}

/// Whether the first line has the columns' names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Header {
    /// It is a row.
    #[default]
    No,
    /// It has, and what they are makes no difference.
    Yes,
    /// It has, and they must be those of the columns.
    Match,
}

/// How rows are written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopyFormat {
    /// The format.
    pub kind: CopyKind,
    /// Between columns.
    pub delimiter: u8,
    /// Instead of NULL.
    pub null: String,
    /// Whether the first line is a header.
    pub header: Header,
    /// Around values, in CSV.
    pub quote: u8,
    /// Before a quote inside of quotes, in CSV.
    pub escape: u8,
    /// Columns, by their places, whose values are always quoted.
    pub force_quote: Vec<usize>,
    /// Columns whose values are never NULL.
    pub force_not_null: Vec<usize>,
    /// Columns whose values may be NULL though they are quoted.
    pub force_null: Vec<usize>,
}

impl Default for CopyFormat {
    fn default() -> Self {
        Self {
            kind: CopyKind::Text,
            delimiter: b'\t',
            null: "\\N".to_owned(),
            header: Header::No,
            quote: b'"',
            escape: b'"',
            force_quote: Vec::new(),
            force_not_null: Vec::new(),
            force_null: Vec::new(),
        }
    }
}

/// A value as a client gives it to `COPY`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CopyField {
    /// No value.
    Null,
    /// Its text.
    Text(String),
    /// Its binary format.
    Binary(Vec<u8>),
}
