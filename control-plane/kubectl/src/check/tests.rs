//! Each check with each state that it tells apart.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use muster_control_plane::clusters::taint::record::ANNOTATION;
use muster_control_plane::settings::Settings;
use muster_shared::check::{Clocks, Refusal, Status};
use muster_shared::client::Life;
use muster_shared::conditions;
use muster_shared::k8s::{CustomResourceDefinition, Lease, ResourceExt as _, VersionInfo};
use muster_shared::names::{annotation, label};
use muster_shared::self_report::{AgentReport, LeaderReport};
use serde_json::{Value, json};

use super::facts::{Admission, Facts, Leader};
use super::fleet_api::OWN;
use super::{judge, known, rights};
use crate::fixtures::{self, read};
use crate::running::Running;

const NOW: &str = "2030-01-01T00:00:00Z";
const RENEWED: &str = "2029-12-31T23:59:55.000000Z";

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn until(end: &str) -> Life {
    Life {
        begin: None,
        end: at(end),
    }
}

fn leader(version: &str, failover: bool, renewed: Option<bool>) -> Leader {
    let report = LeaderReport {
        identity: "host_1".to_owned(),
        version: version.to_owned(),
        feature_gates: BTreeMap::from([("Failover".to_owned(), failover)]),
        flags: None,
        credentials: Some(until("2030-03-01T00:00:00Z")),
    };
    let lease = read(json!({
        "metadata": {"annotations": {annotation::LEADER: report.write()}},
        "spec": {"holderIdentity": "host_1", "renewTime": RENEWED, "leaseDurationSeconds": 15},
    }));
    Leader { lease, renewed }
}

fn lease(cluster: &str, version: &str, credentials: Option<Life>, renewed: &str) -> Lease {
    let report = AgentReport {
        version: version.to_owned(),
        credentials,
    };
    read(json!({
        "metadata": {"name": cluster, "annotations": {annotation::FENCES: renewed, annotation::AGENT: report.write()}},
        "spec": {"holderIdentity": cluster, "renewTime": renewed, "leaseDurationSeconds": 40},
    }))
}

fn cluster(name: &str, ready: &str, cpu: &str) -> Value {
    let condition = |kind: &str, status: &str| fixtures::condition(kind, status, "R", "words", NOW);
    json!({
        "metadata": {"name": name},
        "spec": {"syncMode": "Pull", "id": name},
        "status": {
            "kubernetesVersion": "v1.35.0",
            "conditions": [condition("Ready", ready), condition("CompleteAPIEnablements", "True")],
            "apiEnablements": [{"groupVersion": "apps/v1", "resources": [{"name": "deployments", "kind": "Deployment"}]}],
            "resourceSummary": {"allocatable": {"cpu": cpu, "memory": "64Gi", "pods": "100"}},
        },
    })
}

fn binding(name: &str, replicas: i32, placement: &Value) -> Value {
    json!({
        "metadata": {
            "name": name, "namespace": "default", "labels": {label::PROPAGATION_POLICY_ID: "u"},
            "annotations": {
                annotation::PROPAGATION_POLICY_NAMESPACE: "default", annotation::PROPAGATION_POLICY_NAME: "web",
            },
        },
        "spec": {
            "resource": {"apiVersion": "apps/v1", "kind": "Deployment", "namespace": "default", "name": name},
            "replicas": replicas, "replicaRequirements": {"resourceRequest": {"cpu": "1"}},
            "clusters": [{"name": "m1", "replicas": replicas}], "placement": placement,
        },
    })
}

/// Returns a placement in one cluster that has room.
fn anywhere() -> Value {
    json!({"replicaScheduling": {"replicaSchedulingType": "Divided", "replicaDivisionPreference": "Aggregated"}})
}

fn policy(name: &str, more: &Value) -> Value {
    let mut spec = json!({
        "resourceSelectors": [{"apiVersion": "apps/v1", "kind": "Deployment"}],
        "placement": {}, "failover": {"cluster": {}},
    });
    json_patch::merge(&mut spec, more);
    json!({"metadata": {"name": name, "namespace": "default"}, "spec": spec})
}

fn taint_policy(effect: &str, condition: &str) -> Value {
    json!({"metadata": {"name": "failed"}, "spec": {
        "matchConditions": [{"conditionType": condition, "operator": "In", "statusValues": ["False"]}],
        "taintsToAdd": [{"key": "example.com/failed", "effect": effect}],
    }})
}

/// Settings of the control plane with flags.
fn settings(flags: &[&str]) -> Settings {
    let flags: Vec<String> = flags.iter().map(|it| (*it).to_owned()).collect();
    let running = Running::of(&flags, None).unwrap();
    running.with_failover().unwrap().0
}

/// Returns a fleet of two clusters in which nothing is wrong.
fn sound() -> Facts {
    let definitions: Vec<CustomResourceDefinition> = muster_shared::api::crds();
    let mut served: BTreeMap<String, Result<Vec<String>, Refusal>> = BTreeMap::new();
    for definition in &definitions {
        for version in &definition.spec.versions {
            let group = format!("{}/{}", definition.spec.group, version.name);
            let names = served.entry(group).or_insert_with(|| Ok(Vec::new()));
            names
                .as_mut()
                .unwrap()
                .push(definition.spec.names.plural.clone());
        }
    }
    Facts {
        settings: settings(&[]),
        server: "https://fleet".to_owned(),
        verified: true,
        now: at(NOW),
        credentials: Some(until("2031-01-01T00:00:00Z")),
        authority: Some(until("2040-01-01T00:00:00Z")),
        version: Ok(VersionInfo {
            git_version: "v1.35.0".to_owned(),
            ..VersionInfo::default()
        }),
        clocks: Ok(Clocks {
            server: at(NOW),
            before: at(NOW),
            after: at(NOW),
        }),
        unfit: Ok(None),
        definitions: definitions.into_iter().map(|it| (it.name_any(), Ok(it))).collect(),
        served,
        leader: Ok(leader(OWN, true, None)),
        control_plane: Ok(vec![("c".to_owned(), Vec::new())]),
        agents: ["m1", "m2"].map(|it| (it.to_owned(), Ok(vec![("a".to_owned(), Vec::new())]))).into(),
        clusters: Ok(vec![read(cluster("m1", "True", "8")), read(cluster("m2", "True", "8"))]),
        leases: Ok(["m1", "m2"].map(|it| lease(it, OWN, Some(until("2030-06-01T00:00:00Z")), RENEWED)).into()),
        tokens: Ok(Vec::new()),
        push_tokens: Ok(BTreeMap::new()),
        admission: Ok(Admission {
            configuration: ValidatingWebhookConfiguration::default(),
            trial: Err(Refusal::Forbidden("admission webhook \"policies.muster.io\" denied the request: no key (403 Forbidden)".to_owned())),
        }),
        pause: Ok(None),
        taint_policies: Ok(vec![read(taint_policy("NoExecute", "Ready"))]),
        policies: Ok(vec![read(policy("web", &json!({})))]),
        bindings: Ok(vec![read(binding("web", 2, &anywhere()))]),
    }
}

#[test]
fn in_a_sound_fleet_everything_is_green() {
    let verdicts = judge(&sound());
    let bad: Vec<_> = verdicts
        .iter()
        .filter(|it| it.status != Status::Ok)
        .collect();
    assert!(bad.is_empty(), "{bad:#?}");
    assert!(verdicts.len() > 20, "{}", verdicts.len());
    let room = verdicts.iter().find(|it| it.name == "room").unwrap();
    assert_eq!(
        room.message,
        "without m1, each of its workloads (1) fits elsewhere"
    );
}

/// Breaks a sound fleet, and finds the line about the fault.
fn reported(name: &str, status: Status, words: &str, break_it: impl FnOnce(&mut Facts)) {
    let mut facts = sound();
    break_it(&mut facts);
    let verdicts = judge(&facts);
    // Each of them can be left out.
    let unlisted = verdicts.iter().find(|it| known(it.name).is_err());
    assert!(unlisted.is_none(), "{unlisted:?}");
    let found = verdicts
        .iter()
        .find(|it| it.name == name && it.status == status && it.message.contains(words));
    let found = found.unwrap_or_else(|| panic!("{name} {status:?} {words}: {verdicts:#?}"));
    let is_bad = status >= Status::Warning && !found.message.starts_with("cannot be checked");
    assert!(!is_bad || found.hint.is_some(), "{found:?}");
}

fn forbidden() -> Refusal {
    Refusal::Forbidden("no".to_owned())
}

fn absent() -> Refusal {
    Refusal::Absent("not found".to_owned())
}

#[test]
fn what_may_not_be_read_is_reported_to_be_unchecked() {
    type Refuse = fn(&mut Facts);
    let refusals: [(&str, Refuse); 9] = [
        ("dedicated", |it| it.unfit = Err(forbidden())),
        ("leader", |it| it.leader = Err(forbidden())),
        ("join-tokens", |it| it.tokens = Err(forbidden())),
        ("agents", |it| it.leases = Err(forbidden())),
        ("policies", |it| it.bindings = Err(forbidden())),
        ("taint-policies", |it| it.taint_policies = Err(forbidden())),
        ("room", |it| it.bindings = Err(forbidden())),
        ("pauses", |it| it.pause = Err(forbidden())),
        ("dependencies", |it| it.bindings = Err(forbidden())),
    ];
    for (name, refuse) in refusals {
        reported(name, Status::Warning, "cannot be checked", refuse);
    }
}

#[test]
fn what_is_wrong_with_the_fleet_api_is_reported() {
    use Status::{Error, Ok as Well, Warning};
    reported("answers", Error, "https://fleet: refused", |it| {
        it.version = Err(Refusal::Failed("refused".to_owned()));
    });
    reported("version", Error, "older than 1.30", |it| {
        it.version.as_mut().unwrap().git_version = "v1.29.0".to_owned();
    });
    reported("verified", Warning, "not verified", |it| {
        it.verified = false;
    });
    reported("clock", Error, "3600 s ahead", |it| {
        it.clocks.as_mut().unwrap().server = at("2030-01-01T01:00:00Z");
    });
    reported("dedicated", Error, "it has nodes", |it| {
        it.unfit = Ok(Some("it has nodes".to_owned()));
    });
    reported("served", Error, "works.work.karmada.io", |it| {
        _ = it
            .served
            .insert("work.karmada.io/v1alpha1".to_owned(), Err(absent()));
    });
    reported("served", Warning, "cannot be checked", |it| {
        _ = it
            .served
            .insert("work.karmada.io/v1alpha1".to_owned(), Err(forbidden()));
    });
    // Karmada serves Clusters without a definition.
    reported("definitions", Well, "every field", |it| {
        _ = it
            .definitions
            .insert("clusters.cluster.karmada.io".to_owned(), Err(absent()));
    });
    reported("definitions", Warning, "has no spec.taintsToAdd", |it| {
        let found = it
            .definitions
            .get_mut("clustertaintpolicies.policy.karmada.io")
            .unwrap();
        let mut all = json!(found.as_ref().unwrap());
        let schema = &mut all["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
        let fields = &mut schema["properties"]["spec"]["properties"];
        fields
            .as_object_mut()
            .unwrap()
            .remove("taintsToAdd")
            .unwrap();
        *found = Ok(read(all));
    });
    reported("definitions", Warning, "version 99.0.0, newer", |it| {
        let found = it
            .definitions
            .get_mut("works.work.karmada.io")
            .unwrap()
            .as_mut()
            .unwrap();
        found
            .annotations_mut()
            .insert(annotation::VERSION.to_owned(), "99.0.0".to_owned());
    });
}

#[test]
fn what_is_wrong_with_the_control_plane_is_reported() {
    use Status::{Error, Skipped, Warning};
    fn admission(facts: &mut Facts) -> &mut Admission {
        facts.admission.as_mut().unwrap()
    }
    reported("leader", Error, "has ever led", |it| {
        it.leader = Err(absent());
    });
    reported("leader", Skipped, "acts without an election", |it| {
        it.leader = Err(absent());
        it.settings = settings(&["--leader-elect=false"]);
    });
    reported(
        "leader",
        Error,
        "has not renewed its lease since 2029-12-31T23:59:55Z",
        |it| {
            it.leader = Ok(leader(OWN, true, Some(false)));
        },
    );
    reported("leader-clock", Warning, "too old", |it| {
        it.leader = Ok(leader(OWN, true, Some(true)));
    });
    reported("leader", Error, "none leads", |it| {
        it.leader
            .as_mut()
            .unwrap()
            .lease
            .spec
            .as_mut()
            .unwrap()
            .holder_identity = None;
    });
    reported("control-plane-version", Warning, "older than", |it| {
        it.leader = Ok(leader("0.0.1", true, None));
    });
    reported("control-plane-version", Warning, "newer than", |it| {
        it.leader = Ok(leader("99.0.0", true, None));
    });
    reported("gates", Skipped, "no leader says", |it| {
        it.leader.as_mut().unwrap().lease.metadata.annotations = None;
    });
    reported("gates", Warning, "Failover is off", |it| {
        it.leader = Ok(leader(OWN, false, None));
    });
    reported("control-plane-rights", Error, "list clusters", |it| {
        it.control_plane = Ok(vec![(
            "c".to_owned(),
            rights::of_control_plane()[..1].to_vec(),
        )]);
    });
    reported("admission", Skipped, "webhook.enabled", |it| {
        it.admission = Err(absent());
    });
    reported("admission", Warning, "was taken", |it| {
        admission(it).trial = Ok(json!({}));
    });
    reported("admission", Error, "unchecked: failed calling", |it| {
        admission(it).trial = Err(Refusal::Failed(
            "failed calling webhook \"policies.muster.io\": refused (500 InternalError)".to_owned(),
        ));
    });
}

#[test]
fn what_is_wrong_with_certificates_and_tokens_is_reported() {
    use Status::{Error, Warning};
    reported("own-credentials", Error, "expired 24 h ago", |it| {
        it.credentials = Some(until("2029-12-31T00:00:00Z"));
    });
    reported("authority", Warning, "4 days left", |it| {
        it.authority = Some(until("2030-01-05T00:00:00Z"));
    });
    reported("push-tokens", Error, "m3: expired 60 min ago", |it| {
        it.push_tokens = Ok(BTreeMap::from([(
            "m3".to_owned(),
            Some(until("2029-12-31T23:00:00Z")),
        )]));
    });
    reported("join-tokens", Warning, "have expired: abcdef", |it| {
        it.tokens = Ok(vec![
            muster_control_plane::clusters::registration::token::Entry {
                token: "abcdef.0123456789abcdef".parse().unwrap(),
                description: String::new(),
                expiration: Some(at("2029-01-01T00:00:00Z")),
                usages: Vec::new(),
                groups: Vec::new(),
            },
        ]);
    });
}

#[test]
fn a_fleet_that_fell_silent_one_by_one_is_not_blamed_on_the_network() {
    let at_once = "2029-12-31T23:59:00Z";
    let before = "2029-12-31T23:00:00Z";
    for (names, first, expected) in [
        (&["m1", "m2"][..], at_once, Some("the clusters")),
        (&["m1", "m2"], before, None),
        (
            &["m1", "m2", "m3"],
            before,
            Some("the 2 clusters that fell silent last"),
        ),
    ] {
        let mut facts = sound();
        let silent = |it: &&str| read(cluster(it, "Unknown", "8"));
        facts.clusters = Ok(names.iter().map(silent).collect());
        let clusters = facts.clusters.as_mut().unwrap();
        let status = clusters[0].status.as_mut().unwrap();
        status.conditions[0].last_transition_time = read(json!(first));
        let verdicts = judge(&facts);
        let mut messages = verdicts.iter().map(|it| it.message.as_str());
        let found = messages.find_map(|it| it.split_once("the network of the fleet API, not "));
        let spared = found.map(|(_, spared)| spared);
        assert_eq!(spared, expected, "{first}: {verdicts:#?}");
    }
}

#[test]
fn a_token_that_is_not_renewed_is_replaced_and_its_cluster_is_not_joined_again() {
    let mut facts = sound();
    let ended = Some(until("2029-12-31T23:00:00Z"));
    facts.push_tokens = Ok(BTreeMap::from([("m3".to_owned(), ended)]));
    let verdicts = judge(&facts);
    let found = verdicts.iter().find(|it| it.name == "push-tokens");
    let hint = found.and_then(|it| it.hint.as_deref()).unwrap();
    for part in ["create token muster-push-m3", "Secret karmada-cluster/m3"] {
        assert!(hint.contains(part), "{hint}");
    }
    // `join` refuses the name of a cluster that is there.
    assert!(!hint.contains("join m3"), "{hint}");
}

#[test]
fn a_taint_that_no_policy_set_is_reported_with_the_command_that_takes_it_off() {
    for (key, command) in [
        ("mine", "taint m1 mine:NoExecute-"),
        ("failover.muster.io/drain", "undrain m1"),
    ] {
        let mut facts = sound();
        facts.clusters.as_mut().unwrap()[0].spec.taints =
            read(json!([{"key": key, "effect": "NoExecute"}]));
        let verdicts = judge(&facts);
        let found = verdicts.iter().find(|it| it.name == "taints");
        let hint = found.and_then(|it| it.hint.as_deref()).unwrap();
        assert!(
            hint.ends_with(&format!("kubectl muster {command}")),
            "{hint}"
        );
    }
}

#[test]
fn a_cluster_that_falls_silent_while_nobody_leads_is_not_ready_and_its_clock_is_not_to_blame() {
    for (renewed, is_silent) in [(Some(false), true), (None, false)] {
        let mut facts = sound();
        facts.leader = Ok(leader(OWN, true, renewed));
        facts.leases.as_mut().unwrap()[0] = lease("m1", OWN, None, "2029-12-31T23:00:00.000000Z");
        let verdicts = judge(&facts);
        let found = |name: &str, status: Status, words: &str| {
            let mut verdicts = verdicts.iter();
            verdicts.any(|it| it.name == name && it.status == status && it.message.contains(words))
        };
        let silent = "m1 is silent since 2029-12-31T23:00:00Z, and no control plane leads";
        assert_eq!(found("ready", Status::Error, silent), is_silent);
        assert_eq!(found("ready", Status::Ok, "m1 is ready"), !is_silent);
        assert!(found("ready", Status::Ok, "m2 is ready"));
        assert_eq!(found("agent-clocks", Status::Error, "m1"), !is_silent);
    }
}

#[test]
fn what_is_wrong_with_members_is_reported() {
    use Status::{Error, Skipped, Warning};
    fn clusters(facts: &mut Facts) -> &mut Vec<muster_shared::api::cluster::Cluster> {
        facts.clusters.as_mut().unwrap()
    }
    fn leases(facts: &mut Facts) -> &mut Vec<Lease> {
        facts.leases.as_mut().unwrap()
    }
    reported("clusters", Warning, "no cluster has joined", |it| {
        clusters(it).clear();
    });
    reported(
        "ready",
        Error,
        "m1: Ready is Unknown since 2030-01-01T00:00:00Z (R): words",
        |it| {
            clusters(it)[0] = read(cluster("m1", "Unknown", "8"));
        },
    );
    reported("ready", Error, "most likely the network", |it| {
        for it in clusters(it) {
            *it = read(cluster(&it.name_any(), "Unknown", "8"));
        }
    });
    for (kind, status) in [
        ("WorksUpToDate", "False"),
        ("EgressReady", "False"),
        ("ObjectsWithoutWork", "True"),
    ] {
        let expected = format!("m1: {kind} is {status} since {NOW} (R): words");
        let reported_of = |ready: &str| {
            let mut facts = sound();
            let mut odd = cluster("m1", ready, "8");
            let fault = fixtures::condition(kind, status, "R", "words", NOW);
            odd["status"]["conditions"]
                .as_array_mut()
                .unwrap()
                .push(fault);
            clusters(&mut facts)[0] = read(odd);
            let verdicts = judge(&facts);
            verdicts
                .iter()
                .any(|it| it.name == "conditions" && it.message == expected)
        };
        assert!(reported_of("True"), "{kind}");
        assert!(
            !reported_of("Unknown"),
            "{kind}: what a silent one said last is old"
        );
    }
    reported("ready", Error, "m1 has never reported", |it| {
        clusters(it)[0].status = None;
    });
    reported(
        "kubernetes-versions",
        Warning,
        "m1 v1.31.0, m2 v1.35.0",
        |it| {
            clusters(it)[0].status.as_mut().unwrap().kubernetes_version =
                Some("v1.31.0".to_owned());
        },
    );
    reported("agent-versions", Warning, "m1 (0.0.1)", |it| {
        leases(it)[0] = lease("m1", "0.0.1", None, RENEWED);
    });
    reported("agent-versions", Skipped, "no agent says", |it| {
        leases(it).clear();
    });
    reported("agent-credentials", Warning, "m1 2 days left", |it| {
        leases(it)[0] = lease("m1", OWN, Some(until("2030-01-03T00:00:00Z")), RENEWED);
    });
    reported("agent-clocks", Warning, "m1 is 120 s ahead", |it| {
        leases(it)[0] = lease("m1", OWN, None, "2030-01-01T00:02:00.000000Z");
    });
    reported("agent-clocks", Error, "m1 is 3560 s behind", |it| {
        leases(it)[0] = lease("m1", OWN, None, "2029-12-31T23:00:00.000000Z");
    });
    reported(
        "agent-rights",
        Error,
        "the agent of m1 (\"a\") may not patch clusters/status",
        |it| {
            _ = it.agents.insert(
                "m1".to_owned(),
                Ok(vec![("a".to_owned(), rights::of_agent("m1")[..1].to_vec())]),
            );
        },
    );
}

#[test]
fn nobody_is_asked_to_apply_all_definitions_to_the_api_of_karmada() {
    let mut facts = sound();
    for name in [
        "clusters.cluster.karmada.io",
        "failovers.failover.muster.io",
    ] {
        facts.definitions.insert(name.to_owned(), Err(absent()));
    }
    facts
        .served
        .insert("failover.muster.io/v1alpha1".to_owned(), Err(absent()));
    let verdicts = judge(&facts);
    let served = verdicts.iter().find(|it| it.name == "served").unwrap();
    let hint = served.hint.as_deref().unwrap();
    assert!(hint.contains("Do NOT apply all"), "{served:?}");
    assert!(hint.contains("failovers.failover.muster.io"), "{served:?}");
}

#[test]
fn policies_without_effect_are_reported() {
    use Status::{Skipped, Warning};
    reported("policies", Skipped, "no PropagationPolicy", |it| {
        it.policies = Ok(Vec::new());
    });
    reported("policies", Warning, "Policy default/idle", |it| {
        it.policies
            .as_mut()
            .unwrap()
            .push(read(policy("idle", &json!({}))));
    });
    reported("policy-parts", Warning, "is Deployment of apps/v1", |it| {
        it.policies = Ok(vec![read(policy(
            "web",
            &json!({"resourceSelectors": [{"apiVersion": "apps/v1", "kind": "Deploymnt"}]}),
        ))]);
    });
    reported("policy-parts", Warning, "not in the fleet: nosuch", |it| {
        it.policies = Ok(vec![read(policy(
            "web",
            &json!({"placement": {"clusterAffinity": {"clusterNames": ["m1", "nosuch"]}}}),
        ))]);
    });
    reported("taint-policies", Warning, "keeps its workloads", |it| {
        it.taint_policies = Ok(Vec::new());
    });
    reported("taint-policies", Warning, "taintmanager is off", |it| {
        it.settings.enable_taint_manager = false;
    });
    reported("taint-policies", Warning, "which move nothing", |it| {
        it.settings.enable_no_execute_taint_eviction = false;
    });
    reported("taint-policies", Warning, "Failover is off", |it| {
        it.leader = Ok(leader(OWN, false, None));
    });
    reported("taint-policy-parts", Warning, "condition \"Redy\"", |it| {
        it.taint_policies = Ok(vec![read(taint_policy("NoExecute", "Redy"))]);
    });
    reported("taint-policies", Warning, "no ClusterTaintPolicy", |it| {
        it.taint_policies = Ok(vec![read(taint_policy("NoExcute", "Ready"))]);
    });
    reported("failover-policies", Warning, "they move nothing", |it| {
        it.taint_policies = Ok(vec![read(taint_policy("PreferNoExecute", "Ready"))]);
        it.policies = Ok(vec![read(policy("web", &json!({"failover": null})))]);
    });
    reported(
        "taints",
        Warning,
        "m1 has the taint mine:NoExecute, which no policy set",
        |it| {
            it.clusters.as_mut().unwrap()[0].spec.taints =
                read(json!([{"key": "mine", "effect": "NoExecute"}]));
        },
    );
}

#[test]
fn a_policy_may_put_the_taints_of_the_state_on_if_the_control_plane_leaves_them_to_policies() {
    for (flags, is_fault) in [(&[][..], true), (&["--condition-taints=false"], false)] {
        let mut facts = sound();
        facts.settings = settings(flags);
        let mut policy = taint_policy("NoSchedule", "Ready");
        policy["spec"]["taintsToAdd"][0]["key"] = json!("cluster.karmada.io/not-ready");
        facts.taint_policies = Ok(vec![read(policy)]);
        let mut verdicts = judge(&facts).into_iter();
        let reported = verdicts.any(|it| it.name == "taint-policy-parts");
        assert_eq!(reported, is_fault, "{flags:?}");
    }
}

#[test]
fn a_taint_that_a_policy_set_is_as_it_should_be() {
    reported("taints", Status::Ok, "is a policy's", |it| {
        let cluster = &mut it.clusters.as_mut().unwrap()[0];
        let failed = json!({"key": "example.com/failed", "effect": "NoExecute"});
        cluster.spec.taints = read(json!([failed]));
        let mut record = json!({"taints": [failed]});
        record["taints"][0]["heldBy"] = json!(["failed"]);
        let record = (ANNOTATION.to_owned(), record.to_string());
        cluster.annotations_mut().extend([record]);
    });
}

#[test]
fn clusters_without_which_workloads_have_no_place_are_reported() {
    use Status::{Skipped, Warning};
    // The parts of divided Jobs that clusters have are not read.
    reported("room", Skipped, "of 1 divided Jobs that go", |it| {
        let mut job = binding("sum", 2, &anywhere());
        job["spec"]["resource"]["apiVersion"] = json!("batch/v1");
        job["spec"]["resource"]["kind"] = json!("Job");
        job["spec"]["failover"] = json!({"cluster": {"purgeMode": "Directly"}});
        it.bindings = Ok(vec![read(job)]);
        let takes_jobs = |name: &str| {
            let mut cluster = cluster(name, "True", "8");
            cluster["status"]["apiEnablements"] = json!([{
                "groupVersion": "batch/v1",
                "resources": [{"name": "jobs", "kind": "Job"}],
            }]);
            read(cluster)
        };
        it.clusters = Ok(["m1", "m2"].map(takes_jobs).into());
    });
    reported("room", Skipped, "no other cluster", |it| {
        it.clusters.as_mut().unwrap().truncate(1);
    });
    reported(
        "room",
        Warning,
        "without m1, workloads with no other place: 1 of 1: default/web (",
        |it| {
            it.bindings = Ok(vec![read(binding(
                "web",
                2,
                &json!({"clusterAffinity": {"clusterNames": ["m1"]}}),
            ))]);
        },
    );
    reported("room", Warning, "no other place: 1 of 1", |it| {
        it.clusters.as_mut().unwrap()[1] = read(cluster("m2", "True", "1"));
    });
    // Each of the three workloads fits alone.
    reported("room", Warning, "1 of 3: default/c (", |it| {
        it.bindings = Ok(["a", "b", "c"]
            .map(|name| read(binding(name, 3, &anywhere())))
            .into());
    });
    reported("room", Skipped, "m1 is lost already", |it| {
        it.clusters.as_mut().unwrap()[0] = read(cluster("m1", "False", "8"));
    });
}

#[test]
fn a_pause_is_reported_with_what_ends_it() {
    use Status::{Ok as Well, Warning};
    reported("pauses", Well, "movement is not paused", |_| {});
    reported("pauses", Warning, "all movement is paused by ann", |it| {
        let data = json!({"by": "ann", "since": NOW});
        it.pause = Ok(Some(read(json!({"data": data}))));
    });
    reported("pauses", Well, "movement is not paused", |it| {
        let data = json!({"until": "2029-12-31T00:00:00Z"});
        it.pause = Ok(Some(read(json!({"data": data}))));
    });
    reported(
        "pauses",
        Warning,
        "movement out of m1 is paused until somebody resumes it (reason: \"disks\")",
        |it| {
            let cluster = &mut it.clusters.as_mut().unwrap()[0];
            let pause = (annotation::PAUSED.to_owned(), "disks".to_owned());
            cluster.annotations_mut().extend([pause]);
        },
    );
}

#[test]
fn workloads_that_lack_what_they_refer_to_are_a_warning() {
    use Status::{Ok as Well, Warning};
    let lack = |it: &mut Facts| {
        let now = at(NOW);
        let kind = muster_control_plane::propagation::binding::references::CONDITION;
        let lacks = conditions::new(kind, conditions::TRUE, "R", "it lacks a Secret", now);
        for binding in it.bindings.as_mut().unwrap() {
            let status = binding.status.get_or_insert_default();
            conditions::set(&mut status.conditions, lacks.clone());
        }
    };
    reported("dependencies", Well, "no workload is known to lack", |_| {});
    reported("dependencies", Warning, "1 workload is placed where", lack);
}

#[test]
fn a_check_that_there_is_not_cannot_be_left_out() {
    known("room").unwrap();
    let reported = known("roms").unwrap_err();
    assert!(reported.contains("is it room?"), "{reported}");
}
