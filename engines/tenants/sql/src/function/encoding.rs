//! Bytes as texts: `encode`, `decode`.

use base64::{Engine, prelude::BASE64_STANDARD};
use savanna_tenants_values::{
    error::{Result, SqlError, state},
    value::size::Text,
};

pub(super) fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    bytes.iter().flat_map(|byte| [byte >> 4, byte & 0xf]).map(|digit| char::from(DIGITS[usize::from(digit)])).collect()
}

fn unknown_encoding(format: &str) -> SqlError {
    SqlError::new(state::INVALID_PARAMETER_VALUE, format!("unrecognized encoding: \"{format}\""))
}

/// Bytes as a text.
pub(super) fn encode(bytes: &[u8], format: &str) -> Result<String> {
    match format.to_ascii_lowercase().as_str() {
        "hex" => Ok(hex(bytes)),
        "base64" => {
            let whole = BASE64_STANDARD.encode(bytes);
            // Lines have 76 characters.
            let lines: Vec<&str> = whole.as_bytes().chunks(76).filter_map(|line| str::from_utf8(line).ok()).collect();
            Ok(lines.join("\n"))
        }
        "escape" => {
            let mut out = Text::default();
            for byte in bytes {
                match byte {
                    b'\\' => out.push_str("\\\\")?,
                    0 | 0x80.. => out.push_str(&format!("\\{byte:03o}"))?,
                    other => out.push(char::from(*other))?,
                }
            }
            Ok(out.finish())
        }
        _ => Err(unknown_encoding(format)),
    }
}

/// The bytes that a text stands for.
pub(super) fn decode(text: &str, format: &str) -> Result<Vec<u8>> {
    let wrong = |what: &str| SqlError::new(state::INVALID_PARAMETER_VALUE, what.to_owned());
    match format.to_ascii_lowercase().as_str() {
        "hex" => savanna_tenants_values::value::text::parse_hex(text),
        "base64" => {
            let letters: Vec<u8> = text.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
            BASE64_STANDARD.decode(letters).map_err(|_| wrong("invalid base64 end sequence"))
        }
        "escape" => savanna_tenants_values::value::text::parse_escaped(text)
            .ok_or_else(|| SqlError::new(state::INVALID_TEXT_REPRESENTATION, "invalid input syntax for type bytea")),
        _ => Err(unknown_encoding(format)),
    }
}
