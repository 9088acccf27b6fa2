//! Who owns which field: creations, appliers, takeovers, removals.

use serde_json::json;

use super::{config_map, config_maps, deployments, nginx};
use crate::apply::ApplyError;

#[test]
fn replicas_are_handed_over_to_an_autoscaler_without_being_reset() {
    // The worked example of Kubernetes' page on server-side apply, "transferring ownership".
    let mut story = deployments();
    story.apply("kubectl", &nginx(Some(3)));
    story.update("kube-controller-manager", "scale", |object| {
        object["spec"]["replicas"] = json!(5);
    });
    assert_eq!(
        story.fields("kube-controller-manager", "Update"),
        json!({"f:spec": {"f:replicas": {}}})
    );
    assert!(
        story.fields("kubectl", "Apply")["f:spec"]
            .get("f:replicas")
            .is_none()
    );
    let message = story.conflicts("kubectl", &nginx(Some(3)));
    assert_eq!(
        message,
        "Apply failed with 1 conflict: conflict with \"kube-controller-manager\" with subresource \"scale\" using apps/v1: .spec.replicas"
    );
    story.apply("kubectl", &nginx(None));
    assert_eq!(story.object()["spec"]["replicas"], 5);
}

#[test]
fn forcing_takes_the_fields_over() {
    let mut story = config_maps();
    story.apply("one", &config_map(&json!({"a": "1", "b": "1"})));
    let message = story.conflicts("two", &config_map(&json!({"a": "2", "b": "2"})));
    assert_eq!(
        message,
        "Apply failed with 2 conflicts: conflicts with \"one\":\n- .data.a\n- .data.b"
    );
    let Err(ApplyError::Conflicts { conflicts, .. }) =
        story.try_apply("two", &config_map(&json!({"a": "2"})), false)
    else {
        panic!("a conflict");
    };
    assert_eq!(conflicts[0].message, "conflict with \"one\"");
    assert_eq!(conflicts[0].field, ".data.a");
    story
        .try_apply("two", &config_map(&json!({"a": "2"})), true)
        .expect("forced");
    assert_eq!(story.object()["data"], json!({"a": "2", "b": "1"}));
    assert_eq!(story.fields("one", "Apply"), json!({"f:data": {"f:b": {}}}));
    assert_eq!(story.fields("two", "Apply"), json!({"f:data": {"f:a": {}}}));
}
