//! `EXPLAIN` as it is written: what of, and how it is shown.

use savanna_tenants_values::{
    error::{Result, SqlError, state},
    types::Type,
};
use sqlparser::ast;

use crate::plan::Plan;

/// `EXPLAIN`
#[expect(missing_docs, reason = "the names say it")]
#[derive(Debug)]
pub struct Explain {
    pub plan: Plan,
    /// Whether the statement runs.
    pub analyze: bool,
    /// Whether it is shown as JSON.
    pub json: bool,
}

impl Explain {
    /// The options of a statement, and the plan that it is about.
    ///
    /// # Errors
    /// 42601 for an option that there is not, 0A000 for a format that there is not.
    pub(crate) fn new(plan: Plan, analyze: bool, options: &[ast::UtilityOption]) -> Result<Self> {
        if !matches!(plan, Plan::Query(_) | Plan::Insert(_) | Plan::Update(_) | Plan::Delete(_)) {
            return Err(SqlError::new(state::SYNTAX_ERROR, "syntax error: EXPLAIN of a statement that has no plan"));
        }
        let mut explain = Self { plan, analyze, json: false };
        let mut refused = None;
        for option in options {
            let name = option.name.value.to_ascii_uppercase();
            let value = option.arg.as_ref().map(|value| value.to_string().trim_matches('\'').to_ascii_lowercase());
            let on = match value.as_deref() {
                None | Some("true" | "on" | "1") => Some(true),
                Some("false" | "off" | "0") => Some(false),
                Some(_) => None,
            };
            let wrong = || {
                let value = value.as_deref().unwrap_or_default();
                let message = format!("unrecognized value for EXPLAIN option \"{}\": \"{value}\"", name.to_lowercase());
                SqlError::new(state::INVALID_PARAMETER_VALUE, message)
            };
            match name.as_str() {
                "ANALYZE" => explain.analyze = on.ok_or_else(wrong)?,
                "FORMAT" => match value.as_deref() {
                    Some("text") => explain.json = false,
                    Some("json") => explain.json = true,
                    Some("xml" | "yaml") => refused = Some(format!("FORMAT {}", value.unwrap_or_default())),
                    _ => return Err(wrong()),
                },
                // They ask for figures beside the plan, which there are not: tools ask for all of them at once.
                "COSTS" | "VERBOSE" | "BUFFERS" | "WAL" | "TIMING" | "SUMMARY" | "SETTINGS" => {
                    on.ok_or_else(wrong)?;
                }
                _ => {
                    let message = format!("unrecognized EXPLAIN option \"{}\"", name.to_lowercase());
                    return Err(SqlError::new(state::SYNTAX_ERROR, message));
                }
            }
        }
        match refused {
            Some(option) => Err(SqlError::unsupported(format_args!("EXPLAIN with {option}"))),
            None => Ok(explain),
        }
    }

    /// The type of its one column.
    pub(crate) fn of(&self) -> Type {
        if self.json { Type::Json } else { Type::Text }
    }
}
