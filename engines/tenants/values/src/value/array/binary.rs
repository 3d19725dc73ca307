//! The binary format of arrays.

use super::{Array, DIMENSIONS_MAX, Dimension, check_bounds, too_many_dimensions};
use crate::{
    error::{Result, SqlError, state},
    types::Type,
    value::{Context, Value, binary, size::check_structure},
};

impl Array {
    /// Appends the bytes of the binary format.
    pub(crate) fn to_binary(&self, of: Type, out: &mut Vec<u8>) {
        let nulls = i32::from(self.elements.iter().any(Value::is_null));
        out.extend((self.dimensions.len() as i32).to_be_bytes());
        out.extend(nulls.to_be_bytes());
        out.extend(of.oid().to_be_bytes());
        for Dimension { length, lower } in &self.dimensions {
            out.extend((*length as i32).to_be_bytes());
            out.extend(lower.to_be_bytes());
        }
        for element in &self.elements {
            if element.is_null() {
                out.extend((-1_i32).to_be_bytes());
                continue;
            }
            let begin = out.len();
            out.extend([0; 4]);
            binary::write(element, of, out);
            let length = (out.len() - begin - 4) as i32;
            out[begin..begin + 4].copy_from_slice(&length.to_be_bytes());
        }
    }

    /// The array of the binary format.
    ///
    /// # Errors
    /// 22P03, 42804 for elements of another type, and those of the elements.
    pub(crate) fn from_binary(bytes: &[u8], of: Type, context: Context<'_>) -> Result<Self> {
        let wrong = || SqlError::new(state::INVALID_BINARY_REPRESENTATION, "incorrect binary data format for an array");
        let mut rest = bytes;
        let number = |rest: &mut &[u8]| -> Result<i32> {
            let (number, after) = rest.split_first_chunk::<4>().ok_or_else(wrong)?;
            *rest = after;
            Ok(i32::from_be_bytes(*number))
        };
        let count = usize::try_from(number(&mut rest)?).map_err(|_| wrong())?;
        if count > DIMENSIONS_MAX {
            return Err(too_many_dimensions(count));
        }
        let _nulls = number(&mut rest)?;
        let came = number(&mut rest)? as u32;
        let same = |a: Type, b: Type| a == b || (a.is_text() && b.is_text());
        if came != of.oid() && !Type::of_oid(came).is_some_and(|came| same(came.unbounded(), of.unbounded())) {
            let message = format!("binary data has array element type {came} instead of expected {}", of.oid());
            return Err(SqlError::new(state::DATATYPE_MISMATCH, message));
        }
        let (mut array, mut taken) = (Self::default(), 0);
        let mut total = 1_usize;
        for _ in 0..count {
            let length = usize::try_from(number(&mut rest)?).map_err(|_| wrong())?;
            array.dimensions.push(Dimension { length, lower: number(&mut rest)? });
            total = total.checked_mul(length).filter(|total| *total <= bytes.len()).ok_or_else(wrong)?;
        }
        check_bounds(&array.dimensions)?;
        let total = if count == 0 { 0 } else { total };
        for _ in 0..total {
            let length = number(&mut rest)?;
            if length == -1 {
                array.elements.push(Value::Null);
                continue;
            }
            let length = usize::try_from(length).ok().filter(|length| *length <= rest.len()).ok_or_else(wrong)?;
            let (element, after) = rest.split_at(length);
            let element = binary::parse(element, of, context)?;
            // Rows take much more memory than their bytes do.
            if let Value::Record(_) = element {
                taken += element.bytes();
                check_structure(taken)?;
            }
            array.elements.push(element);
            rest = after;
        }
        if !rest.is_empty() {
            return Err(wrong());
        }
        if array.elements.is_empty() {
            array.dimensions.clear();
        }
        Ok(array)
    }
}
