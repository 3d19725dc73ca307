//! Functions of connections.

use savanna_tenants_values::{error::Result, types::Type, value::Value};

use super::{Resolved, wrong_arguments};
use crate::{backends::Signal, expression::Facts};

/// A function of connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BackendFunction {
    /// `pg_backend_pid`
    Pid,
    /// `pg_cancel_backend`
    Cancel,
    /// `pg_terminate_backend`, which does not wait
    Terminate,
}

/// The function of connections of a name, as [`super::resolve`].
pub(super) fn resolve(name: &str, arguments: &[Type]) -> Option<Resolved<BackendFunction>> {
    use BackendFunction as F;
    use Type::{Bool, Int2, Int4, Int8, Unknown};
    Some(match (name, arguments) {
        ("pg_backend_pid", []) => (F::Pid, vec![], Int4),
        ("pg_cancel_backend", [Int2 | Int4 | Unknown]) => (F::Cancel, vec![Int4], Bool),
        ("pg_terminate_backend", [Int2 | Int4 | Unknown]) => (F::Terminate, vec![Int4], Bool),
        ("pg_terminate_backend", [Int2 | Int4 | Unknown, Int2 | Int4 | Int8 | Unknown]) => {
            (F::Terminate, vec![Int4, Int8], Bool)
        }
        _ => return None,
    })
}

impl BackendFunction {
    pub(super) fn call(self, arguments: &[&Value], facts: &Facts) -> Result<Value> {
        let signal = match (self, arguments) {
            (Self::Pid, []) => return Ok(Value::Int(facts.pid.into())),
            (Self::Cancel, _) => Signal::Cancel,
            (Self::Terminate | Self::Pid, _) => Signal::Terminate,
        };
        let [Value::Int(pid), ..] = arguments else { return Err(wrong_arguments(self)) };
        let (Some(backends), Ok(pid)) = (&facts.backends, i32::try_from(*pid)) else { return Ok(Value::Bool(false)) };
        let elsewhere = facts.elsewhere.as_deref().unwrap_or_default();
        facts.asker().tell(&**backends, elsewhere, pid, signal).map(Value::Bool)
    }
}
