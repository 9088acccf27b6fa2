"""Programs that can do nothing say so, on a real kube-apiserver: one warning within five seconds, with the words of `/readyz`."""

import contextlib
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

import yaml
from charting import FAILURES, check
from real_api import ENVIRONMENT, api, free_port, kubectl

PROGRAMS = pathlib.Path(os.environ.get("MUSTER_PROGRAMS", "target/debug"))
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
    path = pathlib.Path(folder) / f"{name}-{port}.log"
    words = [PROGRAMS / name, *map(str, flags), f"--health-probe-bind-address=127.0.0.1:{port}", "--metrics-bind-address=0"]
    with open(path, "w") as log:
        process = subprocess.Popen(words, stdout=log, stderr=log, env=ENVIRONMENT)
        try:
            yield port, path
        finally:
            process.terminate()
            process.wait()


def readyz(port):
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=2) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
    except OSError:
        return 0, ""


def warnings(path):
    lines = re.sub(r"\x1b\[[0-9;]*m", "", path.read_text()).splitlines()
    lines = [line.split(" WARN ", 1)[1].strip() for line in lines if " WARN " in line]
    return [line for line in lines if EXPECTED not in line]


def case(title, expected, words, name, folder, *flags):
    """Starts a program and looks at what it says, to those who read its log and to those who ask it."""
    begun = time.monotonic()
    with program(name, folder, *flags) as (port, log):
        while not warnings(log) and time.monotonic() < begun + PATIENCE + 5:
            time.sleep(0.05)
        after = time.monotonic() - begun
        time.sleep(MORE)
        told = warnings(log)
        code, said = readyz(port)
    short = name.removeprefix("muster-")
    check(f"{short}, {title}: a warning within {PATIENCE} s", after <= PATIENCE, f"{after:.1f} s: {told}")
    check(f"{short}, {title}: exactly one", len(told) == 1, "\n".join(told))
    check(f"{short}, {title}: it says why", any(words in each for each in told), str(told))
    check(f"{short}, {title}: /readyz is {expected}", code == expected, f"{code} {said}")
    state = {line[4:] for line in said.splitlines() if re.match(r"\[.\] [^ ]*: ", line) and not line.endswith(": starting")}
    parts = {each for each in state if any(each in line for line in told)}
    check(f"{short}, {title}: and has the same words", bool(state) and parts == state, f"{said}\nbut {told}")


def applied(kubeconfig, *objects):
    code, said = kubectl(kubeconfig, "apply", "--server-side", "--validate=false", "-f", "-", given=yaml.safe_dump_all(objects))
    assert code == 0, said


def definitions(kubeconfig):
    text = subprocess.run([PROGRAMS / "muster-control-plane", "crds"], capture_output=True, text=True, check=True).stdout
    code, said = kubectl(kubeconfig, "apply", "--server-side", "--validate=false", "-f", "-", given=text)
    assert code == 0, said
    deadline = time.monotonic() + 60
    while kubectl(kubeconfig, "get", "clusters,works.work.karmada.io,workloadrebalancers,clustertaintpolicies", "-A")[0]:
        assert time.monotonic() < deadline, "the kinds of the fleet are not served"
        time.sleep(0.5)


def copy(kubeconfig, path, server=None, token=None):
    document = yaml.safe_load(pathlib.Path(kubeconfig).read_text())
    document["clusters"][0]["cluster"]["server"] = server or document["clusters"][0]["cluster"]["server"]
    document["users"][0]["user"]["token"] = token or document["users"][0]["user"]["token"]
    path.write_text(yaml.safe_dump(document))
    return path


def silence(fleet, member, folder):
    control_plane = ("muster-control-plane", folder)
    agent = ("muster-agent", folder, "--cluster-name=m1", "--kubeconfig", member)
    applied(fleet, {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "weak", "namespace": "default"}})
    weak = copy(fleet, folder / "weak", token=kubectl(fleet, "create", "token", "weak")[1].strip())
    stranger = copy(fleet, folder / "stranger", token="nonsense")
    nowhere = copy(fleet, folder / "nowhere", server="https://127.0.0.1:1")
    case("definitions missing", 503, "does not serve clusters", *control_plane, "--kubeconfig", fleet)
    case("definitions missing", 503, "404", *agent, "--karmada-kubeconfig", fleet)
    definitions(fleet)
    for title, kubeconfig, words, of_agent in [
        ("no rights", weak, "no right to list and watch", "forbidden"),
        ("unknown credentials", stranger, "does not accept the credentials", "Unauthorized"),
        ("an API that is not there", nowhere, "cannot list and watch", "Connect"),
    ]:
        case(title, 503, words, *control_plane, "--kubeconfig", kubeconfig)
        case(title, 503, of_agent, *agent, "--karmada-kubeconfig", kubeconfig)
    case("fleet is its own member", 503, "are the same cluster", "muster-agent", folder, "--cluster-name=m1", "--kubeconfig", fleet, "--karmada-kubeconfig", fleet)
    taken = {"apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster", "metadata": {"name": "m1"}, "spec": {"syncMode": "Pull", "id": "somebody else"}}
    applied(fleet, taken)
    case("name taken", 503, "refused to join", *agent, "--karmada-kubeconfig", fleet)
    kubectl(fleet, "delete", "cluster", "m1", "--wait=false")
    second = ("muster-agent", folder, "--cluster-name=m2", "--kubeconfig", member, "--karmada-kubeconfig", fleet)
    for title, words in [("standby", "standing by to take over")]:
        for one in [(*control_plane, "--kubeconfig", fleet), second]:
            with program(*one) as (port, _):
                deadline = time.monotonic() + 30
                while readyz(port)[0] != 200 and time.monotonic() < deadline:
                    time.sleep(0.2)
                case(title, 200, words, *one)
    applied(fleet, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "worker"}})
    kubectl(fleet, "-n", "karmada-system", "delete", "lease", "--all")
    case("an API with nodes", 200, "it has nodes", *control_plane, "--kubeconfig", fleet)


if __name__ == "__main__":
    with api() as fleet, api() as member, tempfile.TemporaryDirectory() as scratch:
        silence(fleet, member, pathlib.Path(scratch))
    print(f"programs that can do nothing: {len(FAILURES)} failed")
    sys.exit(1 if FAILURES else 0)
