//! SQL: from a text to a plan, and a plan's execution.
//!
//! `parse` gives a tree (`dialect` what it does not know), `bind` resolves its names and types, `select`, `modify` and `define` make plans of it; `prepare`
//! is the way through them. `access` decides
//! how rows are found, `reference` what foreign keys join, `role` who may come in. `expression`, `function` and `aggregate` compute; the
//! modules `run_*` execute plans.

pub(crate) mod access;
pub(crate) mod aggregate;
pub(crate) mod bind;
pub(crate) mod define;
pub(crate) mod dialect;
pub(crate) mod effects;
pub(crate) mod expression;
pub(crate) mod function;
pub(crate) mod modify;
pub(crate) mod parse;
pub(crate) mod plan;
pub(crate) mod prepare;
pub(crate) mod reference;
pub(crate) mod role;
pub(crate) mod run_alter;
pub(crate) mod run_define;
pub(crate) mod run_define_reference;
pub(crate) mod run_modify;
pub(crate) mod run_reference;
pub(crate) mod run_select;
pub(crate) mod select;
