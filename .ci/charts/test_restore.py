"""The steps by which FLEET_API.md restores a snapshot: what they name is in the chart, and their order suits a Helm that applies on the server's side."""

import json
import pathlib
import re

from charting import CONTROL_PLANE, rendered

PAGE = pathlib.Path(".github/FLEET_API.md")


def test_restore():
    text = PAGE.read_text().split("## Restore a snapshot")[1]
    steps = re.search(r"```\n(.*?)```", text, flags=re.S)[1].replace("RELEASE", "muster").replace("NAMESPACE", "muster-system")
    objects = rendered(CONTROL_PLANE, {"fleetApi": {"etcd": {"restore": "x.db"}}})
    there = {(each["kind"].lower(), each["metadata"]["name"]): each for each in objects}
    for kind, names in re.findall(r"(?:scale|get) (deployment|statefulset) ([a-z -]+?)(?: --|\n)", steps):
        missing = [name for name in names.split() if (kind, name) not in there]
        assert not missing, f"{kind} {names} is the chart's"
    spec = json.loads(re.search(r"--overrides='(.*?)'", steps, flags=re.S)[1])["spec"] if "--overrides" in steps else {"volumes": []}
    claims = [("persistentvolumeclaim", each["persistentVolumeClaim"]["claimName"]) for each in spec["volumes"]]
    assert claims and all(each in there for each in claims), "a command lists the snapshots"
    mounted = [(mount["name"], mount["mountPath"], each["command"][-1]) for each in spec.get("containers", []) for mount in each["volumeMounts"]]
    assert mounted == [("snapshots", "/snapshots", "/snapshots")], "and mounts them where it looks"
    # A number of replicas that kubectl set is a conflict in an upgrade by Helm 4, unless it is the chart's.
    wanted = {name: each["spec"]["replicas"] for (kind, name), each in there.items() if kind in ("deployment", "statefulset")}
    replicas = dict(wanted)
    upgrades = 0
    for line in steps.splitlines():
        scaled = re.search(r"scale (?:deployment|statefulset) (.*?) --replicas=(\d+)", line)
        if scaled:
            replicas |= {name: int(scaled[2]) for name in scaled[1].split()}
        if line.startswith("helm upgrade"):
            upgrades += 1
            changed = {name: number for name, number in replicas.items() if number != wanted[name]}
            assert not changed, f"upgrade {upgrades} finds the chart's numbers of replicas"
    assert replicas == wanted and upgrades == 2, "all are there again in the end"
