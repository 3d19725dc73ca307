//! Queries over materialized views: what they name, and how they are answered.
//!
//! ```text
//!   query --reads--> streams: the way of the other modules
//!                    materialized views alone: --look_up--> the row of a key, without a plan
//!                                              --Versions--> a plan of DataFusion's over the rows as they are now
//! ```

mod look_up;
mod rows;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use datafusion::catalog::TableProvider;
use datafusion::common::Result;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::datasource::provider_as_source;
use datafusion::logical_expr::TableSource;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::coop::CooperativeExec;
use datafusion::sql::sqlparser::ast;

use self::rows::Rows;
use super::Catalog;
use super::context::external;
use super::walk::{self, Node};
use crate::materialized::MaterializedView;
use crate::parse::single_name;

pub(super) use look_up::look_up;

/// Views name views, at most so many in all.
const NAMES_MAX: usize = 500;

/// The versions of the views that a query names: each view is looked at once.
#[derive(Default)]
pub(super) struct Versions(RefCell<BTreeMap<String, Arc<dyn TableProvider>>>);

impl Versions {
    /// The rows of a view.
    pub(super) fn of(&self, name: &str, view: &dyn MaterializedView) -> Result<Arc<dyn TableSource>> {
        let mut versions = self.0.borrow_mut();
        let version = match versions.get(name) {
            Some(version) => Arc::clone(version),
            None => {
                let version: Arc<dyn TableProvider> =
                    Arc::new(Rows::new(view.schema(), view.rows().map_err(external)?));
                versions.insert(name.to_owned(), Arc::clone(&version));
                version
            }
        };
        Ok(provider_as_source(version))
    }
}

/// A plan that stops in between to be asked whether it goes on. DataFusion's stop where tables are read, and operators that give more rows
/// than they take may be far from that.
pub(super) fn may_be_interrupted(plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    let plan = plan.transform_up(|node| {
        let gives_more = node.children().len() > 1 || node.name() == "UnnestExec";
        Ok(match gives_more {
            true => Transformed::yes(Arc::new(CooperativeExec::new(node)) as _),
            false => Transformed::no(node),
        })
    })?;
    Ok(plan.data)
}

/// Whether a query reads materialized views, and nothing else.
pub(super) fn reads_them_alone(query: &ast::Query, catalog: &dyn Catalog) -> bool {
    let mut open = tables_of(query);
    let mut seen = BTreeSet::new();
    let mut is_any = false;
    while let Some(name) = open.pop() {
        if seen.len() > NAMES_MAX || catalog.table(&name).is_some() {
            return false;
        }
        is_any |= catalog.materialized(&name).is_some();
        if let Some(view) = catalog.view(&name).filter(|_| seen.insert(name)) {
            // One that is no query any more is an error of whoever plans it.
            let Ok(query) = crate::parse::parse_query(&view.query) else { return false };
            open.extend(tables_of(&query.ast));
        }
    }
    is_any
}

/// The tables that a query names, without common table expressions where those are in sight.
fn tables_of(query: &ast::Query) -> Vec<String> {
    let mut tables = Vec::new();
    let mut scopes: Vec<Scope> = Vec::new();
    let _all: Option<()> = walk::find(query, |node| {
        match node {
            Node::Query(query) => scopes.push(Scope::of(query)),
            Node::LeftQuery(query) => {
                scopes.pop();
                if let Some(outer) = scopes.last_mut() {
                    outer.left(query);
                }
            }
            Node::Relation(name) => {
                let name = single_name(name);
                let is_table = |name: &String| !scopes.iter().any(|scope| scope.seen.contains(name));
                tables.extend(name.filter(is_table));
            }
            _ => {}
        }
        None
    });
    tables
}

/// The common table expressions of a query that is being walked through.
struct Scope {
    /// By the places of their queries.
    all: Vec<(*const ast::Query, String)>,
    /// Those that can be named: each is in sight of what follows it.
    seen: BTreeSet<String>,
}

impl Scope {
    fn of(query: &ast::Query) -> Self {
        let with = query.with.iter().flat_map(|with| &with.cte_tables);
        let all: Vec<_> =
            with.map(|cte| (std::ptr::from_ref(cte.query.as_ref()), cte.alias.name.value.clone())).collect();
        Self { all, seen: BTreeSet::new() }
    }

    /// A part of the query was walked through.
    fn left(&mut self, part: &ast::Query) {
        let is_it = |(place, _): &&(*const ast::Query, String)| std::ptr::eq(*place, part);
        self.seen.extend(self.all.iter().find(is_it).map(|(_, name)| name.clone()));
    }
}
