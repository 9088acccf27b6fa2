//! Connection to the API server of a cluster of sync mode Push, from its spec and its Secret.

use std::fmt;

use kube::config::KubeConfigOptions;
use kube::{Config, ResourceExt};
use muster_shared::api::cluster::Cluster;
use muster_shared::certificate::kubeconfig::Way;
use muster_shared::client::{self, Profile};
use muster_shared::k8s::Secret;
use muster_shared::names::{CLUSTER_NAMESPACE, label};

/// Key of the Secret of a cluster: namespace and name.
pub type SecretKey = (String, String);

/// Returns the key of the Secret that a Cluster names; `None` if it names none.
pub fn secret_key(cluster: &Cluster) -> Option<SecretKey> {
    let reference = cluster.spec.secret_ref.as_ref()?;
    let is_whole = !reference.name.is_empty() && !reference.namespace.is_empty();
    is_whole.then(|| (reference.namespace.clone(), reference.name.clone()))
}

/// Returns the configuration of a client for the member. The Secret has the keys `token` and
/// `caBundle`, as Karmada writes them.
///
/// # Errors
/// A text for the operator that says what is missing, and where.
pub async fn connection(cluster: &Cluster, secret: Option<&Secret>) -> Result<Config, String> {
    let Some((namespace, name)) = secret_key(cluster) else {
        return Err("spec.secretRef is empty: name a Secret with token and caBundle, as `kubectl muster join` does for a cluster that is not in the fleet yet".to_owned());
    };
    let title = format!("Secret {namespace}/{name}");
    let endpoint = cluster.spec.api_endpoint.clone().unwrap_or_default();
    if endpoint.is_empty() {
        return Err(
            "spec.apiEndpoint is empty: give the URL of the member's API server".to_owned(),
        );
    }
    let Some(secret) = secret else {
        return Err(format!("{title} of spec.secretRef does not exist"));
    };
    let cluster_name = cluster.name_any();
    let is_labelled = secret.labels().get(label::SECRET_OF_CLUSTER) == Some(&cluster_name);
    // Its token must not be sent to the address of this cluster.
    if !is_labelled && (namespace != CLUSTER_NAMESPACE || name != cluster_name) {
        return Err(format!(
            "{title} is not that of this cluster: its name is not {CLUSTER_NAMESPACE}/<cluster>, and it has no label {}=<cluster>",
            label::SECRET_OF_CLUSTER
        ));
    }
    let value = |key: &str| {
        let data = secret.data.as_ref().and_then(|data| data.get(key));
        data.map(|bytes| &bytes.0).filter(|bytes| !bytes.is_empty())
    };
    let token = value("token").and_then(|bytes| String::from_utf8(bytes.clone()).ok());
    let Some(token) = token else {
        return Err(format!(
            "{title} of spec.secretRef has no key token with a text"
        ));
    };
    let token = token.trim();
    if http::HeaderValue::from_str(token).is_err() {
        return Err(format!(
            "the token in {title} has line breaks or other characters that no token has"
        ));
    }
    let insecure = cluster.spec.insecure_skip_tls_verification;
    let authority = value("caBundle");
    if authority.is_none() && !insecure && endpoint.starts_with("https:") {
        return Err(format!(
            "{title} of spec.secretRef has no key caBundle: add the certificates of the member's authority (PEM), or set spec.insecureSkipTLSVerification"
        ));
    }
    let unusable = |why: &dyn fmt::Display| {
        format!("spec.apiEndpoint, spec.proxyURL or caBundle cannot be used: {why}")
    };
    let way = Way {
        server: endpoint,
        authority: authority.filter(|_| !insecure).cloned().unwrap_or_default(),
        proxy: cluster.spec.proxy_url.clone().filter(|url| !url.is_empty()),
        insecure,
        ..Way::default()
    };
    let kubeconfig = serde_json::from_value(way.with_token(&cluster_name, token))
        .map_err(|error| unusable(&error))?;
    let options = KubeConfigOptions::default();
    let mut config = client::configured(kubeconfig, &options)
        .await
        .map_err(|error| unusable(&error))?;
    // The proxies of the control plane's own environment are not those of the member.
    if way.proxy.is_none() {
        config.proxy_url = None;
    }
    let is_empty = config.root_cert.as_ref().is_some_and(Vec::is_empty);
    if is_empty {
        return Err(unusable(&"caBundle has no certificate (PEM)"));
    }
    // Where nothing is verified, the machine's own authorities are not asked for: without one
    // (an image that has none) there would be no connection.
    config.root_cert.get_or_insert_default();
    client::connect(&config, Profile::Write).map_err(|error| unusable(&error))?;
    Ok(config)
}

/// Returns whether two configurations lead to the same server by the same way, so that only the
/// credentials differ.
pub fn is_same_server(a: &Config, b: &Config) -> bool {
    a.cluster_url == b.cluster_url
        && a.root_cert == b.root_cert
        && a.accept_invalid_certs == b.accept_invalid_certs
        && a.proxy_url == b.proxy_url
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    use serde_json::{Value, json};

    use super::*;

    fn authority() -> String {
        rcgen::generate_simple_self_signed(["m1".to_owned()])
            .unwrap()
            .cert
            .pem()
    }

    fn cluster(more: &Value) -> Cluster {
        let mut spec = json!({
            "syncMode": "Push", "apiEndpoint": "https://10.0.0.1:6443",
            "secretRef": { "namespace": "karmada-cluster", "name": "m1" },
        });
        spec.as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        serde_json::from_value(json!({ "metadata": { "name": "m1" }, "spec": spec })).unwrap()
    }

    fn secret(data: &Value, labels: &Value) -> Secret {
        serde_json::from_value(
            json!({ "metadata": { "labels": labels }, "stringData": {}, "data": data }),
        )
        .unwrap()
    }

    fn text(text: &str) -> String {
        STANDARD.encode(text)
    }

    #[tokio::test]
    async fn a_member_is_reached_with_the_token_of_its_secret() {
        muster_shared::tls::install_provider();
        let data = json!({ "token": text("secret-token\n"), "caBundle": text(&authority()) });
        let proxied = cluster(&json!({ "proxyURL": "http://proxy:3128" }));
        let config = connection(&proxied, Some(&secret(&data, &json!({}))))
            .await
            .unwrap();
        assert_eq!(config.cluster_url.to_string(), "https://10.0.0.1:6443/");
        assert_eq!(config.root_cert.as_ref().map(Vec::len), Some(1));
        assert_eq!(
            config.proxy_url.as_ref().unwrap().to_string(),
            "http://proxy:3128/"
        );
        assert!(!config.accept_invalid_certs);
        let other = json!({ "token": text("other"), "caBundle": text(&authority()) });
        let plain = connection(&cluster(&json!({})), Some(&secret(&data, &json!({}))))
            .await
            .unwrap();
        assert!(is_same_server(&config, &config) && !is_same_server(&config, &plain));
        let renewed = connection(&proxied, Some(&secret(&other, &json!({}))))
            .await
            .unwrap();
        assert!(
            !is_same_server(&config, &renewed),
            "another authority is another server"
        );
        let insecure = cluster(&json!({ "insecureSkipTLSVerification": true }));
        let config = connection(&insecure, Some(&secret(&data, &json!({}))))
            .await
            .unwrap();
        assert!(config.accept_invalid_certs);
        let authorities = config.root_cert.map(|it| it.len());
        assert_eq!(authorities, Some(0), "the machine's own are not read");
    }

    #[tokio::test]
    async fn what_is_missing_is_reported_with_its_place() {
        muster_shared::tls::install_provider();
        let sound = json!({ "token": text("t"), "caBundle": text(&authority()) });
        let elsewhere = json!({ "secretRef": { "namespace": "shop", "name": "db" } });
        let of = |cluster: &str| json!({ "failover.muster.io/cluster": cluster });
        let (plain, ours, theirs) = (json!({}), of("m1"), of("m2"));
        let (unplaced, unnamed) = (json!({"apiEndpoint": ""}), json!({"secretRef": null}));
        let tokenless = json!({ "caBundle": text("x") });
        let empty = json!({ "token": "" });
        let bare = json!({ "token": text("t") });
        let junk = json!({ "token": text("t"), "caBundle": text("x") });
        let gone = "karmada-cluster/m1 of spec.secretRef does not exist";
        let strange = "shop/db is not that of this cluster";
        for (more, data, labels, expected) in [
            (&unplaced, Some(&sound), &plain, "spec.apiEndpoint is empty"),
            (
                &unnamed,
                None,
                &plain,
                "spec.secretRef is empty: name a Secret with token and caBundle, as `kubectl muster join` does for a cluster that is not in the fleet yet",
            ),
            (&plain, None, &plain, gone),
            (&plain, Some(&tokenless), &plain, "no key token"),
            (&plain, Some(&empty), &plain, "no key token"),
            (&plain, Some(&bare), &plain, "no key caBundle"),
            (&plain, Some(&junk), &plain, "cannot be used"),
            (&elsewhere, Some(&sound), &plain, strange),
            (&elsewhere, Some(&sound), &theirs, strange),
            (&elsewhere, Some(&sound), &ours, ""),
        ] {
            let secret = data.map(|data| secret(data, labels));
            let found = connection(&cluster(more), secret.as_ref()).await;
            let reported = found.err().unwrap_or_default();
            assert!(
                reported.contains(expected) && expected.is_empty() == reported.is_empty(),
                "{more} {labels} {expected}: {reported}"
            );
        }
    }

    #[tokio::test]
    async fn what_no_client_can_use_is_no_connection() {
        const JUNK: &str = "-----BEGIN CERTIFICATE-----\nanVuaw==\n-----END CERTIFICATE-----\n";
        muster_shared::tls::install_provider();
        let sound = json!({ "token": text("t"), "caBundle": text(&authority()) });
        let token = json!({ "token": text("a\nb"), "caBundle": text(&authority()) });
        let junk = json!({ "token": text("t"), "caBundle": text(JUNK) });
        let proxy = json!({ "proxyURL": "ftp://proxy" });
        for (more, data, expected) in [
            (json!({}), token, "has line breaks"),
            (json!({}), junk, "cannot be used"),
            (proxy, sound, "cannot be used"),
        ] {
            let found = connection(&cluster(&more), Some(&secret(&data, &json!({})))).await;
            assert!(
                found.err().unwrap_or_default().contains(expected),
                "{more} {expected}"
            );
        }
    }
}
