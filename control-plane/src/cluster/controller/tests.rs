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
