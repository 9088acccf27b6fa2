//! Which bindings are looked at when something around them changes.

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
