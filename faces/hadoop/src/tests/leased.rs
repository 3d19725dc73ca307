//! Answers that have not left when the lease ends.

use std::time::Instant;

use savanna_files_host::ids::{BlockId, Stamp};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::*;

/// Calls at once, whose answers are more than a connection holds.
const CALLS: usize = 200;
const NAMES: usize = 500;

/// A directory whose listing is long.
fn fill(client: &mut Client) {
    for number in 0..NAMES {
        client.create(&format!("/d/{}{number:04}", "x".repeat(200))).unwrap();
    }
}

#[test]
fn answers_that_wait_for_their_client_do_not_leave_without_a_lease() {
    let (folder, guard) = (tempfile::tempdir().unwrap(), lease());
    let server = leased(&SimDisk::new(2), folder.path(), 1, Some(guard.clone()));
    let mut client = Client::of(&server, "root");
    fill(&mut client);
    let listing = GetListing { path: "/d".to_owned(), after: Vec::new(), with_locations: false };
    let answer = client.call::<One<Listing>>("getListing", &listing).unwrap().encoded_len();
    for _ in 0..CALLS {
        client.ask(CLIENT, "getListing", &listing);
    }
    // All are answered, and most of that has not left.
    let listed = || std::fs::read_to_string(folder.path().join("audit.log")).unwrap().matches("cmd=listStatus").count();
    let deadline = Instant::now() + Duration::from_secs(60);
    while listed() < 1 + CALLS {
        assert!(Instant::now() < deadline, "{} calls are answered", listed());
        std::thread::sleep(Duration::from_millis(10));
    }
    guard.revoke();
    let mut came = Vec::new();
    // It may be ended in the middle.
    let _ = client.stream.read_to_end(&mut came);
    assert!(came.len() < CALLS * answer / 2, "{} bytes of answers of {answer} each", came.len());
}

#[tokio::test]
async fn what_is_left_of_an_answer_over_http_does_not_leave_without_a_lease() {
    let (folder, guard) = (tempfile::tempdir().unwrap(), lease());
    let server = leased(&SimDisk::new(2), folder.path(), 1, Some(guard.clone()));
    fill(&mut Client::of(&server, "root"));
    let (mut client, stream) = tokio::io::duplex(1 << 10);
    let talking = async {
        let request = "GET /webhdfs/v1/d?op=LISTSTATUS&user.name=root HTTP/1.1\r\nHost: localhost\r\n\r\n";
        client.write_all(request.as_bytes()).await.unwrap();
        client.read_exact(&mut [0; 1 << 12]).await.unwrap();
        guard.revoke();
        let mut rest = Vec::new();
        // It may be ended in the middle.
        let _ = client.read_to_end(&mut rest).await;
        rest.len()
    };
    let (rest, ()) = tokio::join!(talking, crate::serve_client(server.files().clone(), stream));
    assert!(rest <= 1 << 10, "{rest} bytes came behind the lease");
}

/// More bytes than a connection holds.
const BYTES: usize = 24 << 20;

#[test]
fn what_is_left_of_a_block_does_not_leave_without_a_lease() {
    let (folder, guard) = (tempfile::tempdir().unwrap(), lease());
    let server = leased(&SimDisk::new(2), folder.path(), 1, Some(guard.clone()));
    let (id, stamp) = (BlockId(512), Stamp(1_000));
    let mut writer = server.files().replicas().begin(id, stamp, 512).unwrap();
    for part in 0..BYTES >> 20 {
        writer.write((part << 20) as u64, &[7; 1 << 20], &[]).unwrap();
    }
    writer.finish().unwrap();
    let pool = server.files().identity().pool.clone();
    let block = Block { pool, id: id.0, stamp: stamp.0, length: Some(BYTES as u64) };
    let header = OperationHeader { base: BaseHeader { block }, client: "reader".to_owned() };
    let read = ReadBlock { header, offset: 0, length: BYTES as u64, with_checksums: Some(true) };
    let mut stream = TcpStream::connect(server.transfer_address()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    stream.write_all(&[&[0, 28, 81][..], &read.encode_length_delimited_to_vec()].concat()).unwrap();
    // It is under way, and waits for its client.
    stream.read_exact(&mut [0; 1 << 10]).unwrap();
    guard.revoke();
    let mut came = Vec::new();
    // It may be ended in the middle.
    let _ = stream.read_to_end(&mut came);
    assert!(came.len() < BYTES * 3 / 4, "{} of {BYTES} bytes came", came.len());
}
