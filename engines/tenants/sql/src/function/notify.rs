//! Functions about what sessions tell each other.

use savanna_tenants_values::{error::Result, types::Type, value::Value};

use super::{Resolved, is_texty};
use crate::expression::Facts;

/// `pg_notify` and what belongs to it.
#[expect(missing_docs, reason = "the names say it")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotifyFunction {
    Notify,
    /// How full the queue is in which PostgreSQL keeps what was said.
    QueueUsage,
}

/// The function of a name, as [`super::resolve`].
pub(super) fn resolve(name: &str, arguments: &[Type]) -> Option<Resolved<NotifyFunction>> {
    Some(match (name, arguments) {
        ("pg_notify", [a, b]) if is_texty(a) && is_texty(b) => {
            (NotifyFunction::Notify, vec![Type::Text, Type::Text], Type::Text)
        }
        ("pg_notification_queue_usage", []) => (NotifyFunction::QueueUsage, vec![], Type::Float8),
        _ => return None,
    })
}

impl NotifyFunction {
    /// Its value. What has none has an empty text.
    pub(super) fn call(self, arguments: &[&Value], facts: &Facts) -> Result<Value> {
        if self == Self::QueueUsage {
            // Nobody's queue holds up another's.
            return Ok(Value::Float(0.0));
        }
        let text = |at: usize| match arguments.get(at) {
            Some(Value::Text(text)) => text.as_str(),
            _ => "",
        };
        facts.notifying.borrow_mut().say(text(0), text(1))?;
        Ok(Value::Text(String::new()))
    }
}
