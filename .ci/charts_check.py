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
            there = {each["kind"]: each for each in rendered(path, {**values, **on}) if "check" in each["metadata"]["name"]}
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
