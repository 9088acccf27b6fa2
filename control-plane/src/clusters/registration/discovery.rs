//! Verifies the public ConfigMap with the address and certificate authority of the fleet API, by
//! kubeadm's rules: the hash of the authority's key, and a signature with the token's secret. Pure.

use std::collections::BTreeMap;
use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
pub use muster_shared::certificate::hash::Hash;
use muster_shared::certificate::pem;
use ring::hmac;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use serde_json::{Value, json};

use super::token::Token;

/// Namespace of the ConfigMap.
pub const NAMESPACE: &str = "kube-public";
/// Name of the ConfigMap.
pub const NAME: &str = "cluster-info";
/// The key of the kubeconfig in it.
pub const KEY: &str = "kubeconfig";
/// Prefix of the keys of signatures, which the token's id follows.
const SIGNATURE: &str = "jws-kubeconfig-";

/// Reason why the discovered authority is not trusted.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The authority has another hash.
    #[error(
        "the fleet API's authority is not the expected one: none of {expected:?} is the hash of what {NAMESPACE}/{NAME} has ({found:?}). Either the hash is an old one, and `kubectl muster token create --print-register-command` prints the present one, or another server answers in place of the fleet API (a proxy, or an attacker)"
    )]
    Stranger {
        /// Given hashes.
        expected: Vec<Hash>,
        /// Hashes of the discovered authority.
        found: Vec<Hash>,
    },
    /// The ConfigMap is incomplete.
    #[error("ConfigMap {NAMESPACE}/{NAME} cannot be used: {0}")]
    Useless(String),
    /// The signature was made with another secret.
    #[error(
        "ConfigMap {NAMESPACE}/{NAME} is not signed with this token's secret: either the token is wrong, and `kubectl muster token create --print-register-command` makes another, or another server answers in place of the fleet API (a proxy, or an attacker)"
    )]
    Forged,
    /// There is no signature, and no hash was given.
    #[error(
        "ConfigMap {NAMESPACE}/{NAME} is not signed for this token: the token is unknown there or has expired, or no controller signs (bootstrapsigner of kube-controller-manager). With --discovery-token-ca-cert-hash no signature is needed"
    )]
    Unsigned,
}

/// Content of the ConfigMap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Info {
    /// Certificates of the authority, PEM.
    pub authority: Vec<u8>,
    /// The hash of each.
    pub hashes: Vec<Hash>,
    /// Address of the fleet API.
    pub server: Option<String>,
}

impl Info {
    /// Reads it.
    pub fn read(data: &BTreeMap<String, String>) -> Result<Self, Error> {
        let useless = |why: &dyn fmt::Display| Error::Useless(why.to_string());
        let text = data
            .get(KEY)
            .ok_or_else(|| useless(&"it has no kubeconfig"))?;
        let root: Value = serde_saphyr::from_str(text).map_err(|error| useless(&error))?;
        let cluster = &root["clusters"][0]["cluster"];
        let server = cluster["server"].as_str().map(str::to_owned);
        let authority = cluster["certificate-authority-data"].as_str();
        let authority = authority.ok_or_else(|| useless(&"its kubeconfig has no authority"))?;
        let authority = STANDARD
            .decode(authority)
            .map_err(|error| useless(&error))?;
        Ok(Self {
            hashes: Hash::of_authority(&authority).map_err(|error| useless(&error))?,
            authority,
            server,
        })
    }

    /// Returns the certificates as DER, as a client wants them; where some are pinned, only those.
    pub fn roots(&self, pins: &[Hash]) -> Vec<Vec<u8>> {
        let list = CertificateDer::pem_slice_iter(&self.authority).filter_map(Result::ok);
        let hashed = list.zip(&self.hashes);
        let pinned = hashed.filter(|(_, hash)| pins.is_empty() || pins.contains(hash));
        pinned.map(|(it, _)| it.to_vec()).collect()
    }
}

/// Trusts what was found, or says why not. With hashes one certificate has to have one of them
/// ([`Hash::accepts`]), and a signature that is there has to be right; without hashes (somebody
/// asked for that) the signature is all there is.
pub fn trust(
    data: &BTreeMap<String, String>,
    token: &Token,
    hashes: &[Hash],
) -> Result<Info, Error> {
    let info = Info::read(data)?;
    if !Hash::accepts(hashes, &info.hashes) {
        return Err(Error::Stranger {
            expected: hashes.to_vec(),
            found: info.hashes,
        });
    }
    match data.get(&format!("{SIGNATURE}{}", token.id)) {
        Some(signature) if is_signed(&data[KEY], signature, token) => Ok(info),
        Some(_) => Err(Error::Forged),
        None if hashes.is_empty() => Err(Error::Unsigned),
        None => Ok(info),
    }
}

/// Returns whether a detached signature (JWS without its payload) is that of the token (HMAC with
/// SHA-256, and nothing else: what the head says of the algorithm is checked and not believed).
fn is_signed(payload: &str, signature: &str, token: &Token) -> bool {
    let [head, "", code] = signature.split('.').collect::<Vec<_>>()[..] else {
        return false;
    };
    let decoded = |text: &str| URL_SAFE_NO_PAD.decode(text).ok();
    let named = decoded(head).and_then(|it| serde_json::from_slice::<Value>(&it).ok());
    let named = named.is_some_and(|it| it["alg"] == "HS256" && it["kid"] == token.id.as_str());
    let text = format!("{head}.{}", URL_SAFE_NO_PAD.encode(payload));
    let key = hmac::Key::new(hmac::HMAC_SHA256, token.secret.as_bytes());
    let right = |code: Vec<u8>| hmac::verify(&key, text.as_bytes(), &code).is_ok();
    named && decoded(code).is_some_and(right)
}

/// Returns the kubeconfig that goes into the ConfigMap: an address and an authority (DER), and
/// nobody's credentials.
pub fn kubeconfig(server: &str, roots: &[Vec<u8>]) -> Value {
    let authority: String = roots.iter().map(|it| pem("CERTIFICATE", it)).collect();
    json!({
        "apiVersion": "v1", "kind": "Config",
        "clusters": [{"name": "", "cluster": {
            "server": server, "certificate-authority-data": STANDARD.encode(authority),
        }}],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A certificate that OpenSSL made, for its key; nobody checks its dates.
    const CERTIFICATE: &str = include_str!("authority.pem");
    const HASH: &str = include_str!("authority.sha256");

    fn token() -> Token {
        "abcdef.0123456789abcdef".parse().unwrap()
    }

    fn data(signature: Option<&str>) -> BTreeMap<String, String> {
        let der = CertificateDer::from_pem_slice(CERTIFICATE.as_bytes()).unwrap();
        let text = kubeconfig("https://fleet:6443", &[der.to_vec()]).to_string();
        let mut data = BTreeMap::from([(KEY.to_owned(), text)]);
        if let Some(secret) = signature {
            let head = URL_SAFE_NO_PAD.encode(r#"{"alg":"HS256","kid":"abcdef"}"#);
            let signed = format!("{head}.{}", URL_SAFE_NO_PAD.encode(&data[KEY]));
            let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
            let code = URL_SAFE_NO_PAD.encode(hmac::sign(&key, signed.as_bytes()));
            data.insert(format!("{SIGNATURE}abcdef"), format!("{head}..{code}"));
        }
        data
    }

    #[test]
    fn an_authority_is_trusted_by_its_hash_or_by_a_signature_and_not_otherwise() {
        let right: Hash = HASH.trim().parse().unwrap();
        let wrong: Hash = format!("sha256:{}", "0".repeat(64)).parse().unwrap();
        let (own, foreign) = (Some("0123456789abcdef"), Some("0123456789abcdee"));
        for (signature, hashes, problem) in [
            (own, &[right.clone()][..], None),
            (None, std::slice::from_ref(&right), None),
            (own, &[wrong.clone(), right.clone()], None),
            (own, &[], None),
            (None, &[], Some("is not signed for this token")),
            (foreign, &[], Some("not signed with this token's secret")),
            (
                foreign,
                std::slice::from_ref(&right),
                Some("not signed with this token's secret"),
            ),
            (own, &[wrong], Some("not the expected one")),
        ] {
            match (trust(&data(signature), &token(), hashes), problem) {
                (Ok(info), None) => assert_eq!(info, Info::read(&data(None)).unwrap()),
                (Err(error), Some(words)) => {
                    let said = error.to_string();
                    assert!(said.contains(words), "{said}");
                    // The error names the command to run.
                    let is_unsigned = matches!(error, Error::Unsigned);
                    assert!(
                        is_unsigned || said.contains("--print-register-command"),
                        "{said}"
                    );
                }
                (other, expected) => panic!("{other:?} instead of {expected:?}"),
            }
        }
    }

    #[test]
    fn while_an_authority_is_replaced_who_pins_either_goes_on_and_trusts_the_pinned_one() {
        let make = || {
            let mut params = rcgen::CertificateParams::default();
            params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
            let key = rcgen::KeyPair::generate().unwrap();
            params.self_signed(&key).unwrap().der().to_vec()
        };
        let pin = |der: &Vec<u8>| {
            let found = Hash::of_authority(pem("CERTIFICATE", der).as_bytes());
            found.unwrap().pop().unwrap()
        };
        let (former, next, other) = (make(), make(), make());
        let (old, new) = (pin(&former), pin(&next));
        // What the fleet says, the pins, and those that the token is sent to: `None` is refused.
        for (reported, pins, sent) in [
            (vec![&former], vec![&old], Some(vec![&former])),
            (vec![&former, &next], vec![&old], Some(vec![&former])),
            (vec![&former, &next], vec![&new], Some(vec![&next])),
            (vec![&other, &former], vec![&old], Some(vec![&former])),
            (
                vec![&former, &next],
                vec![&new, &old],
                Some(vec![&former, &next]),
            ),
            (vec![&next], vec![&old, &new], Some(vec![&next])),
            (vec![&next], vec![&old], None),
            (vec![&other], vec![&old, &new], None),
        ] {
            let roots: Vec<Vec<u8>> = reported.into_iter().cloned().collect();
            let text = kubeconfig("https://fleet:6443", &roots).to_string();
            let pins: Vec<Hash> = pins.into_iter().cloned().collect();
            let trusted = trust(&BTreeMap::from([(KEY.to_owned(), text)]), &token(), &pins);
            let trusted = trusted.map(|it| (it.roots(&pins), it.roots(&[])));
            let sent = sent.map(|it| it.into_iter().cloned().collect::<Vec<_>>());
            match (trusted, sent) {
                (Ok((pinned, all)), Some(sent)) => assert_eq!((pinned, all), (sent, roots)),
                (Err(Error::Stranger { .. }), None) => {}
                (other, expected) => panic!("{other:?} instead of {expected:?}"),
            }
        }
    }

    #[test]
    fn a_signature_of_another_kind_is_none() {
        let good = data(Some("0123456789abcdef"));
        let (payload, signature) = (&good[KEY], &good["jws-kubeconfig-abcdef"]);
        assert!(is_signed(payload, signature, &token()));
        assert!(!is_signed(&format!("{payload} "), signature, &token()));
        let (_, code) = signature.split_once("..").unwrap();
        let none = URL_SAFE_NO_PAD.encode(r#"{"alg":"none","kid":"abcdef"}"#);
        for bad in [
            "",
            "..",
            "a.b.c",
            &format!("{none}.."),
            &format!("{none}..{code}"),
            &signature.replace("..", ".eA."),
        ] {
            assert!(!is_signed(payload, bad, &token()), "{bad}");
        }
    }

    #[test]
    fn a_hash_is_written_as_kubeadm_writes_it() {
        assert_eq!(
            HASH.trim().parse::<Hash>().unwrap().to_string(),
            HASH.trim()
        );
        for text in [
            "",
            "sha256:",
            "md5:00",
            &HASH.trim()[..70],
            &HASH.trim().replace("sha256:", "sha512:"),
            &format!("sha256:{}", "é".repeat(32)),
            &format!("sha256:{}", "+f".repeat(32)),
        ] {
            assert!(text.parse::<Hash>().is_err(), "{text}");
        }
    }

    #[test]
    fn what_says_nothing_is_reported() {
        for (text, words) in [
            (None, "no kubeconfig"),
            (Some("{"), "cannot be used"),
            (Some("{}"), "no authority"),
        ] {
            let data = text.map(|it: &str| (KEY.to_owned(), it.to_owned()));
            let error = Info::read(&data.into_iter().collect())
                .unwrap_err()
                .to_string();
            assert!(error.contains(words), "{error}");
        }
    }
}
