//! Whom a certificate is for: the subject of an agent, written, and the subject of somebody's request, read. Pure.

use rustls::pki_types::CertificateSigningRequestDer;
use rustls::pki_types::pem::PemObject;
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::oid_registry::{OID_X509_COMMON_NAME, OID_X509_ORGANIZATION_NAME};
use x509_parser::prelude::{FromDer, ParsedExtension};
use x509_parser::x509::X509Name;

use super::der::tlv;

/// A subject of one organization and one common name, DER. The API takes the first for a group and the second for the user's name.
pub fn of(organization: &str, name: &str) -> Vec<u8> {
    // 2.5.4.10 and 2.5.4.3 (X.520), each in a set of its own, in the order in which Go's library writes them.
    let attribute = |kind: u8, text: &str| {
        let id = tlv(0x06, &[0x55, 0x04, kind]);
        let pair = [id, tlv(0x0c, text.as_bytes())].concat();
        tlv(0x31, &tlv(0x30, &pair))
    };
    let parts = [attribute(0x0a, organization), attribute(0x03, name)];
    tlv(0x30, &parts.concat())
}

/// Whether two subjects, DER, name the same: the same parts with the same texts. Signers write texts in an encoding of their own (Kubernetes'
/// in the narrowest, whatever was asked for) and parts in an order of their own.
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

/// What a request asks to be called.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// Common names, as a rule one.
    pub names: Vec<String>,
    /// Organizations.
    pub organizations: Vec<String>,
    /// How many other parts the subject has.
    pub others: usize,
    /// Whether it wants to be known by alternative names (hosts, addresses) as well.
    pub alternatives: bool,
}

/// A request that cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("the request cannot be read: {0}")]
pub struct Unreadable(String);

/// Reads a request as PEM text. Whether it is signed with its own key the API has checked.
pub fn read(pem: &[u8]) -> Result<Wanted, Unreadable> {
    let unreadable = |error: &dyn std::fmt::Display| Unreadable(error.to_string());
    let der = CertificateSigningRequestDer::from_pem_slice(pem).map_err(|it| unreadable(&it))?;
    let (_, request) = X509CertificationRequest::from_der(&der).map_err(|it| unreadable(&it))?;
    let mut wanted = Wanted::default();
    for attribute in request.certification_request_info.subject.iter_attributes() {
        let text = || attribute.as_str().map_err(|it| unreadable(&it));
        if *attribute.attr_type() == OID_X509_COMMON_NAME {
            wanted.names.push(text()?.to_owned());
        } else if *attribute.attr_type() == OID_X509_ORGANIZATION_NAME {
            wanted.organizations.push(text()?.to_owned());
        } else {
            wanted.others += 1;
        }
    }
    let mut extensions = request.requested_extensions().into_iter().flatten();
    wanted.alternatives =
        extensions.any(|it| matches!(it, ParsedExtension::SubjectAlternativeName(_)));
    Ok(wanted)
}

#[cfg(test)]
mod tests {
    use super::super::request::NewKey;
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        for (organization, name) in [("o", "n"), ("", ""), ("système", &"x".repeat(300))] {
            let request = NewKey::generate().unwrap().request(&of(organization, name));
            let wanted = Wanted {
                names: vec![name.to_owned()],
                organizations: vec![organization.to_owned()],
                ..Wanted::default()
            };
            assert_eq!(read(request.unwrap().as_bytes()).unwrap(), wanted);
        }
    }

    #[test]
    fn the_same_subject_in_another_encoding_is_the_same() {
        let ours = of("system:karmada:agents", "system:karmada:agent:m1");
        // As Kubernetes' signer writes it: PrintableString (tag 0x13) where ours is UTF8String (0x0c).
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
    fn what_is_no_request_is_refused() {
        let empty = "-----BEGIN CERTIFICATE REQUEST-----\n-----END CERTIFICATE REQUEST-----\n";
        for text in [
            "",
            "x",
            empty,
            "-----BEGIN CERTIFICATE REQUEST-----\nMAA=\n",
        ] {
            assert!(read(text.as_bytes()).is_err(), "{text}");
        }
    }
}
