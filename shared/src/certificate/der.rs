//! The little of DER (ITU-T X.690) that a request and its subject take.

/// Tag, length (at most 65,535 octets: subjects are short) and value.
pub fn tlv(tag: u8, value: &[u8]) -> Vec<u8> {
    let [.., high, low] = value.len().to_be_bytes();
    let head = match (high, low) {
        (0, short @ 0..0x80) => vec![tag, short],
        (0, low) => vec![tag, 0x81, low],
        (high, low) => vec![tag, 0x82, high, low],
    };
    [&head, value].concat()
}
