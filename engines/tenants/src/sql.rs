//! SQL: from a text to a plan, and a plan's execution.
//!
//! `words` reads a text; `parse` gives a tree (`dialect` what it does not know); `prepare` is the way from there to a plan. `bind` resolves names and types of
//! expressions in a `scope`, `from` those of tables; `select` and `query` make plans of queries, `modify` and `define` of what writes. `join`
//! and `access` decide how rows are found, `reference` what foreign keys join, `role` who may come in, `system` what clients ask about
//! tables and types. `expression`, `function` and `aggregate` compute; the modules
//! `run_*` execute plans.

pub(crate) mod access;
pub(crate) mod aggregate;
pub(crate) mod arithmetic;
pub(crate) mod bind;
pub(crate) mod conflict_target;
pub(crate) mod copy;
pub(crate) mod create_table_as;
pub(crate) mod cursor;
pub(crate) mod data_type;
pub(crate) mod default_sequence;
pub(crate) mod define;
pub(crate) mod define_index;
pub(crate) mod define_sequence;
pub(crate) mod dialect;
pub(crate) mod effects;
pub(crate) mod explain;
pub(crate) mod expression;
pub(crate) mod from;
pub(crate) mod function;
pub(crate) mod grammar;
pub(crate) mod group;
pub(crate) mod implication;
pub(crate) mod index;
pub(crate) mod items;
pub(crate) mod join;
pub(crate) mod late;
pub(crate) mod lock_table;
pub(crate) mod modify;
pub(crate) mod name;
pub(crate) mod order;
pub(crate) mod ordered_set;
pub(crate) mod parse;
pub(crate) mod placement;
pub(crate) mod plan;
pub(crate) mod prepare;
pub(crate) mod prepared;
pub(crate) mod print;
pub(crate) mod query;
pub(crate) mod query_plan;
pub(crate) mod reference;
pub(crate) mod role;
pub(crate) mod run;
pub(crate) mod run_alter;
pub(crate) mod run_define;
pub(crate) mod run_define_enumeration;
pub(crate) mod run_define_index;
pub(crate) mod run_define_reference;
pub(crate) mod run_define_schema;
pub(crate) mod run_define_sequence;
pub(crate) mod run_define_view;
pub(crate) mod run_join;
pub(crate) mod run_modify;
pub(crate) mod run_part;
pub(crate) mod run_query;
pub(crate) mod run_reference;
pub(crate) mod run_rename_column;
pub(crate) mod run_rows;
pub(crate) mod run_set;
pub(crate) mod run_subquery;
pub(crate) mod run_window;
pub(crate) mod run_with;
pub(crate) mod scope;
pub(crate) mod select;
pub(crate) mod sequence;
pub(crate) mod set_function;
pub(crate) mod system;
pub(crate) mod view;
pub(crate) mod window_plan;
pub(crate) mod with;
pub(crate) mod words;
pub(crate) mod written;
