"""Helpers of tests of the charts: rendering with a real Helm engine, values that turn everything on, and checks of both charts."""

import pathlib
import re

import yaml
from helm_python import chart as helm

CONTROL_PLANE = "charts/control-plane"
AGENT = "charts/agent"
MEMBER = {"clusterName": "member1"}
EVERYTHING = {
    "networkPolicy": {"enabled": True, "metricsFrom": [{"namespaceSelector": {}}]},
    "metrics": {"podMonitor": {"enabled": True}, "serviceMonitor": {"enabled": True}},
    "prometheusRule": {"enabled": True},
    "commonLabels": {"team": "platform"},
}
OF_CONTROL_PLANE = {**EVERYTHING, "dashboards": {"enabled": True}, "webhook": {"enabled": True}}
OF_AGENT = {**EVERYTHING, **MEMBER, "fleet": {"server": "https://fleet.example.com:8443", "token": "abcdef.0123456789abcdef"}}
# Each chart with the fewest values that it takes, beside the profile, and with everything on.
PLAIN = [(CONTROL_PLANE, {}), (AGENT, MEMBER)]
FULL = [(CONTROL_PLANE, OF_CONTROL_PLANE), (AGENT, OF_AGENT)]


def pasted():
    """The manifests that the README and the manual have people paste, as (page, text) pairs."""
    pages = [pathlib.Path("README.md"), *sorted(pathlib.Path(".github/manual").glob("*.md"))]
    return [(page, text) for page in pages for text in re.findall(r"<<'YAML'\n(.*?)\nYAML\n", page.read_text(), flags=re.S)]


def chosen(path, values):
    """Values of a chart with what it asks for: a control plane whose profile does not matter is a trial."""
    return {**values, "fleetApi": {"profile": "trial", **values.get("fleetApi", {})}} if path == CONTROL_PLANE else values


def files(path, values, namespace="muster-system", release="muster"):
    """The rendered templates by their names."""
    with helm.Chart.load(path) as chart:
        return chart.render(values=chosen(path, values), name=release, namespace=namespace)


def rendered(path, values, namespace="muster-system", release="muster"):
    """The objects that an install would create."""
    texts = [text for name, text in files(path, values, namespace, release).items() if name.endswith((".yaml", ".yml"))]
    return [each for text in texts for each in yaml.load_all(text, yaml.CSafeLoader) if each]


def external(values, path=CONTROL_PLANE):
    """The objects of a control plane whose fleet API somebody else runs."""
    return rendered(path, {"fleetApi": {"mode": "external"}, **values})


def words_of(ask):
    """The words of a refusal, or an empty text."""
    try:
        ask()
    except Exception as error:  # noqa: BLE001 - the engine has one error class per cause
        return str(error)
    return ""


def refused(path, values):
    """The engine's words when the schema refuses values."""
    with helm.Chart.load(path) as chart:
        return words_of(lambda: chart.validate_schema(values=values))


def fails(path, values):
    """The engine's words when rendering fails."""
    return words_of(lambda: rendered(path, values))


def of_kind(objects, *kinds):
    return [each for each in objects if each["kind"] in kinds]


def named(objects, kind, name):
    return next(each for each in of_kind(objects, kind) if each["metadata"]["name"] == name)


def container(objects, name="muster"):
    """A Deployment, and its first container."""
    deployment = named(objects, "Deployment", name)
    return deployment, deployment["spec"]["template"]["spec"]["containers"][0]


def arguments(objects, name="muster"):
    return container(objects, name)[1]["args"]


def secrets_of(deployment):
    """The Secrets that the pods of a Deployment mount, and whether each may be missing."""
    return [(each["secret"]["secretName"], each["secret"].get("optional")) for each in deployment["spec"]["template"]["spec"]["volumes"]]


def flags(command):
    return dict(each.split("=", 1) for each in command if each.startswith("--"))


def rules(objects, kind, name, namespace=None):
    """The rules of a role, by what it is called and where it lives."""
    for each in of_kind(objects, kind):
        metadata = each["metadata"]
        if metadata["name"] == name and metadata.get("namespace") == namespace:
            return each["rules"]
    return []


def pods(objects):
    """The pod templates of all objects, by the name of the object."""
    found = {each["metadata"]["name"]: each["spec"]["template"] for each in of_kind(objects, "Deployment", "StatefulSet")}
    return found | {each["metadata"]["name"]: each["spec"]["jobTemplate"]["spec"]["template"] for each in of_kind(objects, "CronJob")}


def containers(pod):
    return pod["spec"]["containers"] + pod["spec"].get("initContainers", [])


def images(objects):
    return [each["image"] for pod in pods(objects).values() for each in containers(pod)]


def admitted(objects):
    """The peers that each port of the first network policy admits; a port without peers admits everybody."""
    policy = of_kind(objects, "NetworkPolicy")[0]
    return {port["port"]: rule.get("from") for rule in policy["spec"]["ingress"] for port in rule["ports"]}


def sound(path, values, objects):
    """Checks every rendering: privileges, and the death of one node."""
    kinds = {each["kind"] for each in objects}
    assert {"Deployment", "ServiceAccount"} <= kinds, "renders"
    deployment, main = container(objects)
    selector = deployment["spec"]["selector"]["matchLabels"]
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert selector.items() <= labels.items(), "selects its own pods"
    assert main["securityContext"]["readOnlyRootFilesystem"] is True, "runs without privileges"
    assert "memory" in main["resources"]["limits"], "has memory limits"
    survives_a_node(objects, deployment)
    # Severities: 1 information, 2 warning, 3 error.
    errors = [message for message in helm.lint(path, values=chosen(path, values)).get("messages", []) if message.get("severity", 3) >= 2]
    assert not errors, "lint"


def survives_a_node(objects, deployment):
    """The death of one node, or a shortage of memory on it, silences nobody for longer than the monitor's grace."""
    pod = deployment["spec"]["template"]["spec"]
    assert deployment["spec"]["replicas"] >= 2, "more than one replica"
    soon = {each["key"]: each.get("tolerationSeconds") for each in pod.get("tolerations", [])}
    for key in ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"):
        assert soon.get(key) is not None and soon[key] <= 10, f"leaves a node that is {key} at once"
    spread = pod["affinity"]["podAntiAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    assert "kubernetes.io/hostname" in {each["podAffinityTerm"]["topologyKey"] for each in spread}, "on different nodes"
    budget = [each for each in of_kind(objects, "PodDisruptionBudget") if each["metadata"]["name"] == deployment["metadata"]["name"]]
    assert [each["spec"]["maxUnavailable"] for each in budget] == [1], "a drain takes one at a time"
    classes = {each["metadata"]["name"]: each["value"] for each in of_kind(objects, "PriorityClass")}
    assert classes.get(pod["priorityClassName"], 0) >= 10**9, "is preempted last"
