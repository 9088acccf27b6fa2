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

fn reasons(found: &[Finding]) -> Vec<&'static str> {
    found.iter().map(|finding| finding.reason).collect()
}

#[test]
fn what_can_never_work_is_found_without_a_look_at_the_fleet() {
    let web = || selecting("apps/v1", "Deployment", "web");
    let scope = Scope::new("batch", &[]).unwrap();
    let preserving = |mode: &str, fenced_after: Option<u32>| {
        let fencing = fenced_after.map(|it| json!({ "afterSeconds": it }));
        let state = json!({ "rules": [{ "aliasLabelName": "job", "jsonPath": "{.id}" }] });
        let cluster = json!({ "purgeMode": mode, "fencing": fencing, "statePreservation": state });
        with(web(), "failover", json!({ "cluster": cluster }))
    };
    let spreading = |preference: &str, weights: Value| {
        let one = json!({ "spreadByField": "cluster", "maxGroups": 1 });
        let division = json!({
            "replicaSchedulingType": "Divided", "replicaDivisionPreference": preference,
            "weightPreference": weights,
        });
        let placement = json!({ "spreadConstraints": [one], "replicaScheduling": division });
        with(web(), "placement", placement)
    };
    let dynamic = json!({ "dynamicWeight": "AvailableReplicas" });
    let unused = &["StatePreservationUnused"][..];
    for (what, of, expected) in [
        ("a sound one", web(), &[][..]),
        (
            "another source of priorities",
            with(
                web(),
                "schedulePriority",
                json!({ "priorityClassSource": "PodPriorityClass", "priorityClassName": "x" }),
            ),
            &["UnknownPriorityClass"],
        ),
        (
            "a slip",
            selecting("apps/v1", "Deploymnt", "web"),
            &["UnknownKind"],
        ),
        (
            "a reserved kind",
            selecting("work.karmada.io/v1alpha1", "Work", "w"),
            &["KindNotPropagated"],
        ),
        (
            "a skipped kind",
            selecting("batch/v1", "Job", "j"),
            &["KindNotPropagated"],
        ),
        (
            "a name without a binding",
            selecting("rbac.authorization.k8s.io/v1", "Role", "a_b"),
            &["InvalidName"],
        ),
        (
            "another namespace",
            json!({ "resourceSelectors": [{ "apiVersion": "v1", "kind": "Secret", "namespace": "other" }] }),
            &["NothingSelected"],
        ),
        (
            "constraints beside weights",
            spreading("Weighted", Value::Null),
            &["SpreadIgnored"],
        ),
        (
            "constraints beside room",
            spreading("Weighted", dynamic),
            &[],
        ),
        (
            "constraints of few clusters",
            spreading("Aggregated", Value::Null),
            &[],
        ),
        (
            "a state that is lost",
            preserving("Gracefully", None),
            unused,
        ),
        (
            "one of a copy that stays",
            preserving("Never", None),
            unused,
        ),
        (
            "one that is handed on",
            preserving("Immediately", None),
            &[],
        ),
        (
            "one of a fenced copy",
            preserving("Graciously", Some(60)),
            &[],
        ),
    ] {
        let found = written(&spec(of), Some("shop"), &scope);
        assert_eq!(reasons(&found), expected, "{what}: {found:?}");
    }
}

#[test]
fn a_namespace_of_which_nothing_is_propagated_is_found_once() {
    let scope = Scope::new("", &["kube-.*".to_owned()]).unwrap();
    let secrets = |namespace: Value| {
        let selector = |name: &str| json!({ "apiVersion": "v1", "kind": "Secret", "name": name, "namespace": namespace });
        json!({ "resourceSelectors": [selector("a"), selector("b")] })
    };
    let left_out = &["NamespaceNotPropagated"][..];
    for (named, own, expected) in [
        (json!("kube-system"), None, left_out),
        (json!("karmada-system"), None, left_out),
        (json!("shop"), None, &[]),
        (Value::Null, None, &[]),
        (Value::Null, Some("kube-system"), left_out),
        (Value::Null, Some("shop"), &[]),
    ] {
        let found = written(&spec(secrets(named)), own, &scope);
        assert_eq!(reasons(&found), expected, "{own:?}: {found:?}");
    }
}

#[test]
fn thousands_of_findings_are_told_as_a_few() {
    let selectors: Vec<_> = (0..10_000)
        .map(|number| json!({ "apiVersion": "v1", "kind": "Event", "name": format!("e{number}") }))
        .collect();
    let found = written(
        &spec(json!({ "resourceSelectors": selectors })),
        None,
        &Scope::default(),
    );
    assert_eq!(found.len(), MOST_TOLD + 1);
    assert!(found[MOST_TOLD].note.starts_with("9992 more"), "{found:?}");
}

/// A fleet with Deployments `web`, ClusterRoles out of reach and no other object, cluster `m1` and
/// class `high`.
struct Fleet;

impl Facts for Fleet {
    fn kind_state(&self, kind: &Kind) -> KindState {
        match kind.kind.as_str() {
            "Deployment" | "ClusterRole" => KindState::Listed,
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
        Some(selector.name.as_deref() == Some("web"))
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
fn why_a_kind_cannot_be_listed_is_told() {
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
fn a_policy_in_a_namespace_is_told_that_it_selects_no_kind_without_one() {
    let roles = selecting("rbac.authorization.k8s.io/v1", "ClusterRole", "web");
    let found = missing(&spec(roles), &Scope::default(), &Fleet);
    let notes: Vec<_> = found.iter().map(|it| it.note.as_str()).collect();
    let expected = "spec.resourceSelectors[0]: ClusterRole of rbac.authorization.k8s.io/v1 lies in no namespace: only a \
                    ClusterPropagationPolicy selects it";
    assert_eq!(notes, [expected]);
}

#[test]
fn what_the_fleet_lacks_is_found_with_what_to_do() {
    let web = || selecting("apps/v1", "Deployment", "web");
    let class = |name: &str| json!({ "priorityClassSource": "KubePriorityClass", "priorityClassName": name });
    let on = |clusters: Value| json!({ "clusterAffinity": { "clusterNames": clusters } });
    for (what, of, expected) in [
        ("a sound one", web(), &[][..]),
        (
            "nothing of the name",
            selecting("apps/v1", "Deployment", "wbe"),
            &["NothingSelected"],
        ),
        (
            "an unknown kind",
            selecting("example.com/v1", "Gizmo", "g"),
            &["UnknownKind"],
        ),
        (
            "a kind that cannot be listed by anybody",
            selecting("authentication.k8s.io/v1", "TokenReview", "t"),
            &["KindNotPropagated"],
        ),
        (
            "a kind whose list fails",
            selecting("example.com/v1", "Broken", "b"),
            &["KindNotListed"],
        ),
        (
            "a class",
            with(web(), "schedulePriority", class("high")),
            &[],
        ),
        (
            "an unknown class",
            with(web(), "schedulePriority", class("hihg")),
            &["UnknownPriorityClass"],
        ),
        (
            "override policies",
            with(web(), "dependentOverrides", json!(["images"])),
            &[],
        ),
        (
            "a missing override policy",
            with(web(), "dependentOverrides", json!(["images", "nosuch"])),
            &["DependentOverrides"],
        ),
        (
            "a cluster",
            with(web(), "placement", on(json!(["m1"]))),
            &[],
        ),
        (
            "an unknown cluster",
            with(web(), "placement", on(json!(["m1", "nosuch"]))),
            &["UnknownCluster"],
        ),
        (
            "an unknown cluster that is suspended",
            with(
                web(),
                "suspension",
                json!({ "dispatchingOnClusters": { "clusterNames": ["m1", "nosuch"] } }),
            ),
            &["UnknownCluster"],
        ),
        (
            "an unknown cluster of a later group",
            with(
                web(),
                "placement",
                json!({ "clusterAffinities": [
                { "affinityName": "a", "clusterNames": ["m1"] }, { "affinityName": "b", "clusterNames": ["nosuch"] },
            ] }),
            ),
            &["UnknownCluster"],
        ),
    ] {
        let found = missing(&spec(of), &Scope::default(), &Fleet);
        assert_eq!(reasons(&found), expected, "{what}: {found:?}");
        if let Some(finding) = found.first() {
            assert!(finding.note.starts_with("spec."), "{what}: {finding:?}");
        }
    }
}

#[test]
fn failover_that_a_gate_switches_off_is_told_on_the_policy() {
    let settings = |gates: &str| Settings {
        feature_gates: gates.parse().unwrap(),
        ..Settings::default()
    };
    let state = json!({ "rules": [{ "aliasLabelName": "job", "jsonPath": "{.id}" }] });
    let application = |mode: &str| {
        json!({ "application": {
            "decisionConditions": {}, "purgeMode": mode, "statePreservation": state,
        } })
    };
    let cluster = json!({ "cluster": { "statePreservation": state } });
    let off = "Failover=false,GracefulEviction=false,StatefulFailoverInjection=false";
    let on = "Failover=true,GracefulEviction=true,StatefulFailoverInjection=true";
    for (failover, gates, expected) in [
        (json!({ "cluster": {} }), off, &["FailoverOff"][..]),
        (json!({ "cluster": {} }), on, &[]),
        (
            application("Graciously"),
            off,
            &["GracefulEvictionDisabled", "StatePreservationOff"],
        ),
        (application("Directly"), off, &["StatePreservationOff"]),
        (application("Gracefully"), on, &[]),
        (
            cluster.clone(),
            off,
            &["FailoverOff", "StatePreservationOff"],
        ),
        (cluster, on, &[]),
        (json!(null), off, &[]),
    ] {
        let spec = spec(with(
            selecting("apps/v1", "Deployment", "web"),
            "failover",
            failover.clone(),
        ));
        let found = switched_off(&spec, &settings(gates));
        assert_eq!(reasons(&found), expected, "{failover} with {gates}");
    }
}

#[test]
fn preemption_and_priorities_that_a_gate_switches_off_are_told_on_the_policy() {
    let class = json!({ "priorityClassSource": "KubePriorityClass", "priorityClassName": "high" });
    let off = "PropagationPolicyPreemption=false,PriorityBasedScheduling=false";
    let on = "PropagationPolicyPreemption=true,PriorityBasedScheduling=true";
    for (field, value, gates, expected) in [
        ("preemption", json!("Always"), off, &["PreemptionOff"][..]),
        ("preemption", json!("Always"), on, &[]),
        ("preemption", json!("Never"), off, &[]),
        ("schedulePriority", class.clone(), off, &["PriorityOff"]),
        ("schedulePriority", class, on, &[]),
    ] {
        let web = selecting("apps/v1", "Deployment", "web");
        let spec = spec(with(web, field, value.clone()));
        let settings = Settings {
            feature_gates: gates.parse().unwrap(),
            ..Settings::default()
        };
        let found = switched_off(&spec, &settings);
        assert_eq!(reasons(&found), expected, "{field}: {value} with {gates}");
    }
}

#[test]
fn a_return_that_another_scheduler_rules_out_is_told_on_the_policy() {
    for (mode, scheduler, expected) in [
        ("WhenHealthy", json!("other"), &["FailbackOff"][..]),
        ("WhenHealthy", json!("default-scheduler"), &[]),
        ("WhenHealthy", json!(null), &[]),
        ("Never", json!("other"), &[]),
    ] {
        let failover = json!({ "cluster": { "failback": { "mode": mode } } });
        let web = with(
            selecting("apps/v1", "Deployment", "web"),
            "failover",
            failover,
        );
        let spec = spec(with(web, "schedulerName", scheduler.clone()));
        let settings = Settings {
            feature_gates: "Failover=true".parse().unwrap(),
            ..Settings::default()
        };
        let found = switched_off(&spec, &settings);
        assert_eq!(reasons(&found), expected, "{mode} with {scheduler}");
    }
}

#[test]
fn dependencies_that_a_gate_keeps_at_home_are_told_on_the_policy() {
    let application = json!({ "application": { "decisionConditions": {} } });
    for (propagate_deps, failover, gates, expected) in [
        (true, json!(null), "PropagateDeps=false", Some(false)),
        (true, application.clone(), "PropagateDeps=false", Some(true)),
        (false, application.clone(), "PropagateDeps=false", None),
        (true, application, "", None),
    ] {
        let spec = spec(json!({ "propagateDeps": propagate_deps, "failover": failover }));
        let settings = Settings {
            feature_gates: gates.parse().unwrap(),
            ..Settings::default()
        };
        let found = switched_off(&spec, &settings);
        let told = found.first().map(|finding| {
            assert_eq!(finding.reason, "DependenciesStayBehind");
            assert!(finding.note.contains("PropagateDeps"), "{finding:?}");
            finding.note.contains("stays where it is")
        });
        assert_eq!(told, expected, "{propagate_deps} {failover} {gates:?}");
        assert_eq!(found.len(), usize::from(expected.is_some()), "{found:?}");
    }
}
