//! Containers of workloads, and changes of their images, commands and arguments.

use std::collections::HashSet;

use muster_shared::api::override_policy::{CommandArgsOverrider, ImageOverrider, ListOperator};
use serde_json::{Map, Value, json};

use super::limits::Room;
use super::{image, pointer};

/// Returns where objects of a kind have their containers (not the init containers): a Pod, or a
/// kind with a pod template. `None` for other kinds (Karmada behaviour).
pub fn path_of_containers(kind: &str) -> Option<&'static str> {
    match kind {
        "Pod" => Some("/spec/containers"),
        "Deployment" | "ReplicaSet" | "DaemonSet" | "StatefulSet" | "Job" => {
            Some("/spec/template/spec/containers")
        }
        _ => None,
    }
}

/// Returns the containers of an object; none where it is not known where they are.
fn containers(manifest: &mut Value) -> impl Iterator<Item = &mut Map<String, Value>> {
    let path = manifest["kind"].as_str().and_then(path_of_containers);
    manifest
        .pointer_mut(path.unwrap_or("/-"))
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
        .filter_map(Value::as_object_mut)
}

/// Changes images: that at the predicate, or those of all containers.
///
/// # Errors
/// A text that says which image cannot be changed, and why.
pub(super) fn change_images(
    manifest: &mut Value,
    overrider: &ImageOverrider,
    room: &mut Room,
) -> Result<(), String> {
    room.read(room.held())?;
    if let Some(predicate) = &overrider.predicate {
        let path = &predicate.path;
        let image = pointer::text(manifest, path)?;
        let changed = image::change(image, overrider)
            .map_err(|reason| format!("the field {path}: {reason}"))?;
        room.take(changed.len().saturating_sub(image.len()))?;
        *image = changed;
        return Ok(());
    }
    for (at, container) in containers(manifest).enumerate() {
        let image = container.get("image").and_then(Value::as_str);
        let image = image.unwrap_or_default();
        let changed = image::change(image, overrider)
            .map_err(|reason| format!("container {at}: {reason}"))?;
        room.take(changed.len().saturating_sub(image.len()))?;
        container.insert("image".to_owned(), json!(changed));
    }
    Ok(())
}

/// Changes the `command` or the `args` (`field`) of the containers with the name of the overrider.
///
/// # Errors
/// A text that names an operator that is not known.
pub(super) fn change_list(
    manifest: &mut Value,
    field: &str,
    overrider: &CommandArgsOverrider,
    room: &mut Room,
) -> Result<(), String> {
    room.read(room.held())?;
    let texts: HashSet<&str> = overrider.value.iter().map(String::as_str).collect();
    // Each text has quotation marks and a comma.
    let added: usize = overrider.value.iter().map(|text| text.len() + 3).sum();
    for container in containers(manifest) {
        if container.get("name").and_then(Value::as_str) != Some(&overrider.container_name) {
            continue;
        }
        let held = container.entry(field).or_insert_with(|| json!([]));
        let mut list = match held.take() {
            Value::Array(list) => list,
            _ => Vec::new(),
        };
        let among = |value: &Value| value.as_str().is_some_and(|it| texts.contains(it));
        match &overrider.operator {
            ListOperator::Add => {
                room.take(added)?;
                list.extend(overrider.value.iter().map(|text| json!(text)));
            }
            ListOperator::Remove => list.retain(|value| !among(value)),
            ListOperator::Other(other) => {
                return Err(format!(
                    "operator {other:?} is not known: use add or remove"
                ));
            }
        }
        *held = Value::Array(list);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(operator: &str, value: &[&str]) -> CommandArgsOverrider {
        serde_json::from_value(json!({
            "containerName": "app", "operator": operator, "value": value,
        }))
        .unwrap()
    }

    fn room(manifest: &Value) -> Room {
        Room::beside(manifest).unwrap()
    }

    #[test]
    fn arguments_of_many_containers_are_bounded() {
        let containers = vec![json!({ "name": "app" }); 5000];
        let mut manifest = json!({ "kind": "Pod", "spec": { "containers": containers } });
        let long = "x".repeat(100_000);
        let mut room = room(&manifest);
        let added = change_list(&mut manifest, "args", &list("add", &[&long]), &mut room);
        assert!(added.unwrap_err().contains("bytes"));
        let size = muster_shared::work_status::length(&manifest);
        assert!(size < 2_000_000, "{size} bytes");
    }

    fn workload(kind: &str) -> Value {
        let containers = json!([
            { "name": "app", "image": "app:v1", "args": ["--a", "--b", "--a"] },
            { "name": "sidecar", "image": "quay.io/side" },
        ]);
        let pod = json!({
            "initContainers": [{ "name": "app", "image": "init" }],
            "containers": containers,
        });
        match kind {
            "Pod" => json!({ "kind": kind, "spec": pod }),
            _ => json!({ "kind": kind, "spec": { "template": { "spec": pod } } }),
        }
    }

    #[test]
    fn the_containers_of_every_kind_of_workload_are_changed_and_init_containers_are_not() {
        let overrider: ImageOverrider = serde_json::from_value(
            json!({"component": "Registry", "operator": "replace", "value": "eu.io"}),
        )
        .unwrap();
        for kind in [
            "Pod",
            "Deployment",
            "ReplicaSet",
            "DaemonSet",
            "StatefulSet",
            "Job",
            "CronTab",
        ] {
            let mut manifest = workload(kind);
            change_images(&mut manifest, &overrider, &mut room(&workload(kind))).unwrap();
            change_list(
                &mut manifest,
                "args",
                &list("add", &["--c"]),
                &mut room(&json!({})),
            )
            .unwrap();
            change_list(
                &mut manifest,
                "args",
                &list("remove", &["--a"]),
                &mut room(&json!({})),
            )
            .unwrap();
            change_list(
                &mut manifest,
                "command",
                &list("remove", &["x"]),
                &mut room(&json!({})),
            )
            .unwrap();
            if kind == "CronTab" {
                assert_eq!(manifest, workload(kind));
                continue;
            }
            let pod = manifest
                .pointer("/spec/template/spec")
                .unwrap_or_else(|| &manifest["spec"]);
            assert_eq!(
                pod["containers"],
                json!([
                    { "name": "app", "image": "eu.io/app:v1", "args": ["--b", "--c"], "command": [] },
                    { "name": "sidecar", "image": "eu.io/side" },
                ]),
                "{kind}"
            );
            assert_eq!(pod["initContainers"][0]["image"], "init", "{kind}");
        }
    }

    #[test]
    fn an_image_may_be_at_any_path_that_there_is() {
        let change = |path: &str| {
            let overrider: ImageOverrider = serde_json::from_value(json!({
                "predicate": { "path": path }, "component": "Tag", "operator": "replace", "value": "v2",
            }))
            .unwrap();
            let mut manifest = json!({ "kind": "Flink", "spec": { "a/b": "flink:v1", "n": 1 } });
            change_images(&mut manifest, &overrider, &mut room(&json!({})))
                .map(|()| manifest["spec"]["a/b"].clone())
        };
        assert_eq!(change("/spec/a~1b"), Ok(json!("flink:v2")));
        for (path, reason) in [
            ("/spec/image", "has no field"),
            ("/spec/n", "is no text"),
            ("spec/a~1b", "no JSON pointer"),
            ("/spec/a~2b", "no JSON pointer"),
        ] {
            let error = change(path).unwrap_err();
            assert!(error.contains(reason), "{path}: {error}");
        }
    }
}
