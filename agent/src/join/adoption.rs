//! Compares the Cluster with the agent's flags. Pure.

use muster_shared::api::cluster::{ClusterSpec, ClusterSyncMode, ResourceModel};
use muster_shared::merge;
use serde_json::{Value, json};

use crate::settings::Settings;

/// Returns the spec of the Cluster by the flags. Fields without a flag, and those of empty flags,
/// are empty.
pub(super) fn wanted(settings: &Settings, id: &str, endpoint: &str, insecure: bool) -> ClusterSpec {
    let given = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    ClusterSpec {
        id: given(id),
        sync_mode: ClusterSyncMode::Pull,
        api_endpoint: given(&settings.cluster_api_endpoint).or_else(|| given(endpoint)),
        proxy_url: given(&settings.proxy_server_address),
        provider: given(&settings.cluster_provider),
        region: given(&settings.cluster_region),
        zones: settings.cluster_zones.0.clone(),
        insecure_skip_tls_verification: insecure,
        ..ClusterSpec::default()
    }
}

/// Returns the merge patch that brings an existing Cluster in line with the flags; other fields
/// stay. Models are set at the first registration only: a Cluster whose models were removed later
/// has none on purpose.
pub(super) fn adoption(
    found: &ClusterSpec,
    wanted: &ClusterSpec,
    models: Vec<ResourceModel>,
) -> Option<Value> {
    let mut wanted = wanted.clone();
    let is_new = found.id.as_deref().is_none_or(str::is_empty);
    if is_new && found.resource_models.is_empty() {
        wanted.resource_models = models;
    }
    let found = serde_json::to_value(found).unwrap_or_default();
    let mut merged = found.clone();
    let wanted = serde_json::to_value(wanted).unwrap_or_default();
    if let (Some(merged), Some(wanted)) = (merged.as_object_mut(), wanted.as_object()) {
        merged.extend(wanted.clone());
        // The deprecated field and its successor exclude each other.
        if wanted.contains_key("zones") {
            merged.remove("zone");
        }
    }
    merge::difference(&found, &merged).map(|spec| json!({ "spec": spec }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(edit: impl FnOnce(&mut Settings)) -> Settings {
        let mut settings = Settings {
            cluster_name: "m1".into(),
            ..Settings::default()
        };
        edit(&mut settings);
        settings
    }

    #[test]
    fn a_registration_that_agrees_with_the_flags_is_left_alone() {
        let wanted = wanted(&settings(|_| {}), "1", "https://m1", false);
        let mut found = wanted.clone();
        found.provider = Some("aws".into());
        found.resource_models = vec![ResourceModel::default()];
        assert_eq!(
            adoption(&found, &wanted, vec![ResourceModel::default()]),
            None
        );
    }

    #[test]
    fn only_what_the_flags_say_otherwise_is_changed() {
        let settings = settings(|settings| settings.cluster_region = "eu".into());
        let wanted = wanted(&settings, "1", "https://m1", false);
        let mut found = wanted.clone();
        found.region = Some("us".into());
        found.provider = Some("aws".into());
        found.taints = vec![muster_shared::k8s::Taint::default()];
        let models = vec![ResourceModel::default()];
        let patch = adoption(&found, &wanted, models.clone()).unwrap();
        assert_eq!(patch, json!({"spec": {"region": "eu"}}));
    }

    #[test]
    fn models_are_given_at_the_first_registration_and_never_again() {
        let wanted = wanted(&settings(|_| {}), "1", "https://m1", false);
        let models = vec![ResourceModel::default()];
        for (id, given) in [(None, true), (Some(""), true), (Some("1"), false)] {
            let mut found = wanted.clone();
            found.id = id.map(str::to_owned);
            let patch = adoption(&found, &wanted, models.clone()).unwrap_or_default();
            assert_eq!(!patch["spec"]["resourceModels"].is_null(), given, "{id:?}");
        }
    }

    #[test]
    fn the_endpoint_flag_outranks_the_kubeconfig() {
        let given = settings(|settings| settings.cluster_api_endpoint = "https://outside".into());
        let endpoint = |settings| wanted(settings, "1", "https://inside", false).api_endpoint;
        assert_eq!(endpoint(&given).as_deref(), Some("https://outside"));
        assert_eq!(
            endpoint(&settings(|_| {})).as_deref(),
            Some("https://inside")
        );
    }
}
