//! `savanna nodes` and `savanna shards`: the cluster as a running node knows it.

use savanna_http::types::{ClusterNode, ClusterShard, NodeLoad, Nodes, Shards};
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
            output::write(output::text_table(&NODE_COLUMNS, &rows).as_bytes())?;
        }
    }
    Ok(Exit::Done)
}

const NODE_COLUMNS: [&str; 9] =
    ["node", "epoch", "address", "services", "cpu", "transactions/s", "log KiB/s", "rows MiB", ""];

fn node_row(node: &ClusterNode) -> Vec<String> {
    let notes = [(node.is_this, "answers"), (node.is_drained, "drained")];
    let notes: Vec<_> = notes.into_iter().filter_map(|(is_so, note)| is_so.then_some(note)).collect();
    let address = node.address.clone().unwrap_or_else(|| "alone".to_owned());
    let mut row = vec![node.name.clone(), node.epoch.to_string(), address, node.services.join(",")];
    row.extend(load_columns(node.load));
    row.push(notes.join(", "));
    row
}

/// What a node does: of a core in percent, and whole numbers.
fn load_columns(load: Option<NodeLoad>) -> [String; 4] {
    load.map_or_else(
        || ["-"; 4].map(str::to_owned),
        |load| {
            let cpu = format!("{}%", load.cpu_micros / 10_000);
            let numbers =
                [load.transactions, load.log_bytes >> 10, load.memory_bytes >> 20].map(|number| number.to_string());
            let [transactions, log, rows] = numbers;
            [cpu, transactions, log, rows]
        },
    )
}

pub(crate) async fn shards(config: &Config, format: Format, args: &ShardsArgs) -> Result<Exit, CliError> {
    let client = Client::new(args.remote.url.as_deref(), &args.remote.trust, config.node())?;
    let Shards { mut shards } = client.get("shards").await.map_err(|error| client.explain(error))?;
    let prefix = args.prefix.as_deref().unwrap_or_default();
    shards.retain(|shard| shard.shard.starts_with(prefix));
    match format {
        Format::Json => shards.iter().try_for_each(output::write_json)?,
        Format::Table => {
            let shards = if prefix.starts_with(VIRTUAL_NODES) { shards } else { with_virtual_nodes_together(shards) };
            let rows: Vec<_> = shards.iter().map(shard_row).collect();
            output::write(output::text_table(&["shard", "owner", "epoch", "state", "log"], &rows).as_bytes())?;
        }
    }
    Ok(Exit::Done)
}

/// What the shards of virtual nodes of keys begin with. There are 1,024 of them.
pub(super) const VIRTUAL_NODES: &str = "keys/v/";

/// The same shards, with one for all virtual nodes of keys of which the same is to be said.
fn with_virtual_nodes_together(shards: Vec<ClusterShard>) -> Vec<ClusterShard> {
    let mut together: Vec<(ClusterShard, usize)> = Vec::new();
    for shard in shards {
        let is_alike = |(known, _): &&mut (ClusterShard, usize)| {
            let [known, other] = [known, &shard].map(|it| (&it.owner, it.epoch, &it.state, &it.log, &it.moving_to));
            known == other
        };
        let mut alike = together.iter_mut().filter(|(known, _)| known.shard.starts_with(VIRTUAL_NODES));
        match alike.find(is_alike).filter(|_| shard.shard.starts_with(VIRTUAL_NODES)) {
            Some((_, count)) => *count += 1,
            None => together.push((shard, 1)),
        }
    }
    let named = |(mut shard, count): (ClusterShard, usize)| {
        if count > 1 {
            shard.shard = format!("{VIRTUAL_NODES}.. ({count})");
        }
        shard
    };
    together.into_iter().map(named).collect()
}

fn shard_row(shard: &ClusterShard) -> Vec<String> {
    let or_none = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".to_owned());
    let state =
        shard.moving_to.as_ref().map_or_else(|| shard.state.clone(), |to| format!("{}, moves to {to}", shard.state));
    vec![shard.shard.clone(), or_none(&shard.owner), shard.epoch.to_string(), state, or_none(&shard.log)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn virtual_nodes_of_which_the_same_is_to_be_said_are_one_row() {
        let shard = |name: &str, owner: &str, state: &str| ClusterShard {
            shard: name.to_owned(),
            owner: Some(owner.to_owned()),
            epoch: 1,
            state: state.to_owned(),
            log: None,
            moving_to: None,
        };
        let shards = vec![
            shard("keys", "n1", "serving"),
            shard("keys/v/0", "n1", "serving"),
            shard("keys/v/1", "n2", "serving"),
            shard("keys/v/10", "n1", "serving"),
            shard("keys/v/100", "n1", "starting"),
            shard("tenants", "n1", "serving"),
        ];
        let shown: Vec<_> =
            with_virtual_nodes_together(shards).iter().map(|shard| shard_row(shard).join(" ")).collect();
        assert_eq!(
            shown,
            [
                "keys n1 1 serving -",
                "keys/v/.. (2) n1 1 serving -",
                "keys/v/1 n2 1 serving -",
                "keys/v/100 n1 1 starting -",
                "tenants n1 1 serving -"
            ]
        );
    }
}
