//! Files over HTTP of which a block is only at another data node.

use super::nodes::{Other, RECEIVED, served};
use super::*;
use crate::wire::hdfs::{Node, NodeId};

/// Where a client is sent on to.
fn location(server: &Server, query: &str) -> String {
    let mut stream = TcpStream::connect(server.http_address()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let request =
        format!("GET /webhdfs/v1/f?{query}&user.name=root HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut said = String::new();
    stream.read_to_string(&mut said).unwrap();
    assert!(said.starts_with("HTTP/1.1 307"), "{said}");
    let location = said.lines().find_map(|line| line.strip_prefix("location: ")).unwrap();
    assert!(
        location.contains(&format!("/webhdfs/v1/f?{query}&user.name=root&namenoderpcaddress={}", server.address()))
    );
    location.split('/').nth(2).unwrap().to_owned()
}

#[test]
fn who_reads_what_is_only_elsewhere_is_sent_there() {
    let (_folder, server) = served();
    let mut client = Client::of(&server, "root");
    let mut other = Other::joined(&server);
    client.create("/f").unwrap();
    let first = client.add_block("/f", None);
    let whole = Block { length: Some(1 << 20), ..first.block.clone() };
    let mut transfer = Transfer::to(&LocatedBlock {
        nodes: first.nodes.iter().filter(|node| node.id.uuid != "other").cloned().collect(),
        ..first.clone()
    });
    transfer.begin_write(&first.block, 6, 0);
    for part in 0..16 {
        let at = i64::from(part) * 65_536;
        assert_eq!(transfer.packet(at, i64::from(part), &content(65_536), false), [0]);
    }
    assert_eq!(transfer.packet(1 << 20, 16, &[], true), [0]);
    let own = server.files().identity().cluster.trim_start_matches("CID-").to_owned();
    let excluded = vec![Node { id: NodeId { uuid: own, ..NodeId::default() }, ..Node::default() }];
    let (path, name, previous) = ("/f".to_owned(), "writer".to_owned(), Some(whole));
    let add = AddBlock { path, client: name, previous, excluded, file: None };
    let second = client.call::<One<LocatedBlock>>("addBlock", &add).unwrap().it.unwrap().block;
    other.tell(RECEIVED, &second, 1_000).unwrap();
    assert!(client.complete("/f", Some(Block { length: Some(1_000), ..second })));
    let (here, there) = ("localhost".to_owned(), "127.0.0.1:1".to_owned());
    assert_eq!(location(&server, "op=OPEN"), there);
    assert_eq!(location(&server, "op=GETFILECHECKSUM"), there);
    assert_eq!(location(&server, "op=OPEN&offset=1048576"), there);
    assert_eq!(location(&server, "op=OPEN&offset=5&length=1048572"), there);
    assert_eq!(location(&server, "op=OPEN&offset=5&length=1048571"), here, "all that is asked for is here");
    assert_eq!(location(&server, "op=OPEN&length=9"), here);
}
