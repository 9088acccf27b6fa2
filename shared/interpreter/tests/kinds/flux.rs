//! Kinds of Flux, and policies of Kyverno, whose statuses are alike.

use serde_json::{Value, json};

use super::{aggregated, condition, dependencies, healthy, reported, retained};

const HELM_RELEASE: (&str, &str) = ("helm.toolkit.fluxcd.io/v2beta1", "HelmRelease");
const KUSTOMIZATION: (&str, &str) = ("kustomize.toolkit.fluxcd.io/v1", "Kustomization");
const GIT_REPOSITORY: (&str, &str) = ("source.toolkit.fluxcd.io/v1", "GitRepository");
const SOURCE: &str = "source.toolkit.fluxcd.io/v1beta2";
const BUCKET: (&str, &str) = (SOURCE, "Bucket");
const HELM_CHART: (&str, &str) = (SOURCE, "HelmChart");
const HELM_REPOSITORY: (&str, &str) = (SOURCE, "HelmRepository");
const OCI_REPOSITORY: (&str, &str) = (SOURCE, "OCIRepository");
const POLICY: (&str, &str) = ("kyverno.io/v1", "Policy");
const CLUSTER_POLICY: (&str, &str) = ("kyverno.io/v1", "ClusterPolicy");

const RELEASES: [(&str, &str); 2] = [HELM_RELEASE, KUSTOMIZATION];
const SOURCES: [(&str, &str); 5] = [
    GIT_REPOSITORY,
    BUCKET,
    HELM_CHART,
    HELM_REPOSITORY,
    OCI_REPOSITORY,
];

fn all() -> impl Iterator<Item = (&'static str, &'static str)> {
    let flux = RELEASES.into_iter().chain(SOURCES);
    flux.chain([POLICY, CLUSTER_POLICY])
}

fn ready(reason: &str) -> Value {
    json!({ "conditions": [condition("Ready", "True", reason)] })
}

#[test]
fn each_kind_is_healthy_when_it_is_ready_for_its_reason() {
    for kind in RELEASES {
        assert!(healthy(kind, ready("ReconciliationSucceeded")), "{kind:?}");
        assert!(!healthy(kind, ready("Succeeded")), "{kind:?}");
    }
    for kind in SOURCES.into_iter().chain([POLICY, CLUSTER_POLICY]) {
        assert!(healthy(kind, ready("Succeeded")), "{kind:?}");
        let pulled = healthy(kind, ready("ChartPullSucceeded"));
        assert_eq!(pulled, kind == HELM_CHART, "{kind:?}");
    }
    for kind in all() {
        assert!(!healthy(kind, Value::Null), "{kind:?}");
        let not_ready = condition("Ready", "False", "Succeeded");
        assert!(
            !healthy(kind, json!({ "conditions": [not_ready] })),
            "{kind:?}"
        );
    }
    assert!(!healthy(POLICY, json!({ "ready": false })));
    assert!(healthy(POLICY, json!({ "ready": true })));
}

#[test]
fn a_member_that_is_suspended_stays_so() {
    for kind in RELEASES.into_iter().chain(SOURCES) {
        let found = retained(kind, json!({ "a": 1 }), json!({ "suspend": true }));
        assert_eq!(found, json!({ "a": 1, "suspend": true }), "{kind:?}");
        let found = retained(kind, json!({ "suspend": true }), json!({}));
        assert_eq!(found, json!({ "suspend": true }), "{kind:?}");
    }
}

#[test]
fn conditions_that_agree_are_one_that_says_what_each_cluster_says() {
    let member = |status: &str, message: &str| {
        let mut one = condition("Ready", status, "R");
        one["message"] = json!(message);
        json!({ "conditions": [one] })
    };
    let members = [
        member("True", "a"),
        Value::Null,
        member("True", "b"),
        member("False", "c"),
    ];
    for kind in all() {
        let found = aggregated(kind, json!({}), &members);
        let said: Vec<_> = found["conditions"]
            .as_array()
            .unwrap()
            .iter()
            .map(|one| &one["message"])
            .collect();
        assert_eq!(said, ["m1=a, m3=b", "m4=c"], "{kind:?}");
    }
}

#[test]
fn the_generation_of_the_template_advances_when_all_members_have_seen_it() {
    let seen = |generation: i32| json!({ "resourceTemplateGeneration": generation, "generation": 4, "observedGeneration": 4 });
    for kind in RELEASES.into_iter().chain(SOURCES) {
        let advanced = |members: &[Value]| {
            aggregated(kind, json!({ "observedGeneration": 1 }), members)["observedGeneration"]
                .clone()
        };
        assert_eq!(advanced(&[seen(2), seen(2)]), json!(2), "{kind:?}");
        assert_eq!(advanced(&[seen(2), seen(1)]), json!(1), "{kind:?}");
        assert_eq!(advanced(&[seen(2), Value::Null]), json!(1), "{kind:?}");
        assert_eq!(advanced(&[]), json!(2), "{kind:?}");
    }
}

#[test]
fn every_source_reports_the_generation_that_its_member_has_seen() {
    for kind in RELEASES.into_iter().chain(SOURCES) {
        let found = reported(kind, json!({ "observedGeneration": 2, "other": 1 }));
        let expected = json!({
            "observedGeneration": 2, "generation": 2, "resourceTemplateGeneration": 2,
        });
        assert_eq!(found, expected, "{kind:?}");
    }
}

#[test]
fn artifact_and_address_are_those_of_the_last_member_that_has_them() {
    let members = [
        json!({ "artifact": { "revision": "1" }, "url": "a" }),
        json!({ "artifact": { "revision": "2" }, "url": "" }),
        Value::Null,
    ];
    for kind in SOURCES {
        let found = aggregated(kind, json!({}), &members);
        assert_eq!(found["artifact"], json!({ "revision": "2" }), "{kind:?}");
        let expected = if kind == GIT_REPOSITORY {
            Value::Null
        } else {
            json!("a")
        };
        assert_eq!(found["url"], expected, "{kind:?}");
    }
}

#[test]
fn failures_of_a_release_are_those_of_the_members_however_often_they_are_added() {
    let member = |failures: i32| json!({ "failures": failures, "lastAppliedRevision": "5" });
    let once = aggregated(
        HELM_RELEASE,
        json!({ "failures": 0 }),
        &[member(2), member(3)],
    );
    assert_eq!(
        (&once["failures"], &once["lastAppliedRevision"]),
        (&json!(5), &json!("5"))
    );
    let again = aggregated(HELM_RELEASE, once, &[member(2), member(3)]);
    assert_eq!(again["failures"], json!(5));
    let none = aggregated(HELM_RELEASE, json!({}), &[]);
    assert_eq!(
        (&none["failures"], &none["helmChart"]),
        (&json!(0), &json!(""))
    );
}

#[test]
fn secrets_and_accounts_go_along() {
    let secret = |name: &str| json!({ "secretRef": { "name": name } });
    let spec = json!({
        "secretRef": { "name": "login" },
        "certSecretRef": { "name": "cert" },
        "verify": secret("signers"),
        "kubeConfig": secret("member"),
        "decryption": secret("age"),
        "serviceAccountName": "robot",
        "valuesFrom": [{ "kind": "ConfigMap", "name": "values" }, { "kind": "Secret", "name": "more" }],
        "chart": { "spec": { "verify": secret("cosign") } },
    });
    for (kind, expected) in [
        (
            HELM_RELEASE,
            &[
                "ConfigMap/values",
                "Secret/cosign",
                "Secret/member",
                "Secret/more",
                "ServiceAccount/robot",
            ][..],
        ),
        (
            KUSTOMIZATION,
            &["Secret/age", "Secret/member", "ServiceAccount/robot"],
        ),
        (GIT_REPOSITORY, &["Secret/login", "Secret/signers"]),
        (BUCKET, &["Secret/login"]),
        (HELM_CHART, &["Secret/signers"]),
        (HELM_REPOSITORY, &["Secret/login"]),
        (
            OCI_REPOSITORY,
            &[
                "Secret/cert",
                "Secret/login",
                "Secret/signers",
                "ServiceAccount/robot",
            ],
        ),
    ] {
        assert_eq!(dependencies(kind, spec.clone()), expected, "{kind:?}");
        assert_eq!(
            dependencies(kind, json!({})),
            Vec::<String>::new(),
            "{kind:?}"
        );
    }
}

#[test]
fn rules_of_a_policy_are_counted_over_all_members() {
    let member =
        |ready: bool| json!({ "ready": ready, "rulecount": { "validate": 2, "mutate": 1 } });
    for kind in [POLICY, CLUSTER_POLICY] {
        let found = aggregated(
            kind,
            json!({ "old": 1 }),
            &[member(true), Value::Null, member(false)],
        );
        let counts = json!({ "validate": 4, "generate": 0, "mutate": 2, "verifyimages": 0 });
        assert_eq!(found["rulecount"], counts, "{kind:?}");
        assert_eq!(
            (&found["ready"], &found["old"]),
            (&json!(false), &Value::Null)
        );
    }
}
