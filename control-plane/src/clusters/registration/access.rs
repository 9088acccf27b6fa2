//! Roles in the fleet API that registration requires: created and removed from the chart's files.

use anyhow::anyhow;
use kube::api::{DeleteParams, Patch, PatchParams};
use muster_shared::client;
use muster_shared::k8s::{Api, ApiResource, Client, DynamicObject, GroupVersionKind, ResourceExt};
use muster_shared::names::{CLUSTER_NAMESPACE, SYSTEM_NAMESPACE};

use crate::fleet::api_error::ApiError;
use crate::fleet::attribution::COMMAND;
use crate::fleet::write::{create_missing, namespace};

/// What every fleet with bootstrap tokens needs: who approves requests, and what agents may write
/// beyond what roles can say.
const REGISTRATION: [&str; 2] = [
    include_str!("../../../../charts/control-plane/access/registration.yaml"),
    include_str!("../../../../charts/control-plane/access/agents.yaml"),
];
/// What the agent of a member may, what it needs to renew its certificate, and what a token for it
/// may.
const MEMBER: [&str; 3] = [
    include_str!("../../../../charts/control-plane/access/member.yaml"),
    include_str!("../../../../charts/control-plane/access/member-certificates.yaml"),
    include_str!("../../../../charts/control-plane/access/member-registration.yaml"),
];
/// Manifests of further rights that a member may have been given.
const MORE: &str = include_str!("../../../../charts/control-plane/access/member-secrets.yaml");

/// Returns everything that registration itself needs.
pub fn of_registration() -> anyhow::Result<Vec<DynamicObject>> {
    let mut all = Vec::new();
    for text in REGISTRATION {
        all.extend(objects(text)?);
    }
    Ok(all)
}

/// Returns everything that one member needs.
pub fn of_member(cluster: &str) -> anyhow::Result<Vec<DynamicObject>> {
    let mut all = Vec::new();
    for text in MEMBER {
        all.extend(objects(&text.replace("MEMBER", cluster))?);
    }
    Ok(all)
}

/// Reads the objects of a YAML text.
pub fn objects(yaml: &str) -> anyhow::Result<Vec<DynamicObject>> {
    serde_saphyr::from_multiple(yaml).map_err(|error| anyhow!("read the chart's roles: {error}"))
}

/// Puts objects there, or makes them what they should be. They are ours by their names, so that
/// what a former version wrote is written over.
pub async fn grant(fleet: &Client, objects: &[DynamicObject]) -> anyhow::Result<()> {
    for name in [SYSTEM_NAMESPACE, CLUSTER_NAMESPACE] {
        ensure_namespace(fleet, name).await?;
    }
    apply(fleet, objects).await
}

/// Applies objects, or makes them what they should be.
pub async fn apply(client: &Client, objects: &[DynamicObject]) -> anyhow::Result<()> {
    let params = PatchParams::apply(COMMAND).force();
    for object in objects {
        let name = object.name_any();
        let applied = api(client, object)
            .patch(&name, &params, &Patch::Apply(object))
            .await;
        applied.map_err(ApiError::of("grant", &title(object)))?;
    }
    Ok(())
}

/// Creates a namespace unless it exists.
pub async fn ensure_namespace(fleet: &Client, name: &str) -> anyhow::Result<()> {
    let created = create_missing(&Api::all(fleet.clone()), &namespace(name)).await;
    created.map_err(ApiError::of("create", &format!("Namespace {name:?}")))?;
    Ok(())
}

/// Takes away what a member was given, its namespace excepted: that goes with the Cluster. Says how
/// many objects there were.
pub async fn revoke(fleet: &Client, cluster: &str) -> anyhow::Result<usize> {
    let mut all = of_member(cluster)?;
    all.extend(objects(&MORE.replace("MEMBER", cluster))?);
    all.retain(|object| kind(object) != "Namespace");
    remove(fleet, all).await
}

/// Removes objects that were applied. Says how many there were.
pub async fn remove(client: &Client, mut objects: Vec<DynamicObject>) -> anyhow::Result<usize> {
    // Bindings first: what is left after an interruption grants nothing.
    objects.sort_by_key(|object| !kind(object).ends_with("Binding"));
    let mut gone = 0;
    for object in &objects {
        let deleted = api(client, object)
            .delete(&object.name_any(), &DeleteParams::default())
            .await;
        match deleted {
            Ok(_) => gone += 1,
            Err(error) if client::is_gone(&error) => {}
            Err(error) => return Err(ApiError::of("remove", &title(object))(error).into()),
        }
    }
    Ok(gone)
}

/// Returns the kind of an object.
pub fn kind(object: &DynamicObject) -> &str {
    object.types.as_ref().map_or("", |it| &it.kind)
}

/// Returns the API of an object's kind and namespace, for kinds that every API has and whose
/// plurals are regular.
pub fn api(fleet: &Client, object: &DynamicObject) -> Api<DynamicObject> {
    let version = object.types.as_ref().map_or("", |it| &it.api_version);
    let (group, version) = version.split_once('/').unwrap_or(("", version));
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind(object)));
    match object.namespace() {
        Some(namespace) => Api::namespaced_with(fleet.clone(), &namespace, &resource),
        None => Api::all_with(fleet.clone(), &resource),
    }
}

/// Returns the kind and the name of an object, for errors.
pub fn title(object: &DynamicObject) -> String {
    format!("{} {:?}", kind(object), object.name_any())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_is_named_everywhere_and_nobody_else_is() {
        let all = of_member("m1").unwrap();
        assert!(all.iter().any(|it| kind(it) == "Namespace"));
        for object in all {
            let text = serde_json::to_string(&object).unwrap();
            assert!(text.contains("m1") && !text.contains("MEMBER"), "{text}");
            if kind(&object).ends_with("Binding") {
                let subjects = object.data["subjects"].to_string();
                let ours = ["system:karmada:agent:m1", "karmada:cluster:m1"];
                assert!(ours.iter().any(|it| subjects.contains(it)), "{subjects}");
            }
        }
        assert!(!of_registration().unwrap().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_member_has_no_rights_any_more_only_if_the_api_says_so_of_each() {
        use crate::fleet::testing::Bench;

        let bench = Bench::new([]);
        let client = &bench.fleet.client;
        assert_eq!(revoke(client, "m1").await.unwrap(), 0);
        let all = everything("m1");
        let granted = all.iter().find(|it| kind(it).ends_with("Binding"));
        let path = format!("/{}", granted.unwrap().name_any());
        bench.api.refuse(http::Method::DELETE, &path, 404, "");
        assert!(revoke(client, "m1").await.is_err());
    }

    #[test]
    fn a_member_whose_name_is_another_thing_in_yaml_is_still_named_by_a_text() {
        for name in ["null", "true", "no", "123", "1e3", "0x1f", "2026-01-01"] {
            let rules = everything(name).into_iter().flat_map(|object| {
                let rules = object.data["rules"].as_array().cloned();
                rules.unwrap_or_default()
            });
            let named: Vec<_> = rules
                .filter_map(|rule| rule["resourceNames"].as_array().cloned())
                .flatten()
                .collect();
            assert!(named.iter().all(serde_json::Value::is_string), "{named:?}");
            assert!(named.iter().any(|it| it == name), "{named:?}");
        }
    }

    fn everything(cluster: &str) -> Vec<DynamicObject> {
        let mut all = of_member(cluster).unwrap();
        all.extend(objects(&MORE.replace("MEMBER", cluster)).unwrap());
        all
    }

    #[test]
    fn no_name_of_a_member_gives_it_the_roles_of_another() {
        let roles = |objects: Vec<DynamicObject>| -> Vec<String> {
            let roles = objects.iter().filter(|it| kind(it).contains("Role"));
            roles
                .map(|it| {
                    let namespace = it.namespace().unwrap_or_default();
                    format!("{} {namespace}/{}", kind(it), it.name_any())
                })
                .collect()
        };
        let fixed = roles(of_registration().unwrap());
        let first = roles(everything("a"));
        for other in [
            "a-certificates",
            "a-registration",
            "a-secrets",
            "approver",
            "renewal",
            "bootstrap",
            "agent",
        ] {
            for role in roles(everything(other)) {
                assert!(!first.contains(&role) && !fixed.contains(&role), "{role}");
            }
        }
    }
}
