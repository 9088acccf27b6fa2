"""A real cluster in which charts are installed, upgraded and uninstalled."""

import json
import pathlib
import ssl
import time
import urllib.error
import urllib.request
import warnings

import yaml
from charting import chosen
from helm_python import Config, config
from real_api import TOKEN, apply, kubectl


class Cluster:
    def __init__(self, kubeconfig):
        self.kubeconfig = kubeconfig
        # Whether objects are compared with the description of their kinds before they are sent.
        self.validates = True

    def apply(self, *objects):
        apply(self.kubeconfig, yaml.safe_dump_all(objects))

    def names(self, kinds, namespace):
        code, said = kubectl(self.kubeconfig, "-n", namespace, "get", kinds, "-o", "json")
        assert code == 0, said
        return {(each["kind"], each["metadata"]["name"]) for each in json.loads(said)["items"]}

    def helm(self, namespace):
        return Config(kubeconfig_path=self.kubeconfig, namespace=namespace)

    def install(self, chart, values, name="muster", namespace="muster-system"):
        """The release, or the words of the refusal."""
        self.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
        return answered(lambda: self.helm(namespace).install(chart, name, chosen(chart, values), namespace=namespace))


def answered(ask):
    """The answer, or the words of the refusal. An API that describes its kinds anew, as it does after
    each new one, is asked again: Helm gives up before it has changed anything."""
    for _ in range(20):
        try:
            return ask(), ""
        except Exception as error:  # noqa: BLE001 - the engine has one error class per cause
            words = str(error)
        if "failed to download openapi" not in words:
            break
        time.sleep(0.5)
    return None, words


def validate(cluster):
    """Helm compares objects with the description of all kinds in protobuf. An API server that was built
    against other libraries than upstream's has none; there the API's own validation has to do."""
    what = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
    server = yaml.safe_load(pathlib.Path(cluster.kubeconfig).read_text())["clusters"][0]["cluster"]["server"]
    asked = urllib.request.Request(f"{server}/openapi/v2", headers={"Accept": what, "Authorization": f"Bearer {TOKEN}"})
    trusting = ssl.create_default_context()
    trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
    try:
        urllib.request.urlopen(asked, context=trusting).close()
    except urllib.error.HTTPError as error:
        cluster.validates = False
        warnings.warn(f"the API describes its kinds with {error.code}: objects are NOT compared with it before they are sent", stacklevel=1)
        plain = config._opts
        config._opts = lambda **given: plain(**(given | ({"disable_openapi_validation": True} if "rollback_on_failure" in given else {})))


def default_class(cluster):
    default = {"storageclass.kubernetes.io/is-default-class": "true"}
    cluster.apply({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "slow", "annotations": default}, "provisioner": "example.com/none"})


def upgrade(helm, chart, values):
    return answered(lambda: helm.upgrade(chart, "muster", chosen(chart, values)))
