"""Checks of charts/control-plane: the Deployment, the access to the fleet, and admission."""

import pathlib

import yaml
from charting import check, container, external, refused, rules
from charts_common import common, network_policy


def control_plane():
    path = "charts/control-plane"
    objects = external(path, {})
    common(path, {}, objects)
    _, main = container(objects)
    check(f"{path}: failover is off until somebody asks", "--feature-gates=Failover=false" in main["args"])
    _, main = container(external(path, {"featureGates": {"Failover": True}, "extraArgs": ["--scheduler-name=x"]}))
    check(f"{path}: gates and further flags arrive", {"--feature-gates=Failover=true", "--scheduler-name=x"} <= set(main["args"]))
    check(f"{path}: nodes of a grade hold what Karmada expects", "--node-grades=minimums" in main["args"], str(main["args"]))
    _, main = container(external(path, {"scheduler": {"nodeGrades": "upper-bounds"}}))
    check(f"{path}: or what its documentation's examples expect", "--node-grades=upper-bounds" in main["args"], str(main["args"]))
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
        ({"fleetApi": {"etcd": {"initialClusterState": "join"}}}, "initialClusterState"),
        ({"scheduler": {"nodeGrades": "maximums"}}, "nodeGrades"),
        ({"fleetApi": {"etcd": {"snapshots": {"schedule": "daily"}}}}, "schedule"),
        ({"fleetApi": {"apiServer": {"replicas": 4}}}, "replicas"),
        ({"fleetApi": {"kubernetesVersion": "1.35"}}, "kubernetesVersion"),
        ({"fleetApi": {"certificates": {"lifetime": "90d"}}}, "lifetime"),
    ]
    for values, word in cases:
        words = refused(path, values)
        check(f"{path}: refuses {values}", words is not None and word in words, str(words))


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
    check(f"{path}: no admission at an external fleet API unless asked for", quiet and not [kind for kind in kinds if "Webhook" in kind], str(kinds))

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
    check(f"{path}: without an answer everything passes", policies == {"policies.muster.io": "Ignore", "clusters.muster.io": "Ignore"}, str(policies))
    asked = external(path, {"webhook": {"configure": True, "failurePolicy": "Fail"}})
    policies = {entry["name"]: entry["failurePolicy"] for each in asked if "WebhookConfiguration" in each["kind"] for entry in each["webhooks"]}
    check(f"{path}: or policies alone wait for one", policies == {"policies.muster.io": "Fail", "clusters.muster.io": "Ignore"}, str(policies))
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
