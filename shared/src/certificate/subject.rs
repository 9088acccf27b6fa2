//! Subjects of agents' certificates. Pure.

use x509_parser::prelude::FromDer;
use x509_parser::x509::X509Name;

use super::der::tlv;

/// Object identifier 2.5.4.10, organization (X.520), without its tag.
const ORGANIZATION: [u8; 3] = [0x55, 0x04, 0x0a];
/// Object identifier 2.5.4.3, common name (X.520), without its tag.
const COMMON_NAME: [u8; 3] = [0x55, 0x04, 0x03];
/// Tag of a `UTF8String`.
const UTF8: u8 = 0x0c;
/// Tag of a `PrintableString`.
const PRINTABLE: u8 = 0x13;

/// Encodes a subject of one organization and one common name in DER. The API server takes the first
/// as group and the second as user name.
pub fn of(organization: &str, name: &str) -> Vec<u8> {
    // The order in which Go's library writes them.
    let parts = [
        part(ORGANIZATION, UTF8, organization),
        part(COMMON_NAME, UTF8, name),
    ];
    tlv(0x30, &parts.concat())
}

/// Returns a part of a subject in a set of its own.
fn part(kind: [u8; 3], tag: u8, text: &str) -> Vec<u8> {
    let pair = [tlv(0x06, &kind), tlv(tag, text.as_bytes())].concat();
    tlv(0x31, &tlv(0x30, &pair))
}

/// Returns whether a subject (DER) consists exactly of one organization and one common name with
/// these texts, in either order, each in a set of its own and encoded as `UTF8String` or
/// `PrintableString`, which every parser reads the same way.
pub fn is_exactly(subject: &[u8], organization: &str, name: &str) -> bool {
    let tags = [UTF8, PRINTABLE];
    tags.into_iter().any(|first| {
        tags.into_iter().any(|second| {
            let one = part(ORGANIZATION, first, organization);
            let other = part(COMMON_NAME, second, name);
            let is = |parts: [&[u8]; 2]| tlv(0x30, &parts.concat()) == subject;
            is([&one, &other]) || is([&other, &one])
        })
    })
}

/// Returns whether two subjects (DER) have the same attributes with the same texts. Signers choose
/// the encoding of texts (Kubernetes' signer the narrowest) and the order of attributes.
pub fn are_same(one: &[u8], other: &[u8]) -> bool {
    fn parts(subject: &[u8]) -> Option<Vec<(String, String)>> {
        let (_, name) = X509Name::from_der(subject).ok()?;
        let mut parts = name
            .iter_attributes()
            .map(|part| {
                Some((
                    part.attr_type().to_id_string(),
                    part.as_str().ok()?.to_owned(),
                ))
            })
            .collect::<Option<Vec<_>>>()?;
        parts.sort();
        Some(parts)
    }
    one == other || parts(one).is_some_and(|one| Some(one) == parts(other))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_subject_in_another_encoding_is_the_same() {
        let ours = of("system:karmada:agents", "system:karmada:agent:m1");
        // As Kubernetes' signer writes it: PrintableString (tag 0x13) where ours is UTF8String
        // (0x0c).
        let theirs: Vec<u8> = ours
            .iter()
            .map(|octet| if *octet == 0x0c { 0x13 } else { *octet })
            .collect();
        assert_ne!(ours, theirs);
        assert!(are_same(&ours, &theirs));
        for other in [
            of("system:karmada:agents", "system:karmada:agent:m2"),
            of("system:masters", "system:karmada:agent:m1"),
            Vec::new(),
        ] {
            assert!(!are_same(&ours, &other));
        }
    }

    #[test]
    fn a_subject_is_exact_in_either_order_and_in_two_encodings_only() {
        let (organization, name) = ("system:karmada:agents", "system:karmada:agent:m1");
        let one = |tag| part(ORGANIZATION, tag, organization);
        let other = |tag| part(COMMON_NAME, tag, name);
        let list = |parts: &[Vec<u8>]| tlv(0x30, &parts.concat());
        let pair = |kind: [u8; 3], text: &str| {
            let pair = [tlv(0x06, &kind), tlv(UTF8, text.as_bytes())].concat();
            tlv(0x30, &pair)
        };
        // Both parts in one set, and a set of two values.
        let multiple = [pair(COMMON_NAME, name), pair(ORGANIZATION, organization)];
        let two_names = [pair(COMMON_NAME, name), pair(COMMON_NAME, "root")];
        for (subject, expected) in [
            (of(organization, name), true),
            (list(&[other(PRINTABLE), one(PRINTABLE)]), true),
            (list(&[one(UTF8), other(PRINTABLE)]), true),
            (list(&[tlv(0x31, &multiple.concat())]), false),
            (list(&[one(UTF8), tlv(0x31, &two_names.concat())]), false),
            // TeletexString, BMPString, IA5String.
            (list(&[one(UTF8), other(0x14)]), false),
            (list(&[one(UTF8), other(0x1e)]), false),
            (list(&[one(UTF8), other(0x16)]), false),
            (list(&[one(UTF8), other(UTF8), other(UTF8)]), false),
            (list(&[other(UTF8)]), false),
            ([of(organization, name), vec![0]].concat(), false),
        ] {
            assert_eq!(
                is_exactly(&subject, organization, name),
                expected,
                "{subject:02x?}"
            );
        }
    }
}
