"""Snapshots of the store of a bundled fleet API, taken, copied to object storage (PyPI's moto, over TLS) and restored from there by the commands of the chart's jobs and pods."""

import functools
import hashlib
import hmac
import http.server
import resource
import subprocess
import sys
import threading
import urllib.parse

import pytest
from charting import CONTROL_PLANE, rendered
from real_api import PROGRAMS, free_port, until

PREFIX = "muster-system/muster-fleet-etcd/"
# What the container of the job may have.
MEMORY = 64 * 1024 * 1024
LARGE = 300 * 1024 * 1024


class Bucket:
    """A bucket of an object storage that a store's jobs copy to, and what is in it."""

    def __init__(self, store, moto):
        self.store, self.port = store, free_port()
        tls = store.folder / "tls"
        for name, files in {"objects": {"access-key-id": "key\n", "secret-access-key": "secret\n"}, "objects-ca": {"ca.crt": (tls / "ca.crt").read_text()}}.items():
            (store.folder / name).mkdir()
            for file, text in files.items():
                (store.folder / name / file).write_text(text)
        import boto3

        self.client = boto3.client("s3", endpoint_url=self.endpoint, region_name="us-east-1", aws_access_key_id="key", aws_secret_access_key="secret", verify=str(tls / "ca.crt"))
        log = open(store.folder / "moto.log", "w")  # noqa: SIM115 - it is the process's
        self.process = subprocess.Popen([sys.executable, moto, "--host=127.0.0.1", f"--port={self.port}", "--ssl", f"--ssl-cert={tls}/tls.crt", f"--ssl-key={tls}/tls.key"], stdout=log, stderr=log)

    @property
    def endpoint(self):
        return f"https://127.0.0.1:{self.port}"

    def answers(self):
        assert self.process.poll() is None, (self.store.folder / "moto.log").read_text()
        try:
            return self.client.create_bucket(Bucket="backups")
        except Exception:  # noqa: BLE001 - it is not there yet
            return None

    def values(self, **more):
        return {"snapshots": {"objectStorage": {"bucket": "backups", "endpoint": self.endpoint, "credentialsSecret": "keys", "caSecret": "trust", **more}}}

    def keys(self, prefix=PREFIX):
        return [each["Key"] for each in self.client.list_objects_v2(Bucket="backups", Prefix=prefix).get("Contents", [])]


@pytest.fixture
def bucket(store, moto):
    it = Bucket(store, moto)
    try:
        until(60, "the object storage answers", it.answers)
        yield it
    finally:
        it.process.terminate()
        it.process.wait()


def job(store, name, values):
    """The commands of the pod of this name that takes a snapshot: the one that takes it, and the one that keeps it."""
    objects = rendered(CONTROL_PLANE, {"fleetApi": {"etcd": values}})
    cron = next(each for each in objects if each["kind"] == "CronJob" and each["metadata"]["name"].endswith("-snapshots"))
    pod = cron["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    for each in pod["initContainers"] + pod["containers"]:
        part = "command" if "command" in each else "args"
        each[part] = [word.replace("$(POD_NAME)", name) for word in each[part]]
    return [store.command(0, each) for each in (pod["initContainers"][0], pod["containers"][0])]


def run(words, before=None):
    """How a program ended, and what it said."""
    done = subprocess.run([str(word) for word in words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, preexec_fn=before)
    return done.returncode, done.stdout


def confine():
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))


def snapshot(store, name, values):
    take, keep = job(store, name, values)
    code, said = run(take)
    assert code == 0, said
    return run(keep)


def test_there_and_back(store, bucket):
    assert store.start([0], replicas=1) == [0], store.said(0)
    until(30, "it answers", lambda: store.ctl(0, "put", "key", "old")[0] == 0)
    for key in (f"{PREFIX}notes.txt", f"{PREFIX}deeper/a.db", "another/a.db"):
        bucket.client.put_object(Bucket="backups", Key=key, Body=b"x")
    for name in ("first", "second", "third"):
        code, said = snapshot(store, name, bucket.values(keep=2))
        assert code == 0 and f"copied {name}.db to s3://backups/{PREFIX}{name}.db" in said and "secret" not in said and "X-Amz" not in said, said
        taken = (store.folder / "snapshots" / f"{name}.db").read_bytes()
        assert bucket.client.get_object(Bucket="backups", Key=f"{PREFIX}{name}.db")["Body"].read() == taken, "every byte is there"
    assert sorted(bucket.keys()) == sorted(f"{PREFIX}{each}" for each in ("deeper/a.db", "notes.txt", "second.db", "third.db")), "the newest are kept there, and nothing of others is touched"
    assert bucket.keys("another/") == ["another/a.db"]
    assert sorted(each.name for each in (store.folder / "snapshots").iterdir()) == ["first.db", "second.db", "third.db"], "on the volume as many as are kept there"

    store.ctl(0, "put", "key", "new")
    store.stop(0)
    store.lose(0)
    for each in (store.folder / "snapshots").iterdir():
        each.unlink()
    values = {**bucket.values(), "restore": f"s3://backups/{PREFIX}third.db"}
    assert store.start([0, 1, 2], replicas=3, **values) == [0, 1, 2], f"with the volumes lost, three members restore what is in the bucket: {store.said(0)}"
    store.holds([0, 1, 2], "old")


def test_what_cannot_be_copied_stays_and_is_reported(store, bucket):
    (store.folder / "snapshots" / "x.db").write_bytes(b"a snapshot")
    keep = job(store, "x", bucket.values(bucket="nowhere"))[1]
    code, said = run(keep)
    assert code != 0 and "NoSuchBucket" in said and "x.db is on its volume" in said and "X-Amz" not in said, said
    assert (store.folder / "snapshots" / "x.db").read_bytes() == b"a snapshot"
    stranger = [word for word in job(store, "x", bucket.values())[1] if "--authority" not in str(word)]
    code, said = run([*(word for word in stranger if "--endpoint" not in str(word)), "--endpoint=http://127.0.0.1:x"])
    assert code != 0 and "--endpoint" in said, said
    fetch = [PROGRAMS / "muster-control-plane", "fetch-snapshot", "--from=s3://backups/none.db", f"--file={store.folder}/x.db", *(word for word in keep if str(word).startswith(("--endpoint", "--region", "--cred", "--auth")))]
    code, said = run(fetch)
    assert code != 0 and "NoSuchKey" in said and not (store.folder / "x.db").exists(), said


def test_a_large_one_is_never_in_memory(store, bucket):
    with open(store.folder / "snapshots" / "large.db", "wb") as file:
        file.truncate(LARGE)
    code, said = run(job(store, "large", bucket.values())[1], confine)
    assert code == 0 and f"{LARGE} bytes" in said, said


def signature(method, target, host):
    """Version 4 of the signature of a URL, as the specification has it, and the one that the URL bears. moto checks none."""
    path, query = target.split("?")
    given = dict(urllib.parse.parse_qsl(query))
    signed = "&".join(sorted(each for each in query.split("&") if not each.startswith("X-Amz-Signature=")))
    canonical = "\n".join([method, path, signed, f"host:{host}", "", "host", "UNSIGNED-PAYLOAD"])
    scope = given["X-Amz-Credential"].split("/", 1)[1]
    text = "\n".join(["AWS4-HMAC-SHA256", given["X-Amz-Date"], scope, hashlib.sha256(canonical.encode()).hexdigest()])
    key = functools.reduce(lambda key, part: hmac.digest(key, part.encode(), "sha256"), scope.split("/"), b"AWS4secret")
    return hmac.digest(key, text.encode(), "sha256").hex(), given["X-Amz-Signature"]


class Liar(http.server.BaseHTTPRequestHandler):
    """An object storage that is busy at first, and keeps only a part of what it is given."""

    asked = []
    signatures = []

    def do_PUT(self):  # noqa: N802 - the name that the server asks for
        Liar.asked.append(self.rfile.read(int(self.headers["Content-Length"])))
        self.answer(503 if len(Liar.asked) == 1 else 200, b"")

    def do_GET(self):  # noqa: N802
        self.answer(200, Liar.asked[-1][:-1])

    def answer(self, status, body):
        Liar.signatures.append(signature(self.command, self.path, self.headers["Host"]))
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def test_what_arrived_otherwise_is_reported(store, bucket):
    (store.folder / "snapshots" / "x.db").write_bytes(b"a snapshot")
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Liar) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        code, said = run(job(store, "x", bucket.values(endpoint=f"http://127.0.0.1:{server.server_port}", caSecret=""))[1])
        server.shutdown()
    assert Liar.asked == [b"a snapshot"] * 2 and "503 Service Unavailable" in said, f"it is sent again where it was refused in passing: {said}"
    assert len(Liar.signatures) == 3 and all(expected == given for expected, given in Liar.signatures), Liar.signatures
    assert code != 0 and "is not what was sent: 9 bytes" in said and "in place of 10 bytes" in said, said
