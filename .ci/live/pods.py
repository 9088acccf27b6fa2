"""Pods of a chart as processes of this machine, in place of a kubelet: the commands, mounted Secrets and accounts that the chart gave them."""

import base64
import contextlib
import pathlib
import re
import shutil
import subprocess
import threading
import time
import urllib.error
import urllib.request
import warnings

import yaml
from real_api import ASSETS, PROGRAMS, Background, Client, Processes, free_port, kubectl, until

# Pause between two checks of the Secrets that pods mount. A kubelet takes up to a minute.
LOOK = 0.5


class Node(Background, Processes):
    """A namespace of a real API whose pods run here."""

    def __init__(self, kubeconfig, namespace, folder):
        Background.__init__(self)
        Processes.__init__(self, folder)
        self.kubeconfig, self.namespace, self.api = kubeconfig, namespace, Client(kubeconfig, patience=30)
        self.mounted, self.written = {}, {}
        # Held while the files of a Secret are written: both a mount and the check of all of them do.
        self.writes = threading.Lock()
        # Addresses that only pods reach, and what takes their place.
        self.places = []

    def __exit__(self, *_):
        super().__exit__()
        for name in reversed(list(self.running)):
            self.stop(name)

    def secret(self, name):
        """What a Secret holds, as text, or nothing."""
        try:
            data = self.api(f"api/v1/namespaces/{self.namespace}/secrets/{name}").get("data") or {}
        except urllib.error.HTTPError as error:
            if error.code == 404:
                return {}
            raise
        return {key: base64.b64decode(value).decode() for key, value in data.items()}

    def mount(self, name):
        """The folder with the files of a Secret; they change all at once when it changes."""
        self.mounted.setdefault(name, self.folder / "secrets" / name).mkdir(parents=True, exist_ok=True)
        self.update(name)
        return self.mounted[name]

    def update(self, name):
        with self.writes:
            self.write(name)

    def write(self, name):
        data = self.secret(name)
        for former, present in self.places:
            data = {key: value.replace(former, present) for key, value in data.items()}
        if self.written.get(name) == data:
            return
        folder = self.mounted[name]
        version = folder / f"..{time.monotonic_ns()}"
        version.mkdir()
        for key, value in data.items():
            (version / key).write_text(value)
        former = (folder / "..data").resolve() if name in self.written else None
        (folder / "..next").symlink_to(version.name)
        (folder / "..next").rename(folder / "..data")
        for key in data:
            if not (folder / key).is_symlink():
                (folder / key).symlink_to(f"..data/{key}")
        if former:
            # As a kubelet does: programs that watch a file notice that it goes.
            shutil.rmtree(former)
        self.written[name] = data

    def work(self):
        while not self.ended.wait(LOOK):
            for name in list(self.mounted):
                # An API that is slow for a moment is asked again.
                with contextlib.suppress(OSError):
                    self.update(name)

    def account(self, name):
        """A kubeconfig with the rights of a ServiceAccount."""
        code, token = kubectl(self.kubeconfig, "-n", self.namespace, "create", "token", name, "--duration=2h")
        assert code == 0, token
        document = yaml.safe_load(pathlib.Path(self.kubeconfig).read_text())
        document["users"][0]["user"] = {"token": token.strip()}
        path = self.folder / f"account-{name}"
        path.write_text(yaml.safe_dump(document))
        return path

    def command(self, kind, name):
        """The command of the first container of a workload, with files of this machine."""
        workload = self.api(f"apis/apps/v1/namespaces/{self.namespace}/{kind}/{name}")
        pod = workload["spec"]["template"]["spec"]
        container = pod["containers"][0]
        secrets = {each["name"]: each["secret"]["secretName"] for each in pod.get("volumes", []) if "secret" in each}
        words = " ".join([*container.get("command", []), *container.get("args", [])])
        for each in container.get("volumeMounts", []):
            here = self.mount(secrets[each["name"]]) if each["name"] in secrets else self.folder / "volumes" / name / each["name"]
            here.mkdir(parents=True, exist_ok=True)
            words = words.replace(each["mountPath"], str(here))
        return words.replace("$(POD_NAME)", f"{name}-0").split(" ")


def known(program, words):
    """The flags that a program has: a store that was built for tests has fewer than upstream's."""
    said = subprocess.run([ASSETS / program, "--help"], capture_output=True, text=True, check=False)
    said = said.stdout + said.stderr
    return [word for word in words if not word.startswith("--") or f"-{word[2:].split('=')[0]}" in said]


class Fleet:
    """The fleet API that charts/control-plane brings along, and the control plane, as the chart starts them."""

    def __init__(self, node, port, programs=PROGRAMS):
        self.node, self.port, self.programs = node, port, pathlib.Path(programs).absolute()
        self.store, self.peer, self.probes = free_port(), free_port(), {}
        self.address = f"https://127.0.0.1:{port}"
        # Of certificates, where it is shorter than the chart takes.
        self.lifetime = None
        node.places.append((f"https://muster-fleet-api.{node.namespace}.svc:6443", self.address))

    def ports(self, name):
        self.probes[name] = free_port()
        return [f"--health-probe-bind-address=127.0.0.1:{self.probes[name]}", f"--metrics-bind-address=127.0.0.1:{self.metrics(name)}"]

    def metrics(self, name):
        return self.probes.setdefault(f"{name}-metrics", free_port())

    def certificates(self, *more):
        words = [self.programs / "muster-control-plane", *self.node.command("deployments", "muster-fleet-certificates")]
        if self.lifetime:
            words = [f"--certificate-lifetime={self.lifetime}" if str(word).startswith("--certificate-lifetime=") else word for word in words]
        words += ["--kubeconfig", self.node.account("muster-fleet-certificates"), f"--api-server={self.address}"]
        self.node.start("certificates", *words, *self.ports("certificates"), *more)

    def etcd(self):
        words = self.node.command("statefulsets", "muster-fleet-etcd")
        few = known("etcd", words)
        if few != words:
            warnings.warn(f"this etcd does NOT know {' '.join(sorted(word.split('=')[0] for word in set(words) - set(few)))}", stacklevel=1)
        peer = "https" if len(few) == len(words) else "http"
        few = [re.sub(r"https://[^,=]*:2379", f"https://127.0.0.1:{self.store}", word) for word in few]
        few = [re.sub(r"https://[^,=]*:2380", f"{peer}://127.0.0.1:{self.peer}", word).replace("0.0.0.0:2381", f"127.0.0.1:{free_port()}") for word in few]
        self.node.start("etcd", ASSETS / few[0], *few[1:])

    def api(self):
        words = self.node.command("deployments", "muster-fleet-api")
        words = [re.sub(r"https://[^,=]*:2379", f"https://127.0.0.1:{self.store}", word).replace("--secure-port=6443", f"--secure-port={self.port}") for word in words]
        self.node.start("api", ASSETS / words[0], *words[1:], "--bind-address=127.0.0.1")

    def manager(self):
        words = self.node.command("deployments", "muster-fleet-manager")
        words = [word.replace("--secure-port=10257", f"--secure-port={free_port()}") for word in words]
        self.node.start("manager", ASSETS / words[0], *words[1:])

    def control_plane(self):
        words = self.node.command("deployments", "muster")
        self.node.start("control-plane", self.programs / "muster-control-plane", *words, *self.ports("control-plane"))

    def start(self):
        """All of it, in the order in which pods that are restarted until they can start come up."""
        self.certificates()
        until(60, "the Secrets of the fleet API are made", lambda: self.node.secret("muster-fleet-admin"))
        self.etcd()
        self.api()
        until(120, "the fleet API is prepared", lambda: self.ready("certificates"), self.node)
        self.manager()
        self.control_plane()
        until(60, "the control plane is ready", lambda: self.ready("control-plane"), self.node)

    def ready(self, name):
        return asked(f"http://127.0.0.1:{self.probes[name]}/readyz")[0] == 200

    def kubeconfig(self):
        """That of administrators, as the chart's notes take it out."""
        path = self.node.folder / "fleet.kubeconfig"
        path.write_text(self.node.secret("muster-fleet-admin")["kubeconfig"])
        return path


def asked(url):
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
    except OSError as error:
        return 0, str(error)
