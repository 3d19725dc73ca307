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
use savanna_http::{Credentials, HttpLimits};
use savanna_identity::{Tls, TlsFiles, Token, Users};
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

/// A token, and users, as a node reads them.
fn credentials(token: Option<&str>, users: Option<&str>) -> Credentials {
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = directory.path().join(name);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        path
    };
    Credentials {
        token: token.map(|text| Token::read(&file("token", text)).unwrap()),
        users: users.map_or_else(Users::default, |text| Users::read(&file("users", text)).unwrap()),
    }
}

const TOKEN: &str = "0123456789abcdef";
const USERS: &str = "ann open: sesame\nbob secret\n";

#[tokio::test]
async fn with_a_token_only_health_is_told_without() {
    let face = serve_guarded(HttpLimits::default(), credentials(Some(TOKEN), None), None).await;
    for path in ["/api/v1/status", "/api/v1/config", "/metrics", "/api/v1/tenants", "/nowhere"] {
        let ask = || face.http.get(format!("{}{path}", face.url));
        assert_eq!(ask().send().await.unwrap().status(), 401, "{path}");
        assert_eq!(ask().bearer_auth("0123456789abcdeX").send().await.unwrap().status(), 401, "{path}");
        assert_eq!(ask().basic_auth(TOKEN, None::<&str>).send().await.unwrap().status(), 401, "{path}");
        assert_ne!(ask().bearer_auth(TOKEN).send().await.unwrap().status(), 401, "{path}");
    }
    for path in ["/healthz", "/readyz"] {
        assert_eq!(face.get(path).await.status(), 200, "{path}");
    }
}

#[tokio::test]
async fn another_node_is_told_whether_somebody_has_shown_who_he_is() {
    let path = "/api/v1/nodes/guarded/config";
    let open = serve_guarded(HttpLimits::default(), Credentials::default(), None).await;
    assert_eq!(open.http.get(format!("{}{path}", open.url)).bearer_auth(TOKEN).send().await.unwrap().status(), 404);
    let face = serve_guarded(HttpLimits::default(), credentials(Some(TOKEN), None), None).await;
    assert_eq!(face.http.get(format!("{}{path}", face.url)).bearer_auth(TOKEN).send().await.unwrap().status(), 200);
}

#[tokio::test]
async fn a_user_comes_in_with_name_and_password_beside_a_token_or_without() {
    for token in [None, Some(TOKEN)] {
        let face = serve_guarded(HttpLimits::default(), credentials(token, Some(USERS)), None).await;
        for path in ["/api/v1/status", "/metrics", "/api/v1/tenants", "/nowhere"] {
            let ask = || face.http.get(format!("{}{path}", face.url));
            for (name, password) in
                [("ann", Some("secret")), ("ann", Some("")), ("ann", None), ("eve", Some("secret")), ("", Some(""))]
            {
                let refused = ask().basic_auth(name, password).send().await.unwrap();
                assert_eq!(refused.status(), 401, "{path} {name} {password:?}");
            }
            for authorization in ["Basic", "Basic ", "Basic !", "Basic YW5u", "Basic YW5uOv8=", "Digest YW5u", ""] {
                let refused = ask().header("authorization", authorization).send().await.unwrap();
                assert_eq!(refused.status(), 401, "{path} {authorization}");
            }
            // Somebody in between who adds one does not choose who it is.
            let twice = ask().basic_auth("bob", Some("secret")).basic_auth("bob", Some("secret"));
            assert_eq!(twice.send().await.unwrap().status(), 401, "{path}");
            for (name, password) in [("ann", "open: sesame"), ("bob", "secret")] {
                assert_ne!(ask().basic_auth(name, Some(password)).send().await.unwrap().status(), 401, "{path} {name}");
            }
            let bearer = ask().bearer_auth(TOKEN).send().await.unwrap();
            assert_eq!(bearer.status() == 401, token.is_none(), "{path}");
        }
        assert_eq!(face.get("/healthz").await.status(), 200);
    }
}

#[tokio::test]
async fn who_is_refused_is_told_how_to_come_in() {
    let basic = r#"Basic realm="savanna", charset="UTF-8""#;
    let bearer = r#"Bearer realm="savanna""#;
    let cases: [(_, _, &[&str], &[&str]); 3] = [
        (Some(TOKEN), None, &[bearer], &["auth.token"]),
        (None, Some(USERS), &[basic], &["auth.users"]),
        (Some(TOKEN), Some(USERS), &[bearer, basic], &["auth.token", "auth.users"]),
    ];
    for (token, users, challenges, settings) in cases {
        let face = serve_guarded(HttpLimits::default(), credentials(token, users), None).await;
        let refused = face.get("/api/v1/status").await;
        assert_eq!(refused.headers().get_all("www-authenticate").iter().collect::<Vec<_>>(), challenges);
        let problem: serde_json::Value = refused.json().await.unwrap();
        let detail = problem["detail"].as_str().unwrap();
        let named: Vec<&str> = ["auth.token", "auth.users"].into_iter().filter(|name| detail.contains(name)).collect();
        assert_eq!(named, settings, "{detail}");
    }
}

/// A certificate that is used for nothing but tests.
fn fixture(name: &str) -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "../../kernels/identity/fixtures", name].iter().collect()
}

#[tokio::test]
async fn connections_are_encrypted_and_may_end_anywhere_in_the_handshake() {
    let tls = Tls::read(&TlsFiles { certificates: fixture("cert.pem"), key: fixture("key.pem") }).unwrap();
    let face = serve_guarded(HttpLimits::default(), Credentials::default(), Some(tls)).await;
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
