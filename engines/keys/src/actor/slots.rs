//! What came to the cluster port: a client that knows which node has which slot, and is told if it is wrong.

use super::Actor;
use crate::cluster::SlotsOwner;
use crate::command::Command;
use crate::commands::server::INFO_OF_CLUSTER;
use crate::error::CommandError;
use crate::keyspace::Keyspace;
use crate::number::integer;
use crate::request::Args;
use crate::session::{Session, SessionId};
use crate::slot::HashSlot;

/// The slot of the keys of requests, as far as they were looked at.
#[derive(Debug)]
struct OneSlot<'k> {
    keyspace: &'k Keyspace,
    slot: Option<HashSlot>,
}

impl OneSlot<'_> {
    /// Whether all keys are of one slot, these too.
    fn has<'a>(&mut self, mut keys: impl Iterator<Item = &'a [u8]>) -> bool {
        keys.all(|key| {
            let slot = HashSlot::of_group(self.keyspace.group_of(key));
            *self.slot.get_or_insert(slot) == slot
        })
    }

    fn has_those_of(&mut self, command: &Command, args: Args<'_>) -> bool {
        match command.name {
            "ssubscribe" | "sunsubscribe" => self.has(args.from(1)),
            "spublish" => self.has(args.from(1).take(1)),
            // Words that name no keys are refused by the command itself.
            _ => command.keys.of(args).map_or(true, |keys| self.has(keys)),
        }
    }
}

impl Actor {
    /// A session's client came to the cluster port.
    pub fn note_cluster_port(&mut self, session: SessionId) {
        if let Some(session) = self.sessions.get_mut(session) {
            session.is_of_cluster = true;
        }
    }

    /// Whether a request of a client of the cluster port may run here: its keys are of one slot, and this node has it.
    ///
    /// # Errors
    /// What the client is told, if not. A transaction that is refused is no more.
    #[inline(never)]
    pub(super) fn check_slot(
        &self,
        session: &mut Session,
        command: &Command,
        args: Args<'_>,
    ) -> Result<(), CommandError> {
        check_database(command, args)?;
        let mut one = OneSlot { keyspace: &self.keys, slot: None };
        let is_one = match (command.name, &session.queued) {
            ("exec", Some(program)) => program.steps().all(|(command, args)| one.has_those_of(command, args)),
            _ => one.has_those_of(command, args),
        };
        let refused = match (is_one, one.slot) {
            (false, _) => CommandError::text("CROSSSLOT Keys in request don't hash to the same slot"),
            (true, None) => return Ok(()),
            (true, Some(slot)) => match self.owner_of_slot(slot) {
                SlotsOwner::Myself => return Ok(()),
                SlotsOwner::Other(node) => CommandError::from(format!("MOVED {slot} {}", node.place())),
                SlotsOwner::Nobody => CommandError::text("CLUSTERDOWN Hash slot not served"),
            },
        };
        if command.name == "exec" {
            session.queued = None;
            session.watched.clear();
        }
        Err(refused)
    }
}

/// The command as a session's client is shown what it tells: `INFO` tells those of the cluster port that they are in a cluster.
pub(super) fn shown_to(session: &Session, command: &'static Command) -> &'static Command {
    if session.is_of_cluster && command.name == "info" { &INFO_OF_CLUSTER } else { command }
}

/// Clients of clusters know one database.
fn check_database(command: &Command, args: Args<'_>) -> Result<(), CommandError> {
    let is_other = |word: &[u8]| integer(word).is_some_and(|database| database != 0);
    let names_other = match command.name {
        "select" => is_other(&args[1]),
        "move" | "swapdb" => true,
        "copy" => {
            args.from(3).zip(args.from(4)).any(|(option, value)| option.eq_ignore_ascii_case(b"db") && is_other(value))
        }
        _ => false,
    };
    if !names_other {
        return Ok(());
    }
    Err(CommandError::text(match command.name {
        "copy" => "ERR Copying to another database is not allowed in cluster mode",
        "move" => "ERR MOVE is not allowed in cluster mode",
        "swapdb" => "ERR SWAPDB is not allowed in cluster mode",
        _ => "ERR SELECT is not allowed in cluster mode",
    }))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::cluster::{ClusterNode, node_id};
    use crate::config::Config;
    use crate::placement::{ActorId, Routes};
    use crate::reply::Tape;
    use crate::request::OwnedArgs;

    fn at_port(is_of_cluster: bool) -> (Actor, SessionId) {
        let mut actor = Actor::new(ActorId(0), Routes::over(1), Config::default(), 1);
        let session = actor.open_session(String::new(), "127.0.0.1:7000".to_owned());
        if is_of_cluster {
            actor.note_cluster_port(session);
        }
        (actor, session)
    }

    fn ask((actor, session): &mut (Actor, SessionId), request: &str) -> String {
        let words: Vec<&[u8]> = request.split(' ').map(str::as_bytes).collect();
        let mut reply = Tape::new();
        actor.request(*session, OwnedArgs::of_words(&words).args(), &mut reply);
        reply.to_string()
    }

    const CROSSED: &str = "!CROSSSLOT Keys in request don't hash to the same slot";

    #[test]
    fn keys_of_several_slots_are_refused_at_the_cluster_port_alone() {
        let mut client = at_port(true);
        assert_eq!(ask(&mut client, "MSET a 1 b 2"), CROSSED);
        assert_eq!(ask(&mut client, "SSUBSCRIBE a b"), CROSSED);
        assert_eq!(ask(&mut client, "MGET a b"), CROSSED);
        assert_eq!(ask(&mut client, "MSET {t}a 1 {t}b 2"), "OK");
        assert_eq!(ask(&mut at_port(false), "MSET a 1 b 2"), "OK");
    }

    #[test]
    fn a_transaction_of_several_slots_runs_nothing_and_is_no_more() {
        let mut client = at_port(true);
        for (request, expected) in [
            ("MULTI", "OK"),
            ("SET a 1", "QUEUED"),
            ("SET b 1", "QUEUED"),
            ("EXEC", CROSSED),
            ("EXEC", "!ERR EXEC without MULTI"),
            ("EXISTS a", "0"),
        ] {
            assert_eq!(ask(&mut client, request), expected);
        }
    }

    #[test]
    fn who_asks_a_node_without_keys_is_sent_to_their_owner() {
        let mut client = at_port(true);
        client.0.face_elsewhere();
        assert_eq!(ask(&mut client, "GET foo"), "!CLUSTERDOWN Hash slot not served");
        let address = "127.0.0.1:7010".parse().expect("an address");
        client.0.hear_owner(Some(Arc::new(ClusterNode { id: node_id("n2"), address })));
        assert_eq!(ask(&mut client, "GET foo"), "!MOVED 12182 127.0.0.1:7010");
        assert_eq!(ask(&mut client, "WATCH foo"), "!MOVED 12182 127.0.0.1:7010");
        assert_eq!(ask(&mut client, "PING"), "PONG");
        let slots = ask(&mut client, "CLUSTER SLOTS");
        assert!(slots.contains("7010") && !slots.contains("7000"), "{slots}");
        let nodes = ask(&mut client, "CLUSTER NODES");
        assert!(nodes.contains("7000@0 myself,master - 0 0 0 connected\n"), "{nodes}");
    }

    #[test]
    fn clients_of_clusters_know_one_database() {
        let mut client = at_port(true);
        assert_eq!(ask(&mut client, "SELECT 0"), "OK");
        for request in ["SELECT 1", "MOVE a 1", "SWAPDB 0 1", "COPY a {a} REPLACE DB 1"] {
            assert!(ask(&mut client, request).ends_with("not allowed in cluster mode"), "{request}");
        }
    }
}
