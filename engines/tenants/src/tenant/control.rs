//! Statements about transactions, savepoints, settings and databases: they touch no rows.

use savanna_tenants_sql::{
    function::Configured,
    plan::{Modes, Plan, SetConstraints},
};
use savanna_tenants_store::database::{SessionId, Step};
use savanna_tenants_values::{
    error::{Result, SqlError, state},
    value::Value,
};
use savanna_transaction::TxnId;

use super::{Tenant, portals::no_statement, transactions::only_reads};
use crate::session::{Outcome, SavepointOf, Session};

impl Tenant {
    /// Statements that are about transactions and sessions, not about rows.
    pub(super) fn control(&mut self, id: SessionId, plan: &Plan) -> Result<Option<Step<Outcome>>> {
        let done = |tag: &str| Ok(Some(Step::Done(Outcome::Done { tag: tag.to_owned() })));
        match plan {
            Plan::Empty => return Ok(Some(Step::Done(Outcome::Empty))),
            Plan::Begin { tag, modes } => {
                let session = self.session(id)?;
                if let Some(txn) = &mut session.txn {
                    if std::mem::replace(&mut txn.explicit, true) {
                        session.warn(state::ACTIVE_SQL_TRANSACTION, "there is already a transaction in progress");
                    }
                    self.set_transaction(id, modes)?;
                    return done(tag);
                }
                let isolation = modes.isolation.unwrap_or(session.facts.settings.isolation);
                let read_only = modes.read_only.unwrap_or(session.facts.settings.read_only);
                self.begin(id, isolation, read_only, true)?;
                return done(tag);
            }
            Plan::Commit => {
                let session = self.session(id)?;
                match &session.txn {
                    Some(txn) if txn.failed => {
                        self.roll_back(id);
                        return done("ROLLBACK");
                    }
                    Some(txn) if txn.explicit => {}
                    _ => session.warn(state::NO_ACTIVE_SQL_TRANSACTION, "there is no transaction in progress"),
                }
                return Ok(Some(match self.commit(id)? {
                    Step::Wait => Step::Wait,
                    Step::Done(()) => Step::Done(Outcome::Done { tag: "COMMIT".to_owned() }),
                }));
            }
            Plan::Rollback => {
                if self.undoes_much(id) {
                    return Ok(Some(Step::Wait));
                }
                let session = self.session(id)?;
                if !session.txn.as_ref().is_some_and(|txn| txn.explicit) {
                    session.warn(state::NO_ACTIVE_SQL_TRANSACTION, "there is no transaction in progress");
                }
                self.roll_back(id);
                return done("ROLLBACK");
            }
            Plan::Savepoint(name) => {
                let txn = self.explicit(id, "SAVEPOINT")?;
                let savepoint = self.database.savepoint(txn)?;
                let temporary = self.database.temporary_savepoint(id);
                let Session { txn, facts, .. } = self.session(id)?;
                if let Some(txn) = txn {
                    let (name, deferral, said) = (name.clone(), txn.deferral.clone(), facts.notifying.get_mut().mark());
                    let written = Some((txn.bytes, txn.memory));
                    txn.savepoints.push(SavepointOf { name, rows: savepoint, temporary, said, written, deferral });
                }
                return done("SAVEPOINT");
            }
            Plan::Release(name) => {
                self.explicit(id, "RELEASE SAVEPOINT")?;
                let at = self.savepoint(id, name)?;
                if let Some(txn) = &mut self.session(id)?.txn {
                    txn.savepoints.truncate(at);
                }
                self.session(id)?.keep_cursors(at);
                return done("RELEASE");
            }
            Plan::RollbackTo(name) => {
                let txn = self.explicit(id, "ROLLBACK TO SAVEPOINT")?;
                let at = self.savepoint(id, name)?;
                if self.undoes_much(id) {
                    return Ok(Some(Step::Wait));
                }
                let mut savepoint = None;
                let Session { txn: current, facts, .. } = self.session(id)?;
                if let Some(current) = current {
                    current.savepoints.truncate(at + 1);
                    current.failed = false;
                    if let Some(last) = current.savepoints.last() {
                        savepoint = Some((last.rows, last.temporary));
                        current.deferral = last.deferral.clone();
                        facts.notifying.get_mut().take_back(last.said);
                        if let Some((bytes, memory)) = last.written {
                            current.go_back_to(bytes, memory);
                        }
                    }
                }
                if let Some((rows, temporary)) = savepoint {
                    self.database.roll_back_to(txn, rows)?;
                    self.database.roll_back_temporary(id, temporary);
                    self.end_views(id, |view| view.is_behind(rows));
                }
                self.session(id)?.undo_cursors(at + 1);
                self.release_views(id);
                return done("ROLLBACK");
            }
            Plan::SetTransaction(modes) => {
                if self.session(id)?.txn.is_none() {
                    let message = "SET TRANSACTION can only be used in transaction blocks";
                    self.session(id)?.warn(state::NO_ACTIVE_SQL_TRANSACTION, message);
                }
                self.set_transaction(id, modes)?;
                return done("SET");
            }
            Plan::SetSession(modes) => {
                let settings = &mut self.session(id)?.facts.settings;
                settings.isolation = modes.isolation.unwrap_or(settings.isolation);
                settings.read_only = modes.read_only.unwrap_or(settings.read_only);
                return done("SET");
            }
            Plan::SetConstraints(constraints) => {
                return Ok(Some(match self.set_constraints(id, constraints)? {
                    Step::Wait => Step::Wait,
                    Step::Done(()) => Step::Done(Outcome::Done { tag: "SET CONSTRAINTS".to_owned() }),
                }));
            }
            Plan::Set { name, value, local } => {
                self.set_in_transaction(id, name, value.as_deref(), *local)?;
                return done("SET");
            }
            Plan::Reset(name) => {
                self.set_in_transaction(id, name, None, false)?;
                return done("RESET");
            }
            Plan::Show(name) => {
                let session = self.session(id)?;
                session.facts.modes = session.txn.as_ref().map(|txn| (txn.isolation, txn.read_only));
                session.facts.configured.borrow_mut().clear();
                let value = session.facts.setting(name)?;
                let rows = vec![vec![Value::Text(value)]];
                return Ok(Some(Step::Done(Outcome::Rows { tag: "SHOW".to_owned(), rows: rows.into(), end: true })));
            }
            Plan::Prepare(new) => {
                self.prepare(id, new)?;
                return done("PREPARE");
            }
            Plan::LockTable(_) => {
                self.explicit(id, "LOCK TABLE")?;
            }
            Plan::Deallocate(name) => {
                let session = self.session(id)?;
                match name {
                    None => session.prepared.clear(),
                    Some(name) if session.prepared.remove(name).is_none() => return Err(no_statement(name)),
                    Some(_) => {}
                }
                return done(if name.is_none() { "DEALLOCATE ALL" } else { "DEALLOCATE" });
            }
            Plan::Notify { channel, payload } => {
                self.in_transaction(id)?;
                self.session(id)?.facts.notifying.get_mut().say(channel, payload)?;
                return done("NOTIFY");
            }
            Plan::Listen(channel) => {
                self.in_transaction(id)?;
                self.session(id)?.facts.notifying.get_mut().listen(channel)?;
                return done("LISTEN");
            }
            Plan::Unlisten(channel) => {
                self.in_transaction(id)?;
                self.session(id)?.facts.notifying.get_mut().unlisten(channel.as_deref())?;
                return done("UNLISTEN");
            }
            Plan::DiscardTemporary => {
                if self.session(id)?.txn.as_ref().is_some_and(|txn| txn.explicit) {
                    return Err(SqlError::unsupported("DISCARD TEMP in a transaction"));
                }
                self.database.drop_temporary(id);
                return done("DISCARD TEMP");
            }
            Plan::DiscardAll => {
                self.outside(id, "DISCARD ALL")?;
                self.database.drop_temporary(id);
                let session = self.session(id)?;
                session.prepared.clear();
                session.portals.clear();
                session.cursors.clear();
                session.facts.settings.set("", None)?;
                session.facts.advisory.get_mut().unlock_all();
                self.in_transaction(id)?;
                self.session(id)?.facts.notifying.get_mut().unlisten(None)?;
                return done("DISCARD ALL");
            }
            Plan::Declare { name, options, .. } => self.may_declare(id, name, *options)?,
            Plan::Fetch { name, direction, moves } => {
                return self.fetch_from(id, name, *direction, *moves).map(Some);
            }
            Plan::CloseCursor(name) => {
                self.close_cursor(id, name.as_deref())?;
                return done(if name.is_none() { "CLOSE CURSOR ALL" } else { "CLOSE CURSOR" });
            }
            Plan::Nothing(tag) => {
                if *tag == "VACUUM" {
                    self.outside(id, tag)?;
                }
                return done(tag);
            }
            Plan::CreateDatabase(name) => {
                self.outside(id, "CREATE DATABASE")?;
                self.administrate(id, "create")?;
                return Ok(Some(Step::Done(Outcome::CreateDatabase(name.clone()))));
            }
            Plan::DropDatabase { name, if_exists } => {
                self.outside(id, "DROP DATABASE")?;
                self.administrate(id, "drop")?;
                return Ok(Some(Step::Done(Outcome::DropDatabase { name: name.clone(), if_exists: *if_exists })));
            }
            _ => {}
        }
        Ok(None)
    }

    /// Says when foreign keys are checked; those that were put off and are not any more are checked now.
    fn set_constraints(&mut self, id: SessionId, constraints: &SetConstraints) -> Result<Step<()>> {
        let Some(txn) = self.session(id)?.txn.as_ref().map(|txn| txn.id) else {
            let message = "SET CONSTRAINTS can only be used in transaction blocks";
            self.session(id)?.warn(state::NO_ACTIVE_SQL_TRANSACTION, message);
            return Ok(Step::Done(()));
        };
        let catalog = self.visible_catalog(id)?;
        let mut named = Vec::new();
        for name in constraints.names.iter().flatten() {
            let keys = catalog.tables().flat_map(|table| &table.foreign_keys);
            let keys: Vec<_> = keys.filter(|key| key.name == *name).collect();
            if keys.is_empty() && !catalog.tables().any(|table| table.has_constraint(name)) {
                return Err(SqlError::new(state::UNDEFINED_OBJECT, format!("constraint \"{name}\" does not exist")));
            }
            if keys.is_empty() || keys.iter().any(|key| !key.deferrable) {
                let message = format!("constraint \"{name}\" is not deferrable");
                return Err(SqlError::new(state::WRONG_OBJECT_TYPE, message));
            }
            named.extend(keys);
        }
        let Some(current) = &self.session(id)?.txn else { return Ok(Step::Done(())) };
        let mut deferral = current.deferral.clone();
        match constraints.names {
            None => deferral.set_all(constraints.deferred),
            Some(_) => named.into_iter().for_each(|key| deferral.set(key, constraints.deferred)),
        }
        let checks = current.deferred.clone();
        let (due, later) = checks.into_iter().partition(|((key, _), _)| {
            let key = catalog.foreign_key(*key).map(|(table, at)| &table.foreign_keys[at]);
            key.is_none_or(|key| !deferral.defers(key))
        });
        if self.check_deferred(id, &due)? == Step::Wait {
            return Ok(Step::Wait);
        }
        self.database.end_statement(txn)?;
        if let Some(current) = &mut self.session(id)?.txn {
            (current.deferral, current.deferred) = (deferral, later);
        }
        Ok(Step::Done(()))
    }

    /// The transaction that the client began.
    fn explicit(&mut self, id: SessionId, what: &str) -> Result<TxnId> {
        match &self.session(id)?.txn {
            Some(txn) if txn.explicit => Ok(txn.id),
            _ => {
                let message = format!("{what} can only be used in transaction blocks");
                Err(SqlError::new(state::NO_ACTIVE_SQL_TRANSACTION, message))
            }
        }
    }

    fn outside(&mut self, id: SessionId, what: &str) -> Result<()> {
        match &self.session(id)?.txn {
            Some(txn) if txn.explicit => {
                let message = format!("{what} cannot run inside a transaction block");
                Err(SqlError::new(state::ACTIVE_SQL_TRANSACTION, message))
            }
            _ => Ok(()),
        }
    }

    /// Refuses what reaches beyond the tenant to those who belong to the tenant.
    fn administrate(&mut self, id: SessionId, verb: &str) -> Result<()> {
        if self.session(id)?.facts.administrator {
            return Ok(());
        }
        let error = SqlError::new(state::INSUFFICIENT_PRIVILEGE, format!("permission denied to {verb} database"));
        Err(error.hint("Roles of database postgres may do that."))
    }

    fn savepoint(&mut self, id: SessionId, name: &str) -> Result<usize> {
        let savepoints = self.session(id)?.txn.as_ref().map(|txn| txn.savepoints.as_slice()).unwrap_or_default();
        let found = savepoints.iter().rposition(|other| other.name == name);
        found.ok_or_else(|| SqlError::new(state::INVALID_SAVEPOINT, format!("savepoint \"{name}\" does not exist")))
    }

    /// What a statement has set counts from now on.
    pub(super) fn configure(&mut self, id: SessionId) -> Result<()> {
        for Configured { name, value, local } in self.session(id)?.facts.configured.take() {
            match &mut self.session(id)?.txn {
                Some(txn) if name == "transaction_read_only" => txn.read_only = true,
                _ => self.set_in_transaction(id, &name, value.as_deref(), local)?,
            }
        }
        Ok(())
    }

    /// Says what the transaction is like that there is, if there is one. It has read nothing yet where that matters.
    fn set_transaction(&mut self, id: SessionId, modes: &Modes) -> Result<()> {
        let session = self.session(id)?;
        if modes.read_only == Some(false) && session.facts.only_reads {
            return Err(only_reads());
        }
        let Some(txn) = &mut session.txn else { return Ok(()) };
        let error = |message: &str| Err(SqlError::new(state::ACTIVE_SQL_TRANSACTION, message));
        let isolation = modes.isolation.filter(|isolation| *isolation != txn.isolation);
        if isolation.is_some() && txn.used {
            return error("SET TRANSACTION ISOLATION LEVEL must be called before any query");
        }
        if isolation.is_some() && !txn.savepoints.is_empty() {
            return error("SET TRANSACTION ISOLATION LEVEL must not be called in a subtransaction");
        }
        if modes.read_only == Some(false) && txn.read_only && txn.used {
            return error("transaction read-write mode must be set before any query");
        }
        txn.read_only = modes.read_only.unwrap_or(txn.read_only);
        let Some(isolation) = isolation else { return Ok(()) };
        // Nothing was done in it: another one takes its place.
        let (old, read_only, explicit) = (txn.id, txn.read_only, txn.explicit);
        let (before, local) = (txn.settings_before.take(), std::mem::take(&mut txn.local_settings));
        self.database.abort(old);
        self.begin(id, isolation, read_only, explicit)?;
        if let Some(txn) = &mut self.session(id)?.txn {
            (txn.settings_before, txn.local_settings) = (before, local);
        }
        Ok(())
    }

    fn set_in_transaction(&mut self, id: SessionId, name: &str, value: Option<&str>, local: bool) -> Result<()> {
        let session = self.session(id)?;
        let before = session.facts.settings.clone();
        session.facts.settings.set(name, value)?;
        match &mut session.txn {
            Some(txn) => {
                if local {
                    txn.local_settings.push((name.to_owned(), before.show(name).unwrap_or_default()));
                }
                txn.settings_before.get_or_insert(before);
            }
            None if local => {
                session.facts.settings = before;
                session.warn(state::NO_ACTIVE_SQL_TRANSACTION, "SET LOCAL can only be used in transaction blocks");
            }
            None => {}
        }
        Ok(())
    }
}
