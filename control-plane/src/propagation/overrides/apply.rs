//! Applies override policies to the manifest for one cluster.

use std::collections::BTreeSet;

use muster_shared::api::cluster::Cluster;
use muster_shared::api::override_policy::Overriders;
use muster_shared::names::annotation;
use muster_shared::selectors::matches_affinity;
use serde::Serialize;
use serde_json::{Value, json};

use super::limits::{Bounded, Room};
use super::select::Selected;
use super::{containers, patch};

/// Bytes of the longest annotations that say what the policies changed. All annotations of an
/// object have 256 KiB, which others use, too.
const LONGEST_ANNOTATIONS: usize = 16 * 1024;

/// Policies that changed a manifest, for the annotations of its Work.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Applied<'a> {
    cluster: Vec<(&'a str, &'a Overriders)>,
    namespaced: Vec<(&'a str, &'a Overriders)>,
}

impl Applied<'_> {
    /// Returns these policies and those that were applied after them.
    pub fn and(mut self, later: Self) -> Self {
        self.cluster.extend(later.cluster);
        self.namespaced.extend(later.namespaced);
        self
    }

    /// Returns the annotations of the Work, as Karmada writes them: for each kind of policy that
    /// was applied, a JSON list of the names of the policies, in their order, with the changes.
    /// Where these are longer than 16 KiB, the names alone.
    pub fn annotations(&self) -> Vec<(String, String)> {
        let lists = [
            (annotation::APPLIED_CLUSTER_OVERRIDES, &self.cluster),
            (annotation::APPLIED_OVERRIDES, &self.namespaced),
        ];
        let mut left = LONGEST_ANNOTATIONS;
        let mut whole = Vec::new();
        for (_, list) in lists {
            let Some(text) = with_changes(list, left) else {
                let named = lists.map(|(key, list)| (key, names(list)));
                return present(named);
            };
            left -= text.len();
            whole.push(text);
        }
        present(lists.map(|(key, _)| key).into_iter().zip(whole))
    }
}

fn present<'a>(annotations: impl IntoIterator<Item = (&'a str, String)>) -> Vec<(String, String)> {
    let all = annotations.into_iter();
    all.filter(|(_, text)| text != "[]")
        .map(|(key, text)| (key.to_owned(), text))
        .collect()
}

/// Returns the names of the policies and their changes; `None` if they are longer than `limit`.
fn with_changes(list: &[(&str, &Overriders)], limit: usize) -> Option<String> {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Item<'a> {
        overriders: &'a Overriders,
        policy_name: &'a str,
    }
    let mut sorted = list.to_vec();
    sorted.sort_by_key(|(name, _)| *name);
    let items: Vec<_> = sorted
        .iter()
        .map(|(policy_name, overriders)| Item {
            overriders,
            policy_name,
        })
        .collect();
    Bounded::text(limit, |text| serde_json::to_writer(text, &items)).ok()
}

fn names(list: &[(&str, &Overriders)]) -> String {
    let names: BTreeSet<&str> = list.iter().map(|(name, _)| *name).collect();
    let items: Vec<_> = names
        .iter()
        .map(|name| json!({ "policyName": name }))
        .collect();
    Value::Array(items).to_string()
}

/// Changes the manifest for a cluster by the rules of the policies that apply to the cluster, in
/// the order of the policies and of their rules.
///
/// # Errors
/// The first change that cannot be made, with its policy and the reason; the manifest is then half
/// changed and must not be used.
pub fn apply<'a>(
    manifest: &mut Value,
    policies: &'a [Selected<'_>],
    cluster: &Cluster,
) -> Result<Applied<'a>, String> {
    let mut applied = Applied::default();
    let mut measured = None;
    for policy in policies {
        for (target, overriders) in policy.spec.rules() {
            if target.is_some_and(|affinity| !matches_affinity(affinity, cluster)) {
                continue;
            }
            let room = match measured.take() {
                Some(room) => Ok(room),
                None => {
                    Room::beside(manifest).map_err(|excess| format!("the resource is {excess}"))
                }
            };
            let changed = room.and_then(|room| by_rule(manifest, overriders, room));
            measured = Some(changed.map_err(|reason| {
                let name = cluster.metadata.name.as_deref().unwrap_or_default();
                let policy = policy.title();
                format!("{policy} cannot be applied for cluster {name}: {reason}")
            })?);
            let list = match policy.namespace {
                Some(_) => &mut applied.namespaced,
                None => &mut applied.cluster,
            };
            list.push((&policy.name, overriders));
        }
    }
    Ok(applied)
}

/// Makes the changes of one rule; returns by how much the manifest may grow afterwards.
///
/// JSON pointers are as long as a manifest is deep at most, and so are the values in policies and
/// documents: a manifest over the limit is still shallow enough to be dropped.
fn by_rule(manifest: &mut Value, overriders: &Overriders, mut room: Room) -> Result<Room, String> {
    let before = identity(manifest);
    room.read(room.held())?;
    change(manifest, overriders, &mut room)?;
    let room = room
        .after(manifest)
        .map_err(|excess| format!("the resource would become {excess}"))?;
    if identity(manifest) != before {
        return Err(
            "apiVersion, kind, namespace and name of a resource cannot be overridden".to_owned(),
        );
    }
    Ok(room)
}

impl Selected<'_> {
    /// Returns the kind and the name of the policy.
    pub fn title(&self) -> String {
        match &self.namespace {
            Some(namespace) => format!("OverridePolicy {namespace}/{}", self.name),
            None => format!("ClusterOverridePolicy {}", self.name),
        }
    }
}

fn identity(manifest: &Value) -> [Value; 4] {
    let metadata = &manifest["metadata"];
    [
        manifest["apiVersion"].clone(),
        manifest["kind"].clone(),
        metadata["namespace"].clone(),
        metadata["name"].clone(),
    ]
}

/// Makes the changes of one rule, by type.
fn change(manifest: &mut Value, overriders: &Overriders, room: &mut Room) -> Result<(), String> {
    let named = |field: &'static str| move |reason: String| format!("{field}: {reason}");
    for it in &overriders.image_overrider {
        containers::change_images(manifest, it, room).map_err(named("imageOverrider"))?;
    }
    for it in &overriders.command_overrider {
        containers::change_list(manifest, "command", it, room)
            .map_err(named("commandOverrider"))?;
    }
    for it in &overriders.args_overrider {
        containers::change_list(manifest, "args", it, room).map_err(named("argsOverrider"))?;
    }
    for it in &overriders.labels_overrider {
        patch::pairs(manifest, "labels", it).map_err(named("labelsOverrider"))?;
    }
    for it in &overriders.annotations_overrider {
        patch::pairs(manifest, "annotations", it).map_err(named("annotationsOverrider"))?;
    }
    for it in &overriders.field_overrider {
        patch::document(manifest, it, room).map_err(named("fieldOverrider"))?;
    }
    if overriders.plaintext.is_empty() {
        return Ok(());
    }
    patch::plaintext(manifest, &overriders.plaintext, room).map_err(named("plaintext"))
}

#[cfg(test)]
mod tests;
