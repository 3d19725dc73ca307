//! One suite, run over each transport: whatever a caller can see is the same on all of them.

use std::{
    sync::{
        Arc, LazyLock,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use bytes::Bytes;
use futures::{
    FutureExt,
    future::{BoxFuture, join_all},
};
use parking_lot::Mutex;
use savanna_epoch::{NodeId, OwnerEpoch};
use savanna_rpc::{
    Addresses, Cluster, Delivery, InProcessLimits, InProcessNet, Method, MethodTable, Request, RequestContext,
    RequestHead, RpcError, Served, Service, ServiceTable, SessionLimits, TcpConfig, TcpServer, TcpTransport, Transport,
    call,
    sim::{EndpointLimits, NetFaults, SimCluster},
};

use crate::certificates;

const HANDLERS_MAX: usize = 2;
/// Longer than anything here takes, unless it hangs.
const LONG: Duration = Duration::from_secs(20);
const MS: Duration = Duration::from_millis(1);

type Sleep = Arc<dyn Fn(Duration) -> BoxFuture<'static, ()> + Send + Sync>;

/// A client `a` and a server `b`.
trait World: Sized {
    fn new() -> Self;
    fn run<T>(&self, future: impl Future<Output = T>) -> T;
    fn sleep(&self) -> Sleep;
    async fn serve(&self, service: Arc<dyn Service>) -> Arc<dyn Transport>;
    fn stop_server(&self);
}

fn tokio_runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime")
}

fn tokio_sleep() -> Sleep {
    Arc::new(|time| tokio::time::sleep(time).boxed())
}

struct InProcess {
    runtime: tokio::runtime::Runtime,
    net: InProcessNet,
    served: Mutex<Option<Served>>,
}

impl World for InProcess {
    fn new() -> Self {
        let limits = InProcessLimits { handlers_max: HANDLERS_MAX, ..InProcessLimits::default() };
        Self { runtime: tokio_runtime(), net: InProcessNet::new(limits), served: Mutex::new(None) }
    }

    fn run<T>(&self, future: impl Future<Output = T>) -> T {
        self.runtime.block_on(future)
    }

    fn sleep(&self) -> Sleep {
        tokio_sleep()
    }

    async fn serve(&self, service: Arc<dyn Service>) -> Arc<dyn Transport> {
        *self.served.lock() = Some(self.net.serve(b().clone(), service));
        Arc::new(self.net.transport(NodeId::new("a")))
    }

    fn stop_server(&self) {
        self.served.lock().take();
    }
}

/// Connections; `ENCRYPTED`, or not.
struct Tcp<const ENCRYPTED: bool> {
    runtime: tokio::runtime::Runtime,
    server: Mutex<Option<TcpServer>>,
}

impl<const ENCRYPTED: bool> World for Tcp<ENCRYPTED> {
    fn new() -> Self {
        Self { runtime: tokio_runtime(), server: Mutex::new(None) }
    }

    fn run<T>(&self, future: impl Future<Output = T>) -> T {
        self.runtime.block_on(future)
    }

    fn sleep(&self) -> Sleep {
        tokio_sleep()
    }

    async fn serve(&self, service: Arc<dyn Service>) -> Arc<dyn Transport> {
        let session = SessionLimits { handlers_max: HANDLERS_MAX, ..SessionLimits::default() };
        let config = TcpConfig { session, ..TcpConfig::default() };
        let cluster = Cluster::default().encrypted_by(ENCRYPTED.then(certificates::node).as_ref());
        let server = TcpServer::within(cluster.clone(), "127.0.0.1:0", b().clone(), service, config).await;
        let server = server.expect("a free port");
        let addresses = Arc::new(Addresses::default());
        addresses.set(b().clone(), server.local_address().to_string());
        *self.server.lock() = Some(server);
        Arc::new(TcpTransport::within(cluster, NodeId::new("a"), addresses, config))
    }

    fn stop_server(&self) {
        self.server.lock().take();
    }
}

/// The simulated network; `FAULTY` loses, repeats and reorders packets.
struct Simulated<const FAULTY: bool> {
    cluster: SimCluster,
}

impl<const FAULTY: bool> World for Simulated<FAULTY> {
    fn new() -> Self {
        let session = SessionLimits { handlers_max: HANDLERS_MAX, ..SessionLimits::default() };
        let limits = EndpointLimits { session, ..EndpointLimits::default() };
        let faults = if FAULTY {
            NetFaults {
                duplicate_per_mille: 300,
                reorder_per_mille: 300,
                reorder_delay_max: Duration::from_millis(3),
                ..NetFaults::HEALTHY
            }
        } else {
            NetFaults::HEALTHY
        };
        Self { cluster: SimCluster::new(42, faults, limits) }
    }

    fn run<T>(&self, future: impl Future<Output = T>) -> T {
        self.cluster.block_on(future, Duration::from_secs(600)).expect("the simulation goes on")
    }

    fn sleep(&self) -> Sleep {
        let cluster = self.cluster.clone();
        Arc::new(move |time| {
            let cluster = cluster.clone();
            async move { cluster.sleep(time).await }.boxed()
        })
    }

    async fn serve(&self, service: Arc<dyn Service>) -> Arc<dyn Transport> {
        struct Nothing;
        #[async_trait]
        impl Service for Nothing {
            async fn handle(&self, _: RequestContext, _: Bytes) -> Result<Bytes, RpcError> {
                Err(RpcError::Refused { reason: "this node only asks".into() })
            }
        }
        self.cluster.start(NodeId::new("a"), Arc::new(Nothing));
        self.cluster.start(b().clone(), service);
        Arc::new(self.cluster.transport(NodeId::new("a")))
    }

    fn stop_server(&self) {
        self.cluster.crash(b());
    }
}

fn b() -> &'static NodeId {
    static B: LazyLock<NodeId> = LazyLock::new(|| NodeId::new("b"));
    &B
}

fn request(method: &str, body: impl Into<Bytes>, timeout: Duration) -> Request {
    let head = RequestHead { method: format!("probe/{method}"), shard: None, idempotent: false };
    Request { head, body: body.into(), timeout }
}

/// Does what the method's name says, and counts.
struct Probe {
    sleep: Sleep,
    started: AtomicUsize,
    dropped: AtomicUsize,
}

impl Probe {
    fn new<W: World>(world: &W) -> Arc<Self> {
        Arc::new(Self { sleep: world.sleep(), started: AtomicUsize::new(0), dropped: AtomicUsize::new(0) })
    }

    /// Waits until `count` shows `want`; the event is asynchronous on every transport.
    async fn wait_for(&self, count: &AtomicUsize, want: usize) {
        while count.load(Ordering::SeqCst) != want {
            (self.sleep)(MS).await;
        }
    }
}

#[async_trait]
impl Service for Probe {
    async fn handle(&self, context: RequestContext, body: Bytes) -> Result<Bytes, RpcError> {
        struct Dropped<'a>(&'a AtomicUsize);
        impl Drop for Dropped<'_> {
            fn drop(&mut self) {
                self.0.fetch_add(1, Ordering::SeqCst);
            }
        }
        self.started.fetch_add(1, Ordering::SeqCst);
        match context.head.method.as_str() {
            "probe/echo" => Ok(body),
            "probe/who" => Ok(Bytes::from(context.from.0)),
            "probe/moved" => Err(RpcError::Moved { to: NodeId::new("c"), epoch: OwnerEpoch(9) }),
            "probe/frozen" => Err(RpcError::Frozen { retry_after: MS * 7 }),
            "probe/panic" => panic!("the handler panics, as the test asked"),
            "probe/hang" => {
                let _dropped = Dropped(&self.dropped);
                (self.sleep)(LONG * 10).await;
                Ok(body)
            }
            other => Err(RpcError::Refused { reason: format!("no method {other}") }),
        }
    }
}

fn a_reply_and_the_asker_s_name_come_through<W: World>() {
    let world = W::new();
    world.run(async {
        let transport = world.serve(Probe::new(&world)).await;
        let reply = transport.call(b(), request("echo", "hello", LONG)).await;
        assert_eq!(reply, Ok(Bytes::from_static(b"hello")));
        assert_eq!(transport.call(b(), request("who", "", LONG)).await, Ok(Bytes::from_static(b"a")));
    });
}

fn a_handler_s_error_arrives_as_it_is<W: World>() {
    let world = W::new();
    world.run(async {
        let transport = world.serve(Probe::new(&world)).await;
        let moved = RpcError::Moved { to: NodeId::new("c"), epoch: OwnerEpoch(9) };
        assert_eq!(transport.call(b(), request("moved", "", LONG)).await, Err(moved));
        let frozen = RpcError::Frozen { retry_after: MS * 7 };
        assert_eq!(transport.call(b(), request("frozen", "", LONG)).await, Err(frozen));
        let refused = RpcError::Refused { reason: "no method probe/x".into() };
        assert_eq!(transport.call(b(), request("x", "", LONG)).await, Err(refused));
    });
}

fn a_call_ends_when_its_time_is_over_and_its_handler_is_dropped<W: World>() {
    let world = W::new();
    world.run(async {
        let probe = Probe::new(&world);
        let transport = world.serve(Arc::clone(&probe) as _).await;
        let limit = MS * 50;
        assert_eq!(transport.call(b(), request("hang", "", limit)).await, Err(RpcError::TimedOut { limit }));
        probe.wait_for(&probe.dropped, 1).await;
    });
}

fn a_dropped_call_drops_its_handler<W: World>() {
    let world = W::new();
    world.run(async {
        let probe = Probe::new(&world);
        let transport = world.serve(Arc::clone(&probe) as _).await;
        {
            let hanging = transport.call(b(), request("hang", "", LONG)).fuse();
            let started = probe.wait_for(&probe.started, 1).fuse();
            futures::pin_mut!(hanging, started);
            futures::select_biased! {
                _ = hanging => panic!("it hangs"),
                () = started => {}
            }
            assert_eq!(probe.dropped.load(Ordering::SeqCst), 0);
        }
        probe.wait_for(&probe.dropped, 1).await;
        let reply = transport.call(b(), request("echo", "still there", LONG)).await;
        assert_eq!(reply, Ok(Bytes::from_static(b"still there")));
    });
}

fn an_unknown_node_is_unreachable_and_nothing_started<W: World>() {
    let world = W::new();
    world.run(async {
        let transport = world.serve(Probe::new(&world)).await;
        let error = transport.call(&NodeId::new("nobody"), request("echo", "", LONG)).await.expect_err("no such node");
        assert!(matches!(error, RpcError::Unreachable { delivery: Delivery::NotStarted, .. }), "{error}");
    });
}

fn a_panicking_handler_fails_its_call_alone<W: World>() {
    let world = W::new();
    world.run(async {
        let transport = world.serve(Probe::new(&world)).await;
        let failed = RpcError::Failed { method: "probe/panic".into() };
        assert_eq!(transport.call(b(), request("panic", "", LONG)).await, Err(failed));
        assert_eq!(transport.call(b(), request("echo", "x", LONG)).await, Ok(Bytes::from_static(b"x")));
    });
}

fn more_handlers_than_allowed_are_refused_as_overload<W: World>() {
    let world = W::new();
    world.run(async {
        let probe = Probe::new(&world);
        let transport = world.serve(Arc::clone(&probe) as _).await;
        let calls = (0..HANDLERS_MAX + 1).map(|_| transport.call(b(), request("hang", "", MS * 300)));
        let results = join_all(calls).await;
        let overloaded = results.iter().filter(|r| matches!(r, Err(RpcError::Overloaded { .. }))).count();
        let timed_out = results.iter().filter(|r| matches!(r, Err(RpcError::TimedOut { .. }))).count();
        assert_eq!((overloaded, timed_out), (1, HANDLERS_MAX), "{results:?}");
        assert_eq!(probe.started.load(Ordering::SeqCst), HANDLERS_MAX, "a refused request starts nothing");
    });
}

fn each_of_many_calls_gets_its_own_reply_and_starts_once<W: World>() {
    let world = W::new();
    world.run(async {
        let probe = Probe::new(&world);
        let transport = world.serve(Arc::clone(&probe) as _).await;
        for round in 0..100 {
            let calls = (0..HANDLERS_MAX).map(|n| {
                let body = Bytes::from(format!("{round}/{n}"));
                let reply = transport.call(b(), request("echo", body.clone(), LONG));
                async move { assert_eq!(reply.await, Ok(body)) }
            });
            join_all(calls).await;
        }
        assert_eq!(probe.started.load(Ordering::SeqCst), 100 * HANDLERS_MAX);
    });
}

fn an_oversize_request_is_malformed_and_harms_no_other<W: World>() {
    let world = W::new();
    world.run(async {
        let transport = world.serve(Probe::new(&world)).await;
        let body = vec![0; savanna_rpc::tcp::FRAME_BYTES_MAX_DEFAULT + 1];
        let error = transport.call(b(), request("echo", body, LONG)).await.expect_err("too large");
        assert!(matches!(error, RpcError::Malformed { .. }), "{error}");
        assert_eq!(transport.call(b(), request("echo", "x", LONG)).await, Ok(Bytes::from_static(b"x")));
    });
}

fn a_server_that_stops_ends_the_calls_on_it<W: World>() {
    let world = W::new();
    world.run(async {
        let probe = Probe::new(&world);
        let transport = world.serve(Arc::clone(&probe) as _).await;
        let hanging = transport.call(b(), request("hang", "", Duration::from_secs(120)));
        let stopping = async {
            probe.wait_for(&probe.started, 1).await;
            world.stop_server();
        };
        let (result, ()) = futures::join!(hanging, stopping);
        let error = result.expect_err("the server is gone");
        assert!(matches!(error, RpcError::Unreachable { delivery: Delivery::Unknown, .. }), "{error}");
        let error = transport.call(b(), request("echo", "", LONG)).await.expect_err("still gone");
        assert!(matches!(error, RpcError::Unreachable { .. }), "{error}");
    });
}

struct Add;

impl Method for Add {
    const NAME: &'static str = "sums/add";
    const IDEMPOTENT: bool = true;
    type Request = (u32, u32);
    type Reply = Result<u32, String>;
}

fn typed_methods_find_their_service_and_refuse_other_values<W: World>() {
    let world = W::new();
    world.run(async {
        let sums = MethodTable::new().method(std::marker::PhantomData::<Add>, |_, (x, y): (u32, u32)| async move {
            Ok(x.checked_add(y).ok_or_else(|| "too large".to_owned()))
        });
        let transport = world.serve(Arc::new(ServiceTable::new().service("sums", Arc::new(sums)))).await;
        assert_eq!(call::<Add>(&*transport, b(), &(2, 3), LONG).await, Ok(Ok(5)));
        assert_eq!(call::<Add>(&*transport, b(), &(u32::MAX, 3), LONG).await, Ok(Err("too large".to_owned())));
        let mut wrong = request("", "not two numbers", LONG);
        Add::NAME.clone_into(&mut wrong.head.method);
        assert!(matches!(transport.call(b(), wrong).await, Err(RpcError::Malformed { .. })));
        for unknown in ["sums/subtract", "products/multiply"] {
            let mut request = request("", "", LONG);
            unknown.clone_into(&mut request.head.method);
            assert!(matches!(transport.call(b(), request).await, Err(RpcError::Refused { .. })));
        }
    });
}

macro_rules! suite {
    ($($case:ident),* $(,)?) => {
        mod in_process { $(#[test] fn $case() { super::$case::<super::InProcess>(); })* }
        mod tcp { $(#[test] fn $case() { super::$case::<super::Tcp<false>>(); })* }
        mod encrypted { $(#[test] fn $case() { super::$case::<super::Tcp<true>>(); })* }
        mod simulated { $(#[test] fn $case() { super::$case::<super::Simulated<false>>(); })* }
        mod simulated_with_faults { $(#[test] fn $case() { super::$case::<super::Simulated<true>>(); })* }
    };
}

suite!(
    a_reply_and_the_asker_s_name_come_through,
    a_handler_s_error_arrives_as_it_is,
    a_call_ends_when_its_time_is_over_and_its_handler_is_dropped,
    a_dropped_call_drops_its_handler,
    an_unknown_node_is_unreachable_and_nothing_started,
    a_panicking_handler_fails_its_call_alone,
    more_handlers_than_allowed_are_refused_as_overload,
    each_of_many_calls_gets_its_own_reply_and_starts_once,
    an_oversize_request_is_malformed_and_harms_no_other,
    a_server_that_stops_ends_the_calls_on_it,
    typed_methods_find_their_service_and_refuse_other_values,
);
