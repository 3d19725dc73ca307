//! Who may reach a node: from other machines, and from other users of this one.

use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use savanna_http::types::NodeStatus;
use savanna_node::Node;

use crate::{config, stub};

fn fixture(name: &str) -> String {
    let path: PathBuf = [env!("CARGO_MANIFEST_DIR"), "../kernels/identity/fixtures", name].iter().collect();
    path.display().to_string()
}

fn token(directory: &Path) -> String {
    let path = directory.join("token");
    fs::write(&path, "0123456789abcdef\n").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    path.display().to_string()
}

fn users(directory: &Path) -> String {
    let path = directory.join("users");
    fs::write(&path, "ann open sesame\n").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    path.display().to_string()
}

/// The state of a service, and where it is or why not.
fn service(status: &NodeStatus, name: &str) -> (String, String) {
    let service = status.services.iter().find(|service| service.service == name).unwrap();
    let place = service.address.clone().or_else(|| service.reason.clone()).unwrap_or_default();
    (format!("{:?}", service.state).to_lowercase(), place)
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_listens_beyond_the_loopback_that_asks_for_no_secret() {
    let directory = tempfile::tempdir().unwrap();
    let (token, users) = (token(directory.path()), users(directory.path()));
    let (cert, key) = (fixture("cert.pem"), fixture("key.pem"));
    let everywhere = [("address", "0.0.0.0"), ("services", "streams")];
    let refused: [(&[(&str, &str)], &str); 4] = [
        (&[], "auth.users"),
        (&[("auth.token", &token)], "http.tls_cert"),
        (&[("auth.users", &users)], "http.tls_cert"),
        (&[("http.tls_cert", &cert), ("http.tls_key", &key)], "auth.token"),
    ];
    for (settings, missing) in refused {
        let flags = [&everywhere[..], settings].concat();
        let node = Node::start_with(config(&directory.path().join("data"), &flags), stub().1).await.unwrap();
        for face in ["http", "pgwire"] {
            let (state, reason) = service(&node.status(), face);
            assert_eq!(state, "failed", "{face}: {reason}");
        }
        let (_, reason) = service(&node.status(), "http");
        assert!(reason.contains(missing), "{reason}");
        node.shutdown().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_listen_beyond_the_loopback_for_users_who_encrypt() {
    let directory = tempfile::tempdir().unwrap();
    let users = users(directory.path());
    let (cert, key) = (fixture("cert.pem"), fixture("key.pem"));
    let tls = [("pgwire.tls_cert", cert.as_str()), ("pgwire.tls_key", key.as_str())];
    let cases: [(&[(&str, &str)], &str); 4] = [
        (&[("auth.users", &users)], "pgwire.tls_cert"),
        (&tls, "auth.users"),
        (&[tls[0], tls[1], ("auth.users", "/nowhere")], "/nowhere cannot be read"),
        (&[tls[0], tls[1], ("auth.users", &users)], ""),
    ];
    for (settings, missing) in cases {
        let flags = [&[("address", "0.0.0.0"), ("services", "pgwire")][..], settings].concat();
        let node = Node::start_with(config(&directory.path().join("data"), &flags), stub().1).await.unwrap();
        let (state, place) = service(&node.status(), "pgwire");
        assert_eq!(state, if missing.is_empty() { "running" } else { "failed" }, "{place}");
        assert!(place.contains(missing), "{place}");
        if missing.is_empty() {
            let port = place.rsplit_once(':').unwrap().1;
            let address = format!("host=127.0.0.1 port={port} user=ann password='open sesame' dbname=savanna_streams");
            let error = tokio_postgres::connect(&address, tokio_postgres::NoTls).await.err().unwrap();
            assert!(format!("{error:?}").contains("got one without encryption"), "{error:?}");
        }
        node.shutdown().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn with_a_token_the_control_api_listens_for_those_who_carry_it() {
    let directory = tempfile::tempdir().unwrap();
    let token = token(directory.path());
    let flags = [("address", "0.0.0.0"), ("services", "http"), ("auth.token", &token), ("http.plaintext", "true")];
    let node = Node::start_with(config(&directory.path().join("data"), &flags), stub().1).await.unwrap();
    let (state, address) = service(&node.status(), "http");
    assert_eq!(state, "running", "{address}");
    let port = address.rsplit_once(':').unwrap().1;
    let http = reqwest::Client::builder().no_proxy().build().unwrap();
    let ask = || http.get(format!("http://127.0.0.1:{port}/api/v1/status"));
    assert_eq!(ask().send().await.unwrap().status(), 401);
    assert_eq!(ask().bearer_auth("0123456789abcdef").send().await.unwrap().status(), 200);
    node.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn users_of_the_node_are_asked_for_at_every_face_on_the_loopback_too() {
    let directory = tempfile::tempdir().unwrap();
    let users = users(directory.path());
    let flags = [("services", "streams,keys"), ("auth.users", &users), ("keys.threads", "2")];
    let node = Node::start_with(config(&directory.path().join("data"), &flags), stub().1).await.unwrap();
    let address = |name| service(&node.status(), name).1;
    let http = reqwest::Client::builder().no_proxy().build().unwrap();
    let ask = || http.get(format!("http://{}/api/v1/status", address("http")));
    assert_eq!(ask().send().await.unwrap().status(), 401);
    assert_eq!(ask().basic_auth("ann", Some("open sesame")).send().await.unwrap().status(), 200);
    let keys = address("keys");
    let call = |request: &str| {
        let mut client = std::net::TcpStream::connect(&keys).unwrap();
        client.write_all(format!("{request}\r\nQUIT\r\n").as_bytes()).unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        answer
    };
    assert!(call("GET a").starts_with("-NOAUTH"));
    assert_eq!(call("AUTH ann \"open sesame\"\r\nACL WHOAMI"), "+OK\r\n$3\r\nann\r\n+OK\r\n");
    node.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn other_users_of_the_machine_do_not_read_the_data() {
    let directory = tempfile::tempdir().unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let data = directory.path().join("new").join("data");
    for _ in 0..2 {
        let node = Node::start_with(config(&data, &[("services", "http")]), stub().1).await.unwrap();
        assert_eq!(mode(&data), 0o700);
        node.shutdown().await.unwrap();
        // As one that an older release has made.
        fs::set_permissions(&data, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let shared = directory.path().join("shared");
    fs::create_dir(&shared).unwrap();
    fs::write(shared.join("something else"), "").unwrap();
    fs::set_permissions(&shared, fs::Permissions::from_mode(0o755)).unwrap();
    for _ in 0..2 {
        let node = Node::start_with(config(&shared, &[("services", "keys,tenants")]), stub().1).await.unwrap();
        assert_eq!(mode(&shared), 0o755, "what is not ours stays as it is");
        for name in ["coordinator", "high-water", "keys", "tenants"] {
            assert_eq!(mode(&shared.join(name)), 0o700, "{name}");
        }
        node.shutdown().await.unwrap();
    }
}
