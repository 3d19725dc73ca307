//! The names of what is stored, and how they are read back.
//!
//! Numbers are padded to 20 digits, so that names sort as the numbers do.

use object_store::path::Path;
use savanna_epoch::OwnerEpoch;

use crate::format::{UnixMillis, Version, WriterId};

/// Where the parts of one manifest are.
#[derive(Clone, Debug)]
pub struct Layout {
    prefix: Path,
}

/// What the name of an object says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObjectName {
    /// The epoch it was written under.
    pub epoch: OwnerEpoch,
    /// The handle that wrote it.
    pub writer: WriterId,
    /// The handle's count of objects, from 1.
    pub sequence: u64,
}

/// What the name of a pin says; a pin has no content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PinName {
    /// The version that must stay readable.
    pub version: Version,
    /// Until when, by the reader's clock.
    pub expires: UnixMillis,
    /// The reader.
    pub reader: WriterId,
    /// The reader's count of pins, from 1.
    pub sequence: u64,
}

impl Layout {
    /// The layout below a prefix.
    #[must_use]
    pub fn new(prefix: &Path) -> Self {
        Self { prefix: prefix.clone() }
    }

    /// The prefix itself.
    #[must_use]
    pub fn prefix(&self) -> &Path {
        &self.prefix
    }

    /// The folder of manifest versions.
    #[must_use]
    pub fn versions(&self) -> Path {
        self.prefix.clone().join("manifest")
    }

    /// The folder of objects.
    #[must_use]
    pub fn objects(&self) -> Path {
        self.prefix.clone().join("objects")
    }

    /// The folder of pins.
    #[must_use]
    pub fn pins(&self) -> Path {
        self.prefix.clone().join("pins")
    }

    /// The path of a version.
    #[must_use]
    pub fn version(&self, version: Version) -> Path {
        self.versions().join(format!("{:020}", version.0))
    }

    /// The path of a pin.
    #[must_use]
    pub fn pin(&self, pin: &PinName) -> Path {
        self.pins().join(pin.encode())
    }

    /// The path in the store of an object's path below the prefix.
    #[must_use]
    pub fn resolve(&self, relative: &str) -> Path {
        Path::from_iter(self.prefix.parts().chain(Path::from(relative).parts()))
    }
}

impl ObjectName {
    /// The path below the prefix, as a reference stores it.
    #[must_use]
    pub fn relative(&self) -> String {
        format!("objects/{:020}-{}-{:020}", self.epoch.0, self.writer, self.sequence)
    }

    /// Reads a file name; `None` for a file that is not ours.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        let [epoch, writer, sequence] = fields(name)?;
        Some(Self { epoch: OwnerEpoch(number(epoch)?), writer: writer_id(writer)?, sequence: number(sequence)? })
    }
}

impl PinName {
    fn encode(&self) -> String {
        format!("{:020}-{:020}-{}-{:020}", self.version.0, self.expires.0, self.reader, self.sequence)
    }

    /// Reads a file name; `None` for a file that is not ours.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        let [version, expires, reader, sequence] = fields(name)?;
        Some(Self {
            version: Version(number(version)?),
            expires: UnixMillis(number(expires)?),
            reader: writer_id(reader)?,
            sequence: number(sequence)?,
        })
    }
}

/// Reads the file name of a version; `None` for a file that is not ours.
#[must_use]
pub fn parse_version(name: &str) -> Option<Version> {
    number(name).map(Version)
}

fn fields<const N: usize>(name: &str) -> Option<[&str; N]> {
    name.split('-').collect::<Vec<_>>().try_into().ok()
}

fn number(text: &str) -> Option<u64> {
    (text.len() == 20 && text.bytes().all(|byte| byte.is_ascii_digit())).then(|| text.parse().ok())?
}

fn writer_id(text: &str) -> Option<WriterId> {
    WriterId::try_from(text.to_owned()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_read_back_and_sort_as_their_numbers() {
        let layout = Layout::new(&Path::from("shards/a"));
        let object = ObjectName { epoch: OwnerEpoch(7), writer: WriterId(5), sequence: 11 };
        assert_eq!(ObjectName::parse(layout.resolve(&object.relative()).filename().unwrap()), Some(object));
        let pin = PinName { version: Version(3), expires: UnixMillis(99), reader: WriterId(5), sequence: 1 };
        assert_eq!(PinName::parse(layout.pin(&pin).filename().unwrap()), Some(pin));
        assert_eq!(parse_version(layout.version(Version(10)).filename().unwrap()), Some(Version(10)));
        assert!(layout.version(Version(9)) < layout.version(Version(10)));
        assert_eq!(layout.version(Version(1)).to_string(), "shards/a/manifest/00000000000000000001");
    }

    #[test]
    fn foreign_names_are_not_ours() {
        for name in ["", "7", "+0000000000000000007", "readme.txt", "99999999999999999999"] {
            assert_eq!(parse_version(name), None, "{name}");
            assert_eq!(ObjectName::parse(name), None, "{name}");
            assert_eq!(PinName::parse(name), None, "{name}");
        }
    }
}
