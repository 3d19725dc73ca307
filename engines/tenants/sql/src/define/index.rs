//! Plans of indexes, and what their SQL means.

use savanna_tenants_catalog::{Index, KEY_COLUMNS_MAX, Part, Table};
use savanna_tenants_values::{
    error::{Result, SqlError, state},
    types::Type,
};
use sqlparser::ast::{self, IndexColumn};

use crate::{
    bind::{Binder, Typed},
    define::{alone, operator_class},
    expression::{
        Expr,
        index::{Resolved, ResolvedIndexes},
    },
    modify::{parse_expression, scope_of},
    parse::{
        name::{name_of, object_name, relation_name},
        print,
    },
    plan::{Define, NewIndex, NewPart},
    query::{items::default_name, select::Planner},
};

/// The parts of a key, and whether they descend.
pub(crate) fn key_parts(columns: &[IndexColumn]) -> Result<Vec<(NewPart, bool)>> {
    if columns.len() > KEY_COLUMNS_MAX {
        let message = format!("cannot use more than {KEY_COLUMNS_MAX} columns in an index");
        return Err(SqlError::new("54011", message));
    }
    columns
        .iter()
        .map(|column| {
            let options = &column.column.options;
            let descending = options.asc == Some(false);
            if options.nulls_first.is_some_and(|first| first != descending) {
                return Err(SqlError::unsupported("an index with NULLs at the other end"));
            }
            Ok((part(&column.column.expr)?, descending))
        })
        .collect()
}

fn part(ast: &ast::Expr) -> Result<NewPart> {
    match ast {
        ast::Expr::Identifier(ident) => Ok(NewPart::Column(name_of(ident))),
        ast::Expr::Nested(inner) => match &**inner {
            ast::Expr::Nested(_) | ast::Expr::Identifier(_) => part(inner),
            other => Ok(NewPart::Expression(print::expression(other)?)),
        },
        other if is_function(other) => Ok(NewPart::Expression(print::expression(other)?)),
        other => {
            let message = format!("syntax error: an index on the expression {other}, which needs brackets around it");
            Err(SqlError::new(state::SYNTAX_ERROR, message))
        }
    }
}

/// Whether an expression needs no brackets in an index.
fn is_function(ast: &ast::Expr) -> bool {
    match ast {
        ast::Expr::Function(_)
        | ast::Expr::Extract { .. }
        | ast::Expr::Substring { .. }
        | ast::Expr::Trim { .. }
        | ast::Expr::Position { .. }
        | ast::Expr::Overlay { .. }
        | ast::Expr::Ceil { .. }
        | ast::Expr::Floor { .. } => true,
        ast::Expr::Cast { kind, .. } => *kind == ast::CastKind::Cast,
        _ => false,
    }
}

/// An expression of an index as the index's definition has it.
pub fn shown_part(text: &str) -> String {
    match parse_expression(text) {
        Ok(ast) if is_function(&ast) && !matches!(ast, ast::Expr::Cast { .. }) => text.to_owned(),
        _ => format!("({text})"),
    }
}

/// The names of a key's columns.
pub(crate) fn plain_columns(columns: &[IndexColumn]) -> Result<Vec<String>> {
    let plain = |(part, _)| match part {
        NewPart::Column(name) => Ok(name),
        NewPart::Expression(text) => Err(SqlError::unsupported(format_args!("a constraint on the expression {text}"))),
    };
    if columns.iter().any(|column| column.operator_class.is_some()) {
        return Err(SqlError::new(state::SYNTAX_ERROR, "syntax error: an operator class in a constraint"));
    }
    key_parts(columns)?.into_iter().map(plain).collect()
}

/// The places of columns by their names.
pub fn places(table: &Table, names: &[String]) -> Result<Vec<usize>> {
    let mut places = Vec::new();
    for name in names {
        let place = place(table, name)?;
        if places.contains(&place) {
            let message = format!("column \"{name}\" appears twice in a key");
            return Err(SqlError::new(state::DUPLICATE_COLUMN, message));
        }
        places.push(place);
    }
    Ok(places)
}

/// The place of a column of a key.
fn place(table: &Table, name: &str) -> Result<usize> {
    let place = table.column(name).ok_or_else(|| {
        let message = format!("column \"{name}\" named in key does not exist");
        SqlError::new(state::UNDEFINED_COLUMN, message)
    })?;
    check_type(table.columns[place].of)?;
    Ok(place)
}

/// Whether values of a type can be in keys.
fn check_type(of: Type) -> Result<()> {
    match of {
        Type::Json | Type::Jsonpath => {
            let of = of.name();
            let message = format!("data type {of} has no default operator class for access method \"btree\"");
            Err(SqlError::new(state::UNDEFINED_OBJECT, message))
        }
        Type::Jsonb => Err(SqlError::unsupported("an index on jsonb")),
        Type::Composite(_) | Type::Record => Err(SqlError::unsupported("an index on rows as values")),
        Type::Array(_) => Err(SqlError::unsupported("an index on an array")),
        _ => Ok(()),
    }
}

/// The names that an index's name is made of: those of its columns, and what its expressions would be called in a query.
pub fn part_names(parts: &[(NewPart, bool)]) -> Result<Vec<String>> {
    let mut names: Vec<String> = Vec::new();
    for (part, _) in parts {
        let name = match part {
            NewPart::Column(name) => name.clone(),
            NewPart::Expression(text) => match default_name(&parse_expression(text)?) {
                name if name == "?column?" => "expr".to_owned(),
                name => name,
            },
        };
        let mut numbered = std::iter::once(name.clone()).chain((1..).map(|number| format!("{name}{number}")));
        names.extend(numbered.find(|name| !names.contains(name)));
    }
    Ok(names)
}

impl Planner<'_> {
    /// What the rows must fulfil that have an entry in an index.
    pub(crate) fn index_predicate(&mut self, table: &Table, predicate: &str) -> Result<Expr> {
        let scope = scope_of(table, &table.name);
        let before = self.parameters.types.len();
        let mut binder = Binder::closed(&scope, self, "index predicates");
        let bound = binder.condition(&parse_expression(predicate)?, "WHERE")?;
        self.no_parameters(before)?;
        Ok(bound)
    }

    /// An expression of an index.
    pub(crate) fn index_expression(&mut self, table: &Table, ast: &ast::Expr) -> Result<Typed> {
        let scope = scope_of(table, &table.name);
        let before = self.parameters.types.len();
        let mut binder = Binder::closed(&scope, self, "index expressions");
        let typed = binder.settled(ast)?;
        self.no_parameters(before)?;
        Ok(typed)
    }

    /// What an index's SQL means.
    pub fn resolved_index(&mut self, table: &Table, index: &Index) -> Result<Resolved> {
        let predicate = index.predicate.as_deref().map(|text| self.index_predicate(table, text)).transpose()?;
        let mut parts = Vec::with_capacity(index.parts.len());
        for (part, _) in &index.parts {
            parts.push(match part {
                Part::Column(column) => (Expr::Column(*column), table.columns[*column].of),
                Part::Expression(text) => {
                    let Typed { expr, of, .. } = self.index_expression(table, &parse_expression(text)?)?;
                    (expr, of)
                }
            });
        }
        Ok(Resolved { predicate, parts })
    }

    /// Resolves a table's indexes, if nobody has done so yet.
    pub fn resolve_indexes(&mut self, table: &Table) -> Result<()> {
        if table.wants_meaning() {
            let indexes = table.indexes.iter().map(|index| self.resolved_index(table, index));
            table.set_resolved(indexes.collect::<Result<_>>()?);
        }
        Ok(())
    }

    /// Refuses an index whose entries could not be found again, or have no order.
    ///
    /// # Errors
    /// 42P17; 42704 and 0A000 for types.
    pub fn check_index(&mut self, table: &Table, index: &Index) -> Result<()> {
        let Resolved { predicate, parts } = self.resolved_index(table, index)?;
        let wrong = |what: &str| {
            let message = format!("functions in index {what} must be marked IMMUTABLE");
            Err(SqlError::new(state::INVALID_OBJECT_DEFINITION, message))
        };
        if predicate.is_some_and(|predicate| !predicate.is_immutable()) {
            return wrong("predicate");
        }
        for (part, of) in parts {
            if !part.is_immutable() {
                return wrong("expression");
            }
            check_type(of)?;
        }
        Ok(())
    }

    /// The operator classes of an index that are not those that its parts have anyway.
    ///
    /// # Errors
    /// 42704 if there is none of a name, 42804 if it is of other types.
    fn operator_classes(&mut self, table: &Table, index: &Index, named: &[(usize, String)]) -> Result<Index> {
        let Resolved { parts, .. } = self.resolved_index(table, index)?;
        let mut classes = Vec::new();
        for (place, name) in named {
            let of = parts.get(*place).map_or(Type::Unknown, |(_, of)| *of);
            let class = operator_class::named(name).ok_or_else(|| {
                let message = format!("operator class \"{name}\" does not exist for access method \"btree\"");
                SqlError::new(state::UNDEFINED_OBJECT, message)
            })?;
            if !class.takes(of) {
                let of = self.catalog.type_name(of);
                let message = format!("operator class \"{name}\" does not accept data type {of}");
                return Err(SqlError::new(state::DATATYPE_MISMATCH, message));
            }
            if !class.is_default {
                classes.push((*place, name.clone()));
            }
        }
        Ok(Index { classes, ..index.clone() })
    }

    /// An index as the catalog keeps it, without a name.
    pub fn index(&mut self, table: &Table, new: &NewIndex) -> Result<Index> {
        let part = |(part, descending): &(NewPart, bool)| match part {
            NewPart::Column(name) => Ok((Part::Column(place(table, name)?), *descending)),
            NewPart::Expression(text) => Ok((Part::Expression(text.clone()), *descending)),
        };
        let parts = new.parts.iter().map(part).collect::<Result<_>>()?;
        let (include, predicate) = (places(table, &new.include)?, new.predicate.clone());
        let index = Index { include, predicate, ..Index::new(String::new(), parts, new.unique, false) };
        self.check_index(table, &index)?;
        self.operator_classes(table, &index, &new.classes)
    }

    pub(crate) fn create_index(&mut self, ast: &ast::CreateIndex) -> Result<Define> {
        let btree = ast.using.as_ref().is_none_or(|using| matches!(using, ast::IndexType::BTree));
        let has_options = !(ast.with.is_empty() && ast.index_options.is_empty() && ast.alter_options.is_empty());
        if !btree || ast.nulls_distinct == Some(false) || has_options {
            return Err(SqlError::unsupported("this kind of index"));
        }
        let table = self.table(&ast.table_name)?;
        let new = NewIndex {
            table: relation_name(&ast.table_name)?,
            name: ast.name.as_ref().map(alone).transpose()?,
            parts: key_parts(&ast.columns)?,
            classes: ast
                .columns
                .iter()
                .enumerate()
                .filter_map(|(place, column)| Some((place, column.operator_class.as_ref()?)))
                .map(|(place, class)| Ok((place, object_name(class)?)))
                .collect::<Result<_>>()?,
            unique: ast.unique,
            include: ast.include.iter().map(name_of).collect(),
            predicate: ast.predicate.as_ref().map(ToString::to_string),
            if_not_exists: ast.if_not_exists,
        };
        self.index(&table, &new)?;
        Ok(Define::CreateIndex(new))
    }
}
