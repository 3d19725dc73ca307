//! How a run ends: nothing fails any more.

use savanna_files::ids::InodeId;

use super::world::World;

/// So often all have their turn.
const ROUNDS: usize = 2_000;
/// So often all of it is looked whether it is done.
const LOOKED: usize = 40;

impl World {
    /// Nothing fails any more, and clients have gone: all comes to what it should be.
    pub(super) fn settle(&mut self) -> Result<(), String> {
        self.is_calm = true;
        self.begin_names()?;
        for at in 1..=self.nodes.len() {
            self.begin_node(at);
            self.nodes[at - 1].is_cut_off = false;
        }
        let open = |world: &Self| -> Vec<InodeId> {
            let files = world.names.iter().flat_map(|names| names.namespace.leases.all_files());
            let mut files: Vec<InodeId> = files.collect();
            files.sort_unstable();
            files
        };
        for file in open(self) {
            self.close_left(file)?;
        }
        if let Some(names) = &mut self.names {
            names.is_away = false;
        }
        let mut end = Ok(());
        for round in 0..ROUNDS {
            self.now += 3_000;
            self.tend()?;
            for at in 1..=self.nodes.len() {
                // Some things are noticed by the next report of all only.
                if round % LOOKED == 0 {
                    self.nodes[at - 1].reports_again();
                }
                self.beat(at)?;
                self.report(at);
                while !self.nodes[at - 1].orders.is_empty() {
                    self.obey(at);
                }
                while !self.nodes[at - 1].endings.is_empty() {
                    self.agree(at);
                }
            }
            self.hear_all()?;
            if round % LOOKED == LOOKED - 1 {
                self.flush();
                end = self.check_end();
                if end.is_ok() {
                    break;
                }
            }
        }
        end
    }
}
