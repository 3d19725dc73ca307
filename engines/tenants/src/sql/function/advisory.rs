//! Advisory locks: locks on numbers that mean something to clients alone. They are row locks of keys that no table has, so that they are
//! waited for, found in circles and given back like these: at the end of the transaction, or when it is rolled back behind them.

use savanna_tenants_encoding::{KeyWriter, Order};
use savanna_transaction::{RowLock, Wait};

use super::Resolved;
use crate::{catalog::ADVISORY, types::Type, value::Value};

/// `pg_advisory_xact_lock` and its kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AdvisoryFunction {
    shared: bool,
    /// Whether it says that somebody else has the lock, instead of waiting.
    tries: bool,
}

pub(super) fn resolve(name: &str, arguments: &[Type]) -> Option<Resolved<AdvisoryFunction>> {
    let (shared, tries) = match name {
        "pg_advisory_xact_lock" => (false, false),
        "pg_advisory_xact_lock_shared" => (true, false),
        "pg_try_advisory_xact_lock" => (false, true),
        "pg_try_advisory_xact_lock_shared" => (true, true),
        _ => return None,
    };
    let of = if tries { Type::Bool } else { Type::Text };
    let integral = |of: &Type| of.is_integer() || *of == Type::Unknown;
    let small = |of: &Type| matches!(of, Type::Int2 | Type::Int4 | Type::Unknown);
    match arguments {
        [key] if integral(key) => Some((AdvisoryFunction { shared, tries }, vec![Type::Int8], of)),
        [class, key] if small(class) && small(key) => {
            Some((AdvisoryFunction { shared, tries }, vec![Type::Int4, Type::Int4], of))
        }
        _ => None,
    }
}

impl AdvisoryFunction {
    /// The key that stands for its numbers; one number is never the same as two.
    pub(crate) fn key(arguments: &[&Value]) -> Vec<u8> {
        let mut key = KeyWriter::new(ADVISORY);
        key.int64(arguments.len() as i64, Order::Ascending);
        for argument in arguments {
            if let Value::Int(number) = argument {
                key.int64(*number, Order::Ascending);
            }
        }
        key.into_bytes()
    }

    pub(crate) fn mode(self) -> RowLock {
        if self.shared { RowLock::Share } else { RowLock::Update }
    }

    pub(crate) fn wait(self) -> Wait {
        if self.tries { Wait::Never } else { Wait::Queue }
    }

    /// What it says when it has its lock, or has not. What has no value has an empty text.
    pub(crate) fn answer(self, locked: bool) -> Value {
        if self.tries { Value::Bool(locked) } else { Value::Text(String::new()) }
    }
}
