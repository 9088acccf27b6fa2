import pathlib
import shutil
import subprocess
import sys

import pytest

pytest.register_assert_rewrite("charting")


@pytest.fixture(scope="session")
def promtool():
    """Prometheus's own checker: installed, or unpacked from Debian's package."""
    tool = shutil.which("promtool") or pathlib.Path(sys.prefix, "prometheus/usr/bin/promtool")
    if not pathlib.Path(tool).exists() and shutil.which("apt-get") and shutil.which("dpkg-deb"):
        folder = pathlib.Path(sys.prefix, "prometheus")
        folder.mkdir(exist_ok=True)
        # A new machine has no list of packages yet.
        command = "apt-get download -qq prometheus || { apt-get update -qq && apt-get download -qq prometheus; } && dpkg-deb -x prometheus_*.deb . && rm prometheus_*.deb"
        subprocess.run(["sh", "-c", command], cwd=folder, capture_output=True, check=False)
    if not pathlib.Path(tool).exists():
        pytest.skip("promtool cannot be had here: rules and queries were NOT parsed, and their tests did not run")
    return tool
