//! Names of result columns: what the user wrote, and no name twice.

use datafusion::sql::sqlparser::ast::{Expr, Ident, Query, Select, SelectItem, SetExpr};
use savanna_streams_api::Result;

use super::walk::{self, NodeMut};

/// Gives columns without a name of their own their text as name (DataFusion's would be `count(Int64(1))`). In the result
/// of a whole query, a repeated name gets a number: `SELECT a, a` has the columns `a` and `a_2`. (In a subquery a name that
/// stands for two columns is the user's mistake.)
pub(super) fn give(query: &mut Query, whole: bool) -> Result<()> {
    walk::change(query, &mut |node| {
        if let NodeMut::Select(select) = node {
            text_as_name(select);
        }
        Ok(())
    })?;
    if whole {
        number_repeated(&mut query.body);
    }
    Ok(())
}

fn text_as_name(select: &mut Select) {
    for item in &mut select.projection {
        let SelectItem::UnnamedExpr(expr) = item else {
            continue;
        };
        if !matches!(expr, Expr::Identifier(_) | Expr::CompoundIdentifier(_)) {
            let alias = Ident::with_quote('"', expr.to_string());
            *item = SelectItem::ExprWithAlias { expr: expr.clone(), alias };
        }
    }
}

fn number_repeated(body: &mut SetExpr) {
    let select = match body {
        SetExpr::Select(select) => select,
        SetExpr::Query(query) => return number_repeated(&mut query.body),
        SetExpr::SetOperation { left, right, .. } => {
            number_repeated(left);
            return number_repeated(right);
        }
        _ => return,
    };
    let mut taken: Vec<String> = Vec::new();
    for item in &mut select.projection {
        let (expr, name) = match item {
            SelectItem::ExprWithAlias { expr, alias } => (expr, alias.value.clone()),
            SelectItem::UnnamedExpr(expr @ Expr::Identifier(_) | expr @ Expr::CompoundIdentifier(_)) => {
                let name = match &*expr {
                    Expr::Identifier(ident) => Some(ident),
                    Expr::CompoundIdentifier(parts) => parts.last(),
                    _ => None,
                };
                let name = name.map(|ident| ident.value.clone()).unwrap_or_default();
                (expr, name)
            }
            _ => continue,
        };
        if !taken.contains(&name) {
            taken.push(name);
            continue;
        }
        let alias = (2..).map(|n| format!("{name}_{n}")).find(|a| !taken.contains(a)).unwrap_or_default();
        taken.push(alias.clone());
        *item = SelectItem::ExprWithAlias { expr: expr.clone(), alias: Ident::with_quote('"', alias) };
    }
}
