"""An installation of a previous version is upgraded to this one, rolled back, upgraded again, uninstalled and installed again, on real programs: definitions stay readable, no
object is lost or changed, the controllers run, and what was kept is found.

MUSTER_PREVIOUS: the revision whose charts are the previous version; the newest tag, or else the first revision whose chart brings a fleet API along.
MUSTER_PREVIOUS_PROGRAMS: a folder with its programs, which have to bear a lower version than those of MUSTER_PROGRAMS. Without them the programs of this version run by the previous
chart's flags, beside its definitions."""

import json
import os
import pathlib
import re
import subprocess
import warnings

import pytest
import yaml
from charting import CONTROL_PLANE, pasted, rendered
from cluster import default_class, upgrade
from pods import Fleet, Node, asked
from real_api import PROGRAMS, apply, free_port, kubectl, until

NAMESPACE = "muster-system"
OURS = re.compile(r"(karmada|muster)\.io$")
# Objects of people, beside those that the README and the manual have to paste.
MORE = """
{apiVersion: cluster.karmada.io/v1alpha1, kind: Cluster, metadata: {name: member1}, spec: {syncMode: Pull, region: eu, taints: [{key: example.com/a, effect: NoSchedule}]}}
---
{apiVersion: policy.karmada.io/v1alpha1, kind: ClusterPropagationPolicy, metadata: {name: all}, spec: {resourceSelectors: [{apiVersion: v1, kind: ConfigMap, namespace: default, name: all}], placement: {clusterAffinity: {clusterNames: [member1]}}}}
---
{apiVersion: policy.karmada.io/v1alpha1, kind: ClusterOverridePolicy, metadata: {name: all}, spec: {resourceSelectors: [{apiVersion: v1, kind: ConfigMap}], overrideRules: [{overriders: {labelsOverrider: [{operator: add, value: {a: b}}]}}]}}
---
{apiVersion: config.karmada.io/v1alpha1, kind: ResourceInterpreterCustomization, metadata: {name: all}, spec: {target: {apiVersion: example.com/v1, kind: Thing}, customizations: {healthInterpretation: {luaScript: "function InterpretHealth(o) return true end"}}}}
---
{apiVersion: work.karmada.io/v1alpha1, kind: Work, metadata: {name: by-hand, namespace: karmada-es-member1}, spec: {suspendDispatching: true, workload: {manifests: [{apiVersion: v1, kind: ConfigMap, metadata: {name: by-hand, namespace: default}}]}}}
"""


def git(*words):
    return subprocess.run(["git", *words], capture_output=True, check=False).stdout


@pytest.fixture
def previous(tmp_path):
    """The chart of the previous version, and the folder with its programs, if there is one."""
    tag = git("describe", "--tags", "--abbrev=0", "HEAD^").decode().strip()
    first = git("log", "--format=%h", "--diff-filter=A", "--", f"{CONTROL_PLANE}/templates/fleet-certificates.yaml").decode().split()
    revision = os.environ.get("MUSTER_PREVIOUS") or tag or (first or [""])[-1]
    archive = git("archive", revision, CONTROL_PLANE) if revision else b""
    if not archive:
        pytest.skip(f"the history of this checkout has no previous version ({revision or 'none'}): upgrade and rollback were NOT tried")
    subprocess.run(["tar", "x", "-C", tmp_path], input=archive, check=True)
    programs = os.environ.get("MUSTER_PREVIOUS_PROGRAMS")
    if not programs:
        warnings.warn(f"previous version: charts of {revision}, and NOT its programs (MUSTER_PREVIOUS_PROGRAMS)", stacklevel=1)
    return str(tmp_path / CONTROL_PLANE), programs


def inside(former, present):
    """Whether everything of the former is in the present one, which may have more."""
    if isinstance(former, dict):
        return isinstance(present, dict) and all(key in present and inside(value, present[key]) for key, value in former.items())
    if isinstance(former, list):
        return isinstance(present, list) and len(former) == len(present) and all(map(inside, former, present))
    return former == present


class Installation:
    def __init__(self, cluster, node, fleet):
        self.cluster, self.node, self.fleet = cluster, node, fleet

    def at_fleet(self, *words, given=None):
        code, said = kubectl(self.fleet.kubeconfig(), *words, given=given)
        assert code == 0, said
        return said

    def definitions(self):
        found = json.loads(self.at_fleet("get", "crd", "-o", "json"))["items"]
        return {each["metadata"]["name"]: each for each in found if OURS.search(each["spec"]["group"])}

    def objects(self):
        """Every object of every kind of ours, and of the templates, by kind and name."""
        kinds = ["deployments.apps", *self.definitions()]
        found = {}
        for kind in kinds:
            for each in json.loads(self.at_fleet("get", kind, "-A", "-o", "json"))["items"]:
                metadata = each["metadata"]
                found[each["kind"], metadata.get("namespace"), metadata["name"]] = each
        return found

    def restart(self, programs):
        """What a kubelet does when the templates of the pods change."""
        for name in ("control-plane", "manager", "certificates", "api"):
            self.node.stop(name)
        self.fleet.programs = pathlib.Path(programs).absolute()
        self.fleet.api()
        self.fleet.certificates()
        until(120, "the fleet API is prepared", lambda: self.fleet.ready("certificates"), self.node)
        self.fleet.manager()
        self.fleet.control_plane()
        until(60, "the control plane is ready", lambda: self.fleet.ready("control-plane"), self.node)

    def compare(self, when, before):
        """Nothing is lost, replaced or changed by anybody but its owner, and nothing is unreadable."""
        after = self.objects()
        lost = [key for key, each in before.items() if key not in after or after[key]["metadata"]["uid"] != each["metadata"]["uid"]]
        assert not lost, f"{when}: none of {len(before)} objects is lost or replaced: {lost}"
        changed = [(key, each.get("spec"), after[key].get("spec")) for key, each in before.items() if key in after and not inside(each.get("spec", {}), after[key].get("spec", {}))]
        assert not changed, f"{when}: none has lost a field of its spec: {changed}"
        unfit = [(name, each) for name, definition in self.definitions().items() for each in definition["status"]["conditions"] if (each["type"], each["status"]) in (("Established", "False"), ("NamesAccepted", "False"), ("NonStructuralSchema", "True"))]
        assert not unfit, f"{when}: every definition is served: {unfit}"
        code, text = asked(f"http://127.0.0.1:{self.fleet.metrics('control-plane')}/metrics")
        assert code == 200, text
        rejected = [line for line in text.splitlines() if re.match(r"muster_watch_rejected_objects_total\{.*\} [1-9]", line)]
        assert not rejected, f"{when}: the control plane reads every object: {rejected}"
        leads = [line for line in text.splitlines() if re.match(r"muster_leader\{.*\} 1", line)]
        assert bool(leads) or "muster_leader" not in text, f"{when}: and leads: {text[:500]}"


def versions(definitions):
    return {each["metadata"].get("annotations", {}).get("failover.muster.io/version") for each in definitions.values()}


def test_upgrade_and_rollback(fleet_programs, host, cluster, previous, tmp_path):
    (charts, old), port = previous, free_port()
    default_class(cluster)
    values = {"fleetApi": {"address": f"https://127.0.0.1:{port}", "profile": "trial"}}
    release, words = cluster.install(charts, values)
    assert release is not None, f"the previous version is installed: {words}"
    with Node(host, NAMESPACE, tmp_path / "node") as node:
        fleet = Fleet(node, port, old or PROGRAMS)
        it = Installation(cluster, node, fleet)
        fleet.start()
        if not old:
            # What its program would have applied.
            theirs = [each for each in rendered(charts, {"fleetApi": {"mode": "external"}, "definitions": {"create": True}}) if each["kind"] == "CustomResourceDefinition"]
            it.at_fleet("replace", "--validate=false", "-f", "-", given=yaml.safe_dump_all(theirs))
        it.at_fleet("create", "namespace", "karmada-es-member1")
        for text in [*(text for _, text in pasted()), yaml.safe_dump_all(yaml.safe_load_all(MORE))]:
            apply(fleet.kubeconfig(), text)
        until(60, "there is a binding", lambda: any(kind == "ResourceBinding" for kind, *_ in it.objects()), node)
        before, first = it.objects(), it.definitions()

        helm = cluster.helm(NAMESPACE)
        release, words = upgrade(helm, CONTROL_PLANE, values)
        assert release is not None, f"it is upgraded: {words}"
        it.restart(PROGRAMS)
        it.compare("after the upgrade", before)
        second = it.definitions()
        assert set(first) <= set(second) and len(versions(second)) == 1, f"after the upgrade: every definition of the previous version is there, and is this one's: {set(first) - set(second)} {versions(second)}"
        assert "newer" not in asked(f"http://127.0.0.1:{fleet.probes['certificates']}/readyz")[1], "after the upgrade: the fleet API notes nothing"
        # Fields and kinds that the previous version may not know.
        fenced = {"spec": {"failover": {"cluster": {"fencing": {"afterSeconds": 120}}}}}
        it.at_fleet("patch", "propagationpolicy", "hello", "--type=merge", "-p", json.dumps(fenced))
        before = it.objects()

        helm = cluster.helm(NAMESPACE)
        helm.rollback("muster")
        it.restart(old or PROGRAMS)
        it.compare("after the rollback", before)
        third = it.definitions()
        assert {name: each["spec"] for name, each in third.items()} == {name: each["spec"] for name, each in second.items()}, f"after the rollback: the newer definitions stay: {versions(third)}"
        if old:
            code, said = asked(f"http://127.0.0.1:{fleet.probes['certificates']}/readyz")
            assert code == 200 and "was prepared by a newer version" in said, f"after the rollback: it is ready, and says that they do: {code} {said}"

        release, words = upgrade(cluster.helm(NAMESPACE), CONTROL_PLANE, values)
        assert release is not None, f"it is upgraded again: {words}"
        it.restart(PROGRAMS)
        it.compare("after the second upgrade", before)

        cluster.helm(NAMESPACE).uninstall("muster")
        for name in list(reversed(node.running)):
            node.stop(name)
        release, words = cluster.install(CONTROL_PLANE, values)
        assert release is not None, f"uninstalled, it is installed again: {words}"
        fleet.start()
        it.compare("after it was uninstalled and installed again", before)
