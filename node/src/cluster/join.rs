//! What a node joins: `savanna node --join ..`.

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::str::FromStr;

/// What begins the address of a cluster whose records are in etcd.
const ETCD: &str = "etcd://";
/// The same, over encrypted connections.
const ETCDS: &str = "etcds://";
/// What such a cluster is called unless it is named.
const NAME: &str = "main";
/// What the keys of all clusters in etcd begin with.
const PREFIX: &str = "/savanna/";

/// What a node joins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Join {
    /// The cluster that a data directory is.
    Directory(PathBuf),
    /// A cluster whose records are in etcd.
    Etcd(EtcdPlace),
    /// The cluster of a node that runs, by its address for other nodes.
    Node(String),
}

/// Where in which etcd the records of a cluster are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EtcdPlace {
    /// Whether etcd is asked over encrypted connections.
    pub is_encrypted: bool,
    /// The members of etcd, as `HOST:PORT`.
    pub members: Vec<String>,
    /// The name of the cluster there.
    pub name: String,
}

impl EtcdPlace {
    /// What all its keys begin with.
    pub(super) fn prefix(&self) -> String {
        format!("{PREFIX}{}/", self.name)
    }
}

/// What no node can join.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "expected a data directory, HOST:PORT of a node, or etcd://HOST:PORT[,HOST:PORT..][/NAME] (etcds:// over TLS) with a name of letters, digits, `.`, `-` and `_`, came `{came}`"
)]
pub struct NoJoin {
    /// What came.
    pub came: String,
}

impl FromStr for Join {
    type Err = NoJoin;

    fn from_str(text: &str) -> Result<Self, NoJoin> {
        let no_join = || NoJoin { came: text.to_owned() };
        let is_encrypted = text.starts_with(ETCDS);
        if let Some(place) = text.strip_prefix(ETCDS).or_else(|| text.strip_prefix(ETCD)) {
            let (members, name) = place.split_once('/').unwrap_or((place, ""));
            let name = if name.is_empty() { NAME } else { name };
            let members: Vec<String> = members.split(',').map(str::to_owned).collect();
            let is_plain = |c: char| c.is_ascii_alphanumeric() || ".-_".contains(c);
            return match members.iter().all(|member| is_address(member)) && name.chars().all(is_plain) {
                true => Ok(Self::Etcd(EtcdPlace { is_encrypted, members, name: name.to_owned() })),
                false => Err(no_join()),
            };
        }
        match text {
            "" => Err(no_join()),
            text if text.contains("://") => Err(no_join()),
            text if !text.contains('/') && is_address(text) => Ok(Self::Node(text.to_owned())),
            directory => Ok(Self::Directory(PathBuf::from(directory))),
        }
    }
}

impl fmt::Display for Join {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Directory(path) => write!(f, "{}", path.display()),
            Self::Etcd(EtcdPlace { is_encrypted, members, name }) => {
                let scheme = if *is_encrypted { ETCDS } else { ETCD };
                write!(f, "{scheme}{}/{name}", members.join(","))
            }
            Self::Node(address) => f.write_str(address),
        }
    }
}

/// Whether all addresses are of this machine.
pub(super) fn is_here(addresses: &[String]) -> bool {
    addresses.iter().all(|address| {
        let host = address.rsplit_once(':').map_or(address.as_str(), |(host, _)| host);
        let host = host.trim_matches(['[', ']']);
        host == "localhost" || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
    })
}

/// Whether a text is a host and a port.
fn is_address(text: &str) -> bool {
    let host_and_port = text.rsplit_once(':');
    let is_host = |host: &str| {
        let inner = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        !inner.is_empty() && (inner.len() < host.len() || !inner.contains(':')) && !host.contains(char::is_whitespace)
    };
    host_and_port.is_some_and(|(host, port)| is_host(host) && port.parse::<u16>().is_ok_and(|port| port > 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_a_node_and_an_etcd_are_told_apart() {
        let join = |text: &str| text.parse::<Join>();
        for directory in ["/tmp/a", "a", "./a:80", "a/b:1", "a:b", "a:0", "a:65536"] {
            assert_eq!(join(directory), Ok(Join::Directory(PathBuf::from(directory))));
        }
        for node in ["n1:7400", "10.0.0.1:7400", "[::1]:7400"] {
            assert_eq!(join(node), Ok(Join::Node(node.to_owned())));
        }
        let etcd = |members: &[&str], name: &str| {
            let members = members.iter().map(|member| (*member).to_owned()).collect();
            Ok(Join::Etcd(EtcdPlace { is_encrypted: false, members, name: name.to_owned() }))
        };
        assert_eq!(join("etcd://a:2379"), etcd(&["a:2379"], "main"));
        assert_eq!(join("etcd://a:2379,b:2379/shop"), etcd(&["a:2379", "b:2379"], "shop"));
        for wrong in ["", "etcd://", "etcd://a", "etcd://a:1,", "etcd://a:1/b/c", "etcd://a:1/b c", "s3://a", "::1:80:"]
        {
            let refused = join(wrong);
            assert!(refused.is_err() || matches!(refused, Ok(Join::Directory(_)) if wrong == "::1:80:"), "{wrong}");
        }
        assert_eq!(join("etcd://a:1,b:2").unwrap().to_string(), "etcd://a:1,b:2/main");
        assert_eq!(join("etcds://a:1/shop").unwrap().to_string(), "etcds://a:1/shop");
        let is_encrypted = |text: &str| matches!(join(text), Ok(Join::Etcd(EtcdPlace { is_encrypted: true, .. })));
        assert!(is_encrypted("etcds://a:2379,b:2379/shop") && !is_encrypted("etcd://a:2379,b:2379/shop"));
        assert!(join("etcds://").is_err() && join("etcds://a").is_err());
    }
}
