"""Values that every chart of this kind has: names, labels, images, pods of all parts, proxies, network policies; and that no rendering differs from another."""

import json
import pathlib
import re
import subprocess

import pytest
import yaml
from charting import AGENT, CONTROL_PLANE, FULL, MEMBER, OF_AGENT, OF_CONTROL_PLANE, PLAIN, arguments, container, external, fails, images, named, of_kind, pods, refused, rendered

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


def schema(path):
    return json.loads(pathlib.Path(path, "values.schema.json").read_text())["properties"]


def test_the_schema_has_what_the_programs_take():
    source = pathlib.Path("control-plane/src/settings/mod.rs").read_text()
    block = source[source.index("pub const CONTROLLERS") :]
    controllers = re.findall(r'\(\s*"(\w+)",', block[: block.index("];")])
    gates = re.findall(r'Gate \{\s*name: "(\w+)"', source)
    admitted = schema(CONTROL_PLANE)
    assert gates and set(admitted["featureGates"]["properties"]) == set(gates), "the schema has the program's feature gates"
    expected = {"*", *controllers, *(f"-{name}" for name in controllers)}
    assert controllers and set(admitted["controllers"]["anyOf"][1]["items"]["enum"]) == expected, "the schema has the program's controllers"
    pattern = re.compile(admitted["controllers"]["anyOf"][0]["pattern"])
    assert all(pattern.fullmatch(f"*,-{name}") and pattern.fullmatch(name) for name in controllers) and not pattern.fullmatch("*,-x"), "and as one text"
    source = "".join(each.read_text() for each in pathlib.Path("agent/src").rglob("*.rs"))
    secrets = schema(AGENT)["reportSecrets"]["items"]["enum"]
    assert all(f'"{name}"' in source for name in secrets), "the schema has the agent's secrets"
    assert "--controllers=*,-binding" in arguments(external({"controllers": ["*", "-binding"]})), "controllers can be a list"


def keys(schema, prefix=""):
    for name, each in schema.items():
        # Values that were taken away stay in the schema, for upgrades that reuse them.
        if each.get("description", "").startswith("Has no effect."):
            continue
        yield prefix + name
        yield from keys(each.get("properties", {}), f"{prefix}{name}.")


def has(values, key):
    for part in key.split("."):
        if not isinstance(values, dict) or part not in values:
            return False
        values = values[part]
    return True


@pytest.mark.parametrize(("path", "values"), PLAIN)
def test_schema(path, values):
    defaults = yaml.safe_load(pathlib.Path(path, "values.yaml").read_text())
    assert not [key for key in keys(schema(path)) if not has(defaults, key) and not key.startswith("featureGates.")], "every value of the schema has its default in values.yaml"
    assert not refused(path, values), "its own values are valid"


@pytest.mark.parametrize(("path", "values"), FULL)
def test_with_everything_on_each_rendering_is_the_same(path, values):
    objects = rendered(path, values)
    assert objects == rendered(path, values)
    hooks = [each["metadata"]["name"] for each in objects if "helm.sh/hook" in each["metadata"].get("annotations", {})]
    assert not hooks, "no object is a hook, so that Argo CD and Flux apply what Helm applies"


TEMPLATES = [each for path in (CONTROL_PLANE, AGENT) for each in sorted(pathlib.Path(path, "templates").iterdir()) if each.name not in ("NOTES.txt", "_preflight.tpl")]


@pytest.mark.parametrize("file", TEMPLATES, ids=str)
def test_a_template_depends_on_values_alone(file):
    assert "muster.preflight" not in file.read_text(), "no object depends on what the cluster has"
    code = re.sub(r"\{\{-? */\*.*?\*/ *-?\}\}", "", file.read_text(), flags=re.S)
    assert not re.findall(r"\b(lookup|rand\w+|gen[A-Z]\w+|now|uuidv4|Release\.(?:IsInstall|IsUpgrade|Revision))\b", code)


@pytest.mark.parametrize(("path", "values"), FULL)
def test_labels_and_names(path, values):
    objects = rendered(path, values)
    assert {each["apiVersion"] for each in objects} <= VERSIONS, "kinds that every admitted Kubernetes has"
    assert not [(each["kind"], each["metadata"]["name"]) for each in objects if each["metadata"].get("labels", {}).get("team") != "platform"], "labels of all objects arrive"
    assert not [name for name, pod in pods(objects).items() if pod["metadata"]["labels"].get("team") != "platform"], "and of all pods"
    selectors = [each["spec"].get("selector", {}).get("matchLabels", {}) for each in of_kind(objects, "Deployment", "StatefulSet")]
    assert selectors and not [each for each in selectors if "team" in each], "but selectors stay what they were"
    renamed = rendered(path, {**values, "fullnameOverride": "other", "nameOverride": "else"})
    assert not [each["metadata"]["name"] for each in renamed if "other" not in each["metadata"]["name"]], "every name can be another"
    names = [(each["kind"], each["metadata"].get("namespace"), each["metadata"]["name"]) for each in objects]
    assert len(names) == len(set(names)), "every object once with everything on"
    own = {"app.kubernetes.io/name": "x", "app.kubernetes.io/instance": "y"}
    deployment = of_kind(rendered(path, {**values, "podLabels": own, "commonLabels": own}), "Deployment")[0]["spec"]
    assert deployment["selector"]["matchLabels"].items() <= deployment["template"]["metadata"]["labels"].items(), "labels of one's own do not hide pods from their selector"
    extra = [{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "{{ .Release.Name }}-x"}}, "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: y"]
    added = {each["metadata"]["name"] for each in rendered(path, {**values, "extraObjects": extra})} - {each["metadata"]["name"] for each in objects}
    assert added == {"muster-x", "y"}, "further objects arrive"
    annotated = rendered(path, {**values, "serviceAccount": {"annotations": {"a": "b"}}})
    assert named(annotated, "ServiceAccount", "muster")["metadata"]["annotations"] == {"a": "b"}, "its account is annotated"


def test_two_installations_in_one_cluster_share_no_name_outside_of_namespaces():
    one, two = (
        {(path, each["kind"], each["metadata"]["name"]) for path, values in FULL for each in of_kind(rendered(path, values, namespace), "ClusterRole", "ClusterRoleBinding", "PriorityClass")}
        for namespace in ("one", "two")
    )
    assert one and not one & two


@pytest.mark.parametrize(("path", "values"), PLAIN)
def test_images(path, values):
    used = images(rendered(path, {**values, "global": {"imageRegistry": "mirror.example.com/cache/"}}))
    assert used and not [each for each in used if not each.startswith("mirror.example.com/cache/")], "every image from a mirror"
    main = container(rendered(path, {**values, "image": {"repository": "localhost:5000/x", "tag": "1"}}))[1]["image"]
    assert main == "localhost:5000/x:1", "a repository that names its registry keeps it"
    main = container(rendered(path, values))[1]["image"]
    assert main == f"ghcr.io/muster-io/{path.replace('charts/', 'muster-')}:0.1.0", "the published image by default"


def test_pinned_images():
    """What `.ci/release/pin-images` prints are values by which every image of upstream is named by a digest."""
    done = subprocess.run([".ci/release/pin-images", "--dry-run"], capture_output=True, text=True, check=True)
    values = yaml.safe_load(done.stdout)
    assert values and not refused(CONTROL_PLANE, values), "pinned images are values of the chart"
    used = set(images(rendered(CONTROL_PLANE, values)))
    loose = [each for each in used if each.startswith("registry.k8s.io/") and "@sha256:" not in each]
    assert not loose and len(used) == 4, "and pin every image of upstream"
    assert "control-plane-digests.yaml" in pathlib.Path(CONTROL_PLANE, "values.yaml").read_text(), "values.yaml says that they are not pinned by default, and how they are"


# Settings of pods, which arrive at every part.
PARTS = {"muster-fleet-api": "apiServer", "muster-fleet-manager": "controllerManager", "muster-fleet-etcd": "etcd", "muster-fleet-certificates": "certificates"}
BOTH = {**OF_PODS, "fleetApi": {part: OF_PODS for part in PARTS.values()}}


@pytest.mark.parametrize(("path", "values", "name"), [*((CONTROL_PLANE, BOTH, name) for name in ("muster", *PARTS)), (AGENT, {**OF_PODS, **MEMBER}, "muster")])
def test_part(path, values, name):
    template = pods(rendered(path, values))[name]
    pod, main, metadata = template["spec"], template["spec"]["containers"][0], template["metadata"]
    assert metadata["labels"]["tier"] == "x"
    assert metadata["annotations"]["note"] == "y"
    assert {"name": "TZ", "value": "UTC"} in main["env"]
    assert OF_PODS["extraVolumes"][0] in pod["volumes"]
    assert OF_PODS["extraVolumeMounts"][0] in main["volumeMounts"]
    assert pod["nodeSelector"] == {"pool": "a"}
    assert pod["tolerations"] == OF_PODS["tolerations"]
    assert pod["topologySpreadConstraints"][0]["labelSelector"]["matchLabels"].items() <= metadata["labels"].items()
    assert main["livenessProbe"]["timeoutSeconds"] == 31 and main["livenessProbe"]["httpGet"]["path"].endswith(("livez", "healthz"))
    assert pod["priorityClassName"] == "muster-muster-system"


@pytest.mark.parametrize(("path", "values"), PLAIN)
def test_the_platform_can_choose_who_pods_run_as(path, values):
    free = pods(rendered(path, {**values, "podSecurityContext": {"runAsUser": None, "runAsGroup": None, "fsGroup": None}}))
    contexts = {name: pod["spec"]["securityContext"] for name, pod in free.items()}
    assert not [name for name, each in contexts.items() if [key for key in ("runAsUser", "fsGroup") if each.get(key) is not None] or not each["runAsNonRoot"]]


def test_every_part_runs_where_the_control_plane_does_unless_its_values_say_otherwise():
    inherited = pods(rendered(CONTROL_PLANE, {"nodeSelector": {"pool": "b"}, "priorityClass": {"name": "mine"}}))
    assert not [name for name, pod in inherited.items() if (pod["spec"]["nodeSelector"], pod["spec"]["priorityClassName"]) != ({"pool": "b"}, "mine")]


@pytest.mark.parametrize(("path", "values"), PLAIN)
def test_a_proxy(path, values):
    values = {**values, "proxy": {"httpsProxy": "http://proxy.example.com:3128", "noProxy": ["10.0.0.0/8"]}}
    env = {each["name"]: each["value"] for each in container(rendered(path, values))[1]["env"]}
    assert env["HTTPS_PROXY"] == "http://proxy.example.com:3128" and {"10.0.0.0/8", ".svc", "localhost"} <= set(env["NO_PROXY"].split(","))
    policy = named(rendered(path, {**values, "networkPolicy": {"enabled": True}}), "NetworkPolicy", "muster")
    assert 3128 in {port["port"] for rule in policy["spec"]["egress"] for port in rule.get("ports", [])}, "and the network policy lets it be reached"


def test_proxies_of_an_agent():
    objects = rendered(AGENT, {**OF_AGENT, "fleet": {**OF_AGENT["fleet"], "proxyURL": "socks5://proxy:1080"}, "cluster": {"proxyURL": "http://in:3128"}})
    kubeconfig = yaml.safe_load(of_kind(objects, "Secret")[0]["stringData"]["kubeconfig"])
    assert kubeconfig["clusters"][0]["cluster"]["proxy-url"] == "socks5://proxy:1080", "the proxy of the bootstrap kubeconfig"
    assert "--proxy-server-address=http://in:3128" in arguments(objects), "the proxy by which the fleet reaches the member"


@pytest.mark.parametrize(("path", "values"), [(CONTROL_PLANE, {"proxy": {"httpsProxy": "proxy:3128"}}), (AGENT, {**MEMBER, "fleet": {"proxyURL": "ftp://x"}})], ids=str)
def test_refuses(path, values):
    assert refused(path, values)


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
    spec = named(rendered(path, {**values, **policy}), "NetworkPolicy", "muster")["spec"]
    return {port["port"] for rule in spec["egress"] if "to" not in rule for port in rule["ports"]} - {53, 5353, 1}


@pytest.mark.parametrize(("url", "port"), PORTS.items())
def test_a_proxy_is_reached_by(url, port):
    for path, values in PLAIN:
        assert opened(path, {**values, "proxy": {"httpsProxy": url}}) == {port}, f"a proxy of {path}"
    assert opened(AGENT, {**MEMBER, "fleet": {"proxyURL": url}}) == {port}, "fleet.proxyURL"


SERVERS = {**PORTS, **PATHS}.items()


@pytest.mark.parametrize(("url", "port"), [each for each in SERVERS if each[0].startswith("https:")])
def test_the_fleet_api_is_reached_by(url, port):
    assert opened(AGENT, {**MEMBER, "fleet": {"server": url}}) == {port}


@pytest.mark.parametrize(("url", "port"), [each for each in SERVERS if each[0].startswith("https:")])
def test_other_hosts_of_the_fleet_api_are_reached_by(url, port):
    servers = [{"server": url}, {"server": "https://198.51.100.7:6444"}]
    assert opened(CONTROL_PLANE, {"fleetServers": servers}) == {port, 6444}


@pytest.mark.parametrize(("url", "port"), [each for each in SERVERS if each[0].startswith("http") and "@" not in each[0]])
def test_a_receiver_of_notices_is_reached_by(url, port):
    receivers = [{"name": "a", "url": url}, {"name": "b", "urlSecret": {"name": "chat", "key": "url"}}]
    assert opened(CONTROL_PLANE, {"notices": {"receivers": receivers}}) == {port}


@pytest.mark.parametrize(("url", "port"), [(url.replace("http:", "https:"), 443 if port == 80 else port) for url, port in SERVERS if url.startswith("http")])
def test_a_bundled_fleet_api_reaches_admission_by(url, port):
    objects = rendered(CONTROL_PLANE, {"networkPolicy": {"enabled": True}, "webhook": {"enabled": True, "url": url}})
    egress = named(objects, "NetworkPolicy", "muster-fleet-api")["spec"]["egress"]
    assert [each["port"] for rule in egress if "to" not in rule for each in rule["ports"] if each["port"] not in (53, 5353)] == [port]


@pytest.mark.parametrize(("margin", "words"), {"4s": "fencing.margin", "4999ms": "fencing.margin", "5s": None, "1m": None}.items())
def test_margin_of_fencing(margin, words):
    said = fails(CONTROL_PLANE, {"fencing": {"margin": margin}})
    assert words in said if words else not said


@pytest.mark.parametrize(("path", "values"), FULL)
def test_each_pod_is_denied_all_but_what_it_needs(path, values):
    objects = rendered(path, values)
    policies = [each["spec"] for each in of_kind(objects, "NetworkPolicy")]
    for name, pod in pods(objects).items():
        mine = [each for each in policies if each["podSelector"]["matchLabels"].items() <= pod["metadata"]["labels"].items()]
        assert [each["policyTypes"] for each in mine] == [["Ingress", "Egress"]], f"{name} is guarded both ways"
        served = {port["name"] for each in pod["spec"]["containers"] for port in each.get("ports", [])}
        assert {port["port"] for rule in mine[0]["ingress"] for port in rule["ports"]} <= served, f"{name} serves the ports that are open"
        assert not [rule for rule in mine[0]["egress"] if "ports" not in rule], f"{name} does not send everywhere"


def part(peer):
    return peer["podSelector"]["matchLabels"].get("app.kubernetes.io/name")


def test_what_one_part_may_send_another_part_may_receive():
    by_name = {part(each["spec"]): each["spec"] for each in of_kind(rendered(CONTROL_PLANE, OF_CONTROL_PLANE), "NetworkPolicy")}
    for sender, policy in by_name.items():
        for rule in policy["egress"]:
            for receiver in map(part, rule.get("to", [])):
                rules = [each for each in by_name[receiver]["ingress"] if "from" not in each or sender in {part(who) for who in each["from"] if "podSelector" in who}]
                assert {port["port"] for port in rule["ports"]} <= {port["port"] for each in rules for port in each["ports"]}, f"{receiver} admits {sender}"


def test_only_incoming_connections_where_that_is_asked_for():
    quiet = of_kind(rendered(CONTROL_PLANE, {"networkPolicy": {"enabled": True, "egress": {"enabled": False}}}), "NetworkPolicy")
    assert {tuple(each["spec"]["policyTypes"]) for each in quiet} == {("Ingress",)}


def test_values_that_an_older_release_lacks_are_the_defaults():
    lacking = {"scheduler": None, "fleetApi": {"etcd": {"initialClusterState": None, "snapshots": {"objectStorage": None}}}}
    assert rendered(CONTROL_PLANE, lacking) == rendered(CONTROL_PLANE, {})


@pytest.mark.parametrize(("path", "values"), PLAIN)
def test_what_a_registry_shows_of_the_charts_is_true(path, values):
    version = re.search(r'^version = "([^"]+)"', pathlib.Path("Cargo.toml").read_text(), flags=re.M)[1]
    chart = yaml.safe_load(pathlib.Path(path, "Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (version, version), "the version of the workspace"
    shown = {each["image"] for each in yaml.safe_load(chart["annotations"]["artifacthub.io/images"])}
    assert shown == set(images(rendered(path, values))), "shows the images that it uses"
    local = "https://github.com/muster-io/muster/blob/main/"
    links = [each["url"] for each in yaml.safe_load(chart["annotations"]["artifacthub.io/links"])] + [each["url"] for each in chart["maintainers"]]
    assert not [each for each in links if each.startswith(local) and not pathlib.Path(each.removeprefix(local)).exists()], "links to pages that there are"
