//! Writes the parts of DER (ITU-T X.690) and PEM (RFC 7468) that a signing request and its subject
//! consist of.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// Returns the tag, length (at most 65,535 octets: subjects are short) and value of an element.
pub fn tlv(tag: u8, value: &[u8]) -> Vec<u8> {
    let [.., high, low] = value.len().to_be_bytes();
    let head = match (high, low) {
        (0, short @ 0..0x80) => vec![tag, short],
        (0, low) => vec![tag, 0x81, low],
        (high, low) => vec![tag, 0x82, high, low],
    };
    [&head, value].concat()
}

/// Returns DER as PEM text.
pub fn pem(label: &str, der: &[u8]) -> String {
    let text = STANDARD.encode(der);
    // Base64 is ASCII, so that every octet ends a character.
    let lines: Vec<&str> = (0..text.len())
        .step_by(64)
        .map(|at| &text[at..text.len().min(at + 64)])
        .collect();
    let body = lines.join("\n");
    format!("-----BEGIN {label}-----\n{body}\n-----END {label}-----\n")
}
