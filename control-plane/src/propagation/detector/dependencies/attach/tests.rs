use muster_shared::api::any_binding::AnyBinding;

use super::*;
use crate::fleet::binding::BindingKey;
use crate::fleet::testing::{claimed, key, template_key};

fn fixture() -> (TemplateKey, Template) {
    let key = template_key("v1", "ConfigMap", "conf");
    let object = json!({ "metadata": { "name": "conf", "namespace": "shop", "uid": "u", "resourceVersion": "5" } });
    (key, Template::new(object).unwrap())
}

fn spec(value: Value) -> ResourceBindingSpec {
    serde_json::from_value(value).unwrap()
}

/// Returns the spec of a referrer in `m1`.
fn in_m1() -> ResourceBindingSpec {
    spec(json!({ "clusters": [{ "name": "m1" }] }))
}

fn referrer<'a>(key: &'a BindingKey, spec: &'a ResourceBindingSpec) -> Referrer<'a> {
    let id = "id";
    Referrer { key, id, spec }
}

fn write(
    held: Option<&AnyBinding>,
    referrers: &[Referrer<'_>],
    undecided: &[&str],
) -> Option<Write> {
    let (key, template) = fixture();
    let attached = Attached::new(&key, &template, referrers).unwrap();
    let write = attached.write(held, |key| undecided.contains(&key.name.as_str()), false);
    write.unwrap()
}

fn created(referrers: &[Referrer<'_>]) -> AnyBinding {
    match write(None, referrers, &[]) {
        Some(Write::Create(object)) => serde_json::from_value(object).unwrap(),
        other => panic!("expected a creation, got {other:?}"),
    }
}

#[test]
fn a_template_goes_where_its_referrers_are_and_still_are() {
    let (a, placed) = (
        key("a"),
        spec(json!({
            "clusters": [{ "name": "m1", "replicas": 2 }],
            "gracefulEvictionTasks": [
                { "fromCluster": "m2", "purgeMode": "Gracefully" }, { "fromCluster": "m3", "purgeMode": "Directly" },
            ],
        })),
    );
    let held = created(&[referrer(&a, &placed)]);
    let clusters: Vec<_> = held.spec.required_by[0]
        .clusters
        .iter()
        .map(|cluster| cluster.name.as_str())
        .collect();
    assert_eq!(clusters, ["m1", "m2"]);
    assert_eq!(held.metadata.labels.unwrap()[&mark(&a)], "id");
    assert_eq!(held.spec.placement, None);
}

#[test]
fn a_template_stays_where_its_referrer_stays_until_a_cluster_is_chosen_for_it() {
    let clusters = |placed: Value| {
        let (key, placed) = (key("a"), spec(placed));
        let referrer = referrer(&key, &placed);
        let snapshot = referrer.snapshot();
        let names = snapshot.clusters.into_iter().map(|cluster| cluster.name);
        names.collect::<Vec<_>>()
    };
    let tasks = json!([{ "fromCluster": "m1", "purgeMode": "Directly" }]);
    let nowhere = json!({ "gracefulEvictionTasks": tasks });
    assert_eq!(clusters(nowhere), ["m1"]);
    let chosen = json!({ "clusters": [{ "name": "m2" }], "gracefulEvictionTasks": tasks });
    assert_eq!(clusters(chosen), ["m2"]);
}

#[test]
fn the_most_demanding_referrer_decides() {
    let (a, b) = (key("a"), key("b"));
    let modest =
        spec(json!({ "conflictResolution": "Abort", "preserveResourcesOnDeletion": false }));
    let greedy =
        spec(json!({ "conflictResolution": "Overwrite", "preserveResourcesOnDeletion": true }));
    let held = created(&[referrer(&a, &modest), referrer(&b, &greedy)]);
    assert_eq!(
        held.spec.conflict_resolution,
        Some(ConflictResolution::Overwrite)
    );
    assert_eq!(held.spec.preserve_resources_on_deletion, Some(true));
    let disagreement = |referrers: &[Referrer<'_>]| {
        let (key, template) = fixture();
        let attached = Attached::new(&key, &template, referrers).unwrap();
        attached.disagreement()
    };
    let said = disagreement(&[referrer(&a, &modest), referrer(&b, &greedy)]).unwrap();
    for field in [
        "conflictResolution is Overwrite",
        "preserveResourcesOnDeletion is true",
    ] {
        let part = format!("{field} for {b}, and not for {a}");
        assert!(said.contains(&part), "{said}");
    }
    let silent = spec(json!({}));
    for agreed in [&modest, &silent] {
        let said = disagreement(&[referrer(&a, &modest), referrer(&b, agreed)]);
        assert_eq!(said, None);
    }
}

#[test]
fn what_is_needed_is_suspended_where_all_its_referrers_are() {
    let (a, b) = (key("a"), key("b"));
    let frozen = spec(json!({
        "clusters": [{ "name": "m1" }], "suspension": { "dispatching": true },
    }));
    let partly = spec(json!({
        "clusters": [{ "name": "m2" }, { "name": "m3" }],
        "suspension": { "dispatchingOnClusters": { "clusterNames": ["m3", "m9"] } },
    }));
    let free = spec(json!({ "clusters": [{ "name": "m1" }, { "name": "m2" }] }));
    let suspended = |spec: &ResourceBindingSpec| {
        let all = ["m1", "m2", "m3", "m9"].into_iter();
        let all = all.filter(|it| spec.dispatching_suspended_in(it));
        all.collect::<Vec<_>>()
    };
    let [frozen, partly, free] =
        [(&a, &frozen), (&b, &partly), (&a, &free)].map(|(key, spec)| referrer(key, spec));
    assert_eq!(suspended(&created(&[frozen]).spec), ["m1"]);
    let held = created(&[frozen, partly]);
    assert_eq!(suspended(&held.spec), ["m1", "m3"]);
    // Somebody else's copy in m1 must not wait for what it needs.
    let beside = Referrer { key: &b, ..free };
    assert_eq!(suspended(&created(&[frozen, beside]).spec), [""; 0]);
    assert_eq!(write(Some(&held), &[frozen, partly], &[]), None);
    // The freeze ends.
    let Some(Write::Patch(patch)) = write(Some(&held), &[free], &[]) else {
        panic!("expected a patch")
    };
    let mut left = json!(held);
    merge::apply(&mut left, &patch);
    let left: AnyBinding = serde_json::from_value(left).unwrap();
    assert_eq!(suspended(&left.spec), [""; 0]);
}

#[test]
fn what_is_as_it_should_be_is_not_written() {
    let (a, placed) = (key("a"), in_m1());
    let referrers = [referrer(&a, &placed)];
    assert_eq!(write(Some(&created(&referrers)), &referrers, &[]), None);
    assert_eq!(write(None, &[], &[]), None);
}

#[test]
fn a_referrer_that_left_is_taken_off_and_one_not_reconciled_yet_stays() {
    let (a, b, placed) = (key("a"), key("b"), in_m1());
    let (first, second) = (referrer(&a, &placed), referrer(&b, &placed));
    let held = created(&[first, second]);
    let Some(Write::Patch(patch)) = write(Some(&held), &[first], &[]) else {
        panic!("expected a patch")
    };
    assert_eq!(patch["spec"]["requiredBy"].as_array().unwrap().len(), 1);
    assert_eq!(patch["metadata"]["labels"], json!({ mark(&b): null }));
    assert_eq!(write(Some(&held), &[first], &["b"]), None);
}

#[test]
fn a_template_with_a_policy_of_its_own_keeps_what_that_says() {
    let (a, greedy) = (
        key("a"),
        spec(json!({ "clusters": [{ "name": "m1" }], "conflictResolution": "Overwrite" })),
    );
    let referrers = [referrer(&a, &greedy)];
    let mut held = created(&referrers);
    held.spec = spec(
        json!({ "resource": held.spec.resource, "placement": {}, "conflictResolution": "Abort" }),
    );
    let Some(Write::Patch(patch)) = write(Some(&held), &referrers, &[]) else {
        panic!("expected a patch")
    };
    assert_eq!(patch["spec"].get("conflictResolution"), None);
    assert_eq!(patch["spec"]["requiredBy"][0]["name"], "a");
}

#[test]
fn a_binding_of_a_former_template_is_waited_for_and_not_made_the_new_ones() {
    let (a, placed) = (key("a"), in_m1());
    let referrers = [referrer(&a, &placed)];
    let mut held = created(&referrers);
    held.metadata.owner_references.as_mut().unwrap()[0].uid = "old".into();
    let (key, template) = fixture();
    let attached = Attached::new(&key, &template, &referrers).unwrap();
    let reported = attached.write(Some(&held), |_| false, false).unwrap_err();
    let reported = reported.to_string();
    assert!(reported.contains("belongs to a former"), "{reported}");
    let attached = Attached::new(&key, &template, &[]).unwrap();
    assert_eq!(attached.write(Some(&held), |_| false, false).unwrap(), None);
}

#[test]
fn a_binding_that_outlived_its_template_goes_with_the_next_one() {
    let (a, placed) = (key("a"), in_m1());
    let referrers = [referrer(&a, &placed)];
    let mut held = created(&referrers);
    held.metadata.owner_references = None;
    held.spec.resource.uid = Some("old".into());
    let (key, _) = fixture();
    let next =
        Template::new(json!({ "metadata": { "name": "conf", "namespace": "shop", "uid": "new" } }));
    let next = next.unwrap();
    let attached = Attached::new(&key, &next, &referrers).unwrap();
    let Ok(Some(Write::Patch(patch))) = attached.write(Some(&held), |_| false, false) else {
        panic!("expected a patch")
    };
    assert_eq!(patch["spec"]["resource"]["uid"], "new");
    assert_eq!(patch["metadata"]["ownerReferences"][0]["uid"], "new");
    assert_eq!(patch["metadata"]["ownerReferences"][0]["controller"], true);
}

#[test]
fn a_change_of_a_template_that_a_policy_claims_is_left_to_the_detector_to_record() {
    let (a, placed) = (key("a"), in_m1());
    let referrers = [referrer(&a, &placed)];
    let held = json!(created(&referrers));
    let (key, _) = fixture();
    let changed = json!({
        "metadata": { "name": "conf", "namespace": "shop", "uid": "u", "resourceVersion": "6" }, "data": { "a": "2" },
    });
    for (what, template, held, is_written) in [
        ("no policy", changed.clone(), held.clone(), true),
        (
            "a lazy policy waits",
            claimed(changed.clone()),
            held.clone(),
            false,
        ),
        ("a policy is in force", changed, claimed(held), false),
    ] {
        let template = Template::new(template).unwrap();
        let held: AnyBinding = serde_json::from_value(held).unwrap();
        let attached = Attached::new(&key, &template, &referrers).unwrap();
        let write = attached.write(Some(&held), |_| false, true).unwrap();
        assert_eq!(write.is_some(), is_written, "{what}");
        if let Some(Write::Patch(patch)) = write {
            assert_eq!(patch["spec"]["resource"]["resourceVersion"], "6");
        }
    }
}

#[test]
fn a_binding_without_referrers_is_written_once() {
    let (a, placed) = (
        key("a"),
        spec(json!({ "clusters": [{ "name": "m1" }], "conflictResolution": "Overwrite" })),
    );
    let held = created(&[referrer(&a, &placed)]);
    let Some(Write::Patch(patch)) = write(Some(&held), &[], &[]) else {
        panic!("expected a patch")
    };
    let mut left = json!(held);
    merge::apply(&mut left, &patch);
    // The definition of the kind gives what is absent this value.
    if left["spec"]["conflictResolution"].is_null() {
        left["spec"]["conflictResolution"] = json!("Abort");
    }
    let left: AnyBinding = serde_json::from_value(left).unwrap();
    assert_eq!(write(Some(&left), &[], &[]), None);
}

#[test]
fn a_binding_with_thousands_of_referrers_stays_small_and_goes_to_all_their_clusters() {
    let keys: Vec<_> = (0..5000)
        .map(|number| key(&format!("b{number:04}")))
        .collect();
    let specs: Vec<_> = (0..5000)
        .map(|number| {
            let mut clusters = vec![json!({ "name": "m1" })];
            if number % 1000 == 999 {
                clusters.push(json!({ "name": format!("m{number}") }));
            }
            spec(json!({ "clusters": clusters }))
        })
        .collect();
    let referrers: Vec<_> = keys
        .iter()
        .zip(&specs)
        .map(|(key, spec)| Referrer {
            key,
            id: "0123456789abcdef0123456789abcdef",
            spec,
        })
        .collect();
    let held = created(&referrers);
    let targets = held.spec.required_by.iter().flat_map(|it| &it.clusters);
    let reached: BTreeSet<_> = targets.map(|cluster| cluster.name.as_str()).collect();
    assert_eq!(
        Vec::from_iter(reached),
        ["m1", "m1999", "m2999", "m3999", "m4999", "m999"]
    );
    let size = json!(held).to_string().len();
    assert!(size < 500_000, "{size} bytes");
    assert_eq!(write(Some(&held), &referrers, &[]), None, "it is stable");
    let (key, template) = fixture();
    let attached = Attached::new(&key, &template, &referrers).unwrap();
    assert_eq!(attached.left_out(), 5000 - held.spec.required_by.len());
}
