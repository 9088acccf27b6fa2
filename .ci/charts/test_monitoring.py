"""Alerts and dashboards: their queries parse, ask for metrics and labels that the programs have, and each alert has its page."""

import json
import pathlib
import re
import shutil
import subprocess

import pytest
import yaml
from charting import AGENT, CONTROL_PLANE, MEMBER, of_kind, rendered

RUNBOOKS = pathlib.Path(".github/RUNBOOKS.md")
RULES = {
    CONTROL_PLANE: ({}, ["Control plane", "Agent", "Both programs"]),
    AGENT: (MEMBER, ["Agent", "Both programs"]),
}
# Of etcd and kube-state-metrics, which the charts do not build.
FOREIGN = {
    "etcd_server_has_leader",
    "etcd_mvcc_db_total_size_in_bytes",
    "etcd_server_quota_backend_bytes",
    "etcd_disk_wal_fsync_duration_seconds",
    "kube_cronjob_status_last_schedule_time",
    "kube_cronjob_status_last_successful_time",
}
# Labels that Prometheus, its operator, a Prometheus over several clusters, and histograms add.
ADDED = {"cluster", "namespace", "pod", "job", "le", "cronjob"}
WORDS = {"and", "or", "unless", "on", "by", "ignoring", "without", "group_left", "group_right", "bool", "offset"}


def listed(programs):
    """The metrics of programs with their labels, from the tables of the manual."""
    found = {}
    for title, table in re.findall(r"^## (.+?):.*?\n(.*?)(?=^## |\Z)", pathlib.Path(".github/manual/metrics.md").read_text(), flags=re.M | re.S):
        if title in programs:
            found |= {name: set(re.findall(r"(?:^|; )`(\w+)`", labels)) for name, labels in re.findall(r"^\| `(\w+)` \| \w+ \| (.*?) \|", table, flags=re.M)}
    return found


def parts(expression):
    """The metrics and labels that a query names."""
    labels = set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)\s*\"", expression))
    for given in re.findall(r"\b(?:by|on|ignoring|without)\s*\(([^)]*)\)", expression):
        labels |= {each.strip() for each in given.split(",") if each.strip()}
    bare = re.sub(r"\b(?:by|on|ignoring|without)\s*\([^)]*\)", " ", expression)
    bare = re.sub(r"\{[^}]*\}", " ", bare)
    bare = re.sub(r"\[[^\]]*\]", " ", bare)
    metrics = set(re.findall(r"\b([a-z_][a-z0-9_]*)\b(?!\s*\()", bare)) - WORDS
    return {re.sub(r"_(bucket|sum|count)$", "", each) for each in metrics}, labels


def known(expression, metrics):
    used, asked = parts(expression)
    assert used and used <= set(metrics) | FOREIGN, "asks for metrics that there are"
    assert asked <= ADDED.union(*(metrics.get(each, ()) for each in used)), "and for labels that they have"


def anchor(name):
    return re.sub(r"[^a-z0-9 -]", "", name.lower()).replace(" ", "-")


def rules(path):
    values, _ = RULES[path]
    return of_kind(rendered(path, {**values, "prometheusRule": {"enabled": True}}), "PrometheusRule")[0]["spec"]


def alerts(path):
    return [each for group in rules(path)["groups"] for each in group["rules"]]


DASHBOARDS = [each for each in rendered(CONTROL_PLANE, {"dashboards": {"enabled": True}}) if "dashboard" in each["metadata"]["name"]]
BOARDS = {name: json.loads(text) for each in DASHBOARDS for name, text in each["data"].items()}
QUERIES = [
    pytest.param(target["expr"].replace("$__rate_interval", "5m").replace("$cluster", "member1"), id=f"{name}: {panel['title']}")
    for name, board in BOARDS.items()
    for panel in board["panels"]
    for target in panel.get("targets", [])
]
HEADINGS = {anchor(each) for each in re.findall(r"^#+ (.+)$", RUNBOOKS.read_text(), flags=re.M)}


def test_the_programs_have_the_metrics_of_the_manual_and_no_others():
    folders = ("agent/src", "control-plane/src", "shared/src", "shared/interpreter/src")
    files = [each for folder in folders for each in pathlib.Path(folder).rglob("*.rs") if "tests" not in each.parts]
    # Without the buckets of histograms, which stand under their names.
    text = "".join(each.read_text() for each in files if each.name != "telemetry.rs")
    metrics = listed(RULES[CONTROL_PLANE][1])
    assert not set(re.findall(r'\b(?:counter|gauge|histogram)!\(\s*"(\w+)"', text)) - set(metrics), "every metric is in the manual"
    assert not [each for each in metrics if f'"{each}"' not in text], "every metric of the manual is counted or measured"
    assert not [each for each in set().union(*metrics.values()) if f'"{each}"' not in text], "and labels are written"


@pytest.mark.parametrize(("path", "alert"), [pytest.param(path, each, id=f"{path}: {each['alert']}") for path in RULES for each in alerts(path)])
def test_alert(path, alert):
    known(alert["expr"], listed(RULES[path][1]))
    said = alert["annotations"]
    assert {"summary", "description", "runbook_url"} <= set(said) and alert["labels"]["severity"] in ("critical", "warning", "info"), "says what it is"
    there, section = said["runbook_url"].split("#")
    assert section == anchor(alert["alert"]) and section in HEADINGS and there.endswith("/.github/RUNBOOKS.md"), "has its runbook"


def test_no_runbook_without_its_alert():
    assert {anchor(each["alert"]) for path in RULES for each in alerts(path)} >= {each for each in HEADINGS if each.startswith("muster") and " " not in each and each != "muster"}


def test_two_dashboards():
    assert [each["metadata"]["labels"]["grafana_dashboard"] for each in DASHBOARDS] == ["1", "1"]


@pytest.mark.parametrize("name", BOARDS)
def test_dashboard(name):
    assert "namespace" in {one["name"] for one in BOARDS[name]["templating"]["list"]}, "shows one installation"
    places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in BOARDS[name]["panels"]]
    assert len(places) == len(set(places)), "panels do not lie over each other"


@pytest.mark.parametrize("query", QUERIES)
def test_panel(query):
    known(query, listed(RULES[CONTROL_PLANE][1]))
    # Agents are in their members, in namespaces of their own.
    own = parts(query)[0] - set(listed(["Agent"]))
    mixed = [one for one, labels in re.findall(r"\b([a-z_][a-z0-9_]*)(\{[^}]*\})?", query) if re.sub(r"_(bucket|sum|count)$", "", one) in own and "$namespace" not in labels]
    assert not mixed, "does not mix installations"


def checked(promtool, file, groups):
    file.write_text(yaml.safe_dump({"groups": groups}))
    done = subprocess.run([promtool, "check", "rules", "--lint=none", file], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"promtool reads it: {done.stdout}{done.stderr}"


def test_promtool_reads_the_queries_of_dashboards(promtool, tmp_path):
    queries = [{"record": f"q:{number}", "expr": query.values[0]} for number, query in enumerate(QUERIES)]
    checked(promtool, tmp_path / "queries.yaml", [{"name": "dashboards", "rules": queries}])


@pytest.mark.parametrize("path", RULES)
def test_alerts_fire_when_they_should_and_not_before(promtool, tmp_path, path):
    groups = rules(path)["groups"]
    for each in (each for group in groups for each in group["rules"]):
        # A test has to name every annotation: the summary, which is filled in, is enough.
        each["annotations"] = {"summary": each["annotations"]["summary"]}
    checked(promtool, tmp_path / "rules.yaml", groups)
    tests = pathlib.Path(__file__).parent / f"alerts-{pathlib.Path(path).name}.yaml"
    # Paths in a test are relative to its file.
    shutil.copy(tests, tmp_path)
    done = subprocess.run([promtool, "test", "rules", tests.name], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"alerts fire when they should, and not before: {done.stdout}{done.stderr}"
    tested = set(re.findall(r"alertname: (\w+)", tests.read_text()))
    assert {each["alert"] for group in groups for each in group["rules"]} <= tested, "every alert has a test"
