"""The store of a bundled fleet API as real processes, by the commands of the chart's pods: init containers first, one after the other, then etcd."""

import concurrent.futures
import json
import os
import shutil
import subprocess

from charting import CONTROL_PLANE, rendered
from real_api import PROGRAMS, free_port, make_certificates, run, until


class Store:
    """The volumes, ports and certificates of three members; each may run or not."""

    def __init__(self, folder, etcd):
        self.folder, self.etcd, self.running, self.checking = folder, etcd, {}, {}
        self.ports = {number: [free_port() for _ in range(3)] for number in range(3)}
        tls = folder / "tls"
        tls.mkdir()
        (folder / "snapshots").mkdir()
        make_certificates(tls, "serverAuth,clientAuth")

    def known(self, words):
        """The flags that a program has: the chart's are those of its own version of etcd."""
        asked = [self.etcd / words[0], *(word for word in words[1:3] if words[0] == "etcdutl"), "--help"]
        said = subprocess.run(asked, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False).stdout
        return [word for word in words if not word.startswith("--") or word.split("=")[0] in said]

    def words(self, number, words):
        """A command with the files and ports of this machine."""
        client, peer, metrics = self.ports[number]
        mounts = {"/var/lib/etcd": self.volume(number), "/etc/etcd/tls": self.folder / "tls", "/etc/etcd/client": self.folder / "tls"}
        mounts |= {"/snapshots": self.folder / "snapshots", "/fetched": self.volume(f"{number}-fetched"), "/etc/muster": self.folder}
        done = []
        for word in self.known(words) if words[0].startswith("etcd") else words:
            word = word.replace("$(POD_NAME)", f"muster-fleet-etcd-{number}")
            for other, (theirs, listens, _) in self.ports.items():
                host = f"muster-fleet-etcd-{other}.muster-fleet-etcd.muster-system.svc"
                word = word.replace(f"{host}:2379", f"127.0.0.1:{theirs}").replace(f"{host}:2380", f"127.0.0.1:{listens}")
            word = word.replace("muster-fleet-etcd.muster-system.svc:2379", f"127.0.0.1:{client}")
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
        shared = {"snapshots": {**values.get("snapshots", {}), "accessMode": "ReadWriteMany"}}
        objects = rendered(CONTROL_PLANE, {"fleetApi": {"profile": profile, "etcd": {**values, **shared}}})
        return next(each for each in objects if each["kind"] == "StatefulSet")["spec"]["template"]["spec"]

    def command(self, number, container):
        """A container's command. Images of ours run the control plane's program, those of upstream one of etcd's."""
        words = self.words(number, container.get("command", []) + container.get("args", []))
        if "command" not in container:
            return [PROGRAMS / "muster-control-plane", *words]
        return [self.etcd / words[0], *words[1:]]

    def commands(self, number, pod):
        """Those of the init containers by their names, and that of etcd."""
        first = {each["name"]: self.command(number, each) for each in pod.get("initContainers", [])}
        if "check" in first:
            first["check"].append(f"--listen=127.0.0.1:{self.ports[number][1]}")
        return first, [*self.command(number, pod["containers"][0]), "--unsafe-no-fsync"]

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
        """Ends what a pod does before etcd, and starts that. Returns whether all of it succeeded."""
        first, command = self.commands(number, pod)
        if number in self.checking and self.checking[number].wait(60):
            return False
        for name, words in first.items():
            if name != "check" and subprocess.run(words, stdout=self.log(number), stderr=subprocess.STDOUT, check=False).returncode:
                return False
        self.running[number] = subprocess.Popen(command, stdout=self.log(number), stderr=subprocess.STDOUT)
        return True

    def start(self, numbers, **values):
        """Starts pods at the same time. Returns which of them run etcd."""
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
        return run(*asked, env={**os.environ, "ETCDCTL_API": "3"})

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
