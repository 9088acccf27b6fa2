use muster_shared::names::condition::APPLIED;
use serde_json::{Value, json};

use super::*;

fn whole() -> Value {
    json!({
        "apiVersion": "work.karmada.io/v1alpha1", "kind": "Work",
        "metadata": {"name": "w", "namespace": "karmada-es-m1", "uid": "1", "resourceVersion": "7", "generation": 2,
            "labels": {"l": "1"}, "annotations": {"a": "1"}, "finalizers": ["f"],
            "managedFields": [{"manager": "kubectl", "operation": "Apply"}]},
        "spec": {"workload": {"manifests": [
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"pi": 3.10, "none": null}},
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "b"}},
            {"kind": "Unreadable"}]}},
        "status": {"conditions": [{"type": "Applied", "status": "True", "reason": "r", "message": "m",
            "lastTransitionTime": "2026-01-01T00:00:00Z"}]},
    })
}

fn cached(work: &Value) -> CachedWork {
    serde_json::from_str(&work.to_string()).unwrap()
}

#[test]
fn what_is_kept_is_the_work_as_it_came_but_for_the_record_of_who_set_what() {
    let mut expected: Work = serde_json::from_value(whole()).unwrap();
    expected.metadata.managed_fields = None;
    assert_eq!(cached(&whole()).open().unwrap().unwrap(), expected);
    let bare = json!({"metadata": {"name": "w"}, "status": null});
    let expected: Work = serde_json::from_value(bare.clone()).unwrap();
    assert_eq!(cached(&bare).open().unwrap().unwrap(), expected);
}

#[test]
fn a_work_that_does_not_decode_is_kept_with_the_reason_and_is_no_object_without_metadata() {
    type Edit = fn(&mut Value);
    let edits: [(&str, Edit); 2] = [
        ("a spec", |work| work["spec"]["workload"] = json!(1)),
        ("no spec", |work| work["spec"] = Value::Null),
    ];
    for (what, edit) in edits {
        let mut work = whole();
        edit(&mut work);
        assert!(
            serde_json::from_value::<Work>(work.clone()).is_err(),
            "{what}"
        );
        let kept = cached(&work);
        let unreadable = kept.open().unwrap().unwrap_err();
        assert_eq!(unreadable.conditions()[0].type_, APPLIED, "{what}");
        assert!(!kept.is_to_be_kept(), "{what}");
        assert!(
            CachedWork::concerns_us(Some(&cached(&whole())), &kept),
            "{what}"
        );
        assert!(
            CachedWork::concerns_us(Some(&kept), &cached(&whole())),
            "{what}"
        );
        let whole = cached(&whole());
        assert!(CachedWork::becomes_readable(Some(&kept), &whole), "{what}");
        assert!(!CachedWork::becomes_readable(Some(&whole), &kept), "{what}");
        assert!(!CachedWork::becomes_readable(None, &whole), "{what}");
    }
    let mut work = whole();
    work["metadata"]["finalizers"] = json!("f");
    assert!(serde_json::from_str::<CachedWork>(&work.to_string()).is_err());
}

/// Returns the text of a value with this many levels.
fn nested(levels: usize) -> String {
    format!("{}1{}", r#"{"a":"#.repeat(levels), "}".repeat(levels))
}

/// Returns the text of a Work whose manifest, and whose report of its object's status, have these
/// many levels.
fn deep(manifest: usize, status: usize) -> String {
    let mut work = whole();
    work["spec"]["workload"]["manifests"] = json!([{"apiVersion": "example.io/v1", "kind": "Thing",
        "metadata": {"name": "a"}, "spec": "MANIFEST"}]);
    work["status"]["manifestStatuses"] = json!([{"identifier": {"ordinal": 0, "kind": "Thing", "name": "a",
        "version": "v1", "resource": ""}, "health": "Healthy", "status": "STATUS"}]);
    let work = work.to_string();
    let work = work.replace(r#""MANIFEST""#, &nested(manifest));
    work.replace(r#""STATUS""#, &nested(status))
}

#[test]
fn at_every_depth_a_work_either_opens_or_says_why_not() {
    let mut opened = Vec::new();
    for levels in 100..=130 {
        let work: CachedWork = serde_json::from_str(&deep(levels, 1)).unwrap();
        match work.open().unwrap() {
            Ok(_) => opened.push(levels),
            Err(unreadable) => {
                let said = unreadable.to_string();
                assert!(said.contains("recursion limit"), "{levels}: {said}");
                assert!(!work.is_to_be_kept(), "{levels}");
            }
        }
    }
    let shallow: Vec<usize> = (100..=opened.len() + 99).collect();
    assert!(!opened.is_empty() && opened.len() < 31, "{opened:?}");
    assert_eq!(opened, shallow);
}

#[test]
fn at_every_depth_of_a_status_what_the_work_wants_can_be_read() {
    for levels in 100..=130 {
        let work: CachedWork = serde_json::from_str(&deep(1, levels)).unwrap();
        let opened = work.open().unwrap().unwrap();
        assert_eq!(opened.spec.workload.manifests.len(), 1, "{levels}");
        let status = opened.status.unwrap();
        assert_eq!(status.manifest_statuses[0].identifier.name, "a", "{levels}");
        assert_eq!(status.conditions.len(), 1, "{levels}");
        // What was not read as it is there is reported anew.
        let fingerprint = CachedWork::fingerprint(&status.manifest_statuses);
        let complete = status.manifest_statuses[0].status.is_some();
        assert_eq!(work.reports(fingerprint), complete, "{levels}");
    }
}

#[test]
fn the_kinds_of_its_objects_are_named_once_and_held_once_by_all_works() {
    let pool = Interner::default();
    let (mut one, mut other) = (cached(&whole()), cached(&whole()));
    let namespaces = Interner::default();
    one.share(&pool, &namespaces);
    other.share(&pool, &namespaces);
    let kinds: Vec<_> = one.kinds().collect();
    assert_eq!(kinds, [&GroupVersionKind::gvk("", "v1", "ConfigMap")]);
    assert!(Arc::ptr_eq(&one.kinds[0], &other.kinds[0]));
}

#[test]
fn a_status_asks_for_no_work_and_what_is_wanted_does() {
    type Edit = fn(&mut Value);
    let edits: [(&str, bool, Edit); 9] = [
        ("our own report", false, |work| {
            work["status"]["manifestStatuses"] = json!([]);
        }),
        ("a version", false, |work| {
            work["metadata"]["resourceVersion"] = json!("8");
        }),
        ("a label", false, |work| {
            work["metadata"]["labels"] = json!({});
        }),
        ("a manifest", true, |work| {
            work["spec"]["workload"]["manifests"][0]["data"]["pi"] = json!(3);
        }),
        ("suspension", true, |work| {
            work["spec"]["suspendDispatching"] = json!(true);
        }),
        ("an annotation", true, |work| {
            work["metadata"]["annotations"]["a"] = json!("2");
        }),
        ("a finalizer", true, |work| {
            work["metadata"]["finalizers"] = json!([]);
        }),
        ("the time of its deletion", true, |work| {
            work["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        }),
        ("another object of its name", true, |work| {
            work["metadata"]["uid"] = json!("2");
        }),
    ];
    let old = cached(&whole());
    for (what, concerns, edit) in edits {
        let mut new = whole();
        edit(&mut new);
        let new = cached(&new);
        assert_eq!(
            CachedWork::concerns_us(Some(&old), &new),
            concerns,
            "{what}"
        );
    }
    assert!(CachedWork::concerns_us(None, &old));
}

#[test]
fn what_is_left_to_do_follows_from_what_the_work_says() {
    type Edit = fn(&mut Value);
    // Pending, and whether drift is repaired.
    let edits: [(&str, bool, bool, Edit); 6] = [
        ("applied", false, true, |_| {}),
        ("a dropped object is not gone yet", true, true, |work| {
            work["status"]["conditions"][0]["status"] = json!("False");
            work["status"]["conditions"][0]["reason"] = json!("Terminating");
        }),
        ("never reported", true, true, |work| {
            work["status"] = Value::Null;
        }),
        ("it could not be applied", true, false, |work| {
            work["status"]["conditions"][0]["status"] = json!("False");
        }),
        ("it is suspended", false, false, |work| {
            work["spec"]["suspendDispatching"] = json!(true);
        }),
        ("it goes", true, false, |work| {
            work["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        }),
    ];
    for (what, pending, kept, edit) in edits {
        let mut work = whole();
        edit(&mut work);
        let work = cached(&work);
        assert_eq!(
            (work.is_pending(), work.is_to_be_kept()),
            (pending, kept),
            "{what}"
        );
    }
}

#[test]
fn a_status_that_says_otherwise_than_before_is_noticed() {
    type Edit = fn(&mut Value);
    // Of the application, and of the objects.
    let edits: [(&str, bool, bool, Edit); 4] = [
        ("nothing", false, false, |_| {}),
        ("the status is gone", true, true, |work| {
            work["status"] = Value::Null;
        }),
        ("the condition is gone", true, false, |work| {
            work["status"]["conditions"] = json!([]);
        }),
        ("another health", false, true, |work| {
            work["status"]["manifestStatuses"][0]["health"] = json!("Unhealthy");
        }),
    ];
    let mut old = whole();
    old["status"]["manifestStatuses"] = json!([{"identifier": {"ordinal": 0, "kind": "ConfigMap",
        "version": "v1", "resource": "", "name": "a"}, "health": "Healthy"}]);
    for (what, applied, reported, edit) in edits {
        let mut new = old.clone();
        edit(&mut new);
        let (old, new) = (cached(&old), cached(&new));
        assert_eq!(
            CachedWork::changes_applied(Some(&old), &new),
            applied,
            "{what}"
        );
        assert_eq!(
            CachedWork::changes_reported(Some(&old), &new),
            reported,
            "{what}"
        );
    }
}

#[test]
fn a_work_without_its_text_says_the_same_about_itself() {
    type Edit = fn(&mut Value);
    let edits: [Edit; 6] = [
        |_| {},
        |work| work["metadata"]["labels"] = json!({}),
        |work| work["spec"]["workload"]["manifests"][0]["data"]["pi"] = json!(3),
        |work| work["spec"]["suspendDispatching"] = json!(true),
        |work| work["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z"),
        |work| work["status"] = Value::Null,
    ];
    let mut large = whole();
    large["spec"]["workload"]["manifests"][1]["data"] = json!({"a": "x".repeat(100_000)});
    let texts = Texts::default();
    let both = |work: &Value| {
        let (kept, mut other) = (cached(work), cached(work));
        other.fit(&texts);
        assert!(other.open().is_none() && other.is_large() && !kept.is_large());
        (kept, other)
    };
    let (old, old_other) = both(&large);
    for edit in edits {
        let mut new = large.clone();
        edit(&mut new);
        let (new, other) = both(&new);
        let says = |old: Option<&CachedWork>, new: &CachedWork| {
            let flags = [
                CachedWork::concerns_us(old, new),
                CachedWork::changes_applied(old, new),
                CachedWork::changes_reported(old, new),
                CachedWork::becomes_readable(old, new),
                new.is_pending(),
                new.is_to_be_kept(),
                new.suspended,
                new.has_finalizer,
            ];
            (new.wish(), flags, new.kinds().cloned().collect::<Vec<_>>())
        };
        assert_eq!(says(Some(&old), &new), says(Some(&old_other), &other));
        assert_eq!(says(None, &new), says(None, &other));
    }
    assert_eq!(texts.taken(), 0);
}

#[test]
fn however_many_large_works_there_are_the_cache_holds_little_of_them() {
    let texts = Texts::default();
    let mut work = whole();
    for (bytes, number) in [(1 << 20, 120), (60_000, 2_000)] {
        work["spec"]["workload"]["manifests"][0]["data"] = json!({"a": "x".repeat(bytes)});
        let mut one = cached(&work);
        let works: Vec<_> = (0..number)
            .map(|_| {
                let mut work = one.clone();
                work.fit(&texts);
                // A copy that fits takes room of its own, as in the cache.
                work
            })
            .collect();
        assert!(texts.taken() <= 48 << 20, "{bytes}");
        drop(works);
        one.fit(&texts);
        assert_eq!(one.open().is_some(), bytes <= 64 << 10, "{bytes}");
        drop(one);
        assert_eq!(texts.taken(), 0, "{bytes}");
    }
}

#[test]
fn a_work_is_in_the_namespaces_and_under_the_definitions_of_its_objects() {
    let work = |manifest: Value| {
        cached(&json!({"metadata": {"name": "w"}, "spec": {"workload": {"manifests": [manifest]}}}))
    };
    let metadata = json!({"name": "a", "namespace": "shop"});
    let thing = work(json!({"apiVersion": "ex.io/v1", "kind": "Thing", "metadata": metadata}));
    let definition = |kind| Container::Definition {
        group: "ex.io",
        kind,
    };
    for (container, expected) in [
        (Container::Namespace("shop"), true),
        (Container::Namespace("other"), false),
        (definition("Thing"), true),
        (definition("Other"), false),
    ] {
        assert_eq!(thing.may_be_in(&container), expected, "{container:?}");
    }
    let unreadable = cached(&json!({"metadata": {"name": "w"}, "spec": 5}));
    assert!(unreadable.may_be_in(&Container::Namespace("other")));
}
