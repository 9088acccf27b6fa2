//! Maintains the certificate of the admission server: creates it, publishes its authority, and
//! serves with it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::anyhow;
use jiff::Timestamp;
use kube::Client;
use kube::api::{Api, ApiResource, DynamicObject, Patch, PatchParams};
use kube::core::GroupVersionKind;
use muster_shared::client;
use muster_shared::clock::calendar;
use muster_shared::https::Certificate;
use muster_shared::k8s::{ObjectMeta, Secret};
use muster_shared::names::SYSTEM_NAMESPACE;
use muster_shared::queue::jittered;
use muster_shared::serve::Health;
use muster_shared::tasks::Tasks;
use muster_shared::write::post_params;
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::decide::{self, Held};
use super::issue::{Issued, issue};
use crate::fleet::Fleet;
use crate::fleet::api_error::ApiError;
use crate::settings::COMPONENT;

/// Name of the Secret at the fleet API, in the namespace of the control plane's own objects.
const SECRET: &str = "muster-webhook-tls";
/// Name of both webhook configurations (charts/control-plane/access/webhooks.yaml).
const CONFIGURATION: &str = "muster";
/// How often the Secret and the configurations are checked. A check writes nothing.
const CHECK_EVERY: Duration = Duration::from_secs(10);

struct Keeper {
    client: Client,
    /// DNS names and addresses of the server, sorted.
    names: Vec<String>,
    certificate: Arc<Certificate>,
    /// What was made and could not be stored yet: made anew at each check, it would be named anew
    /// at each check.
    unstored: Mutex<Option<Issued>>,
}

/// A webhook configuration that is there, and where it is.
type Configuration = (Api<DynamicObject>, Value);

/// Starts the task that keeps the certificate; `part` of `health` is ready once there is one to
/// serve with.
pub(crate) fn start(
    fleet: &Arc<Fleet>,
    certificate: Arc<Certificate>,
    health: Health,
    part: &'static str,
    tasks: &mut Tasks,
) {
    let mut names = fleet.settings.webhook_certificate_names.0.clone();
    names.sort_unstable();
    names.dedup();
    let keeper = Keeper {
        client: fleet.urgent_client.clone(),
        names,
        certificate,
        unstored: Mutex::default(),
    };
    let fleet = Arc::clone(fleet);
    tasks.spawn("serving certificate", async move {
        loop {
            match keeper.check(fleet.leadership.is_current()).await {
                Ok(()) => health.ready(part, Ok(())),
                Err(error) => {
                    tracing::warn!(%error, "the certificate of the admission server is not as it should be");
                    if !keeper.certificate.is_there() {
                        health.ready(part, Err(error.to_string()));
                    }
                }
            }
            keeper.certificate.measure(calendar());
            // A replica that waits for the first certificate checks more often.
            let pause = if keeper.certificate.is_there() {
                CHECK_EVERY
            } else {
                CHECK_EVERY / 10
            };
            tokio::select! {
                () = tokio::time::sleep(jittered(pause)) => {}
                () = fleet.shutdown.cancelled() => return,
            }
        }
    });
}

impl Keeper {
    /// Serves with what the Secret holds; the leader sees to it beforehand that this is good and
    /// trusted.
    async fn check(&self, leads: bool) -> anyhow::Result<()> {
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), SYSTEM_NAMESPACE);
        let found = client::get_opt(&secrets, SECRET).await;
        let found = found.map_err(ApiError::of("read", &"the Secret of the certificate"))?;
        let mut held = found.as_ref().and_then(Held::read);
        if leads {
            // As the API servers that are to trust it see the time.
            let now = calendar();
            if let Some(why) = decide::due(held.as_ref(), &self.names.join(","), now) {
                let configurations = self.configurations().await?;
                let made = self.make(held.as_ref(), &configurations, now)?;
                trust(&configurations, &made.authorities).await?;
                self.store(&secrets, found.as_ref(), &made).await?;
                self.unstored.lock().take();
                tracing::info!(why, names = %made.names, "made a new certificate for the admission server");
                held = Some(made);
            } else if let Some(held) = &held {
                trust(&self.configurations().await?, &held.authorities).await?;
            }
        }
        let secret = format!("Secret {SYSTEM_NAMESPACE}/{SECRET}");
        let held = held.ok_or_else(|| anyhow!("{secret} is not there yet: the leader makes it"))?;
        let given = self.certificate.give(held.certificate, held.key);
        if given
            .map_err(|it| anyhow!("cannot use {secret}: {it}; delete it, and it is made anew"))?
        {
            tracing::info!("serving with a new certificate");
        }
        Ok(())
    }

    fn make(
        &self,
        before: Option<&Held>,
        configurations: &[Configuration],
        now: Timestamp,
    ) -> anyhow::Result<Held> {
        let mut older = before.map_or_else(String::new, |held| held.authorities.clone());
        for (_, configuration) in configurations {
            older.push('\n');
            older.push_str(&decide::named(configuration));
        }
        let names = self.names.join(",");
        let held = |issued: &Issued| Held {
            authorities: decide::trusted(&issued.authority, &older, now),
            certificate: issued.certificate.clone().into_bytes(),
            key: issued.key.clone().into_bytes(),
            names: names.clone(),
        };
        let mut unstored = self.unstored.lock();
        if let Some(made) = unstored.as_ref().map(held)
            && decide::due(Some(&made), &names, now).is_none()
        {
            return Ok(made);
        }
        let issued = issue(&self.names, now).map_err(|error| {
            let names = &self.names;
            anyhow!(
                "cannot make a certificate for {names:?} (--webhook-certificate-names): {error}"
            )
        })?;
        Ok(held(unstored.insert(issued)))
    }

    /// Returns both configurations, as far as they are there.
    async fn configurations(&self) -> anyhow::Result<Vec<Configuration>> {
        let mut all = Vec::new();
        for kind in [
            "MutatingWebhookConfiguration",
            "ValidatingWebhookConfiguration",
        ] {
            let kind = GroupVersionKind::gvk("admissionregistration.k8s.io", "v1", kind);
            let api: Api<DynamicObject> =
                Api::all_with(self.client.clone(), &ApiResource::from_gvk(&kind));
            let found = client::get_opt(&api, CONFIGURATION).await;
            let found = found.map_err(ApiError::of("read", &"the webhook configuration"))?;
            all.extend(
                found
                    .and_then(|found| serde_json::to_value(found).ok())
                    .map(|value| (api, value)),
            );
        }
        Ok(all)
    }

    /// Writes the Secret, unless somebody else has written it meanwhile.
    async fn store(
        &self,
        secrets: &Api<Secret>,
        found: Option<&Secret>,
        held: &Held,
    ) -> anyhow::Result<()> {
        let data = held.data();
        let annotations = BTreeMap::from([(decide::NAMES.to_owned(), held.names.clone())]);
        let outcome = if let Some(found) = found {
            let patch = json!({
                "metadata": {
                    "uid": found.metadata.uid,
                    "resourceVersion": found.metadata.resource_version,
                    "annotations": annotations,
                },
                "data": data,
            });
            secrets
                .patch(SECRET, &PatchParams::default(), &Patch::Merge(&patch))
                .await
        } else {
            let secret = Secret {
                metadata: ObjectMeta {
                    name: Some(SECRET.to_owned()),
                    annotations: Some(annotations),
                    ..ObjectMeta::default()
                },
                data: Some(data),
                type_: Some("kubernetes.io/tls".to_owned()),
                ..Secret::default()
            };
            secrets.create(&post_params(COMPONENT), &secret).await
        };
        outcome.map_err(ApiError::of("write", &"the Secret of the certificate"))?;
        Ok(())
    }
}

/// Names the authorities in configurations, unless somebody else has written those meanwhile.
async fn trust(configurations: &[Configuration], authorities: &str) -> anyhow::Result<()> {
    for (api, configuration) in configurations {
        if let Some(patch) = decide::trust(configuration, authorities) {
            let (params, patch) = (PatchParams::default(), Patch::Merge(patch));
            let named = api.patch(CONFIGURATION, &params, &patch).await;
            named.map_err(ApiError::of(
                "name the authority in",
                &"the webhook configuration",
            ))?;
        }
    }
    Ok(())
}
