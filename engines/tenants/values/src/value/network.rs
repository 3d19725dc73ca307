//! Addresses of networks: `inet` and `cidr`.

use std::{
    cmp::Ordering,
    net::{Ipv4Addr, Ipv6Addr},
};

use serde::{Deserialize, Serialize};

use crate::{
    error::{Result, SqlError, state},
    types::Type,
};

/// What the binary format calls the families.
const WIRE_V4: u8 = 2;
const WIRE_V6: u8 = 3;

/// An address with the bits of its network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Network {
    /// Whether it has 128 bits, and not 32.
    is_v6: bool,
    /// How many of its bits are those of the network.
    bits: u8,
    address: [u8; 16],
}

impl From<Ipv4Addr> for Network {
    /// One address alone.
    fn from(address: Ipv4Addr) -> Self {
        Self::new(false, 32, u32::from(address).into())
    }
}

impl From<Ipv6Addr> for Network {
    /// One address alone.
    fn from(address: Ipv6Addr) -> Self {
        Self::new(true, 128, address.into())
    }
}

impl Network {
    /// An address of a family, 6 or 4, of whose bits so many are those of its network. None that it has not are set.
    fn new(is_v6: bool, bits: u8, address: u128) -> Self {
        Self { is_v6, bits, address: address.to_be_bytes() }
    }

    /// Whether it has 128 bits, and not 32.
    #[must_use]
    pub fn is_v6(self) -> bool {
        self.is_v6
    }

    /// How many of its bits are those of the network.
    #[must_use]
    pub fn bits(self) -> u8 {
        self.bits
    }

    /// The address as a number.
    #[must_use]
    pub fn address(self) -> u128 {
        u128::from_be_bytes(self.address)
    }

    /// Another address of the family, with as many bits of its network.
    #[must_use]
    pub fn at(self, address: u128) -> Self {
        Self::new(self.is_v6, self.bits, address & self.all())
    }

    /// The same address with so many bits of its network, if it has as many.
    #[must_use]
    pub fn with_bits(self, bits: u8) -> Option<Self> {
        (bits <= self.width()).then_some(Self { bits, ..self })
    }

    /// Bits of an address.
    #[must_use]
    pub fn width(self) -> u8 {
        if self.is_v6 { 128 } else { 32 }
    }

    /// The bits of an address behind those of the network, all set.
    #[must_use]
    pub fn hosts(self) -> u128 {
        let behind = u32::from(self.width() - self.bits);
        if behind == 128 { u128::MAX } else { (1 << behind) - 1 }
    }

    /// All bits of an address, set.
    #[must_use]
    pub fn all(self) -> u128 {
        Self { bits: 0, ..self }.hosts()
    }

    /// The network itself, whose address has no bits behind it.
    #[must_use]
    pub fn network(self) -> Self {
        self.at(self.address() & !self.hosts())
    }

    /// Whether it is all of another network, or a part of it.
    #[must_use]
    pub fn is_within(self, other: Self) -> bool {
        self.is_v6 == other.is_v6 && self.bits >= other.bits && (self.address() ^ other.address()) & !other.hosts() == 0
    }

    /// Whether two networks have addresses in common.
    #[must_use]
    pub fn overlaps(self, other: Self) -> bool {
        self.is_within(other) || other.is_within(self)
    }

    /// The smallest network that has both in it, if they are of one family.
    #[must_use]
    pub fn merged(self, other: Self) -> Option<Self> {
        let differ = (self.address() ^ other.address()) << (128 - u32::from(self.width()));
        let bits = (differ.leading_zeros().min(128) as u8).min(self.bits).min(other.bits);
        (self.is_v6 == other.is_v6).then(|| Self { bits, ..self }.network())
    }

    /// PostgreSQL's order: by the family, the network, how many bits it has, and the address itself.
    #[must_use]
    pub fn compare(self, other: Self) -> Ordering {
        let key = |of: Self| (of.is_v6, of.network().address, of.bits, of.address);
        key(self).cmp(&key(other))
    }

    /// Bytes that have this order, for keys and rows.
    #[must_use]
    pub fn to_bytes(self) -> Vec<u8> {
        let mut bytes = vec![u8::from(self.is_v6)];
        bytes.extend(self.network().octets());
        bytes.push(self.bits);
        bytes.extend(self.octets());
        bytes
    }

    /// From these bytes.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (family, rest) = bytes.split_first()?;
        let (is_v6, half) = (*family == 1, if *family == 1 { 16 } else { 4 });
        let (bits, address) = rest.get(half..)?.split_first()?;
        (address.len() == half).then_some(Self::new(is_v6, 0, read(address)?))?.with_bits(*bits)
    }

    /// The bytes of the address.
    fn octets(&self) -> &[u8] {
        &self.address[if self.is_v6 { 0 } else { 12 }..]
    }

    /// The address alone, as PostgreSQL writes it.
    #[must_use]
    pub fn host(self) -> String {
        if !self.is_v6 {
            return Ipv4Addr::from(self.address() as u32).to_string();
        }
        // One of the older family within this one is written in its form.
        let (front, low) = (self.address() >> 32, self.address() as u32);
        match (front, low) {
            (0, 0..=0xffff) => Ipv6Addr::from(self.address()).to_string(),
            (0, _) => format!("::{}", Ipv4Addr::from(low)),
            (0xffff, _) => format!("::ffff:{}", Ipv4Addr::from(low)),
            _ => Ipv6Addr::from(self.address()).to_string(),
        }
    }

    /// The address with the bits of the network, which `inet` leaves out if they are all.
    #[must_use]
    pub fn text(self, of: Type) -> String {
        let host = self.host();
        if self.bits == self.width() && of == Type::Inet { host } else { format!("{host}/{}", self.bits) }
    }

    /// As `abbrev` writes a `cidr`: without what is behind the network.
    #[must_use]
    pub fn abbreviated(self) -> String {
        if self.is_v6 {
            return self.text(Type::Cidr);
        }
        let octets = self.octets();
        let count = usize::from(self.bits.div_ceil(8)).max(1);
        let shown: Vec<String> = octets[..count].iter().map(u8::to_string).collect();
        format!("{}/{}", shown.join("."), self.bits)
    }

    /// The address of a type that a text stands for.
    ///
    /// # Errors
    /// 22P02.
    pub(crate) fn parse(text: &str, of: Type) -> Result<Self> {
        let wrong = || {
            let message = format!("invalid input syntax for type {}: \"{text}\"", of.name());
            SqlError::new(state::INVALID_TEXT_REPRESENTATION, message)
        };
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits)),
            None => (text, None),
        };
        let read = if address.contains(':') { v6(address, bits) } else { v4(address, bits, of) };
        let network = read.ok_or_else(wrong)?;
        if of == Type::Cidr && network.address() & network.hosts() != 0 {
            let message = format!("invalid cidr value: \"{text}\"");
            return Err(SqlError::new(state::INVALID_TEXT_REPRESENTATION, message)
                .detail("Value has bits set to right of mask."));
        }
        Ok(network)
    }

    /// Appends its bytes in the binary format.
    pub(crate) fn to_wire(self, of: Type, out: &mut Vec<u8>) {
        let family = if self.is_v6 { WIRE_V6 } else { WIRE_V4 };
        out.extend([family, self.bits, u8::from(of == Type::Cidr), self.width() / 8]);
        out.extend(self.octets());
    }

    /// From the binary format.
    pub(crate) fn from_wire(bytes: &[u8], of: Type) -> Option<Self> {
        let (&[family, bits, _, length], address) = bytes.split_first_chunk()?;
        let network = Self::new(family == WIRE_V6, 0, read(address)?).with_bits(bits)?;
        let fits = matches!(family, WIRE_V4 | WIRE_V6) && length == network.width() / 8;
        let exact = of == Type::Inet || network.address() & network.hosts() == 0;
        (fits && exact && address.len() == usize::from(length)).then_some(network)
    }
}

/// A number of 4 or 16 bytes.
fn read(bytes: &[u8]) -> Option<u128> {
    match bytes.len() {
        4 => bytes.try_into().ok().map(|bytes| u32::from_be_bytes(bytes).into()),
        16 => bytes.try_into().ok().map(u128::from_be_bytes),
        _ => None,
    }
}

/// How many bits a network has, as it is written.
fn count(bits: &str, width: u8) -> Option<u8> {
    let is_number = !bits.is_empty() && bits.bytes().all(|byte| byte.is_ascii_digit());
    bits.parse().ok().filter(|bits| is_number && *bits <= width)
}

/// An address of four octets, of which the last may be missing if it says how many bits it has; a `cidr` has those of its class.
fn v4(address: &str, bits: Option<&str>, of: Type) -> Option<Network> {
    let mut octets = [0; 4];
    let mut written = 0;
    // A dot may end an `inet`.
    let address = if of == Type::Inet { address.strip_suffix('.').unwrap_or(address) } else { address };
    for part in address.split('.') {
        let is_number = !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
        let digits = part.trim_start_matches('0');
        let octet = if digits.is_empty() { 0 } else { digits.parse().ok()? };
        *octets.get_mut(written).filter(|_| is_number)? = octet;
        written += 1;
    }
    let bits = match bits {
        Some(bits) => count(bits, 32)?,
        None if of == Type::Cidr => {
            let class = match octets[0] {
                240.. => 32,
                224.. => 8,
                192.. => 24,
                128.. => 16,
                _ => 8,
            };
            match class.max(8 * written as u8) {
                8 if octets[0] == 224 => 4,
                bits => bits,
            }
        }
        None if written == 4 => 32,
        None => return None,
    };
    let enough = of == Type::Cidr || usize::from(bits / 8) <= written;
    enough.then(|| Network::new(false, bits, u32::from_be_bytes(octets).into()))
}

fn v6(address: &str, bits: Option<&str>) -> Option<Network> {
    let address = address.parse::<Ipv6Addr>().ok()?;
    let bits = match bits {
        Some(bits) if bits.len() > 1 && bits.starts_with('0') => return None,
        Some(bits) => count(bits, 128)?,
        None => 128,
    };
    Some(Network::new(true, bits, address.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inet(text: &str) -> Network {
        Network::parse(text, Type::Inet).unwrap()
    }

    #[test]
    fn addresses_are_written_as_postgresql_writes_them() {
        for (read, shown) in [
            ("192.168.1.226/24", "192.168.1.226/24"),
            ("192.168.1.226", "192.168.1.226"),
            ("10/8", "10.0.0.0/8"),
            ("010.1.2.3", "10.1.2.3"),
            ("2001:DB8::1/64", "2001:db8::1/64"),
            ("::", "::"),
            ("::1", "::1"),
            ("::2", "::2"),
            ("::1:0", "::0.1.0.0"),
            ("::fffe:1:2", "::fffe:1:2"),
            ("::ffff:1.2.3.4", "::ffff:1.2.3.4"),
            ("1:0:0:2::3", "1:0:0:2::3"),
        ] {
            assert_eq!(inet(read).text(Type::Inet), shown);
        }
        for (read, shown, short) in [
            ("192.168.1", "192.168.1.0/24", "192.168.1/24"),
            ("10", "10.0.0.0/8", "10/8"),
            ("10.1", "10.1.0.0/16", "10.1/16"),
            ("224", "224.0.0.0/4", "224/4"),
            ("0.0.0.0/0", "0.0.0.0/0", "0/0"),
            ("10.1.2.3", "10.1.2.3/32", "10.1.2.3/32"),
            ("2001:db8::/32", "2001:db8::/32", "2001:db8::/32"),
        ] {
            let cidr = Network::parse(read, Type::Cidr).unwrap();
            assert_eq!((cidr.text(Type::Cidr).as_str(), cidr.abbreviated().as_str()), (shown, short));
        }
    }

    #[test]
    fn what_is_no_address_is_refused() {
        for text in [
            "",
            "1.2.3",
            "1.2.3.4.5",
            "1.2.3.256",
            "1.2.3.4/33",
            "1.2.3.4/",
            "1.2.3.4/a",
            " 1.2.3.4",
            "10/24",
            "::/129",
            "::1/064",
            ":",
            "1:2",
        ] {
            assert_eq!(
                Network::parse(text, Type::Inet).unwrap_err().state,
                state::INVALID_TEXT_REPRESENTATION,
                "{text}"
            );
        }
        assert!(Network::parse("10.1.2.3/8", Type::Cidr).is_err() && Network::parse("10.1.2.3/8", Type::Inet).is_ok());
    }

    #[test]
    fn values_are_ordered_by_family_network_bits_and_address() {
        let ordered =
            ["9.1.2.3/8", "10.0.0.0/8", "10.1.2.3/8", "10.0.0.0/9", "10.0.0.0", "10.0.0.1", "11.0.0.0/8", "::1"];
        let values = ordered.map(inet);
        assert!(values.windows(2).all(|pair| pair[0].compare(pair[1]).is_lt()));
        assert!(values.windows(2).all(|pair| pair[0].to_bytes() < pair[1].to_bytes()));
        for value in values {
            assert_eq!(Network::from_bytes(&value.to_bytes()), Some(value));
        }
        assert_eq!(Network::from_bytes(&[0, 1, 2, 3, 4, 33, 1, 2, 3, 4]), None);
    }

    #[test]
    fn networks_are_within_others_and_merged() {
        let (a, b) = (inet("192.168.1.5/24"), inet("192.168.1.9"));
        assert!(b.is_within(a) && !a.is_within(b) && a.is_within(a) && a.overlaps(b) && !b.is_within(inet("::/0")));
        assert_eq!(
            a.merged(inet("192.168.2.5/24")).map(|merged| merged.text(Type::Cidr)).as_deref(),
            Some("192.168.0.0/22")
        );
        assert_eq!(inet("::1/0").merged(inet("::2")).map(|merged| merged.bits), Some(0));
        assert_eq!(inet("1.2.3.4").merged(inet("::1")), None);
    }

    #[test]
    fn bytes_of_the_protocol_are_read_as_they_are_written_and_damaged_ones_are_refused() {
        for text in ["1.2.3.4/24", "2001:db8::7/64"] {
            let mut bytes = Vec::new();
            inet(text).to_wire(Type::Inet, &mut bytes);
            assert_eq!(Network::from_wire(&bytes, Type::Inet), Some(inet(text)));
            assert_eq!(Network::from_wire(&bytes, Type::Cidr), None, "bits behind the network");
            assert_eq!(Network::from_wire(&bytes[..bytes.len() - 1], Type::Inet), None);
            bytes[1] = 200;
            assert_eq!(Network::from_wire(&bytes, Type::Inet), None);
        }
    }
}
