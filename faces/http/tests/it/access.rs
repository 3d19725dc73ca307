//! Who may ask: hosts, origins, tokens, and connections that are encrypted.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use reqwest::Method;
use rustls::pki_types::{CertificateDer, ServerName, pem::PemObject as _};
use rustls::{ClientConfig, ClientConnection, RootCertStore};
use savanna_http::HttpLimits;
use savanna_identity::{Tls, TlsFiles, Token};
use serde_json::json;

use crate::stub::{serve, serve_guarded};

#[tokio::test]
async fn a_page_of_a_foreign_site_gets_nothing_from_a_node_on_the_loopback() {
    let face = serve(HttpLimits::default()).await;
    let request = face.http.get(format!("{}/api/v1/status", face.url)).header("host", "evil.example");
    let answer = request.send().await.unwrap();
    assert_eq!(answer.status(), 403);
    let open = serve(HttpLimits { loopback_only: false, ..HttpLimits::default() }).await;
    let request = open.http.get(format!("{}/api/v1/status", open.url)).header("host", "savanna.example");
    assert_eq!(request.send().await.unwrap().status(), 200);
}

/// Every route that takes other methods than GET, one that takes none, and one that there is not.
fn changing_requests() -> Vec<(Method, String)> {
    let document = serde_json::to_value(savanna_http::document()).unwrap();
    let mut requests = vec![(Method::POST, "/nowhere".to_owned()), (Method::POST, "/healthz".to_owned())];
    for (path, item) in document["paths"].as_object().unwrap() {
        let path: Vec<&str> = path.split('/').map(|part| if part.starts_with('{') { "1" } else { part }).collect();
        for method in item.as_object().unwrap().keys().filter(|method| *method != "get") {
            requests.push((method.to_uppercase().parse().unwrap(), path.join("/")));
        }
    }
    assert!(requests.contains(&(Method::POST, "/api/v1/tenants/1/restore".to_owned())));
    requests
}

#[tokio::test]
async fn a_page_of_a_foreign_site_changes_nothing_whatever_it_sends() {
    for limits in [HttpLimits::default(), HttpLimits { loopback_only: false, ..HttpLimits::default() }] {
        let face = serve(limits).await;
        for (method, path) in changing_requests() {
            for (header, value) in
                [("origin", "http://evil.example"), ("origin", "null"), ("sec-fetch-site", "cross-site")]
            {
                for media in ["text/plain", "application/x-www-form-urlencoded", "application/json"] {
                    let request = face.http.request(method.clone(), format!("{}{path}", face.url));
                    let request = request.header("content-type", media).header(header, value);
                    let answer = request.body("{}").send().await.unwrap();
                    assert_eq!(answer.status(), 403, "{method} {path} {header} {media}");
                }
            }
        }
        let own = face.http.post(format!("{}/api/v1/sql/split", face.url)).header("origin", &face.url);
        assert_eq!(own.json(&json!({ "sql": "a" })).send().await.unwrap().status(), 200);
    }
}

fn token(directory: &tempfile::TempDir) -> Token {
    let path = directory.path().join("token");
    std::fs::write(&path, "0123456789abcdef\n").unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    Token::read(&path).unwrap()
}

#[tokio::test]
async fn with_a_token_only_health_is_told_without() {
    let directory = tempfile::tempdir().unwrap();
    let face = serve_guarded(HttpLimits::default(), Some(token(&directory)), None).await;
    for path in ["/api/v1/status", "/api/v1/config", "/metrics", "/api/v1/tenants", "/nowhere"] {
        let ask = || face.http.get(format!("{}{path}", face.url));
        assert_eq!(ask().send().await.unwrap().status(), 401, "{path}");
        assert_eq!(ask().bearer_auth("0123456789abcdeX").send().await.unwrap().status(), 401, "{path}");
        assert_eq!(ask().basic_auth("0123456789abcdef", None::<&str>).send().await.unwrap().status(), 401, "{path}");
        assert_ne!(ask().bearer_auth("0123456789abcdef").send().await.unwrap().status(), 401, "{path}");
    }
    for path in ["/healthz", "/readyz"] {
        assert_eq!(face.get(path).await.status(), 200, "{path}");
    }
}

/// A certificate that is used for nothing but tests.
fn fixture(name: &str) -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "../../kernels/identity/fixtures", name].iter().collect()
}

#[tokio::test]
async fn connections_are_encrypted_and_may_end_anywhere_in_the_handshake() {
    let tls = Tls::read(&TlsFiles { certificates: fixture("cert.pem"), key: fixture("key.pem") }).unwrap();
    let face = serve_guarded(HttpLimits::default(), None, Some(tls)).await;
    let address = face.url.trim_start_matches("http://").to_owned();
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(fixture("cert.pem")).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let trusting = Arc::new(builder.with_root_certificates(roots).with_no_client_auth());

    tokio::task::spawn_blocking(move || {
        // Gives the answer once everything was sent, nothing if the connection was cut before.
        let ask = |mut left: usize| {
            let mut socket = TcpStream::connect(&address).unwrap();
            socket.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
            let name = ServerName::try_from("localhost").unwrap();
            let mut tls = ClientConnection::new(Arc::clone(&trusting), name).unwrap();
            tls.writer().write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").unwrap();
            let mut answer = Vec::new();
            loop {
                let mut bytes = Vec::new();
                while tls.wants_write() {
                    tls.write_tls(&mut bytes).unwrap();
                }
                let sent = &bytes[..bytes.len().min(left)];
                drop(socket.write_all(sent));
                left -= sent.len();
                if sent.len() < bytes.len() {
                    drop(socket.shutdown(Shutdown::Write));
                    match socket.read_to_end(&mut Vec::new()) {
                        Ok(_) => return None,
                        Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return None,
                        Err(error) => panic!("the node keeps a connection that ended: {error}"),
                    }
                }
                if tls.read_tls(&mut socket).unwrap() == 0 {
                    return Some(String::from_utf8(answer).unwrap());
                }
                tls.process_new_packets().unwrap();
                let _ = tls.reader().read_to_end(&mut answer);
            }
        };
        let answer = (0..10_000).find_map(ask).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    })
    .await
    .unwrap();
}
