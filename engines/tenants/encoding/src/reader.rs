//! Values out of a key.

use crate::{
    END, KeyError, NULL, Order, VALUE, ZERO,
    numeric::{Hundreds, Numeric},
};

/// A key that is being read, column by column, in the types and orders in which it was written. `None` is NULL.
#[derive(Clone, Debug)]
pub struct KeyReader<'a> {
    bytes: &'a [u8],
    relation: u32,
    at: usize,
}

impl<'a> KeyReader<'a> {
    /// Begins with the table or index.
    ///
    /// # Errors
    /// [`KeyError::Short`].
    pub fn new(bytes: &'a [u8]) -> Result<Self, KeyError> {
        let mut reader = Self { bytes, relation: 0, at: 0 };
        reader.relation = u32::from_be_bytes(reader.take("the id of a table or index", 0)?);
        Ok(reader)
    }

    /// Begins behind the number of the table or index, which is elsewhere.
    #[must_use]
    pub const fn behind_relation(bytes: &'a [u8]) -> Self {
        Self { bytes, relation: 0, at: 0 }
    }

    /// The table or index that the key is of; 0 if that is elsewhere.
    #[must_use]
    pub fn relation(&self) -> u32 {
        self.relation
    }

    /// Whether everything was read.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.at == self.bytes.len()
    }

    /// A boolean.
    ///
    /// # Errors
    /// [`KeyError::Short`], [`KeyError::Unknown`].
    pub fn boolean(&mut self, order: Order) -> Result<Option<bool>, KeyError> {
        let at = self.at + 1;
        match self.value("a boolean", order)? {
            None => Ok(None),
            Some([0]) => Ok(Some(false)),
            Some([1]) => Ok(Some(true)),
            Some([came]) => Err(KeyError::Unknown { expected: "a boolean", at, came }),
        }
    }

    /// A number of 2 bytes.
    ///
    /// # Errors
    /// [`KeyError::Short`], [`KeyError::Unknown`].
    pub fn int16(&mut self, order: Order) -> Result<Option<i16>, KeyError> {
        Ok(self.value("a smallint", order)?.map(|bytes| i16::from_be_bytes(bytes) ^ i16::MIN))
    }

    /// A number of 4 bytes.
    ///
    /// # Errors
    /// [`KeyError::Short`], [`KeyError::Unknown`].
    pub fn int32(&mut self, order: Order) -> Result<Option<i32>, KeyError> {
        Ok(self.value("an integer", order)?.map(|bytes| i32::from_be_bytes(bytes) ^ i32::MIN))
    }

    /// A number of 8 bytes.
    ///
    /// # Errors
    /// [`KeyError::Short`], [`KeyError::Unknown`].
    pub fn int64(&mut self, order: Order) -> Result<Option<i64>, KeyError> {
        Ok(self.value("a bigint", order)?.map(|bytes| i64::from_be_bytes(bytes) ^ i64::MIN))
    }

    /// A number of 16 bytes.
    ///
    /// # Errors
    /// [`KeyError::Short`], [`KeyError::Unknown`].
    pub fn int128(&mut self, order: Order) -> Result<Option<i128>, KeyError> {
        Ok(self.value("a number of 16 bytes", order)?.map(|bytes| i128::from_be_bytes(bytes) ^ i128::MIN))
    }

    /// A floating-point number.
    ///
    /// # Errors
    /// [`KeyError::Short`], [`KeyError::Unknown`].
    pub fn float64(&mut self, order: Order) -> Result<Option<f64>, KeyError> {
        Ok(self.value("a floating-point number", order)?.map(|bytes| {
            let turned = u64::from_be_bytes(bytes);
            f64::from_bits(if turned >> 63 == 1 { turned ^ 1 << 63 } else { !turned })
        }))
    }

    /// 16 bytes.
    ///
    /// # Errors
    /// [`KeyError::Short`], [`KeyError::Unknown`].
    pub fn uuid(&mut self, order: Order) -> Result<Option<[u8; 16]>, KeyError> {
        self.value("a uuid", order)
    }

    /// A text.
    ///
    /// # Errors
    /// [`KeyError::Short`], [`KeyError::Unknown`], [`KeyError::NoText`].
    pub fn text(&mut self, order: Order) -> Result<Option<String>, KeyError> {
        let at = self.at;
        let Some(bytes) = self.bytes(order)? else { return Ok(None) };
        String::from_utf8(bytes).map(Some).map_err(|_| KeyError::NoText { at })
    }

    /// Bytes of any length.
    ///
    /// # Errors
    /// [`KeyError::Short`], [`KeyError::Unknown`].
    pub fn bytes(&mut self, order: Order) -> Result<Option<Vec<u8>>, KeyError> {
        let (expected, mask) = ("the end of a text", order.mask());
        if !self.is_value(order)? {
            return Ok(None);
        }
        let mut value = Vec::new();
        loop {
            let [byte] = self.take(expected, mask)?;
            if byte != 0 {
                value.push(byte);
                continue;
            }
            let at = self.at;
            match self.take(expected, mask)? {
                [END] => return Ok(Some(value)),
                [ZERO] => value.push(0),
                [came] => return Err(KeyError::Unknown { expected, at, came }),
            }
        }
    }

    /// A number of any length, with as few digits as it needs.
    ///
    /// # Errors
    /// [`KeyError::Short`], [`KeyError::Unknown`].
    pub fn numeric(&mut self, order: Order) -> Result<Option<Numeric>, KeyError> {
        let (expected, at) = ("a numeric", self.at + 1);
        let Some([kind]) = self.value(expected, order)? else { return Ok(None) };
        let negative = match kind {
            1 => return Ok(Some(Numeric::NegativeInfinity)),
            2 => true,
            3 => return Ok(Some(Numeric::Finite { negative: false, digits: Vec::new(), scale: 0 })),
            4 => false,
            5 => return Ok(Some(Numeric::Infinity)),
            6 => return Ok(Some(Numeric::NaN)),
            came => return Err(KeyError::Unknown { expected, at, came }),
        };
        let mask = if negative { !order.mask() } else { order.mask() };
        let [high, middle, low] = self.take(expected, mask)?;
        let exponent = i32::from_be_bytes([0, high, middle, low]) - (1 << 23);
        let mut digits = Vec::new();
        loop {
            let at = self.at;
            match self.take(expected, mask)? {
                [0] if digits.is_empty() => return Err(KeyError::Unknown { expected, at, came: 0 }),
                [0] => return Ok(Some(Hundreds { exponent, digits }.into_finite(negative))),
                [digit @ 1..=100] => digits.push(digit - 1),
                [came] => return Err(KeyError::Unknown { expected, at, came }),
            }
        }
    }

    /// A value of fixed length, if there is one.
    fn value<const N: usize>(&mut self, expected: &'static str, order: Order) -> Result<Option<[u8; N]>, KeyError> {
        if !self.is_value(order)? {
            return Ok(None);
        }
        self.take(expected, order.mask()).map(Some)
    }

    fn is_value(&mut self, order: Order) -> Result<bool, KeyError> {
        let (expected, at) = ("a value or NULL", self.at);
        match self.take(expected, order.mask())? {
            [VALUE] => Ok(true),
            [NULL] => Ok(false),
            [came] => Err(KeyError::Unknown { expected, at, came }),
        }
    }

    fn take<const N: usize>(&mut self, expected: &'static str, mask: u8) -> Result<[u8; N], KeyError> {
        let short = KeyError::Short { expected, at: self.at };
        let bytes = self.bytes.get(self.at..).and_then(|rest| rest.first_chunk::<N>()).ok_or(short)?;
        self.at += N;
        Ok(bytes.map(|byte| byte ^ mask))
    }
}
