//! `savanna drain`: a node gets nothing new, and its databases go to the others.

use std::collections::BTreeMap;
use std::time::Duration;

use savanna_http::types::{ClusterNode, ClusterShard, Move, MoveTechnique, Nodes, Shards};
use savanna_node::Config;
use serde_json::json;

use super::moves::{ask, show};
use crate::args::{DrainArgs, Format};
use crate::client::{Client, path_part};
use crate::error::{CliError, Exit};
use crate::output;

/// What the names of the shards of databases begin with.
const DATABASES: &str = "tenants/";
/// Between two looks.
const PAUSE: Duration = Duration::from_secs(1);
/// So many looks in a row that find nothing are the end: the first may be older than what others did before they heard of the drain.
const QUIET_LOOKS: usize = 2;
/// In so many looks some may stay: they are tried again.
const TRIES: usize = 6;
/// In so many looks some may be on their way. A move has ended by then, or its record was left behind.
const WAITS: usize = 180;

/// What a look has found at a node, and what became of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Found {
    /// Databases that have left.
    gone: usize,
    /// Databases that have stayed.
    stayed: usize,
    /// Databases that somebody else moves, to the node or away.
    on_their_way: usize,
}

/// What follows from a look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    Again,
    /// Nothing is there, and nothing comes.
    Empty,
    /// What is there stays, or what is on its way does not end.
    GiveUp,
}

/// The looks until now.
#[derive(Debug, Default)]
struct Looks {
    quiet: usize,
    with_some_that_stay: usize,
    with_some_on_their_way: usize,
}

impl Looks {
    fn after(&mut self, found: Found) -> Next {
        if found == Found::default() {
            self.quiet += 1;
            return if self.quiet >= QUIET_LOOKS { Next::Empty } else { Next::Again };
        }
        self.quiet = 0;
        self.with_some_that_stay += usize::from(found.stayed > 0);
        self.with_some_on_their_way += usize::from(found.on_their_way > 0);
        match self.with_some_that_stay >= TRIES || self.with_some_on_their_way >= WAITS {
            true => Next::GiveUp,
            false => Next::Again,
        }
    }
}

/// The node gets nothing new, and all its databases go, each to the node that has fewest by then.
pub(crate) async fn drain(config: &Config, format: Format, args: &DrainArgs) -> Result<Exit, CliError> {
    let client = Client::new(args.remote.url.as_deref(), &args.remote.trust, config.node())?;
    let nodes = nodes(&client).await?;
    if !nodes.iter().any(|node| node.name == args.node) {
        let names: Vec<_> = nodes.iter().map(|node| node.name.as_str()).collect();
        return Err(CliError::Usage(format!("expected one of the nodes {}, came {}", names.join(", "), args.node)));
    }
    let path = format!("nodes/{}/drain", path_part(&args.node));
    if args.undo {
        client.delete(&path).await.map_err(|error| client.explain(error))?;
        return report(format, args, "the node gets databases again", (0, 0));
    }
    if others(&nodes, &args.node).is_empty() {
        let node = &args.node;
        return Err(CliError::Usage(format!(
            "no other node than {node} takes databases: start one, or undo the drain of another"
        )));
    }
    client.put(&path).await.map_err(|error| client.explain(error))?;
    let (mut looks, mut moved) = (Looks::default(), 0);
    let left = loop {
        let found = look(&client, format, &args.node).await?;
        moved += found.gone;
        if found.on_their_way > 0 && looks.with_some_on_their_way == 0 {
            eprintln!(
                "{} databases are on their way to the node or away from it: they are waited for",
                found.on_their_way
            );
        }
        match looks.after(found) {
            Next::Again => tokio::time::sleep(PAUSE).await,
            Next::Empty => break 0,
            Next::GiveUp => break found.stayed + found.on_their_way,
        }
    };
    if left > 0 {
        eprintln!(
            "{left} databases stay at the node, or are still on their way: `savanna shards` and `savanna moves` say which and why; try again"
        );
    }
    let shards = shards(&client).await?;
    let kept: Vec<_> = shards
        .iter()
        .filter(|shard| shard.owner.as_ref() == Some(&args.node) && !shard.shard.starts_with(DATABASES))
        .map(|shard| shard.shard.as_str())
        .collect();
    if !kept.is_empty() {
        eprintln!("the shards {} stay there until the node ends; another one takes them over then", kept.join(", "));
    }
    let notice = format!("the node gets nothing new until it starts again, or `savanna drain {} --undo`", args.node);
    report(format, args, &notice, (moved, left))
}

async fn nodes(client: &Client) -> Result<Vec<ClusterNode>, CliError> {
    let Nodes { nodes } = client.get("nodes").await.map_err(|error| client.explain(error))?;
    Ok(nodes)
}

async fn shards(client: &Client) -> Result<Vec<ClusterShard>, CliError> {
    let Shards { shards } = client.get("shards").await.map_err(|error| client.explain(error))?;
    Ok(shards)
}

/// The nodes beside one that take databases.
fn others<'n>(nodes: &'n [ClusterNode], node: &str) -> Vec<&'n str> {
    let takes_databases = |node: &ClusterNode| !node.is_drained && node.services.iter().any(|name| name == "tenants");
    let others = nodes.iter().filter(|other| other.name != node && takes_databases(other));
    others.map(|other| other.name.as_str()).collect()
}

/// Looks for databases that are at a node, or on their way to it, and moves the first away.
async fn look(client: &Client, format: Format, node: &str) -> Result<Found, CliError> {
    let (nodes, shards) = (nodes(client).await?, shards(client).await?);
    let found = move_away(client, format, node, (&others(&nodes, node), &shards)).await?;
    Ok(Found { on_their_way: found.on_their_way + coming(&shards, node), ..found })
}

/// The databases on their way to a node that does not have them yet.
fn coming(shards: &[ClusterShard], node: &str) -> usize {
    let is_coming =
        |shard: &&ClusterShard| shard.moving_to.as_deref() == Some(node) && shard.owner.as_deref() != Some(node);
    shards.iter().filter(is_coming).count()
}

/// Moves the databases of a node to others, each to the one that has fewest by then.
async fn move_away(
    client: &Client,
    format: Format,
    node: &str,
    (others, shards): (&[&str], &[ClusterShard]),
) -> Result<Found, CliError> {
    let databases = || shards.iter().filter(|shard| shard.shard.starts_with(DATABASES));
    let mut counts: BTreeMap<&str, usize> = others.iter().map(|node| (*node, 0)).collect();
    for owner in databases().filter_map(|shard| shard.owner.as_deref()) {
        counts.entry(owner).and_modify(|count| *count += 1);
    }
    let leaving: Vec<_> = databases().filter(|shard| shard.owner.as_deref() == Some(node)).collect();
    let mut found = Found::default();
    for (number, shard) in leaving.iter().enumerate() {
        let Some((to, count)) = counts.iter_mut().min_by_key(|(name, count)| (**count, **name)) else {
            eprintln!("{} stays for now: no other node takes databases", shard.shard);
            found.stayed += 1;
            continue;
        };
        *count += 1;
        eprintln!("{} of {}: {} goes to {to}", number + 1, leaving.len(), shard.shard);
        match carry(client, &shard.shard, to).await {
            Ok(moved) => {
                let count = if moved.stayed.is_some() { &mut found.stayed } else { &mut found.gone };
                *count += 1;
                show(format, &[moved])?;
            }
            // It moves already, was dropped, or cannot go there now: the others go, and the next look tries it again.
            Err(CliError::Refused(reason)) => {
                let count = if shard.moving_to.is_some() { &mut found.on_their_way } else { &mut found.stayed };
                *count += 1;
                eprintln!("{} stays for now: {reason}", shard.shard);
            }
            Err(error) => return Err(error),
        }
    }
    Ok(found)
}

/// Moves a database with what is open in it, or without, if something is in the way for too long: that does not keep a node from being emptied.
async fn carry(client: &Client, shard: &str, to: &str) -> Result<Move, CliError> {
    let moved = ask(client, shard, to, MoveTechnique::Albatross).await?;
    let Some(why) = &moved.stayed else { return Ok(moved) };
    eprintln!("{shard} stayed: {why}; it goes without what is open in it");
    ask(client, shard, to, MoveTechnique::FlushAndMove).await
}

/// What a drain, or its end, has come to: how many databases moved and how many stayed.
fn report(format: Format, args: &DrainArgs, notice: &str, (moved, stayed): (usize, usize)) -> Result<Exit, CliError> {
    match format {
        Format::Table => eprintln!("{notice}"),
        Format::Json => {
            output::write_json(&json!({ "node": args.node, "drained": !args.undo, "moved": moved, "stayed": stayed }))?;
        }
    }
    Ok(if stayed == 0 { Exit::Done } else { Exit::Failed })
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOTHING: Found = Found { gone: 0, stayed: 0, on_their_way: 0 };

    /// What follows from each of these looks.
    fn after(looks: &[Found]) -> Vec<Next> {
        let mut until_now = Looks::default();
        looks.iter().map(|found| until_now.after(*found)).collect()
    }

    #[test]
    fn a_node_is_empty_when_two_looks_in_a_row_find_nothing() {
        assert_eq!(after(&[NOTHING, NOTHING]), [Next::Again, Next::Empty]);
        let one = Found { gone: 1, ..NOTHING };
        // What others gave it before they heard of the drain comes between two looks.
        assert_eq!(after(&[NOTHING, one, NOTHING, NOTHING]), [Next::Again, Next::Again, Next::Again, Next::Empty]);
        let comes = Found { on_their_way: 1, ..NOTHING };
        assert_eq!(after(&[NOTHING, comes, NOTHING, comes]), [Next::Again; 4]);
    }

    #[test]
    fn what_stays_is_tried_again_and_what_is_on_its_way_waited_for_both_not_for_ever() {
        let stays = Found { stayed: 1, ..NOTHING };
        let comes = Found { on_their_way: 1, ..NOTHING };
        let tried = after(&[stays; TRIES]);
        assert_eq!(
            (tried.last(), tried.iter().filter(|next| **next == Next::Again).count()),
            (Some(&Next::GiveUp), TRIES - 1)
        );
        let waited = after(&[comes; WAITS]);
        assert_eq!(
            (waited.last(), waited.iter().filter(|next| **next == Next::Again).count()),
            (Some(&Next::GiveUp), WAITS - 1)
        );
        // Others that leave meanwhile make it no more often.
        let gone = Found { gone: 3, ..stays };
        assert_eq!(after(&[[gone; TRIES], [stays; TRIES]].concat())[TRIES - 1], Next::GiveUp);
    }

    #[test]
    fn what_is_on_its_way_to_a_node_is_counted_until_it_is_there() {
        let shard = |owner: &str, to: Option<&str>| ClusterShard {
            shard: "tenants/1".to_owned(),
            owner: Some(owner.to_owned()),
            epoch: 1,
            state: "serving".to_owned(),
            log: None,
            moving_to: to.map(str::to_owned),
        };
        let shards = [shard("n1", Some("n3")), shard("n1", Some("n2")), shard("n3", Some("n1")), shard("n3", None)];
        assert_eq!(coming(&shards, "n3"), 1);
    }
}
