//! What a server keeps of a password.

use std::{borrow::Cow, fmt, str::FromStr};

use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};

/// How often a password is hashed, PostgreSQL's number.
const ITERATIONS: u32 = 4_096;
/// Bytes that make the hashes of one password differ.
pub const SALT_BYTES: usize = 16;

/// What a server keeps of a password (RFC 5802): enough to check a client's proof, too little to make one.
#[derive(Clone, PartialEq, Eq)]
pub struct Verifier {
    /// How often the password was hashed.
    pub iterations: u32,
    /// What it was hashed with.
    pub salt: Vec<u8>,
    stored_key: [u8; 32],
    server_key: [u8; 32],
}

impl Verifier {
    /// The verifier of a password.
    #[must_use]
    pub fn of_password(password: &str, salt: Vec<u8>) -> Self {
        let normal = normal(password);
        let mut hashed = hmac(normal.as_bytes(), &[&salt, &1_u32.to_be_bytes()]);
        let mut salted = hashed;
        for _ in 1..ITERATIONS {
            hashed = hmac(normal.as_bytes(), &[&hashed]);
            salted = xor(salted, hashed);
        }
        let stored_key = Sha256::digest(hmac(&salted, &[b"Client Key"])).into();
        Self { iterations: ITERATIONS, salt, stored_key, server_key: hmac(&salted, &[b"Server Key"]) }
    }

    /// One that no proof fits, for who is not to learn that there is no such role: the same for a name each time.
    #[must_use]
    pub fn of_nobody(secret: &[u8], name: &str) -> Self {
        let [salt, key] = ["salt", "key"].map(|what| hmac(secret, &[what.as_bytes(), name.as_bytes()]));
        Self { iterations: ITERATIONS, salt: salt[..SALT_BYTES].to_vec(), stored_key: key, server_key: key }
    }

    /// Checks a client's proof over what both have said; gives the server's own proof.
    #[must_use]
    pub fn check(&self, said: &[u8], proof: &[u8]) -> Option<[u8; 32]> {
        let proof: [u8; 32] = proof.try_into().ok()?;
        let client_key = xor(hmac(&self.stored_key, &[said]), proof);
        let hashed: [u8; 32] = Sha256::digest(client_key).into();
        are_equal(&hashed, &self.stored_key).then(|| hmac(&self.server_key, &[said]))
    }
}

/// A password in the form in which it is compared. What cannot be normalised is taken as it is, as PostgreSQL and its clients
/// do.
pub(crate) fn normal(password: &str) -> Cow<'_, str> {
    stringprep::saslprep(password).unwrap_or_else(|_| password.into())
}

/// Whether two are the same. How long this takes says nothing about where they differ.
pub(crate) fn are_equal(one: &[u8; 32], other: &[u8; 32]) -> bool {
    one.iter().zip(other).fold(0, |all, (a, b)| all | (a ^ b)) == 0
}

pub(crate) fn hmac(key: &[u8], parts: &[&[u8]]) -> [u8; 32] {
    let mut code = match Hmac::<Sha256>::new_from_slice(key) {
        Ok(code) => code,
        Err(_) => unreachable!("a key of any length will do"),
    };
    for part in parts {
        code.update(part);
    }
    code.finalize().into_bytes().into()
}

fn xor(a: [u8; 32], b: [u8; 32]) -> [u8; 32] {
    std::array::from_fn(|at| a[at] ^ b[at])
}

/// As PostgreSQL writes it: `SCRAM-SHA-256$iterations:salt$stored key:server key`.
impl fmt::Display for Verifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { iterations, salt, stored_key, server_key } = self;
        let [salt, stored, server] = [&salt[..], stored_key, server_key].map(|bytes| BASE64.encode(bytes));
        write!(f, "SCRAM-SHA-256${iterations}:{salt}${stored}:{server}")
    }
}

/// It is nobody's business in a log.
impl fmt::Debug for Verifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Verifier")
    }
}

/// The text is no verifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoVerifier;

impl FromStr for Verifier {
    type Err = NoVerifier;

    fn from_str(text: &str) -> Result<Self, NoVerifier> {
        let parts = || {
            let (hashed, keys) = text.strip_prefix("SCRAM-SHA-256$")?.split_once('$')?;
            let ((iterations, salt), (stored, server)) = (hashed.split_once(':')?, keys.split_once(':')?);
            let key = |text: &str| BASE64.decode(text).ok()?.try_into().ok();
            Some(Self {
                iterations: iterations.parse().ok().filter(|count| *count > 0)?,
                salt: BASE64.decode(salt).ok().filter(|salt| !salt.is_empty())?,
                stored_key: key(stored)?,
                server_key: key(server)?,
            })
        };
        parts().ok_or(NoVerifier)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verifier_is_read_as_it_is_written() {
        let verifier = Verifier::of_password("secret", vec![7; SALT_BYTES]);
        assert_eq!(verifier.to_string().parse(), Ok(verifier));
        let wrong = ["", "md5abc", "SCRAM-SHA-256$0:AA==$AA==:AA==", "SCRAM-SHA-256$4096:AA==$AA==:AA=="];
        assert!(wrong.iter().all(|text| text.parse::<Verifier>() == Err(NoVerifier)));
    }
}
