use super::*;

#[test]
fn what_is_gone_or_changed_already_is_looked_at_again_and_the_rest_is_an_error() {
    for (code, reason, expected) in [
        (404, "NotFound", true),
        (409, "Conflict", true),
        (403, "Forbidden", false),
        (500, "InternalError", false),
    ] {
        let status = kube::core::Status::failure("", reason).with_code(code);
        let result = tolerate(Err(kube::Error::Api(status.boxed())));
        assert_eq!(result.is_ok(), expected, "{code}");
    }
    assert!(tolerate(Ok(())).is_ok());
}

#[test]
fn a_finalizer_is_taken_off_beside_those_of_others() {
    for (finalizers, kept, held) in [
        (json!([finalizer::WORK]), json!(null), true),
        (json!(["other", finalizer::WORK]), json!(["other"]), true),
        (json!(["other"]), json!(["other"]), false),
        (json!(null), json!(null), false),
    ] {
        let work = json!({"resourceVersion": "7", "finalizers": finalizers});
        let work: ObjectMeta = serde_json::from_value(work).unwrap();
        assert_eq!(is_held(&work), held, "{finalizers}");
        let expected = json!({"metadata": {"resourceVersion": "7", "finalizers": kept}});
        assert_eq!(release(&work, finalizer::WORK), expected);
    }
}

#[test]
fn a_cluster_is_monitored_by_its_lease_by_a_connection_or_not_at_all() {
    for (mode, connects, expected) in [
        ("Pull", true, Some(Monitoring::Lease)),
        ("Pull", false, Some(Monitoring::Lease)),
        ("Push", true, None),
        ("Push", false, Some(Monitoring::Off)),
    ] {
        let mode = serde_json::from_value(json!(mode)).unwrap();
        assert_eq!(monitoring(&mode, connects), expected);
    }
}

#[test]
fn a_cluster_is_named_as_long_as_one_binding_has_it_as_a_target() {
    let spec = |clusters: Value| -> ResourceBindingSpec {
        serde_json::from_value(json!({"clusters": clusters})).unwrap()
    };
    let (on, off) = (
        json!([{"name": "m2"}, {"name": "m1"}]),
        json!([{"name": "m2"}]),
    );
    for (specs, expected) in [
        (vec![], false),
        (vec![off.clone(), json!([])], false),
        (vec![off.clone(), on.clone()], true),
        (vec![on, off], true),
    ] {
        let specs: Vec<_> = specs.into_iter().map(spec).collect();
        assert_eq!(is_named(specs.iter(), "m1"), expected, "{specs:?}");
    }
}

#[test]
fn the_works_of_a_cluster_that_leaves_are_those_of_its_namespace() {
    let work = |namespace: &str, name: &str| -> Arc<CachedWork> {
        let work = json!({"metadata": {"namespace": namespace, "name": name}, "spec": {}});
        Arc::new(serde_json::from_value(work).unwrap())
    };
    let works = vec![
        work("karmada-es-m1", "a"),
        work("karmada-es-m10", "b"),
        work("karmada-es-m1", "c"),
    ];
    let names = |namespace| -> Vec<String> {
        let works = within(works.clone(), namespace);
        works.iter().map(|it| it.name_any()).collect()
    };
    assert_eq!(names("karmada-es-m1"), ["a", "c"]);
    assert_eq!(names("karmada-es-m10"), ["b"]);
    assert_eq!(names("karmada-es-m2"), [""; 0]);
}

#[test]
fn namespaces_stay_in_a_member_that_leaves_and_other_objects_go() {
    let namespace = json!([{"apiVersion": "v1", "kind": "Namespace", "name": "shop", "uid": "u"}]);
    for (owners, preserves, deletion, (preserve, expected)) in [
        (namespace.clone(), json!(null), json!(null), (true, true)),
        (namespace.clone(), json!(false), json!(null), (true, true)),
        (namespace.clone(), json!(true), json!(null), (false, true)),
        (json!(null), json!(null), json!(null), (false, true)),
        (json!(null), json!(true), json!(null), (false, true)),
        (
            namespace,
            json!(null),
            json!("2024-01-01T00:00:00Z"),
            (true, false),
        ),
    ] {
        let work: CachedWork = serde_json::from_value(json!({
            "metadata": {"name": "w", "ownerReferences": owners, "deletionTimestamp": deletion},
            "spec": {"preserveResourcesOnDeletion": preserves},
        }))
        .unwrap();
        let what = format!("{owners} {preserves} {deletion}");
        assert_eq!(has_to_preserve(&work), preserve, "{what}");
        assert_eq!(stays(&work), expected, "{what}");
    }
}
