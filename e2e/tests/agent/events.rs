//! What the agent says in events about Works.

use muster_shared::api::binding::ResourceHealth;
use serde_json::json;

use crate::agent::bench::{Bench, deployment, until};

/// Checks that what cannot be interpreted is reported: a member may hold what its schema would not
/// let in today.
#[tokio::test]
async fn what_cannot_be_interpreted_is_reported_in_an_event_and_the_last_report_stays() {
    let (bench, _agent) = Bench::with_agent().await;
    let balancer = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "balancer", "namespace": "default"},
        "spec": {"type": "LoadBalancer", "selector": {"app": "web"}, "ports": [{"port": 80}]}});
    for (name, manifest) in [("web", deployment("web")), ("balancer", balancer)] {
        bench.apply(name, json!([manifest])).await;
        until(&bench.works(), name, "it is reported", |work| {
            let status = work.status.as_ref();
            let first = status.and_then(|status| status.manifest_statuses.first());
            let health = first.and_then(|first| first.health.as_ref());
            health.is_some_and(|health| *health != ResourceHealth::Unknown)
        })
        .await;
    }
    let health = async |name: &str| {
        let work = bench.works().get(name).await.unwrap();
        work.status.unwrap().manifest_statuses[0].health.clone()
    };
    let before = health("web").await;
    for (group, plural, name, status) in [
        ("apps", "deployments", "web", json!({"replicas": "many"})),
        (
            "",
            "services",
            "balancer",
            json!({"loadBalancer": {"ingress": "somewhere"}}),
        ),
    ] {
        let seeds = bench.member.seeds(group, "v1", plural).unwrap();
        let mut object = seeds.get("default", name).unwrap();
        object["status"] = status;
        seeds.put(object).unwrap();
    }
    for (work, reason, text) in [
        (
            "web",
            "ReflectStatusFailed",
            "Reflect status for object(Deployment/default/web) failed, err: ",
        ),
        (
            "balancer",
            "InterpretHealthFailed",
            "Interpret health of object(Service/default/balancer) failed, err: ",
        ),
    ] {
        let event = bench.reported(work, reason).await;
        assert_eq!(event.type_.as_deref(), Some("Warning"));
        let message = event.message.unwrap();
        assert!(message.starts_with(text), "{message}");
    }
    assert_eq!(health("web").await, before);
    until(
        &bench.works(),
        "balancer",
        "its health is unknown",
        |work| {
            let reported = &work.status.as_ref().unwrap().manifest_statuses[0];
            reported.health == Some(ResourceHealth::Unknown)
        },
    )
    .await;
}
