"""What `helm install` prints: commands that fit the values, and that do what is said of them."""

import base64
import pathlib
import re
import subprocess
import tempfile

from charting import check
from charts_values import AGENT, CONTROL_PLANE, MEMBER
from helm_python import chart as helm


def notes(path, values):
    with helm.Chart.load(path) as chart:
        files = chart.render(values=values, name="muster", namespace="muster-system")
    return next(text for name, text in files.items() if name.endswith("NOTES.txt"))


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


def words_of_charts():
    forward = "port-forward service/muster-fleet-api 6443"
    balanced = {"fleetApi": {"service": {"type": "LoadBalancer"}}}
    text = notes(CONTROL_PLANE, balanced)
    written, times = waited(text)
    check(f"{CONTROL_PLANE}: notes wait for the address of a load balancer", "192.0.2.1" in written and times == 3, f"{written} after {times}: {text}")
    check(f"{CONTROL_PLANE}: and have a way for who has none", forward in text and "use-context port-forward" in text and "fleetApi.address" in text, text)
    text = notes(CONTROL_PLANE, {})
    check(f"{CONTROL_PLANE}: nothing to wait for without one", "until " not in text and forward in text and "fleetApi.service.type=LoadBalancer" in text, text)
    known = {"fleetApi": {"service": {"type": "LoadBalancer"}, "address": "https://fleet.example.com:6443"}}
    text = notes(CONTROL_PLANE, known)
    check(f"{CONTROL_PLANE}: nor with an address that is known", "until " not in text and forward not in text and "fleet.kubeconfig" in text, text)
    check(f"{CONTROL_PLANE}: no words about cert-manager without it", "cert-manager" not in text, text)
    known["fleetApi"]["certificates"] = {"issuerRef": {"name": "internal"}}
    text = notes(CONTROL_PLANE, known)
    check(f"{CONTROL_PLANE}: notes tell which names an issuer is asked for", "cert-manager" in text and "fleetApi.certificates.names" in text, text)
    text = notes(AGENT, MEMBER)
    check(f"{AGENT}: notes tell to take the cluster out of the fleet first", "\n\nBEFORE" in text and "unregister member1" in text, text)
    text = notes(AGENT, {**MEMBER, "fleet": {"kubeconfigSecret": "karmada-kubeconfig", "kubeconfigKey": "karmada-kubeconfig"}})
    check(f"{AGENT}: but not where it took the place of Karmada's", "unregister" not in text and "\n\nIf this agent" in text and "scale deployment karmada-agent" in text, text)
