//! How a run ends: nothing fails any more.

use std::time::Duration;

use savanna_files::Stored;
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
        for client in &mut self.clients {
            client.leave();
        }
        let at = self.newest().ok_or("no process begins")?;
        self.bring_all(at)?;
        // Whoever begins now removes what is left, and has the same.
        self.end(at);
        self.open()?;
        let at = self.newest().ok_or("no process begins")?;
        self.bring_all(at)?;
        self.compare(at)
    }

    /// Until nothing waits for anything.
    fn bring_all(&mut self, at: u64) -> Result<(), String> {
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
            let is_closed = process.closing.is_empty() && process.closed.is_empty();
            let is_idle = process.waiting.is_empty() && is_closed && process.writing.is_none();
            if is_idle && process.state.unflushed.rows() == 0 {
                let before = process.state.namespace.txid();
                self.dismantle(at)?;
                let process = self.process(at).ok_or("the newest owner has ended")?;
                if process.waiting.is_empty() && process.state.namespace.txid() == before {
                    return Ok(());
                }
            }
        }
        Err("it does not come to an end".to_owned())
    }

    /// The database has what the tree has, and nothing else; so has the data node.
    fn compare(&self, at: u64) -> Result<(), String> {
        let process = self.process(at).ok_or("the newest owner has ended")?;
        let tree = process.newest();
        self.check_replicas(tree)?;
        let (mut count, mut has_root) = (0, false);
        for Stored { row, children, .. } in self.database.rows() {
            count += 1;
            has_root |= row.id == InodeId::ROOT;
            let differs = tree.differs(row).filter(|_| row.id != InodeId::ROOT);
            let expected = tree.counts(row.id).1;
            if differs.is_some() || *children != expected {
                return Err(format!("the database has {row:?}, and {children} in it: {differs:?}, {expected}"));
            }
        }
        let expected = tree.counts(InodeId::ROOT).0 - usize::from(!has_root);
        if count != expected {
            return Err(format!("the database has {count} rows, expected {expected}"));
        }
        let blocks = tree.blocks();
        match self.replicas.keys().find(|block| !blocks.contains(block)) {
            Some(block) => Err(format!("the data node has block {block}, which no file has")),
            None => Ok(()),
        }
    }
}
