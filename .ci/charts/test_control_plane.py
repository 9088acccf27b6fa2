"""The chart of the control plane: the Deployment, the access to the fleet, and admission."""

import json
import pathlib

import pytest
import yaml
from charting import CONTROL_PLANE, admitted, arguments, container, external, of_kind, refused, rules, sound, words_of

MONITORING = [{"namespaceSelector": {"matchLabels": {"name": "monitoring"}}}]
MEMBERS = {"create": True, "members": ["m1", "m2"]}


def test_deployment():
    objects = external({})
    sound(CONTROL_PLANE, {}, objects)
    assert "--feature-gates=Failover=false" in arguments(objects), "failover is off until somebody asks"
    assert {"--feature-gates=Failover=true", "--scheduler-name=x"} <= set(arguments(external({"featureGates": {"Failover": True}, "extraArgs": ["--scheduler-name=x"]}))), "gates and further flags arrive"
    assert not [each for each in arguments(objects) if "peers" in each or "unhealthy-workloads" in each], "clusters watch each other where somebody asks"
    watching = external({"peers": {"perCluster": 3}, "monitor": {"unhealthyWorkloadsThreshold": 0.5}})
    expected = {"--peers-per-cluster=3", "--cluster-unhealthy-workloads-threshold=0.5", "--cluster-unhealthy-workloads-minimum=5"}
    assert expected <= set(arguments(watching)), "as the values say"
    assert "--node-grades=minimums" in arguments(objects), "nodes of a grade hold what Karmada expects"
    assert "--node-grades=upper-bounds" in arguments(external({"scheduler": {"nodeGrades": "upper-bounds"}})), "or what its documentation's examples expect"
    assert "--large-cluster-num-threshold=2000000" in arguments(external({"eviction": {"largeClusterNumThreshold": 2_000_000}})), "large numbers stay numbers"
    image = container(external({"image": {"repository": "r.example/x", "digest": "sha256:" + "a" * 64}}))[1]["image"]
    assert image == "r.example/x@sha256:" + "a" * 64, "an image by digest"
    assert not of_kind(objects, "CustomResourceDefinition"), "no kinds for the host cluster"
    kinds = {each["metadata"]["name"] for each in of_kind(external({"definitions": {"create": True}}), "CustomResourceDefinition")}
    defined = {each.stem for each in pathlib.Path(CONTROL_PLANE, "definitions").glob("*.yaml")}
    assert kinds == defined and "clusters.cluster.karmada.io" in kinds, "the kinds come with the chart"


def test_traffic():
    assert not [each for each in arguments(external({})) if "traffic" in each], "no host name is published before somebody asks for it"
    given = arguments(external({"traffic": {"dnsEndpoints": True, "returnAfter": "2m"}}))
    assert {"--traffic-dns-endpoints", "--traffic-return-after=2m"} <= set(given)


def test_a_standby_and_the_addresses_of_the_fleet():
    assert not [each for each in arguments(external({})) if "fleet-servers" in each], "one address needs no list"
    servers = [{"server": "https://a.example:6443", "store": "a"}, {"server": "https://b.example", "caData": "LS0tLS1CRUdJTg==", "store": "b"}]
    (flag,) = [each for each in arguments(external({"fleetServers": servers})) if each.startswith("--fleet-servers=")]
    assert json.loads(flag.partition("=")[2]) == servers, "the control plane knows all addresses"
    for wrong in ({"server": "a.example"}, {"server": "https://u@a"}, {"server": "https://a", "caData": "x"}, {"server": "https://a", "caFile": "/x"}, {"store": "a"}):
        assert "fleetServers" in refused(CONTROL_PLANE, {"fleetApi": {"mode": "external"}, "fleetServers": [wrong]}), wrong
    (standby,) = [each for each in of_kind(external({"replicas": 0}), "Deployment") if each["metadata"]["name"] == "muster"]
    assert standby["spec"]["replicas"] == 0, "a standby leads nothing"


def test_notices():
    assert not [each for each in arguments(external({})) if "notice" in each], "nobody is notified before somebody is named"
    secret = {"name": "chat", "key": "k"}
    template = '{"text": {{ sentence | tojson }}, "x": "$(HOME)"}'
    receivers = [{"name": "chat", "urlSecret": secret, "format": "template", "template": template}, {"name": "bus", "url": "https://bus.example", "signingSecret": secret, "caSecret": secret, "perMinute": 5}]
    objects = external({"notices": {"source": "eu", "pageUrl": "https://page.example/", "receivers": receivers}})
    sound(CONTROL_PLANE, {}, objects)
    given = dict(each[2:].split("=", 1) for each in arguments(objects) if "notice" in each)
    assert given["notice-source"] == "eu" and given["notice-page-url"] == "https://page.example/"
    chat, bus = json.loads(given["notice-receivers"])
    assert chat == {"name": "chat", "urlFile": "/etc/muster/notices/chat/url", "format": "template", "template": template.replace("$(", "$$(")}, "the kubelet makes $( of $$("
    assert bus == {"name": "bus", "url": "https://bus.example", "secretFile": "/etc/muster/notices/bus/key", "caFile": "/etc/muster/notices/bus/ca.crt", "perMinute": 5}
    deployment, of_container = container(objects)
    assert {"name": "notices", "mountPath": "/etc/muster/notices", "readOnly": True} in of_container["volumeMounts"]
    (volume,) = [each for each in deployment["spec"]["template"]["spec"]["volumes"] if each["name"] == "notices"]
    found = {source["secret"]["items"][0]["path"] for source in volume["projected"]["sources"]}
    assert found == {"chat/url", "bus/key", "bus/ca.crt"}, "each file that a receiver names is there"
    assert all(source["secret"].get("optional") for source in volume["projected"]["sources"]), "the fleet is failed over although the Secret of a chat is missing: a pod waits for it for ever otherwise"


@pytest.mark.parametrize(("values", "expected"), [({"networkPolicy": {"enabled": True, "metricsFrom": MONITORING}}, {"metrics": MONITORING}), ({"networkPolicy": {"enabled": True}, "webhook": {"enabled": True}}, {"webhook": None})], ids=["who reads metrics", "admission"])
def test_the_network_policy_admits(values, expected):
    assert admitted(external(values)) == expected


REFUSED = [
    ({"eviction": {"rate": -1}}, "rate"),
    ({"replica": 1}, "replica"),
    ({"log": {"format": "xml"}}, "format"),
    ({"featureGates": {"Failovr": True}}, "Failovr"),
    ({"controllers": "*,-bindng"}, "controllers"),
    ({"controllers": ["*", "-bindng"]}, "controllers"),
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
    ({"fleetApi": {"certificates": {"lifetime": "1..h"}}}, "lifetime"),
    # No name of a cluster.
    ({"access": {"members": ["Member.1"]}}, "members"),
    ({"webhook": {"failurePolicy": "Never"}}, "failurePolicy"),
    ({"webhook": {"exempt": ["a'b"]}}, "exempt"),
    ({"webhook": {"url": "http://a"}}, "url"),
    ({"notices": {"receivers": [{"name": "a"}]}}, "receivers"),
    ({"notices": {"receivers": [{"name": "a", "url": "https://user:password@a"}]}}, "url"),
    ({"notices": {"receivers": [{"name": "a", "url": "https://a", "phases": ["begin"]}]}}, "phases"),
    ({"notices": {"receivers": [{"name": "a", "url": "https://a", "signingSecret": "whsec_x"}]}}, "signingSecret"),
]


@pytest.mark.parametrize(("values", "word"), REFUSED, ids=str)
def test_refuses(values, word):
    assert word in refused(CONTROL_PLANE, values)


def test_access():
    assert not [each for each in external({}) if each["kind"].endswith("Role")], "lets nobody in unless asked to"
    objects = external({"access": MEMBERS})
    wide = external({"access": {**MEMBERS, "secrets": True, "certificates": True}})
    joined = external({"access": {**MEMBERS, "registration": True}})
    assert "MEMBER" not in yaml.safe_dump_all(objects), "no name is left to fill in"
    assert "MEMBER" not in yaml.safe_dump_all(wide), "no name is left to fill in where more is granted"
    assert "MEMBER" not in yaml.safe_dump_all(joined), "no name is left to fill in where members register"
    keys = [(each["kind"], each["metadata"].get("namespace"), each["metadata"]["name"]) for each in objects]
    assert len(keys) == len(set(keys)), "every object once"
    assert not rules(wide, "ClusterRole", "muster:approver"), "nobody approves certificates unless asked to"
    approver = rules(joined, "ClusterRole", "muster:approver")
    assert [rule.get("resourceNames") for rule in approver] == [None, ["kubernetes.io/kube-apiserver-client"]], "the approver may approve clients and nothing else"


@pytest.mark.parametrize(("member", "other"), [("m1", "m2"), ("m2", "m1")])
def test_access_of(member, other):
    objects = external({"access": MEMBERS})
    named = rules(objects, "ClusterRole", f"muster:agent:{member}")
    # The scripts and webhooks of interpreters are for all: agents read them, and write none.
    interpreters = ["resourceinterpretercustomizations", "resourceinterpreterwebhookconfigurations"]
    scripts = [rule for rule in named if rule["resources"] == interpreters]
    assert [(rule["apiGroups"], rule["verbs"]) for rule in scripts] == [(["config.karmada.io"], ["get", "list", "watch"])], "only reads scripts"
    names = {name for rule in named if rule not in scripts for name in rule.get("resourceNames", ["*"])}
    assert names == {member, "karmada-cluster", f"karmada-es-{member}", "kube-system"}, "sees its own Cluster only"
    assert rules(objects, "Role", "muster:agent", f"karmada-es-{member}"), "has its Works"
    bound = [each["metadata"]["namespace"] for each in of_kind(objects, "RoleBinding") if each["subjects"][0]["name"] == f"muster-agent-{member}"]
    assert f"karmada-es-{other}" not in bound, "stays out of the other"
    secrets = f"muster:agent:{member}:secrets"
    assert not rules(objects, "Role", secrets, "karmada-cluster"), "writes no secrets unless asked to"
    wide = external({"access": {**MEMBERS, "secrets": True, "certificates": True}})
    assert [rule["resourceNames"] for rule in rules(wide, "Role", secrets, "karmada-cluster")] == [[member, f"{member}-impersonator"]], "may write its own two secrets"
    requests = rules(wide, "ClusterRole", f"muster:agent:{member}:certificates")
    assert [rule["verbs"] for rule in requests] == [["get", "create"]], "may ask for certificates and approve none"
    token = rules(external({"access": {**MEMBERS, "registration": True}}), "ClusterRole", f"muster:agent:{member}:registration")
    named = [rule["resourceNames"] for rule in token if "certificatesigningrequests/clusteragent" in rule["resources"]]
    assert named == [[member]], "a token for a member is for it only"


AGGREGATED = {"muster:view": {"view", "edit", "admin"}, "muster:operate": {"edit", "admin"}, "muster:admin": {"admin"}, "muster:tenant": set()}


@pytest.mark.parametrize(("name", "into"), AGGREGATED.items(), ids=str)
def test_access_of_people(name, into):
    objects = external({"access": MEMBERS})
    role = next(each for each in of_kind(objects, "ClusterRole") if each["metadata"]["name"] == name)
    labels = role["metadata"].get("labels", {})
    assert labels == {f"rbac.authorization.k8s.io/aggregate-to-{each}": "true" for each in into}, "is part of Kubernetes' own"
    bound = [each for each in of_kind(objects, "RoleBinding", "ClusterRoleBinding") if each["roleRef"]["name"] == name]
    assert not bound, "nobody has it unless somebody binds it"
    verbs = {verb for rule in role["rules"] for verb in rule["verbs"]}
    resources = {each for rule in role["rules"] for each in rule["resources"]}
    assert "*" not in verbs | resources and not resources & {"secrets", "roles", "clusterroles"}, "says what it allows"
    if name in ("muster:view", "muster:tenant"):
        assert verbs <= {"get", "list", "watch"} and "works" not in resources, "reads, and no manifests"


def test_tenants_see_nothing_of_other_namespaces():
    tenant = rules(external({"access": MEMBERS}), "ClusterRole", "muster:tenant")
    assert [rule["resources"] for rule in tenant if "resourceNames" not in rule] == [["clusters"]]


def test_the_rights_of_people_name_kinds_that_are_defined():
    named = {each for role in AGGREGATED for rule in rules(external({"access": MEMBERS}), "ClusterRole", role) for each in rule["resources"]}
    defined = {each.stem.split(".")[0] for each in pathlib.Path(CONTROL_PLANE, "definitions").glob("*.yaml")}
    assert named - defined == {"leases", "namespaces", "events", "configmaps"}


def test_no_admission_at_an_external_fleet_api_unless_asked_for():
    objects = external({})
    kinds = {each["kind"] for each in objects}
    assert not [each for each in arguments(objects) if each.startswith("--cert-dir")]
    assert not kinds & {"Service", "Secret", "Certificate"} and not [kind for kind in kinds if "Webhook" in kind]


def entries(objects):
    return [entry for each in objects if "WebhookConfiguration" in each["kind"] for entry in each["webhooks"]]


def test_admission():
    values = {"webhook": {"enabled": True, "configure": True, "inCluster": True, "failurePolicy": "Ignore", "timeoutSeconds": 5}}
    objects = external(values)
    sound(CONTROL_PLANE, values, objects)
    hosts = "muster-webhook.muster-system.svc,muster-webhook.muster-system.svc.cluster.local"
    assert {f"--webhook-certificate-names={hosts}", "--allow-no-execute-taint-policy=false"} <= set(arguments(objects)), "the control plane makes its own certificate"
    assert not of_kind(objects, "Secret"), "no key is in the chart's objects"
    assert external(values) == objects, "the same at each rendering"
    service = of_kind(objects, "Service")[0]
    assert len([each for each in objects if "WebhookConfiguration" in each["kind"]]) == 2 and len(entries(objects)) == 4, "both kinds of configurations"
    for entry in entries(objects):
        client, name = entry["clientConfig"], entry["name"]
        assert client["service"]["name"] == service["metadata"]["name"] and client["service"]["port"] == service["spec"]["ports"][0]["port"], f"{name} finds the Service"
        assert "caBundle" not in client, f"{name} is left the authority that the control plane names"
        assert (entry["failurePolicy"], entry["timeoutSeconds"]) == ("Ignore", 5), f"{name} is asked as configured"
        assert "'system:serviceaccount:karmada-system:muster-control-plane'" in entry["matchConditions"][0]["expression"], f"{name} exempts the control plane"


def test_admission_at_another_fleet_api():
    authority = "-----BEGIN CERTIFICATE-----\nx\n-----END CERTIFICATE-----\n"
    asked = entries(external({"webhook": {"configure": True, "caBundle": authority, "exempt": ["a", "b"]}}))
    urls = sorted({entry["clientConfig"]["url"] for entry in asked})
    assert urls == [f"https://muster-webhook.muster-system.svc:443/{path}" for path in ("mutate", "validate")], "another fleet API asks by address"
    policies = {entry["name"]: entry["failurePolicy"] for entry in asked}
    assert policies == {"policies.muster.io": "Ignore", "clusters.muster.io": "Ignore"}, "without an answer everything passes"
    policies = {entry["name"]: entry["failurePolicy"] for entry in entries(external({"webhook": {"configure": True, "failurePolicy": "Fail"}}))}
    assert policies == {"policies.muster.io": "Fail", "clusters.muster.io": "Ignore"}, "or policies alone wait for one"
    assert "in ['a', 'b'])" in asked[0]["matchConditions"][0]["expression"], "several are exempt"


def test_certificates_of_admission():
    words = words_of(lambda: external({"webhook": {"configure": True, "certificate": {"secret": "mine"}}}))
    assert "webhook.caBundle is missing" in words, "no configuration without the authority of a certificate that is brought"
    objects = external({"webhook": {"enabled": True, "url": "https://10.0.0.1.example.com:8443/x/", "certificate": {"issuerRef": {"name": "internal"}}}})
    assert "10.0.0.1.example.com" in of_kind(objects, "Certificate")[0]["spec"]["dnsNames"], "cert-manager is asked for every name"
    assert not of_kind(objects, "Secret"), "and makes the Secret"
    objects = external({"webhook": {"enabled": True, "certificate": {"secret": "mine"}}})
    volumes = container(objects)[0]["spec"]["template"]["spec"]["volumes"]
    assert volumes[1]["secret"]["secretName"] == "mine" and not of_kind(objects, "Secret", "Certificate"), "or takes yours"
