//! Why a node did not join a cluster.

use std::net::IpAddr;
use std::time::Duration;

use savanna_rpc::{TlsError, TlsFiles};

use super::cluster_file::ClusterFileError;
use super::cluster_record::ClusterRecordError;
use super::etcd_access::EtcdAccessError;
use super::join::Join;
use super::shared::StoreUrl;

/// Why a node did not join a cluster.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    /// The file of the cluster cannot be used.
    #[error(transparent)]
    ClusterFile(#[from] ClusterFileError),
    /// Another process keeps the directory for itself.
    #[error(
        "process {pid} serves the data directory alone; stop it (`savanna dev` has Ctrl-C), then start the nodes of the cluster"
    )]
    Kept {
        /// Its process number.
        pid: u32,
    },
    /// Another process holds the directory of this cluster, and has not said where its coordinator is.
    #[error(
        "process {pid} starts the coordinator of this cluster, and has not said within {waited:?} where it is: {reason}; wait for it, or look at its log"
    )]
    Starting {
        /// Its process number.
        pid: u32,
        /// How long it was waited for.
        waited: Duration,
        /// What came last.
        reason: String,
    },
    /// The record.
    #[error(transparent)]
    ClusterRecord(#[from] ClusterRecordError),
    /// Etcd cannot be asked as the settings say.
    #[error(transparent)]
    EtcdAccess(#[from] EtcdAccessError),
    /// Nodes on other machines would not reach this one.
    #[error(
        "expected cluster.address to be an address at which the nodes that join {join} reach this machine, came {came}, which only this machine reaches; set it to this machine's in the network"
    )]
    OnlyHere {
        /// What it joins.
        join: Join,
        /// The setting.
        came: IpAddr,
    },
    /// The cluster keeps everything in its directory.
    #[error(
        "a cluster in a data directory keeps its logs there, and not in cluster.store = {store}; join etcd (--join etcd://HOST:PORT), or leave the setting out"
    )]
    NoStoreHere {
        /// The store.
        store: StoreUrl,
    },
    /// What was joined does not answer.
    #[error(
        "{join} did not answer within {waited:?}: {reason}; look whether it runs, and at the network between{}",
        directory_hint(join)
    )]
    Silent {
        /// What was joined.
        join: Join,
        /// How long it was waited for.
        waited: Duration,
        /// What came last.
        reason: String,
    },
    /// Nobody runs the coordinator.
    #[error(
        "no coordinator was found within {waited:?}: {reason}; look at the logs of the nodes on this data directory, and start one if none runs"
    )]
    NoCoordinator {
        /// How long it was looked for.
        waited: Duration,
        /// What came last.
        reason: String,
    },
    /// The network is cut.
    #[error(
        "this node reaches {reached} of the nodes that work, itself included, and does not reach {beyond}, which show in the data directory that they work; look at the network between them"
    )]
    CutOff {
        /// How many answer, and itself.
        reached: usize,
        /// How many do not.
        beyond: usize,
    },
    /// The port for other nodes cannot be listened to.
    #[error(
        "cannot listen for other nodes on {address}: {source}; choose another port with --cluster-port, or an address of this machine with cluster.address"
    )]
    Listen {
        /// The address.
        address: String,
        /// The operating system's reason.
        source: std::io::Error,
    },
    /// The coordinator refused.
    #[error("the node could not register as {name}: {source}")]
    Register {
        /// Its name.
        name: String,
        /// Why.
        source: Box<savanna_ownership::keeper::JoinError>,
    },
    /// Connections between nodes cannot be encrypted.
    #[error(
        "connections between nodes cannot be encrypted: {source}; look at cluster.tls_cert = {}, cluster.tls_key = {} and cluster.tls_ca = {}",
        files.certificates.display(),
        files.key.display(),
        files.authorities.display()
    )]
    Tls {
        /// The files.
        files: Box<TlsFiles>,
        /// What is wrong with them.
        source: TlsError,
    },
    /// The others encrypt what they say, and this node does not, or the other way round.
    #[error(
        "expected a node that {} what it says to others, as the nodes of this cluster that live do, came one that {}; {}, or stop all nodes and start them with the same settings",
        if *is_encrypted { "does not encrypt" } else { "encrypts" },
        if *is_encrypted { "does" } else { "does not" },
        if *is_encrypted {
            "leave cluster.tls_cert, cluster.tls_key and cluster.tls_ca out"
        } else {
            "set cluster.tls_cert, cluster.tls_key and cluster.tls_ca as for those"
        }
    )]
    Encryption {
        /// Whether this node encrypts.
        is_encrypted: bool,
    },
    /// A thread could not be started.
    #[error("the threads for the cluster could not start: {0}; check the limit of threads")]
    Thread(std::io::Error),
}

/// A node of another kind of cluster does not say so to who does not know its secret.
const fn directory_hint(join: &Join) -> &'static str {
    match join {
        Join::Node(_) => {
            "; HOST:PORT is for nodes of a cluster in etcd: if that one's is in a data directory, join the directory (--join DIR), on the machine that has it"
        }
        Join::Directory(_) | Join::Etcd(_) => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_asks_a_node_in_vain_hears_how_a_cluster_in_a_directory_is_joined() {
        let told = |join: &str| {
            let (join, waited) = (join.parse().unwrap(), Duration::from_secs(15));
            JoinError::Silent { join, waited, reason: "refused".to_owned() }.to_string()
        };
        assert!(told("127.0.0.1:7400").contains("join the directory (--join DIR)"), "{}", told("127.0.0.1:7400"));
        assert!(!told("etcd://127.0.0.1:2379").contains("directory"));
    }
}
