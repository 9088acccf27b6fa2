//! Workloads that a plan would part from what they refer to (ConfigMaps, Secrets, ...).

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::{self, Write as _};
use std::sync::Arc;

use kube::api::{Api, DynamicObject};
use kube::core::GroupVersionKind;
use kube::discovery::pinned_kind;
use muster_control_plane::fleet::binding::BindingKey;
use muster_control_plane::fleet::template::{Kind, TemplateKey};
use muster_control_plane::propagation::binding::references::{Missing, missing, placed};
use muster_interpreter::{Dependency, Interpreters, Operation};
use muster_shared::api::any_binding::AnyBinding;
use muster_shared::client;
use muster_shared::k8s::Client;
use serde::Serialize;
use serde_json::{Value, json};

use super::list;
use super::table::{Workload, indented};

/// What workloads refer to that do not take it along; the error says why that is not known.
pub(super) type Needs = Result<HashMap<BindingKey, Vec<Dependency>>, String>;

/// Clusters of bindings after a plan; of the others those that they have.
pub(super) type After = BTreeMap<BindingKey, BTreeSet<String>>;

/// A workload, and what it would lack.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Parted {
    #[serde(flatten)]
    pub workload: Workload,
    pub missing: Vec<Missing>,
}

/// Workloads that a plan would part from what they refer to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Partings {
    pub parted: Vec<Parted>,
    /// Reason why that is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parted_unknown: Option<String>,
}

/// Returns whether a rule says what the resource of a binding refers to. Only kinds of Kubernetes
/// and rules that are shipped count: customizations of users are not asked.
fn has_rule(rules: &Interpreters, binding: &AnyBinding) -> bool {
    let resource = &binding.spec.resource;
    let operation = Operation::InterpretDependency;
    rules.has(&resource.api_version, &resource.kind, operation)
}

/// Reads the templates of the workloads that take nothing along, a list for each kind, if the fleet
/// propagates anything that they may refer to.
pub(super) async fn read(client: &Client, bindings: &[Arc<AnyBinding>]) -> Needs {
    let rules = Interpreters::of(&[]);
    let (referrers, others): (Vec<_>, Vec<_>) =
        bindings.iter().partition(|it| has_rule(&rules, it));
    let alone = referrers.into_iter().filter(|it| !it.spec.propagate_deps);
    let alone: HashMap<TemplateKey, BindingKey> = alone
        .map(|it| (TemplateKey::of(&it.spec.resource), BindingKey::of(it)))
        .collect();
    let mut needs = HashMap::new();
    if others.is_empty() {
        return Ok(needs);
    }
    let kinds: BTreeSet<(&str, &str)> = alone
        .keys()
        .map(|it| (&*it.kind.api_version, &*it.kind.kind))
        .collect();
    for (api_version, kind) in kinds {
        for mut object in templates(client, api_version, kind).await? {
            object["apiVersion"] = json!(api_version);
            object["kind"] = json!(kind);
            let Ok(Some(found)) = rules.dependencies(&object) else {
                continue;
            };
            let text = |field: &str| object["metadata"][field].as_str().map(str::to_owned);
            let key = TemplateKey {
                kind: Arc::new(Kind::new(api_version, kind)),
                namespace: text("namespace"),
                name: text("name").unwrap_or_default(),
            };
            if let Some(binding) = alone.get(&key).filter(|_| !found.is_empty()) {
                needs.insert(binding.clone(), found);
            }
        }
    }
    Ok(needs)
}

async fn templates(client: &Client, api_version: &str, kind: &str) -> Result<Vec<Value>, String> {
    let failed = |error: &kube::Error| {
        let error = client::brief(error);
        format!("list {kind} of {api_version}: {error}")
    };
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let kind_of = GroupVersionKind::gvk(group, version, kind);
    let pinned = pinned_kind(client, &kind_of).await;
    let (resource, _) = pinned.map_err(|error| failed(&error))?;
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
    list::objects(&api).await.map_err(|error| failed(&error))
}

/// Finds the workloads that lack more after a plan than before it.
pub(super) fn parted(bindings: &[Arc<AnyBinding>], needs: &Needs, after: &After) -> Partings {
    let needs = match needs {
        Ok(needs) => needs,
        Err(error) => {
            return Partings {
                parted_unknown: Some(error.clone()),
                ..Partings::default()
            };
        }
    };
    let known: HashMap<BindingKey, &Arc<AnyBinding>> =
        bindings.iter().map(|it| (BindingKey::of(it), it)).collect();
    let before = After::new();
    let lacks = |binding: &AnyBinding, needs: &[Dependency], after: &After| {
        let own = after.get(&BindingKey::of(binding)).cloned();
        let own = own.unwrap_or_else(|| {
            let clusters = binding.spec.clusters.iter();
            clusters.map(|it| it.name.clone()).collect()
        });
        missing(needs, own.iter().map(String::as_str), |template| {
            let key = BindingKey::for_template(template);
            let had = placed(&known.get(&key)?.spec, template)?;
            Some(after.get(&key).cloned().unwrap_or(had))
        })
    };
    let parted = bindings.iter().filter_map(|binding| {
        let needs = needs.get(&BindingKey::of(binding))?;
        let lacked = lacks(binding, needs, &before);
        let mut missing = lacks(binding, needs, after);
        missing.retain(|it| !lacked.contains(it));
        (!missing.is_empty()).then(|| Parted {
            workload: Workload::of(&binding.spec),
            missing,
        })
    });
    Partings {
        parted: parted.collect(),
        parted_unknown: None,
    }
}

impl fmt::Display for Parted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let missing: Vec<String> = self.missing.iter().map(Missing::to_string).collect();
        write!(f, "{}: {}", self.workload, missing.join(", "))
    }
}

impl Partings {
    /// Returns the warning for people; it is empty if no workload is parted from what it refers to.
    /// Of the workloads it names so many at most.
    pub fn warning(&self, most: usize) -> String {
        let mut text = String::new();
        if let Some(reason) = &self.parted_unknown {
            let _ = writeln!(
                text,
                "Not known: whether workloads would be separated from what they refer to: {reason}"
            );
        }
        let mut missing = self.parted.iter().flat_map(|it| &it.missing);
        // An object that lies in no namespace goes along with no workload.
        let (one, more) = if missing.all(|it| it.is_cluster_scoped) {
            let placed = "which lies in no namespace and is placed by itself";
            (placed, placed)
        } else {
            (
                "because its policy does not set propagateDeps",
                "because their policies do not set propagateDeps",
            )
        };
        let all = self.parted.len();
        let _ = match all {
            0 => return text,
            1 => writeln!(
                text,
                "Warning: 1 workload would be separated from what it refers to, {one}"
            ),
            _ => writeln!(
                text,
                "Warning: {all} workloads would be separated from what they refer to, {more}"
            ),
        };
        text.push_str(&indented(&self.parted, most));
        text
    }
}

#[cfg(test)]
pub(super) mod tests {

    use super::*;
    use crate::fixtures::{self, read};

    /// Returns the dependency on a ConfigMap of the namespace `shop`.
    pub fn need(name: &str) -> Dependency {
        read(json!({
            "apiVersion": "v1", "kind": "ConfigMap", "namespace": "shop", "name": name,
        }))
    }

    fn binding(kind: (&str, &str), name: &str, on: &[&str]) -> Arc<AnyBinding> {
        let (version, kind) = kind;
        let clusters: Vec<Value> = on.iter().map(|it| json!({"name": it})).collect();
        let resource = json!({"apiVersion": version, "kind": kind, "name": name});
        let changes = json!({"spec": {"resource": resource, "clusters": clusters}});
        let title = format!("{name}-{}", kind.to_lowercase());
        fixtures::binding("shop", &title, &changes)
    }

    #[test]
    fn a_plan_parts_a_workload_from_what_does_not_go_where_it_goes() {
        let web = binding(("apps/v1", "Deployment"), "web", &["m1", "m2"]);
        let settings = binding(("v1", "ConfigMap"), "settings", &["m1", "m2"]);
        let needs: Needs = Ok(HashMap::from([(
            BindingKey::of(&web),
            vec![need("settings")],
        )]));
        let to = |clusters: &[&str]| -> BTreeSet<String> {
            clusters.iter().map(|it| (*it).to_owned()).collect()
        };
        let bindings = [web.clone(), settings.clone()];
        let lacks = "  Deployment shop/web: ConfigMap settings is not placed in m5\n";
        for (what, plan, expected) in [
            ("nothing moves", vec![], ""),
            ("it goes alone", vec![(&web, to(&["m2", "m5"]))], lacks),
            (
                "both go, each by itself",
                vec![(&web, to(&["m2", "m5"])), (&settings, to(&["m2", "m3"]))],
                lacks,
            ),
            (
                "both go to the same",
                vec![(&web, to(&["m2", "m5"])), (&settings, to(&["m2", "m5"]))],
                "",
            ),
            (
                "what it refers to goes",
                vec![(&settings, to(&["m2", "m3"]))],
                "  Deployment shop/web: ConfigMap settings is not placed in m1\n",
            ),
        ] {
            let plan = plan
                .into_iter()
                .map(|(it, to)| (BindingKey::of(it), to))
                .collect();
            let text = parted(&bindings, &needs, &plan).warning(usize::MAX);
            let lines = text.split_once('\n').map_or("", |it| it.1);
            assert_eq!(lines, expected, "{what}");
        }
    }

    #[test]
    fn propagate_deps_is_named_for_what_it_would_take_along() {
        for (is_cluster_scoped, expected) in [
            (false, "because its policy does not set propagateDeps\n"),
            (true, "which lies in no namespace and is placed by itself\n"),
        ] {
            let missing = Missing {
                kind: "ClusterRole".to_owned(),
                name: "reader".to_owned(),
                is_cluster_scoped,
                clusters: vec!["m5".to_owned()],
            };
            let web = binding(("apps/v1", "Deployment"), "web", &["m1"]);
            let parted = Parted {
                workload: Workload::of(&web.spec),
                missing: vec![missing],
            };
            let partings = Partings {
                parted: vec![parted],
                parted_unknown: None,
            };
            let text = partings.warning(usize::MAX);
            assert!(text.contains(expected), "{text}");
        }
    }

    #[test]
    fn what_a_workload_lacks_already_is_not_laid_to_the_plan_and_what_is_not_known_is_reported() {
        let web = binding(("apps/v1", "Deployment"), "web", &["m1"]);
        let settings = binding(("v1", "ConfigMap"), "settings", &["m2"]);
        let needs: Needs = Ok(HashMap::from([(
            BindingKey::of(&web),
            vec![need("settings")],
        )]));
        let found = parted(&[web, settings], &needs, &After::new());
        assert_eq!(found, Partings::default());
        let unknown = parted(&[], &Err("no".to_owned()), &After::new());
        assert!(unknown.warning(usize::MAX).ends_with("refer to: no\n"));
    }
}
