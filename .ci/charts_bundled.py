"""Checks of the fleet API that charts/control-plane brings along."""

import pathlib

import yaml
from charting import check, container, external, fails, refused, rendered, rules
from charts_common import common


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
        if each["kind"] == "Job":
            pods[each["metadata"]["name"].rsplit("-", 1)[0]] = each["spec"]["template"]["spec"]
        if each["kind"] == "CronJob":
            pods[each["metadata"]["name"]] = each["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    expected = {"muster", "muster-fleet-api", "muster-fleet-manager", "muster-fleet-certificates", "muster-fleet-etcd"}
    expected |= {"muster-fleet-etcd-defragmentation", "muster-fleet-etcd-snapshots", "muster-fleet-etcd-snapshot"}
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

    objects = rendered(path, {})
    asked = next(each for each in objects if each["kind"] == "ConfigMap")["data"]["webhooks.yaml"]
    kinds = [each["kind"] for each in yaml.safe_load_all(asked) if each]
    check(f"{path}: a bundled fleet API is told to ask about policies", sorted(kinds) == ["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"], str(kinds))
    check(f"{path}: and this cluster is not", not [each for each in objects if "Webhook" in each["kind"]])
    off = rendered(path, {"webhook": {"enabled": False}})
    _, main = container(off)
    check(f"{path}: unless that is not wanted", not [each for each in off if each["kind"] == "ConfigMap"] and not [each for each in main["args"] if each.startswith("--webhook")], str(main["args"]))
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
    claims_are_mounted()
    members_ask_first()
    issued()
    lifetimes()


def claims_are_mounted():
    """A claim that nothing mounts stays Pending where volumes bind late, and `helm --wait` and Flux wait for it."""
    path = "charts/control-plane"
    for values in ({}, {"fleetApi": {"etcd": {"replicas": 3}}}, {"fleetApi": {"etcd": {"restore": "x.db"}}}, {"fleetApi": {"etcd": {"restore": "x.db", "snapshots": {"schedule": ""}}}}, {"fleetApi": {"etcd": {"snapshots": {"schedule": ""}}}}):
        objects = rendered(path, values)
        claims = {each["metadata"]["name"] for each in objects if each["kind"] == "PersistentVolumeClaim"}
        started = [each["spec"]["template"]["spec"] for each in objects if each["kind"] in ("Deployment", "StatefulSet", "DaemonSet", "Job")]
        mounted = {volume["persistentVolumeClaim"]["claimName"] for pod in started for volume in pod.get("volumes", []) if "persistentVolumeClaim" in volume}
        check(f"{path}: every claim is mounted by what starts at installation, with {values}", claims <= mounted, str(claims - mounted))
    jobs = [each for each in rendered(path, {}) if each["kind"] in ("Job", "CronJob")]
    specs = {each["metadata"]["name"]: each["spec"].get("jobTemplate", each)["spec"] for each in jobs}
    first = next(name for name in specs if name.startswith("muster-fleet-etcd-snapshot-"))
    check(f"{path}: the first snapshot is taken as all others are", specs[first] == specs["muster-fleet-etcd-snapshots"], str(specs))
    restored = [each["metadata"]["name"] for each in rendered(path, {"fleetApi": {"etcd": {"restore": "x.db"}}}) if each["kind"] == "Job"]
    check(f"{path}: none is taken at once beside a restore, which needs the volume and the oldest snapshot", restored == [], str(restored))
    changed = rendered(path, {"image": {"tag": "next"}})
    names = [each["metadata"]["name"] for each in changed if each["kind"] == "Job"]
    check(f"{path}: a Job that would change has another name", len(names) == 1 and names != [first], str(names))


def members_ask_first():
    """A member of etcd with an empty volume makes no second store beside one with data."""
    path = "charts/control-plane"

    def store(values):
        return next(each for each in rendered(path, {"fleetApi": {"etcd": values}}) if each["kind"] == "StatefulSet")["spec"]["template"]["spec"]

    check(f"{path}: one member asks nobody", "initContainers" not in store({}))
    for values, expected in [({}, ["check"]), ({"restore": "x.db"}, ["check", "restore"])]:
        pod = store({"replicas": 3, **values})
        check(f"{path}: each of three members asks before anything is written, with {values}", [each["name"] for each in pod["initContainers"]] == expected, str(pod["initContainers"]))
    for state in ("new", "existing"):
        pod = store({"replicas": 3, "initialClusterState": state})
        asks, runs = flags(pod["initContainers"][0]["args"]), flags(pod["containers"][0]["command"])
        same = ["--name", "--data-dir", "--initial-cluster", "--initial-cluster-token", "--initial-cluster-state"]
        check(f"{path}: it asks about what etcd is given, state {state}", [asks[each] for each in same] == [runs[each] for each in same] and asks["--initial-cluster-state"] == state, str(asks))
        files = {each["name"]: each["mountPath"] for each in pod["initContainers"][0]["volumeMounts"]}
        check(f"{path}: and sees its data and certificate, state {state}", files == {"data": "/var/lib/etcd", "tls": asks["--tls-directory"]}, str(files))


def issued():
    """A certificate that cert-manager makes has every name and address by which its server is reached, or the chart says what is missing."""
    path, issuer = "charts/control-plane", {"issuerRef": {"name": "internal"}}
    addresses = {
        "https://[2001:db8::1]:6443": ("2001:db8::1", "ipAddresses"),
        "https://[2001:db8::1]": ("2001:db8::1", "ipAddresses"),
        "https://192.0.2.1:6443": ("192.0.2.1", "ipAddresses"),
        "https://fleet.example.com:6443/": ("fleet.example.com", "dnsNames"),
    }
    for address, (name, kind) in addresses.items():
        objects = rendered(path, {"fleetApi": {"address": address, "certificates": issuer}})
        spec = next(each for each in objects if each["kind"] == "Certificate")["spec"]
        check(f"{path}: an issuer is asked for {name} of {address}", name in spec[kind] and not [each for each in spec["dnsNames"] + spec["ipAddresses"] if "[" in each], str(spec))
        objects = external(path, {"webhook": {"enabled": True, "url": address, "caBundle": "-----BEGIN CERTIFICATE-----", "certificate": issuer}})
        spec = next(each for each in objects if each["kind"] == "Certificate")["spec"]
        check(f"{path}: and for admission at {address}", name in spec[kind] and not [each for each in spec["dnsNames"] if "[" in each or each == "192.0.2.1"], str(spec))
        _, main = container(external(path, {"webhook": {"enabled": True, "url": address}}))
        names = next(each for each in main["args"] if each.startswith("--webhook-certificate-names=")).split("=")[1].split(",")
        check(f"{path}: a certificate of its own for admission at {address} is for the same", name in names, str(names))
    for kind in ("LoadBalancer", "NodePort"):
        values = {"fleetApi": {"service": {"type": kind}, "certificates": issuer}}
        words = fails(path, values)
        check(f"{path}: an issuer, and {kind} without a name, is refused", "fleetApi.address" in words and "fleetApi.certificates.names" in words, words)
        values["fleetApi"]["certificates"] = {**issuer, "names": ["192.0.2.1"]}
        check(f"{path}: with a name it is not", not fails(path, values), fails(path, values))
        values["fleetApi"] |= {"address": "https://fleet.example.com", "certificates": issuer}
        check(f"{path}: nor with an address", not fails(path, values), fails(path, values))
        check(f"{path}: nor without an issuer", not fails(path, {"fleetApi": {"service": {"type": kind}}}))


def lifetimes():
    """Certificates that end before their users have read the new ones are refused."""
    path = "charts/control-plane"
    for lifetime, good in {"14m": False, "14m59s": False, "0.2h": False, "899s": False, "899000ms": False, "1ms": False, "15m": True, "0.25h": True, ".25h": True, "1.h": True, "900s": True, "14m60s": True, "1h": True, "2160h": True}.items():
        words = fails(path, {"fleetApi": {"certificates": {"lifetime": lifetime}}})
        check(f"{path}: a lifetime of {lifetime} is {'taken' if good else 'refused'}", good == (not words) and (good or "fleetApi.certificates.lifetime" in words), words)
    words = fails(path, {"fleetApi": {"address": "https://fleet.example.com", "certificates": {"lifetime": "30m", "issuerRef": {"name": "internal"}}}})
    check(f"{path}: cert-manager issues for an hour or longer", "fleetApi.certificates.lifetime" in words, words)
    words = fails(path, {"fleetApi": {"certificates": {"lifetime": "2160h", "authorityLifetime": "2000h"}}})
    check(f"{path}: an authority that ends before its certificates is refused", "fleetApi.certificates.authorityLifetime" in words, words)
    words = refused(path, {"fleetApi": {"certificates": {"lifetime": "1..h"}}})
    check(f"{path}: a lifetime that is no duration is refused", words is not None and "lifetime" in words, str(words))
