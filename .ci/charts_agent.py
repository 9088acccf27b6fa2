"""Checks of charts/agent: the Deployment, and the rights in the member."""

import yaml
from charting import check, container, refused, rendered, rules
from charts_common import common, network_policy


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
    pin = "sha256:" + "0" * 64
    _, main = container(rendered(path, {**values, "fleet": {**joining, "caHash": [pin]}}))
    check(f"{path}: the authority can be pinned", f"--discovery-token-ca-cert-hash={pin}" in main["args"], str(main["args"]))
    words = refused(path, {**values, "fleet": {**joining, "caHash": ["sha256:1"]}})
    check(f"{path}: by a hash and nothing else", words is not None and "caHash" in words, str(words))
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
