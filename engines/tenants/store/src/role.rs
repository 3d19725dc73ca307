//! Who may come in: the roles of a tenant, and how they prove it. Rows of a table with a fixed number:
//!
//! ```text
//! ROLES 32 | name -> what checks its password, as PostgreSQL writes it; empty if it has none
//! ```

use std::ops::ControlFlow;

use savanna_identity::NoVerifier;
pub use savanna_identity::{SALT_BYTES, Verifier};
use savanna_tenants_catalog::row;
use savanna_tenants_encoding::{KeyReader, KeyWriter, Order};
use savanna_tenants_values::error::{Result, SqlError, state};
use savanna_transaction::{Direction, Isolation, TxnId};

use crate::{Reading, Want, database::Database};

/// The number of the table of roles.
const ROLES: u32 = 32;

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

/// The key of a role.
pub fn role_key(name: &str) -> Vec<u8> {
    let mut key = KeyWriter::new(ROLES);
    key.text(name, Order::Ascending);
    key.into_bytes()
}

/// A role's row.
pub fn encode(verifier: Option<&Verifier>) -> Vec<u8> {
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
