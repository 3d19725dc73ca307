//! What the records of the catalog come to.

use std::collections::BTreeMap;

use super::stored::{Entry, Standing, StoredQuery, StoredRelation};

/// Tables and views by name, queries by job.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Image {
    pub(super) relations: BTreeMap<String, StoredRelation>,
    pub(super) queries: BTreeMap<u64, StoredQuery>,
}

impl Image {
    pub(super) fn apply(&mut self, entry: Entry) {
        match entry {
            Entry::Relation(relation) | Entry::FinishedView(relation) => {
                self.relations.insert(relation.name.clone(), relation);
            }
            Entry::RelationDropped(name) => drop(self.relations.remove(&name)),
            Entry::MaterializedView(view, query) => {
                self.relations.insert(view.name.clone(), view);
                self.queries.insert(query.id.job, *query);
            }
            Entry::MaterializedViewDropped(name) => {
                if let Some(filled_by) = self.relations.remove(&name).and_then(|view| view.query) {
                    self.queries.remove(&filled_by.job);
                }
            }
            Entry::Query(query) => drop(self.queries.insert(query.id.job, *query)),
            Entry::Standing(job, standing) => self.stand(job, standing),
            Entry::QueryDropped(job) => drop(self.queries.remove(&job)),
        }
    }

    /// Whether a materialized view is filled by this job, running or not.
    pub(super) fn has_view(&self, job: u64) -> bool {
        self.relations.values().any(|view| view.query.as_ref().is_some_and(|query| query.job == job))
    }

    /// A query that has ended meanwhile stands nowhere.
    fn stand(&mut self, job: u64, standing: Standing) {
        if let Some(query) = self.queries.get_mut(&job) {
            query.standing = standing;
        }
    }

    /// The records that come to the same. Those of materialized views are such that builds without them do not start.
    pub(super) fn entries(&self) -> impl Iterator<Item = Entry> {
        let relation = |relation: &StoredRelation| match &relation.query {
            None => Entry::Relation(relation.clone()),
            Some(filled_by) => match self.queries.get(&filled_by.job) {
                Some(query) => Entry::MaterializedView(relation.clone(), Box::new(query.clone())),
                None => Entry::FinishedView(relation.clone()),
            },
        };
        let others = self.queries.values().filter(|query| !self.has_view(query.id.job));
        let queries = others.map(|query| Entry::Query(Box::new(query.clone())));
        self.relations.values().map(relation).chain(queries)
    }
}

#[cfg(test)]
mod tests {
    use savanna_streams_api::ids::{Epoch, QueryId};

    use super::super::stored::Emptied;
    use super::*;

    fn query(job: u64, name: &str) -> Entry {
        Entry::Query(Box::new(StoredQuery {
            id: QueryId { code: "abc".into(), job },
            name: name.into(),
            statement: String::new(),
            parameters: Vec::new(),
            settings: BTreeMap::new(),
            relations: Vec::new(),
            standing: Standing::Running,
            emission: 0,
            anew_behind: Epoch::ZERO,
            kept_in: None,
            emptied: Emptied::default(),
        }))
    }

    #[test]
    fn materialized_views_are_rewritten_as_what_earlier_builds_refuse() {
        let mut image = Image::default();
        for job in [1, 2] {
            let Entry::Query(query) = query(job, &format!("v{job}")) else { unreachable!() };
            let view: StoredRelation = serde_json::from_value(serde_json::json!({
                "name": query.name, "statement": "", "columns": [], "options": {}, "query": query.id,
            }))
            .unwrap();
            image.apply(Entry::MaterializedView(view, query));
        }
        image.apply(Entry::QueryDropped(2));
        let entries: Vec<Entry> = image.entries().collect();
        assert!(matches!(entries.as_slice(), [Entry::MaterializedView(..), Entry::FinishedView(_)]), "{entries:?}");
        let mut again = Image::default();
        entries.into_iter().for_each(|entry| again.apply(entry));
        assert_eq!(again, image);
    }

    #[test]
    fn records_come_to_what_is_there() {
        let mut image = Image::default();
        for entry in [query(1, "out"), query(2, "out-2"), Entry::Standing(1, Standing::Stopped), Entry::QueryDropped(2)]
        {
            image.apply(entry);
        }
        image.apply(Entry::Standing(2, Standing::Stopped));
        assert_eq!(image.queries.len(), 1);
        assert_eq!(image.queries[&1].standing, Standing::Stopped);
        let mut again = Image::default();
        image.entries().for_each(|entry| again.apply(entry));
        assert_eq!(again, image);
    }
}
