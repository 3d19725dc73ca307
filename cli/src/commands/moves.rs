//! `savanna move`, `savanna moves` and `savanna drain`: databases go from node to node.

use std::collections::BTreeMap;

use savanna_http::types::{Move, MoveTechnique, Moves, NewMove, Nodes, Shards};
use savanna_node::Config;
use serde_json::json;

use crate::args::{DrainArgs, Format, MoveArgs, Remote};
use crate::client::Client;
use crate::error::{CliError, Exit};
use crate::output;

pub(crate) async fn one(config: &Config, format: Format, args: &MoveArgs) -> Result<Exit, CliError> {
    let client = Client::new(args.remote.url.as_deref(), &args.remote.trust, config.node())?;
    let technique = if args.stop_and_copy { MoveTechnique::StopAndCopy } else { MoveTechnique::FlushAndMove };
    let moved = ask(&client, &args.shard, &args.to, technique).await?;
    show(format, std::slice::from_ref(&moved))?;
    Ok(exit(&moved))
}

pub(crate) async fn list(config: &Config, format: Format, remote: &Remote) -> Result<Exit, CliError> {
    let client = Client::new(remote.url.as_deref(), &remote.trust, config.node())?;
    let Moves { moves } = client.get("moves").await.map_err(|error| client.explain(error))?;
    show(format, &moves)?;
    Ok(Exit::Done)
}

/// Moves all databases away from a node, each to the node that has fewest by then.
pub(crate) async fn drain(config: &Config, format: Format, args: &DrainArgs) -> Result<Exit, CliError> {
    let client = Client::new(args.remote.url.as_deref(), &args.remote.trust, config.node())?;
    let Nodes { nodes } = client.get("nodes").await.map_err(|error| client.explain(error))?;
    let Shards { shards } = client.get("shards").await.map_err(|error| client.explain(error))?;
    if !nodes.iter().any(|node| node.name == args.node) {
        let names: Vec<_> = nodes.iter().map(|node| node.name.as_str()).collect();
        return Err(CliError::Usage(format!("expected one of the nodes {}, came {}", names.join(", "), args.node)));
    }
    let databases = || shards.iter().filter(|shard| shard.shard.starts_with("tenants/"));
    let others =
        nodes.iter().filter(|node| node.name != args.node && node.services.iter().any(|name| name == "tenants"));
    let mut counts: BTreeMap<&str, usize> = others.map(|node| (node.name.as_str(), 0)).collect();
    for owner in databases().filter_map(|shard| shard.owner.as_deref()) {
        counts.entry(owner).and_modify(|count| *count += 1);
    }
    let leaving: Vec<_> = databases().filter(|shard| shard.owner.as_ref() == Some(&args.node)).collect();
    let mut stayed = 0;
    for (number, shard) in leaving.iter().enumerate() {
        let Some((to, count)) = counts.iter_mut().min_by_key(|(name, count)| (**count, **name)) else {
            return Err(CliError::Usage(format!("no other node than {} serves databases: start one", args.node)));
        };
        *count += 1;
        eprintln!("{} of {}: {} goes to {to}", number + 1, leaving.len(), shard.shard);
        let moved = ask(&client, &shard.shard, to, MoveTechnique::FlushAndMove).await?;
        stayed += usize::from(moved.stayed.is_some());
        show(format, &[moved])?;
    }
    let kept: Vec<_> = shards
        .iter()
        .filter(|shard| shard.owner.as_ref() == Some(&args.node) && !shard.shard.starts_with("tenants/"))
        .map(|shard| shard.shard.as_str())
        .collect();
    if !kept.is_empty() {
        eprintln!("the shards {} stay there until the node ends; another one takes them over then", kept.join(", "));
    }
    if format == Format::Json {
        output::write_json(&json!({ "node": args.node, "moved": leaving.len() - stayed, "stayed": stayed }))?;
    }
    Ok(if stayed == 0 { Exit::Done } else { Exit::Failed })
}

async fn ask(client: &Client, shard: &str, to: &str, technique: MoveTechnique) -> Result<Move, CliError> {
    let body = NewMove { shard: shard.to_owned(), to: to.to_owned(), technique: Some(technique) };
    client.post_long("moves", &body).await.map_err(|error| client.explain(error))
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
    };
    let millis = |millis: f64| format!("{millis:.1} ms");
    let outcome = moved.stayed.as_ref().map_or_else(|| "moved".to_owned(), |why| format!("stayed: {why}"));
    let database = moved.database.clone().unwrap_or_else(|| "-".to_owned());
    let parts = [&moved.shard, &database, &moved.from, &moved.to].map(Clone::clone);
    parts.into_iter().chain([technique.to_owned(), millis(moved.window_ms), millis(moved.took_ms), outcome]).collect()
}
