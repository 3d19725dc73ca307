//! A group that has all its keys: its program runs as if all were here, and what it has written is the commit.

use std::collections::BTreeMap;
use std::sync::Arc;

use hashbrown::HashSet;

use super::{Got, Wish};
use crate::actor::Actor;
use crate::actor::program::Program;
use crate::actor::transaction::refuse;
use crate::cluster::owners::virtual_node_of;
use crate::command::Flags;
use crate::error::CommandError;
use crate::group::{Commit, GroupId, Owed};
use crate::placement::group_of;
use crate::reply::{TOO_LONG, Tape};

impl Actor {
    /// Runs what has all its keys.
    pub fn run_groups(&mut self) {
        while let Some(id) = self.groups.ready.pop_front() {
            self.run_group(id);
            self.serve_ready();
            self.note_request();
        }
        self.hear_own_parts();
    }

    fn run_group(&mut self, id: GroupId) {
        let Some(leading) = self.groups.leading.get_mut(&id).filter(|leading| leading.leader.is_ready()) else {
            return;
        };
        let Some(Wish { from, to, program, .. }) = leading.wish.take() else { return };
        let has_room = leading.has_room;
        let guests = leading.places.iter_mut().filter(|place| place.got == Got::Asked);
        let guests: Vec<(u16, Vec<Box<[u8]>>, Vec<u8>)> =
            guests.map(|place| (place.node, place.keys.clone(), std::mem::take(&mut place.values))).collect();
        let own: Vec<Box<[u8]>> =
            leading.places.iter().filter(|place| place.got == Got::Held).flat_map(|place| place.keys.clone()).collect();
        let key = leading.places.first().and_then(|place| place.keys.first()).cloned().unwrap_or_default();
        let has_room = (!program.needs_room() || self.make_room()) && has_room;
        let bytes = guests.iter().map(|(_, _, values)| values.len()).sum::<usize>();
        let bytes = bytes + self.keys.bytes_of_values(&own) + program.byte_count();
        let mut tape = Tape::new();
        let mut changed = Vec::new();
        let admitted = self.admit_group(&program, has_room, bytes, guests.len());
        let keys: HashSet<Box<[u8]>> = guests.iter().flat_map(|(_, keys, _)| keys.iter().cloned()).collect();
        let values: Vec<&[u8]> = guests.iter().map(|(.., values)| &**values).collect();
        match admitted
            .and_then(|()| self.keys.welcome(keys, &values).map_err(|error| CommandError::from(format!("ERR {error}"))))
        {
            Err(refusal) => refuse(&program, &refusal, &mut tape),
            Ok(visit) => {
                self.script_has_room = has_room;
                self.note_author(from, to);
                tape.write_at_most(self.reply_bytes_max, TOO_LONG, |tape| {
                    self.run_program(&program, None, &[], tape);
                });
                self.keys.log.set_author(None);
                changed = self.keys.see_off(visit);
            }
        }
        let is_committed = !changed.is_empty();
        if is_committed {
            // In one record with what is changed here: this is what decides.
            let commit = Commit { key, owed: self.owed_by(id, changed) };
            self.keys.log_commit(id, commit);
        }
        let mut replies = self.take_replies(from);
        replies.add(to, tape);
        self.put_replies(from, replies);
        self.note_request();
        self.release_own(id);
        let now = self.elapsed();
        let steps = self.groups.leading.get_mut(&id).map(|leading| leading.leader.ran(now, is_committed));
        self.carry_out(id, steps.unwrap_or_default());
    }

    /// Whether there is memory and space in the log for a group, about so many bytes of values.
    fn admit_group(
        &mut self,
        program: &Program,
        has_room: bool,
        bytes: usize,
        owed: usize,
    ) -> Result<(), CommandError> {
        self.admit_program(program, has_room)?;
        match program.steps().any(|(command, _)| command.flags.has(Flags::WRITE)) {
            true => self.keys.ask_for_commit(bytes, owed),
            false => Ok(()),
        }
    }

    /// What a group owes to those who lent it keys, also to those of whose keys it changed none.
    fn owed_by(&self, id: GroupId, changed: Vec<(Box<[u8]>, Vec<u8>)>) -> Vec<Owed> {
        let Some(leading) = self.groups.leading.get(&id) else { return Vec::new() };
        let mut writes: BTreeMap<u16, Vec<u8>> = BTreeMap::new();
        for (key, delta) in changed {
            writes.entry(virtual_node_of(group_of(&key))).or_default().extend(delta);
        }
        let owed = leading.places.iter().enumerate().filter_map(|(number, place)| {
            let number = leading.leader.loan(number).0?;
            let writes: Arc<[u8]> = writes.remove(&place.node).unwrap_or_default().into();
            Some(Owed { node: place.node, number, writes })
        });
        owed.collect()
    }
}
