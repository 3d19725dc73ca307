//! The bytes of format 1. A change of them is a change of every data directory.

use savanna_tenants_encoding::{KeyWriter, Numeric, Order};

use Order::{Ascending, Descending};

fn finite(negative: bool, digits: &[u8], scale: i32) -> Numeric {
    Numeric::Finite { negative, digits: digits.to_vec(), scale }
}

fn hex(write: impl FnOnce(&mut KeyWriter) -> &mut KeyWriter) -> String {
    let mut key = KeyWriter::new(0x0102_0304);
    let key = write(&mut key);
    let bytes: Vec<String> = key.as_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
    bytes.concat().strip_prefix("01020304").expect("the relation comes first").to_owned()
}

fn numeric(value: &Numeric, order: Order) -> String {
    hex(|key| key.numeric(value, order).expect("short enough"))
}

#[test]
fn every_type_is_written_as_it_was() {
    assert_eq!(hex(|key| key.null(Ascending).null(Descending)), "02fd");
    assert_eq!(hex(|key| key.boolean(false, Ascending).boolean(true, Descending)), "0100fefe");
    assert_eq!(hex(|key| key.int16(-2, Ascending)), "017ffe");
    assert_eq!(hex(|key| key.int32(1, Ascending)), "0180000001");
    assert_eq!(hex(|key| key.int32(1, Descending)), "fe7ffffffe");
    assert_eq!(hex(|key| key.int64(i64::MIN, Ascending)), "010000000000000000");
    assert_eq!(hex(|key| key.int128(0, Ascending)), "0180000000000000000000000000000000");
    assert_eq!(hex(|key| key.float64(1.0, Ascending)), "01bff0000000000000");
    assert_eq!(hex(|key| key.float64(-1.0, Ascending)), "01400fffffffffffff");
    assert_eq!(hex(|key| key.float64(-0.0, Ascending)), "018000000000000000");
    assert_eq!(hex(|key| key.float64(-f64::NAN, Ascending)), "01fff8000000000000");
    assert_eq!(hex(|key| key.uuid([0xab; 16], Ascending)), format!("01{}", "ab".repeat(16)));
    assert_eq!(hex(|key| key.text("a\0b", Ascending)), "016100ff620001");
    assert_eq!(hex(|key| key.bytes(b"a\0", Descending)), "fe9eff00fffe");
    assert_eq!(hex(|key| key.beginning(b"ab", Ascending)), "016162");
}

#[test]
fn numerics_are_written_as_they_were() {
    assert_eq!(numeric(&Numeric::NegativeInfinity, Ascending), "0101");
    assert_eq!(numeric(&finite(true, &[1, 2, 3], 0), Ascending), "01027ffffdfde7ff");
    assert_eq!(numeric(&finite(false, &[0, 0], 1), Ascending), "0103");
    assert_eq!(numeric(&finite(false, &[1, 2, 3], 0), Ascending), "0104800002021800");
    assert_eq!(numeric(&finite(false, &[1, 2, 3, 0, 0], 2), Ascending), "0104800002021800");
    assert_eq!(numeric(&finite(false, &[5], 3), Ascending), "01047fffff3300");
    assert_eq!(numeric(&finite(false, &[5], 3), Descending), "fefb800000ccff");
    assert_eq!(numeric(&Numeric::Infinity, Ascending), "0105");
    assert_eq!(numeric(&Numeric::NaN, Ascending), "0106");
}
