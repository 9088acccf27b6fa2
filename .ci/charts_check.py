"""The Pod of `helm test` and the start-up Job, which run `kubectl muster check` from within."""

from charting import check, fails, refused, rendered
from charts_values import AGENT, CONTROL_PLANE, OF_AGENT, OF_CONTROL_PLANE


def checks():
    on = {"check": {"test": True, "job": True, "wait": "90s", "skip": ["ready", "room"]}}
    for path, several, secret in [
        (CONTROL_PLANE, [{}, OF_CONTROL_PLANE], "muster-fleet-control-plane"),
        (CONTROL_PLANE, [{"fleetApi": {"mode": "external"}}], "muster-fleet-kubeconfig"),
        (AGENT, [OF_AGENT], "muster-fleet-kubeconfig"),
    ]:
        for values in several:
            there = {each["kind"]: each for each in rendered(path, {**values, **on}) if "check" in each["metadata"]["name"] and each["kind"] != "NetworkPolicy"}
            check(f"{path}: a Pod and a Job check an installation", set(there) == {"Pod", "Job"}, str(set(there)))
            hooks = {kind: each["metadata"]["annotations"]["helm.sh/hook"] for kind, each in there.items()}
            check(f"{path}: the Pod is for helm test, the Job for installations", hooks == {"Pod": "test", "Job": "post-install,post-upgrade"}, str(hooks))
            for kind, spec in [("Pod", there["Pod"]["spec"]), ("Job", there["Job"]["spec"]["template"]["spec"])]:
                container = spec["containers"][0]
                asked = container["args"]
                check(f"{path}: {kind} waits, and leaves out what it is told", {"check", "--wait=90s", "--skip=ready,room"} <= set(asked), str(asked))
                check(f"{path}: {kind} uses the credentials of the installation", [each["secret"]["secretName"] for each in spec["volumes"]] == [secret], str(spec["volumes"]))
                confined = spec["restartPolicy"] == "Never" and spec["securityContext"]["runAsNonRoot"] and container["securityContext"]["readOnlyRootFilesystem"]
                check(f"{path}: {kind} is confined and limited", confined and "memory" in container["resources"]["limits"], str(spec))
            selectors = [each["spec"]["selector"] for each in rendered(path, {**values, **on}) if each["kind"] == "Service"]
            labels = there["Pod"]["metadata"]["labels"]
            check(f"{path}: no Service sends anything to the Pod", not [each for each in selectors if each.items() <= labels.items()], str(labels))
        wrong = {**several[0], "check": {"wait": "soon"}}
        check(f"{path}: a wait that is no duration is refused", "wait" in ((refused(path, wrong) or "") + fails(path, wrong)))
    admitted()


def admitted():
    """The Pod and the Job are guarded as the other pods are, and reach names, the APIs and the fleet API."""
    for path, values, asked in [
        (CONTROL_PLANE, OF_CONTROL_PLANE, {443, 6443, "https"}),
        (CONTROL_PLANE, {**OF_CONTROL_PLANE, "fleetApi": {"mode": "external"}, "proxy": {"httpsProxy": "http://proxy:3128"}}, {443, 6443, 3128}),
        (AGENT, OF_AGENT, {443, 6443, 8443}),
    ]:
        for on in ({"test": True}, {"job": True}):
            objects = rendered(path, {**values, "check": on})
            pod = next(each for each in objects if each["kind"] in ("Pod", "Job") and "check" in each["metadata"]["name"])
            labels = (pod["metadata"] if pod["kind"] == "Pod" else pod["spec"]["template"]["metadata"])["labels"]
            policies = [each for each in objects if each["kind"] == "NetworkPolicy" and each["spec"]["podSelector"]["matchLabels"].items() <= labels.items()]
            check(f"{path}: a policy is about the {pod['kind']} that checks", len(policies) == 1 and policies[0]["spec"]["policyTypes"] == ["Ingress", "Egress"], str(policies))
            for policy in policies:
                reached = {port["port"] for rule in policy["spec"]["egress"] for port in rule["ports"]}
                check(f"{path}: it reaches names and APIs", {53, 5353} | asked == reached, str(reached))
                check(f"{path}: and nobody reaches it", policy["spec"]["ingress"] == [], str(policy))
        without = [each["metadata"]["name"] for each in rendered(path, values) if each["kind"] == "NetworkPolicy" and each["metadata"]["name"].endswith("-check")]
        check(f"{path}: no policy for pods that there are not", not without, str(without))
