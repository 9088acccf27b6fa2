//! Admission webhooks: validate policies, and write Karmada's defaults into them.
//!
//! The API server asks over HTTPS before it stores an object: `/mutate` for changes, `/validate`
//! for approval. Every replica answers, whether it leads or not. Without `--cert-dir` and
//! `--webhook-certificate-names` nothing is served, and everything works as without admission:
//! problems are then reported by events and conditions.

pub mod advice;
pub mod binding;
pub mod cluster;
mod customization;
mod data_replication;
mod failback;
mod fencing;
mod interpreter_webhook;
mod needs;
mod obeyed;
pub mod override_policy;
mod placement;
pub mod policy;
pub mod problem;
pub mod review;
mod serving;
pub mod taint_policy;

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Context;
use http::StatusCode;
use kube::ResourceExt;
use muster_interpreter::Operation;
use muster_interpreter::lua::Customization;
use muster_shared::api::cluster::ClusterSyncMode;
use muster_shared::api::policy::Placement;
use muster_shared::https::{self, Certificate, Reply};
use muster_shared::k8s::ObjectMeta;
use muster_shared::serve::Health;
use muster_shared::tasks::Tasks;
use serde::Deserialize;
use tokio::time::Instant;

use crate::fleet::Fleet;
use crate::scheduler::controller::affected::Choice;
use policy::Policy;
use review::Question;

/// An object, as far as admission is concerned.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Object<S> {
    /// Standard metadata.
    pub metadata: ObjectMeta,
    /// Its desired state.
    pub spec: S,
}

/// Name of the part in `/readyz`.
const PART: &str = "webhook";

/// Serves admission, if there is a directory of certificates or names to make one for. A
/// certificate may come later: until then the process is not ready. Gives the certificate that is
/// to be kept by [`keep_certificate`], if none is brought.
///
/// # Errors
/// When the address cannot be had.
pub async fn start(
    fleet: &Arc<Fleet>,
    health: &Health,
    tasks: &mut Tasks,
) -> anyhow::Result<Option<Arc<Certificate>>> {
    let settings = &fleet.settings;
    let brought = settings.cert_dir.as_ref();
    if !settings.serves_admission() {
        return Ok(None);
    }
    health.expect(PART);
    let certificate = Arc::new(brought.map_or_else(Certificate::default, |directory| {
        Certificate::new(
            directory.join(&settings.tls_cert_file_name),
            directory.join(&settings.tls_private_key_file_name),
        )
    }));
    let address = SocketAddr::new(settings.bind_address, settings.secure_port);
    let listener = muster_shared::serve::listen(address)
        .await
        .with_context(|| format!("cannot serve admission on {address}"))?;
    tracing::info!(%address, "answering admission reviews");
    let shutdown = tasks.shutdown().clone();
    let kept = brought.is_none().then(|| Arc::clone(&certificate));
    if brought.is_some() {
        tasks.spawn(
            "serving certificate",
            Arc::clone(&certificate).follow(health.clone(), PART, shutdown.clone()),
        );
    }
    // Endpoints are asked to send no more reviews while the server still answers those that come.
    let (closing, reported) = (shutdown.clone(), health.clone());
    tasks.spawn("webhook shutdown", async move {
        closing.cancelled().await;
        reported.ready("shutdown", Err("under way".to_owned()));
    });
    let shared = Arc::clone(fleet);
    let answer = move |path: &str, body: &[u8]| reply(path, body, &shared);
    tasks.spawn(
        "webhook server",
        https::serve(listener, certificate, Arc::new(answer), shutdown),
    );
    Ok(kept)
}

/// Returns the warnings about a policy.
fn advise(fleet: &Fleet, policy: &Policy) -> Vec<String> {
    let (spec, namespace) = (&policy.spec, policy.metadata.namespace.as_deref());
    let has_cluster = |name: &str| fleet.clusters.presence(None, name).may_exist();
    let asks = |api_version: &str, kind: &str| {
        let operation = Operation::InterpretReplica;
        fleet.interpreters.has(api_version, kind, operation)
    };
    let mut all = advice::warnings(policy, &fleet.scope, &fleet.settings, has_cluster);
    all.extend(fencing::advice(spec, &pushed(fleet, &spec.placement), asks));
    all.extend(needs::advice(fleet, spec, namespace));
    all.extend(obeyed::advice(spec));
    all
}

/// Returns the clusters of sync mode Push that a placement may choose.
fn pushed(fleet: &Fleet, placement: &Placement) -> Vec<String> {
    let choice = Choice::of(placement);
    let clusters = fleet.clusters.list();
    let pushed = clusters
        .iter()
        .filter(|it| it.spec.sync_mode == ClusterSyncMode::Push && choice.has(it));
    let mut names: Vec<_> = pushed.map(|cluster| cluster.name_any()).collect();
    names.sort_unstable();
    names
}

/// Makes and renews the certificate of the admission server, and names its authority to the fleet
/// API.
pub fn keep_certificate(
    fleet: &Arc<Fleet>,
    certificate: Arc<Certificate>,
    health: &Health,
    tasks: &mut Tasks,
) {
    serving::start(fleet, certificate, health.clone(), PART, tasks);
}

/// Answers a request, and counts it.
fn reply(path: &str, body: &[u8], fleet: &Fleet) -> Reply {
    let begun = Instant::now();
    let question = match path {
        "/mutate" => Question::Default,
        "/validate" => Question::Check,
        _ => {
            return (
                StatusCode::NOT_FOUND,
                b"here are /mutate and /validate\n".to_vec(),
            );
        }
    };
    let customizations = || {
        let all = fleet.customizations.informer().list();
        all.iter().map(|it| Customization::of(it)).collect()
    };
    let advise = |policy: &Policy| advise(fleet, policy);
    let (settings, now) = (&fleet.settings, fleet.clock.now());
    let (kind, operation, allowed, reply) =
        match review::answer(question, body, settings, now, &customizations, &advise) {
            Ok(answer) => {
                let allowed = if answer.allowed { "true" } else { "false" };
                let text = answer.review.to_string().into_bytes();
                (
                    answer.kind,
                    answer.operation,
                    allowed,
                    (StatusCode::OK, text),
                )
            }
            Err(error) => {
                tracing::warn!(%error, path, "refused an admission review");
                let text = format!("{error}\n").into_bytes();
                let reply = (StatusCode::BAD_REQUEST, text);
                ("other".to_owned(), "other", "error", reply)
            }
        };
    metrics::counter!("muster_webhook_requests_total",
        "path" => question.path(), "kind" => kind.clone(), "operation" => operation, "allowed" => allowed)
    .increment(1);
    metrics::histogram!("muster_webhook_duration_seconds", "path" => question.path(), "kind" => kind)
        .record(begun.elapsed().as_secs_f64());
    reply
}

impl Question {
    fn path(self) -> &'static str {
        match self {
            Self::Default => "mutate",
            Self::Check => "validate",
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::fleet::testing::{self, Bench};

    #[tokio::test(start_paused = true)]
    async fn a_pushed_cluster_is_named_in_whichever_way_a_placement_may_choose_it() {
        let mut push = testing::cluster("m2");
        push["spec"]["syncMode"] = json!("Push");
        let clusters = [testing::cluster("m1"), push];
        let bench = Bench::followed(clusters.map(|it| ("clusters", it))).await;
        let (m1, m2) = (json!(["m1"]), json!(["m2"]));
        let group = |overflow| {
            json!({"clusterAffinities": [{
                "affinityName": "home", "clusterNames": m1,
                "overflowAffinities": [{"affinityName": "more", "clusterNames": overflow}],
            }]})
        };
        for (what, placement, expected) in [
            ("any cluster", json!({}), &["m2"][..]),
            (
                "one affinity",
                json!({"clusterAffinity": {"clusterNames": m2}}),
                &["m2"],
            ),
            (
                "another one",
                json!({"clusterAffinity": {"clusterNames": m1}}),
                &[],
            ),
            ("what overflows", group(&m2), &["m2"]),
            ("what overflows elsewhere", group(&m1), &[]),
        ] {
            let placement: Placement = serde_json::from_value(placement).unwrap();
            assert_eq!(pushed(&bench.fleet, &placement), expected, "{what}");
        }
    }
}
