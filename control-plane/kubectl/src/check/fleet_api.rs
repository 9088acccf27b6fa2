//! Checks of the fleet API itself, and of its definitions.

use std::collections::BTreeSet;

use muster_control_plane::fleet_api::is_newer;
use muster_control_plane::fleet_api::unfit;
use muster_shared::check::common::{clock, life, reach};
use muster_shared::check::{Answer, Asker, Category, listed};
use muster_shared::k8s::{CustomResourceDefinition, ObjectList, ResourceExt as _};
use muster_shared::names::annotation::VERSION;
use serde_json::Value;

use super::facts::Facts;

/// Oldest Kubernetes of a fleet API: admission policies are served from there on.
pub(super) const OLDEST: (u32, u32) = (1, 30);
/// Version of this program.
pub(super) const OWN: &str = env!("CARGO_PKG_VERSION");
/// Fields that one line names.
const MOST: usize = 5;

/// Returns whether the API answers.
pub(super) fn check(category: &mut Category, facts: &Facts) -> bool {
    if !reach(category, &facts.server, &facts.version, OLDEST) {
        return false;
    }
    if facts.verified {
        category.ok("verified", "the server's certificate is verified");
    } else {
        category.warning(
            "verified",
            "the server's certificate is not verified, so whoever is on the way can be the server",
            "Use https:// and certificate-authority-data in the kubeconfig, without insecure-skip-tls-verify.",
        );
    }
    clock(category, "the fleet API", &facts.clocks);
    dedicated(category, &facts.unfit, "are");
    true
}

/// Reads what starts the templates in an API, if anything does.
pub(super) async fn unfitness(asker: &Asker) -> Answer<Option<String>> {
    let nodes: ObjectList<_> = asker.get("/api/v1/nodes?limit=1").await?;
    let sets: ObjectList<_> = asker.get("/apis/apps/v1/replicasets?limit=20").await?;
    Ok(unfit(&nodes.items, &sets.items))
}

/// Checks that nothing there starts the templates; `are` says whether they are there already.
pub(super) fn dedicated(category: &mut Category, unfit: &Answer<Option<String>>, are: &str) {
    let name = "dedicated";
    match unfit {
        Ok(None) => category.ok(name, "no nodes and no controllers of workloads are there"),
        Ok(Some(why)) => category.error(
            name,
            format!("{why}, so templates {are} started in the fleet API itself"),
            "Use an API server of its own: charts/control-plane brings one along (fleetApi.mode=bundled).",
        ),
        Err(refusal) => category.unknown(name, "nodes and ReplicaSets", refusal),
    }
}

pub(super) fn definitions(category: &mut Category, facts: &Facts) {
    let (mut missing, mut unknown) = (Vec::new(), None);
    let mut lacking = Vec::new();
    let mut versions = BTreeSet::new();
    for wanted in muster_shared::api::crds() {
        let name = wanted.name_any();
        let is_served = |version: &str| {
            let served = facts
                .served
                .get(&format!("{}/{version}", wanted.spec.group));
            served.map(|it| it.as_ref().map(|it| it.contains(&wanted.spec.names.plural)))
        };
        for version in &wanted.spec.versions {
            match is_served(&version.name) {
                Some(Ok(true)) => {}
                Some(Err(refusal)) if !refusal.is_absent() => unknown = Some(refusal),
                _ => missing.push(format!("{name} ({})", version.name)),
            }
        }
        // An aggregated API, such as Karmada's of Clusters, has no definition.
        if let Some(Ok(found)) = facts.definitions.get(&name) {
            let fields = absent_fields(&wanted, found);
            if !fields.is_empty() {
                lacking.push(format!("{name} has no {}", listed(&fields, MOST)));
            }
            versions.extend(found.annotations().get(VERSION).cloned());
        }
    }
    // A definition of Clusters beside Karmada's aggregated API fails the description of the whole
    // API, and its deletion deletes every Cluster, since both store under the same keys.
    let clusters = facts.definitions.get("clusters.cluster.karmada.io");
    let install = if matches!(clusters, Some(Err(it)) if it.is_absent()) {
        "If this is Karmada's API, keep its definitions: the fields that they lack have no effect there. Do NOT apply all of\n\
         Muster's, whose Clusters would stand beside Karmada's. The only one to apply there (MIGRATE.md):\n\
         muster-control-plane crds failovers.failover.muster.io | kubectl apply --server-side -f -\n\
         If it is an API of Muster's: muster-control-plane crds | kubectl apply --server-side -f -"
    } else {
        "Install them: charts/control-plane applies them to a bundled fleet API by itself; to another one with\n\
                   muster-control-plane crds | kubectl apply --server-side -f -"
    };
    if let Some(refusal) = unknown {
        category.unknown("served", "the kinds", refusal);
    } else if missing.is_empty() {
        let number = muster_shared::api::crds().len();
        category.ok("served", format!("all {number} kinds are served"));
    } else {
        let message = format!("not served: {}", listed(&missing, MOST));
        return category.error("served", message, install);
    }
    if let Some(Err(refusal)) = facts
        .definitions
        .values()
        .find(|it| matches!(it, Err(it) if !it.is_absent()))
    {
        return category.unknown("definitions", "the definitions", refusal);
    }
    let newer: Vec<String> = versions
        .iter()
        .filter(|it| is_newer(it, OWN))
        .cloned()
        .collect();
    if !lacking.is_empty() {
        let message = format!("older than {OWN}: {}", listed(&lacking, MOST));
        category.warning("definitions", message, install);
    } else if newer.is_empty() {
        category.ok(
            "definitions",
            format!("they have every field of version {OWN}"),
        );
    } else {
        category.warning(
            "definitions",
            format!(
                "they are of version {}, newer than this program ({OWN})",
                newer.join(", ")
            ),
            "Use a kubectl-muster of that version.",
        );
    }
}

/// Returns the fields of a kind that a definition in use does not have, as paths.
fn absent_fields(
    wanted: &CustomResourceDefinition,
    found: &CustomResourceDefinition,
) -> Vec<String> {
    let mut absent = Vec::new();
    for version in &wanted.spec.versions {
        let schema = |it: &CustomResourceDefinition| {
            let mut versions = it.spec.versions.iter();
            let version = versions.find(|it| it.name == version.name)?;
            let schema = version.schema.as_ref()?.open_api_v3_schema.as_ref()?;
            serde_json::to_value(schema).ok()
        };
        if let (Some(wanted), Some(found)) = (schema(wanted), schema(found)) {
            compare(&wanted, &found, "", &mut absent);
        }
    }
    absent
}

fn compare(wanted: &Value, found: &Value, path: &str, absent: &mut Vec<String>) {
    if found["x-kubernetes-preserve-unknown-fields"] == true {
        return;
    }
    for (name, field) in wanted["properties"].as_object().into_iter().flatten() {
        let path = if path.is_empty() {
            name.clone()
        } else {
            format!("{path}.{name}")
        };
        match found["properties"].get(name) {
            // Every definition has the metadata, whether it is written down or not.
            None if path == "metadata" => {}
            None => absent.push(path),
            Some(found) => compare(field, found, &path, absent),
        }
    }
    for inner in ["items", "additionalProperties"] {
        if let (Some(wanted), Some(found)) = (wanted.get(inner), found.get(inner)) {
            compare(wanted, found, path, absent);
        }
    }
}

/// Checks the lives of certificates and tokens, those of agents excepted.
pub(super) fn credentials(category: &mut Category, facts: &Facts) {
    let now = facts.now;
    let renew = "Ask who gave you the kubeconfig for another; that of a bundled fleet API is in Secret muster-fleet-admin of the host.";
    life(
        category,
        "own-credentials",
        "your credentials",
        facts.credentials,
        now,
        renew,
    );
    if facts.authority.is_some() {
        let hint = "A new authority needs new certificates everywhere: see .github/FLEET_API.md.";
        life(
            category,
            "authority",
            "the fleet API's authority",
            facts.authority,
            now,
            hint,
        );
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_definition_that_lacks_fields_is_reported_with_their_paths() {
        let wanted = json!({"properties": {
            "metadata": {}, "spec": {"properties": {"a": {}, "list": {"items": {"properties": {"b": {}}}}}},
        }});
        for (found, expected) in [
            (wanted.clone(), &[][..]),
            (
                json!({"properties": {"spec": {"properties": {"a": {}}}}}),
                &["spec.list"],
            ),
            (
                json!({"properties": {"spec": {"properties": {"a": {}, "list": {"items": {"properties": {}}}}}}}),
                &["spec.list.b"],
            ),
            (json!({"x-kubernetes-preserve-unknown-fields": true}), &[]),
            (
                json!({"properties": {"spec": {"properties": {"a": {}, "more": {}, "list": {"items": {"properties": {"b": {}}}}}}}}),
                &[],
            ),
        ] {
            let mut absent = Vec::new();
            compare(&wanted, &found, "", &mut absent);
            assert_eq!(absent, expected, "{found}");
        }
    }
}
