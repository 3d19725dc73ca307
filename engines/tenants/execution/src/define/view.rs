//! Makes and drops views, and what depends on what they read.

use std::sync::Arc;

use savanna_tenants_catalog::{Encode, Name, TEMPORARY, rows_of_view, table_key, view::View};
use savanna_tenants_store::database::Step;
use savanna_tenants_values::error::{Result, SqlError, state};

use crate::{define::Definer, effects::ready};

impl Definer<'_, '_> {
    pub(crate) fn create_view(&mut self, view: &View, or_replace: bool) -> Result<Step<()>> {
        let mut view = view.clone();
        if view.schema != TEMPORARY && view.reads.iter().any(|read| read.id & TEMPORARY != 0) {
            self.notices.push(format!("view \"{}\" will be a temporary view", view.name));
            view.schema = TEMPORARY;
        }
        ready!(self.hold_schema(view.schema));
        let there = self.catalog.in_schema(view.schema, &view.name);
        match there.and_then(|id| self.catalog.view_by_id(id)).map(Arc::clone) {
            Some(old) if or_replace => {
                ready!(self.own_object(&table_key(old.id)));
                self.check_replacement(&old, &view)?;
                view.id = old.id;
                view.comments.clone_from(&old.comments);
            }
            None if or_replace && there.is_some() => {
                return Err(SqlError::new(state::WRONG_OBJECT_TYPE, format!("\"{}\" is not a view", view.name)));
            }
            _ => {
                view.id = self.new_number(view.schema)?;
                ready!(self.take_name(view.schema, &view.name, view.id));
            }
        }
        for read in &view.reads {
            ready!(self.effects.hold(&mut self.run.database(), &table_key(read.id)));
        }
        for (_, of) in &view.columns {
            ready!(self.hold_type(*of, view.schema));
        }
        self.save_view(&view)
    }

    pub(crate) fn save_view(&mut self, view: &View) -> Result<Step<()>> {
        if view.columns.iter().any(|(_, of)| of.composite().is_some()) {
            self.check_nesting(&rows_of_view(view))?;
        }
        self.effects.set(&mut self.run.database(), table_key(view.id), Some(view.encode()?))
    }

    /// Whoever uses the old view can use the new one.
    fn check_replacement(&self, old: &View, new: &View) -> Result<()> {
        let wrong = |message: String| Err(SqlError::new(state::INVALID_TABLE_DEFINITION, message));
        if new.columns.len() < old.columns.len() {
            return wrong("cannot drop columns from view".to_owned());
        }
        for ((old, was), (new, is)) in old.columns.iter().zip(&new.columns) {
            if old != new {
                return wrong(format!("cannot change name of view column \"{old}\" to \"{new}\""));
            }
            if was != is {
                let (was, is) = (self.catalog.type_name(*was), self.catalog.type_name(*is));
                return wrong(format!("cannot change data type of view column \"{old}\" from {was} to {is}"));
            }
        }
        Ok(())
    }

    pub(crate) fn rename_view(&mut self, name: &Name, to: &str, if_exists: bool) -> Result<Step<()>> {
        let Some(view) = self.view(name, if_exists)? else { return Ok(Step::Done(())) };
        ready!(self.own_object(&table_key(view.id)));
        ready!(self.take_name(view.schema, to, view.id));
        ready!(self.free_name(view.schema, &view.name));
        self.save_view(&View { name: to.to_owned(), ..View::clone(&view) })
    }

    pub(crate) fn drop_views(&mut self, names: &[Name], if_exists: bool, cascade: bool) -> Result<Step<()>> {
        let mut views = Vec::new();
        for name in names {
            views.extend(self.view(name, if_exists)?);
        }
        for view in &views {
            self.changed.insert(view.id, None);
        }
        for view in &views {
            ready!(self.drop_view(view, cascade));
        }
        Ok(Step::Done(()))
    }

    pub(crate) fn view(&mut self, name: &Name, if_exists: bool) -> Result<Option<Arc<View>>> {
        match self.catalog.view(name) {
            Some(view) => Ok(Some(Arc::clone(view))),
            None if self.catalog.has(name) => {
                Err(SqlError::new(state::WRONG_OBJECT_TYPE, format!("\"{name}\" is not a view")))
            }
            None => self.missing("view", name, if_exists).map(|()| None),
        }
    }

    pub(crate) fn drop_view(&mut self, view: &View, cascade: bool) -> Result<Step<()>> {
        ready!(self.own_object(&table_key(view.id)));
        self.changed.insert(view.id, None);
        let what = format!("view {}", view.name);
        ready!(self.drop_readers(&|other| other.reads(view.id, None), &what, cascade));
        let rows = format!("type {}", self.catalog.written(view.schema, &view.name));
        ready!(self.drop_users(view.id, (&what, &rows), cascade));
        ready!(self.free_name(view.schema, &view.name));
        self.effects.set(&mut self.run.database(), table_key(view.id), None)
    }

    /// Drops the views that read what goes.
    pub(crate) fn drop_readers(
        &mut self,
        reads: &dyn Fn(&View) -> bool,
        what: &str,
        cascade: bool,
    ) -> Result<Step<()>> {
        let readers: Vec<Arc<View>> = self.catalog.views().filter(|view| reads(view)).map(Arc::clone).collect();
        for view in readers {
            if matches!(self.changed.get(&view.id), Some(None)) {
                continue;
            }
            if !cascade {
                let message = format!("cannot drop {what} because other objects depend on it");
                return Err(SqlError::new(state::DEPENDENT_OBJECTS, message)
                    .detail(format!("view {} depends on {what}", view.name))
                    .hint("Use DROP ... CASCADE to drop the dependent objects too."));
            }
            self.notices.push(format!("drop cascades to view {}", view.name));
            ready!(self.drop_view(&view, cascade));
        }
        Ok(Step::Done(()))
    }
}
