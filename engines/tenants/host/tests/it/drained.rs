//! New tenants on a node that gets nothing new, and whose other nodes do not answer.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use futures::{StreamExt, TryStreamExt};
use savanna_epoch::{NodeEpoch, NodeId};
use savanna_tenants_host::{
    Acquaintance, Backend, Host, HostOptions, Keeping, Others, Place, RootExpectation, Signal, SqlError, TenantId,
    Tenure,
};

/// Another node, which is to have all new tenants, and is not reached.
#[derive(Debug, Default)]
struct Silent {
    /// Whether this node gets nothing new.
    is_drained: AtomicBool,
}

fn unreached() -> SqlError {
    SqlError::new("57P03", "node n2 is not reached")
}

#[async_trait]
impl Others for Silent {
    async fn tenant(&self, _: &str) -> Result<Option<TenantId>, SqlError> {
        Ok(None)
    }

    fn has_owner(&self, _: TenantId) -> bool {
        false
    }

    fn place_for_new(&self) -> Place {
        Place { at: Some(Tenure { node: NodeId::new("n2"), epoch: NodeEpoch(7) }), expects: Vec::new() }
    }

    fn place_here(&self) -> Option<Vec<RootExpectation>> {
        (!self.is_drained.load(Ordering::Relaxed)).then(Vec::new)
    }

    async fn expect_space(&self, _: &Tenure) -> Result<(), SqlError> {
        Err(unreached())
    }

    async fn acquaintance(&self, _: TenantId, _: &str) -> Result<Acquaintance, SqlError> {
        Err(unreached())
    }

    async fn save(&self, _: TenantId) -> Result<(), SqlError> {
        Err(unreached())
    }

    async fn remove(&self, _: TenantId, _: &str) -> Result<(), SqlError> {
        Err(unreached())
    }

    async fn backends(&self) -> (Vec<Backend>, Vec<NodeId>) {
        (Vec::new(), vec![NodeId::new("n2")])
    }

    async fn signal(&self, _: &Backend, _: Signal) {}
}

fn start(directory: &Path, others: Arc<Silent>) -> Host {
    let alone = HostOptions::alone(Keeping::local(directory), NodeEpoch(1), 2, None).unwrap();
    Host::start(HostOptions { others: Some(others), ..alone }).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_other_node_does_not_take_is_made_here_unless_this_node_is_drained() {
    let directory = tempfile::tempdir().unwrap();
    let others = Arc::new(Silent::default());
    let host = tokio::task::block_in_place(|| start(directory.path(), Arc::clone(&others)));
    let tenants = host.tenants();
    let has = |name: &str| tenants.list().iter().any(|(listed, _)| listed == name);
    tenants.create("shop").await.unwrap();
    assert!(has("shop"), "rather here than nowhere");

    others.is_drained.store(true, Ordering::Relaxed);
    let refused = tenants.create("late").await.unwrap_err();
    assert_eq!(refused.state, "57P03");
    assert!(refused.message.contains("node n2 is not reached") && refused.message.contains("is drained"), "{refused}");
    assert!(refused.hint.unwrap().contains("Try again") && !has("late"));

    // A restore that had begun before ends with the same question.
    let archive = tenants.backup("shop").await.unwrap();
    let pieces: Vec<_> = archive.stream().map_err(std::io::Error::other).try_collect().await.unwrap();
    let restored = |name: &'static str| {
        let pieces = futures::stream::iter(pieces.clone().into_iter().map(Ok));
        let tenants = tenants.clone();
        async move { tenants.restore(name, pieces.boxed()).await }
    };
    let refused = restored("copy").await.unwrap_err();
    assert!(refused.state == "55000" && refused.message.contains("drained while"), "{refused}");
    assert!(!has("copy"));
    others.is_drained.store(false, Ordering::Relaxed);
    restored("copy").await.unwrap();
    assert!(has("copy"));
    tokio::task::block_in_place(|| host.stop().unwrap());
}
