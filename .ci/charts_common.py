"""Checks of both charts: rendering, privileges, and what the death of one node does."""

from charting import check, container, external, rendered
from helm_python import chart as helm


def common(path, values, objects):
    kinds = sorted(each["kind"] for each in objects)
    check(f"{path}: renders", "Deployment" in kinds and "ServiceAccount" in kinds, str(kinds))
    deployment, main = container(objects)
    selector = deployment["spec"]["selector"]["matchLabels"]
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    check(f"{path}: selects its own pods", selector.items() <= labels.items())
    check(f"{path}: runs without privileges", main["securityContext"]["readOnlyRootFilesystem"] is True)
    check(f"{path}: has memory limits", "memory" in main["resources"]["limits"])
    survives_a_node(path, objects, deployment)
    lint = helm.lint(path, values=values)
    # Severities: 1 information, 2 warning, 3 error.
    errors = [message for message in lint.get("messages", []) if message.get("severity", 3) >= 2]
    check(f"{path}: lint", not errors, str(errors))


def survives_a_node(path, objects, deployment):
    """The death of one node, or a shortage of memory on it, silences nobody for longer than the monitor's grace."""
    pod = deployment["spec"]["template"]["spec"]
    check(f"{path}: more than one replica", deployment["spec"]["replicas"] >= 2)
    soon = {each["key"]: each.get("tolerationSeconds") for each in pod.get("tolerations", [])}
    for key in ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"):
        check(f"{path}: leaves a node that is {key} at once", soon.get(key) is not None and soon[key] <= 10, str(soon))
    spread = pod["affinity"]["podAntiAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    keys = {each["podAffinityTerm"]["topologyKey"] for each in spread}
    check(f"{path}: on different nodes", "kubernetes.io/hostname" in keys, str(keys))
    budget = [each for each in objects if each["kind"] == "PodDisruptionBudget" and each["metadata"]["name"] == deployment["metadata"]["name"]]
    check(f"{path}: a drain takes one at a time", [each["spec"]["maxUnavailable"] for each in budget] == [1], str(budget))
    classes = {each["metadata"]["name"]: each["value"] for each in objects if each["kind"] == "PriorityClass"}
    check(f"{path}: is preempted last", classes.get(pod["priorityClassName"], 0) >= 10**9, f"{pod['priorityClassName']} of {classes}")


def network_policy(path, values):
    """The peers that each port of the rendered policy admits; a port without peers admits everybody."""
    objects = external(path, values) if "control-plane" in path else rendered(path, values)
    policy = next(each for each in objects if each["kind"] == "NetworkPolicy")
    return {port["port"]: rule.get("from") for rule in policy["spec"]["ingress"] for port in rule["ports"]}
