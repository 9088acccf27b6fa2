use std::sync::LazyLock;
use std::time::Duration;

use muster_shared::certificate::kubeconfig::Way;
use rcgen::{CertificateParams, DnType, DnValue, KeyPair, date_time_ymd};

use super::*;

const SERVER: &str = "https://fleet:6443";
/// A moment in the life of the certificates, which are of the year 2030.
static NOW: LazyLock<Timestamp> = LazyLock::new(|| "2030-06-01T00:00:00Z".parse().unwrap());

/// Returns a certificate of an organization and a name, and its key, as PEM texts.
fn credentials(organization: &str, name: &str) -> (String, String) {
    let mut params = CertificateParams::default();
    params.not_before = date_time_ymd(2030, 1, 1);
    params.not_after = date_time_ymd(2031, 1, 1);
    params.distinguished_name = rcgen::DistinguishedName::new();
    let text = |text: &str| DnValue::Utf8String(text.to_owned());
    let names = &mut params.distinguished_name;
    names.push(DnType::OrganizationName, text(organization));
    names.push(DnType::CommonName, text(name));
    let key = KeyPair::generate().unwrap();
    let certificate = params.self_signed(&key).unwrap();
    (certificate.pem(), key.serialize_pem())
}

fn stored(server: &str, certificate: &str, key: &str) -> String {
    let way = Way {
        server: server.to_owned(),
        ..Way::default()
    };
    let document = way.with_certificate("m1", certificate.as_bytes(), key.as_bytes());
    serde_saphyr::to_string(&document).unwrap()
}

/// Returns the verdict in a word, and its reason.
fn words(verdict: &Verdict) -> String {
    match verdict {
        Verdict::Use(_) => "use".to_owned(),
        Verdict::Ask(why) => format!("ask: {why}"),
        Verdict::Leave => "leave".to_owned(),
    }
}

#[test]
fn good_credentials_are_used_others_are_replaced_and_those_of_somebody_else_are_left() {
    let (certificate, key) = credentials("system:karmada:agents", "system:karmada:agent:m1");
    let (_, other_key) = credentials("system:karmada:agents", "system:karmada:agent:m1");
    let good = stored(SERVER, &certificate, &key);
    let of = |organization, name| {
        let (certificate, key) = credentials(organization, name);
        stored(SERVER, &certificate, &key)
    };
    let foreign = of("system:karmada:agents", "system:karmada:agent:m2");
    let master = of("system:masters", "system:karmada:agent:m1");
    let mixed = stored(SERVER, &certificate, &other_key);
    let end: Timestamp = "2031-01-01T00:00:00Z".parse().unwrap();
    let before = end - Duration::from_secs(1);
    let (now, fleet) = (*NOW, Some(SERVER));
    let token = "apiVersion: v1\nkind: Config\ncurrent-context: a\ncontexts:\n- {name: a, context: {user: b, cluster: c}}\nusers:\n- {name: b, user: {token: t}}\n";
    let elsewhere = Some("https://elsewhere");
    let expired = "ask: the stored certificate expired at 2031";
    let of_other = "ask: the stored credentials are for https://fleet:6443, and";
    let of_key = "ask: the stored credentials cannot be used: the private key";
    let of_user = "ask: the stored credentials cannot be used: user";
    let of_file = "ask: the stored credentials cannot be used: the kubeconfig";
    for (stored, server, now, expected) in [
        (Some(good.as_str()), fleet, now, "use"),
        (Some(&good), Some("https://fleet:6443/"), now, "use"),
        (Some(&good), None, now, "use"),
        (Some(&good), fleet, before, "use"),
        // Whether a clock is wrong, the fleet decides.
        (Some(&good), fleet, Timestamp::UNIX_EPOCH, "use"),
        (Some(&good), fleet, end, expired),
        (Some(&good), elsewhere, now, of_other),
        (Some(&mixed), fleet, now, of_key),
        (Some(token), fleet, now, of_user),
        (Some("{garbage"), fleet, now, of_file),
        (None, fleet, now, "ask: no credentials are stored"),
        (Some(" \n"), fleet, now, "ask: no credentials are stored"),
        (Some(&foreign), fleet, now, "leave"),
        (Some(&foreign), fleet, end, "leave"),
        (Some(&foreign), elsewhere, now, "leave"),
        (Some(&master), fleet, now, "leave"),
    ] {
        let verdict = judge(stored.map(str::as_bytes), "m1", server, None, now);
        let found = words(&verdict);
        assert!(found.starts_with(expected), "{expected:?}, found {found:?}");
    }
}

#[test]
fn a_certificate_that_the_fleet_refuses_is_replaced_and_another_one_is_used() {
    let made = || credentials("system:karmada:agents", "system:karmada:agent:m1");
    let ((certificate, key), (former, _)) = (made(), made());
    let good = stored(SERVER, &certificate, &key);
    let end: Timestamp = "2031-01-01T00:00:00Z".parse().unwrap();
    for (refused, now, expected) in [
        (None, *NOW, "use"),
        (Some(&former), *NOW, "use"),
        (Some(&certificate), *NOW, "ask: the fleet API refuses"),
        (
            Some(&certificate),
            end,
            "ask: the stored certificate expired",
        ),
    ] {
        let refused = refused.map(String::as_bytes);
        let verdict = judge(Some(good.as_bytes()), "m1", Some(SERVER), refused, now);
        let found = words(&verdict);
        assert!(found.starts_with(expected), "{expected:?}, found {found:?}");
    }
}

#[test]
fn no_word_of_the_stored_text_is_reported() {
    for text in ["token: SECRET\"", "{SECRET", "users: [SECRET", "SECRET"] {
        let found = words(&judge(Some(text.as_bytes()), "m1", None, None, *NOW));
        assert!(!found.contains("SECRET"), "{found}");
    }
}
