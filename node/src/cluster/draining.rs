//! Says in the records that a node gets nothing new, or something again. What follows from that is decided in [`savanna_control`].

use std::time::Duration;

use savanna_control::drained::{self, Refusal};
use savanna_epoch::NodeId;
use savanna_http::Problem;
use savanna_ownership::{ClusterView, Coordinator, CoordinatorError};
use savanna_tenants_host::shards;
use tokio::time::{Instant, sleep, timeout};

use super::facts::unknown;
use super::view::View;

/// How long the coordinator has to take it, over all attempts.
const CHANGE_TIME: Duration = Duration::from_secs(5);
/// How long this node waits until it sees that itself.
const SEEN_TIME: Duration = Duration::from_secs(2);
/// Between two attempts.
const PAUSE: Duration = Duration::from_millis(50);

/// Makes a node drained, or not. This node knows of it then; others hear of it soon, and what they decide before is refused.
pub(super) async fn change(
    view: &View,
    coordinator: &dyn Coordinator,
    node: &str,
    is_drained: bool,
) -> Result<(), Problem> {
    let name = NodeId::new(node);
    let until = Instant::now() + CHANGE_TIME;
    loop {
        let why = match attempt(view, coordinator, &name, is_drained).await {
            Ok(Attempt::Done) => return Ok(()),
            Ok(Attempt::Refused(problem)) => return Err(problem),
            Ok(Attempt::Unseen) => "this node does not see it in the records".to_owned(),
            Err(error @ (CoordinatorError::Conflict { .. } | CoordinatorError::Unavailable { .. })) => {
                error.to_string()
            }
            Err(error) => return Err(not_known(&error.to_string())),
        };
        if Instant::now() >= until {
            return Err(not_known(&why));
        }
        sleep(PAUSE).await;
    }
}

/// What came of an attempt.
enum Attempt {
    /// It is so, and this node sees it.
    Done,
    Refused(Problem),
    /// It was said, and is not so: the node has started again meanwhile, somebody has said otherwise, or this node is late to see it.
    Unseen,
}

/// What came of it, or why that is not known.
async fn attempt(
    view: &View,
    coordinator: &dyn Coordinator,
    node: &NodeId,
    is_drained: bool,
) -> Result<Attempt, CoordinatorError> {
    let now = ClusterView::new(coordinator.snapshot().await?);
    let change = match drained::change(&now, node, is_drained, |tenure| shards::is_ready(&now, tenure)) {
        Ok(change) => change,
        Err(Refusal::Absent) => return Ok(Attempt::Refused(unknown(&node.0, &now))),
        Err(Refusal::Last) => return Ok(Attempt::Refused(last(node))),
    };
    let since = match change {
        None => now.revision(),
        Some(change) => coordinator.apply(&change).await?,
    };
    // Who is late to see it decides by it a little later.
    let _ = timeout(SEEN_TIME, view.clone().until(|known| known.revision() >= since)).await;
    if is_node_drained(&view.now(), node) != is_drained {
        return Ok(Attempt::Unseen);
    }
    tracing::info!(%node, is_drained, "whether a node gets anything new was said");
    Ok(Attempt::Done)
}

/// Whether the process of a node that lives gets nothing new.
fn is_node_drained(view: &ClusterView, node: &NodeId) -> bool {
    view.node(node).is_some_and(|record| drained::is_drained(view, &record.tenure))
}

fn last(node: &NodeId) -> Problem {
    let detail = format!(
        "expected another node than {node} that serves databases and is not drained, found none: start one, or undo the drain of another"
    );
    Problem::of_sqlstate("55000", detail)
}

fn not_known(why: &str) -> Problem {
    let detail = format!(
        "whether the node gets anything new is as it was, or as it was asked for: {why}; `savanna nodes` says which, and try again"
    );
    Problem::of_sqlstate("58000", detail)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use savanna_ownership::embedded::EmbeddedCoordinator;
    use savanna_ownership::{BootClock, Incarnation, NodeSpec, Tenure};
    use tokio::sync::watch;

    use super::*;

    struct Cluster {
        coordinator: EmbeddedCoordinator,
        shown: watch::Sender<Arc<ClusterView>>,
    }

    impl Cluster {
        fn new() -> (Self, View) {
            let (shown, view) = watch::channel(Arc::default());
            let coordinator = EmbeddedCoordinator::volatile(Duration::from_secs(3_600), Arc::new(BootClock));
            (Self { coordinator, shown }, View::of(view))
        }

        /// A process of a node, which serves databases.
        async fn join(&self, name: &str, process: u64) -> Tenure {
            let (name, labels, incarnation) = (NodeId::new(name), BTreeMap::new(), Incarnation(process));
            let spec = NodeSpec { name, incarnation, address: String::new(), labels };
            let tenure = self.coordinator.register(&spec).await.unwrap().tenure;
            self.coordinator.apply(&shards::say_ready(&self.now().await, &tenure).into()).await.unwrap();
            tenure
        }

        async fn now(&self) -> ClusterView {
            ClusterView::new(self.coordinator.snapshot().await.unwrap())
        }

        /// The node that is asked sees all of it.
        async fn show(&self) {
            self.shown.send_replace(Arc::new(self.now().await));
        }

        /// Waits until a process is drained. Whether it ever is.
        async fn drained(&self, tenure: &Tenure) -> bool {
            let drained = async {
                while !drained::is_drained(&self.now().await, tenure) {
                    sleep(PAUSE).await;
                }
            };
            timeout(10 * CHANGE_TIME, drained).await.is_ok()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_node_that_starts_again_meanwhile_is_drained_as_the_process_that_it_is_then() {
        let (cluster, view) = Cluster::new();
        cluster.join("n1", 1).await;
        let first = cluster.join("n2", 1).await;
        cluster.show().await;
        let starts_again = async {
            assert!(cluster.drained(&first).await);
            cluster.coordinator.deregister(&first).await.unwrap();
            let second = cluster.join("n2", 2).await;
            cluster.show().await;
            let is_drained = cluster.drained(&second).await;
            cluster.show().await;
            is_drained
        };
        let (outcome, is_drained) = tokio::join!(change(&view, &cluster.coordinator, "n2", true), starts_again);
        assert!(is_drained, "nobody is told that it is while it is not");
        outcome.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn what_this_node_does_not_see_is_not_told_as_done() {
        let (cluster, view) = Cluster::new();
        cluster.join("n1", 1).await;
        cluster.join("n2", 1).await;
        cluster.show().await;
        let unseen = change(&view, &cluster.coordinator, "n2", true).await.unwrap_err();
        assert!(
            unseen.detail.contains("does not see it") && unseen.detail.contains("savanna nodes"),
            "{}",
            unseen.detail
        );
        cluster.show().await;
        change(&view, &cluster.coordinator, "n2", true).await.unwrap();
        let refused = change(&view, &cluster.coordinator, "n1", true).await.unwrap_err();
        assert!(refused.status == 409 && refused.detail.contains("found none"), "{}", refused.detail);
    }
}
