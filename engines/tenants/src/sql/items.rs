//! What is selected: expressions, with the names and types that their columns get.

use sqlparser::ast::{self, SelectItem, SelectItemQualifiedWildcardKind};

use crate::{
    catalog::Catalog,
    error::{Result, SqlError, state},
    sql::{
        bind::{Binder, Typed},
        expression::Expr,
        name::{name_of, object_name, relation_name},
        plan::OutputColumn,
        scope::{Scope, no_table},
    },
    types::Type,
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

/// The name that PostgreSQL gives to what has none.
pub(crate) fn default_name(ast: &ast::Expr) -> String {
    match ast {
        ast::Expr::Identifier(ident) => name_of(ident),
        ast::Expr::CompoundIdentifier(parts) => parts.last().map_or_else(String::new, name_of),
        ast::Expr::Nested(inner) => default_name(inner),
        ast::Expr::Function(function) => object_name(&function.name).unwrap_or_default(),
        ast::Expr::Cast { expr, data_type, .. } => match default_name(expr).as_str() {
            "?column?" => Type::of_ast(data_type, &Catalog::default()).map_or_else(
                |_| own_type_name(data_type),
                |of| match of.exact() {
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
                    other => other.base_name(),
                },
            ),
            name => name.to_owned(),
        },
        // As its last result, if that is a column or a call.
        ast::Expr::Case { else_result: Some(last), .. }
            if matches!(
                **last,
                ast::Expr::Identifier(_)
                    | ast::Expr::CompoundIdentifier(_)
                    | ast::Expr::Function(_)
                    | ast::Expr::Case { .. }
            ) =>
        {
            default_name(last)
        }
        ast::Expr::Case { .. } => "case".to_owned(),
        ast::Expr::Subquery(query) => match &*query.body {
            ast::SetExpr::Select(select) => match select.projection.first() {
                Some(SelectItem::UnnamedExpr(ast)) => default_name(ast),
                Some(SelectItem::ExprWithAlias { alias, .. }) => name_of(alias),
                _ => "?column?".to_owned(),
            },
            _ => "?column?".to_owned(),
        },
        ast::Expr::Exists { .. } => "exists".to_owned(),
        ast::Expr::Overlay { .. } => "overlay".to_owned(),
        ast::Expr::AtTimeZone { .. } => "timezone".to_owned(),
        ast::Expr::Array(_) => "array".to_owned(),
        ast::Expr::Extract { .. } => "extract".to_owned(),
        ast::Expr::Substring { .. } => "substring".to_owned(),
        ast::Expr::Position { .. } => "position".to_owned(),
        ast::Expr::Trim { .. } => "btrim".to_owned(),
        ast::Expr::Ceil { .. } => "ceil".to_owned(),
        ast::Expr::Floor { .. } => "floor".to_owned(),
        ast::Expr::Value(value) if matches!(value.value, ast::Value::Boolean(_)) => "bool".to_owned(),
        ast::Expr::Interval(_) => "interval".to_owned(),
        _ => "?column?".to_owned(),
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
