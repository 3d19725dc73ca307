//! What is selected: expressions, with the names and types that their columns get.

use savanna_tenants_catalog::Catalog;
use savanna_tenants_values::{
    error::{Result, SqlError, state},
    types::Type,
};
use sqlparser::ast::{self, SelectItem, SelectItemQualifiedWildcardKind};

use crate::{
    bind::{Binder, Typed},
    expression::Expr,
    parse::{
        data_type::type_of,
        element::ALL_COLUMNS,
        name::{name_of, object_name, relation_name},
    },
    plan::OutputColumn,
    query::scope::{Scope, no_table},
};

/// What one row can have, as in PostgreSQL; the protocol counts columns with 16 bits.
const COLUMNS_MAX: usize = 1_664;

/// Refuses rows with more columns than there can be.
///
/// # Errors
/// 54011.
pub(crate) fn check_width(columns: usize) -> Result<()> {
    if columns <= COLUMNS_MAX {
        return Ok(());
    }
    Err(SqlError::new("54011", format!("target lists can have at most {COLUMNS_MAX} entries")))
}

/// What is selected.
#[derive(Default)]
pub(crate) struct Items {
    pub(crate) outputs: Vec<Expr>,
    pub(crate) columns: Vec<OutputColumn>,
}

impl Items {
    /// With `open`, what has no type yet is left so.
    pub(crate) fn add_all(&mut self, binder: &mut Binder<'_, '_>, items: &[SelectItem], open: bool) -> Result<()> {
        let typed = |binder: &mut Binder<'_, '_>, ast| if open { binder.expr(ast) } else { binder.settled(ast) };
        for item in items {
            match item {
                SelectItem::UnnamedExpr(ast) if let Some(row) = whole_row(ast) => {
                    if binder.planner.makes_view() {
                        return Err(SqlError::unsupported("all columns of a row in a view"));
                    }
                    let row = binder.expr(&row)?;
                    for (name, typed) in binder.all_fields(&row)? {
                        self.add(binder.scope, typed, name);
                    }
                }
                SelectItem::UnnamedExpr(ast) => {
                    let typed = typed(binder, ast)?;
                    self.add(binder.scope, typed, default_name(ast));
                }
                SelectItem::ExprWithAlias { expr, alias } => {
                    let typed = typed(binder, expr)?;
                    self.add(binder.scope, typed, name_of(alias));
                }
                SelectItem::Wildcard(_) => {
                    if binder.scope.columns.is_empty() {
                        let message = "SELECT * with no tables specified is not valid";
                        return Err(SqlError::new(state::SYNTAX_ERROR, message));
                    }
                    self.add_columns(binder, binder.scope, None);
                }
                SelectItem::QualifiedWildcard(SelectItemQualifiedWildcardKind::ObjectName(name), _) => {
                    let name = relation_name(name)?.name;
                    let mut scope = Some(binder.scope);
                    while let Some(here) = scope.filter(|here| !here.has_table(&name)) {
                        scope = here.outer;
                    }
                    self.add_columns(binder, scope.ok_or_else(|| no_table(&name))?, Some(&name));
                }
                other => return Err(SqlError::unsupported(format_args!("{other} in a SELECT list"))),
            }
        }
        check_width(self.columns.len())
    }

    fn add_columns(&mut self, binder: &mut Binder<'_, '_>, scope: &Scope<'_>, table: Option<&str>) {
        for column in &scope.columns {
            let shown = match table {
                Some(table) => column.table == table,
                None => !column.hidden,
            };
            if shown {
                binder.planner.names_column(column.origin);
                let name = column.name.clone();
                self.columns.push(OutputColumn { name, of: column.of, origin: column.origin });
                self.outputs.push(column.expr.clone());
            }
        }
    }

    fn add(&mut self, scope: &Scope<'_>, typed: Typed, name: String) {
        let origin = scope.columns.iter().find(|column| column.expr == typed.expr && column.origin != (0, 0));
        self.columns.push(OutputColumn { name, of: typed.of, origin: origin.map_or((0, 0), |column| column.origin) });
        self.outputs.push(typed.expr);
    }
}

/// The row of `(row).*`.
fn whole_row(ast: &ast::Expr) -> Option<ast::Expr> {
    let ast::Expr::CompoundFieldAccess { root, access_chain } = ast else { return None };
    let (last, before) = access_chain.split_last()?;
    match last {
        ast::AccessExpr::Dot(ast::Expr::Identifier(name)) if name.value == ALL_COLUMNS => {}
        _ => return None,
    }
    Some(match before {
        [] => (**root).clone(),
        before => ast::Expr::CompoundFieldAccess { root: root.clone(), access_chain: before.to_vec() },
    })
}

/// The name that PostgreSQL gives to what has none.
pub(crate) fn default_name(ast: &ast::Expr) -> String {
    match name_by(ast) {
        Some(By::Own(name) | By::Type(name)) => name,
        None => "?column?".to_owned(),
    }
}

/// By what an expression has its name.
enum By {
    /// A column or a call.
    Own(String),
    /// A type, which another one around it replaces; or that it is a CASE.
    Type(String),
}

fn name_by(ast: &ast::Expr) -> Option<By> {
    let own = |name: &str| Some(By::Own(name.to_owned()));
    match ast {
        ast::Expr::Identifier(ident) => Some(By::Own(name_of(ident))),
        ast::Expr::CompoundIdentifier(parts) => parts.last().map(|last| By::Own(name_of(last))),
        ast::Expr::CompoundFieldAccess { root, access_chain } => {
            let field = access_chain.iter().rev().find_map(|access| match access {
                ast::AccessExpr::Dot(ast::Expr::Identifier(field)) => Some(By::Own(name_of(field))),
                _ => None,
            });
            field.or_else(|| name_by(root))
        }
        ast::Expr::Nested(inner) | ast::Expr::Collate { expr: inner, .. } => name_by(inner),
        ast::Expr::Function(function) => object_name(&function.name).ok().map(By::Own),
        ast::Expr::Cast { expr, data_type, .. } => match name_by(expr) {
            Some(By::Own(name)) => Some(By::Own(name)),
            _ => Some(By::Type(type_name(data_type))),
        },
        ast::Expr::TypedString(typed) => Some(By::Type(type_name(&typed.data_type))),
        ast::Expr::Interval(_) => Some(By::Type("interval".to_owned())),
        // As its last result, if that is a column or a call.
        ast::Expr::Case { else_result, .. } => match else_result.as_deref().and_then(name_by) {
            Some(By::Own(name)) => Some(By::Own(name)),
            _ => Some(By::Type("case".to_owned())),
        },
        ast::Expr::Subquery(query) => match &*query.body {
            ast::SetExpr::Select(select) => match select.projection.first() {
                Some(SelectItem::UnnamedExpr(ast)) => own(&default_name(ast)),
                Some(SelectItem::ExprWithAlias { alias, .. }) => Some(By::Own(name_of(alias))),
                _ => None,
            },
            ast::SetExpr::Values(_) => own("column1"),
            _ => None,
        },
        ast::Expr::Exists { .. } => own("exists"),
        ast::Expr::Overlay { .. } => own("overlay"),
        ast::Expr::AtTimeZone { .. } => own("timezone"),
        ast::Expr::Array(_) => own("array"),
        ast::Expr::Tuple(_) => own("row"),
        ast::Expr::Extract { .. } => own("extract"),
        ast::Expr::Substring { .. } => own("substring"),
        ast::Expr::Position { .. } => own("position"),
        ast::Expr::Trim { trim_where, .. } => own(match trim_where {
            Some(ast::TrimWhereField::Leading) => "ltrim",
            Some(ast::TrimWhereField::Trailing) => "rtrim",
            _ => "btrim",
        }),
        ast::Expr::Ceil { .. } => own("ceil"),
        ast::Expr::Floor { .. } => own("floor"),
        ast::Expr::BinaryOp { op: ast::BinaryOperator::Overlaps, .. } => own("overlaps"),
        _ => None,
    }
}

/// The name of a type as PostgreSQL has it inside; that of its elements for arrays.
fn type_name(data_type: &ast::DataType) -> String {
    let Ok(of) = type_of(data_type, &Catalog::default()) else { return own_type_name(data_type) };
    let of = of.element().unwrap_or(of);
    match of.exact() {
        Type::Bool => "bool".to_owned(),
        Type::Int2 => "int2".to_owned(),
        Type::Int4 => "int4".to_owned(),
        Type::Int8 => "int8".to_owned(),
        Type::Float4 => "float4".to_owned(),
        Type::Float8 => "float8".to_owned(),
        Type::Varchar(_) => "varchar".to_owned(),
        Type::Char(_) => "bpchar".to_owned(),
        Type::Timestamp => "timestamp".to_owned(),
        Type::Timestamptz => "timestamptz".to_owned(),
        Type::Time => "time".to_owned(),
        Type::Byte => "char".to_owned(),
        other => other.base_name(),
    }
}

/// The name of a type that is not built in, without its schema.
fn own_type_name(of: &ast::DataType) -> String {
    let name = match of {
        ast::DataType::Custom(name, _) => name.0.last().and_then(|part| part.as_ident()).map(name_of),
        _ => None,
    };
    name.unwrap_or_else(|| "?column?".to_owned())
}
