"""The chart of the agent: the Deployment, and the rights in the member."""

import json

import pytest
import yaml
from charting import AGENT, MEMBER, admitted, arguments, container, fails, of_kind, refused, rendered, rules, secrets_of, sound

VALUES = {**MEMBER, "cluster": {"region": "eu", "zones": ["a", "b"]}}
JOINING = {"server": "https://fleet.example.com:6443", "token": "abcdef.0123456789abcdef", "caData": "LS0tLS1CRUdJTg=="}
NARROW = {**MEMBER, "rights": {"preset": "workloads", "rules": [{"apiGroups": ["example.com"], "resources": ["databases"], "verbs": ["get"]}]}}


def agent(**values):
    return rendered(AGENT, {**VALUES, **values})


def bootstrap_kubeconfig(fleet):
    return yaml.safe_load(of_kind(agent(fleet=fleet), "Secret")[0]["stringData"]["kubeconfig"])


def test_deployment():
    objects = agent()
    sound(AGENT, VALUES, objects)
    given = arguments(objects)
    assert not [each for each in given if each.startswith("--leader-elect=")], "agents elect the one that speaks for the cluster"
    seconds = {name: int(value.removesuffix("s")) for name, value in (each.split("=", 1) for each in given if each.startswith("--leader-elect-"))}
    assert seconds["--leader-elect-lease-duration"] + 2 * seconds["--leader-elect-retry-period"] <= 15, "another agent acts well within the grace of 40 s"
    assert not of_kind(objects, "NetworkPolicy"), "no network policy unless asked for"
    assert admitted(agent(networkPolicy={"enabled": True})) == {}, "the network policy admits nobody by default"
    assert {"--cluster-name=member1", "--cluster-zones=a,b", "--cluster-region=eu"} <= set(given), "flags arrive"


def test_detection():
    words = ("ready-nodes", "dns-name", "egress", "cluster-api-latency", "cluster-api-errors")
    given = [each for each in arguments(agent()) if any(word in each for word in words)]
    assert not given, "no further condition unless asked for"
    asked = {"readyNodesThreshold": 0.6, "dnsName": "a.svc", "egressAddress": "example.com:8443", "apiLatencyThreshold": "1s"}
    objects = agent(status=asked, networkPolicy={"enabled": True})
    expected = {
        "--cluster-ready-nodes-threshold=0.6",
        "--cluster-dns-name=a.svc",
        "--cluster-egress-address=example.com:8443",
        "--cluster-api-latency-threshold=1s",
        "--cluster-api-errors-threshold=0.5",
    }
    assert expected <= set(arguments(objects)), "each has its flag"
    ports = [port["port"] for rule in of_kind(objects, "NetworkPolicy")[0]["spec"]["egress"] for port in rule["ports"]]
    assert 8443 in ports, "and the way out is open"


def test_credentials():
    objects = agent()
    given = arguments(objects)
    assert "--report-secrets=None" in given and not [each for each in given if each.startswith("--controllers")], "gives no credentials away and renews none unless asked to"
    assert secrets_of(container(objects)[0]) == [("muster-fleet-kubeconfig", None)], "the Secret with the certificate has to be there unless the agent asks for it"
    asked = {
        "--report-secrets=KubeCredentials,KubeImpersonator",
        "--controllers=*,certRotation",
        "--cert-rotation-remaining-time-threshold=0.2",
        "--karmada-kubeconfig-namespace=muster-system",
        "--karmada-kubeconfig-secret=muster-fleet-kubeconfig",
        "--karmada-kubeconfig-secret-key=kubeconfig",
    }
    reporting = agent(rights={"preset": "everything"}, reportSecrets=["KubeCredentials", "KubeImpersonator"], certRotation={"enabled": True})
    assert asked <= set(arguments(reporting)), "reports and renews what it is asked to"


@pytest.mark.parametrize("values", [{}, {"certRotation": {"enabled": True}}, {"fleet": JOINING}], ids=str)
def test_records_stay_where_they_are_whatever_is_switched_on_later(values):
    given = arguments(rendered(AGENT, {**VALUES, **values}, namespace="second"))
    assert [each for each in given if "kubeconfig-namespace" in each] == ["--karmada-kubeconfig-namespace=second"], "and agents of two fleets have records of their own"


def test_a_namespace_of_the_records_that_was_given_by_a_flag_is_given_once():
    given = arguments(agent(extraArgs=["--cluster-lease-duration=60s", "--karmada-kubeconfig-namespace=karmada-system"]))
    assert [each for each in given if "kubeconfig-namespace" in each] == ["--karmada-kubeconfig-namespace=karmada-system"], "an agent refuses a flag that is given twice"


def test_bootstrap():
    deployment, main = container(agent(fleet={"bootstrapSecret": "first"}))
    asked = {"--bootstrap-kubeconfig=/etc/muster/bootstrap/kubeconfig", "--controllers=*,certRotation", "--karmada-kubeconfig-secret=muster-fleet-kubeconfig"}
    assert asked <= set(main["args"]), "asks for its certificate with a bootstrap kubeconfig"
    assert secrets_of(deployment) == [("muster-fleet-kubeconfig", True), ("first", True)], "starts without a certificate, and without the token later"
    kubeconfig = bootstrap_kubeconfig(JOINING)
    given = (kubeconfig["clusters"][0]["cluster"], kubeconfig["users"][0]["user"])
    expected = ({"server": JOINING["server"], "certificate-authority-data": JOINING["caData"]}, {"token": JOINING["token"]})
    assert given == expected, "a bootstrap kubeconfig is made of address, authority and token"
    deployment, main = container(agent(fleet=JOINING))
    assert secrets_of(deployment) == [("muster-fleet-kubeconfig", True), ("muster-bootstrap", True)], "and mounted"
    assert {"--bootstrap-kubeconfig=/etc/muster/bootstrap/kubeconfig", "--controllers=*,certRotation"} <= set(main["args"]), "and read"
    pin = "sha256:" + "0" * 64
    assert f"--discovery-token-ca-cert-hash={pin}" in arguments(agent(fleet={**JOINING, "caHash": [pin]})), "the authority can be pinned"
    assert "caHash" in refused(AGENT, {**VALUES, "fleet": {**JOINING, "caHash": ["sha256:1"]}}), "by a hash and nothing else"
    assert bootstrap_kubeconfig({**JOINING, "token": ""})["users"][0]["user"] == {}, "an upgrade without the token leaves the rest"
    pods = [container(agent(fleet={**JOINING, **other}))[0]["spec"]["template"] for other in ({}, {"token": ""}, {"server": "https://other.example.com"})]
    assert pods[0] == pods[1] != pods[2], "and restarts no agent, as another address does"


def test_several_addresses_of_the_fleet():
    assert not [each for each in arguments(agent()) if "fleet-server" in each], "one address needs no list"
    servers = [{"server": "https://a.example:7443", "store": "a"}, {"server": "https://b.example", "caData": "LS0tLS1CRUdJTg==", "store": "b"}]
    objects = agent(fleet={"servers": servers, "serverTimeout": "1m"}, networkPolicy={"enabled": True})
    given = dict(each[2:].split("=", 1) for each in arguments(objects) if "fleet-server" in each)
    assert json.loads(given["fleet-servers"]) == servers and given["fleet-server-timeout"] == "1m", "the agent knows all"
    (policy,) = of_kind(objects, "NetworkPolicy")
    ports = {port["port"] for rule in policy["spec"]["egress"] for port in rule["ports"]}
    assert {7443, 443} <= ports, "and may reach them"
    assert "servers" in refused(AGENT, {**VALUES, "fleet": {"servers": [{"server": "http://a"}]}}), "no credentials go over plain HTTP"


@pytest.mark.parametrize(("fleet", "words"), [({**JOINING, "bootstrapSecret": "first"}, "exclude each other"), ({"token": JOINING["token"]}, "fleet.server is missing")], ids=str)
def test_fails(fleet, words):
    assert words in fails(AGENT, {**VALUES, "fleet": fleet})


REFUSED = [
    ({"clusterName": ""}, "clusterName"),
    ({"clusterName": "a", "fleet": {"server": "fleet.example.com"}}, "server"),
    ({"clusterName": "a", "fleet": {"token": "abc"}}, "token"),
    ({"clusterName": "a", "fleet": {"caData": "-----BEGIN"}}, "caData"),
    ({"clusterName": "a", "fleet": {"bootstrapKey": "a/b"}}, "bootstrapKey"),
    ({"clusterName": "Member.1"}, "clusterName"),
    ({"clusterName": "a", "x": 1}, "x"),
    ({"clusterName": "a", "reportSecrets": ["Everything"]}, "reportSecrets"),
    ({"clusterName": "a", "status": {"readyNodesThreshold": 60}}, "readyNodesThreshold"),
    ({"clusterName": "a", "status": {"egressAddress": "https://example.com"}}, "egressAddress"),
    ({"clusterName": "a", "status": {"apiErrorsThreshold": 0}}, "apiErrorsThreshold"),
    ({"clusterName": "a", "cluster": {"region": "EU West"}}, "region"),
    ({"clusterName": "a", "cluster": {"zones": ["a b"]}}, "zones"),
    ({"clusterName": "a", "cluster": {"apiEndpoint": "https://a?b"}}, "apiEndpoint"),
    ({"clusterName": "a", "rights": {"preset": "some"}}, "preset"),
]


@pytest.mark.parametrize(("values", "word"), REFUSED, ids=str)
def test_refuses(values, word):
    assert word in refused(AGENT, values)


def test_access_of_everything():
    objects = rendered(AGENT, {**MEMBER, "rights": {"preset": "everything"}})
    assert not [word for word in ("RELEASE", "NAMESPACE") if word in yaml.safe_dump_all(objects)], "no name is left to fill in"
    verbs = {verb for rule in rules(objects, "ClusterRole", "muster-system-muster") if "*" in rule.get("resources", []) for verb in rule["verbs"]}
    assert verbs and not verbs & {"*", "impersonate", "deletecollection"}, "everything is everything but impersonation"
    assert not of_kind(rendered(AGENT, {**MEMBER, "rights": {"create": False}}), "ClusterRole", "ServiceAccount"), "rights of one's own"


def test_narrow_access():
    assert rendered(AGENT, MEMBER) == rendered(AGENT, {**MEMBER, "rights": {"preset": "workloads"}}), "an agent is narrow unless more is asked for"
    objects = rendered(AGENT, {**NARROW, "certRotation": {"enabled": True}})
    assert not [word for word in ("RELEASE", "NAMESPACE") if word in yaml.safe_dump_all(objects)], "no name is left to fill in where less is granted"
    granted = [rule for each in of_kind(objects, "ClusterRole") for rule in each["rules"]]
    named = {(group, resource) for rule in granted for group in rule.get("apiGroups", []) for resource in rule["resources"]}
    powerful = {("", "secrets"), ("rbac.authorization.k8s.io", "roles"), ("", "serviceaccounts/token"), ("", "pods/exec")}
    assert not named & powerful and not [each for each in named if "*" in each], "a narrow agent has no Secrets, roles, tokens"
    assert not {verb for rule in granted for verb in rule["verbs"]} & {"*", "bind", "escalate", "impersonate"}, "a narrow agent binds no roles"
    assert {("", "nodes"), ("", "pods")} <= named, "a narrow agent still measures capacity"
    assert ("example.com", "databases") in named, "rules beside the preset arrive"
    own = rules(objects, "Role", "muster-certificate", "muster-system")
    assert [rule["resourceNames"] for rule in own] == [["muster-fleet-kubeconfig"]], "a narrow agent renews its own certificate"
    assert ["get", "patch"] in [rule["verbs"] for rule in own], "and makes no Secret"
    joining = {"server": "https://fleet.example.com", "token": "abcdef.0123456789abcdef"}
    own = rules(rendered(AGENT, {**NARROW, "fleet": joining}), "Role", "muster-certificate", "muster-system")
    assert [rule["verbs"] for rule in own if rule["resources"] == ["secrets"]] == [["get", "create", "patch"]], "a narrow agent that joins by its values makes its own Secret"
    own = rules(rendered(AGENT, {**NARROW, "fleet": {"bootstrapSecret": "first"}}), "Role", "muster-certificate", "muster-system")
    secrets = [(rule["resourceNames"], rule["verbs"]) for rule in own if rule["resources"] == ["secrets"]]
    assert secrets == [(["muster-fleet-kubeconfig"], ["get", "create", "patch"])], "a narrow agent makes its own Secret and no other"
    said = fails(AGENT, {**MEMBER, "reportSecrets": ["KubeCredentials"]})
    assert "reportSecrets={KubeCredentials} needs rights.preset=everything" in said, "a narrow agent makes no powerful account, and both fields are named"
