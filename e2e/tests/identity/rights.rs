//! Rights: grants, roles and impersonation.

use muster_e2e::harness::access::admit_control_plane;
use serde_json::{Value, json};

use crate::identity::{RBAC, binding, grant, send, send_as, server};

#[tokio::test]
async fn nobody_grants_what_they_do_not_have() {
    let (_server, client) = server().await;
    let held = json!([
        { "apiGroups": ["rbac.authorization.k8s.io"], "resources": ["*"], "verbs": ["create", "update", "patch"] },
        { "apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["get", "list"] },
    ]);
    grant(&client, "ann", &held).await;
    let ann = [("impersonate-user", "ann")];
    let (roles, bindings) = (
        format!("{RBAC}/clusterroles"),
        format!("{RBAC}/clusterrolebindings"),
    );
    let role = |name: &str, rules: &Value| json!({ "metadata": { "name": name }, "rules": rules });
    let create = async |name: &str, rules: &Value| {
        send_as(&client, &ann, "POST", &roles, &role(name, rules)).await
    };
    let give = async |name: &str, role: &str| {
        let binding = binding(name, role, "bob");
        send_as(&client, &ann, "POST", &bindings, &binding).await
    };

    let more = json!([
        { "apiGroups": [""], "resources": ["pods", "secrets"], "verbs": ["get", "list"] },
        { "apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["get", "delete"] },
        { "nonResourceURLs": ["/x"], "verbs": ["get"] },
        { "apiGroups": [""], "resources": ["configmaps"], "resourceNames": ["a"], "verbs": ["get"] },
    ]);
    let refused = create("more", &more).await;
    assert_eq!(
        refused["message"],
        "clusterroles.rbac.authorization.k8s.io \"more\" is forbidden: user \"ann\" (groups=[\"system:authenticated\"]) is attempting to grant RBAC permissions not currently held:\n\
         {APIGroups:[\"\"], Resources:[\"configmaps\"], ResourceNames:[\"a\"], Verbs:[\"get\"]}\n\
         {APIGroups:[\"\"], Resources:[\"pods\"], Verbs:[\"get\" \"list\"]}\n\
         {APIGroups:[\"\"], Resources:[\"secrets\"], Verbs:[\"get\" \"list\"]}\n\
         {APIGroups:[\"apps\"], Resources:[\"deployments\"], Verbs:[\"delete\"]}\n\
         {NonResourceURLs:[\"/x\"], Verbs:[\"get\"]}"
    );
    let less = json!([{ "apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["get"] }]);
    let made = create("less", &less).await;
    assert_eq!(made["kind"], "ClusterRole", "{made}");
    let made = give("b", "less").await;
    assert_eq!(made["kind"], "ClusterRoleBinding", "{made}");
    let refused = give("c", "cluster-admin").await;
    assert!(refused["message"].as_str().unwrap().ends_with("{APIGroups:[\"*\"], Resources:[\"*\"], Verbs:[\"*\"]}\n{NonResourceURLs:[\"*\"], Verbs:[\"*\"]}"), "{refused}");
    let refused = give("c", "nosuch").await;
    assert_eq!(
        (&refused["code"], &refused["message"]),
        (
            &json!(404),
            &json!("clusterrolebindings.rbac.authorization.k8s.io \"nosuch\" not found")
        )
    );

    // `escalate` and `bind` lift it.
    let lifted = json!([
        { "apiGroups": ["rbac.authorization.k8s.io"], "resources": ["clusterroles"], "verbs": ["escalate"] },
        { "apiGroups": ["rbac.authorization.k8s.io"], "resources": ["clusterroles"], "resourceNames": ["cluster-admin"], "verbs": ["bind"] },
    ]);
    send(&client, "POST", &roles, &role("lifted", &lifted)).await;
    send(
        &client,
        "POST",
        &bindings,
        &binding("lifted", "lifted", "ann"),
    )
    .await;
    let made = create("more", &more).await;
    assert_eq!(made["kind"], "ClusterRole", "{made}");
    let made = give("c", "cluster-admin").await;
    assert_eq!(made["kind"], "ClusterRoleBinding", "{made}");
}

#[tokio::test]
async fn being_somebody_else_takes_the_right_to_it() {
    let (server, client) = server().await;
    let rules = json!([
        { "apiGroups": [""], "resources": ["users"], "resourceNames": ["bob"], "verbs": ["impersonate"] },
        { "apiGroups": ["authentication.k8s.io"], "resources": ["userextras/scopes"], "resourceNames": ["a"], "verbs": ["impersonate"] },
    ]);
    grant(&client, "ann", &rules).await;
    let ann = server.client_as("ann", &[]).await.unwrap();
    let path = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    let mut bob = vec![
        ("impersonate-user", "bob"),
        ("impersonate-extra-scopes", "a"),
    ];
    let review = send_as(&ann, &bob, "POST", path, &json!({})).await;
    assert_eq!(
        review["status"]["userInfo"],
        json!({ "username": "bob", "groups": ["system:authenticated"], "extra": { "scopes": ["a"] } })
    );
    for (header, value, why) in [
        (
            "impersonate-extra-scopes",
            "b",
            "userextras.authentication.k8s.io \"b\" is forbidden: User \"ann\" cannot impersonate resource \"userextras/scopes\" in API group \"authentication.k8s.io\" at the cluster scope",
        ),
        (
            "impersonate-uid",
            "u",
            "uids.authentication.k8s.io \"u\" is forbidden: User \"ann\" cannot impersonate resource \"uids\" in API group \"authentication.k8s.io\" at the cluster scope",
        ),
        (
            "impersonate-group",
            "system:masters",
            "groups \"system:masters\" is forbidden: User \"ann\" cannot impersonate resource \"groups\" in API group \"\" at the cluster scope",
        ),
    ] {
        bob.push((header, value));
        let refused = send_as(&ann, &bob, "POST", path, &json!({})).await;
        assert_eq!(refused["message"], why);
        bob.pop();
    }
}

#[tokio::test]
async fn the_namespaces_of_leases_and_of_the_election_are_not_deleted_by_mistake() {
    let (_server, client) = server().await;
    admit_control_plane(&client).await.unwrap();
    for name in ["karmada-cluster", "karmada-system"] {
        let path = format!("/api/v1/namespaces/{name}");
        let refused = send(&client, "DELETE", &path, &json!({})).await;
        assert_eq!(refused["code"], 403, "{refused}");
        let message = refused["message"].as_str().unwrap();
        assert!(
            message.contains("all clusters of the fleet would fall silent"),
            "{message}"
        );
    }
    let other = json!({"metadata": {"name": "other"}});
    send(&client, "POST", "/api/v1/namespaces", &other).await;
    let path = "/api/v1/namespaces/other";
    let deleted = send(&client, "DELETE", path, &json!({})).await;
    assert_ne!(deleted["code"], 403, "{deleted}");
}
