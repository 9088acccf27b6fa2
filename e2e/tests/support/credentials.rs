//! The Secret in a member that has the kubeconfig of its agent.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use kube::api::{Patch, PatchParams};
use muster_shared::k8s::{Api, Client, Namespace, Secret};
use muster_shared::tls;
use serde_json::{Value, json};

pub const NAMESPACE: &str = "karmada-system";
pub const SECRET: &str = "karmada-kubeconfig";

/// Makes the namespace of the Secret, as an installation of the chart does.
pub async fn make_namespace(member: &Client) {
    let namespaces: Api<Namespace> = Api::all(member.clone());
    let params = PatchParams::apply("test");
    let named = json!({"name": NAMESPACE});
    let patch = Patch::Apply(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": named}));
    namespaces.patch(NAMESPACE, &params, &patch).await.unwrap();
}

/// Returns the kubeconfig in the Secret.
pub fn text(secret: &Secret) -> Option<String> {
    let text = secret.data.as_ref()?.get(SECRET)?;
    String::from_utf8(text.0.clone()).ok()
}

/// Returns the end of the certificate in the Secret.
pub fn end(secret: &Secret) -> Option<Timestamp> {
    let kubeconfig: Value = serde_saphyr::from_str(&text(secret)?).ok()?;
    let certificate = kubeconfig["users"][0]["user"]["client-certificate-data"].as_str()?;
    tls::not_after(&STANDARD.decode(certificate).ok()?).ok()
}
