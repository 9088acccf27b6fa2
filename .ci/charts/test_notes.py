"""What `helm install` prints: commands that fit the values, and that do what is said of them."""

import base64
import pathlib
import re
import subprocess
import tempfile

import pytest
from charting import AGENT, CONTROL_PLANE, MEMBER, files


FORWARD = "port-forward service/muster-fleet-api 6443"
KNOWN = {"service": {"type": "LoadBalancer"}, "address": "https://fleet.example.com:6443"}


def notes(path, values):
    return next(text for name, text in files(path, values).items() if name.endswith("NOTES.txt"))


def waited(text):
    """What the loop of the notes writes in the end, and how often it asked, with a kubectl that has the load balancer's address at the third question."""
    loop = re.search(r"until .*?done", text, flags=re.S)
    if not loop:
        return "", 0
    configs = [f"clusters: [{{cluster: {{server: https://{host}:6443}}}}, {{cluster: {{server: https://127.0.0.1:6443}}}}]" for host in ("muster-fleet-api.muster-system.svc", "192.0.2.1")]
    encoded = [base64.b64encode(each.encode()).decode() for each in configs]
    with tempfile.TemporaryDirectory() as folder:
        # The first answer is empty: the Secret is not made yet.
        kubectl = f"#!/bin/sh\necho >> asked\ncase $(wc -l < asked | tr -d ' ') in 1) ;; 2) echo {encoded[0]} ;; *) echo {encoded[1]} ;; esac\n"
        for name, script in [("kubectl", kubectl), ("sleep", "#!/bin/sh\n")]:
            pathlib.Path(folder, name).write_text(script)
            pathlib.Path(folder, name).chmod(0o755)
        subprocess.run(["bash", "-c", f"PATH={folder}:$PATH; {loop[0]}"], cwd=folder, timeout=20, check=False)
        return pathlib.Path(folder, "fleet.kubeconfig").read_text(), pathlib.Path(folder, "asked").read_text().count("\n")


def test_a_load_balancer():
    text = notes(CONTROL_PLANE, {"fleetApi": {"service": {"type": "LoadBalancer"}}})
    written, times = waited(text)
    assert "192.0.2.1" in written and times == 3, f"notes wait for the address of a load balancer: {text}"
    assert FORWARD in text and "use-context port-forward" in text and "fleetApi.address" in text, "and have a way for who has none"


def test_no_load_balancer():
    text = notes(CONTROL_PLANE, {})
    assert "until " not in text and FORWARD in text and "fleetApi.service.type=LoadBalancer" in text, "nothing to wait for without one"


def test_an_address():
    text = notes(CONTROL_PLANE, {"fleetApi": KNOWN})
    assert "until " not in text and FORWARD not in text and "fleet.kubeconfig" in text, "nor with an address that is known"
    assert "cert-manager" not in text, "no words about cert-manager without it"
    text = notes(CONTROL_PLANE, {"fleetApi": {**KNOWN, "certificates": {"issuerRef": {"name": "internal"}}}})
    assert "cert-manager" in text and "fleetApi.certificates.names" in text, "notes say which names an issuer is asked for"


def test_agent():
    text = notes(AGENT, MEMBER)
    assert "\n\nBEFORE" in text and "unregister member1" in text, "notes say to take the cluster out of the fleet first"
    text = notes(AGENT, {**MEMBER, "fleet": {"kubeconfigSecret": "karmada-kubeconfig", "kubeconfigKey": "karmada-kubeconfig"}})
    assert "unregister" not in text and "\n\nIf this agent" in text and "scale deployment karmada-agent" in text, "but not where it took the place of Karmada's"


@pytest.mark.parametrize(("rights", "words"), [({}, "rights.rules"), ({"preset": "everything"}, "acts as administrator"), ({"create": False}, None)], ids=str)
def test_rights_of_an_agent(rights, words):
    text = notes(AGENT, {**MEMBER, "rights": rights})
    assert [each for each in ("rights.rules", "acts as administrator") if each in text] == ([words] if words else [])


STORED = {"etcd": {"snapshots": {"objectStorage": {"bucket": "backups", "credentialsSecret": "keys"}}}}


@pytest.mark.parametrize(("fleet", "words"), [({}, ["fleetApi.profile=trial", "objectStorage"]), ({"profile": "production"}, ["objectStorage"]), ({"profile": "production", **STORED}, []), ({"mode": "external"}, [])], ids=str)
def test_what_an_installation_does_not_survive(fleet, words):
    text = notes(CONTROL_PLANE, {"fleetApi": fleet})
    assert [each for each in ("fleetApi.profile=trial", "objectStorage") if each in text] == words
