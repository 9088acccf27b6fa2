//! What a policy says that protects copies in the members, read from the policy itself.
//!
//! A binding bears a copy of its policy, and a Work a copy of that. Each is written a moment after
//! its original, so that a deletion which follows an edit at once finds copies from before the
//! edit. What removes a copy, or writes to one, therefore asks the policy that people write.

use std::borrow::Cow;
use std::collections::BTreeMap;

use muster_shared::api::any_binding::AnyBinding;
use muster_shared::api::binding::{ResourceBindingSpec, Suspension};
use muster_shared::api::policy::PropagationSpec;
use muster_shared::client;

use super::Fleet;
use super::api_error::ApiError;
use super::binding::BindingKey;
use super::claim::Claim;
use super::policy::Policy;
use super::template::TemplateKey;
use super::template_event::Lookup;

/// Targets of referrers whose policies are asked: a binding that names so many may not name all.
const MOST_ASKED: usize = 1000;

/// Writes into a binding's spec what its policy says of copies in members but for their places:
/// failover, replicated data, conflicts, deletion and suspension.
pub fn protect(spec: &mut ResourceBindingSpec, policy: &PropagationSpec) {
    let data = policy.data_replication.as_ref();
    spec.data_replication = data.and_then(|it| it.of(&spec.resource));
    spec.failover.clone_from(&policy.failover);
    spec.conflict_resolution
        .clone_from(&policy.conflict_resolution);
    spec.preserve_resources_on_deletion = policy.preserve_resources_on_deletion;
    // `scheduling` is the binding's own: others set it, such as a queue.
    let scheduling = spec.suspension.as_ref().and_then(|it| it.scheduling);
    let suspension = policy.suspension.as_ref();
    let suspended = Suspension {
        dispatching: suspension.and_then(|it| it.dispatching),
        dispatching_on_clusters: suspension.and_then(|it| it.dispatching_on_clusters.clone()),
        scheduling,
    };
    // An empty suspension is as good as none, and nothing is written to have the other one.
    if spec.suspension.clone().unwrap_or_default() != suspended {
        spec.suspension = (suspended != Suspension::default()).then_some(suspended);
    }
}

/// Returns the policy of a binding as the cache has it, which may be newer than the copy in the
/// binding. An edit of a lazy policy waits for that of the template, as it says: until then there
/// is none of it here.
pub fn policy_of(fleet: &Fleet, binding: &AnyBinding) -> Option<Policy> {
    let claim = Claim::on(&binding.metadata)?;
    let policy = claim.policy.presence(fleet).there()?;
    let is_ours = Claim::by(&policy).as_ref() == Some(&claim);
    (is_ours && (!policy.is_lazy() || is_outdated(fleet, binding))).then_some(policy)
}

/// Returns the spec of a binding with what its policy says by the cache, which may be newer than
/// the copy in the binding; a dependency, which follows other workloads, is suspended where all of
/// these are.
pub fn protected<'a>(fleet: &Fleet, binding: &'a AnyBinding) -> Cow<'a, ResourceBindingSpec> {
    protected_by(fleet, binding, policy_of(fleet, binding).as_ref())
}

/// Returns the spec of a binding with what its policy says ([`policy_of`]), as [`protected`] does:
/// for who reads more of that policy, which may change between two readings.
pub fn protected_by<'a>(
    fleet: &Fleet,
    binding: &'a AnyBinding,
    policy: Option<&Policy>,
) -> Cow<'a, ResourceBindingSpec> {
    let spec = &binding.spec;
    let follows = spec.placement.is_none() && !spec.required_by.is_empty();
    if follows && Claim::on(&binding.metadata).is_none() {
        with_referrers(fleet, spec)
    } else {
        by_policy(spec, policy)
    }
}

/// Returns the spec of a dependency, suspended also where all its referrers are, as their policies
/// say by now.
fn with_referrers<'a>(
    fleet: &Fleet,
    spec: &'a ResourceBindingSpec,
) -> Cow<'a, ResourceBindingSpec> {
    let targets = spec.required_by.iter().map(|it| it.clusters.len().max(1));
    if targets.sum::<usize>() >= MOST_ASKED {
        return Cow::Borrowed(spec);
    }
    let mut suspended: BTreeMap<&str, bool> = BTreeMap::new();
    for referrer in &spec.required_by {
        // One that is not suspended in a cluster decides for it, and mostly there are few clusters.
        let mut targets = referrer.clusters.iter();
        if targets.all(|it| suspended.get(&*it.name) == Some(&false)) {
            continue;
        }
        let held = fleet.bindings.get(&BindingKey::of_snapshot(referrer));
        let held = held.as_deref();
        let says = held.map(|held| by_policy(&held.spec, policy_of(fleet, held).as_ref()));
        for target in &referrer.clusters {
            let is_held = says
                .as_ref()
                .is_some_and(|it| it.dispatching_suspended_in(&target.name));
            *suspended.entry(&target.name).or_insert(true) &= is_held;
        }
    }
    suspended.retain(|cluster, is_held| *is_held && !spec.dispatching_suspended_in(cluster));
    if suspended.is_empty() {
        return Cow::Borrowed(spec);
    }
    let mut spec = spec.clone();
    let suspension = spec.suspension.get_or_insert_default();
    let listed = suspension.dispatching_on_clusters.get_or_insert_default();
    let names = suspended.into_keys().map(str::to_owned);
    listed.cluster_names.extend(names);
    Cow::Owned(spec)
}

/// Returns the spec of a binding with what its policy says.
fn by_policy<'a>(
    held: &'a ResourceBindingSpec,
    policy: Option<&Policy>,
) -> Cow<'a, ResourceBindingSpec> {
    let Some(policy) = policy else {
        return Cow::Borrowed(held);
    };
    let mut spec = held.clone();
    protect(&mut spec, policy.spec());
    if spec == *held {
        Cow::Borrowed(held)
    } else {
        Cow::Owned(spec)
    }
}

/// Returns whether a binding was made of another state of its template than the present one, which
/// goes to the members before the binding follows.
fn is_outdated(fleet: &Fleet, binding: &AnyBinding) -> bool {
    let template = fleet
        .templates
        .get(&TemplateKey::of(&binding.spec.resource));
    matches!(template, Lookup::Found(template) if template.is_ahead_of(&binding.metadata))
}

/// Returns whether objects of a binding stay in the members when the binding is deleted, as its
/// policy says now. Without a policy, the binding's own copy of the setting counts; for a
/// dependency, which follows other workloads, it is what any of their policies says. When a policy
/// is deleted, the binding keeps what it said last.
pub async fn preserves_on_deletion(fleet: &Fleet, binding: &AnyBinding) -> Result<bool, ApiError> {
    if let Some(claim) = Claim::on(&binding.metadata) {
        if let Some(preserves) = preserves_by(fleet, &claim, &binding.spec).await? {
            return Ok(preserves);
        }
        // The copy in the cache may be from before the policy went.
        let key = BindingKey::of(binding);
        let now = client::get_opt(&key.api(&fleet.client), &key.name).await;
        let now = now.map_err(ApiError::of("read", &key))?;
        let spec = &now.as_ref().unwrap_or(binding).spec;
        return Ok(spec.is_preserved_on_deletion());
    }
    let mut claims: Vec<Claim> = Vec::new();
    for referrer in &binding.spec.required_by {
        let held = fleet.bindings.get(&BindingKey::of_snapshot(referrer));
        let claim = held.and_then(|held| Claim::on(&held.metadata));
        claims.extend(claim.filter(|claim| !claims.contains(claim)));
    }
    for claim in claims {
        if preserves_by(fleet, &claim, &binding.spec).await? == Some(true) {
            return Ok(true);
        }
    }
    Ok(binding.spec.is_preserved_on_deletion())
}

/// Returns what the policy of a claim says now of the objects of a binding with this spec; `None`
/// when there is no such policy any more.
async fn preserves_by(
    fleet: &Fleet,
    claim: &Claim,
    spec: &ResourceBindingSpec,
) -> Result<Option<bool>, ApiError> {
    let policy = claim.policy.read(fleet).await?;
    let policy = policy.filter(|policy| Claim::by(policy).as_ref() == Some(claim));
    Ok(policy.map(|policy| {
        let says = policy.spec().preserve_resources_on_deletion == Some(true);
        says || (policy.is_lazy() && spec.is_preserved_on_deletion())
    }))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::fleet::template::{Kind, TEMPLATE_FINGERPRINT, Template};
    use crate::fleet::testing::{self, Bench, binding};

    fn policy(preserves: bool, id: &str) -> Value {
        let mut policy = testing::policy();
        policy["metadata"]["uid"] = json!(id);
        policy["metadata"]["labels"]["propagationpolicy.karmada.io/permanent-id"] = json!(id);
        policy["spec"]["preserveResourcesOnDeletion"] = json!(preserves);
        policy
    }

    /// Returns the binding of a Deployment that is claimed by the policy `shop/web` with the id
    /// `p`.
    fn claimed(preserves: bool) -> Value {
        let mut it = testing::claimed(binding());
        it["spec"]["preserveResourcesOnDeletion"] = json!(preserves);
        it
    }

    /// Returns the binding of a ConfigMap on which the Deployment `web` depends.
    fn dependency() -> Value {
        json!({
            "metadata": {"namespace": "shop", "name": "web-configmap"},
            "spec": {
                "resource": {
                    "apiVersion": "v1", "kind": "ConfigMap", "namespace": "shop", "name": "web",
                },
                "requiredBy": [{"namespace": "shop", "name": "web-deployment", "clusters": []}],
            },
        })
    }

    async fn is_preserved(bench: &Bench, binding: Value) -> bool {
        let binding: AnyBinding = serde_json::from_value(binding).unwrap();
        preserves_on_deletion(&bench.fleet, &binding).await.unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn an_edit_of_the_policy_counts_before_any_cache_or_binding_shows_it() {
        for edited in [true, false] {
            let objects = [
                ("propagationpolicies", policy(!edited, "p")),
                ("resourcebindings", claimed(!edited)),
            ];
            let bench = Bench::followed(objects).await;
            bench.api.put("propagationpolicies", policy(edited, "p"));
            assert_eq!(is_preserved(&bench, claimed(!edited)).await, edited);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_policy_that_went_has_left_its_last_word_on_the_binding() {
        let bench = Bench::followed([("resourcebindings", claimed(false))]).await;
        bench.api.put("resourcebindings", claimed(true));
        // Another policy of the same name says nothing of what the former one placed.
        for successor in [None, Some(policy(false, "q"))] {
            if let Some(successor) = successor {
                bench.api.put("propagationpolicies", successor);
            }
            assert!(is_preserved(&bench, claimed(false)).await);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_dependency_is_preserved_as_the_policy_of_any_referrer_says() {
        for preserves in [true, false] {
            let bench = Bench::followed([("resourcebindings", claimed(false))]).await;
            bench.api.put("propagationpolicies", policy(preserves, "p"));
            assert_eq!(is_preserved(&bench, dependency()).await, preserves);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_dependency_is_suspended_as_soon_as_the_policies_of_all_its_referrers_say_so() {
        let mut says = policy(true, "p");
        says["spec"]["suspension"] = json!({"dispatching": true});
        let mut other = binding();
        other["metadata"]["name"] = json!("other-deployment");
        let objects = [
            ("propagationpolicies", says),
            ("resourcebindings", claimed(false)),
            ("resourcebindings", other),
        ];
        let bench = Bench::followed(objects).await;
        let needed = |by: &str, cluster: &str| {
            let clusters = json!([{"name": cluster, "replicas": 1}]);
            json!({"namespace": "shop", "name": by, "clusters": clusters})
        };
        let in_m1 = json!({"dispatchingOnClusters": {"clusterNames": ["m1"]}});
        for (elsewhere, expected) in [("m2", in_m1), ("m1", Value::Null)] {
            let mut conf = dependency();
            conf["spec"]["requiredBy"] = json!([
                needed("web-deployment", "m1"),
                needed("other-deployment", elsewhere),
            ]);
            let conf: AnyBinding = serde_json::from_value(conf).unwrap();
            let spec = protected(&bench.fleet, &conf);
            assert_eq!(json!(spec.suspension), expected, "another in {elsewhere}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_is_decided_while_the_policy_or_the_binding_of_one_that_went_cannot_be_read() {
        for (path, code, preserves) in [
            ("/propagationpolicies/web", 500, true),
            ("/propagationpolicies/web", 404, true),
            ("/resourcebindings/web-deployment", 404, false),
        ] {
            let bench = Bench::followed([("resourcebindings", claimed(false))]).await;
            bench.api.refuse(http::Method::GET, path, code, "");
            let binding: AnyBinding = serde_json::from_value(claimed(preserves)).unwrap();
            let answer = preserves_on_deletion(&bench.fleet, &binding).await;
            assert!(answer.is_err(), "{path} {code}: {answer:?}");
        }
    }

    #[test]
    fn an_empty_suspension_is_left_as_it_is() {
        let says = |suspension: &serde_json::Value| -> PropagationSpec {
            serde_json::from_value(json!({"resourceSelectors": [], "suspension": suspension}))
                .unwrap()
        };
        let (none, empty, all) = (json!(null), json!({}), json!({"dispatching": true}));
        for (held, policy, expected) in [
            (&empty, &none, &empty),
            (&none, &empty, &none),
            (&empty, &empty, &empty),
            (&all, &none, &none),
            (&all, &empty, &none),
            (&empty, &all, &all),
        ] {
            let mut spec = ResourceBindingSpec {
                suspension: serde_json::from_value(held.clone()).unwrap(),
                ..ResourceBindingSpec::default()
            };
            protect(&mut spec, &says(policy));
            assert_eq!(json!(spec.suspension), *expected, "{held} by {policy}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_binding_is_read_with_the_protection_that_its_policy_gives_it_by_now() {
        let mut says = policy(true, "p");
        says["spec"]["suspension"] = json!({"dispatching": true});
        says["spec"]["conflictResolution"] = json!("Overwrite");
        says["spec"]["failover"] = json!({"cluster": {"purgeMode": "Never"}});
        let mut held: AnyBinding = serde_json::from_value(claimed(false)).unwrap();
        held.spec.suspension = Some(Suspension {
            scheduling: Some(true),
            ..Suspension::default()
        });
        let mut is_lazy = says.clone();
        is_lazy["spec"]["activationPreference"] = json!("Lazy");
        for (policy, is_protected) in [(says, true), (is_lazy, false)] {
            let bench = Bench::followed([("propagationpolicies", policy)]).await;
            let spec = json!(*protected(&bench.fleet, &held));
            let expected = if is_protected {
                json!([true, {"scheduling": true, "dispatching": true}, "Overwrite", "Never"])
            } else {
                json!([false, {"scheduling": true}, null, null])
            };
            let purge = &spec["failover"]["cluster"]["purgeMode"];
            let found = [
                &spec["preserveResourcesOnDeletion"],
                &spec["suspension"],
                &spec["conflictResolution"],
                purge,
            ];
            assert_eq!(json!(found), expected);
            assert_eq!(spec["placement"], json!(held.spec)["placement"]);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_lazy_policy_protects_from_the_edit_of_the_template_on_that_it_waits_for() {
        let template = |image: &str| {
            json!({
                "metadata": {"namespace": "shop", "name": "web"}, "spec": {"image": image},
            })
        };
        let mut says = policy(true, "p");
        says["spec"]["suspension"] = json!({"dispatching": true});
        says["spec"]["activationPreference"] = json!("Lazy");
        let mut held = claimed(false);
        let made_of = Template::new(template("a")).unwrap().fingerprint();
        held["metadata"]["annotations"][TEMPLATE_FINGERPRINT] = json!(made_of);
        let held: AnyBinding = serde_json::from_value(held).unwrap();
        for (image, expected) in [("a", Value::Null), ("b", json!({"dispatching": true}))] {
            let mut bench = Bench::new([
                ("propagationpolicies", says.clone()),
                ("deployments", template(image)),
            ]);
            bench.api.serve_deployments();
            bench.fleet.follow_templates();
            let kind = Kind::new("apps/v1", "Deployment");
            bench.fleet.templates.name(&kind);
            bench.follow_for(10).await;
            let spec = protected(&bench.fleet, &held);
            assert_eq!(json!(spec.suspension), expected, "made of a, is {image}");
        }
    }
}
