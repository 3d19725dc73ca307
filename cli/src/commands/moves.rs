//! `savanna move`, `savanna moves` and `savanna drain`: databases go from node to node.

use std::collections::BTreeMap;
use std::time::Duration;

use savanna_http::types::{
    ClusterNode, ClusterShard, Decision, Decisions, Move, MoveTechnique, Moves, NewMove, Nodes, Shards,
};
use savanna_node::Config;
use serde_json::json;

use crate::args::{DrainArgs, Format, MoveArgs, MovesArgs, Technique};
use crate::client::{Client, path_part};
use crate::error::{CliError, Exit};
use crate::output;

/// How often a drain looks for databases, at most.
const DRAIN_LOOKS: usize = 6;
/// Between two of them.
const DRAIN_PAUSE: Duration = Duration::from_secs(1);

pub(crate) async fn one(config: &Config, format: Format, args: &MoveArgs) -> Result<Exit, CliError> {
    let client = Client::new(args.remote.url.as_deref(), &args.remote.trust, config.node())?;
    let moved = ask(&client, &args.shard, &args.to, args.technique.into()).await?;
    show(format, std::slice::from_ref(&moved))?;
    Ok(exit(&moved))
}

pub(crate) async fn list(config: &Config, format: Format, args: &MovesArgs) -> Result<Exit, CliError> {
    let client = Client::new(args.remote.url.as_deref(), &args.remote.trust, config.node())?;
    if args.explain {
        return explain(&client, format).await;
    }
    let Moves { moves } = client.get("moves").await.map_err(|error| client.explain(error))?;
    show(format, &moves)?;
    Ok(Exit::Done)
}

/// Why databases have moved by themselves, or stay.
async fn explain(client: &Client, format: Format) -> Result<Exit, CliError> {
    let told: Decisions = client.get("moves/decisions").await.map_err(|error| client.explain(error))?;
    match format {
        Format::Json => told.decisions.iter().try_for_each(output::write_json)?,
        Format::Table => {
            let rows: Vec<_> = told.decisions.iter().map(decision_row).collect();
            let titles = ["by", "shard", "database", "from", "to", "what came of it", "why"];
            output::write(output::text_table(&titles, &rows).as_bytes())?;
        }
    }
    if !told.is_on {
        eprintln!("cluster.balance is off at the node that was asked: it moves no database by itself");
    }
    Ok(Exit::Done)
}

fn decision_row(decision: &Decision) -> Vec<String> {
    let or_none = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".to_owned());
    let outcome = match (&decision.shard, &decision.outcome) {
        (None, _) => "all stays".to_owned(),
        (Some(_), None) => "it moves".to_owned(),
        (Some(_), Some(outcome)) => outcome.clone(),
    };
    let Decision { by, shard, database, from, to, why, .. } = decision;
    vec![by.clone(), or_none(shard), or_none(database), or_none(from), or_none(to), outcome, why.clone()]
}

/// The node gets nothing new, and all its databases go, each to the node that has fewest by then.
pub(crate) async fn drain(config: &Config, format: Format, args: &DrainArgs) -> Result<Exit, CliError> {
    let client = Client::new(args.remote.url.as_deref(), &args.remote.trust, config.node())?;
    let Nodes { nodes } = client.get("nodes").await.map_err(|error| client.explain(error))?;
    if !nodes.iter().any(|node| node.name == args.node) {
        let names: Vec<_> = nodes.iter().map(|node| node.name.as_str()).collect();
        return Err(CliError::Usage(format!("expected one of the nodes {}, came {}", names.join(", "), args.node)));
    }
    let path = format!("nodes/{}/drain", path_part(&args.node));
    if args.undo {
        client.delete(&path).await.map_err(|error| client.explain(error))?;
        return report(format, args, "the node gets databases again", None);
    }
    let others: Vec<_> = nodes.iter().filter(|node| node.name != args.node && takes_databases(node)).collect();
    if others.is_empty() {
        let node = &args.node;
        return Err(CliError::Usage(format!(
            "no other node than {node} takes databases: start one, or undo the drain of another"
        )));
    }
    client.put(&path).await.map_err(|error| client.explain(error))?;
    let (mut moved, mut stayed) = (0, 0);
    // One that was made, or on its way, before all nodes heard of the drain comes late.
    let mut quiet = 0;
    for look in 0..DRAIN_LOOKS {
        if look > 0 {
            tokio::time::sleep(DRAIN_PAUSE).await;
        }
        let Shards { shards } = client.get("shards").await.map_err(|error| client.explain(error))?;
        let (gone, left) = move_away(&client, format, &args.node, &others, &shards).await?;
        (moved, stayed) = (moved + gone, left);
        quiet = if gone + left == 0 { quiet + 1 } else { 0 };
        if quiet == 2 {
            break;
        }
    }
    let Shards { shards } = client.get("shards").await.map_err(|error| client.explain(error))?;
    let kept: Vec<_> = shards
        .iter()
        .filter(|shard| shard.owner.as_ref() == Some(&args.node) && !shard.shard.starts_with("tenants/"))
        .map(|shard| shard.shard.as_str())
        .collect();
    if !kept.is_empty() {
        eprintln!("the shards {} stay there until the node ends; another one takes them over then", kept.join(", "));
    }
    let notice = format!("the node gets nothing new until it starts again, or `savanna drain {} --undo`", args.node);
    report(format, args, &notice, Some((moved, stayed)))
}

fn takes_databases(node: &ClusterNode) -> bool {
    !node.is_drained && node.services.iter().any(|name| name == "tenants")
}

/// Moves the databases of a node to others, each to the one that has fewest by then. How many went, and how many stayed.
async fn move_away(
    client: &Client,
    format: Format,
    node: &str,
    others: &[&ClusterNode],
    shards: &[ClusterShard],
) -> Result<(usize, usize), CliError> {
    let databases = || shards.iter().filter(|shard| shard.shard.starts_with("tenants/"));
    let mut counts: BTreeMap<&str, usize> = others.iter().map(|node| (node.name.as_str(), 0)).collect();
    for owner in databases().filter_map(|shard| shard.owner.as_deref()) {
        counts.entry(owner).and_modify(|count| *count += 1);
    }
    let leaving: Vec<_> = databases().filter(|shard| shard.owner.as_deref() == Some(node)).collect();
    let mut stayed = 0;
    for (number, shard) in leaving.iter().enumerate() {
        let Some((to, count)) = counts.iter_mut().min_by_key(|(name, count)| (**count, **name)) else { break };
        *count += 1;
        eprintln!("{} of {}: {} goes to {to}", number + 1, leaving.len(), shard.shard);
        match carry(client, &shard.shard, to).await {
            Ok(moved) => {
                stayed += usize::from(moved.stayed.is_some());
                show(format, &[moved])?;
            }
            // It moves already, was dropped, or cannot go there now: the others go, and the next look tries it again.
            Err(CliError::Refused(reason)) => {
                stayed += 1;
                eprintln!("{} stays for now: {reason}", shard.shard);
            }
            Err(error) => return Err(error),
        }
    }
    Ok((leaving.len() - stayed, stayed))
}

/// Moves a database with what is open in it, or without, if something is in the way for too long: that does not keep a node from being emptied.
async fn carry(client: &Client, shard: &str, to: &str) -> Result<Move, CliError> {
    let moved = ask(client, shard, to, MoveTechnique::Albatross).await?;
    let Some(why) = &moved.stayed else { return Ok(moved) };
    eprintln!("{shard} stayed: {why}; it goes without what is open in it");
    ask(client, shard, to, MoveTechnique::FlushAndMove).await
}

/// What a drain, or its end, has come to: how many databases moved and how many stayed.
fn report(format: Format, args: &DrainArgs, notice: &str, databases: Option<(usize, usize)>) -> Result<Exit, CliError> {
    let (moved, stayed) = databases.unwrap_or_default();
    match format {
        Format::Table => eprintln!("{notice}"),
        Format::Json => {
            output::write_json(&json!({ "node": args.node, "drained": !args.undo, "moved": moved, "stayed": stayed }))?;
        }
    }
    Ok(if stayed == 0 { Exit::Done } else { Exit::Failed })
}

async fn ask(client: &Client, shard: &str, to: &str, technique: MoveTechnique) -> Result<Move, CliError> {
    let body = NewMove { shard: shard.to_owned(), to: to.to_owned(), technique: Some(technique) };
    client.post_long("moves", &body).await.map_err(|error| client.explain(error))
}

impl From<Technique> for MoveTechnique {
    fn from(technique: Technique) -> Self {
        match technique {
            Technique::Albatross => Self::Albatross,
            Technique::FlushAndMove => Self::FlushAndMove,
            Technique::StopAndCopy => Self::StopAndCopy,
        }
    }
}

fn exit(moved: &Move) -> Exit {
    if moved.stayed.is_none() { Exit::Done } else { Exit::Failed }
}

fn show(format: Format, moves: &[Move]) -> Result<(), CliError> {
    match format {
        Format::Json => moves.iter().try_for_each(output::write_json),
        Format::Table => {
            let rows: Vec<_> = moves.iter().map(row).collect();
            let titles = ["shard", "database", "from", "to", "technique", "window", "took", "what came of it"];
            output::write(output::text_table(&titles, &rows).as_bytes())
        }
    }
}

fn row(moved: &Move) -> Vec<String> {
    let technique = match moved.technique {
        MoveTechnique::StopAndCopy => "stop-and-copy",
        MoveTechnique::FlushAndMove => "flush-and-move",
        MoveTechnique::Albatross => "albatross",
    };
    let millis = |millis: f64| format!("{millis:.1} ms");
    let outcome = moved.stayed.as_ref().map_or_else(|| "moved".to_owned(), |why| format!("stayed: {why}"));
    let database = moved.database.clone().unwrap_or_else(|| "-".to_owned());
    let parts = [&moved.shard, &database, &moved.from, &moved.to].map(Clone::clone);
    parts.into_iter().chain([technique.to_owned(), millis(moved.window_ms), millis(moved.took_ms), outcome]).collect()
}
