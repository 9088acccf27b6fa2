//! Decides whether a new certificate is due, which authorities are published, and how a webhook
//! configuration has to change. Pure.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::{SignedDuration, Timestamp};
use muster_shared::https::Certificate;
use muster_shared::k8s::{ByteString, Secret};
use muster_shared::tls;
use serde_json::{Value, json};

use super::issue::LIFE;
use crate::settings::COMPONENT;

/// Keys of the Secret: authorities, certificate, private key.
pub(super) const KEYS: [&str; 3] = ["ca.crt", "tls.crt", "tls.key"];
/// Annotation of the Secret: the names that the certificate is for, separated by commas.
pub(super) const NAMES: &str = "failover.muster.io/certificate-names";
/// Older authorities that are named beside the newest: each is good for [`LIFE`], and two thirds of
/// that pass between two certificates.
const OLDER: usize = 3;

/// Ending of the names of the chart's webhooks. Others in the same configuration are somebody
/// else's.
const OURS: &str = ".muster.io";

/// Content of the Secret.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Held {
    /// PEM of the authorities that have to be trusted, the newest first.
    pub authorities: String,
    /// PEM of the certificate.
    pub certificate: Vec<u8>,
    /// PEM of its key.
    pub key: Vec<u8>,
    /// The names that it is for.
    pub names: String,
}

impl Held {
    /// Reads the Secret; `None` where something is missing.
    pub(super) fn read(secret: &Secret) -> Option<Self> {
        let data = secret.data.as_ref()?;
        let [authorities, certificate, key] = KEYS.map(|key| data.get(key));
        let annotations = secret.metadata.annotations.as_ref();
        Some(Self {
            authorities: String::from_utf8(authorities?.0.clone()).ok()?,
            certificate: certificate?.0.clone(),
            key: key?.0.clone(),
            names: annotations
                .and_then(|all| all.get(NAMES))
                .cloned()
                .unwrap_or_default(),
        })
    }

    /// Returns the Secret's data.
    pub(super) fn data(&self) -> BTreeMap<String, ByteString> {
        let values = [self.authorities.as_bytes(), &self.certificate, &self.key];
        let entry = |(key, value): (&str, &[u8])| (key.to_owned(), ByteString(value.to_vec()));
        KEYS.into_iter().zip(values).map(entry).collect()
    }
}

/// Returns why a new certificate has to be made; `None` while the one that is held serves.
pub(super) fn due(held: Option<&Held>, names: &str, now: Timestamp) -> Option<&'static str> {
    let Some(held) = held else {
        return Some("there is none");
    };
    if held.names != names {
        return Some("it is for other names");
    }
    let chain = tls::certificates(&held.certificate).unwrap_or_default();
    let Some(leaf) = chain.first() else {
        return Some("it cannot be read");
    };
    if Certificate::default()
        .give(held.certificate.clone(), held.key.clone())
        .is_err()
    {
        return Some("it cannot be used with its key");
    }
    let authorities = good_authorities(&held.authorities, now);
    let signs = |authority: &String| tls::is_signed_by(&held.certificate, authority.as_bytes());
    if !authorities.iter().any(signs) {
        return Some("its authority is missing");
    }
    // Made by somebody whose clock was ahead: no API server takes it until then.
    if leaf.not_before > now {
        return Some("it is not good yet");
    }
    let third = SignedDuration::try_from(LIFE / 3).unwrap_or_default();
    (leaf.not_after.duration_since(now) < third).then_some("it ends soon")
}

/// Returns the authorities to be trusted once there is a new one: it, and those of certificates
/// that may still be shown (`before`, PEM).
pub(super) fn trusted(newest: &str, before: &str, now: Timestamp) -> String {
    let mut all = vec![newest.trim().to_owned()];
    for authority in good_authorities(before, now) {
        if all.len() <= OLDER && !all.contains(&authority) {
            all.push(authority);
        }
    }
    all.join("\n") + "\n"
}

/// Returns the authorities that the webhooks of ours in a configuration trust, PEM. What replicas
/// show is trusted by them even when the Secret that said so is gone.
pub(super) fn named(configuration: &Value) -> String {
    let webhooks = configuration["webhooks"].as_array();
    let bundles = webhooks.into_iter().flatten().filter(|it| is_ours(it));
    let texts = bundles.filter_map(|webhook| {
        let bundle = webhook["clientConfig"]["caBundle"].as_str()?;
        String::from_utf8(STANDARD.decode(bundle).ok()?).ok()
    });
    texts.collect::<Vec<_>>().join("\n")
}

fn is_ours(webhook: &Value) -> bool {
    let name = webhook["name"].as_str();
    name.is_some_and(|name| name.ends_with(OURS))
}

/// Returns the authorities of a PEM text that have not ended, each as a PEM text of its own.
fn good_authorities(text: &str, now: Timestamp) -> Vec<String> {
    let good = |block: &&str| tls::not_after(block.as_bytes()).is_ok_and(|end| end > now);
    tls::blocks(text).filter(good).map(str::to_owned).collect()
}

/// Returns whether the program that prepares the fleet API has applied the authority of a webhook:
/// somebody brings a certificate since, and this process, which makes its own, is to end.
fn is_brought(configuration: &Value, name: &Value) -> bool {
    let webhook = format!("k:{}", json!({ "name": name }));
    let entries = configuration["metadata"]["managedFields"].as_array();
    entries.into_iter().flatten().any(|entry| {
        let fields = &entry["fieldsV1"]["f:webhooks"][&webhook]["f:clientConfig"];
        entry["manager"] == COMPONENT
            && entry["operation"] == "Apply"
            && !fields["f:caBundle"].is_null()
    })
}

/// Returns the change by which every webhook of ours in a configuration trusts these authorities;
/// `None` when all of them do, or trust those of a certificate that somebody brings. It fails if
/// the configuration has become another one.
pub(super) fn trust(configuration: &Value, authorities: &str) -> Option<Value> {
    let bundle = STANDARD.encode(authorities);
    let mut webhooks = configuration["webhooks"].as_array()?.clone();
    let mut changed = false;
    for webhook in &mut webhooks {
        let is_other = webhook["clientConfig"]["caBundle"] != bundle;
        if is_ours(webhook) && is_other && !is_brought(configuration, &webhook["name"]) {
            webhook["clientConfig"]["caBundle"] = bundle.clone().into();
            changed = true;
        }
    }
    changed.then(|| {
        json!({
            "metadata": { "resourceVersion": configuration["metadata"]["resourceVersion"] },
            "webhooks": webhooks,
        })
    })
}

#[cfg(test)]
mod tests {
    use rustls::pki_types::CertificateDer;
    use rustls::pki_types::pem::PemObject as _;

    use super::super::issue::issue;
    use super::*;

    fn held(names: &str, at: Timestamp) -> Held {
        let list: Vec<String> = names.split(',').map(str::to_owned).collect();
        let made = issue(&list, at).unwrap();
        Held {
            authorities: trusted(&made.authority, "", at),
            certificate: made.certificate.into_bytes(),
            key: made.key.into_bytes(),
            names: names.to_owned(),
        }
    }

    fn at() -> Timestamp {
        "2026-01-01T00:00:00Z".parse().unwrap()
    }

    fn days(count: i64) -> SignedDuration {
        SignedDuration::from_hours(24 * count)
    }

    /// Change of what is held.
    type Change = fn(&mut Held);

    #[test]
    fn a_certificate_is_made_when_the_one_that_is_held_does_not_serve() {
        let now = at();
        let good = held("a,10.0.0.1", now);
        for (held, later, reason) in [
            (None, 0, Some("there is none")),
            (Some(good.clone()), 0, None),
            (Some(good.clone()), 59, None),
            (Some(good.clone()), 61, Some("it ends soon")),
            (Some(good.clone()), 400, Some("its authority is missing")),
            (Some(good.clone()), -1, Some("it is not good yet")),
        ] {
            let said = due(held.as_ref(), "a,10.0.0.1", now + days(later));
            assert_eq!(said, reason, "after {later} days");
        }
        let key: fn(&mut Held) = |it| it.key = held("a", at()).key;
        let authorities: fn(&mut Held) = |it| it.authorities = held("a", at()).authorities;
        let changes: [(Change, &str); 5] = [
            (key, "it cannot be used with its key"),
            (authorities, "its authority is missing"),
            (|it| it.names = "a".to_owned(), "it is for other names"),
            (|it| it.certificate = b"x".to_vec(), "it cannot be read"),
            (|it| it.authorities.clear(), "its authority is missing"),
        ];
        for (change, reason) in changes {
            let mut held = good.clone();
            change(&mut held);
            assert_eq!(due(Some(&held), "a,10.0.0.1", now), Some(reason));
        }
    }

    #[test]
    fn authorities_are_trusted_until_they_end_and_never_more_than_a_few() {
        let now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let first = held("a", now);
        let (soon, late) = (now + days(60), now + days(91));
        let second = issue(&["a".to_owned()], soon).unwrap();
        let both = trusted(&second.authority, &first.authorities, soon);
        assert_eq!(good_authorities(&both, soon).len(), 2);
        assert!(both.starts_with(second.authority.trim_end()));
        assert_eq!(good_authorities(&both, late).len(), 1);

        let mut many = first;
        for _ in 0..10 {
            many.authorities = trusted(
                &issue(&["a".to_owned()], now).unwrap().authority,
                &many.authorities,
                now,
            );
        }
        assert_eq!(good_authorities(&many.authorities, now).len(), 1 + OLDER);
        many.authorities = "-----BEGIN CERTIFICATE-----\nbroken\n-----END CERTIFICATE-----".into();
        assert_eq!(good_authorities(&many.authorities, now), [""; 0]);
    }

    #[test]
    fn what_is_shown_stays_trusted_when_the_secret_is_gone_or_cannot_be_written() {
        let now = at();
        let (shown, newest) = (held("a", now), issue(&["a".to_owned()], now).unwrap());
        let mut configuration = json!({ "webhooks": [
            { "name": "a.muster.io", "clientConfig": { "caBundle": STANDARD.encode(&shown.authorities) } },
            { "name": "b.muster.io", "clientConfig": { "caBundle": "?" } },
            { "name": "c.muster.io", "clientConfig": {} },
            { "name": "theirs.example.com", "clientConfig": { "caBundle": STANDARD.encode(&newest.authority) } },
        ] });
        let both = trusted(&newest.authority, &named(&configuration), now);
        assert_eq!(
            good_authorities(&both, now),
            [newest.authority.trim(), shown.authorities.trim()]
        );
        // Named a second time, because nothing could be stored, they are the same.
        let patch = trust(&configuration, &both).unwrap();
        configuration["webhooks"] = patch["webhooks"].clone();
        let again = trusted(&newest.authority, &named(&configuration), now);
        assert_eq!(again, both);
        assert_eq!(trust(&configuration, &again), None);
        assert_eq!(named(&json!({})), "");
    }

    #[test]
    fn a_configuration_is_changed_only_where_it_trusts_others() {
        let bundle = STANDARD.encode("authority");
        let mut configuration = json!({
            "metadata": { "name": "muster", "resourceVersion": "7" },
            "webhooks": [
                { "name": "a.muster.io", "clientConfig": { "url": "https://a", "caBundle": bundle } },
                { "name": "b.muster.io", "clientConfig": { "url": "https://b" }, "timeoutSeconds": 3 },
                { "name": "theirs.example.com", "clientConfig": { "url": "https://c" } },
            ],
        });
        let patch = trust(&configuration, "authority").unwrap();
        assert_eq!(patch["metadata"]["resourceVersion"], "7");
        assert_eq!(patch["webhooks"][0], configuration["webhooks"][0]);
        assert_eq!(patch["webhooks"][1]["clientConfig"]["caBundle"], bundle);
        assert_eq!(patch["webhooks"][1]["timeoutSeconds"], 3);
        assert_eq!(patch["webhooks"][2], configuration["webhooks"][2]);
        configuration["webhooks"] = patch["webhooks"].clone();
        assert_eq!(trust(&configuration, "authority"), None);
        assert_eq!(trust(&json!({ "metadata": {} }), "authority"), None);
    }

    #[test]
    fn the_authority_of_a_certificate_that_is_brought_is_not_replaced() {
        let entry = |manager: &str, field: &str| {
            let fields = json!({ "f:clientConfig": { field: {} } });
            let fields = json!({ "f:webhooks": { "k:{\"name\":\"a.muster.io\"}": fields } });
            json!({ "manager": manager, "operation": "Apply", "fieldsV1": fields })
        };
        for (what, entry, stays) in [
            ("brought", entry(COMPONENT, "f:caBundle"), true),
            ("its address alone", entry(COMPONENT, "f:url"), false),
            ("somebody else's", entry("helm", "f:caBundle"), false),
        ] {
            let client = json!({ "caBundle": STANDARD.encode("brought") });
            let configuration = json!({
                "metadata": { "managedFields": [entry] },
                "webhooks": [{ "name": "a.muster.io", "clientConfig": client }],
            });
            let patch = trust(&configuration, "own");
            assert_eq!(patch.is_none(), stays, "{what}");
        }
    }

    #[test]
    fn what_is_issued_serves_under_its_authority_alone() {
        use rustls::pki_types::{ServerName, UnixTime};
        let now = muster_shared::clock::calendar();
        let names = [
            "muster-webhook.muster-system.svc".to_owned(),
            "127.0.0.1".to_owned(),
        ];
        let made = issue(&names, now).unwrap();
        let other = issue(&names, now).unwrap();
        for (authority, good) in [(&made.authority, true), (&other.authority, false)] {
            let mut roots = rustls::RootCertStore::empty();
            roots
                .add(CertificateDer::from_pem_slice(authority.as_bytes()).unwrap())
                .unwrap();
            let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
            let verifier =
                rustls::client::WebPkiServerVerifier::builder_with_provider(roots.into(), provider)
                    .build()
                    .unwrap();
            for name in &names {
                use rustls::client::danger::ServerCertVerifier as _;
                let shown = CertificateDer::from_pem_slice(made.certificate.as_bytes()).unwrap();
                let name = ServerName::try_from(name.clone()).unwrap();
                let checked = verifier.verify_server_cert(&shown, &[], &name, &[], UnixTime::now());
                assert_eq!(checked.is_ok(), good, "{name:?}");
            }
        }
    }
}
