//! Override policies of the templates of bindings: when they change, and what they make of a
//! manifest.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use muster_shared::api::any_policy::AnyOverridePolicy;
use muster_shared::api::binding::{ObjectReference, ResourceBindingSpec};
use muster_shared::api::cluster::Cluster;
use muster_shared::api::override_policy::OverrideSpec;
use muster_shared::names::label;
use muster_shared::queue::Queue;
use muster_shared::watch::Change;
use muster_shared::watch::outline::Labels;
use serde_json::Value;

use super::render::Pairs;
use crate::fleet::Fleet;
use crate::fleet::binding::{BindingKey, Bindings};
use crate::fleet::claim::Claim;
use crate::fleet::copy::retains_replicas;
use crate::fleet::lookups::Overridden;
use crate::fleet::selection::{Subject, may_select};
use crate::fleet::template::{Template, TemplateKey};
use crate::fleet::template_event::Lookup;
use crate::fleet::templates::Templates;
use crate::propagation::overrides::{self, Applied, Policies, Selected, concerns};

/// Longest time that bindings wait after a start for the first list of override policies.
const SETTLING: Duration = Duration::from_secs(10);
/// Interval at which waiting bindings check whether the override policies are known.
const CHECK_EVERY: Duration = Duration::from_millis(50);

/// Answers how override policies change a workload in a cluster, for those who choose clusters and
/// read what runs there. Another program that makes the Works, such as Karmada's, has rules of its
/// own for policies that fail.
pub fn answer(fleet: &Arc<Fleet>) {
    let asked = Arc::downgrade(fleet);
    fleet.override_lookup.answer(move |spec, cluster| {
        let Some(fleet) = asked.upgrade() else {
            return Ok(None);
        };
        let found = overridden(&fleet, spec, cluster);
        if fleet.settings.runs("binding") {
            found
        } else {
            found.or(Ok(None))
        }
    });
}

/// Reconciles the bindings whose manifests a change of an override policy, or of a cluster that the
/// policies may select, can change.
pub(super) fn follow(fleet: &Arc<Fleet>, queue: &Queue<BindingKey>) {
    answer(fleet);
    let affected = Affected {
        bindings: fleet.bindings.clone(),
        templates: fleet.templates.clone(),
        queue: queue.clone(),
    };
    fleet.override_policies.on_change({
        let affected = affected.clone();
        move |change| {
            let namespace = change.object().metadata.namespace.as_deref();
            affected.by_policy(namespace, specs(change));
        }
    });
    let policies = fleet.override_policies.clone();
    fleet.clusters.on_change(move |change| {
        // A cluster that is new is not the target of anything yet, or its bindings have failed and
        // are tried again.
        let Change::Applied {
            old: Some(old),
            new,
        } = change
        else {
            return;
        };
        if traits(old) != traits(new) && !policies.is_empty() {
            affected.by_cluster(new.metadata.name.as_deref().unwrap_or_default());
        }
    });
}

/// Returns the specs of a policy before and after a change. One that is being deleted selects
/// nothing.
fn specs(change: &Change<AnyOverridePolicy>) -> (Option<&OverrideSpec>, Option<&OverrideSpec>) {
    let (old, new) = change.sides();
    let [old, new] = [old, new].map(|it| it.filter(|policy| !policy.is_deleting()));
    (old.map(|it| &it.spec), new.map(|it| &it.spec))
}

/// Returns what affinities compare of a cluster.
fn traits(cluster: &Cluster) -> (Option<&Pairs>, [Option<&str>; 2], Vec<&str>) {
    let spec = &cluster.spec;
    (
        cluster.metadata.labels.as_ref(),
        [spec.provider.as_deref(), spec.region.as_deref()],
        cluster.zones().collect(),
    )
}

/// Finds the bindings that a change affects.
#[derive(Clone)]
struct Affected {
    bindings: Bindings,
    templates: Templates,
    queue: Queue<BindingKey>,
}

impl Affected {
    /// Reconciles the bindings of templates that the policy selects or has selected. `namespace` is
    /// that of an OverridePolicy, `None` for a ClusterOverridePolicy.
    fn by_policy(
        &self,
        namespace: Option<&str>,
        (old, new): (Option<&OverrideSpec>, Option<&OverrideSpec>),
    ) {
        // Each binding of the first list is reconciled anyway.
        let knows_bindings = self.bindings.is_synced();
        if old == new || (old.is_none() && !knows_bindings) {
            return;
        }
        let specs = [old, new].into_iter().flatten();
        let specs: Vec<_> = specs.map(|spec| widened(namespace, spec)).collect();
        // A template is decoded for its labels, which takes long for each of a large fleet.
        let may_concern = |resource: &ObjectReference| {
            specs.iter().any(|spec| {
                let selectors = &spec.resource_selectors;
                selectors.is_empty() || selectors.iter().any(|it| may_select(it, resource))
            })
        };
        let selects = |key: &TemplateKey| match self.templates.get(key) {
            Lookup::Found(template) => {
                let subject = Subject::of(&key.kind, &template);
                let mut specs = specs.iter();
                specs.any(|spec| concerns(namespace, spec, subject).is_some())
            }
            Lookup::Absent => false,
            Lookup::Unknown => true,
        };
        for binding in self.bindings.iter_of(namespace) {
            let resource = &binding.spec.resource;
            if may_concern(resource) && selects(&TemplateKey::of(resource)) {
                self.queue.add(BindingKey::of(binding.as_ref()));
            }
        }
    }

    /// Reconciles the bindings that are placed in a cluster.
    fn by_cluster(&self, cluster: &str) {
        for key in self.bindings.index().naming(cluster) {
            self.queue.add((*key).clone());
        }
    }
}

/// Returns the spec of a policy such that it selects what it may select in any cluster: what labels
/// an OverridePolicy finds there depends on the ClusterOverridePolicies.
pub(super) fn widened<'a>(
    namespace: Option<&str>,
    spec: &'a OverrideSpec,
) -> Cow<'a, OverrideSpec> {
    let mut spec = Cow::Borrowed(spec);
    let selectors = &spec.resource_selectors;
    if namespace.is_some() && selectors.iter().any(|it| it.label_selector.is_some()) {
        for selector in &mut spec.to_mut().resource_selectors {
            selector.label_selector = None;
        }
    }
    spec
}

/// Waits until the override policies are known, but not for ever: bindings that need none of them,
/// such as those that are being deleted, do not wait any longer.
pub(super) async fn settle(fleet: &Fleet) {
    let known = async {
        while !fleet.knows_overrides() {
            tokio::time::sleep(CHECK_EVERY).await;
        }
    };
    _ = tokio::time::timeout(SETTLING, known).await;
}

/// Returns the override policies that may select a template.
///
/// # Errors
/// There is a policy that might select the template and cannot be read, or one is gone on which the
/// policy of the template depends: the manifest without its changes might be wrong for every
/// cluster.
pub(super) fn policies(
    fleet: &Fleet,
    subject: Subject<'_>,
    template: &Template,
    spec: &ResourceBindingSpec,
) -> Result<Policies, String> {
    if let Some(reason) = awaited(fleet, template, spec) {
        return Err(reason);
    }
    let unread = |policy: &str| {
        format!(
            "{policy} cannot be read: nothing that it might select is made or updated until it is repaired or removed"
        )
    };
    let namespace = subject.namespace.unwrap_or_default();
    let wide = fleet.override_policies.of(None);
    let near = fleet.override_policies.of(Some(namespace));
    if let Some(name) = wide.unreadable_in("") {
        return Err(unread(&format!("ClusterOverridePolicy {name}")));
    }
    if let Some(name) = near.unreadable_in(namespace) {
        return Err(unread(&format!("OverridePolicy {namespace}/{name}")));
    }
    let near = near.iter_of(Some(namespace));
    Ok(Policies(wide.iter().chain(near).collect()))
}

/// Returns in words which override policies the policy of a template waits for, if it does: nothing
/// of it is propagated then, and what was made before stays as it is. A template without a policy
/// goes along with workloads, and waits where the policies of all of them do.
fn awaited(fleet: &Fleet, template: &Template, spec: &ResourceBindingSpec) -> Option<String> {
    if !fleet.knows_overrides() {
        return None;
    }
    let waits = |claim: &Claim| {
        let policy = claim.policy.presence(fleet).there()?;
        let is_ours = Claim::by(&policy).as_ref() == Some(claim);
        policy.awaited_overrides(fleet).filter(|_| is_ours)
    };
    if let Some(claim) = Claim::on(template) {
        return waits(&claim);
    }
    let (mut claims, mut reason) = (Vec::new(), None);
    for referrer in &spec.required_by {
        let binding = fleet.bindings.get(&BindingKey::of_snapshot(referrer))?;
        let claim = Claim::on(&binding.metadata)?;
        if !claims.contains(&claim) {
            reason = Some(waits(&claim)?);
            claims.push(claim);
        }
    }
    reason
}

/// Changes the manifest of a template for a cluster by the override policies that may select it,
/// and of which those of the fleet do (`wide`); returns the annotations of the Work.
///
/// # Errors
/// A change cannot be made, or nothing is known of the cluster.
pub(super) fn apply(
    fleet: &Fleet,
    (policies, wide): (&Policies, &[Selected<'_>]),
    template: Subject<'_>,
    manifest: &mut Value,
    cluster: &str,
) -> Result<Pairs, String> {
    let by_fleet = change(fleet, wide, manifest, cluster)?;
    let labels = labels(manifest);
    let near = policies.near(Subject {
        labels: Labels::Map(Some(&labels)),
        ..template
    });
    let by_namespace = change(fleet, &near, manifest, cluster)?;
    let applied = by_fleet.and(by_namespace);
    Ok(applied.annotations().into_iter().collect())
}

fn change<'a>(
    fleet: &Fleet,
    selected: &'a [Selected<'_>],
    manifest: &mut Value,
    cluster: &str,
) -> Result<Applied<'a>, String> {
    if selected.is_empty() {
        return Ok(Applied::default());
    }
    let Some(cluster) = fleet.clusters.get(None, cluster) else {
        return Err(format!(
            "cluster {cluster} is not known, and neither are the override policies that apply to it"
        ));
    };
    overrides::apply(manifest, selected, &cluster)
}

/// Returns the labels of a manifest.
fn labels(manifest: &Value) -> Pairs {
    let labels = manifest["metadata"]["labels"].as_object();
    let labels = labels.into_iter().flatten();
    labels
        .filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())))
        .collect()
}

/// Returns what the override policies make of a workload in a cluster, if there are any for it. A
/// template that is not known is not judged.
///
/// # Errors
/// One of them cannot be read, or be applied there.
fn overridden(
    fleet: &Fleet,
    spec: &ResourceBindingSpec,
    cluster: &str,
) -> Result<Option<Overridden>, String> {
    let key = TemplateKey::of(&spec.resource);
    let Lookup::Found(template) = fleet.templates.get(&key) else {
        return Ok(None);
    };
    let subject = Subject::of(&key.kind, &template);
    let policies = policies(fleet, subject, &template, spec)?;
    let wide = policies.wide(subject);
    if wide.is_empty() && policies.near(subject).is_empty() {
        return Ok(None);
    }
    let mut manifest = template.to_override(&key.kind);
    let replicas = |manifest: &Value| manifest["spec"]["replicas"].as_i64();
    let asked = replicas(&manifest);
    apply(fleet, (&policies, &wide), subject, &mut manifest, cluster)?;
    let retained = &manifest["metadata"]["labels"][label::RETAIN_REPLICAS];
    Ok(Some(Overridden {
        asked,
        replicas: replicas(&manifest),
        members_scale: retains_replicas(retained.as_str()),
    }))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::fleet::testing::{
        Bench, binding, claimed, cluster, deleting, deployment, pass, policy,
    };
    use crate::settings::Settings;

    /// Returns a fleet with two clusters, a Deployment and its binding, and with override policies.
    async fn bench<const N: usize>(template: Value, policies: [(&str, Value); N]) -> Bench {
        let clusters = ["m1", "m2"].map(|name| ("clusters", cluster(name)));
        let bound = [("deployments", template), ("resourcebindings", binding())];
        let mut bench = Bench::new(clusters.into_iter().chain(bound).chain(policies));
        bench.api.serve_deployments();
        bench.fleet.follow_templates();
        follow(&bench.fleet, &Queue::new("bindings"));
        bench.follow_for(5).await;
        bench
    }

    #[tokio::test(start_paused = true)]
    async fn what_overrides_leave_of_the_replicas_is_all_that_a_copy_has_to_run() {
        let replicas =
            |value: i64| json!({"path": "/spec/replicas", "operator": "replace", "value": value});
        let retained = json!({
            "path": "/metadata/labels", "operator": "add",
            "value": {label::RETAIN_REPLICAS: "true"},
        });
        let image = json!({"path": "/spec/paused", "operator": "add", "value": true});
        for (plaintext, least, given, is_refused) in [
            (replicas(2), [4, 2], [4, 2], false),
            (replicas(9), [4, 4], [4, 4], false),
            (replicas(0), [4, 1], [4, 0], true),
            (retained, [4, 1], [4, 1], false),
            (image, [4, 4], [4, 4], false),
        ] {
            let overrides = json!({
                "metadata": {"namespace": "shop", "name": "small"},
                "spec": {
                    "resourceSelectors": [{"apiVersion": "apps/v1", "kind": "Deployment"}],
                    "overrideRules": [{
                        "targetCluster": {"clusterNames": ["m2"]},
                        "overriders": {"plaintext": [plaintext]},
                    }],
                },
            });
            let bench = bench(deployment(4), [("overridepolicies", overrides.clone())]).await;
            let binding = bench.binding("web-deployment").unwrap();
            let lookup = &bench.fleet.override_lookup;
            let got = ["m1", "m2"].map(|it| lookup.least(&binding.spec, it, 4));
            assert_eq!(got, least, "{overrides}");
            let got = ["m1", "m2"].map(|it| lookup.given(&binding.spec, it, 4));
            assert_eq!(got, given, "{overrides}");
            let refusals = ["m1", "m2"].map(|it| lookup.refuse(&binding.spec, it).is_some());
            assert_eq!(refusals, [false, is_refused], "{overrides}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn overrides_count_where_another_program_makes_the_works_but_for_those_that_fail() {
        let settings = Settings {
            controllers: "*,-binding".parse().unwrap(),
            ..Settings::default()
        };
        let replaced = |path: &str| json!({"path": path, "operator": "replace", "value": 2});
        for (path, least) in [("/spec/replicas", 2), ("/spec/none/there", 4)] {
            let overrides = json!({
                "metadata": {"namespace": "shop", "name": "small"},
                "spec": {
                    "resourceSelectors": [{"apiVersion": "apps/v1", "kind": "Deployment"}],
                    "overrideRules": [{"overriders": {"plaintext": [replaced(path)]}}],
                },
            });
            let objects = [
                ("clusters", cluster("m1")),
                ("deployments", deployment(4)),
                ("resourcebindings", binding()),
                ("overridepolicies", overrides),
            ];
            let mut bench = Bench::with(settings.clone(), objects);
            bench.api.serve_deployments();
            bench.fleet.follow_templates();
            answer(&bench.fleet);
            bench.follow_for(5).await;
            let binding = bench.binding("web-deployment").unwrap();
            let lookup = &bench.fleet.override_lookup;
            assert_eq!(lookup.least(&binding.spec, "m1", 4), least, "{path}");
            assert_eq!(lookup.refuse(&binding.spec, "m1"), None, "{path}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn policies_of_a_namespace_select_by_the_labels_that_those_of_the_fleet_leave() {
        let policy = |namespace: Option<&str>, selector: Value, overriders: Value| {
            json!({
                "metadata": {"namespace": namespace, "name": "p"},
                "spec": {
                    "resourceSelectors": [selector],
                    "overrideRules": [{"overriders": overriders}],
                },
            })
        };
        let kind = json!({"apiVersion": "apps/v1", "kind": "Deployment"});
        let labelled = |value: &str| {
            let mut selector = kind.clone();
            selector["labelSelector"] = json!({"matchLabels": {"tier": value}});
            let replicas = json!({"path": "/spec/replicas", "operator": "replace", "value": 2});
            policy(Some("shop"), selector, json!({"plaintext": [replicas]}))
        };
        let mut wide = policy(
            None,
            kind.clone(),
            json!({"labelsOverrider": [{"operator": "add", "value": {"tier": "small"}}]}),
        );
        wide["spec"]["overrideRules"][0]["targetCluster"] = json!({"clusterNames": ["m2"]});
        // The fleet API does not serve the kind of another binding.
        let mut other = binding();
        other["metadata"]["name"] = json!("web-statefulset");
        other["spec"]["resource"]["kind"] = json!("StatefulSet");
        for (value, least) in [("small", [4, 2]), ("large", [2, 4]), ("other", [4, 4])] {
            let mut template = deployment(4);
            template["metadata"]["labels"] = json!({"tier": "large"});
            let policies = [
                ("clusteroverridepolicies", wide.clone()),
                ("overridepolicies", labelled(value)),
                ("resourcebindings", other.clone()),
            ];
            let bench = bench(template, policies).await;
            let binding = bench.binding("web-deployment").unwrap();
            let lookup = &bench.fleet.override_lookup;
            let got = ["m1", "m2"].map(|it| lookup.least(&binding.spec, it, 4));
            assert_eq!(got, least, "{value}");
            let affected = Affected {
                bindings: bench.fleet.bindings.clone(),
                templates: bench.fleet.templates.clone(),
                queue: Queue::new("affected"),
            };
            let changed: AnyOverridePolicy = serde_json::from_value(labelled(value)).unwrap();
            affected.by_policy(Some("shop"), (None, Some(&changed.spec)));
            assert_eq!(affected.queue.len(), 1, "{value}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn works_stay_as_they_are_while_an_override_policy_is_gone_that_they_depend_on() {
        use crate::propagation::binding::leaving_tests::bound;
        use crate::propagation::binding::replacing_tests::to;

        let overrides = |is_paused: bool| {
            let paused = json!({"path": "/spec/paused", "operator": "add", "value": is_paused});
            json!({
                "metadata": {"namespace": "shop", "name": "paused"},
                "spec": {
                    "resourceSelectors": [{"apiVersion": "apps/v1", "kind": "Deployment"}],
                    "overrideRules": [{"overriders": {"plaintext": [paused]}}],
                },
            })
        };
        let mut depends = policy();
        depends["spec"]["dependentOverrides"] = json!(["paused"]);
        let (template, binding) = (claimed(deployment(2)), claimed(to(&["m1"], 1)));
        let mut bench = bound([cluster("m1")], template, binding, []);
        bench.api.put("propagationpolicies", depends);
        bench.api.put("overridepolicies", overrides(true));
        bench.follow_for(10).await;
        let orders = |bench: &Bench| {
            let work = bench.api.all("works").remove(0);
            let paused = work["spec"]["workload"]["manifests"][0]["spec"]["paused"].clone();
            let binding = bench.binding("web-deployment").unwrap();
            let refused = bench
                .fleet
                .override_lookup
                .refuse(&binding.spec, "m1")
                .is_some();
            (paused, refused)
        };
        assert_eq!(orders(&bench), (json!(true), false));
        // Whoever deletes it in the foreground holds it by a finalizer first.
        let mut held = deleting(overrides(true));
        held["metadata"]["finalizers"] = json!(["foregroundDeletion"]);
        bench.api.put("overridepolicies", held);
        pass(60).await;
        assert_eq!(orders(&bench), (json!(true), true));
        bench.api.delete("overridepolicies", "shop", "paused");
        pass(60).await;
        assert_eq!(orders(&bench), (json!(true), true));
        bench.api.put("overridepolicies", overrides(false));
        pass(60).await;
        assert_eq!(orders(&bench), (json!(false), false));
    }

    #[tokio::test(start_paused = true)]
    async fn what_workloads_need_stays_as_it_is_while_an_override_policy_is_gone_they_depend_on() {
        use crate::fleet::testing::{claimed, pass, policy};
        use crate::propagation::binding::leaving_tests::{moved, started};
        use crate::propagation::binding::replacing_tests::to;

        let mirror = json!({
            "metadata": {"namespace": "shop", "name": "mirror"},
            "spec": {
                "resourceSelectors": [{"apiVersion": "v1", "kind": "ConfigMap"}],
                "overrideRules": [{"overriders": {"labelsOverrider": [
                    {"operator": "add", "value": {"mirror": "eu"}},
                ]}}],
            },
        });
        let mut depends = policy();
        depends["spec"]["dependentOverrides"] = json!(["mirror"]);
        let web = claimed(to(&["m1"], 1));
        let mut other = moved("other-deployment", "apps/v1", "Deployment");
        other["metadata"]["labels"] = json!({"resourcebinding.karmada.io/permanent-id": "o"});
        let needed_by = |names: &[&str]| {
            let at = json!([{"name": "m1"}]);
            let named = |name: &&str| json!({"namespace": "shop", "name": name, "clusters": at});
            let mut conf = moved("web-configmap", "v1", "ConfigMap");
            conf["metadata"]["labels"] = json!({"resourcebinding.karmada.io/permanent-id": "c"});
            conf["spec"]["clusters"] = json!([]);
            conf["spec"]["placement"] = Value::Null;
            conf["spec"]["requiredBy"] = names.iter().map(named).collect();
            conf
        };
        for (referrers, stays) in [
            (&["web-deployment"][..], true),
            // The policy of the other workload was deleted, and waits for nothing.
            (&["web-deployment", "other-deployment"], false),
        ] {
            let conf = json!({
                "apiVersion": "v1", "kind": "ConfigMap",
                "metadata": {"namespace": "shop", "name": "web"},
            });
            let mut bench = started([
                ("clusters", cluster("m1")),
                ("configmaps", conf),
                ("resourcebindings", web.clone()),
                ("resourcebindings", other.clone()),
                ("resourcebindings", needed_by(referrers)),
                ("propagationpolicies", depends.clone()),
                ("overridepolicies", mirror.clone()),
            ]);
            bench.api.serve("/api/v1", "v1", "configmaps", "ConfigMap");
            bench.follow_for(10).await;
            let is_mirrored = || {
                let work = bench.api.all("works").remove(0);
                let manifest = &work["spec"]["workload"]["manifests"][0];
                assert_eq!(manifest["kind"], "ConfigMap");
                manifest["metadata"]["labels"]["mirror"] == "eu"
            };
            assert!(is_mirrored());
            bench.api.delete("overridepolicies", "shop", "mirror");
            pass(60).await;
            assert_eq!(is_mirrored(), stays, "{referrers:?}");
        }
    }
}
