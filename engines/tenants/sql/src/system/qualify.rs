//! What the catalog keeps as SQL, for a session that does not look where its names are: they get their schemas.

use std::{collections::HashSet, ops::ControlFlow};

use savanna_tenants_catalog::{
    Catalog, Name, PUBLIC, Table,
    name::quoted,
    view::{Read, View},
};
use sqlparser::ast::{
    self, DataType, Ident, ObjectName, ObjectNamePart, Statement, Visit, VisitMut, Visitor, VisitorMut,
};

use crate::{
    modify::parse_expression,
    parse::{
        self,
        name::{name_of, relation_name},
        print,
    },
};

/// The query of a view.
pub(super) fn view_query(catalog: &Catalog, view: &View) -> String {
    let Ok(Some(Statement::Query(mut query))) = parse::parse(&view.query) else { return view.query.clone() };
    let mut named = Named::default();
    let _ = Visit::visit(&*query, &mut named);
    let mut writer = Writer { catalog, reads: &view.reads, named: named.0, changed: false };
    let _ = VisitMut::visit(&mut *query, &mut writer);
    match print::query(&query) {
        Ok(text) if writer.changed => text,
        _ => view.query.clone(),
    }
}

/// An expression of a table.
pub(super) fn expression(catalog: &Catalog, text: &str) -> String {
    let Ok(mut ast) = parse_expression(text) else { return text.to_owned() };
    let mut writer = Writer { catalog, reads: &[], named: HashSet::new(), changed: false };
    let _ = VisitMut::visit(&mut ast, &mut writer);
    match print::expression(&ast) {
        Ok(shown) if writer.changed => shown,
        _ => text.to_owned(),
    }
}

/// Writes the schemas of types into a statement that the catalog may keep: wherever it is read again, they are the same types. Those in `public` are found without.
pub(crate) fn types(catalog: &Catalog, ast: &mut Statement) {
    let is_kept = matches!(
        ast,
        Statement::CreateTable(_) | Statement::AlterTable(_) | Statement::CreateIndex(_) | Statement::CreateView(_)
    );
    let elsewhere = catalog.own_types().enumerations().any(|of| of.schema != PUBLIC)
        || catalog.own_types().composites().any(|of| of.schema != PUBLIC);
    if is_kept && elsewhere {
        let _ = VisitMut::visit(ast, &mut Types(catalog));
    }
}

struct Types<'a>(&'a Catalog);

impl VisitorMut for Types<'_> {
    type Break = ();

    fn pre_visit_expr(&mut self, expr: &mut ast::Expr) -> ControlFlow<()> {
        if let Some(name) = own_type(expr)
            && let Ok(found) = relation_name(name)
            && let Some((schema, _)) = named_alone(self.0, &found)
            && schema != PUBLIC
        {
            put_schema(name, self.0.schema_name(schema));
        }
        ControlFlow::Continue(())
    }
}

/// The schema and the name of the type that a name without a schema means.
fn named_alone<'a>(catalog: &'a Catalog, name: &Name) -> Option<(u32, &'a str)> {
    if name.schema.is_some() { None } else { catalog.own_name(catalog.own_number(name)?) }
}

/// Writes a schema before a name, with quotes where it needs them.
fn put_schema(name: &mut ObjectName, schema: &str) {
    let ident = if quoted(schema) == schema { Ident::new(schema) } else { Ident::with_quote('"', schema) };
    name.0.insert(0, ObjectNamePart::Identifier(ident));
}

/// The name of the type, or of that of the elements, that an expression names, if it is not one of the parser's words.
fn own_type(expr: &mut ast::Expr) -> Option<&mut ObjectName> {
    let (ast::Expr::Cast { data_type, .. } | ast::Expr::TypedString(ast::TypedString { data_type, .. })) = expr else {
        return None;
    };
    let mut of = data_type;
    while let DataType::Array(ast::ArrayElemTypeDef::SquareBracket(element, _)) = of {
        of = element;
    }
    if let DataType::Custom(name, _) = of { Some(name) } else { None }
}

/// The places of the columns that an expression of a table names, in their order there.
pub(super) fn columns_of(table: &Table, text: &str) -> Vec<usize> {
    let mut columns = Columns { table, met: Vec::new() };
    if let Ok(ast) = parse_expression(text) {
        let _ = Visit::visit(&ast, &mut columns);
    }
    columns.met
}

struct Columns<'a> {
    table: &'a Table,
    met: Vec<usize>,
}

impl Visitor for Columns<'_> {
    type Break = ();

    fn pre_visit_expr(&mut self, expr: &ast::Expr) -> ControlFlow<()> {
        let name = match expr {
            ast::Expr::Identifier(name) => Some(name),
            ast::Expr::CompoundIdentifier(names) => names.last(),
            _ => None,
        };
        let place = name.and_then(|name| self.table.column(&name_of(name)));
        self.met.extend(place.filter(|place| !self.met.contains(place)));
        ControlFlow::Continue(())
    }
}

/// The names of queries of WITH.
#[derive(Default)]
struct Named(HashSet<String>);

impl Visitor for Named {
    type Break = ();

    fn pre_visit_query(&mut self, query: &ast::Query) -> ControlFlow<()> {
        let tables = query.with.iter().flat_map(|with| &with.cte_tables);
        self.0.extend(tables.map(|table| name_of(&table.alias.name)));
        ControlFlow::Continue(())
    }
}

struct Writer<'a> {
    catalog: &'a Catalog,
    reads: &'a [Read],
    named: HashSet<String>,
    changed: bool,
}

impl Writer<'_> {
    fn put_schema(&mut self, name: &mut ObjectName, schema: u32) {
        put_schema(name, self.catalog.schema_name(schema));
        self.changed = true;
    }
}

impl VisitorMut for Writer<'_> {
    type Break = ();

    fn pre_visit_relation(&mut self, name: &mut ObjectName) -> ControlFlow<()> {
        let Ok(found) = relation_name(name) else { return ControlFlow::Continue(()) };
        let read = self.reads.iter().find(|read| read.name == Read::key(&found));
        if let Some(read) = read.filter(|_| found.schema.is_none() && !self.named.contains(&found.name)) {
            let table = self.catalog.by_id(read.id).map(|table| (table.schema, table.name.clone()));
            let view = || self.catalog.view_by_id(read.id).map(|view| (view.schema, view.name.clone()));
            if let Some((schema, current)) = table.or_else(view)
                && !self.catalog.is_visible(schema, &current)
            {
                self.put_schema(name, schema);
            }
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &mut ast::Expr) -> ControlFlow<()> {
        if let Some(name) = own_type(expr)
            && let Ok(found) = relation_name(name)
            && let Some((schema, own)) = named_alone(self.catalog, &found)
            && !self.catalog.is_visible(schema, own)
        {
            self.put_schema(name, schema);
        }
        ControlFlow::Continue(())
    }
}
