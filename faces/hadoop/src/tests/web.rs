//! WebHDFS, by a client of a few lines that says what clients say.

use serde_json::{Value, json};

use super::*;

/// What came: the status, the head, and the body as far as it came.
pub(super) struct Came {
    pub(super) status: u16,
    head: String,
    pub(super) body: Vec<u8>,
    is_whole: bool,
}

impl Came {
    pub(super) fn json(&self) -> Value {
        assert!(self.head.contains("application/json"), "{}", self.head);
        serde_json::from_slice(&self.body).unwrap()
    }

    fn header(&self, name: &str) -> Option<&str> {
        let found = |line: &str| line.to_ascii_lowercase().starts_with(&format!("{name}: "));
        self.head.lines().find(|line| found(line)).map(|line| &line[name.len() + 2..])
    }

    /// The exception of a refusal, and what it says.
    fn refusal(&self) -> (u16, String, String) {
        let said = &self.json()["RemoteException"];
        let text = |name: &str| said[name].as_str().unwrap().to_owned();
        (self.status, text("exception"), text("message"))
    }
}

/// Sends a request, and takes what comes.
pub(super) fn ask(server: &Server, method: &str, target: &str, body: &[u8]) -> Came {
    let head = format!(
        "{method} {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    let mut stream = TcpStream::connect(server.http_address()).unwrap();
    stream.write_all(&[head.as_bytes(), body].concat()).unwrap();
    came(stream)
}

fn came(mut stream: TcpStream) -> Came {
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let mut bytes = Vec::new();
    // One that is reset has told what it had.
    let _ = stream.read_to_end(&mut bytes);
    let end = bytes.windows(4).position(|four| four == b"\r\n\r\n").expect("a head");
    let head = String::from_utf8(bytes[..end].to_vec()).unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    let rest = &bytes[end + 4..];
    let mut came = Came { status, head, body: rest.to_vec(), is_whole: true };
    if came.header("transfer-encoding").is_some() {
        (came.body, came.is_whole) = unchunked(rest);
    } else if let Some(length) = came.header("content-length") {
        came.is_whole = length.parse() == Ok(rest.len());
    }
    came
}

fn unchunked(mut rest: &[u8]) -> (Vec<u8>, bool) {
    let mut body = Vec::new();
    while let Some(at) = rest.windows(2).position(|two| two == b"\r\n") {
        let length = usize::from_str_radix(str::from_utf8(&rest[..at]).unwrap(), 16).unwrap();
        if length == 0 {
            return (body, true);
        }
        let Some(chunk) = rest.get(at + 2..at + 2 + length) else { break };
        body.extend(chunk);
        rest = &rest[(at + 4 + length).min(rest.len())..];
    }
    (body, false)
}

/// A request of a user on a path.
pub(super) fn web(server: &Server, user: &str, method: &str, path: &str, query: &str) -> Came {
    ask(server, method, &format!("/webhdfs/v1{path}?op={query}&user.name={user}"), b"")
}

/// Sends bytes: first to the name node, then where it says.
pub(super) fn send(server: &Server, user: &str, method: &str, path: &str, query: &str, body: &[u8]) -> Came {
    let first = web(server, user, method, path, query);
    assert_eq!(first.status, 307, "{}", String::from_utf8_lossy(&first.body));
    ask(server, method, target(&first), body)
}

/// The path and query that a client is sent to.
fn target(came: &Came) -> &str {
    came.header("location").unwrap().strip_prefix("http://localhost").unwrap()
}

fn served() -> (tempfile::TempDir, Server) {
    let folder = tempfile::tempdir().unwrap();
    let server = started(&SimDisk::new(5), folder.path(), 1);
    (folder, server)
}

#[test]
fn names_are_made_shown_and_changed() {
    let (folder, server) = served();
    let root = |method, path, query| web(&server, "root", method, path, query);
    let done = |came: Came| (came.status, came.json()["boolean"].clone());
    assert_eq!(done(root("PUT", "/d/a%20%C3%BC", "MKDIRS&permission=750")), (200, json!(true)));
    let status = &root("GET", "/d/a%20%C3%BC", "GETFILESTATUS").json()["FileStatus"];
    assert_eq!(
        (&status["type"], &status["permission"], &status["owner"]),
        (&json!("DIRECTORY"), &json!("750"), &json!("root"))
    );
    let listed = root("GET", "/d", "LISTSTATUS").json();
    assert_eq!(listed["FileStatuses"]["FileStatus"][0]["pathSuffix"], json!("a ü"));
    assert_eq!(done(root("PUT", "/d/a%20%C3%BC", "RENAME&destination=/d/b")), (200, json!(true)));
    assert_eq!(root("PUT", "/d/b", "RENAME&destination=/d/c&renameoptions=NONE").status, 200);
    assert_eq!(root("PUT", "/d/c", "SETOWNER&owner=ann&group=staff").status, 200);
    assert_eq!(root("PUT", "/d/c", "SETTIMES&modificationtime=1000&accesstime=-1").status, 200);
    assert_eq!(root("PUT", "/d/c", "SETACL&aclspec=user::rwx,user:bob:r--,group::r-x,other::---").status, 200);
    let acl = root("GET", "/d/c", "GETACLSTATUS").json();
    assert_eq!(acl["AclStatus"]["entries"], json!(["user:bob:r--", "group::r-x"]));
    assert_eq!(root("PUT", "/d/c", "SETXATTR&xattr.name=user.a&xattr.value=0x01ff&flag=CREATE").status, 200);
    let attributes = root("GET", "/d/c", "GETXATTRS&encoding=hex&xattr.name=user.a").json();
    assert_eq!(attributes["XAttrs"], json!([{ "name": "user.a", "value": "0x01ff" }]));
    assert_eq!(root("GET", "/d/c", "LISTXATTRS").json()["XAttrNames"], json!("[\"user.a\"]"));
    assert_eq!(root("PUT", "/d/c", "SETQUOTA&namespacequota=9&storagespacequota=-1").status, 200);
    let usage = root("GET", "/d/c", "GETQUOTAUSAGE").json();
    assert_eq!((&usage["QuotaUsage"]["quota"], &usage["QuotaUsage"]["spaceQuota"]), (&json!(9), &json!(-1)));
    assert_eq!(root("PUT", "/d/c", "SETSTORAGEPOLICY&storagepolicy=cold").status, 200);
    assert_eq!(root("GET", "/d/c", "GETSTORAGEPOLICY").json()["BlockStoragePolicy"]["name"], json!("COLD"));
    assert_eq!(root("POST", "/d/c", "UNSETSTORAGEPOLICY").status, 200);
    let status = &root("GET", "/d/c", "GETFILESTATUS").json()["FileStatus"];
    assert_eq!(
        (&status["owner"], &status["modificationTime"], &status["aclBit"]),
        (&json!("ann"), &json!(1_000), &json!(true))
    );
    let summary = root("GET", "/d", "GETCONTENTSUMMARY").json();
    assert_eq!(
        (&summary["ContentSummary"]["directoryCount"], &summary["ContentSummary"]["quota"]),
        (&json!(2), &json!(-1))
    );
    for (query, name, value) in [
        ("GETHOMEDIRECTORY", "Path", json!("/user/root")),
        ("GETTRASHROOT", "Path", json!("/user/root/.Trash")),
        ("GETTRASHROOTS&allusers=true", "Paths", Value::Null),
    ] {
        assert_eq!(root("GET", "/", query).json()[name], value, "{query}");
    }
    assert_eq!(root("GET", "/", "GETSERVERDEFAULTS").json()["FsServerDefaults"]["trashInterval"], json!(60));
    assert_eq!(
        root("GET", "/", "GETALLSTORAGEPOLICY").json()["BlockStoragePolicies"]["BlockStoragePolicy"]
            .as_array()
            .unwrap()
            .len(),
        5
    );
    assert!(root("GET", "/", "GETSTATUS").json()["FsStatus"]["capacity"].as_u64().unwrap() > 0);
    assert_eq!(done(root("DELETE", "/d", "DELETE&recursive=true")), (200, json!(true)));
    assert_eq!(done(root("DELETE", "/d", "DELETE")), (200, json!(false)));
    assert!(server.wait_for_audit(folder.path(), "cmd=mkdirs\tsrc=/d/a ü\tdst=null\tperm=null\tproto=webhdfs"));
}

impl Server {
    /// Whether a line is in the audit log, after a while.
    fn wait_for_audit(&self, folder: &std::path::Path, line: &str) -> bool {
        let deadline = std::time::Instant::now() + Duration::from_secs(60);
        while std::time::Instant::now() < deadline {
            if std::fs::read_to_string(folder.join("audit.log")).unwrap().contains(line) {
                return true;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        false
    }
}

#[test]
fn a_directory_of_many_is_listed_to_its_end() {
    let (_folder, server) = served();
    let mut client = Client::of(&server, "root");
    for number in 0..2_100 {
        client.create(&format!("/d/{number:04}")).unwrap();
    }
    let listed = web(&server, "root", "GET", "/d", "LISTSTATUS");
    assert!(listed.is_whole);
    let entries = &listed.json()["FileStatuses"]["FileStatus"];
    assert_eq!((entries.as_array().unwrap().len(), &entries[2_099]["pathSuffix"]), (2_100, &json!("2099")));
    let page = &web(&server, "root", "GET", "/d", "LISTSTATUS_BATCH&startAfter=1499").json()["DirectoryListing"];
    assert_eq!(page["remainingEntries"], json!(0));
    let entries = &page["partialListing"]["FileStatuses"]["FileStatus"];
    assert_eq!((entries.as_array().unwrap().len(), &entries[0]["pathSuffix"]), (600, &json!("1500")));
    assert_eq!(web(&server, "root", "GET", "/nothing", "LISTSTATUS").refusal().1, "FileNotFoundException");
}

#[test]
fn who_may_do_what_is_as_for_calls() {
    let (_folder, server) = served();
    let mut client = Client::of(&server, "root");
    client.write("/f", b"secret");
    let private = |path: &str| web(&server, "root", "PUT", path, "SETPERMISSION&permission=600").status;
    assert_eq!(private("/f"), 200);
    for (method, query) in [
        ("GET", "OPEN"),
        ("PUT", "SETPERMISSION&permission=777"),
        ("DELETE", "DELETE"),
        ("PUT", "MKDIRS&destination="),
        ("GET", "CHECKACCESS&fsaction=r--"),
    ] {
        let path = if query.starts_with("MKDIRS") { "/of-ann" } else { "/f" };
        let (status, exception, message) = web(&server, "ann", method, path, query).refusal();
        assert_eq!((status, &*exception), (403, "AccessControlException"), "{query}: {message}");
    }
    // Who comes to the data node at once is asked the same.
    for (method, query) in
        [("GET", "OPEN"), ("GET", "GETFILECHECKSUM"), ("POST", "APPEND"), ("PUT", "CREATE&overwrite=true")]
    {
        let came = web(&server, "ann", method, "/f", &format!("{query}&namenoderpcaddress=x"));
        assert_eq!(came.refusal().1, "AccessControlException", "{query}");
    }
    let of_another = web(&server, "ann", "GET", "/f", "OPEN&doas=root").refusal();
    assert!(of_another.2.contains("not allowed to impersonate"), "{of_another:?}");
    assert_eq!(web(&server, "root", "GET", "/f", "CHECKACCESS&fsaction=r--").status, 200);
    // Who does not say who it is, is nobody in particular.
    assert!(ask(&server, "GET", "/webhdfs/v1/f?op=OPEN", b"").refusal().2.contains("dr.who"));
    let bytes = web(&server, "root", "GET", "/f", "OPEN&namenoderpcaddress=x");
    assert_eq!((bytes.status, &*bytes.body), (200, &b"secret"[..]));
}

#[test]
fn bytes_come_and_go_in_any_ranges() {
    let (_folder, server) = served();
    let content = content(3_500_000);
    let created = send(&server, "root", "PUT", "/d/f", "CREATE&blocksize=1048576&permission=640", &content);
    assert_eq!(created.status, 201, "{}", String::from_utf8_lossy(&created.body));
    assert_eq!(created.header("location"), Some(&*format!("hdfs://{}/d/f", server.address())));
    let mut client = Client::of(&server, "root");
    assert_eq!(client.read("/d/f"), content, "calls read the same");
    assert_eq!(client.status("/d/f").unwrap().permission.bits, 0o640);
    assert_eq!(client.blocks("/d/f").blocks.len(), 4);
    for (offset, length) in [
        (0, 3_500_000),
        (0, 1),
        (1, 511),
        (511, 2),
        (1_048_575, 2),
        (1_048_576, 1_048_576),
        (3_499_999, 1),
        (3_400_000, 9_999_999),
    ] {
        let came =
            web(&server, "root", "GET", "/d/f", &format!("OPEN&offset={offset}&length={length}&namenoderpcaddress=x"));
        let end = (offset + length).min(content.len());
        assert!(came.is_whole && came.body == content[offset..end], "{offset} {length}");
    }
    let sent_on = web(&server, "root", "GET", "/d/f", "OPEN&offset=7");
    assert_eq!(ask(&server, "GET", target(&sent_on), b"").body, content[7..]);
    let told = web(&server, "root", "GET", "/d/f", "OPEN&offset=7&noredirect=true").json();
    assert!(told["Location"].as_str().unwrap().ends_with(&format!("namenoderpcaddress={}", server.address())));
    assert!(web(&server, "root", "GET", "/d/f", "OPEN&offset=3500000").refusal().2.contains("out of the range"));
    assert_eq!(web(&server, "root", "GET", "/nothing", "OPEN").refusal().0, 404);
    assert_eq!(web(&server, "root", "GET", "/d", "OPEN").refusal().0, 404, "a directory has no bytes");
    assert_eq!(send(&server, "root", "POST", "/d/f", "APPEND", b"more").status, 200);
    assert_eq!(client.read("/d/f"), [&content[..], b"more"].concat());
    // What there is may be full, or nothing.
    for length in [0, 1_048_576] {
        let path = format!("/d/{length}");
        assert_eq!(send(&server, "root", "PUT", &path, "CREATE&blocksize=1048576", &content[..length]).status, 201);
        assert_eq!(send(&server, "root", "POST", &path, "APPEND", b"").status, 200);
        assert_eq!(send(&server, "root", "POST", &path, "APPEND", b"ab").status, 200);
        assert_eq!(client.read(&path), [&content[..length], b"ab"].concat());
    }
    assert_eq!(send(&server, "root", "PUT", "/d/f", "CREATE", b"").refusal().1, "FileAlreadyExistsException");
    assert_eq!(send(&server, "root", "PUT", "/d/f", "CREATE&overwrite=true", b"new").status, 201);
    assert_eq!(client.read("/d/f"), b"new");
    let sum = ask(&server, "GET", target(&web(&server, "root", "GET", "/d/f", "GETFILECHECKSUM")), b"").json();
    assert_eq!(
        (&sum["FileChecksum"]["algorithm"], &sum["FileChecksum"]["length"]),
        (&json!("MD5-of-0MD5-of-512CRC32C"), &json!(28))
    );
    let truncated = web(&server, "root", "POST", "/d/f", "TRUNCATE&newlength=3");
    assert_eq!(truncated.json()["boolean"], json!(true));
    let places = web(&server, "root", "GET", "/d/f", "GET_BLOCK_LOCATIONS").json();
    assert_eq!(places["LocatedBlocks"]["fileLength"], json!(3));
    let places = web(&server, "root", "GET", "/d/f", "GETFILEBLOCKLOCATIONS").json();
    assert_eq!(places["BlockLocations"]["BlockLocation"][0]["length"], json!(3));
}

#[test]
fn what_is_being_written_is_read_as_far_as_it_is_there() {
    let (_folder, server) = served();
    let mut client = Client::of(&server, "root");
    client.create("/f").unwrap();
    let located = client.add_block("/f", None);
    let mut transfer = Transfer::to(&located);
    transfer.begin_write(&located.block, 6, 0);
    assert_eq!(transfer.packet(0, 0, &content(700), false), [0]);
    let came = web(&server, "root", "GET", "/f", "OPEN&namenoderpcaddress=x");
    assert_eq!((came.status, came.body), (200, content(700)));
}

/// Begins to send a file that never comes to its end.
fn begin(server: &Server, path: &str, body: &[u8]) -> TcpStream {
    begin_to(server, "PUT", path, "CREATE", body)
}

fn begin_to(server: &Server, method: &str, path: &str, operation: &str, body: &[u8]) -> TcpStream {
    let query = format!("op={operation}&user.name=root&namenoderpcaddress=x");
    let head =
        format!("{method} /webhdfs/v1{path}?{query} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9000000\r\n\r\n");
    let mut stream = TcpStream::connect(server.http_address()).unwrap();
    stream.write_all(&[head.as_bytes(), body].concat()).unwrap();
    stream
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = std::time::Instant::now() + Duration::from_secs(60);
    while !is_so() {
        assert!(std::time::Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn what_does_not_come_to_its_end_leaves_no_file() {
    let (_folder, server) = served();
    let mut client = Client::of(&server, "root");
    let stream = begin(&server, "/f", &content(300_000));
    until("it is being written", || client.status("/f").is_some());
    drop(stream);
    until("it goes", || client.status("/f").is_none());
    // Somebody else has it closed: nobody was ever told that any of it is there.
    let stream = begin(&server, "/f", &content(300_000));
    until("some of it is written", || client.status("/f").is_some());
    let recover = crate::wire::client::RecoverLease { path: "/f".to_owned(), client: "writer".to_owned() };
    until("it is taken over", || client.call::<Flag>("recoverLease", &recover).unwrap().it);
    assert!(client.status("/f").is_none());
    drop(stream);
    // While nothing can be changed it stays, and goes then.
    let stream = begin(&server, "/g", &content(300_000));
    until("it is being written", || client.status("/g").is_some());
    let root = savanna_files_host::Asker { user: "root", machine: "", call: None };
    server.files().safe_mode(&root, Some(true)).unwrap();
    drop(stream);
    std::thread::sleep(Duration::from_millis(300));
    assert!(client.status("/g").is_some());
    server.files().safe_mode(&root, Some(false)).unwrap();
    until("it goes", || client.status("/g").is_none());
}

#[test]
fn a_server_that_stops_leaves_no_part_of_a_file() {
    let (disk, folder) = (SimDisk::new(1), tempfile::tempdir().unwrap());
    for epoch in 1..=4 {
        let server = started(&disk, folder.path(), epoch);
        let mut client = Client::of(&server, "root");
        assert!(client.status("/f").is_none(), "{epoch}: a part of it has stayed");
        let stream = begin(&server, "/f", &content(300_000));
        until("it is being written", || client.status("/f").is_some());
        if epoch % 2 == 0 {
            drop(server);
        } else {
            server.stopper().stop();
            server.wait().unwrap();
        }
        drop(stream);
    }
}

#[test]
fn a_broken_append_leaves_what_was_there_and_lets_others_write_at_once() {
    let (_folder, server) = served();
    let mut client = Client::of(&server, "root");
    let mut was = content(700);
    client.write("/f", &was);
    for bytes in [0, 100, 100_000, 2_000_000] {
        let stream = begin_to(&server, "POST", "/f", "APPEND", &content(bytes));
        until("it is being written", || server.files().figures().leases == 1);
        drop(stream);
        until("nobody writes it", || server.files().figures().leases == 0);
        assert_eq!(send(&server, "root", "POST", "/f", "APPEND", b"more").status, 200);
        was.extend(b"more");
        assert_eq!(client.read("/f"), was, "{bytes}");
    }
}

#[test]
fn damaged_bytes_do_not_seem_to_be_a_file() {
    let (folder, server) = served();
    let content = content(300_000);
    assert_eq!(send(&server, "root", "PUT", "/f", "CREATE", &content).status, 201);
    let block = Client::of(&server, "root").blocks("/f").blocks[0].block.id;
    let path = folder.path().join(format!("blocks/{:02x}/blk_{block}", block % 256));
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[200_000] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    let came = web(&server, "root", "GET", "/f", "OPEN&namenoderpcaddress=x");
    assert!(!came.is_whole && came.body.len() <= 200_000, "{}", came.body.len());
    assert_eq!(came.body, content[..came.body.len()]);
    until("the name node knows it", || Client::of(&server, "root").blocks("/f").blocks[0].is_corrupt);
    let bean = ask(&server, "GET", "/jmx?qry=Hadoop:service=NameNode,name=FSNamesystem", b"").json();
    assert_eq!((&bean["beans"][0]["CorruptBlocks"], &bean["beans"][0]["MissingBlocks"]), (&json!(1), &json!(0)));
}

#[test]
fn no_page_of_the_web_asks() {
    let (_folder, server) = served();
    let ask = |headers: &str| {
        let mut stream = TcpStream::connect(server.http_address()).unwrap();
        let target = "/webhdfs/v1/d?op=MKDIRS&user.name=root";
        let head = format!("PUT {target} HTTP/1.1\r\n{headers}Connection: close\r\nContent-Length: 0\r\n\r\n");
        stream.write_all(head.as_bytes()).unwrap();
        came(stream).status
    };
    assert_eq!(ask("Host: localhost\r\nOrigin: https://evil.example\r\n"), 403);
    assert_eq!(ask("Host: evil.example\r\n"), 403);
    assert!(Client::of(&server, "root").status("/d").is_none());
    assert_eq!(ask("Host: localhost\r\n"), 200);
    assert_eq!(ask("Host: node.example:9870\r\n"), 200, "it is called that");
}

#[test]
fn what_is_no_request_is_refused() {
    let (_folder, server) = served();
    for (method, target, status) in [
        ("GET", "/", 404),
        ("GET", "/webhdfs/v1/?op=NONSENSE", 400),
        ("GET", "/webhdfs/v1/", 400),
        ("PUT", "/webhdfs/v1/a%2?op=MKDIRS", 400),
        ("PUT", "/webhdfs/v1/a//b?op=MKDIRS&user.name=root", 400),
        ("PUT", "/webhdfs/v1/a%00?op=MKDIRS&user.name=root", 400),
        ("PUT", "/webhdfs/v1/.reserved/x?op=MKDIRS&user.name=root", 400),
        ("PUT", "/webhdfs/v1/a?op=CREATESNAPSHOT&user.name=root", 400),
        ("POST", "/jmx", 400),
        ("GET", "/jmx?qry=x", 400),
        ("GET", "/jmx?get=x", 400),
    ] {
        assert_eq!(ask(&server, method, target, b"").refusal().0, status, "{method} {target}");
    }
}

#[test]
fn monitors_read_beans() {
    let (_folder, server) = served();
    Client::of(&server, "root").write("/f", b"abc");
    let beans = |query: &str| ask(&server, "GET", &format!("/jmx{query}"), b"").json()["beans"].clone();
    let names: Vec<String> =
        beans("").as_array().unwrap().iter().map(|bean| bean["name"].as_str().unwrap().to_owned()).collect();
    let expected = ["FSNamesystem", "FSNamesystemState", "NameNodeInfo", "NameNodeStatus"];
    assert_eq!(names, expected.map(|name| format!("Hadoop:service=NameNode,name={name}")));
    let bean = beans("?qry=Hadoop:service=NameNode,name=FSNamesystem");
    assert_eq!(
        (&bean[0]["FilesTotal"], &bean[0]["BlocksTotal"], bean.as_array().unwrap().len()),
        (&json!(2), &json!(1), 1)
    );
    let one = beans("?get=Hadoop:service=NameNode,name=NameNodeStatus::State");
    assert_eq!(
        one,
        json!([{ "name": names[3], "modelerType": "org.apache.hadoop.hdfs.server.namenode.NameNode", "State": "active" }])
    );
    assert_eq!(beans("?qry=java.lang:*"), json!([]));
}

#[test]
fn a_check_says_what_is_missing_and_to_whom_it_may() {
    let (folder, server) = served();
    let mut client = Client::of(&server, "root");
    for path in ["/d/a", "/d/b/c", "/d/b/e", "/d/f"] {
        client.write(path, b"abc");
    }
    client.create("/d/open").unwrap();
    let check = |query: &str| {
        let came = ask(&server, "GET", &format!("/fsck?{query}"), b"");
        assert!(came.status == 200 && came.is_whole, "{query}");
        String::from_utf8(came.body).unwrap()
    };
    let all = check("ugi=root&path=/&files=1&blocks=1");
    let paths: Vec<&str> =
        all.lines().filter(|line| line.starts_with('/')).filter_map(|line| line.split(' ').next()).collect();
    assert_eq!(paths, ["/", "/d", "/d/a", "/d/f", "/d/b", "/d/b/c", "/d/b/e"], "{all}");
    assert!(all.contains("Total dirs:\t\t\t3") && all.contains("(Files currently being written: 1)"), "{all}");
    assert!(all.ends_with("The filesystem under path '/' is HEALTHY"), "{all}");
    assert!(
        check("ugi=root&path=/d&openforwrite=1")
            .contains("/d/open 0 bytes, replicated: replication=3, 0 block(s), OPENFORWRITE:  OK")
    );
    assert!(check("ugi=root&path=/nothing").ends_with("Path '/nothing' does not exist"));
    assert_eq!(web(&server, "root", "PUT", "/d/b", "SETPERMISSION&permission=700").status, 200);
    let refused = check("ugi=ann&path=/d");
    assert!(
        refused.contains("Permission denied: user=ann") && refused.ends_with("Fsck on path '/d' FAILED"),
        "{refused}"
    );
    for option in ["move", "delete", "replicate", "blockId"] {
        assert_eq!(ask(&server, "GET", &format!("/fsck?ugi=root&path=/&{option}=1"), b"").refusal().0, 400);
    }
    let damaged = savanna_files_host::ids::BlockId(client.blocks("/d/b/c").blocks[0].block.id);
    server.files().found_corrupt(damaged, savanna_files_host::blocks::Holder::HERE);
    let broken = check("ugi=root&path=/");
    assert!(
        broken.contains("/d/b/c: CORRUPT 1 blocks of total size 3 B") && broken.ends_with("is CORRUPT"),
        "{broken}"
    );
    let listed = check("ugi=root&path=/&listcorruptfileblocks=1");
    assert!(listed.contains("\t/d/b/c\n") && listed.contains("has 1 CORRUPT files"), "{listed}");
    assert!(check("ugi=root&path=/&listcorruptfileblocks=1&startblockafter=1").contains("has no more CORRUPT files"));
    // Who waits for a large directory hears that it goes on, and it is walked to its end.
    for number in 0..1_250 {
        client.create(&format!("/large/{number:04}")).unwrap();
        assert!(client.complete(&format!("/large/{number:04}"), None));
    }
    for number in 0..250 {
        assert_eq!(web(&server, "root", "PUT", &format!("/many/{number:03}d/x"), "MKDIRS").status, 200);
        client.create(&format!("/many/{number:03}f")).unwrap();
        assert!(client.complete(&format!("/many/{number:03}f"), None));
    }
    let many = check("ugi=root&path=/many&files=1");
    let mut lines: Vec<&str> = many.lines().filter(|line| line.starts_with("/many")).collect();
    assert_eq!(lines.len(), 751, "{many}");
    lines.sort_unstable();
    lines.dedup();
    assert_eq!(lines.len(), 751);
    let large = check("ugi=root&path=/large");
    assert!(large.contains("............\nStatus: HEALTHY") && large.contains("Total files:\t1250"), "{large}");
    drop(folder);
}

/// Requests of the seeds of the fuzz target, each changed in a few places.
#[test]
fn whatever_is_sent_the_server_goes_on() {
    let (_folder, server) = served();
    let seeds = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/seeds/webhdfs");
    let mut seeds: Vec<_> = std::fs::read_dir(seeds).unwrap().map(|seed| seed.unwrap().path()).collect();
    seeds.sort_unstable();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let mut state = 88_172_645_463_325_252_u64;
    let mut next = |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state % below as u64) as usize
    };
    for round in 0..150 {
        for seed in &seeds {
            let mut bytes = std::fs::read(seed).unwrap();
            for _ in 0..if round == 0 { 0 } else { next(4) } {
                let at = next(bytes.len());
                match next(3) {
                    0 => bytes[at] = next(256) as u8,
                    1 => drop(bytes.drain(at..(at + next(9)).min(bytes.len()))),
                    _ => drop(bytes.splice(at..at, b"%2F&op=..%00"[..next(12)].iter().copied())),
                }
            }
            runtime.block_on(async {
                let (mut client, stream) = tokio::io::duplex(1 << 16);
                let talking = async {
                    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
                    // The server may hang up first.
                    let _ = client.write_all(&bytes).await;
                    let _ = client.shutdown().await;
                    let _ = client.read_to_end(&mut Vec::new()).await;
                };
                tokio::join!(talking, crate::serve_client(server.files().clone(), stream));
            });
        }
    }
    assert_eq!(web(&server, "root", "GET", "/", "GETFILESTATUS").status, 200);
}

#[test]
fn nobody_is_told_anything_when_the_log_has_ended() {
    let (_folder, server) = served();
    Client::of(&server, "root").write("/f", b"abc");
    server.files().close().unwrap();
    let mut stream = TcpStream::connect(server.http_address()).unwrap();
    let target = "/webhdfs/v1/d?op=MKDIRS&user.name=root";
    stream
        .write_all(format!("PUT {target} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n").as_bytes())
        .unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let mut bytes = Vec::new();
    let _ = stream.read_to_end(&mut bytes);
    assert_eq!(bytes, b"");
}

#[test]
fn a_file_has_as_many_replicas_as_the_server_says_if_nobody_else_does() {
    let (disk, folder) = (SimDisk::new(1), tempfile::tempdir().unwrap());
    let server = Server::start(ServerOptions { replication: 3, ..options(&disk, folder.path(), 1, None) }).unwrap();
    let read = |query| web(&server, "root", "GET", "/f", query).json();
    let written = |query| send(&server, "root", "PUT", "/f", query, b"abc").status;
    assert_eq!(read("GETSERVERDEFAULTS")["FsServerDefaults"]["replication"], json!(3));
    assert_eq!(written("CREATE"), 201);
    assert_eq!(read("GETFILESTATUS")["FileStatus"]["replication"], json!(3));
    assert_eq!(written("CREATE&overwrite=true&replication=2"), 201);
    assert_eq!(read("GETFILESTATUS")["FileStatus"]["replication"], json!(2));
    let checked = ask(&server, "GET", "/fsck?ugi=root&path=/", b"");
    assert!(String::from_utf8(checked.body).unwrap().contains("Default replication factor:\t3\n"));
}
