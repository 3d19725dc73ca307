//! The stored form of a manifest version: one header line, one JSON document, a checksum over the document.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use savanna_epoch::OwnerEpoch;
use serde::{Deserialize, Serialize};

use crate::error::{ManifestError, Result};

/// The format that this program writes, and the newest it reads.
pub const FORMAT_VERSION: u32 = 1;

/// The largest encoded manifest in bytes. A switch rewrites the manifest as a whole, so it has to stay small.
pub const MANIFEST_BYTES_MAX: usize = 16 << 20;

/// The longest entry name in bytes.
pub const ENTRY_NAME_BYTES_MAX: usize = 1024;

const MAGIC: &str = "savanna-manifest";
const CORRUPT_ADVICE: &str =
    "Restore the file from a backup of the bucket or directory; do not delete it, it decides who owns the data.";

/// The number of a manifest version. The first is 1; each switch adds 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Version(pub u64);

impl Version {
    /// The version that follows.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// A point in time: milliseconds since 1970-01-01T00:00:00Z.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct UnixMillis(pub u64);

impl UnixMillis {
    /// This instant plus a duration; stays at the end of time instead of overflowing.
    #[must_use]
    pub fn after(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)))
    }
}

impl fmt::Display for UnixMillis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ms", self.0)
    }
}

/// A random number that tells the handles of one manifest apart, also those of the same epoch.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct WriterId(pub u128);

impl WriterId {
    /// A fresh id.
    #[must_use]
    pub fn random() -> Self {
        Self(rand::random())
    }
}

impl fmt::Display for WriterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Debug for WriterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WriterId({self})")
    }
}

impl From<WriterId> for String {
    fn from(id: WriterId) -> Self {
        id.to_string()
    }
}

impl TryFrom<String> for WriterId {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        match (text.len(), u128::from_str_radix(&text, 16)) {
            (32, Ok(id)) => Ok(Self(id)),
            _ => Err(format!("expected a writer id of 32 hexadecimal digits, got `{text}`")),
        }
    }
}

/// Which attempt wrote a version. Unique for ever, so a writer recognises its own version when the answer to its put
/// was lost, and a version recognises the one it continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct CommitId {
    /// The handle.
    pub writer: WriterId,
    /// The handle's attempt, counted from 1.
    pub attempt: u64,
}

/// Where an immutable object is and what it holds.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ObjectRef {
    /// The path below the manifest's prefix.
    pub path: String,
    /// The length in bytes.
    pub bytes: u64,
    /// CRC-32C of the content.
    pub crc32c: u32,
}

/// One version of the manifest: who wrote it, what it continues, and the objects it names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Snapshot {
    /// The number of this version.
    pub version: Version,
    /// The owner's epoch.
    pub epoch: OwnerEpoch,
    /// The attempt that wrote it.
    pub commit: CommitId,
    /// The attempt that wrote the version before; `None` for the first.
    pub parent: Option<CommitId>,
    /// When it was written, by the owner's clock; never before its parent.
    pub created: UnixMillis,
    /// The user's entries.
    pub entries: BTreeMap<String, ObjectRef>,
}

impl Snapshot {
    /// The stored form.
    ///
    /// # Errors
    /// [`ManifestError::TooLarge`] beyond [`MANIFEST_BYTES_MAX`].
    pub fn encode(&self) -> Result<Bytes> {
        let body = serde_json::to_vec(self).expect("a snapshot has string keys and no floats, so it always serialises");
        let mut file = format!("{MAGIC} {FORMAT_VERSION} crc32c={:08x} bytes={}\n", crc32c::crc32c(&body), body.len())
            .into_bytes();
        file.extend_from_slice(&body);
        if file.len() > MANIFEST_BYTES_MAX {
            return Err(ManifestError::TooLarge { bytes: file.len(), max: MANIFEST_BYTES_MAX });
        }
        Ok(file.into())
    }

    /// Reads the stored form; `path` is for messages.
    ///
    /// # Errors
    /// [`ManifestError::Corrupt`] and [`ManifestError::UnsupportedFormat`].
    pub fn decode(path: &str, file: &[u8]) -> Result<Self> {
        let corrupt = |expected: String, found: String| ManifestError::Corrupt {
            path: path.to_owned(),
            expected,
            found,
            advice: CORRUPT_ADVICE,
        };
        let (header, body) = split_header(file)
            .ok_or_else(|| corrupt(format!("a first line `{MAGIC} FORMAT crc32c=HEX bytes=LENGTH`"), preview(file)))?;
        if header.format != FORMAT_VERSION {
            return Err(ManifestError::UnsupportedFormat {
                path: path.to_owned(),
                found: header.format,
                supported: FORMAT_VERSION,
            });
        }
        if body.len() != header.bytes {
            return Err(corrupt(
                format!("{} bytes after the first line", header.bytes),
                format!("{} bytes", body.len()),
            ));
        }
        let crc32c = crc32c::crc32c(body);
        if crc32c != header.crc32c {
            return Err(corrupt(format!("crc32c {:08x}", header.crc32c), format!("crc32c {crc32c:08x}")));
        }
        serde_json::from_slice(body)
            .map_err(|error| corrupt("the JSON of a manifest version".to_owned(), error.to_string()))
    }
}

struct Header {
    format: u32,
    crc32c: u32,
    bytes: usize,
}

/// The header and the rest; `None` if the first line is not a header.
fn split_header(file: &[u8]) -> Option<(Header, &[u8])> {
    let end = file.iter().take(128).position(|byte| *byte == b'\n')?;
    let mut words = std::str::from_utf8(&file[..end]).ok()?.split(' ');
    if words.next()? != MAGIC {
        return None;
    }
    let header = Header {
        format: words.next()?.parse().ok()?,
        crc32c: u32::from_str_radix(words.next()?.strip_prefix("crc32c=")?, 16).ok()?,
        bytes: words.next()?.strip_prefix("bytes=")?.parse().ok()?,
    };
    Some((header, &file[end + 1..]))
}

fn preview(file: &[u8]) -> String {
    format!("{} bytes beginning with `{}`", file.len(), file[..file.len().min(24)].escape_ascii())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot() -> Snapshot {
        let object = ObjectRef { path: "objects/a".to_owned(), bytes: 3, crc32c: 7 };
        Snapshot {
            version: Version(42),
            epoch: OwnerEpoch(3),
            commit: CommitId { writer: WriterId(0xfeed), attempt: 9 },
            parent: Some(CommitId { writer: WriterId(1), attempt: 1 }),
            created: UnixMillis(1_700_000_000_000),
            entries: BTreeMap::from([("state/0".to_owned(), object)]),
        }
    }

    #[test]
    fn a_snapshot_reads_back_as_it_was_written() {
        let bytes = snapshot().encode().unwrap();
        assert_eq!(Snapshot::decode("manifest/42", &bytes).unwrap(), snapshot());
    }

    #[test]
    fn the_stored_form_of_format_1_stays_readable() {
        let stored = include_bytes!("../tests/fixtures/format-1.manifest");
        assert_eq!(Snapshot::decode("format-1.manifest", stored).unwrap(), snapshot());
        assert_eq!(snapshot().encode().unwrap(), stored.as_slice());
    }

    #[test]
    fn every_flipped_bit_and_every_cut_is_noticed() {
        let bytes = snapshot().encode().unwrap();
        for bit in 0..bytes.len() * 8 {
            let mut broken = bytes.to_vec();
            broken[bit / 8] ^= 1 << (bit % 8);
            match Snapshot::decode("manifest/42", &broken) {
                Err(error) => assert!(error.to_string().contains("manifest/42"), "bit {bit}: {error}"),
                // The digits of the checksum may change case and still mean the same.
                Ok(read) => assert_eq!(read, snapshot(), "bit {bit}"),
            }
        }
        for length in 0..bytes.len() {
            assert!(Snapshot::decode("manifest/42", &bytes[..length]).is_err(), "cut to {length}");
        }
    }

    #[test]
    fn a_newer_format_is_refused_by_number() {
        let text = String::from_utf8(snapshot().encode().unwrap().to_vec()).unwrap().replacen(" 1 ", " 2 ", 1);
        let error = Snapshot::decode("manifest/42", text.as_bytes()).unwrap_err();
        assert!(matches!(error, ManifestError::UnsupportedFormat { found: 2, supported: 1, .. }), "{error}");
    }
}
