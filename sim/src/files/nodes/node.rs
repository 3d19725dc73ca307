//! A data node as Hadoop's is: what it says to the process of names, and how it does what it is told.

use rand::Rng as _;
use savanna_files::blocks::{Comparison, Copying, Heartbeat, RecoveryOrder, Replica, State, StorageFigures};
use savanna_files::ids::{BlockId, Stamp};

use super::disk::{Disk, Stored};
use super::ending::Ending;
use super::names::{self, DISK};
use super::world::{HERE, Variant, World};

/// What it is told to do.
pub(super) enum Order {
    Remove(BlockId, Stamp),
    Send { copy: Copying, to: usize },
    End { order: RecoveryOrder, at: Vec<usize> },
}

/// What it says, on its way.
#[derive(Clone)]
pub(super) enum Said {
    /// It has a replica, whole or begun.
    Has(BlockId, Stamp, u64, State),
    /// It has one no more.
    Gone(BlockId, Stamp),
    /// All that it has, under the number that it was given for that.
    All(u64, Vec<(Replica, State)>),
    /// It has ended a block with others: so many bytes, or nobody has any.
    Ended { block: BlockId, stamp: Stamp, length: Option<u64>, with: Vec<usize> },
}

/// The same with who said it, over which connection, and to which process of names.
#[derive(Clone)]
pub(super) struct Message {
    pub(super) from: usize,
    pub(super) connection: u64,
    pub(super) to: u64,
    pub(super) said: Said,
}

#[derive(Default)]
pub(super) struct Node {
    pub(super) disk: Disk,
    pub(super) is_up: bool,
    /// It does not reach the process of names.
    pub(super) is_cut_off: bool,
    /// The number of its connections: each process of it has others.
    pub(super) connection: u64,
    /// The process of names that knows it.
    knows: Option<u64>,
    /// One has known it since it began: before that it serves nobody.
    has_registered: bool,
    lease: u64,
    /// It wants to report all that it has.
    wants_to_report: bool,
    pub(super) orders: Vec<Order>,
    /// Blocks that it ends, of which it has asked all that it reached.
    pub(super) endings: Vec<Ending>,
    /// Its disk was lost, and nobody has heard of that.
    pub(super) is_lost: bool,
}

impl Node {
    pub(super) fn registers(&mut self, epoch: u64) {
        (self.knows, self.lease, self.wants_to_report, self.is_lost) = (Some(epoch), 0, true, false);
        self.has_registered = true;
    }

    pub(super) fn begin(&mut self, connection: u64) {
        (self.is_up, self.connection, self.knows, self.has_registered) = (true, connection, None, false);
    }

    pub(super) const fn reports_again(&mut self) {
        self.wants_to_report = true;
    }

    fn end(&mut self) {
        (self.is_up, self.knows) = (false, None);
        self.orders.clear();
        self.endings.clear();
    }
}

impl World {
    /// Whether one data node reaches another, or a client does.
    pub(super) fn reaches(&mut self, at: usize) -> bool {
        let is_there = match at {
            HERE => self.names.is_some(),
            _ => self.nodes[at - 1].is_up && self.nodes[at - 1].has_registered,
        };
        is_there && !self.fails(12)
    }

    pub(super) fn disk(&self, at: usize) -> &Disk {
        if at == HERE { &self.here } else { &self.nodes[at - 1].disk }
    }

    pub(super) fn disk_mut(&mut self, at: usize) -> &mut Disk {
        if at == HERE { &mut self.here } else { &mut self.nodes[at - 1].disk }
    }

    /// It says something; that comes when it comes, perhaps twice.
    pub(super) fn say(&mut self, from: usize, said: Said) {
        let Some(to) = self.nodes[from - 1].knows else { return };
        let message = Message { from, connection: self.nodes[from - 1].connection, to, said };
        if self.fails(4) {
            self.messages.push(message.clone());
        }
        self.messages.push(message);
    }

    pub(super) fn says_that_it_has(&mut self, from: usize, block: BlockId) {
        if from == HERE {
            return self.received_here(block);
        }
        if let Some(stored) = self.nodes[from - 1].disk.0.get(&block) {
            let (stamp, length, state) = (stored.stamp, stored.length(), stored.state);
            self.say(from, Said::Has(block, stamp, length, state));
        }
    }

    /// Its process ends, or its machine, or its disk is lost with it.
    pub(super) fn end_node(&mut self, at: usize) {
        let how = self.dice.random_range(0..8);
        let node = &mut self.nodes[at - 1];
        if !node.is_up {
            return;
        }
        match how {
            0..2 => return self.lose_node(at),
            2..4 => node.disk.end_process(false),
            _ => node.disk.lose_power(&mut self.dice),
        }
        node.end();
        self.happened.restarts += 1;
    }

    /// Its process ends, and its disk is lost.
    pub(super) fn lose_node(&mut self, at: usize) {
        let node = &mut self.nodes[at - 1];
        node.end();
        (node.disk, node.is_lost) = (Disk::default(), true);
        self.happened.disks += 1;
        self.happened.restarts += 1;
    }

    /// It says that it is there, and hears what it has to do; or that does not come.
    pub(super) fn beat(&mut self, at: usize) -> Result<(), String> {
        let Some(epoch) = self.names.as_ref().map(|names| names.epoch) else { return Ok(()) };
        let node = &self.nodes[at - 1];
        if !node.is_up || node.is_cut_off {
            return Ok(());
        }
        if node.knows != Some(epoch) {
            self.obey_removals(at);
            self.register(at);
            return Ok(());
        }
        let wants_to_report = self.nodes[at - 1].wants_to_report;
        let storage = StorageFigures { id: DISK.to_owned(), kind: 1, remaining: 1 << 40, ..Default::default() };
        let heartbeat = Heartbeat { storages: vec![storage], wants_to_report, ..Heartbeat::default() };
        self.advance();
        let durable = self.durable();
        let Some(names) = &mut self.names else { return Ok(()) };
        let durable = Some(durable).filter(|_| !names.is_quiet());
        let blocks = &mut names.namespace.blocks;
        let holder = blocks.nodes.find(&names::name(at));
        let Some((holder, lease)) = holder.and_then(|holder| Some((holder, blocks.heard(holder, heartbeat)?))) else {
            self.obey_removals(at);
            self.register(at);
            return Ok(());
        };
        let mut orders = std::mem::take(&mut self.early[at - 1]);
        if self.variant != Variant::RemovalsStand {
            let duties = names.namespace.blocks.duties(holder, durable);
            orders = orders_of(names, duties);
        }
        for order in &orders {
            if let Order::Remove(block, stamp) = order {
                self.check_removal(at, *block, *stamp)?;
            }
        }
        if self.fails(12) {
            return Ok(());
        }
        let node = &mut self.nodes[at - 1];
        node.lease = lease;
        node.orders.extend(orders);
        Ok(())
    }

    /// What is to be done is decided long before data nodes hear of it, and not again.
    pub(super) fn tell_early(&mut self) {
        let durable = self.durable();
        let Some(names) = self.names.as_mut().filter(|_| self.variant == Variant::RemovalsStand) else { return };
        let durable = Some(durable).filter(|_| !names.is_quiet());
        for (holder, at) in names.holders.clone() {
            let duties = names.namespace.blocks.duties(holder, durable);
            let orders = orders_of(names, duties);
            self.early[at - 1].extend(orders);
        }
    }

    /// It reports all that it has.
    pub(super) fn report(&mut self, at: usize) {
        self.obey_removals(at);
        let node = &self.nodes[at - 1];
        if node.lease == 0 || !node.is_up || node.is_cut_off {
            return;
        }
        let replica = |(block, stored): (&BlockId, &Stored)| {
            (Replica { block: *block, stamp: stored.stamp, length: stored.length() }, stored.state)
        };
        let all = node.disk.0.iter().map(replica).collect();
        let lease = node.lease;
        self.say(at, Said::All(lease, all));
    }

    /// What it was told to remove is not there any more when it says what it has.
    fn obey_removals(&mut self, at: usize) {
        let orders = std::mem::take(&mut self.nodes[at - 1].orders);
        let (removals, others): (Vec<Order>, Vec<Order>) =
            orders.into_iter().partition(|order| matches!(order, Order::Remove(..)));
        self.nodes[at - 1].orders = others;
        for order in removals {
            self.carry_out(at, order);
        }
    }

    /// Something comes that a data node said.
    pub(super) fn hear(&mut self) -> Result<(), String> {
        let open = self.comparing.len();
        if self.messages.is_empty() && open == 0 {
            return Ok(());
        }
        let next = self.dice.random_range(0..open + self.messages.len());
        let Some(next) = next.checked_sub(open) else {
            self.compare(next);
            return Ok(());
        };
        let Message { from, connection, to, said } = self.messages.swap_remove(next);
        self.advance();
        let Some(names) = self.names.as_mut().filter(|names| names.epoch == to) else { return Ok(()) };
        let blocks = &mut names.namespace.blocks;
        let Some(holder) = blocks.nodes.find(&names::name(from)) else { return Ok(()) };
        let is_believed = self.variant == Variant::LateIsBelieved;
        if blocks.nodes.is_late(holder, connection) {
            self.happened.late += 1;
            if !matches!(said, Said::Ended { .. }) && !is_believed {
                return Ok(());
            }
        }
        if let Said::Ended { block, stamp, length, with } = said {
            return self.hear_end((block, stamp), length, &with);
        }
        if blocks.nodes.liveness(holder) == savanna_files::blocks::Liveness::Dead {
            return Ok(());
        }
        let Some(place) = blocks.storage(holder, DISK, 1) else { return Ok(()) };
        match said {
            Said::Has(block, stamp, length, state) => {
                let stamp = self.said(block, stamp);
                let Some(names) = &mut self.names else { return Ok(()) };
                names.namespace.blocks.held(place, Replica { block, stamp, length }, state == State::Whole);
            }
            Said::Gone(block, stamp) => blocks.lost(place, block, Some(stamp)),
            Said::All(lease, all) => {
                if !blocks.nodes.may_report(holder, lease) && !is_believed {
                    self.happened.late += 1;
                    return Ok(());
                }
                let begun = blocks.begin_comparing(holder, DISK, 1);
                let as_believed = |(replica, state): (Replica, State)| {
                    let state = match (state, self.variant) {
                        (State::Left, Variant::LeftHasAll) => State::Begun,
                        (state, _) => state,
                    };
                    let stamp = self.said(replica.block, replica.stamp);
                    (Replica { stamp, ..replica }, state)
                };
                let all = all.into_iter().map(as_believed).collect();
                if let Some(begun) = begun {
                    self.comparing.push((from, to, Comparison::new(begun, all)));
                }
            }
            Said::Ended { .. } => {}
        }
        Ok(())
    }

    /// All comes that data nodes have said.
    pub(super) fn hear_all(&mut self) -> Result<(), String> {
        while !self.messages.is_empty() || !self.comparing.is_empty() {
            self.hear()?;
        }
        Ok(())
    }

    /// Some of a report of all is compared, and others have their turn.
    fn compare(&mut self, number: usize) {
        let (from, to, mut comparison) = self.comparing.swap_remove(number);
        let most = self.dice.random_range(1..4);
        self.advance();
        let Some(names) = self.names.as_mut().filter(|names| names.epoch == to) else { return };
        let blocks = &mut names.namespace.blocks;
        match blocks.compare(&mut comparison, most) {
            Err(_) => self.happened.late += 1,
            Ok(true) => self.comparing.push((from, to, comparison)),
            Ok(false) => {
                if let Some(holder) = blocks.nodes.find(&names::name(from)) {
                    blocks.all_reported(holder);
                }
                self.nodes[from - 1].wants_to_report = false;
                self.happened.reports += 1;
            }
        }
    }

    /// It does something of what it was told.
    pub(super) fn obey(&mut self, at: usize) {
        let count = self.nodes[at - 1].orders.len();
        if count == 0 || !self.nodes[at - 1].is_up {
            return;
        }
        let next = self.dice.random_range(0..count);
        let order = self.nodes[at - 1].orders.swap_remove(next);
        self.carry_out(at, order);
    }

    fn carry_out(&mut self, at: usize, order: Order) {
        match order {
            Order::Remove(block, stamp) => {
                let disk = &mut self.nodes[at - 1].disk;
                if disk.0.get(&block).is_some_and(|stored| stored.stamp == stamp) {
                    disk.0.remove(&block);
                    self.say(at, Said::Gone(block, stamp));
                    self.happened.removed += 1;
                }
            }
            Order::Send { copy, to } => {
                self.send(at, copy, to);
            }
            Order::End { order, at: with } => self.ask_all(at, order, with),
        }
    }

    /// The data node in the process sends what it has to.
    pub(super) fn send_from_here(&mut self) {
        let Some(names) = self.names.as_mut().filter(|names| !names.is_quiet()) else { return };
        let copies = names.namespace.blocks.take_copies_here();
        let copies: Vec<(Copying, usize)> = copies.into_iter().map(|copy| (copy, names.at(copy.to.holder))).collect();
        for (copy, to) in copies {
            if !self.send(HERE, copy, to)
                && let Some(names) = &mut self.names
            {
                if self.here.0.get(&copy.block.id).is_none() {
                    names.namespace.blocks.lost_here(copy.block.id);
                }
                names.namespace.blocks.not_copied(copy.block.id);
            }
        }
    }

    /// Sends a replica. Whether it is there.
    fn send(&mut self, from: usize, copy: Copying, to: usize) -> bool {
        let name = copy.block;
        let all = |stored: &&Stored| stored.is_all(name.stamp, name.length);
        let Some(bytes) = self.disk(from).0.get(&name.id).filter(all).map(|stored| stored.bytes.clone()) else {
            return false;
        };
        if !self.reaches(to) {
            return false;
        }
        let is_expected =
            self.names.as_ref().is_some_and(|names| names.namespace.blocks.expects_here(name.id, name.stamp));
        let old = self.disk(to).0.get(&name.id);
        let is_free = old.is_none_or(|old| old.stamp < name.stamp && old.state == State::Begun);
        let has_room = match to {
            HERE => is_expected && old.is_none_or(|old| old.stamp <= name.stamp && old.state != State::Whole),
            _ => is_free,
        };
        if has_room {
            self.disk_mut(to).0.insert(name.id, Stored::whole(name.stamp, bytes));
            self.says_that_it_has(to, name.id);
            self.happened.copied += 1;
        }
        has_room
    }
}

/// What a data node is told, as it hears it.
fn orders_of(names: &names::Names, duties: savanna_files::blocks::Duties) -> Vec<Order> {
    let removals = duties.removals.into_iter().map(|(block, stamp)| Order::Remove(block, stamp));
    let copies = duties.copies.into_iter().map(|copy| Order::Send { copy, to: names.at(copy.to.holder) });
    let endings = duties.recoveries.into_iter().map(|order| {
        let at = order.places.iter().map(|place| names.at(place.holder)).collect();
        Order::End { order, at }
    });
    removals.chain(copies).chain(endings).collect()
}
