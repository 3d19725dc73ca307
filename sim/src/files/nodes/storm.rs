//! Failures that come together: each may happen by itself, too, and hardly ever do they so soon one after the other.

use rand::Rng as _;
use rand::seq::IndexedRandom as _;
use savanna_files::Request;
use savanna_files::blocks::State;
use savanna_files::change::File;

use super::node::Said;
use super::world::{HERE, World};

impl World {
    /// The process of names begins anew while a file is written, and does not hear of one of those who write it; another one ends, and the client goes.
    pub(super) fn break_pipeline(&mut self) -> Result<(), String> {
        let number = self.dice.random_range(0..self.writers.len());
        let Some((file, block, pipeline)) = self.writers[number].writes() else { return Ok(()) };
        let Some(unknown) = pipeline.choose(&mut self.dice).copied().filter(|at| *at != HERE) else { return Ok(()) };
        if self.dice.random_ratio(3, 4) {
            self.end_names(false);
            self.begin_names()?;
        }
        self.nodes[unknown - 1].is_cut_off = true;
        self.hear_of_all()?;
        self.leave_safe_mode();
        self.writers[number].lose_here();
        for _ in 0..self.dice.random_range(2..8) {
            self.write(number)?;
        }
        for at in pipeline.into_iter().filter(|at| *at != HERE && *at != unknown) {
            match self.dice.random_range(0..4) {
                0..2 => self.end_node(at),
                // Its disk fails there.
                2 => {
                    let disk = &mut self.nodes[at - 1].disk;
                    if disk.0.get(&block).is_some_and(|stored| stored.state == State::Begun)
                        && let Some(stored) = disk.0.remove(&block)
                    {
                        self.say(at, Said::Gone(block, stored.stamp));
                    }
                }
                _ => {}
            }
            self.begin_node(at);
        }
        self.hear_of_all()?;
        self.writers[number].leave();
        self.close_left(file)?;
        for _ in 0..4 {
            self.tend()?;
            self.hear_of_all()?;
            self.do_all();
        }
        Ok(())
    }

    /// A data node loses its disk and begins anew while what it has reported is on its way.
    pub(super) fn lose_disk(&mut self, at: usize) -> Result<(), String> {
        self.nodes[at - 1].reports_again();
        self.beat(at)?;
        self.report(at);
        let had = |world: &Self, file: &File| {
            let block = file.blocks.last()?;
            let holders = world.whole_at(block.id, block.stamp, block.length);
            holders.contains(&at).then_some(holders.len())
        };
        let files: Vec<_> = self.files().into_iter().map(|(path, _, file)| (path, had(self, &file))).collect();
        self.lose_node(at);
        self.begin_node(at);
        self.beat(at)?;
        self.leave_safe_mode();
        for (path, had) in files {
            // As many as there are without it are enough, or any other number is.
            let replication = match had.and_then(|holders| u16::try_from(holders - 1).ok()) {
                Some(others) if others > 0 && self.dice.random() => others,
                _ if self.dice.random_ratio(1, 3) => self.dice.random_range(1..=3),
                _ => continue,
            };
            self.ask(&Request::SetReplication { path, replication })?;
        }
        self.hear_all()?;
        self.tend()?;
        self.hear_of_all()
    }

    /// All data nodes say that they are there, and what they have.
    fn hear_of_all(&mut self) -> Result<(), String> {
        for at in 1..=self.nodes.len() {
            self.beat(at)?;
            self.beat(at)?;
            self.report(at);
        }
        self.hear_all()
    }

    /// All data nodes do what they were told.
    fn do_all(&mut self) {
        for at in 1..=self.nodes.len() {
            for _ in 0..self.nodes[at - 1].orders.len() {
                self.obey(at);
            }
            for _ in 0..self.nodes[at - 1].endings.len() {
                self.agree(at);
            }
        }
    }
}
