"""What the checks of the charts share: rendering with a real Helm engine, and counting."""

import pathlib
import re

import yaml
from helm_python import chart as helm

FAILURES = []


def check(name, good, detail=""):
    print(f"{'ok  ' if good else 'FAIL'} {name}{'' if good else ': ' + detail}")
    if not good:
        FAILURES.append(name)


def pasted():
    """The manifests that the README and the manual have people paste, as (page, text) pairs."""
    pages = [pathlib.Path("README.md"), *sorted(pathlib.Path(".github/manual").glob("*.md"))]
    return [(page, text) for page in pages for text in re.findall(r"<<'YAML'\n(.*?)\nYAML\n", page.read_text(), flags=re.S)]


def rendered(path, values):
    """The objects that an install would create, as (source file, object) pairs."""
    with helm.Chart.load(path) as chart:
        text = chart.render(values=values, name="muster", namespace="muster-system")
    if isinstance(text, dict):
        text = "\n---\n".join(body for name, body in text.items() if name.endswith((".yaml", ".yml")))
    return [document for document in yaml.safe_load_all(text) if document]


def external(path, values):
    """The same with a fleet API that somebody else runs."""
    return rendered(path, {"fleetApi": {"mode": "external"}, **values})


def refused(path, values):
    """The engine's words when values are refused, or None."""
    try:
        with helm.Chart.load(path) as chart:
            chart.validate_schema(values=values)
    except Exception as error:  # noqa: BLE001 - the engine has one error class per cause
        return str(error)
    return None


def container(objects, name="muster"):
    deployment = next(each for each in objects if each["kind"] == "Deployment" and each["metadata"]["name"] == name)
    return deployment, deployment["spec"]["template"]["spec"]["containers"][0]


def rules(objects, kind, name, namespace=None):
    """The rules of a role, by what it is called and where it lives."""
    for each in objects:
        metadata = each["metadata"]
        if each["kind"] == kind and metadata["name"] == name and metadata.get("namespace") == namespace:
            return each["rules"]
    return []


def fails(path, values):
    """The engine's words when rendering fails, or an empty text."""
    try:
        rendered(path, values)
    except Exception as error:  # noqa: BLE001 - the engine has one error class per cause
        return str(error)
    return ""


def pods(objects):
    """The pod templates of all objects, by the name of the object."""
    found = {}
    for each in objects:
        if each["kind"] in ("Deployment", "StatefulSet"):
            found[each["metadata"]["name"]] = each["spec"]["template"]
        if each["kind"] == "CronJob":
            found[each["metadata"]["name"]] = each["spec"]["jobTemplate"]["spec"]["template"]
    return found
