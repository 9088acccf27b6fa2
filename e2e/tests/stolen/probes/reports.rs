//! What is wanted and reported: Clusters, Works, bindings, policies, leases.

use serde_json::{Value, json};

use super::{metadata, spec};
use crate::stolen::{Ask, CLUSTERS, OTHER, OWN};

const WORK: &str = "/apis/work.karmada.io";
const POLICY: &str = "/apis/policy.karmada.io/v1alpha1";

pub(super) fn own_cluster() -> Vec<Ask> {
    let own = format!("{CLUSTERS}/{OWN}");
    let status = format!("{own}/status");
    let merge = |what: &str, body: Value| Ask::merge(&format!("own Cluster: {what}"), &own, body);
    let secret = |namespace: &str, name: &str| json!({"namespace": namespace, "name": name});
    let taint = |key: &str| json!([{"key": key, "effect": "NoSchedule"}]);
    let twin = |status: &str| {
        json!({"status": {"conditions": [{"type": "UniqueIdentity", "status": status, "reason": "a", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z"}]}})
    };
    let seen = json!({"status": {"conditions": [
        {"type": "UniqueIdentity", "status": "False", "reason": "a", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"},
        {"type": "SeenByPeers", "status": "True", "reason": "a", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"},
    ]}});
    let whole = json!({"apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster",
        "metadata": {"name": OWN, "labels": {"tier": "gold"}}, "spec": {"syncMode": "Push"}});
    vec![
        merge(
            "draw workloads by a label",
            metadata(json!({"labels": {"tier": "gold"}})),
        ),
        merge(
            "take a label off",
            metadata(json!({"labels": {"team": null}})),
        ),
        merge("take all labels off", metadata(json!({"labels": null}))),
        merge("change a label", metadata(json!({"labels": {"team": "b"}}))),
        merge(
            "add an annotation",
            metadata(json!({"annotations": {"x": "y"}})),
        ),
        merge(
            "forge the record of taints",
            metadata(json!({"annotations": {"taints.muster.io/record": "[{}]"}})),
        ),
        merge(
            "take an annotation off",
            metadata(json!({"annotations": {"note": null}})),
        ),
        merge(
            "fix its location",
            metadata(json!({"annotations": {"failover.muster.io/fixed-location": "true"}})),
        ),
        merge("take finalizers off", metadata(json!({"finalizers": null}))),
        merge("empty its finalizers", metadata(json!({"finalizers": []}))),
        merge(
            "add a finalizer",
            metadata(json!({"finalizers": ["karmada.io/cluster-controller", "example.com/stay"]})),
        ),
        merge(
            "get an owner",
            metadata(json!({"ownerReferences": [
            {"apiVersion": "v1", "kind": "Namespace", "name": "default", "uid": "u"}]})),
        ),
        merge("lift the quarantine", spec(json!({"taints": null}))),
        merge("empty its taints", spec(json!({"taints": []}))),
        merge(
            "change its taints",
            spec(json!({"taints": taint("quarantine")})),
        ),
        merge(
            "add a taint",
            spec(json!({"taints": [
            {"key": "quarantine", "effect": "NoExecute", "timeAdded": "2026-01-01T00:00:00Z"}, {"key": "more", "effect": "NoSchedule"}]})),
        ),
        merge("be pushed to", spec(json!({"syncMode": "Push"}))),
        merge("take another's id", spec(json!({"id": "other-id"}))),
        merge("take a new id", spec(json!({"id": "new-id"}))),
        merge("forget its id", spec(json!({"id": null}))),
        merge("empty its id", spec(json!({"id": ""}))),
        merge(
            "use another's Secret",
            spec(json!({"secretRef": secret("karmada-cluster", OTHER)})),
        ),
        merge(
            "use a Secret elsewhere",
            spec(json!({"secretRef": secret("kube-system", OWN)})),
        ),
        merge(
            "use another's Secret at an address of its own",
            spec(json!({
            "secretRef": secret("karmada-cluster", OTHER), "apiEndpoint": "https://evil:6443"})),
        ),
        merge(
            "use another's impersonator",
            spec(
                json!({"impersonatorSecretRef": secret("karmada-cluster", &format!("{OTHER}-impersonator"))}),
            ),
        ),
        merge(
            "use the administrator's Secret as impersonator",
            spec(json!({"impersonatorSecretRef": secret("karmada-cluster", OWN)})),
        ),
        merge(
            "set headers of a proxy",
            spec(json!({"proxyHeader": {"authorization": "x"}})),
        ),
        merge(
            "replace its grades",
            spec(
                json!({"resourceModels": [{"grade": 0, "ranges": [{"name": "cpu", "min": "0", "max": "64"}]}]}),
            ),
        ),
        merge("give its grades up", spec(json!({"resourceModels": null}))),
        merge(
            "hide a label behind a region",
            json!({"metadata": {"labels": {"tier": "gold"}}, "spec": {"region": "r2"}}),
        ),
        merge(
            "hide a taint behind a region",
            spec(json!({"region": "r2", "taints": null})),
        ),
        Ask::json(
            "own Cluster: a label by JSON patch",
            &own,
            json!([{"op": "add", "path": "/metadata/labels/tier", "value": "gold"}]),
        ),
        Ask::json(
            "own Cluster: taints by JSON patch",
            &own,
            json!([{"op": "remove", "path": "/spec/taints"}]),
        ),
        Ask::json(
            "own Cluster: the id by JSON patch",
            &own,
            json!([{"op": "replace", "path": "/spec/id", "value": "other-id"}]),
        ),
        Ask::apply("own Cluster: a label by apply", &own, whole.clone()),
        Ask::apply(
            "own Cluster: a taint by apply",
            &own,
            json!({"apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster",
            "metadata": {"name": OWN}, "spec": {"syncMode": "Pull", "id": "own-id", "taints": taint("x")}}),
        ),
        Ask::put("own Cluster: replace it", &own, whole),
        Ask::delete("own Cluster: delete it", &own),
        Ask::merge("own Cluster: deny the twin", &status, twin("True")),
        Ask::merge(
            "own Cluster: forget the twin",
            &status,
            json!({"status": {"conditions": []}}),
        ),
        Ask::merge(
            "own Cluster: forget its status",
            &status,
            json!({"status": null}),
        ),
        Ask::put("own Cluster: replace its status", &status, twin("True")),
        Ask::merge("own Cluster: say that peers see it", &status, seen),
    ]
}

pub(super) fn other_clusters() -> Vec<Ask> {
    let other = format!("{CLUSTERS}/{OTHER}");
    let cluster = |name: &str| json!({"apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster", "metadata": {"name": name}, "spec": {"syncMode": "Pull"}});
    vec![
        Ask::get("clusters: list all", CLUSTERS),
        Ask::get("clusters: watch all", &format!("{CLUSTERS}?watch=true")),
        Ask::get("clusters: see another", &other),
        Ask::get(
            "clusters: watch another",
            &format!("{CLUSTERS}?watch=true&fieldSelector=metadata.name%3D{OTHER}"),
        ),
        Ask::merge(
            "clusters: taint another",
            &other,
            spec(json!({"taints": [{"key": "x", "effect": "NoExecute"}]})),
        ),
        Ask::merge(
            "clusters: label another",
            &other,
            metadata(json!({"labels": {"a": "b"}})),
        ),
        Ask::merge(
            "clusters: say another is ill",
            &format!("{other}/status"),
            json!({"status": {"conditions": []}}),
        ),
        Ask::apply("clusters: apply another", &other, cluster(OTHER)),
        Ask::delete("clusters: delete another", &other),
        Ask::delete("clusters: delete all", CLUSTERS),
        Ask::post("clusters: bring a new one", CLUSTERS, cluster("stolen-new")),
        Ask::apply(
            "clusters: apply a new one",
            &format!("{CLUSTERS}/stolen-new"),
            cluster("stolen-new"),
        ),
        Ask::post(
            "clusters: bring one of a generated name",
            CLUSTERS,
            json!({"apiVersion": "cluster.karmada.io/v1alpha1",
            "kind": "Cluster", "metadata": {"generateName": "stolen-"}, "spec": {"syncMode": "Pull"}}),
        ),
    ]
}

pub(super) fn works() -> Vec<Ask> {
    let works = |member: &str| format!("{WORK}/v1alpha1/namespaces/karmada-es-{member}/works");
    let (own, other) = (
        format!("{}/web", works(OWN)),
        format!("{}/web", works(OTHER)),
    );
    let manifest = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x", "namespace": "default"}});
    let work = json!({"apiVersion": "work.karmada.io/v1alpha1", "kind": "Work", "metadata": {"name": "new"},
        "spec": {"workload": {"manifests": [manifest]}}});
    let merge = |what: &str, body: Value| Ask::merge(&format!("own Work: {what}"), &own, body);
    vec![
        merge(
            "say something else",
            spec(json!({"workload": {"manifests": [manifest]}})),
        ),
        merge("suspend it", spec(json!({"suspendDispatching": true}))),
        merge(
            "keep its objects",
            spec(json!({"preserveResourcesOnDeletion": true})),
        ),
        merge(
            "label it",
            metadata(json!({"labels": {"work.karmada.io/permanent-id": "other"}})),
        ),
        merge("take its labels off", metadata(json!({"labels": null}))),
        merge(
            "annotate it",
            metadata(json!({"annotations": {"resourcebinding.karmada.io/name": "another's"}})),
        ),
        merge(
            "take another's finalizer off",
            metadata(json!({"finalizers": []})),
        ),
        merge(
            "add a finalizer",
            metadata(json!({"finalizers": ["example.com/keep", "example.com/stay"]})),
        ),
        merge(
            "get an owner",
            metadata(json!({"ownerReferences": [
            {"apiVersion": "v1", "kind": "Namespace", "name": "default", "uid": "u"}]})),
        ),
        Ask::put("own Work: replace it", &own, work.clone()),
        Ask::delete("own Work: delete it", &own),
        Ask::delete("own Works: delete all", &works(OWN)),
        Ask::post("own Works: make one", &works(OWN), work.clone()),
        Ask::apply(
            "own Works: apply one",
            &format!("{}/new", works(OWN)),
            work.clone(),
        ),
        Ask::get("Works: see another's", &other),
        Ask::get("Works: list another's", &works(OTHER)),
        Ask::get(
            "Works: watch another's",
            &format!("{}?watch=true", works(OTHER)),
        ),
        Ask::get("Works: list everybody's", &format!("{WORK}/v1alpha1/works")),
        Ask::merge(
            "Works: change another's",
            &other,
            spec(json!({"suspendDispatching": true})),
        ),
        Ask::merge(
            "Works: let another's go",
            &other,
            metadata(json!({"finalizers": null})),
        ),
        Ask::merge(
            "Works: report another's",
            &format!("{other}/status"),
            json!({"status": {"conditions": []}}),
        ),
        Ask::delete("Works: delete another's", &other),
        Ask::post("Works: make another's", &works(OTHER), work),
    ]
}

pub(super) fn bindings_and_policies() -> Vec<Ask> {
    let bindings = format!("{WORK}/v1alpha2/namespaces/default/resourcebindings");
    let selector = json!([{"apiVersion": "v1", "kind": "Secret"}]);
    let policy = |kind: &str| {
        json!({"apiVersion": "policy.karmada.io/v1alpha1", "kind": kind, "metadata": {"name": "x"},
            "spec": {"resourceSelectors": selector, "placement": {"clusterAffinity": {"clusterNames": [OWN]}}}})
    };
    let taints = json!({"apiVersion": "policy.karmada.io/v1alpha1", "kind": "ClusterTaintPolicy", "metadata": {"name": "x"},
        "spec": {"taintsToAdd": [{"key": "a", "effect": "NoExecute"}]}});
    vec![
        Ask::get("bindings: list", &bindings),
        Ask::get(
            "bindings: list everybody's",
            &format!("{WORK}/v1alpha2/resourcebindings"),
        ),
        Ask::post(
            "bindings: make one",
            &bindings,
            json!({"apiVersion": "work.karmada.io/v1alpha2", "kind": "ResourceBinding",
            "metadata": {"name": "x"}, "spec": {"resource": {"apiVersion": "v1", "kind": "Secret", "name": "x", "namespace": "default"},
            "clusters": [{"name": OWN}]}}),
        ),
        Ask::merge(
            "bindings: change one",
            &format!("{bindings}/x"),
            spec(json!({"clusters": [{"name": OWN}]})),
        ),
        Ask::delete("bindings: delete all", &bindings),
        Ask::get(
            "cluster bindings: list",
            &format!("{WORK}/v1alpha2/clusterresourcebindings"),
        ),
        Ask::get("policies: list", &format!("{POLICY}/propagationpolicies")),
        Ask::post(
            "policies: draw Secrets",
            &format!("{POLICY}/namespaces/default/propagationpolicies"),
            policy("PropagationPolicy"),
        ),
        Ask::post(
            "policies: draw everybody's Secrets",
            &format!("{POLICY}/clusterpropagationpolicies"),
            policy("ClusterPropagationPolicy"),
        ),
        Ask::post(
            "policies: taint everybody",
            &format!("{POLICY}/clustertaintpolicies"),
            taints,
        ),
        Ask::delete(
            "policies: delete those of taints",
            &format!("{POLICY}/clustertaintpolicies"),
        ),
    ]
}

pub(super) fn leases() -> Vec<Ask> {
    let leases =
        |namespace: &str| format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases");
    let lease = |name: &str| json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name}, "spec": {"holderIdentity": "x"}});
    let held = spec(json!({"holderIdentity": "x"}));
    let (cluster, system) = (leases("karmada-cluster"), leases("karmada-system"));
    vec![
        Ask::merge(
            "leases: beat for another",
            &format!("{cluster}/{OTHER}"),
            held.clone(),
        ),
        Ask::apply(
            "leases: apply another's",
            &format!("{cluster}/{OTHER}"),
            lease(OTHER),
        ),
        Ask::delete("leases: delete another's", &format!("{cluster}/{OTHER}")),
        Ask::delete("leases: delete its own", &format!("{cluster}/{OWN}")),
        Ask::merge(
            "leases: keep its own for ever",
            &format!("{cluster}/{OWN}"),
            json!({ "metadata": { "finalizers": ["example.com/mine"] } }),
        ),
        Ask::post("leases: make one", &cluster, lease("stolen-new")),
        Ask::get("leases: list", &cluster),
        Ask::get("leases: see another's", &format!("{cluster}/{OTHER}")),
        Ask::merge(
            "leases: lead the control plane",
            &format!("{system}/muster-control-plane"),
            held.clone(),
        ),
        Ask::apply(
            "leases: lead the control plane by apply",
            &format!("{system}/muster-control-plane"),
            lease("muster-control-plane"),
        ),
        Ask::apply(
            "leases: lead another's agents",
            &format!("{system}/karmada-agent-{OTHER}"),
            lease(&format!("karmada-agent-{OTHER}")),
        ),
        Ask::merge(
            "leases: lead the controllers",
            &format!("{}/kube-controller-manager", leases("kube-system")),
            held,
        ),
        Ask::post("leases: make one elsewhere", &leases("default"), lease(OWN)),
    ]
}
