"""The charts on a real kube-apiserver: installed twice, upgraded, refused where they should be, and uninstalled."""

import contextlib
import json
import pathlib

import pytest
import yaml
from charting import AGENT, CONTROL_PLANE, OF_AGENT, OF_CONTROL_PLANE, chosen, pasted, rendered
from cluster import answered, default_class, upgrade
from real_api import apply, kubectl, until

MONITORING = ["PodMonitor", "ServiceMonitor", "PrometheusRule"]


def test_preflight(cluster):
    _, words = cluster.install(CONTROL_PLANE, {})
    assert "no default StorageClass: set fleetApi.etcd.s" in words and "there are: none" in words, f"no storage class: refused before anything is made, with the value to set: {words}"
    assert not cluster.names("deployments,statefulsets,services,secrets", "muster-system"), "and nothing is left behind"
    cluster.apply({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "slow"}, "provisioner": "example.com/none"})
    _, words = cluster.install(CONTROL_PLANE, {"fleetApi": {"etcd": {"storage": {"className": "fast"}, "snapshots": {"className": "slow"}}}})
    assert 'no StorageClass "fast"' in words and "there are: slow" in words, f"a storage class that is not there: the same, with those that are: {words}"
    release, words = cluster.install(CONTROL_PLANE, {"fleetApi": {"etcd": {"storage": {"className": "slow"}, "snapshots": {"className": "slow"}}}}, name="named", namespace="scratch")
    assert release is not None, f"a storage class that is there will do: {words}"
    emptied = chosen(CONTROL_PLANE, {"fleetApi": {"etcd": {"storage": {"className": "slow"}}}})
    _, words = answered(lambda: cluster.helm("scratch").upgrade(CONTROL_PLANE, "named", emptied))
    assert "-snapshots is there with slow" in words, f"no class any more for the claim of the snapshots: refused before the upgrade: {words}"
    cluster.helm("scratch").uninstall("named")
    release, words = cluster.install(CONTROL_PLANE, {"preflight": False}, name="unasked", namespace="scratch")
    assert release is not None, f"and nothing is checked where that is not wanted: {words}"
    cluster.helm("scratch").uninstall("unasked")
    default_class(cluster)


def test_life(cluster):
    helm = cluster.helm("muster-system")
    release, words = cluster.install(CONTROL_PLANE, {"fleetApi": {"service": {"type": "NodePort", "nodePort": 30443}}})
    assert release is not None, f"a real API takes every object of charts/control-plane: {words}"
    said = release["notes"] if release else ""
    assert "rollout status deployment/muster-fleet-certificates" in said and not [word for word in ("CHART", "RELEASE", "...", "<") if word in said], f"the notes name the next commands, whole: {said}"
    _, words = cluster.install(CONTROL_PLANE, {})
    assert "cannot re-use a name" in words or "cannot reuse a name" in words, f"the same name twice: refused: {words}"
    _, words = cluster.install(CONTROL_PLANE, {"fleetApi": {"service": {"type": "NodePort", "nodePort": 30443}}}, namespace="second")
    assert "30443" in words and "already allocated" in words, f"a port that is in use: refused, with the port: {words}"
    with contextlib.suppress(Exception):
        cluster.helm("second").uninstall("muster")
    release, words = cluster.install(CONTROL_PLANE, {}, namespace="third")
    assert release is not None, f"two installations in one cluster: {words}"
    before = cluster.names("deployments,statefulsets,services,poddisruptionbudgets,roles", "muster-system")
    assert before and before == cluster.names("deployments,statefulsets,services,poddisruptionbudgets,roles", "third"), "do not touch each other"

    _, words = upgrade(helm, CONTROL_PLANE, OF_CONTROL_PLANE)
    assert "PodMonitor" in words and "no matches for kind" in words, f"monitors without the operator: refused, with the kind that is missing: {words}"
    for kind in MONITORING:
        plural = kind.lower() + "s"
        schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
        spec = {"group": "monitoring.coreos.com", "scope": "Namespaced", "names": {"kind": kind, "plural": plural}, "versions": [{"name": "v1", "served": True, "storage": True, "schema": schema}]}
        cluster.apply({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": f"{plural}.monitoring.coreos.com"}, "spec": spec})
    path = "/apis/monitoring.coreos.com/v1"
    until(60, "the kinds of the operator are served", lambda: all(each.lower() + "s" in kubectl(cluster.kubeconfig, "get", "--raw", path)[1] for each in MONITORING))
    production = {"fleetApi": {"profile": "production"}}
    _, words = upgrade(cluster.helm("muster-system"), CONTROL_PLANE, production)
    assert "--set fleetApi.profile=trial" in words and "fleetApi.etcd.restore" in words, f"three members of etcd in place of one: refused, with what to do: {words}"
    _, words = upgrade(cluster.helm("muster-system"), CONTROL_PLANE, {"fullnameOverride": "other"})
    assert "fullnameOverride=muster" in words, f"another name: refused, with the one that it has: {words}"
    restored = {"fleetApi": {"profile": "production", "etcd": {"restore": "x.db", "snapshots": {"accessMode": "ReadWriteMany"}}}}
    _, words = upgrade(cluster.helm("muster-system"), CONTROL_PLANE, restored)
    assert "muster-fleet-etcd-snapshots is there with ReadWriteOnce" in words, f"another mode of a claim that is there: refused, with what to do: {words}"
    for refused, reason in (
        ({"priorityClass": {"value": 5}}, "muster-muster-system is there with 1000000000"),
        ({"nameOverride": "else"}, "nameOverride=muster-control-plane"),
        ({"fleetApi": {"etcd": {"snapshots": {"className": "fast"}}}}, "muster-fleet-etcd-snapshots is there with slow"),
        ({"fleetApi": {"etcd": {"snapshots": {"size": "900Mi"}}}}, "muster-fleet-etcd-snapshots is there with 8Gi"),
        ({"fleetApi": {"etcd": {"storage": {"size": "16Gi"}}}}, "muster-fleet-etcd is there with 8Gi"),
        ({"fleetApi": {"etcd": {"storage": {"className": "slow"}}}}, "muster-fleet-etcd is there with none"),
        ({"fleetApi": {"clusterDomain": "example.com"}}, "extraArgs={--service-account-issuer=https://kubernetes.default.svc.cluster.local}"),
    ):
        _, words = upgrade(cluster.helm("muster-system"), CONTROL_PLANE, refused)
        assert reason in words, f"what the API would refuse in the midst of an upgrade: refused before it: {words}"
    own = {"type": "LoadBalancer", "loadBalancerClass": "example.com/own"}
    for service, reason in ((own, None), ({"type": "LoadBalancer"}, "muster-fleet-api is there with example.com/own"), ({}, None)):
        release, words = upgrade(cluster.helm("third"), CONTROL_PLANE, {"fleetApi": {"service": service}})
        assert reason in words if reason else release is not None, f"another class of a load balancer that is there: refused before the upgrade: {words}"
    code, words = kubectl(cluster.kubeconfig, "patch", "service", "muster-fleet-api", "--namespace=third", "--type=merge", "--patch", json.dumps({"spec": own}))
    assert code == 0, words
    release, words = upgrade(cluster.helm("third"), CONTROL_PLANE, {"fleetApi": {"service": {"type": "LoadBalancer"}}})
    assert release is not None, f"a class that is not the chart's, as one of the cluster's admission: it stays: {words}"
    beside = {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "podAffinityTerm": {"topologyKey": "kubernetes.io/hostname", "labelSelector": {}}}]}}
    restored["fleetApi"]["etcd"] |= {"affinity": beside, "snapshots": {}}
    release, words = upgrade(cluster.helm("muster-system"), CONTROL_PLANE, restored)
    assert release is not None, f"but for a snapshot that is restored: {words}"
    cluster.helm("muster-system").rollback("muster")
    release, words = upgrade(cluster.helm("muster-system"), CONTROL_PLANE, OF_CONTROL_PLANE)
    assert release is not None, f"everything on: a real API takes it as an upgrade: {words}"
    helm = cluster.helm("muster-system")
    helm.rollback("muster")
    # What the controller makes at run time is nobody's to remove.
    cluster.apply({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "muster-fleet-ca", "namespace": "muster-system"}})
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    cluster.apply({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data-muster-fleet-etcd-0", "namespace": "muster-system"}, "spec": claim})
    helm.uninstall("muster")
    left = {each for each in cluster.names("deployments,statefulsets,cronjobs,services,secrets,configmaps,persistentvolumeclaims,roles", "muster-system") if each[1] != "kube-root-ca.crt"}
    expected = {("Secret", "muster-fleet-ca"), ("PersistentVolumeClaim", "data-muster-fleet-etcd-0"), ("PersistentVolumeClaim", "muster-fleet-etcd-snapshots")}
    assert left == expected, f"helm uninstall keeps authorities, the store and its snapshots, and nothing else: {left ^ expected}"
    _, words = cluster.install(CONTROL_PLANE, production)
    assert "--set fleetApi.profile=trial" in words, f"installed again with three members beside the volume of one: refused: {words}"
    release, words = cluster.install(CONTROL_PLANE, {})
    assert release is not None, f"installed again, it finds them: {words}"


def test_agent(cluster):
    release, words = cluster.install(AGENT, {"clusterName": "member1", "fleet": {"server": "https://fleet.example.com", "token": "abcdef.0123456789abcdef"}}, namespace="member")
    assert release is not None, f"a real API takes every object of charts/agent: {words}"
    for values in (OF_AGENT, {**OF_AGENT, "rights": {"preset": "everything"}}):
        release, words = upgrade(cluster.helm("member"), AGENT, values)
        assert release is not None, f"and of an upgrade to {sorted(values)}: {words}"
    _, words = upgrade(cluster.helm("member"), AGENT, {**OF_AGENT, "nameOverride": "else"})
    assert "nameOverride=muster-agent" in words, f"another name of its pods: refused before the upgrade: {words}"
    cluster.apply({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "muster-fleet-kubeconfig", "namespace": "member"}})
    workload = {"selector": {"matchLabels": {"a": "b"}}, "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "x", "image": "x"}]}}}
    cluster.apply({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "placed", "namespace": "member", "labels": {"work.karmada.io/name": "x"}}, "spec": workload})
    cluster.helm("member").uninstall("muster")
    left = {each for each in cluster.names("deployments,secrets,services,configmaps,roles", "member") if each[1] != "kube-root-ca.crt"}
    assert left == {("Secret", "muster-fleet-kubeconfig"), ("Deployment", "placed")}, f"helm uninstall of an agent keeps its certificate and every workload: {left}"


def test_kinds_roles_and_webhooks_of_the_fleet(cluster):
    values = {"fleetApi": {"mode": "external"}, "definitions": {"create": True}, "access": {"create": True, "members": ["m1"], "secrets": True, "registration": True}, "webhook": {"configure": True}}
    ours = [each for each in rendered(CONTROL_PLANE, values) if each["kind"] in ("CustomResourceDefinition", "ClusterRole", "ClusterRoleBinding", "Namespace") or "Webhook" in each["kind"]]
    apply(cluster.kubeconfig, yaml.safe_dump_all(ours), "--dry-run=server", *([] if cluster.validates else ["--validate=false"]))
    cluster.apply(*(each for each in ours if each["kind"] == "CustomResourceDefinition"))
    path = "/apis/policy.karmada.io/v1alpha1"
    until(60, "the kinds of the fleet are served", lambda: "propagationpolicies" in kubectl(cluster.kubeconfig, "get", "--raw", path)[1])


@pytest.mark.parametrize(("page", "text"), pasted(), ids=lambda given: given.name if isinstance(given, pathlib.Path) else "")
def test_what_the_readme_and_the_manual_have_people_paste(cluster, page, text):
    apply(cluster.kubeconfig, text, "--dry-run=server", "--validate=false")


def test_there_is_something_to_paste():
    assert len(pasted()) >= 4
