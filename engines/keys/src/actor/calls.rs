//! Requests of sessions that are at other nodes: the owner's side of [`crate::handle`].
//!
//! A part of a request runs like a request of another actor of this node: here, at the actor that has its keys, or as a transaction. When
//! all parts have their replies, the request is answered.

use super::message::{Destination, Message, Part};
use super::program::Program;
use super::spread::Refused;
use super::transaction::keys_of;
use super::{Actor, Place};
use crate::cluster::owners::virtual_node_of;
use crate::command::{Command, Flags, Run};
use crate::commands::parse_cursor;
use crate::commands::sort::patterns;
use crate::error::Outcome;
use crate::handle::{self, HandleError, KeysReply, KeysRequest};
use crate::placement::{KeyHash, group_of};
use crate::request::Args;

/// A request that is under way.
#[derive(Debug)]
pub(super) struct Call {
    reply: KeysReply,
    missing: usize,
}

impl Actor {
    /// Begins a request of another node. Says under which number it will be among [`Actor::take_answered`].
    pub fn serve(&mut self, request: &KeysRequest) -> u64 {
        let number = self.number();
        let mut call = Call { reply: KeysReply::awaiting(request.len()), missing: request.len() };
        // What comes after a part that is held back may be about its keys.
        let held = request.parts().position(|part| self.holds_back_part(part)).unwrap_or(request.len());
        for place in held..request.len() {
            call.reply.refuse(place, HandleError::Frozen { retry_after_ms: self.pause_left() });
            call.missing -= 1;
        }
        // Of a virtual node that is not here nothing is done, whichever part it is.
        let refused: Vec<Option<Refused>> = if self.is_spread() {
            request.parts().take(held).map(|part| self.refusal_of(part)).collect()
        } else {
            Vec::new()
        };
        for (place, refused) in refused.iter().enumerate() {
            match refused {
                Some(Refused::Part(error)) => call.reply.refuse(place, error.clone()),
                Some(Refused::Client(error)) => call.reply.answer(place, |reply| error.answer(reply)),
                None => continue,
            }
            call.missing -= 1;
        }
        if call.missing == 0 {
            self.answered.push((number, call.reply));
            return number;
        }
        self.asked.insert(number, call);
        for (place, part) in request.parts().take(held).enumerate() {
            if matches!(refused.get(place), Some(Some(_))) {
                continue;
            }
            let to = Destination::Call { number, part: place as u32 };
            if let Err(error) = self.serve_part(to, part) {
                self.replies.push(to, |reply| error.answer(reply));
            }
            self.serve_ready();
            self.note_request();
        }
        self.hear_own_parts();
        number
    }

    /// Takes the requests of other nodes that are answered, with their numbers. What they changed must be in the log before they are
    /// told.
    #[must_use]
    pub fn take_answered(&mut self) -> Vec<(u64, KeysReply)> {
        self.hear_own_parts();
        std::mem::take(&mut self.answered)
    }

    /// Hears the reply to a part of a request of another node.
    pub(super) fn hear_answer(&mut self, number: u64, place: u32, part: &Part<'_>) {
        let Some(call) = self.asked.get_mut(&number) else { return };
        call.reply.answer(place as usize, |reply| part.play(reply));
        call.missing -= 1;
        if call.missing == 0
            && let Some(call) = self.asked.remove(&number)
        {
            self.answered.push((number, call.reply));
        }
    }

    fn serve_part(&mut self, to: Destination, part: handle::Part<'_>) -> Outcome {
        if part.steps().any(|(command, _)| command.flags.has(Flags::WRITE)) {
            self.check_log_space()?;
        }
        let keys = || part.steps().flat_map(|(command, args)| command.keys.of(args).into_iter().flatten());
        if self.makes_groups() && !keys().all(|key| self.is_of_this_node(key)) {
            self.serve_crossing(to, part);
            return Ok(());
        }
        if part.is_transaction {
            self.serve_transaction(to, part);
            return Ok(());
        }
        part.steps().try_for_each(|(command, args)| self.serve_command(to, part.database, command, args))
    }

    /// Some of the keys are at other nodes, and this one has the first of them.
    fn serve_crossing(&mut self, to: Destination, part: handle::Part<'_>) {
        let mut program = Box::new(Program::new(part.database));
        part.steps().for_each(|(command, args)| program.push(command, args));
        program.replies_with_list = part.is_transaction;
        let first = keys_of(&program).iter().map(|key| virtual_node_of(group_of(key))).min();
        self.lead_from(first.unwrap_or_default(), to, program);
    }

    fn serve_transaction(&mut self, to: Destination, part: handle::Part<'_>) {
        let mut program = Box::new(Program::new(part.database));
        part.steps().for_each(|(command, args)| program.push(command, args));
        program.replies_with_list = true;
        let keys = keys_of(&program);
        let keys = || keys.iter().map(|key| &**key);
        match self.place(keys(), None) {
            Place::Here if !self.claims.blocks(keys()) => {
                let mut replies = self.take_replies(self.id);
                replies.push(to, |reply| {
                    self.run_own_program(&program, None, reply);
                });
                self.put_replies(self.id, replies);
            }
            Place::At(actor) => self.send(actor, Message::Program { to, program }),
            _ => self.begin_transaction(to, program),
        }
    }

    fn serve_command(&mut self, to: Destination, database: u8, command: &'static Command, args: Args<'_>) -> Outcome {
        let place = match command.run {
            Run::Session(_) => return self.serve_for_all(to, database, command, args),
            Run::Everywhere(_, combine) if self.needs_parts(combine) => {
                self.begin_gather(self.id, to, database, command, args, combine);
                return Ok(());
            }
            Run::Finds { .. } if self.routes.actors() > 1 && !patterns(args).is_empty() => Place::Several,
            Run::Scan(_) => match self.routes.actor_of(KeyHash::from_cursor(parse_cursor(&args[1])?).group()) {
                actor if actor == self.id => Place::Here,
                actor => Place::At(actor),
            },
            // Words that name no keys are refused by the command itself.
            _ => command.keys.of(args).map_or(Place::Here, |keys| self.place(keys, None)),
        };
        match place {
            Place::Here if self.is_blocked(command, args) => self.wait_for_keys(self.id, to, database, command, args),
            Place::Here => {
                let mut replies = self.take_replies(self.id);
                replies.push(to, |reply| self.run(database, command, args, reply));
                self.put_replies(self.id, replies);
            }
            Place::At(actor) => self.requests_to(actor).push(to, database, command, args),
            Place::Several => self.begin_transaction(to, Box::new(Program::single(database, command, args))),
        }
        Ok(())
    }
}
