//! Requests that all actors answer a part of.

use super::message::{Destination, Part};
use super::{Actor, Progress, Work};
use crate::command::{Combine, Command, Run};
use crate::commands::generic::{combine_random, combine_scan, keys_in, part_ends_at, rest_of_scan};
use crate::commands::server::combine_info;
use crate::commands::{clients, hot_keys, latency, memory};
use crate::error::CommandError;
use crate::placement::{ActorId, KeyHash};
use crate::random::Random;
use crate::reply::{Reply, Tape, Value};
use crate::request::{Args, OwnedArgs};
use crate::session::Session;

/// The parts that came so far.
#[derive(Debug)]
pub(super) struct Gather {
    from: ActorId,
    to: Destination,
    combine: Combine,
    missing: u16,
    parts: Vec<Tape>,
    /// Of a walk, what was asked for: where the keys of one actor end, the next one is asked for the rest.
    walk: Option<Walk>,
}

/// A walk through the keys of all actors.
#[derive(Debug)]
struct Walk {
    database: u8,
    command: &'static Command,
    args: OwnedArgs,
    /// Whether it goes through the keys of this node alone, though others have some.
    is_of_node: bool,
}

impl Actor {
    /// Asks all actors, this one too, for a session of the actor `from`.
    pub(super) fn begin_gather(
        &mut self,
        from: ActorId,
        to: Destination,
        database: u8,
        command: &'static Command,
        args: Args<'_>,
        combine: Combine,
    ) {
        let number = self.gather_parts(from, to, combine, self.routes.actors());
        self.ask_actors(number, database, command, args);
    }

    /// Asks all actors for a session of this one, and gathers what so many other nodes say. Gives its number.
    pub(super) fn gather_of_nodes(
        &mut self,
        to: Destination,
        database: u8,
        command: &'static Command,
        args: Args<'_>,
        combine: Combine,
        others: u16,
    ) -> u64 {
        let number = self.gather_parts(self.id, to, combine, self.routes.actors() + others);
        self.ask_actors(number, database, command, args);
        number
    }

    /// Puts so many parts together.
    pub(super) fn gather_parts(&mut self, from: ActorId, to: Destination, combine: Combine, missing: u16) -> u64 {
        let number = self.number();
        self.gathers.insert(number, Gather { from, to, combine, missing, parts: Vec::new(), walk: None });
        number
    }

    fn ask_actors(&mut self, number: u64, database: u8, command: &'static Command, args: Args<'_>) {
        let part = Destination::Gather(number);
        for actor in self.routes.all() {
            if actor == self.id {
                continue;
            }
            self.requests_to(actor).push(part, database, command, args);
        }
        self.begin(Work::Task { from: self.id, to: part, database, command, args: OwnedArgs::of(args) });
    }

    /// Asks all other actors for a session of this one, whose own part is there.
    pub(crate) fn ask_others(
        &mut self,
        session: &mut Session,
        command: &'static Command,
        args: Args<'_>,
        own: Tape,
        reply: &mut dyn Reply,
    ) -> Result<Progress, CommandError> {
        let Run::Everywhere(_, combine) = command.run else { return Err(CommandError::Syntax) };
        if self.routes.actors() == 1 {
            combined(combine, &[own], &mut self.keys.random, reply);
            return Ok(Progress::Answered);
        }
        let (number, ticket) = (self.number(), session.ticket());
        let (from, to, missing) = (self.id, Destination::Session(session.id, ticket), self.routes.actors() - 1);
        self.gathers.insert(number, Gather { from, to, combine, missing, parts: vec![own], walk: None });
        for actor in self.routes.all().filter(|actor| *actor != from) {
            self.requests_to(actor).push(Destination::Gather(number), session.database, command, args);
        }
        Ok(Progress::LaterAlone(ticket))
    }

    /// Begins a walk through the keys for a session, at this actor.
    pub(super) fn begin_scan(
        &mut self,
        session: &mut Session,
        first: ActorId,
        command: &'static Command,
        args: Args<'_>,
    ) -> Progress {
        let (number, ticket, database) = (self.number(), session.ticket(), session.database);
        let (from, to) = (self.id, Destination::Session(session.id, ticket));
        let walk = Some(Walk { database, command, args: OwnedArgs::of(args), is_of_node: false });
        let (combine, parts) = (Combine::Scan, Vec::new());
        self.gathers.insert(number, Gather { from, to, combine, missing: 1, parts, walk });
        self.ask_for_scanned(number, first, database, command, OwnedArgs::of(args));
        Progress::Later(ticket)
    }

    /// Begins a walk through the keys of all nodes for a session, or through those of this one for a client of the cluster port.
    pub(super) fn begin_walk(
        &mut self,
        session: &mut Session,
        place: KeyHash,
        command: &'static Command,
        args: Args<'_>,
    ) -> Progress {
        let (number, ticket, database) = (self.number(), session.ticket(), session.database);
        let (from, to) = (self.id, Destination::Session(session.id, ticket));
        let (args, is_of_node) = (OwnedArgs::of(args), session.is_of_cluster);
        let walk = Some(Walk { database, command, args: args.clone(), is_of_node });
        let (combine, parts) = (Combine::Scan, Vec::new());
        self.gathers.insert(number, Gather { from, to, combine, missing: 1, parts, walk });
        self.ask_for_part(number, place, is_of_node, (database, command, &args));
        Progress::Later(ticket)
    }

    pub(super) fn ask_for_scanned(
        &mut self,
        number: u64,
        actor: ActorId,
        database: u8,
        command: &'static Command,
        args: OwnedArgs,
    ) {
        let to = Destination::Gather(number);
        if actor == self.id {
            self.begin(Work::Task { from: self.id, to, database, command, args });
        } else {
            self.counters.sent += 1;
            self.requests_to(actor).push(to, database, command, args.args());
        }
    }

    /// Asks the next actor, if a walk has come to the end of one's keys and found fewer than were asked for.
    fn goes_on_scanning(&mut self, number: u64) -> bool {
        let routes = &self.routes;
        let rest = self.gathers.get(&number).and_then(|gather| {
            let walk = gather.walk.as_ref()?;
            let place = part_ends_at(gather.parts.last()?, routes, self.keys.owners.as_deref())?;
            let found = gather.parts.iter().map(keys_in).sum();
            let rest = rest_of_scan(walk.args.args(), place, found)?;
            Some((place, walk.is_of_node, (walk.database, walk.command, rest)))
        });
        let Some((place, is_of_node, (database, command, rest))) = rest else { return false };
        self.ask_for_part(number, place, is_of_node, (database, command, &rest));
        true
    }

    /// Puts what a request of all actors is answered with together, for parts that are no requests.
    pub(super) fn gather_acknowledgements(&mut self, from: ActorId, to: Destination) -> u64 {
        let (number, missing) = (self.number(), self.routes.actors());
        self.gathers
            .insert(number, Gather { from, to, combine: Combine::First, missing, parts: Vec::new(), walk: None });
        number
    }

    /// The same where this actor's part is there already, and is the reply.
    pub(super) fn gather_acknowledgements_of_others(&mut self, from: ActorId, to: Destination, own: Tape) -> u64 {
        let (number, missing) = (self.number(), self.routes.actors() - 1);
        self.gathers
            .insert(number, Gather { from, to, combine: Combine::First, missing, parts: vec![own], walk: None });
        number
    }

    /// Takes this actor's own parts out of its replies, where no session looks for them. They come at once, or when no
    /// transaction holds keys any more.
    #[inline]
    pub(super) fn hear_own_parts(&mut self) {
        if self.replies.has_parts() {
            self.hear_parts();
        }
    }

    #[cold]
    fn hear_parts(&mut self) {
        // What they make together may be a part again.
        while self.replies.has_parts() {
            let mut replies = std::mem::take(&mut self.replies);
            for (to, part) in replies.iter() {
                match to {
                    Destination::Gather(number) => self.hear_part(number, &part),
                    Destination::Call { number, part: place } => self.hear_answer(number, place, &part),
                    Destination::Group(number) => self.hear_passed(number),
                    _ => {}
                }
            }
            replies.forget_parts();
            let combined = std::mem::replace(&mut self.replies, replies);
            combined.iter().for_each(|(to, part)| self.replies.push(to, |reply| part.play(reply)));
        }
    }

    /// Whether what is gathered are the server's figures.
    pub(super) fn gathers_figures(&self, number: u64) -> bool {
        self.gathers.get(&number).is_some_and(|gather| gather.combine == Combine::Info)
    }

    /// Takes one part.
    pub(super) fn hear_part(&mut self, number: u64, part: &Part<'_>) {
        let Some(gather) = self.gathers.get_mut(&number) else { return };
        gather.parts.push(part.to_tape());
        if self.goes_on_scanning(number) {
            return;
        }
        let Some(gather) = self.gathers.get_mut(&number) else { return };
        gather.missing -= 1;
        if gather.missing > 0 {
            return;
        }
        if let Some(Gather { from, to, combine, parts, .. }) = self.gathers.remove(&number) {
            let mut replies = self.take_replies(from);
            replies.push(to, |reply| combined(combine, &parts, &mut self.keys.random, reply));
            self.put_replies(from, replies);
        }
    }
}

/// Whether an error says already that something was done, or may have been.
fn is_in_part(error: &str) -> bool {
    ["PARTIAL", "UNKNOWN"].iter().any(|code| error.starts_with(code))
}

pub(super) fn combined(combine: Combine, parts: &[Tape], random: &mut Random, reply: &mut dyn Reply) {
    let refused = parts.iter().find(|part| matches!(part.first(), Some(Value::Error(_))));
    if let Some(refused) = refused {
        let is_none_done = parts.iter().all(|part| matches!(part.first(), Some(Value::Error(_))));
        return match refused.first() {
            Some(Value::Error(why)) if combine == Combine::Flushed && !is_none_done && !is_in_part(why) => {
                reply.error(&format!("PARTIAL some nodes are empty, and one is not: {why}; ask again"));
            }
            _ => refused.play(reply),
        };
    }
    match combine {
        Combine::First | Combine::Flushed => parts[0].play(reply),
        Combine::Sum => {
            let numbers = parts.iter().filter_map(Tape::first);
            reply.integer(numbers.map(|value| if let Value::Integer(number) = value { number } else { 0 }).sum());
        }
        Combine::Concatenate => {
            let lengths = parts.iter().filter_map(Tape::first);
            reply.array(lengths.map(|value| if let Value::Array(length) = value { length } else { 0 }).sum());
            for value in parts.iter().flat_map(|part| part.values().skip(1)) {
                value.play(reply);
            }
        }
        Combine::Chance => combine_random(parts, random, reply),
        Combine::Scan => combine_scan(parts, reply),
        Combine::Info => combine_info(parts, reply),
        Combine::HotKeys => hot_keys::combine(parts, reply),
        Combine::Clients => clients::combine(parts, reply),
        Combine::Killed => clients::combine_killed(parts, reply),
        Combine::Histograms => latency::combine(parts, reply),
        Combine::MemoryStats => memory::combine_stats(parts, reply),
        Combine::MemoryAdvice => memory::combine_advice(parts, reply),
    }
}
