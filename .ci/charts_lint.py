"""What a linter of manifests looks for: objects that refer to each other, pods that can be probed, limited and confined."""

import re

from charting import check, pods, rendered
from charts_values import AGENT, CONTROL_PLANE, MEMBER, OF_AGENT, OF_CONTROL_PLANE


def selected(selector, objects):
    return [pod for pod in pods(objects).values() if selector.items() <= pod["metadata"]["labels"].items()]


def refers(name, objects):
    """Services, budgets, monitors and bindings name what there is."""
    for each in objects:
        kind, spec, called = each["kind"], each.get("spec", {}), each["metadata"]["name"]
        if kind == "Service":
            found = selected(spec["selector"], objects)
            check(f"{name}: Service {called} selects pods of one part", len(found) >= 1, str(spec["selector"]))
            open_ports = {port["name"] for pod in found for container in pod["spec"]["containers"] for port in container.get("ports", [])}
            asked = {port["targetPort"] for port in spec["ports"]}
            check(f"{name}: Service {called} asks for ports that there are", asked <= open_ports, f"{asked} of {open_ports}")
        if kind == "PodDisruptionBudget":
            check(f"{name}: budget {called} is about pods", len(selected(spec["selector"]["matchLabels"], objects)) == 1, str(spec))
        if kind in ("RoleBinding", "ClusterRoleBinding"):
            role = (each["roleRef"]["kind"], each["roleRef"]["name"])
            check(f"{name}: {called} binds a role that there is", role in {(one["kind"], one["metadata"]["name"]) for one in objects}, str(role))
            accounts = {one["metadata"]["name"] for one in objects if one["kind"] == "ServiceAccount"}
            check(f"{name}: {called} binds it to an account that there is", {one["name"] for one in each["subjects"]} <= accounts, str(each["subjects"]))
        if kind == "PodMonitor":
            listed = spec["selector"].get("matchExpressions")
            wanted = set(listed[0]["values"]) if listed else {spec["selector"]["matchLabels"]["app.kubernetes.io/name"]}
            served = {pod["metadata"]["labels"]["app.kubernetes.io/name"] for pod in pods(objects).values() for one in pod["spec"]["containers"] for port in one.get("ports", []) if port["name"] == "metrics"}
            check(f"{name}: every part that serves metrics is read, and no other", wanted == served, f"{wanted} and {served}")
        if kind == "ServiceMonitor":
            matched = [one for one in objects if one["kind"] == "Service" and spec["selector"]["matchLabels"].items() <= one["metadata"]["labels"].items()]
            check(f"{name}: {called} finds Services", len(matched) >= 1 and all(one["metadata"]["name"].endswith("-metrics") for one in matched), str([one["metadata"]["name"] for one in matched]))


def confined(name, objects):
    for part, pod in pods(objects).items():
        spec = pod["spec"]
        shared = [key for key in ("hostNetwork", "hostPID", "hostIPC") if spec.get(key)] + [each["name"] for each in spec.get("volumes", []) if "hostPath" in each]
        check(f"{name}: {part} has nothing of its node", not shared, str(shared))
        check(f"{name}: {part} runs as nobody in particular, with the runtime's filter", spec["securityContext"]["runAsNonRoot"] and spec["securityContext"]["seccompProfile"]["type"] == "RuntimeDefault")
        for each in spec["containers"] + spec.get("initContainers", []):
            image = each["image"]
            check(f"{name}: {part}/{each['name']} is of one version", re.search(r":[^/:]*\d[^/:]*$", image) is not None and not image.endswith(":latest"), image)
            limits = each["resources"]["limits"]
            check(f"{name}: {part}/{each['name']} is limited in memory, and never throttled", "memory" in limits and "cpu" not in limits, str(limits))
        if spec.get("restartPolicy", "Always") == "Always":
            unprobed = [each["name"] for each in spec["containers"] if "livenessProbe" not in each]
            check(f"{name}: {part} is probed", not unprobed, str(unprobed))


def lint():
    for path, several in [(CONTROL_PLANE, [{}, OF_CONTROL_PLANE, {**OF_CONTROL_PLANE, "fleetApi": {"mode": "external"}}]), (AGENT, [MEMBER, OF_AGENT, {**OF_AGENT, "rights": {"preset": "workloads", "rules": [{"apiGroups": ["example.com"], "resources": ["x"], "verbs": ["get"]}]}}])]:
        for number, values in enumerate(several):
            objects = rendered(path, values)
            refers(f"{path} ({number})", objects)
            confined(f"{path} ({number})", objects)
