//! Files that were written here or made by hand are read.

use std::io::Cursor;

use proptest::prelude::*;

use super::*;

fn items(file: &[u8]) -> Result<Vec<Item>, FileError> {
    let mut reader = FileReader::new(file)?;
    let mut items = Vec::new();
    while let Some(item) = reader.next_item()? {
        items.push(item);
    }
    Ok(items)
}

/// A file that has `body`, with its end.
fn file(body: &[u8]) -> Vec<u8> {
    let mut file = [b"REDIS0012", body, &[opcode::END]].concat();
    let checksum = crc64::of(&file);
    file.extend_from_slice(&checksum.to_le_bytes());
    file
}

fn key(database: u64, key: &[u8], expires_at: Option<u64>, payload: Vec<u8>) -> Item {
    Item::Key(Entry { database, key: key.to_vec(), expires_at, payload })
}

#[test]
fn what_is_written_is_read() {
    let text = |text: &[u8]| {
        let mut value = Writer::default();
        value.byte(kind::STRING);
        value.string(text);
        seal(value.into_bytes(), VERSION)
    };
    let long = vec![b'x'; 70_000];
    let mut writer = FileWriter::new(Cursor::new(Vec::new())).expect("memory");
    writer.field("redis-ver", "7.0.0").expect("memory");
    writer.key(0, b"a", None, &text(b"1")).expect("memory");
    writer.key(3, b"b", Some(4_000_000_000_123), &text(&long)).expect("memory");
    writer.key(3, b"", None, &text(b"")).expect("memory");
    assert!(writer.key(3, b"", None, b"short").is_err());
    let bytes = writer.end().expect("memory").into_inner();
    let expected = [
        Item::Field { name: b"redis-ver".to_vec(), value: b"7.0.0".to_vec() },
        key(0, b"a", None, text(b"1")),
        key(3, b"b", Some(4_000_000_000_123), text(&long)),
        key(3, b"", None, text(b"")),
    ];
    assert_eq!(items(&bytes).expect("a file"), expected);
}

#[test]
fn a_time_before_1970_has_passed() {
    let body =
        [&b"\xfc"[..], &(-5_i64).to_le_bytes(), b"\x00\x01a\x01x\xfd", &(-1_i32).to_le_bytes(), b"\x00\x01b\x01x"]
            .concat();
    let times = items(&file(&body)).expect("a file").into_iter().map(|item| match item {
        Item::Key(entry) => entry.expires_at,
        _ => None,
    });
    assert_eq!(times.collect::<Vec<_>>(), [Some(1), Some(1)], "it is no number of 8,000 years, and not none");
}

#[test]
fn what_is_between_keys_is_passed_by() {
    let body = [
        &b"\xfa\x03abc\xc0\x7b"[..], // a field whose value is a number
        b"\xf7\x81\x00\x00\x00\x00\x00\x00\x00\x09\x02\x02\x05\x02hi\x04\x00\x00\x00\x00\x00\x00\xf0\x3f\x00", // of a module
        b"\xf5\x05#!lua",                                      // functions
        b"\xfe\x02\xfb\x03\x01\xf4\x01\x02\x00",               // database, sizes, a slot
        b"\xfd\x00\x00\x00\x01\xf8\x05\xf9\x07\x00\x01k\x01v", // a time in seconds, idle time and frequency
        b"\x07\x01m\x05\x02\x2a\x00",                          // a value of a module
        b"\x19\x01h\x00\x00\x00\x00\x00\x00\x00\x00\x03abc",   // a hash whose fields expire
    ]
    .concat();
    let expected = [
        Item::Field { name: b"abc".to_vec(), value: b"123".to_vec() },
        Item::Functions(b"#!lua".to_vec()),
        key(2, b"k", Some(0x0100_0000 * 1_000), seal(b"\x00\x01v".to_vec(), 12)),
        key(2, b"m", None, seal(b"\x07\x05\x02\x2a\x00".to_vec(), 12)),
        key(2, b"h", None, seal(b"\x19\x00\x00\x00\x00\x00\x00\x00\x00\x03abc".to_vec(), 12)),
    ];
    assert_eq!(items(&file(&body)).expect("a file"), expected);
}

#[test]
fn what_is_no_whole_file_is_refused() {
    let whole = file(b"\x00\x01k\x01v");
    assert_eq!(items(&whole).expect("a file").len(), 1);
    for end in 0..whole.len() {
        assert!(matches!(items(&whole[..end]), Err(FileError::Io(_))), "it ends at {end}");
    }
    for (file, reason) in [
        (b"PK\x03\x04 a zip".to_vec(), "\"PK\\x03\\x04 a zi\""),
        (b"REDIS0013\xff".to_vec(), "version 13"),
        (file(b"\x08\x01kxx"), "a type of value"),
        (file(b"\x00\xc4xx"), "a string"),
        ([&whole[..13], b"w", &whole[14..]].concat(), "checksum"),
    ] {
        let error = items(&file).expect_err("no file").to_string();
        assert!(error.contains(reason), "{error}");
    }
    // A Redis without `rdbchecksum`.
    let unsummed = [&whole[..whole.len() - 8], &[0; 8]].concat();
    assert_eq!(items(&unsummed).expect("a file").len(), 1);
}

proptest! {
    #[test]
    fn no_bytes_do_harm(kind in 0_u8..=25, bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
        let body = [&[kind, 1, b'k'], bytes.as_slice()].concat();
        let _ = items(&file(&body));
        let _ = items(&file(&bytes));
    }

    #[test]
    fn lengths_beyond_all_memory_take_none(kind in 0_u8..=25, encoding in prop_oneof![Just(&b"\x81"[..]), Just(&b"\xc3\x02\x81"[..])]) {
        let body = [&[kind, 1, b'k'], encoding, &[0xff; 8], b"some bytes"].concat();
        prop_assert!(items(&file(&body)).is_err());
    }
}
