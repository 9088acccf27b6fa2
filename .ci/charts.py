"""Lints and renders the charts with a real Helm engine, and checks what a person would only notice after installing."""

import pathlib
import sys

import yaml
from charting import FAILURES, check, container, external, refused, rendered, rules
from charts_check import checks
from charts_lint import lint
from charts_monitoring import monitoring
from charts_values import values_of_charts
from helm_python import chart as helm


def common(path, values, objects):
    kinds = sorted(each["kind"] for each in objects)
    check(f"{path}: renders", "Deployment" in kinds and "ServiceAccount" in kinds, str(kinds))
    deployment, main = container(objects)
    selector = deployment["spec"]["selector"]["matchLabels"]
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    check(f"{path}: selects its own pods", selector.items() <= labels.items())
    check(f"{path}: runs without privileges", main["securityContext"]["readOnlyRootFilesystem"] is True)
    check(f"{path}: has memory limits", "memory" in main["resources"]["limits"])
    survives_a_node(path, objects, deployment)
    lint = helm.lint(path, values=values)
    # Severities: 1 information, 2 warning, 3 error.
    errors = [message for message in lint.get("messages", []) if message.get("severity", 3) >= 2]
    check(f"{path}: lint", not errors, str(errors))


def survives_a_node(path, objects, deployment):
    """The death of one node, or a shortage of memory on it, silences nobody for longer than the monitor's grace."""
    pod = deployment["spec"]["template"]["spec"]
    check(f"{path}: more than one replica", deployment["spec"]["replicas"] >= 2)
    soon = {each["key"]: each.get("tolerationSeconds") for each in pod.get("tolerations", [])}
    for key in ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"):
        check(f"{path}: leaves a node that is {key} at once", soon.get(key) is not None and soon[key] <= 10, str(soon))
    spread = pod["affinity"]["podAntiAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    keys = {each["podAffinityTerm"]["topologyKey"] for each in spread}
    check(f"{path}: on different nodes", "kubernetes.io/hostname" in keys, str(keys))
    budget = [each for each in objects if each["kind"] == "PodDisruptionBudget" and each["metadata"]["name"] == deployment["metadata"]["name"]]
    check(f"{path}: a drain takes one at a time", [each["spec"]["maxUnavailable"] for each in budget] == [1], str(budget))
    classes = {each["metadata"]["name"]: each["value"] for each in objects if each["kind"] == "PriorityClass"}
    check(f"{path}: is preempted last", classes.get(pod["priorityClassName"], 0) >= 10**9, f"{pod['priorityClassName']} of {classes}")


def network_policy(path, values):
    """The peers that each port of the rendered policy admits; a port without peers admits everybody."""
    objects = external(path, values) if "control-plane" in path else rendered(path, values)
    policy = next(each for each in objects if each["kind"] == "NetworkPolicy")
    return {port["port"]: rule.get("from") for rule in policy["spec"]["ingress"] for port in rule["ports"]}


def control_plane():
    path = "charts/control-plane"
    objects = external(path, {})
    common(path, {}, objects)
    _, main = container(objects)
    check(f"{path}: failover is off until somebody asks", "--feature-gates=Failover=false" in main["args"])
    _, main = container(external(path, {"featureGates": {"Failover": True}, "extraArgs": ["--scheduler-name=x"]}))
    check(f"{path}: gates and further flags arrive", {"--feature-gates=Failover=true", "--scheduler-name=x"} <= set(main["args"]))
    _, main = container(external(path, {"eviction": {"largeClusterNumThreshold": 2_000_000}}))
    check(f"{path}: large numbers stay numbers", "--large-cluster-num-threshold=2000000" in main["args"], str(main["args"]))
    _, main = container(external(path, {"image": {"repository": "r.example/x", "digest": "sha256:" + "a" * 64}}))
    check(f"{path}: an image by digest", main["image"] == "r.example/x@sha256:" + "a" * 64, main["image"])
    none = [each for each in objects if each["kind"] == "CustomResourceDefinition"]
    check(f"{path}: no kinds for the host cluster", not none, str(len(none)))
    kinds = {each["metadata"]["name"] for each in external(path, {"definitions": {"create": True}}) if each["kind"] == "CustomResourceDefinition"}
    files = {each.stem for each in pathlib.Path(path, "definitions").glob("*.yaml")}
    check(f"{path}: the kinds come with the chart", kinds == files and "clusters.cluster.karmada.io" in kinds, str(kinds ^ files))
    peers = [{"namespaceSelector": {"matchLabels": {"name": "monitoring"}}}]
    ports = network_policy(path, {"networkPolicy": {"enabled": True, "metricsFrom": peers}})
    check(f"{path}: the network policy admits who reads metrics", ports == {"metrics": peers}, str(ports))
    ports = network_policy(path, {"networkPolicy": {"enabled": True}, "webhook": {"enabled": True}})
    check(f"{path}: the network policy admits admission", ports == {"webhook": None}, str(ports))
    cases = [
        ({"eviction": {"rate": -1}}, "rate"),
        ({"replica": 1}, "replica"),
        ({"log": {"format": "xml"}}, "format"),
        ({"featureGates": {"Failovr": True}}, "Failovr"),
        ({"controllers": "*,-bindng"}, "controllers"),
        ({"fleetApi": {"mode": "none"}}, "mode"),
        ({"fleetApi": {"address": "fleet.example.com"}}, "address"),
        ({"fleetApi": {"service": {"type": "ExternalName"}}}, "type"),
        ({"fleetApi": {"etcd": {"replicas": 2}}}, "replicas"),
        ({"fleetApi": {"etcd": {"snapshots": {"schedule": "daily"}}}}, "schedule"),
        ({"fleetApi": {"apiServer": {"replicas": 4}}}, "replicas"),
        ({"fleetApi": {"kubernetesVersion": "1.35"}}, "kubernetesVersion"),
        ({"fleetApi": {"certificates": {"lifetime": "90d"}}}, "lifetime"),
    ]
    for values, word in cases:
        words = refused(path, values)
        check(f"{path}: refuses {values}", words is not None and word in words, str(words))


def agent():
    path = "charts/agent"
    values = {"clusterName": "member1", "cluster": {"region": "eu", "zones": ["a", "b"]}}
    objects = rendered(path, values)
    common(path, values, objects)
    deployment, main = container(objects)
    check(f"{path}: agents elect the one that speaks for the cluster", not [each for each in main["args"] if each.startswith("--leader-elect=")])
    flags = dict(each.split("=", 1) for each in main["args"] if each.startswith("--leader-elect-"))
    seconds = {name: int(value.removesuffix("s")) for name, value in flags.items()}
    takeover = seconds["--leader-elect-lease-duration"] + 2 * seconds["--leader-elect-retry-period"]
    check(f"{path}: another agent acts well within the grace of 40 s", takeover <= 15, str(flags))
    check(f"{path}: no network policy unless asked for", not [each for each in objects if each["kind"] == "NetworkPolicy"])
    ports = network_policy(path, {**values, "networkPolicy": {"enabled": True}})
    check(f"{path}: the network policy admits nobody by default", ports == {}, str(ports))
    check(f"{path}: flags arrive", {"--cluster-name=member1", "--cluster-zones=a,b", "--cluster-region=eu"} <= set(main["args"]), str(main["args"]))
    quiet = {"--report-secrets=None"} <= set(main["args"]) and not [each for each in main["args"] if each.startswith("--controllers")]
    check(f"{path}: gives no credentials away and renews none unless asked to", quiet, str(main["args"]))
    _, main = container(rendered(path, {**values, "reportSecrets": ["KubeCredentials", "KubeImpersonator"], "certRotation": {"enabled": True}}))
    flags = {
        "--report-secrets=KubeCredentials,KubeImpersonator",
        "--controllers=*,certRotation",
        "--cert-rotation-remaining-time-threshold=0.2",
        "--karmada-kubeconfig-namespace=muster-system",
        "--karmada-kubeconfig-secret=muster-fleet-kubeconfig",
        "--karmada-kubeconfig-secret-key=kubeconfig",
    }
    check(f"{path}: reports and renews what it is asked to", flags <= set(main["args"]), str(main["args"]))
    check(f"{path}: the Secret with the certificate has to be there unless the agent asks for it", [each["secret"].get("optional") for each in deployment["spec"]["template"]["spec"]["volumes"]] == [None])
    deployment, main = container(rendered(path, {**values, "fleet": {"bootstrapSecret": "first"}}))
    flags = {"--bootstrap-kubeconfig=/etc/muster/bootstrap/kubeconfig", "--controllers=*,certRotation", "--karmada-kubeconfig-secret=muster-fleet-kubeconfig"}
    volumes = deployment["spec"]["template"]["spec"]["volumes"]
    check(f"{path}: asks for its certificate with a bootstrap kubeconfig", flags <= set(main["args"]), str(main["args"]))
    names = [(each["secret"]["secretName"], each["secret"].get("optional")) for each in volumes]
    check(f"{path}: starts without a certificate, and without the token later", names == [("muster-fleet-kubeconfig", True), ("first", True)], str(names))
    joining = {"server": "https://fleet.example.com:6443", "token": "abcdef.0123456789abcdef", "caData": "LS0tLS1CRUdJTg=="}
    objects = rendered(path, {**values, "fleet": joining})
    deployment, main = container(objects)
    secret = next(each for each in objects if each["kind"] == "Secret")
    kubeconfig = yaml.safe_load(secret["stringData"]["kubeconfig"])
    told = (kubeconfig["clusters"][0]["cluster"], kubeconfig["users"][0]["user"])
    expected = ({"server": joining["server"], "certificate-authority-data": joining["caData"]}, {"token": joining["token"]})
    check(f"{path}: a bootstrap kubeconfig is made of address, authority and token", told == expected, str(told))
    names = [(each["secret"]["secretName"], each["secret"].get("optional")) for each in deployment["spec"]["template"]["spec"]["volumes"]]
    check(f"{path}: and mounted", names == [("muster-fleet-kubeconfig", True), ("muster-bootstrap", True)], str(names))
    check(f"{path}: and read", "--bootstrap-kubeconfig=/etc/muster/bootstrap/kubeconfig" in main["args"] and "--controllers=*,certRotation" in main["args"], str(main["args"]))
    objects = rendered(path, {**values, "fleet": {**joining, "token": ""}})
    kubeconfig = yaml.safe_load(next(each for each in objects if each["kind"] == "Secret")["stringData"]["kubeconfig"])
    check(f"{path}: an upgrade without the token leaves the rest", kubeconfig["users"][0]["user"] == {}, str(kubeconfig))
    for fleet, word in [({**joining, "bootstrapSecret": "first"}, "exclude each other"), ({"token": joining["token"]}, "fleet.server is missing")]:
        try:
            rendered(path, {**values, "fleet": fleet})
            words = ""
        except Exception as error:  # noqa: BLE001 - the engine has one error class per cause
            words = str(error)
        check(f"{path}: {word}", word in words, words)
    cases = [
        ({"clusterName": ""}, "clusterName"),
        ({"clusterName": "a", "fleet": {"server": "fleet.example.com"}}, "server"),
        ({"clusterName": "a", "fleet": {"token": "abc"}}, "token"),
        ({"clusterName": "a", "fleet": {"caData": "-----BEGIN"}}, "caData"),
        ({"clusterName": "a", "fleet": {"bootstrapKey": "a/b"}}, "bootstrapKey"),
        ({"clusterName": "Member.1"}, "clusterName"),
        ({"clusterName": "a", "x": 1}, "x"),
        ({"clusterName": "a", "reportSecrets": ["Everything"]}, "reportSecrets"),
        ({"clusterName": "a", "cluster": {"region": "EU West"}}, "region"),
        ({"clusterName": "a", "cluster": {"zones": ["a b"]}}, "zones"),
        ({"clusterName": "a", "cluster": {"apiEndpoint": "https://a?b"}}, "apiEndpoint"),
        ({"clusterName": "a", "rights": {"preset": "some"}}, "preset"),
    ]
    for values, word in cases:
        words = refused(path, values)
        check(f"{path}: refuses {values}", words is not None and word in words, str(words))


def agent_access():
    path = "charts/agent"
    objects = rendered(path, {"clusterName": "member1"})
    texts = yaml.safe_dump_all(objects)
    check(f"{path}: no name is left to fill in", "RELEASE" not in texts and "NAMESPACE" not in texts)
    granted = rules(objects, "ClusterRole", "muster-system-muster")
    verbs = {verb for rule in granted if "*" in rule.get("resources", []) for verb in rule["verbs"]}
    check(f"{path}: everything is everything but impersonation", verbs and not verbs & {"*", "impersonate", "deletecollection"}, str(verbs))

    narrow = {"clusterName": "member1", "rights": {"preset": "workloads", "rules": [{"apiGroups": ["example.com"], "resources": ["databases"], "verbs": ["get"]}]}}
    objects = rendered(path, {**narrow, "certRotation": {"enabled": True}})
    check(f"{path}: no name is left to fill in where less is granted", not [word for word in ("RELEASE", "NAMESPACE") if word in yaml.safe_dump_all(objects)])
    granted = [rule for each in objects if each["kind"] == "ClusterRole" for rule in each["rules"]]
    named = {(group, resource) for rule in granted for group in rule.get("apiGroups", []) for resource in rule["resources"]}
    refused_kinds = {("", "secrets"), ("rbac.authorization.k8s.io", "roles"), ("", "serviceaccounts/token"), ("", "pods/exec")}
    check(f"{path}: a narrow agent has no Secrets, roles, tokens", not named & refused_kinds and not [each for each in named if "*" in each], str(named))
    check(f"{path}: a narrow agent binds no roles", not {verb for rule in granted for verb in rule["verbs"]} & {"*", "bind", "escalate", "impersonate"})
    check(f"{path}: a narrow agent still measures capacity", {("", "nodes"), ("", "pods")} <= named)
    check(f"{path}: rules beside the preset arrive", ("example.com", "databases") in named, str(named))
    own = rules(objects, "Role", "muster-certificate", "muster-system")
    check(f"{path}: a narrow agent renews its own certificate", [rule["resourceNames"] for rule in own] == [["muster-fleet-kubeconfig"]], str(own))
    check(f"{path}: and makes no Secret", ["get", "patch"] in [rule["verbs"] for rule in own], str(own))
    joining = {"server": "https://fleet.example.com", "token": "abcdef.0123456789abcdef"}
    own = rules(rendered(path, {**narrow, "fleet": joining}), "Role", "muster-certificate", "muster-system")
    check(f"{path}: a narrow agent that joins by its values makes its own Secret", [rule["verbs"] for rule in own if rule["resources"] == ["secrets"]] == [["get", "create", "patch"]], str(own))
    own = rules(rendered(path, {**narrow, "fleet": {"bootstrapSecret": "first"}}), "Role", "muster-certificate", "muster-system")
    secrets = [(rule["resourceNames"], rule["verbs"]) for rule in own if rule["resources"] == ["secrets"]]
    check(f"{path}: a narrow agent makes its own Secret and no other", secrets == [(["muster-fleet-kubeconfig"], ["get", "create", "patch"])], str(own))
    try:
        rendered(path, {**narrow, "reportSecrets": ["KubeCredentials"]})
        words = ""
    except Exception as error:  # noqa: BLE001 - the engine has one error class per cause
        words = str(error)
    check(f"{path}: a narrow agent makes no powerful account", "rights.preset=everything" in words, words)
    none = rendered(path, {"clusterName": "member1", "rights": {"create": False}})
    check(f"{path}: rights of one's own", not [each for each in none if each["kind"] in ("ClusterRole", "ServiceAccount")])


def fleet_access():
    path = "charts/control-plane"
    none = external(path, {})
    check(f"{path}: lets nobody in unless asked to", not [each for each in none if each["kind"].endswith("Role")])
    values = {"access": {"create": True, "members": ["m1", "m2"]}}
    objects = external(path, values)
    wide = external(path, {"access": {**values["access"], "secrets": True, "certificates": True}})
    check(f"{path}: no name is left to fill in where more is granted", "MEMBER" not in yaml.safe_dump_all(wide))
    check(f"{path}: no name is left to fill in", "MEMBER" not in yaml.safe_dump_all(objects))
    keys = [(each["kind"], each["metadata"].get("namespace"), each["metadata"]["name"]) for each in objects]
    check(f"{path}: every object once", len(keys) == len(set(keys)), str(keys))
    for member, other in [("m1", "m2"), ("m2", "m1")]:
        named = rules(objects, "ClusterRole", f"muster:agent:{member}")
        # The scripts and webhooks of interpreters are for all: agents read them, and write none.
        interpreters = ["resourceinterpretercustomizations", "resourceinterpreterwebhookconfigurations"]
        scripts = [rule for rule in named if rule["resources"] == interpreters]
        verbs = [(rule["apiGroups"], rule["verbs"]) for rule in scripts]
        check(f"{path}: {member} only reads scripts", verbs == [(["config.karmada.io"], ["get", "list", "watch"])], str(verbs))
        names = {name for rule in named if rule not in scripts for name in rule.get("resourceNames", ["*"])}
        check(f"{path}: {member} sees its own Cluster only", names == {member, "karmada-cluster", f"karmada-es-{member}", "kube-system"}, str(names))
        check(f"{path}: {member} has its Works", bool(rules(objects, "Role", "muster:agent", f"karmada-es-{member}")))
        bound = [
            each["metadata"]["namespace"]
            for each in objects
            if each["kind"] == "RoleBinding" and each["subjects"][0]["name"] == f"muster-agent-{member}"
        ]
        check(f"{path}: {member} stays out of {other}", f"karmada-es-{other}" not in bound, str(bound))
        secrets = f"muster:agent:{member}:secrets"
        check(f"{path}: {member} writes no secrets unless asked to", not rules(objects, "Role", secrets, "karmada-cluster"))
        granted = rules(wide, "Role", secrets, "karmada-cluster")
        check(f"{path}: {member} may write its own two secrets", [rule["resourceNames"] for rule in granted] == [[member, f"{member}-impersonator"]], str(granted))
        requests = rules(wide, "ClusterRole", f"muster:agent:{member}:certificates")
        check(f"{path}: {member} may ask for certificates and approve none", [rule["verbs"] for rule in requests] == [["get", "create"]], str(requests))
    joined = external(path, {"access": {**values["access"], "registration": True}})
    check(f"{path}: no name is left to fill in where members register", "MEMBER" not in yaml.safe_dump_all(joined))
    check(f"{path}: nobody approves certificates unless asked to", not rules(wide, "ClusterRole", "muster:approver"))
    check(f"{path}: the approver may approve clients and nothing else", [rule.get("resourceNames") for rule in rules(joined, "ClusterRole", "muster:approver")] == [None, ["kubernetes.io/kube-apiserver-client"]])
    for member in ["m1", "m2"]:
        token = rules(joined, "ClusterRole", f"muster:agent:{member}:registration")
        named = [rule["resourceNames"] for rule in token if "certificatesigningrequests/clusteragent" in rule["resources"]]
        check(f"{path}: a token for {member} is for {member} only", named == [[member]], str(token))
    words = refused(path, {"access": {"members": ["Member.1"]}})
    check(f"{path}: refuses a name that is none", words is not None and "members" in words, str(words))


def webhooks():
    path = "charts/control-plane"
    objects = external(path, {})
    _, main = container(objects)
    kinds = {each["kind"] for each in objects}
    quiet = not [each for each in main["args"] if each.startswith("--cert-dir")] and not kinds & {"Service", "Secret", "Certificate"}
    check(f"{path}: no admission unless asked for", quiet and not [kind for kind in kinds if "Webhook" in kind], str(kinds))

    values = {"webhook": {"enabled": True, "configure": True, "inCluster": True, "failurePolicy": "Ignore", "timeoutSeconds": 5}}
    objects = external(path, values)
    common(path, values, objects)
    deployment, main = container(objects)
    hosts = "muster-webhook.muster-system.svc,muster-webhook.muster-system.svc.cluster.local"
    flags = {f"--webhook-certificate-names={hosts}", "--allow-no-execute-taint-policy=false"}
    check(f"{path}: the control plane makes its own certificate", flags <= set(main["args"]), str(main["args"]))
    check(f"{path}: no key is in the chart's objects", not [each for each in objects if each["kind"] == "Secret"])
    check(f"{path}: the same at each rendering", external(path, values) == objects)
    service = next(each for each in objects if each["kind"] == "Service")
    asked = [each for each in objects if "WebhookConfiguration" in each["kind"]]
    entries = [entry for each in asked for entry in each["webhooks"]]
    check(f"{path}: both kinds of configurations", len(asked) == 2 and len(entries) == 4, str(len(entries)))
    for entry in entries:
        client = entry["clientConfig"]
        found = client["service"]["name"] == service["metadata"]["name"] and client["service"]["port"] == service["spec"]["ports"][0]["port"]
        check(f"{path}: {entry['name']} finds the Service", found, str(client))
        check(f"{path}: {entry['name']} is left the authority that the control plane names", "caBundle" not in client)
        check(f"{path}: {entry['name']} is asked as configured", (entry["failurePolicy"], entry["timeoutSeconds"]) == ("Ignore", 5))
        condition = entry["matchConditions"][0]["expression"]
        check(f"{path}: {entry['name']} exempts the control plane", "'system:serviceaccount:karmada-system:muster-control-plane'" in condition, condition)

    authority = "-----BEGIN CERTIFICATE-----\nx\n-----END CERTIFICATE-----\n"
    objects = external(path, {"webhook": {"configure": True, "caBundle": authority, "exempt": ["a", "b"]}})
    entries = [entry for each in objects if "WebhookConfiguration" in each["kind"] for entry in each["webhooks"]]
    urls = sorted({entry["clientConfig"]["url"] for entry in entries})
    expected = [f"https://muster-webhook.muster-system.svc:443/{path}" for path in ("mutate", "validate")]
    check(f"{path}: another fleet API asks by address", urls == expected, str(urls))
    policies = {entry["name"]: entry["failurePolicy"] for entry in entries}
    check(f"{path}: only policies wait for an answer", policies == {"policies.muster.io": "Fail", "clusters.muster.io": "Ignore"}, str(policies))
    check(f"{path}: several are exempt", "in ['a', 'b'])" in entries[0]["matchConditions"][0]["expression"], str(entries[0]))
    try:
        external(path, {"webhook": {"configure": True, "certificate": {"secret": "mine"}}})
        words = ""
    except Exception as error:  # noqa: BLE001 - the engine has one error class per cause
        words = str(error)
    check(f"{path}: no configuration without the authority of a certificate that is brought", "webhook.caBundle is missing" in words, words)

    objects = external(path, {"webhook": {"enabled": True, "url": "https://10.0.0.1.example.com:8443/x/", "certificate": {"issuerRef": {"name": "internal"}}}})
    certificate = next(each for each in objects if each["kind"] == "Certificate")
    check(f"{path}: cert-manager is asked for every name", "10.0.0.1.example.com" in certificate["spec"]["dnsNames"], str(certificate["spec"]))
    check(f"{path}: and makes the Secret", not [each for each in objects if each["kind"] == "Secret"])
    objects = external(path, {"webhook": {"enabled": True, "certificate": {"secret": "mine"}}})
    deployment, _ = container(objects)
    check(f"{path}: or takes yours", deployment["spec"]["template"]["spec"]["volumes"][1]["secret"]["secretName"] == "mine" and not [each for each in objects if each["kind"] in ("Secret", "Certificate")])
    for values, word in [({"failurePolicy": "Never"}, "failurePolicy"), ({"exempt": ["a'b"]}, "exempt"), ({"url": "http://a"}, "url")]:
        words = refused(path, {"webhook": values})
        check(f"{path}: refuses {values}", words is not None and word in words, str(words))


CONTROLLERS = {
    "garbagecollector",
    "namespace",
    "clusterrole-aggregation",
    "serviceaccount-token",
    "csrsigning",
    "csrcleaner",
    "bootstrapsigner",
    "tokencleaner",
    "ttl-after-finished",
}


def flags(command):
    return dict(each.split("=", 1) for each in command if each.startswith("--"))


def bundled():
    path = "charts/control-plane"
    objects = rendered(path, {})
    common(path, {}, objects)
    check(f"{path}: the same at each rendering with a fleet API", rendered(path, {}) == objects)
    keys = [(each["kind"], each["metadata"]["name"]) for each in objects]
    check(f"{path}: every object of the fleet API once", len(keys) == len(set(keys)), str(keys))
    held = [each for each in objects if each["kind"] in ("Secret", "CustomResourceDefinition") or "PRIVATE KEY" in yaml.safe_dump(each)]
    check(f"{path}: no key and no kind of the fleet is in the chart's objects", not held, str(held))
    pods = {}
    for each in objects:
        if each["kind"] in ("Deployment", "StatefulSet"):
            pods[each["metadata"]["name"]] = each["spec"]["template"]["spec"]
        if each["kind"] == "CronJob":
            pods[each["metadata"]["name"]] = each["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    expected = {"muster", "muster-fleet-api", "muster-fleet-manager", "muster-fleet-certificates", "muster-fleet-etcd"}
    expected |= {"muster-fleet-etcd-defragmentation", "muster-fleet-etcd-snapshots"}
    check(f"{path}: the parts of a fleet API", set(pods) == expected, str(sorted(pods)))
    made = next(each for each in objects if each["kind"] == "Role")["rules"]
    names = {name for rule in made if rule["verbs"] == ["get", "update"] for name in rule["resourceNames"]}
    for name, pod in pods.items():
        for each in pod["containers"] + pod.get("initContainers", []):
            context = each["securityContext"]
            plain = not context["allowPrivilegeEscalation"] and context["readOnlyRootFilesystem"] and context["capabilities"]["drop"] == ["ALL"]
            check(f"{path}: {name}/{each['name']} runs without privileges", plain and pod["securityContext"]["runAsNonRoot"], str(context))
            check(f"{path}: {name}/{each['name']} has requests and limits", "memory" in each["resources"]["limits"] and "requests" in each["resources"], str(each["resources"]))
            mounts = {mount["name"] for mount in each.get("volumeMounts", [])}
            volumes = {volume["name"] for volume in pod.get("volumes", [])} | {"data"}
            check(f"{path}: {name}/{each['name']} mounts volumes that are there", mounts <= volumes, str(mounts - volumes))
        mounted = {volume["secret"]["secretName"] for volume in pod.get("volumes", []) if "secret" in volume}
        check(f"{path}: {name} mounts Secrets that are made", mounted <= names, str(mounted - names))
        token = name == "muster-fleet-certificates"
        check(f"{path}: {name} has {'an' if token else 'no'} account of the host", pod["automountServiceAccountToken"] is token)
    server = flags(pods["muster-fleet-api"]["containers"][0]["command"])
    manager = flags(pods["muster-fleet-manager"]["containers"][0]["command"])
    check(f"{path}: exactly the controllers that a fleet API needs", set(manager["--controllers"].split(",")) == CONTROLLERS, manager["--controllers"])
    check(f"{path}: tokens are taken", server["--enable-bootstrap-token-auth"] == "true" and server["--authorization-mode"] == "RBAC", str(server))
    authority = next(each for each in pods["muster-fleet-api"]["volumes"] if each["name"] == "authority")
    check(f"{path}: the API server has the authority and not its key", [item["key"] for item in authority["secret"]["items"]] == ["ca.crt"], str(authority))
    mounts = {mount["mountPath"] for name in ("muster-fleet-api", "muster-fleet-manager") for mount in pods[name]["containers"][0]["volumeMounts"]}
    files = [value for value in [*server.values(), *manager.values()] if value.startswith("/etc/")]
    check(f"{path}: every file of a flag is mounted", files and all(value.rsplit("/", 1)[0] in mounts for value in files), str(files))

    high = {"fleetApi": {"etcd": {"replicas": 3}, "apiServer": {"replicas": 3}}}
    objects = rendered(path, high)
    store = next(each for each in objects if each["kind"] == "StatefulSet")
    peers = flags(store["spec"]["template"]["spec"]["containers"][0]["command"])["--initial-cluster"].split(",")
    wanted = [f"muster-fleet-etcd-{n}=https://muster-fleet-etcd-{n}.muster-fleet-etcd.muster-system.svc:2380" for n in range(3)]
    check(f"{path}: three members of etcd know each other", store["spec"]["replicas"] == 3 and peers == wanted, str(peers))
    server = next(each for each in objects if each["metadata"]["name"] == "muster-fleet-api" and each["kind"] == "Deployment")
    stores = flags(server["spec"]["template"]["spec"]["containers"][0]["command"])["--etcd-servers"].split(",")
    check(f"{path}: three API servers ask three members", server["spec"]["replicas"] == 3 and len(stores) == 3, str(stores))
    budgets = {each["metadata"]["name"] for each in objects if each["kind"] == "PodDisruptionBudget"}
    check(f"{path}: a drain takes one of each at a time", {"muster-fleet-etcd", "muster-fleet-api", "muster-fleet-manager"} <= budgets, str(budgets))
    ha = yaml.safe_load(pathlib.Path(path, "values-ha.yaml").read_text())
    check(f"{path}: values-ha.yaml is valid", refused(path, ha) is None and rendered(path, ha), str(refused(path, ha)))

    values = {"fleetApi": {"address": "https://fleet.example.com:8443", "service": {"type": "NodePort", "nodePort": 30443}, "certificates": {"names": ["192.0.2.1"]}}}
    objects = rendered(path, values)
    service = next(each for each in objects if each["kind"] == "Service" and each["metadata"]["name"] == "muster-fleet-api")
    check(f"{path}: a port of the nodes", service["spec"]["type"] == "NodePort" and service["spec"]["ports"][0]["nodePort"] == 30443, str(service["spec"]))
    _, keeper = container(objects, "muster-fleet-certificates")
    wanted = {"--address=https://fleet.example.com:8443", "--certificate-names=192.0.2.1", "--namespace=muster-system", "--name=muster-fleet"}
    check(f"{path}: the certificate has every name", wanted <= set(keeper["args"]), str(keeper["args"]))

    objects = rendered(path, {"fleetApi": {"address": "https://fleet.example.com", "certificates": {"names": ["192.0.2.1"], "issuerRef": {"name": "internal"}}}})
    certificate = next(each for each in objects if each["kind"] == "Certificate")["spec"]
    check(f"{path}: an issuer is asked for every name", "fleet.example.com" in certificate["dnsNames"] and "192.0.2.1" in certificate["ipAddresses"], str(certificate))
    _, keeper = container(objects, "muster-fleet-certificates")
    deployment, _ = container(objects, "muster-fleet-api")
    serving = next(each for each in deployment["spec"]["template"]["spec"]["volumes"] if each["name"] == "serving")["secret"]["secretName"]
    check(f"{path}: and the API server serves with what it issues", serving == certificate["secretName"] and f"--serving-secret={serving}" in keeper["args"], serving)

    objects = rendered(path, {"webhook": {"enabled": True}})
    asked = next(each for each in objects if each["kind"] == "ConfigMap")["data"]["webhooks.yaml"]
    kinds = [each["kind"] for each in yaml.safe_load_all(asked) if each]
    check(f"{path}: a bundled fleet API is told to ask about policies", sorted(kinds) == ["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"], str(kinds))
    check(f"{path}: and this cluster is not", not [each for each in objects if "Webhook" in each["kind"]])
    peers = [{"namespaceSelector": {"matchLabels": {"name": "monitoring"}}}]
    objects = rendered(path, {"networkPolicy": {"enabled": True, "metricsFrom": peers}})
    policies = {each["metadata"]["name"]: each["spec"] for each in objects if each["kind"] == "NetworkPolicy"}
    guarded = {"muster", "muster-fleet-api", "muster-fleet-etcd", "muster-fleet-etcd-jobs", "muster-fleet-manager", "muster-fleet-certificates"}
    check(f"{path}: every part of a fleet API is guarded", set(policies) == guarded, str(set(policies)))
    admitted = [peer["podSelector"]["matchLabels"]["app.kubernetes.io/name"] for peer in policies["muster-fleet-etcd"]["ingress"][0]["from"]]
    check(f"{path}: etcd admits its API server, its members and its jobs", admitted == ["muster-fleet-api", "muster-fleet-etcd", "muster-fleet-etcd-jobs"], str(admitted))
    labels = {each["metadata"]["name"]: (each["spec"].get("jobTemplate") or each)["spec"]["template"]["metadata"]["labels"]["app.kubernetes.io/name"] for each in objects if each["kind"] in ("Deployment", "StatefulSet", "CronJob")}
    check(f"{path}: and they bear these names", set(admitted) <= set(labels.values()), str(labels))
    check(f"{path}: nobody connects to kube-controller-manager", policies["muster-fleet-manager"]["ingress"] == [], str(policies["muster-fleet-manager"]))
    objects = external(path, {})
    check(f"{path}: an external fleet API brings nothing of its own", not [each for each in objects if "fleet" in each["metadata"]["name"]], str([each["metadata"]["name"] for each in objects]))
    deployment, _ = container(objects)
    names = [each["secret"]["secretName"] for each in deployment["spec"]["template"]["spec"]["volumes"]]
    check(f"{path}: and takes your kubeconfig", names == ["muster-fleet-kubeconfig"], str(names))


control_plane()
bundled()
webhooks()
agent()
agent_access()
fleet_access()
values_of_charts()
lint()
checks()
monitoring()
print(f"charts: {len(FAILURES)} failed")
sys.exit(1 if FAILURES else 0)
