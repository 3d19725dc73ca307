//! Advisory locks: locks on numbers that mean something to clients alone. They are row locks of keys that no table has, so that they are
//! waited for and found in circles like these. Those of a transaction are given back like these, too: at its end, or when it is rolled
//! back behind them. Those of a session are held until they are unlocked as often as they were taken, or the session ends.

use savanna_tenants_catalog::ADVISORY;
use savanna_tenants_encoding::{KeyWriter, Order};
use savanna_tenants_values::{types::Type, value::Value};

use super::Resolved;

/// `pg_advisory_lock` and its kind.
#[expect(missing_docs, reason = "the names say it")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdvisoryFunction {
    Lock {
        shared: bool,
        /// Whether it says that somebody else has the lock, instead of waiting.
        tries: bool,
        /// Whether the session holds it, and not its transaction.
        session: bool,
    },
    Unlock {
        shared: bool,
    },
    UnlockAll,
}

pub(super) fn resolve(name: &str, arguments: &[Type]) -> Option<Resolved<AdvisoryFunction>> {
    use AdvisoryFunction::{Lock, Unlock, UnlockAll};
    let function = match name {
        "pg_advisory_lock" => Lock { shared: false, tries: false, session: true },
        "pg_advisory_lock_shared" => Lock { shared: true, tries: false, session: true },
        "pg_try_advisory_lock" => Lock { shared: false, tries: true, session: true },
        "pg_try_advisory_lock_shared" => Lock { shared: true, tries: true, session: true },
        "pg_advisory_xact_lock" => Lock { shared: false, tries: false, session: false },
        "pg_advisory_xact_lock_shared" => Lock { shared: true, tries: false, session: false },
        "pg_try_advisory_xact_lock" => Lock { shared: false, tries: true, session: false },
        "pg_try_advisory_xact_lock_shared" => Lock { shared: true, tries: true, session: false },
        "pg_advisory_unlock" => Unlock { shared: false },
        "pg_advisory_unlock_shared" => Unlock { shared: true },
        "pg_advisory_unlock_all" => return arguments.is_empty().then_some((UnlockAll, vec![], Type::Text)),
        _ => return None,
    };
    let of = if matches!(function, Lock { tries: false, .. }) { Type::Text } else { Type::Bool };
    let integral = |of: &Type| of.is_integer() || *of == Type::Unknown;
    let small = |of: &Type| matches!(of, Type::Int2 | Type::Int4 | Type::Unknown);
    match arguments {
        [key] if integral(key) => Some((function, vec![Type::Int8], of)),
        [class, key] if small(class) && small(key) => Some((function, vec![Type::Int4, Type::Int4], of)),
        _ => None,
    }
}

impl AdvisoryFunction {
    /// The key that stands for its numbers; one number is never the same as two.
    pub fn key(arguments: &[&Value]) -> Vec<u8> {
        let mut key = KeyWriter::new(ADVISORY);
        key.int64(arguments.len() as i64, Order::Ascending);
        for argument in arguments {
            if let Value::Int(number) = argument {
                key.int64(*number, Order::Ascending);
            }
        }
        key.into_bytes()
    }
}
