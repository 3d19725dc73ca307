//! Who may come in: the roles of a tenant, and how they prove it. Rows of a table with a fixed number:
//!
//! ```text
//! ROLES 32 | name -> what checks its password, as PostgreSQL writes it; empty if it has none
//! ```

use std::{fmt, ops::ControlFlow, str::FromStr};

use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
use hmac::{Hmac, KeyInit, Mac};
use savanna_tenants_encoding::{KeyReader, KeyWriter, Order};
use savanna_transaction::{Direction, Isolation, TxnId};
use sha2::{Digest, Sha256};

use crate::{
    database::Database,
    error::{Result, SqlError, state},
    row,
    store::{Reading, Want},
};

/// The number of the table of roles.
const ROLES: u32 = 32;

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
        // What cannot be normalised is taken as it is, as PostgreSQL and its clients do.
        let normal = stringprep::saslprep(password).unwrap_or_else(|_| password.into());
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
        // How long this takes says nothing about where they differ.
        let difference = xor(hashed, self.stored_key).iter().fold(0, |all, byte| all | byte);
        (difference == 0).then(|| hmac(&self.server_key, &[said]))
    }
}

fn hmac(key: &[u8], parts: &[&[u8]]) -> [u8; 32] {
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

    fn from_str(text: &str) -> std::result::Result<Self, NoVerifier> {
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

/// What a tenant knows of somebody who wants in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Acquaintance {
    /// Whether any role has a password, so that nobody is let in without one.
    pub guarded: bool,
    /// What checks the password of the role, if there is such a role and it has one.
    pub verifier: Option<Verifier>,
}

/// The roles of a tenant, by name, with what checks their passwords.
#[derive(Debug, Default)]
pub struct Roles(Vec<(String, Option<Verifier>)>);

impl Roles {
    /// What is known of a name.
    #[must_use]
    pub fn acquaintance(&self, name: &str) -> Acquaintance {
        let guarded = self.0.iter().any(|(_, verifier)| verifier.is_some());
        let verifier = self.0.iter().find(|(role, _)| role == name).and_then(|(_, verifier)| verifier.clone());
        Acquaintance { guarded, verifier }
    }
}

pub(crate) fn role_key(name: &str) -> Vec<u8> {
    let mut key = KeyWriter::new(ROLES);
    key.text(name, Order::Ascending);
    key.into_bytes()
}

/// A role's row.
pub(crate) fn encode(verifier: Option<&Verifier>) -> Vec<u8> {
    verifier.map(ToString::to_string).unwrap_or_default().into_bytes()
}

impl Database {
    /// The roles as of the last commit; or the blocks that are wanted for that: give them to the reading, and ask again.
    ///
    /// # Errors
    /// XX001 if a row of the catalog is damaged.
    pub fn committed_roles(&mut self, reading: &mut Reading) -> Result<std::result::Result<Roles, Want>> {
        self.read_with(reading, |database| {
            let txn = database.begin(Isolation::ReadCommitted);
            let roles = database.statement(txn).and_then(|_| database.roles(txn));
            database.abort(txn);
            roles.map(Roles)
        })
    }

    /// The roles that a transaction sees, by name.
    pub(crate) fn roles(&mut self, txn: TxnId) -> Result<Vec<(String, Option<Verifier>)>> {
        let damaged = || SqlError::new(state::DATA_CORRUPTED, "a role's row is damaged");
        let mut roles = Vec::new();
        self.scan(txn, &row::whole(ROLES), Direction::Ascending, &mut |key, value| {
            let name = KeyReader::new(key)?.text(Order::Ascending)?.ok_or_else(damaged)?;
            let text = str::from_utf8(value).map_err(|_| damaged())?;
            let verifier = if text.is_empty() { None } else { Some(text.parse().map_err(|NoVerifier| damaged())?) };
            roles.push((name.to_owned(), verifier));
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(roles)
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
