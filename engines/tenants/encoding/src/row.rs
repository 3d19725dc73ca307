//! Rows: a table's columns in one string of bytes, each found without reading the others.

use crate::RowError;

/// How long the values of a column are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Width {
    /// So many bytes, always.
    Fixed(u8),
    /// Each value has its own length.
    Variable,
}

/// Bytes of the schema version.
const VERSION: usize = 2;
/// Bytes of the place where a value ends.
const END: usize = 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// From here on, so many bytes.
    At(usize, usize),
    /// The value whose end is here, after the value whose end is just before.
    EndAt(usize),
}

/// Where the columns of one version of a table's schema are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    version: u16,
    places: Vec<Place>,
    /// Where the ends begin.
    ends: usize,
    /// Where the values of variable length begin.
    body: usize,
}

impl Layout {
    /// The layout of columns with these widths.
    #[must_use]
    pub fn new(version: u16, columns: &[Width]) -> Self {
        let mut fixed = VERSION + columns.len().div_ceil(8);
        let mut variable = 0;
        let mut places = Vec::with_capacity(columns.len());
        for width in columns {
            places.push(match width {
                Width::Fixed(bytes) => {
                    let at = fixed;
                    fixed += usize::from(*bytes);
                    Place::At(at, usize::from(*bytes))
                }
                Width::Variable => {
                    variable += 1;
                    Place::EndAt(variable - 1)
                }
            });
        }
        let ends = fixed;
        for place in &mut places {
            if let Place::EndAt(number) = place {
                *number = ends + *number * END;
            }
        }
        Self { version, places, ends, body: ends + variable * END }
    }

    /// The schema version.
    #[must_use]
    pub fn version(&self) -> u16 {
        self.version
    }

    /// How many columns a row has.
    #[must_use]
    pub fn columns(&self) -> usize {
        self.places.len()
    }
}

/// The schema version that a row was written under.
///
/// # Errors
/// [`RowError::Short`].
pub fn version_of(row: &[u8]) -> Result<u16, RowError> {
    let version = row.first_chunk::<VERSION>().ok_or(RowError::Short { expected: VERSION, came: row.len() })?;
    Ok(u16::from_le_bytes(*version))
}

/// A row that is being written, column by column.
#[derive(Debug)]
pub struct RowWriter<'l> {
    layout: &'l Layout,
    bytes: Vec<u8>,
    column: usize,
}

impl<'l> RowWriter<'l> {
    /// A row without columns yet.
    #[must_use]
    pub fn new(layout: &'l Layout) -> Self {
        let mut bytes = Vec::with_capacity(layout.body + 32);
        bytes.extend(layout.version.to_le_bytes());
        bytes.resize(layout.body, 0);
        Self { layout, bytes, column: 0 }
    }

    /// The next column has no value.
    ///
    /// # Errors
    /// [`RowError::Columns`], [`RowError::TooLong`].
    pub fn null(&mut self) -> Result<(), RowError> {
        let place = self.next()?;
        self.bytes[VERSION + self.column / 8] |= 1 << (self.column % 8);
        self.end(place)
    }

    /// The next column has this value.
    ///
    /// # Errors
    /// [`RowError::Columns`], [`RowError::Width`], [`RowError::TooLong`].
    pub fn value(&mut self, value: &[u8]) -> Result<(), RowError> {
        let place = self.next()?;
        match place {
            Place::At(at, bytes) if bytes == value.len() => self.bytes[at..at + bytes].copy_from_slice(value),
            Place::At(_, bytes) => {
                return Err(RowError::Width { column: self.column, expected: bytes, came: value.len() });
            }
            Place::EndAt(_) => self.bytes.extend(value),
        }
        self.end(place)
    }

    /// The row.
    ///
    /// # Errors
    /// [`RowError::Columns`] if there are fewer than the layout has.
    pub fn finish(self) -> Result<Vec<u8>, RowError> {
        match self.column == self.layout.places.len() {
            true => Ok(self.bytes),
            false => Err(RowError::Columns { expected: self.layout.places.len(), came: self.column }),
        }
    }

    fn next(&self) -> Result<Place, RowError> {
        let columns = self.layout.places.len();
        self.layout.places.get(self.column).copied().ok_or(RowError::Columns { expected: columns, came: columns + 1 })
    }

    fn end(&mut self, place: Place) -> Result<(), RowError> {
        if let Place::EndAt(at) = place {
            let end = self.bytes.len() - self.layout.body;
            let end = u32::try_from(end).map_err(|_| RowError::TooLong { came: end })?;
            self.bytes[at..at + END].copy_from_slice(&end.to_le_bytes());
        }
        self.column += 1;
        Ok(())
    }
}

/// A row that is read where it is.
#[derive(Clone, Copy, Debug)]
pub struct RowReader<'a> {
    layout: &'a Layout,
    bytes: &'a [u8],
}

impl<'a> RowReader<'a> {
    /// A row of this layout.
    ///
    /// # Errors
    /// [`RowError::Short`], [`RowError::Version`].
    pub fn new(layout: &'a Layout, bytes: &'a [u8]) -> Result<Self, RowError> {
        let version = version_of(bytes)?;
        if version != layout.version {
            return Err(RowError::Version { expected: layout.version, came: version });
        }
        match bytes.len() < layout.body {
            true => Err(RowError::Short { expected: layout.body, came: bytes.len() }),
            false => Ok(Self { layout, bytes }),
        }
    }

    /// The value of a column; `None` is NULL.
    ///
    /// # Errors
    /// [`RowError::Columns`] if the row has no such column, [`RowError::End`] if it is damaged.
    pub fn column(&self, column: usize) -> Result<Option<&'a [u8]>, RowError> {
        let Self { layout, bytes } = *self;
        let none = RowError::Columns { expected: layout.places.len(), came: column + 1 };
        let place = *layout.places.get(column).ok_or(none)?;
        if bytes[VERSION + column / 8] >> (column % 8) & 1 == 1 {
            return Ok(None);
        }
        match place {
            Place::At(at, width) => Ok(Some(&bytes[at..at + width])),
            Place::EndAt(at) => {
                let end = self.end(at);
                let start = if at == layout.ends { 0 } else { self.end(at - END) };
                let body = &bytes[layout.body..];
                body.get(start..end).map(Some).ok_or(RowError::End { column, start, end, length: body.len() })
            }
        }
    }

    /// An end that lies inside of the row's head, which is there.
    fn end(&self, at: usize) -> usize {
        let end = [self.bytes[at], self.bytes[at + 1], self.bytes[at + 2], self.bytes[at + 3]];
        u32::from_le_bytes(end) as usize
    }
}
