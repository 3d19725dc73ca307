//! The etcd coordinator where etcd encrypts, asks for certificates, and has users: it does the same, and says plainly why it is not let in.

use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use etcd_client::{Client, Permission, PermissionType};
use futures::StreamExt as _;
use savanna_ownership::etcd::{EtcdCoordinator, EtcdLogin, EtcdOptions, EtcdTls};
use savanna_ownership::{Coordinator, CoordinatorError, Revision, RootValue};
use tempfile::TempDir;

use crate::etcd::free_port;
use crate::suite::{spec, suite, with_patience};

const PASSWORD: &str = "correct horse";
/// How long a token is good that nobody uses.
const TOKENS: Duration = Duration::from_secs(1);

/// An etcd of its own that speaks TLS to who shows a certificate, and has users.
struct Etcd {
    process: Child,
    directory: TempDir,
    /// Where it speaks TLS.
    endpoint: String,
    /// Where it does not, for who looks after it.
    plain: String,
    peers: String,
}

impl Drop for Etcd {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn openssl(directory: &Path, words: &[&str]) {
    let done = Command::new("openssl").current_dir(directory).args(words).output().expect("openssl runs");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
}

/// `ours` has signed `etcd`, `node` and `elsewhere`, which is for another address; `foreign` has signed `foreign-node`.
fn sign(directory: &Path) {
    const KEY: [&str; 5] = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"];
    for authority in ["ours", "foreign"] {
        let (key, pem, name) = (format!("{authority}.key"), format!("{authority}.pem"), format!("/CN={authority}"));
        openssl(directory, &[&["req", "-x509"][..], &KEY, &["-subj", &name, "-keyout", &key, "-out", &pem]].concat());
    }
    let signed = [
        ("ours", "etcd", "IP:127.0.0.1"),
        ("ours", "node", "DNS:savanna-node"),
        ("ours", "elsewhere", "IP:127.0.0.9"),
        ("foreign", "foreign-node", "DNS:savanna-node"),
    ];
    for (authority, who, names) in signed {
        let (key, pem, names) = (format!("{who}.key"), format!("{who}.pem"), format!("subjectAltName={names}"));
        let asked = ["-subj", "/CN=", "-addext", &names, "-keyout", &key, "-out", "request"];
        openssl(directory, &[&["req"][..], &KEY, &asked].concat());
        let (by, by_key) = (format!("{authority}.pem"), format!("{authority}.key"));
        let how = ["-CA", &by, "-CAkey", &by_key, "-CAcreateserial", "-out", &pem];
        openssl(directory, &[&["x509", "-req", "-in", "request", "-copy_extensions", "copy"][..], &how].concat());
    }
}

fn spawn(directory: &Path, [endpoint, plain, peers]: [&str; 3], certificate: &str) -> Option<Child> {
    let binary = std::env::var("SAVANNA_ETCD").unwrap_or_else(|_| "etcd".to_owned());
    let file = |name: &str| directory.join(name).display().to_string();
    let urls = format!("https://{endpoint},http://{plain}");
    let (cert, key) = (file(&format!("{certificate}.pem")), file(&format!("{certificate}.key")));
    let process = Command::new(&binary)
        .args(["--data-dir", &file("data"), "--name", "it", "--initial-cluster", &format!("it=http://{peers}")])
        .args(["--listen-client-urls", &urls, "--advertise-client-urls", &urls])
        .args(["--listen-peer-urls", &format!("http://{peers}")])
        .args(["--initial-advertise-peer-urls", &format!("http://{peers}")])
        .args(["--cert-file", &cert, "--key-file", &key, "--trusted-ca-file", &file("ours.pem"), "--client-cert-auth"])
        .args(["--bcrypt-cost", "4", "--auth-token-ttl", &TOKENS.as_secs().to_string()])
        .args(["--heartbeat-interval", "10", "--election-timeout", "100", "--log-level", "error"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    match process {
        Ok(process) => Some(process),
        Err(error) => {
            assert!(std::env::var_os("CI").is_none(), "{binary} does not start here: {error}; run `make test-deps`");
            println!("skipped: {binary} does not start here: {error}");
            None
        }
    }
}

impl Etcd {
    async fn start(certificate: &str) -> Option<Self> {
        let (etcd, mut client) = loop {
            let mut etcd = Self::launch(certificate)?;
            match etcd.administrator().await {
                Ok(client) => break (etcd, client),
                // Another process was faster to take a port.
                Err(status) => println!("etcd ended ({status}), trying other ports"),
            }
        };
        let permission = |kind, prefix| Permission::new(kind, prefix).with_prefix();
        client.role_add("nodes").await.unwrap();
        client.role_grant_permission("nodes", permission(PermissionType::Readwrite, "/savanna/")).await.unwrap();
        client.role_add("root").await.unwrap();
        for (user, role) in [("root", Some("root")), ("savanna", Some("nodes")), ("nobody", None)] {
            client.user_add(user, PASSWORD, None).await.unwrap();
            if let Some(role) = role {
                client.user_grant_role(user, role).await.unwrap();
            }
        }
        client.auth_enable().await.unwrap();
        Some(etcd)
    }

    fn launch(certificate: &str) -> Option<Self> {
        let directory = tempfile::tempdir().unwrap();
        sign(directory.path());
        let [endpoint, plain, peers] = std::array::from_fn(|_| format!("127.0.0.1:{}", free_port()));
        let process = spawn(directory.path(), [&endpoint, &plain, &peers], certificate)?;
        Some(Self { process, directory, endpoint, plain, peers })
    }

    /// Once it answers; how it ended, if it does so before.
    async fn administrator(&mut self) -> Result<Client, ExitStatus> {
        loop {
            if let Some(status) = self.process.try_wait().unwrap() {
                return Err(status);
            }
            if let Ok(mut client) = Client::connect([&self.plain], None).await
                && client.status().await.is_ok_and(|status| status.leader() != 0)
            {
                return Ok(client);
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Ends it as a crash does, and starts it again: it knows no token that it has given.
    async fn restart(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
        let addresses = [&self.endpoint, &self.plain, &self.peers].map(String::as_str);
        self.process = spawn(self.directory.path(), addresses, "etcd").expect("it has started before");
        self.administrator().await.expect("it starts again on the ports that it had");
    }

    fn tls(&self, authority: &str, shown: Option<&str>) -> EtcdTls {
        let read = |name: String| std::fs::read(self.directory.path().join(name)).unwrap();
        let shown = shown.map(|who| (read(format!("{who}.pem")), read(format!("{who}.key"))));
        let shown = shown.as_ref().map(|(certificate, key)| (&certificate[..], &key[..]));
        EtcdTls::of_pem(&read(format!("{authority}.pem")), shown).unwrap()
    }

    fn options(&self) -> EtcdOptions {
        EtcdOptions {
            ttl: Duration::from_secs(1),
            tls: Some(self.tls("ours", Some("node"))),
            login: login("savanna", PASSWORD),
            ..EtcdOptions::new(vec![self.endpoint.clone()])
        }
    }
}

fn login(user: &str, password: &str) -> Option<EtcdLogin> {
    Some(EtcdLogin { user: user.to_owned(), password: password.to_owned() })
}

async fn start() -> Option<(Arc<dyn Coordinator>, Etcd)> {
    let etcd = Etcd::start("etcd").await?;
    Some((Arc::new(EtcdCoordinator::connect(etcd.options()).await.unwrap()), etcd))
}

suite!(start);

async fn refused(options: EtcdOptions) -> (bool, String) {
    let error = EtcdCoordinator::connect(options).await.unwrap_err();
    let is_final = matches!(error, CoordinatorError::Refused { .. });
    assert!(is_final || matches!(error, CoordinatorError::Unavailable { .. }), "{error:?}");
    let text = error.to_string();
    assert!(!text.contains(PASSWORD) && !text.contains("wrong horse"), "{text}");
    (is_final, text)
}

#[tokio::test]
async fn who_is_not_let_in_hears_why() {
    let Some(etcd) = Etcd::start("etcd").await else { return };
    with_patience(async {
        let with = |login| EtcdOptions { login, ..etcd.options() };
        let unencrypted = EtcdOptions { endpoints: vec![etcd.plain.clone()], tls: None, ..with(None) };
        let finally = [
            (with(login("savanna", "wrong horse")), "look at cluster.etcd_user and SAVANNA_ETCD_PASSWORD"),
            (with(login("stranger", PASSWORD)), "look at cluster.etcd_user and SAVANNA_ETCD_PASSWORD"),
            (with(None), "may not read and write the records of the cluster"),
            (unencrypted, "set cluster.etcd_user and SAVANNA_ETCD_PASSWORD"),
            (with(login("nobody", PASSWORD)), "may not read and write the records of the cluster"),
            (EtcdOptions { prefix: "/elsewhere/".to_owned(), ..etcd.options() }, "may not read and write"),
        ];
        for (options, expected) in finally {
            let (is_final, text) = refused(options).await;
            assert!(is_final && text.contains(expected), "expected {expected}, came {text}");
        }
        let over = |tls| EtcdOptions { tls: Some(tls), ..etcd.options() };
        let unreached = [
            (over(etcd.tls("foreign", Some("node"))), "an authority in cluster.etcd_ca has signed, came another one"),
            (over(etcd.tls("ours", None)), "look at cluster.etcd_cert"),
            (over(etcd.tls("ours", Some("foreign-node"))), "look at cluster.etcd_cert"),
            (EtcdOptions { endpoints: vec![etcd.plain.clone()], ..etcd.options() }, "does not speak TLS as etcd://"),
        ];
        for (options, expected) in unreached {
            let (is_final, text) = refused(options).await;
            assert!(!is_final && text.contains(expected), "expected {expected}, came {text}");
        }
    })
    .await;
}

#[tokio::test]
async fn an_etcd_with_a_certificate_for_another_address_is_not_asked() {
    let Some(etcd) = Etcd::start("elsewhere").await else { return };
    with_patience(async {
        let (_, text) = refused(etcd.options()).await;
        assert!(text.contains("expected a certificate of etcd for this address"), "{text}");
    })
    .await;
}

#[tokio::test]
async fn who_has_a_user_where_there_are_none_hears_so() {
    let Some(etcd) = Etcd::start("etcd").await else { return };
    with_patience(async {
        let root = etcd_client::ConnectOptions::new().with_user("root", PASSWORD);
        let mut client = Client::connect([&etcd.plain], Some(root)).await.unwrap();
        client.auth_disable().await.unwrap();
        let (is_final, text) = refused(etcd.options()).await;
        assert!(is_final && text.contains("leave cluster.etcd_user out"), "{text}");
        EtcdCoordinator::connect(EtcdOptions { login: None, ..etcd.options() }).await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn a_token_that_has_run_out_or_was_forgotten_is_replaced_and_leases_and_watches_go_on() {
    let Some(mut etcd) = Etcd::start("etcd").await else { return };
    with_patience(async {
        let coordinator = EtcdCoordinator::connect(etcd.options()).await.unwrap();
        tokio::time::sleep(TOKENS * 3).await;
        let long = EtcdOptions { ttl: Duration::from_secs(60), ..etcd.options() };
        let holder = EtcdCoordinator::connect(long).await.unwrap();
        let tenure = holder.register(&spec("n1", 1)).await.unwrap().tenure;
        let before = coordinator.put_root("r", Revision::NONE, RootValue::default()).await.unwrap();

        etcd.restart().await;
        // A connection that was lost is made anew with a request.
        while let Err(error) = holder.heartbeat(&tenure).await {
            assert!(matches!(error, CoordinatorError::Unavailable { .. }), "{error}");
        }
        let mut changes = loop {
            match coordinator.watch(before).await {
                Ok(changes) => break changes,
                Err(error) => assert!(matches!(error, CoordinatorError::Unavailable { .. }), "{error}"),
            }
        };
        let after = coordinator.put_root("r", before, RootValue(b"x".to_vec())).await.unwrap();
        assert_eq!(changes.next().await.unwrap().unwrap().revision, after);

        // Nobody asks anything but by the watch, whose token has run out since.
        tokio::time::sleep(TOKENS * 3).await;
        let mut other =
            Client::connect([&etcd.plain], Some(etcd_client::ConnectOptions::new().with_user("root", PASSWORD)))
                .await
                .unwrap();
        other.put("/savanna/roots/s", "1", None).await.unwrap();
        assert!(changes.next().await.unwrap().is_ok());
        holder.heartbeat(&tenure).await.unwrap();
        holder.deregister(&tenure).await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn users_of_etcd_may_change_meanwhile() {
    let Some(etcd) = Etcd::start("etcd").await else { return };
    with_patience(async {
        let coordinator = EtcdCoordinator::connect(etcd.options()).await.unwrap();
        let root = etcd_client::ConnectOptions::new().with_user("root", PASSWORD);
        let mut client = Client::connect([&etcd.plain], Some(root)).await.unwrap();
        client.user_add("another", PASSWORD, None).await.unwrap();
        coordinator.put_root("r", Revision::NONE, RootValue::default()).await.unwrap();
        client
            .role_revoke_permission(
                "nodes",
                "/savanna/",
                Some(etcd_client::RoleRevokePermissionOptions::new().with_prefix()),
            )
            .await
            .unwrap();
        let refused = coordinator.root("r").await.unwrap_err();
        let CoordinatorError::Unavailable { reason } = &refused else { panic!("{refused:?}") };
        assert!(reason.contains("may not read and write the records"), "{reason}");
    })
    .await;
}
