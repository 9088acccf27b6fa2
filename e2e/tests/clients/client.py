"""What the official Python client does with a Kubernetes API: run with the path of an administrator's kubeconfig."""

import datetime
import sys
import threading

from kubernetes import client, config, dynamic, watch
from kubernetes.client.rest import ApiException

config.load_kube_config(sys.argv[1])
core, apps = client.CoreV1Api(), client.AppsV1Api()
namespace = "python"


def refused(status, call, *arguments, **options):
    """The call is refused with this status."""
    try:
        call(*arguments, **options)
    except ApiException as error:
        assert error.status == status, (error.status, error.body)
        return error
    raise AssertionError(f"{call} was not refused")


core.create_namespace(client.V1Namespace(metadata=client.V1ObjectMeta(name=namespace)))

# Create, read, update, list, delete.
made = core.create_namespaced_config_map(
    namespace,
    client.V1ConfigMap(metadata=client.V1ObjectMeta(name="a", labels={"x": "1"}), data={"k": "v"}),
)
assert made.metadata.uid and isinstance(made.metadata.creation_timestamp, datetime.datetime)
refused(409, core.create_namespaced_config_map, namespace, client.V1ConfigMap(metadata=client.V1ObjectMeta(name="a")))
read = core.read_namespaced_config_map("a", namespace)
read.data["k"] = "w"
replaced = core.replace_namespaced_config_map("a", namespace, read)
assert replaced.data == {"k": "w"}
refused(409, core.replace_namespaced_config_map, "a", namespace, read)
refused(404, core.read_namespaced_config_map, "nosuch", namespace)
names = [item.metadata.name for item in core.list_namespaced_config_map(namespace, label_selector="x=1").items]
assert names == ["a"], names
page = core.list_namespaced_config_map(namespace, limit=1)
assert page.metadata._continue and len(page.items) == 1
rest = core.list_namespaced_config_map(namespace, limit=10, _continue=page.metadata._continue)
assert rest.items

# A watch sees what others do, from the version of a list on, and ends.
version = core.list_namespaced_config_map(namespace).metadata.resource_version
seen = []


def follow():
    stream = watch.Watch()
    for event in stream.stream(
        core.list_namespaced_config_map, namespace, resource_version=version, timeout_seconds=30
    ):
        seen.append((event["type"], event["object"].metadata.name))
        if event["type"] == "DELETED":
            stream.stop()


follower = threading.Thread(target=follow)
follower.start()
core.create_namespaced_config_map(namespace, client.V1ConfigMap(metadata=client.V1ObjectMeta(name="b")))
core.patch_namespaced_config_map("b", namespace, {"data": {"k": "v"}})
core.delete_namespaced_config_map("b", namespace)
follower.join(timeout=30)
assert seen == [("ADDED", "b"), ("MODIFIED", "b"), ("DELETED", "b")], seen

# Typed workloads: defaults come back, quantities and times survive, scale and status have doors of their own.
deployment = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "web"},
    "spec": {
        "selector": {"matchLabels": {"app": "web"}},
        "template": {
            "metadata": {"labels": {"app": "web"}},
            "spec": {"containers": [{"name": "c", "image": "i:1", "resources": {"requests": {"cpu": "0.5"}}}]},
        },
    },
}
made = apps.create_namespaced_deployment(namespace, deployment)
assert made.spec.replicas == 1 and made.spec.strategy.type == "RollingUpdate"
assert made.spec.template.spec.containers[0].resources.requests == {"cpu": "500m"}
scale = apps.read_namespaced_deployment_scale("web", namespace)
scale.spec.replicas = 3
apps.replace_namespaced_deployment_scale("web", namespace, scale)
status = apps.patch_namespaced_deployment_status("web", namespace, {"status": {"replicas": 3, "readyReplicas": 2}})
assert status.status.ready_replicas == 2 and status.spec.replicas == 3
invalid = refused(422, apps.patch_namespaced_deployment, "web", namespace, {"spec": {"replicas": -1}})
assert "must be greater than or equal to 0" in invalid.body

# The dynamic client finds kinds by discovery, also those that a CRD has just defined.
api = dynamic.DynamicClient(client.ApiClient())
definitions = api.resources.get(api_version="apiextensions.k8s.io/v1", kind="CustomResourceDefinition")
definitions.create(
    body={
        "metadata": {"name": "gears.python.example.com"},
        "spec": {
            "group": "python.example.com",
            "scope": "Namespaced",
            "names": {"plural": "gears", "kind": "Gear"},
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "schema": {
                        "openAPIV3Schema": {
                            "type": "object",
                            "properties": {
                                "spec": {"type": "object", "properties": {"teeth": {"type": "integer", "default": 8}}},
                                "status": {"type": "object", "properties": {"turns": {"type": "integer"}}},
                            },
                        }
                    },
                }
            ],
        },
    }
)
for event in definitions.watch(name="gears.python.example.com", timeout=30):
    conditions = (event["raw_object"].get("status") or {}).get("conditions") or []
    if any(c["type"] == "Established" and c["status"] == "True" for c in conditions):
        break
deadline = datetime.datetime.now() + datetime.timedelta(seconds=30)
while True:
    try:
        api.resources.invalidate_cache()
        gears = api.resources.get(api_version="python.example.com/v1", kind="Gear")
        gear = {"apiVersion": "python.example.com/v1", "kind": "Gear", "metadata": {"name": "g"}, "spec": {}}
        made = gears.create(body=gear, namespace=namespace)
        break
    except (dynamic.exceptions.ResourceNotFoundError, dynamic.exceptions.NotFoundError):
        assert datetime.datetime.now() < deadline, "the kind is not served"
assert made.spec.teeth == 8

# Every form of patch.
patched = gears.patch(
    name="g", namespace=namespace, body={"spec": {"teeth": 9}}, content_type="application/merge-patch+json"
)
assert patched.spec.teeth == 9
patched = gears.patch(
    name="g",
    namespace=namespace,
    body=[{"op": "replace", "path": "/spec/teeth", "value": 10}],
    content_type="application/json-patch+json",
)
assert patched.spec.teeth == 10
deployments = api.resources.get(api_version="apps/v1", kind="Deployment")
patched = deployments.patch(
    name="web",
    namespace=namespace,
    body={"spec": {"template": {"spec": {"containers": [{"name": "side", "image": "s:1"}]}}}},
    content_type="application/strategic-merge-patch+json",
)
assert sorted(c.name for c in patched.spec.template.spec.containers) == ["c", "side"]
gear["spec"] = {"teeth": 11}
try:
    gears.server_side_apply(name="g", namespace=namespace, body=gear, field_manager="python")
    raise AssertionError("a conflict was not told")
except dynamic.exceptions.ConflictError as error:
    assert "conflict with" in str(error.body), error.body
applied = gears.server_side_apply(
    name="g", namespace=namespace, body=gear, field_manager="python", force_conflicts=True
)
assert applied.spec.teeth == 11
gears.status.patch(
    name="g", namespace=namespace, body={"status": {"turns": 4}}, content_type="application/merge-patch+json"
)
assert gears.get(name="g", namespace=namespace).status.turns == 4

# Collections, events, logs of nobody, and the end.
core.delete_collection_namespaced_config_map(namespace, label_selector="x=1")
refused(404, core.read_namespaced_config_map, "a", namespace)
assert client.VersionApi().get_code().major == "1"
definitions.delete(name="gears.python.example.com")
core.delete_namespace(namespace)
print("fine")
