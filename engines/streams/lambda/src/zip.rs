//! A zip of one program.

use miniz_oxide::deflate::compress_to_vec;
use savanna_streams_api::{Result, StreamError};

/// Of the compressor: more takes much longer for little.
const LEVEL: u8 = 6;
/// Bytes of a zip that can be sent with a request, as AWS has it.
const ZIP_MAX: usize = 50 << 20;
/// An ordinary file, which everybody may run.
const MODE: u32 = 0o100_755;
/// The first day that a zip knows: the same program gives the same zip.
const DAY: u16 = 0x21;

/// A zip with an executable file.
///
/// # Errors
/// It is larger than it may be.
pub(crate) fn of_program(name: &str, program: &[u8]) -> Result<Vec<u8>> {
    let packed = compress_to_vec(program, LEVEL);
    let too_large = |bytes: usize| StreamError::Limit {
        message: format!("the program of stages has {bytes} bytes in a zip, of which {ZIP_MAX} can be sent; strip it"),
    };
    if packed.len() + 1024 > ZIP_MAX {
        return Err(too_large(packed.len()));
    }
    let number = |bytes: usize| u32::try_from(bytes).map_err(|_| too_large(bytes));
    let (packed_size, size) = (number(packed.len())?, number(program.len())?);
    // What the header of the file and the directory have in common.
    let mut common = Vec::new();
    for half in [20_u16, 0, 8, 0, DAY] {
        common.extend_from_slice(&half.to_le_bytes());
    }
    for word in [crc32(program), packed_size, size] {
        common.extend_from_slice(&word.to_le_bytes());
    }
    common.extend_from_slice(&u16::try_from(name.len()).map_err(|_| too_large(name.len()))?.to_le_bytes());
    common.extend_from_slice(&0_u16.to_le_bytes());

    let mut zip = b"PK\x03\x04".to_vec();
    zip.extend_from_slice(&common);
    zip.extend_from_slice(name.as_bytes());
    zip.extend_from_slice(&packed);
    let directory = number(zip.len())?;
    zip.extend_from_slice(b"PK\x01\x02");
    // Made by a Unix, so that the mode counts.
    zip.extend_from_slice(&(3_u16 << 8 | 20).to_le_bytes());
    zip.extend_from_slice(&common);
    for half in [0_u16; 3] {
        zip.extend_from_slice(&half.to_le_bytes());
    }
    zip.extend_from_slice(&(MODE << 16).to_le_bytes());
    zip.extend_from_slice(&0_u32.to_le_bytes());
    zip.extend_from_slice(name.as_bytes());
    let length = number(zip.len())? - directory;
    zip.extend_from_slice(b"PK\x05\x06");
    for half in [0_u16, 0, 1, 1] {
        zip.extend_from_slice(&half.to_le_bytes());
    }
    zip.extend_from_slice(&length.to_le_bytes());
    zip.extend_from_slice(&directory.to_le_bytes());
    zip.extend_from_slice(&0_u16.to_le_bytes());
    Ok(zip)
}

/// The checksum of zips.
fn crc32(bytes: &[u8]) -> u32 {
    const TABLE: [u32; 256] = {
        let mut table = [0; 256];
        let mut at = 0;
        while at < 256 {
            let (mut value, mut bit) = (at as u32, 0);
            while bit < 8 {
                value = if value & 1 == 1 { value >> 1 ^ 0xedb8_8320 } else { value >> 1 };
                bit += 1;
            }
            table[at] = value;
            at += 1;
        }
        table
    };
    !bytes.iter().fold(!0, |crc: u32, byte| crc >> 8 ^ TABLE[usize::from(crc.to_le_bytes()[0] ^ byte)])
}

#[cfg(test)]
mod tests {
    use miniz_oxide::inflate::decompress_to_vec;

    use super::*;

    #[test]
    fn a_zip_has_the_program_and_its_checksum() {
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
        let program = b"a program ".repeat(1000);
        let zip = of_program("bootstrap", &program).unwrap();
        assert_eq!(zip, of_program("bootstrap", &program).unwrap(), "the same program gives the same zip");
        let number = |at: usize| u32::from_le_bytes(zip[at..at + 4].try_into().unwrap()) as usize;
        assert_eq!((number(14), number(22)), (crc32(&program) as usize, program.len()));
        assert_eq!(&zip[30..39], b"bootstrap");
        assert_eq!(decompress_to_vec(&zip[39..39 + number(18)]).unwrap(), program);
        let end = zip.len() - 22;
        assert_eq!((&zip[end..end + 4], number(end + 16)), (b"PK\x05\x06".as_slice(), 39 + number(18)));
        assert_eq!(number(end + 12) + number(end + 16), end);
        assert_eq!(number(39 + number(18) + 38) >> 16, 0o100_755);
    }
}
