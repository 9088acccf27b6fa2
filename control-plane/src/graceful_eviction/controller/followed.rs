//! Which bindings are looked at when something around them changes, and what is told of their
//! tasks.

use super::*;
use crate::fleet::testing::Stand;

#[tokio::test(start_paused = true)]
async fn bindings_with_tasks_are_looked_at_when_something_around_them_changes() {
    let task = json!([{"fromCluster": "m1", "reason": "r", "producer": "p"}]);
    let binding = |name: &str, namespace: Option<&str>, tasks: serde_json::Value| {
        let resource = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": name});
        json!({
            "metadata": {"namespace": namespace, "name": name},
            "spec": {"resource": resource, "gracefulEvictionTasks": tasks},
        })
    };
    let stand = Stand::followed([
        (
            "resourcebindings",
            binding("leaves", Some("shop"), task.clone()),
        ),
        (
            "resourcebindings",
            binding("stays", Some("shop"), json!([])),
        ),
        ("clusterresourcebindings", binding("leaves", None, task)),
        ("clusterresourcebindings", binding("stays", None, json!([]))),
    ])
    .await;
    for namespace in [None, Some("shop".to_owned())] {
        for (name, expected) in [("leaves", true), ("stays", false), ("unknown", false)] {
            let (namespace, name) = (namespace.clone(), name.to_owned());
            let key = BindingKey { namespace, name };
            assert_eq!(waits(&stand.fleet, &key), expected, "{key}");
        }
    }
    let queue = Queue::new("test");
    enqueue_all::<ResourceBinding>(&stand.fleet, &queue);
    assert_eq!(queue.len(), 1);
    enqueue_all::<ClusterResourceBinding>(&stand.fleet, &queue);
    assert_eq!(queue.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn how_an_eviction_ended_is_told_of_the_binding_and_of_its_template() {
    use crate::graceful_eviction::assess::Done;
    let resource =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "namespace": "shop", "name": "c"});
    let binding = json!({
        "metadata": {"namespace": "shop", "name": "c-configmap"}, "spec": {"resource": resource},
    });
    let stand = Stand::followed([("resourcebindings", binding)]).await;
    let binding = stand.fleet.bindings.get(Some("shop"), "c-configmap");
    let binding = binding.unwrap();
    let assessment = Assessment {
        done: vec![
            ("m1".to_owned(), Done::Expired),
            ("m2".to_owned(), Done::Recovered),
        ],
        ..Assessment::default()
    };
    let key = BindingKey::of(binding.as_ref());
    tell(&stand.fleet, binding.as_ref(), &key, &assessment);
    let mut told = stand.api.told().await;
    told.sort();
    let reasons = [
        "EvictWorkloadFromClusterAbandoned",
        "EvictWorkloadFromClusterSucceed",
    ];
    let expected = ["c", "c-configmap"]
        .into_iter()
        .flat_map(|about| reasons.map(|reason| (about.to_owned(), reason.to_owned())));
    assert_eq!(told, expected.collect::<Vec<_>>());
}
