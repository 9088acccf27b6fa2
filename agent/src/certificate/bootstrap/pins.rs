//! Decides which authorities of a bootstrap kubeconfig are trusted where some are pinned.
//!
//! A fleet that replaces its authority has two for a while, and its members have the hash of one.
//! Therefore one pinned authority makes a list acceptable, as in kubeadm, and bootstrap credentials
//! are sent only to a server whose certificate a pinned authority has signed: whoever can append
//! an authority to the list does not get the token with it.

use kube::Config;
use muster_shared::certificate::hash::Hash;
use muster_shared::certificate::pem;

use super::reporting::Stranger;

/// Accepts a configuration without pins, and one that verifies its server and has a pinned
/// authority.
///
/// # Errors
/// When no authority is pinned, or the server is not verified.
pub(super) fn accept(config: &Config, pins: &[Hash]) -> Result<(), Stranger> {
    let roots = || config.root_cert.iter().flatten();
    let found: Vec<Hash> = roots().filter_map(|it| hash(it)).collect();
    let verifies = pins.is_empty() || !config.accept_invalid_certs;
    if verifies && Hash::accepts(pins, &found) {
        return Ok(());
    }
    Err(Stranger {
        server: config.cluster_url.to_string(),
        expected: pins.to_vec(),
        found,
    })
}

/// Leaves only pinned authorities in a configuration, and verifies its server.
pub(super) fn narrow(mut config: Config, pins: &[Hash]) -> Config {
    if !pins.is_empty() {
        config.accept_invalid_certs = false;
        let mut roots = config.root_cert.take().unwrap_or_default();
        roots.retain(|it| is_pinned(it, pins));
        config.root_cert = Some(roots);
    }
    config
}

fn is_pinned(der: &[u8], pins: &[Hash]) -> bool {
    hash(der).is_some_and(|it| pins.contains(&it))
}

fn hash(der: &[u8]) -> Option<Hash> {
    let found = Hash::of_authority(pem("CERTIFICATE", der).as_bytes());
    found.ok()?.pop()
}

#[cfg(test)]
mod tests {
    use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair};

    use super::*;

    fn authority() -> Vec<u8> {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        params.self_signed(&key).unwrap().der().to_vec()
    }

    fn fleet(roots: &[&Vec<u8>]) -> Config {
        let mut config = Config::new("https://fleet.example.com".parse().unwrap());
        config.root_cert = Some(roots.iter().map(|it| (*it).clone()).collect());
        config
    }

    #[test]
    fn while_an_authority_is_replaced_a_member_that_pins_either_goes_on_and_trusts_the_pinned_one_with_its_token()
     {
        let (former, next, other) = (authority(), authority(), authority());
        let pin = |der: &Vec<u8>| hash(der).unwrap();
        let (old, new) = (pin(&former), pin(&next));
        // The list of the file, the pins, and those that the token is sent to: `None` is refused.
        for (roots, pins, sent) in [
            (vec![&former], vec![], Some(vec![&former])),
            (vec![&former], vec![&old], Some(vec![&former])),
            (vec![&former, &next], vec![&old], Some(vec![&former])),
            (vec![&former, &next], vec![&new], Some(vec![&next])),
            (
                vec![&former, &next],
                vec![&old, &new],
                Some(vec![&former, &next]),
            ),
            (vec![&next], vec![&old, &new], Some(vec![&next])),
            (vec![&other, &former], vec![&old], Some(vec![&former])),
            (vec![&next], vec![&old], None),
            (vec![&other], vec![&old, &new], None),
            (vec![], vec![&old], None),
        ] {
            let pins: Vec<Hash> = pins.into_iter().cloned().collect();
            let config = fleet(&roots);
            assert_eq!(accept(&config, &pins).is_ok(), sent.is_some(), "{pins:?}");
            let trusted = narrow(config, &pins).root_cert.unwrap();
            let sent = sent.unwrap_or_default();
            assert_eq!(trusted.iter().collect::<Vec<_>>(), sent, "{pins:?}");
        }
    }

    #[test]
    fn a_server_that_is_not_verified_has_no_pinned_authority() {
        let der = authority();
        let pins = [hash(&der).unwrap()];
        let mut config = fleet(&[&der]);
        config.accept_invalid_certs = true;
        assert!(accept(&config, &[]).is_ok());
        accept(&config, &pins).unwrap_err();
        assert!(!narrow(config, &pins).accept_invalid_certs);
    }
}
