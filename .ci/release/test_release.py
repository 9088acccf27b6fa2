"""Every step of a release that needs no registry and no container engine, with a stand-in for the binaries, and what a person would check by hand."""

import json
import os
import pathlib
import re
import subprocess
import tarfile
import zipfile

import pytest
import steps
import yaml
from charting import files

WANTED = steps.workspace_version()
REGISTRY, REPOSITORY = "registry.example.com/somebody", "somebody/muster"


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    """A folder with an archive for each platform."""
    folder = tmp_path_factory.mktemp("release")
    for target in steps.TARGETS:
        steps.archive(WANTED, target, __file__, folder)
    return folder


def test_the_tag_is_the_version():
    assert steps.version(f"v{WANTED}") == WANTED


@pytest.mark.parametrize("tag", ["v9.9.9", WANTED])
def test_another_tag_is_refused(tag):
    with pytest.raises(SystemExit, match=f"release: the tag is {re.escape(tag)}, and Cargo.toml says"):
        steps.version(tag)


def test_notes():
    words = steps.notes(WANTED, REGISTRY, REPOSITORY)
    assert "## Install" in words and steps.section(WANTED) in words and "control-plane-digests.yaml" in words
    # Commands that can be pasted, and that nobody else's signature satisfies.
    signer = f"https://github.com/{REPOSITORY}/.github/workflows/release.yaml@refs/tags/v{WANTED}"
    commands = [each for each in words.splitlines() if each.startswith("cosign ")]
    assert [each.split()[1] for each in commands] == ["verify", "verify", "verify", "verify", "verify", "verify-blob"]
    for each in commands:
        pattern = re.search(r"--certificate-identity-regexp '([^']*)'", each)[1]
        assert re.fullmatch(pattern, signer) and not re.search(pattern, signer.replace(REPOSITORY, "else/" + REPOSITORY)) and "..." not in each
        assert "--certificate-oidc-issuer https://token.actions.githubusercontent.com" in each


def test_the_readme_runs_the_published_sandbox():
    assert f"ghcr.io/muster-io/muster-sandbox:{WANTED}" in pathlib.Path("README.md").read_text()


def test_an_archive_is_the_same_twice(out, tmp_path):
    again = steps.archive(WANTED, "x86_64-unknown-linux-gnu", __file__, tmp_path)
    assert again.read_bytes() == pathlib.Path(out, again.name).read_bytes()


def test_archives_can_be_unpacked_by_krew_and_complete(out):
    plugin = yaml.safe_load(steps.krew(WANTED, out, REPOSITORY).read_text())
    assert len(plugin["spec"]["platforms"]) == len(steps.TARGETS)
    for file in out.glob("kubectl-muster_*"):
        if file.name.endswith(".zip"):
            members = zipfile.ZipFile(file).namelist()
        else:
            members = [each.name for each in tarfile.open(file) if each.isfile()]
            assert len(members) == len(tarfile.open(file).getnames()), f"krew unpacks files and folders alone: {file}"
        assert any(each.startswith(steps.COMPLETION) for each in members), f"{file.name} completes nothing"


def test_components(tmp_path):
    components = json.loads(steps.sbom(WANTED, tmp_path).read_text())["components"]
    assert len(components) > 200 and any(each["name"] == "rustls" for each in components)


def test_packaged_charts(tmp_path):
    for package in steps.charts(WANTED, REGISTRY, tmp_path):
        values = {"clusterName": "m1"} if "agent" in package.name else {"fleetApi": {"profile": "trial"}}
        image = f"{REGISTRY}/{package.name.removesuffix(f'-{WANTED}.tgz')}:{WANTED}"
        assert image in "\n".join(files(str(package), values).values()), "a packaged chart uses the published image"
        with tarfile.open(package) as file:
            readme = next(each for each in file.getnames() if each.endswith("/README.md") and each.count("/") == 1)
            written = file.extractfile(readme).read().decode()
        for key in ("image.repository", "fleetApi.profile" if "control-plane" in package.name else "clusterName", "extraEnv"):
            assert f"| `{key}` |" in written, f"{key} is on the page of {package.name}"


def test_checksums(out):
    steps.checksums(out)
    subprocess.run(["sha256sum", "--check", "--quiet", "checksums.txt"], cwd=out, check=True)


@pytest.mark.parametrize("publish", ["true", "false"])
@pytest.mark.parametrize("image", ["control-plane", "agent", "sandbox"])
def test_command_that_builds(image, publish):
    environment = {**os.environ, "PUBLISH": publish, "REGISTRY": REGISTRY, "VERSION": "0.0.0"}
    subprocess.run([".ci/release/image", image, "amd64", "/tmp/none", "--dry-run"], env=environment, capture_output=True, check=True)
