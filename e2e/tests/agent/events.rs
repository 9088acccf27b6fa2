//! What the agent says in events about Works.

use std::time::Duration;

use kube::api::ListParams;
use muster_shared::api::binding::ResourceHealth;
use muster_shared::k8s::{Api, Event};
use serde_json::json;
use tokio::time::{sleep, timeout};

use crate::bench::{Bench, WORKS, deployment, until};

/// A member may hold what its schema would not let in today.
#[tokio::test]
async fn what_cannot_be_interpreted_is_told_in_an_event_and_the_last_report_stays() {
    let bench = Bench::start().await;
    let _agent = bench.agent();
    bench.joined().await;
    let balancer = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "balancer", "namespace": "default"},
        "spec": {"type": "LoadBalancer", "selector": {"app": "web"}, "ports": [{"port": 80}]}});
    for (name, manifest) in [("web", deployment("web")), ("balancer", balancer)] {
        bench
            .create_work(name, |work| {
                work["spec"]["workload"]["manifests"] = json!([manifest]);
            })
            .await;
        bench.applied(name, "True").await;
        until(&bench.works(), name, "it is reported", |work| {
            work.status
                .as_ref()
                .is_some_and(|status| !status.manifest_statuses.is_empty())
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
    let events: Api<Event> = Api::namespaced(bench.fleet_client.clone(), WORKS);
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
        let told = async {
            loop {
                let all = events.list(&ListParams::default()).await.unwrap();
                let warned = all.items.into_iter().find(|event| {
                    event.reason.as_deref() == Some(reason)
                        && event.involved_object.name.as_deref() == Some(work)
                });
                if let Some(event) = warned {
                    return event;
                }
                sleep(Duration::from_millis(50)).await;
            }
        };
        let event = timeout(Duration::from_mins(1), told).await.unwrap();
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

/// Waits for a warning with this reason, and gives its words.
pub async fn told(events: &Api<Event>, reason: &str) -> String {
    let told = async {
        loop {
            let all = events.list(&ListParams::default()).await.unwrap();
            let mut warned = all.items.into_iter();
            if let Some(event) = warned.find(|it| it.reason.as_deref() == Some(reason)) {
                return event.message.unwrap_or_default();
            }
            sleep(Duration::from_millis(50)).await;
        }
    };
    timeout(Duration::from_mins(1), told).await.unwrap()
}
