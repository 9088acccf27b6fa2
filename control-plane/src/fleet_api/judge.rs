//! Decides whether what a Secret holds is kept, made anew, or left alone. Pure.

use std::net::IpAddr;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use muster_shared::k8s::Secret;
use muster_shared::tls;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::X509Certificate;

use super::issue::Pair;
use super::plan::{Leaf, sorted};

/// Label of every Secret that this program makes, with [`MANAGER`] as its value.
pub(super) const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
/// Value of [`MANAGED_BY`].
pub(super) const MANAGER: &str = "muster-control-plane";
/// Key of a certificate.
pub(super) const CERTIFICATE: &str = "tls.crt";
/// Key of its private key.
pub(super) const KEY: &str = "tls.key";
/// Key of the authorities to be trusted.
pub(super) const AUTHORITIES: &str = "ca.crt";
/// Keys of the private and the public half of the key of tokens.
pub(super) const TOKENS: [&str; 2] = ["sa.key", "sa.pub"];

/// Verdict about a Secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict<T> {
    /// The material can be used.
    Keep(T),
    /// The material has to be made (anew), for this reason.
    Make(&'static str),
    /// The material cannot be used and is not written over, for this reason.
    Refuse(String),
}

/// An authority as its Secret holds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Authority {
    /// Certificate and key with which the authority signs.
    pub pair: Pair,
    /// All authorities that are trusted, the signing one included (PEM).
    pub trusted: String,
    /// Its end.
    pub until: Timestamp,
}

/// Returns the value of a key of a Secret; `None` if there is none, or it is no text.
pub(super) fn text(secret: &Secret, key: &str) -> Option<String> {
    let value = secret.data.as_ref()?.get(key)?;
    String::from_utf8(value.0.clone()).ok()
}

/// Returns why a Secret is somebody else's, if it is.
fn foreign(secret: &Secret) -> Option<String> {
    let labels = secret.metadata.labels.as_ref();
    let manager = labels.and_then(|it| it.get(MANAGED_BY));
    (manager.map(String::as_str) != Some(MANAGER))
        .then(|| format!("somebody else made it: it has no label {MANAGED_BY}={MANAGER}"))
}

fn pair(secret: &Secret) -> Result<Pair, String> {
    let missing = |key: &str| format!("{key} is missing or is no text");
    let certificate = text(secret, CERTIFICATE).ok_or_else(|| missing(CERTIFICATE))?;
    let key = text(secret, KEY).ok_or_else(|| missing(KEY))?;
    tls::certificates(certificate.as_bytes())
        .map_err(|error| format!("{CERTIFICATE} cannot be read: {error}"))?;
    if !tls::is_pair(certificate.as_bytes(), key.as_bytes()) {
        return Err(format!("{KEY} is not the private key of {CERTIFICATE}"));
    }
    Ok(Pair { certificate, key })
}

/// Judges the Secret of an authority. `signed` is the name of a Secret with a certificate, if there
/// is one: then a missing authority was lost, and a new one would lock everybody out.
pub(super) fn authority(
    found: Option<&Secret>,
    signed: Option<&str>,
    now: Timestamp,
) -> Verdict<Authority> {
    let Some(secret) = found else {
        return match signed {
            None => Verdict::Make("there is none"),
            Some(name) => Verdict::Refuse(format!(
                "it is gone, and Secret {name:?} has a certificate of it: bring it back from a backup, or delete all Secrets of the fleet \
                 API to start with a new authority, after which every member has to join again"
            )),
        };
    };
    if let Some(why) = foreign(secret) {
        return Verdict::Refuse(why);
    }
    let pair = match pair(secret) {
        Ok(pair) => pair,
        Err(why) => return Verdict::Refuse(why),
    };
    let ends = read(&pair.certificate).map(|it| (it.is_authority, it.until));
    let until = match ends {
        Some((true, until)) if until > now => until,
        Some((true, until)) => {
            return Verdict::Refuse(format!("the authority ended at {until}: replace it"));
        }
        _ => return Verdict::Refuse(format!("{CERTIFICATE} is no certificate authority")),
    };
    // People add authorities here to have them trusted before they sign.
    let trusted = text(secret, AUTHORITIES).unwrap_or_default();
    let trusted = bundle(&pair.certificate, &trusted);
    Verdict::Keep(Authority {
        pair,
        trusted,
        until,
    })
}

/// Returns an authority and all others of a PEM text, once each; text between them is left out.
pub(super) fn bundle(first: &str, others: &str) -> String {
    let mut all: Vec<&str> = Vec::new();
    for block in tls::blocks(first).chain(tls::blocks(others)) {
        if !all.contains(&block) {
            all.push(block);
        }
    }
    all.join("\n") + "\n"
}

/// Judges the Secret of the key of tokens.
pub(super) fn token_key(found: Option<&Secret>) -> Verdict<()> {
    let Some(secret) = found else {
        return Verdict::Make("there is none");
    };
    if let Some(why) = foreign(secret) {
        return Verdict::Refuse(why);
    }
    let is_one =
        |(key, title): (&str, &str)| text(secret, key).is_some_and(|it| it.contains(title));
    let [private, public] = TOKENS;
    if [(private, "PRIVATE KEY"), (public, "PUBLIC KEY")]
        .into_iter()
        .all(is_one)
    {
        return Verdict::Keep(());
    }
    Verdict::Refuse(format!("{private} and {public} are not PEM keys"))
}

/// Judges the Secret of a certificate, which is renewed when a third of `life` is left.
pub(super) fn leaf(
    found: Option<&Secret>,
    wanted: &Leaf,
    authority: &Authority,
    now: Timestamp,
    life: Duration,
) -> Verdict<Pair> {
    let Some(secret) = found else {
        return Verdict::Make("there is none");
    };
    if let Some(why) = foreign(secret) {
        return Verdict::Refuse(why);
    }
    let pair = match pair(secret) {
        Ok(pair) => pair,
        Err(why) => return Verdict::Refuse(format!("{why}; delete it, and it is made anew")),
    };
    let Some(read) = read(&pair.certificate) else {
        return Verdict::Refuse(format!(
            "{CERTIFICATE} cannot be read; delete it, and it is made anew"
        ));
    };
    let certificate = pair.certificate.as_bytes();
    if !tls::is_signed_by(certificate, authority.pair.certificate.as_bytes()) {
        return Verdict::Make("another authority signed it");
    }
    if (&read.user, &read.group) != (&wanted.user, &wanted.group) {
        return Verdict::Make("it is for another user");
    }
    if read.names != sorted(wanted.names.clone()) {
        return Verdict::Make("it is for other names");
    }
    if (read.serves, read.asks) != (wanted.serves, wanted.asks) {
        return Verdict::Make("it is for another usage");
    }
    if read.from > now {
        return Verdict::Make("it is not valid yet");
    }
    let third = SignedDuration::try_from(life / 3).unwrap_or(SignedDuration::MAX);
    // A certificate that ends with its authority would end no later if it were made anew.
    if read.until.duration_since(now) <= third && read.until < authority.until {
        return Verdict::Make("it ends soon");
    }
    Verdict::Keep(pair)
}

/// Returns the names of the certificate of a Secret; none if it cannot be read.
pub(super) fn names_of(secret: &Secret) -> Vec<String> {
    let found = text(secret, CERTIFICATE).and_then(|it| read(&it));
    found.map(|it| it.names).unwrap_or_default()
}

/// Fields of a certificate that decide.
struct Read {
    user: String,
    group: Option<String>,
    names: Vec<String>,
    serves: bool,
    asks: bool,
    is_authority: bool,
    from: Timestamp,
    until: Timestamp,
}

fn read(certificate: &str) -> Option<Read> {
    let der = CertificateDer::from_pem_slice(certificate.as_bytes()).ok()?;
    let (_, read) = x509_parser::parse_x509_certificate(&der).ok()?;
    let usage = read.extended_key_usage().ok()?;
    let subject = read.subject();
    let common_name = subject.iter_common_name().next();
    let group = subject.iter_organization().next();
    let time = |seconds| Timestamp::from_second(seconds).ok();
    Some(Read {
        user: common_name?.as_str().ok()?.to_owned(),
        group: group.and_then(|it| it.as_str().ok()).map(str::to_owned),
        names: names(&read),
        serves: usage.as_ref().is_some_and(|it| it.value.server_auth),
        asks: usage.as_ref().is_some_and(|it| it.value.client_auth),
        is_authority: read.is_ca(),
        from: time(read.validity().not_before.timestamp())?,
        until: time(read.validity().not_after.timestamp())?,
    })
}

/// Returns the DNS names and IP addresses of a certificate.
fn names(certificate: &X509Certificate<'_>) -> Vec<String> {
    let names = certificate.subject_alternative_name().ok().flatten();
    let names = names.iter().flat_map(|it| &it.value.general_names);
    let text = |name: &GeneralName<'_>| match name {
        GeneralName::DNSName(name) => Some((*name).to_owned()),
        GeneralName::IPAddress(octets) => match octets.len() {
            4 => <[u8; 4]>::try_from(*octets)
                .ok()
                .map(|it| IpAddr::from(it).to_string()),
            _ => <[u8; 16]>::try_from(*octets)
                .ok()
                .map(|it| IpAddr::from(it).to_string()),
        },
        _ => None,
    };
    sorted(names.filter_map(text).collect())
}

#[cfg(test)]
mod tests;
