//! Who may talk: the greeting of two nodes of one cluster.
//!
//! ```text
//!  client                                              server
//!    | hello: from, to, cluster, protocols, nonce a       |
//!    +--------------------------------------------------->| the same cluster, a protocol that both speak, meant for this node?
//!    |        hello: .., nonce b, proof of (a, b)         |
//!    |<---------------------------------------------------+
//!    | the server knows the secret?  proof of (b, a)      |
//!    +--------------------------------------------------->| the client knows it? only then is a request of it read
//! ```
//!
//! A proof is HMAC-SHA256 under the cluster's secret over both nonces, both names, the protocols of both and who proves it, so that none fits
//! another connection or the other side, and nobody between the two makes them take an older protocol. Before the proof a server says nothing
//! but its own hello: a stranger is not told why it is refused. Where there is no secret, there are no proofs, and a server without certificates listens on the loopback
//! only. The greeting says who talks; it does not encrypt what is said, nor protect it from somebody between the two: that does [`MutualTls`], inside which it goes on.

use std::{fmt, ops::RangeInclusive, sync::Arc};

use hmac::{Hmac, KeyInit, Mac};
use savanna_epoch::NodeId;
use serde::{Deserialize, Serialize};
use sha2::Sha256;

use crate::{Frame, Message, MutualTls, RequestId};

/// The protocols between nodes that this build speaks.
pub const PROTOCOLS: RangeInclusive<u16> = 1..=1;

/// Who greets whoever listens at an address: a node of the cluster, of which the name is not known.
pub const ANY_NODE: &str = "*";

/// The shortest secret: 128 bits.
const SECRET_BYTES_MIN: usize = 16;

/// What tells the nodes of one cluster from all others.
#[derive(Clone, Default)]
pub struct Cluster {
    id: Arc<str>,
    /// Empty if anybody may talk.
    secret: Arc<[u8]>,
    /// None where connections are not encrypted.
    tls: Option<MutualTls>,
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Cluster");
        shown.field("id", &self.id).field("has_secret", &self.has_secret()).field("is_encrypted", &self.is_encrypted());
        shown.finish()
    }
}

/// A secret that may be guessed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected a secret of at least {SECRET_BYTES_MIN} bytes, came {came}")]
pub struct ShortSecret {
    /// The bytes that came.
    pub came: usize,
}

/// Random bytes that are never used again.
pub type Nonce = [u8; 32];
/// That somebody knows the secret.
pub type Proof = [u8; 32];

/// The first frame of either side of a connection.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Hello {
    /// Who speaks.
    pub from: NodeId,
    /// Whom it means to reach. Addresses are reused; a node that is not this one refuses.
    pub to: NodeId,
    /// The speaker's cluster; empty if it is in none.
    pub cluster: String,
    /// The oldest and the newest protocol that it speaks.
    pub protocols: (u16, u16),
    /// What the other side's proof is about.
    pub nonce: Nonce,
    /// The server's, if its cluster has a secret.
    pub proof: Option<Proof>,
}

impl Hello {
    /// What a client of no cluster says.
    #[must_use]
    pub fn new(from: NodeId, to: NodeId) -> Self {
        Cluster::default().hello(from, to)
    }
}

/// Who proves something.
#[derive(Clone, Copy)]
enum Side {
    Client,
    Server,
}

impl Cluster {
    /// The cluster with this id, whose nodes know the secret.
    ///
    /// # Errors
    /// [`ShortSecret`].
    pub fn new(id: &str, secret: &[u8]) -> Result<Self, ShortSecret> {
        if secret.len() < SECRET_BYTES_MIN {
            return Err(ShortSecret { came: secret.len() });
        }
        Ok(Self { id: id.into(), secret: secret.into(), tls: None })
    }

    /// The cluster of those who know a secret, which is random. Its id follows from the secret, and does not tell it.
    ///
    /// # Errors
    /// [`ShortSecret`].
    pub fn of_secret(secret: &[u8]) -> Result<Self, ShortSecret> {
        let cluster = Self::new("", secret)?;
        let mut code = cluster.keyed();
        code.update(b"savanna rpc, id of the cluster");
        let digits = code.finalize().into_bytes()[..8].iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        Ok(Self { id: digits.into(), ..cluster })
    }

    /// What its nodes call it.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Whether nobody may talk who does not know the secret.
    #[must_use]
    pub fn has_secret(&self) -> bool {
        !self.secret.is_empty()
    }

    /// The same cluster, over encrypted connections if there is something to encrypt with.
    #[must_use]
    pub fn encrypted_by(self, tls: Option<&MutualTls>) -> Self {
        Self { tls: tls.cloned(), ..self }
    }

    /// Whether its nodes talk over encrypted connections only.
    #[must_use]
    pub const fn is_encrypted(&self) -> bool {
        self.tls.is_some()
    }

    /// What encrypts its connections.
    pub(crate) const fn tls(&self) -> Option<&MutualTls> {
        self.tls.as_ref()
    }

    /// What a client says first.
    pub(crate) fn hello(&self, from: NodeId, to: NodeId) -> Hello {
        let protocols = (*PROTOCOLS.start(), *PROTOCOLS.end());
        Hello { from, to, cluster: self.id.to_string(), protocols, nonce: rand::random(), proof: None }
    }

    /// What server `node` says to a client.
    ///
    /// # Errors
    /// Why it does not talk to it.
    pub(crate) fn answer(&self, node: &NodeId, hello: &Hello) -> Result<Hello, String> {
        if hello.to != *node && hello.to.0 != ANY_NODE {
            return Err(format!("this is node {node}, not node {}: look up its address again", hello.to));
        }
        self.check(hello)?;
        let answer = self.hello(node.clone(), hello.from.clone());
        let proof = self.has_secret().then(|| self.code(Side::Server, hello, &answer).finalize().into_bytes().into());
        Ok(Hello { proof, ..answer })
    }

    /// What a client says to the answer of the server that it has greeted: its own proof, if there is a secret.
    ///
    /// # Errors
    /// Why it does not talk to it.
    pub(crate) fn prove(&self, hello: &Hello, answer: &Hello) -> Result<Option<Proof>, String> {
        if answer.from != hello.to && hello.to.0 != ANY_NODE {
            return Err(format!("node {} answers instead of node {}", answer.from, hello.to));
        }
        self.check(answer)?;
        match answer.proof {
            None if self.has_secret() => Err(format!("node {} does not prove that it is of this cluster", answer.from)),
            None => Ok(None),
            Some(_) if !self.has_secret() => {
                Err(format!("node {} wants a proof, and this node knows no secret", answer.from))
            }
            Some(proof) => {
                let is_proven = self.code(Side::Server, hello, answer).verify_slice(&proof).is_ok();
                let proof = || self.code(Side::Client, hello, answer).finalize().into_bytes().into();
                is_proven.then(|| Some(proof())).ok_or_else(|| wrong_secret(&answer.from))
            }
        }
    }

    /// Checks a client's proof.
    ///
    /// # Errors
    /// Why nothing of it is read.
    pub(crate) fn verify(&self, hello: &Hello, answer: &Hello, proof: &Proof) -> Result<(), String> {
        let code = self.code(Side::Client, hello, answer);
        code.verify_slice(proof).map_err(|_| wrong_secret(&hello.from))
    }

    fn check(&self, hello: &Hello) -> Result<(), String> {
        if *hello.cluster != *self.id {
            let name = |id: &str| if id.is_empty() { "no cluster".to_owned() } else { format!("cluster {id}") };
            let (own, other) = (name(&self.id), name(&hello.cluster));
            return Err(format!("expected a node of {own}, came node {} of {other}", hello.from));
        }
        let (oldest, newest) = hello.protocols;
        if oldest > *PROTOCOLS.end() || newest < *PROTOCOLS.start() {
            return Err(format!(
                "node {} speaks protocols {oldest} to {newest}, this one {} to {}: take releases that are closer to each other",
                hello.from,
                PROTOCOLS.start(),
                PROTOCOLS.end()
            ));
        }
        Ok(())
    }

    fn keyed(&self) -> Hmac<Sha256> {
        Hmac::<Sha256>::new_from_slice(&self.secret).unwrap_or_else(|_| unreachable!("a key of any length will do"))
    }

    fn code(&self, side: Side, hello: &Hello, answer: &Hello) -> Hmac<Sha256> {
        let mut code = self.keyed();
        let side: &[u8] = match side {
            Side::Client => b"savanna rpc, client",
            Side::Server => b"savanna rpc, server",
        };
        // Who answers a greeting to any node is known by the answer alone; otherwise it is the same name.
        let (client, server) = (hello.from.0.as_bytes(), answer.from.0.as_bytes());
        let protocols =
            [hello.protocols, answer.protocols].map(|(oldest, newest)| [oldest, newest].map(u16::to_le_bytes));
        let protocols = protocols.as_flattened().as_flattened();
        for part in [side, self.id.as_bytes(), client, server, protocols, &hello.nonce, &answer.nonce] {
            code.update(&(part.len() as u64).to_le_bytes());
            code.update(part);
        }
        code
    }
}

fn wrong_secret(node: &NodeId) -> String {
    format!("node {node} does not know this cluster's secret")
}

impl Frame {
    /// A hello.
    #[must_use]
    pub const fn hello(hello: Hello) -> Self {
        Self { request: RequestId(0), message: Message::Hello(hello) }
    }

    /// A client's proof.
    #[must_use]
    pub const fn proof(proof: Proof) -> Self {
        Self { request: RequestId(0), message: Message::Proof(proof) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &[u8] = b"0123456789abcdef";

    fn node(name: &str) -> NodeId {
        NodeId::new(name)
    }

    fn cluster(secret: &[u8]) -> Cluster {
        Cluster::new("c", secret).unwrap()
    }

    /// A client greets a server; whether both talk then, or why not.
    fn greet(client: &Cluster, server: &Cluster) -> Result<(), String> {
        let hello = client.hello(node("a"), node("b"));
        let answer = server.answer(&node("b"), &hello)?;
        match client.prove(&hello, &answer)? {
            Some(proof) => server.verify(&hello, &answer, &proof),
            None if server.has_secret() => Err("no proof".to_owned()),
            None => Ok(()),
        }
    }

    #[test]
    fn any_node_of_the_cluster_answers_who_does_not_know_its_name() {
        let greet = |client: &Cluster, server: &Cluster| {
            let hello = client.hello(node("a"), node(ANY_NODE));
            let answer = server.answer(&node("b"), &hello)?;
            let proof = client.prove(&hello, &answer)?.ok_or_else(|| "no proof".to_owned())?;
            server.verify(&hello, &answer, &proof)
        };
        assert_eq!(greet(&cluster(SECRET), &cluster(SECRET)), Ok(()));
        assert!(greet(&cluster(SECRET), &cluster(b"0123456789abcdeF")).is_err());
        let hello = cluster(SECRET).hello(node("a"), node(ANY_NODE));
        let answer = cluster(SECRET).answer(&node("b"), &hello).unwrap();
        let renamed = Hello { from: node("c"), ..answer };
        assert!(cluster(SECRET).prove(&hello, &renamed).is_err(), "somebody between has changed who answers");
        let ids = [SECRET, b"0123456789abcdeF"].map(|secret| Cluster::of_secret(secret).unwrap().id().to_owned());
        assert!(ids[0].len() == 16 && ids[0] != ids[1]);
        assert!(Cluster::of_secret(b"short").is_err());
    }

    #[test]
    fn nodes_of_one_cluster_talk_and_no_others() {
        assert_eq!(greet(&cluster(SECRET), &cluster(SECRET)), Ok(()));
        assert_eq!(greet(&Cluster::default(), &Cluster::default()), Ok(()));
        let other = cluster(b"0123456789abcdeF");
        for (client, server) in [(cluster(SECRET), other.clone()), (other, cluster(SECRET))] {
            assert_eq!(greet(&client, &server).unwrap_err(), "node b does not know this cluster's secret");
        }
        let elsewhere = Cluster::new("d", SECRET).unwrap();
        let refused = greet(&cluster(SECRET), &elsewhere).unwrap_err();
        assert_eq!(refused, "expected a node of cluster d, came node a of cluster c");
        assert!(greet(&Cluster::default(), &cluster(SECRET)).is_err());
        assert!(greet(&cluster(SECRET), &Cluster::default()).is_err());
        assert_eq!(Cluster::new("c", b"short").unwrap_err(), ShortSecret { came: 5 });
    }

    #[test]
    fn a_proof_fits_one_greeting_and_one_side() {
        let cluster = cluster(SECRET);
        let hello = cluster.hello(node("a"), node("b"));
        let answer = cluster.answer(&node("b"), &hello).unwrap();
        let proof = cluster.prove(&hello, &answer).unwrap().unwrap();
        assert_eq!(cluster.verify(&hello, &answer, &proof), Ok(()));
        let again = cluster.answer(&node("b"), &hello).unwrap();
        assert!(cluster.verify(&hello, &again, &proof).is_err(), "of another connection");
        assert!(cluster.verify(&hello, &answer, &answer.proof.unwrap()).is_err(), "what the server has said");
        let unproven = Hello { proof: None, ..answer.clone() };
        assert!(cluster.prove(&hello, &unproven).is_err(), "a server without proof");
        let older = cluster.prove(&cluster.hello(node("a"), node("b")), &answer);
        assert!(older.is_err(), "an answer to another hello");
    }

    #[test]
    fn nobody_between_two_nodes_changes_the_protocols_that_they_say() {
        let cluster = cluster(SECRET);
        let hello = cluster.hello(node("a"), node("b"));
        let changed = |hello: &Hello| Hello { protocols: (0, 1), ..hello.clone() };
        let answer = cluster.answer(&node("b"), &changed(&hello)).unwrap();
        assert!(cluster.prove(&hello, &answer).is_err(), "the client's");
        let answer = cluster.answer(&node("b"), &hello).unwrap();
        assert!(cluster.prove(&hello, &changed(&answer)).is_err(), "the server's");
    }

    #[test]
    fn a_node_that_speaks_other_protocols_is_refused() {
        let hello = Hello { protocols: (2, 9), ..Hello::new(node("a"), node("b")) };
        let refused = Cluster::default().answer(&node("b"), &hello).unwrap_err();
        assert!(refused.contains("protocols 2 to 9"), "{refused}");
        let wider = Hello { protocols: (0, 9), ..hello };
        assert!(Cluster::default().answer(&node("b"), &wider).is_ok());
    }
}
