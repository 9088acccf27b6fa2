//! Publishes events about the parts of a policy that have no effect: at once what can never work,
//! and after a while what the fleet lacks, because templates, kinds and clusters often come after
//! the policy.

use std::collections::{BTreeSet, HashMap};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Namespace;
use muster_shared::api::policy::ResourceSelector;
use muster_shared::controller::{Controller, Watched as _};
use muster_shared::events::EventType;
use muster_shared::queue::{Next, Queue};
use muster_shared::tasks::Tasks;
use muster_shared::watch::Change;
use muster_shared::watch::outline::Outline;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::audit::{self, Facts, Finding};
use super::controller::Detector;
use super::select::{reaches, selects};
use crate::fleet::claim::Claim;
use crate::fleet::policy::{Policy, PolicyKey};
use crate::fleet::scope::namespace_of;
use crate::fleet::selection::{Strength, Subject, strength};
use crate::fleet::template::{Kind, TemplateKey};
use crate::fleet::template_event::{KindState, Lookup};
use crate::propagation::binding::namespaces::goes_everywhere;

/// How long after a change of a policy the fleet may still lack what it names.
const GRACE: Duration = Duration::from_secs(30);
/// How long until a policy is audited again that names what the fleet lacks: it may have
/// come.
const SHORTEST_PAUSE: Duration = Duration::from_mins(1);
/// Factor between the time that an audit of a policy takes and the pause after it: in a large
/// fleet, the audits of one policy take a 5000th of all time.
const SHARE: u32 = 5000;
/// Longest time until a policy is audited again that names what the fleet lacks. An audit may
/// have taken long for another reason: the machine was busy, or was suspended.
const LONGEST_PAUSE: Duration = Duration::from_mins(30);
/// Time until a policy is audited again that waits for templates which may just be bound.
pub(super) const BEHIND: Duration = Duration::from_secs(10);
/// Longest time in a row for which templates that wait to be bound keep policies from being audited
/// through: where a webhook of the fleet API does not answer, some wait for ever.
const LONGEST_BEHIND: Duration = Duration::from_mins(10);
/// How long until a kind is checked again that cannot be listed, and nobody knows why: a request
/// for it may take longer than the grace. Doubled with each audit, up to ten minutes.
const AGAIN: Duration = Duration::from_secs(10);
/// Audits after which a policy counts as compared with the fleet, although it is not known why a
/// kind that it names cannot be listed.
const AUDITS: u32 = 3;

/// The policies that are to be audited, and what was reported of each.
pub(super) struct Audits {
    queue: Queue<PolicyKey>,
    state: Mutex<HashMap<PolicyKey, State>>,
    rush: Mutex<Rush>,
}

/// Time for which templates have waited to be bound without a break, as far as is known.
#[derive(Clone, Copy, Debug, Default)]
struct Rush {
    began: Option<Instant>,
    seen: Option<Instant>,
}

impl Rush {
    /// Takes in whether templates wait to be bound, and returns whether audits of policies wait for
    /// these: not longer than [`LONGEST_BEHIND`] in a row.
    fn see(&mut self, is_behind: bool, now: Instant) -> bool {
        if !is_behind {
            *self = Self::default();
            return false;
        }
        if self.seen.is_none_or(|seen| now - seen > BEHIND * 2) {
            // Nothing was audited for a while, so that there may have been a break.
            self.began = None;
        }
        self.seen = Some(now);
        now - *self.began.get_or_insert(now) < LONGEST_BEHIND
    }
}

struct State {
    changed: Instant,
    /// How often it was audited in vain for the reason why a kind cannot be listed.
    audits: u32,
    reported: BTreeSet<Finding>,
    /// Whether the fleet was compared with the policy as it is now.
    is_complete: bool,
}

impl Default for Audits {
    fn default() -> Self {
        Self {
            queue: Queue::new("policy audits"),
            state: Mutex::default(),
            rush: Mutex::default(),
        }
    }
}

impl Audits {
    /// Returns whether audits of policies wait for a queue of templates that may just be bound.
    pub(super) fn wait_for(&self, templates: &Queue<TemplateKey>) -> bool {
        let is_behind = templates.is_behind();
        self.rush.lock().see(is_behind, Instant::now())
    }

    /// Has a policy audited that is new or changed.
    pub(super) fn add(&self, key: PolicyKey) {
        let changed = Instant::now();
        let mut states = self.state.lock();
        let state = states.entry(key.clone()).or_insert_with(|| State {
            changed,
            audits: 0,
            reported: BTreeSet::new(),
            is_complete: false,
        });
        (state.changed, state.audits, state.is_complete) = (changed, 0, false);
        drop(states);
        self.queue.add(key);
    }

    /// Returns the parts of a policy that had no effect when it was audited last, and
    /// whether the fleet was compared as well: it is not right after a change or a start.
    pub(super) fn findings(&self, key: &PolicyKey) -> (Vec<Finding>, bool) {
        let states = self.state.lock();
        let Some(state) = states.get(key) else {
            return (Vec::new(), false);
        };
        (state.reported.iter().cloned().collect(), state.is_complete)
    }

    /// Returns when a policy was changed last.
    fn changed(&self, key: &PolicyKey) -> Option<Instant> {
        self.state.lock().get(key).map(|state| state.changed)
    }

    /// Has a policy audited once more, because something that it names may have come or gone.
    pub(super) fn again(&self, key: PolicyKey) {
        if self.state.lock().contains_key(&key) {
            self.queue.add_after(key, GRACE);
        }
    }

    /// Asks for another audit of every policy.
    fn all_again(&self) {
        let keys: Vec<PolicyKey> = self.state.lock().keys().cloned().collect();
        for key in keys {
            self.queue.add_after(key, GRACE);
        }
    }

    /// Forgets a policy that is gone.
    pub(super) fn forget(&self, key: &PolicyKey) {
        self.state.lock().remove(key);
    }
}

/// Starts auditing policies.
pub(super) fn start(detector: &Arc<Detector>, tasks: &mut Tasks) {
    let queue = &detector.audits.queue;
    detector.fleet.clusters.informs(detector, |it, change| {
        if let Change::Deleted { .. } = change {
            it.audits.all_again();
        }
    });
    Controller::with(&detector.fleet, "policy audits", queue).run(
        tasks,
        1,
        Arc::clone(detector),
        |_, detector, key| async move { Ok::<_, Infallible>(audit_policy(&detector, &key)) },
    );
}

fn audit_policy(detector: &Detector, key: &PolicyKey) -> Next {
    let Some(policy) = detector.policy(key).filter(|policy| !policy.is_deleting()) else {
        return Next::Done;
    };
    let (spec, scope) = (policy.spec(), &detector.fleet.scope);
    let mut found = audit::written(spec, key.namespace(), scope);
    found.extend(audit::switched_off(spec, &detector.fleet.settings));
    let Some(changed) = detector.audits.changed(key) else {
        return Next::Done;
    };
    let left = GRACE.saturating_sub(changed.elapsed());
    if left.is_zero() && detector.audits.wait_for(&detector.templates) {
        return Next::After(BEHIND);
    }
    // The comparison with the fleet may take long, and holds no lock.
    let began = Instant::now();
    let compared = left.is_zero().then(|| {
        let facts = Now {
            detector,
            policy: &policy,
        };
        let missing = audit::missing(spec, scope, &facts);
        (missing, audit::is_unexplained(spec, scope, &facts))
    });
    let mut states = detector.audits.state.lock();
    let Some(state) = states.get_mut(key).filter(|it| it.changed == changed) else {
        // A policy that was changed meanwhile is in the queue.
        return Next::Done;
    };
    let mut next = Next::After(left);
    if let Some((missing, is_unexplained)) = compared {
        let vain = is_unexplained.then_some(state.audits);
        next = next_audit(vain, !missing.is_empty(), began.elapsed());
        found.extend(missing);
        let before = (state.reported.len(), state.is_complete);
        state.reported.retain(|finding| found.contains(finding));
        // A reason that is never known does not keep back what else was found.
        state.is_complete = !is_unexplained || state.audits >= AUDITS;
        if (state.reported.len(), state.is_complete) != before {
            detector.reports.add(key.clone());
        }
        if is_unexplained {
            state.audits = state.audits.saturating_add(1);
        }
    }
    found.retain(|finding| state.reported.insert(finding.clone()));
    drop(states);
    if !found.is_empty() {
        detector.reports.add(key.clone());
    }
    for Finding { reason, note } in found {
        tracing::warn!(policy = %key, reason, note, "part of a policy has no effect");
        policy.report(&detector.fleet.events, EventType::Warning, reason, note);
    }
    next
}

/// Returns when a policy is audited again after a comparison with the fleet that took so
/// long. `vain` is how often it was audited before where it is not known why a kind cannot be
/// listed, and `lacks` says whether the fleet lacks what it names. What has no effect in whatever
/// fleet is no reason for another audit.
fn next_audit(vain: Option<u32>, lacks: bool, took: Duration) -> Next {
    match vain {
        Some(audits) => Next::After(again(audits)),
        None if lacks => Next::After(pause_after(took)),
        None => Next::Done,
    }
}

/// Returns how long until a policy that names what the fleet lacks is audited again, after an
/// audit that took so long.
pub(super) fn pause_after(took: Duration) -> Duration {
    took.saturating_mul(SHARE)
        .clamp(SHORTEST_PAUSE, LONGEST_PAUSE)
}

/// Returns the pause before the next attempt to find out why a kind cannot be listed. The reason
/// may never be known, and each attempt compares the policy with everything.
fn again(audits: u32) -> Duration {
    AGAIN.saturating_mul(1 << audits.min(6))
}

/// The fleet as the caches have it.
struct Now<'a> {
    detector: &'a Detector,
    policy: &'a Policy,
}

impl Facts for Now<'_> {
    fn kind_state(&self, kind: &Kind) -> KindState {
        self.detector.fleet.templates.kind_state(kind)
    }

    fn trouble(&self, kind: &Kind) -> Option<String> {
        self.detector.fleet.templates.trouble(kind)
    }

    fn is_out_of_reach(&self, kind: &Kind) -> bool {
        let own = self.policy.key();
        own.namespace().is_some() && !self.detector.fleet.templates.is_namespaced(kind)
    }

    fn finds(&self, selector: &ResourceSelector) -> Option<bool> {
        let templates = &self.detector.fleet.templates;
        let scope = &self.detector.fleet.scope;
        let kind = Kind::new(&*selector.api_version, &*selector.kind);
        let own = self.policy.key();
        let namespace = own.namespace_of(selector);
        let is_left_out = |it: Option<&str>| it.is_some_and(|it| !scope.admits_namespace(it));
        if is_left_out(namespace) {
            // That is a finding by itself.
            return None;
        }
        if let Some(key) = self.detector.named_by(selector, &kind, namespace) {
            return Some(matches!(templates.get(&key), Lookup::Found(_)));
        }
        let selects = |outline: Outline<'_>| {
            let subject = Subject::at(&kind, outline);
            reaches(self.policy, subject)
                && strength(selector, subject) > Strength::Mismatch
                && !is_left_out(namespace_of(&kind, outline.namespace, outline.name))
        };
        let is_bound = |template: TemplateKey| {
            *template.kind == kind
                && matches!(templates.get(&template), Lookup::Found(it) if selects(Outline::of(&*it)))
        };
        // What the policy has is seen at a glance; comparing it with all that there is takes long.
        if self.detector.templates_of(&own).any(is_bound) {
            return Some(true);
        }
        let found = templates.select(&kind, namespace, selects)?.next();
        Some(found.is_some())
    }

    fn claimed_by(&self, selector: &ResourceSelector) -> Option<(String, String)> {
        let (detector, own) = (self.detector, self.policy.key());
        let kind = Kind::new(&*selector.api_version, &*selector.kind);
        let key = detector.named_by(selector, &kind, own.namespace_of(selector))?;
        let Lookup::Found(template) = detector.fleet.templates.get(&key) else {
            return None;
        };
        if !selects(self.policy, Subject::of(&key.kind, &template)) {
            return None;
        }
        let claim = Claim::on(&*template);
        let other = claim.or_else(|| detector.claim_of_binding(&key, &template));
        let other = other.filter(|it| it.policy != own)?.policy;
        // A claim of a policy that is gone is about to be taken off.
        let is_held = detector.policy(&other).is_some_and(|it| !it.is_deleting());
        is_held.then(|| (key.to_string(), other.to_string()))
    }

    fn goes_everywhere(&self, selector: &ResourceSelector) -> Option<String> {
        let fleet = &self.detector.fleet;
        let kind = Kind::new(&*selector.api_version, &*selector.kind);
        if !kind.is_namespace() || !fleet.settings.runs("namespace") {
            return None;
        }
        let is_meant = |it: &Namespace| {
            let subject = Subject::at(&kind, Outline::of(it));
            strength(selector, subject) > Strength::Mismatch && goes_everywhere(it, &fleet.scope)
        };
        let all = fleet.namespaces.list().into_iter();
        let meant = all.filter(|it| is_meant(it));
        // The first by name, so that each audit reports the same one.
        meant.filter_map(|it| it.metadata.name.clone()).min()
    }

    fn has_cluster(&self, name: &str) -> bool {
        let clusters = &self.detector.fleet.clusters;
        clusters.presence(None, name).may_exist()
    }

    fn has_override(&self, name: &str) -> bool {
        !self.detector.fleet.knows_overrides()
            || self.policy.has_override(&self.detector.fleet, name)
    }

    fn has_class(&self, name: &str) -> bool {
        let classes = self.detector.classes.as_ref();
        classes.is_none_or(|classes| classes.has(name))
    }
}

#[cfg(test)]
mod tests {
    use http::Method;
    use muster_shared::names::label;
    use serde_json::json;

    use super::*;
    use crate::fleet::testing::{self, Bench, pass};
    use crate::propagation::detector::detect;

    #[test]
    fn audits_of_policies_wait_for_templates_for_ten_minutes_in_a_row_at_most() {
        let began = Instant::now();
        // Seconds from one audit to the next, and whether templates waited at each.
        for (what, seen, expected) in [
            ("nothing waits", &[(0, false)][..], false),
            ("templates wait", &[(0, true)], true),
            ("until they are bound", &[(0, true), (10, false)], false),
            ("for as long", &[(10, true); 60], true),
            ("for too long", &[(10, true); 61], false),
            ("another time", &[(0, true), (3600, true)], true),
        ] {
            let (mut rush, mut now, mut waits) = (Rush::default(), began, None);
            for (pause, is_behind) in seen {
                now += Duration::from_secs(*pause);
                waits = Some(rush.see(*is_behind, now));
            }
            assert_eq!(waits, Some(expected), "{what}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_policy_without_effect_is_reported_of_although_templates_wait_to_be_bound_for_ever() {
        let mut typo = testing::policy();
        typo["metadata"]["name"] = json!("typo");
        typo["metadata"]["uid"] = json!("typo");
        typo["metadata"]["labels"] = json!({"propagationpolicy.karmada.io/permanent-id": "typo"});
        typo["spec"]["resourceSelectors"][0]["name"] = json!("wep");
        let templates = (0..400).map(|number| {
            let mut template = testing::deployment(2);
            template["metadata"]["name"] = json!(format!("web-{number}"));
            template["metadata"]["uid"] = json!(number.to_string());
            template["metadata"]["generation"] = json!(1);
            ("deployments", template)
        });
        let policies = [typo, testing::policy()].map(|it| ("propagationpolicies", it));
        let mut bench = Bench::new(policies.into_iter().chain(templates));
        let path = "/resourcebindings";
        bench.api.refuse(Method::POST, path, 500, "");
        bench.api.delay(Method::POST, path, Duration::from_secs(10));
        detect(&mut bench).await;
        pass(900).await;
        let effective = bench
            .api
            .condition("propagationpolicies", "typo", "Effective");
        assert_eq!(effective["reason"], "NothingSelected", "{effective}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_policy_that_names_what_another_one_has_says_so_until_it_gets_it() {
        let mut late = testing::policy();
        late["metadata"]["name"] = json!("late");
        late["metadata"]["uid"] = json!("late");
        late["metadata"]["labels"] = json!({"propagationpolicy.karmada.io/permanent-id": "late"});
        late["spec"]["resourceSelectors"][0]["name"] = json!("web");
        let policies = [late, testing::policy()].map(|it| ("propagationpolicies", it));
        let mut template = testing::claimed(testing::deployment(2));
        template["metadata"]["uid"] = json!("t");
        template["metadata"]["generation"] = json!(1);
        let objects = policies.into_iter().chain([("deployments", template)]);
        let mut bench = Bench::new(objects);
        detect(&mut bench).await;
        let reason = |policy: &str| {
            let effective = bench
                .api
                .condition("propagationpolicies", policy, "Effective");
            effective["reason"].clone()
        };
        pass(120).await;
        assert_eq!(reason("late"), "ClaimedByAnotherPolicy");
        assert_eq!(reason("web"), "AllPartsHaveEffect");
        bench.api.delete("propagationpolicies", "shop", "web");
        pass(300).await;
        assert_eq!(reason("late"), "AllPartsHaveEffect");
    }

    #[tokio::test(start_paused = true)]
    async fn a_policy_of_all_namespaces_tells_of_one_that_goes_everywhere_later() {
        let policy = json!({
            "metadata": {
                "name": "all", "uid": "p",
                "labels": {"clusterpropagationpolicy.karmada.io/permanent-id": "p"},
            },
            "spec": {
                "resourceSelectors": [{"apiVersion": "v1", "kind": "Namespace"}],
                "placement": {"clusterAffinity": {"clusterNames": ["m1"]}},
            },
        });
        let namespace = |name: &str| json!({"metadata": {"name": name, "uid": name}});
        for is_kept_first in [false, true] {
            let mut bench = Bench::new([
                ("clusters", testing::cluster("m1")),
                ("clusterpropagationpolicies", policy.clone()),
                ("namespaces", namespace("default")),
            ]);
            bench.api.serve("/api/v1", "v1", "namespaces", "Namespace");
            detect(&mut bench).await;
            let reason = || {
                let policy = bench.api.object("clusterpropagationpolicies", "", "all");
                let conditions = policy.unwrap()["status"]["conditions"].clone();
                let mut conditions = conditions.as_array().cloned().unwrap_or_default();
                conditions.retain(|it| it["type"] == "Effective");
                conditions.pop().unwrap_or_default()["reason"].clone()
            };
            pass(120).await;
            assert_eq!(reason(), "AllPartsHaveEffect");
            let mut shop = namespace("shop");
            if is_kept_first {
                shop["metadata"]["labels"] = json!({ label::SKIP_AUTO_PROPAGATION: "true" });
            }
            bench.api.put("namespaces", shop);
            pass(120).await;
            if is_kept_first {
                assert_eq!(reason(), "AllPartsHaveEffect", "its label keeps it");
                let mut shop = bench.api.object("namespaces", "", "shop").unwrap();
                shop["metadata"]["labels"][label::SKIP_AUTO_PROPAGATION] = json!("false");
                bench.api.put("namespaces", shop);
                pass(120).await;
            }
            assert_eq!(reason(), "PlacedEverywhere", "{is_kept_first}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_policy_says_so_when_another_one_gets_what_it_names_after_it_was_audited() {
        let mut preferred = testing::policy();
        preferred["spec"]["priority"] = json!(1);
        let mut other = testing::policy();
        other["metadata"]["name"] = json!("other");
        other["metadata"]["uid"] = json!("other");
        other["metadata"]["labels"] = json!({"propagationpolicy.karmada.io/permanent-id": "other"});
        let policies = [preferred, other].map(|mut policy| {
            policy["spec"]["resourceSelectors"][0]["name"] = json!("web");
            ("propagationpolicies", policy)
        });
        let mut template = testing::deployment(2);
        template["metadata"]["uid"] = json!("t");
        template["metadata"]["generation"] = json!(1);
        let objects = policies.into_iter().chain([("deployments", template)]);
        let mut bench = Bench::new(objects);
        let path = "/resourcebindings";
        bench.api.refuse(Method::POST, path, 500, "");
        detect(&mut bench).await;
        let reason = || {
            let effective = bench
                .api
                .condition("propagationpolicies", "other", "Effective");
            effective["reason"].clone()
        };
        pass(120).await;
        assert_eq!(reason(), "AllPartsHaveEffect", "nobody has it yet");
        bench.api.answer_truly();
        pass(300).await;
        assert_eq!(reason(), "ClaimedByAnotherPolicy");
    }

    #[test]
    fn a_policy_without_effect_is_audited_each_minute_or_less_often_where_that_takes_long() {
        // A machine that was suspended meanwhile is no reason for days without an audit.
        let suspended = 3_600_000;
        for (took, expected) in [(0, 60), (12, 60), (40, 200), (suspended, 1800)] {
            let next = pause_after(Duration::from_millis(took));
            assert_eq!(next, Duration::from_secs(expected), "{took} ms");
        }
    }

    #[test]
    fn a_policy_is_audited_again_only_for_what_may_come() {
        let took = Duration::ZERO;
        for (vain, lacks, expected) in [
            (None, false, Next::Done),
            (None, true, Next::After(SHORTEST_PAUSE)),
            (Some(0), false, Next::After(AGAIN)),
            (Some(1), true, Next::After(2 * AGAIN)),
        ] {
            assert_eq!(next_audit(vain, lacks, took), expected, "{vain:?} {lacks}");
        }
    }

    #[test]
    fn a_kind_that_can_never_be_listed_is_checked_ever_less_often() {
        for (audits, seconds) in [(0, 10), (1, 20), (5, 320), (6, 640), (u32::MAX, 640)] {
            assert_eq!(again(audits), Duration::from_secs(seconds), "{audits}");
        }
    }
}
