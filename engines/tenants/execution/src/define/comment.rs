//! Runs `COMMENT ON`.

use savanna_tenants_catalog::{
    Comments, Definition, Domain, Encode, Name, Schema, Sequence, Subject, table_key, view::View,
};
use savanna_tenants_sql::plan::Commented;
use savanna_tenants_store::database::Step;
use savanna_tenants_values::{
    composite::Composite,
    enumeration::Enumeration,
    error::{Result, SqlError, state},
};

use crate::{
    define::{Definer, no_table},
    effects::ready,
};

impl Definer<'_, '_> {
    /// Says something about an object, or nothing any more.
    pub(crate) fn comment(&mut self, on: &Commented, comment: Option<&String>) -> Result<Step<()>> {
        let comment = comment.filter(|text| !text.is_empty());
        match on {
            Commented::Table(name) => {
                self.table(name)?;
                self.comment_on_table(name, Subject::Object, comment)
            }
            Commented::Constraint { table: name, name: constraint } => {
                if !self.table(name)?.has_constraint(constraint) {
                    let message = format!("constraint \"{constraint}\" for table \"{name}\" does not exist");
                    return Err(SqlError::new(state::UNDEFINED_OBJECT, message));
                }
                self.comment_on_table(name, Subject::Constraint(constraint.clone()), comment)
            }
            Commented::Index(name) => {
                if !self.catalog.has(name) {
                    return Err(no_table(name));
                }
                self.table_of_index(name, false)?;
                self.comment_on_table(name, Subject::Index(name.name.clone()), comment)
            }
            Commented::Column { relation, column } => self.comment_on_column(relation, column, comment),
            Commented::View(name) => {
                if !self.catalog.has(name) {
                    return Err(no_table(name));
                }
                let Some(view) = self.view(name, false)? else { return Ok(Step::Done(())) };
                self.comment_on_view(&view, Subject::Object, comment)
            }
            Commented::Sequence(name) => {
                let sequence = self.sequence(name)?;
                ready!(self.own_object(&table_key(sequence.id)));
                self.save_sequence(&Sequence { comment: comment.cloned(), ..Sequence::clone(&sequence) })
            }
            Commented::Domain(name) => {
                let domain = self.domain(name)?;
                ready!(self.own_object(&table_key(domain.id)));
                self.save_domain(&Domain { comment: comment.cloned(), ..Domain::clone(&domain) })
            }
            Commented::Type(name) if let Some(composite) = self.catalog.composite(name) => {
                ready!(self.own_object(&table_key(composite.id)));
                self.save_composite(&Composite { comment: comment.cloned(), ..Composite::clone(composite) })
            }
            Commented::Type(name) => {
                let enumeration = self.enumeration(name)?;
                ready!(self.own_object(&table_key(enumeration.id)));
                self.save_enumeration(&Enumeration { comment: comment.cloned(), ..Enumeration::clone(&enumeration) })
            }
            Commented::Schema(name) => {
                let schema = self.own_schema(name)?;
                let key = table_key(schema.id);
                ready!(self.own_object(&key));
                let schema = Schema { comment: comment.cloned(), ..Schema::clone(&schema) };
                self.effects.set(&mut self.run.database(), key, Some(schema.encode()?))
            }
        }
    }

    /// About the table that a name of a table or an index belongs to, or something of it.
    fn comment_on_table(&mut self, name: &Name, subject: Subject, comment: Option<&String>) -> Result<Step<()>> {
        let table = self.catalog.owner(name).ok_or_else(|| no_table(name))?;
        ready!(self.own(table));
        let mut definition = Definition::clone(&table.definition);
        note(&mut definition.comments, subject, comment);
        self.save(&definition)
    }

    fn comment_on_view(&mut self, view: &View, subject: Subject, comment: Option<&String>) -> Result<Step<()>> {
        ready!(self.own_object(&table_key(view.id)));
        let mut view = view.clone();
        note(&mut view.comments, subject, comment);
        self.save_view(&view)
    }

    fn comment_on_column(&mut self, relation: &Name, column: &str, comment: Option<&String>) -> Result<Step<()>> {
        let missing = || {
            let message = format!("column \"{column}\" of relation \"{}\" does not exist", relation.name);
            SqlError::new(state::UNDEFINED_COLUMN, message)
        };
        if let Some(view) = self.catalog.view(relation).cloned() {
            let at = view.columns.iter().position(|(name, _)| name == column).ok_or_else(missing)?;
            return self.comment_on_view(&view, Subject::Column(at), comment);
        }
        if let Some(composite) = self.catalog.composite(relation) {
            let mut composite = Composite::clone(composite);
            ready!(self.own_object(&table_key(composite.id)));
            let mut attributes = composite.attributes.iter_mut();
            let attribute = attributes.find(|of| !of.dropped && of.name == column).ok_or_else(missing)?;
            attribute.comment = comment.cloned();
            return self.save_composite(&composite);
        }
        let at = self.table(relation)?.column(column).ok_or_else(missing)?;
        self.comment_on_table(relation, Subject::Column(at), comment)
    }
}

fn note(comments: &mut Comments, subject: Subject, comment: Option<&String>) {
    match comment {
        Some(text) => comments.insert(subject, text.clone()),
        None => comments.remove(&subject),
    };
}
