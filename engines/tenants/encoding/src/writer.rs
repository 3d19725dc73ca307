//! Values into a key.

use crate::{
    END, KeyError, NULL, Order, VALUE, ZERO,
    numeric::{Hundreds, Numeric},
};

/// A key that is being written, column by column.
#[derive(Clone, Debug)]
pub struct KeyWriter {
    bytes: Vec<u8>,
}

impl KeyWriter {
    /// A key of the table or index `relation`.
    #[must_use]
    pub fn new(relation: u32) -> Self {
        let mut bytes = Vec::with_capacity(32);
        bytes.extend(relation.to_be_bytes());
        Self { bytes }
    }

    /// What is written so far: a whole key, or what all keys with these first columns begin with.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The key.
    #[must_use]
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// No value.
    pub fn null(&mut self, order: Order) -> &mut Self {
        self.bytes.push(NULL ^ order.mask());
        self
    }

    /// A boolean; false is smaller.
    pub fn boolean(&mut self, value: bool, order: Order) -> &mut Self {
        self.value(&[u8::from(value)], order)
    }

    /// A number of 2 bytes.
    pub fn int16(&mut self, value: i16, order: Order) -> &mut Self {
        self.value(&(value ^ i16::MIN).to_be_bytes(), order)
    }

    /// A number of 4 bytes; also a date.
    pub fn int32(&mut self, value: i32, order: Order) -> &mut Self {
        self.value(&(value ^ i32::MIN).to_be_bytes(), order)
    }

    /// A number of 8 bytes; also a time and a timestamp.
    pub fn int64(&mut self, value: i64, order: Order) -> &mut Self {
        self.value(&(value ^ i64::MIN).to_be_bytes(), order)
    }

    /// A number of 16 bytes; also an interval, as its length in microseconds.
    pub fn int128(&mut self, value: i128, order: Order) -> &mut Self {
        self.value(&(value ^ i128::MIN).to_be_bytes(), order)
    }

    /// A floating-point number; those of 4 bytes are written as the same number of 8.
    pub fn float64(&mut self, value: f64, order: Order) -> &mut Self {
        // Every NaN as one, and -0 as 0, because SQL takes them for equal.
        let value = if value.is_nan() { f64::NAN.abs() } else { value + 0.0 };
        let bits = value.to_bits();
        let turned = if bits >> 63 == 1 { !bits } else { bits | 1 << 63 };
        self.value(&turned.to_be_bytes(), order)
    }

    /// 16 bytes that are compared as they are.
    pub fn uuid(&mut self, value: [u8; 16], order: Order) -> &mut Self {
        self.value(&value, order)
    }

    /// A text, compared by its bytes.
    pub fn text(&mut self, value: &str, order: Order) -> &mut Self {
        self.bytes(value.as_bytes(), order)
    }

    /// Bytes of any length.
    pub fn bytes(&mut self, value: &[u8], order: Order) -> &mut Self {
        self.beginning(value, order);
        self.bytes.extend([0, END].map(|byte| byte ^ order.mask()));
        self
    }

    /// What a text or bytes that begin with `value` begin with: for `LIKE 'value%'`. Nothing can follow.
    pub fn beginning(&mut self, value: &[u8], order: Order) -> &mut Self {
        let mask = order.mask();
        self.bytes.push(VALUE ^ mask);
        for byte in value {
            self.bytes.push(byte ^ mask);
            if *byte == 0 {
                self.bytes.push(ZERO ^ mask);
            }
        }
        self
    }

    /// A number of any length.
    ///
    /// # Errors
    /// [`KeyError::TooManyDigits`]; nothing is written then.
    pub fn numeric(&mut self, value: &Numeric, order: Order) -> Result<&mut Self, KeyError> {
        let (negative, digits, scale) = match value {
            Numeric::NegativeInfinity => return Ok(self.value(&[1], order)),
            Numeric::Infinity => return Ok(self.value(&[5], order)),
            Numeric::NaN => return Ok(self.value(&[6], order)),
            Numeric::Finite { negative, digits, scale } => (*negative, digits, *scale),
        };
        let hundreds = Hundreds::of(digits, scale)?;
        if hundreds.digits.is_empty() {
            return Ok(self.value(&[3], order));
        }
        self.value(&[if negative { 2 } else { 4 }], order);
        let mask = if negative { !order.mask() } else { order.mask() };
        let exponent = (hundreds.exponent + (1 << 23)).to_be_bytes();
        let digits = hundreds.digits.iter().map(|digit| digit + 1);
        self.bytes.extend(exponent[1..].iter().copied().chain(digits).chain([0]).map(|byte| byte ^ mask));
        Ok(self)
    }

    fn value(&mut self, bytes: &[u8], order: Order) -> &mut Self {
        let mask = order.mask();
        self.bytes.push(VALUE ^ mask);
        self.bytes.extend(bytes.iter().map(|byte| byte ^ mask));
        self
    }
}
