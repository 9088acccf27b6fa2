"""Alerts and dashboards: their queries parse, ask for metrics and labels that the programs have, and each alert has its page."""

import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

import yaml
from charting import check, rendered

RUNBOOKS = pathlib.Path(".github/RUNBOOKS.md")
RULES = {
    "charts/control-plane": ({"prometheusRule": {"enabled": True}}, ["agent", "control-plane", "shared"]),
    "charts/agent": ({"prometheusRule": {"enabled": True}, "clusterName": "member1"}, ["agent", "shared"]),
}
# Of etcd and kube-state-metrics, which the charts do not build.
FOREIGN = {
    "etcd_server_has_leader",
    "etcd_mvcc_db_total_size_in_bytes",
    "etcd_server_quota_backend_bytes",
    "etcd_disk_wal_fsync_duration_seconds",
    "kube_cronjob_status_last_successful_time",
}
# Labels that Prometheus, its operator, a Prometheus over several clusters, and histograms add.
ADDED = {"cluster", "namespace", "pod", "job", "le", "cronjob"}
WORDS = {"and", "or", "unless", "on", "by", "ignoring", "without", "group_left", "group_right", "bool", "offset"}


def source(crates):
    """The names of metrics and labels in the source of some crates."""
    text = "".join(each.read_text() for crate in crates for each in pathlib.Path(crate, "src").rglob("*.rs") if "tests" not in each.parts)
    metrics = set(re.findall(r'"((?:muster|karmada|cluster|evict|eviction|work)_[a-z0-9_]+)"', text))
    labels = set(re.findall(r'"(\w+)"\s*=>', text)) | set(re.findall(r'Some\(\("(\w+)",', text)) | set(re.findall(r'"(cluster_name|member_cluster|resource_kind|schedule_type|schedule_step)"', text))
    return metrics, labels


def parts(expression):
    """The metrics and labels that a query names."""
    labels = set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)\s*\"", expression))
    for listed in re.findall(r"\b(?:by|on|ignoring|without)\s*\(([^)]*)\)", expression):
        labels |= {each.strip() for each in listed.split(",") if each.strip()}
    bare = re.sub(r"\b(?:by|on|ignoring|without)\s*\([^)]*\)", " ", expression)
    bare = re.sub(r"\{[^}]*\}", " ", bare)
    bare = re.sub(r"\[[^\]]*\]", " ", bare)
    metrics = set(re.findall(r"\b([a-z_][a-z0-9_]*)\b(?!\s*\()", bare)) - WORDS
    return {re.sub(r"_(bucket|sum|count)$", "", each) for each in metrics}, labels


def known(where, expression, metrics, labels):
    used, asked = parts(expression)
    check(f"{where}: asks for metrics that there are", used and used <= metrics | FOREIGN, str(used - metrics - FOREIGN))
    check(f"{where}: and for their labels", asked <= labels | ADDED, str(asked - labels - ADDED))


def anchor(name):
    return re.sub(r"[^a-z0-9 -]", "", name.lower()).replace(" ", "-")


def promtool():
    """Prometheus's own checker: installed, or unpacked from Debian's package; None where neither can be had."""
    if shutil.which("promtool"):
        return shutil.which("promtool")
    folder = pathlib.Path(sys.prefix, "prometheus")
    tool = folder / "usr/bin/promtool"
    if not tool.exists() and shutil.which("apt-get") and shutil.which("dpkg-deb"):
        folder.mkdir(exist_ok=True)
        # A new machine has no list of packages yet.
        command = "apt-get download -qq prometheus || { apt-get update -qq && apt-get download -qq prometheus; } && dpkg-deb -x prometheus_*.deb . && rm prometheus_*.deb"
        subprocess.run(["sh", "-c", command], cwd=folder, capture_output=True, check=False)
    return tool if tool.exists() else None


def monitoring():
    groups, queries = {}, []
    page = RUNBOOKS.read_text()
    headings = {anchor(each) for each in re.findall(r"^#+ (.+)$", page, flags=re.M)}
    alerts = set()
    for path, (values, crates) in RULES.items():
        metrics, labels = source(crates)
        rule = next(each for each in rendered(path, values) if each["kind"] == "PrometheusRule")
        groups[path] = rule["spec"]
        for each in (each for group in rule["spec"]["groups"] for each in group["rules"]):
            name = f"{path}: {each['alert']}"
            alerts.add(each["alert"])
            known(name, each["expr"], metrics, labels)
            said = each["annotations"]
            check(f"{name}: says what it is", {"summary", "description", "runbook_url"} <= set(said) and each["labels"]["severity"] in ("critical", "warning", "info"))
            there, section = said["runbook_url"].split("#")
            check(f"{name}: has its runbook", section == anchor(each["alert"]) and section in headings and there.endswith("/.github/RUNBOOKS.md"), said["runbook_url"])
    check("no runbook without its alert", {anchor(each) for each in alerts} >= {each for each in headings if each.startswith("muster") and " " not in each and each != "muster"}, str(headings))
    metrics, labels = source(["agent", "control-plane", "shared"])
    # Agents are in their members, in namespaces of their own.
    of_agents = source(["agent"])[0] - source(["control-plane", "shared"])[0]
    boards = [each for each in rendered("charts/control-plane", {"dashboards": {"enabled": True}}) if "dashboard" in each["metadata"]["name"]]
    check("two dashboards", len(boards) == 2 and all(each["metadata"]["labels"]["grafana_dashboard"] == "1" for each in boards))
    for each in boards:
        for name, text in each["data"].items():
            board = json.loads(text)
            variables = {one["name"] for one in board["templating"]["list"]}
            check(f"{name}: shows one installation", "namespace" in variables, str(variables))
            places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in board["panels"]]
            check(f"{name}: panels do not lie over each other", len(places) == len(set(places)), str(places))
            for panel in board["panels"]:
                for target in panel.get("targets", []):
                    query = target["expr"].replace("$__rate_interval", "5m").replace("$cluster", "member1")
                    known(f"{name}: {panel['title']}", query, metrics, labels)
                    mixed = [one for one, labels in re.findall(r"\b([a-z_][a-z0-9_]*)(\{[^}]*\})?", query) if re.sub(r"_(bucket|sum|count)$", "", one) in parts(query)[0] - of_agents and "$namespace" not in labels]
                    check(f"{name}: {panel['title']}: does not mix installations", not mixed, str(mixed))
                    queries.append(query)
    tool = promtool()
    if tool is None:
        print("promtool cannot be had here: rules and queries were NOT parsed, and their tests did not run")
        return
    with tempfile.TemporaryDirectory() as folder:
        groups["queries"] = {"groups": [{"name": "dashboards", "rules": [{"record": f"q:{number}", "expr": query} for number, query in enumerate(queries)]}]}
        for path, spec in groups.items():
            file = pathlib.Path(folder, path.replace("/", "-") + ".yaml")
            for each in (each for group in spec["groups"] for each in group["rules"] if "alert" in each):
                # A test has to name every annotation: the summary, which is filled in, is enough.
                each["annotations"] = {"summary": each["annotations"]["summary"]}
            file.write_text(yaml.safe_dump(spec))
            done = subprocess.run([tool, "check", "rules", "--lint=none", file], capture_output=True, text=True, check=False)
            check(f"{path}: promtool reads it", done.returncode == 0, done.stdout + done.stderr)
            tests = pathlib.Path(".ci", f"{file.stem}-alerts.yaml")
            if path != "queries":
                # Paths in a test are relative to its file.
                shutil.copy(tests, folder)
                done = subprocess.run([tool, "test", "rules", tests.name], cwd=folder, capture_output=True, text=True, check=False)
                check(f"{tests}: alerts fire when they should, and not before", done.returncode == 0, done.stdout + done.stderr)
                tested = set(re.findall(r"alertname: (\w+)", tests.read_text()))
                untested = {each["alert"] for group in spec["groups"] for each in group["rules"]} - tested
                check(f"{tests}: every alert has a test", not untested, str(untested))
