//! WITH: queries that have names.

use std::{
    collections::HashMap,
    ops::ControlFlow,
    sync::{Arc, atomic::AtomicBool},
};

use savanna_tenants_values::error::{Result, SqlError, state};
use sqlparser::ast::{
    self, CteAsMaterialized, Query as Ast, SetExpr, SetOperator, SetQuantifier, Visit, visit_relations,
};

use crate::{
    bind::common_type,
    parse::name::name_of,
    plan::{
        OutputColumn, Part,
        query::{Body, Cte, Query, Recursive},
    },
    prepare::writes,
    query::{from::Derived, scope::Scope, select::Planner},
};

/// Queries of WITH that can be named at once. A chain of them is computed one inside of the other.
const NAMED_MAX: usize = 1_000;
/// Queries of WITH that a statement plans in the place of their names; what is named behind that is computed once. Each may name others twice.
const INLINED_MAX: usize = 1_000;
/// Those of them that are planned one inside of the other, as views are.
const NESTED_MAX: usize = 100;

/// A query that can be named.
#[derive(Clone, Debug)]
pub(crate) struct Named {
    pub(crate) name: String,
    columns: Vec<OutputColumn>,
    rows: NamedRows,
    /// How many queries it stands inside of.
    depth: usize,
    references: usize,
    /// What it fails with, if it is named.
    failure: Option<SqlError>,
    /// References that may ask for its rows more than once.
    inner_references: usize,
    /// The query itself, if it is to be planned in the place of its name.
    inlined: Option<Arc<ast::Cte>>,
}

#[derive(Clone, Debug)]
enum NamedRows {
    Cte(Arc<Cte>),
    /// What a statement that writes returns.
    Written(usize),
    /// A statement that writes and returns nothing.
    Nothing,
    /// The query itself, while its recursive part is planned.
    Working(usize),
}

fn invalid(message: impl Into<String>) -> SqlError {
    SqlError::new(state::INVALID_RECURSION, message)
}

fn depth(scope: &Scope<'_>) -> usize {
    scope.outer.map_or(0, |outer| 1 + depth(outer))
}

impl Planner<'_> {
    /// Plans the queries of WITH, which can be named from then on. Returns those that depend on the row around.
    pub(crate) fn add_with(&mut self, whole: &Ast, scope: &Scope<'_>) -> Result<Vec<Arc<Cte>>> {
        let before = self.with.len();
        let mut dependent = Vec::new();
        let Some(with) = &whole.with else { return Ok(dependent) };
        let inlined =
            if self.inlines && depth(scope) == 0 { inlined(whole) } else { vec![false; with.cte_tables.len()] };
        for (at, ast) in with.cte_tables.iter().enumerate() {
            let name = name_of(&ast.alias.name);
            if self.with.len() >= NAMED_MAX {
                let message = format!("statement too complex: more than {NAMED_MAX} queries of WITH");
                return Err(SqlError::new("54001", message).hint("Store the rows of some of them in temporary tables."));
            }
            if self.with[before..].iter().any(|named| named.name == name) {
                let message = format!("WITH query name \"{name}\" specified more than once");
                return Err(SqlError::new(state::DUPLICATE_ALIAS, message));
            }
            if let Some(statement) = writes(&ast.query.body) {
                let named = self.writing(name, ast, statement, scope)?;
                self.with.push(named);
                continue;
            }
            let failure = self.parameters.failure.take();
            let is_inlined = inlined[at];
            let inlines = self.inlines;
            self.inlines &= !is_inlined;
            let query = match with.recursive {
                true => self.recursive(&name, ast, scope),
                false => self.query_at(&ast.query, scope),
            };
            self.inlines = inlines;
            let mut query = query?;
            let failure = std::mem::replace(&mut self.parameters.failure, failure);
            rename(&name, &ast.alias, &mut query.columns)?;
            let columns =
                query.columns.iter().map(|column| OutputColumn { origin: (0, 0), ..column.clone() }).collect();
            let arguments = query.arguments();
            let id = self.number();
            let others = query.others();
            let is_dependent = !arguments.is_empty() || !others.is_empty();
            let cte = Arc::new(Cte { id, query, arguments, others, read_once: AtomicBool::new(false) });
            if is_dependent {
                dependent.push(Arc::clone(&cte));
            }
            let again =
                is_inlined && !is_dependent && !cte.query.acts() && !matches!(cte.query.body, Body::Recursive(_));
            let inlined = again.then(|| Arc::new(ast.clone()));
            let rows = NamedRows::Cte(cte);
            let depth = depth(scope);
            self.with.push(Named { name, columns, rows, depth, references: 0, failure, inner_references: 0, inlined });
        }
        Ok(dependent)
    }

    /// A statement in WITH that writes.
    fn writing(
        &mut self,
        name: String,
        ast: &ast::Cte,
        statement: &ast::Statement,
        scope: &Scope<'_>,
    ) -> Result<Named> {
        // In it there may be none.
        let Some(mut parts) = self.parts.take() else {
            let message = "WITH clause containing a data-modifying statement must be at the top level";
            return Err(SqlError::new(state::FEATURE_NOT_SUPPORTED, message));
        };
        let before = self.with.len();
        self.add_with(&ast.query, scope)?;
        let planned = self.statement(statement);
        self.forget_with(before);
        let (plan, output) = planned?;
        let id = self.number();
        parts.push(Part { id, plan, is_read: false });
        self.parts = Some(parts);
        let mut columns = output.clone().unwrap_or_default();
        if output.is_some() {
            rename(&name, &ast.alias, &mut columns)?;
        }
        columns.iter_mut().for_each(|column| column.origin = (0, 0));
        let rows = if output.is_some() { NamedRows::Written(id) } else { NamedRows::Nothing };
        Ok(Named {
            name,
            columns,
            rows,
            depth: depth(scope),
            references: 0,
            failure: None,
            inner_references: 0,
            inlined: None,
        })
    }

    /// Ends the scope of queries of WITH.
    pub(crate) fn forget_with(&mut self, before: usize) {
        for named in self.with.drain(before..) {
            if let (NamedRows::Written(id), Some(parts)) = (&named.rows, &mut self.parts) {
                let is_read = named.references > 0;
                parts.iter_mut().filter(|part| part.id == *id).for_each(|part| part.is_read = is_read);
            }
            if let NamedRows::Cte(cte) = &named.rows
                && named.references == 1
                && named.inner_references == 0
            {
                cte.read_once.store(true, std::sync::atomic::Ordering::Relaxed);
            }
        }
    }

    /// The query of WITH that a name means.
    pub(crate) fn named_query(&mut self, name: &str, scope: &Scope<'_>) -> Result<Option<Query>> {
        let here = depth(scope);
        let Some(named) = self.with.iter_mut().rev().find(|named| named.name == name) else { return Ok(None) };
        named.references += 1;
        if let Some(failure) = &named.failure {
            self.parameters.failure.get_or_insert_with(|| failure.clone());
        }
        named.inner_references += usize::from(here > named.depth);
        let body = match &named.rows {
            NamedRows::Cte(cte) => Body::Cte(Arc::clone(cte)),
            NamedRows::Working(_) if here > named.depth => {
                let message = format!("recursive reference to query \"{name}\" must not appear within a subquery");
                return Err(invalid(message));
            }
            NamedRows::Working(id) => Body::Working(*id),
            NamedRows::Written(id) => Body::Written(*id),
            NamedRows::Nothing => {
                let message = format!("WITH query \"{name}\" does not have a RETURNING clause");
                return Err(SqlError::new(state::FEATURE_NOT_SUPPORTED, message));
            }
        };
        Ok(Some(Query::new(scope.width, body, named.columns.clone())))
    }

    /// The query of WITH that a name means, planned like one in FROM, if it runs as often there as it would alone.
    pub(crate) fn inlined_query(&mut self, name: &str, scope: &Scope<'_>, computed: bool) -> Result<Option<Derived>> {
        let Some(at) = self.with.iter().rposition(|named| named.name == name) else { return Ok(None) };
        let Named { inlined: Some(ast), columns, depth: own, .. } = &self.with[at] else { return Ok(None) };
        let in_step = self.with[at..].iter().any(|named| matches!(named.rows, NamedRows::Working(_)));
        if !self.inlines || in_step || depth(scope) > *own {
            return Ok(None);
        }
        if self.inlined == INLINED_MAX || self.inlining == NESTED_MAX {
            return Ok(None);
        }
        let (ast, columns) = (Arc::clone(ast), columns.clone());
        self.inlined += 1;
        let behind = self.with.split_off(at);
        let counted: Vec<_> = self.with.iter().map(|named| (named.references, named.inner_references)).collect();
        let inside = Scope { width: scope.width, ..Scope::default() };
        self.inlining += 1;
        let derived = self.derived_query(&ast.query, &inside, computed);
        self.inlining -= 1;
        self.with.truncate(at);
        if ast.materialized.is_none() {
            // What it names was counted when it was planned for itself, and it stands in one place.
            self.with.iter_mut().zip(counted).for_each(|(named, (references, inner_references))| {
                (named.references, named.inner_references) = (references, inner_references);
            });
        }
        self.with.extend(behind);
        let mut derived = derived?;
        derived.columns_mut().zip(columns).for_each(|(column, named)| *column = named);
        Ok(Some(derived))
    }

    /// A query of WITH RECURSIVE, which may name itself.
    fn recursive(&mut self, name: &str, ast: &ast::Cte, scope: &Scope<'_>) -> Result<Query> {
        let Ast { with: None, order_by: None, limit_clause: None, fetch: None, locks, body, .. } = &*ast.query else {
            return self.query_at(&ast.query, scope);
        };
        let SetExpr::SetOperation { op: SetOperator::Union, set_quantifier, left, right } = &**body else {
            return self.query_at(&ast.query, scope);
        };
        if !locks.is_empty() {
            return self.query_at(&ast.query, scope);
        }
        let all = *set_quantifier == SetQuantifier::All;
        let first = self.set_expr(left, scope, false)?;
        let mut columns: Vec<OutputColumn> =
            first.columns.iter().map(|column| OutputColumn { origin: (0, 0), ..column.clone() }).collect();
        let shown = columns.clone();
        rename(name, &ast.alias, &mut columns)?;
        let id = self.number();
        let rows = NamedRows::Working(id);
        let named = Named {
            name: name.to_owned(),
            columns,
            rows,
            depth: depth(scope),
            references: 0,
            failure: None,
            inner_references: 0,
            inlined: None,
        };
        self.with.push(named);
        let step = self.set_expr(right, scope, true);
        let named = self.with.pop();
        let mut step = step?;
        match named.map_or(0, |named| named.references) {
            // It does not name itself.
            0 => return self.set_expr(body, scope, false),
            1 => {}
            _ => {
                let message = format!("recursive reference to query \"{name}\" must not appear more than once");
                return Err(invalid(message));
            }
        }
        if step.columns.len() != first.columns.len() {
            let message = "each UNION query must have the same number of columns";
            return Err(SqlError::new(state::SYNTAX_ERROR, message));
        }
        let mut types = Vec::new();
        for (at, (a, b)) in first.columns.iter().zip(&step.columns).enumerate() {
            let common = if a.of.is_text() && b.of.is_text() { Some(a.of) } else { common_type(a.of, b.of) };
            match common {
                Some(of) if of.unbounded() == a.of.unbounded() => types.push(a.of),
                Some(of) => {
                    let message = format!(
                        "recursive query \"{name}\" column {} has type {} in non-recursive term but type {} overall",
                        at + 1,
                        self.catalog.type_name(a.of),
                        self.catalog.type_name(of)
                    );
                    return Err(SqlError::new(state::DATATYPE_MISMATCH, message)
                        .hint("Cast the output of the non-recursive term to the correct type."));
                }
                None => {
                    let (a, b) = (self.catalog.type_name(a.of), self.catalog.type_name(b.of));
                    let message = format!("UNION types {a} and {b} cannot be matched");
                    return Err(SqlError::new(state::DATATYPE_MISMATCH, message));
                }
            }
        }
        self.coerce(&mut step, &types)?;
        let body = Body::Recursive(Box::new(Recursive { id, all, first, step }));
        Ok(Query::new(scope.width, body, shown))
    }
}

/// Which queries of WITH are to be planned where they are named: those that one place names, and those of which that is asked for.
fn inlined(whole: &Ast) -> Vec<bool> {
    let mut named = HashMap::new();
    count_names(&whole.body, &mut named);
    count_names(&whole.order_by, &mut named);
    count_names(&whole.limit_clause, &mut named);
    let queries = whole.with.iter().flat_map(|with| &with.cte_tables).rev();
    let mut inlined: Vec<bool> = queries
        .map(|ast| {
            let count = named.remove(&name_of(&ast.alias.name));
            count_names(ast, &mut named);
            match ast.materialized {
                Some(CteAsMaterialized::Materialized) => false,
                Some(CteAsMaterialized::NotMaterialized) => true,
                None => count == Some(1),
            }
        })
        .collect();
    inlined.reverse();
    inlined
}

/// Counts the names of tables that are read, whatever they mean where they stand.
fn count_names(ast: &impl Visit, names: &mut HashMap<String, usize>) {
    let _all = visit_relations(ast, |relation| {
        if let [ast::ObjectNamePart::Identifier(ident)] = relation.0.as_slice() {
            *names.entry(name_of(ident)).or_default() += 1;
        }
        ControlFlow::<()>::Continue(())
    });
}

/// Gives columns the names of an alias.
fn rename(name: &str, alias: &ast::TableAlias, columns: &mut [OutputColumn]) -> Result<()> {
    if alias.columns.len() > columns.len() {
        let message = format!(
            "WITH query \"{name}\" has {} columns available but {} columns specified",
            columns.len(),
            alias.columns.len()
        );
        return Err(SqlError::new(state::INVALID_COLUMN_REFERENCE, message));
    }
    for (column, alias) in columns.iter_mut().zip(&alias.columns) {
        column.name = name_of(&alias.name);
    }
    Ok(())
}
