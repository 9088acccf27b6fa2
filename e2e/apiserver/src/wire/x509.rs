//! Client certificates, written octet by octet: their subjects have several organizations, one for
//! each group, which rcgen can't write.

use jiff::Timestamp;

/// `CN` and `O` in a subject (RFC 5280, appendix A).
const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];
const ORGANIZATION: &[u8] = &[0x55, 0x04, 0x0a];
/// ecdsa-with-SHA256 (RFC 5758), the algorithm of the authority's key.
const ECDSA_SHA256: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x02];
/// id-ce-keyUsage, id-ce-basicConstraints, id-ce-extKeyUsage; id-kp-clientAuth.
const KEY_USAGE: &[u8] = &[0x55, 0x1d, 0x0f];
const BASIC_CONSTRAINTS: &[u8] = &[0x55, 0x1d, 0x13];
const EXTENDED_KEY_USAGE: &[u8] = &[0x55, 0x1d, 0x25];
const CLIENT_AUTH: &[u8] = &[0x2b, 0x06, 0x01, 0x05, 0x05, 0x07, 0x03, 0x02];

/// What a client certificate says; names and keys as DER.
#[derive(Debug, Clone, Copy)]
pub struct Client<'a> {
    /// Serial number, positive.
    pub serial: [u8; 16],
    /// Subject of the authority.
    pub issuer: &'a [u8],
    /// Whose certificate it is.
    pub subject: &'a [u8],
    /// `SubjectPublicKeyInfo`.
    pub key: &'a [u8],
    /// The first second of its validity.
    pub from: Timestamp,
    /// The last second of its validity.
    pub until: Timestamp,
    /// Whether the key may also encipher keys.
    pub enciphers: bool,
}

impl Client<'_> {
    /// Returns the part of the certificate that is signed.
    pub fn tbs(&self) -> Vec<u8> {
        let mut serial = self.serial.to_vec();
        // Positive, and not to be shortened.
        serial[0] = (serial[0] & 0x7f) | 0x40;
        // The bits of digitalSignature and, two further, keyEncipherment.
        let usage: &[u8] = if self.enciphers {
            &[5, 0xa0]
        } else {
            &[7, 0x80]
        };
        let extension = |id: &[u8], critical: bool, value: &[u8]| {
            let mut parts = vec![tlv(0x06, id)];
            if critical {
                parts.push(tlv(0x01, &[0xff]));
            }
            parts.push(tlv(0x04, value));
            sequence(&parts)
        };
        let extensions = sequence(&[
            extension(KEY_USAGE, true, &tlv(0x03, usage)),
            extension(
                EXTENDED_KEY_USAGE,
                false,
                &sequence(&[tlv(0x06, CLIENT_AUTH)]),
            ),
            extension(BASIC_CONSTRAINTS, true, &sequence(&[])),
        ]);
        sequence(&[
            tlv(0xa0, &tlv(0x02, &[2])),
            tlv(0x02, &serial),
            algorithm(),
            self.issuer.to_vec(),
            sequence(&[time(self.from), time(self.until)]),
            self.subject.to_vec(),
            self.key.to_vec(),
            tlv(0xa3, &extensions),
        ])
    }
}

/// Returns a certificate from its signed part and the signature.
pub fn certificate(tbs: Vec<u8>, signature: &[u8]) -> Vec<u8> {
    let bits = [&[0], signature].concat();
    sequence(&[tbs, algorithm(), tlv(0x03, &bits)])
}

/// Returns a subject as Kubernetes' signer writes it, whatever the request looked like: all groups
/// in one set, texts as narrow as they can be (Go: `crypto/x509/pkix`, `encoding/asn1`).
pub fn subject(name: &str, groups: &[&str]) -> Vec<u8> {
    let pair = |id: &[u8], text: &str| {
        let narrow = text
            .bytes()
            .all(|octet| octet.is_ascii_alphanumeric() || b" '()+,-./:=?".contains(&octet));
        let tag = if narrow { 0x13 } else { 0x0c };
        sequence(&[tlv(0x06, id), tlv(tag, text.as_bytes())])
    };
    let mut organizations: Vec<Vec<u8>> = groups.iter().map(|it| pair(ORGANIZATION, it)).collect();
    organizations.sort();
    let mut parts = Vec::new();
    if !organizations.is_empty() {
        parts.push(tlv(0x31, &organizations.concat()));
    }
    parts.push(tlv(0x31, &pair(COMMON_NAME, name)));
    sequence(&parts)
}

fn algorithm() -> Vec<u8> {
    sequence(&[tlv(0x06, ECDSA_SHA256)])
}

/// Encodes a time as RFC 5280 wants it: two digits for the year until 2049.
fn time(at: Timestamp) -> Vec<u8> {
    let year = at.strftime("%Y").to_string();
    if year.as_str() < "2050" {
        tlv(0x17, at.strftime("%y%m%d%H%M%SZ").to_string().as_bytes())
    } else {
        tlv(0x18, at.strftime("%Y%m%d%H%M%SZ").to_string().as_bytes())
    }
}

fn sequence(parts: &[Vec<u8>]) -> Vec<u8> {
    tlv(0x30, &parts.concat())
}

fn tlv(tag: u8, content: &[u8]) -> Vec<u8> {
    let mut out = vec![tag];
    let length = content.len().to_be_bytes();
    let significant = length.iter().position(|b| *b != 0).unwrap_or(length.len());
    match length[significant..] {
        [] => out.push(0),
        [short] if short < 0x80 => out.push(short),
        ref long => {
            // At most eight octets of length.
            out.push(0x80 | u8::try_from(long.len()).unwrap_or(8));
            out.extend_from_slice(long);
        }
    }
    out.extend_from_slice(content);
    out
}
