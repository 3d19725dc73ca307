//! Zips for tests.

/// A zip of stored files, with their modes and whatever kind those say.
pub(crate) fn zip_of(files: &[(&str, u32, &[u8])]) -> Vec<u8> {
    let (mut zip, mut directory) = (Vec::new(), Vec::new());
    let le = |value: usize| u32::try_from(value).unwrap().to_le_bytes();
    for (name, mode, content) in files {
        let offset = le(zip.len());
        let (crc, size, length) = (crc32(content).to_le_bytes(), le(content.len()), le(name.len()));
        zip.extend_from_slice(b"PK\x03\x04\x14\0\0\0\0\0\0\0\0\0");
        zip.extend_from_slice(&[&crc[..], &size, &size, &length[..2], &[0, 0]].concat());
        zip.extend_from_slice(name.as_bytes());
        zip.extend_from_slice(content);
        directory.extend_from_slice(b"PK\x01\x02\x14\x03\x14\0\0\0\0\0\0\0\0\0");
        directory.extend_from_slice(&[&crc[..], &size, &size, &length[..2], &[0; 8]].concat());
        directory.extend_from_slice(&[&(mode << 16).to_le_bytes()[..], &offset, name.as_bytes()].concat());
    }
    let (count, size, offset) = (le(files.len()), le(directory.len()), le(zip.len()));
    zip.extend_from_slice(&directory);
    zip.extend_from_slice(b"PK\x05\x06\0\0\0\0");
    zip.extend_from_slice(&[&count[..2], &count[..2], &size, &offset, &[0, 0]].concat());
    zip
}

fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0_u32, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| if crc & 1 == 1 { crc >> 1 ^ 0xedb8_8320 } else { crc >> 1 })
    })
}
