//! Signing requests and certificates, against rcgen.

use muster_fuzz::Fuzz;
use muster_shared::certificate::{pem, reading, subject};
use muster_shared::tls;
use rcgen::{CertificateSigningRequestParams, DnType};

use crate::MEMORY;

const LABEL: &str = "CERTIFICATE REQUEST";
/// Who is asked for in the requests of the corpus.
const ORGANIZATION: &str = "system:karmada:agents";
const NAME: &str = "system:karmada:agent:m1";

const TEXTS: &[&str] = &[
    "-----BEGIN CERTIFICATE REQUEST-----\n",
    "\n-----END CERTIFICATE REQUEST-----\n",
    "-----BEGIN CERTIFICATE-----\n",
    "-----END CERTIFICATE-----\n",
    "\n",
    "\r\n",
    " ",
    "=",
    "==",
    "A",
    "MIIB",
    "Proc-Type: 4,ENCRYPTED\n\n",
];

/// Checks a request. It is signed, so that whoever changes anything of it cannot ask for another
/// identity.
fn request(text: &[u8]) -> String {
    let unverified = reading::read_unverified(text);
    let verified = reading::read(text);
    if let Ok(wanted) = &verified {
        assert_eq!(unverified.as_ref(), Ok(wanted));
        assert_eq!(wanted.names, [NAME]);
        assert_eq!(wanted.organizations, [ORGANIZATION]);
        assert!(wanted.is_exact && wanted.others == 0 && !wanted.attributes);
        let text = std::str::from_utf8(text).unwrap();
        let second = CertificateSigningRequestParams::from_pem(text).unwrap();
        let identity = &second.params.distinguished_name;
        for (kind, expected) in [
            (DnType::CommonName, NAME),
            (DnType::OrganizationName, ORGANIZATION),
        ] {
            let found = identity
                .get(&kind)
                .map(|found| format!("{found:?}"))
                .unwrap();
            assert!(found.contains(expected), "{found}");
        }
    }
    if let Ok(wanted) = &unverified
        && wanted.is_exact
    {
        let subject = subject::of(&wanted.organizations[0], &wanted.names[0]);
        assert!(subject::is_exactly(
            &subject,
            &wanted.organizations[0],
            &wanted.names[0]
        ));
    }
    let mut kept = text.to_vec();
    reading::shorten(&mut kept);
    assert_eq!(reading::read_unverified(&kept), unverified);
    match (verified, unverified) {
        (Ok(_), _) => "reads".to_owned(),
        (Err(error), Ok(wanted)) => format!(
            "{error}: {} {} {} {} {}",
            wanted.names.len(),
            wanted.organizations.len(),
            wanted.others,
            wanted.is_exact,
            wanted.attributes
        ),
        (Err(error), Err(_)) => error.to_string(),
    }
}

#[test]
fn a_signing_request_has_one_text() {
    Fuzz::new("signing-request-text")
        .words(TEXTS)
        .executions(1_500)
        .memory(MEMORY)
        .run(request);
}

#[test]
fn a_signing_request_has_one_encoding() {
    Fuzz::new("signing-request-der")
        .words(DER)
        .executions(1_500)
        .memory(MEMORY)
        .run(|der| request(pem(LABEL, der).as_bytes()));
}

/// Pieces of DER: sequences, sets, lengths in several forms, texts, identifiers.
const DER: &[&str] = &[
    "\u{30}\u{0}",
    "\u{31}",
    "\u{2}\u{1}\u{0}",
    "\u{2}\u{1}\u{1}",
    "\u{6}\u{3}U\u{4}\u{3}",
    "\u{6}\u{3}U\u{4}\u{a}",
    "\u{c}\u{1}n",
    "\u{13}\u{1}n",
    "\u{14}\u{1}n",
    "\u{16}\u{1}n",
    "\u{5}\u{0}",
    "\u{3}\u{1}\u{0}",
    "\u{1}\u{1}\u{1}",
];

#[test]
fn a_subject_is_the_same_as_itself_in_any_encoding() {
    let known = subject::of(ORGANIZATION, NAME);
    Fuzz::new("subject")
        .words(DER)
        .seed(known.clone())
        .executions(10_000)
        .longest(300)
        .memory(MEMORY)
        .run(|der| {
            assert!(subject::are_same(der, der));
            let same = subject::are_same(der, &known);
            assert_eq!(same, subject::are_same(&known, der));
            let exact = subject::is_exactly(der, ORGANIZATION, NAME);
            // An exact subject is the same; the same may be in an encoding that is not exact.
            assert!(same || !exact);
            format!("{same} {exact}")
        });
}

#[test]
fn certificates_are_read_or_refused() {
    Fuzz::new("certificate")
        .words(TEXTS)
        .executions(1_500)
        .memory(MEMORY)
        .run(|text| {
            let chain = tls::certificates(text);
            let end = tls::not_after(text);
            if let (Ok(chain), Ok(end)) = (&chain, &end) {
                assert_eq!(chain[0].not_after, *end);
            }
            let signed = tls::is_signed_by(text, text);
            let pair = tls::is_pair(text, text);
            match chain {
                Ok(chain) => format!("{} {signed} {pair}", chain.len()),
                Err(error) => format!("{error}"),
            }
        });
}
