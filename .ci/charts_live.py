"""The charts on a real kube-apiserver: installed twice, upgraded, refused where they should be, and uninstalled."""

import contextlib
import json
import pathlib
import ssl
import sys
import time
import urllib.error
import urllib.request

import yaml
from charting import FAILURES, check, pasted, rendered
from charts_values import AGENT, CONTROL_PLANE, OF_AGENT, OF_CONTROL_PLANE
from helm_python import Config, config
from real_api import TOKEN, api, kubectl

MONITORING = ["PodMonitor", "ServiceMonitor", "PrometheusRule"]


class Cluster:
    def __init__(self, kubeconfig):
        self.kubeconfig = kubeconfig
        # Whether objects are compared with the description of their kinds before they are sent.
        self.validates = True

    def apply(self, *objects):
        code, said = kubectl(self.kubeconfig, "apply", "--server-side", "--validate=false", "-f", "-", given=yaml.safe_dump_all(objects))
        assert code == 0, said

    def names(self, kinds, namespace):
        code, said = kubectl(self.kubeconfig, "-n", namespace, "get", kinds, "-o", "json")
        assert code == 0, said
        return {(each["kind"], each["metadata"]["name"]) for each in json.loads(said)["items"]}

    def helm(self, namespace):
        return Config(kubeconfig_path=self.kubeconfig, namespace=namespace)

    def install(self, chart, values, name="muster", namespace="muster-system"):
        """The release, or the words of the refusal."""
        self.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
        return answered(lambda: self.helm(namespace).install(chart, name, values, namespace=namespace))


def answered(ask):
    """The answer, or the words of the refusal. An API that describes its kinds anew, as it does after
    each new one, is asked again: Helm gives up before it has changed anything."""
    for _ in range(20):
        try:
            return ask(), ""
        except Exception as error:  # noqa: BLE001 - the engine has one error class per cause
            words = str(error)
        if "failed to download openapi" not in words:
            break
        time.sleep(0.5)
    return None, words


def validate(cluster):
    """Helm compares objects with the description of all kinds in protobuf. An API server that was built
    against other libraries than upstream's has none; there the API's own validation has to do."""
    what = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
    server = yaml.safe_load(pathlib.Path(cluster.kubeconfig).read_text())["clusters"][0]["cluster"]["server"]
    asked = urllib.request.Request(f"{server}/openapi/v2", headers={"Accept": what, "Authorization": f"Bearer {TOKEN}"})
    trusting = ssl.create_default_context()
    trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
    try:
        urllib.request.urlopen(asked, context=trusting).close()
    except urllib.error.HTTPError as error:
        cluster.validates = False
        print(f"the API describes its kinds with {error.code}: objects are NOT compared with it before they are sent")
        plain = config._opts
        config._opts = lambda **given: plain(**given, **({"disable_openapi_validation": True} if "rollback_on_failure" in given else {}))


def preflight(cluster):
    _, words = cluster.install(CONTROL_PLANE, {})
    check("no storage class: refused before anything is made, with the value to set", "no default StorageClass: set fleetApi.etcd.s" in words and "there are: none" in words, words)
    check("and nothing is left behind", not cluster.names("deployments,statefulsets,services,secrets", "muster-system"))
    cluster.apply({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "slow"}, "provisioner": "example.com/none"})
    _, words = cluster.install(CONTROL_PLANE, {"fleetApi": {"etcd": {"storage": {"className": "fast"}, "snapshots": {"className": "slow"}}}})
    check("a storage class that is not there: the same, with those that are", 'no StorageClass "fast"' in words and "there are: slow" in words, words)
    release, words = cluster.install(CONTROL_PLANE, {"fleetApi": {"etcd": {"storage": {"className": "slow"}, "snapshots": {"className": "slow"}}}}, name="named", namespace="scratch")
    check("a storage class that is there will do", release is not None, words)
    cluster.helm("scratch").uninstall("named")
    release, words = cluster.install(CONTROL_PLANE, {"preflight": False}, name="unasked", namespace="scratch")
    check("and nothing is looked at where that is not wanted", release is not None, words)
    cluster.helm("scratch").uninstall("unasked")
    default_class(cluster)


def default_class(cluster):
    default = {"storageclass.kubernetes.io/is-default-class": "true"}
    cluster.apply({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "slow", "annotations": default}, "provisioner": "example.com/none"})


def life(cluster):
    helm = cluster.helm("muster-system")
    release, words = cluster.install(CONTROL_PLANE, {"fleetApi": {"service": {"type": "NodePort", "nodePort": 30443}}})
    check("a real API takes every object of charts/control-plane", release is not None, words)
    said = release["notes"] if release else ""
    check("the notes name the next commands, whole", "rollout status deployment/muster-fleet-certificates" in said and not [word for word in ("CHART", "RELEASE", "...", "<") if word in said], said)
    _, words = cluster.install(CONTROL_PLANE, {})
    check("the same name twice: refused", "cannot re-use a name" in words or "cannot reuse a name" in words, words)
    _, words = cluster.install(CONTROL_PLANE, {"fleetApi": {"service": {"type": "NodePort", "nodePort": 30443}}}, namespace="second")
    check("a port that is in use: refused, with the port", "30443" in words and "already allocated" in words, words)
    with contextlib.suppress(Exception):
        cluster.helm("second").uninstall("muster")
    release, words = cluster.install(CONTROL_PLANE, {}, namespace="third")
    check("two installations in one cluster", release is not None, words)
    before = cluster.names("deployments,statefulsets,services,poddisruptionbudgets,roles", "muster-system")
    check("do not touch each other", before and before == cluster.names("deployments,statefulsets,services,poddisruptionbudgets,roles", "third"))

    _, words = upgrade(helm, CONTROL_PLANE, OF_CONTROL_PLANE)
    check("monitors without the operator: refused, with the kind that is missing", "PodMonitor" in words and "no matches for kind" in words, words)
    for kind in MONITORING:
        plural = kind.lower() + "s"
        schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
        spec = {"group": "monitoring.coreos.com", "scope": "Namespaced", "names": {"kind": kind, "plural": plural}, "versions": [{"name": "v1", "served": True, "storage": True, "schema": schema}]}
        cluster.apply({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": f"{plural}.monitoring.coreos.com"}, "spec": spec})
    deadline = time.monotonic() + 60
    while not all(each.lower() + "s" in kubectl(cluster.kubeconfig, "get", "--raw", "/apis/monitoring.coreos.com/v1")[1] for each in MONITORING):
        assert time.monotonic() < deadline, "the kinds of the operator are not served"
        time.sleep(0.5)
    high = yaml.safe_load(pathlib.Path(CONTROL_PLANE, "values-ha.yaml").read_text())
    for values in (high, {"fleetApi": {"etcd": {"replicas": 3}}}):
        _, words = upgrade(cluster.helm("muster-system"), CONTROL_PLANE, values)
        check(f"three members of etcd in place of one, by {sorted(values)}: refused, with what to do", "--set fleetApi.etcd.replicas=1" in words and "fleetApi.etcd.restore" in words, words)
    _, words = upgrade(cluster.helm("muster-system"), CONTROL_PLANE, {"fullnameOverride": "other"})
    check("another name: refused, with the one that it has", "fullnameOverride=muster" in words, words)
    release, words = upgrade(cluster.helm("muster-system"), CONTROL_PLANE, {"fleetApi": {"etcd": {"replicas": 3, "restore": "x.db"}}})
    check("but for a snapshot that is restored", release is not None, words)
    cluster.helm("muster-system").rollback("muster")
    fixed = {**high, "fleetApi": {part: each for part, each in high["fleetApi"].items() if part != "etcd"}}
    release, words = upgrade(cluster.helm("muster-system"), CONTROL_PLANE, {**OF_CONTROL_PLANE, **fixed})
    check("everything on: a real API takes it as an upgrade", release is not None, words)
    helm = cluster.helm("muster-system")
    helm.rollback("muster")
    # What the controller makes at run time is nobody's to remove.
    cluster.apply({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "muster-fleet-ca", "namespace": "muster-system"}})
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    cluster.apply({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data-muster-fleet-etcd-0", "namespace": "muster-system"}, "spec": claim})
    helm.uninstall("muster")
    left = {each for each in cluster.names("deployments,statefulsets,cronjobs,services,secrets,configmaps,persistentvolumeclaims,roles", "muster-system") if each[1] != "kube-root-ca.crt"}
    expected = {("Secret", "muster-fleet-ca"), ("PersistentVolumeClaim", "data-muster-fleet-etcd-0"), ("PersistentVolumeClaim", "muster-fleet-etcd-snapshots")}
    check("helm uninstall keeps authorities, the store and its snapshots, and nothing else", left == expected, str(left ^ expected))
    _, words = cluster.install(CONTROL_PLANE, high)
    check("installed again with three members beside the volume of one: refused", "--set fleetApi.etcd.replicas=1" in words, words)
    release, words = cluster.install(CONTROL_PLANE, {})
    check("installed again, it finds them", release is not None, words)


def upgrade(helm, chart, values):
    return answered(lambda: helm.upgrade(chart, "muster", values))


def agent(cluster):
    release, words = cluster.install(AGENT, {"clusterName": "member1", "fleet": {"server": "https://fleet.example.com", "token": "abcdef.0123456789abcdef"}}, namespace="member")
    check("a real API takes every object of charts/agent", release is not None, words)
    for values in (OF_AGENT, {**OF_AGENT, "rights": {"preset": "workloads"}}):
        release, words = upgrade(cluster.helm("member"), AGENT, values)
        check(f"{AGENT}: and of an upgrade to {sorted(values)}", release is not None, words)
    cluster.apply({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "muster-fleet-kubeconfig", "namespace": "member"}})
    workload = {"selector": {"matchLabels": {"a": "b"}}, "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "x", "image": "x"}]}}}
    cluster.apply({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "placed", "namespace": "member", "labels": {"work.karmada.io/name": "x"}}, "spec": workload})
    cluster.helm("member").uninstall("muster")
    left = {each for each in cluster.names("deployments,secrets,services,configmaps,roles", "member") if each[1] != "kube-root-ca.crt"}
    check("helm uninstall of an agent keeps its certificate and every workload", left == {("Secret", "muster-fleet-kubeconfig"), ("Deployment", "placed")}, str(left))


def fleet_objects(cluster):
    values = {"fleetApi": {"mode": "external"}, "definitions": {"create": True}, "access": {"create": True, "members": ["m1"], "secrets": True, "registration": True}, "webhook": {"configure": True}}
    ours = [each for each in rendered(CONTROL_PLANE, values) if each["kind"] in ("CustomResourceDefinition", "ClusterRole", "ClusterRoleBinding", "Namespace") or "Webhook" in each["kind"]]
    loosely = [] if cluster.validates else ["--validate=false"]
    code, said = kubectl(cluster.kubeconfig, "apply", "--server-side", "--dry-run=server", *loosely, "-f", "-", given=yaml.safe_dump_all(ours))
    check("a real API takes the kinds, roles and webhooks of the fleet", code == 0, said)
    cluster.apply(*(each for each in ours if each["kind"] == "CustomResourceDefinition"))
    deadline = time.monotonic() + 60
    while "propagationpolicies" not in kubectl(cluster.kubeconfig, "get", "--raw", "/apis/policy.karmada.io/v1alpha1")[1]:
        assert time.monotonic() < deadline, "the kinds of the fleet are not served"
        time.sleep(0.5)
    manifests = pasted()
    for page, text in manifests:
        code, said = kubectl(cluster.kubeconfig, "apply", "--server-side", "--dry-run=server", "--validate=false", "-f", "-", given=text)
        kinds = [each["kind"] for each in yaml.safe_load_all(text)]
        check(f"{page}: a real API takes {', '.join(kinds)}", code == 0, said)
    check("README and manual: there is something to paste", len(manifests) >= 4, str(len(manifests)))


if __name__ == "__main__":
    with api() as where:
        there = Cluster(where)
        validate(there)
        preflight(there)
        life(there)
        agent(there)
        fleet_objects(there)
    print(f"charts on a real API: {len(FAILURES)} failed")
    sys.exit(1 if FAILURES else 0)
