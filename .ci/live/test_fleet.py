"""A bundled fleet API as its chart starts it, on real programs: certificates that live for a minute and a half are renewed, and the authority is replaced, while people, the
control plane and an agent ask without a pause, and none of their requests fails."""

import base64
import json
import re
import shlex
import ssl
import subprocess
import tempfile
import time
import urllib.error
import urllib.request

import pytest
import yaml
from charting import AGENT, CONTROL_PLANE
from cluster import default_class
from pods import Fleet, Node, asked
from real_api import PROGRAMS, Background, free_port, kubectl, muster, until

NAMESPACE = "muster-system"
# Lifetime of certificates: long enough for a program that reads its files every ten seconds.
LIFE = 90
# Time for which the renewals are watched: each certificate is renewed twice.
WATCHED = 2 * LIFE * 2 // 3 + 20


class People(Background):
    """People who ask with the administrators' kubeconfig as it is mounted: each request on a new connection, and reading as well as writing."""

    def __init__(self, folder):
        super().__init__()
        self.folder, self.failed, self.asked, self.seen = folder, [], 0, set()

    def work(self):
        while not self.ended.wait(0.1):
            try:
                self.once()
            except Exception as error:  # noqa: BLE001 - whatever it is, a request failed
                words = error.read().decode() if isinstance(error, urllib.error.HTTPError) else error
                self.failed.append(f"{time.strftime('%T')} {error}: {words}")
            self.asked += 1

    def once(self):
        document = yaml.safe_load((self.folder / "kubeconfig").read_text())
        cluster, user = document["clusters"][0]["cluster"], document["users"][0]["user"]
        text = {name: base64.b64decode(user[f"client-{name}-data"]).decode() for name in ("certificate", "key")}
        with tempfile.NamedTemporaryFile("w") as file:
            file.write(text["certificate"] + text["key"])
            file.flush()
            context = ssl.create_default_context(cadata=base64.b64decode(cluster["certificate-authority-data"]).decode())
            context.load_cert_chain(file.name)
        self.seen.add(text["certificate"])
        number = str(self.asked)
        path, method, body = [
            ("apis/cluster.karmada.io/v1alpha1/clusters", "GET", None),
            ("api/v1/namespaces/default/configmaps/people?fieldManager=people&force=true", "PATCH", {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "people"}, "data": {"number": number}}),
        ][self.asked % 2]
        request = urllib.request.Request(f"{cluster['server']}/{path}", method=method, data=body and json.dumps(body).encode(), headers={"Content-Type": "application/apply-patch+yaml"})
        with urllib.request.urlopen(request, context=context, timeout=10) as answer:
            answer.read()


def served(port):
    """The certificate that the fleet API presents."""
    return ssl.get_server_certificate(("127.0.0.1", port), timeout=10)


def refused(url):
    """Requests of a program that failed, by its own metrics: those that no answer came to, or that an API did not accept."""
    code, text = asked(f"{url}/metrics")
    assert code == 200, text
    counted = re.findall(r'^muster_api_requests_total\{(.*?)\} ([0-9]+)', text, flags=re.M)
    assert counted, text[:2000]
    return {labels: int(number) for labels, number in counted if not re.search(r'code="(2..|304|404|409)"', labels)}


def set_values(command):
    """The values that a printed helm command sets."""
    values = {}
    words = shlex.split(command.replace("\\\n", " "))
    for word in (word for flag, word in zip(words, words[1:]) if flag == "--set"):
        path, value = word.split("=", 1)
        at = values
        for key in path.split(".")[:-1]:
            at = at.setdefault(key, {})
        at[path.split(".")[-1]] = value[1:-1].split(",") if value.startswith("{") else value
    return values


class Member:
    """An agent with its chart, in the cluster that is the host as well."""

    def __init__(self, cluster, node, fleet):
        self.cluster, self.node, self.fleet, self.health, self.metrics = cluster, node, fleet, free_port(), free_port()

    def invited(self):
        """The values of the command that the fleet prints for the member."""
        code, said = muster(self.fleet.kubeconfig(), "token", "create", "--cluster-name", "member1", "--print-helm-command")
        assert code == 0, said
        # The signer dates certificates back by five minutes: a tenth of them is forty seconds.
        often = {"enabled": True, "checkingInterval": "1s", "remainingTimeThreshold": 0.1}
        return {**set_values(said), "certRotation": often}

    def join(self):
        release, words = self.cluster.install(AGENT, self.invited(), name="muster-agent")
        assert release is not None, f"the printed values install an agent: {words}"
        command = self.node.command("deployments", "muster-agent")
        command += ["--kubeconfig", self.node.account("muster-agent"), f"--health-probe-bind-address=127.0.0.1:{self.health}", f"--metrics-bind-address=127.0.0.1:{self.metrics}"]
        self.node.start("agent", PROGRAMS / "muster-agent", *command)
        until(60, "the member is ready", lambda: '"Ready"' in self.conditions(), self.node)

    def conditions(self):
        return kubectl(self.fleet.kubeconfig(), "get", "cluster", "member1", "-o", "jsonpath={.status.conditions[?(@.status==\"True\")]}")[1]

    def invite_again(self):
        release = self.cluster.helm(NAMESPACE).upgrade(AGENT, "muster-agent", self.invited())
        assert release

    def stored(self):
        """Certificate and authorities that the agent stored."""
        text = self.node.secret("muster-fleet-kubeconfig").get("kubeconfig") or next(iter(self.node.secret("muster-fleet-kubeconfig").values()))
        document = yaml.safe_load(text)
        decoded = [document["users"][0]["user"]["client-certificate-data"], document["clusters"][0]["cluster"]["certificate-authority-data"]]
        return [base64.b64decode(each).decode() for each in decoded]


@pytest.fixture(scope="module")
def fleet(fleet_programs, host, cluster, tmp_path_factory):
    """A fleet API that the chart brought along, with certificates that end soon."""
    default_class(cluster)
    port = free_port()
    soon = {"extraArgs": [f"--cluster-signing-duration={LIFE}s"]}
    release, words = cluster.install(CONTROL_PLANE, {"fleetApi": {"address": f"https://127.0.0.1:{port}", "controllerManager": soon}})
    assert release, words
    with Node(host, NAMESPACE, tmp_path_factory.mktemp("node")) as node:
        it = Fleet(node, port)
        it.lifetime = f"{LIFE}s"
        it.start()
        yield it


@pytest.fixture(scope="module")
def member(cluster, fleet):
    it = Member(cluster, fleet.node, fleet)
    it.join()
    return it


@pytest.fixture(scope="module")
def people(fleet):
    with People(fleet.node.mount("muster-fleet-admin")) as them:
        yield them


def test_bad_input(fleet, member):
    """Tokens and names that are refused by the fleet API that runs, each with what to do, and nothing is changed."""
    code, printed = muster(fleet.kubeconfig(), "token", "create", "--cluster-name", "late", "--ttl", "1s", "--print-register-command")
    assert code == 0, printed
    words = [word for word in shlex.split(printed) if word not in ("kubectl", "muster")]
    at_member = ["--discovery-timeout", "5s", "--namespace", "nowhere"]
    time.sleep(2)
    code, said = muster(member.node.kubeconfig, *words, *at_member)
    assert code == 1 and "does not know the token: it has expired" in said, f"a token that expired: refused, with the reason: {said}"
    code, printed = muster(fleet.kubeconfig(), "token", "create", "--cluster-name", "late", "--print-register-command")
    assert code == 0, printed
    words = [re.sub("sha256:[0-9a-f]{64}", "sha256:" + "0" * 64, word) for word in shlex.split(printed) if word not in ("kubectl", "muster")]
    code, said = muster(member.node.kubeconfig, *words, *at_member)
    assert code == 1 and "not the expected one" in said and "0" * 64 in said, f"a wrong hash: refused, with both hashes: {said}"
    code, said = muster(fleet.kubeconfig(), "token", "create", "--cluster-name", "member1", "--print-helm-command")
    assert code == 0, f"a token for a member that is there is made, for it may come back: {said}"
    code, said = kubectl(member.node.kubeconfig, "get", "namespace", "nowhere")
    assert code != 0 and "not found" in said, f"and nothing was made in the member: {said}"
    code, said = kubectl(fleet.kubeconfig(), "get", "clusters", "-o", "name")
    assert said.split() == ["cluster.cluster.karmada.io/member1"], f"and the fleet has the members that it had: {said}"


def test_renewals(fleet, member, people):
    """Everything that has a certificate gets at least two more, and nothing fails meanwhile."""
    holders = {
        "kube-apiserver": lambda: served(fleet.port),
        "the control plane": lambda: fleet.node.secret("muster-fleet-control-plane")["tls.crt"],
        "etcd": lambda: fleet.node.secret("muster-fleet-etcd-tls")["tls.crt"],
        "kube-apiserver at etcd": lambda: fleet.node.secret("muster-fleet-etcd-client")["tls.crt"],
        "the agent": lambda: member.stored()[0],
    }
    before = programs(fleet, member)
    seen = {holder: {look()} for holder, look in holders.items()}
    manager = fleet.node.secret("muster-fleet-manager")["tls.crt"]
    end = time.monotonic() + WATCHED
    while time.monotonic() < end:
        for holder, look in holders.items():
            seen[holder].add(look())
        if (present := fleet.node.secret("muster-fleet-manager")["tls.crt"]) != manager:
            # It reads its files every five minutes, which is more than they are good for here.
            manager = present
            time.sleep(1)
            fleet.node.stop("manager")
            fleet.manager()
        assert not fleet.node.alive(), fleet.node.alive()
        time.sleep(1)
    for holder, certificates in seen.items():
        assert len(certificates) >= 3, f"in {WATCHED} s {holder} had three certificates or more: {len(certificates)}"
    nothing_failed("while certificates were renewed", fleet, member, people, before)


def programs(fleet, member):
    return {name: refused(f"http://127.0.0.1:{port}") for name, port in [("control plane", fleet.metrics("control-plane")), ("agent", member.metrics)]}


def nothing_failed(when, fleet, member, people, before):
    assert people.asked > 100 and not people.failed, f"{when}, people asked {people.asked} times with {len(people.seen)} certificates, and nothing failed: {people.failed[:5]}"
    for holder, failed in programs(fleet, member).items():
        assert failed == before[holder], f"{when}, no request of the {holder} failed: {before[holder]} became {failed}"


def new_authority(folder):
    """An authority as FLEET_API.md says it is made."""
    key, certificate = folder / "new.key", folder / "new.crt"
    made = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "3650", "-subj", "/CN=muster-fleet", "-addext", "basicConstraints=critical,CA:TRUE"]
    subprocess.run([*made, "-addext", "keyUsage=critical,digitalSignature,keyCertSign,cRLSign", "-keyout", key, "-out", certificate], check=True, capture_output=True)
    return certificate.read_text(), key.read_text()


def pin(certificate):
    """The hash by which an authority is pinned, as kubeadm's documentation computes it."""
    words = "openssl x509 -pubkey -noout | openssl pkey -pubin -outform der | sha256sum"
    return "sha256:" + subprocess.run(["bash", "-c", words], input=certificate, capture_output=True, text=True, check=True).stdout.split()[0]


def is_signed(certificate, authority, folder):
    (folder / "leaf").write_text(certificate)
    (folder / "authority").write_text(authority)
    return subprocess.run(["openssl", "verify", "-purpose", "any", "-partial_chain", "-CAfile", folder / "authority", folder / "leaf"], capture_output=True, check=False).returncode == 0


def write(node, name, **data):
    encoded = {key: base64.b64encode(value.encode()).decode() for key, value in data.items()}
    code, said = kubectl(node.kubeconfig, "-n", NAMESPACE, "patch", "secret", name, "-p", json.dumps({"data": encoded}))
    assert code == 0, said


def test_replacement(fleet, member, people, tmp_path):
    """The steps of "Replace the authority" in .github/FLEET_API.md, one after the other."""
    node, before = fleet.node, programs(fleet, member)
    former = node.secret("muster-fleet-ca")["tls.crt"]
    certificate, key = new_authority(tmp_path)
    token = re.search(r"[a-z0-9]{6}\.[a-z0-9]{16}", muster(fleet.kubeconfig(), "token", "create", "--cluster-name", "member2", "--print-helm-command")[1]).group()

    def register(*pins):
        address = fleet.address.removeprefix("https://")
        words = ["register", address, "--token", token, "--cluster-name", "member2", "--discovery-timeout", "20s", "--dry-run"]
        return muster(node.kubeconfig, *words, *(f"--discovery-token-ca-cert-hash={each}" for each in pins))

    write(node, "muster-fleet-ca", **{"ca.crt": former + certificate})
    everybody = ["muster-fleet-admin", "muster-fleet-control-plane", "muster-fleet-manager", "muster-fleet-api-tls"]
    until(60, "step 1: every kubeconfig trusts both authorities", lambda: all(certificate.strip() in node.secret(each)["ca.crt"] for each in everybody), node)
    fleet.node.stop("manager")
    fleet.manager()
    until(60, "cluster-info has both", lambda: len(info(fleet)) == 2, node)
    # kube-controller-manager signs it again as soon as it leads.
    until(60, "step 1: register takes a list of which it knows one", lambda: register(pin(former))[0] == 0, node)
    code, said = register(pin(certificate))
    assert code == 1 and "verified connection" in said, f"step 1: and sends no token to a server that another one vouches for: {said}"

    member.invite_again()
    until(60, "step 2: the agent took over the longer list", lambda: certificate.strip() in member.stored()[1], node)

    held = member.stored()[0]
    write(node, "muster-fleet-ca", **{"tls.crt": certificate, "tls.key": key})
    until(60, "step 3: every certificate is of the new authority", lambda: all(is_signed(node.secret(each)["tls.crt"], certificate, tmp_path) for each in everybody), node)
    until(30, "kube-apiserver serves with it", lambda: is_signed(served(fleet.port), certificate, tmp_path), node)
    fleet.node.stop("manager")
    fleet.manager()
    until(120, "step 3: the agent's is, too", lambda: member.stored()[0] != held and is_signed(member.stored()[0], certificate, tmp_path), node)
    code, said = register(pin(certificate))
    assert code == 0, f"step 3: register goes on with the hash of the new one: {said}"

    write(node, "muster-fleet-ca", **{"ca.crt": certificate})
    until(60, "nobody trusts the former", lambda: all(former.strip() not in node.secret(each)["ca.crt"] for each in everybody), node)
    time.sleep(LIFE / 3)
    assert '"Ready"' in member.conditions(), f"step 4: the former authority is gone, and the member is ready: {member.conditions()}"
    code, said = register(pin(former))
    assert code == 1 and "not the expected one" in said, f"step 4: its hash is refused by name: {said}"
    nothing_failed("while the authority was replaced", fleet, member, people, before)


def info(fleet):
    """The authorities that the fleet API names to everybody."""
    code, text = kubectl(fleet.kubeconfig(), "-n", "kube-public", "get", "cm", "cluster-info", "-o", "jsonpath={.data.kubeconfig}")
    assert code == 0, text
    encoded = yaml.safe_load(text)["clusters"][0]["cluster"]["certificate-authority-data"]
    return re.findall("BEGIN CERTIFICATE", base64.b64decode(encoded).decode())
