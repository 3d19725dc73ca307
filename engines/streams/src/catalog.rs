//! The tables and views of the engine.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};
use savanna_streams_api::ids::QueryId;
use savanna_streams_api::{Result, StreamError};
use savanna_streams_model::catalog::{TableDef, ViewDef};
use savanna_streams_model::names::hint;
use savanna_streams_sql::{Catalog, MaterializedView};

use crate::views::View;

/// A table, a view or a materialized view; they share one space of names.
#[derive(Clone, Debug)]
pub(crate) enum Relation {
    Table(TableDef),
    View(ViewDef),
    Materialized(Arc<View>),
}

impl Relation {
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Table(_) => "table",
            Self::View(_) => "view",
            Self::Materialized(_) => "materialized view",
        }
    }

    pub(crate) fn name(&self) -> &str {
        match self {
            Self::Table(table) => &table.name,
            Self::View(view) => &view.name,
            Self::Materialized(view) => &view.table().name,
        }
    }

    pub(crate) fn statement(&self) -> &str {
        match self {
            Self::Table(table) => &table.statement,
            Self::View(view) => &view.statement,
            Self::Materialized(view) => &view.table().statement,
        }
    }
}

/// What exists, by name. Names are case-sensitive.
#[derive(Debug, Default)]
pub(crate) struct StreamCatalog {
    relations: RwLock<BTreeMap<String, Relation>>,
    /// Locked while a change becomes durable.
    changing: Mutex<()>,
}

/// What to do if a name is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IfExists {
    Fail,
    Keep,
    Replace,
}

impl StreamCatalog {
    /// One of these relations.
    pub(crate) fn of(relations: impl IntoIterator<Item = Relation>) -> Self {
        let named = relations.into_iter().map(|relation| (relation.name().to_owned(), relation));
        Self { relations: RwLock::new(named.collect()), changing: Mutex::new(()) }
    }

    /// Adds a relation. Returns whether it was added. `keep` makes it durable; nobody sees it before.
    pub(crate) fn create(
        &self,
        name: &str,
        relation: Relation,
        if_exists: IfExists,
        keep: impl FnOnce(&Relation) -> Result<()>,
    ) -> Result<bool> {
        let _changing = self.changing.lock();
        match (self.relations.read().get(name), if_exists) {
            (Some(_), IfExists::Keep) => return Ok(false),
            (Some(old), if_exists) if if_exists == IfExists::Fail || old.kind() != relation.kind() => {
                return Err(StreamError::Exists { kind: old.kind().into(), name: name.into(), position: None });
            }
            _ => {}
        }
        keep(&relation)?;
        self.relations.write().insert(name.to_owned(), relation);
        Ok(true)
    }

    /// Removes a relation of the given kind. Returns whether there was one. `forget` makes that durable.
    pub(crate) fn remove(
        &self,
        kind: &str,
        name: &str,
        if_exists: bool,
        forget: impl FnOnce() -> Result<()>,
    ) -> Result<bool> {
        let _changing = self.changing.lock();
        {
            let relations = self.relations.read();
            match relations.get(name) {
                Some(relation) if relation.kind() == kind => {}
                Some(relation) => {
                    let instead = format!("write DROP {} {name}", relation.kind().to_uppercase());
                    return Err(wrong_kind(relation, kind, name, &instead));
                }
                None if if_exists => return Ok(false),
                None => return Err(unknown(&relations, kind, name)),
            }
        }
        forget()?;
        self.relations.write().remove(name);
        Ok(true)
    }

    /// A relation by name.
    pub(crate) fn find(&self, kind: &str, name: &str) -> Result<Relation> {
        let relations = self.relations.read();
        match relations.get(name) {
            Some(relation) if relation.kind() == kind => Ok(relation.clone()),
            Some(relation) => Err(wrong_kind(relation, kind, name, &format!("name a {kind}"))),
            None => Err(unknown(&relations, kind, name)),
        }
    }

    /// Whether there is a relation of this name.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.relations.read().contains_key(name)
    }

    /// The materialized view that a query fills.
    pub(crate) fn filled_by(&self, query: &QueryId) -> Option<Arc<View>> {
        self.views().into_iter().find(|view| view.id() == query)
    }

    /// All materialized views in order of their names.
    pub(crate) fn views(&self) -> Vec<Arc<View>> {
        let view = |relation: &Relation| match relation {
            Relation::Materialized(view) => Some(Arc::clone(view)),
            _ => None,
        };
        self.relations.read().values().filter_map(view).collect()
    }

    /// All relations in order of their names.
    pub(crate) fn all(&self) -> Vec<(String, Relation)> {
        self.relations.read().iter().map(|(name, relation)| (name.clone(), relation.clone())).collect()
    }
}

fn wrong_kind(relation: &Relation, kind: &str, name: &str, instead: &str) -> StreamError {
    StreamError::invalid(format!("{} {name} is not a {kind}; {instead}", relation.kind()))
}

fn unknown(relations: &BTreeMap<String, Relation>, kind: &str, name: &str) -> StreamError {
    let names: Vec<&str> = relations.iter().filter(|(_, r)| r.kind() == kind).map(|(name, _)| name.as_str()).collect();
    let hint = if names.is_empty() {
        format!("there is no {kind} yet; CREATE {} makes one", kind.to_uppercase())
    } else {
        hint(name, names, &format!("{kind}s"))
    };
    StreamError::Unknown { kind: kind.into(), name: name.into(), position: None, hint }
}

impl Catalog for StreamCatalog {
    fn table(&self, name: &str) -> Option<TableDef> {
        match self.relations.read().get(name) {
            Some(Relation::Table(table)) => Some(table.clone()),
            _ => None,
        }
    }

    fn view(&self, name: &str) -> Option<ViewDef> {
        match self.relations.read().get(name) {
            Some(Relation::View(view)) => Some(view.clone()),
            _ => None,
        }
    }

    fn materialized(&self, name: &str) -> Option<Arc<dyn MaterializedView>> {
        match self.relations.read().get(name) {
            Some(Relation::Materialized(view)) => Some(Arc::clone(view) as _),
            _ => None,
        }
    }

    fn names(&self) -> Vec<String> {
        self.relations.read().keys().cloned().collect()
    }
}

/// A catalog that notes which of its relations a query names.
pub(crate) struct NotingCatalog {
    catalog: Arc<StreamCatalog>,
    noted: Mutex<BTreeMap<String, Relation>>,
}

impl NotingCatalog {
    pub(crate) fn new(catalog: Arc<StreamCatalog>) -> Self {
        Self { catalog, noted: Mutex::default() }
    }

    /// What was asked for so far.
    pub(crate) fn noted(&self) -> Vec<Relation> {
        self.noted.lock().values().cloned().collect()
    }

    fn note(&self, relation: Relation) {
        self.noted.lock().insert(relation.name().to_owned(), relation);
    }
}

impl Catalog for NotingCatalog {
    fn table(&self, name: &str) -> Option<TableDef> {
        self.catalog.table(name).inspect(|table| self.note(Relation::Table(table.clone())))
    }

    fn view(&self, name: &str) -> Option<ViewDef> {
        self.catalog.view(name).inspect(|view| self.note(Relation::View(view.clone())))
    }

    fn materialized(&self, name: &str) -> Option<Arc<dyn MaterializedView>> {
        self.catalog.materialized(name)
    }

    fn names(&self) -> Vec<String> {
        self.catalog.names()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(query: &str) -> Relation {
        Relation::View(ViewDef {
            name: "v".into(),
            columns: Vec::new(),
            query: query.into(),
            statement: format!("CREATE VIEW v AS {query}"),
        })
    }

    #[test]
    fn a_name_is_taken_until_it_is_dropped() {
        let catalog = StreamCatalog::default();
        assert!(catalog.create("v", view("SELECT 1"), IfExists::Fail, |_| Ok(())).unwrap());
        let error = catalog.create("v", view("SELECT 2"), IfExists::Fail, |_| Ok(())).unwrap_err();
        assert_eq!(error.to_string(), "view v exists already; DROP it first or choose another name");
        assert!(!catalog.create("v", view("SELECT 2"), IfExists::Keep, |_| Ok(())).unwrap());
        assert!(catalog.create("v", view("SELECT 3"), IfExists::Replace, |_| Ok(())).unwrap());
        assert_eq!(catalog.view("v").unwrap().query, "SELECT 3");
        assert!(catalog.remove("view", "v", false, || Ok(())).unwrap());
        assert!(catalog.remove("view", "v", false, || Ok(())).is_err());
        assert!(!catalog.remove("view", "v", true, || Ok(())).unwrap());
    }

    #[test]
    fn dropping_a_view_as_a_table_says_what_it_is() {
        let catalog = StreamCatalog::default();
        catalog.create("v", view("SELECT 1"), IfExists::Fail, |_| Ok(())).unwrap();
        let error = catalog.remove("table", "v", true, || Ok(())).unwrap_err();
        assert_eq!(error.to_string(), "view v is not a table; write DROP VIEW v");
    }

    #[test]
    fn what_cannot_be_made_durable_is_not_there() {
        let catalog = StreamCatalog::default();
        let full = || Err(StreamError::invalid("no space"));
        assert!(catalog.create("v", view("SELECT 1"), IfExists::Fail, |_| full()).is_err());
        assert!(catalog.view("v").is_none());
        assert!(catalog.create("v", view("SELECT 1"), IfExists::Fail, |_| Ok(())).unwrap());
        assert!(catalog.remove("view", "v", false, full).is_err());
        assert!(catalog.view("v").is_some());
    }
}
