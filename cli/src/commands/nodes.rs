//! `savanna nodes` and `savanna shards`: the cluster as a running node knows it.

use savanna_http::types::{ClusterNode, ClusterShard, Nodes, Shards};
use savanna_node::Config;

use crate::args::{Format, Remote, Shards as ShardsArgs};
use crate::client::Client;
use crate::error::{CliError, Exit};
use crate::output;

pub(crate) async fn nodes(config: &Config, format: Format, remote: &Remote) -> Result<Exit, CliError> {
    let client = Client::new(remote.url.as_deref(), &remote.trust, config.node())?;
    let Nodes { nodes } = client.get("nodes").await.map_err(|error| client.explain(error))?;
    match format {
        Format::Json => nodes.iter().try_for_each(output::write_json)?,
        Format::Table => {
            let rows: Vec<_> = nodes.iter().map(node_row).collect();
            output::write(output::text_table(&["node", "epoch", "address", "services", ""], &rows).as_bytes())?;
        }
    }
    Ok(Exit::Done)
}

fn node_row(node: &ClusterNode) -> Vec<String> {
    let answers = if node.is_this { "answers" } else { "" };
    let address = node.address.clone().unwrap_or_else(|| "alone".to_owned());
    vec![node.name.clone(), node.epoch.to_string(), address, node.services.join(","), answers.to_owned()]
}

pub(crate) async fn shards(config: &Config, format: Format, args: &ShardsArgs) -> Result<Exit, CliError> {
    let client = Client::new(args.remote.url.as_deref(), &args.remote.trust, config.node())?;
    let Shards { mut shards } = client.get("shards").await.map_err(|error| client.explain(error))?;
    let prefix = args.prefix.as_deref().unwrap_or_default();
    shards.retain(|shard| shard.shard.starts_with(prefix));
    match format {
        Format::Json => shards.iter().try_for_each(output::write_json)?,
        Format::Table => {
            let rows: Vec<_> = shards.iter().map(shard_row).collect();
            output::write(output::text_table(&["shard", "owner", "epoch", "state", "log"], &rows).as_bytes())?;
        }
    }
    Ok(Exit::Done)
}

fn shard_row(shard: &ClusterShard) -> Vec<String> {
    let or_none = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".to_owned());
    vec![shard.shard.clone(), or_none(&shard.owner), shard.epoch.to_string(), shard.state.clone(), or_none(&shard.log)]
}
