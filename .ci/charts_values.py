"""Values that every chart of this kind has: names, labels, images, pods of all parts, proxies, network policies; and that no rendering differs from another."""

import json
import pathlib
import re
import subprocess

import yaml
from charting import check, external, fails, pods, refused, rendered
from helm_python import chart as helm

CONTROL_PLANE = "charts/control-plane"
AGENT = "charts/agent"
MEMBER = {"clusterName": "member1"}
# Kinds of the Kubernetes releases that the charts admit (`kubeVersion`), and of operators that are asked for by name.
VERSIONS = {
    "v1",
    "apps/v1",
    "batch/v1",
    "policy/v1",
    "networking.k8s.io/v1",
    "rbac.authorization.k8s.io/v1",
    "scheduling.k8s.io/v1",
    "admissionregistration.k8s.io/v1",
    "apiextensions.k8s.io/v1",
    "cert-manager.io/v1",
    "monitoring.coreos.com/v1",
}
EVERYTHING = {
    "networkPolicy": {"enabled": True, "metricsFrom": [{"namespaceSelector": {}}]},
    "metrics": {"podMonitor": {"enabled": True}, "serviceMonitor": {"enabled": True}},
    "prometheusRule": {"enabled": True},
    "commonLabels": {"team": "platform"},
}
OF_CONTROL_PLANE = {**EVERYTHING, "dashboards": {"enabled": True}, "webhook": {"enabled": True}}
OF_AGENT = {**EVERYTHING, **MEMBER, "fleet": {"server": "https://fleet.example.com:8443", "token": "abcdef.0123456789abcdef"}}
OF_PODS = {
    "podLabels": {"tier": "x"},
    "podAnnotations": {"note": "y"},
    "extraEnv": [{"name": "TZ", "value": "UTC"}],
    "extraVolumes": [{"name": "trust", "configMap": {"name": "trust"}}],
    "extraVolumeMounts": [{"name": "trust", "mountPath": "/etc/ssl/extra", "readOnly": True}],
    "nodeSelector": {"pool": "a"},
    "tolerations": [{"key": "dedicated", "operator": "Exists"}],
    "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "DoNotSchedule"}],
    "livenessProbe": {"timeoutSeconds": 31},
}


def enumerations():
    """The schema names exactly what the program takes."""
    source = pathlib.Path("control-plane/src/settings/mod.rs").read_text()
    block = source[source.index("pub const CONTROLLERS") :]
    controllers = re.findall(r'\(\s*"(\w+)",', block[: block.index("];")])
    gates = re.findall(r'Gate \{\s*name: "(\w+)"', source)
    schema = json.loads(pathlib.Path(CONTROL_PLANE, "values.schema.json").read_text())["properties"]
    check("the schema has the program's feature gates", gates and set(schema["featureGates"]["properties"]) == set(gates), str(gates))
    named = schema["controllers"]["anyOf"][1]["items"]["enum"]
    expected = {"*", *controllers, *(f"-{name}" for name in controllers)}
    check("the schema has the program's controllers", controllers and set(named) == expected, str(set(named) ^ expected))
    pattern = re.compile(schema["controllers"]["anyOf"][0]["pattern"])
    check("and as one text", all(pattern.fullmatch(f"*,-{name}") and pattern.fullmatch(name) for name in controllers) and not pattern.fullmatch("*,-x"))
    source = pathlib.Path("agent/src/settings.rs").read_text() + pathlib.Path("agent/src/settings/check.rs").read_text()
    secrets = json.loads(pathlib.Path(AGENT, "values.schema.json").read_text())["properties"]["reportSecrets"]["items"]["enum"]
    everywhere = source + "".join(each.read_text() for each in pathlib.Path("agent/src").rglob("*.rs"))
    check("the schema has the agent's secrets", all(f'"{name}"' in everywhere for name in secrets), str(secrets))
    listed = next(each for each in external(CONTROL_PLANE, {"controllers": ["*", "-binding"]}) if each["kind"] == "Deployment")
    check("controllers can be a list", "--controllers=*,-binding" in listed["spec"]["template"]["spec"]["containers"][0]["args"])
    for values, word in [({"controllers": ["*", "-bindng"]}, "controllers"), ({"featureGates": {"Failovr": True}}, "Failovr")]:
        words = refused(CONTROL_PLANE, values)
        check(f"{CONTROL_PLANE}: refuses {values}", words is not None and word in words, str(words))


def schema_and_values(path):
    """Every value is in the schema, and every key of the schema has its default and its comment in values.yaml."""
    schema = json.loads(pathlib.Path(path, "values.schema.json").read_text())
    values = yaml.safe_load(pathlib.Path(path, "values.yaml").read_text())

    def keys(schema, prefix=""):
        for name, each in schema.get("properties", {}).items():
            # Values that were taken away stay in the schema, for upgrades that reuse them.
            if each.get("description", "").startswith("Has no effect."):
                continue
            yield prefix + name
            yield from keys(each, f"{prefix}{name}.")

    def has(values, key):
        for part in key.split("."):
            if not isinstance(values, dict) or part not in values:
                return False
            values = values[part]
        return True

    missing = [key for key in keys(schema) if not has(values, key) and not key.startswith("featureGates.")]
    check(f"{path}: every value of the schema has its default in values.yaml", not missing, str(missing))
    check(f"{path}: its own values are valid", refused(path, {} if path == CONTROL_PLANE else MEMBER) is None)


def the_same_at_each_rendering():
    for path, values in [(CONTROL_PLANE, OF_CONTROL_PLANE), (AGENT, OF_AGENT)]:
        check(f"{path}: with everything on, the same at each rendering", rendered(path, values) == rendered(path, values))
        for file in sorted(pathlib.Path(path, "templates").iterdir()):
            if file.name in ("NOTES.txt", "_preflight.tpl"):
                continue
            check(f"{path}/templates/{file.name}: no object depends on what the cluster has", "muster.preflight" not in file.read_text())
            made = re.findall(r"\b(lookup|rand\w+|gen[A-Z]\w+|now|uuidv4|Release\.(?:IsInstall|IsUpgrade|Revision))\b", re.sub(r"\{\{-? */\*.*?\*/ *-?\}\}", "", file.read_text(), flags=re.S))
            check(f"{path}/templates/{file.name}: depends on values alone", not made, str(made))
        hooks = [each["metadata"]["name"] for each in rendered(path, values) if "helm.sh/hook" in each["metadata"].get("annotations", {})]
        check(f"{path}: no object is a hook, so that Argo CD and Flux apply what Helm applies", not hooks, str(hooks))


def labels_and_names():
    for path, values in [(CONTROL_PLANE, OF_CONTROL_PLANE), (AGENT, OF_AGENT)]:
        objects = rendered(path, values)
        old = {each["apiVersion"] for each in objects} - VERSIONS
        check(f"{path}: kinds that every admitted Kubernetes has", not old, str(old))
        without = [(each["kind"], each["metadata"]["name"]) for each in objects if each["metadata"].get("labels", {}).get("team") != "platform"]
        check(f"{path}: labels of all objects arrive", not without, str(without))
        without = [name for name, pod in pods(objects).items() if pod["metadata"]["labels"].get("team") != "platform"]
        check(f"{path}: and of all pods", not without, str(without))
        selectors = [each["spec"].get("selector", {}).get("matchLabels", {}) for each in objects if each["kind"] in ("Deployment", "StatefulSet")]
        check(f"{path}: but selectors stay what they were", selectors and not [each for each in selectors if "team" in each], str(selectors))
        renamed = rendered(path, {**values, "fullnameOverride": "other", "nameOverride": "else"})
        names = [each["metadata"]["name"] for each in renamed if "other" not in each["metadata"]["name"]]
        check(f"{path}: every name can be another", not names, str(names))
        keys = [(each["kind"], each["metadata"].get("namespace"), each["metadata"]["name"]) for each in objects]
        check(f"{path}: every object once with everything on", len(keys) == len(set(keys)))
        own = {"app.kubernetes.io/name": "x", "app.kubernetes.io/instance": "y"}
        deployment = next(each for each in rendered(path, {**values, "podLabels": own, "commonLabels": own}) if each["kind"] == "Deployment")
        check(f"{path}: labels of one's own do not hide pods from their selector", deployment["spec"]["selector"]["matchLabels"].items() <= deployment["spec"]["template"]["metadata"]["labels"].items())
        extra = [{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "{{ .Release.Name }}-x"}}, "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: y"]
        added = {each["metadata"]["name"] for each in rendered(path, {**values, "extraObjects": extra})} - {each["metadata"]["name"] for each in objects}
        check(f"{path}: further objects arrive", added == {"muster-x", "y"}, str(added))
        annotated = rendered(path, {**values, "serviceAccount": {"annotations": {"a": "b"}}})
        account = next(each for each in annotated if each["kind"] == "ServiceAccount" and each["metadata"]["name"] == "muster")
        check(f"{path}: its account is annotated", account["metadata"]["annotations"] == {"a": "b"}, str(account))
    check("two installations in one cluster share no name outside of namespaces", not shared_names())


def shared_names():
    """Names without a namespace that two releases of one name in two namespaces would both make."""
    both = []
    for namespace in ("one", "two"):
        names = set()
        for path, values in [(CONTROL_PLANE, OF_CONTROL_PLANE), (AGENT, OF_AGENT)]:
            with helm.Chart.load(path) as chart:
                files = chart.render(values=values, name="muster", namespace=namespace)
            for text in files.values() if isinstance(files, dict) else [files]:
                for each in yaml.safe_load_all(text) if "kind:" in text else []:
                    if isinstance(each, dict) and each.get("kind") in ("ClusterRole", "ClusterRoleBinding", "PriorityClass"):
                        names.add((path, each["kind"], each["metadata"]["name"]))
        both.append(names)
    return both[0] & both[1] or not both[0]


def images():
    mirror = {"global": {"imageRegistry": "mirror.example.com/cache/"}}
    for path, values in [(CONTROL_PLANE, {}), (AGENT, MEMBER)]:
        used = {name: [each["image"] for each in pod["spec"]["containers"] + pod["spec"].get("initContainers", [])] for name, pod in pods(rendered(path, {**values, **mirror})).items()}
        strangers = [each for each in sum(used.values(), []) if not each.startswith("mirror.example.com/cache/")]
        check(f"{path}: every image from a mirror", used and not strangers, str(strangers))
        main = pods(rendered(path, {**values, "image": {"repository": "localhost:5000/x", "tag": "1"}}))["muster"]["spec"]["containers"][0]["image"]
        check(f"{path}: a repository that names its registry keeps it", main == "localhost:5000/x:1", main)
        main = pods(rendered(path, values))["muster"]["spec"]["containers"][0]["image"]
        program = path.replace("charts/", "muster-")
        check(f"{path}: the published image by default", main == f"ghcr.io/muster-io/{program}:0.1.0", main)


def pinned():
    """What `.ci/pin-images` prints are values by which every image of upstream is named by a digest."""
    done = subprocess.run([".ci/pin-images", "--dry-run"], capture_output=True, text=True, check=False)
    values = yaml.safe_load(done.stdout) or {}
    words = refused(CONTROL_PLANE, values)
    check("pinned images are values of the chart", done.returncode == 0 and words is None, done.stderr + str(words))
    used = {each["image"] for pod in pods(rendered(CONTROL_PLANE, values)).values() for each in pod["spec"]["containers"] + pod["spec"].get("initContainers", [])}
    loose = [each for each in used if each.startswith("registry.k8s.io/") and "@sha256:" not in each]
    check("and pin every image of upstream", not loose and len(used) == 4, str(used))
    told = pathlib.Path(CONTROL_PLANE, "values.yaml").read_text().count("control-plane-digests.yaml")
    check("values.yaml says that they are not pinned by default, and how they are", told >= 1, str(told))


def every_part():
    """What can be said about pods arrives at every part, and what is said for the control plane holds for parts that say nothing."""
    parts = {"muster-fleet-api": "apiServer", "muster-fleet-manager": "controllerManager", "muster-fleet-etcd": "etcd", "muster-fleet-certificates": "certificates"}
    both = {**OF_PODS, "fleetApi": {part: OF_PODS for part in parts.values()}}
    for path, values in [(CONTROL_PLANE, both), (AGENT, {**OF_PODS, **MEMBER})]:
        found = pods(rendered(path, values))
        for name in ["muster", *parts] if path == CONTROL_PLANE else ["muster"]:
            pod, main = found[name]["spec"], found[name]["spec"]["containers"][0]
            arrived = [
                found[name]["metadata"]["labels"]["tier"] == "x",
                found[name]["metadata"]["annotations"]["note"] == "y",
                {"name": "TZ", "value": "UTC"} in main["env"],
                OF_PODS["extraVolumes"][0] in pod["volumes"],
                OF_PODS["extraVolumeMounts"][0] in main["volumeMounts"],
                pod["nodeSelector"] == {"pool": "a"},
                pod["tolerations"] == OF_PODS["tolerations"],
                pod["topologySpreadConstraints"][0]["labelSelector"]["matchLabels"].items() <= found[name]["metadata"]["labels"].items(),
                main["livenessProbe"]["timeoutSeconds"] == 31 and main["livenessProbe"]["httpGet"]["path"].endswith(("livez", "healthz")),
                pod["priorityClassName"] == "muster-muster-system",
            ]
            check(f"{path}: {name} has labels, annotations, environment, volumes, places and probes of one's own", all(arrived), str(arrived))
    for path, values in [(CONTROL_PLANE, {}), (AGENT, MEMBER)]:
        free = pods(rendered(path, {**values, "podSecurityContext": {"runAsUser": None, "runAsGroup": None, "fsGroup": None}}))
        fixed = [name for name, pod in free.items() if [key for key in ("runAsUser", "fsGroup") if pod["spec"]["securityContext"].get(key) is not None] or not pod["spec"]["securityContext"]["runAsNonRoot"]]
        check(f"{path}: the platform can choose who pods run as", not fixed, str(fixed))
    inherited = pods(rendered(CONTROL_PLANE, {"nodeSelector": {"pool": "b"}, "priorityClass": {"name": "mine"}}))
    strangers = [name for name, pod in inherited.items() if (pod["spec"]["nodeSelector"], pod["spec"]["priorityClassName"]) != ({"pool": "b"}, "mine")]
    check(f"{CONTROL_PLANE}: every part runs where the control plane does unless told otherwise", not strangers, str(strangers))


def proxies():
    proxy = {"proxy": {"httpsProxy": "http://proxy.example.com:3128", "noProxy": ["10.0.0.0/8"]}}
    for path, values in [(CONTROL_PLANE, proxy), (AGENT, {**MEMBER, **proxy})]:
        env = {each["name"]: each["value"] for each in pods(rendered(path, values))["muster"]["spec"]["containers"][0]["env"]}
        check(f"{path}: a proxy", env["HTTPS_PROXY"] == "http://proxy.example.com:3128" and {"10.0.0.0/8", ".svc", "localhost"} <= set(env["NO_PROXY"].split(",")), str(env))
        policy = next(each for each in rendered(path, {**values, "networkPolicy": {"enabled": True}}) if each["kind"] == "NetworkPolicy" and each["metadata"]["name"] == "muster")
        ports = {port["port"] for rule in policy["spec"]["egress"] for port in rule.get("ports", [])}
        check(f"{path}: and the network policy lets it be reached", 3128 in ports, str(ports))
    objects = rendered(AGENT, {**OF_AGENT, "fleet": {**OF_AGENT["fleet"], "proxyURL": "socks5://proxy:1080"}, "cluster": {"proxyURL": "http://in:3128"}})
    kubeconfig = yaml.safe_load(next(each for each in objects if each["kind"] == "Secret")["stringData"]["kubeconfig"])
    check(f"{AGENT}: the proxy of the bootstrap kubeconfig", kubeconfig["clusters"][0]["cluster"]["proxy-url"] == "socks5://proxy:1080", str(kubeconfig))
    args = pods(objects)["muster"]["spec"]["containers"][0]["args"]
    check(f"{AGENT}: the proxy by which the fleet reaches the member", "--proxy-server-address=http://in:3128" in args, str(args))
    for path, values in [(CONTROL_PLANE, {"proxy": {"httpsProxy": "proxy:3128"}}), (AGENT, {**MEMBER, "fleet": {"proxyURL": "ftp://x"}})]:
        check(f"{path}: refuses {values}", refused(path, values) is not None)


# A URL, and the port by which it is reached.
PORTS = {
    "http://10.1.2.3": 80,
    "https://10.1.2.3": 443,
    "http://proxy1.example": 80,
    "http://proxy1.example/": 80,
    "https://proxy.example": 443,
    "socks5://proxy.example": 1080,
    "socks5://10.1.2.4": 1080,
    "socks5://10.1.2.4:9050": 9050,
    "http://10.1.2.3:3128/": 3128,
    "http://somebody:secret1@10.1.2.3": 80,
    "http://somebody:secret1@10.1.2.3:3128": 3128,
    "http://[2001:db8::1]": 80,
    "https://[2001:db8::1]": 443,
    "https://[2001:db8::1]:6443": 6443,
}
PATHS = {"https://192.0.2.10/fleet:8": 443, "https://192.0.2.10:7443/fleet/9": 7443, "https://[2001:db8::1]:8443/a/7": 8443}


def opened(path, values):
    """Ports that the network policy of the chart's own pods opens anywhere, beside those of names and the list in the values."""
    policy = {"networkPolicy": {"enabled": True, "egress": {"apiPorts": [1]}}}
    spec = next(each for each in rendered(path, {**values, **policy}) if each["kind"] == "NetworkPolicy" and each["metadata"]["name"] == "muster")["spec"]
    return {port["port"] for rule in spec["egress"] if "to" not in rule for port in rule["ports"]} - {53, 5353, 1}


def ports():
    """The network policy opens the port of each URL that is connected to, with and without one written in it."""
    for url, port in PORTS.items():
        for path, values in [(CONTROL_PLANE, {}), (AGENT, MEMBER)]:
            found = opened(path, {**values, "proxy": {"httpsProxy": url}})
            check(f"{path}: proxy {url} is reached by {port}", found == {port}, str(found))
        found = opened(AGENT, {**MEMBER, "fleet": {"proxyURL": url}})
        check(f"{AGENT}: fleet.proxyURL {url} is reached by {port}", found == {port}, str(found))
    for url, port in {**PORTS, **PATHS}.items():
        if url.startswith("https:"):
            found = opened(AGENT, {**MEMBER, "fleet": {"server": url}})
            check(f"{AGENT}: the fleet API {url} is reached by {port}", found == {port}, str(found))
        if url.startswith("http"):
            webhook = {"networkPolicy": {"enabled": True}, "webhook": {"enabled": True, "url": url.replace("http:", "https:")}}
            spec = next(each for each in rendered(CONTROL_PLANE, webhook) if each["kind"] == "NetworkPolicy" and each["metadata"]["name"] == "muster-fleet-api")["spec"]
            found = [each["port"] for rule in spec["egress"] if "to" not in rule for each in rule["ports"] if each["port"] not in (53, 5353)]
            check(f"{CONTROL_PLANE}: a bundled fleet API reaches admission at {webhook['webhook']['url']}", found == [443 if port == 80 else port], str(found))


def margins():
    for margin, good in {"4s": False, "4999ms": False, "5s": True, "1m": True}.items():
        words = fails(CONTROL_PLANE, {"fencing": {"margin": margin}})
        check(f"{CONTROL_PLANE}: fencing.margin {margin} is {'taken' if good else 'refused'}", good == (not words) and (good or "fencing.margin" in words), words)


def network_policies():
    """Each pod is denied all but what it needs, and what one part may send another part may receive."""
    for path, values in [(CONTROL_PLANE, OF_CONTROL_PLANE), (AGENT, OF_AGENT)]:
        objects = rendered(path, values)
        policies = [each["spec"] for each in objects if each["kind"] == "NetworkPolicy"]
        for name, pod in pods(objects).items():
            mine = [each for each in policies if each["podSelector"]["matchLabels"].items() <= pod["metadata"]["labels"].items()]
            check(f"{path}: {name} is guarded both ways", [each["policyTypes"] for each in mine] == [["Ingress", "Egress"]], str(mine))
            named = {port["port"] for rule in mine[0]["ingress"] for port in rule["ports"]}
            served = {port["name"] for each in pod["spec"]["containers"] for port in each.get("ports", [])}
            check(f"{path}: {name} serves the ports that are open", named <= served, f"{named} of {served}")
            open_to_all = [rule for rule in mine[0]["egress"] if "ports" not in rule]
            check(f"{path}: {name} does not send everywhere", not open_to_all, str(open_to_all))
    by_name = {each["podSelector"]["matchLabels"]["app.kubernetes.io/name"]: each for each in (item["spec"] for item in rendered(CONTROL_PLANE, OF_CONTROL_PLANE) if item["kind"] == "NetworkPolicy")}
    for sender, policy in by_name.items():
        for rule in policy["egress"]:
            for peer in rule.get("to", []):
                receiver = peer["podSelector"]["matchLabels"]["app.kubernetes.io/name"]
                sent = {port["port"] for port in rule["ports"]}
                admitted = {port["port"] for each in by_name[receiver]["ingress"] if "from" not in each or sender in {who["podSelector"]["matchLabels"].get("app.kubernetes.io/name") for who in each["from"] if "podSelector" in who} for port in each["ports"]}
                check(f"{CONTROL_PLANE}: {receiver} admits {sender}", sent <= admitted, f"{sent} of {admitted}")
    quiet = rendered(CONTROL_PLANE, {"networkPolicy": {"enabled": True, "egress": {"enabled": False}}})
    check(f"{CONTROL_PLANE}: only incoming connections, where that is asked for", {tuple(each["spec"]["policyTypes"]) for each in quiet if each["kind"] == "NetworkPolicy"} == {("Ingress",)})


def reused_values():
    """An upgrade with the values of an older release, which lacks some, means their defaults."""
    lacking = {"scheduler": None, "fleetApi": {"etcd": {"initialClusterState": None}}}
    check(f"{CONTROL_PLANE}: values that an older release lacks are the defaults", rendered(CONTROL_PLANE, lacking) == rendered(CONTROL_PLANE, {}))


def metadata():
    """What a registry shows of the charts is true."""
    version = re.search(r'^version = "([^"]+)"', pathlib.Path("Cargo.toml").read_text(), flags=re.M)[1]
    for path, values in [(CONTROL_PLANE, {}), (AGENT, MEMBER)]:
        chart = yaml.safe_load(pathlib.Path(path, "Chart.yaml").read_text())
        check(f"{path}: the version of the workspace", (chart["version"], chart["appVersion"]) == (version, version), str(chart))
        shown = {each["image"] for each in yaml.safe_load(chart["annotations"]["artifacthub.io/images"])}
        used = {each["image"] for pod in pods(rendered(path, values)).values() for each in pod["spec"]["containers"] + pod["spec"].get("initContainers", [])}
        check(f"{path}: shows the images that it uses", shown == used, str(shown ^ used))
        local = "https://github.com/muster-io/muster/blob/main/"
        links = [each["url"] for each in yaml.safe_load(chart["annotations"]["artifacthub.io/links"])] + [each["url"] for each in chart["maintainers"]]
        gone = [each for each in links if each.startswith(local) and not pathlib.Path(each.removeprefix(local)).exists()]
        check(f"{path}: links to pages that there are", not gone, str(gone))


def values_of_charts():
    metadata()
    enumerations()
    for path in (CONTROL_PLANE, AGENT):
        schema_and_values(path)
    the_same_at_each_rendering()
    labels_and_names()
    images()
    pinned()
    every_part()
    proxies()
    ports()
    margins()
    network_policies()
    reused_values()
