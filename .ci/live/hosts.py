"""Hosts of a fleet API as real processes (etcd, kube-apiserver, control plane), members with their agents beside them, and a timeline of what happens to them."""

import contextlib
import json
import shutil
import time

from charting import CONTROL_PLANE, files
from pods import asked
from real_api import ASSETS, ENVIRONMENT, PROGRAMS, Background, Client, Processes, api, apply, etcd_words, free_port, kubectl, make_accounts, make_certificates, muster, run, server_words, until, until_served, write_kubeconfig

# Settings of the control planes and agents here: a silent member counts as lost after eight seconds.
LED = ["--feature-gates=Failover=true", "--cluster-monitor-grace-period=8s", "--resource-eviction-rate=2", "--leader-elect-lease-duration=10s", "--leader-elect-renew-deadline=8s", "--leader-elect-retry-period=1s"]
AGENT = ["--cluster-lease-duration=4s", "--cluster-status-update-frequency=2s", "--cluster-failure-threshold=4s", "--cluster-success-threshold=2s", "--fleet-server-timeout=3s", "--leader-elect-lease-duration=4s", "--leader-elect-renew-deadline=3s", "--leader-elect-retry-period=1s"]
WORKS = "apis/work.karmada.io/v1alpha1/works"
BINDINGS = "apis/work.karmada.io/v1alpha2/namespaces/default/resourcebindings"
CLUSTERS = "apis/cluster.karmada.io/v1alpha1/clusters"
LEASES = "apis/coordination.k8s.io/v1/namespaces/{}/leases"


class Timeline:
    """What happened, in seconds since the first thing that did."""

    def __init__(self, title):
        self.title, self.rows = title, []

    def mark(self, what):
        self.rows.append((time.monotonic(), what))

    def after(self, what):
        """Seconds from the beginning until something, by the first words of its row."""
        return next(at for at, words in self.rows if words.startswith(what)) - self.rows[0][0]

    def __str__(self):
        return "\n".join([self.title, *(f"{at - self.rows[0][0]:7.1f} s  {what}" for at, what in self.rows)])


class Fleet:
    """What all hosts of a fleet have in common: the authority, accounts, and their addresses."""

    def __init__(self, folder):
        self.folder, self.hosts = folder, []
        make_accounts(folder)
        make_certificates(folder, "serverAuth")

    def servers(self):
        return "--fleet-servers=" + json.dumps([{"server": each.server, "store": each.store} for each in self.hosts])

    def prepare(self, host, members):
        """The kinds and rights of a fleet, as the external fleet API's page says, and credentials of the control planes and agents."""
        values = {"fleetApi": {"mode": "external"}, "definitions": {"create": True}, "access": {"create": True, "members": members}}
        shown = files(CONTROL_PLANE, values)
        definitions, access = (next(text for path, text in shown.items() if path.endswith(f"/{name}.yaml")) for name in ("definitions", "access"))
        apply(host.kubeconfig, definitions)
        until(60, "the kinds are served", lambda: kubectl(host.kubeconfig, "get", "clusters,works.work.karmada.io,clustertaintpolicies", "-A")[0] == 0)
        apply(host.kubeconfig, access)
        self.tokens = {}
        for account in ["muster-control-plane", *(f"muster-agent-{each}" for each in members)]:
            code, self.tokens[account] = kubectl(host.kubeconfig, "-n", "karmada-system", "create", "token", account, "--duration=2h")
            assert code == 0, self.tokens[account]

    def access(self, account, server):
        """A kubeconfig of an account."""
        path = self.folder / f"{account}-{server.rsplit(':', 1)[1]}"
        return write_kubeconfig(path, self.tokens[account].strip(), **{"server": server, "certificate-authority": str(self.folder / "ca.crt")})


class Host(Processes):
    """A member of etcd, a kube-apiserver and a control plane."""

    def __init__(self, fleet, name, store):
        super().__init__(fleet.folder / name)
        self.fleet, self.name, self.store = fleet, name, store
        self.client, self.peer, self.secure, self.probes = (free_port() for _ in range(4))
        self.server = f"https://127.0.0.1:{self.secure}"
        self.kubeconfig = write_kubeconfig(self.folder / "kubeconfig", **{"server": self.server, "certificate-authority": str(fleet.folder / "ca.crt")})
        self.api = Client(self.kubeconfig)
        fleet.hosts.append(self)

    def start_store(self):
        """Starts etcd, of the hosts that have the same store, and kube-apiserver."""
        peers = [each for each in self.fleet.hosts if each.store == self.store]
        together = ",".join(f"{each.name}=http://127.0.0.1:{each.peer}" for each in peers)
        self.start("etcd", ASSETS / "etcd", f"--name={self.name}", *etcd_words(self.folder, self.client, self.peer), f"--initial-advertise-peer-urls=http://127.0.0.1:{self.peer}", f"--initial-cluster={together}")
        # Its own member of etcd first, as the host that is nearest.
        stores = [self.client, *(each.client for each in peers if each is not self)]
        tls = [f"--tls-cert-file={self.fleet.folder}/tls.crt", f"--tls-private-key-file={self.fleet.folder}/tls.key"]
        self.start("kube-apiserver", ASSETS / "kube-apiserver", *server_words(self.folder, self.fleet.folder, stores, self.secure), *tls)

    def until_served(self):
        until_served(self.kubeconfig, self.running["kube-apiserver"], self.folder / "kube-apiserver.log")

    def lead(self):
        """Starts the control plane."""
        words = ["--kubeconfig", self.fleet.access("muster-control-plane", self.server), self.fleet.servers(), *LED]
        self.start("control-plane", PROGRAMS / "muster-control-plane", *words, f"--health-probe-bind-address=127.0.0.1:{self.probes}", "--metrics-bind-address=0")

    def readyz(self):
        return asked(f"http://127.0.0.1:{self.probes}/readyz")

    def leader(self):
        """The holder of the election of control planes, and the time of its last renewal."""
        spec = (self.api.find(LEASES.format("karmada-system") + "/muster-control-plane") or {}).get("spec", {})
        return spec.get("holderIdentity"), spec.get("renewTime")

    def muster(self, *words):
        return muster(self.kubeconfig, *words)

    def etcdctl(self, etcd, *words):
        code, said = run(etcd / "etcdctl", f"--endpoints=127.0.0.1:{self.client}", *words, env={**ENVIRONMENT, "ETCDCTL_API": "3"})
        assert code == 0, said

    def restore(self, etcd, snapshot):
        """Makes the volume of etcd from a snapshot."""
        shutil.rmtree(self.folder / "etcd", ignore_errors=True)
        words = ["snapshot", "restore", snapshot, f"--data-dir={self.folder}/etcd", f"--name={self.name}", f"--initial-cluster={self.name}=http://127.0.0.1:{self.peer}", f"--initial-advertise-peer-urls=http://127.0.0.1:{self.peer}"]
        code, said = run(etcd / "etcdutl", *words)
        assert code == 0, said

    # What the fleet API of the host says.

    def places(self):
        """The clusters of each workload, by its name."""
        return {each["spec"]["resource"]["name"]: sorted(it["name"] for it in each["spec"].get("clusters") or []) for each in self.api.items(BINDINGS)}

    def healthy(self):
        """The clusters in which each workload is healthy."""
        found = {}
        for each in self.api.items(BINDINGS):
            statuses = (each.get("status") or {}).get("aggregatedStatus") or []
            found[each["spec"]["resource"]["name"]] = sorted(it["clusterName"] for it in statuses if it.get("health") == "Healthy")
        return found

    def condition(self, cluster, kind):
        found = self.api.find(f"{CLUSTERS}/{cluster}") or {}
        conditions = found.get("status", {}).get("conditions", [])
        return next((each for each in conditions if each["type"] == kind), {"status": None, "message": ""})

    def renewed(self, cluster):
        """The last sign of life of a member."""
        return (self.api.find(f"{LEASES.format('karmada-cluster')}/{cluster}") or {}).get("spec", {}).get("renewTime")


class Member(Processes):
    """A cluster with one node, whose Deployments have their pods at once, and its agent."""

    def __init__(self, fleet, name, kubeconfig):
        super().__init__(fleet.folder / name)
        self.fleet, self.name, self.kubeconfig, self.api, self.probes = fleet, name, kubeconfig, Client(kubeconfig), free_port()
        for each in ("karmada-system", "muster-system"):
            self.api("api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": each}}, "POST")
        room = {"cpu": "64", "memory": "256Gi", "pods": "500"}
        ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "", "lastHeartbeatTime": "2026-01-01T00:00:00Z", "lastTransitionTime": "2026-01-01T00:00:00Z"}
        self.api("api/v1/nodes", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node"}, "status": {"capacity": room, "allocatable": room, "conditions": [ready]}}, "POST")

    def join(self):
        """Starts the agent."""
        words = ["--cluster-name", self.name, "--kubeconfig", self.kubeconfig, "--karmada-kubeconfig", self.fleet.access(f"muster-agent-{self.name}", self.fleet.hosts[0].server)]
        self.start("agent", PROGRAMS / "muster-agent", *words, self.fleet.servers(), *AGENT, f"--health-probe-bind-address=127.0.0.1:{self.probes}", "--metrics-bind-address=0")

    def deployments(self):
        """The uids of what runs here."""
        return {each["metadata"]["name"]: each["metadata"]["uid"] for each in self.api.items("apis/apps/v1/namespaces/default/deployments")}

    def play(self):
        """Does once what the controllers of a cluster do for its Deployments: their pods are ready, and what they own is gone before them."""
        path = "apis/apps/v1/namespaces/default/deployments"
        for each in self.api.items(path):
            metadata, number = each["metadata"], each["spec"]["replicas"]
            # An API that refuses, or is slow for a moment, is asked again.
            with contextlib.suppress(OSError):
                if metadata.get("deletionTimestamp"):
                    self.api(f"{path}/{metadata['name']}", {"metadata": {"finalizers": None}})
                elif each.get("status", {}).get("observedGeneration") != metadata["generation"]:
                    status = {"observedGeneration": metadata["generation"], "replicas": number, "updatedReplicas": number, "readyReplicas": number, "availableReplicas": number}
                    self.api(f"{path}/{metadata['name']}/status", {"status": status})


class Members(Background):
    """The members of a fleet, which run on while hosts come and go."""

    def __init__(self, fleet, names):
        super().__init__()
        self.fleet, self.names, self.all = fleet, names, {}

    def __enter__(self):
        self.stack = contextlib.ExitStack()
        for each in self.names:
            self.all[each] = Member(self.fleet, each, self.stack.enter_context(api()))
            self.stack.callback(self.all[each].kill)
        super().__enter__()
        return self.all

    def __exit__(self, *_):
        super().__exit__()
        self.stack.close()

    def work(self):
        while not self.ended.wait(0.3):
            for each in self.all.values():
                each.play()
