//! Keys that are spread over nodes: which node runs a request of a session, and what is asked of others for it.
//!
//! ```text
//!                 ┌─ all here: as if there were no others
//!  names keys ────┤
//!                 ├─ all at one other node: sent there, in order
//!                 └─ at several: refused with -CROSSNODE, or a group is made of them (`crossing`)
//!  about all keys ── asked of every node that is there, put together here
//! ```
//!
//! What was asked about a virtual node and is not answered keeps its lane, also when somebody else has got the virtual node: what is asked
//! later about it goes behind, so that requests about a key are done in their order. A client of the cluster port is told where
//! to ask instead ([`super::slots`]), and what it asks about all keys is about those of this node.

use std::sync::Arc;

use savanna_epoch::{NodeId, OwnerEpoch};

use super::front::{Beyond, Front, byte_count, elsewhere};
use super::lanes::{About, NOBODYS, Owner, Spread, lane_to, notices_to, peer_of};
use super::message::Destination;
use super::program::Program;
use super::{Actor, Progress};
use crate::access::Access;
use crate::cluster::owners::{Owners, PeerId, Whose, virtual_node_of};
use crate::cluster::{ClusterNode, SlotRange, SlotsOwner};
use crate::command::{Combine, Command, CommandNumber, Run};
use crate::commands::generic::flush_of;
use crate::commands::parse_cursor;
use crate::commands::sort::patterns;
use crate::error::{CommandError, Outcome};
use crate::handle::{HandleError, KeysRequest, Part};
use crate::placement::KeyHash;
use crate::reply::Reply;
use crate::request::{Args, OwnedArgs};
use crate::scripting::{Digest, digest};
use crate::session::Session;
use crate::slot::HashSlot;

/// So many bytes of what was published wait for a node that does not take them; what comes then it misses.
const NOTICES_BYTES_MAX: usize = 16 << 20;
/// After this time somebody may have what nobody has.
const OWNERLESS_PAUSE_MS: u64 = 50;
/// After this time another node may have what is given away.
const LEAVING_PAUSE_MS: u64 = 5;

/// Whether a lane asks the node that it is to: then it asks it also for what is about all keys of that.
#[must_use]
pub fn is_home(lane: usize, way: &Way) -> bool {
    matches!(way, Way::To(peer, _) if peer_of(lane) == Some(*peer))
}

/// Where the keys of a request are.
pub(super) enum Span {
    /// All here, or there are none.
    Here,
    /// At one other node, or at nobody.
    Beyond { lane: usize, about: About },
    /// At several, and groups are made of such.
    Several,
}

/// Where a request that is under way is to be asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Way {
    /// Here.
    Here,
    /// Of this node.
    To(PeerId, NodeId),
    /// Of nobody, for the moment.
    Nowhere,
    /// Of a node that is gone.
    Gone,
}

/// Why a part of another node's request does not run here.
pub(super) enum Refused {
    /// Nothing is done, and the other node goes on asking.
    Part(HandleError),
    /// The client is told so.
    Client(CommandError),
}

impl Actor {
    /// From now on the keys are spread over nodes, as [`Actor::hear_owners`] says. Until then nobody has any.
    /// `may_move` says whether what a node has may come to be another's while it is used.
    pub fn join_nodes(&mut self, may_move: bool) {
        let spread = Spread::new(may_move);
        self.keys.owners = Some(Arc::clone(&spread.owners));
        self.front = Some(Box::new(Front::new(Beyond::Nodes(spread))));
    }

    /// Hears who has which virtual node.
    pub fn hear_owners(&mut self, owners: &Arc<Owners>) {
        self.change_spread(|spread| spread.said = Arc::clone(owners));
        self.hurry_groups();
    }

    /// Changes what is known of who has which virtual node.
    fn change_spread(&mut self, change: impl FnOnce(&mut Spread)) {
        if let Some(front) = &mut self.front
            && let Beyond::Nodes(spread) = &mut front.beyond
        {
            change(spread);
            spread.settle();
            self.keys.owners = Some(Arc::clone(&spread.owners));
        }
    }

    /// From now on nobody begins anything with the keys of a virtual node that leaves.
    pub(super) fn freeze_node(&mut self, node: u16) {
        self.change_spread(|spread| {
            spread.leaving.insert(node);
        });
    }

    /// A virtual node does not leave any more.
    pub(super) fn thaw_node(&mut self, node: u16) {
        self.change_spread(|spread| {
            spread.leaving.remove(&node);
        });
    }

    /// Whether a virtual node is about to be another node's.
    pub(super) fn is_freezing(&self) -> bool {
        self.spread().is_some_and(|spread| !spread.leaving.is_empty())
    }

    /// Whether something of a session goes where its keys are. What a client of the cluster port asks runs here or nowhere, but behind what waited
    /// while its virtual node was about to leave.
    pub(super) fn goes_by_lanes(&self, session: &Session) -> bool {
        !session.is_of_cluster || self.spread().is_some_and(|spread| spread.is_behind)
    }

    /// Whether this node has a virtual node, since this epoch at least.
    pub(super) fn is_served_since(&self, node: u16, epoch: OwnerEpoch) -> bool {
        self.spread().is_some_and(|Spread { owners, .. }| {
            matches!(owners.of(node), Whose::Here | Whose::Leaving) && owners.epoch(node) >= epoch
        })
    }

    /// Hears whose a virtual node is since an epoch. Says whether that is news. That it is this node's is, also where another has said so before.
    pub fn learn_owner(&mut self, node: u16, owner: Owner, epoch: OwnerEpoch) -> bool {
        let is_news = self.spread().is_some_and(|Spread { owners, .. }| {
            let known = owners.epoch(node);
            known < epoch || known == epoch && owner == Owner::Myself && owners.of(node) == Whose::Nobody
        });
        if is_news {
            self.change_spread(|spread| drop(spread.learned.insert(node, (owner, epoch))));
        }
        is_news
    }

    fn spread(&self) -> Option<&Spread> {
        match &self.front.as_ref()?.beyond {
            Beyond::Nodes(spread) => Some(spread),
            Beyond::Owner(_) => None,
        }
    }

    /// Whether each node has some of the keys.
    pub(crate) fn is_spread(&self) -> bool {
        self.spread().is_some()
    }

    /// Whether all keys that there are, are this actor's.
    pub(crate) fn has_all_keys(&self) -> bool {
        self.routes.actors() == 1 && !self.is_spread()
    }

    /// The lane of what is asked about a virtual node and not answered, if there is such.
    pub(super) fn lane_asked(&self, node: u16) -> Option<usize> {
        self.spread()?.lane_asked(node)
    }

    /// Whether this node has a key.
    pub(super) fn is_of_this_node(&self, key: &[u8]) -> bool {
        self.spread().is_none_or(|spread| spread.owners.of_group(self.keys.group_of(key)) == Whose::Here)
    }

    /// Where what a lane asks goes now, whose first part is about `about`.
    #[must_use]
    pub fn way_of(&self, lane: usize, about: Option<u16>) -> Way {
        let Some(Spread { owners, .. }) = self.spread() else { return Way::Nowhere };
        let peer = match about.map(|node| owners.of(node)) {
            Some(Whose::Here) => return Way::Here,
            Some(Whose::Nobody | Whose::Leaving) => return Way::Nowhere,
            Some(Whose::There(peer)) => Some(peer),
            None => peer_of(lane),
        };
        match peer.and_then(|id| Some((id, owners.peer(id).filter(|peer| peer.is_there)?))) {
            Some((id, peer)) => Way::To(id, peer.node.clone()),
            None if about.is_some() => Way::Nowhere,
            None => Way::Gone,
        }
    }

    /// Hears that parts are answered which were about this.
    pub fn end_asked(&mut self, about: &[About]) {
        if let Some(front) = &mut self.front
            && let Beyond::Nodes(spread) = &mut front.beyond
        {
            about.iter().for_each(|about| spread.end(about));
        }
    }

    /// Where keys are.
    ///
    /// # Errors
    /// If they are at several nodes.
    pub(super) fn span<'k, I>(&self, keys: impl Fn() -> I) -> Result<Span, CommandError>
    where
        I: Iterator<Item = &'k [u8]>,
    {
        let Some(spread) = self.spread() else { return Ok(Span::Here) };
        let (mut lane, mut about) = (None, About::default());
        for key in keys() {
            let node = virtual_node_of(self.keys.group_of(key));
            let its = spread.lane_of(node);
            if *lane.get_or_insert(its) != its {
                return match self.makes_groups() {
                    true => Ok(Span::Several),
                    false => Err(self.crossing(&spread.owners, keys())),
                };
            }
            if its.is_some() {
                about.note(node);
            }
        }
        Ok(lane.flatten().map_or(Span::Here, |lane| Span::Beyond { lane, about }))
    }

    /// What is said of keys that are at several nodes: one of each.
    fn crossing<'k>(&self, owners: &Owners, keys: impl Iterator<Item = &'k [u8]>) -> CommandError {
        let mut seen: Vec<(Whose, String)> = Vec::new();
        for key in keys {
            let whose = owners.of_group(self.keys.group_of(key));
            if seen.iter().all(|(other, _)| *other != whose) {
                let place = match whose {
                    Whose::Here | Whose::Leaving => "on this node".to_owned(),
                    Whose::There(peer) => {
                        owners.peer(peer).map_or_else(|| "on another".to_owned(), |peer| format!("on {}", peer.node))
                    }
                    Whose::Nobody => "without a node for the moment".to_owned(),
                };
                seen.push((whose, format!("'{}' is {place}", key.escape_ascii())));
            }
        }
        if seen.len() < 2 || seen.iter().any(|(whose, _)| *whose == Whose::Leaving) {
            return CommandError::text("TRYAGAIN nothing was done: some of the keys are on their way to another node");
        }
        let places: Vec<String> = seen.into_iter().map(|(_, place)| place).collect();
        CommandError::from(format!(
            "CROSSNODE the keys of a request have to be on one node: {}; give them one {{tag}}",
            places.join(", ")
        ))
    }

    /// Why a part of a request of another node does not run here, if it does not.
    pub(super) fn refusal_of(&self, part: Part<'_>) -> Option<Refused> {
        let Spread { owners, .. } = self.spread()?;
        let frozen = HandleError::Frozen { retry_after_ms: OWNERLESS_PAUSE_MS };
        // A node that has just begun has nothing of what it had before: others may still have that as its keys.
        let may_lack = owners.are_arriving() || !owners.are_all_served();
        if may_lack && part.steps().any(|(command, _)| is_about_all_keys(command)) {
            return Some(Refused::Part(frozen));
        }
        let leaving = HandleError::Frozen { retry_after_ms: LEAVING_PAUSE_MS };
        if self.is_freezing() && part.steps().any(|(command, _)| matches!(command.name, "flushdb" | "flushall")) {
            return Some(Refused::Part(leaving));
        }
        let keys = || part.steps().flat_map(|(command, args)| command.keys.of(args).into_iter().flatten());
        let scanned = part.steps().filter_map(|(command, args)| match command.run {
            Run::Scan(_) => Some(virtual_node_of(KeyHash::from_cursor(parse_cursor(&args[1]).ok()?).group())),
            _ => None,
        });
        let mut nodes = keys().map(|key| virtual_node_of(self.keys.group_of(key))).chain(scanned);
        // Where groups are made, whoever has the first leads, if they are not all here.
        let first = if self.makes_groups() { nodes.by_ref().min() } else { None };
        let (mut is_here, mut why) = (false, None);
        for node in first.into_iter().chain(nodes) {
            match owners.of(node) {
                Whose::Here => is_here = true,
                _ if why.is_some() => {}
                Whose::There(peer) => {
                    let to = owners.peer(peer).map(|peer| peer.node.clone())?;
                    why = Some(HandleError::Moved { to, epoch: owners.epoch(node) });
                }
                Whose::Nobody => why = Some(frozen.clone()),
                Whose::Leaving => why = Some(leaving.clone()),
            }
        }
        match why {
            Some(_) if is_here => Some(Refused::Client(self.crossing(owners, keys()))),
            why => why.map(Refused::Part),
        }
    }
}

/// Whether a command is about the keys that it names.
const fn names_keys(command: &Command) -> bool {
    matches!(command.run, Run::Keys(_) | Run::Waits(..) | Run::Script(_) | Run::Finds { .. })
}

/// Whether a command is about all keys, as they are at one instant or not.
fn is_about_all_keys(command: &Command) -> bool {
    matches!(command.name, "dbsize" | "keys" | "randomkey" | "flushdb" | "flushall")
}

/// Whether a command is about this node as a whole, or has no meaning where keys are at several.
fn is_of_one_node(session: &Session, command: &Command, args: Args<'_>) -> bool {
    let asks = |words: &[&[u8]]| args.len() > 1 && words.iter().any(|word| args[1].eq_ignore_ascii_case(word));
    match command.name {
        "save" | "bgsave" | "sync" | "psync" | "swapdb" => true,
        // What it makes outlives neither its node nor reaches another.
        "function" => asks(&[b"load", b"delete", b"flush", b"restore"]),
        // Of keys that are here they tell the truth, and a client of the cluster port knows that it asks for such.
        "wait" | "waitaof" => !session.is_of_cluster,
        "client" => !session.is_of_cluster && asks(&[b"tracking"]),
        _ => false,
    }
}

impl Actor {
    /// Sends a request where its keys are, if that is another node; then its reply comes later. `None` if it runs here.
    #[inline(never)]
    pub(super) fn send_beyond(
        &mut self,
        session: &mut Session,
        command: &'static Command,
        args: Args<'_>,
        reply: &mut dyn Reply,
    ) -> Result<Option<Progress>, CommandError> {
        if !self.is_spread() {
            return self.ask_owner(session, command, args, reply).map(Some);
        }
        self.check_is_spread(session, command, args)?;
        let are_arriving = self.spread().is_some_and(|spread| spread.owners.are_arriving());
        if session.is_of_cluster && are_arriving && (is_about_all_keys(command) || matches!(command.run, Run::Scan(_)))
        {
            return Err(CommandError::text("TRYAGAIN nothing was done: keys are on their way to this node"));
        }
        let keys = || command.keys.of(args).into_iter().flatten();
        match command.run {
            Run::Scan(_) => {
                let place = KeyHash::from_cursor(parse_cursor(&args[1])?);
                Ok(Some(self.begin_walk(session, place, command, args)))
            }
            Run::Finds { .. } if !patterns(args).is_empty() => Err(CommandError::text(
                "CROSSNODE BY and GET of SORT find keys that may be on other nodes: they are not there yet where the keys are spread over nodes",
            )),
            // What is given away waits, also if its client knows where it was.
            _ if session.is_of_cluster && !(names_keys(command) && self.goes_by_lanes(session)) => Ok(None),
            Run::Session(_) => match command.name {
                "watch" => match self.span(keys)? {
                    Span::Here => Ok(None),
                    Span::Beyond { .. } | Span::Several => Err(elsewhere(command)),
                },
                "flushdb" => self.flush_nodes(session, command, args, Some(session.database)).map(Some),
                "flushall" => self.flush_nodes(session, command, args, None).map(Some),
                _ => Ok(None),
            },
            Run::Everywhere(..) if matches!(command.name, "dbsize" | "keys" | "randomkey") => {
                self.ask_nodes(session, command, args).map(Some)
            }
            Run::Everywhere(..) => Ok(None),
            Run::Keys(_) | Run::Waits(..) | Run::Script(_) | Run::Finds { .. } => {
                let waits = matches!(command.run, Run::Waits(..)) && command.deadline(args, self.keys.now()).is_some();
                let (lane, about) = match self.span(keys)? {
                    Span::Here => return Ok(None),
                    // Who waits cannot keep keys of several from everybody else.
                    Span::Several if waits || session.is_of_cluster => {
                        return Err(self
                            .spread()
                            .map_or(CommandError::Syntax, |spread| self.crossing(&spread.owners, keys())));
                    }
                    Span::Several => return self.cross_with(session, command, args).map(Some),
                    Span::Beyond { lane, about } => (lane, about),
                };
                if waits {
                    return Ok(None);
                }
                if let Run::Script(_) = command.run {
                    if session.access != Access::Full {
                        return Err(elsewhere(command));
                    }
                    let (command, args) = self.with_script(command, args)?;
                    return self.ask_by(lane, about, session, command, args.args()).map(Some);
                }
                self.ask_by(lane, about, session, command, args).map(Some)
            }
        }
    }

    /// Whether a command is there where keys are spread.
    ///
    /// # Errors
    /// If it is not.
    pub(super) fn check_is_spread(&self, session: &Session, command: &Command, args: Args<'_>) -> Outcome {
        if !self.is_spread() || !is_of_one_node(session, command, args) {
            return Ok(());
        }
        let name = command.name.to_uppercase();
        Err(CommandError::from(format!("CROSSNODE {name} is not there yet where the keys are spread over nodes")))
    }

    /// What MULTI has queued as it is sent to another node.
    pub(super) fn with_scripts(&mut self, program: &Program) -> Result<Program, CommandError> {
        let mut sent = Program::new(program.database);
        for (command, args) in program.steps() {
            let (command, args) = match command.run {
                Run::Script(_) => self.with_script(command, args)?,
                _ => (command, OwnedArgs::of(args)),
            };
            sent.push(command, args.args());
        }
        Ok(sent)
    }

    /// A script as it is sent to another node, which may not know it: with its text.
    fn with_script(
        &mut self,
        command: &'static Command,
        args: Args<'_>,
    ) -> Result<(&'static Command, OwnedArgs), CommandError> {
        let as_it_is = (command, OwnedArgs::of(args));
        let name = match command.name {
            "eval" | "eval_ro" => {
                self.learn_script(digest(&args[1]), &args[1], false)?;
                return Ok(as_it_is);
            }
            "evalsha" => "eval",
            "evalsha_ro" => "eval_ro",
            _ => return Ok(as_it_is),
        };
        let known = Digest::try_from(args[1].to_ascii_lowercase()).ok().and_then(|digest| self.scripts.text(&digest));
        let unknown = CommandError::text("NOSCRIPT No matching script. Please use EVAL.");
        let (Some(text), Some(command)) = (known, Command::find(name.as_bytes())) else { return Err(unknown) };
        let words: Vec<&[u8]> = [name.as_bytes(), text].into_iter().chain(args.from(2)).collect();
        Ok((command, OwnedArgs::of_words(&words)))
    }

    /// Looks at keys of another node for a waiter.
    pub(super) fn look_beyond(&mut self, waiter: u64, program: &Program) {
        let Some((command, args)) = program.steps().next() else { return };
        let key = command.keys.of(args).into_iter().flatten().next();
        let (Some(key), Some(number)) = (key, CommandNumber::of(command)) else { return };
        let node = virtual_node_of(self.keys.group_of(key));
        // If they have come to be here, the lane looks here.
        let lane = self.spread().and_then(|spread| spread.lane_of(node)).unwrap_or(NOBODYS);
        let (to, database) = (Destination::Waiter(waiter), program.database);
        self.put_in_lane(lane, to, About::one(node), byte_count(args), |request| request.push(database, number, args));
    }

    /// The other nodes that have keys, for what is about all.
    ///
    /// # Errors
    /// If some keys have no node.
    fn all_peers(&self) -> Result<Vec<PeerId>, CommandError> {
        let Some(Spread { owners, .. }) = self.spread() else { return Ok(Vec::new()) };
        match owners.are_all_served() {
            true => Ok(owners.holders()),
            false => Err(CommandError::text("TRYAGAIN nothing was done: some keys have no node for the moment")),
        }
    }

    /// Asks a node for something about all keys that it has.
    fn ask_peer(&mut self, peer: PeerId, to: Destination, database: u8, number: CommandNumber, args: Args<'_>) {
        let push = |request: &mut KeysRequest| request.push(database, number, args);
        self.put_in_lane(lane_to(peer), to, About::default(), byte_count(args), push);
    }

    /// Asks all actors of all nodes.
    fn ask_nodes(
        &mut self,
        session: &mut Session,
        command: &'static Command,
        args: Args<'_>,
    ) -> Result<Progress, CommandError> {
        let (Run::Everywhere(_, combine), Some(number)) = (command.run, CommandNumber::of(command)) else {
            return Err(CommandError::Syntax);
        };
        let peers = self.all_peers()?;
        let (ticket, database) = (session.ticket(), session.database);
        let to = Destination::Session(session.id, ticket);
        let gather = self.gather_of_nodes(to, database, command, args, combine, peers.len() as u16);
        for peer in peers {
            self.ask_peer(peer, Destination::Gather(gather), database, number, args);
        }
        Ok(Progress::LaterAlone(ticket))
    }

    /// Empties a database, or all, at each node: not at one instant.
    fn flush_nodes(
        &mut self,
        session: &mut Session,
        command: &'static Command,
        args: Args<'_>,
        database: Option<u8>,
    ) -> Result<Progress, CommandError> {
        let change = flush_of(args, database)?;
        // Before anybody else empties anything.
        self.check_departures(change)?;
        let number = CommandNumber::of(command).ok_or(CommandError::Syntax)?;
        let peers = self.all_peers()?;
        let ticket = session.ticket();
        let to = Destination::Session(session.id, ticket);
        let combine = match self.spread().is_some_and(|spread| spread.may_move) {
            true => Combine::Flushed,
            false => Combine::First,
        };
        let gather = Destination::Gather(self.gather_parts(self.id, to, combine, 1 + peers.len() as u16));
        for peer in peers {
            self.ask_peer(peer, gather, session.database, number, args);
        }
        self.change_databases_for(gather, change);
        Ok(Progress::LaterAlone(ticket))
    }

    /// Tells other nodes what was published here. How many listen there nobody waits for, as in Redis Cluster; a node that takes nothing misses
    /// what is too much to be kept for it.
    pub(crate) fn publish_beyond(&mut self, args: Args<'_>) {
        /// What nobody puts together.
        const NOWHERE: Destination = Destination::Gather(0);
        let peers = self.spread().into_iter().flat_map(|spread| spread.owners.peers());
        let peers: Vec<PeerId> = peers.map(|(id, _)| id).collect();
        let Some(number) = Command::find(&args[0]).and_then(CommandNumber::of) else { return };
        for peer in peers {
            let lane = notices_to(peer);
            if self.front.as_ref().is_some_and(|front| front.waiting_bytes(lane) < NOTICES_BYTES_MAX) {
                let push = |request: &mut KeysRequest| request.push(0, number, args);
                self.put_in_lane(lane, NOWHERE, About::default(), byte_count(args), push);
            }
        }
    }

    /// Asks for the part of a walk from a place on, wherever that is.
    pub(super) fn ask_for_part(
        &mut self,
        gather: u64,
        place: KeyHash,
        is_of_node: bool,
        walk: (u8, &'static Command, &OwnedArgs),
    ) {
        let (database, command, args) = walk;
        let node = virtual_node_of(place.group());
        let lane = self.spread().filter(|_| !is_of_node).and_then(|spread| spread.lane_of(node));
        let (Some(lane), Some(number)) = (lane, CommandNumber::of(command)) else {
            let actor = self.routes.actor_of(place.group());
            return self.ask_for_scanned(gather, actor, database, command, args.clone());
        };
        let (to, args) = (Destination::Gather(gather), args.args());
        self.put_in_lane(lane, to, About::one(node), byte_count(args), |request| request.push(database, number, args));
    }

    /// Does what every node does for a request of one of them, if it is such.
    pub(super) fn serve_for_all(
        &mut self,
        to: Destination,
        database: u8,
        command: &'static Command,
        args: Args<'_>,
    ) -> Outcome {
        let flushed = match command.name {
            "flushdb" => flush_of(args, Some(database))?,
            "flushall" => flush_of(args, None)?,
            "publish" | "spublish" => {
                let is_of_shards = command.name == "spublish";
                let count = match is_of_shards {
                    true => self.publish_to_shard(&args[1], &args[2]),
                    false => self.publish(&args[1], &args[2]),
                };
                self.replies.push(to, |reply| reply.count(count));
                return Ok(());
            }
            _ => return Err(CommandError::text("ERR this command needs its connection")),
        };
        self.change_databases_for(to, flushed);
        Ok(())
    }
}

impl Actor {
    /// Which node has a slot.
    pub(crate) fn owner_of_slot(&self, slot: HashSlot) -> SlotsOwner {
        match self.front.as_ref().map(|front| &front.beyond) {
            None => SlotsOwner::Myself,
            Some(Beyond::Owner(owner)) => owner.clone().map_or(SlotsOwner::Nobody, SlotsOwner::Other),
            Some(Beyond::Nodes(spread)) => spread.port_of(spread.owners.of_group(slot.groups()[0])),
        }
    }

    /// Which node has which slots.
    pub(crate) fn slot_ranges(&self) -> Vec<SlotRange> {
        let range = |(first, last, owner)| SlotRange { first, last, owner };
        match self.spread() {
            Some(spread) => {
                let ranges = spread.owners.ranges().into_iter();
                ranges.map(|(first, last, whose)| range((first, last, spread.port_of(whose)))).collect()
            }
            None => {
                let any = HashSlot::of(b"");
                vec![range((0, crate::slot::SLOTS - 1, self.owner_of_slot(any)))]
            }
        }
    }

    /// The other nodes that clients of clusters are told of.
    pub(crate) fn other_nodes(&self) -> Vec<Arc<ClusterNode>> {
        match self.front.as_ref().map(|front| &front.beyond) {
            None => Vec::new(),
            Some(Beyond::Owner(owner)) => owner.iter().cloned().collect(),
            Some(Beyond::Nodes(spread)) => {
                spread.owners.peers().filter_map(|(_, peer)| peer.cluster_port.clone()).collect()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use savanna_epoch::OwnerEpoch;
    use savanna_lattice::Hlc;

    use super::*;
    use crate::actor::message::Replies;
    use crate::cluster::node_id;
    use crate::cluster::owners::Peer;
    use crate::cluster::table::VIRTUAL_NODES;
    use crate::config::Config;
    use crate::group::Records;
    use crate::placement::{ActorId, Routes};
    use crate::reply::Tape;
    use crate::session::SessionId;
    use crate::slot::SLOTS;

    /// Slots in the first half are here, those of the second at another node, and the last virtual node is nobody's.
    fn actor() -> Actor {
        actor_of(false)
    }

    fn actor_of(may_move: bool) -> Actor {
        let mut actor = Actor::new(ActorId(0), Routes::over(1), Config::default(), 1);
        actor.join_nodes(may_move);
        let port = ClusterNode { id: node_id("b"), address: "127.0.0.1:7010".parse().expect("an address") };
        let peer = Peer { node: NodeId::new("b"), is_there: true, cluster_port: Some(Arc::new(port)) };
        let mut owners = Owners::among(vec![peer]);
        for node in 0..VIRTUAL_NODES - 1 {
            let whose = if node < VIRTUAL_NODES / 2 { Whose::Here } else { Whose::There(PeerId(0)) };
            owners.set(node, whose, OwnerEpoch(1));
        }
        actor.hear_owners(&Arc::new(owners));
        actor
    }

    fn ask(actor: &mut Actor, session: SessionId, request: &str) -> String {
        let words: Vec<&[u8]> = request.split(' ').map(str::as_bytes).collect();
        let mut reply = Tape::new();
        actor.request(session, OwnedArgs::of_words(&words).args(), &mut reply);
        reply.to_string()
    }

    #[test]
    fn clients_of_clusters_are_told_which_node_has_a_slot() {
        let mut actor = actor();
        let client = actor.open_session(String::new(), "127.0.0.1:7000".to_owned());
        actor.note_cluster_port(client);
        // Slots 12,182, 5,061 and 16,383.
        assert_eq!(ask(&mut actor, client, "GET foo"), "!MOVED 12182 127.0.0.1:7010");
        assert_eq!(ask(&mut actor, client, "SET bar 1"), "OK");
        let last =
            (0..).map(|number: u32| number.to_string()).find(|key| HashSlot::of(key.as_bytes()).get() == SLOTS - 1);
        let last = last.expect("a key");
        assert_eq!(ask(&mut actor, client, &format!("GET {last}")), "!CLUSTERDOWN Hash slot not served");
        let slots = ask(&mut actor, client, "CLUSTER SLOTS");
        assert!(slots.starts_with("[2] [3] 0 8191 [4] \"127.0.0.1\" 7000"), "{slots}");
        assert!(slots.contains("[3] 8192 16367 [4] \"127.0.0.1\" 7010"), "{slots}");
        let nodes = ask(&mut actor, client, "CLUSTER NODES");
        assert!(nodes.contains("7000@0 myself,master - 0 0 0 connected 0-8191\n"), "{nodes}");
        assert!(nodes.contains("7010@0 master - 0 0 0 connected 8192-16367\n"), "{nodes}");
        let info = ask(&mut actor, client, "CLUSTER INFO");
        assert!(info.contains("cluster_state:fail") && info.contains("cluster_slots_assigned:16368"), "{info}");
        assert!(info.contains("cluster_known_nodes:2") && info.contains("cluster_size:2"), "{info}");
        assert_eq!(ask(&mut actor, client, "DBSIZE"), "1", "of this node");
    }

    #[test]
    fn what_is_served_is_not_taken_in_again() {
        let mut actor = actor();
        let client = actor.open_session(String::new(), String::new());
        assert_eq!(ask(&mut actor, client, "SET bar 8"), "OK");
        let of = |key: &str| {
            let mut former = Actor::new(ActorId(0), Routes::over(1), Config::default(), 1);
            let session = former.open_session(String::new(), String::new());
            ask(&mut former, session, &format!("SET {key} 7"));
            (0, former.keys.lend(0, key.as_bytes()).expect("it is there"))
        };
        assert!(actor.take_over(vec![of("bar")], Records::default(), Hlc::ZERO).is_err());
        assert_eq!(ask(&mut actor, client, "GET bar"), "\"8\"");
        assert!(actor.take_over(vec![of("foo")], Records::default(), Hlc::ZERO).is_ok(), "another node has it so far");
    }

    #[test]
    fn nothing_is_said_of_all_keys_while_some_are_on_their_way_here() {
        let mut actor = actor();
        let client = actor.open_session(String::new(), String::new());
        actor.note_cluster_port(client);
        let mut owners = Owners::clone(&actor.spread().expect("it is").owners);
        owners.note_arriving();
        actor.hear_owners(&Arc::new(owners));
        for request in ["DBSIZE", "KEYS *", "SCAN 0", "FLUSHALL"] {
            assert!(ask(&mut actor, client, request).starts_with("!TRYAGAIN"), "{request}");
        }
        for words in [&["DBSIZE"][..], &["FLUSHALL"]] {
            let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
            let number = Command::find(words[0]).and_then(CommandNumber::of).expect("a command");
            let mut request = KeysRequest::default();
            request.push(0, number, OwnedArgs::of_words(&words).args());
            let part = request.parts().next().expect("one");
            assert!(matches!(actor.refusal_of(part), Some(Refused::Part(HandleError::Frozen { .. }))));
            // Nor by one that has just begun, and had keys before.
            let mut begun = self::actor();
            begun.hear_owners(&Arc::new(Owners::default()));
            assert!(matches!(begun.refusal_of(part), Some(Refused::Part(HandleError::Frozen { .. }))));
        }
    }

    #[test]
    fn a_flush_that_one_node_refuses_says_that_others_are_empty_where_moves_may_refuse_it() {
        for (may_move, told) in [(false, "!MISCONF no space"), (true, "!PARTIAL")] {
            let mut actor = actor_of(may_move);
            let client = actor.open_session(String::new(), String::new());
            let mut owners = Owners::clone(&actor.spread().expect("it is").owners);
            owners.set(VIRTUAL_NODES - 1, Whose::Here, OwnerEpoch(1));
            actor.hear_owners(&Arc::new(owners));
            assert_eq!(ask(&mut actor, client, "FLUSHALL"), "");
            let asked = actor.take_asked(lane_to(PeerId(0))).expect("the other is asked");
            let mut replies = Replies::default();
            replies.push(asked.to[0], |reply| reply.error("MISCONF no space"));
            let own = std::mem::take(&mut actor.replies);
            actor.hear_answers(own);
            actor.hear_answers(replies);
            let answers: Vec<String> = actor.replies.iter().map(|(_, part)| part.to_tape().to_string()).collect();
            assert!(matches!(&answers[..], [answer] if answer.starts_with(told)), "{answers:?}");
        }
    }

    #[test]
    fn what_was_published_waits_for_a_node_up_to_a_bound_and_keeps_no_request_waiting() {
        let mut actor = actor();
        let client = actor.open_session(String::new(), String::new());
        let message = "x".repeat(1 << 20);
        for _ in 0..40 {
            ask(&mut actor, client, &format!("PUBLISH news {message}"));
        }
        let waiting = |actor: &Actor, lane| actor.front.as_ref().expect("it has one").waiting_bytes(lane);
        assert!((16 << 20..18 << 20).contains(&waiting(&actor, notices_to(PeerId(0)))));
        assert_eq!(waiting(&actor, lane_to(PeerId(0))), 0);
    }

    #[test]
    fn nothing_is_taken_in_while_all_keys_are_held() {
        let mut actor = actor();
        actor.claims.hold_all();
        assert!(actor.take_over(Vec::new(), Records::default(), Hlc::ZERO).is_err());
        actor.claims.release_all();
        assert!(actor.take_over(Vec::new(), Records::default(), Hlc::ZERO).is_ok());
    }
}
