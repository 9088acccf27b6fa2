"""What a linter of manifests looks for: objects that refer to each other, pods that can be probed, limited and confined."""

import pathlib
import re

import pytest
import yaml
from charting import AGENT, CONTROL_PLANE, MEMBER, OF_AGENT, OF_CONTROL_PLANE, containers, of_kind, pods, rendered

NARROW = {"preset": "workloads", "rules": [{"apiGroups": ["example.com"], "resources": ["x"], "verbs": ["get"]}]}
INSTALLATIONS = [
    *((CONTROL_PLANE, values) for values in ({}, OF_CONTROL_PLANE, {**OF_CONTROL_PLANE, "fleetApi": {"mode": "external"}})),
    *((AGENT, values) for values in (MEMBER, OF_AGENT, {**OF_AGENT, "rights": NARROW}, {**OF_AGENT, "rights": {"preset": "everything"}})),
]


def selected(selector, objects):
    return [pod for pod in pods(objects).values() if selector.items() <= pod["metadata"]["labels"].items()]


def ports(found):
    return [port["name"] for pod in found for each in pod["spec"]["containers"] for port in each.get("ports", [])]


@pytest.mark.parametrize(("path", "values"), INSTALLATIONS)
def test_services_budgets_monitors_and_bindings_name_what_there_is(path, values):
    objects = rendered(path, values)
    for each in objects:
        kind, spec, called = each["kind"], each.get("spec", {}), each["metadata"]["name"]
        if kind == "Service":
            found = selected(spec["selector"], objects)
            assert found, f"Service {called} selects pods of one part"
            assert {port["targetPort"] for port in spec["ports"]} <= set(ports(found)), f"Service {called} asks for ports that there are"
        if kind == "PodDisruptionBudget":
            assert len(selected(spec["selector"]["matchLabels"], objects)) == 1, f"budget {called} is about pods"
        if kind in ("RoleBinding", "ClusterRoleBinding"):
            role = (each["roleRef"]["kind"], each["roleRef"]["name"])
            assert role in {(one["kind"], one["metadata"]["name"]) for one in objects}, f"{called} binds a role that there is"
            accounts = {one["metadata"]["name"] for one in of_kind(objects, "ServiceAccount")}
            assert {one["name"] for one in each["subjects"]} <= accounts, f"{called} binds it to an account that there is"
        if kind == "PodMonitor":
            listed = spec["selector"].get("matchExpressions")
            wanted = set(listed[0]["values"]) if listed else {spec["selector"]["matchLabels"]["app.kubernetes.io/name"]}
            served = {pod["metadata"]["labels"]["app.kubernetes.io/name"] for pod in pods(objects).values() if "metrics" in ports([pod])}
            assert wanted == served, "every part that serves metrics is read, and no other"
        if kind == "ServiceMonitor":
            matched = [one["metadata"]["name"] for one in of_kind(objects, "Service") if spec["selector"]["matchLabels"].items() <= one["metadata"]["labels"].items()]
            assert matched and all(one.endswith("-metrics") for one in matched), f"{called} finds Services"


@pytest.mark.parametrize(("path", "values"), INSTALLATIONS)
def test_pods_are_confined(path, values):
    for part, pod in pods(rendered(path, values)).items():
        spec = pod["spec"]
        shared = [key for key in ("hostNetwork", "hostPID", "hostIPC") if spec.get(key)] + [each["name"] for each in spec.get("volumes", []) if "hostPath" in each]
        assert not shared, f"{part} has nothing of its node"
        assert spec["securityContext"]["runAsNonRoot"] and spec["securityContext"]["seccompProfile"]["type"] == "RuntimeDefault", f"{part} runs as nobody in particular, with the runtime's filter"
        for each in containers(pod):
            image, limits = each["image"], each["resources"]["limits"]
            assert re.search(r":[^/:]*\d[^/:]*$", image) and not image.endswith(":latest"), f"{part}/{each['name']} is of one version"
            assert "memory" in limits and "cpu" not in limits, f"{part}/{each['name']} is limited in memory, and never throttled"
        if spec.get("restartPolicy", "Always") == "Always":
            assert not [each["name"] for each in spec["containers"] if "livenessProbe" not in each], f"{part} is probed"


@pytest.mark.parametrize(("path", "values"), INSTALLATIONS)
def test_objects_say_by_which_chart_they_are_and_pods_do_not(path, values):
    objects = rendered(path, values)
    chart = yaml.safe_load(pathlib.Path(path, "Chart.yaml").read_text())
    version = {"helm.sh/chart": f"{chart['name']}-{chart['version']}"}
    missing = [each["metadata"]["name"] for each in objects if not version.items() <= each["metadata"].get("labels", {}).items()]
    assert not missing
    marked = [part for part, pod in pods(objects).items() if "helm.sh/chart" in pod["metadata"]["labels"]]
    assert not marked, "a new version of the chart alone replaces no pod"
