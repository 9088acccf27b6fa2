//! Signs the public ConfigMap `cluster-info` with every bootstrap token that is for signing, as
//! kube-controller-manager does where its controller `bootstrapsigner` is on (kubeadm and Karmada
//! switch it on).

use std::collections::BTreeMap;

use serde_json::Value;

use super::Inside;
use crate::auth::bootstrap_tokens::{self, INFO, NAMESPACE, PREFIX};
use crate::context::Notice;
use crate::registry::Served;

/// What the keys of signatures begin with.
const SIGNATURE: &str = "jws-kubeconfig-";

/// The controller of the signatures.
pub struct BootstrapSigner {
    inside: Inside,
    maps: Served,
    secrets: Served,
}

impl BootstrapSigner {
    /// Returns a controller that has seen nothing yet.
    pub fn new(inside: Inside) -> Self {
        let maps = inside.builtin("", "configmaps");
        let secrets = inside.builtin("", "secrets");
        Self {
            inside,
            maps,
            secrets,
        }
    }

    /// Takes note of a change.
    pub async fn observe(&self, notice: &Notice) {
        let head = &notice.object.head;
        let concerns = notice.group.is_empty()
            && bootstrap_tokens::concerns(&notice.plural, head.namespace(), head.name());
        if concerns {
            self.sign().await;
        }
    }

    async fn sign(&self) {
        let key = format!("{}/{}", INFO.0, INFO.1);
        let Some(map) = self.maps.resource.collection.get(&key) else {
            return;
        };
        let wanted = |map: &Value| {
            let payload = map["data"]["kubeconfig"].as_str()?;
            let wanted = self.signatures(payload);
            let mut new = map.clone();
            let data = new["data"].as_object_mut()?;
            data.retain(|key, _| !key.starts_with(SIGNATURE));
            data.extend(wanted.into_iter().map(|(key, value)| (key, value.into())));
            (new != *map).then_some(new)
        };
        if wanted(&map.value()).is_none() {
            return;
        }
        let signed = self.inside.change(&self.maps, (INFO.0, INFO.1, ""), wanted);
        if let Err(refusal) = signed.await {
            tracing::debug!(%refusal, "signing cluster-info");
        }
    }

    fn signatures(&self, payload: &str) -> BTreeMap<String, String> {
        let prefix = format!("{NAMESPACE}/{PREFIX}");
        let secrets = self.secrets.resource.collection.present(&prefix);
        let tokens = secrets
            .iter()
            .filter(|o| o.head.field("type") == Some(bootstrap_tokens::SECRET) && !o.head.deleting);
        let now = self.inside.server.clock.now();
        let signed = |data: &Value| bootstrap_tokens::signature(data, payload, now);
        tokens
            .filter_map(|it| signed(&it.value()["data"]))
            .collect()
    }
}
