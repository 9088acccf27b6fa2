//! Warnings at admission about what workloads need and no policy takes along.

use std::collections::BTreeSet;
use std::sync::Arc;

use muster_interpreter::dependencies;
use muster_shared::api::policy::PropagationSpec;
use muster_shared::watch::outline::{Labels, Outline};

use crate::fleet::Fleet;
use crate::fleet::binding::BindingKey;
use crate::fleet::selection::{Strength, Subject, given, strength};
use crate::fleet::template::{Kind, TemplateKey};
use crate::fleet::template_event::Lookup;

/// Workloads of one selector that are examined.
const MOST_WORKLOADS: usize = 100;
/// Objects that one warning lists.
const MOST_NAMES: usize = 5;

/// Returns a warning about objects that workloads of a policy refer to and that neither this policy
/// nor another one propagates; none where the policy takes them along. `namespace` is that of the
/// policy. Only workloads that the caches have are known.
pub fn advice(fleet: &Fleet, spec: &PropagationSpec, namespace: Option<&str>) -> Vec<String> {
    let mut missing = BTreeSet::new();
    if !spec.propagate_deps {
        for selector in &spec.resource_selectors {
            let kind = Arc::new(Kind::new(&*selector.api_version, &*selector.kind));
            let within = namespace.or_else(|| given(selector.namespace.as_deref()));
            let Some(within) = within else { continue };
            let is_selected =
                |it: Outline<'_>| strength(selector, Subject::at(&kind, it)) > Strength::Mismatch;
            let workloads = fleet.templates.select(&kind, Some(within), is_selected);
            for template in workloads.into_iter().flatten().take(MOST_WORKLOADS) {
                let key = TemplateKey::of_template(&kind, &template);
                let needs = dependencies(&template.object(&kind)).ok().flatten();
                let needs = needs
                    .iter()
                    .flatten()
                    .filter_map(TemplateKey::of_dependency);
                let needs = needs.filter(|needed| !is_propagated(fleet, spec, needed));
                missing.extend(needs.map(|needed| format!("{needed} (for {key})")));
            }
        }
    }
    if missing.is_empty() {
        return Vec::new();
    }
    let mut names: Vec<String> = missing.iter().take(MOST_NAMES).cloned().collect();
    if missing.len() > MOST_NAMES {
        names.push("...".to_owned());
    }
    vec![format!(
        "spec.propagateDeps is not true, and no policy propagates what these workloads refer to, so that they cannot start in a member \
         that lacks it: {}",
        names.join(", ")
    )]
}

/// Returns whether an object goes to members: a binding has it, or the policy selects it, too.
fn is_propagated(fleet: &Fleet, spec: &PropagationSpec, needed: &TemplateKey) -> bool {
    let key = BindingKey::for_template(needed);
    let found = fleet.templates.get(needed);
    let labels = Labels::Map(match &found {
        Lookup::Found(template) => template.labels(),
        Lookup::Absent | Lookup::Unknown => None,
    });
    let subject = Subject {
        kind: &needed.kind,
        namespace: needed.namespace.as_deref(),
        name: &needed.name,
        labels,
    };
    let mut selectors = spec.resource_selectors.iter();
    fleet.bindings.get(&key).is_some()
        || selectors.any(|selector| strength(selector, subject) > Strength::Mismatch)
}

#[cfg(test)]
mod tests {
    use muster_shared::merge;
    use serde_json::{Value, json};

    use super::*;
    use crate::fleet::testing::{Bench, binding};

    /// Returns a fleet with a Deployment that needs a ConfigMap, and whatever else.
    async fn bench(more: Option<Value>) -> Bench {
        let volume = json!({"name": "c", "configMap": {"name": "conf"}});
        let web = json!({
            "metadata": {"namespace": "shop", "name": "web"},
            "spec": {"template": {"spec": {"volumes": [volume]}}},
        });
        let objects = [("deployments", web), ("resourcebindings", binding())];
        let more = more.map(|it| ("resourcebindings", it));
        let mut bench = Bench::new(objects.into_iter().chain(more));
        bench.api.serve_deployments();
        bench.fleet.follow_templates();
        bench.follow_for(5).await;
        bench
    }

    fn said(bench: &Bench, more: &Value) -> Vec<String> {
        let mut spec =
            json!({"resourceSelectors": [{"apiVersion": "apps/v1", "kind": "Deployment"}]});
        merge::apply(&mut spec, more);
        let spec: PropagationSpec = serde_json::from_value(spec).unwrap();
        advice(&bench.fleet, &spec, Some("shop"))
    }

    #[tokio::test(start_paused = true)]
    async fn what_a_workload_needs_and_no_policy_takes_along_is_named() {
        let bench = bench(None).await;
        let warnings = said(&bench, &json!({}));
        let named = "ConfigMap shop/conf (for Deployment shop/web)";
        assert!(
            warnings.len() == 1 && warnings[0].contains(named),
            "{warnings:?}"
        );
        assert_eq!(said(&bench, &json!({"propagateDeps": true})), [""; 0]);
        let both = json!({"resourceSelectors": [
            {"apiVersion": "apps/v1", "kind": "Deployment"},
            {"apiVersion": "v1", "kind": "ConfigMap", "name": "conf"},
        ]});
        assert_eq!(
            said(&bench, &both),
            [""; 0],
            "it selects the ConfigMap, too"
        );
        let other = json!({"resourceSelectors": [
            {"apiVersion": "apps/v1", "kind": "Deployment", "name": "other"},
        ]});
        assert_eq!(said(&bench, &other), [""; 0], "it selects another workload");
    }

    #[tokio::test(start_paused = true)]
    async fn what_another_policy_propagates_is_not_missing() {
        let mut conf = binding();
        conf["metadata"]["name"] = json!("conf-configmap");
        conf["spec"]["resource"] =
            json!({"apiVersion": "v1", "kind": "ConfigMap", "namespace": "shop", "name": "conf"});
        let bench = bench(Some(conf)).await;
        assert_eq!(said(&bench, &json!({})), [""; 0]);
    }
}
