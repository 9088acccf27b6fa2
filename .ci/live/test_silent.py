"""Programs that can do nothing say so, on a real kube-apiserver: one warning within five seconds, with the words of `/readyz`."""

import contextlib
import pathlib
import re
import subprocess
import time

import pytest
import yaml
from pods import asked
from real_api import PROGRAMS, WEAK, Processes, api, apply, free_port, kubectl, until

pytestmark = pytest.mark.usefixtures("programs")
# Time within which the warning has to be there.
PATIENCE = 5
# Time for which a second warning is waited for.
MORE = 4
# The API of these checks has a certificate of its own making, which the programs warn of as well.
EXPECTED = "insecure-skip-tls-verify"


@contextlib.contextmanager
def program(name, folder, *flags):
    """A program with its port for probes and its log; it ends with the block."""
    port = free_port()
    processes = Processes(folder / f"{name}-{port}")
    processes.start(name, PROGRAMS / name, *flags, f"--health-probe-bind-address=127.0.0.1:{port}", "--metrics-bind-address=0")
    try:
        yield port, lambda: processes.log(name)
    finally:
        processes.stop(name)


def readyz(port):
    return asked(f"http://127.0.0.1:{port}/readyz")


def warnings(log):
    lines = [line.split(" WARN ", 1)[1].strip() for line in log().splitlines() if " WARN " in line]
    return [line for line in lines if EXPECTED not in line]


def case(title, expected, words, name, folder, *flags):
    """Starts a program and reads what it says, to those who read its log and to those who ask it."""
    begun = time.monotonic()
    with program(name, folder, *flags) as (port, log):
        while not warnings(log) and time.monotonic() < begun + PATIENCE + 5:
            time.sleep(0.05)
        after = time.monotonic() - begun
        time.sleep(MORE)
        warned = warnings(log)
        code, said = readyz(port)
    short = name.removeprefix("muster-")
    assert after <= PATIENCE, f"{short}, {title}: a warning within {PATIENCE} s, not {after:.1f} s: {warned}"
    assert len(warned) == 1, f"{short}, {title}: exactly one: {warned}"
    assert any(words in each for each in warned), f"{short}, {title}: it says why: {warned}"
    assert code == expected, f"{short}, {title}: /readyz is {expected}: {code} {said}"
    state = {line[4:] for line in said.splitlines() if re.match(r"\[.\] [^ ]*: ", line) and not line.endswith(": starting")}
    parts = {each for each in state if any(each in line for line in warned)}
    assert state and parts == state, f"{short}, {title}: and has the same words: {said}\nbut {warned}"


def copy(kubeconfig, path, server=None, token=None):
    document = yaml.safe_load(pathlib.Path(kubeconfig).read_text())
    document["clusters"][0]["cluster"]["server"] = server or document["clusters"][0]["cluster"]["server"]
    document["users"][0]["user"]["token"] = token or document["users"][0]["user"]["token"]
    path.write_text(yaml.safe_dump(document))
    return path


@pytest.fixture(scope="module")
def member(assets):
    with api() as kubeconfig:
        yield kubeconfig


@pytest.fixture(scope="module")
def fleet(host):
    """A fleet API with its definitions."""
    text = subprocess.run([PROGRAMS / "muster-control-plane", "crds"], capture_output=True, text=True, check=True).stdout
    apply(host, text)
    kinds = "clusters,works.work.karmada.io,workloadrebalancers,clustertaintpolicies"
    until(60, "the kinds of the fleet are served", lambda: kubectl(host, "get", kinds, "-A")[0] == 0)
    return host


def control_plane(tmp_path, fleet):
    return "muster-control-plane", tmp_path, "--kubeconfig", fleet


def agent(tmp_path, fleet, member, name="m1"):
    return "muster-agent", tmp_path, f"--cluster-name={name}", "--kubeconfig", member, "--karmada-kubeconfig", fleet


def test_definitions_missing(host, member, tmp_path):
    case("definitions missing", 503, "does not serve clusters", *control_plane(tmp_path, host))
    case("definitions missing", 503, "404", *agent(tmp_path, host, member))


CREDENTIALS = {
    "no rights": ({"token": WEAK}, "no right to list and watch", "forbidden"),
    "unknown credentials": ({"token": "nonsense"}, "does not accept the credentials", "Unauthorized"),
    "an API that is not there": ({"server": "https://127.0.0.1:1"}, "cannot list and watch", "Connect"),
}


@pytest.mark.parametrize("title", CREDENTIALS)
def test_credentials(fleet, member, tmp_path, title):
    given, words, of_agent = CREDENTIALS[title]
    kubeconfig = copy(fleet, tmp_path / "kubeconfig", **given)
    case(title, 503, words, *control_plane(tmp_path, kubeconfig))
    case(title, 503, of_agent, *agent(tmp_path, kubeconfig, member))


def test_fleet_is_its_own_member(fleet, tmp_path):
    case("fleet is its own member", 503, "are the same cluster", *agent(tmp_path, fleet, fleet))


def test_name_taken(fleet, member, tmp_path):
    apply(fleet, "{apiVersion: cluster.karmada.io/v1alpha1, kind: Cluster, metadata: {name: m1}, spec: {syncMode: Pull, id: somebody else}}")
    case("name taken", 503, "refused to join", *agent(tmp_path, fleet, member))
    kubectl(fleet, "delete", "cluster", "m1", "--wait=false")


@pytest.mark.parametrize("name", ["control-plane", "agent"])
def test_standby(fleet, member, tmp_path, name):
    one = control_plane(tmp_path, fleet) if name == "control-plane" else agent(tmp_path, fleet, member, "m2")
    with program(*one) as (port, _):
        until(30, "one acts", lambda: readyz(port)[0] == 200)
        case("standby", 200, "standing by to take over", *one)


def test_an_api_with_nodes(fleet, tmp_path):
    apply(fleet, "{apiVersion: v1, kind: Node, metadata: {name: worker}}")
    kubectl(fleet, "-n", "karmada-system", "delete", "lease", "--all")
    case("an API with nodes", 200, "it has nodes", *control_plane(tmp_path, fleet))
