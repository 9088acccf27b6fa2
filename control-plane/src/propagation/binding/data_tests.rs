//! Tests of what becomes of a workload and of the objects that follow it, by the Works of both.

use muster_shared::names::{self, annotation};
use serde_json::{Value, json};

use super::start;
use crate::fleet::testing::{Bench, cluster, pass};
use crate::settings::Settings;

const KINDS: [(&str, &str, &str, &str); 2] = [
    ("/apis/apps/v1", "apps/v1", "statefulsets", "StatefulSet"),
    (
        "/apis/r.example.com/v1",
        "r.example.com/v1",
        "replications",
        "Replication",
    ),
];

fn reference(kind: usize) -> Value {
    let (_, api_version, _, kind) = KINDS[kind];
    json!({"apiVersion": api_version, "kind": kind, "name": "db"})
}

fn template(kind: usize) -> (&'static str, Value) {
    let mut template = reference(kind);
    template["metadata"] = json!({"namespace": "shop", "name": "db"});
    template["spec"] = json!({"replicas": 1, "state": "secondary"});
    (KINDS[kind].2, template)
}

/// Returns the binding of the workload (0) or of its object (1) in some clusters.
fn binding(kind: usize, clusters: &[&str], generation: i64) -> Value {
    let name = names::binding(KINDS[kind].3, "db");
    let mut resource = reference(kind);
    resource["namespace"] = json!("shop");
    let id = json!({"resourcebinding.karmada.io/permanent-id": name});
    let clusters = clusters
        .iter()
        .map(|it| json!({"name": it, "replicas": 1 - kind}));
    let mut binding = json!({
        "metadata": {"namespace": "shop", "name": name, "labels": id, "generation": generation},
        "spec": {
            "resource": resource, "clusters": clusters.collect::<Vec<_>>(), "placement": {},
        },
    });
    if kind == 0 {
        binding["spec"]["replicas"] = json!(1);
        binding["spec"]["dataReplication"] = json!({
            "roles": [{
                "object": reference(1), "follows": reference(0), "path": "spec.state",
                "primary": "primary", "secondary": "secondary",
                "promoted": {"path": "status.state", "value": "Primary"},
                "demoted": {"path": "status.state", "value": "Secondary"},
            }],
            "gates": [{
                "workload": reference(0), "object": reference(1), "timeoutSeconds": 60,
                "ready": {"condition": {"type": "Complete"}},
            }],
        });
    }
    binding
}

/// Returns a fleet with these objects whose API serves the kinds of both.
fn serving(settings: Settings, objects: impl IntoIterator<Item = (&'static str, Value)>) -> Bench {
    let bench = Bench::with(settings, objects);
    for (path, version, plural, kind) in KINDS {
        bench.api.serve(path, version, plural, kind);
    }
    bench
}

/// Starts the controller over what is stored; nothing is known from before.
async fn started(objects: impl IntoIterator<Item = (&'static str, Value)>) -> Bench {
    started_with(Settings::default(), objects).await
}

async fn started_with(
    settings: Settings,
    objects: impl IntoIterator<Item = (&'static str, Value)>,
) -> Bench {
    let mut bench = serving(settings, objects);
    bench.run(start, 10).await;
    bench
}

/// Places the workload (0) or its object (1) in some clusters.
fn place(bench: &Bench, kind: usize, clusters: &[&str], generation: i64) {
    let placed = binding(kind, clusters, generation);
    bench.api.put("resourcebindings", placed);
}

/// Plurals of what is stored beside the bindings.
const PLURALS: [&str; 4] = ["clusters", "works", "statefulsets", "replications"];

/// Returns what is stored of these plurals, each object with its plural.
fn stored(bench: &Bench, plurals: &[&'static str]) -> Vec<(&'static str, Value)> {
    let of = |plural: &&'static str| {
        let (plural, all) = (*plural, bench.api.all(plural));
        all.into_iter().map(move |it| (plural, it))
    };
    plurals.iter().flat_map(of).collect()
}

async fn bench() -> Bench {
    let clusters = ["m1", "m2"].map(|name| ("clusters", cluster(name)));
    let bindings = [binding(0, &["m1"], 1), binding(1, &["m1", "m2"], 1)];
    let bindings = bindings.map(|it| ("resourcebindings", it));
    started(
        clusters
            .into_iter()
            .chain(bindings)
            .chain([0, 1].map(template)),
    )
    .await
}

/// Starts another process over what this one has left.
async fn restarted(bench: &Bench) -> Bench {
    let bindings = stored(bench, &["resourcebindings"]);
    started(stored(bench, &PLURALS).into_iter().chain(bindings)).await
}

fn work(bench: &Bench, kind: usize, cluster: &str) -> Option<Value> {
    let name = names::work(KINDS[kind].3, "db", "shop");
    let namespace = names::execution_namespace(cluster);
    bench.api.object("works", &namespace, &name)
}

/// Returns the values of the object in both clusters, and the clusters with the workload.
fn seen(bench: &Bench) -> String {
    let value = |cluster| {
        let work = work(bench, 1, cluster).unwrap_or_default();
        let value = &work["spec"]["workload"]["manifests"][0]["spec"]["state"];
        value.as_str().unwrap_or("-").to_owned()
    };
    let stays = |work: Value| work["metadata"]["deletionTimestamp"].is_null();
    let has = |cluster: &&str| work(bench, 0, cluster).is_some_and(stays);
    let there: Vec<_> = ["m1", "m2"].into_iter().filter(has).collect();
    format!("{} {} {}", value("m1"), value("m2"), there.join("+"))
}

/// Has the agent of a cluster report of the object whether it is complete.
async fn says(bench: &Bench, cluster: &str, complete: &str) {
    let mut object = work(bench, 1, cluster).unwrap();
    object["status"] = json!({
        "conditions": [{"type": "Applied", "status": "True", "reason": "R"}],
        "manifestStatuses": [{
            "identifier": {},
            "status": {"conditions": [{"type": "Complete", "status": complete}]},
        }],
    });
    bench.api.put("works", object);
    pass(10).await;
}

/// Returns the replicas that the Work of the workload asks for in a cluster.
fn replicas(bench: &Bench, cluster: &str) -> Value {
    let work = work(bench, 0, cluster).unwrap();
    work["spec"]["workload"]["manifests"][0]["spec"]["replicas"].clone()
}

/// Plays the agent of a cluster, whose engine has come to a state.
async fn report(bench: &Bench, cluster: &str, state: &str, is_complete: bool) {
    let mut work = work(bench, 1, cluster).unwrap();
    let manifest = &work["spec"]["workload"]["manifests"][0];
    let step = &manifest["metadata"]["annotations"][annotation::DATA_ROLE];
    let step: u32 = step.as_str().unwrap().parse().unwrap();
    let complete = if is_complete { "True" } else { "False" };
    let (applied, complete) = (
        json!({"type": "Applied", "status": "True", "reason": "R"}),
        json!({"type": "Complete", "status": complete}),
    );
    work["status"] = json!({"conditions": [applied], "manifestStatuses": [{
        "identifier": {},
        "status": {
            "state": state, "conditions": [complete], "dataRole": {"step": step, "generation": 1},
        },
    }]});
    bench.api.put("works", work);
    pass(10).await;
}

fn pending(bench: &Bench, name: &str) -> (String, String) {
    let found = bench.api.condition("resourcebindings", name, "DataPending");
    let text = |key: &str| found[key].as_str().unwrap_or_default().to_owned();
    (text("reason"), text("message"))
}

#[tokio::test(start_paused = true)]
async fn a_workload_starts_where_its_data_is_first_and_moves_in_the_order_of_its_data() {
    for restarts in [false, true] {
        let mut bench = bench().await;
        let mut steps = vec![seen(&bench)];
        let mut step = async |bench: &mut Bench, cluster: &str, state: &str, complete: bool| {
            report(bench, cluster, state, complete).await;
            if restarts {
                *bench = restarted(bench).await;
            }
            steps.push(seen(bench));
        };
        step(&mut bench, "m2", "Secondary", true).await;
        step(&mut bench, "m1", "Primary", false).await;
        assert_eq!(pending(&bench, "db-statefulset").0, "WaitingForData");
        step(&mut bench, "m1", "Primary", true).await;
        assert_eq!(pending(&bench, "db-statefulset").0, "DataReady");
        place(&bench, 0, &["m2"], 2);
        pass(10).await;
        let reported = || pending(&bench, "db-replication").1;
        let expected =
            "m1 stays as it is until the workload has left it: its copy there is being removed";
        assert_eq!(reported(), expected);
        let work = names::work("StatefulSet", "db", "shop");
        bench.api.delete("works", "karmada-es-m1", &work);
        pass(10).await;
        assert_eq!(reported(), "m1 has not said yet that it is demoted");
        step(&mut bench, "m1", "Primary", true).await;
        step(&mut bench, "m1", "Secondary", true).await;
        step(&mut bench, "m2", "Secondary", true).await;
        step(&mut bench, "m2", "Primary", true).await;
        let expected = [
            "primary secondary ",
            "primary secondary ",
            "primary secondary ",
            "primary secondary m1",
            "secondary secondary ",
            "secondary primary ",
            "secondary primary ",
            "secondary primary m2",
        ];
        assert_eq!(steps, expected, "restarts: {restarts}");
        assert_eq!(pending(&bench, "db-replication").0, "DataReady");
    }
}

#[tokio::test(start_paused = true)]
async fn a_workload_that_waits_too_long_is_reported_and_one_that_is_in_two_clusters_changes_nothing()
 {
    let bench = bench().await;
    report(&bench, "m2", "Secondary", true).await;
    report(&bench, "m1", "Primary", false).await;
    pass(60).await;
    let (reason, message) = pending(&bench, "db-statefulset");
    assert_eq!(reason, "DataNotReady", "{message}");
    let expected = "its copy in m1 is not created yet: Replication db in m1 does not say condition Complete=True";
    assert_eq!(message, expected);
    let reported = bench.api.reported().await;
    assert!(
        reported.contains(&("db-statefulset".into(), "DataNotReady".into())),
        "{reported:?}"
    );
    report(&bench, "m1", "Primary", true).await;
    assert_eq!(seen(&bench), "primary secondary m1");
    place(&bench, 0, &["m1", "m2"], 2);
    pass(60).await;
    assert_eq!(seen(&bench), "primary secondary m1");
    let (reason, message) = pending(&bench, "db-replication");
    assert_eq!(reason, "WaitingForRole", "{message}");
    assert!(message.contains("m1 and m2"), "{message}");
}

#[tokio::test(start_paused = true)]
async fn nothing_leaves_for_a_cluster_that_the_data_does_not_reach() {
    let bench = running().await;
    bench.api.put("clusters", cluster("m3"));
    place(&bench, 0, &["m3"], 2);
    pass(20 * 60).await;
    assert_eq!(
        seen(&bench),
        "primary secondary m1",
        "it is the last living copy"
    );
    let (reason, message) = pending(&bench, "db-statefulset");
    assert_eq!(reason, "DataNotReady", "{message}");
    assert!(message.contains("is not propagated to m3"), "{message}");
}

/// Returns a fleet with the workload in m1, where the object is primary.
async fn running() -> Bench {
    let bench = bench().await;
    report(&bench, "m1", "Primary", true).await;
    report(&bench, "m2", "Secondary", true).await;
    assert_eq!(seen(&bench), "primary secondary m1");
    bench
}

#[tokio::test(start_paused = true)]
async fn no_copy_leaves_for_a_cluster_where_its_data_can_never_become_primary() {
    for what in [
        "suspended",
        "no role",
        "a long status",
        "m1 is suspended",
        "a former primary",
        "another one",
    ] {
        let bench = running().await;
        let cluster = if what == "m1 is suspended" {
            "m1"
        } else {
            "m2"
        };
        let mut object = work(&bench, 1, cluster).unwrap();
        match what {
            "suspended" | "m1 is suspended" => {
                let mut suspended = binding(1, &["m1", "m2"], 2);
                suspended["spec"]["suspension"] =
                    json!({"dispatchingOnClusters": {"clusterNames": [cluster]}});
                bench.api.put("resourcebindings", suspended);
            }
            "no role" => {
                object["status"]["manifestStatuses"][0]["status"] = json!({"state": "Secondary"});
                bench.api.put("works", object);
            }
            "a former primary" => {
                // It returned after a failover, and its engine has not given the role up yet.
                let key = annotation::DATA_ROLE;
                let mark = object["metadata"]["annotations"][key].as_str().unwrap();
                let mark = mark.replace("\"step\":\"secondary\"", "\"step\":\"demoting\"");
                object["metadata"]["annotations"][key] = json!(mark);
                object["status"]["manifestStatuses"][0]["status"]["state"] = json!("Primary");
                bench.api.put("works", object);
            }
            "a long status" => {
                object["status"]["manifestStatuses"] = json!([]);
                bench.api.put("works", object);
            }
            _ => {
                let mut other = binding(0, &["m1"], 1);
                other["metadata"]["name"] = json!("other-statefulset");
                other["spec"]["resource"]["name"] = json!("other");
                bench.api.put("resourcebindings", other);
            }
        }
        pass(10).await;
        place(&bench, 0, &["m2"], 2);
        pass(20 * 60).await;
        assert!(seen(&bench).ends_with(" m1"), "{what}: {}", seen(&bench));
        let (reason, message) = pending(&bench, "db-statefulset");
        assert_eq!(reason, "DataNotReady", "{what}: {message}");
        assert!(
            message.contains("; old copies stay until then: "),
            "{what}: {message}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn no_copy_leaves_for_a_cluster_without_the_object_of_a_gate() {
    let bench = running().await;
    let mut moved = binding(0, &["m2"], 2);
    let gates = &mut moved["spec"]["dataReplication"]["gates"];
    gates[0]["object"]["name"] = json!("elsewhere");
    bench.api.put("resourcebindings", moved.clone());
    pass(20 * 60).await;
    assert_eq!(seen(&bench), "primary secondary m1");
    moved["metadata"]["generation"] = json!(3);
    moved["spec"]["dataReplication"]["gates"][0]["onTimeout"] = json!("Start");
    bench.api.put("resourcebindings", moved);
    pass(60).await;
    assert_eq!(seen(&bench), "primary secondary ");
}

#[tokio::test(start_paused = true)]
async fn a_cluster_that_has_a_work_without_replicas_gets_them_once_its_data_is_there() {
    let gated = |mut binding: Value| {
        binding["spec"]["dataReplication"]["roles"] = json!([]);
        binding
    };
    let mut placed = gated(binding(0, &["m1", "m2"], 1));
    placed["spec"]["clusters"][1]["replicas"] = json!(0);
    let clusters = ["m1", "m2"].map(|name| ("clusters", cluster(name)));
    let bindings = [placed, binding(1, &["m1", "m2"], 1)].map(|it| ("resourcebindings", it));
    let objects = clusters.into_iter().chain(bindings);
    let settings = Settings {
        enable_empty_workload_propagation: true,
        ..Settings::default()
    };
    let bench = started_with(settings, objects.chain([0, 1].map(template))).await;
    for cluster in ["m1", "m2"] {
        says(&bench, cluster, "True").await;
    }
    assert_eq!(
        [replicas(&bench, "m1"), replicas(&bench, "m2")],
        [json!(1), json!(0)]
    );
    says(&bench, "m2", "False").await;
    bench
        .api
        .put("resourcebindings", gated(binding(0, &["m2"], 2)));
    pass(30).await;
    assert_eq!(replicas(&bench, "m2"), 0, "its data is not there");
    says(&bench, "m2", "True").await;
    assert_eq!(replicas(&bench, "m2"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_workload_that_was_scaled_to_zero_gets_its_replicas_where_it_is_whatever_its_data_says() {
    let scaled = |replicas: i64| {
        let (plural, mut template) = template(0);
        template["spec"]["replicas"] = json!(replicas);
        let mut binding = binding(0, &["m1"], replicas + 1);
        binding["spec"]["dataReplication"]["roles"] = json!([]);
        binding["spec"]["replicas"] = json!(replicas);
        binding["spec"]["clusters"][0]["replicas"] = json!(replicas);
        [(plural, template), ("resourcebindings", binding)]
    };
    let others = [
        ("clusters", cluster("m1")),
        ("resourcebindings", binding(1, &["m1"], 1)),
        template(1),
    ];
    let bench = started(others.into_iter().chain(scaled(0))).await;
    says(&bench, "m1", "True").await;
    pass(30).await;
    assert_eq!(replicas(&bench, "m1"), 0);
    says(&bench, "m1", "False").await;
    for (plural, object) in scaled(1) {
        bench.api.put(plural, object);
    }
    pass(30).await;
    assert_eq!(replicas(&bench, "m1"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_copy_that_starts_without_its_data_has_waited_for_that_since_its_role_was_settled() {
    let bench = running().await;
    let mut moved = binding(0, &["m2"], 2);
    moved["spec"]["dataReplication"]["gates"][0]["onTimeout"] = json!("Start");
    bench.api.put("resourcebindings", moved);
    pass(60).await;
    let workload = names::work("StatefulSet", "db", "shop");
    bench.api.delete("works", "karmada-es-m1", &workload);
    pass(120).await;
    report(&bench, "m1", "Secondary", true).await;
    report(&bench, "m2", "Primary", false).await;
    assert_eq!(seen(&bench), "secondary primary ");
    pass(60).await;
    assert_eq!(seen(&bench), "secondary primary m2");
}

#[tokio::test(start_paused = true)]
async fn an_object_that_a_cluster_is_to_lose_is_demoted_there_first() {
    let bench = running().await;
    let mut object = binding(1, &["m2"], 2);
    object["spec"]["preserveResourcesOnDeletion"] = json!(true);
    object["spec"]["placement"] = json!({"clusterAffinity": {"clusterNames": ["m2"]}});
    bench.api.put("resourcebindings", object);
    place(&bench, 0, &["m2"], 2);
    pass(60).await;
    assert_eq!(seen(&bench), "primary secondary ");
    bench.api.delete(
        "works",
        "karmada-es-m1",
        &names::work("StatefulSet", "db", "shop"),
    );
    pass(60).await;
    assert_eq!(seen(&bench), "secondary secondary ");
    report(&bench, "m1", "Secondary", true).await;
    pass(10).await;
    let it = work(&bench, 1, "m1").unwrap_or_default();
    assert!(
        it.is_null() || !it["metadata"]["deletionTimestamp"].is_null(),
        "{it}"
    );
    let value = work(&bench, 1, "m2").unwrap()["spec"]["workload"]["manifests"][0]["spec"].clone();
    assert_eq!(value["state"], "primary");
}

#[tokio::test(start_paused = true)]
async fn a_primary_that_a_short_list_lacks_at_the_start_is_not_followed_by_another_one() {
    let bench = running().await;
    place(&bench, 0, &[], 2);
    pass(10).await;
    let mut bench = serving(Settings::default(), stored(&bench, &PLURALS));
    let lost = names::work("Replication", "db", "shop");
    bench.api.hide("works", "karmada-es-m1", &lost);
    start(&bench.fleet, &mut bench.tasks);
    bench.follow().await;
    bench.api.show_again("works", "karmada-es-m1", &lost);
    place(&bench, 0, &["m2"], 2);
    place(&bench, 1, &["m1", "m2"], 1);
    pass(60).await;
    assert!(!seen(&bench).contains(" primary"), "{}", seen(&bench));
}

#[tokio::test(start_paused = true)]
async fn a_silent_cluster_that_nothing_fences_keeps_its_role() {
    let bench = running().await;
    bench.api.put("clusters", silent("m1"));
    place(&bench, 0, &["m2"], 2);
    pass(20 * 60).await;
    let (reason, message) = pending(&bench, "db-replication");
    assert_eq!(reason, "WaitingForRole", "{message}");
    assert!(message.contains("m1 is silent"), "{message}");
    assert!(!seen(&bench).contains(" primary"), "{}", seen(&bench));
}

/// Returns a cluster that is silent.
fn silent(name: &str) -> Value {
    let mut silent = cluster(name);
    silent["status"]["conditions"][0]["status"] = json!("Unknown");
    silent
}

#[tokio::test(start_paused = true)]
async fn a_cluster_that_flaps_during_a_move_keeps_the_data_of_a_copy_that_stays_there() {
    let bench = running().await;
    let mut moved = binding(0, &["m2"], 2);
    moved["spec"]["dataReplication"]["roles"][0]["whenUnreachable"] = json!("Promote");
    let mut suspended = binding(1, &["m1", "m2"], 2);
    suspended["spec"]["suspension"] = json!({"dispatchingOnClusters": {"clusterNames": ["m2"]}});
    bench.api.put("resourcebindings", suspended);
    pass(10).await;
    bench.api.put("resourcebindings", moved);
    pass(10).await;
    bench.api.put("clusters", silent("m1"));
    pass(10).await;
    bench.api.put("clusters", cluster("m1"));
    pass(10).await;
    assert_eq!(seen(&bench), "primary secondary m1");
    place(&bench, 1, &["m1", "m2"], 3);
    bench.api.put("clusters", silent("m1"));
    pass(10).await;
    assert_eq!(
        seen(&bench),
        "secondary primary ",
        "it can be promoted there"
    );
}

#[tokio::test(start_paused = true)]
async fn an_object_that_is_taken_over_where_its_workload_runs_is_demoted_before_another_is_promoted()
 {
    let mut bench = running().await;
    // The binding was deleted with its Works, and the members keep the object.
    bench
        .api
        .delete("resourcebindings", "shop", "db-replication");
    let name = names::work("Replication", "db", "shop");
    for cluster in ["m1", "m2"] {
        let namespace = names::execution_namespace(cluster);
        bench.api.delete("works", &namespace, &name);
    }
    bench = restarted(&bench).await;
    place(&bench, 0, &["m2"], 2);
    pass(10).await;
    assert_eq!(seen(&bench), "- - m1");
    place(&bench, 1, &["m1", "m2"], 1);
    pass(10).await;
    assert_eq!(seen(&bench), "secondary secondary m1");
    report(&bench, "m2", "Secondary", true).await;
    report(&bench, "m1", "Primary", true).await;
    let workload = names::work("StatefulSet", "db", "shop");
    bench.api.delete("works", "karmada-es-m1", &workload);
    pass(10).await;
    assert_eq!(seen(&bench), "secondary secondary ");
    report(&bench, "m1", "Secondary", true).await;
    assert_eq!(seen(&bench), "secondary primary ");
}

#[tokio::test(start_paused = true)]
async fn the_roles_stay_when_the_workload_goes() {
    let bench = bench().await;
    report(&bench, "m1", "Primary", true).await;
    let before = seen(&bench);
    assert_eq!(before, "primary secondary m1");
    bench
        .api
        .delete("resourcebindings", "shop", "db-statefulset");
    // The object is reconciled again, with and without the memory of this process.
    let mut object = binding(1, &["m1", "m2"], 2);
    object["spec"]["conflictResolution"] = json!("Overwrite");
    bench.api.put("resourcebindings", object);
    pass(60).await;
    assert!(
        seen(&bench).starts_with("primary secondary"),
        "{}",
        seen(&bench)
    );
    let bench = restarted(&bench).await;
    assert!(
        seen(&bench).starts_with("primary secondary"),
        "{}",
        seen(&bench)
    );
}

#[tokio::test(start_paused = true)]
async fn a_copy_that_starts_without_its_data_has_waited_for_that_in_its_own_cluster() {
    let bench = running().await;
    let to = |cluster: &str, generation| {
        let mut moved = binding(0, &[cluster], generation);
        moved["spec"]["dataReplication"]["roles"] = json!([]);
        moved["spec"]["dataReplication"]["gates"][0]["onTimeout"] = json!("Start");
        moved
    };
    let objects = binding(1, &["m1", "m2", "m3"], 2);
    bench.api.put("clusters", cluster("m3"));
    bench.api.put("resourcebindings", objects);
    report(&bench, "m2", "Secondary", false).await;
    bench.api.put("resourcebindings", to("m2", 2));
    pass(50).await;
    let before = bench.api.binding("db-statefulset");
    let mut moved = to("m3", 3);
    moved["status"] = before["status"].clone();
    bench.api.put("resourcebindings", moved);
    pass(40).await;
    assert!(work(&bench, 0, "m3").is_none(), "it has waited for 40 s");
    pass(30).await;
    assert!(work(&bench, 0, "m3").is_some());
}
