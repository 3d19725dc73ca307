//! How a run ends: nothing fails any more.

use std::collections::BTreeMap;
use std::time::Duration;

use savanna_files::ids::InodeId;

use super::world::World;

impl World {
    /// Nothing fails any more: everything is answered, the database gets all, and has what a tree has and nothing else.
    pub(super) fn settle(&mut self) -> Result<(), String> {
        self.database.is_away = false;
        self.is_cut_off = false;
        for _ in 0..10 {
            if self.newest().is_none() {
                self.open()?;
            }
        }
        let at = self.newest().ok_or("no process begins")?;
        for client in &mut self.clients {
            client.leave();
        }
        for _ in 0..4_000 {
            self.clock.advance(Duration::from_millis(1));
            self.renew();
            self.work_journal(at, 50)?;
            self.close_files(at)?;
            self.flush(at);
            self.ask_for_keys(at);
            self.database_works()?;
            self.hear_database()?;
            let Some(process) = self.process(at) else { return Err("the newest owner has ended".to_owned()) };
            let is_idle = process.waiting.is_empty() && process.closing.is_empty() && process.writing.is_none();
            if is_idle && process.state.unflushed.rows() == 0 {
                let before = process.state.namespace.txid();
                self.dismantle(at)?;
                let process = self.process(at).ok_or("the newest owner has ended")?;
                if process.waiting.is_empty() && process.state.namespace.txid() == before {
                    return self.compare(at);
                }
            }
        }
        Err("it does not come to an end".to_owned())
    }

    fn compare(&self, at: u64) -> Result<(), String> {
        let process = self.process(at).ok_or("the newest owner has ended")?;
        let tree = process.newest();
        self.check_replicas(tree)?;
        let rows: BTreeMap<InodeId, (InodeId, String)> = self
            .database
            .rows()
            .map(|stored| (stored.row.id, (stored.row.parent, String::from_utf8_lossy(&stored.row.name).into_owned())))
            .collect();
        let mut found: Vec<(String, InodeId)> = rows
            .keys()
            .filter(|id| **id != InodeId::ROOT)
            .map(|id| {
                let way = std::iter::successors(rows.get(id), |(parent, _)| rows.get(parent));
                let names: Vec<&str> = way.map(|(_, name)| name.as_str()).filter(|name| !name.is_empty()).collect();
                (names.iter().rev().flat_map(|name| ["/", name]).collect(), *id)
            })
            .collect();
        let mut expected = tree.paths();
        expected.retain(|(_, id)| *id != InodeId::ROOT);
        found.sort();
        expected.sort();
        if found == expected { Ok(()) } else { Err(format!("the database has {found:?}, expected {expected:?}")) }
    }
}
