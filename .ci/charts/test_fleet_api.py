"""The fleet API that the chart of the control plane brings along."""

import pytest
import yaml
from charting import CONTROL_PLANE, arguments, container, containers, external, fails, flags, named, of_kind, pods, refused, rendered, secrets_of, sound, words_of
from helm_python import chart as helm

CONTROLLERS = "garbagecollector,namespace,clusterrole-aggregation,serviceaccount-token,csrsigning,csrcleaner,bootstrapsigner,tokencleaner,ttl-after-finished"
ISSUER = {"issuerRef": {"name": "internal"}}
COPIED = {"objectStorage": {"bucket": "backups", "endpoint": "https://s3.example.com:9000", "region": "eu", "credentialsSecret": "keys", "caSecret": "trust"}}
SHARED = {"snapshots": {"accessMode": "ReadWriteMany"}}
FETCHED = {"restore": "s3://backups/muster-system/x.db", "snapshots": COPIED}


def bundled(**values):
    return rendered(CONTROL_PLANE, {"fleetApi": values})


def everything():
    """The default objects, and their pod templates, those of Jobs included."""
    objects = bundled()
    jobs = {each["metadata"]["name"].rsplit("-", 1)[0]: each["spec"]["template"] for each in of_kind(objects, "Job")}
    return objects, pods(objects) | jobs


def command(pod):
    return flags(pod["spec"]["containers"][0]["command"])


def test_objects():
    objects, parts = everything()
    sound(CONTROL_PLANE, {}, objects)
    assert rendered(CONTROL_PLANE, {}) == objects, "the same at each rendering with a fleet API"
    keys = [(each["kind"], each["metadata"]["name"]) for each in objects]
    assert len(keys) == len(set(keys)), "every object of the fleet API once"
    held = [each for each in objects if each["kind"] in ("Secret", "CustomResourceDefinition") or "PRIVATE KEY" in yaml.safe_dump(each)]
    assert not held, "no key and no kind of the fleet is in the chart's objects"
    expected = {"muster", "muster-fleet-api", "muster-fleet-manager", "muster-fleet-certificates", "muster-fleet-etcd"}
    expected |= {"muster-fleet-etcd-defragmentation", "muster-fleet-etcd-snapshots", "muster-fleet-etcd-snapshot"}
    assert set(parts) == expected, "the parts of a fleet API"


def test_parts():
    objects, parts = everything()
    made = {name for rule in of_kind(objects, "Role")[0]["rules"] if rule["verbs"] == ["get", "update"] for name in rule["resourceNames"]}
    for name, pod in parts.items():
        spec = pod["spec"]
        volumes = {volume["name"] for volume in spec.get("volumes", [])} | {"data"}
        for each in containers(pod):
            who, context = f"{name}/{each['name']}", each["securityContext"]
            plain = not context["allowPrivilegeEscalation"] and context["readOnlyRootFilesystem"] and context["capabilities"]["drop"] == ["ALL"]
            assert plain and spec["securityContext"]["runAsNonRoot"], f"{who} runs without privileges"
            assert "memory" in each["resources"]["limits"] and "requests" in each["resources"], f"{who} has requests and limits"
            assert {mount["name"] for mount in each.get("volumeMounts", [])} <= volumes, f"{who} mounts volumes that are there"
        mounted = {volume["secret"]["secretName"] for volume in spec.get("volumes", []) if "secret" in volume}
        assert mounted <= made, f"{name} mounts Secrets that are made"
        assert spec["automountServiceAccountToken"] is (name == "muster-fleet-certificates"), f"the certificates alone have an account of the host, not {name}"


def test_programs():
    _, parts = everything()
    server, manager = command(parts["muster-fleet-api"]), command(parts["muster-fleet-manager"])
    assert set(manager["--controllers"].split(",")) == set(CONTROLLERS.split(",")), "exactly the controllers that a fleet API needs"
    assert server["--enable-bootstrap-token-auth"] == "true" and server["--authorization-mode"] == "RBAC", "tokens are taken"
    assert "PersistentVolumeClaimResize" in server["--disable-admission-plugins"].split(","), "a claim's template grows without a storage class in the fleet"
    authority = next(each for each in parts["muster-fleet-api"]["spec"]["volumes"] if each["name"] == "authority")
    assert [item["key"] for item in authority["secret"]["items"]] == ["ca.crt"], "the API server has the authority and not its key"
    mounts = {mount["mountPath"] for name in ("muster-fleet-api", "muster-fleet-manager") for mount in containers(parts[name])[0]["volumeMounts"]}
    files = [value for value in [*server.values(), *manager.values()] if value.startswith("/etc/")]
    assert files and all(value.rsplit("/", 1)[0] in mounts for value in files), "every file of a flag is mounted"


@pytest.mark.parametrize("mode", [{}, {"profile": ""}], ids=str)
def test_a_profile_has_to_be_chosen(mode):
    with helm.Chart.load(CONTROL_PLANE) as chart:
        said = words_of(lambda: chart.render(values={"fleetApi": mode}, name="muster", namespace="muster-system"))
    assert all(each in said for each in ("fleetApi.profile is missing", "production, for three members", "trial, for one member")), f"says what there is to choose and what it means: {said}"
    assert external({}), "an external fleet API has its own store"


@pytest.mark.parametrize(("profile", "members"), [("trial", 1), ("production", 3)])
def test_members_are_those_of_the_profile(profile, members):
    assert bundled(profile=profile, etcd={"replicas": members}) == bundled(profile=profile), "the same number by hand is no other"
    other = {1: 3, 3: 1}[members]
    said = fails(CONTROL_PLANE, {"fleetApi": {"profile": profile, "etcd": {"replicas": other}}})
    assert f"fleetApi.etcd.replicas={other} contradicts fleetApi.profile={profile}, which has {members}" in said
    assert "profile" in refused(CONTROL_PLANE, {"fleetApi": {"profile": "small"}})


def apart(pod):
    """Where no other pod of its kind may be, and where none should."""
    rules = pod["spec"]["affinity"].get("podAntiAffinity", {})
    own = pod["metadata"]["labels"].items()
    terms = [rules.get("requiredDuringSchedulingIgnoredDuringExecution", []), [each["podAffinityTerm"] for each in rules.get("preferredDuringSchedulingIgnoredDuringExecution", [])]]
    assert all(each["labelSelector"]["matchLabels"].items() <= own for some in terms for each in some), "each is about its own pods"
    return [{each["topologyKey"].split("/")[1] for each in some} for some in terms]


def test_production_is_spread():
    parts = pods(bundled(profile="production"))
    assert apart(parts.pop("muster-fleet-etcd")) == [{"hostname"}, {"zone"}], "no node has two members of etcd, and no zone where there are several"
    assert {name: apart(pod) for name, pod in parts.items()} == dict.fromkeys(parts, [set(), {"hostname", "zone"}]), "what can start anywhere is held back by nothing"
    for name in ("muster", "muster-fleet-api"):
        spread = {each["topologyKey"].split("/")[1]: each["whenUnsatisfiable"] for each in parts[name]["spec"]["topologySpreadConstraints"]}
        assert spread == {"zone": "ScheduleAnyway", "hostname": "ScheduleAnyway"}, f"{name} is spread as far as there is room"
    trial = pods(bundled())
    assert {name: apart(pod) for name, pod in trial.items()} == dict.fromkeys(trial, [set(), {"hostname", "zone"}]), "a trial runs on one node"


SCHEDULES = [({}, 25), ({"defragmentationSchedule": ""}, 31), ({"defragmentationSchedule": "", "snapshots": {"schedule": ""}}, 41)]


@pytest.mark.parametrize(("etcd", "longest"), SCHEDULES, ids=str)
def test_a_name_that_is_too_long_is_refused_before_anything_is_made(etcd, longest):
    def said(length, fleet):
        with helm.Chart.load(CONTROL_PLANE) as chart:
            return words_of(lambda: chart.render(values={"fleetApi": fleet}, name="a" * length, namespace="muster-system"))

    trial = {"profile": "trial", "etcd": etcd}
    assert not said(longest, trial) and f"set fullnameOverride to a name of at most {longest}, in place of" in said(longest + 1, trial)
    assert not said(53, {"mode": "external"}), "an external fleet API has no store here"


def test_your_own_affinity():
    nodes, own = {"nodeAffinity": {"a": "b"}}, {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": []}}
    kept = pods(rendered(CONTROL_PLANE, {"affinity": nodes, "fleetApi": {"profile": "production"}}))
    assert kept["muster-fleet-etcd"]["spec"]["affinity"].items() >= nodes.items() and apart(kept["muster-fleet-etcd"])[0] == {"hostname"}, "beside nodes of yours members stay apart"
    assert kept["muster"]["spec"]["affinity"] == nodes, "and what can start anywhere goes by your words alone"
    assert pods(bundled(profile="production", etcd={"affinity": own}))["muster-fleet-etcd"]["spec"]["affinity"] == own, "your own rules for it take the place of the chart's"


def test_three_of_each():
    objects = bundled(profile="production")
    store = of_kind(objects, "StatefulSet")[0]["spec"]
    wanted = [f"muster-fleet-etcd-{n}=https://muster-fleet-etcd-{n}.muster-fleet-etcd.muster-system.svc:2380" for n in range(3)]
    assert store["replicas"] == 3 and command(store["template"])["--initial-cluster"].split(",") == wanted, "three members of etcd know each other"
    server = named(objects, "Deployment", "muster-fleet-api")["spec"]
    assert server["replicas"] == 3 and len(command(server["template"])["--etcd-servers"].split(",")) == 3, "three API servers ask three members"
    budgets = {each["metadata"]["name"] for each in of_kind(objects, "PodDisruptionBudget")}
    assert {"muster-fleet-etcd", "muster-fleet-api", "muster-fleet-manager"} <= budgets, "a drain takes one of each at a time"
    assert named(objects, "Deployment", "muster")["spec"]["replicas"] == 3, "and three replicas of the control plane wait for one lease"
    fewer = rendered(CONTROL_PLANE, {"replicas": 1, "fleetApi": {"profile": "production", "apiServer": {"replicas": 2}}})
    assert [named(fewer, "Deployment", name)["spec"]["replicas"] for name in ("muster", "muster-fleet-api")] == [1, 2], "unless there are to be others"


def test_names():
    objects = bundled(address="https://fleet.example.com:8443", service={"type": "NodePort", "nodePort": 30443}, certificates={"names": ["192.0.2.1"]})
    service = named(objects, "Service", "muster-fleet-api")["spec"]
    assert service["type"] == "NodePort" and service["ports"][0]["nodePort"] == 30443, "a port of the nodes"
    wanted = {"--address=https://fleet.example.com:8443", "--certificate-names=192.0.2.1", "--namespace=muster-system", "--name=muster-fleet"}
    assert wanted <= set(arguments(objects, "muster-fleet-certificates")), "the certificate has every name"
    objects = bundled(address="https://fleet.example.com", certificates={"names": ["192.0.2.1"], **ISSUER})
    certificate = of_kind(objects, "Certificate")[0]["spec"]
    assert "fleet.example.com" in certificate["dnsNames"] and "192.0.2.1" in certificate["ipAddresses"], "an issuer is asked for every name"
    volumes = container(objects, "muster-fleet-api")[0]["spec"]["template"]["spec"]["volumes"]
    serving = next(each for each in volumes if each["name"] == "serving")["secret"]["secretName"]
    assert serving == certificate["secretName"] and f"--serving-secret={serving}" in arguments(objects, "muster-fleet-certificates"), "and the API server serves with what it issues"


def test_admission():
    objects = bundled()
    asked = yaml.safe_load_all(of_kind(objects, "ConfigMap")[0]["data"]["webhooks.yaml"])
    assert sorted(each["kind"] for each in asked if each) == ["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"], "a bundled fleet API is told to ask about policies"
    assert not [each for each in objects if "Webhook" in each["kind"]], "and this cluster is not"
    for certificate, is_named in (({}, False), ({"secret": "mine"}, True)):
        objects = rendered(CONTROL_PLANE, {"webhook": {"caBundle": "-----BEGIN CERTIFICATE-----", "certificate": certificate}})
        named = "caBundle" in of_kind(objects, "ConfigMap")[0]["data"]["webhooks.yaml"]
        assert named == is_named, "the authority of a certificate that is brought is applied, and of no other one"
    off = rendered(CONTROL_PLANE, {"webhook": {"enabled": False}})
    assert not of_kind(off, "ConfigMap") and not [each for each in arguments(off) if each.startswith("--webhook")], "unless that is not wanted"


def test_network_policies():
    objects = rendered(CONTROL_PLANE, {"networkPolicy": {"enabled": True, "metricsFrom": [{"namespaceSelector": {"matchLabels": {"name": "monitoring"}}}]}})
    policies = {each["metadata"]["name"]: each["spec"] for each in of_kind(objects, "NetworkPolicy")}
    guarded = {"muster", "muster-fleet-api", "muster-fleet-etcd", "muster-fleet-etcd-jobs", "muster-fleet-manager", "muster-fleet-certificates"}
    assert set(policies) == guarded, "every part of a fleet API is guarded"
    admitted = [peer["podSelector"]["matchLabels"]["app.kubernetes.io/name"] for peer in policies["muster-fleet-etcd"]["ingress"][0]["from"]]
    assert admitted == ["muster-fleet-api", "muster-fleet-etcd", "muster-fleet-etcd-jobs"], "etcd admits its API server, its members and its jobs"
    assert set(admitted) <= {pod["metadata"]["labels"]["app.kubernetes.io/name"] for pod in pods(objects).values()}, "and they bear these names"
    assert policies["muster-fleet-manager"]["ingress"] == [], "nobody connects to kube-controller-manager"


def test_external():
    objects = external({})
    assert not [each for each in objects if "fleet" in each["metadata"]["name"]], "an external fleet API brings nothing of its own"
    assert secrets_of(container(objects)[0]) == [("muster-fleet-kubeconfig", None)], "and takes your kubeconfig"


@pytest.mark.parametrize("profile", ["trial", "production"])
@pytest.mark.parametrize("etcd", [{}, {"restore": "x.db"}, {"restore": "x.db", "snapshots": {"schedule": ""}}, {"snapshots": {"schedule": ""}}, FETCHED, {**FETCHED, "snapshots": {**COPIED, "schedule": ""}}], ids=str)
def test_every_claim_is_mounted_by_what_starts_at_installation(profile, etcd):
    """A claim that nothing mounts stays Pending where volumes bind late, and `helm --wait` and Flux wait for it."""
    objects = bundled(profile=profile, etcd={**etcd, "snapshots": {**etcd.get("snapshots", {}), **SHARED["snapshots"]}})
    claims = {each["metadata"]["name"] for each in of_kind(objects, "PersistentVolumeClaim")}
    started = [each["spec"]["template"]["spec"] for each in of_kind(objects, "Deployment", "StatefulSet", "DaemonSet", "Job")]
    assert claims <= {volume["persistentVolumeClaim"]["claimName"] for pod in started for volume in pod.get("volumes", []) if "persistentVolumeClaim" in volume}


def test_first_snapshot():
    jobs = of_kind(bundled(), "Job", "CronJob")
    specs = {each["metadata"]["name"]: each["spec"].get("jobTemplate", each)["spec"] for each in jobs}
    first = next(name for name in specs if name.startswith("muster-fleet-etcd-snapshot-"))
    assert specs[first] == specs["muster-fleet-etcd-snapshots"], "the first snapshot is taken as all others are"
    assert not of_kind(bundled(etcd={"restore": "x.db"}), "Job"), "none is taken at once beside a restore, which needs the volume and the oldest snapshot"
    changed = of_kind(rendered(CONTROL_PLANE, {"image": {"tag": "next"}}), "Job")
    assert len(changed) == 1 and changed[0]["metadata"]["name"] != first, "a Job that would change has another name"


def reaches(pod, given):
    """A container and its flags: those by which it reaches the object storage name files that are mounted, and nothing of the Secrets is in them."""
    main, words = given, flags(given["args"])
    mounts = {each["mountPath"]: each["name"] for each in main["volumeMounts"]}
    secrets = {each["name"]: each["secret"]["secretName"] for each in pod["volumes"] if "secret" in each}
    assert secrets[mounts[words["--credentials"]]] == "keys" and secrets[mounts[words["--authority"].rsplit("/", 1)[0]]] == "trust"
    assert (words["--endpoint"], words["--region"]) == ("https://s3.example.com:9000", "eu")
    return words


def snapshots(**etcd):
    return of_kind(bundled(etcd=etcd), "CronJob")[1]["spec"]["jobTemplate"]["spec"]


def test_snapshots_go_to_object_storage():
    job = snapshots(snapshots=COPIED)
    pod = job["template"]["spec"]
    taken, kept = pod["initContainers"][0], pod["containers"][0]
    words = reaches(pod, kept)
    assert (words["--to"], words["--keep-objects"]) == ("s3://backups/muster-system/muster-fleet-etcd/", "28"), "each installation has its own place"
    assert taken["command"][-1] == f"{words['--directory']}/{words['--upload']}" and {each["name"] for each in kept["env"]} == {"POD_NAME"}, "what was taken is what is copied"
    assert job["podFailurePolicy"]["rules"] == [{"action": "FailJob", "onExitCodes": {"containerName": kept["name"], "operator": "NotIn", "values": [0]}}], "a copy that failed takes no further snapshots"
    assert pod["restartPolicy"] == "Never", "which that policy needs"
    plain = snapshots()["template"]["spec"]
    assert not [word for word in plain["containers"][0]["args"] if "s3" in word] and {each["name"] for each in plain["volumes"]} == {"client", "snapshots"}, "nowhere unless asked for"
    own = flags(snapshots(snapshots={"objectStorage": {"bucket": "backups", "credentialsSecret": "keys", "prefix": "a/b/", "region": "eu-west-1", "keep": 0}})["template"]["spec"]["containers"][0]["args"])
    assert (own["--to"], own["--endpoint"], own["--keep-objects"]) == ("s3://backups/a/b/", "https://s3.eu-west-1.amazonaws.com", "0") and "--authority" not in own


@pytest.mark.parametrize("etcd", [{"snapshots": {"objectStorage": {"bucket": "backups"}}}, {"restore": "s3://backups/x.db"}], ids=str)
def test_object_storage_needs_credentials(etcd):
    assert "fleetApi.etcd.snapshots.objectStorage.credentialsSecret is missing" in fails(CONTROL_PLANE, {"fleetApi": {"etcd": etcd}})


@pytest.mark.parametrize("wrong", [{"bucket": "B"}, {"prefix": "/a"}, {"prefix": "a"}, {"endpoint": "minio:9000"}, {"secretAccessKey": "x"}, {"keep": -1}], ids=str)
def test_object_storage_refuses(wrong):
    assert refused(CONTROL_PLANE, {"fleetApi": {"etcd": {"snapshots": {"objectStorage": wrong}}}})


@pytest.mark.parametrize("profile", ["trial", "production"])
def test_a_snapshot_comes_from_object_storage(profile):
    pod = store(profile, **FETCHED)
    fetch, restore = pod["initContainers"][-2:]
    words = reaches(pod, fetch)
    assert words["--from"] == FETCHED["restore"] and words["--file"] in restore["command"], "what was fetched is restored"
    assert {each["mountPath"]: each["name"] for each in fetch["volumeMounts"]}["/fetched"] == {each["mountPath"]: each["name"] for each in restore["volumeMounts"]}["/fetched"] == "fetched"
    assert not [each for each in pod["volumes"] if "persistentVolumeClaim" in each], "with no volume that three members would have to share"
    kept = flags(snapshots(**FETCHED)["template"]["spec"]["containers"][0]["args"])
    assert kept["--keep-objects"] == "0", "and nothing is removed there meanwhile"


def test_three_nodes_restore_what_all_of_them_read():
    def said(**etcd):
        return fails(CONTROL_PLANE, {"fleetApi": {"profile": "production", "etcd": {"restore": "x.db", **etcd}}})

    assert "s3://BUCKET/KEY" in said() and "fleetApi.etcd.snapshots.accessMode=ReadWriteMany" in said(), "a volume that one node reads is none, with what is"
    own = {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}}
    assert not said(**SHARED) and not said(**FETCHED) and not said(affinity=own), "unless it is shared, or elsewhere, or you say where members are"
    assert not fails(CONTROL_PLANE, {"fleetApi": {"etcd": {"restore": "x.db"}}}), "one member is on one node"


@pytest.mark.parametrize(("etcd", "senders"), [({}, []), ({"snapshots": COPIED}, ["etcd-jobs"]), (FETCHED, ["etcd", "etcd-jobs"])], ids=str)
def test_the_network_policy_lets_object_storage_be_reached(etcd, senders):
    policies = of_kind(rendered(CONTROL_PLANE, {"networkPolicy": {"enabled": True}, "fleetApi": {"etcd": etcd}}), "NetworkPolicy")
    open_to = [each["metadata"]["name"] for each in policies if any(port["port"] == 9000 for rule in each["spec"]["egress"] if "to" not in rule for port in rule["ports"])]
    assert sorted(open_to) == [f"muster-fleet-{each}" for each in senders]


def store(profile, **etcd):
    return of_kind(bundled(profile=profile, etcd=etcd), "StatefulSet")[0]["spec"]["template"]["spec"]


@pytest.mark.parametrize(("profile", "etcd", "expected"), [("trial", {}, None), ("production", {}, ["check"]), ("production", {"restore": "x.db", **SHARED}, ["check", "restore"])], ids=str)
def test_one_member_of_etcd_asks_nobody_and_each_of_three_asks_before_anything_is_written(profile, etcd, expected):
    """A member with an empty volume makes no second store beside one with data."""
    first = store(profile, **etcd).get("initContainers")
    assert (first and [each["name"] for each in first]) == expected


@pytest.mark.parametrize("state", ["new", "existing"])
def test_a_member_asks_about(state):
    pod = store("production", initialClusterState=state)
    asks, runs = flags(pod["initContainers"][0]["args"]), flags(pod["containers"][0]["command"])
    same = ["--name", "--data-dir", "--initial-cluster", "--initial-cluster-token", "--initial-cluster-state"]
    assert [asks[each] for each in same] == [runs[each] for each in same] and asks["--initial-cluster-state"] == state, "it asks about what etcd is given"
    mounts = {each["name"]: each["mountPath"] for each in pod["initContainers"][0]["volumeMounts"]}
    assert mounts == {"data": "/var/lib/etcd", "tls": asks["--tls-directory"]}, "and sees its data and certificate"


ADDRESSES = [
    ("https://[2001:db8::1]:6443", "2001:db8::1", "ipAddresses"),
    ("https://[2001:db8::1]", "2001:db8::1", "ipAddresses"),
    ("https://192.0.2.1:6443", "192.0.2.1", "ipAddresses"),
    ("https://fleet.example.com:6443/", "fleet.example.com", "dnsNames"),
]


@pytest.mark.parametrize(("address", "name", "kind"), ADDRESSES)
def test_a_certificate_has_the_name_or_address_by_which_its_server_is_reached(address, name, kind):
    spec = of_kind(bundled(address=address, certificates=ISSUER), "Certificate")[0]["spec"]
    assert name in spec[kind] and not [each for each in spec["dnsNames"] + spec["ipAddresses"] if "[" in each], "an issuer is asked for it"
    objects = external({"webhook": {"enabled": True, "url": address, "caBundle": "-----BEGIN CERTIFICATE-----", "certificate": ISSUER}})
    spec = of_kind(objects, "Certificate")[0]["spec"]
    assert name in spec[kind] and not [each for each in spec["dnsNames"] if "[" in each or each == "192.0.2.1"], "and for admission"
    names = flags(arguments(external({"webhook": {"enabled": True, "url": address}})))["--webhook-certificate-names"]
    assert name in names.split(","), "a certificate of its own for admission is for the same"


@pytest.mark.parametrize("kind", ["LoadBalancer", "NodePort"])
def test_an_issuer_needs_a_name(kind):
    def words(**values):
        return fails(CONTROL_PLANE, {"fleetApi": {"service": {"type": kind}, **values}})

    said = words(certificates=ISSUER)
    assert "fleetApi.address" in said and "fleetApi.certificates.names" in said, "without a name, it is refused"
    assert not words(certificates={**ISSUER, "names": ["192.0.2.1"]}), "with a name it is not"
    assert not words(certificates=ISSUER, address="https://fleet.example.com"), "nor with an address"
    assert not words(), "nor without an issuer"


# Certificates that end before their users have read the new ones are refused.
TOO_SHORT = ["14m", "14m59s", "0.2h", "899s", "899000ms", "1ms"]
LIFETIMES = dict.fromkeys(TOO_SHORT, True) | dict.fromkeys(["15m", "0.25h", ".25h", "1.h", "900s", "14m60s", "1h", "2160h"], False)


@pytest.mark.parametrize(("lifetime", "short"), LIFETIMES.items())
def test_lifetime(lifetime, short):
    words = fails(CONTROL_PLANE, {"fleetApi": {"certificates": {"lifetime": lifetime}}})
    assert "fleetApi.certificates.lifetime" in words if short else not words


def test_lifetimes():
    words = fails(CONTROL_PLANE, {"fleetApi": {"address": "https://fleet.example.com", "certificates": {"lifetime": "30m", **ISSUER}}})
    assert "fleetApi.certificates.lifetime" in words, "cert-manager issues for an hour or longer"
    words = fails(CONTROL_PLANE, {"fleetApi": {"certificates": {"lifetime": "2160h", "authorityLifetime": "2000h"}}})
    assert "fleetApi.certificates.authorityLifetime" in words, "an authority that ends before its certificates is refused"


def test_a_name_leads_to_it_through_what_passes_tls_through():
    fields = {"address": "https://fleet.example.com", "ingress": {"enabled": True, "className": "nginx", "annotations": {"a": "b"}}}
    fields["tlsRoute"] = {"enabled": True, "parentRefs": [{"name": "edge"}]}
    assert not of_kind(bundled(), "Ingress", "TLSRoute"), "off by default"
    objects = bundled(**fields)
    ingress, route = named(objects, "Ingress", "muster-fleet-api"), named(objects, "TLSRoute", "muster-fleet-api")
    rule = ingress["spec"]["rules"][0]
    backend = rule["http"]["paths"][0]["backend"]["service"]
    assert rule["host"] == ingress["spec"]["tls"][0]["hosts"][0] == route["spec"]["hostnames"][0] == "fleet.example.com"
    assert ingress["spec"]["ingressClassName"] == "nginx" and ingress["metadata"]["annotations"] == {"a": "b"}
    service = named(objects, "Service", "muster-fleet-api")
    assert backend == {"name": "muster-fleet-api", "port": {"name": service["spec"]["ports"][0]["name"]}}
    assert route["spec"]["rules"][0]["backendRefs"] == [{"name": "muster-fleet-api", "port": service["spec"]["ports"][0]["port"]}]
    assert route["apiVersion"] == "gateway.networking.k8s.io/v1alpha2"
    for address in ("", "https://10.0.0.1:6443", "https://[2001:db8::1]"):
        said = fails(CONTROL_PLANE, {"fleetApi": {**fields, "address": address}})
        assert "set fleetApi.address=https://NAME" in said, f"{address}: {said}"
    assert "parentRefs" in fails(CONTROL_PLANE, {"fleetApi": {**fields, "tlsRoute": {"enabled": True}}})
