//! The S3-compatible server of the tests: the one that `SAVANNA_TEST_S3_ENDPOINT` names, or a moto of our own.

use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use object_store::ObjectStore;
use savanna_manifest::s3::Bucket;

const BUCKET: &str = "savanna-test";

/// Runs the server until standard input closes, which it does when the test process ends, however it ends.
const RUN_UNTIL_STDIN_CLOSES: &str =
    r#""$0" -H 127.0.0.1 -p "$1" </dev/null >/dev/null 2>&1 & server=$!; cat >/dev/null; kill "$server""#;

struct Server {
    endpoint: String,
    /// Keeps the server's standard input open.
    _process: Option<Child>,
}

static SERVER: LazyLock<Option<Server>> = LazyLock::new(find_server);

/// A client of the test bucket, or `None` if the tests over S3 are to be skipped.
pub(crate) async fn connect() -> Option<Arc<dyn ObjectStore>> {
    let endpoint = tokio::task::spawn_blocking(|| SERVER.as_ref().map(|server| server.endpoint.clone())).await.unwrap()?;
    let bucket = Bucket { name: BUCKET.to_owned(), region: Some("us-east-1".to_owned()), endpoint: Some(endpoint.clone()) };
    let store = bucket.builder().with_access_key_id("test").with_secret_access_key("test").build().unwrap();
    // Answers 200 or 409 (it exists); anything that matters shows in the first request of the test.
    reqwest::Client::new().put(format!("{endpoint}/{BUCKET}")).send().await.unwrap();
    Some(Arc::new(store))
}

fn find_server() -> Option<Server> {
    if let Ok(endpoint) = std::env::var("SAVANNA_TEST_S3_ENDPOINT") {
        return Some(Server { endpoint: endpoint.trim_end_matches('/').to_owned(), _process: None });
    }
    match find_moto() {
        Some(program) => Some(start(&program)),
        None if std::env::var("SAVANNA_NO_INSTALL").is_ok_and(|value| value == "1") => {
            eprintln!("skipping the tests over S3: there is no moto_server, and SAVANNA_NO_INSTALL=1");
            None
        }
        None => panic!("no S3-compatible server for the tests: run `make test-deps`, or set SAVANNA_TEST_S3_ENDPOINT"),
    }
}

fn find_moto() -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut folders = vec![root.join(".venv/bin")];
    folders.extend(std::env::split_paths(&path));
    folders.into_iter().map(|folder| folder.join("moto_server")).find(|program| program.is_file())
}

fn start(program: &Path) -> Server {
    let port = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).unwrap().port();
    let mut command = Command::new("sh");
    command.arg("-c").arg(RUN_UNTIL_STDIN_CLOSES).arg(program).arg(port.to_string());
    let process = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let patience = Instant::now() + Duration::from_secs(60);
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        assert!(Instant::now() < patience, "`{}` does not answer on port {port}: run `make test-deps`", program.display());
        std::thread::sleep(Duration::from_millis(50));
    }
    Server { endpoint: format!("http://127.0.0.1:{port}"), _process: Some(process) }
}
