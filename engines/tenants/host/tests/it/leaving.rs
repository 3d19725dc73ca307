//! Sessions whose tenant is about to move.

use std::{future::pending, io, path::Path, time::Duration};

use futures::{FutureExt, future::LocalBoxFuture};
use savanna_epoch::NodeEpoch;
use savanna_tenants_host::{
    Connection, ConnectionGuard, Encoding, End, Host, HostOptions, Identity, Keeping, Notice, Notification, Outcome,
    Peer, Session, SqlError, TenantId, Tenants, Waiting, value::style::Style,
};
use tokio::sync::oneshot;

const ATTEMPT: u64 = 1;

/// A client that says nothing, of which much or little was read and not obeyed.
struct Quiet {
    is_light: bool,
}

impl Peer for Quiet {
    async fn gone(&mut self) -> io::Error {
        pending().await
    }

    async fn gone_while_light(&mut self) -> Option<io::Error> {
        if self.is_light { pending().await } else { None }
    }

    fn is_light(&self) -> bool {
        self.is_light
    }

    fn notice(&mut self, _: &Notice) {}

    fn heard(&mut self, _: &Notification) {}

    fn style(&mut self, _: Style) {}

    fn encoding(&mut self, _: Encoding) {}
}

type Work = Box<dyn FnOnce(Session) -> LocalBoxFuture<'static, ()> + Send>;

struct Client(Work);

impl Connection for Client {
    fn serve(self: Box<Self>, guard: ConnectionGuard) -> LocalBoxFuture<'static, ()> {
        async move {
            let (user, database) = ("ann".to_owned(), "shop".to_owned());
            let session = guard
                .open(Identity { user, database, administrator: true, is_inside: false, client: None }, &[])
                .await
                .unwrap();
            (self.0)(session).await;
        }
        .boxed_local()
    }

    fn refuse(self: Box<Self>, error: SqlError) -> LocalBoxFuture<'static, ()> {
        panic!("{error}")
    }

    fn follow(self: Box<Self>, _: TenantId) -> LocalBoxFuture<'static, ()> {
        panic!("the tenant has gone")
    }
}

/// Connects a client that does something, and waits for what comes of that.
fn connect<F: Future<Output = String> + 'static>(
    tenants: &Tenants,
    tenant: TenantId,
    work: impl FnOnce(Session) -> F + Send + 'static,
) -> oneshot::Receiver<String> {
    let (done, came) = oneshot::channel();
    // Whoever asked may have gone.
    let client = Client(Box::new(move |session| async move { _ = done.send(work(session).await) }.boxed_local()));
    tenants.connect(tenant, Box::new(client));
    came
}

/// What comes of a statement whose transaction is its own.
async fn run(session: &mut Session, peer: &mut Quiet, text: &str) -> String {
    let told = |error| match error {
        End::TakenBack => "taken back".to_owned(),
        End::Fatal(error) => error.message,
        End::Client(error) => error.to_string(),
    };
    session.begin(2).await;
    let ran = session.run(peer, text.to_owned()).await;
    let ran = match ran {
        Ok(Ok(_)) => session.finish(peer).await,
        Ok(Err(error)) => return error.message,
        Err(end) => return told(end),
    };
    match ran {
        Ok(Ok(())) => {
            session.told(peer).await;
            "done".to_owned()
        }
        Ok(Err(error)) => error.message,
        Err(end) => told(end),
    }
}

fn start(directory: &Path) -> Host {
    Host::start(HostOptions::alone(Keeping::local(directory), NodeEpoch(1), 2, None).unwrap()).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_statement_is_taken_back_unless_too_much_came_behind_it() {
    let directory = tempfile::tempdir().unwrap();
    let host = tokio::task::block_in_place(|| start(directory.path()));
    let tenants = host.tenants();
    tenants.create("shop").await.unwrap();
    let tenant = tenants.tenant("shop").await.unwrap();

    let ((holds, held), (go, goes)) = (oneshot::channel(), oneshot::channel::<()>());
    let holder = connect(&tenants, tenant, move |mut session| async move {
        let peer = &mut Quiet { is_light: true };
        for text in ["CREATE TABLE stock (id int PRIMARY KEY, n int)", "INSERT INTO stock VALUES (1, 0)", "BEGIN"] {
            assert_eq!(run(&mut session, peer, text).await, "done");
        }
        assert_eq!(run(&mut session, peer, "UPDATE stock SET n = n + 1").await, "done");
        holds.send(()).unwrap();
        goes.await.unwrap();
        run(&mut session, peer, "COMMIT").await
    });
    held.await.unwrap();
    let waiter = |is_light| {
        let ((comes, here), (go, goes)) = (oneshot::channel(), oneshot::channel::<()>());
        let came = connect(&tenants, tenant, move |mut session| async move {
            comes.send(()).unwrap();
            goes.await.unwrap();
            session.waits_as(Waiting::IsTakenBack);
            run(&mut session, &mut Quiet { is_light }, "UPDATE stock SET n = n + 1").await
        });
        (here, go, came)
    };
    let (heavy, light) = (waiter(false), waiter(true));
    heavy.0.await.unwrap();
    light.0.await.unwrap();
    tenants.freeze(tenant, ATTEMPT, true).await.unwrap();
    heavy.1.send(()).unwrap();
    light.1.send(()).unwrap();
    assert_eq!(light.2.await.unwrap(), "taken back");
    go.send(()).unwrap();
    assert_eq!(holder.await.unwrap(), "done");
    assert_eq!(heavy.2.await.unwrap(), "done", "all that came behind it would have to go along");
    tenants.resume(tenant, ATTEMPT);
    tokio::task::block_in_place(|| host.stop().unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_statement_that_takes_long_is_taken_back_where_it_runs_or_waits_for_its_turn_unless_too_much_came_behind_it()
{
    let directory = tempfile::tempdir().unwrap();
    let keeping = Keeping { patience: Duration::from_secs(600), ..Keeping::local(directory.path()) };
    let host = tokio::task::block_in_place(|| {
        Host::start(HostOptions::alone(keeping, NodeEpoch(1), 2, None).unwrap()).unwrap()
    });
    let tenants = host.tenants();
    // Two have all places for what takes long.
    let mut running = Vec::new();
    for (name, is_light) in [("first", false), ("second", true), ("third", false), ("shop", true)] {
        tenants.create(name).await.unwrap();
        let tenant = tenants.tenant(name).await.unwrap();
        let (begins, begun) = oneshot::channel();
        let came = connect(&tenants, tenant, move |mut session| async move {
            session.waits_as(Waiting::IsTakenBack);
            _ = begins.send(session.key());
            let long =
                "SELECT count(*) FROM generate_series(1, 30000) AS a, generate_series(1, 30000) AS b WHERE a + b < 0";
            run(&mut session, &mut Quiet { is_light }, long).await
        });
        running.push((tenant, begun.await.unwrap(), came));
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
    let within = Duration::from_secs(20);
    let (shop, _, came) = running.pop().unwrap();
    tenants.freeze(shop, ATTEMPT, true).await.unwrap();
    assert_eq!(tokio::time::timeout(within, came).await.unwrap().unwrap(), "taken back", "it waits for its turn");
    for (tenant, ..) in &running {
        tenants.freeze(*tenant, ATTEMPT, true).await.unwrap();
    }
    let (_, _, came) = running.remove(1);
    assert_eq!(tokio::time::timeout(within, came).await.unwrap().unwrap(), "taken back", "it runs");
    for (tenant, key, mut came) in running {
        assert!(tokio::time::timeout(Duration::from_millis(500), &mut came).await.is_err(), "much came behind it");
        tenants.resume(tenant, ATTEMPT);
        tenants.cancel(key);
        assert!(came.await.unwrap().starts_with("canceling statement"));
    }
    tokio::task::block_in_place(|| host.stop().unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tenant_is_served_until_a_statement_is_over_that_waits_for_another_database() {
    let directory = tempfile::tempdir().unwrap();
    let host = tokio::task::block_in_place(|| start(directory.path()));
    let tenants = host.tenants();
    for name in ["shop", "yard"] {
        tenants.create(name).await.unwrap();
    }
    let (shop, yard) = (tenants.tenant("shop").await.unwrap(), tenants.tenant("yard").await.unwrap());
    let ((comes, here), (leave, leaves)) = (oneshot::channel(), oneshot::channel::<()>());
    let occupant = connect(&tenants, yard, move |session| async move {
        comes.send(()).unwrap();
        leaves.await.unwrap();
        drop(session);
        "gone".to_owned()
    });
    here.await.unwrap();
    let (begins, begun) = oneshot::channel();
    let dropping = connect(&tenants, shop, move |mut session| async move {
        begins.send(()).unwrap();
        let drop = Outcome::DropDatabase { name: "yard".to_owned(), if_exists: false };
        let dropped = session.carry_out(&mut Quiet { is_light: true }, drop).await;
        dropped.map_or_else(|error| error.message, |_| "done".to_owned())
    });
    begun.await.unwrap();
    tokio::time::sleep(Duration::from_millis(100)).await;
    let mut frozen = Box::pin(tenants.freeze(shop, ATTEMPT, true));
    assert!(
        tokio::time::timeout(Duration::from_millis(200), &mut frozen).await.is_err(),
        "somebody is in the other one"
    );
    let other = |text| {
        connect(&tenants, shop, move |mut session| async move {
            run(&mut session, &mut Quiet { is_light: true }, text).await
        })
    };
    assert_eq!(other("SELECT 1").await.unwrap(), "done", "it is served meanwhile");
    leave.send(()).unwrap();
    assert_eq!((occupant.await.unwrap(), dropping.await.unwrap()), ("gone".to_owned(), "done".to_owned()));
    frozen.await.unwrap();
    let mut late = Box::pin(other("SELECT 2"));
    assert!(tokio::time::timeout(Duration::from_millis(200), &mut late).await.is_err(), "nobody is served any more");
    tenants.resume(shop, ATTEMPT);
    assert_eq!(late.await.unwrap(), "done");
    tokio::task::block_in_place(|| host.stop().unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_committed_lately_goes_along_and_is_written_down_where_nothing_does() {
    let directory = tempfile::tempdir().unwrap();
    let host = tokio::task::block_in_place(|| start(directory.path()));
    let tenants = host.tenants();
    tenants.create("shop").await.unwrap();
    let tenant = tenants.tenant("shop").await.unwrap();
    let writer = connect(&tenants, tenant, |mut session| async move {
        run(&mut session, &mut Quiet { is_light: true }, "CREATE TABLE t (id int PRIMARY KEY)").await
    });
    assert_eq!(writer.await.unwrap(), "done");
    for (attempt, along) in [(1, true), (2, false)] {
        tenants.freeze(tenant, attempt, along).await.unwrap();
        let moved = tenants.drain(tenant, attempt).await.unwrap();
        assert_eq!((moved.tail.is_empty(), moved.image), (!along, None));
        tenants.resume(tenant, attempt);
    }
    tenants.freeze(tenant, 3, true).await.unwrap();
    assert!(tenants.drain(tenant, 3).await.unwrap().tail.is_empty(), "the storage has it by now");
    tenants.resume(tenant, 3);
    tokio::task::block_in_place(|| host.stop().unwrap());
}
