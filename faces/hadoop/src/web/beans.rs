//! What monitors read at `/jmx`: beans of Hadoop's name node, as far as there is something to say.

use std::time::{SystemTime, UNIX_EPOCH};

use hyper::Method;
use savanna_files_host::blocks::Liveness;
use savanna_files_host::{Class, FilesError, Statistics, Stats};
use serde_json::{Map, Value, json};

use super::answer::{self, Answered, Refusal};
use super::parameters::Parameters;
use super::{Web, statistics};
use crate::protocol::namenode::{BUILD, SOFTWARE};
use crate::protocol::{Peer, replies};
use crate::wire::hdfs::Node;

/// The name of a bean begins so.
const NAME_NODE: &str = "Hadoop:service=NameNode,name=";

/// A bean: its name, its type and its attributes.
type Bean = (String, &'static str, Map<String, Value>);

impl Web {
    /// Answers a request at `/jmx`.
    pub(super) async fn beans(&self, method: &Method, query: &str) -> Answered {
        if *method != Method::GET {
            return Err(FilesError::new(Class::Unsupported, format!("Expected GET of /jmx, came {method}")).into());
        }
        let parameters = Parameters::parse(query)?;
        let (pattern, attribute) = match parameters.text("get").map(|get| get.split_once("::").ok_or(get)) {
            Some(Ok((bean, attribute))) => (bean, Some(attribute)),
            Some(Err(came)) => {
                let words = format!("Expected a bean and an attribute with :: between them, came {came:?}");
                return Err(FilesError::new(Class::IllegalArgument, words).into());
            }
            None => (parameters.text("qry").unwrap_or("*:*"), None),
        };
        let pattern = Pattern::parse(pattern)?;
        let beans = self.all_beans().await?.into_iter().filter(|(name, _, _)| pattern.fits(name));
        let shown: Vec<Value> = beans
            .map(|(name, kind, attributes)| {
                let mut bean =
                    Map::from_iter([("name".to_owned(), json!(name)), ("modelerType".to_owned(), json!(kind))]);
                bean.extend(attributes.into_iter().filter(|(name, _)| attribute.is_none_or(|wanted| wanted == name)));
                Value::Object(bean)
            })
            .collect();
        Ok(answer::json(&json!({ "beans": shown })))
    }

    /// All beans.
    async fn all_beans(&self) -> Result<Vec<Bean>, Refusal> {
        let files = &self.service.files;
        let identity = files.identity();
        let peer =
            Peer { user: String::new(), machine: String::new(), reached: self.address.ip(), by: "jmx", connection: 0 };
        let Statistics { stats, inodes, blocks, leases, changes, is_safe } = statistics(&self.service, &peer).await?;
        let Stats { missing, missing_of_one, corrupt, low, leaving, excess, sending, to_send, failed_disks, .. } =
            stats;
        let [live_nodes, stale, dead] = stats.nodes;
        let space = stats.all();
        // As Hadoop counts, with the root.
        let inodes = inodes.saturating_add(1);
        let percent = |part: u64| if space.capacity == 0 { 0.0 } else { part as f64 * 100.0 / space.capacity as f64 };
        let other = space.capacity.saturating_sub(space.used).saturating_sub(space.remaining);
        let mut live = Map::new();
        let mut gone = Map::new();
        let own = self.service.node(&peer);
        let own = Node {
            pool_used: own.used,
            blocks: u32::try_from(blocks).ok(),
            software: Some(SOFTWARE.to_owned()),
            ..own
        };
        live.insert(format!("{}:{}", own.id.host, own.id.transfer_port), live_node(&own, 0));
        for shown in files.nodes() {
            let (node, silent) = (replies::node(&shown), shown.silent / 1_000);
            let name = format!("{}:{}", node.id.host, node.id.transfer_port);
            if shown.liveness == Liveness::Dead {
                let address = format!("{}:{}", node.id.address, node.id.transfer_port);
                gone.insert(name, json!({ "lastContact": silent, "decommissioned": false, "xferaddr": address }));
            } else {
                live.insert(name, live_node(&node, silent));
            }
        }
        let of = |name: &str, kind, attributes: Value| match attributes {
            Value::Object(attributes) => (format!("{NAME_NODE}{name}"), kind, attributes),
            _ => (format!("{NAME_NODE}{name}"), kind, Map::new()),
        };
        Ok(vec![
            of(
                "FSNamesystem",
                "FSNamesystem",
                json!({
                    "tag.Context": "dfs",
                    "tag.HAState": "active",
                    "tag.TotalSyncTimes": "",
                    "MissingBlocks": missing,
                    "MissingReplOneBlocks": missing_of_one,
                    "CorruptBlocks": corrupt,
                    "UnderReplicatedBlocks": low,
                    "LowRedundancyBlocks": low,
                    "PendingReplicationBlocks": sending,
                    "PendingDeletionBlocks": leaving,
                    "ScheduledReplicationBlocks": to_send,
                    "ExcessBlocks": excess,
                    "ExpiredHeartbeats": 0,
                    "LastWrittenTransactionId": changes,
                    "CapacityTotal": space.capacity,
                    "CapacityUsed": space.used,
                    "CapacityRemaining": space.remaining,
                    "CapacityUsedNonDFS": other,
                    "TotalLoad": leases,
                    "BlocksTotal": blocks,
                    "FilesTotal": inodes,
                    "NumActiveClients": leases,
                    "NumLiveDataNodes": live_nodes,
                    "NumDeadDataNodes": dead,
                    "StaleDataNodes": stale,
                }),
            ),
            of(
                "FSNamesystemState",
                "org.apache.hadoop.hdfs.server.namenode.FSNamesystem",
                json!({
                    "CapacityTotal": space.capacity,
                    "CapacityUsed": space.used,
                    "CapacityRemaining": space.remaining,
                    "TotalLoad": leases,
                    "BlocksTotal": blocks,
                    "FilesTotal": inodes,
                    "FSState": if is_safe { "safeMode" } else { "Operational" },
                    "UnderReplicatedBlocks": low,
                    "ScheduledReplicationBlocks": to_send,
                    "PendingReplicationBlocks": sending,
                    "PendingDeletionBlocks": leaving,
                    "NumLiveDataNodes": live_nodes,
                    "NumDeadDataNodes": dead,
                    "NumDecomLiveDataNodes": 0,
                    "NumDecomDeadDataNodes": 0,
                    "NumDecommissioningDataNodes": 0,
                    "NumStaleDataNodes": stale,
                    "NumStaleStorages": 0,
                    "VolumeFailuresTotal": failed_disks,
                    "EstimatedCapacityLostTotal": 0,
                    "MaxObjects": 0,
                }),
            ),
            of(
                "NameNodeInfo",
                "org.apache.hadoop.hdfs.server.namenode.FSNamesystem",
                json!({
                    "Version": format!("{SOFTWARE}, {BUILD}"),
                    "SoftwareVersion": SOFTWARE,
                    "ClusterId": identity.cluster,
                    "BlockPoolId": identity.pool,
                    "Total": space.capacity,
                    "Used": space.used,
                    "Free": space.remaining,
                    "NonDfsUsedSpace": other,
                    "PercentUsed": percent(space.used),
                    "PercentRemaining": percent(space.remaining),
                    "BlockPoolUsedSpace": space.used,
                    "PercentBlockPoolUsed": percent(space.used),
                    "CacheCapacity": 0,
                    "CacheUsed": 0,
                    "TotalBlocks": blocks,
                    "TotalFiles": inodes,
                    "NumberOfMissingBlocks": missing,
                    "NumberOfMissingBlocksWithReplicationFactorOne": missing_of_one,
                    "Safemode": if is_safe { "Safe mode is ON." } else { "" },
                    "UpgradeFinalized": true,
                    "DistinctVersionCount": 1,
                    "LiveNodes": Value::Object(live).to_string(),
                    "DeadNodes": Value::Object(gone).to_string(),
                    "DecomNodes": "{}",
                    "EnteringMaintenanceNodes": "{}",
                    "NNStartedTimeInMillis": millis(self.begun),
                }),
            ),
            of(
                "NameNodeStatus",
                "org.apache.hadoop.hdfs.server.namenode.NameNode",
                json!({
                    "NNRole": "NameNode",
                    "State": "active",
                    "HostAndPort": std::net::SocketAddr::new(self.address.ip(), self.service.ipc_port).to_string(),
                    "SecurityEnabled": false,
                    "LastHATransitionTime": 0,
                    "BytesWithFutureGenerationStamps": 0,
                }),
            ),
        ])
    }
}

fn millis(at: SystemTime) -> u64 {
    u64::try_from(at.duration_since(UNIX_EPOCH).unwrap_or_default().as_millis()).unwrap_or(u64::MAX)
}

/// Which beans are asked for: a domain, and properties that are in any order; `*` stands for anything.
#[derive(Debug, PartialEq, Eq)]
struct Pattern<'a> {
    domain: &'a str,
    properties: Vec<(&'a str, &'a str)>,
    has_others: bool,
}

impl<'a> Pattern<'a> {
    fn parse(text: &'a str) -> Result<Self, FilesError> {
        let malformed = || {
            let words =
                format!("Expected the name of a bean, such as {NAME_NODE}FSNamesystem or Hadoop:*, came {text:?}");
            FilesError::new(Class::IllegalArgument, words)
        };
        let (domain, rest) = text.split_once(':').ok_or_else(malformed)?;
        let (mut properties, mut has_others) = (Vec::new(), false);
        for property in rest.split(',') {
            match property.split_once('=') {
                Some(property) => properties.push(property),
                None if property == "*" => has_others = true,
                None => return Err(malformed()),
            }
        }
        Ok(Self { domain, properties, has_others })
    }

    fn fits(&self, name: &str) -> bool {
        let is_same = |pattern: &str, text: &str| pattern == "*" || pattern == text;
        let Some((domain, rest)) = name.split_once(':') else { return false };
        let has: Vec<(&str, &str)> = rest.split(',').filter_map(|property| property.split_once('=')).collect();
        let is_there = |(key, value): &(&str, &str)| has.iter().any(|(name, text)| name == key && is_same(value, text));
        let domain = is_same(self.domain, domain);
        domain && self.properties.iter().all(is_there) && (self.has_others || has.len() == self.properties.len())
    }
}

/// A data node that is there, as `NameNodeInfo` shows it.
fn live_node(node: &Node, silent: u64) -> Value {
    let [capacity, used, remaining, pool_used] =
        [node.capacity, node.used, node.remaining, node.pool_used].map(Option::unwrap_or_default);
    let percent = if capacity == 0 { 0.0 } else { pool_used as f64 * 100.0 / capacity as f64 };
    json!({
        "infoAddr": format!("{}:{}", node.id.address, node.id.info_port),
        "xferaddr": format!("{}:{}", node.id.address, node.id.transfer_port),
        "lastContact": silent,
        "usedSpace": used,
        "adminState": "In Service",
        "nonDfsUsedSpace": capacity.saturating_sub(used).saturating_sub(remaining),
        "capacity": capacity,
        "numBlocks": node.blocks,
        "version": node.software,
        "used": used,
        "remaining": remaining,
        "blockScheduled": 0,
        "blockPoolUsed": pool_used,
        "blockPoolUsedPercent": percent,
        "volfails": 0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn beans_are_found_by_patterns() {
        let name = format!("{NAME_NODE}FSNamesystem");
        let fits = |pattern: &str| Pattern::parse(pattern).unwrap().fits(&name);
        for pattern in [
            &*name,
            "*:*",
            "Hadoop:*",
            "Hadoop:name=FSNamesystem,service=NameNode",
            "Hadoop:service=NameNode,*",
            "Hadoop:service=NameNode,name=*",
        ] {
            assert!(fits(pattern), "{pattern}");
        }
        for pattern in [
            "java.lang:*",
            "Hadoop:service=NameNode",
            "Hadoop:service=DataNode,*",
            "Hadoop:service=NameNode,name=FSNamesystemState",
        ] {
            assert!(!fits(pattern), "{pattern}");
        }
        for pattern in ["", "Hadoop", "Hadoop:", "Hadoop:service"] {
            assert!(Pattern::parse(pattern).is_err(), "{pattern}");
        }
    }
}
