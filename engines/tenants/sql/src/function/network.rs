//! Functions and operators of network addresses, `inet` and `cidr`, and of the addresses of network cards.

use savanna_tenants_values::{
    error::{Result, SqlError, state},
    types::Type,
    value::{Value, network::Network},
};

use super::{Resolved, wrong_arguments};

/// A function of network addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NetworkFunction {
    /// As `abbrev` writes a `cidr`
    Abbreviated,
    /// `inet + bigint`
    Add,
    And,
    Broadcast,
    Contains,
    ContainsOrEquals,
    Difference,
    Family,
    Host,
    Hostmask,
    /// `&` of two addresses of cards
    MacAnd,
    MacNot,
    MacOr,
    /// `trunc`: the maker's part
    MacTrunc,
    /// `macaddr8_set7bit`
    MacLocal,
    Masklen,
    Merge,
    Netmask,
    Network,
    Not,
    Or,
    Overlaps,
    SameFamily,
    /// `set_masklen` of an `inet`, or of a `cidr`, which keeps nothing behind the network
    SetMasklen(Type),
    Subtract,
    /// As `abbrev` writes an `inet`
    Text,
    /// With the bits of the network
    Whole,
    Within,
    WithinOrEquals,
}

/// The function of network addresses of a name, as [`super::resolve`].
pub(super) fn resolve(name: &str, arguments: &[Type]) -> Option<Resolved<NetworkFunction>> {
    use NetworkFunction as F;
    use Type::{Bool, Cidr, Inet, Int4, Int8, Macaddr, Macaddr8, Text, Unknown};
    let address = |of: &Type| of.is_network() || *of == Unknown;
    Some(match (name, arguments) {
        ("abbrev", [Cidr]) => (F::Abbreviated, vec![Cidr], Text),
        ("abbrev", [of]) if address(of) => (F::Text, vec![Inet], Text),
        ("text", [of]) if of.is_network() => (F::Whole, vec![Inet], Text),
        ("host", [of]) if address(of) => (F::Host, vec![Inet], Text),
        ("family", [of]) if address(of) => (F::Family, vec![Inet], Int4),
        ("masklen", [of]) if address(of) => (F::Masklen, vec![Inet], Int4),
        ("netmask", [of]) if address(of) => (F::Netmask, vec![Inet], Inet),
        ("hostmask", [of]) if address(of) => (F::Hostmask, vec![Inet], Inet),
        ("broadcast", [of]) if address(of) => (F::Broadcast, vec![Inet], Inet),
        ("network", [of]) if address(of) => (F::Network, vec![Inet], Cidr),
        ("set_masklen", [of, bits]) if address(of) && (bits.is_integer() || *bits == Unknown) => {
            let of = if *of == Cidr { Cidr } else { Inet };
            (F::SetMasklen(of), vec![of, Int4], of)
        }
        ("inet_same_family", [a, b]) if address(a) && address(b) => (F::SameFamily, vec![Inet; 2], Bool),
        ("inet_merge", [a, b]) if address(a) && address(b) => (F::Merge, vec![Inet; 2], Cidr),
        ("<<" | "<<=" | ">>" | ">>=" | "&&" | "&" | "|" | "-", [a, b])
            if address(a) && address(b) && (a.is_network() || b.is_network()) =>
        {
            let (function, of) = match name {
                "<<" => (F::Within, Bool),
                "<<=" => (F::WithinOrEquals, Bool),
                ">>" => (F::Contains, Bool),
                ">>=" => (F::ContainsOrEquals, Bool),
                "&&" => (F::Overlaps, Bool),
                "&" => (F::And, Inet),
                "|" => (F::Or, Inet),
                _ => (F::Difference, Int8),
            };
            (function, vec![Inet; 2], of)
        }
        ("~", [of]) if of.is_network() => (F::Not, vec![Inet], Inet),
        ("+", [of, by]) if of.is_network() && by.is_integer() => (F::Add, vec![Inet, Int8], Inet),
        ("+", [by, of]) if of.is_network() && by.is_integer() => (F::Add, vec![Int8, Inet], Inet),
        ("-", [of, by]) if of.is_network() && by.is_integer() => (F::Subtract, vec![Inet, Int8], Inet),
        ("trunc", [of @ (Macaddr | Macaddr8)]) => (F::MacTrunc, vec![*of], *of),
        ("macaddr8_set7bit", [Macaddr8 | Macaddr | Unknown]) => (F::MacLocal, vec![Macaddr8], Macaddr8),
        ("~", [of @ (Macaddr | Macaddr8)]) => (F::MacNot, vec![*of], *of),
        ("&" | "|", [of @ (Macaddr | Macaddr8), other]) | ("&" | "|", [other, of @ (Macaddr | Macaddr8)])
            if of == other || *other == Unknown =>
        {
            (if name == "&" { F::MacAnd } else { F::MacOr }, vec![*of; 2], *of)
        }
        _ => return None,
    })
}

impl NetworkFunction {
    /// Its value; no argument is NULL.
    pub(super) fn call(self, arguments: &[&Value]) -> Result<Value> {
        match arguments {
            [Value::Network(of)] => self.of_one(*of),
            [Value::Network(a), Value::Network(b)] => self.of_two(*a, *b),
            [Value::Network(of), Value::Int(by)] => match self {
                Self::SetMasklen(kind) => with_bits(*of, *by, kind),
                Self::Add => moved(*of, i128::from(*by)),
                _ => moved(*of, -i128::from(*by)),
            },
            [Value::Int(by), Value::Network(of)] => moved(*of, i128::from(*by)),
            [Value::Bytes(bytes)] => Ok(Value::Bytes(match self {
                Self::MacTrunc => bytes.iter().enumerate().map(|(at, byte)| if at < 3 { *byte } else { 0 }).collect(),
                Self::MacLocal => bytes.iter().enumerate().map(|(at, byte)| byte | u8::from(at == 0) << 1).collect(),
                _ => bytes.iter().map(|byte| !byte).collect(),
            })),
            [Value::Bytes(a), Value::Bytes(b)] => {
                let both = a.iter().zip(b).map(|(a, b)| if self == Self::MacAnd { a & b } else { a | b });
                Ok(Value::Bytes(both.collect()))
            }
            _ => Err(wrong_arguments(self)),
        }
    }

    fn of_one(self, of: Network) -> Result<Value> {
        // Masks are of no network.
        let mask = |bits| of.at(bits).with_bits(of.width()).map_or(Value::Null, Value::Network);
        Ok(match self {
            Self::Abbreviated => Value::Text(of.abbreviated()),
            Self::Text => Value::Text(of.text(Type::Inet)),
            Self::Whole => Value::Text(of.text(Type::Cidr)),
            Self::Host => Value::Text(of.host()),
            Self::Family => Value::Int(if of.is_v6() { 6 } else { 4 }),
            Self::Masklen => Value::Int(of.bits().into()),
            Self::Netmask => mask(!of.hosts()),
            Self::Hostmask => mask(of.hosts()),
            Self::Broadcast => Value::Network(of.at(of.address() | of.hosts())),
            Self::Network => Value::Network(of.network()),
            Self::Not => Value::Network(of.at(!of.address())),
            _ => return Err(wrong_arguments(self)),
        })
    }

    fn of_two(self, a: Network, b: Network) -> Result<Value> {
        let alike = |what: &str| match a.is_v6() == b.is_v6() {
            true => Ok(()),
            false => Err(wrong(format!("cannot {what} inet values of different sizes"))),
        };
        // Of both, the narrower network.
        let narrow = |address| a.at(address).with_bits(a.bits().max(b.bits())).map_or(Value::Null, Value::Network);
        Ok(match self {
            Self::Within => Value::Bool(a.is_within(b) && a.bits() > b.bits()),
            Self::WithinOrEquals => Value::Bool(a.is_within(b)),
            Self::Contains => Value::Bool(b.is_within(a) && b.bits() > a.bits()),
            Self::ContainsOrEquals => Value::Bool(b.is_within(a)),
            Self::Overlaps => Value::Bool(a.overlaps(b)),
            Self::SameFamily => Value::Bool(a.is_v6() == b.is_v6()),
            Self::Merge => {
                let merged =
                    a.merged(b).ok_or_else(|| wrong("cannot merge addresses from different families".to_owned()));
                Value::Network(merged?)
            }
            Self::And => {
                alike("AND")?;
                narrow(a.address() & b.address())
            }
            Self::Or => {
                alike("OR")?;
                narrow(a.address() | b.address())
            }
            Self::Difference => {
                alike("subtract")?;
                let (less, distance) = (a.address() < b.address(), a.address().abs_diff(b.address()));
                let distance = i128::try_from(distance).ok().map(|distance| if less { -distance } else { distance });
                Value::Int(distance.and_then(|distance| i64::try_from(distance).ok()).ok_or_else(out_of_range)?)
            }
            _ => return Err(wrong_arguments(self)),
        })
    }
}

/// The address so many further.
fn moved(of: Network, by: i128) -> Result<Value> {
    let by_less = by.unsigned_abs();
    let address = if by < 0 { of.address().checked_sub(by_less) } else { of.address().checked_add(by_less) };
    let address = address.filter(|address| *address <= of.all()).ok_or_else(out_of_range)?;
    Ok(Value::Network(of.at(address)))
}

fn with_bits(of: Network, bits: i64, kind: Type) -> Result<Value> {
    let wanted = if bits == -1 { Some(of.width()) } else { u8::try_from(bits).ok() };
    let changed = wanted.and_then(|bits| of.with_bits(bits));
    let changed = changed.ok_or_else(|| wrong(format!("invalid mask length: {bits}")))?;
    Ok(Value::Network(if kind == Type::Cidr { changed.network() } else { changed }))
}

fn wrong(message: String) -> SqlError {
    SqlError::new(state::INVALID_PARAMETER_VALUE, message)
}

fn out_of_range() -> SqlError {
    SqlError::new(state::NUMERIC_VALUE_OUT_OF_RANGE, "result is out of range")
}

#[cfg(test)]
mod tests {
    use savanna_tenants_values::{
        own::OwnTypes,
        value::{
            Context,
            Value::Int,
            style::Style,
            text::{parse, shown},
        },
    };

    use super::*;

    fn inet(text: &str) -> Value {
        parse(text, Type::Inet, Context { own: &OwnTypes::new(), style: Style::PLAIN }).unwrap()
    }

    fn call(function: NetworkFunction, arguments: &[&str]) -> Result<String> {
        let values: Vec<Value> = arguments.iter().map(|text| inet(text)).collect();
        function.call(&values.iter().collect::<Vec<_>>()).map(|value| shown(&value, Type::Inet, Style::PLAIN))
    }

    #[test]
    fn parts_of_an_address_are_those_of_postgresql() {
        use NetworkFunction as F;
        for (function, expected) in [
            (F::Netmask, "255.255.255.0"),
            (F::Hostmask, "0.0.0.255"),
            (F::Broadcast, "192.168.1.255/24"),
            (F::Network, "192.168.1.0/24"),
            (F::Host, "192.168.1.5"),
            (F::Whole, "192.168.1.5/24"),
            (F::Not, "63.87.254.250/24"),
            (F::Masklen, "24"),
            (F::Family, "4"),
        ] {
            assert_eq!(call(function, &["192.168.1.5/24"]).as_deref(), Ok(expected), "{function:?}");
        }
    }

    #[test]
    fn what_leaves_the_addresses_of_a_family_is_refused() {
        use NetworkFunction as F;
        assert_eq!(call(F::Difference, &["10.0.0.1", "10.0.1.0"]).as_deref(), Ok("-255"));
        for families in [F::And, F::Or, F::Difference, F::Merge] {
            assert_eq!(call(families, &["::1", "1.2.3.4"]).unwrap_err().state, state::INVALID_PARAMETER_VALUE);
        }
        assert!(call(F::Difference, &["ffff::", "::"]).is_err(), "more than a bigint");
        let last = inet("255.255.255.255");
        for (function, by) in [(F::Add, 1), (F::Subtract, -1), (F::Add, i64::MIN), (F::Subtract, i64::MAX)] {
            let moved = function.call(&[&last, &Int(by)]);
            assert_eq!(moved.unwrap_err().state, state::NUMERIC_VALUE_OUT_OF_RANGE, "{function:?} {by}");
        }
        for bits in [33, -2, i64::MAX] {
            assert!(F::SetMasklen(Type::Inet).call(&[&last, &Int(bits)]).is_err());
        }
    }
}
