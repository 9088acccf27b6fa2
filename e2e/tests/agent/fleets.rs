//! Two fleets that have the same member under the same name: neither touches what is the other's.

use std::time::Duration;

use kube::api::{Patch, PatchParams, PostParams};
use muster_e2e::apiserver::faults::{Effect, Scope};
use muster_e2e::harness::objects::{delete, event, merge, typed};
use muster_shared::api::binding::ResourceHealth;
use muster_shared::api::work::Work;
use muster_shared::k8s::{
    Api, ClusterRole, DynamicObject, Event, Namespace, ResourceExt, Secret, ServiceAccount,
};
use serde_json::json;

use crate::agent::bench::{
    AGENT, AGENTS, Bench, MEMBER, applied, config_map, gone, renewed, until, value,
};
use crate::agent::secrets;
use crate::agent::twins::control_plane;
use muster_e2e::harness::test_bed::Task;

const MARK: &str = "work.muster.io/fleet";
const CLUSTER_NAMESPACE: &str = "karmada-cluster";

/// Returns the id of a fleet.
async fn id(bench: &Bench) -> String {
    let namespaces: Api<Namespace> = Api::all(bench.fleet_client.clone());
    namespaces.get("kube-system").await.unwrap().uid().unwrap()
}

/// Waits until a Work is refused with these words.
async fn refused(bench: &Bench, name: &str, words: &str) -> Work {
    let what = format!("it is refused with {words:?}");
    until(&bench.works(), name, &what, |work| {
        applied(work).is_some_and(|(status, message)| status == "False" && message.contains(words))
    })
    .await
}

/// Waits until an event in the fleet has this reason.
async fn reported(bench: &Bench, namespace: &str, reason: &str) -> Event {
    let events: Api<Event> = Api::namespaced(bench.fleet_client.clone(), namespace);
    event(&events, &format!("reason={reason}"), "").await
}

async fn create_work(bench: &Bench, name: &str, value: &str) -> Work {
    bench
        .create_work(name, |work| {
            work["spec"]["workload"]["manifests"] = json!([config_map(name, value)]);
        })
        .await
}

/// Writes an object to the member as another agent made it: by server-side apply of this field
/// manager, or else by an update.
async fn made_before(bench: &Bench, name: &str, manager: &str, apply: bool) -> DynamicObject {
    let mut object = config_map(name, "1");
    object["metadata"]["labels"] = json!({"karmada.io/managed": "true"});
    object["metadata"]["annotations"] =
        json!({"work.karmada.io/namespace": "karmada-es-m1", "work.karmada.io/name": name});
    let maps = bench.config_maps();
    if apply {
        let params = PatchParams::apply(manager).force();
        maps.patch(name, &params, &Patch::Apply(&object)).await
    } else {
        let params = PostParams {
            field_manager: Some(manager.into()),
            ..PostParams::default()
        };
        maps.create(&params, &typed(object)).await
    }
    .unwrap()
}

#[tokio::test]
async fn of_two_fleets_neither_touches_what_is_the_others_and_one_leaves_without_the_other() {
    let first = Bench::start().await;
    let second = first.another_fleet().await;
    let _agents = [first.agent(), second.agent()];
    let _control_planes = [control_plane(&first), control_plane(&second)];
    first.joined().await;
    second.joined().await;
    create_work(&first, "a", "1").await;
    first.applied("a", "True").await;
    let before = first.config_maps().get("a").await.unwrap();
    assert_eq!(before.annotations()[MARK], id(&first).await);

    create_work(&second, "a", "2").await;
    let work = refused(&second, "a", "another fleet's").await;
    let (_, message) = applied(&work).unwrap();
    assert!(message.contains(&id(&first).await), "{message}");
    assert!(message.contains(&id(&second).await), "{message}");
    // Whatever the policy says about conflicts.
    second
        .create_work("b", |work| {
            let mut manifest = config_map("a", "2");
            manifest["metadata"]["annotations"] =
                json!({"work.karmada.io/conflict-resolution": "overwrite"});
            work["spec"]["workload"]["manifests"] = json!([manifest]);
        })
        .await;
    refused(&second, "b", "another fleet's").await;
    let now = first.config_maps().get("a").await.unwrap();
    assert_eq!(now.resource_version(), before.resource_version());

    // The second fleet is left, and the objects of the first one stay and are kept.
    delete(&second.clusters(), MEMBER).await;
    gone(&second.works(), "a").await;
    gone(&second.works(), "b").await;
    let event = reported(&second, "karmada-es-m1", "LeftToOtherFleet").await;
    let message = event.message.unwrap();
    assert!(message.contains("ConfigMap default/a"), "{message}");
    let now = first.config_maps().get("a").await.unwrap();
    assert_eq!(now.resource_version(), before.resource_version());
    let manifests = json!({"spec": {"workload": {"manifests": [config_map("a", "3")]}}});
    merge(&first.works(), "a", &manifests).await;
    until(&first.config_maps(), "a", "it is kept", |object| {
        value(object) == "3"
    })
    .await;
    delete(&first.works(), "a").await;
    gone(&first.config_maps(), "a").await;
}

/// Holds what the agent writes to the object `a` in the member.
fn hold(bench: &Bench) {
    let scope = Scope::user(AGENT).at("/default/configmaps/a");
    bench.member.faults().inject_for(scope, Effect::Hold);
}

#[tokio::test]
async fn an_object_that_another_fleet_makes_at_the_same_moment_stays_its_own() {
    let (bench, _agent) = Bench::with_agent().await;
    hold(&bench);
    create_work(&bench, "a", "ours").await;
    bench.member.faults().has_held(1).await;
    // The agent of the other fleet has the same field manager.
    let mut theirs = config_map("a", "theirs");
    theirs["metadata"]["labels"] = json!({"karmada.io/managed": "true"});
    theirs["metadata"]["annotations"] = json!({MARK: "other",
        "work.karmada.io/namespace": "karmada-es-m1", "work.karmada.io/name": "a"});
    let params = PatchParams::apply("muster-agent");
    let before = bench.config_maps();
    let before = before.patch("a", &params, &Patch::Apply(&theirs)).await;
    bench.member.faults().heal();
    refused(&bench, "a", "another fleet's").await;
    let now = bench.config_maps().get("a").await.unwrap();
    assert_eq!(value(&now), "theirs");
    assert_eq!(now.resource_version(), before.unwrap().resource_version());
}

#[tokio::test]
async fn what_another_fleet_has_taken_is_reported_and_not_reported_as_ones_own() {
    let bench = Bench::start().await;
    let _agent = bench.agent();
    bench.joined().await;
    create_work(&bench, "a", "1").await;
    bench.applied("a", "True").await;
    let health = |work: &Work, expected: ResourceHealth| {
        let statuses = work.status.iter().flat_map(|it| &it.manifest_statuses);
        statuses.map(|it| it.health.clone()).collect::<Vec<_>>() == [Some(expected)]
    };
    until(&bench.works(), "a", "it is healthy", |work| {
        health(work, ResourceHealth::Healthy)
    })
    .await;
    let mark = json!({"metadata": {"annotations": {MARK: "other"}}, "data": {"k": "theirs"}});
    merge(&bench.config_maps(), "a", &mark).await;
    refused(&bench, "a", "another fleet's").await;
    until(&bench.works(), "a", "it is lost", |work| {
        health(work, ResourceHealth::Unhealthy)
    })
    .await;
    let object = bench.config_maps().get("a").await.unwrap();
    assert_eq!(value(&object), "theirs");

    // The mark goes, as the message says: the object is managed by whoever wants it.
    let mark = json!({"metadata": {"annotations": {MARK: null}}});
    merge(&bench.config_maps(), "a", &mark).await;
    bench.applied("a", "True").await;
    let object = bench.config_maps().get("a").await.unwrap();
    assert_eq!(value(&object), "1");
    assert_eq!(object.annotations()[MARK], id(&bench).await);
}

#[tokio::test]
async fn an_agent_that_starts_again_and_a_cluster_that_is_registered_anew_find_their_objects() {
    let bench = Bench::start().await;
    let agent = bench.agent();
    let first = bench.joined().await;
    create_work(&bench, "a", "1").await;
    bench.applied("a", "True").await;
    let before = bench.config_maps().get("a").await.unwrap();
    agent.stop().await.unwrap();

    let agent = bench.agent();
    bench.joined().await;
    create_work(&bench, "b", "1").await;
    bench.applied("b", "True").await;
    let now = bench.config_maps().get("a").await.unwrap();
    assert_eq!(now.resource_version(), before.resource_version());
    agent.stop().await.unwrap();

    // The Cluster goes while no agent is there to remove anything, as one that fell silent.
    let free = json!({"metadata": {"finalizers": null}});
    for name in ["a", "b"] {
        merge(&bench.works(), name, &free).await;
        delete(&bench.works(), name).await;
    }
    delete(&bench.clusters(), MEMBER).await;
    gone(&bench.clusters(), MEMBER).await;
    let _agent = bench.agent();
    let second = bench.joined().await;
    assert_ne!(first.uid(), second.uid());
    create_work(&bench, "a", "2").await;
    bench.applied("a", "True").await;
    let now = bench.config_maps().get("a").await.unwrap();
    assert_eq!((now.uid(), value(&now)), (before.uid(), "2"));
    assert_eq!(now.annotations()[MARK], before.annotations()[MARK]);
}

#[tokio::test]
async fn objects_that_were_made_before_there_were_marks_are_taken_and_marked() {
    let bench = Bench::start().await;
    let ours = made_before(&bench, "a", "muster-agent", true).await;
    let karmadas = made_before(&bench, "b", "karmada-agent", false).await;
    let dropped = made_before(&bench, "c", "muster-agent", true).await;
    for name in ["a", "b", "c"] {
        create_work(&bench, name, "1").await;
    }
    delete(&bench.works(), "c").await;
    let _agent = bench.agent();
    for before in [ours, karmadas] {
        let name = before.name_any();
        bench.applied(&name, "True").await;
        let now = bench.config_maps().get(&name).await.unwrap();
        assert_eq!(now.uid(), before.uid());
        assert_eq!(now.annotations()[MARK], id(&bench).await);
    }
    gone(&bench.config_maps(), &dropped.name_any()).await;
}

/// Takes the right to read the uid of `kube-system` away.
async fn hide(bench: &Bench) {
    let roles: Api<ClusterRole> = Api::all(bench.fleet_client.clone());
    let name = "muster:agent:m1";
    let mut role = roles.get(name).await.unwrap();
    for rule in role.rules.iter_mut().flatten() {
        if let Some(names) = &mut rule.resource_names {
            names.retain(|name| name != "kube-system");
        }
    }
    merge(&roles, name, &json!({ "rules": role.rules })).await;
}

async fn annotate(bench: &Bench, key: &str, text: &str) {
    let namespaces: Api<Namespace> = Api::all(bench.fleet_client.clone());
    let note = json!({"metadata": {"annotations": {key: text}}});
    merge(&namespaces, CLUSTER_NAMESPACE, &note).await;
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_does_not_know_its_fleet_beats_and_leaves_marked_objects_alone() {
    let bench = Bench::start().await;
    hide(&bench).await;
    let object = made_before(&bench, "theirs", "muster-agent", true).await;
    let mark = json!({"metadata": {"annotations": {MARK: "f"}}});
    let marked = merge(&bench.config_maps(), &object.name_any(), &mark).await;
    let _agent = bench.agent();
    bench.joined().await;
    let beat = renewed(&bench.beats(None).await);
    for name in ["theirs", "new"] {
        create_work(&bench, name, "1").await;
    }
    bench.applied("new", "True").await;
    refused(&bench, "theirs", "not known").await;
    let event = reported(&bench, "default", "FleetUnidentified").await;
    let message = event.message.unwrap();
    assert!(message.contains("fleet.muster.io/id"), "{message}");
    // Its Work waits until it is clear whose the object is.
    delete(&bench.works(), "theirs").await;
    tokio::time::sleep(Duration::from_mins(2)).await;
    let work = bench.works().get("theirs").await.unwrap();
    assert!(work.metadata.deletion_timestamp.is_some());
    let now = bench.config_maps().get("theirs").await.unwrap();
    assert_eq!(now.resource_version(), marked.resource_version());
    let now = bench.config_maps().get("new").await.unwrap();
    assert!(!now.annotations().contains_key(MARK));
    assert!(renewed(&bench.leases().get(MEMBER).await.unwrap()) > beat);

    annotate(&bench, "fleet.muster.io/id", "f").await;
    gone(&bench.config_maps(), "theirs").await;
    until(&bench.config_maps(), "new", "it is marked", |object| {
        object.annotations().get(MARK).map(String::as_str) == Some("f")
    })
    .await;
    reported(&bench, "default", "FleetIdentified").await;
}

#[tokio::test]
async fn a_fleet_that_was_made_anew_takes_the_objects_of_the_former_one_where_it_is_asked_to() {
    let former = Bench::start().await;
    let agent = former.agent();
    create_work(&former, "a", "1").await;
    former.applied("a", "True").await;
    agent.stop().await.unwrap();

    let bench = former.another_fleet().await;
    annotate(&bench, "fleet.muster.io/former-ids", &id(&former).await).await;
    let before = bench.config_maps().get("a").await.unwrap();
    let _agent = bench.agent();
    create_work(&bench, "a", "1").await;
    bench.applied("a", "True").await;
    let now = bench.config_maps().get("a").await.unwrap();
    assert_eq!(now.uid(), before.uid());
    assert_eq!(now.annotations()[MARK], id(&bench).await);
}

fn reporting(bench: &Bench, reports: &str) -> Task {
    secrets::start(bench, &[AGENTS], reports)
}

#[tokio::test]
async fn the_account_that_one_fleet_made_is_neither_used_nor_taken_back_by_another() {
    let first = Bench::start().await;
    let second = first.another_fleet().await;
    let both = "KubeCredentials,KubeImpersonator";
    for bench in [&first, &second] {
        secrets::allow(bench).await;
    }
    let _agent = reporting(&first, both);
    let of_first: Api<Secret> = Api::namespaced(first.fleet_client.clone(), CLUSTER_NAMESPACE);
    for name in [MEMBER, "m1-impersonator"] {
        until(&of_first, name, "it is reported", |_| true).await;
    }
    let accounts: Api<ServiceAccount> =
        Api::namespaced(first.member_client.clone(), CLUSTER_NAMESPACE);
    let roles: Api<ClusterRole> = Api::all(first.member_client.clone());
    let role = "karmada-controller-manager:karmada-m1";
    let mut before = Vec::new();
    for name in ["karmada-m1", "karmada-impersonator"] {
        let account = accounts.get(name).await.unwrap();
        assert_eq!(account.annotations()[MARK], id(&first).await);
        before.push(account.uid());
    }
    assert_eq!(
        roles.get(role).await.unwrap().annotations()[MARK],
        id(&first).await
    );

    // The second fleet wants them, too.
    let agent = reporting(&second, both);
    let event = reported(&second, "default", "ReportSecretFailed").await;
    let message = event.message.unwrap();
    assert!(message.contains("another fleet"), "{message}");
    second.joined().await;
    let of_second: Api<Secret> = Api::namespaced(second.fleet_client.clone(), CLUSTER_NAMESPACE);
    for name in [MEMBER, "m1-impersonator"] {
        assert!(of_second.get_opt(name).await.unwrap().is_none(), "{name}");
    }
    agent.stop().await.unwrap();

    // It does not want them any more. The account that bears its own id shows that it checked.
    let mark = json!({"metadata": {"annotations": {MARK: id(&second).await}}});
    merge(&accounts, "karmada-impersonator", &mark).await;
    let _agent = reporting(&second, "None");
    reported(&second, "default", "ReportSecretWithdrawn").await;
    let impersonator = accounts.get_opt("karmada-impersonator").await.unwrap();
    assert_ne!(impersonator.and_then(|it| it.uid()), before[1]);
    let account = accounts.get("karmada-m1").await.unwrap();
    assert_eq!(account.uid(), before[0]);
    roles.get(role).await.unwrap();
}
