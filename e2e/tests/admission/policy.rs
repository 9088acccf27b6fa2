//! Validating admission policies of the embedded API: what counts, and what is said.

use serde_json::{Value, json};

use super::{MAPS, Talk, map};

const GROUP: &str = "/apis/admissionregistration.k8s.io/v1";

impl Talk {
    pub async fn policy(&self, name: &str, spec: Value) -> Value {
        let mut spec = spec;
        if spec["matchConstraints"].is_null() {
            spec["matchConstraints"] = json!({"resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"],
                "operations": ["CREATE", "UPDATE", "DELETE"], "resources": ["configmaps"]}]});
        }
        let policy = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
            "metadata": {"name": name}, "spec": spec});
        let path = format!("{GROUP}/validatingadmissionpolicies");
        self.send("POST", &path, &policy).await
    }

    pub async fn bind(&self, name: &str, policy: &str, actions: Value) -> Value {
        let binding = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
            "metadata": {"name": name}, "spec": {"policyName": policy, "validationActions": actions}});
        let path = format!("{GROUP}/validatingadmissionpolicybindings");
        self.send("POST", &path, &binding).await
    }
}

fn with(name: &str, data: &Value) -> Value {
    let mut map = map(name);
    map["data"] = data.clone();
    map
}

#[tokio::test]
async fn a_policy_denies_through_its_binding_and_says_why() {
    let talk = Talk::begin().await;
    let spec = json!({
        "matchConditions": [{"name": "not-system", "expression": "!object.metadata.name.startsWith('system-')"}],
        "variables": [
            {"name": "size", "expression": "has(object.data) ? object.data.size() : 0"},
            {"name": "before", "expression": "oldObject.data.size()"},
        ],
        "validations": [
            {"expression": "variables.size < 3"},
            {"expression": "!has(object.data) || !('secret' in object.data)", "message": "no secrets", "reason": "Forbidden"},
            {"expression": "request.operation != 'UPDATE' || variables.size >= variables.before",
                "message": "it had more"},
        ],
    });
    let made = talk.policy("p", spec).await;
    assert_eq!(made["spec"]["failurePolicy"], "Fail", "{made}");
    let big = with("big", &json!({"a": "1", "b": "2", "c": "3"}));
    let unbound = talk.create(&big).await;
    assert_eq!(unbound["metadata"]["name"], "big", "no binding: {unbound}");
    let made = talk.bind("b", "p", json!(["Deny"])).await;
    assert_eq!(made["metadata"]["name"], "b", "{made}");

    let denied = |name: &str, why: &str| {
        format!(
            "configmaps \"{name}\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: {why}"
        )
    };
    for (object, code, message) in [
        (
            with("one", &json!({"a": "1", "b": "2", "c": "3"})),
            422,
            denied("one", "failed expression: variables.size < 3"),
        ),
        (
            with("two", &json!({"secret": "1"})),
            403,
            denied("two", "no secrets"),
        ),
    ] {
        let answer = talk.create(&object).await;
        assert_eq!(
            (&answer["code"], &answer["message"]),
            (&json!(code), &json!(message))
        );
    }
    let good = talk
        .create(&with("good", &json!({"a": "1", "b": "2"})))
        .await;
    assert_eq!(good["metadata"]["name"], "good", "{good}");
    let exempt = talk
        .create(&with("system-x", &json!({"secret": "1"})))
        .await;
    assert_eq!(exempt["metadata"]["name"], "system-x", "{exempt}");
    let path = format!("{MAPS}/good");
    let less = talk
        .send("PATCH", &path, &json!({"data": {"a": null}}))
        .await;
    assert_eq!(less["message"], denied("good", "it had more"));
    // There is no object, so that its name cannot be had: what goes wrong is decided by the failure
    // policy.
    let gone = talk.send("DELETE", &path, &json!({})).await;
    assert_eq!(gone["code"], 422, "{gone}");
    let message = gone["message"].as_str().unwrap_or_default();
    assert!(
        message.contains("failed to evaluate match condition 'not-system'"),
        "{message}"
    );
}
