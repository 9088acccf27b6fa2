//! Tests of what becomes of Works while nobody has said how many replicas each cluster gets.

use http::Method;
use muster_shared::names;
use serde_json::{Value, json};

use super::leaving_tests::{bound, moved, started, work_of};
use super::start;
use crate::fleet::template::{TEMPLATE_FINGERPRINT, Template};
use crate::fleet::testing::{Bench, claimed, cluster, deployment, only_condition, pass, policy};

/// Returns a Job.
fn job(parallelism: i64) -> Value {
    json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"namespace": "shop", "name": "web"},
        "spec": {"parallelism": parallelism, "template": {"spec": {"containers": []}}},
    })
}

/// Returns a Job that a policy claims, with 40 completions.
fn with_completions(parallelism: i64) -> Value {
    let mut job = claimed(job(parallelism));
    job["spec"]["completions"] = json!(40);
    job
}

/// Returns the binding of a divided Job that a policy claims, with the share of each cluster.
fn divided(job: &Value, generation: i64, shares: &[(&str, i64)]) -> Value {
    let fingerprint = Template::new(job.clone()).unwrap().fingerprint();
    let mut binding = moved("web-job", "batch/v1", "Job");
    binding["metadata"]["annotations"] = json!({TEMPLATE_FINGERPRINT: fingerprint});
    binding["metadata"]["generation"] = json!(generation);
    binding["spec"]["replicas"] = job["spec"]["parallelism"].clone();
    binding["spec"]["placement"] = json!({"replicaScheduling": {
        "replicaSchedulingType": "Divided", "replicaDivisionPreference": "Weighted",
    }});
    let targets = shares.iter();
    let targets = targets.map(|(name, share)| json!({"name": name, "replicas": share}));
    binding["spec"]["clusters"] = targets.collect();
    claimed(binding)
}

/// Starts the controller with a Job and its binding, which names these clusters.
async fn with_job(clusters: &[&str], job: Value, binding: Value) -> Bench {
    let clusters = clusters.iter().map(|it| ("clusters", cluster(it)));
    let mut bench = Bench::new(clusters.chain([("resourcebindings", binding), ("jobs", job)]));
    bench.api.serve("/apis/batch/v1", "batch/v1", "jobs", "Job");
    bench.run(start, 10).await;
    bench
}

/// Returns the value of a field of the Job that is asked of each cluster.
fn asked(bench: &Bench, field: &str) -> Vec<i64> {
    let works = bench.api.all("works").into_iter();
    let asked = works.map(|it| {
        let spec = &it["spec"]["workload"]["manifests"][0]["spec"];
        spec[field].as_i64().unwrap()
    });
    asked.collect()
}

#[tokio::test(start_paused = true)]
async fn a_workload_that_is_scaled_from_zero_gets_its_replicas_when_its_binding_says_how_many() {
    let fingerprint = |replicas| Template::new(deployment(replicas)).unwrap().fingerprint();
    let binding = |replicas: i64, share: i64, made_of: i64| {
        let mut binding = moved("web-deployment", "apps/v1", "Deployment");
        binding["metadata"]["annotations"] = json!({TEMPLATE_FINGERPRINT: fingerprint(made_of)});
        binding["metadata"]["generation"] = json!(1 + replicas);
        binding["spec"]["replicas"] = json!(replicas);
        binding["spec"]["replicaRequirements"] = Value::Null;
        binding["spec"]["clusters"] = json!([{"name": "m2", "replicas": share}]);
        binding
    };
    // Whether a policy is in charge and whether the binding follows its template, and the replicas
    // that are asked of the cluster: soon, late, and once the binding has followed at last while
    // nothing divides the replicas, since all movement may be paused.
    for (is_claimed, follows, early, late, undivided) in [
        (true, true, None, Some(3), Some(3)),
        (true, false, None, None, None),
        (false, false, Some(7), Some(7), Some(7)),
    ] {
        let claim = |object| if is_claimed { claimed(object) } else { object };
        let (template, binding_of_none) = (claim(deployment(0)), claim(binding(0, 0, 0)));
        let mut bench = bound([cluster("m2")], template, binding_of_none, []);
        bench.follow_for(10).await;
        bench.api.forget();
        bench.api.put("deployments", claim(deployment(7)));
        pass(1).await;
        let asked = || {
            let writes = bench.api.writes().into_iter();
            let works = writes.filter(|(_, path, _)| path.contains("/works"));
            let mut manifests = works.map(|it| it.2["spec"]["workload"]["manifests"][0].clone());
            manifests
                .next_back()
                .map(|it| it["spec"]["replicas"].as_i64().unwrap())
        };
        assert_eq!(asked(), early, "{is_claimed} {follows}");
        if follows {
            bench.api.put("resourcebindings", claim(binding(7, 3, 7)));
        }
        pass(60).await;
        assert_eq!(asked(), late, "{is_claimed} {follows}");
        let reported = bench.api.reported().await;
        let is_reported = reported.iter().any(|it| it.1 == "SyncWorkFailed");
        assert_eq!(is_reported, late.is_none(), "{is_claimed} {follows}");
        bench.api.put("resourcebindings", claim(binding(7, 0, 7)));
        pass(30).await;
        assert_eq!(asked(), undivided, "{is_claimed} {follows}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_workload_that_is_scaled_from_zero_waits_although_a_cluster_of_it_has_long_been_joining()
{
    let made_of = Template::new(deployment(0)).unwrap().fingerprint();
    let mut binding = moved("web-deployment", "apps/v1", "Deployment");
    binding["metadata"]["annotations"] = json!({ TEMPLATE_FINGERPRINT: made_of });
    binding["spec"]["replicas"] = json!(0);
    binding["spec"]["replicaRequirements"] = Value::Null;
    binding["spec"]["clusters"] =
        json!([{"name": "m2", "replicas": 0}, {"name": "m3", "replicas": 0}]);
    let clusters = ["m2", "m3"].map(cluster);
    let mut bench = bound(clusters, claimed(deployment(0)), claimed(binding), []);
    let path = "/karmada-es-m3/works";
    bench.api.refuse(Method::POST, path, 404, "karmada-es-m3");
    bench.follow_for(300).await;
    bench.api.forget();
    bench.api.put("deployments", claimed(deployment(7)));
    pass(1).await;
    let writes = bench.api.writes().into_iter();
    let works = writes.filter(|(_, path, _)| path.contains("/works"));
    let works: Vec<_> = works.collect();
    assert_eq!(works, [], "its binding is about to say how many each gets");
}

#[tokio::test(start_paused = true)]
async fn a_workload_whose_replicas_are_not_divided_yet_runs_on_whatever_its_kind_calls_them() {
    let fingerprint = |replicas| Template::new(job(replicas)).unwrap().fingerprint();
    let binding = |replicas: i64, made_of: i64| {
        let mut binding = moved("web-job", "batch/v1", "Job");
        binding["metadata"]["annotations"] = json!({TEMPLATE_FINGERPRINT: fingerprint(made_of)});
        binding["metadata"]["generation"] = json!(1 + replicas);
        binding["spec"]["replicas"] = json!(replicas);
        binding["spec"]["clusters"] = json!([{"name": "m2", "replicas": 0}]);
        binding
    };
    let bench = with_job(&["m2"], job(0), binding(0, 0)).await;
    bench.api.put("jobs", job(7));
    // The binding follows the template late, so that the cluster is asked for all.
    pass(30).await;
    let asked = || {
        let works = bench.api.all("works");
        works[0]["spec"]["workload"]["manifests"][0]["spec"]["parallelism"].clone()
    };
    assert_eq!(asked(), json!(7));
    let mut running = bench.api.all("works").remove(0);
    running["status"] = json!({
        "conditions": only_condition("Applied", "True"),
        "manifestStatuses": [{
            "identifier": {
                "ordinal": 0, "group": "batch", "version": "v1", "kind": "Job",
                "resource": "", "namespace": "shop", "name": "web",
            },
            "health": "Healthy", "status": {"active": 7, "ready": 7},
        }],
    });
    bench.api.put("works", running);
    // The binding follows at last, and nothing divides the replicas: all movement may be paused.
    bench.api.put("resourcebindings", binding(7, 7));
    pass(30).await;
    assert_eq!(asked(), json!(7), "what runs is not stopped");
}

#[tokio::test(start_paused = true)]
async fn a_divided_workload_that_is_scaled_from_zero_is_asked_for_once_however_late_its_binding_says_so()
 {
    let made_of = Template::new(deployment(0)).unwrap().fingerprint();
    let mut binding = moved("web-deployment", "apps/v1", "Deployment");
    binding["metadata"]["annotations"] = json!({ TEMPLATE_FINGERPRINT: made_of });
    binding["spec"]["replicas"] = json!(0);
    binding["spec"]["replicaRequirements"] = Value::Null;
    binding["spec"]["placement"] = json!({"replicaScheduling": {
        "replicaSchedulingType": "Divided", "replicaDivisionPreference": "Weighted",
    }});
    let names = ["m1", "m2", "m3"];
    let targets = names.map(|it| json!({"name": it, "replicas": 0}));
    binding["spec"]["clusters"] = json!(targets);
    let template = claimed(deployment(0));
    let mut bench = bound(names.map(cluster), template, claimed(binding), []);
    bench.follow_for(10).await;
    // The detector is busy for half a minute, or is stopped.
    bench.api.put("deployments", claimed(deployment(7)));
    pass(30).await;
    let works = bench.api.all("works").into_iter();
    let asked = works.map(|it| {
        let replicas = &it["spec"]["workload"]["manifests"][0]["spec"]["replicas"];
        replicas.as_i64().unwrap()
    });
    let asked: i64 = asked.sum();
    assert!(
        asked <= 7,
        "{asked} replicas are asked for of a workload that has 7"
    );
}

#[tokio::test(start_paused = true)]
async fn what_is_reported_of_replicas_that_are_not_divided_yet_is_true() {
    let mut binding = moved("web-deployment", "apps/v1", "Deployment");
    binding["spec"]["replicas"] = json!(4);
    binding["spec"]["clusters"] = json!([{"name": "m1", "replicas": 0}]);
    let mut work = work_of(&binding, "m1");
    work["metadata"]["name"] = json!(names::work("Deployment", "web", "shop"));
    work["spec"]["workload"]["manifests"][0]["spec"] = json!({"replicas": 4});
    // None of them is ready, and nothing is to be ready elsewhere.
    work["status"]["manifestStatuses"][0]["status"] = json!({"replicas": 4});
    let mut bench = bound([cluster("m1")], deployment(4), binding, [work]);
    bench.follow_for(60).await;
    let bound = bench.api.binding("web-deployment");
    let reported = bound["status"]["conditions"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    let reported: Vec<&str> = reported
        .iter()
        .filter_map(|it| it["message"].as_str())
        .collect();
    let is_false = |it: &&str| it.contains("ready replicas") && it.contains("elsewhere");
    assert_eq!(reported.iter().find(|it| is_false(it)), None);
}

#[tokio::test(start_paused = true)]
async fn a_copy_runs_on_that_was_scaled_to_zero_and_back_while_dispatching_was_suspended() {
    // The share of the cluster, and the replicas that it is asked for: nobody has divided them yet,
    // or another cluster that is to take over has none ready.
    for (share, expected) in [(0, 3), (1, 3), (7, 7)] {
        let mut binding = moved("web-deployment", "apps/v1", "Deployment");
        binding["spec"]["replicas"] = json!(7);
        let other = if share == 1 { 6 } else { 0 };
        binding["spec"]["clusters"] =
            json!([{"name": "m1", "replicas": share}, {"name": "m2", "replicas": other}]);
        let mut work = work_of(&binding, "m1");
        work["metadata"]["name"] = json!(names::work("Deployment", "web", "shop"));
        work["spec"]["suspendDispatching"] = json!(true);
        work["spec"]["workload"]["manifests"][0]["spec"] = json!({"replicas": 0});
        work["status"]["manifestStatuses"][0]["status"] =
            json!({"replicas": 3, "readyReplicas": 3});
        let clusters = ["m1", "m2"].map(cluster);
        let mut bench = bound(clusters, deployment(7), binding, [work]);
        bench.follow_for(10).await;
        let name = names::work("Deployment", "web", "shop");
        let work = bench.api.object("works", "karmada-es-m1", &name).unwrap();
        assert_eq!(work["spec"]["suspendDispatching"], json!(false), "{share}");
        let asked = &work["spec"]["workload"]["manifests"][0]["spec"]["replicas"];
        assert_eq!(*asked, json!(expected), "a share of {share}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_the_policy_protects_is_obeyed_where_replicas_are_kept_too() {
    let mut policy = policy();
    policy["spec"]["preserveResourcesOnDeletion"] = json!(true);
    policy["spec"]["suspension"] = json!({"dispatching": true});
    // The share of the cluster is smaller than what is ready there, and nothing is ready elsewhere.
    for (share, what) in [(3, "no replica is kept"), (1, "replicas are kept")] {
        // The binding does not say yet what the policy says.
        let mut binding = claimed(moved("web-deployment", "apps/v1", "Deployment"));
        binding["spec"]["replicas"] = json!(3);
        binding["spec"]["clusters"] =
            json!([{"name": "m1", "replicas": share}, {"name": "m2", "replicas": 3 - share}]);
        let mut work = work_of(&binding, "m1");
        work["metadata"]["name"] = json!(names::work("Deployment", "web", "shop"));
        work["spec"]["workload"]["manifests"][0]["spec"] = json!({"replicas": 3});
        work["status"]["manifestStatuses"][0]["status"] =
            json!({"replicas": 3, "readyReplicas": 3});
        let mut bench = started([
            ("clusters", cluster("m1")),
            ("clusters", cluster("m2")),
            ("propagationpolicies", policy.clone()),
            ("deployments", claimed(deployment(3))),
            ("resourcebindings", binding),
            ("works", work),
        ]);
        bench.follow_for(10).await;
        let name = names::work("Deployment", "web", "shop");
        let work = bench.api.object("works", "karmada-es-m1", &name).unwrap();
        let says =
            ["suspendDispatching", "preserveResourcesOnDeletion"].map(|it| &work["spec"][it]);
        assert_eq!(says, [&json!(true), &json!(true)], "{what}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_divided_job_that_is_scaled_from_zero_is_asked_for_once_until_its_replicas_are_divided() {
    let job = |parallelism| claimed(job(parallelism));
    let names = ["m1", "m2", "m3"];
    let binding = |replicas| divided(&job(replicas), 1 + replicas, &names.map(|it| (it, 0)));
    let bench = with_job(&names, job(0), binding(0)).await;
    let asked = || asked(&bench, "parallelism");
    assert_eq!(asked(), [0, 0, 0]);
    bench.api.put("jobs", job(7));
    pass(1).await;
    assert_eq!(asked(), [0, 0, 0], "the binding is about to say how many");
    // It follows, and its replicas are divided a moment later: the scheduler is busy.
    bench.api.put("resourcebindings", binding(7));
    pass(5).await;
    let all: i64 = asked().iter().sum();
    assert!(all <= 7, "{all} pods are started of a Job that has 7");
}

#[tokio::test(start_paused = true)]
async fn the_completions_of_a_job_stay_where_it_is_when_its_replicas_are_divided_anew() {
    // An API server does not let the completions of a Job be changed that is there.
    let job = with_completions;
    let binding =
        |all, shares: [i64; 2]| divided(&job(all), all, &[("m1", shares[0]), ("m2", shares[1])]);
    let bench = with_job(&["m1", "m2"], job(3), binding(3, [2, 1])).await;
    assert_eq!(asked(&bench, "parallelism"), [2, 1]);
    let completions = asked(&bench, "completions");
    assert_eq!(completions.iter().sum::<i64>(), 40);
    bench.api.put("jobs", job(4));
    bench.api.put("resourcebindings", binding(4, [2, 2]));
    pass(30).await;
    assert_eq!(asked(&bench, "parallelism"), [2, 2]);
    assert_eq!(asked(&bench, "completions"), completions);
}

#[tokio::test(start_paused = true)]
async fn the_completions_of_a_job_stay_where_it_is_while_it_is_scaled_to_zero_and_back() {
    // What is asked of each cluster; `from` is what the Job is made with.
    for from in [3, 0] {
        let job = with_completions;
        let shares = |all: i64| if all == 0 { [0, 0] } else { [2, 1] };
        let binding = |all, generation| {
            let [m1, m2] = shares(all);
            let mut binding = divided(&job(all), generation, &[("m1", m1), ("m2", m2)]);
            binding["spec"]["replicaRequirements"] = json!({});
            binding
        };
        let bench = with_job(&["m1", "m2"], job(from), binding(from, 1)).await;
        let asked = |field| asked(&bench, field);
        let completions = asked("completions");
        assert_eq!(completions.iter().sum::<i64>(), 40, "made with {from}");
        for (generation, all) in [(2, 0), (3, 3)] {
            bench.api.put("jobs", job(all));
            bench.api.put("resourcebindings", binding(all, generation));
            pass(30).await;
            assert_eq!(asked("parallelism"), shares(all), "made with {from}");
            assert_eq!(
                asked("completions"),
                completions,
                "made with {from}, has {all}"
            );
        }
    }
}
