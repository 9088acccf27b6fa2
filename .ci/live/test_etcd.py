"""Members of the store of a bundled fleet API: when they make one, when they join one, and when they are refused."""

import re

from real_api import until

REFUSED = "fleetApi.profile"


def test_one_and_then_three(store):
    assert store.start([0], replicas=1) == [0], "one member starts"
    until(30, "it answers", lambda: store.ctl(0, "put", "key", "old")[0] == 0)
    before = store.cluster(0)
    assert store.start([1, 2], replicas=3) == [], "three by a value: those without data do not start beside it"
    assert all(REFUSED in store.said(each) for each in (1, 2)), f"and say what to do: {store.said(1)}"
    store.stop(0)
    assert store.start([0], replicas=3) == [0], "the one with data does, by the new values as well"
    store.holds([0], "old")
    assert store.cluster(0) == before, f"and is the store that it was: {store.cluster(0)}"

    code, said = store.ctl(0, "snapshot", "save", store.folder / "snapshots" / "x.db")
    assert code == 0, said
    assert store.start([1, 2], replicas=3, restore="x.db") == [], "a snapshot is not restored beside the store that it is of"
    assert not [path for each in (1, 2) for path in store.volume(each).iterdir()], "and nothing is written"
    store.stop(0)
    store.lose(0)
    assert store.start([0, 1, 2], replicas=3, restore="x.db") == [0, 1, 2], f"stopped and emptied, three members restore it: {list(map(store.said, range(3)))}"
    store.holds([0, 1, 2], "old")
    assert len({store.cluster(each)[0] for each in range(3)}) == 1 and len(store.cluster(0)[1]) == 3, f"and are one store: {store.cluster(0)}"
    store.stop(0, 1, 2)
    for each in range(3):
        store.lose(each)


def test_three(store):
    pod = store.pod(replicas=3)
    store.begin(0, pod)
    until(30, "the first waits", lambda: "no answer of" in store.said(0))
    assert store.checking[0].poll() is None, f"the first of three waits for the others: {store.said(0)}"
    for each in (1, 2):
        store.begin(each, pod)
    assert store.go_on([0, 1, 2], pod) == [0, 1, 2], f"three that are empty make a store: {list(map(store.said, range(3)))}"
    until(60, "it takes writes", lambda: store.ctl(0, "put", "key", "new")[0] == 0)
    store.holds([0, 1, 2], "new")
    before = store.cluster(0)

    store.stop(0, 1, 2)
    assert store.start([0, 1, 2], replicas=3) == [0, 1, 2], "started again, they are what they were"
    store.holds([0, 1, 2], "new")

    store.stop(0, 1, 2)
    store.lose(0)
    store.begin(0, pod)
    until(30, "it waits", lambda: "no answer of" in store.said(0))
    assert store.checking[0].poll() is None, f"a member without its volume waits while the others are away: {store.said(0)}"
    assert store.start([1, 2], replicas=3) == [1, 2], "the others start, and serve"
    store.holds([1, 2], "new")
    assert store.checking.pop(0).wait(60) != 0 and "add it again" in store.said(0), f"then it is refused, with what to do: {store.said(0)}"

    name = "muster-fleet-etcd-0"
    listed = store.ctl(1, "member", "list")[1]
    former = re.search(rf"^(\w+), .*{name}", listed, flags=re.M)[1]
    assert store.ctl(1, "member", "remove", former)[0] == 0
    # Members that were restarted a moment ago are "unhealthy" to etcd for five seconds.
    until(30, "the member is added", lambda: store.ctl(1, "member", "add", name, f"--peer-urls=https://127.0.0.1:{store.ports[0][1]}")[0] == 0)
    assert store.start([0], replicas=3) == [] and "initialClusterState=existing" in store.said(0), f"added again, it does not start as new: {store.said(0)}"
    assert store.start([0], replicas=3, initialClusterState="existing") == [0], f"but as existing: {store.said(0)}"
    store.holds([0, 1, 2], "new")
    assert store.cluster(0) == before == store.cluster(1), f"in the store that it was a part of: {store.cluster(0)}"
