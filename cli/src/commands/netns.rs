//! `savanna dev --netns`: a network namespace for each node, so that what one hears of another can be cut and slowed down.
//!
//! ```text
//!   bridge svPID ──┬── svPIDn1 ══ eth0 of namespace svPID-n1, 10.213.7.1
//!                  ├── svPIDn2 ══ eth0 of namespace svPID-n2, 10.213.7.2
//! ```
//!
//! `ip link set svPIDn1 down` cuts a node off, `tc qdisc add dev svPIDn1 root netem delay 100ms loss 5%` makes a bad network of it. Everything
//! is removed when the nodes have stopped.

use std::process::Output;

use tokio::process::Command;

use crate::error::CliError;

/// A bridge, and a namespace for each node with a link to it, until it is removed.
#[derive(Debug)]
pub(crate) struct Network {
    tag: String,
    nodes: Vec<String>,
}

/// A node's place in a network.
#[derive(Clone, Debug)]
pub(crate) struct Namespace {
    /// The namespace.
    pub(crate) name: String,
    /// Its address there.
    pub(crate) address: String,
}

impl Network {
    /// Makes the network of these nodes.
    ///
    /// # Errors
    /// What a command said that makes a part of it. Nothing of it is left then.
    pub(crate) async fn make(nodes: Vec<String>) -> Result<Self, CliError> {
        let network = Self { tag: format!("sv{}", std::process::id() % 100_000), nodes };
        let made = network.make_all().await;
        if made.is_err() {
            network.remove().await;
        }
        made.map(|()| network)
    }

    /// Where a node is.
    pub(crate) fn of(&self, node: &str) -> Option<Namespace> {
        let number = self.nodes.iter().position(|known| known == node)? + 1;
        Some(Namespace { name: self.namespace(node), address: format!("10.213.7.{number}") })
    }

    async fn make_all(&self) -> Result<(), CliError> {
        let bridge = self.tag.as_str();
        ip(&format!("link add {bridge} type bridge")).await?;
        ip(&format!("link set {bridge} up")).await?;
        for node in &self.nodes {
            let Some(Namespace { name, address }) = self.of(node) else { continue };
            let link = format!("{bridge}{node}");
            ip(&format!("netns add {name}")).await?;
            ip(&format!("link add {link} type veth peer name eth0 netns {name}")).await?;
            ip(&format!("link set {link} master {bridge}")).await?;
            ip(&format!("link set {link} up")).await?;
            ip(&format!("-n {name} addr add {address}/24 dev eth0")).await?;
            ip(&format!("-n {name} link set eth0 up")).await?;
            ip(&format!("-n {name} link set lo up")).await?;
        }
        Ok(())
    }

    /// Removes all of it, as far as it is there.
    pub(crate) async fn remove(&self) {
        for node in &self.nodes {
            let _ = ip(&format!("netns del {}", self.namespace(node))).await;
        }
        if let Err(error) = ip(&format!("link del {}", self.tag)).await {
            tracing::debug!(%error, "the network of the nodes is not removed");
        }
    }

    fn namespace(&self, node: &str) -> String {
        format!("{}-{node}", self.tag)
    }
}

/// Runs `ip`.
async fn ip(words: &str) -> Result<(), CliError> {
    let failed = |reason: String| {
        let hint = "--netns needs root, and the command `ip` (iproute2)";
        CliError::NotStarted(format!("`ip {words}` failed: {reason}; {hint}"))
    };
    let done = Command::new("ip").args(words.split(' ')).output().await;
    let Output { status, stderr, .. } = done.map_err(|error| failed(error.to_string()))?;
    let reason = String::from_utf8_lossy(&stderr);
    if status.success() { Ok(()) } else { Err(failed(reason.trim().to_owned())) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_node_has_an_address_of_its_own_and_names_that_fit() {
        let nodes: Vec<String> = (1..=64).map(|number| format!("n{number}")).collect();
        let network = Network { tag: "sv99999".to_owned(), nodes };
        let places: Vec<_> = network.nodes.iter().map(|node| network.of(node).unwrap()).collect();
        assert_eq!((places[0].name.as_str(), places[0].address.as_str()), ("sv99999-n1", "10.213.7.1"));
        assert_eq!(places[63].address, "10.213.7.64");
        assert!(
            network.nodes.iter().all(|node| format!("{}{node}", network.tag).len() <= 15),
            "longer names are none of a link"
        );
        assert!(network.of("n65").is_none());
    }
}
