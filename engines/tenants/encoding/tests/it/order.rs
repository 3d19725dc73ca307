//! Order and round trip of random keys.

use std::cmp::Ordering;

use proptest::prelude::*;
use savanna_tenants_encoding::{KeyError, KeyReader, KeyWriter, Numeric, Order};

/// A value of a column.
#[derive(Clone, Debug)]
enum Value {
    Boolean(bool),
    Int16(i16),
    Int32(i32),
    Int64(i64),
    Int128(i128),
    Float64(f64),
    Uuid([u8; 16]),
    Text(String),
    Bytes(Vec<u8>),
    /// `mantissa / 10^scale`.
    Decimal(i64, i32),
    Infinity,
    NegativeInfinity,
    NaN,
}

type Column = (Option<Value>, Order);

impl Value {
    fn numeric(&self) -> Option<Numeric> {
        Some(match self {
            Self::Decimal(mantissa, scale) => Numeric::Finite {
                negative: *mantissa < 0,
                digits: mantissa.unsigned_abs().to_string().bytes().map(|digit| digit - b'0').collect(),
                scale: *scale,
            },
            Self::Infinity => Numeric::Infinity,
            Self::NegativeInfinity => Numeric::NegativeInfinity,
            Self::NaN => Numeric::NaN,
            _ => return None,
        })
    }

    fn write(&self, key: &mut KeyWriter, order: Order) {
        match self {
            Self::Boolean(value) => key.boolean(*value, order),
            Self::Int16(value) => key.int16(*value, order),
            Self::Int32(value) => key.int32(*value, order),
            Self::Int64(value) => key.int64(*value, order),
            Self::Int128(value) => key.int128(*value, order),
            Self::Float64(value) => key.float64(*value, order),
            Self::Uuid(value) => key.uuid(*value, order),
            Self::Text(value) => key.text(value, order),
            Self::Bytes(value) => key.bytes(value, order),
            Self::Decimal(..) | Self::Infinity | Self::NegativeInfinity | Self::NaN => {
                let numeric = self.numeric().expect("it is one");
                key.numeric(&numeric, order).expect("short enough")
            }
        };
    }

    /// A value of the same type at the reader's place.
    fn read(&self, key: &mut KeyReader<'_>, order: Order) -> Result<Option<Self>, KeyError> {
        Ok(match self {
            Self::Boolean(_) => key.boolean(order)?.map(Self::Boolean),
            Self::Int16(_) => key.int16(order)?.map(Self::Int16),
            Self::Int32(_) => key.int32(order)?.map(Self::Int32),
            Self::Int64(_) => key.int64(order)?.map(Self::Int64),
            Self::Int128(_) => key.int128(order)?.map(Self::Int128),
            Self::Float64(_) => key.float64(order)?.map(Self::Float64),
            Self::Uuid(_) => key.uuid(order)?.map(Self::Uuid),
            Self::Text(_) => key.text(order)?.map(Self::Text),
            Self::Bytes(_) => key.bytes(order)?.map(Self::Bytes),
            Self::Decimal(..) | Self::Infinity | Self::NegativeInfinity | Self::NaN => {
                key.numeric(order)?.map(|numeric| match numeric {
                    Numeric::NaN => Self::NaN,
                    Numeric::Infinity => Self::Infinity,
                    Numeric::NegativeInfinity => Self::NegativeInfinity,
                    Numeric::Finite { negative, digits, scale } => {
                        let mantissa = digits
                            .iter()
                            .fold(0_i64, |sum, digit| sum.wrapping_mul(10).wrapping_add(i64::from(*digit)));
                        Self::Decimal(if negative { mantissa.wrapping_neg() } else { mantissa }, scale)
                    }
                })
            }
        })
    }

    /// SQL's order of two values of one type.
    fn compare(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Boolean(a), Self::Boolean(b)) => a.cmp(b),
            (Self::Int16(a), Self::Int16(b)) => a.cmp(b),
            (Self::Int32(a), Self::Int32(b)) => a.cmp(b),
            (Self::Int64(a), Self::Int64(b)) => a.cmp(b),
            (Self::Int128(a), Self::Int128(b)) => a.cmp(b),
            (Self::Float64(a), Self::Float64(b)) => match (a.is_nan(), b.is_nan()) {
                (false, false) => a.partial_cmp(b).expect("numbers"),
                (a, b) => a.cmp(&b),
            },
            (Self::Uuid(a), Self::Uuid(b)) => a.cmp(b),
            (Self::Text(a), Self::Text(b)) => a.as_bytes().cmp(b.as_bytes()),
            (Self::Bytes(a), Self::Bytes(b)) => a.cmp(b),
            (Self::Decimal(a, a_scale), Self::Decimal(b, b_scale)) => {
                // Over one common scale; scales here differ by at most 16.
                let scale = *a_scale.max(b_scale);
                let over = |value: i64, own: i32| i128::from(value) * 10_i128.pow((scale - own) as u32);
                over(*a, *a_scale).cmp(&over(*b, *b_scale))
            }
            (a, b) => a.rank().cmp(&b.rank()),
        }
    }

    fn rank(&self) -> u8 {
        match self {
            Self::NegativeInfinity => 0,
            Self::Infinity => 2,
            Self::NaN => 3,
            _ => 1,
        }
    }
}

fn compare(a: &Column, b: &Column) -> Ordering {
    let ascending = match (&a.0, &b.0) {
        (None, None) => Ordering::Equal,
        (None, Some(_)) => Ordering::Greater,
        (Some(_), None) => Ordering::Less,
        (Some(a), Some(b)) => a.compare(b),
    };
    if a.1 == Order::Descending { ascending.reverse() } else { ascending }
}

fn key(columns: &[Column]) -> Vec<u8> {
    let mut key = KeyWriter::new(7);
    for (value, order) in columns {
        match value {
            Some(value) => value.write(&mut key, *order),
            None => {
                key.null(*order);
            }
        }
    }
    key.into_bytes()
}

/// Values of one type, of which many are near each other.
fn values(kind: u8) -> BoxedStrategy<Value> {
    let byte = prop::sample::select(vec![0_u8, 1, 2, b'a', 0xfe, 0xff]);
    match kind {
        0 => any::<bool>().prop_map(Value::Boolean).boxed(),
        1 => any::<i16>().prop_map(Value::Int16).boxed(),
        2 => prop_oneof![any::<i32>(), -2..2].prop_map(Value::Int32).boxed(),
        3 => prop_oneof![any::<i64>(), -2..2_i64].prop_map(Value::Int64).boxed(),
        4 => prop_oneof![any::<i128>(), -2..2_i128].prop_map(Value::Int128).boxed(),
        5 => prop_oneof![any::<f64>(), -2.0..2.0, Just(0.0), Just(-0.0), Just(f64::NAN), Just(-f64::NAN)]
            .prop_map(Value::Float64)
            .boxed(),
        6 => any::<[u8; 16]>().prop_map(Value::Uuid).boxed(),
        7 => "[\u{0}a\u{ff}]{0,4}".prop_map(Value::Text).boxed(),
        8 => prop::collection::vec(byte, 0..4).prop_map(Value::Bytes).boxed(),
        _ => prop_oneof![
            8 => (prop_oneof![any::<i64>(), -2000..2000_i64], -4..12_i32).prop_map(|(m, s)| Value::Decimal(m, s)),
            1 => Just(Value::Infinity),
            1 => Just(Value::NegativeInfinity),
            1 => Just(Value::NaN),
        ]
        .boxed(),
    }
}

/// Two rows of the same index.
fn rows() -> impl Strategy<Value = Vec<(Column, Column)>> {
    let column = (0..10_u8, any::<bool>()).prop_flat_map(|(kind, descending)| {
        let order = if descending { Order::Descending } else { Order::Ascending };
        let value = || prop::option::weighted(0.9, values(kind));
        let pair = prop_oneof![(value(), value()), value().prop_map(|value| (value.clone(), value))];
        pair.prop_map(move |(a, b)| ((a, order), (b, order)))
    });
    prop::collection::vec(column, 1..4)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn keys_compare_as_their_values_do(pairs in rows()) {
        let (a, b): (Vec<Column>, Vec<Column>) = pairs.into_iter().unzip();
        let expected = a.iter().zip(&b).map(|(a, b)| compare(a, b)).find(|order| order.is_ne());
        prop_assert_eq!(key(&a).cmp(&key(&b)), expected.unwrap_or(Ordering::Equal), "{:?} and {:?}", a, b);
    }

    #[test]
    fn keys_are_read_as_they_were_written(pairs in rows()) {
        let (row, types): (Vec<Column>, Vec<Column>) = pairs.into_iter().unzip();
        let bytes = key(&row);
        let mut reader = KeyReader::new(&bytes).expect("it has a beginning");
        prop_assert_eq!(reader.relation(), 7);
        for (column, (of_type, order)) in row.iter().zip(types) {
            let Some(of_type) = column.0.clone().or(of_type) else { return Ok(()) };
            let read = of_type.read(&mut reader, order);
            let read = read.map_err(|error| TestCaseError::fail(error.to_string()))?;
            prop_assert!(compare(column, &(read.clone(), order)).is_eq(), "{:?} became {:?}", column, read);
        }
        prop_assert!(reader.is_done());
    }

    #[test]
    fn keys_with_the_same_first_columns_and_no_others_begin_alike(pairs in rows()) {
        let (a, b): (Vec<Column>, Vec<Column>) = pairs.into_iter().unzip();
        for columns in 1..=a.len() {
            let alike = a[..columns].iter().zip(&b).all(|(a, b)| compare(a, b).is_eq());
            prop_assert_eq!(key(&b).starts_with(&key(&a[..columns])), alike, "{:?} and {:?}", &a[..columns], b);
        }
    }

    #[test]
    fn first_columns_cut_all_keys_in_one_place(pairs in rows()) {
        let (cut, row): (Vec<Column>, Vec<Column>) = pairs.into_iter().unzip();
        for columns in 1..=cut.len() {
            let order = row.iter().zip(&cut[..columns]).map(|(a, b)| compare(a, b)).find(|order| order.is_ne());
            let below = order == Some(Ordering::Less);
            prop_assert_eq!(key(&row) < key(&cut[..columns]), below, "{:?} cut at {:?}", row, &cut[..columns]);
        }
    }

    #[test]
    fn bytes_that_are_no_key_are_an_error_and_no_panic(
        bytes in prop::collection::vec(prop_oneof![any::<u8>(), 0..5_u8], 0..24),
        descending in any::<bool>(),
        sample in (0..10_u8).prop_flat_map(values),
    ) {
        let order = if descending { Order::Descending } else { Order::Ascending };
        if let Ok(mut reader) = KeyReader::new(&bytes) {
            // It ends: every value takes a byte.
            while sample.read(&mut reader, order).is_ok() {}
        }
    }
}

#[test]
fn a_text_is_found_by_its_beginning() {
    for order in [Order::Ascending, Order::Descending] {
        let beginning = |text: &str| KeyWriter::new(7).beginning(text.as_bytes(), order).as_bytes().to_vec();
        let whole = |text: &str| KeyWriter::new(7).text(text, order).as_bytes().to_vec();
        for text in ["ab", "abc", "ab\0", "ab\u{ff}"] {
            assert!(whole(text).starts_with(&beginning("ab")), "{text:?}");
        }
        for text in ["a", "b", "", "a\0b"] {
            assert!(!whole(text).starts_with(&beginning("ab")), "{text:?}");
        }
    }
}
