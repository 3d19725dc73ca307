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
        let error = match attempt(view, coordinator, &name, is_drained).await {
            Ok(outcome) => return outcome,
            Err(error) => error,
        };
        let may_repeat = matches!(error, CoordinatorError::Conflict { .. } | CoordinatorError::Unavailable { .. });
        if !may_repeat || Instant::now() >= until {
            return Err(not_known(&error));
        }
        sleep(PAUSE).await;
    }
}

/// What came of it, or why that is not known.
async fn attempt(
    view: &View,
    coordinator: &dyn Coordinator,
    node: &NodeId,
    is_drained: bool,
) -> Result<Result<(), Problem>, CoordinatorError> {
    let now = ClusterView::new(coordinator.snapshot().await?);
    let change = match drained::change(&now, node, is_drained, |tenure| shards::is_ready(&now, tenure)) {
        Ok(change) => change,
        Err(Refusal::Absent) => return Ok(Err(unknown(&node.0, &now))),
        Err(Refusal::Last) => return Ok(Err(last(node))),
    };
    let since = match change {
        None => now.revision(),
        Some(change) => coordinator.apply(&change).await?,
    };
    // Who is late to see it decides by it a little later.
    let _ = timeout(SEEN_TIME, view.clone().until(|known| known.revision() >= since)).await;
    tracing::info!(%node, is_drained, "whether a node gets anything new was said");
    Ok(Ok(()))
}

fn last(node: &NodeId) -> Problem {
    let detail = format!(
        "expected another node than {node} that serves databases and is not drained, found none: start one, or undo the drain of another"
    );
    Problem::of_sqlstate("55000", detail)
}

fn not_known(error: &CoordinatorError) -> Problem {
    let detail = format!(
        "whether the node gets anything new is as it was, or as it was asked for: {error}; `savanna nodes` says which, and try again"
    );
    Problem::of_sqlstate("58000", detail)
}
