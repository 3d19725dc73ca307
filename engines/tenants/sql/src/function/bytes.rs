//! Functions of single bytes and bits of a `bytea`, and of encodings.

use savanna_tenants_values::{
    error::{Result, SqlError, state},
    types::Type,
    value::Value,
};

use super::{Resolved, is_texty, wrong_arguments};

/// A function of a `bytea`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BytesFunction {
    BitCount,
    ConvertFrom,
    ConvertTo,
    GetBit,
    GetByte,
    /// `int4send` and the like: the binary format of a value of a type
    Send(Type),
    SetBit,
    SetByte,
}

/// Functions that give the binary format of a number.
const SENDING: [(&str, Type); 5] = [
    ("int2send", Type::Int2),
    ("int4send", Type::Int4),
    ("int8send", Type::Int8),
    ("float4send", Type::Float4),
    ("float8send", Type::Float8),
];

/// The function of bytes of a name, as [`super::resolve`].
pub(super) fn resolve(name: &str, arguments: &[Type]) -> Option<Resolved<BytesFunction>> {
    use BytesFunction as F;
    use Type::{Bytea, Int4, Int8, Text, Unknown};
    let bytes = |of: &Type| matches!(of, Bytea | Unknown);
    Some(match (name, arguments) {
        (name, [of]) if name.ends_with("send") => {
            let (_, wanted) = SENDING.into_iter().find(|(known, _)| *known == name)?;
            (*of == wanted || *of == Unknown).then(|| (F::Send(wanted), vec![wanted], Bytea))?
        }
        ("bit_count", [Bytea]) => (F::BitCount, vec![Bytea], Int8),
        ("get_byte", [of, at]) if bytes(of) && at.is_integer() => (F::GetByte, vec![Bytea, Int4], Int4),
        ("get_bit", [of, at]) if bytes(of) && at.is_integer() => (F::GetBit, vec![Bytea, Int8], Int4),
        ("set_byte", [of, at, value]) if bytes(of) && at.is_integer() && value.is_integer() => {
            (F::SetByte, vec![Bytea, Int4, Int4], Bytea)
        }
        ("set_bit", [of, at, value]) if bytes(of) && at.is_integer() && value.is_integer() => {
            (F::SetBit, vec![Bytea, Int8, Int4], Bytea)
        }
        ("convert_from", [of, encoding]) if bytes(of) && is_texty(encoding) => {
            (F::ConvertFrom, vec![Bytea, Text], Text)
        }
        ("convert_to", [of, encoding]) if is_texty(of) && is_texty(encoding) => (F::ConvertTo, vec![Text; 2], Bytea),
        _ => return None,
    })
}

/// The place of something in so many; the message counts from 0.
fn place(at: i64, count: usize) -> Result<usize> {
    usize::try_from(at).ok().filter(|at| *at < count).ok_or_else(|| {
        let message = format!("index {at} out of valid range, 0..{}", count as i64 - 1);
        SqlError::new(state::ARRAY_SUBSCRIPT_ERROR, message)
    })
}

fn check_encoding(name: &str) -> Result<()> {
    match name.to_ascii_lowercase().replace(['-', '_'], "").as_str() {
        "utf8" | "unicode" => Ok(()),
        _ => Err(SqlError::unsupported(format_args!("the encoding \"{name}\""))),
    }
}

impl BytesFunction {
    /// Its value; no argument is NULL.
    pub(super) fn call(self, arguments: &[&Value]) -> Result<Value> {
        Ok(match (self, arguments) {
            (Self::Send(of), [value]) => {
                let mut bytes = Vec::new();
                value.write_binary(of, &mut bytes);
                Value::Bytes(bytes)
            }
            (Self::BitCount, [Value::Bytes(bytes)]) => {
                Value::Int(bytes.iter().map(|byte| i64::from(byte.count_ones())).sum())
            }
            (Self::GetByte, [Value::Bytes(bytes), Value::Int(at)]) => {
                Value::Int(i64::from(bytes[place(*at, bytes.len())?]))
            }
            (Self::GetBit, [Value::Bytes(bytes), Value::Int(at)]) => {
                let at = place(*at, 8 * bytes.len())?;
                Value::Int(i64::from(bytes[at / 8] >> (at % 8) & 1))
            }
            (Self::SetByte, [Value::Bytes(bytes), Value::Int(at), Value::Int(value)]) => {
                let (mut bytes, at) = (bytes.clone(), place(*at, bytes.len())?);
                bytes[at] = *value as u8;
                Value::Bytes(bytes)
            }
            (Self::SetBit, [Value::Bytes(bytes), Value::Int(at), Value::Int(value)]) => {
                let (mut bytes, at) = (bytes.clone(), place(*at, 8 * bytes.len())?);
                match value {
                    0 => bytes[at / 8] &= !(1 << (at % 8)),
                    1 => bytes[at / 8] |= 1 << (at % 8),
                    _ => return Err(SqlError::new(state::INVALID_PARAMETER_VALUE, "new bit must be 0 or 1")),
                }
                Value::Bytes(bytes)
            }
            (Self::ConvertFrom, [Value::Bytes(bytes), Value::Text(encoding)]) => {
                check_encoding(encoding)?;
                let text = str::from_utf8(bytes).ok().filter(|text| !text.contains('\0'));
                let wrong =
                    || SqlError::new(state::CHARACTER_NOT_IN_REPERTOIRE, "invalid byte sequence for encoding \"UTF8\"");
                Value::Text(text.ok_or_else(wrong)?.to_owned())
            }
            (Self::ConvertTo, [Value::Text(text), Value::Text(encoding)]) => {
                check_encoding(encoding)?;
                Value::Bytes(text.as_bytes().to_vec())
            }
            _ => return Err(wrong_arguments(self)),
        })
    }
}
