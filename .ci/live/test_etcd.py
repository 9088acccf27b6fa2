"""Members of the store of a bundled fleet API as real processes, by the commands of the chart's pods: init containers first, one after the other, then etcd."""

import concurrent.futures
import json
import os
import re
import shutil
import subprocess

import pytest
from charting import CONTROL_PLANE, rendered
from real_api import PROGRAMS, free_port, until

REFUSED = "fleetApi.profile"


class Store:
    """The volumes, ports and certificates of three members; each may run or not."""

    def __init__(self, folder, etcd):
        self.folder, self.etcd, self.running, self.checking = folder, etcd, {}, {}
        self.ports = {number: [free_port() for _ in range(3)] for number in range(3)}
        tls = folder / "tls"
        tls.mkdir()
        (folder / "snapshots").mkdir()
        key = ["openssl", "req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", "/CN=etcd"]
        authority = [*key, "-x509", "-days", "2", "-addext", "basicConstraints=critical,CA:TRUE", "-keyout", tls / "ca.key", "-out", tls / "ca.crt"]
        subprocess.run(authority, check=True, capture_output=True)
        subprocess.run([*key, "-keyout", tls / "tls.key", "-out", tls / "tls.csr"], check=True, capture_output=True)
        (tls / "extensions").write_text("subjectAltName=IP:127.0.0.1\nextendedKeyUsage=serverAuth,clientAuth\n")
        signed = ["openssl", "x509", "-req", "-days", "2", "-in", tls / "tls.csr", "-CA", tls / "ca.crt", "-CAkey", tls / "ca.key", "-CAcreateserial", "-extfile", tls / "extensions", "-out", tls / "tls.crt"]
        subprocess.run(signed, check=True, capture_output=True)

    def known(self, words):
        """The flags that a program has: the chart's are those of its own version of etcd."""
        asked = [self.etcd / words[0], *(word for word in words[1:3] if words[0] == "etcdutl"), "--help"]
        said = subprocess.run(asked, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False).stdout
        return [word for word in words if not word.startswith("--") or word.split("=")[0] in said]

    def words(self, number, words):
        """A command with the files and ports of this machine."""
        client, peer, metrics = self.ports[number]
        mounts = {"/var/lib/etcd": self.volume(number), "/etc/etcd/tls": self.folder / "tls", "/snapshots": self.folder / "snapshots"}
        done = []
        for word in self.known(words) if words[0].startswith("etcd") else words:
            word = word.replace("$(POD_NAME)", f"muster-fleet-etcd-{number}")
            for other, (theirs, heard, _) in self.ports.items():
                host = f"muster-fleet-etcd-{other}.muster-fleet-etcd.muster-system.svc"
                word = word.replace(f"{host}:2379", f"127.0.0.1:{theirs}").replace(f"{host}:2380", f"127.0.0.1:{heard}")
            word = word.replace("0.0.0.0:2379", f"127.0.0.1:{client}").replace("0.0.0.0:2380", f"127.0.0.1:{peer}").replace("0.0.0.0:2381", f"127.0.0.1:{metrics}")
            for there, here in mounts.items():
                word = word.replace(there, str(here))
            done.append(word)
        return done

    def volume(self, number):
        path = self.folder / f"volume-{number}"
        path.mkdir(exist_ok=True)
        return path

    def lose(self, number):
        shutil.rmtree(self.volume(number))

    def pod(self, **values):
        """The pod of the chart's StatefulSet."""
        profile = {1: "trial", 3: "production"}[values["replicas"]]
        objects = rendered(CONTROL_PLANE, {"fleetApi": {"profile": profile, "etcd": values}})
        return next(each for each in objects if each["kind"] == "StatefulSet")["spec"]["template"]["spec"]

    def commands(self, number, pod):
        """Those of the init containers by their names, and that of etcd."""
        first = {}
        for each in pod.get("initContainers", []):
            words = self.words(number, each.get("command", []) + each.get("args", []))
            if each["name"] == "check":
                first["check"] = [PROGRAMS / "muster-control-plane", *words, f"--listen=127.0.0.1:{self.ports[number][1]}"]
            else:
                first[each["name"]] = [self.etcd / words[0], *words[1:]]
        words = self.words(number, pod["containers"][0]["command"])
        return first, [self.etcd / words[0], *words[1:], "--unsafe-no-fsync"]

    def log(self, number):
        return open(self.folder / f"log-{number}", "a")  # noqa: SIM115 - it is the process's

    def said(self, number):
        """What the check of a member and its etcd said last."""
        return (self.folder / f"log-{number}").read_text()[-2000:]

    def begin(self, number, pod):
        """Starts the check of a member, where its pod has one."""
        first, _ = self.commands(number, pod)
        if "check" in first:
            (self.folder / f"log-{number}").write_text("")
            self.checking[number] = subprocess.Popen(first["check"], stdout=self.log(number), stderr=subprocess.STDOUT)

    def proceed(self, number, pod):
        """Ends what a pod does before etcd, and starts that. Tells whether all of it succeeded."""
        first, command = self.commands(number, pod)
        if number in self.checking and self.checking[number].wait(60):
            return False
        for name, words in first.items():
            if name != "check" and subprocess.run(words, stdout=self.log(number), stderr=subprocess.STDOUT, check=False).returncode:
                return False
        self.running[number] = subprocess.Popen(command, stdout=self.log(number), stderr=subprocess.STDOUT)
        return True

    def start(self, numbers, **values):
        """Starts pods at the same time. Tells which of them run etcd."""
        pod = self.pod(**values)
        for number in numbers:
            self.begin(number, pod)
        return self.go_on(numbers, pod)

    def go_on(self, numbers, pod):
        """Each pod goes on by itself, as soon as its check lets it."""
        with concurrent.futures.ThreadPoolExecutor() as pool:
            started = list(pool.map(lambda number: self.proceed(number, pod), numbers))
        return [number for number, has in zip(numbers, started) if has]

    def stop(self, *numbers):
        for number in numbers:
            for processes in (self.running, self.checking):
                if number in processes:
                    process = processes.pop(number)
                    process.terminate()
                    process.wait()

    def ctl(self, number, *words):
        tls = self.folder / "tls"
        asked = [self.etcd / "etcdctl", f"--endpoints=https://127.0.0.1:{self.ports[number][0]}", f"--cacert={tls}/ca.crt", f"--cert={tls}/tls.crt", f"--key={tls}/tls.key", *words]
        done = subprocess.run(asked, capture_output=True, text=True, check=False, env={**os.environ, "ETCDCTL_API": "3"})
        return done.returncode, done.stdout + done.stderr

    def get(self, number):
        code, said = self.ctl(number, "get", "key", "--print-value-only")
        return said.strip() if code == 0 else None

    def cluster(self, number):
        """The id of the cluster that a member is in, and the names of its members."""
        code, said = self.ctl(number, "member", "list", "-w", "json")
        assert code == 0, said
        found = json.loads(said)
        return found["header"]["cluster_id"], sorted(each["name"] for each in found["members"])

    def holds(self, numbers, value):
        until(60, f"members {numbers} serve {value}: {[self.get(each) for each in numbers]}", lambda: all(self.get(each) == value for each in numbers))


@pytest.fixture
def store(tmp_path, etcd):
    it = Store(tmp_path, etcd)
    yield it
    it.stop(0, 1, 2)


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
