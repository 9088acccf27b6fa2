"""The page of an operations room: who may see it, what it is served with, and what its account reads."""

import pytest
from charting import CONTROL_PLANE, arguments, container, external, fails, named, of_kind, rendered, refused, rules, secrets_of, sound

NAME = "muster-page"
BUNDLED = {"fleetApi": {"profile": "trial"}}
SERVED = {"enabled": True, "tlsSecret": "page-tls", "kubeconfigSecret": "page"}
PROXY = {"name": "sign-in", "image": "r.example/proxy", "args": ["--pass-authorization-header"]}
BEHIND = {"enabled": True, "kubeconfigSecret": "page", "sidecars": [PROXY], "service": {"targetPort": 4180}}


def page(**values):
    return external({"page": {**SERVED, **values}})


def test_there_is_none_unless_asked_for():
    assert not [each for each in external({"access": {"create": True}}) if "page" in each["metadata"]["name"]]
    assert not [each for each in arguments(rendered(CONTROL_PLANE, BUNDLED), "muster-fleet-certificates") if "page" in each], "and no account"


def test_it_is_served_with_a_certificate():
    objects = page()
    sound(CONTROL_PLANE, {"fleetApi": {"mode": "external"}, "page": SERVED}, objects)
    deployment, main = container(objects, NAME)
    assert "--serve=0.0.0.0:8443" in main["args"] and "--tls-cert-file=/etc/muster/tls/tls.crt" in main["args"]
    assert secrets_of(deployment) == [("page", None), ("page-tls", None)]
    assert main["securityContext"]["readOnlyRootFilesystem"] and "memory" in main["resources"]["limits"]
    assert main["readinessProbe"]["httpGet"]["scheme"] == "HTTPS"
    assert named(objects, "Service", NAME)["spec"]["ports"] == [{"name": "https", "port": 443, "targetPort": "page"}]


def test_a_proxy_beside_it_is_the_only_way_to_it():
    objects = external({"page": BEHIND})
    deployment, main = container(objects, NAME)
    assert "--serve=127.0.0.1:8090" in main["args"] and "ports" not in main
    assert deployment["spec"]["template"]["spec"]["containers"][1] == PROXY
    assert named(objects, "Service", NAME)["spec"]["ports"][0]["targetPort"] == 4180


def test_it_asks_who_signs_in_and_may_nothing_else_here():
    objects = page()
    bindings = [each for each in of_kind(objects, "ClusterRoleBinding", "RoleBinding") if any(subject["name"] == NAME for subject in each["subjects"])]
    assert [each["roleRef"]["name"] for each in bindings] == ["system:auth-delegator"]
    viewer = rules(objects, "ClusterRole", f"muster-system-{NAME}-viewer")
    assert viewer == [{"nonResourceURLs": ["/muster.io/page"], "verbs": ["get"]}]
    assert not [each for each in of_kind(objects, "ClusterRoleBinding") if each["roleRef"]["name"].endswith("-viewer")], "nobody sees it unless somebody is let in"


def test_its_account_reads():
    objects = external({"page": SERVED, "access": {"create": True}})
    mine = [each["roleRef"]["name"] for each in of_kind(objects, "ClusterRoleBinding") if each["subjects"][0]["name"] == "system:muster:page"]
    assert sorted(mine) == ["muster:page", "muster:view"]
    verbs = {verb for name in mine for rule in rules(objects, "ClusterRole", name) for verb in rule["verbs"]}
    assert verbs == {"get", "list", "watch"}


def test_a_bundled_fleet_api_makes_its_account():
    objects = rendered(CONTROL_PLANE, {**BUNDLED, "page": {"enabled": True, "tlsSecret": "page-tls"}})
    assert "--page-account=true" in arguments(objects, "muster-fleet-certificates")
    assert secrets_of(container(objects, NAME)[0])[0] == ("muster-fleet-page", None)
    kept = rules(objects, "Role", "muster-fleet-certificates")[1]
    assert kept["verbs"] == ["get", "update"] and "muster-fleet-page" in kept["resourceNames"], "in a Secret that may be read: without the right nothing is renewed any more"
    assert "muster-fleet-page" not in rules(rendered(CONTROL_PLANE, BUNDLED), "Role", "muster-fleet-certificates")[1]["resourceNames"]


@pytest.mark.parametrize("values", [SERVED, BEHIND], ids=["served", "behind a proxy"])
def test_a_network_policy_lets_people_in(values):
    policy = named(external({"page": values, "networkPolicy": {"enabled": True}}), "NetworkPolicy", NAME)
    assert policy["spec"]["ingress"] == [{"ports": [{"port": values.get("service", {}).get("targetPort", "page"), "protocol": "TCP"}]}]


FAULTS = [
    ({"enabled": True}, "page.tlsSecret"),
    ({"enabled": True, "tlsSecret": "x"}, "page.kubeconfigSecret"),
    ({**BEHIND, "service": {}}, "page.service.targetPort"),
]


@pytest.mark.parametrize(("values", "words"), FAULTS, ids=str)
def test_what_is_missing_is_named(values, words):
    assert words in fails(CONTROL_PLANE, {"fleetApi": {"mode": "external"}, "page": values})


def test_a_wrong_name_is_refused():
    assert "tlsSecrt" in refused(CONTROL_PLANE, {"page": {"tlsSecrt": "x"}})
