//! The values that a client binds to `$1`, `$2`, ..: from the formats of the protocol to the texts of SQL.

use arrow::temporal_conversions::{date32_to_datetime, timestamp_us_to_datetime};
use arrow_schema::{DataType, TimeUnit};
use pgwire::api::Type;
use pgwire::messages::extendedquery::Bind;
use savanna_pgwire_connection::{Report, format};
use savanna_streams_api::handle::Parameter;

use crate::numeric;

/// Days from 1970-01-01 to 2000-01-01, where times of the protocol begin.
const EPOCH_DAYS: i32 = 10_957;
const MICROS_PER_DAY: i64 = 86_400_000_000;

/// A parameter of a prepared statement.
#[derive(Clone, Debug)]
pub(crate) struct Declared {
    /// Its type in the engine.
    pub(crate) data_type: DataType,
    /// Its type in the protocol.
    pub(crate) pg_type: Type,
}

/// The engine's type for a type that a client declares; none if the client leaves it open.
pub(crate) fn data_type(number: usize, declared: Option<&Type>) -> Result<Option<DataType>, Report> {
    let Some(declared) = declared else { return Ok(None) };
    Ok(Some(match *declared {
        Type::UNKNOWN => return Ok(None),
        Type::BOOL => DataType::Boolean,
        Type::INT2 => DataType::Int16,
        Type::INT4 => DataType::Int32,
        Type::INT8 | Type::OID => DataType::Int64,
        Type::FLOAT4 => DataType::Float32,
        Type::FLOAT8 => DataType::Float64,
        Type::NUMERIC => DataType::Decimal128(38, 10),
        Type::TEXT | Type::VARCHAR | Type::BPCHAR | Type::NAME | Type::JSON | Type::UUID => DataType::Utf8View,
        Type::DATE => DataType::Date32,
        Type::TIMESTAMP => DataType::Timestamp(TimeUnit::Microsecond, None),
        Type::TIMESTAMPTZ => DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
        _ => {
            let message =
                format!("parameter ${number} is {declared}, which is not supported; send it as text and CAST it");
            return Err(Report::new("0A000", message));
        }
    }))
}

/// The values that a message binds to these parameters.
pub(crate) fn values(declared: &[Declared], bind: &Bind) -> Result<Vec<Parameter>, Report> {
    let (codes, came) = (&bind.parameter_format_codes, bind.parameters.len());
    if codes.len() > 1 && codes.len() != came {
        let message = format!("the bind message has {} parameter formats for {came} parameters", codes.len());
        return Err(Report::protocol(message));
    }
    if came != declared.len() {
        return Err(Report::protocol(format!("the statement takes {} parameters, but got {came}", declared.len())));
    }
    let value = |(at, (declared, bytes)): (usize, (&Declared, &Option<_>))| {
        let text = bytes.as_deref().map(|bytes: &[u8]| match format(codes, at) {
            0 => std::str::from_utf8(bytes).ok().map(str::to_owned),
            _ => from_binary(&declared.pg_type, bytes),
        });
        match text {
            Some(None) => {
                let message = format!("parameter ${} is not a valid {}", at + 1, declared.pg_type);
                Err(Report::new("22P03", message))
            }
            known => Ok(Parameter { data_type: declared.data_type.clone(), text: known.flatten() }),
        }
    };
    declared.iter().zip(&bind.parameters).enumerate().map(value).collect()
}

/// The text of a value in binary; none if the bytes are no value of the type.
fn from_binary(pg_type: &Type, bytes: &[u8]) -> Option<String> {
    Some(match *pg_type {
        Type::BOOL => (*bytes.first()? != 0).to_string(),
        Type::INT2 => i16::from_be_bytes(bytes.try_into().ok()?).to_string(),
        Type::INT4 => i32::from_be_bytes(bytes.try_into().ok()?).to_string(),
        Type::INT8 => i64::from_be_bytes(bytes.try_into().ok()?).to_string(),
        Type::OID => u32::from_be_bytes(bytes.try_into().ok()?).to_string(),
        Type::FLOAT4 => f32::from_be_bytes(bytes.try_into().ok()?).to_string(),
        Type::FLOAT8 => f64::from_be_bytes(bytes.try_into().ok()?).to_string(),
        Type::NUMERIC => numeric::from_binary(bytes)?,
        Type::DATE => {
            let days = i32::from_be_bytes(bytes.try_into().ok()?).checked_add(EPOCH_DAYS)?;
            date32_to_datetime(days)?.date().to_string()
        }
        Type::TIMESTAMP | Type::TIMESTAMPTZ => {
            let micros = i64::from_be_bytes(bytes.try_into().ok()?);
            let micros = micros.checked_add(i64::from(EPOCH_DAYS) * MICROS_PER_DAY)?;
            timestamp_us_to_datetime(micros)?.to_string()
        }
        Type::UUID => {
            let hex: String = <&[u8; 16]>::try_from(bytes).ok()?.iter().map(|byte| format!("{byte:02x}")).collect();
            [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-")
        }
        _ => std::str::from_utf8(bytes).ok()?.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_count_from_2000() {
        assert_eq!(from_binary(&Type::DATE, &1_i32.to_be_bytes()).as_deref(), Some("2000-01-02"));
        let text = from_binary(&Type::TIMESTAMP, &1_500_000_i64.to_be_bytes());
        assert_eq!(text.as_deref(), Some("2000-01-01 00:00:01.500"));
        assert_eq!(from_binary(&Type::TIMESTAMP, &i64::MAX.to_be_bytes()), None, "infinity is not supported as a time");
        assert_eq!(from_binary(&Type::INT4, &[1, 2]), None);
    }
}
