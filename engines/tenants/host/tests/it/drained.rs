//! New tenants on a node that gets nothing new, and whose other nodes do not answer.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use futures::{StreamExt, TryStreamExt};
use savanna_epoch::{NodeEpoch, NodeId};
use savanna_ownership::{Expected, Revision};
use savanna_tenants_host::{
    Acquaintance, Backend, Host, HostOptions, Keeping, Others, Place, RootExpectation, Signal, SqlError, TenantId,
    Tenure,
};

/// Another node, which is to have all new tenants, and is not reached; and perhaps one that has what that one does not take.
#[derive(Debug, Default)]
struct Silent {
    /// Whether this node gets nothing new.
    is_drained: AtomicBool,
    /// So often what is known of this node is behind the records.
    behind: AtomicUsize,
    /// The node that is well.
    well: Mutex<Option<Tenure>>,
    /// Who was asked whether he has space.
    asked: Mutex<Vec<String>>,
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

    fn place_for_new(&self, failed: &BTreeSet<NodeId>) -> Option<Place> {
        let silent = Tenure { node: NodeId::new("n2"), epoch: NodeEpoch(7) };
        let well = self.well.lock().unwrap().clone();
        let mut left = std::iter::once(silent).chain(well).filter(|tenure| !failed.contains(&tenure.node));
        let place = |at| Place { at, expects: Vec::new() };
        match left.next() {
            Some(at) => Some(place(Some(at))),
            None => (!self.is_drained.load(Ordering::Relaxed)).then(|| place(None)),
        }
    }

    fn place_here(&self) -> Option<Vec<RootExpectation>> {
        let less = |left: usize| left.checked_sub(1);
        let is_behind = self.behind.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok();
        let old = RootExpectation { key: "drained/alone".to_owned(), expected: Expected::Version(Revision(7)) };
        let expects = if is_behind { vec![old] } else { Vec::new() };
        (!self.is_drained.load(Ordering::Relaxed)).then_some(expects)
    }

    async fn expect_space(&self, at: &Tenure) -> Result<(), SqlError> {
        self.asked.lock().unwrap().push(at.node.0.clone());
        if self.well.lock().unwrap().as_ref() == Some(at) { Ok(()) } else { Err(unreached()) }
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

    // Nor is what was sent lost, because this node hears a little late of what was said of it.
    others.behind.store(3, Ordering::Relaxed);
    restored("again").await.unwrap();
    assert!(has("again"));
    others.behind.store(usize::MAX, Ordering::Relaxed);
    let refused = restored("never").await.unwrap_err();
    assert!(refused.state == "57P03" && refused.message.contains("drained/alone") && !has("never"), "{refused}");
    tokio::task::block_in_place(|| host.stop().unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_node_does_not_take_is_made_on_the_next_one_also_through_a_node_that_is_drained() {
    let directory = tempfile::tempdir().unwrap();
    let others = Arc::new(Silent::default());
    let host = tokio::task::block_in_place(|| {
        let alone = HostOptions::alone(Keeping::local(directory.path()), NodeEpoch(1), 2, None).unwrap();
        // Who gets a tenant has to live, and nobody else does here.
        *others.well.lock().unwrap() = Some(alone.member.tenure.clone());
        Host::start(HostOptions { others: Some(Arc::<Silent>::clone(&others)), ..alone }).unwrap()
    });
    for is_drained in [true, false] {
        others.is_drained.store(is_drained, Ordering::Relaxed);
        host.tenants().create(if is_drained { "shop" } else { "bar" }).await.unwrap();
        let asked = std::mem::take(&mut *others.asked.lock().unwrap());
        assert_eq!(asked, ["n2", "alone"], "one after the other, and it is not made here");
        assert!(host.tenants().list().iter().all(|(listed, _)| listed == "postgres"));
    }
    tokio::task::block_in_place(|| host.stop().unwrap());
}
