//! Reconciles a policy: the templates that it claims, claimed, or may claim.

use std::collections::BTreeSet;
use std::sync::Arc;

use kube::Client;
use muster_shared::api::any_policy::{AnyOverridePolicy, AnyPropagationPolicy};
use muster_shared::api::policy::ResourceSelector;
use muster_shared::controller::Controller;
use muster_shared::events::EventType;
use muster_shared::finalizers;
use muster_shared::queue::Next;
use muster_shared::tasks::Tasks;
use muster_shared::watch::outline::Outline;
use muster_shared::watch::{Change, Informer};
use serde_json::{Value, json};

use super::controller::Detector;
use super::error::Error;
use super::kinds::kinds_of;
use super::preempt::may_preempt;
use super::select::selects;
use crate::fleet::api_error::ApiError;
use crate::fleet::binding::BindingKey;
use crate::fleet::claim::Claim;
use crate::fleet::policy::{Policy, PolicyKey};
use crate::fleet::selection::{Subject, given};
use crate::fleet::template::{Kind, Template, TemplateKey};
use crate::fleet::template_event::Lookup;
use crate::fleet::write::{Written, merge};

/// How many policies are worked on at a time: they are few, and each may touch many templates.
const WORKERS: usize = 4;

/// Starts following the policies.
pub(super) fn start(detector: &Arc<Detector>, tasks: &mut Tasks) {
    for (_, policies) in detector.fleet.policies.informers() {
        listen(detector, policies);
    }
    let fleet = &detector.fleet;
    let waiting = Arc::clone(detector);
    fleet.override_policies.on_change(move |change| {
        if let Change::Applied { old: None, new } = change {
            waiting.revisit_dependent(new);
        }
    });
    Controller::with(fleet, "policies", &detector.policies).run(
        tasks,
        WORKERS,
        Arc::clone(detector),
        |_, detector, key| async move { detector.reconcile_policy(key).await },
    );
}

fn listen(detector: &Arc<Detector>, policies: &Informer<AnyPropagationPolicy>) {
    let (to, listed) = (Arc::clone(detector), policies.clone());
    policies.on_change(move |change| {
        let (old, new) = match change {
            Change::Applied { old, new } => {
                (old.clone().map(Policy), Some(Policy(Arc::clone(new))))
            }
            Change::Deleted { old } => (Some(Policy(Arc::clone(old))), None),
        };
        let (old, new) = (old.as_ref(), new.as_ref());
        to.memory().candidates.change(old, new);
        let kinds = |policy: Option<&Policy>| {
            policy.map_or_else(Vec::new, |policy| kinds_of(policy.spec(), &to.fleet.scope))
        };
        for kind in kinds(new) {
            to.fleet.templates.name(&kind);
        }
        for kind in kinds(old) {
            to.fleet.templates.unname(&kind);
        }
        let Some(new) = new else {
            // Normally the finalizer has seen to everything. This is for a policy that went without
            // one.
            if let Some(old) = old {
                to.audits.forget(&old.key());
                to.policies.add(old.key());
            }
            return;
        };
        if old.is_none() && !listed.is_synced() {
            to.memory().first.insert(new.key());
        }
        if let Some(old) = old
            && old.is_lazy()
            && old.spec().resource_selectors != new.spec().resource_selectors
        {
            // Templates that it claimed without taking effect have no bindings by which they are
            // found.
            for template in to.labelled(old) {
                to.templates.add(template);
            }
        }
        if old.is_none_or(|old| differ(old, new)) {
            to.policies.add(new.key());
            to.audits.add(new.key());
            to.reports.add(new.key());
        } else if old.is_some_and(|old| old.status() != new.status()) {
            // While the cache showed an older status, a newer one may have seemed to be written.
            to.reports.add(new.key());
        }
    });
}

/// Returns whether a policy changed in its spec, in its labels, or by being deleted.
fn differ(old: &Policy, new: &Policy) -> bool {
    let (was, is) = (old.metadata(), new.metadata());
    was.generation != is.generation
        || was.labels != is.labels
        || old.is_deleting() != new.is_deleting()
}

impl Detector {
    async fn reconcile_policy(&self, key: PolicyKey) -> Result<Next, Error> {
        let client = self.fleet.work_writer.when_idle().await;
        let is_first = self.memory().first.remove(&key);
        // Templates of which no binding could be made bear no claim by which they are found, and
        // another policy may select them by now.
        let refused = self.memory().refused.of(&key);
        for (template, _) in refused {
            self.templates.add(template);
        }
        let Some(policy) = self.policy(&key) else {
            self.parked.leave(&key);
            // Everything that names the policy is reconciled.
            for template in self.templates_of(&key) {
                self.templates.add(template);
            }
            return Ok(Next::Done);
        };
        if policy.is_deleting() {
            return self.let_go(&client, &policy).await;
        }
        let Some(claim) = Claim::by(&policy).filter(|_| has_finalizer(&policy)) else {
            return self.identify(&policy).await;
        };
        let mut rest = Rest::default();
        let (bound, named) = {
            let memory = self.memory();
            (memory.bound.by_id(&claim), memory.bound.by_policy(&key))
        };
        let bound: BTreeSet<Arc<BindingKey>> = bound.into_iter().collect();
        // What the policy claimed by a former id, which it lost in an edit, is claimed anew.
        for binding in named.iter().filter(|it| !bound.contains(*it)) {
            if let Some(template) = self.template_of(binding) {
                self.templates.add(template);
            }
        }
        let bound: Vec<TemplateKey> = bound.iter().filter_map(|it| self.template_of(it)).collect();
        for template in bound {
            match self.fleet.templates.get(&template) {
                Lookup::Found(found) if !selects(&policy, Subject::of(&template.kind, &found)) => {
                    rest.take(self.release(&client, &template, &claim).await);
                }
                Lookup::Found(_) => self.templates.add(template),
                Lookup::Absent => {}
                Lookup::Unknown => rest.unlisted(&template.kind),
            }
        }
        // Every template is reconciled when this process begins, and finds those of the first list
        // that had their id: comparing all of them with each policy as well takes minutes where
        // both are many.
        if !is_first {
            self.revisit_unclaimed(&policy, &mut rest);
        }
        for kind in &rest.unlisted {
            self.parked.wait(kind, key.clone());
        }
        rest.next()
    }

    /// Gives a policy its permanent id (its uid, unless admission gave one) and the finalizer that
    /// lets us release its templates.
    async fn identify(&self, policy: &Policy) -> Result<Next, Error> {
        let metadata = policy.metadata();
        let mut patch = json!({ "resourceVersion": metadata.resource_version });
        if Claim::by(policy).is_none() {
            patch["labels"] = json!({ policy.scope().policy_id_label(): metadata.uid });
        }
        if let Some(all) = finalizers::with(metadata, policy.scope().policy_finalizer()) {
            patch["finalizers"] = json!(all);
        }
        self.patch_policy(policy, &json!({ "metadata": patch }))
            .await
    }

    /// Releases everything that a policy has, then the policy itself. Nothing is removed from any
    /// member.
    async fn let_go(&self, client: &Client, policy: &Policy) -> Result<Next, Error> {
        if !has_finalizer(policy) {
            return Ok(Next::Done);
        }
        if let Some(claim) = Claim::by(policy) {
            let bound = self.memory().bound.by_id(&claim);
            let bound = bound.iter().filter_map(|key| self.template_of(key));
            let mut claimed: BTreeSet<TemplateKey> = bound.collect();
            // Those of a kind that is not listed are released when it is, since their policy has
            // gone then: one kind that cannot be listed keeps neither the policy nor the templates
            // of its other kinds.
            claimed.extend(self.labelled(policy));
            let mut rest = Rest::default();
            for template in claimed {
                rest.take(self.release(client, &template, &claim).await);
            }
            match rest.next() {
                Ok(Next::Done) => {}
                Ok(next) => return Ok(next),
                Err(error) => {
                    let note = format!("cannot be removed yet: {error}");
                    let events = &self.fleet.events;
                    policy.report(events, EventType::Warning, "ReleaseFailed", note);
                    return Err(error);
                }
            }
        }
        let patch = finalizers::release(policy.metadata(), policy.scope().policy_finalizer());
        self.patch_policy(policy, &patch).await
    }

    async fn patch_policy(&self, policy: &Policy, patch: &Value) -> Result<Next, Error> {
        let key = policy.key();
        let answer = merge(&key.api(&self.fleet.client), key.name(), patch).await;
        // The event of this write has the policy reconciled again.
        let written = Written::of(answer).map_err(ApiError::of("mark", &key))?;
        Ok(written.next())
    }

    /// Returns the templates of the kinds that a policy selects that bear its id.
    fn labelled(&self, policy: &Policy) -> Vec<TemplateKey> {
        let mut labelled = Vec::new();
        let Some(claim) = Claim::by(policy) else {
            return labelled;
        };
        let label = policy.scope().policy_id_label();
        for kind in kinds_of(policy.spec(), &self.fleet.scope) {
            let is_ours = |it: Outline<'_>| it.labels.get(label) == Some(&claim.id);
            let namespace = claim.policy.namespace();
            let templates = self.fleet.templates.select(&kind, namespace, is_ours);
            let kind = Arc::new(kind);
            let templates = templates.into_iter().flatten();
            labelled.extend(templates.map(|it| TemplateKey::of_template(&kind, &it)));
        }
        labelled
    }

    /// Returns the templates of the bindings of a policy.
    pub(super) fn templates_of(&self, policy: &PolicyKey) -> impl Iterator<Item = TemplateKey> {
        let found = self.memory().bound.by_policy(policy).into_iter();
        found.filter_map(|key| self.template_of(&key))
    }

    /// Reconciles again the policies that want an override policy to exist before they propagate
    /// anything (`spec.dependentOverrides`).
    fn revisit_dependent(&self, overrides: &AnyOverridePolicy) {
        let namespace = overrides.metadata.namespace.as_deref();
        for policy in self.fleet.policies.of(namespace).iter_of(namespace) {
            let mut awaited = policy.spec.dependent_overrides.iter();
            if awaited.any(|it| Some(it) == overrides.metadata.name.as_ref()) {
                self.policies.add(Policy(policy).key());
            }
        }
    }

    fn template_of(&self, binding: &BindingKey) -> Option<TemplateKey> {
        let held = self.fleet.bindings.get(binding)?;
        Some(TemplateKey::of(&held.spec.resource))
    }

    /// Reconciles the templates without a policy that this one selects, those that it may take
    /// over, and at those that it claims: one that it claimed while it was lazy has no binding of
    /// the policy yet.
    fn revisit_unclaimed(&self, policy: &Policy, rest: &mut Rest) {
        let kinds = kinds_of(policy.spec(), &self.fleet.scope);
        let mut seen = BTreeSet::new();
        for selector in &policy.spec().resource_selectors {
            let kind = Kind::new(&*selector.api_version, &*selector.kind);
            if !kinds.contains(&kind) {
                continue;
            }
            let own = policy.key();
            let namespace = own.namespace_of(selector);
            if let Some(key) = self.named_by(selector, &kind, namespace) {
                match self.fleet.templates.get(&key) {
                    Lookup::Found(it) if selects(policy, Subject::of(&key.kind, &it)) => {
                        self.revisit_free(policy, &key.kind, &it);
                    }
                    Lookup::Found(_) | Lookup::Absent => {}
                    Lookup::Unknown => rest.unlisted(&key.kind),
                }
                continue;
            }
            if !seen.insert((kind.clone(), namespace.map(str::to_owned))) {
                continue;
            }
            let kind = Arc::new(kind);
            let is_selected = |it: Outline<'_>| selects(policy, Subject::at(&kind, it));
            match self.fleet.templates.select(&kind, namespace, is_selected) {
                Some(templates) => {
                    for template in templates {
                        self.revisit_free(policy, &kind, &template);
                    }
                }
                None => rest.unlisted(&kind),
            }
        }
    }

    /// Returns the one template that a selector for this kind and namespace can mean, if it names
    /// one.
    pub(super) fn named_by(
        &self,
        selector: &ResourceSelector,
        kind: &Kind,
        namespace: Option<&str>,
    ) -> Option<TemplateKey> {
        let name = given(selector.name.as_deref())?;
        let is_exact = namespace.is_some() || !self.fleet.templates.is_namespaced(kind);
        is_exact.then(|| TemplateKey {
            kind: Arc::new(kind.clone()),
            namespace: namespace.map(str::to_owned),
            name: name.to_owned(),
        })
    }

    /// Has a template that a policy selects reconciled again, if the policy may claim it.
    fn revisit_free(&self, policy: &Policy, kind: &Arc<Kind>, template: &Template) {
        let claim = Claim::on(template);
        let is_free = claim.is_none_or(|claim| claim.policy == policy.key());
        if is_free || may_preempt(policy, Subject::of(kind, template)) {
            self.templates.add(TemplateKey::of_template(kind, template));
        }
    }
}

/// What a round over the templates of a policy left undone: one of them that cannot be written does
/// not keep the others.
#[derive(Default)]
pub(super) struct Rest {
    unlisted: BTreeSet<Kind>,
    again: bool,
    failed: usize,
    first: Option<Error>,
}

impl Rest {
    pub(super) fn unlisted(&mut self, kind: &Kind) {
        if !self.unlisted.contains(kind) {
            self.unlisted.insert(kind.clone());
        }
    }

    pub(super) fn take(&mut self, outcome: Result<Next, Error>) {
        match outcome {
            Ok(Next::Done | Next::Waits) => {}
            Ok(Next::After(_) | Next::Again) => self.again = true,
            Err(error) => {
                self.failed += 1;
                self.first.get_or_insert(error);
            }
        }
    }

    fn next(self) -> Result<Next, Error> {
        match self.first {
            Some(first) if self.failed > 1 => Err(Error::Some {
                failed: self.failed,
                first: Box::new(first),
            }),
            Some(first) => Err(first),
            None if self.again => Ok(Next::Again),
            None => Ok(Next::Done),
        }
    }
}

fn has_finalizer(policy: &Policy) -> bool {
    finalizers::has(policy.metadata(), policy.scope().policy_finalizer())
}

#[cfg(test)]
mod tests {
    use http::Method;
    use serde_json::json;

    use crate::fleet::testing::{self, Bench, pass};
    use crate::propagation::detector::detect;

    #[tokio::test(start_paused = true)]
    async fn a_policy_that_is_lazy_no_more_takes_effect_on_what_it_claimed_while_it_was() {
        let mut lazy = testing::policy();
        let labels = lazy["metadata"]["labels"].clone();
        lazy["metadata"]["generation"] = json!(1);
        lazy["metadata"]["finalizers"] = json!(["karmada.io/propagation-policy-controller"]);
        lazy["metadata"]["creationTimestamp"] = json!("2026-01-01T00:00:05Z");
        lazy["spec"]["activationPreference"] = json!("Lazy");
        let template = json!({
            "metadata": {
                "namespace": "shop", "name": "web", "uid": "t",
                "creationTimestamp": "2026-01-01T00:00:00Z",
            },
            "spec": {"replicas": 2},
        });
        let mut bench = Bench::new([
            ("propagationpolicies", lazy.clone()),
            ("deployments", template),
        ]);
        detect(&mut bench).await;
        pass(10).await;
        let claimed = bench.api.deployment();
        assert_eq!(claimed["metadata"]["labels"], labels, "it claims");
        let bindings = &bench.fleet.bindings;
        assert!(bindings.iter().next().is_none(), "and waits for a change");
        let mut eager = lazy;
        eager["metadata"]["generation"] = json!(2);
        eager["spec"]["activationPreference"] = json!(null);
        bench.api.put("propagationpolicies", eager);
        pass(10).await;
        assert_eq!(bindings.iter().count(), 1, "it waits for nothing any more");
    }

    /// Label by which a template names the policy that places it.
    const ID: &str = "propagationpolicy.karmada.io/permanent-id";

    /// Returns a policy that places the Deployments with a label in a cluster.
    fn policy(name: &str, generation: u32, app: &str, cluster: &str) -> serde_json::Value {
        json!({
            "metadata": {
                "namespace": "shop", "name": name, "uid": name, "generation": generation,
                "labels": {ID: name},
                "finalizers": ["karmada.io/propagation-policy-controller"],
                "creationTimestamp": "2026-01-01T00:00:00Z",
            },
            "spec": {
                "resourceSelectors": [{
                    "apiVersion": "apps/v1", "kind": "Deployment",
                    "labelSelector": {"matchLabels": {"app": app}},
                }],
                "placement": {"clusterAffinity": {"clusterNames": [cluster]}},
            },
        })
    }

    /// Returns a Deployment with the label `app=web`.
    fn web() -> serde_json::Value {
        json!({
            "metadata": {
                "namespace": "shop", "name": "web", "uid": "t", "generation": 1,
                "labels": {"app": "web"}, "creationTimestamp": "2026-01-01T00:00:00Z",
            },
            "spec": {"replicas": 2},
        })
    }

    /// Returns the id of the policy that claims the Deployment.
    fn claimant(bench: &Bench) -> serde_json::Value {
        bench.api.deployment()["metadata"]["labels"][ID].clone()
    }

    /// Returns the clusters that the binding of the Deployment may choose.
    fn placed(bench: &Bench) -> serde_json::Value {
        let bound = bench.binding("web-deployment").expect("it is bound");
        json!(bound.spec)["placement"]["clusterAffinity"]["clusterNames"].clone()
    }

    #[tokio::test(start_paused = true)]
    async fn what_a_lazy_policy_claimed_and_selects_no_more_goes_to_another_policy() {
        let lazy = |generation: u32, app: &str| {
            let mut lazy = policy("first", generation, app, "m1");
            lazy["metadata"]["creationTimestamp"] = json!("2026-01-01T00:00:05Z");
            lazy["spec"]["activationPreference"] = json!("Lazy");
            lazy["spec"]["priority"] = json!(1);
            lazy
        };
        let mut bench = Bench::new([
            ("propagationpolicies", lazy(1, "web")),
            ("propagationpolicies", policy("second", 1, "web", "m2")),
            ("deployments", web()),
        ]);
        detect(&mut bench).await;
        pass(10).await;
        assert_eq!(claimant(&bench), "first", "it is claimed");
        assert!(bench.binding("web-deployment").is_none(), "and waits");
        bench
            .api
            .put("propagationpolicies", lazy(2, "something-else"));
        pass(10).await;
        assert_eq!(claimant(&bench), "second");
        assert_eq!(placed(&bench), json!(["m2"]));
    }

    #[tokio::test(start_paused = true)]
    async fn an_edit_that_takes_the_id_off_a_policy_is_obeyed_by_what_it_had_claimed() {
        for selects in [true, false] {
            let mut former = policy("first", 1, "web", "m1");
            former["metadata"]["labels"][ID] = json!("given");
            let mut bench = Bench::new([("propagationpolicies", former), ("deployments", web())]);
            detect(&mut bench).await;
            pass(10).await;
            assert_eq!(claimant(&bench), "given", "it is claimed");
            // Somebody replaces it by a manifest without the label.
            let app = if selects { "web" } else { "something-else" };
            let mut edited = policy("first", 2, app, "m1");
            edited["metadata"]["labels"] = json!({});
            edited["spec"]["suspension"] = json!({"dispatching": true});
            bench.api.put("propagationpolicies", edited);
            pass(10).await;
            let bound = json!(bench.binding("web-deployment").expect("it stays").spec);
            let (expected, suspension) = if selects {
                (json!("first"), json!({"dispatching": true}))
            } else {
                (json!(null), json!(null))
            };
            assert_eq!(claimant(&bench), expected, "selects: {selects}");
            assert_eq!(bound["suspension"], suspension, "selects: {selects}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_a_policy_could_not_place_and_selects_no_more_goes_to_another_policy() {
        for is_deleted in [false, true] {
            let waiting = |generation: u32, app: &str| {
                let mut waiting = policy("first", generation, app, "m1");
                waiting["spec"]["dependentOverrides"] = json!(["registry"]);
                waiting["spec"]["priority"] = json!(1);
                waiting
            };
            let mut bench = Bench::new([
                ("propagationpolicies", waiting(1, "web")),
                ("propagationpolicies", policy("second", 1, "web", "m2")),
                ("deployments", web()),
            ]);
            detect(&mut bench).await;
            let status = || {
                let policy = bench.api.object("propagationpolicies", "shop", "first");
                policy.unwrap_or_default()["status"].clone()
            };
            pass(120).await;
            assert!(bench.binding("web-deployment").is_none(), "it waits");
            assert_eq!(status()["refused"], 1, "{}", status());
            let mut edited = waiting(2, if is_deleted { "web" } else { "something-else" });
            if is_deleted {
                edited["metadata"]["deletionTimestamp"] = json!("2026-01-02T00:00:00Z");
            }
            bench.api.put("propagationpolicies", edited);
            pass(120).await;
            assert_eq!(placed(&bench), json!(["m2"]), "deleted: {is_deleted}");
            assert_ne!(status()["refused"], 1, "{}", status());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_template_that_is_edited_so_that_another_policy_selects_it_follows_that_one_at_once()
    {
        let mut bench = Bench::new([
            ("propagationpolicies", policy("first", 1, "web", "m1")),
            ("propagationpolicies", policy("second", 1, "api", "m2")),
            ("deployments", web()),
        ]);
        detect(&mut bench).await;
        pass(10).await;
        assert_eq!(claimant(&bench), "first");
        let mut edited = bench.api.deployment();
        edited["metadata"]["labels"]["app"] = json!("api");
        edited["metadata"]["generation"] = json!(2);
        edited["spec"]["replicas"] = json!(5);
        bench.api.put("deployments", edited);
        pass(10).await;
        assert_eq!(claimant(&bench), "second");
        let bound = bench.binding("web-deployment").expect("it is bound");
        assert_eq!(bound.spec.replicas, 5, "an edit is carried out");
        assert_eq!(placed(&bench), json!(["m2"]));
    }

    #[tokio::test(start_paused = true)]
    async fn a_template_stays_with_a_policy_that_was_edited_to_select_it_and_is_seen_late() {
        let near = |generation: u32, app: &str| policy("first", generation, app, "m1");
        let for_all = json!({
            "metadata": {
                "name": "all", "uid": "all", "generation": 1,
                "labels": {"clusterpropagationpolicy.karmada.io/permanent-id": "all"},
                "finalizers": ["karmada.io/cluster-propagation-policy-controller"],
                "creationTimestamp": "2026-01-01T00:00:00Z",
            },
            "spec": {
                "resourceSelectors": [{"apiVersion": "apps/v1", "kind": "Deployment"}],
                "placement": {"clusterAffinity": {"clusterNames": ["m2"]}},
            },
        });
        let mut bench = Bench::new([
            ("propagationpolicies", near(1, "web")),
            ("clusterpropagationpolicies", for_all),
            ("deployments", web()),
        ]);
        detect(&mut bench).await;
        pass(10).await;
        assert_eq!(placed(&bench), json!(["m1"]));
        // The watch of the policies breaks: what follows is seen of the template alone.
        bench
            .api
            .refuse(Method::GET, "/propagationpolicies", 500, "");
        bench.api.lose("configmaps", "shop", "none");
        pass(5).await;
        bench.api.put("propagationpolicies", near(2, "api"));
        let mut edited = bench.api.deployment();
        edited["metadata"]["labels"]["app"] = json!("api");
        bench.api.put("deployments", edited);
        pass(10).await;
        assert_eq!(placed(&bench), json!(["m1"]), "its policy selects it");
    }
}
