//! The binary format: a signature, rows with the lengths of their values, and an end.

use savanna_tenants_host::{
    SqlError,
    copy::CopyField,
    error::{Result, state},
    types::Type,
    value::Value,
};

const SIGNATURE: &[u8] = b"PGCOPY\n\xff\r\n\0";
/// Flags that nobody who does not know them may ignore.
const CRITICAL: u32 = 0xffff_0000;

/// What stands before the rows.
pub(super) fn begin() -> Vec<u8> {
    [SIGNATURE, &[0; 8]].concat()
}

/// What stands behind them.
pub(super) fn end() -> Vec<u8> {
    (-1_i16).to_be_bytes().to_vec()
}

/// A row.
pub(super) fn row(values: &[Value], types: impl Iterator<Item = Type>) -> Vec<u8> {
    let mut bytes = (values.len() as i16).to_be_bytes().to_vec();
    let mut content = Vec::new();
    for (value, of) in values.iter().zip(types) {
        if value.is_null() {
            bytes.extend((-1_i32).to_be_bytes());
            continue;
        }
        content.clear();
        value.write_binary(of, &mut content);
        bytes.extend((content.len() as i32).to_be_bytes());
        bytes.extend(&content);
    }
    bytes
}

/// The rows of so many columns.
#[derive(Clone, Copy)]
pub(super) struct Rows<'a> {
    rest: Rest<'a>,
    columns: usize,
}

impl<'a> Rows<'a> {
    /// Reads what stands before the rows.
    pub(super) fn new(bytes: &'a [u8], columns: usize) -> Result<Self> {
        let Some(rest) = bytes.strip_prefix(SIGNATURE) else {
            return Err(wrong("COPY file signature not recognized"));
        };
        let mut rest = Rest(rest);
        if rest.number()? as u32 & CRITICAL != 0 {
            return Err(wrong("unrecognized critical flags in COPY file header"));
        }
        let extension = rest.number()?;
        rest.take(usize::try_from(extension).unwrap_or(usize::MAX))?;
        Ok(Self { rest, columns })
    }

    /// Rows behind others.
    pub(super) const fn behind(bytes: &'a [u8], columns: usize) -> Self {
        Self { rest: Rest(bytes), columns }
    }

    pub(super) const fn rest(&self) -> usize {
        self.rest.0.len()
    }

    /// The next row. The end may be left out.
    pub(super) fn next(&mut self) -> Result<Option<Vec<CopyField>>> {
        let Self { rest, columns } = self;
        if rest.0.is_empty() {
            return Ok(None);
        }
        let count = i16::from_be_bytes(rest.array()?);
        if count == -1 {
            return if rest.0.is_empty() { Ok(None) } else { Err(wrong("received copy data after EOF marker")) };
        }
        if usize::try_from(count) != Ok(*columns) {
            return Err(wrong(&format!("row field count is {count}, expected {columns}")));
        }
        let field = |rest: &mut Rest<'_>| match rest.number()? {
            -1 => Ok(CopyField::Null),
            length => match usize::try_from(length) {
                Ok(length) => Ok(CopyField::Binary(rest.take(length)?.to_vec())),
                Err(_) => Err(wrong("invalid field size")),
            },
        };
        (0..*columns).map(|_| field(rest)).collect::<Result<_>>().map(Some)
    }
}

fn wrong(message: &str) -> SqlError {
    SqlError::new(state::BAD_COPY_FILE_FORMAT, message)
}

/// Bytes that are yet to be read.
#[derive(Clone, Copy)]
struct Rest<'a>(&'a [u8]);

impl<'a> Rest<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8]> {
        let ended = || wrong("unexpected EOF in COPY data");
        let (taken, rest) = self.0.split_at_checked(count).ok_or_else(ended)?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N)?);
        Ok(array)
    }

    fn number(&mut self) -> Result<i32> {
        Ok(i32::from_be_bytes(self.array()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(bytes: &[u8], columns: usize) -> Result<Vec<Vec<CopyField>>> {
        let mut rows = Rows::new(bytes, columns)?;
        std::iter::from_fn(|| rows.next().transpose()).collect()
    }

    #[test]
    fn what_is_written_is_read_and_what_is_cut_is_refused() {
        let values = [Value::Int(7), Value::Null, Value::Text("ü".to_owned())];
        let row = row(&values, [Type::Int2, Type::Int4, Type::Text].into_iter());
        let whole = [begin(), row.clone(), row, end()].concat();
        let expected = vec![CopyField::Binary(vec![0, 7]), CopyField::Null, CopyField::Binary("ü".into())];
        assert_eq!(parse(&whole, 3), Ok(vec![expected.clone(), expected]));
        for length in 0..whole.len() {
            // Between rows nothing is missing but the end.
            let cut = parse(&whole[..length], 3);
            assert!(cut.is_ok() == [19, 37, 55].contains(&length), "{length}: {cut:?}");
        }
        assert!(parse(&whole, 2).is_err() && parse(&[&whole[..], &[0]].concat(), 3).is_err());
    }
}
