"""What helm would be given by a script: the chart is rendered with the values of the command, so that a value that is none is found without a cluster."""

import sys

import yaml
from helm_python import chart as charts


def put(values, path, value):
    """Sets a value as `--set` does, as far as the scripts use it: numbers, booleans, and lists in braces."""
    keys = path.split(".")
    for key in keys[:-1]:
        values = values.setdefault(key, {})
    values[keys[-1]] = value[1:-1].split(",") if value.startswith("{") else yaml.safe_load(value)


def merge(into, more):
    for key, value in more.items():
        if isinstance(value, dict) and isinstance(into.get(key), dict):
            merge(into[key], value)
        else:
            into[key] = value


def main(words):
    if words[0] not in ("install", "upgrade", "template"):
        return 0
    values, names, rest = {}, [], iter(words[1:])
    for word in rest:
        if word == "--set":
            put(values, *next(rest).split("=", 1))
        elif word in ("-f", "--values"):
            with open(next(rest)) as file:
                merge(values, yaml.safe_load(file))
        elif word in ("-n", "--namespace", "--timeout", "--kubeconfig", "--show-only"):
            next(rest)
        elif not word.startswith("-"):
            names.append(word)
    name, path = names
    with charts.Chart.load(path) as chart:
        if path.endswith("agent"):
            # An upgrade that keeps its values names none.
            values.setdefault("clusterName", "member1")
        elif words[0] == "upgrade":
            values.setdefault("fleetApi", {}).setdefault("profile", "trial")
        chart.validate_schema(values=values)
        chart.render(values=values, name=name, namespace="muster-system")
    return 0


sys.exit(main(sys.argv[1:]))
