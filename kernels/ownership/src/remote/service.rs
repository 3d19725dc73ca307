//! The answering side.

use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use futures::{FutureExt as _, StreamExt as _};
use savanna_rpc::{Method, MethodTable, RpcError, Service};

use super::method::{
    Allocate, Apply, Claim, Deregister, Follow, Heartbeat, ReadAll, ReadRoot, ReadShard, Register, Since,
};
use crate::coordinator::Coordinator;
use crate::error::CoordinatorError;
use crate::event::{Change, Changed};

/// With so many changes, or with values of so many bytes, an answer leaves; the rest is asked for next.
const CHANGES_MAX: usize = 1024;
const CHANGES_BYTES_MAX: usize = 4 << 20;
/// The longest wait for a change. Less than what connections take for silence.
const WAIT_MAX: Duration = Duration::from_secs(10);

/// Answers for `coordinator` whoever reaches this node.
pub fn service(coordinator: &Arc<dyn Coordinator>) -> Arc<dyn Service> {
    Arc::new(methods(coordinator))
}

pub(super) fn methods(coordinator: &Arc<dyn Coordinator>) -> MethodTable {
    let mut methods = MethodTable::new();
    macro_rules! answer {
        ($($method:ident($request:pat) => |$coordinator:ident| $answer:expr;)*) => {$(
            let kept = Arc::clone(coordinator);
            methods = methods.method(PhantomData::<$method>, move |_, $request: <$method as Method>::Request| {
                let $coordinator = Arc::clone(&kept);
                async move { Ok::<_, RpcError>($answer.await) }
            });
        )*};
    }
    answer! {
        Register(spec) => |coordinator| coordinator.register(&spec);
        Claim(spec) => |coordinator| coordinator.claim(&spec);
        Heartbeat(tenure) => |coordinator| coordinator.heartbeat(&tenure);
        Deregister(tenure) => |coordinator| coordinator.deregister(&tenure);
        ReadAll(()) => |coordinator| coordinator.snapshot();
        ReadShard(shard) => |coordinator| coordinator.shard(&shard);
        Apply(batch) => |coordinator| coordinator.apply(&batch);
        Allocate(ids) => |coordinator| coordinator.allocate(&ids.name, ids.count);
        ReadRoot(key) => |coordinator| coordinator.root(&key);
        Follow(since) => |coordinator| changes(&*coordinator, &since);
    }
    methods
}

/// The changes that there are, or the first that comes; none if none comes in time.
async fn changes(coordinator: &dyn Coordinator, since: &Since) -> Result<Vec<Change>, CoordinatorError> {
    let mut stream = coordinator.watch(since.since).await?;
    let mut changes = Vec::new();
    let mut bytes = 0;
    let mut next = tokio::time::timeout(since.wait.min(WAIT_MAX), stream.next()).await.ok().flatten();
    while let Some(change) = next {
        let change = match change {
            Ok(change) => change,
            // What came before it is true; the error comes again.
            Err(_) if !changes.is_empty() => break,
            Err(error) => return Err(error),
        };
        bytes += change.what.iter().map(Changed::value_bytes).sum::<usize>();
        changes.push(change);
        if changes.len() == CHANGES_MAX || bytes > CHANGES_BYTES_MAX {
            break;
        }
        next = stream.next().now_or_never().flatten();
    }
    Ok(changes)
}
