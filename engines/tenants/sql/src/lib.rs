//! SQL of tenants: from a text to a plan, and what its expressions compute.
//!
//! [`parse`] reads a text as trees; [`prepare`] is the way from there to a [`plan`]. [`bind`] resolves names and types of expressions, [`query`] makes
//! plans of queries, [`modify`] and [`define`] of what writes; `system` has what clients ask about tables and types. [`expression`] and
//! [`function`] compute. [`settings`], [`copy`], `advisory`, [`notify`], [`interrupt`] and [`backends`] are what statements know of the session that they run for.
//!
//! A plan is made over a catalog, and nothing here reads a row of the store: what runs plans is above.

pub mod advisory;
pub mod backends;
pub mod bind;
pub mod copy;
pub mod define;
pub mod doing;
pub mod expression;
mod extension;
pub mod function;
pub mod interrupt;
pub mod modify;
pub mod notify;
pub mod parse;
pub mod plan;
pub mod prepare;
pub mod query;
pub mod settings;
mod system;
