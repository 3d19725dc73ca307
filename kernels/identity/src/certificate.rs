//! The hash of a server's certificate that binds a proof to its TLS connection (`tls-server-end-point`, RFC 5929).

use sha2::{Digest as _, Sha256, Sha384, Sha512};

/// Hash functions that a certificate is signed with.
enum Hash {
    Sha256,
    Sha384,
    Sha512,
}

/// The object identifiers of signatures, and the hash of each. MD5 and SHA-1 are replaced by SHA-256, as the standard says.
const SIGNATURES: [(&[u8], Hash); 9] = [
    // md5WithRSAEncryption, sha1WithRSAEncryption, ecdsa-with-SHA1
    (&[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x04], Hash::Sha256),
    (&[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x05], Hash::Sha256),
    (&[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x01], Hash::Sha256),
    // sha256, sha384 and sha512WithRSAEncryption
    (&[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x0b], Hash::Sha256),
    (&[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x0c], Hash::Sha384),
    (&[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x0d], Hash::Sha512),
    // ecdsa-with-SHA256, -SHA384 and -SHA512
    (&[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x02], Hash::Sha256),
    (&[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x03], Hash::Sha384),
    (&[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x04], Hash::Sha512),
];

/// The hash of a certificate (DER); `None` if it is signed in a way for which there is none: then nothing can be bound to it.
#[must_use]
pub fn end_point(certificate: &[u8]) -> Option<Vec<u8>> {
    let (whole, _) = element(certificate, SEQUENCE)?;
    let (_, after_signed_part) = element(whole, SEQUENCE)?;
    let (algorithm, _) = element(after_signed_part, SEQUENCE)?;
    let (identifier, _) = element(algorithm, OBJECT_IDENTIFIER)?;
    let (_, hash) = SIGNATURES.iter().find(|(known, _)| *known == identifier)?;
    Some(match hash {
        Hash::Sha256 => Sha256::digest(certificate).to_vec(),
        Hash::Sha384 => Sha384::digest(certificate).to_vec(),
        Hash::Sha512 => Sha512::digest(certificate).to_vec(),
    })
}

const SEQUENCE: u8 = 0x30;
const OBJECT_IDENTIFIER: u8 = 0x06;

/// The content of a DER element with this tag, and what follows it.
fn element(bytes: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let (found, rest) = bytes.split_first()?;
    let (first, rest) = rest.split_first()?;
    let (length, rest) = match first {
        0..=0x7f => (usize::from(*first), rest),
        0x81..=0x83 => {
            let (length, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
            (length.iter().fold(0, |all, byte| all << 8 | usize::from(*byte)), rest)
        }
        _ => return None,
    };
    (*found == tag).then(|| rest.split_at_checked(length)).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A certificate with nothing in it but a signature's algorithm.
    fn signed_with(identifier: &[u8]) -> Vec<u8> {
        let wrapped = |tag: u8, content: &[u8]| [&[tag, content.len() as u8][..], content].concat();
        let algorithm = wrapped(SEQUENCE, &wrapped(OBJECT_IDENTIFIER, identifier));
        wrapped(SEQUENCE, &[wrapped(SEQUENCE, b"signed"), algorithm].concat())
    }

    #[test]
    fn the_hash_is_that_of_the_signature() {
        for (identifier, hash) in SIGNATURES {
            let bytes = match hash {
                Hash::Sha256 => 32,
                Hash::Sha384 => 48,
                Hash::Sha512 => 64,
            };
            assert_eq!(end_point(&signed_with(identifier)).unwrap().len(), bytes);
        }
        let certificate = signed_with(SIGNATURES[6].0);
        assert_eq!(end_point(&certificate).unwrap(), Sha256::digest(&certificate).to_vec());
    }

    #[test]
    fn what_has_no_hash_is_bound_to_nothing() {
        // Ed25519 signs without one.
        assert_eq!(end_point(&signed_with(&[0x2b, 0x65, 0x70])), None);
        let certificate = signed_with(SIGNATURES[3].0);
        for length in 0..certificate.len() {
            assert_eq!(end_point(&certificate[..length]), None);
        }
    }
}
