//! The rows of several epochs on their way into one Parquet file, which cannot be added to: an Arrow stream for each epoch, one
//! behind the other.

use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::path::Path;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use arrow::ipc::reader::StreamReader;
use arrow::ipc::writer::StreamWriter;

use crate::format::parquet;

/// Adds the rows of an epoch.
pub(crate) fn append<W: Write>(out: W, schema: &SchemaRef, rows: &RecordBatch) -> Result<W, String> {
    let mut writer = StreamWriter::try_new(out, schema).map_err(|e| e.to_string())?;
    writer.write(rows).and_then(|()| writer.finish()).map_err(|e| e.to_string())?;
    writer.into_inner().map_err(|e| e.to_string())
}

/// All rows that were added.
pub(crate) fn read(mut gathered: &[u8]) -> Result<Vec<RecordBatch>, String> {
    let mut rows = Vec::new();
    while !gathered.is_empty() {
        let epoch = StreamReader::try_new(&mut gathered, None).map_err(|e| e.to_string())?;
        for batch in epoch {
            rows.push(batch.map_err(|e| e.to_string())?);
        }
    }
    Ok(rows)
}

/// Writes all rows as a Parquet file, and flushes it.
pub(crate) fn convert(gathered: &Path, file: &Path) -> Result<(), String> {
    let mut bytes = BufReader::with_capacity(256 << 10, File::open(gathered).map_err(|e| e.to_string())?);
    let mut out = Some(BufWriter::with_capacity(256 << 10, File::create(file).map_err(|e| e.to_string())?));
    let mut writer = None;
    while !bytes.fill_buf().map_err(|e| e.to_string())?.is_empty() {
        let epoch = StreamReader::try_new(&mut bytes, None).map_err(|e| e.to_string())?;
        if let Some(out) = out.take() {
            writer = Some(parquet::writer(out, &epoch.schema())?);
        }
        let writer = writer.as_mut().ok_or("rows without columns")?;
        for rows in epoch {
            writer.write(&rows.map_err(|e| e.to_string())?).map_err(|e| e.to_string())?;
        }
    }
    let out = writer.ok_or("no rows were gathered")?.into_inner().map_err(|e| e.to_string())?;
    let file = out.into_inner().map_err(|e| e.to_string())?;
    file.sync_all().map_err(|e| e.to_string())
}
