//! Texts to typed values, telling which ones are none.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Int64Array};
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{DataType, Int64Type};
use savanna_streams_api::{Result, StreamError};

/// Parses a column of texts. A text that is no value of the type becomes NULL, and its row is listed.
pub(crate) fn parse(texts: &ArrayRef, data_type: &DataType) -> Result<(ArrayRef, Vec<usize>)> {
    let mut parsed = cast(texts, data_type)?;
    if parsed.null_count() == texts.null_count() {
        return Ok((parsed, Vec::new()));
    }
    if let DataType::Timestamp(..) = data_type {
        parsed = with_epoch_numbers(texts, &parsed, data_type)?;
    }
    let wrong = (0..texts.len()).filter(|&row| texts.is_valid(row) && parsed.is_null(row)).collect();
    Ok((parsed, wrong))
}

fn cast(array: &ArrayRef, data_type: &DataType) -> Result<ArrayRef> {
    // Safe in arrow's sense: what cannot be cast becomes NULL.
    let options = CastOptions { safe: true, ..CastOptions::default() };
    cast_with_options(array, data_type, &options).map_err(|e| {
        StreamError::invalid(format!("a text cannot become {}: {e}", savanna_streams_api::type_name(data_type)))
    })
}

/// Fills in instants that are written as a number of the column's unit since 1970.
fn with_epoch_numbers(texts: &ArrayRef, parsed: &ArrayRef, data_type: &DataType) -> Result<ArrayRef> {
    let numbers = cast(texts, &DataType::Int64)?;
    let numbers: &Int64Array = numbers.as_primitive();
    let instants = cast(parsed, &DataType::Int64)?;
    let instants = instants.as_primitive::<Int64Type>();
    let merged: Int64Array = instants.iter().zip(numbers).map(|(instant, number)| instant.or(number)).collect();
    let merged: ArrayRef = Arc::new(merged);
    cast(&merged, data_type)
}

#[cfg(test)]
mod tests {
    use arrow::array::StringArray;
    use arrow::datatypes::{TimeUnit, TimestampMillisecondType};

    use super::*;

    #[test]
    fn instants_may_be_iso_texts_or_numbers_of_the_unit() {
        let texts = ["2015-07-15T00:00:00.250Z", "2015-07-15 00:00:00", "1436918400001", "soon"];
        let texts: ArrayRef = Arc::new(StringArray::from(texts.to_vec()));
        let (parsed, wrong) = parse(&texts, &DataType::Timestamp(TimeUnit::Millisecond, None)).unwrap();
        let values = parsed.as_primitive::<TimestampMillisecondType>().values();
        assert_eq!(values[..3], [1_436_918_400_250, 1_436_918_400_000, 1_436_918_400_001]);
        assert_eq!(wrong, [3]);
    }
}
