//! What becomes of Works and objects that are not as they should be: unreadable, contested, of
//! versions that are gone.

use http::StatusCode;
use muster_e2e::apiserver::faults::{Effect, Scope};
use muster_e2e::harness::objects::{delete, merge, merge_status};
use muster_shared::api::work::Work;
use muster_shared::k8s::ResourceExt;
use serde_json::{Value, json};

use crate::agent::bench::{
    AGENT, Bench, WORKS, applied, config_map, deployment, gone, until, value,
};
use crate::agent::meter::Meter;

fn nested(levels: usize) -> Value {
    (0..levels).fold(json!("x"), |inner, _| json!({ "a": inner }))
}

#[tokio::test]
async fn a_work_and_an_object_that_cannot_be_read_are_told_of_and_harm_no_other() {
    let bench = Bench::start().await;
    let meter = Meter::install();
    let _agent = bench.agent();
    bench.joined().await;
    for name in ["web", "odd"] {
        bench.apply(name, json!([deployment(name)])).await;
    }
    // The status of one object grows deeper in the member than can be read.
    let seeds = bench.member.seeds("apps", "v1", "deployments").unwrap();
    let mut object = seeds.get("default", "odd").unwrap();
    object["status"] = json!({ "odd": nested(130) });
    seeds.put(object).unwrap();
    bench.told("odd", "ReflectStatusFailed").await;

    // And a Work is none: whoever may write Works directly is not asked what they are.
    let works = bench
        .fleet
        .seeds("work.karmada.io", "v1alpha1", "works")
        .unwrap();
    let mut work = works.get(WORKS, "web").unwrap();
    work["metadata"]["name"] = json!("broken");
    work["metadata"]["uid"] = json!("00000000-0000-0000-0000-000000000001");
    work["spec"]["workload"]["manifests"] = json!({"a": 1});
    work["status"] = json!({});
    works.put(work).unwrap();
    let refused = bench.told("broken", "SyncFailed").await.message.unwrap();
    assert!(refused.contains("cannot be read"), "{refused}");

    let lists = || {
        meter.sum(
            "muster_api_requests_total",
            &["api=\"member\"", "method=\"GET\""],
        )
    };
    let before = lists();
    let status = json!({"observedGeneration": 1, "replicas": 2, "updatedReplicas": 2, "readyReplicas": 2,
        "availableReplicas": 2});
    patch_status(&bench, "web", &status).await;
    until(&bench.works(), "web", "it is reported healthy", |work| {
        let mut statuses = work
            .status
            .iter()
            .flat_map(|status| &status.manifest_statuses);
        statuses.any(|status| {
            let status = status.status.as_ref();
            status.is_some_and(|status| status.0["availableReplicas"] == 2)
        })
    })
    .await;
    assert!(
        lists() < before + 50.0,
        "the watches did not start anew\n{}",
        meter.text()
    );
}

async fn patch_status(bench: &Bench, name: &str, status: &Value) {
    let deployments = bench.objects("apps/v1", "Deployment", "deployments");
    let patch = json!({ "status": status });
    merge_status(&deployments, name, patch).await;
}

#[tokio::test]
async fn who_keeps_changing_an_object_is_named_and_answered_ever_more_slowly() {
    let (bench, _agent) = Bench::with_agent().await;
    bench.apply("a", json!([config_map("a", "1")])).await;
    let maps = bench.config_maps();
    let theirs = kube::api::PatchParams {
        field_manager: Some("injector".into()),
        ..kube::api::PatchParams::default()
    };
    let drift = kube::api::Patch::Merge(json!({"data": {"k": "theirs"}}));
    let contest = async {
        loop {
            maps.patch("a", &theirs, &drift).await.unwrap();
            until(&maps, "a", "its value is back", |object| {
                value(object) == "1"
            })
            .await;
        }
    };
    let contended = |work: &Work| {
        let conditions = work.status.iter().flat_map(|status| &status.conditions);
        let mut contended = conditions.filter(|condition| condition.type_ == "Contended");
        contended.next().cloned()
    };
    let works = bench.works();
    let told = until(&works, "a", "it is contended", |work| {
        contended(work).is_some()
    });
    let work = tokio::select! {
        work = told => work,
        () = contest => unreachable!("it has no end"),
    };
    let contended = contended(&work).unwrap();
    assert_eq!(contended.status, "True");
    assert!(
        contended.message.contains("\"injector\""),
        "{}",
        contended.message
    );
    bench.told("a", "Contended").await;
}

/// Checks an object as after an upgrade of the member: what the Work names in an old version is
/// there in another one.
#[tokio::test]
async fn an_object_whose_version_of_the_api_is_gone_is_removed_in_another_one() {
    let (bench, _agent) = Bench::with_agent().await;
    let manifest = |version: &str| {
        json!({"apiVersion": format!("policy/{version}"), "kind": "PodDisruptionBudget",
            "metadata": {"name": "a", "namespace": "default"},
            "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "a"}}}})
    };
    bench.apply("a", json!([manifest("v1")])).await;
    let old = json!({"spec": {"workload": {"manifests": [manifest("v1beta1")]}}});
    merge(&bench.works(), "a", &old).await;
    bench.applied("a", "False").await;
    delete(&bench.works(), "a").await;
    gone(&bench.works(), "a").await;
    let budgets = bench.objects("policy/v1", "PodDisruptionBudget", "poddisruptionbudgets");
    gone(&budgets, "a").await;
}

#[tokio::test]
async fn an_object_that_cannot_be_removed_keeps_no_other_and_is_told_of() {
    let (bench, _agent) = Bench::with_agent().await;
    bench
        .apply(
            "a",
            json!([config_map("first", "1"), config_map("second", "1")]),
        )
        .await;
    let scope = Scope::user(AGENT).at("/configmaps/first");
    let refused = Effect::Answer(StatusCode::INTERNAL_SERVER_ERROR);
    bench.member.faults().inject_for(scope, refused);
    delete(&bench.works(), "a").await;
    gone(&bench.config_maps(), "second").await;
    let told = bench.told("a", "SyncFailed").await.message.unwrap();
    assert!(told.contains("ConfigMap default/first"), "{told}");
    bench.member.faults().heal();
    gone(&bench.works(), "a").await;
    gone(&bench.config_maps(), "first").await;
}

#[tokio::test]
async fn an_object_whose_name_no_url_can_have_keeps_no_other_from_being_removed() {
    let (bench, _agent) = Bench::with_agent().await;
    let mut group = config_map("a", "1");
    group["apiVersion"] = json!("my group/v1");
    let mut namespace = config_map("a", "1");
    namespace["metadata"]["namespace"] = json!("b?c");
    let odd = [config_map("my map", "1"), group, namespace];
    for (number, odd) in odd.into_iter().enumerate() {
        let work = format!("work-{number}");
        let good = config_map(&work, "1");
        bench.create_of(&work, json!([odd, good])).await;
        bench.applied(&work, "False").await;
        until(&bench.config_maps(), &work, "it is applied", |_| true).await;
        delete(&bench.works(), &work).await;
        gone(&bench.config_maps(), &work).await;
        gone(&bench.works(), &work).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_does_not_answer_keeps_no_other_from_being_removed() {
    let (bench, _agent) = Bench::with_agent().await;
    bench
        .apply("a", json!([deployment("web"), config_map("a", "1")]))
        .await;
    let scope = Scope::user(AGENT).at("/deployments/");
    bench.member.faults().inject_for(scope, Effect::Hang);
    delete(&bench.works(), "a").await;
    gone(&bench.config_maps(), "a").await;
    bench.member.faults().heal();
    gone(&bench.works(), "a").await;
}

#[tokio::test]
async fn an_object_of_two_works_stays_while_one_of_them_wants_it() {
    let (bench, _agent) = Bench::with_agent().await;
    bench.apply("first", json!([config_map("a", "1")])).await;
    bench.apply("second", json!([config_map("a", "2")])).await;
    until(&bench.config_maps(), "a", "the second has it", |it| {
        value(it) == "2"
    })
    .await;
    delete(&bench.works(), "second").await;
    gone(&bench.works(), "second").await;
    until(&bench.config_maps(), "a", "the first has it", |it| {
        value(it) == "1"
    })
    .await;
}

#[tokio::test]
async fn a_report_that_is_lost_or_put_back_is_written_again() {
    let (bench, _agent) = Bench::with_agent().await;
    bench.apply("a", json!([config_map("a", "1")])).await;
    let reported = |work: &Work| {
        let status = work.status.as_ref();
        status.is_some_and(|status| !status.manifest_statuses.is_empty())
            && applied(work).is_some_and(|(status, _)| status == "True")
    };
    until(&bench.works(), "a", "it is reported", reported).await;
    let emptied = json!({"status": null});
    merge_status(&bench.works(), "a", emptied).await;
    until(&bench.works(), "a", "it is reported again", reported).await;
}

#[tokio::test]
async fn an_object_that_gets_another_name_in_its_work_and_stays_the_same_is_not_removed() {
    let (bench, _agent) = Bench::with_agent().await;
    let mut nameless = config_map("a", "1");
    nameless["metadata"] = json!({"name": "a"});
    bench.apply("a", json!([nameless])).await;
    until(&bench.works(), "a", "it is reported", |work| {
        let status = work.status.as_ref();
        status.is_some_and(|status| !status.manifest_statuses.is_empty())
    })
    .await;
    let maps = bench.config_maps();
    let before = maps.get("a").await.unwrap();
    let named = json!({"spec": {"workload": {"manifests": [config_map("a", "2")]}}});
    merge(&bench.works(), "a", &named).await;
    until(
        &bench.works(),
        "a",
        "the other name has no report any more",
        |work| {
            let status = work.status.as_ref().unwrap();
            status.manifest_statuses.len() == 1
                && status.manifest_statuses[0].identifier.namespace.as_deref() == Some("default")
        },
    )
    .await;
    let after = maps.get("a").await.unwrap();
    assert_eq!(after.uid(), before.uid());
    assert_eq!(value(&after), "2");
}

#[tokio::test]
async fn two_manifests_of_one_object_are_refused_and_the_first_counts() {
    let (bench, _agent) = Bench::with_agent().await;
    bench
        .create_of("a", json!([config_map("a", "1"), config_map("a", "2")]))
        .await;
    let work = bench.applied("a", "False").await;
    let message = applied(&work).unwrap().1;
    assert!(
        message.contains("manifest 1 of the work names ConfigMap default/a"),
        "{message}"
    );
    assert_eq!(value(&bench.config_maps().get("a").await.unwrap()), "1");
}

/// Checks that objects whose Work is gone are counted, as after a restore of the fleet, or after
/// somebody took a finalizer off by hand.
#[tokio::test]
async fn objects_whose_work_is_gone_are_counted() {
    let (bench, agent) = Bench::with_agent().await;
    for name in ["a", "b", "stays"] {
        bench.create_work(name, |_| {}).await;
        bench.applied(name, "True").await;
    }
    agent.stop().await.unwrap();
    for name in ["a", "b"] {
        merge(
            &bench.works(),
            name,
            &json!({"metadata": {"finalizers": null}}),
        )
        .await;
        delete(&bench.works(), name).await;
        gone(&bench.works(), name).await;
    }
    let meter = Meter::install();
    let _agent = bench.agent();
    // A change is heard of after the list, and the list is counted.
    let maps = bench.config_maps();
    merge(&maps, "stays", &json!({"data": {"k": "drifted"}})).await;
    until(&maps, "stays", "its value is back", |object| {
        value(object) == "1"
    })
    .await;
    let orphans = meter.sum("muster_orphaned_objects", &["kind=\"ConfigMap\""]);
    assert!((orphans - 2.0).abs() < f64::EPSILON, "{orphans}");
    assert_eq!(
        value(&bench.config_maps().get("a").await.unwrap()),
        "1",
        "nobody removes it"
    );
}
