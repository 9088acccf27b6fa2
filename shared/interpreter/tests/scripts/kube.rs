//! The library `kube`.

use serde_json::json;

use super::{raised, reported, value};

#[test]
fn the_library_kube_adds_and_measures_quantities() {
    let kube = |call: &str| value(&format!("require('kube').{call}"));
    assert_eq!(kube("resourceAdd('500m', '1', nil)"), json!("1500m"));
    assert_eq!(kube("resourceAdd('1Gi', '512Mi')"), json!("1536Mi"));
    assert_eq!(kube("resourceAdd()"), json!("0"));
    assert_eq!(kube("getResourceQuantity('1Gi')"), json!(1_073_741_824));
    assert_eq!(kube("getResourceQuantity('2048m')"), json!(2.048));
    assert_eq!(kube("getResourceQuantity(nil)"), json!(0));
    for (call, text) in [
        ("resourceAdd('x')", "is not a number"),
        ("resourceAdd(1)", "expected a text, found a number"),
        ("getResourceQuantity('-1')", "negative"),
        ("getResourceQuantity()", "takes 1 arguments, not 0"),
        ("getPodDependencies({})", "takes 2 arguments, not 1"),
        (
            "accuratePodRequirements(nil)",
            "expected a pod template, found nil",
        ),
        (
            "accuratePodRequirements({ spec = { containers = 3 } })",
            "containers: expected a list, found 3",
        ),
        (
            "accuratePodRequirements({ spec = { nodeSelector = { a = 1 } } })",
            "nodeSelector",
        ),
    ] {
        let (_, message) = raised(&format!("require('kube').{call}"));
        assert!(message.contains(text), "{call}: {message}");
    }
}

#[test]
fn the_library_kube_reads_pod_templates() {
    let template = json!({ "template": { "spec": {
        "serviceAccountName": "robot",
        "containers": [{ "name": "c", "envFrom": [{ "configMapRef": { "name": "settings" } }],
            "resources": { "requests": { "cpu": "1" } } }],
        "volumes": [{ "name": "v", "secret": { "secretName": "key" } }],
    } } });
    let body = "local kube = require('kube')
        return { needs = kube.accuratePodRequirements(object.status.template),
                 none = tostring(kube.accuratePodRequirements({})),
                 refs = kube.getPodDependencies(object.status.template, 'n'),
                 default = kube.getPodDependencies(object.status.template, nil)[1].namespace }";
    let reference = |kind: &str, name: &str| json!({ "apiVersion": "v1", "kind": kind, "namespace": "n", "name": name });
    let expected = json!({
        "needs": { "resourceRequest": { "cpu": "1" } },
        "none": "nil",
        "refs": [reference("ConfigMap", "settings"), reference("Secret", "key"), reference("ServiceAccount", "robot")],
        "default": "default",
    });
    assert_eq!(reported(body, &template), Ok(expected));
}
