//! Parses a signing request, accepting one encoding only. Pure.
//!
//! The API server and the signer parse the same text with their own parsers (Go's `encoding/pem`,
//! `encoding/asn1` and `crypto/x509`). A text that two parsers read differently could be approved
//! as one request and signed as another. Only canonical text is therefore accepted: one PEM block
//! as Go's `EncodeToMemory` writes it, with nothing before or after it, of DER that is identical
//! when it is encoded again.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::oid_registry::{OID_X509_COMMON_NAME, OID_X509_ORGANIZATION_NAME};
use x509_parser::prelude::FromDer;

use super::der::{pem, tlv};
use super::subject;

/// Label of the PEM block.
const LABEL: &str = "CERTIFICATE REQUEST";
/// Octets of the longest text that is read. A request with an RSA key of 8,192 bits takes about
/// 3,000.
const LONGEST: usize = 16 << 10;

/// Identity that a request asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// Common names; normally one.
    pub names: Vec<String>,
    /// Organizations of the subject.
    pub organizations: Vec<String>,
    /// Number of other attributes in the subject.
    pub others: usize,
    /// Whether the subject is one organization and one common name, in an encoding that every
    /// parser reads the same way.
    pub is_exact: bool,
    /// Whether the request has attributes, such as alternative names or a password.
    pub attributes: bool,
}

/// Reason why a request is not read.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    /// The text is longer than any request of a client.
    #[error("it is longer than {LONGEST} bytes")]
    Long,
    /// The text is not one PEM block in the form in which Go writes it.
    #[error(
        "it is not exactly one PEM block {LABEL:?} in its canonical form: lines of 64 characters \
         that end in a line feed, and nothing before or behind it"
    )]
    Text,
    /// The DER in the block is not a request, or not in the one form that it has.
    #[error("its content is not a certificate request in canonical DER")]
    Der,
    /// The request is not signed with the key that it brings.
    #[error("it is not signed with its own key")]
    Signature,
}

/// Shortens a request, PEM text, to what has to be kept of it: a longer one than is read is still
/// longer.
pub fn shorten(text: &mut Vec<u8>) {
    text.truncate(LONGEST + 1);
}

/// Parses a request from PEM text and verifies its signature.
pub fn read(text: &[u8]) -> Result<Wanted, Unreadable> {
    parse(text, |request| request.verify_signature().is_ok())
}

/// Parses a request from PEM text and leaves its signature unverified, which takes most of the time
/// of [`read`]: for requests that are not under decision.
pub fn read_unverified(text: &[u8]) -> Result<Wanted, Unreadable> {
    parse(text, |_| true)
}

fn parse(
    text: &[u8],
    is_signed: impl FnOnce(&X509CertificationRequest<'_>) -> bool,
) -> Result<Wanted, Unreadable> {
    if text.len() > LONGEST {
        return Err(Unreadable::Long);
    }
    let der = content(text).ok_or(Unreadable::Text)?;
    let (rest, request) = X509CertificationRequest::from_der(&der).map_err(|_| Unreadable::Der)?;
    if !rest.is_empty() {
        return Err(Unreadable::Der);
    }
    let attributes = attributes(&der, &request).ok_or(Unreadable::Der)?;
    if !is_signed(&request) {
        return Err(Unreadable::Signature);
    }
    let mut wanted = Wanted {
        attributes,
        ..Wanted::default()
    };
    let name = &request.certification_request_info.subject;
    for part in name.iter_attributes() {
        let text = || part.as_str().map_err(|_| Unreadable::Der);
        if *part.attr_type() == OID_X509_COMMON_NAME {
            wanted.names.push(text()?.to_owned());
        } else if *part.attr_type() == OID_X509_ORGANIZATION_NAME {
            wanted.organizations.push(text()?.to_owned());
        } else {
            wanted.others += 1;
        }
    }
    if let ([organization], [common]) = (&wanted.organizations[..], &wanted.names[..]) {
        wanted.is_exact = subject::is_exactly(name.as_raw(), organization, common);
    }
    Ok(wanted)
}

/// Returns the octets in the one block of a canonical PEM text. Line feeds may follow it.
fn content(text: &[u8]) -> Option<Vec<u8>> {
    let text = std::str::from_utf8(text).ok()?.trim_end_matches('\n');
    let body = text.strip_prefix("-----BEGIN CERTIFICATE REQUEST-----\n")?;
    let body = body.strip_suffix("\n-----END CERTIFICATE REQUEST-----")?;
    let der = STANDARD.decode(body.replace('\n', "")).ok()?;
    (pem(LABEL, &der).trim_end_matches('\n') == text).then_some(der)
}

/// Returns whether a request has attributes; `None` when it has other parts than version, subject,
/// key, attributes, algorithm and signature, or a length that is not written in the fewest octets.
fn attributes(der: &[u8], request: &X509CertificationRequest<'_>) -> Option<bool> {
    let info = &request.certification_request_info;
    let (whole, &[]) = element(der, 0x30)? else {
        return None;
    };
    let (inside, behind) = element(whole, 0x30)?;
    let (_, behind) = element(behind, 0x30)?;
    let (_, &[]) = element(behind, 0x03)? else {
        return None;
    };
    // Version 0, the subject and the key are followed by the attributes.
    let head = [
        &[0x02, 0x01, 0x00],
        info.subject.as_raw(),
        info.subject_pki.raw,
    ]
    .concat();
    match element(inside.strip_prefix(&head[..])?, 0xa0)? {
        (attributes, &[]) => Some(!attributes.is_empty()),
        _ => None,
    }
}

/// Returns the value of the first element, which bears this tag, and what follows it. Its length is
/// written in the fewest octets, at most two.
fn element(der: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let (head, length) = match *der {
        [_, short @ 0..=0x7f, ..] => (2, usize::from(short)),
        [_, 0x81, length, ..] => (3, usize::from(length)),
        [_, 0x82, high, low, ..] => (4, usize::from(u16::from_be_bytes([high, low]))),
        _ => return None,
    };
    let (whole, rest) = der.split_at_checked(head + length)?;
    let value = whole.get(head..)?;
    (tlv(tag, value) == whole).then_some((value, rest))
}

#[cfg(test)]
mod tests {
    use super::super::request::NewKey;
    use super::super::subject::of;
    use super::*;

    fn text(organization: &str, name: &str) -> String {
        let key = NewKey::generate().unwrap();
        key.request(&of(organization, name)).unwrap()
    }

    fn octets(text: &str) -> Vec<u8> {
        content(text.as_bytes()).unwrap()
    }

    #[test]
    fn what_is_written_is_read() {
        for (organization, name) in [("o", "n"), ("", ""), ("système", &"x".repeat(300))] {
            let wanted = Wanted {
                names: vec![name.to_owned()],
                organizations: vec![organization.to_owned()],
                is_exact: true,
                ..Wanted::default()
            };
            let text = text(organization, name);
            for text in [text.clone(), text.trim_end().to_owned(), text + "\n\n"] {
                assert_eq!(read(text.as_bytes()), Ok(wanted.clone()));
            }
        }
    }

    #[test]
    fn a_text_that_another_parser_may_read_otherwise_is_refused() {
        let (ours, theirs) = (text("o", "agent"), text("o", "root"));
        let (bare, end) = (ours.trim_end(), "-----END CERTIFICATE REQUEST-----");
        let der = octets(&ours);
        // Signatures differ in length, so that any one text may need no padding.
        let unpadded = (0..64)
            .map(|more| text("o", &"n".repeat(more + 1)))
            .find(|text| text.contains("=\n"))
            .unwrap()
            .replace('=', "");
        let long_lines = {
            let body: String = ours.lines().filter(|it| !it.starts_with('-')).collect();
            format!("-----BEGIN CERTIFICATE REQUEST-----\n{body}\n{end}\n")
        };
        for (what, text) in [
            ("a byte behind the end line", format!("{bare}x\n{theirs}")),
            ("a byte behind the end line alone", format!("{bare}x\n")),
            ("base64 without padding", unpadded.clone()),
            ("base64 without padding, and more", unpadded + &theirs),
            ("a second block", format!("{ours}{theirs}")),
            ("the same block twice", format!("{ours}{ours}")),
            ("text before", format!("Certificate Request:\n{ours}")),
            ("an empty line before", format!("\n{ours}")),
            ("text behind", format!("{ours}text\n")),
            ("carriage returns", ours.replace('\n', "\r\n")),
            ("only carriage returns", ours.replace('\n', "\r")),
            ("a last carriage return", format!("{bare}\r\n")),
            ("spaces behind", format!("{bare}  \n")),
            ("other lengths of lines", long_lines),
            ("headers", ours.replacen("-----\n", "-----\nA: b\n\n", 1)),
            (
                "another label",
                ours.replace("CERTIFICATE REQ", "NEW CERTIFICATE REQ"),
            ),
            ("a byte order mark", format!("\u{feff}{ours}")),
            ("nothing", String::new()),
            (
                "no base64",
                format!("-----BEGIN CERTIFICATE REQUEST-----\n?\n{end}\n"),
            ),
            ("no end", ours.replace(end, "")),
        ] {
            assert_eq!(read(text.as_bytes()), Err(Unreadable::Text), "{what}");
        }
        let behind = pem(LABEL, &[&der[..], &[0]].concat());
        assert_eq!(read(behind.as_bytes()), Err(Unreadable::Der));
        assert_eq!(
            read(pem(LABEL, &[0x30, 0]).as_bytes()),
            Err(Unreadable::Der)
        );
        let mut long = [ours.as_bytes(), &[b'\n'; LONGEST]].concat();
        assert_eq!(read(&long), Err(Unreadable::Long));
        shorten(&mut long);
        assert_eq!(read(&long), Err(Unreadable::Long));
        assert_eq!(long.len(), LONGEST + 1);
    }

    #[test]
    fn a_request_whose_octets_could_be_fewer_is_refused() {
        let der = octets(&text("o", "n"));
        // The length in three octets where one less would do.
        let (inside, _) = element(&der, 0x30).unwrap();
        let length = u16::try_from(inside.len()).unwrap().to_be_bytes();
        for head in [&[0x30, 0x83, 0, length[0], length[1]][..], &[0x30, 0x80]] {
            let padded = [head, inside].concat();
            assert_eq!(read(pem(LABEL, &padded).as_bytes()), Err(Unreadable::Der));
        }
        // One part more than a request has.
        let longer = tlv(0x30, &[inside, &[0x05, 0x00]].concat());
        assert_eq!(read(pem(LABEL, &longer).as_bytes()), Err(Unreadable::Der));
    }

    #[test]
    fn a_request_is_signed_with_the_key_that_it_brings() {
        let mut der = octets(&text("o", "n"));
        let name = der.iter().rposition(|octet| *octet == b'n').unwrap();
        let at = der[..=name]
            .windows(3)
            .rposition(|it| it == [0x0c, 1, b'n']);
        der[at.unwrap() + 2] = b'm';
        let forged = pem(LABEL, &der);
        assert_eq!(read(forged.as_bytes()), Err(Unreadable::Signature));
        let unverified = read_unverified(forged.as_bytes()).unwrap();
        assert_eq!(unverified.names, ["m"]);
    }

    #[test]
    fn attributes_are_seen() {
        let der = octets(&text("o", "n"));
        let (_, request) = X509CertificationRequest::from_der(&der).unwrap();
        let info = &request.certification_request_info;
        assert_eq!(attributes(&der, &request), Some(false));
        // A challenge password (1.2.840.113549.1.9.7), as `openssl req` may add one.
        let password = [
            0x30, 0x10, 0x06, 0x09, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x09, 0x07, 0x31,
            0x03, 0x0c, 0x01, b'x',
        ];
        let more = tlv(0xa0, &password);
        let body = [
            &[2, 1, 0],
            info.subject.as_raw(),
            info.subject_pki.raw,
            &more,
        ]
        .concat();
        let (inside, _) = element(&der, 0x30).unwrap();
        let behind = &inside[info.raw.len()..];
        let der = tlv(0x30, &[&tlv(0x30, &body), behind].concat());
        let (_, request) = X509CertificationRequest::from_der(&der).unwrap();
        assert_eq!(attributes(&der, &request), Some(true));
    }
}
