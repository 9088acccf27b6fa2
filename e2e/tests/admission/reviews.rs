//! Reviews and their answers: content, changes, refusals, trouble with the webhook.

use serde_json::{Value, json};

use crate::admission::webhook::{Answer, Webhook, allow, change};
use crate::admission::{MAPS, Talk, map};

#[tokio::test]
async fn a_review_tells_everything_about_the_request() {
    let talk = Talk::begin().await;
    let webhook = Webhook::start(|_, _| allow()).await;
    talk.configure(
        "Mutating",
        "m",
        json!([webhook.entry("m.example.com", "/m", &json!({}))]),
    )
    .await;
    talk.configure(
        "Validating",
        "v",
        json!([webhook.entry("v.example.com", "/v", &json!({}))]),
    )
    .await;

    talk.create(&json!({ "metadata": { "generateName": "g-" } }))
        .await;
    let seen = webhook.seen();
    let [(mutating, first), (validating, second)] = seen.as_slice() else {
        panic!("{seen:?}")
    };
    assert_eq!((mutating.as_str(), validating.as_str()), ("/m", "/v"));
    assert_eq!(
        first["kind"],
        json!({ "group": "", "version": "v1", "kind": "ConfigMap" })
    );
    assert_eq!(first["requestKind"], first["kind"]);
    assert_eq!(
        first["resource"],
        json!({ "group": "", "version": "v1", "resource": "configmaps" })
    );
    assert_eq!(first["requestResource"], first["resource"]);
    assert_eq!(first["operation"], "CREATE");
    assert_eq!(first["namespace"], "default");
    assert_eq!(
        (&first["oldObject"], &first["dryRun"]),
        (&Value::Null, &json!(false))
    );
    assert_eq!(first["userInfo"]["username"], "kubernetes-admin");
    assert_eq!(
        first["options"],
        json!({ "kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1", "fieldManager": "me", "fieldValidation": "Strict" })
    );
    // The name is generated and the identity given between the two.
    assert!(first.get("name").is_none() && first["object"]["metadata"].get("uid").is_none());
    assert!(second["name"].as_str().unwrap().starts_with("g-"));
    assert!(second["object"]["metadata"]["uid"].is_string());

    talk.send("POST", MAPS, &map("a")).await;
    webhook.seen();
    let (_, _) = talk
        .send(
            "PATCH",
            &format!("{MAPS}/a?dryRun=All"),
            &json!({ "data": { "k": "v" } }),
        )
        .await;
    let (_, review) = webhook.seen().swap_remove(0);
    assert_eq!(
        (&review["operation"], &review["dryRun"]),
        (&json!("UPDATE"), &json!(true))
    );
    assert_eq!(review["object"]["data"], json!({ "k": "v" }));
    assert!(
        review["oldObject"]["metadata"]["resourceVersion"].is_string()
            && review["oldObject"]["data"].is_null()
    );
    assert_eq!(review["options"]["kind"], "UpdateOptions");

    talk.send(
        "DELETE",
        &format!("{MAPS}/a?propagationPolicy=Background"),
        &json!({ "kind": "DeleteOptions", "gracePeriodSeconds": 0 }),
    )
    .await;
    let (_, review) = webhook.seen().swap_remove(0);
    assert_eq!(
        (&review["operation"], &review["object"]),
        (&json!("DELETE"), &Value::Null)
    );
    assert_eq!(review["oldObject"]["metadata"]["name"], "a");
    assert_eq!(review["options"]["gracePeriodSeconds"], 0);
}

#[tokio::test]
async fn what_a_webhook_changes_is_defaulted_and_validated_again() {
    let talk = Talk::begin().await;
    let webhook = Webhook::start(|path, _| match path {
        "/label" => {
            change(&json!([{ "op": "add", "path": "/metadata/labels", "value": { "by": "hook" } }]))
        }
        "/invalid" => change(&json!([{ "op": "add", "path": "/data", "value": { "a b": "1" } }])),
        "/type" => change(&json!([{ "op": "add", "path": "/data", "value": { "a": 1 } }])),
        "/port" => {
            change(&json!([{ "op": "add", "path": "/spec/ports", "value": [{ "port": 80 }] }]))
        }
        _ => change(&json!([{ "op": "remove", "path": "/nope" }])),
    })
    .await;
    let rules = json!({ "rules": [{ "apiGroups": [""], "apiVersions": ["v1"], "resources": ["*"], "operations": ["CREATE"] }] });
    for (path, code, reason) in [
        ("/invalid", 422, "Invalid"),
        ("/type", 500, "InternalError"),
        ("/nowhere", 500, "InternalError"),
    ] {
        talk.configure(
            "Mutating",
            "m",
            json!([webhook.entry("m.example.com", path, &rules)]),
        )
        .await;
        let (refused, _) = talk.create(&map("a")).await;
        assert_eq!(refused["code"], code, "{path}: {refused}");
        assert_eq!(refused["reason"], reason, "{path}: {refused}");
    }
    talk.configure(
        "Mutating",
        "m",
        json!([webhook.entry("m.example.com", "/label", &rules)]),
    )
    .await;
    let (made, _) = talk.create(&map("a")).await;
    assert_eq!(
        made["metadata"]["labels"],
        json!({ "by": "hook" }),
        "{made}"
    );
    // The webhook's change is nobody's: only the author's fields have an owner.
    assert!(
        !made["metadata"]["managedFields"]
            .to_string()
            .contains("f:labels"),
        "{made}"
    );

    talk.configure(
        "Mutating",
        "m",
        json!([webhook.entry("m.example.com", "/port", &rules)]),
    )
    .await;
    let service = json!({ "metadata": { "name": "s" }, "spec": { "ports": [{ "port": 1 }] } });
    let (made, _) = talk
        .send("POST", "/api/v1/namespaces/default/services", &service)
        .await;
    assert_eq!(
        made["spec"]["ports"],
        json!([{ "port": 80, "protocol": "TCP", "targetPort": 80 }])
    );
}

#[tokio::test]
async fn refusals_and_warnings_reach_the_client() {
    let talk = Talk::begin().await;
    let webhook = Webhook::start(|path, _| match path {
        "/deny" => Answer::Review(json!({ "allowed": false, "status": { "message": "no way", "code": 418, "reason": "Teapot" } })),
        "/silent" => Answer::Review(json!({ "allowed": false })),
        _ => Answer::Review(json!({ "allowed": true, "warnings": ["careful \"x\"", "second"] })),
    })
    .await;
    for kind in ["Mutating", "Validating"] {
        for (path, code, reason, message) in [
            (
                "/deny",
                418,
                json!("Teapot"),
                r#"admission webhook "h.example.com" denied the request: no way"#,
            ),
            (
                "/silent",
                400,
                Value::Null,
                r#"admission webhook "h.example.com" denied the request without explanation"#,
            ),
        ] {
            talk.configure(
                kind,
                "h",
                json!([webhook.entry("h.example.com", path, &json!({}))]),
            )
            .await;
            let (refused, _) = talk.create(&map("a")).await;
            assert_eq!(
                (&refused["code"], &refused["reason"], &refused["message"]),
                (&json!(code), &reason, &json!(message))
            );
        }
        talk.configure(
            kind,
            "h",
            json!([webhook.entry("h.example.com", "/warn", &json!({ "timeoutSeconds": 30 }))]),
        )
        .await;
        let (made, warnings) = talk.create(&map(&kind.to_lowercase())).await;
        assert_eq!(made["kind"], "ConfigMap", "{made}");
        assert_eq!(warnings, [r#"299 - "careful \"x\"""#, r#"299 - "second""#]);
        talk.configure(kind, "h", json!([])).await;
    }
}

#[tokio::test]
async fn trouble_with_a_webhook_refuses_unless_its_policy_is_to_ignore() {
    let talk = Talk::begin().await;
    let webhook = Webhook::start(|path, _| match path {
        "/500" => Answer::Raw(500, "oops"),
        "/404" => Answer::Raw(404, "nothing"),
        "/absent" => Answer::Raw(
            200,
            r#"{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}"#,
        ),
        "/never" => Answer::Never,
        _ => allow(),
    })
    .await;
    let own = format!("https://{}", webhook.address);
    let service = json!({ "clientConfig": { "service": { "namespace": "default", "name": "svc", "path": "/x" }, "caBundle": webhook.bundle() } });
    let cases = [
        ("/500", json!({})),
        ("/404", json!({})),
        ("/absent", json!({})),
        ("/never", json!({ "timeoutSeconds": 1 })),
        (
            "/",
            json!({ "clientConfig": { "url": "https://127.0.0.1:1/x" } }),
        ),
        // Without the bundle nobody trusts the certificate.
        (
            "/",
            json!({ "clientConfig": { "url": format!("{own}/x") } }),
        ),
        ("/", service),
    ];
    for (path, with) in cases {
        for (policy, refuses) in [("Fail", true), ("Ignore", false)] {
            let mut with = with.clone();
            with["failurePolicy"] = policy.into();
            talk.configure(
                "Validating",
                "v",
                json!([webhook.entry("v.example.com", path, &with)]),
            )
            .await;
            let (answer, _) = talk
                .send("POST", &format!("{MAPS}?dryRun=All"), &map("a"))
                .await;
            if refuses {
                assert_eq!(
                    (&answer["code"], &answer["reason"]),
                    (&json!(500), &json!("InternalError")),
                    "{path} {with}: {answer}"
                );
                let message = answer["message"].as_str().unwrap();
                let begin = "Internal error occurred: failed calling webhook \"v.example.com\": ";
                assert!(message.starts_with(begin), "{message}");
            } else {
                assert_eq!(answer["kind"], "ConfigMap", "{path} {answer}");
            }
        }
    }
}
