//! Services start, fail and stop alone.

use std::net::TcpListener;
use std::sync::atomic::Ordering;

use savanna_http::types::{NodeStatus, ServiceState, ServiceStatus, Settings};
use savanna_node::Node;

use crate::{config, stub};

fn service<'a>(status: &'a NodeStatus, name: &str) -> &'a ServiceStatus {
    status.services.iter().find(|service| service.service == name).unwrap()
}

async fn get<T: serde::de::DeserializeOwned>(status: &NodeStatus, path: &str) -> T {
    let address = service(status, "http").address.clone().unwrap();
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    client.get(format!("http://{address}{path}")).send().await.unwrap().json().await.unwrap()
}

#[tokio::test]
async fn every_service_runs_and_says_where() {
    let directory = tempfile::tempdir().unwrap();
    let (engine, streams) = stub();
    let node = Node::start_with(config(directory.path(), &[]), streams).await.unwrap();
    let status = node.status();
    for name in ["streams", "pgwire", "http", "keys", "tenants"] {
        assert_eq!(service(&status, name).state, ServiceState::Running, "{name}");
    }
    let asked: NodeStatus = get(&status, "/api/v1/status").await;
    assert_eq!((asked.services, asked.lease), (status.services.clone(), status.lease.clone()));
    let settings: Settings = get(&status, "/api/v1/config").await;
    let port = settings.settings.iter().find(|s| s.key == "http.port").unwrap();
    assert_eq!((port.value.as_str(), port.source.as_str()), ("0", "flag --test"));
    node.shutdown().await.unwrap();
    assert!(engine.stopped.load(Ordering::Relaxed));
}

#[tokio::test]
async fn files_are_served_where_somebody_asks_for_them() {
    let directory = tempfile::tempdir().unwrap();
    let only_files = ("services", "files");
    let node = Node::start_with(config(directory.path(), &[only_files]), stub().1).await.unwrap();
    let status = node.status();
    assert_eq!(service(&status, "files").state, ServiceState::Running);
    let figures: Vec<_> = node.view().figures().into_iter().map(|figure| figure.name).collect();
    assert!(figures.contains(&"savanna_files_inodes"), "{figures:?}");
    let address = service(&status, "webhdfs").address.clone().unwrap();
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let root = client.get(format!("http://{address}/webhdfs/v1/?op=GETFILESTATUS")).send().await.unwrap();
    assert_eq!(root.status(), 200);
    node.shutdown().await.unwrap();
    // Who only says who it is does not come in where others have to show it.
    let users = directory.path().join("users");
    std::fs::write(&users, "ann open sesame\n").unwrap();
    std::fs::set_permissions(&users, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let asks = [only_files, ("auth.users", users.to_str().unwrap())];
    let node = Node::start_with(config(directory.path(), &asks), stub().1).await.unwrap();
    let status = node.status();
    let files = service(&status, "files");
    assert_eq!(files.state, ServiceState::Failed);
    assert!(files.reason.as_deref().unwrap().contains("files.trust_names"), "{files:?}");
    assert!(status.services.iter().all(|service| service.service != "webhdfs"), "{status:?}");
    node.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_port_that_is_taken_stops_only_its_service() {
    let directory = tempfile::tempdir().unwrap();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let node = Node::start_with(config(directory.path(), &[("pgwire.port", &port)]), stub().1).await.unwrap();
    let status: NodeStatus = get(&node.status(), "/api/v1/status").await;
    let pgwire = service(&status, "pgwire");
    assert_eq!(pgwire.state, ServiceState::Failed);
    let expected = format!(
        "127.0.0.1:{port} is taken by another process; stop that process, or choose another port with --pgwire-port"
    );
    assert_eq!(pgwire.reason.as_deref(), Some(expected.as_str()));
    assert_eq!(status.not_ready().as_deref(), Some("pgwire is failed"));
    node.shutdown().await.unwrap();
}
