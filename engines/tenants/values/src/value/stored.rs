//! How the parts of values are written that have no form of their own for that: for sessions that go on at another node.

/// Numbers, as rows have them.
pub(super) mod number {
    use bigdecimal::BigDecimal;
    use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};

    use crate::value::numeric;

    pub(in crate::value) fn serialize<S: Serializer>(number: &BigDecimal, to: S) -> Result<S::Ok, S::Error> {
        numeric::to_row(number).serialize(to)
    }

    pub(in crate::value) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<BigDecimal, D::Error> {
        let bytes = Vec::<u8>::deserialize(from)?;
        numeric::from_row(&bytes).ok_or_else(|| D::Error::custom("expected a number"))
    }
}

/// JSON, by its text.
pub(super) mod json {
    use std::sync::Arc;

    use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};

    use crate::value::json::Json;

    pub(in crate::value) fn serialize<S: Serializer>(json: &Json, to: S) -> Result<S::Ok, S::Error> {
        json.text().serialize(to)
    }

    pub(in crate::value) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Arc<Json>, D::Error> {
        let text = String::deserialize(from)?;
        Json::parse_again(&text).map(Arc::new).map_err(D::Error::custom)
    }
}

/// Arrays, by what is in them.
pub(super) mod array {
    use std::sync::Arc;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use crate::value::array::Array;

    pub(in crate::value) fn serialize<S: Serializer>(array: &Array, to: S) -> Result<S::Ok, S::Error> {
        array.serialize(to)
    }

    pub(in crate::value) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Arc<Array>, D::Error> {
        Array::deserialize(from).map(Arc::new)
    }
}
