//! Zips of functions: what is read of them, and what is refused.
//!
//! The central directory says what there is. Of links, devices, paths that lead out, encryption and methods other than *stored* and *deflated*
//! nothing is taken; nor is a zip taken that unpacks to more than it may, whatever it says of itself.

use std::collections::BTreeSet;
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Component, Path, PathBuf};

use miniz_oxide::inflate::TINFLStatus;
use miniz_oxide::inflate::core::{
    DecompressorOxide, decompress, inflate_flags::TINFL_FLAG_USING_NON_WRAPPING_OUTPUT_BUF,
};

/// Bytes of a zip that comes with a request.
pub const ZIP_MAX: usize = 50 << 20;
/// Bytes of all its files.
pub const UNPACKED_MAX: u64 = 250 << 20;
/// Files and folders in it, also such as are only on the way to others.
pub const ENTRIES_MAX: usize = 20_000;
/// Bytes of a name.
const NAME_MAX: usize = 1024;
/// Folders in one another.
const DEPTH_MAX: usize = 64;

/// Why a zip is refused.
#[derive(Debug, thiserror::Error)]
pub enum ZipError {
    /// It is none, or damaged.
    #[error("expected a zip, came {0}")]
    Damaged(&'static str),
    /// A name that leads out, or that is none.
    #[error("the name {0:?} leads out of the folder of the function, or is no name of a file")]
    Name(String),
    /// A name that is longer or deeper than any that somebody needs.
    #[error("a name has {0} bytes and {1} parts; at most {NAME_MAX} and {DEPTH_MAX} are allowed")]
    Long(usize, usize),
    /// Something other than files and folders.
    #[error("{0:?} is neither a file nor a folder")]
    Kind(String),
    /// A name that is there twice.
    #[error("{0:?} is there twice")]
    Twice(String),
    /// A method that nobody needs.
    #[error("{name:?} is packed with method {method} or encrypted; use stored (0) or deflated (8), without a password")]
    Method {
        /// The file.
        name: String,
        /// The method.
        method: u16,
    },
    /// It would take too much.
    #[error("unzipped size must be smaller than {UNPACKED_MAX} bytes, with at most {ENTRIES_MAX} files and folders")]
    TooLarge,
    /// What was unpacked is not what was packed.
    #[error("{0:?} has another checksum than the zip says")]
    Checksum(String),
    /// The disk.
    #[error("the zip cannot be unpacked: {0}")]
    Io(#[from] io::Error),
}

/// What a zip has.
#[derive(Debug)]
struct Entry {
    path: PathBuf,
    is_folder: bool,
    is_executable: bool,
    method: u16,
    crc: u32,
    packed: u64,
    size: u64,
    /// Of its own header.
    offset: u64,
}

/// Reads little-endian numbers.
fn number<const N: usize>(bytes: &[u8], at: usize) -> Result<u64, ZipError> {
    let part = bytes.get(at..at + N).ok_or(ZipError::Damaged("one that ends too early"))?;
    Ok(part.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)))
}

fn index(value: u64) -> Result<usize, ZipError> {
    usize::try_from(value).map_err(|_| ZipError::Damaged("one with offsets beyond it"))
}

#[expect(clippy::cast_possible_truncation, reason = "it was read from two bytes")]
fn entries(zip: &[u8]) -> Result<Vec<Entry>, ZipError> {
    const END: usize = 22;
    let last = zip.len().checked_sub(END).ok_or(ZipError::Damaged("something shorter than an empty zip"))?;
    // A comment of at most 64 KiB may follow.
    let first = last.saturating_sub(0xffff);
    let end = (first..=last).rev().find(|at| zip[*at..].starts_with(b"PK\x05\x06"));
    let end = end.ok_or(ZipError::Damaged("something else"))?;
    let (count, mut at) = (index(number::<2>(zip, end + 10)?)?, index(number::<4>(zip, end + 16)?)?);
    if count > ENTRIES_MAX {
        return Err(ZipError::TooLarge);
    }
    let (mut entries, mut names, mut unpacked, mut packed) = (Vec::new(), BTreeSet::new(), 0_u64, 0_u64);
    let (mut folders, mut files) = (BTreeSet::new(), 0);
    for _ in 0..count {
        if zip.get(at..at + 4) != Some(b"PK\x01\x02") {
            return Err(ZipError::Damaged("one with a damaged directory"));
        }
        let (flags, method) = (number::<2>(zip, at + 8)?, number::<2>(zip, at + 10)? as u16);
        let lengths = [number::<2>(zip, at + 28)?, number::<2>(zip, at + 30)?, number::<2>(zip, at + 32)?];
        let [name_length, extra, comment] = [index(lengths[0])?, index(lengths[1])?, index(lengths[2])?];
        let name = zip.get(at + 46..at + 46 + name_length).ok_or(ZipError::Damaged("one with a damaged directory"))?;
        let name = std::str::from_utf8(name).map_err(|_| ZipError::Name(String::from_utf8_lossy(name).into_owned()))?;
        let mode = (number::<4>(zip, at + 38)? >> 16) as u32;
        let entry = Entry {
            is_folder: name.ends_with('/'),
            path: checked(name)?,
            is_executable: mode & 0o111 != 0,
            method,
            crc: number::<4>(zip, at + 16)? as u32,
            packed: number::<4>(zip, at + 20)?,
            size: number::<4>(zip, at + 24)?,
            offset: number::<4>(zip, at + 42)?,
        };
        let kind = mode & 0o170_000;
        if kind != 0 && kind != 0o100_000 && kind != 0o040_000 {
            return Err(ZipError::Kind(name.to_owned()));
        }
        if flags & 1 != 0 || !entry.is_folder && method != 0 && method != 8 {
            return Err(ZipError::Method { name: name.to_owned(), method });
        }
        if !names.insert(entry.path.clone()) && !entry.is_folder {
            return Err(ZipError::Twice(name.to_owned()));
        }
        files += usize::from(!entry.is_folder);
        // Where one is there already, all above it are, too.
        let way = entry.path.ancestors().skip(usize::from(!entry.is_folder));
        way.take_while(|folder| *folder != Path::new("") && folders.insert(folder.to_path_buf())).for_each(drop);
        if files + folders.len() > ENTRIES_MAX {
            return Err(ZipError::TooLarge);
        }
        unpacked += entry.size;
        packed += entry.packed;
        if unpacked > UNPACKED_MAX {
            return Err(ZipError::TooLarge);
        }
        if packed > zip.len() as u64 {
            return Err(ZipError::Damaged("one whose files lie over one another"));
        }
        entries.push(entry);
        at += 46 + name_length + extra + comment;
    }
    Ok(entries)
}

/// A name as a path below a folder.
fn checked(name: &str) -> Result<PathBuf, ZipError> {
    let refused = || ZipError::Name(name.to_owned());
    let parts = name.split('/').count();
    if name.len() > NAME_MAX || parts > DEPTH_MAX {
        return Err(ZipError::Long(name.len(), parts));
    }
    if name.is_empty() || name.contains(['\0', '\\']) || name.starts_with('/') {
        return Err(refused());
    }
    let mut path = PathBuf::new();
    for component in Path::new(name).components() {
        match component {
            Component::Normal(part) if part.len() <= 255 => path.push(part),
            Component::CurDir => {}
            _ => return Err(refused()),
        }
    }
    if path.as_os_str().is_empty() && !name.ends_with('/') {
        return Err(refused());
    }
    Ok(path)
}

/// Looks at a zip without unpacking it.
///
/// # Errors
/// [`ZipError`].
pub fn check(zip: &[u8]) -> Result<(), ZipError> {
    let entries = entries(zip)?;
    if entries.iter().all(|entry| entry.is_folder) {
        return Err(ZipError::Damaged("an empty one"));
    }
    Ok(())
}

/// Bytes that a zip unpacks to, as it says.
///
/// # Errors
/// [`ZipError`].
pub fn unpacked_bytes(zip: &[u8]) -> Result<u64, ZipError> {
    Ok(entries(zip)?.iter().map(|entry| entry.size).sum())
}

/// Unpacks a zip into a folder that is there and empty.
///
/// # Errors
/// [`ZipError`]. What was unpacked until then stays.
pub fn unpack(zip: &[u8], folder: &Path) -> Result<(), ZipError> {
    let make = |path: &Path| DirBuilder::new().recursive(true).mode(0o755).create(path);
    for entry in entries(zip)? {
        let path = folder.join(&entry.path);
        if entry.is_folder {
            make(&path)?;
            continue;
        }
        if let Some(parent) = path.parent() {
            make(parent)?;
        }
        let mode = if entry.is_executable { 0o755 } else { 0o644 };
        let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&path)?;
        let crc = write_entry(zip, &entry, &mut file)?;
        // Not what the process' mask leaves of it.
        fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(mode))?;
        if crc != entry.crc {
            return Err(ZipError::Checksum(entry.path.display().to_string()));
        }
    }
    Ok(())
}

/// Writes a file; its checksum.
fn write_entry(zip: &[u8], entry: &Entry, file: &mut fs::File) -> Result<u32, ZipError> {
    let at = index(entry.offset)?;
    if zip.get(at..at + 4) != Some(b"PK\x03\x04") {
        return Err(ZipError::Damaged("one with a damaged file"));
    }
    let begin = at + 30 + index(number::<2>(zip, at + 26)?)? + index(number::<2>(zip, at + 28)?)?;
    let packed = zip.get(begin..begin + index(entry.packed)?).ok_or(ZipError::Damaged("one that ends too early"))?;
    if entry.method == 0 {
        if entry.packed != entry.size {
            return Err(ZipError::Damaged("one whose sizes do not fit"));
        }
        file.write_all(packed)?;
        return Ok(crc32(packed));
    }
    let size = index(entry.size)?;
    let mut out = vec![0; size];
    let mut inflater = Box::<DecompressorOxide>::default();
    let (status, _, written) = decompress(&mut inflater, packed, &mut out, 0, TINFL_FLAG_USING_NON_WRAPPING_OUTPUT_BUF);
    if status != TINFLStatus::Done || written != size {
        return Err(ZipError::Damaged("one whose files are not as long as it says"));
    }
    file.write_all(&out)?;
    Ok(crc32(&out))
}

/// The checksum of zips.
fn crc32(bytes: &[u8]) -> u32 {
    const TABLE: [u32; 256] = {
        let mut table = [0; 256];
        let mut byte = 0;
        while byte < 256 {
            let (mut value, mut bit) = (byte, 0);
            while bit < 8 {
                value = if value & 1 == 1 { value >> 1 ^ 0xedb8_8320 } else { value >> 1 };
                bit += 1;
            }
            table[byte as usize] = value;
            byte += 1;
        }
        table
    };
    !bytes.iter().fold(!0, |crc: u32, byte| crc >> 8 ^ TABLE[usize::from(crc.to_le_bytes()[0] ^ byte)])
}

#[cfg(test)]
mod tests {
    use super::*;

    use crate::zips::zip_of;

    fn unpacked(zip: &[u8]) -> Result<tempfile::TempDir, ZipError> {
        let folder = tempfile::tempdir().unwrap();
        check(zip)?;
        unpack(zip, folder.path())?;
        Ok(folder)
    }

    #[test]
    fn files_have_their_content_and_whether_they_are_run() {
        use std::os::unix::fs::PermissionsExt as _;
        let zip =
            zip_of(&[("bootstrap", 0o100_700, b"#!/bin/sh"), ("a/", 0o040_700, b""), ("a/b.py", 0o100_600, b"x")]);
        let folder = unpacked(&zip).unwrap();
        let mode = |name: &str| fs::metadata(folder.path().join(name)).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode("bootstrap"), mode("a/b.py")), (0o755, 0o644));
        assert_eq!(fs::read(folder.path().join("a/b.py")).unwrap(), b"x");
    }

    #[test]
    fn what_leads_out_is_refused() {
        for name in ["../x", "a/../../x", "/etc/x", "a\\..\\x", "", "a\0b"] {
            assert!(matches!(unpacked(&zip_of(&[(name, 0, b"x")])), Err(ZipError::Name(_))), "{name:?}");
        }
    }

    #[test]
    fn links_and_devices_are_refused() {
        for mode in [0o120_777, 0o060_644, 0o020_644, 0o010_644, 0o140_644] {
            assert!(matches!(unpacked(&zip_of(&[("x", mode, b"/etc")])), Err(ZipError::Kind(_))), "{mode:o}");
        }
    }

    #[test]
    fn what_says_that_it_is_larger_than_it_may_be_is_refused() {
        let mut zip = zip_of(&[("x", 0, b"x")]);
        let directory = zip.windows(4).position(|part| part == b"PK\x01\x02").unwrap();
        zip[directory + 24..directory + 28].copy_from_slice(&(UNPACKED_MAX as u32 + 1).to_le_bytes());
        assert!(matches!(check(&zip), Err(ZipError::TooLarge)));
    }

    #[test]
    fn folders_that_are_only_on_the_way_to_files_are_bounded() {
        for name in
            [vec!["a"; 2_000].join("/"), vec!["a"; DEPTH_MAX + 1].join("/"), ["b/", &"a".repeat(NAME_MAX)].concat()]
        {
            assert!(matches!(check(&zip_of(&[(&name, 0, b"x")])), Err(ZipError::Long(..))), "{name}");
        }
        assert!(unpacked(&zip_of(&[(&vec!["a"; DEPTH_MAX].join("/"), 0, b"x")])).is_ok());
        let zip = |files: usize, depth: usize| {
            let names: Vec<String> = (0..files).map(|file| format!("{file}{}", "/a".repeat(depth))).collect();
            zip_of(&names.iter().map(|name| (name.as_str(), 0, b"" as &[u8])).collect::<Vec<_>>())
        };
        assert!(matches!(check(&zip(ENTRIES_MAX, 10)), Err(ZipError::TooLarge)));
        assert!(matches!(check(&zip(ENTRIES_MAX / 11, 10)), Ok(())) && check(&zip(ENTRIES_MAX / 11 + 1, 10)).is_err());
    }

    #[test]
    fn what_unpacks_to_more_than_it_says_is_refused() {
        // A deflated megabyte of zeros that says that it is one byte.
        let bomb = miniz_oxide::deflate::compress_to_vec(&vec![0; 1 << 20], 9);
        let mut zip = zip_of(&[("x", 0, &bomb)]);
        let directory = zip.windows(4).position(|part| part == b"PK\x01\x02").unwrap();
        zip[directory + 10] = 8;
        zip[directory + 24..directory + 28].copy_from_slice(&1_u32.to_le_bytes());
        assert!(matches!(unpacked(&zip), Err(ZipError::Damaged(_))));
        zip[directory + 24..directory + 28].copy_from_slice(&(1_u32 << 20).to_le_bytes());
        zip[directory + 16..directory + 20].copy_from_slice(&crc32(&vec![0; 1 << 20]).to_le_bytes());
        assert!(unpacked(&zip).is_ok());
    }

    #[test]
    fn a_name_that_is_there_twice_is_refused() {
        assert!(matches!(unpacked(&zip_of(&[("x", 0, b"1"), ("./x", 0, b"2")])), Err(ZipError::Twice(_))));
        assert!(matches!(unpacked(&zip_of(&[("x", 0, b"1"), ("x/y", 0, b"2")])), Err(ZipError::Io(_))));
    }

    #[test]
    fn what_is_no_zip_is_refused_whatever_it_is() {
        let zip = zip_of(&[("bootstrap", 0o100_755, b"#!/bin/sh\n"), ("b", 0, b"yy")]);
        for cut in 0..zip.len() {
            assert!(unpacked(&zip[..cut]).is_err(), "{cut}");
        }
        for at in 0..zip.len() {
            let mut damaged = zip.clone();
            damaged[at] ^= 0xff;
            // Whether it is noticed depends on what it was; it does no harm.
            let _ = unpacked(&damaged);
        }
        assert!(check(b"hello").is_err() && check(&zip_of(&[])).is_err());
    }

    #[test]
    fn the_checksum_is_that_of_zips() {
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
    }
}
