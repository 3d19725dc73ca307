//! The S3-compatible server of the tests: the one that `SAVANNA_TEST_S3_ENDPOINT` names, or a moto of our own.

use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use object_store::ObjectStore;
use savanna_manifest::s3::Bucket;

const BUCKET: &str = "savanna-test";

/// Runs the server until it ends, or until standard input closes, as it does when the test process ends in any way.
const RUN_UNTIL_STDIN_CLOSES: &str = r#"
    exec 3<&0
    "$0" -H 127.0.0.1 -p "$1" </dev/null 3<&- &
    server=$!
    { cat <&3 >/dev/null; kill "$server"; } &
    wait "$server"
"#;

struct Server {
    endpoint: String,
    /// Keeps the server's standard input open.
    _process: Option<Child>,
}

static SERVER: LazyLock<Option<Server>> = LazyLock::new(find_server);

/// A client of the test bucket, or `None` if the tests over S3 are to be skipped.
pub(crate) async fn connect() -> Option<Arc<dyn ObjectStore>> {
    let endpoint =
        tokio::task::spawn_blocking(|| SERVER.as_ref().map(|server| server.endpoint.clone())).await.unwrap()?;
    let bucket =
        Bucket { name: BUCKET.to_owned(), region: Some("us-east-1".to_owned()), endpoint: Some(endpoint.clone()) };
    let store = bucket.builder().with_access_key_id("test").with_secret_access_key("test").build().unwrap();
    // Answers 200 or 409 (it exists); anything that matters shows in the first request of the test.
    reqwest::Client::new().put(format!("{endpoint}/{BUCKET}")).send().await.unwrap();
    Some(Arc::new(store))
}

fn find_server() -> Option<Server> {
    if let Ok(endpoint) = std::env::var("SAVANNA_TEST_S3_ENDPOINT") {
        return Some(Server { endpoint: endpoint.trim_end_matches('/').to_owned(), _process: None });
    }
    if let Some(server) = candidates().iter().find_map(|program| start(program)) {
        return Some(server);
    }
    assert!(
        std::env::var_os("CI").is_none() && std::env::var("SAVANNA_NO_INSTALL").is_ok_and(|value| value == "1"),
        "no S3-compatible server for the tests: run `make test-deps`, or set SAVANNA_TEST_S3_ENDPOINT"
    );
    eprintln!("skipping the tests over S3: no moto_server starts here, and SAVANNA_NO_INSTALL=1");
    None
}

/// The programs that may be moto: in the workspace's `.venv`, then on the path.
fn candidates() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut folders = vec![root.join(".venv/bin")];
    folders.extend(std::env::split_paths(&path));
    let programs = folders.into_iter().map(|folder| folder.join("moto_server"));
    programs.filter(|program| program.is_file()).collect()
}

/// Starts a server and waits until it answers; `None` if it ends instead.
fn start(program: &Path) -> Option<Server> {
    let port = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).unwrap().port();
    let mut command = Command::new("sh");
    command.arg("-c").arg(RUN_UNTIL_STDIN_CLOSES).arg(program).arg(port.to_string());
    let mut process = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let patience = Instant::now() + Duration::from_secs(60);
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        if process.try_wait().unwrap().is_some() {
            return None;
        }
        assert!(Instant::now() < patience, "`{}` does not answer on port {port}", program.display());
        std::thread::sleep(Duration::from_millis(50));
    }
    Some(Server { endpoint: format!("http://127.0.0.1:{port}"), _process: Some(process) })
}
