//! Cancel requests for streams: a client may send one to any node, and its key names the node that the client is connected to.
//!
//! The client is told that its request is over, obeyed or lost, and may begin another statement then, which the request must not hit. So the other node is asked for its
//! clock first, and drops what comes later than it said. Whoever asks waits for that long; the clocks of two nodes are never compared. A clock stands still while its machine is
//! suspended: what waits in the sockets of such a machine counts still when it goes on.

use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::future::join_all;
use parking_lot::Mutex;
use savanna_epoch::NodeId;
use savanna_identity::cancel_key::{self, CancelKey};
use savanna_ownership::ClusterView;
use savanna_pgwire::{Cancellations, OtherFaces};
use savanna_rpc::{Method, MethodTable, Service, Transport, call};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep_until, timeout};

use super::view::View;

/// The first part of the methods' names.
pub(super) const SERVICE: &str = "cancels";
/// How long a node has to tell its clock, and then to hear of the request.
const STEP_TIME: Duration = Duration::from_secs(1);
/// A request counts for so long after the clock was told: whoever sends it waits longer.
const COUNTS_FOR: Duration = Duration::from_millis(900);
/// So many are under way to a node at once: nobody has shown yet who it is, and a node that stands still keeps none from the others.
const REQUESTS_MAX: usize = 8;
/// So many more wait until one of those has ended, for [`STEP_TIME`] at most.
const WAITING_MAX: usize = 64;
/// So many nodes are asked that have the number in the key.
const NODES_MAX: usize = 16;

/// Tells the clock of a node: milliseconds since some moment of its own.
struct TellClock;

impl Method for TellClock {
    const NAME: &'static str = "cancels/clock.1";
    const IDEMPOTENT: bool = true;
    type Request = ();
    type Reply = u64;
}

/// Ends the statement of the client of streams that has the key, if the node's clock is not much later yet than this.
struct CancelStreams;

impl Method for CancelStreams {
    const NAME: &'static str = "cancels/streams.2";
    const IDEMPOTENT: bool = true;
    type Request = (CancelKey, u64);
    type Reply = ();
}

/// A clock that nobody else's is compared with.
#[derive(Clone, Copy, Debug)]
struct Clock(Instant);

impl Clock {
    fn tells(self) -> u64 {
        self.0.elapsed().as_millis() as u64
    }

    /// Whether a request counts that was sent when this clock had told this. What it has not told yet, a former process has.
    fn is_in_time(self, told: u64) -> bool {
        self.tells().checked_sub(told).is_some_and(|late| u128::from(late) < COUNTS_FOR.as_millis())
    }
}

/// The clients of streams at this node, and the way to those at others.
pub(crate) struct Cancels {
    node: NodeId,
    own: Arc<Cancellations>,
    clock: Clock,
    view: View,
    transport: Arc<dyn Transport>,
    /// The requests to each node.
    under_way: Mutex<BTreeMap<NodeId, Requests>>,
}

/// The requests to a node.
struct Requests {
    /// Those under way, and those that wait.
    count: usize,
    places: Arc<Semaphore>,
}

impl Default for Requests {
    fn default() -> Self {
        Self { count: 0, places: Arc::new(Semaphore::new(REQUESTS_MAX)) }
    }
}

/// A request to a node, which waits or is under way as long as this is kept.
struct Counted<'c> {
    all: &'c Mutex<BTreeMap<NodeId, Requests>>,
    to: &'c NodeId,
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        let mut all = self.all.lock();
        if let Some(requests) = all.get_mut(self.to) {
            requests.count -= 1;
            if requests.count == 0 {
                all.remove(self.to);
            }
        }
    }
}

impl std::fmt::Debug for Cancels {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cancels").field("node", &self.node).finish_non_exhaustive()
    }
}

impl Cancels {
    pub(super) fn new(node: NodeId, view: View, transport: Arc<dyn Transport>) -> Arc<Self> {
        let (own, clock) = (Cancellations::of_node(&node.0), Clock(Instant::now()));
        Arc::new(Self { node, own, clock, view, transport, under_way: Mutex::default() })
    }

    /// The clients at this node.
    pub(crate) const fn own(&self) -> &Arc<Cancellations> {
        &self.own
    }

    /// What other nodes ask for clients at this one.
    pub(super) fn service(&self) -> Arc<dyn Service> {
        let (own, clock) = (Arc::clone(&self.own), self.clock);
        let table = MethodTable::new().method(PhantomData::<TellClock>, move |_, ()| async move { Ok(clock.tells()) });
        Arc::new(table.method(PhantomData::<CancelStreams>, move |_, (key, told)| {
            if clock.is_in_time(told) {
                own.cancel(key);
            }
            async { Ok(()) }
        }))
    }

    /// Counts a request to a node, and says where its place is, if not too many wait already.
    fn count<'c>(&'c self, to: &'c NodeId) -> Option<(Counted<'c>, Arc<Semaphore>)> {
        let mut all = self.under_way.lock();
        let requests = all.entry(to.clone()).or_default();
        if requests.count >= REQUESTS_MAX + WAITING_MAX {
            return None;
        }
        requests.count += 1;
        Some((Counted { all: &self.under_way, to }, Arc::clone(&requests.places)))
    }

    /// A place for a request to a node, if there is one in time.
    async fn place<'c>(&'c self, to: &'c NodeId) -> Option<(OwnedSemaphorePermit, Counted<'c>)> {
        let (counted, places) = self.count(to)?;
        let place = timeout(STEP_TIME, places.acquire_owned()).await.ok()?.ok()?;
        Some((place, counted))
    }

    /// Tells a node. When that is over, the request is obeyed, or never will be.
    async fn tell(&self, node: &NodeId, key: CancelKey) {
        let Some(_place) = self.place(node).await else {
            tracing::debug!(%node, "a cancel request is left out: too many came at once for the node");
            return;
        };
        let lost =
            |error| tracing::debug!(%node, %error, "a cancel request did not reach the node that has the client");
        let told = match call::<TellClock>(&*self.transport, node, &(), STEP_TIME).await {
            Ok(told) => told,
            Err(error) => return lost(error),
        };
        let late = Instant::now() + STEP_TIME;
        if let Err(error) = call::<CancelStreams>(&*self.transport, node, &(key, told), STEP_TIME).await {
            lost(error);
            sleep_until(late).await;
        }
    }
}

#[async_trait]
impl OtherFaces for Cancels {
    async fn cancel(&self, key: CancelKey) {
        let view = self.view.now();
        join_all(named(&view, &self.node, key).map(|node| self.tell(node, key))).await;
    }
}

/// The other nodes that a key may name: different ones may have the same number.
fn named<'a>(view: &'a ClusterView, own: &'a NodeId, key: CancelKey) -> impl Iterator<Item = &'a NodeId> {
    let is_named = move |node: &&NodeId| *node != own && cancel_key::number_of(&node.0) == cancel_key::node_of(key);
    view.nodes().map(|record| &record.tenure.node).filter(is_named).take(NODES_MAX)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use bytes::Bytes;
    use futures::FutureExt;
    use savanna_epoch::NodeEpoch;
    use savanna_ownership::{Incarnation, NodeRecord, NodeSpec, Snapshot};
    use savanna_rpc::{InProcessLimits, InProcessNet, RequestContext, RpcError, Served};
    use tokio::sync::watch;
    use tokio::time::sleep;

    use super::super::view::tests::view;
    use super::*;

    /// A node that obeys requests after a time, and counts those that were in time.
    struct Slow {
        clock: Clock,
        after: Duration,
        obeyed: Arc<AtomicUsize>,
    }

    #[async_trait]
    impl Service for Slow {
        async fn handle(&self, context: RequestContext, body: Bytes) -> Result<Bytes, RpcError> {
            let (clock, obeyed, after) = (self.clock, Arc::clone(&self.obeyed), self.after);
            let table = MethodTable::new()
                .method(PhantomData::<TellClock>, move |_, ()| async move { Ok(clock.tells()) })
                .method(PhantomData::<CancelStreams>, move |_, (_, told)| {
                    let obeyed = Arc::clone(&obeyed);
                    async move {
                        // However long it was on its way: that the asker has gone does not end it.
                        let arrives = tokio::spawn(async move {
                            sleep(after).await;
                            obeyed.fetch_add(usize::from(clock.is_in_time(told)), Ordering::Relaxed);
                        });
                        let _ = arrives.await;
                        Ok(())
                    }
                });
            table.handle(context, body).await
        }
    }

    /// Node n3 of a cluster where n1 obeys after a time, and n2 at once.
    fn n3(after: Duration) -> (Arc<Cancels>, [Arc<AtomicUsize>; 2], [Served; 2]) {
        let net = InProcessNet::new(InProcessLimits::default());
        let mut snapshot = Snapshot::default();
        let nodes = [("n1", after), ("n2", Duration::ZERO)].map(|(name, after)| {
            let (name, labels) = (NodeId::new(name), BTreeMap::new());
            let spec = NodeSpec { name: name.clone(), incarnation: Incarnation(1), address: String::new(), labels };
            snapshot.nodes.push(NodeRecord::granted(&spec, NodeEpoch(1)));
            let obeyed = Arc::new(AtomicUsize::new(0));
            let slow = Slow { clock: Clock(Instant::now()), after, obeyed: Arc::clone(&obeyed) };
            (obeyed, net.serve(name, Arc::new(slow)))
        });
        let [(first, at_n1), (second, at_n2)] = nodes;
        let view = View::of(watch::channel(Arc::new(ClusterView::new(snapshot))).1);
        let node = NodeId::new("n3");
        let transport = Arc::new(net.transport(node.clone()));
        (Cancels::new(node, view, transport), [first, second], [at_n1, at_n2])
    }

    fn key_at(node: &str) -> CancelKey {
        cancel_key::random(cancel_key::number_of(node)).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_is_obeyed_before_the_client_is_told_that_it_is_over_or_never() {
        for (after, obeyed) in [(0, 1), (500, 1), (950, 0), (1_500, 0), (60_000, 0)] {
            let (n3, [at_n1, _], _served) = n3(Duration::from_millis(after));
            n3.cancel(key_at("n1")).await;
            let told = at_n1.load(Ordering::Relaxed);
            sleep(Duration::from_secs(120)).await;
            assert_eq!((told, at_n1.load(Ordering::Relaxed)), (obeyed, obeyed), "on its way for {after} ms");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_node_that_does_not_answer_takes_no_places_of_the_others_and_gives_its_own_back() {
        let (n3, [at_n1, at_n2], _served) = n3(Duration::from_secs(60));
        let key = key_at("n1");
        let mut waiting: Vec<_> = (0..REQUESTS_MAX + WAITING_MAX).map(|_| n3.cancel(key)).collect();
        for request in &mut waiting {
            assert!(request.now_or_never().is_none());
        }
        assert!(n3.cancel(key).now_or_never().is_some(), "too many for it");
        n3.cancel(key_at("n2")).await;
        assert_eq!((at_n1.load(Ordering::Relaxed), at_n2.load(Ordering::Relaxed)), (0, 1));
        let began = Instant::now();
        join_all(waiting).await;
        assert!(began.elapsed() <= 4 * STEP_TIME, "nobody waits for long");
        assert!(n3.under_way.lock().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn many_requests_at_once_are_all_obeyed_by_a_node_that_is_well() {
        let (n3, [at_n1, _], _served) = n3(Duration::from_millis(20));
        let key = key_at("n1");
        join_all((0..REQUESTS_MAX + WAITING_MAX).map(|_| n3.cancel(key))).await;
        assert_eq!(at_n1.load(Ordering::Relaxed), REQUESTS_MAX + WAITING_MAX);
        assert!(n3.under_way.lock().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn what_another_process_of_a_node_has_told_does_not_count() {
        let clock = Clock(Instant::now());
        assert!(clock.is_in_time(0) && !clock.is_in_time(5_000));
        sleep(COUNTS_FOR).await;
        assert!(!clock.is_in_time(0) && clock.is_in_time(100));
    }

    #[test]
    fn the_node_that_a_key_names_is_asked_and_no_other() {
        let view = view(&[]);
        let [n1, n2] = ["n1", "n2"].map(NodeId::new);
        let asked = |own, at: &NodeId| named(&view, own, key_at(&at.0)).cloned().collect::<Vec<_>>();
        assert_eq!(asked(&n2, &n1), std::slice::from_ref(&n1));
        assert_eq!(asked(&n2, &n2), [], "it has been looked for here");
        assert_eq!(asked(&n1, &n1), []);
    }
}
