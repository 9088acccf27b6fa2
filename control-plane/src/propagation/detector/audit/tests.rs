use serde_json::{Value, json};

use super::*;

fn spec(of: Value) -> PropagationSpec {
    serde_json::from_value(of).unwrap()
}

fn selecting(api_version: &str, kind: &str, name: &str) -> Value {
    json!({ "resourceSelectors": [{ "apiVersion": api_version, "kind": kind, "name": name }] })
}

fn with(mut spec: Value, field: &str, value: Value) -> Value {
    spec[field] = value;
    spec
}

fn reasons(found: &[Finding]) -> String {
    let reasons: Vec<_> = found.iter().map(|finding| finding.reason).collect();
    reasons.join(" ")
}

fn settings(gates: &str) -> Settings {
    Settings {
        feature_gates: gates.parse().unwrap(),
        ..Settings::default()
    }
}

#[test]
fn what_can_never_work_is_found_without_reading_the_fleet() {
    let scope = Scope::new("batch", &[]).unwrap();
    let found = |of: Value| reasons(&written(&spec(of), Some("shop"), &scope));
    let rbac = "rbac.authorization.k8s.io/v1";
    for (api_version, kind, name, expected) in [
        ("apps/v1", "Deployment", "web", ""),
        ("apps/v1", "Deploymnt", "web", "UnknownKind"),
        // A kind of the fleet's own, and a skipped one.
        ("work.karmada.io/v1alpha1", "Work", "w", "KindNotPropagated"),
        ("batch/v1", "Job", "j", "KindNotPropagated"),
        // A name without a binding.
        (rbac, "Role", "a_b", "InvalidName"),
    ] {
        let found = found(selecting(api_version, kind, name));
        assert_eq!(found, expected, "{kind} {name}");
    }
    let elsewhere = json!({ "apiVersion": "v1", "kind": "Secret", "namespace": "other" });
    let elsewhere = json!({ "resourceSelectors": [elsewhere] });
    assert_eq!(found(elsewhere), "NothingSelected");
    let source = json!({ "priorityClassSource": "PodPriorityClass", "priorityClassName": "x" });
    let web = selecting("apps/v1", "Deployment", "web");
    let web = with(web, "schedulePriority", source);
    assert_eq!(found(web), "UnknownPriorityClass");
}

#[test]
fn constraints_and_state_that_nothing_uses_are_found() {
    let found = |field: &str, value: Value| {
        let web = with(selecting("apps/v1", "Deployment", "web"), field, value);
        reasons(&written(&spec(web), Some("shop"), &Scope::default()))
    };
    let one = json!({ "spreadByField": "cluster", "maxGroups": 1 });
    let room = json!({ "dynamicWeight": "AvailableReplicas" });
    for (preference, weights, expected) in [
        ("Weighted", Value::Null, "SpreadIgnored"),
        ("Weighted", room, ""),
        ("Aggregated", Value::Null, ""),
    ] {
        let division = json!({
            "replicaSchedulingType": "Divided", "replicaDivisionPreference": preference,
            "weightPreference": weights,
        });
        let placement = json!({ "spreadConstraints": [one], "replicaScheduling": division });
        assert_eq!(found("placement", placement), expected, "{preference}");
    }
    let state = json!({ "rules": [{ "aliasLabelName": "job", "jsonPath": "{.id}" }] });
    let unused = "StatePreservationUnused";
    for (mode, fenced_after, expected) in [
        ("Gracefully", None, unused),
        ("Never", None, unused),
        ("Immediately", None, ""),
        ("Graciously", Some(60), ""),
    ] {
        let fencing = fenced_after.map(|it| json!({ "afterSeconds": it }));
        let cluster = json!({ "purgeMode": mode, "fencing": fencing, "statePreservation": state });
        let found = found("failover", json!({ "cluster": cluster }));
        assert_eq!(found, expected, "{mode} {fenced_after:?}");
    }
}

#[test]
fn a_namespace_of_which_nothing_is_propagated_is_found_once() {
    let scope = Scope::new("", &["kube-.*".to_owned()]).unwrap();
    let secrets = |namespace: Value| {
        let selector = |name: &str| json!({ "apiVersion": "v1", "kind": "Secret", "name": name, "namespace": namespace });
        json!({ "resourceSelectors": [selector("a"), selector("b")] })
    };
    let left_out = "NamespaceNotPropagated";
    for (named, own, expected) in [
        (json!("kube-system"), None, left_out),
        (json!("karmada-system"), None, left_out),
        (json!("shop"), None, ""),
        (Value::Null, None, ""),
        (Value::Null, Some("kube-system"), left_out),
        (Value::Null, Some("shop"), ""),
    ] {
        let found = written(&spec(secrets(named)), own, &scope);
        assert_eq!(reasons(&found), expected, "{own:?}: {found:?}");
    }
    for (name, expected) in [("karmada-es-m1", left_out), ("shop", ""), ("", "")] {
        let itself = spec(selecting("v1", "Namespace", name));
        let found = written(&itself, None, &scope);
        assert_eq!(reasons(&found), expected, "{name}: {found:?}");
    }
}

#[test]
fn thousands_of_findings_are_reported_as_a_few() {
    let selectors: Vec<_> = (0..10_000)
        .map(|number| json!({ "apiVersion": "v1", "kind": "Event", "name": format!("e{number}") }))
        .collect();
    let found = written(
        &spec(json!({ "resourceSelectors": selectors })),
        None,
        &Scope::default(),
    );
    assert_eq!(found.len(), MOST_REPORTED + 1);
    assert!(
        found[MOST_REPORTED].note.starts_with("9992 more"),
        "{found:?}"
    );
}

/// A fleet with Deployments `web`, and `api` of another policy, ClusterRoles out of reach,
/// Namespaces `shop`, which goes everywhere, and `apart`, no other object, cluster `m1` and class
/// `high`.
struct Fleet;

impl Facts for Fleet {
    fn kind_state(&self, kind: &Kind) -> KindState {
        match kind.kind.as_str() {
            "Deployment" | "ClusterRole" | "Namespace" => KindState::Listed,
            "TokenReview" => KindState::Unfit,
            "Broken" => KindState::Unlisted,
            _ => KindState::Missing,
        }
    }
    fn trouble(&self, kind: &Kind) -> Option<String> {
        (kind.kind == "Broken").then(|| "cannot list and watch brokens: 500".to_owned())
    }
    fn is_out_of_reach(&self, kind: &Kind) -> bool {
        kind.kind == "ClusterRole"
    }
    fn finds(&self, selector: &ResourceSelector) -> Option<bool> {
        let name = selector.name.as_deref();
        Some(matches!(name, Some("web" | "api" | "shop" | "apart")))
    }
    fn claimed_by(&self, selector: &ResourceSelector) -> Option<(String, String)> {
        let is_claimed = selector.name.as_deref() == Some("api");
        is_claimed.then(|| ("Deployment shop/api".to_owned(), "another".to_owned()))
    }
    fn goes_everywhere(&self, selector: &ResourceSelector) -> Option<String> {
        let name = selector.name.clone();
        name.filter(|it| selector.kind == "Namespace" && it == "shop")
    }
    fn has_cluster(&self, name: &str) -> bool {
        name == "m1"
    }
    fn has_override(&self, name: &str) -> bool {
        name == "images"
    }
    fn has_class(&self, name: &str) -> bool {
        name == "high"
    }
}

#[test]
fn why_a_kind_cannot_be_listed_is_reported() {
    let spec = serde_json::from_value(selecting("example.com/v1", "Broken", "b")).unwrap();
    let found = missing(&spec, &Scope::default(), &Fleet);
    assert!(
        found[0]
            .note
            .ends_with(": cannot list and watch brokens: 500"),
        "{found:?}"
    );
}

#[test]
fn a_policy_in_a_namespace_is_reported_that_it_selects_no_kind_without_one() {
    let roles = selecting("rbac.authorization.k8s.io/v1", "ClusterRole", "web");
    let found = missing(&spec(roles), &Scope::default(), &Fleet);
    let notes: Vec<_> = found.iter().map(|it| it.note.as_str()).collect();
    let expected = "spec.resourceSelectors[0]: ClusterRole of rbac.authorization.k8s.io/v1 lies in no namespace: only a \
                    ClusterPropagationPolicy selects it";
    assert_eq!(notes, [expected]);
}

#[test]
fn what_the_fleet_lacks_is_found_with_what_to_do() {
    let found = |of: Value| {
        let found = missing(&spec(of), &Scope::default(), &Fleet);
        assert!(found.iter().all(|it| it.note.starts_with("spec.")));
        reasons(&found)
    };
    let reviews = "authentication.k8s.io/v1";
    for (api_version, kind, name, expected) in [
        ("apps/v1", "Deployment", "web", ""),
        ("apps/v1", "Deployment", "wbe", "NothingSelected"),
        ("apps/v1", "Deployment", "api", "ClaimedByAnotherPolicy"),
        ("example.com/v1", "Gizmo", "g", "UnknownKind"),
        (reviews, "TokenReview", "t", "KindNotPropagated"),
        ("example.com/v1", "Broken", "b", "KindNotListed"),
    ] {
        let found = found(selecting(api_version, kind, name));
        assert_eq!(found, expected, "{kind} {name}");
    }
    let class = |name: &str| json!({ "priorityClassSource": "KubePriorityClass", "priorityClassName": name });
    let on = |clusters: Value| json!({ "clusterAffinity": { "clusterNames": clusters } });
    let later = json!({ "clusterAffinities": [
        { "affinityName": "a", "clusterNames": ["m1"] },
        { "affinityName": "b", "clusterNames": ["nosuch"] },
    ] });
    let suspended = json!({ "dispatchingOnClusters": { "clusterNames": ["m1", "nosuch"] } });
    let two = json!(["images", "nosuch"]);
    for (field, value, expected) in [
        ("schedulePriority", class("high"), ""),
        ("schedulePriority", class("hihg"), "UnknownPriorityClass"),
        ("dependentOverrides", json!(["images"]), ""),
        ("dependentOverrides", two, "DependentOverrides"),
        ("placement", on(json!(["m1"])), ""),
        ("placement", on(json!(["m1", "nosuch"])), "UnknownCluster"),
        ("placement", later, "UnknownCluster"),
        ("suspension", suspended, "UnknownCluster"),
    ] {
        let web = selecting("apps/v1", "Deployment", "web");
        assert_eq!(found(with(web, field, value.clone())), expected, "{value}");
    }
    for (name, placement, expected) in [
        ("shop", on(json!(["m1"])), "PlacedEverywhere"),
        ("shop", json!({}), ""),
        ("apart", on(json!(["m1"])), ""),
    ] {
        let namespace = selecting("v1", "Namespace", name);
        let found = found(with(namespace, "placement", placement));
        assert_eq!(found, expected, "{name}");
    }
}

#[test]
fn failover_that_a_gate_switches_off_is_reported_on_the_policy() {
    let state = json!({ "rules": [{ "aliasLabelName": "job", "jsonPath": "{.id}" }] });
    let application = |mode: &str| {
        json!({ "application": {
            "decisionConditions": {}, "purgeMode": mode, "statePreservation": state,
        } })
    };
    let cluster = json!({ "cluster": { "statePreservation": state } });
    let off = "Failover=false,GracefulEviction=false,StatefulFailoverInjection=false";
    let both = "GracefulEvictionDisabled StatePreservationOff";
    let on = "Failover=true,GracefulEviction=true,StatefulFailoverInjection=true";
    for (failover, gates, expected) in [
        (json!({ "cluster": {} }), off, "FailoverOff"),
        (json!({ "cluster": {} }), on, ""),
        (application("Graciously"), off, both),
        (application("Directly"), off, "StatePreservationOff"),
        (application("Gracefully"), on, ""),
        (cluster.clone(), off, "FailoverOff StatePreservationOff"),
        (cluster, on, ""),
        (json!(null), off, ""),
    ] {
        let spec = spec(json!({ "failover": failover }));
        let found = switched_off(&spec, &settings(gates));
        assert_eq!(reasons(&found), expected, "{failover} with {gates}");
    }
}

#[test]
fn failover_whose_controller_is_off_is_reported_on_the_policy() {
    let cluster = json!({ "cluster": {} });
    let application = json!({ "application": { "decisionConditions": {} } });
    let on = "Failover=true";
    for (failover, gates, controllers, taints, expected) in [
        (&cluster, on, "*", true, ""),
        (&cluster, on, "*,-taintmanager", true, "FailoverOff"),
        (&cluster, on, "*", false, "FailoverOff"),
        (&cluster, "", "*,-taintmanager", true, "FailoverOff"),
        (&cluster, on, "*,-applicationFailover", true, ""),
        (&application, on, "*,-taintmanager", true, ""),
        (
            &application,
            on,
            "*,-applicationFailover",
            true,
            "ApplicationFailoverOff",
        ),
    ] {
        let spec = spec(json!({ "failover": failover }));
        let settings = Settings {
            controllers: controllers.parse().unwrap(),
            enable_taint_manager: taints,
            ..settings(gates)
        };
        let found = switched_off(&spec, &settings);
        let what = format!("{failover} with {gates} {controllers} {taints}");
        assert_eq!(reasons(&found), expected, "{what}");
    }
}

#[test]
fn preemption_and_priorities_that_a_gate_switches_off_are_reported_on_the_policy() {
    let class = json!({ "priorityClassSource": "KubePriorityClass", "priorityClassName": "high" });
    let off = "PropagationPolicyPreemption=false,PriorityBasedScheduling=false";
    let on = "PropagationPolicyPreemption=true,PriorityBasedScheduling=true";
    for (field, value, gates, expected) in [
        ("preemption", json!("Always"), off, "PreemptionOff"),
        ("preemption", json!("Always"), on, ""),
        ("preemption", json!("Never"), off, ""),
        ("schedulePriority", class.clone(), off, "PriorityOff"),
        ("schedulePriority", class, on, ""),
    ] {
        let web = selecting("apps/v1", "Deployment", "web");
        let spec = spec(with(web, field, value.clone()));
        let found = switched_off(&spec, &settings(gates));
        assert_eq!(reasons(&found), expected, "{field}: {value} with {gates}");
    }
}

#[test]
fn a_return_that_another_scheduler_rules_out_is_reported_on_the_policy() {
    for (mode, scheduler, controllers, expected) in [
        ("WhenHealthy", json!("other"), "*", "FailbackOff"),
        ("WhenHealthy", json!("default-scheduler"), "*", ""),
        ("WhenHealthy", json!(null), "*", ""),
        ("WhenHealthy", json!(null), "*,-scheduler", "FailbackOff"),
        (
            "WhenHealthy",
            json!(null),
            "*,-workloadRebalancer",
            "FailbackOff",
        ),
        ("Never", json!("other"), "*", ""),
        ("Never", json!(null), "*,-scheduler", ""),
    ] {
        let failover = json!({ "cluster": { "failback": { "mode": mode } } });
        let web = with(
            selecting("apps/v1", "Deployment", "web"),
            "failover",
            failover,
        );
        let spec = spec(with(web, "schedulerName", scheduler.clone()));
        let settings = Settings {
            controllers: controllers.parse().unwrap(),
            ..settings("Failover=true")
        };
        let found = switched_off(&spec, &settings);
        assert_eq!(
            reasons(&found),
            expected,
            "{mode} with {scheduler} and {controllers}"
        );
    }
}

#[test]
fn dependencies_that_a_gate_keeps_at_home_are_reported_on_the_policy() {
    let application = json!({ "application": { "decisionConditions": {} } });
    for (propagate_deps, failover, gates, expected) in [
        (true, json!(null), "PropagateDeps=false", Some(false)),
        (true, application.clone(), "PropagateDeps=false", Some(true)),
        (false, application.clone(), "PropagateDeps=false", None),
        (true, application, "", None),
    ] {
        let spec = spec(json!({ "propagateDeps": propagate_deps, "failover": failover }));
        let found = switched_off(&spec, &settings(gates));
        let reported = found.first().map(|finding| {
            assert_eq!(finding.reason, "DependenciesStayBehind");
            assert!(finding.note.contains("PropagateDeps"), "{finding:?}");
            finding.note.contains("stays where it is")
        });
        assert_eq!(reported, expected, "{propagate_deps} {failover} {gates:?}");
        assert_eq!(found.len(), usize::from(expected.is_some()), "{found:?}");
    }
}
