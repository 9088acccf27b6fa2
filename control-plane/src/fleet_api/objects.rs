//! Objects that a fleet API needs before anybody can use it: definitions, roles, admission
//! policies, the priority of leases, and the public ConfigMap by which members join.
//!
//! Each bears the version of the program that wrote it. An older program leaves the objects of a
//! newer one as they are and says so.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::anyhow;
use kube::api::{DeleteParams, Patch, PatchParams};
use muster_shared::client::{self, is_gone};
use muster_shared::k8s::{
    Api, ApiResource, Client, ClusterRoleBinding, ConfigMap, DynamicObject, GroupVersionKind,
    ObjectMeta, ResourceExt, RoleRef, Subject,
};
use muster_shared::names::annotation::VERSION;
use muster_shared::names::{CLUSTER_NAMESPACE, SYSTEM_NAMESPACE};
use muster_shared::tls;

use super::plan::{self, ADMINISTRATORS};
use crate::clusters::registration::{access, discovery};
use crate::fleet::api_error::ApiError;
use crate::settings::COMPONENT;

/// Rights of the control plane.
const CONTROL_PLANE: &str = include_str!("../../../charts/control-plane/access/control-plane.yaml");
/// Roles for people, which nobody has by that.
const PEOPLE: &str = include_str!("../../../charts/control-plane/access/people.yaml");
/// Rights of the page, whose user exists where it is served to others.
const PAGE: &str = include_str!("../../../charts/control-plane/access/page.yaml");
/// Priority of leases at the API server.
const LEASES: &str = include_str!("leases.yaml");
/// Kinds that say whom the fleet API asks about admission.
const ADMISSION: [&str; 2] = [
    "MutatingWebhookConfiguration",
    "ValidatingWebhookConfiguration",
];
/// Name of both (charts/control-plane/access/webhooks.yaml).
const ADMISSION_NAME: &str = "muster";

/// Returns the objects that belong to this version, in the order in which they are applied.
pub(super) fn own() -> anyhow::Result<Vec<DynamicObject>> {
    let mut all = Vec::new();
    // The namespaces come first, the definitions before roles that name their kinds.
    let control_plane = access::objects(CONTROL_PLANE)?;
    let (namespaces, rest): (Vec<_>, Vec<_>) = control_plane
        .into_iter()
        .partition(|it| access::kind(it) == "Namespace");
    all.extend(namespaces);
    for definition in muster_shared::api::crds() {
        all.push(dynamic(&definition)?);
    }
    all.extend(rest);
    all.extend(access::of_registration()?);
    all.extend(access::objects(PEOPLE)?);
    all.extend(access::objects(PAGE)?);
    all.extend(access::objects(LEASES)?);
    all.push(dynamic(&administrators())?);
    Ok(all)
}

/// Returns the objects of the YAML files in a directory, by the names of the files.
pub(super) fn of_directory(directory: &Path) -> anyhow::Result<Vec<DynamicObject>> {
    let failed = |path: &Path, problem: &dyn std::fmt::Display| {
        let path = path.display().to_string();
        anyhow!("cannot read {path:?} (--objects-directory): {problem}")
    };
    let entries = std::fs::read_dir(directory).map_err(|error| failed(directory, &error))?;
    let mut paths: Vec<_> = entries.filter_map(|it| Some(it.ok()?.path())).collect();
    paths.retain(|it| it.extension().is_some_and(|it| it == "yaml"));
    paths.sort();
    let mut all = Vec::new();
    for path in paths {
        let text = std::fs::read_to_string(&path).map_err(|error| failed(&path, &error))?;
        all.extend(access::objects(&text).map_err(|error| failed(&path, &error))?);
    }
    Ok(all)
}

/// Administrators have all rights by a binding, which can be taken away; a certificate cannot.
fn administrators() -> ClusterRoleBinding {
    ClusterRoleBinding {
        metadata: ObjectMeta {
            name: Some(ADMINISTRATORS.to_owned()),
            ..ObjectMeta::default()
        },
        role_ref: RoleRef {
            api_group: "rbac.authorization.k8s.io".to_owned(),
            kind: "ClusterRole".to_owned(),
            name: "cluster-admin".to_owned(),
        },
        subjects: Some(vec![Subject {
            api_group: Some("rbac.authorization.k8s.io".to_owned()),
            kind: "Group".to_owned(),
            name: ADMINISTRATORS.to_owned(),
            namespace: None,
        }]),
    }
}

fn dynamic<T>(object: &T) -> serde_json::Result<DynamicObject>
where
    T: serde::Serialize + kube::Resource<DynamicType = ()>,
{
    let mut value = serde_json::to_value(object)?;
    value["apiVersion"] = T::api_version(&()).into();
    value["kind"] = T::kind(&()).into();
    serde_json::from_value(value)
}

/// Applies objects. Returns those that a newer version wrote, with that version: they stay as they
/// are. An object that the API refuses does not keep the others.
pub(super) async fn apply(
    fleet: &Client,
    objects: Vec<DynamicObject>,
    version: &str,
) -> anyhow::Result<Vec<String>> {
    let (mut newer, mut refused) = (Vec::new(), None);
    for name in [SYSTEM_NAMESPACE, CLUSTER_NAMESPACE] {
        access::ensure_namespace(fleet, name).await?;
    }
    for object in objects {
        match apply_one(fleet, object, version).await {
            Ok(theirs) => newer.extend(theirs),
            Err(error) if error.is_lasting() => _ = refused.get_or_insert(error),
            Err(error) => return Err(error.into()),
        }
    }
    refused.map_or(Ok(newer), |error| Err(error.into()))
}

/// Applies an object; returns it with its version if a newer version wrote it.
async fn apply_one(
    fleet: &Client,
    mut object: DynamicObject,
    version: &str,
) -> Result<Option<String>, ApiError> {
    let name = object.name_any();
    let said = format!("{} {name}", access::kind(&object));
    let api = access::api(fleet, &object);
    let theirs = written_by(&api, &name, &said).await?;
    if let Some(theirs) = theirs.filter(|it| is_newer(it, version)) {
        return Ok(Some(format!("{said} is of version {theirs}")));
    }
    let annotations = object.annotations_mut();
    annotations.insert(VERSION.to_owned(), version.to_owned());
    let params = PatchParams::apply(COMPONENT).force();
    let applied = api.patch(&name, &params, &Patch::Apply(&object)).await;
    applied.map_err(ApiError::of("apply", &said))?;
    Ok(None)
}

/// Returns the version that applied an object; `None` where there is none, or somebody else made
/// it.
async fn written_by(
    api: &Api<DynamicObject>,
    name: &str,
    said: &str,
) -> Result<Option<String>, ApiError> {
    let found = client::get_metadata_opt(api, name).await;
    let found = found.map_err(ApiError::of("read", &said))?;
    Ok(found.and_then(|it| it.metadata.annotations?.remove(VERSION)))
}

/// Returns what was applied while admission was on, by kind and name alone.
pub(super) fn admission() -> impl Iterator<Item = DynamicObject> {
    ADMISSION.into_iter().map(|kind| {
        let kind = GroupVersionKind::gvk("admissionregistration.k8s.io", "v1", kind);
        DynamicObject::new(ADMISSION_NAME, &ApiResource::from_gvk(&kind))
    })
}

/// Returns whether an object gives the page's user its rights.
pub(super) fn binds_page(object: &DynamicObject) -> bool {
    object.data["subjects"][0]["name"] == plan::PAGE
}

/// Removes what was applied and is not wanted any more. What somebody else or a newer version wrote
/// stays as it is.
pub(super) async fn take_back(
    fleet: &Client,
    objects: Vec<DynamicObject>,
    version: &str,
) -> anyhow::Result<()> {
    for object in objects {
        let name = object.name_any();
        let said = format!("{} {name}", access::kind(&object));
        let api = access::api(fleet, &object);
        let theirs = written_by(&api, &name, &said).await?;
        if theirs.is_none_or(|it| is_newer(&it, version)) {
            continue;
        }
        match api.delete(&name, &DeleteParams::default()).await {
            Err(error) if !is_gone(&error) => {
                return Err(ApiError::of("remove", &said)(error).into());
            }
            _ => tracing::info!(object = said, "removed: its part of the chart is off"),
        }
    }
    Ok(())
}

/// Says publicly where the fleet API is and who signs its certificate. Signatures for tokens, which
/// kube-controller-manager adds, stay.
pub(super) async fn announce(fleet: &Client, server: &str, trusted: &str) -> anyhow::Result<()> {
    let roots = tls::authorities(trusted.as_bytes());
    let text = serde_saphyr::to_string(&discovery::kubeconfig(server, &roots));
    let text = text.map_err(|error| anyhow!("cannot write a kubeconfig: {error}"))?;
    access::ensure_namespace(fleet, discovery::NAMESPACE).await?;
    let maps: Api<ConfigMap> = Api::namespaced(fleet.clone(), discovery::NAMESPACE);
    let said = format!("ConfigMap {}/{}", discovery::NAMESPACE, discovery::NAME);
    let found = client::get_opt(&maps, discovery::NAME).await;
    let found = found.map_err(ApiError::of("read", &said))?;
    let now = found
        .as_ref()
        .and_then(|it| it.data.as_ref()?.get(discovery::KEY));
    if now == Some(&text) {
        return Ok(());
    }
    let map = ConfigMap {
        metadata: ObjectMeta {
            name: Some(discovery::NAME.to_owned()),
            ..ObjectMeta::default()
        },
        data: Some(BTreeMap::from([(discovery::KEY.to_owned(), text)])),
        ..ConfigMap::default()
    };
    let params = PatchParams::apply(COMPONENT).force();
    let applied = maps
        .patch(discovery::NAME, &params, &Patch::Apply(&map))
        .await;
    applied.map_err(ApiError::of("apply", &said))?;
    tracing::info!(server, "published the address of the fleet API for members");
    Ok(())
}

/// Returns whether a version is newer than another. What is no version is older than all.
pub fn is_newer(theirs: &str, ours: &str) -> bool {
    let read = |text: &str| -> Option<Vec<u64>> {
        let numbers = text.split(['-', '+']).next()?.split('.');
        numbers.map(|it| it.parse().ok()).collect()
    };
    match (read(theirs), read(ours)) {
        (Some(theirs), Some(ours)) => theirs > ours,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use http::Method;
    use serde_json::json;

    use super::*;
    use crate::fleet::testing::Bench;

    #[test]
    fn an_older_program_does_not_write_over_what_a_newer_one_wrote() {
        for (theirs, ours, expected) in [
            ("0.2.0", "0.1.0", true),
            ("0.1.10", "0.1.9", true),
            ("1.0.0", "0.9.9", true),
            ("0.1.0", "0.1.0", false),
            ("0.1.0", "0.2.0", false),
            ("0.1.0-rc1", "0.1.0", false),
            ("", "0.1.0", false),
            ("x", "0.1.0", false),
        ] {
            assert_eq!(is_newer(theirs, ours), expected, "{theirs} and {ours}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_object_that_the_api_refuses_keeps_no_other_from_being_applied() {
        let role = |name: &str| {
            let metadata = json!({"name": name});
            json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": metadata})
        };
        let bench = Bench::new(["a", "b"].map(|name| ("clusterroles", role(name))));
        bench.api.refuse(Method::PATCH, "/clusterroles/a", 422, "a");
        let objects = ["a", "b"].into_iter().map(role);
        let objects = objects.map(|it| serde_json::from_value(it).unwrap());
        let applied = apply(&bench.fleet.client, objects.collect(), "0.1.0").await;
        let error = applied.unwrap_err();
        assert!(error.to_string().contains("ClusterRole a"));
        assert!(
            error
                .downcast_ref::<ApiError>()
                .is_some_and(ApiError::is_lasting)
        );
        let mut written = bench.api.writes().into_iter();
        assert!(written.any(|(_, path, _)| path.ends_with("/clusterroles/b")));
    }

    #[test]
    fn everything_that_a_fleet_needs_is_there_once_and_in_order() {
        let all = own().unwrap();
        let names: Vec<_> = all
            .iter()
            .map(|it| {
                format!(
                    "{} {:?} {}",
                    access::kind(it),
                    it.namespace(),
                    it.name_any()
                )
            })
            .collect();
        let mut once = names.clone();
        once.sort();
        once.dedup();
        assert_eq!(once.len(), names.len(), "{names:?}");
        let position = |kind: &str| all.iter().position(|it| access::kind(it) == kind);
        assert!(position("Namespace") < position("CustomResourceDefinition"));
        assert!(position("CustomResourceDefinition") < position("ClusterRole"));
        for kind in [
            "ValidatingAdmissionPolicy",
            "ValidatingAdmissionPolicyBinding",
            "Role",
            "FlowSchema",
        ] {
            assert!(position(kind).is_some(), "{kind}");
        }
    }

    #[test]
    fn renewals_of_leases_have_a_priority_of_their_own_for_whoever_holds_leases() {
        use muster_shared::names::{AGENT_GROUP, CLUSTER_NAMESPACE, SYSTEM_NAMESPACE};

        let all = own().unwrap();
        let schema = all.iter().find(|it| access::kind(it) == "FlowSchema");
        let schema = &schema.unwrap().data;
        let rule = &schema["spec"]["rules"][0];
        let subjects = [
            rule["subjects"][0]["group"]["name"].as_str(),
            rule["subjects"][1]["user"]["name"].as_str(),
        ];
        let expected = [AGENT_GROUP, super::super::plan::CONTROL_PLANE];
        assert_eq!(subjects, expected.map(Some));
        let leases = &rule["resourceRules"][0];
        let namespaces = serde_json::json!([CLUSTER_NAMESPACE, SYSTEM_NAMESPACE]);
        assert_eq!(leases["namespaces"], namespaces);
        // Elections are read and patched, heartbeats created and patched, as the roles in
        // charts/control-plane/access say.
        for verb in ["get", "create", "patch"] {
            let verbs = leases["verbs"].as_array().unwrap();
            assert!(verbs.iter().any(|it| it == verb), "{verb} in {verbs:?}");
        }
    }
}
