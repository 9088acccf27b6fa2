"""Programs, waiting, and a kube-apiserver with its etcd, for the scenarios of this folder."""

import contextlib
import json
import os
import pathlib
import re
import socket
import ssl
import subprocess
import tempfile
import threading
import time
import urllib.error
import urllib.request

import yaml

# For programs: a variable of these checks is none of their settings, and they would warn of it.
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith("MUSTER_")}
ASSETS = pathlib.Path(os.environ.get("KUBEBUILDER_ASSETS", "/nonexistent"))
PROGRAMS = pathlib.Path(os.environ.get("MUSTER_PROGRAMS", "target/debug")).absolute()
TOKEN = "administrator"
# Token of a user without rights.
WEAK = "weak"


class Background:
    """Work that goes on beside a scenario until the block ends: `work` reads `ended`."""

    def __init__(self):
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self.work, daemon=True)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.ended.set()
        self.thread.join()


class Processes:
    """Programs of one machine, whose logs are files of their names there."""

    def __init__(self, folder):
        self.folder, self.running = pathlib.Path(folder), {}
        self.folder.mkdir(exist_ok=True)

    def start(self, name, *words):
        assert name not in self.running, name
        with open(self.folder / f"{name}.log", "a") as log:
            self.running[name] = subprocess.Popen(list(map(str, words)), stdout=log, stderr=log, cwd=self.folder, env=ENVIRONMENT)

    def stop(self, name):
        process = self.running.pop(name)
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def kill(self, *names):
        """Ends programs as the loss of their machine does."""
        ended = [self.running.pop(each) for each in names or list(self.running)]
        for each in ended:
            each.kill()
        for each in ended:
            each.wait()

    def log(self, name):
        return re.sub(r"\x1b\[[0-9;]*m", "", (self.folder / f"{name}.log").read_text())

    def alive(self):
        """The programs that ended by themselves, with their last words."""
        return {name: self.log(name)[-1500:] for name, process in self.running.items() if process.poll() is not None}


class Client:
    """An administrator of an API."""

    def __init__(self, kubeconfig, patience=10):
        self.kubeconfig, self.patience = kubeconfig, patience
        self.server = yaml.safe_load(pathlib.Path(kubeconfig).read_text())["clusters"][0]["cluster"]["server"]

    def __call__(self, path, body=None, method=None, kind="application/merge-patch+json"):
        method = method or ("PATCH" if body else "GET")
        headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json" if method == "POST" else kind}
        request = urllib.request.Request(f"{self.server}/{path}", method=method, data=json.dumps(body).encode() if body else None, headers=headers)
        with urllib.request.urlopen(request, context=ssl._create_unverified_context(), timeout=self.patience) as answer:
            return json.load(answer)

    def find(self, path):
        """An object, or nothing where there is none or no answer."""
        try:
            return self(path)
        except (urllib.error.HTTPError, OSError):
            return None

    def items(self, path):
        return (self.find(path) or {}).get("items", [])


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def until(seconds, what, holds, node=None):
    """Waits until something holds, and says what did not."""
    deadline = time.monotonic() + seconds
    while not (found := holds()):
        ended = node.alive() if node else {}
        assert not ended, f"{what}: ended: {ended}"
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}\n" + "\n".join(f"{name}: {node.log(name)[-1500:]}" for name in (node.running if node else []))
        time.sleep(0.2)
    return found


def etcd_words(folder, client, peer):
    return [f"--data-dir={folder}/etcd", f"--listen-client-urls=http://127.0.0.1:{client}", f"--advertise-client-urls=http://127.0.0.1:{client}", f"--listen-peer-urls=http://127.0.0.1:{peer}"]


def server_words(folder, accounts, stores, port):
    """The flags of a kube-apiserver, whose tokens and key of accounts are in a folder that others may share."""
    return [
        f"--etcd-servers={','.join(f'http://127.0.0.1:{each}' for each in stores)}",
        f"--secure-port={port}",
        "--bind-address=127.0.0.1",
        f"--cert-dir={folder}/certificates",
        f"--token-auth-file={accounts}/tokens",
        f"--service-account-key-file={accounts}/accounts.key",
        f"--service-account-signing-key-file={accounts}/accounts.key",
        "--service-account-issuer=https://localhost",
        "--service-cluster-ip-range=10.0.0.0/24",
        "--authorization-mode=RBAC",
        "--disable-admission-plugins=ServiceAccount",
    ]


def make_accounts(folder):
    (folder / "tokens").write_text(f"{TOKEN},admin,admin,system:masters\n{WEAK},weak,weak\n")
    subprocess.run(["openssl", "genrsa", "-out", folder / "accounts.key", "2048"], check=True, capture_output=True)


def make_certificates(folder, usages):
    """An authority, and a certificate of it for servers of this machine."""
    key = ["openssl", "req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    (folder / "extensions").write_text(f"subjectAltName=IP:127.0.0.1\nextendedKeyUsage={usages}\n")
    for words in (
        [*key, "-subj", "/CN=authority", "-x509", "-days", "2", "-addext", "basicConstraints=critical,CA:TRUE", "-keyout", "ca.key", "-out", "ca.crt"],
        [*key, "-subj", "/CN=server", "-keyout", "tls.key", "-out", "tls.csr"],
        ["openssl", "x509", "-req", "-days", "2", "-in", "tls.csr", "-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial", "-extfile", "extensions", "-out", "tls.crt"],
    ):
        subprocess.run(words, check=True, capture_output=True, cwd=folder)


def write_kubeconfig(path, token=TOKEN, **cluster):
    whole = {"apiVersion": "v1", "kind": "Config", "current-context": "it", "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}]}
    whole |= {"clusters": [{"name": "it", "cluster": cluster}], "users": [{"name": "it", "user": {"token": token}}]}
    path.write_text(yaml.safe_dump(whole))
    return path


def until_served(kubeconfig, process, log):
    """Waits for a kube-apiserver. Helm asks for the description of every kind, which comes a little later than the rest."""
    deadline = time.monotonic() + 120
    while any(kubectl(kubeconfig, "get", "--raw", path)[0] for path in ("/readyz", "/openapi/v2", "/openapi/v3")):
        if time.monotonic() > deadline or process.poll() is not None:
            raise SystemExit(log.read_text()[-2000:])
        time.sleep(0.5)


@contextlib.contextmanager
def api():
    """A kube-apiserver with its etcd: prints nothing, ends with the block."""
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        folder = pathlib.Path(folder)
        peer, client, secure = free_port(), free_port(), free_port()
        make_accounts(folder)
        for name, flags in [("etcd", [*etcd_words(folder, client, peer), "--unsafe-no-fsync"]), ("kube-apiserver", server_words(folder, folder, [client], secure))]:
            log = stack.enter_context(open(folder / f"{name}.log", "w"))
            process = subprocess.Popen([ASSETS / name, *flags], stdout=log, stderr=log)
            stack.callback(process.wait)
            stack.callback(process.kill)
        kubeconfig = write_kubeconfig(folder / "kubeconfig", **{"server": f"https://127.0.0.1:{secure}", "insecure-skip-tls-verify": True})
        until_served(kubeconfig, process, folder / "kube-apiserver.log")
        yield kubeconfig


def run(*words, **given):
    """The exit code of a program, and what it says."""
    done = subprocess.run(words, capture_output=True, text=True, check=False, **given)
    return done.returncode, done.stdout + done.stderr


def kubectl(kubeconfig, *words, given=None):
    return run("kubectl", "--kubeconfig", kubeconfig, *words, input=given)


def muster(kubeconfig, *words):
    return run(PROGRAMS / "kubectl-muster", *words, "--kubeconfig", kubeconfig)


def apply(kubeconfig, text, *flags):
    """Applies manifests, which the API alone validates unless flags say otherwise."""
    # kubectl takes a text that begins with a brace for JSON.
    text = yaml.safe_dump_all(yaml.safe_load_all(text))
    code, said = kubectl(kubeconfig, "apply", "--server-side", *(flags or ["--validate=false"]), "-f", "-", given=text)
    assert code == 0, said
