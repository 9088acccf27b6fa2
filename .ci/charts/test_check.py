"""The Pod of `helm test` and the start-up Job, which run `kubectl muster check` from within."""

import pytest
from charting import AGENT, CONTROL_PLANE, FULL, OF_AGENT, OF_CONTROL_PLANE, fails, of_kind, refused, rendered

ON = {"check": {"test": True, "job": True, "wait": "90s", "skip": ["ready", "room"]}}
EXTERNAL = {"fleetApi": {"mode": "external"}}
INSTALLATIONS = [
    (CONTROL_PLANE, {}, "muster-fleet-control-plane"),
    (CONTROL_PLANE, OF_CONTROL_PLANE, "muster-fleet-control-plane"),
    (CONTROL_PLANE, EXTERNAL, "muster-fleet-kubeconfig"),
    (AGENT, OF_AGENT, "muster-fleet-kubeconfig"),
]


@pytest.mark.parametrize(("path", "values", "secret"), INSTALLATIONS)
def test_installation(path, values, secret):
    objects = rendered(path, {**values, **ON})
    there = {each["kind"]: each for each in objects if "check" in each["metadata"]["name"] and each["kind"] != "NetworkPolicy"}
    assert set(there) == {"Pod", "Job"}, "a Pod and a Job check an installation"
    hooks = {kind: each["metadata"]["annotations"]["helm.sh/hook"] for kind, each in there.items()}
    assert hooks == {"Pod": "test", "Job": "post-install,post-upgrade"}, "the Pod is for helm test, the Job for installations"
    for kind, spec in [("Pod", there["Pod"]["spec"]), ("Job", there["Job"]["spec"]["template"]["spec"])]:
        container = spec["containers"][0]
        assert {"check", "--wait=90s", "--skip=ready,room"} <= set(container["args"]), f"{kind} waits, and leaves out what it is asked to"
        assert [each["secret"]["secretName"] for each in spec["volumes"]] == [secret], f"{kind} uses the credentials of the installation"
        confined = spec["restartPolicy"] == "Never" and spec["securityContext"]["runAsNonRoot"] and container["securityContext"]["readOnlyRootFilesystem"]
        assert confined and "memory" in container["resources"]["limits"], f"{kind} is confined and limited"
    labels = there["Pod"]["metadata"]["labels"]
    assert not [each for each in of_kind(objects, "Service") if each["spec"]["selector"].items() <= labels.items()], "no Service sends anything to the Pod"


@pytest.mark.parametrize(("path", "values"), [(CONTROL_PLANE, {}), (AGENT, OF_AGENT)])
def test_the_platform_can_choose_who_what_checks_runs_as(path, values):
    free = {"podSecurityContext": {"runAsUser": None, "runAsGroup": None, "fsGroup": None}}
    objects = rendered(path, {**values, **ON, **free})
    found = [each["spec"] if each["kind"] == "Pod" else each["spec"]["template"]["spec"] for each in of_kind(objects, "Pod", "Job") if each["metadata"]["name"].endswith("-check")]
    contexts = [spec["securityContext"] for spec in found]
    assert len(contexts) == 2 and not [each for each in contexts if each.get("runAsUser") is not None or not each["runAsNonRoot"]]


@pytest.mark.parametrize(("path", "values"), [(CONTROL_PLANE, EXTERNAL), (AGENT, OF_AGENT)])
@pytest.mark.parametrize("length", [50, 53])
def test_the_name_of_the_job_is_one_that_kubernetes_takes(path, values, length):
    # Helm takes 53 characters for a release, and Kubernetes 63 for a Job, whose pods have its name as a label.
    objects = rendered(path, {**values, **ON}, release="a" * 48 + "-bbbb"[: length - 48])
    names = [each["metadata"]["name"] for each in of_kind(objects, "Job")]
    assert len(names) == 1 and len(names[0]) <= 63 and "--" not in names[0], names


@pytest.mark.parametrize(("path", "values"), [(CONTROL_PLANE, {}), (CONTROL_PLANE, EXTERNAL), (AGENT, OF_AGENT)])
def test_a_wait_that_is_no_duration_is_refused(path, values):
    wrong = {**values, "check": {"wait": "soon"}}
    assert "wait" in refused(path, wrong) + fails(path, wrong)


REACHED = [
    (CONTROL_PLANE, OF_CONTROL_PLANE, {443, 6443, "https"}),
    (CONTROL_PLANE, {**OF_CONTROL_PLANE, **EXTERNAL, "proxy": {"httpsProxy": "http://proxy:3128"}}, {443, 6443, 3128}),
    (AGENT, OF_AGENT, {443, 6443, 8443}),
]


@pytest.mark.parametrize("kind", ["test", "job"])
@pytest.mark.parametrize(("path", "values", "asked"), REACHED)
def test_what_checks_is_guarded_as_other_pods_are(path, values, asked, kind):
    objects = rendered(path, {**values, "check": {kind: True}})
    pod = next(each for each in of_kind(objects, "Pod", "Job") if "check" in each["metadata"]["name"])
    labels = (pod["metadata"] if pod["kind"] == "Pod" else pod["spec"]["template"]["metadata"])["labels"]
    policies = [each["spec"] for each in of_kind(objects, "NetworkPolicy") if each["spec"]["podSelector"]["matchLabels"].items() <= labels.items()]
    assert [each["policyTypes"] for each in policies] == [["Ingress", "Egress"]], "a policy is about the pod that checks"
    assert {port["port"] for rule in policies[0]["egress"] for port in rule["ports"]} == {53, 5353} | asked, "it reaches names and APIs"
    assert policies[0]["ingress"] == [], "and nobody reaches it"


@pytest.mark.parametrize(("path", "values"), [*FULL, REACHED[1][:2]])
def test_no_policy_for_pods_that_there_are_not(path, values):
    assert not [each for each in of_kind(rendered(path, values), "NetworkPolicy") if each["metadata"]["name"].endswith("-check")]
