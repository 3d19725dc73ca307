//! Rows and columns of tenants as messages.

use bytes::BufMut;
use pgwire::messages::data::FieldDescription;
use savanna_pgwire_connection::{Output, format};
use savanna_tenants_host::{
    Encoding, OutputColumn,
    copy::{CopyFormat, CopyKind},
    error::Result,
    value::{Value, style::Style},
};

use crate::copy;

/// Writes rows for a client.
#[derive(Debug, Default)]
pub(crate) struct RowWriter {
    /// Where the client's clocks are.
    pub(crate) style: Style,
    /// What it was told of how its texts are written.
    pub(crate) encoding: Encoding,
    text: String,
    binary: Vec<u8>,
}

/// The protocol's code of a format of `COPY`.
pub(crate) fn copy_code(format: &CopyFormat) -> i16 {
    i16::from(format.kind == CopyKind::Binary)
}

/// The columns of a result in the formats that the client asked for.
pub(crate) fn columns(columns: &[OutputColumn], formats: &[i16]) -> Vec<FieldDescription> {
    let field = |(at, column): (usize, &OutputColumn)| {
        FieldDescription::new(
            column.name.clone(),
            column.origin.0 as i32,
            column.origin.1,
            column.of.oid(),
            column.of.wire_size(),
            column.of.modifier(),
            format(formats, at),
        )
    };
    columns.iter().enumerate().map(field).collect()
}

impl RowWriter {
    /// Adds a row, without a message's detour.
    ///
    /// # Errors
    /// 54000 if the text of a value would be too long; then there is nothing of the row.
    pub(crate) fn row(
        &mut self,
        output: &mut Output,
        row: &[Value],
        columns: &[OutputColumn],
        formats: &[i16],
    ) -> Result<()> {
        let bytes = &mut output.bytes;
        let start = bytes.len();
        bytes.put_u8(b'D');
        bytes.put_i32(0);
        bytes.put_i16(row.len() as i16);
        for (at, (value, column)) in row.iter().zip(columns).enumerate() {
            if value.is_null() {
                bytes.put_i32(-1);
                continue;
            }
            let written = if format(formats, at) == 0 {
                self.text.clear();
                if let Err(error) = value.write_text(column.of, self.style, &mut self.text) {
                    self.text = String::new();
                    bytes.truncate(start);
                    return Err(error);
                }
                self.text.as_bytes()
            } else {
                self.binary.clear();
                value.write_binary(column.of, &mut self.binary);
                &self.binary
            };
            bytes.put_i32(written.len() as i32);
            bytes.extend_from_slice(written);
        }
        let length = (bytes.len() - start - 1) as i32;
        bytes[start + 1..start + 5].copy_from_slice(&length.to_be_bytes());
        Ok(())
    }

    /// Adds a row of a COPY, behind what goes ahead of it in one message.
    ///
    /// # Errors
    /// 54000 if the text of a value would be too long.
    pub(crate) fn copy_row(
        &self,
        output: &mut Output,
        mut ahead: Vec<u8>,
        row: &[Value],
        columns: &[OutputColumn],
        format: &CopyFormat,
    ) -> Result<()> {
        ahead.extend(copy::row(row, columns, self.style, format)?);
        output.copy_data(ahead);
        Ok(())
    }
}
