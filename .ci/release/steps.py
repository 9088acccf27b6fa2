"""Steps of the release workflow that need no registry: `.ci/tool python .ci/release/steps.py --help` lists them with their arguments."""

import argparse
import gzip
import hashlib
import io
import json
import pathlib
import re
import shutil
import sys
import tarfile
import tempfile
import zipfile

import helm_python
import yaml

CHANGELOG = pathlib.Path(".github/CHANGELOG.md")
CHARTS = ("charts/control-plane", "charts/agent")
# What Rust calls a target, and what krew calls it.
TARGETS = {
    "x86_64-unknown-linux-gnu": ("linux", "amd64"),
    "aarch64-unknown-linux-gnu": ("linux", "arm64"),
    "x86_64-apple-darwin": ("darwin", "amd64"),
    "aarch64-apple-darwin": ("darwin", "arm64"),
    "x86_64-pc-windows-msvc": ("windows", "amd64"),
}
# What kubectl runs for completion, if it is in the PATH. A script and no link: krew unpacks no archive that has one.
COMPLETION = "kubectl_complete-muster"
CAVEATS = """Completion with TAB, where kubectl has its own (https://kubernetes.io/docs/tasks/tools/#enable-shell-autocompletion), on Linux and macOS:
  ln -s kubectl-muster "${KREW_ROOT:-$HOME/.krew}/bin/kubectl_complete-muster"
"""


def refuse(words):
    raise SystemExit(f"release: {words}")


def workspace_version():
    return re.search(r'^version = "([^"]+)"', pathlib.Path("Cargo.toml").read_text(), flags=re.M)[1]


def section(version):
    """The lines of the changelog about one version."""
    found = re.search(rf"^## {re.escape(version)}\b[^\n]*\n(.*?)(?=^## |\Z)", CHANGELOG.read_text(), flags=re.M | re.S)
    return found[1].strip() if found else ""


def version(tag):
    """The version of a tag, if everything that names a version names this one."""
    wanted = workspace_version()
    if tag != f"v{wanted}":
        refuse(f"the tag is {tag}, and Cargo.toml says {wanted}: the tag has to be v{wanted}")
    for path in CHARTS:
        chart = yaml.safe_load(pathlib.Path(path, "Chart.yaml").read_text())
        if {chart["version"], chart["appVersion"]} != {wanted}:
            refuse(f"{path}/Chart.yaml has version {chart['version']} and appVersion {chart['appVersion']}, not {wanted}")
    if not section(wanted):
        refuse(f"{CHANGELOG} has no section `## {wanted}`")
    return wanted


def notes(wanted, registry, repository):
    """Release notes: the changelog's section, and how to install and verify this version."""
    location = f"oci://{registry}/charts"
    signer = f"--certificate-identity-regexp '^https://github[.]com/{repository.replace('.', '[.]')}/[.]github/workflows/release[.]yaml@refs/tags/v{wanted.replace('.', '[.]')}$'"
    signed = f"{signer} --certificate-oidc-issuer https://token.actions.githubusercontent.com"
    published = [f"{registry}/muster-{image}:{wanted}" for image in ("control-plane", "agent", "sandbox")]
    published += [f"{registry}/charts/{path.replace('charts/', 'muster-')}:{wanted}" for path in CHARTS]
    verified = "\n".join(f"cosign verify {signed} {each}" for each in published)
    return f"""{section(wanted)}

## Install

```
helm install muster {location}/muster-control-plane --version {wanted} -n muster-system --create-namespace --set fleetApi.profile=production --set fleetApi.service.type=LoadBalancer
kubectl muster token create --cluster-name member1 --print-helm-command --kubeconfig fleet.kubeconfig
```

Images: `{registry}/muster-control-plane:{wanted}`, `{registry}/muster-agent:{wanted}`, `{registry}/muster-sandbox:{wanted}` (linux/amd64, linux/arm64), with SBOM and provenance. The images of
upstream (kube-apiserver, kube-controller-manager, etcd) have tags in the chart: `-f control-plane-digests.yaml`, a file of this release, names them by the digests that their registry served when it
was made.

## Verify

Everything is signed by this repository's workflow:

```
{verified}
cosign verify-blob {signed} --bundle checksums.txt.bundle checksums.txt
sha256sum --check --ignore-missing checksums.txt
```
"""


def page(path):
    """A page with the values of a chart, from the comments in values.yaml."""
    rows, comment, stack = [], [], []
    for line in pathlib.Path(path, "values.yaml").read_text().splitlines():
        found = re.match(r"^( *)([A-Za-z]+):(?: (.*))?$", line)
        if line.strip().startswith("# "):
            comment.append(line.strip()[2:])
        elif found:
            depth, key, default = len(found[1]) // 2, found[2], found[3]
            stack[depth:] = [key]
            if default is not None or comment:
                rows.append(f"| `{'.'.join(stack)}` | {f'`{default}`' if default else ''} | {' '.join(comment)} |".replace("\\|", "|"))
            comment = []
        else:
            comment = []
    chart = yaml.safe_load(pathlib.Path(path, "Chart.yaml").read_text())
    head = f"# {chart['name']}\n\n{chart['description']}. [Documentation]({chart['home']}/blob/main/.github/MANUAL.md)\n\n## Values\n\n| value | default | meaning |\n|---|---|---|\n"
    return head + "\n".join(rows) + "\n"


def charts(wanted, registry, out):
    """Packages the charts as they are published: with their images there, and with the place that they come from."""
    host, _, owner = registry.partition("/")
    made = []
    for path in CHARTS:
        with tempfile.TemporaryDirectory() as folder:
            copy = pathlib.Path(folder, pathlib.Path(path).name)
            shutil.copytree(path, copy)
            program = copy.joinpath("Chart.yaml").read_text()
            name = yaml.safe_load(program)["name"]
            values = copy / "values.yaml"
            text = re.sub(r"^  registry: ghcr\.io\n  repository: muster-io/(muster-[\w-]+)$", rf"  registry: {host}\n  repository: {owner}/\1", values.read_text(), flags=re.M)
            if f"  repository: {owner}/" not in text:
                refuse(f"{path}/values.yaml: image.registry and image.repository are not where they are expected")
            values.write_text(text)
            changes = yaml.safe_dump([line[2:] for line in re.sub(r"\n  +", " ", section(wanted)).splitlines() if line.startswith("- ")], width=10**6, allow_unicode=True)
            program = program.replace("ghcr.io/muster-io/", f"{registry}/")
            program += f"  failover.muster.io/location: oci://{registry}/charts/{name} --version {wanted}\n"
            program += "  artifacthub.io/changes: |\n" + "".join(f"    {line}\n" for line in changes.splitlines())
            program = re.sub(r'(artifacthub\.io/prerelease: ")\w+', rf"\g<1>{'true' if '-' in wanted or wanted.startswith('0.') else 'false'}", program)
            copy.joinpath("Chart.yaml").write_text(program)
            copy.joinpath("README.md").write_text(page(path))
            helm_python.package(str(copy), destination=str(out))
        made.append(pathlib.Path(out, f"{name}-{wanted}.tgz"))
        if not made[-1].exists():
            refuse(f"no {made[-1]} was made")
    return made


def archive(wanted, target, binary, out):
    """One archive with the plug-in for a platform: the same bytes from the same binary."""
    system, machine = TARGETS[target]
    program = "kubectl-muster.exe" if system == "windows" else "kubectl-muster"
    files = [(program, pathlib.Path(binary).read_bytes(), 0o755), ("LICENSE", pathlib.Path("LICENSE").read_bytes(), 0o644)]
    files.append((f"{COMPLETION}.cmd", b'@"%~dp0kubectl-muster.exe" __complete %*\r\n', 0o755) if system == "windows" else (COMPLETION, b'#!/bin/sh\nexec kubectl-muster __complete "$@"\n', 0o755))
    stem = f"kubectl-muster_{wanted}_{system}_{machine}"
    if system == "windows":
        made = pathlib.Path(out, f"{stem}.zip")
        with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as file:
            for name, data, mode in files:
                entry = zipfile.ZipInfo(name)
                entry.external_attr = mode << 16
                file.writestr(entry, data, zipfile.ZIP_DEFLATED)
        return made
    made = pathlib.Path(out, f"{stem}.tar.gz")
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.USTAR_FORMAT) as file:
        for name, data, mode in files:
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(data), mode
            file.addfile(entry, io.BytesIO(data))
    made.write_bytes(gzip.compress(packed.getvalue(), mtime=0))
    return made


def checksums(folder):
    """Digests of everything in a folder, as sha256sum reads them."""
    folder = pathlib.Path(folder)
    made = folder / "checksums.txt"
    files = sorted(each for each in folder.iterdir() if each.is_file() and not each.name.startswith("checksums.txt"))
    made.write_text("".join(f"{hashlib.sha256(each.read_bytes()).hexdigest()}  {each.name}\n" for each in files))
    return made


def krew(wanted, folder, repository):
    """The manifest by which krew installs the plug-in from the archives of a folder."""
    platforms = []
    for system, machine in TARGETS.values():
        end = "zip" if system == "windows" else "tar.gz"
        file = pathlib.Path(folder, f"kubectl-muster_{wanted}_{system}_{machine}.{end}")
        if not file.exists():
            refuse(f"{file} is missing")
        platforms.append(
            {
                "selector": {"matchLabels": {"os": system, "arch": machine}},
                "uri": f"https://github.com/{repository}/releases/download/v{wanted}/{file.name}",
                "sha256": hashlib.sha256(file.read_bytes()).hexdigest(),
                "bin": "kubectl-muster.exe" if system == "windows" else "kubectl-muster",
            }
        )
    spec = {
        "version": f"v{wanted}",
        "homepage": f"https://github.com/{repository}",
        "shortDescription": "Cluster failover for fleets of clusters",
        "description": "Tokens by which members join a fleet, why a workload is where it is, and what interpreters say. Needs a fleet API with Muster or Karmada.\n",
        "caveats": CAVEATS,
        "platforms": platforms,
    }
    made = pathlib.Path(folder, "muster.yaml")
    made.write_text(yaml.safe_dump({"apiVersion": "krew.googlecontainertools.github.com/v1alpha2", "kind": "Plugin", "metadata": {"name": "muster"}, "spec": spec}, sort_keys=False))
    return made


def sbom(wanted, out):
    """Every crate that a program may link, from Cargo.lock, as CycloneDX."""
    lock = pathlib.Path("Cargo.lock").read_text()
    crates = re.findall(r'\[\[package\]\]\nname = "([^"]+)"\nversion = "([^"]+)"(?:\nsource = "[^"]+"\nchecksum = "([0-9a-f]+)")?', lock)
    components = [
        {"type": "library", "name": name, "version": number, "purl": f"pkg:cargo/{name}@{number}", "hashes": [{"alg": "SHA-256", "content": digest}]}
        for name, number, digest in crates
        if digest
    ]
    made = pathlib.Path(out, f"muster-{wanted}.cdx.json")
    about = {"component": {"type": "application", "name": "muster", "version": wanted, "licenses": [{"license": {"id": "Apache-2.0"}}]}}
    made.write_text(json.dumps({"bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1, "metadata": about, "components": components}, indent=1) + "\n")
    return made


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    steps = parser.add_subparsers(dest="step", required=True)
    wanted = {"version": ["TAG"], "notes": ["VERSION", "REGISTRY", "REPOSITORY"], "charts": ["VERSION", "REGISTRY", "OUT"], "archive": ["VERSION", "TARGET", "BINARY", "OUT"]}
    wanted |= {"checksums": ["FOLDER"], "krew": ["VERSION", "FOLDER", "REPOSITORY"], "sbom": ["VERSION", "OUT"]}
    for step, words in wanted.items():
        command = steps.add_parser(step)
        for word in words:
            command.add_argument(word)
    given = vars(parser.parse_args())
    step = given.pop("step")
    made = globals()[step](*given.values())
    for each in made if isinstance(made, list) else [made]:
        if each is not None:
            print(each)


if __name__ == "__main__":
    sys.exit(main())
