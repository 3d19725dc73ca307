//! From a text to a plan.

pub mod cursor;
pub mod explain;
pub(crate) mod lock_table;
pub(crate) mod maintenance;
pub(crate) mod prepared;

use std::sync::Arc;

use savanna_tenants_catalog::{Catalog, name::quoted};
use savanna_tenants_values::{
    enumeration::{Enumeration, Position},
    error::{Result, SqlError, state},
    types::Type,
    value::style::Style,
};
use savanna_transaction::Isolation;
use sqlparser::ast::{
    self, ContextModifier, ObjectType, Reset, Set, SetSessionAuthorizationParamKind, Statement as Ast,
    TransactionAccessMode, TransactionIsolationLevel, TransactionMode,
};

use crate::{
    backends::refuse_stored_signals,
    bind::Parameters,
    define::{role::RoleChange, table_as::selected_into},
    extension,
    interrupt::Interrupts,
    modify::{conflict_target::conflict_target, copy::parse_copy},
    parse,
    parse::{
        dialect,
        name::{name_of, object_name, relation_name},
        words::Words,
    },
    plan::{Define, Modes, OutputColumn, Plan, Statement, With},
    prepare::{cursor::parse_cursor, explain::Explain},
    query::{scope::Scope, select::Planner},
    settings::switch,
    system::qualify,
};

/// Plans a statement for a session in its style, unless it is interrupted. `declared` are the types that the client gave to its first
/// parameters.
pub fn prepare(
    text: &str,
    catalog: Arc<Catalog>,
    style: Style,
    declared: &[Type],
    interrupts: Arc<Interrupts>,
) -> Result<Statement> {
    // Whoever ended the statement wants to hear of that, and not what it broke.
    let ended = Arc::clone(&interrupts);
    planned(text, catalog, style, declared, interrupts).or_else(|error| ended.check().and(Err(error)))
}

fn planned(
    text: &str,
    catalog: Arc<Catalog>,
    style: Style,
    declared: &[Type],
    interrupts: Arc<Interrupts>,
) -> Result<Statement> {
    let words = Words::read(text, Arc::clone(&interrupts))?;
    let storable = refuse_stored_signals(&words.tokens);
    let readers = [dialect::plan, prepared::plan, lock_table::plan, maintenance::plan];
    let of_postgresql = readers.into_iter().find_map(|read| read(&words, &catalog).transpose()).transpose()?;
    if let Some(plan) = of_postgresql {
        refuse_what_must_not_be_stored(&plan, storable)?;
        return Ok(Statement::new(plan, declared.to_vec(), None, (catalog, style)));
    }
    let parameters = Parameters { types: declared.to_vec(), failure: None };
    let mut planner = Planner::new(&catalog, parameters);
    planner.style = style;
    planner.interrupts = interrupts;
    let (plan, output) = if let Some(copy) = parse_copy(&words)? {
        (planner.copy(copy)?, None)
    } else if let Some(cursor) = parse_cursor(&words)? {
        (planner.cursor(cursor, text)?, None)
    } else {
        planner.overriding = parse::overriding(&words);
        planner.conflict_target = conflict_target(&words)?;
        match parse::tree(words)? {
            Some(mut ast) => {
                planner.defines = defines(&ast);
                qualify::types(&catalog, &mut ast);
                planner.statement(&ast)?
            }
            None => (Plan::Empty, None),
        }
    };
    if let Some(failure) = planner.parameters.failure.take() {
        return Err(failure);
    }
    refuse_what_must_not_be_stored(&plan, storable)?;
    let (lists, asks_for_backends, acts) = (planner.lists, planner.asks_for_backends, planner.acts);
    let parameters = planner.parameters.settled();
    let mut statement = Statement::new(plan, parameters, output, (catalog, style));
    (statement.lists, statement.asks_for_backends, statement.acts) = (lists, asks_for_backends, acts);
    Ok(statement)
}

/// Whether expressions of a statement are kept as they are written.
fn defines(ast: &Ast) -> bool {
    match ast {
        Ast::CreateTable(table) => table.query.is_none(),
        other => matches!(other, Ast::AlterTable(_) | Ast::CreateIndex(_) | Ast::CreateView(_)),
    }
}

fn refuse_what_must_not_be_stored(plan: &Plan, storable: Result<()>) -> Result<()> {
    if matches!(plan, Plan::Define(_)) { storable } else { Ok(()) }
}

type Planned = (Plan, Option<Vec<OutputColumn>>);

impl Planner<'_> {
    pub(crate) fn statement(&mut self, ast: &Ast) -> Result<Planned> {
        let unsupported = || SqlError::unsupported(first_words(ast));
        let silent = |plan| Ok((plan, None));
        match ast {
            Ast::Query(query) if writes_within(query) => self.with_parts(query),
            Ast::Query(query) if writes(&query.body).is_some() => self.with_writes(query),
            Ast::Query(query) => {
                if let Some(create) = selected_into(query) {
                    return silent(Plan::Define(self.create_table(&create)?));
                }
                let query = self.query_at(query, &Scope::default())?;
                let output = query.columns.clone();
                Ok((Plan::Query(Box::new(query)), Some(output)))
            }
            Ast::Insert(insert) => {
                let (plan, output) = self.insert(insert)?;
                Ok((Plan::Insert(Box::new(plan)), output))
            }
            Ast::Update(update) => {
                let (plan, output) = self.update(update)?;
                Ok((Plan::Update(Box::new(plan)), output))
            }
            Ast::Delete(delete) => {
                let (plan, output) = self.delete(delete)?;
                Ok((Plan::Delete(Box::new(plan)), output))
            }
            Ast::Explain {
                analyze,
                verbose: _,
                statement,
                format: None,
                options,
                query_plan: false,
                estimate: false,
                ..
            } => {
                let (plan, _) = self.statement(statement)?;
                let explain = Explain::new(plan, *analyze, options.as_deref().unwrap_or_default())?;
                let output = OutputColumn { name: "QUERY PLAN".to_owned(), of: explain.of(), origin: (0, 0) };
                Ok((Plan::Explain(Box::new(explain)), Some(vec![output])))
            }
            Ast::CreateTable(create) => silent(Plan::Define(self.create_table(create)?)),
            Ast::CreateIndex(create) => silent(Plan::Define(self.create_index(create)?)),
            Ast::CreateType { name, representation: Some(ast::UserDefinedTypeRepresentation::Enum { labels }) } => {
                let labels = labels.iter().map(|label| label.value.clone()).collect();
                let name = relation_name(name)?;
                let schema = self.catalog.schema_of_new(&name, false)?;
                silent(Plan::Define(Define::CreateEnumeration(Enumeration::new(name.name, schema, labels)?)))
            }
            Ast::CreateType {
                name,
                representation: Some(ast::UserDefinedTypeRepresentation::Composite { attributes }),
            } => silent(Plan::Define(self.create_composite(name, attributes)?)),
            Ast::AlterType(ast::AlterType { name, operation: ast::AlterTypeOperation::Rename(rename) }) => {
                let (name, to) = (relation_name(name)?, name_of(&rename.new_name));
                silent(Plan::Define(Define::RenameType { name, to }))
            }
            Ast::AlterType(ast::AlterType { name, operation: ast::AlterTypeOperation::AddValue(add) }) => {
                let position = match &add.position {
                    None => Position::Last,
                    Some(ast::AlterTypeAddValuePosition::Before(label)) => Position::Before(label.value.clone()),
                    Some(ast::AlterTypeAddValuePosition::After(label)) => Position::After(label.value.clone()),
                };
                let (name, label) = (relation_name(name)?, add.value.value.clone());
                silent(Plan::Define(Define::AddLabel { name, label, position, if_not_exists: add.if_not_exists }))
            }
            Ast::CreateExtension(create) => silent(extension::create(create)?),
            Ast::DropExtension(drop) => silent(extension::drop(drop)?),
            Ast::CreateView(create) => silent(Plan::Define(self.create_view(create)?)),
            Ast::AlterTable(alter) => silent(Plan::Define(self.alter_table(alter)?)),
            Ast::Truncate(truncate) => {
                let restart = matches!(truncate.identity, Some(ast::TruncateIdentityOption::Restart));
                let names = truncate.table_names.iter().map(|target| relation_name(&target.name));
                let cascade = matches!(truncate.cascade, Some(ast::CascadeOption::Cascade));
                silent(Plan::Define(Define::Truncate { names: names.collect::<Result<_>>()?, cascade, restart }))
            }
            Ast::Drop {
                object_type, if_exists, names, cascade, restrict: _, purge: false, temporary: false, ..
            } => {
                let (if_exists, cascade) = (*if_exists, *cascade);
                let relations = || names.iter().map(relation_name).collect::<Result<Vec<_>>>();
                let others = || names.iter().map(object_name).collect::<Result<Vec<_>>>();
                silent(Plan::Define(match object_type {
                    ObjectType::Table => Define::DropTables { names: relations()?, if_exists, cascade },
                    ObjectType::View => Define::DropViews { names: relations()?, if_exists, cascade },
                    ObjectType::Index => Define::DropIndexes { names: relations()?, if_exists, cascade },
                    ObjectType::Sequence => Define::DropSequences { names: relations()?, if_exists, cascade },
                    ObjectType::Schema => Define::DropSchemas { names: others()?, if_exists, cascade },
                    ObjectType::Role | ObjectType::User => {
                        Define::Roles(RoleChange::Drop { names: others()?, if_exists })
                    }
                    ObjectType::Type => Define::DropTypes { names: relations()?, if_exists, cascade },
                    ObjectType::Database => match others()?.as_slice() {
                        [name] => return silent(Plan::DropDatabase { name: name.clone(), if_exists }),
                        _ => return Err(unsupported()),
                    },
                    _ => return Err(unsupported()),
                }))
            }
            Ast::CreateSchema {
                schema_name: ast::SchemaName::Simple(name),
                if_not_exists,
                with: None,
                options: None,
                default_collate_spec: None,
                clone: None,
            } => silent(Plan::Define(Define::CreateSchema { name: object_name(name)?, if_not_exists: *if_not_exists })),
            // Whatever else it says would be lost.
            Ast::CreateDatabase { db_name, .. } if ast.to_string() == format!("CREATE DATABASE {db_name}") => {
                silent(Plan::CreateDatabase(object_name(db_name)?))
            }
            Ast::CreateRole(create) => silent(Plan::Define(Define::Roles(RoleChange::create(create)?))),
            Ast::AlterRole { name, operation } => {
                silent(Plan::Define(Define::Roles(RoleChange::alter(name, operation)?)))
            }
            Ast::StartTransaction { modes: asked, begin, modifier: None, statements, exception: None, .. }
                if statements.is_empty() =>
            {
                let tag = if *begin { "BEGIN" } else { "START TRANSACTION" };
                silent(Plan::Begin { tag, modes: modes(asked)? })
            }
            Ast::Commit { chain: false, modifier: None, .. } => silent(Plan::Commit),
            Ast::Rollback { chain: false, savepoint: None } => silent(Plan::Rollback),
            Ast::Rollback { chain: false, savepoint: Some(name) } => silent(Plan::RollbackTo(name_of(name))),
            Ast::Savepoint { name } => silent(Plan::Savepoint(name_of(name))),
            Ast::ReleaseSavepoint { name } => silent(Plan::Release(name_of(name))),
            Ast::Set(set) => silent(self.set(set)?),
            Ast::ShowVariable { variable } => {
                let words: Vec<String> = variable.iter().map(|word| word.value.to_ascii_lowercase()).collect();
                let name = match words.join(".").as_str() {
                    "transaction.isolation.level" => "transaction_isolation".to_owned(),
                    "time.zone" => "timezone".to_owned(),
                    "all" => return self.statement(&all_settings()?),
                    name => name.to_owned(),
                };
                let output = OutputColumn { name: shown_name(&name).to_owned(), of: Type::Text, origin: (0, 0) };
                Ok((Plan::Show(name), Some(vec![output])))
            }
            Ast::Reset(reset) => match &reset.reset {
                // A session has one role from its login on.
                Reset::ConfigurationParameter(name) if setting_name(name)? == "role" => silent(Plan::Nothing("RESET")),
                Reset::ConfigurationParameter(name) => silent(Plan::Reset(setting_name(name)?)),
                Reset::ALL => silent(Plan::Reset(String::new())),
            },
            Ast::Deallocate { name, .. } => {
                let name = Some(name_of(name)).filter(|name| name != "all");
                silent(Plan::Deallocate(name))
            }
            Ast::NOTIFY { channel, payload } => {
                let payload = payload.clone().unwrap_or_default();
                silent(Plan::Notify { channel: name_of(channel), payload })
            }
            Ast::LISTEN { channel } => silent(Plan::Listen(name_of(channel))),
            Ast::UNLISTEN { channel } => {
                let all = channel.quote_style.is_none() && channel.value == "*";
                silent(Plan::Unlisten((!all).then(|| name_of(channel))))
            }
            Ast::Discard { object_type: ast::DiscardObject::ALL } => silent(Plan::DiscardAll),
            Ast::Discard { object_type: ast::DiscardObject::TEMP } => silent(Plan::DiscardTemporary),
            _ => Err(unsupported()),
        }
    }

    /// A statement with others that write in its WITH.
    fn with_parts(&mut self, query: &ast::Query) -> Result<Planned> {
        let named = self.with.len();
        let whole = self.parts.replace(Vec::new()).is_none();
        if !whole {
            return Err(SqlError::internal("a statement within a statement"));
        }
        let nothing = Scope::default();
        self.add_with(query, &nothing)?;
        // Those in the statement itself are not at the top level.
        let parts = self.parts.take();
        let planned = match writes(&query.body) {
            Some(statement) => self.statement(statement),
            None => {
                let query = ast::Query { with: None, ..query.clone() };
                self.query_at(&query, &nothing).map(|query| {
                    let output = query.columns.clone();
                    (Plan::Query(Box::new(query)), Some(output))
                })
            }
        };
        self.parts = parts;
        self.forget_with(named);
        let parts = self.parts.take().unwrap_or_default();
        let (main, output) = planned?;
        Ok((Plan::With(Box::new(With { parts, main })), output))
    }

    /// A statement that writes, behind WITH.
    fn with_writes(&mut self, query: &ast::Query) -> Result<Planned> {
        let Some(statement) = writes(&query.body) else {
            return Err(SqlError::internal("a statement without WITH came as a query"));
        };
        let named = self.with.len();
        self.add_with(query, &Scope::default())?;
        let planned = self.statement(statement);
        self.forget_with(named);
        planned
    }

    fn set(&self, set: &Set) -> Result<Plan> {
        match set {
            Set::SetTransaction { modes: asked, snapshot: None, session } => {
                let modes = modes(asked)?;
                Ok(if *session { Plan::SetSession(modes) } else { Plan::SetTransaction(modes) })
            }
            Set::SingleAssignment { scope, hivevar: false, variable, values } => {
                let local = matches!(scope, Some(ContextModifier::Local));
                let name = setting_name(variable)?;
                let value = if name == "search_path" { search_path(values)? } else { setting(values)? };
                set_plan(name, value, local)
            }
            Set::SetTimeZone { local, value } => Ok(Plan::Set {
                name: "timezone".to_owned(),
                value: if is_local(value) { None } else { setting(std::slice::from_ref(value))? },
                local: *local,
            }),
            Set::SetNames { charset_name, collation_name: None } => {
                Ok(Plan::Set { name: "client_encoding".to_owned(), value: Some(name_of(charset_name)), local: false })
            }
            // A session has one role from its login on.
            Set::SetRole { role_name: None, .. } => Ok(Plan::Nothing("SET")),
            Set::SetSessionAuthorization(to) if to.kind == SetSessionAuthorizationParamKind::Default => {
                Ok(Plan::Nothing("SET"))
            }
            other => Err(SqlError::unsupported(other)),
        }
    }
}

/// The name of a setting as PostgreSQL shows it.
fn shown_name(name: &str) -> &str {
    match name {
        "datestyle" => "DateStyle",
        "intervalstyle" => "IntervalStyle",
        "timezone" => "TimeZone",
        name => name,
    }
}

/// Whether a statement in the WITH of a query writes.
fn writes_within(query: &ast::Query) -> bool {
    query.with.iter().flat_map(|with| &with.cte_tables).any(|cte| writes(&cte.query.body).is_some())
}

/// The statement that writes, if a query is one.
pub(crate) fn writes(body: &ast::SetExpr) -> Option<&Ast> {
    match body {
        ast::SetExpr::Insert(statement) | ast::SetExpr::Update(statement) | ast::SetExpr::Delete(statement) => {
            Some(statement)
        }
        _ => None,
    }
}

/// What `SHOW ALL` asks for.
fn all_settings() -> Result<Ast> {
    let text = "SELECT name, setting, short_desc AS description FROM pg_catalog.pg_settings";
    parse::parse(text)?.ok_or_else(|| SqlError::internal("a question about settings is none"))
}

/// The name of a setting, which may be one of its user's own.
fn setting_name(name: &ast::ObjectName) -> Result<String> {
    let parts = name.0.iter().map(|part| part.as_ident().map(|ident| ident.value.to_ascii_lowercase()));
    let parts: Option<Vec<String>> = parts.collect();
    parts.map(|parts| parts.join(".")).ok_or_else(|| SqlError::unsupported(format_args!("the setting {name}")))
}

/// `SET` of a setting. What the transaction is like is no setting of the session.
fn set_plan(name: String, value: Option<String>, local: bool) -> Result<Plan> {
    Ok(match (name.as_str(), value.as_deref()) {
        ("transaction_isolation", Some(level)) => {
            Plan::SetTransaction(Modes { isolation: Some(isolation_of(level)?), ..Modes::default() })
        }
        ("transaction_read_only", Some(value)) => {
            Plan::SetTransaction(Modes { read_only: Some(switch(&name, value)?), ..Modes::default() })
        }
        _ => Plan::Set { name, value, local },
    })
}

/// A setting's value as one text; `None` for DEFAULT.
fn setting(values: &[ast::Expr]) -> Result<Option<String>> {
    let mut texts = Vec::new();
    for value in values {
        texts.push(match value {
            ast::Expr::Identifier(ident)
                if ident.quote_style.is_none() && ident.value.eq_ignore_ascii_case("default") =>
            {
                return Ok(None);
            }
            ast::Expr::Identifier(ident) => ident.value.clone(),
            ast::Expr::Value(value) => match value.value.clone().into_string() {
                Some(text) => text,
                None => value.value.to_string(),
            },
            ast::Expr::UnaryOp { .. } => value.to_string(),
            other => return Err(SqlError::unsupported(format_args!("the setting {other}"))),
        });
    }
    Ok(Some(texts.join(", ")))
}

/// Whether a time zone is the client's own, `LOCAL`.
fn is_local(value: &ast::Expr) -> bool {
    matches!(value, ast::Expr::Identifier(ident) if ident.quote_style.is_none() && ident.value.eq_ignore_ascii_case("local"))
}

/// The value of `search_path`, each name as SQL writes it; `None` for DEFAULT.
fn search_path(values: &[ast::Expr]) -> Result<Option<String>> {
    let name = |value: &ast::Expr| match value {
        ast::Expr::Identifier(ident) => Ok(Some(quoted(&name_of(ident)))),
        other => Ok(setting(std::slice::from_ref(other))?.map(|name| quoted(&name))),
    };
    match values {
        [ast::Expr::Identifier(ident)]
            if ident.quote_style.is_none() && ident.value.eq_ignore_ascii_case("default") =>
        {
            Ok(None)
        }
        values => {
            let names: Option<Vec<String>> = values.iter().map(name).collect::<Result<_>>()?;
            Ok(names.map(|names| names.join(", ")))
        }
    }
}

fn modes(asked: &[TransactionMode]) -> Result<Modes> {
    let mut modes = Modes::default();
    for mode in asked {
        match mode {
            TransactionMode::AccessMode(access) => {
                modes.read_only = Some(*access == TransactionAccessMode::ReadOnly);
            }
            TransactionMode::IsolationLevel(level) => {
                modes.isolation = Some(match level {
                    TransactionIsolationLevel::ReadUncommitted | TransactionIsolationLevel::ReadCommitted => {
                        Isolation::ReadCommitted
                    }
                    TransactionIsolationLevel::RepeatableRead | TransactionIsolationLevel::Snapshot => {
                        Isolation::Snapshot
                    }
                    TransactionIsolationLevel::Serializable => Isolation::Serializable,
                });
            }
        }
    }
    Ok(modes)
}

/// What a statement is called when it is refused.
fn first_words(ast: &Ast) -> String {
    let text = ast.to_string();
    let words: Vec<&str> = text.split_whitespace().take(2).collect();
    words.join(" ")
}

/// The level of a name.
pub(crate) fn isolation_of(name: &str) -> Result<Isolation> {
    match name.to_ascii_lowercase().as_str() {
        "read committed" | "read uncommitted" => Ok(Isolation::ReadCommitted),
        "repeatable read" => Ok(Isolation::Snapshot),
        "serializable" => Ok(Isolation::Serializable),
        other => {
            let message = format!("invalid value for parameter \"default_transaction_isolation\": \"{other}\"");
            Err(SqlError::new(state::INVALID_PARAMETER_VALUE, message))
        }
    }
}

/// The name of a level.
pub(crate) fn isolation_name(isolation: Isolation) -> &'static str {
    match isolation {
        Isolation::ReadCommitted => "read committed",
        Isolation::Snapshot => "repeatable read",
        Isolation::Serializable => "serializable",
    }
}
