//! What foreign keys demand of a statement, once its effects are known and before they are written: referential actions first,
//! then the checks, those that are deferred when the transaction commits.
//!
//! A check of a key asks whether the parent has it or no child does. To ask is to read in the key space: the parent's key is
//! held with `KEY SHARE` (READ COMMITTED) or probed (above), so that it stays until the child's row is committed, and an update
//! of the parent's other columns is in nobody's way. Whoever takes the parent's key away has it locked for that, and
//! probes the range of the children's index: above READ COMMITTED a child that came meanwhile fails the commit.

use std::{
    collections::{BTreeMap, VecDeque},
    ops::ControlFlow,
    sync::Arc,
};

use savanna_tenants_catalog::{Action, Catalog, row};
use savanna_tenants_sql::{define::reference::Reference, plan::Target};
use savanna_tenants_store::database::Step;
use savanna_tenants_values::{error::Result, value::Value};
use serde::{Deserialize, Serialize};

use crate::{
    Run,
    effects::{Effects, Inserted, duplicate, ready},
    join::row_key,
    modify::KeyedRows,
};

/// A key that has to be the parent's if a child refers to it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Check {
    values: Vec<Value>,
    /// Whether a child began to refer to it; otherwise the parent gave it up.
    by_child: bool,
}

/// Checks by the numbers of foreign keys and the parents' keys.
pub type Checks = BTreeMap<(u32, Vec<u8>), Check>;

/// A row that went, or has other values.
#[derive(Debug)]
struct Moved {
    table: u32,
    old: Vec<Value>,
    new: Option<Vec<Value>>,
}

/// What a statement did that foreign keys have to do with.
#[derive(Debug, Default)]
pub struct Touched {
    checks: Checks,
    references: BTreeMap<u32, Arc<Reference>>,
    moved: VecDeque<Moved>,
    /// What is checked when the transaction commits.
    pub deferred: Checks,
}

impl Touched {
    /// A row came or changed.
    pub(crate) fn came(&mut self, target: &Target, old: Option<&[Value]>, new: &[Value]) -> Result<()> {
        for reference in &target.references {
            let same = |old: &[Value]| reference.key().columns.iter().all(|at| old[*at].compare(&new[*at]).is_eq());
            if old.is_some_and(same) {
                continue;
            }
            if let Some(values) = reference.of_child(new)? {
                self.check(reference, values, true)?;
            }
        }
        Ok(())
    }

    /// What is to be checked.
    pub(crate) fn checks(&self) -> impl Iterator<Item = &Check> {
        self.checks.values()
    }

    /// A row went or changed.
    pub(crate) fn moved(&mut self, target: &Target, old: &[Value], new: Option<&[Value]>) {
        let gave_up = target.referenced_by.iter().any(|reference| gave_up(reference, old, new).is_some());
        if gave_up {
            let new = new.map(<[Value]>::to_vec);
            self.moved.push_back(Moved { table: target.table.id, old: old.to_vec(), new });
        }
    }

    pub(crate) fn check(&mut self, reference: &Arc<Reference>, values: Vec<Value>, by_child: bool) -> Result<()> {
        let id = reference.key().id;
        self.references.entry(id).or_insert_with(|| Arc::clone(reference));
        self.checks.entry((id, reference.parent_key(&values)?)).or_insert(Check { values, by_child });
        Ok(())
    }
}

/// The key that a row of the parent had and has no longer.
fn gave_up(reference: &Reference, old: &[Value], new: Option<&[Value]>) -> Option<Vec<Value>> {
    let same = |new: &[Value]| reference.key().parent_columns.iter().all(|at| old[*at].compare(&new[*at]).is_eq());
    if new.is_some_and(same) { None } else { reference.of_parent(old) }
}

impl Run<'_> {
    /// Sees to it that a table and those that it refers to stay as they are until the transaction ends.
    pub fn hold(&self, target: &Target) -> Result<Step<()>> {
        let effects = self.new_effects();
        for table in std::iter::once(&target.table).chain(target.references.iter().map(|reference| &reference.parent)) {
            ready!(effects.hold_table(&mut self.database(), table));
        }
        Ok(Step::Done(()))
    }

    /// Completes a statement's effects with those of referential actions, and checks what is not deferred.
    pub(crate) fn settle<'t>(
        &self,
        targets: &(impl Iterator<Item = &'t Target> + Clone),
        effects: &mut Effects,
    ) -> Result<Step<()>> {
        while let Some(moved) = effects.touched.moved.pop_front() {
            let Some(target) = targets.clone().find(|target| target.table.id == moved.table) else { continue };
            for reference in &target.referenced_by {
                let Some(key) = gave_up(reference, &moved.old, moved.new.as_deref()) else { continue };
                let action = if moved.new.is_some() { reference.key().on_update } else { reference.key().on_delete };
                if action == Action::NoAction {
                    effects.touched.check(reference, key, false)?;
                    continue;
                }
                let children = ready!(self.children(reference, &key, effects));
                if children.is_empty() {
                    continue;
                }
                if action == Action::Restrict {
                    return Err(reference.still_referenced(&key));
                }
                let child = targets.clone().find(|target| target.table.id == reference.child.id);
                let Some(child) = child else { continue };
                ready!(self.act(action, reference, child, (children, moved.new.as_deref()), effects));
                if action == Action::SetDefault {
                    // The default may be the key that went.
                    effects.touched.check(reference, key, false)?;
                }
            }
        }
        for (id, check) in std::mem::take(&mut effects.touched.checks) {
            let Some(reference) = effects.touched.references.get(&id.0).map(Arc::clone) else { continue };
            if self.deferral.defers(reference.key()) {
                effects.touched.deferred.insert(id, check);
            } else {
                self.goes_on()?;
                ready!(self.check(&reference, &check, effects));
            }
        }
        Ok(Step::Done(()))
    }

    /// Checks what a transaction has put off. What was dropped meanwhile demands nothing.
    pub fn check_deferred(&self, checks: &Checks, catalog: &Catalog) -> Result<Step<()>> {
        let effects = self.new_effects();
        for ((id, _), check) in checks {
            if let Some((child, at)) = catalog.foreign_key(*id) {
                let reference = Reference::of(catalog, child, at)?;
                ready!(self.check(&reference, check, &effects));
            }
        }
        Ok(Step::Done(()))
    }

    fn act(
        &self,
        action: Action,
        reference: &Reference,
        child: &Target,
        (children, parent): (KeyedRows, Option<&[Value]>),
        effects: &mut Effects,
    ) -> Result<Step<()>> {
        let (key, env) = (reference.key(), self.env());
        for (row, old) in children {
            self.goes_on()?;
            let mut new = old.clone();
            match (action, parent) {
                (Action::Cascade, None) => {
                    ready!(effects.delete(&mut self.database(), child, &row, &old, env));
                    continue;
                }
                (Action::Cascade, Some(parent)) => {
                    for (column, from) in key.columns.iter().zip(&key.parent_columns) {
                        new[*column] = parent[*from].clone();
                    }
                }
                (Action::SetDefault, _) => {
                    for (column, default) in key.columns.iter().zip(&reference.defaults) {
                        new[*column] = default.owned(env)?;
                    }
                }
                _ => key.columns.iter().for_each(|column| new[*column] = Value::Null),
            }
            let step = effects.update(&mut self.database(), child, (&row, &old), (&mut new, &key.columns), env);
            if let Inserted::Conflict(arbiter, _) = ready!(step) {
                return Err(duplicate(&child.table, arbiter, &new, env));
            }
        }
        Ok(Step::Done(()))
    }

    /// A key is the parent's, or no child refers to it.
    pub(crate) fn check(&self, reference: &Reference, check: &Check, effects: &Effects) -> Result<Step<()>> {
        ready!(effects.hold_table(&mut self.database(), &reference.parent));
        let key = reference.parent_key(&check.values)?;
        let present = match effects.will_be(&key) {
            Some(present) => present,
            None => ready!(self.database().hold_parent(self.txn, self.isolation, &key)),
        };
        if present || ready!(self.children(reference, &check.values, effects)).is_empty() {
            return Ok(Step::Done(()));
        }
        Err(if check.by_child { reference.no_parent(&check.values) } else { reference.still_referenced(&check.values) })
    }

    /// The rows of the child that will refer to a key, with their own keys.
    fn children(&self, reference: &Reference, key: &[Value], effects: &Effects) -> Result<Step<KeyedRows>> {
        ready!(effects.hold_table(&mut self.database(), &reference.child));
        let table = &reference.child;
        let range = reference.children(key)?;
        let all: Vec<usize> = table.live_columns().map(|(at, _)| at).collect();
        let referring = |bytes: &[u8]| -> Result<Option<Vec<Value>>> {
            let mut row = vec![Value::Null; table.columns.len()];
            row::decode(table, bytes, &all, &mut row)?;
            let refers = reference.key().columns.iter().zip(key).all(|(at, part)| row[*at].compare(part).is_eq());
            Ok(refers.then_some(row))
        };
        let (mut children, mut entries) = (Vec::new(), Vec::new());
        effects.probe_range(&mut self.database(), &range, &mut |key, value| {
            if reference.by_index() {
                entries.push(row_key(table, value));
            } else if let Some(row) = referring(value)? {
                children.push((key.to_vec(), row));
            }
            Ok(ControlFlow::Continue(()))
        })?;
        for key in entries {
            if let Some(row) = referring(&effects.row(&mut self.database(), &key)?)? {
                children.push((key, row));
            }
        }
        Ok(Step::Done(children))
    }
}
