//! What nodes tell of themselves through each other: whoever reaches one node reaches what all of them say of themselves.

use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::RwLock;
use savanna_epoch::NodeId;
use savanna_http::{Asker, Fact, Facts, NodesHandle, Problem};
use savanna_ownership::{ClusterView, Coordinator};
use savanna_rpc::{Method, MethodTable, RpcError, Service, Transport, call};
use tokio::time::{Instant, sleep};

use super::draining;
use super::view::View;
use crate::config::NodeConfig;

/// The first part of the methods' names.
pub(super) const SERVICE: &str = "facts";
/// How long a node has to tell something of itself, over all attempts.
const TELL_TIME: Duration = Duration::from_secs(3);
/// Between two attempts.
const PAUSE: Duration = Duration::from_millis(50);
/// After this time a node that is starting may know itself.
const STARTING_PAUSE: Duration = Duration::from_millis(20);

/// A node tells something of itself, as its control API writes it, or why it cannot.
struct Tell;

impl Method for Tell {
    const NAME: &'static str = "facts/tell.2";
    const IDEMPOTENT: bool = true;
    type Request = (Fact, Asker);
    type Reply = Result<String, String>;
}

/// The same, as nodes ask of the release that says of nobody whether he is known.
struct TellAnybody;

impl Method for TellAnybody {
    const NAME: &'static str = "facts/tell.1";
    const IDEMPOTENT: bool = true;
    type Request = Fact;
    type Reply = Result<String, String>;
}

/// What this node tells others of itself, while it knows. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(super) struct OwnFacts(Arc<RwLock<Option<(Facts, Door)>>>);

/// Who comes in at a node's own control API, and so who is told of it at others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Door {
    Open,
    /// Who shows a token, or a name and a password.
    Guarded,
}

impl Door {
    /// The door of a node, which may ask for a token or for passwords.
    pub(super) const fn of(config: &NodeConfig) -> Self {
        if config.auth_token.is_some() || config.auth_users.is_some() { Self::Guarded } else { Self::Open }
    }

    /// Why somebody who asks another node is told nothing here, if he is not.
    fn refusal(self, asker: Asker) -> Option<String> {
        let reason = "it asks for a token or a password (auth.token, auth.users), and the node that was asked does not";
        (self == Self::Guarded && asker == Asker::Anybody).then(|| reason.to_owned())
    }
}

impl OwnFacts {
    /// Tells this from now on, to who would come in here, too.
    pub(super) fn are(&self, facts: Facts, door: Door) {
        *self.0.write() = Some((facts, door));
    }

    /// Tells nothing any more, and keeps nothing of the node alive.
    pub(super) fn end(&self) {
        *self.0.write() = None;
    }

    /// Answers other nodes: whoever has proved the secret of the cluster, as for all that nodes ask.
    pub(super) fn service(&self) -> Arc<dyn Service> {
        let [known, anybody] = [self.clone(), self.clone()];
        let table = MethodTable::new().method(PhantomData::<Tell>, move |_, (fact, asker)| {
            let own = known.clone();
            async move { own.tell(fact, asker).await }
        });
        Arc::new(table.method(PhantomData::<TellAnybody>, move |_, fact| {
            let own = anybody.clone();
            async move { own.tell(fact, Asker::Anybody).await }
        }))
    }

    async fn tell(&self, fact: Fact, asker: Asker) -> Result<Result<String, String>, RpcError> {
        let facts = self.0.read().clone();
        let (facts, door) = facts.ok_or(RpcError::Frozen { retry_after: STARTING_PAUSE })?;
        if let Some(reason) = door.refusal(asker) {
            return Ok(Err(reason));
        }
        Ok(facts.tell(fact).await.map_err(|problem| problem.detail))
    }
}

/// The other nodes, for the control API of this one.
pub(crate) struct Others {
    view: View,
    coordinator: Arc<dyn Coordinator>,
    transport: Arc<dyn Transport>,
}

impl std::fmt::Debug for Others {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Others").finish_non_exhaustive()
    }
}

impl Others {
    pub(super) const fn new(view: View, coordinator: Arc<dyn Coordinator>, transport: Arc<dyn Transport>) -> Self {
        Self { view, coordinator, transport }
    }

    /// Asks a node until it answers or has no time left.
    async fn ask(&self, node: &NodeId, request: (Fact, Asker)) -> Result<Result<String, String>, RpcError> {
        let until = Instant::now() + TELL_TIME;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            match call::<Tell>(&*self.transport, node, &request, left).await {
                Err(error) if error.may_repeat(Tell::IDEMPOTENT) && Instant::now() + PAUSE < until => {
                    sleep(PAUSE).await;
                }
                answer => return answer,
            }
        }
    }
}

#[async_trait]
impl NodesHandle for Others {
    async fn tell(&self, node: &str, fact: Fact, asker: Asker) -> Result<String, Problem> {
        let (view, name) = (self.view.now(), NodeId::new(node));
        if view.node(&name).is_none() {
            return Err(unknown(node, &view));
        }
        match self.ask(&name, (fact, asker)).await {
            Ok(Ok(told)) => Ok(told),
            Ok(Err(reason)) => Err(untold(node, fact, &reason)),
            Err(error) if error.is_retriable() => Err(silent(node, fact, &error)),
            Err(error) => Err(untold(node, fact, &error.to_string())),
        }
    }

    async fn drain(&self, node: &str, is_drained: bool) -> Result<(), Problem> {
        draining::change(&self.view, &*self.coordinator, node, is_drained).await
    }
}

/// What who names a node hears that does not live.
pub(super) fn unknown(node: &str, view: &ClusterView) -> Problem {
    let names: Vec<_> = view.nodes().map(|record| record.tenure.node.0.as_str()).collect();
    Problem::not_found(format!(
        "expected one of the nodes that live, {}, came {node}; start it, or look at its log if it should live",
        names.join(", ")
    ))
}

fn silent(node: &str, fact: Fact, error: &RpcError) -> Problem {
    let detail = format!(
        "node {node} did not tell its {} within {TELL_TIME:?}: {error}; look whether its process runs, and at the network between the nodes, or ask it \
         at its own port",
        fact.name()
    );
    Problem::silent_node(detail)
}

fn untold(node: &str, fact: Fact, reason: &str) -> Problem {
    let detail = format!(
        "node {node} does not tell its {} through another node: {reason}; ask it at its own port, and look whether it runs an earlier release",
        fact.name()
    );
    Problem::refusing_node(detail)
}

#[cfg(test)]
mod tests {
    use savanna_http::types::{ClusterNode, ClusterShard, NodeStatus, Setting};
    use savanna_http::{Figure, NodeView, SharedNodes, SharedTenants};
    use savanna_ownership::ShardRecord;
    use savanna_ownership::remote::RemoteCoordinator;
    use savanna_rpc::{InProcessLimits, InProcessNet, Served};
    use savanna_streams_api::handle::{HandleError, StreamHandle, StreamReply, StreamRequest};
    use tokio::sync::watch;

    use super::super::view::tests::view;
    use super::*;
    use crate::config::{Config, Sources};

    /// The nodes as one knows them that knows `n1`, which is this service if there is one.
    fn others(n1: Option<Arc<dyn Service>>) -> (Others, Option<Served>) {
        let net = InProcessNet::new(InProcessLimits::default());
        let served = n1.map(|service| net.serve(NodeId::new("n1"), service));
        let none: &[(&str, ShardRecord)] = &[];
        let view = View::of(watch::channel(Arc::new(view(none))).1);
        let transport: Arc<dyn Transport> = Arc::new(net.transport(NodeId::new("n2")));
        // Nobody asks it here.
        let coordinator = RemoteCoordinator::new(Arc::clone(&transport), NodeId::new("nobody"), TELL_TIME);
        (Others::new(view, Arc::new(coordinator), transport), served)
    }

    /// Tells what it is asked for.
    fn telling(told: Result<String, String>) -> Arc<dyn Service> {
        Arc::new(MethodTable::new().method(PhantomData::<Tell>, move |_, (fact, _): (Fact, Asker)| {
            let told = told.clone().map(|word| format!("{word} {}", fact.name()));
            async move { Ok(told) }
        }))
    }

    /// A node that has a setting, and nothing else to tell.
    #[derive(Debug)]
    struct Silent;

    #[async_trait]
    impl StreamHandle for Silent {
        async fn call(&self, _: StreamRequest) -> Result<StreamReply, HandleError> {
            Err(HandleError::Unavailable("there are no streams".to_owned()))
        }
    }

    impl NodeView for Silent {
        fn status(&self) -> NodeStatus {
            unreachable!("nobody asks for it")
        }

        fn settings(&self) -> Vec<Setting> {
            let [key, value, source] = ["data_dir", "/data", "default"].map(str::to_owned);
            vec![Setting { key, value, source }]
        }

        fn nodes(&self) -> Vec<ClusterNode> {
            Vec::new()
        }

        fn shards(&self) -> Vec<ClusterShard> {
            Vec::new()
        }

        fn others(&self) -> Option<SharedNodes> {
            None
        }

        fn tenants(&self) -> Option<SharedTenants> {
            None
        }

        fn figures(&self) -> Vec<Figure> {
            Vec::new()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_another_node_tells_comes_as_it_was_told_and_what_it_does_not_with_the_reason() {
        let (nodes, _served) = others(Some(telling(Ok("its".to_owned()))));
        assert_eq!(nodes.tell("n1", Fact::Settings, Asker::Known).await.unwrap(), "its settings");
        let (nodes, _served) = others(Some(telling(Err("a bug".to_owned()))));
        let untold = nodes.tell("n1", Fact::Metrics, Asker::Known).await.unwrap_err();
        assert_eq!(untold.status, 502);
        assert!(untold.detail.contains("node n1 does not tell its metrics") && untold.detail.contains("a bug"));
        let (nodes, _served) = others(Some(Arc::new(MethodTable::new())));
        let earlier = nodes.tell("n1", Fact::Status, Asker::Known).await.unwrap_err();
        assert!(earlier.status == 502 && earlier.detail.contains("earlier release"), "{}", earlier.detail);
    }

    #[tokio::test(start_paused = true)]
    async fn a_node_that_is_not_reached_is_named_with_how_long_it_was_asked() {
        let (nodes, _served) = others(None);
        let silent = nodes.tell("n1", Fact::Status, Asker::Known).await.unwrap_err();
        assert_eq!(silent.status, 504);
        assert!(silent.detail.contains("node n1 did not tell its status within 3s"), "{}", silent.detail);
        let unknown = nodes.tell("n9", Fact::Status, Asker::Known).await.unwrap_err();
        assert!(unknown.status == 404 && unknown.detail.contains("n1, came n9"), "{}", unknown.detail);
    }

    /// The door of a node with this setting.
    fn door(key: &'static str, value: &str) -> Door {
        Door::of(Config::load(&Sources::none().flag(key, value, "--set")).unwrap().node())
    }

    #[tokio::test(start_paused = true)]
    async fn a_node_that_asks_who_comes_in_tells_nothing_to_who_was_asked_nowhere() {
        let [open, token, users] = [("auth.token", "none"), ("auth.token", "/token"), ("auth.users", "/users")]
            .map(|(key, value)| door(key, value));
        assert_eq!([open, token, users], [Door::Open, Door::Guarded, Door::Guarded]);
        for door in [open, token] {
            let own = OwnFacts::default();
            own.are(Facts::new(Arc::new(Silent), Arc::new(Silent)), door);
            let (nodes, _served) = others(Some(own.service()));
            let earlier = call::<TellAnybody>(&*nodes.transport, &NodeId::new("n1"), &Fact::Settings, TELL_TIME).await;
            assert_eq!(
                earlier.unwrap().is_ok(),
                door == Door::Open,
                "who asks a node of an earlier release may be anybody"
            );
            let known = nodes.tell("n1", Fact::Settings, Asker::Known).await.unwrap();
            assert!(known.contains("/data"), "{known}");
            match nodes.tell("n1", Fact::Settings, Asker::Anybody).await {
                Ok(told) => assert_eq!((door, told), (Door::Open, known)),
                Err(untold) => {
                    assert_eq!((door, untold.status), (Door::Guarded, 502));
                    assert!(
                        untold.detail.contains("auth.token") && !untold.detail.contains("/data"),
                        "{}",
                        untold.detail
                    );
                }
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_node_that_does_not_know_itself_yet_is_asked_again() {
        let (nodes, _served) = others(Some(OwnFacts::default().service()));
        let silent = nodes.tell("n1", Fact::Status, Asker::Known).await.unwrap_err();
        assert_eq!(silent.status, 504, "{}", silent.detail);
    }
}
