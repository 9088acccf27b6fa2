//! Silences: noticed in time, and never imagined.

use std::time::Duration;

use crate::heartbeats::{self, GRACE, Setting, exactly, ready, silent};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, Patch, PatchParams};
use muster_e2e::harness::apply::apply;
use muster_e2e::harness::route::Condition;
use serde_json::json;
use tokio::time::Instant;

/// How late a silence may be noticed here, beside the last heartbeat's age: tests share their
/// machine with other tests.
const LATE: Duration = Duration::from_secs(3);

#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_is_cut_off_just_after_it_joined_is_missed_after_one_grace() {
    let start_up = "--cluster-startup-grace-period=60s".to_owned();
    heartbeats::run(
        Setting::named("just-joined", 1).flag(start_up),
        async |fleet| {
            // Joins while the control plane listens, so that its start-up grace begins before it is
            // heard.
            fleet.join("late")?;
            heartbeats::until(fleet, "it is ready", |view| ready(view, "late")).await?;
            let cut = Instant::now();
            fleet.cut(["late"]);
            heartbeats::until(fleet, "it is missed", |view| silent(view, "late")).await?;
            assert!(
                cut.elapsed() < GRACE + LATE,
                "missed after {:?}",
                cut.elapsed()
            );
            assert!(
                cut.elapsed() > heartbeats::AT_LEAST,
                "missed too early, after {:?}",
                cut.elapsed()
            );
            Ok(())
        },
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn while_the_control_plane_is_cut_off_itself_nobody_is_taken_for_silent() {
    heartbeats::run(
        Setting::named("own-network", 6).flag("--leader-elect=false".to_owned()),
        async |fleet| {
            fleet.place("web", "member1", &serde_json::Value::Null)?;
            fleet.to_fleet.set(Condition::Silent);
            // This one really dies meanwhile, and nobody can know.
            fleet.cut(["member6"]);
            let away = GRACE + Duration::from_secs(1);
            heartbeats::holds(
                fleet,
                "nobody is judged unheard",
                away,
                heartbeats::nobody_silent,
            )
            .await?;
            let back = Instant::now();
            fleet.to_fleet.set(Condition::Up);
            heartbeats::until(fleet, "the dead one is missed", |view| {
                silent(view, "member6")
            })
            .await?;
            let after = back.elapsed();
            assert!(
                after + Duration::from_millis(500) > heartbeats::AT_LEAST,
                "it had a full grace after the outage, not {after:?}"
            );
            let time = Duration::from_secs(1);
            heartbeats::holds(fleet, "the others are alive", time, |view| {
                heartbeats::nobody_silent_but(view, "member6")
            })
            .await?;
            assert_eq!(heartbeats::leaving(fleet), 0, "nobody was evicted");
            Ok(())
        },
    )
    .await;
}

/// Checks a silence under a policy of two taints, one of which the API refuses, as Karmada's does.
#[tokio::test(flavor = "multi_thread")]
async fn a_taint_that_the_api_refuses_keeps_no_other_from_coming_and_going() {
    heartbeats::run(Setting::named("refused-taint", 2), async |fleet| {
        let definitions: Api<CustomResourceDefinition> = Api::all(fleet.client.clone());
        let effects = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/taints/items/properties/effect/enum";
        let patch = json!([
            { "op": "replace", "path": effects, "value": ["NoSchedule", "NoExecute"] },
        ]);
        let patch: Patch<()> = Patch::Json(serde_json::from_value(patch)?);
        definitions
            .patch("clusters.cluster.karmada.io", &PatchParams::default(), &patch)
            .await?;
        let policy = r#"
apiVersion: policy.karmada.io/v1alpha1
kind: ClusterTaintPolicy
metadata:
  name: silent-clusters
spec:
  matchConditions:
    - conditionType: Ready
      operator: NotIn
      statusValues: ["True"]
  taintsToAdd:
    - { key: example.com/soft, effect: PreferNoSchedule, addOnMatchSeconds: 1, removeOnMismatchSeconds: 1 }
    - { key: example.com/hard, effect: NoExecute, addOnMatchSeconds: 1, removeOnMismatchSeconds: 1 }
"#;
        apply(&fleet.client, policy).await?;
        fleet.cut(["member2"]);
        heartbeats::until(fleet, "the other taint comes", |view| {
            exactly(1, "are tainted", heartbeats::tainted(view))
        })
        .await?;
        heartbeats::told(fleet, "member2", &["TaintRefused"]).await?;
        heartbeats::told(fleet, "silent-clusters", &["TaintRefused"]).await?;
        fleet.heal(["member2"]);
        heartbeats::until(fleet, "it goes", |view| {
            exactly(0, "are tainted", heartbeats::tainted(view))
        })
        .await?;
        Ok(())
    })
    .await;
}
