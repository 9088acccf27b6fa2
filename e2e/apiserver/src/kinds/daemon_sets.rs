//! Daemon sets count the changes of their template in an annotation, from before there were
//! controller revisions.

use serde_json::Value;

use super::Strategy;

const TEMPLATE_GENERATION: &str = "deprecated.daemonset.template.generation";

pub(super) struct DaemonSets;

impl Strategy for DaemonSets {
    fn prepare_for_create(&self, object: &mut Value) {
        object["metadata"]["annotations"][TEMPLATE_GENERATION] = "1".into();
    }

    fn prepare_for_update(&self, old: &Value, new: &mut Value) {
        let count = old["metadata"]["annotations"][TEMPLATE_GENERATION].as_str();
        let count: u64 = count.and_then(|c| c.parse().ok()).unwrap_or(1);
        let grown = u64::from(old["spec"]["template"] != new["spec"]["template"]);
        new["metadata"]["annotations"][TEMPLATE_GENERATION] = (count + grown).to_string().into();
    }
}
