"""The host of the fleet API is lost in the middle of a failover, on real processes: a standby is restored and promoted, or the other two of three hosts go on. The steps are those
of .github/manual/host-loss.md; the timelines are printed (`pytest -s`)."""

import time
import urllib.error

import pytest
import yaml
from hosts import WORKS, Fleet, Host, Members, Timeline
from real_api import Background, apply, kubectl, until

NAMES = ["m1", "m2", "m3"]
# The member that is cut off.
LOST = "m3"
WORKLOADS = 30
TAINTS = {
    "matchConditions": [{"conditionType": "Ready", "operator": "NotIn", "statusValues": ["True"]}],
    "taintsToAdd": [{"key": "example.com/lost", "effect": "NoExecute", "addOnMatchSeconds": 1, "removeOnMismatchSeconds": 1}],
}


def policies():
    """Workloads are placed in their home, or elsewhere where that is lost."""
    yield {"apiVersion": "policy.karmada.io/v1alpha1", "kind": "ClusterTaintPolicy", "metadata": {"name": "lost"}, "spec": TAINTS}
    for home in NAMES:
        groups = [{"affinityName": "home", "clusterNames": [home]}, {"affinityName": "elsewhere", "clusterNames": [each for each in NAMES if each != home]}]
        placement = {"clusterAffinities": groups, "spreadConstraints": [{"spreadByField": "cluster", "minGroups": 1, "maxGroups": 1}]}
        selector = {"apiVersion": "apps/v1", "kind": "Deployment", "labelSelector": {"matchLabels": {"home": home}}}
        yield {"apiVersion": "policy.karmada.io/v1alpha1", "kind": "PropagationPolicy", "metadata": {"name": home, "namespace": "default"}, "spec": {"resourceSelectors": [selector], "placement": placement}}


def deployment(name, home):
    pod = {"metadata": {"labels": {"app": name}}, "spec": {"containers": [{"name": "c", "image": "example.com/app:1", "resources": {"requests": {"cpu": "100m"}}}]}}
    spec = {"replicas": 1, "selector": {"matchLabels": {"app": name}}, "template": pod}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "namespace": "default", "labels": {"home": home}}, "spec": spec}


def deploy(host):
    """Workloads in all members. Returns the cluster of each."""
    apply(host.kubeconfig, yaml.safe_dump_all(policies()))
    homes = {f"app-{number}": NAMES[number % len(NAMES)] for number in range(WORKLOADS)}
    apply(host.kubeconfig, yaml.safe_dump_all(deployment(*each) for each in homes.items()))
    until(60, "each workload is healthy in one cluster", lambda: sum(len(each) == 1 for each in host.healthy().values()) == WORKLOADS, host)
    assert host.places() == {name: [home] for name, home in homes.items()}, "each is at home"
    return homes


def cut(host, members, before, timeline):
    """A member is silent, and the first of its workloads have moved."""
    members[LOST].kill("agent")
    timeline.mark(f"the agent of {LOST} is silent")
    until(60, "its failure is seen", lambda: host.condition(LOST, "Ready")["status"] == "Unknown", host)
    timeline.mark(f"{LOST} is Unknown")
    until(60, "the first have moved", lambda: len(moved(host, before)) >= 3, host)
    went = moved(host, before)
    assert len(went) < len(of(before, LOST)) - 1, f"the failover is under way: {len(went)} of {len(of(before, LOST))}"
    timeline.mark(f"{len(went)} of {len(of(before, LOST))} workloads of {LOST} have moved")
    return went


def of(places, cluster):
    return {name for name, each in places.items() if each == cluster}


def moved(host, before):
    """The workloads that are placed elsewhere than they were, and where."""
    return {name: each for name, each in host.places().items() if name in before and each and before[name] not in each}


def failed_over(host, before):
    """Whether each workload of the lost member is healthy in one of the others, and nowhere else."""
    healthy = host.healthy()
    return all([it for it in healthy.get(name, []) if it != LOST] for name in of(before, LOST)) and not [name for name, each in host.places().items() if LOST in each]


def stayed(host, before, when):
    """No workload of a member that is well moved."""
    stray = {name for name in moved(host, before) if before[name] != LOST}
    assert not stray, f"{when}, nothing moves that is well: {stray}"


def running(members):
    return {name: each.deployments() for name, each in members.items()}


@pytest.fixture
def fleet(plugin, tmp_path):
    it = Fleet(tmp_path)
    yield it
    for each in it.hosts:
        each.kill()


@pytest.fixture
def timeline(request):
    it = Timeline(request.node.name)
    yield it
    print(f"\n{it}")


def start(fleet, hosts, members):
    for each in hosts:
        each.start_store()
    for each in hosts:
        each.until_served()
    fleet.prepare(hosts[0], NAMES)
    for each in hosts:
        each.lead()
        until(30, "the first leads, and the others stand by", lambda: leader_of(hosts) is hosts[0], each)
    for each in members.values():
        each.join()
    until(60, "the members are ready", lambda: all(hosts[0].condition(each, "Ready")["status"] == "True" for each in NAMES), hosts[0])


def test_warm_standby(fleet, etcd, timeline, tmp_path):
    a, b = Host(fleet, "a", "a"), Host(fleet, "b", "b")
    with Members(fleet, NAMES) as members:
        start(fleet, [a], members)
        before = deploy(a)
        a.etcdctl(etcd, "snapshot", "save", tmp_path / "snapshot.db")
        apply(a.kubeconfig, yaml.safe_dump(deployment("late", "m1")))
        until(30, "what is newer than the snapshot runs", lambda: "late" in members["m1"].deployments(), a)
        went = cut(a, members, before, timeline)

        a.kill()
        timeline.mark("host A is lost")
        b.restore(etcd, tmp_path / "snapshot.db")
        b.start_store()
        b.until_served()
        timeline.mark("the snapshot is restored at B, and its API serves")
        until(30, "the agents say that B is not promoted", lambda: all("not promoted" in kubectl(members[each].kubeconfig, "get", "events", "-A")[1] for each in ("m1", "m2")))
        at_rest = {each: b.renewed(each) for each in NAMES}
        timeline.mark("the agents have seen B, and do not obey it")
        code, said = b.muster("promote", "--grace", "10s", "--reason", "site lost")
        assert code == 0 and "epoch 1 now; it had 0" in said, said
        timeline.mark("B is promoted")
        b.lead()
        until(30, "the agents are there", lambda: all(b.renewed(each) != at_rest[each] for each in ("m1", "m2")), b)
        timeline.mark("the agents of m1 and m2 report to B")
        until(30, "B leads", lambda: b.readyz()[0] == 200, b)
        timeline.mark("the control plane of B leads")
        until(60, f"{LOST} is seen as failed", lambda: b.condition(LOST, "Ready")["status"] == "Unknown", b)
        timeline.mark(f"B sees that {LOST} is Unknown")
        until(60, "the first moves", lambda: moved(b, before), b)
        timeline.mark("the pause has ended, and the first workload moves")
        until(90, "the failover is done", lambda: failed_over(b, before), b)
        timeline.mark(f"all {len(of(before, LOST))} workloads of {LOST} are healthy elsewhere")
        stayed(b, before, "while the host was lost and led again")

        reported = until(30, "it is reported", lambda: b.condition("m1", "ObjectsWithoutWork")["status"] == "True" and b.condition("m1", "ObjectsWithoutWork"), b)
        assert "default/late" in reported["message"], f"what is newer than the snapshot is reported: {reported}"
        assert "late" in members["m1"].deployments(), "and kept"
        # A workload that A had moved has two copies where B chose otherwise: the newer one is reported as well.
        places = b.places()
        twice = {(name, each[0]) for name, each in went.items() if places[name] != each}
        messages = {each: b.condition(each, "ObjectsWithoutWork")["message"] for each in ("m1", "m2")}
        unreported = [(name, each) for name, each in twice if f"default/{name}" not in messages[each]]
        assert not unreported, f"the copies that A had made are reported: {unreported} {messages}"

        present, known, moves = running(members), works(b), b.places()
        timeline.mark("host A comes back")
        a.start_store()
        a.until_served()
        until(30, "what it knows is read", lambda: works(a) and all(a.renewed(each) for each in NAMES), a)
        former, doomed = {each: a.renewed(each) for each in NAMES}, deleted(a)
        a.lead()
        until(60, "A gives up", lambda: "StoreSuperseded" in kubectl(a.kubeconfig, "get", "events", "-A")[1], a)
        timeline.mark("the control plane of A gives up")
        members[LOST].join()
        until(60, f"{LOST} is back", lambda: b.condition(LOST, "Ready")["status"] == "True", b)
        timeline.mark(f"{LOST} is back, and reports to B")
        until(60, "its old copies are gone", lambda: not set(members[LOST].deployments()) & of(before, LOST), b)
        timeline.mark(f"the old copies in {LOST} are removed")
        holder, renewal = a.leader()
        assert {each: a.renewed(each) for each in NAMES} == former, "no agent gives A a sign of life"
        assert deleted(a) <= doomed, f"A removes no Work: {deleted(a) - doomed}"
        assert b.places() == moves, "and nothing moves"
        gone = {(each["namespace"], each["name"]) for uid, each in known.items() if uid not in works(b) and each["namespace"] != f"karmada-es-{LOST}"}
        assert not gone, f"no Work of the others is removed: {gone}"
        for name, each in running(members).items():
            lost = {key for key, uid in present[name].items() if each.get(key) != uid and not (name == LOST and key in of(before, LOST))}
            assert not lost, f"nothing that {name} runs is removed or made anew: {lost}"
        assert a.leader() == (holder, renewal), "and A does not stand for election"


def works(host):
    return {each["metadata"]["uid"]: each["metadata"] for each in host.api.items(WORKS)}


def deleted(host):
    """The Works that are being deleted."""
    return {uid for uid, each in works(host).items() if "deletionTimestamp" in each}


class Writer(Background):
    """Somebody who writes to a fleet API without a pause, and remembers what was acknowledged."""

    def __init__(self, hosts):
        super().__init__()
        self.hosts, self.done, self.refused, self.longest = hosts, [], 0, 0.0

    def work(self):
        last, number = time.monotonic(), 0
        while not self.ended.wait(0.05):
            name, host = f"written-{number}", self.hosts[number % len(self.hosts)]
            number += 1
            try:
                host.api("api/v1/namespaces/default/configmaps", {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}, "POST")
            except (urllib.error.HTTPError, OSError):
                self.refused += 1
                continue
            self.done.append(name)
            self.longest, last = max(self.longest, time.monotonic() - last), time.monotonic()


def test_stretched(fleet, timeline):
    hosts = [Host(fleet, name, "a") for name in "abc"]
    with Members(fleet, NAMES) as members:
        start(fleet, hosts, members)
        before = deploy(hosts[1])
        # The first leads, and the agents are there.
        leads, *others = hosts
        with Writer(hosts) as writer:
            went = cut(others[0], members, before, timeline)
            renewal = {each: others[0].renewed(each) for each in NAMES}
            leads.kill()
            timeline.mark(f"host {leads.name}, whose control plane leads, and where the agents are, is lost")
            until(30, "it takes writes", lambda: acknowledged(others[0]), others[0])
            timeline.mark("the store takes writes")
            until(30, "another leads", lambda: leader_of(others), others[0])
            timeline.mark("another control plane leads")
            until(30, "the agents are at other hosts", lambda: all(others[0].renewed(each) != renewal[each] for each in ("m1", "m2")), others[0])
            timeline.mark("the agents of m1 and m2 report to another host")
            until(90, "the failover is done", lambda: failed_over(others[0], before), others[0])
            timeline.mark(f"all {len(of(before, LOST))} workloads of {LOST} are healthy elsewhere")
        for each in others:
            present = {it["metadata"]["name"] for it in each.api.items("api/v1/namespaces/default/configmaps")}
            lost = set(writer.done) - present
            assert len(writer.done) > 50 and not lost, f"nothing that was acknowledged is lost, of {len(writer.done)}: {lost}"
        places = others[0].places()
        again = {name for name, each in went.items() if places[name] != each}
        assert not again, f"what had moved does not move again: {again}"
        stayed(others[0], before, "while a host was lost")

        timeline.mark(f"host {leads.name} comes back")
        leads.start_store()
        leads.until_served()
        leads.lead()
        until(60, "it has what was written meanwhile", lambda: set(writer.done) <= {it["metadata"]["name"] for it in leads.api.items("api/v1/namespaces/default/configmaps")}, leads)
        until(30, "its control plane stands by", lambda: leads.readyz()[0] == 200, leads)
        timeline.mark("it has all, and its control plane stands by")
        members[LOST].join()
        until(60, "the old copies are gone", lambda: not set(members[LOST].deployments()) & of(before, LOST), others[0])
        timeline.mark(f"{LOST} is back, and its old copies are removed")
        assert others[0].places() == places, "and nothing moves"
    print(f"\n{len(writer.done)} writes acknowledged, {writer.refused} not, at most {writer.longest:.1f} s between two")


def leader_of(hosts):
    """The host whose control plane says that it leads."""
    said = {each: each.readyz() for each in hosts}
    return next((each for each, (code, words) in said.items() if code == 200 and "standing by" not in words), None)


def acknowledged(host):
    try:
        return host.api("api/v1/namespaces/default/configmaps", {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "asked-"}}, "POST")
    except (urllib.error.HTTPError, OSError):
        return None
