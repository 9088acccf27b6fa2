//! Labels with preserved state, kept as long as the copy that got them.
//!
//! The eviction task that carries the state is removed when the eviction is complete. In Karmada
//! the labels go with it, so that a copy that restarts later has lost its state. Here its Work
//! stores them, also while the gate `StatefulFailoverInjection` is off: the gate is about copies
//! that are made.

use serde_json::json;

use super::render::{Pairs, Rendered, add};
use crate::fleet::labelled::Labelled as _;
use crate::fleet::works::CachedWork;

/// Annotation of a Work: the labels, as a JSON object.
pub const PRESERVED: &str = "failover.muster.io/preserved-state";

/// Writes the state down that a Work is to be made with, or takes over what its Work as it is
/// (`held`) remembers.
pub fn keep(rendered: &mut Rendered, held: Option<&CachedWork>) {
    if rendered.preserved.is_empty() {
        let remembered = held.and_then(|work| work.metadata.annotation(PRESERVED));
        let remembered = remembered.and_then(|text| serde_json::from_str::<Pairs>(text).ok());
        rendered.preserved = remembered.unwrap_or_default();
    }
    if rendered.preserved.is_empty() {
        return;
    }
    add(&mut rendered.manifest, "labels", &rendered.preserved);
    let text = json!(rendered.preserved).to_string();
    rendered.annotations.insert(PRESERVED.to_owned(), text);
}

#[cfg(test)]
mod tests {
    use muster_shared::api::binding::ResourceBindingSpec;
    use serde_json::Value;

    use super::super::compare;
    use super::super::leaving_tests::bound;
    use super::super::render::{Origin, render_plain};
    use super::super::replacing_tests::to;
    use super::*;
    use crate::fleet::testing::{cluster, deployment, key, pass};

    fn rendered(tasks: &Value, clusters: &[&str]) -> Rendered {
        let clusters: Vec<_> = clusters
            .iter()
            .map(|name| json!({ "name": name }))
            .collect();
        let spec = json!({
            "resource": { "apiVersion": "v1", "kind": "ConfigMap", "name": "web" },
            "clusters": clusters,
            "gracefulEvictionTasks": tasks,
        });
        let spec: ResourceBindingSpec = serde_json::from_value(spec).unwrap();
        let template = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": { "name": "web", "namespace": "default", "labels": { "app": "web" } },
        });
        let origin = Origin {
            key: key("web-configmap"),
            id: "id".to_owned(),
        };
        render_plain(&origin, &spec, &template, true)
            .unwrap()
            .remove(0)
    }

    fn held(rendered: &Rendered) -> CachedWork {
        serde_json::from_value(compare::create(rendered)).unwrap()
    }

    #[test]
    fn the_labels_of_a_state_stay_when_the_task_that_brought_them_has_ended() {
        let task = json!([{
            "fromCluster": "m1", "purgeMode": "Directly", "reason": "ApplicationFailure", "producer": "p",
            "preservedLabelState": { "job": "abc" }, "clustersBeforeFailover": ["m1"],
        }]);
        let mut moving = rendered(&task, &["m2"]);
        keep(&mut moving, None);
        let both = json!({ "app": "web", "job": "abc" });
        let labels = &moving.manifest["metadata"]["labels"];
        assert_eq!(labels["job"], both["job"]);
        assert_eq!(labels["app"], both["app"], "those of the template stay");
        let work = held(&moving);
        let mut later = rendered(&json!([]), &["m2"]);
        assert_eq!(later.manifest["metadata"]["labels"].get("job"), None);
        keep(&mut later, Some(&work));
        assert_eq!(later.manifest["metadata"]["labels"]["job"], "abc");
        assert_eq!(
            compare::patch(&work, &later),
            None,
            "nothing is written when the task ends"
        );
        // Nor when the application grows into a second cluster.
        let mut grown = rendered(&json!([]), &["m2", "m3"]);
        keep(&mut grown, Some(&work));
        assert_eq!(compare::patch(&work, &grown), None);
    }

    #[test]
    fn a_work_that_remembers_nothing_or_something_unreadable_gets_no_labels() {
        let mut plain = rendered(&json!([]), &["m2"]);
        let before = plain.clone();
        keep(&mut plain, Some(&held(&before)));
        assert_eq!(plain, before);
        let mut odd = held(&before);
        let annotations = Pairs::from([(PRESERVED.to_owned(), "{".to_owned())]);
        odd.metadata.annotations = Some(annotations);
        keep(&mut plain, Some(&odd));
        assert_eq!(plain, before);
    }

    #[tokio::test(start_paused = true)]
    async fn the_labels_of_a_state_stay_although_the_gate_is_switched_off() {
        // The gate is off by default.
        let mut bench = bound([cluster("m2")], deployment(2), to(&["m2"], 1), []);
        bench.follow_for(10).await;
        let mut work = bench.api.all("works").remove(0);
        let labels =
            |work: &Value| work["spec"]["workload"]["manifests"][0]["metadata"]["labels"].clone();
        assert_eq!(labels(&work)["job"], Value::Null);
        // The copy was made when the gate was on.
        work["metadata"]["annotations"][PRESERVED] = json!(r#"{"job":"abc"}"#);
        work["spec"]["workload"]["manifests"][0]["metadata"]["labels"]["job"] = json!("abc");
        bench.api.put("works", work);
        bench.api.put("resourcebindings", to(&["m2"], 2));
        pass(10).await;
        assert_eq!(labels(&bench.api.all("works")[0])["job"], "abc");
    }
}
