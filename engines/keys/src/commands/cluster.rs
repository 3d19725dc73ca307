//! What clients of the cluster port ask: which node has which slots, and what is in a slot.

use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use crate::actor::{Actor, Progress};
use crate::cluster::{ClusterNode, SlotRange, SlotsOwner};
use crate::command::{Class, Combine, Command, Flags, Group, KeyUses, Keys, Run};
use crate::error::{CommandError, Outcome};
use crate::number::parse_integer;
use crate::reply::Reply;
use crate::request::Args;
use crate::session::Session;
use crate::slot::{HashSlot, SLOTS};

type Done = Result<Progress, CommandError>;

/// Subcommands with their numbers of words.
const SUBCOMMANDS: [(&str, i16); 27] = [
    ("addslots", -3),
    ("addslotsrange", -4),
    ("bumpepoch", 2),
    ("count-failure-reports", 3),
    ("countkeysinslot", 3),
    ("delslots", -3),
    ("delslotsrange", -4),
    ("failover", -2),
    ("flushslots", 2),
    ("forget", 3),
    ("getkeysinslot", 4),
    ("help", 2),
    ("info", 2),
    ("keyslot", 3),
    ("links", 2),
    ("meet", -4),
    ("myid", 2),
    ("nodes", 2),
    ("replicas", 3),
    ("replicate", 3),
    ("reset", -2),
    ("saveconfig", 2),
    ("set-config-epoch", 3),
    ("setslot", -4),
    ("shards", 2),
    ("slaves", 3),
    ("slots", 2),
];

/// `CLUSTER COUNTKEYSINSLOT | GETKEYSINSLOT | INFO | KEYSLOT | LINKS | MYID | NODES | REPLICAS | SHARDS | SLOTS`
pub fn cluster(actor: &mut Actor, session: &mut Session, args: Args<'_>, reply: &mut dyn Reply) -> Done {
    let subcommand = super::check_subcommand("cluster", &SUBCOMMANDS, args)?;
    check_port(session)?;
    let nodes = Nodes::known(actor, session);
    match subcommand {
        "help" => super::help("cluster", reply),
        "keyslot" => reply.integer(i64::from(HashSlot::of(&args[2]).get())),
        "countkeysinslot" => {
            parse_slot(&args[2])?;
            return actor.ask_everybody(session, &COUNT_KEYS, args, reply);
        }
        "getkeysinslot" => {
            parse_slot_and_count(args)?;
            return actor.ask_everybody(session, &GET_KEYS, args, reply);
        }
        "myid" => reply.bulk(nodes.myself.id.as_bytes()),
        "info" => reply.verbatim(&nodes.info()),
        "nodes" => reply.verbatim(&nodes.lines()),
        "slots" => nodes.slots(reply),
        "shards" => nodes.shards(reply),
        // Nodes of Savanna keep no connections of the kind that Redis lists here.
        "links" => reply.array(0),
        "replicas" | "slaves" => {
            nodes.check_known(&args[2])?;
            reply.array(0);
        }
        "count-failure-reports" => {
            nodes.check_known(&args[2])?;
            reply.integer(0);
        }
        other => {
            return Err(CommandError::from(format!(
                "ERR Savanna decides itself which node has which slots: there is nothing for CLUSTER {} to change",
                other.to_uppercase()
            )));
        }
    }
    Ok(Progress::Answered)
}

/// `ASKING`, `READONLY` and `READWRITE`: the node that has a slot has it alone, and no slot is given away while clients ask for it
pub fn accept(_: &mut Actor, session: &mut Session, _: Args<'_>, reply: &mut dyn Reply) -> Done {
    check_port(session)?;
    reply.ok();
    Ok(Progress::Answered)
}

/// Whether a request is about the keys of all actors.
pub(crate) fn looks_at_keys(args: Args<'_>) -> bool {
    [&b"countkeysinslot"[..], b"getkeysinslot"].iter().any(|name| args[1].eq_ignore_ascii_case(name))
}

fn check_port(session: &Session) -> Outcome {
    if session.is_of_cluster {
        Ok(())
    } else {
        Err(CommandError::text("ERR This instance has cluster support disabled"))
    }
}

fn parse_slot(text: &[u8]) -> Result<HashSlot, CommandError> {
    let number = u16::try_from(parse_integer(text)?).ok();
    number.and_then(HashSlot::new).ok_or(CommandError::text("ERR Invalid slot"))
}

fn parse_slot_and_count(args: Args<'_>) -> Result<(HashSlot, usize), CommandError> {
    let (slot, count) = (parse_integer(&args[2])?, parse_integer(&args[3])?);
    let slot = u16::try_from(slot).ok().and_then(HashSlot::new);
    slot.zip(usize::try_from(count).ok()).ok_or(CommandError::text("ERR Invalid slot or number of keys"))
}

static COUNT_KEYS: Command = part("cluster|countkeysinslot", "Counts the keys of a slot.", count_keys, Combine::Sum);
static GET_KEYS: Command = part("cluster|getkeysinslot", "Gives keys of a slot.", get_keys, Combine::Concatenate);

/// The part of a subcommand that an actor runs.
const fn part(
    name: &'static str,
    summary: &'static str,
    run: fn(&mut Actor, Args<'_>, &mut dyn Reply) -> Outcome,
    combine: Combine,
) -> Command {
    Command {
        name,
        arity: -3,
        flags: Flags::READONLY,
        keys: Keys::None,
        uses: KeyUses::NONE,
        class: Class::Everywhere,
        group: Group::Server,
        since: "3.0.0",
        summary,
        run: Run::Everywhere(run, combine),
    }
}

fn count_keys(actor: &mut Actor, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    reply.count(actor.keys.keys_in(parse_slot(&args[2])?).count());
    Ok(())
}

fn get_keys(actor: &mut Actor, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    let (slot, count) = parse_slot_and_count(args)?;
    let keys: Vec<&[u8]> = actor.keys.keys_in(slot).take(count).collect();
    reply.array(keys.len());
    keys.into_iter().for_each(|key| reply.bulk(key));
    Ok(())
}

/// The nodes that a client is told of.
#[derive(Debug)]
struct Nodes {
    /// The one that is asked, where the client has reached it.
    myself: ClusterNode,
    others: Vec<Arc<ClusterNode>>,
    ranges: Vec<SlotRange>,
}

impl Nodes {
    fn known(actor: &Actor, session: &Session) -> Self {
        let unknown = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), actor.config.cluster_port);
        let address = session.local_address.parse().unwrap_or(unknown);
        let myself = ClusterNode { id: actor.node_id(), address };
        Self { myself, others: actor.other_nodes(), ranges: actor.slot_ranges() }
    }

    /// All of them, that which is asked first.
    fn all(&self) -> impl Iterator<Item = &ClusterNode> {
        std::iter::once(&self.myself).chain(self.others.iter().map(|node| &**node))
    }

    /// The node that has a range of slots, if clients of clusters can reach one.
    fn owner<'n>(&'n self, range: &'n SlotRange) -> Option<&'n ClusterNode> {
        match &range.owner {
            SlotsOwner::Myself => Some(&self.myself),
            SlotsOwner::Other(node) => Some(&**node),
            SlotsOwner::Nobody => None,
        }
    }

    /// The ranges of a node.
    fn ranges_of<'n>(&'n self, node: &'n ClusterNode) -> impl Iterator<Item = &'n SlotRange> {
        self.ranges.iter().filter(|range| self.owner(range).is_some_and(|owner| owner.id == node.id))
    }

    fn check_known(&self, id: &[u8]) -> Outcome {
        let is_known = self.all().any(|node| node.id.as_bytes() == id);
        if is_known { Ok(()) } else { Err(CommandError::from(format!("ERR Unknown node {}", id.escape_ascii()))) }
    }

    fn info(&self) -> String {
        let owned = self.ranges.iter().filter(|range| self.owner(range).is_some());
        let served: usize = owned.map(|range| usize::from(range.last - range.first) + 1).sum();
        let state = if served == usize::from(SLOTS) { "ok" } else { "fail" };
        let size = self.all().filter(|node| self.ranges_of(node).next().is_some()).count();
        let lines = [
            ("cluster_state", state.to_owned()),
            ("cluster_slots_assigned", served.to_string()),
            ("cluster_slots_ok", served.to_string()),
            ("cluster_slots_pfail", "0".to_owned()),
            ("cluster_slots_fail", "0".to_owned()),
            ("cluster_known_nodes", self.all().count().to_string()),
            ("cluster_size", size.to_string()),
            ("cluster_current_epoch", "0".to_owned()),
            ("cluster_my_epoch", "0".to_owned()),
            ("cluster_stats_messages_sent", "0".to_owned()),
            ("cluster_stats_messages_received", "0".to_owned()),
            ("total_cluster_links_buffer_limit_exceeded", "0".to_owned()),
        ];
        lines.into_iter().map(|(name, value)| format!("{name}:{value}\r\n")).collect()
    }

    fn lines(&self) -> String {
        let mut text = String::new();
        for node in self.all() {
            let flags = if std::ptr::eq(node, &self.myself) { "myself,master" } else { "master" };
            // Writing into a string does not fail. Nodes of Savanna have no port for what those of Redis tell each other.
            let _ = write!(text, "{} {}@0 {flags} - 0 0 0 connected", node.id, node.place());
            for SlotRange { first, last, .. } in self.ranges_of(node) {
                let _ = if first == last { write!(text, " {first}") } else { write!(text, " {first}-{last}") };
            }
            text.push('\n');
        }
        text
    }

    fn slots(&self, reply: &mut dyn Reply) {
        let owned: Vec<(&SlotRange, &ClusterNode)> =
            self.ranges.iter().filter_map(|range| Some((range, self.owner(range)?))).collect();
        reply.array(owned.len());
        for (range, node) in owned {
            reply.array(3);
            reply.integer(i64::from(range.first));
            reply.integer(i64::from(range.last));
            reply.array(4);
            reply.bulk(node.ip().to_string().as_bytes());
            reply.integer(i64::from(node.address.port()));
            reply.bulk(node.id.as_bytes());
            // What else there is to know of where it is.
            reply.array(0);
        }
    }

    fn shards(&self, reply: &mut dyn Reply) {
        reply.array(self.all().count());
        for node in self.all() {
            let ranges: Vec<&SlotRange> = self.ranges_of(node).collect();
            reply.map(2);
            reply.bulk(b"slots");
            reply.array(2 * ranges.len());
            for range in ranges {
                reply.integer(i64::from(range.first));
                reply.integer(i64::from(range.last));
            }
            reply.bulk(b"nodes");
            reply.array(1);
            let ip = node.ip().to_string();
            reply.map(7);
            reply.bulk(b"id");
            reply.bulk(node.id.as_bytes());
            reply.bulk(b"port");
            reply.integer(i64::from(node.address.port()));
            for (name, value) in [("ip", ip.as_str()), ("endpoint", &ip), ("role", "master")] {
                reply.bulk(name.as_bytes());
                reply.bulk(value.as_bytes());
            }
            reply.bulk(b"replication-offset");
            reply.integer(0);
            reply.bulk(b"health");
            reply.bulk(b"online");
        }
    }
}
