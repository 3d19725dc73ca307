//! Functions of the extensions `pgcrypto` and `uuid-ossp` that depend on their arguments alone: digests, and UUIDs made of names.

use hmac::{Hmac, KeyInit, Mac};
use md5::Md5;
use savanna_tenants_values::{
    error::{Result, SqlError, state},
    types::Type,
    value::Value,
};
use sha1::Sha1;
use sha2::{Digest, Sha224, Sha256, Sha384, Sha512};

use super::{Resolved, is_texty, wrong_arguments};

/// A function of digests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DigestFunction {
    Digest,
    Hmac,
    /// `uuid_ns_dns` and the like: a name space
    Space(u8),
    /// `uuid_generate_v3` or `uuid_generate_v5`, by its version
    Named(u8),
    UuidNil,
}

/// The function of digests of a name, as [`super::resolve`].
pub(super) fn resolve(name: &str, arguments: &[Type]) -> Option<Resolved<DigestFunction>> {
    use DigestFunction as F;
    use Type::{Bytea, Text, Unknown, Uuid};
    let space = |number| (F::Space(number), vec![], Uuid);
    Some(match (name, arguments) {
        ("digest", [Bytea, of]) if is_texty(of) => (F::Digest, vec![Bytea, Text], Bytea),
        ("digest", [data, of]) if is_texty(data) && is_texty(of) => (F::Digest, vec![Text, Text], Bytea),
        ("hmac", [Bytea, Bytea | Unknown, of]) if is_texty(of) => (F::Hmac, vec![Bytea, Bytea, Text], Bytea),
        ("hmac", [data, key, of]) if is_texty(data) && is_texty(key) && is_texty(of) => {
            (F::Hmac, vec![Text, Text, Text], Bytea)
        }
        ("uuid_nil", []) => (F::UuidNil, vec![], Uuid),
        ("uuid_ns_dns", []) => space(0x10),
        ("uuid_ns_url", []) => space(0x11),
        ("uuid_ns_oid", []) => space(0x12),
        ("uuid_ns_x500", []) => space(0x14),
        ("uuid_generate_v3" | "uuid_generate_v5", [Uuid | Unknown, of]) if is_texty(of) => {
            (F::Named(if name.ends_with('3') { 3 } else { 5 }), vec![Uuid, Text], Uuid)
        }
        _ => return None,
    })
}

impl DigestFunction {
    /// Its value; no argument is NULL.
    pub(super) fn call(self, arguments: &[&Value]) -> Result<Value> {
        Ok(match (self, arguments) {
            (Self::Digest, [data, Value::Text(of)]) => Value::Bytes(digest(bytes(data)?, of)?),
            (Self::Hmac, [data, key, Value::Text(of)]) => Value::Bytes(hmac(bytes(data)?, bytes(key)?, of)?),
            (Self::UuidNil, []) => Value::Uuid([0; 16]),
            (Self::Space(number), []) => Value::Uuid(name_space(number)),
            (Self::Named(version), [Value::Uuid(space), Value::Text(name)]) => {
                Value::Uuid(named_uuid(version, space, name))
            }
            _ => return Err(wrong_arguments(self)),
        })
    }
}

fn bytes(value: &Value) -> Result<&[u8]> {
    match value {
        Value::Text(text) => Ok(text.as_bytes()),
        Value::Bytes(bytes) => Ok(bytes),
        other => Err(SqlError::internal(format_args!("a digest of {other:?}"))),
    }
}

fn digest(data: &[u8], of: &str) -> Result<Vec<u8>> {
    Ok(match of.to_ascii_lowercase().as_str() {
        "md5" => Md5::digest(data).to_vec(),
        "sha1" => Sha1::digest(data).to_vec(),
        "sha224" => Sha224::digest(data).to_vec(),
        "sha256" => Sha256::digest(data).to_vec(),
        "sha384" => Sha384::digest(data).to_vec(),
        "sha512" => Sha512::digest(data).to_vec(),
        _ => return Err(no_algorithm(of)),
    })
}

fn hmac(data: &[u8], key: &[u8], of: &str) -> Result<Vec<u8>> {
    macro_rules! mac {
        ($hash:ty) => {{
            // A key of any length will do.
            let mut mac = <Hmac<$hash>>::new_from_slice(key).map_err(SqlError::internal)?;
            mac.update(data);
            mac.finalize().into_bytes().to_vec()
        }};
    }
    Ok(match of.to_ascii_lowercase().as_str() {
        "md5" => mac!(Md5),
        "sha1" => mac!(Sha1),
        "sha224" => mac!(Sha224),
        "sha256" => mac!(Sha256),
        "sha384" => mac!(Sha384),
        "sha512" => mac!(Sha512),
        _ => return Err(no_algorithm(of)),
    })
}

fn no_algorithm(of: &str) -> SqlError {
    SqlError::new(state::INVALID_PARAMETER_VALUE, format!("Cannot use \"{of}\": No such hash algorithm"))
        .hint("Expected md5, sha1, sha224, sha256, sha384 or sha512.")
}

/// RFC 4122, appendix C: they differ in their fourth byte.
const fn name_space(number: u8) -> [u8; 16] {
    [0x6b, 0xa7, 0xb8, number, 0x9d, 0xad, 0x11, 0xd1, 0x80, 0xb4, 0x00, 0xc0, 0x4f, 0xd4, 0x30, 0xc8]
}

/// RFC 4122, section 4.3.
fn named_uuid(version: u8, space: &[u8; 16], name: &str) -> [u8; 16] {
    let named = [space, name.as_bytes()].concat();
    let hash = if version == 3 { Md5::digest(named).to_vec() } else { Sha1::digest(named).to_vec() };
    let mut uuid = [0; 16];
    uuid.copy_from_slice(&hash[..16]);
    uuid[6] = uuid[6] & 0x0f | version << 4;
    uuid[8] = uuid[8] & 0x3f | 0x80;
    uuid
}
