//! A walk through what people do with kubectl.

use std::path::{Path, PathBuf};

use tokio::process::Command;

use crate::clients::run;

/// kubectl for one server; files that it reads go to a directory of their own.
pub struct Kubectl {
    server: &'static str,
    kubeconfig: PathBuf,
    directory: PathBuf,
}

/// A deployment as people write it.
const DEPLOYMENT: &str = "
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, labels: {app: web}}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
      - {name: c, image: 'i:1', ports: [{containerPort: 80}]}
";

impl Kubectl {
    /// Makes a `kubectl` for the server of a kubeconfig.
    pub fn new(server: &'static str, kubeconfig: &Path) -> Self {
        let directory = kubeconfig.with_extension("files");
        std::fs::create_dir_all(&directory).unwrap();
        Self {
            server,
            kubeconfig: kubeconfig.to_owned(),
            directory,
        }
    }

    fn command(&self, line: &[&str]) -> Command {
        let mut command = Command::new("kubectl");
        command
            .arg("--kubeconfig")
            .arg(&self.kubeconfig)
            .args(["--namespace", "walk"])
            .args(line)
            .env("HOME", &self.directory)
            .env("KUBECTL_EXTERNAL_DIFF", "diff -u");
        command
    }

    /// Runs a command that must succeed and say this.
    async fn says(&self, line: &[&str], wanted: &[&str]) -> String {
        let (fine, said, complaint) = run(&mut self.command(line)).await.unwrap();
        assert!(fine, "{}: kubectl {line:?}: {complaint}{said}", self.server);
        for wanted in wanted {
            assert!(
                said.contains(wanted),
                "{}: kubectl {line:?} does not say {wanted:?}:\n{said}{complaint}",
                self.server
            );
        }
        said
    }

    /// Runs a command that must fail and complain like this.
    async fn fails(&self, line: &[&str], wanted: &str) {
        let (fine, said, complaint) = run(&mut self.command(line)).await.unwrap();
        assert!(!fine, "{}: kubectl {line:?} succeeds: {said}", self.server);
        assert!(
            format!("{said}{complaint}").contains(wanted),
            "{}: kubectl {line:?} does not say {wanted:?}:\n{said}{complaint}",
            self.server
        );
    }

    fn file(&self, name: &str, text: &str) -> String {
        let path = self.directory.join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    }

    /// Runs the whole walk.
    pub async fn walk(self) {
        self.says(&["create", "namespace", "walk"], &["created"])
            .await;
        self.objects().await;
        self.applies().await;
        self.patches().await;
        self.workloads().await;
        self.definitions().await;
        self.permissions().await;
        self.deletions().await;
        let _ = std::fs::remove_dir_all(&self.directory);
    }

    #[rustfmt::skip] // a command a line
    async fn objects(&self) {
        let unknown = self.file("unknown.yaml", "apiVersion: example.com/v1\nkind: Nonesuch\nmetadata:\n  name: a\n");
        self.fails(&["apply", "-f", &unknown], "no matches for kind").await;
        self.says(&["create", "configmap", "a", "--from-literal=k=v"], &["configmap/a created"]).await;
        self.fails(&["create", "configmap", "a"], "already exists").await;
        self.says(&["create", "secret", "generic", "s", "--from-literal=p=w"], &["created"]).await;
        self.says(&["create", "service", "clusterip", "s", "--tcp=80:8080"], &["created"]).await;
        self.says(&["create", "serviceaccount", "robot"], &["created"]).await;
        self.says(&["create", "configmap", "dry", "--dry-run=server", "-o", "name"], &["configmap/dry"]).await;
        self.fails(&["get", "configmap", "dry"], "NotFound").await;
        self.says(&["get", "configmap", "a"], &["NAME", "AGE"]).await;
        self.says(&["get", "configmap", "a", "-o", "yaml"], &["apiVersion: v1", "k: v", "uid:"]).await;
        self.says(&["get", "configmap", "a", "-o", "custom-columns=N:.metadata.name,K:.data.k"], &["N", "a", "v"]).await;
        self.says(&["get", "configmap", "a", "-o", "jsonpath={.data.k}"], &["v"]).await;
        self.says(&["get", "configmaps,secrets", "--show-labels"], &["configmap/a", "secret/s"]).await;
        self.says(&["get", "--raw", "/readyz"], &["ok"]).await;
        self.says(&["describe", "configmap", "a"], &["Name:         a", "k:", "v"]).await;
        self.says(&["describe", "service", "s"], &["Port:", "80-8080  80/TCP"]).await;
        self.says(&["label", "configmap", "a", "x=1"], &["labeled"]).await;
        self.fails(&["label", "configmap", "a", "x=2"], "already has a value").await;
        self.says(&["label", "configmap", "a", "x=2", "--overwrite"], &["labeled"]).await;
        self.says(&["annotate", "configmap", "a", "note=here"], &["annotated"]).await;
        self.says(&["get", "configmaps", "-l", "x=2", "-o", "name"], &["configmap/a"]).await;
        self.says(&["get", "configmaps", "--field-selector", "metadata.name=a", "-o", "name"], &["configmap/a"]).await;
        self.says(&["api-resources"], &["deployments", "apps/v1", "customresourcedefinitions"]).await;
        self.says(&["api-resources", "--api-group=batch", "-o", "name"], &["jobs.batch", "cronjobs.batch"]).await;
        self.says(&["api-versions"], &["apps/v1"]).await;
        self.says(&["explain", "deployment.spec.strategy"], &["FIELDS:", "rollingUpdate"]).await;
        self.says(&["explain", "pods.spec.containers", "--recursive"], &["imagePullPolicy"]).await;
        self.says(&["version"], &["Server Version"]).await;
    }

    #[rustfmt::skip] // a command a line
    async fn applies(&self) {
        let file = self.file("web.yaml", DEPLOYMENT);
        let changed = self.file("changed.yaml", &DEPLOYMENT.replace("i:1", "i:2"));
        self.says(&["apply", "-f", &file], &["deployment.apps/web created"]).await;
        self.says(&["apply", "-f", &file], &["unchanged"]).await;
        self.fails(&["diff", "-f", &changed], "+      - image: i:2").await;
        self.says(&["diff", "-f", &file], &[]).await;
        self.says(&["apply", "-f", &changed], &["configured"]).await;
        self.says(&["apply", "view-last-applied", "deployment/web"], &["i:2"]).await;
        self.fails(&["apply", "--server-side", "--field-manager=other", "-f", &file], "conflict with \"kubectl-client-side-apply\"").await;
        self.says(&["apply", "--server-side", "--field-manager=other", "--force-conflicts", "-f", &file], &["serverside-applied"]).await;
        self.says(&["apply", "--server-side", "-f", &changed, "--force-conflicts"], &["serverside-applied"]).await;
        self.says(&["get", "deployment", "web", "-o", "yaml", "--show-managed-fields"], &["manager: other", "operation: Apply"]).await;
        self.says(&["diff", "--server-side", "-f", &changed], &[]).await;
        let wrong = self.file(
            "wrong.yaml",
            &DEPLOYMENT.replace("replicas: 2", "replicas: 2\n  colour: blue"),
        );
        self.fails(&["apply", "-f", &wrong], "unknown field \"spec.colour\"").await;
        let two = self.file(
            "two.yaml",
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: one, labels: {set: x}}\n---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: two, labels: {set: x}}\n",
        );
        self.says(&["apply", "-f", &two], &["configmap/one created", "configmap/two created"]).await;
        let one = self.file(
            "one.yaml",
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: one, labels: {set: x}}\n",
        );
        self.says(&["apply", "--prune", "-l", "set=x", "--prune-allowlist=core/v1/ConfigMap", "-f", &one], &["configmap/two pruned"]).await;
        let replaced = self.file(
            "replaced.yaml",
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: one}\ndata: {k: w}\n",
        );
        self.says(&["replace", "-f", &replaced], &["replaced"]).await;
        self.says(&["replace", "--force", "-f", &replaced], &["replaced"]).await;
    }

    #[rustfmt::skip] // a command a line
    async fn patches(&self) {
        let strategic =
            r#"{"spec":{"template":{"spec":{"containers":[{"name":"side","image":"s:1"}]}}}}"#;
        self.says(&["patch", "deployment", "web", "-p", strategic], &["patched"]).await;
        self.says(&["get", "deployment", "web", "-o", "jsonpath={.spec.template.spec.containers[*].name}"], &["side", "c"]).await;
        self.says(&["patch", "configmap", "a", "--type=merge", "-p", r#"{"data":{"k":null,"l":"w"}}"#], &["patched"]).await;
        self.says(&["patch", "configmap", "a", "--type=merge", "-p", r#"{"data":{"l":"w"}}"#], &["no change"]).await;
        self.says(&["patch", "configmap", "a", "--type=json", "-p", r#"[{"op":"replace","path":"/data/l","value":"x"}]"#], &["patched"]).await;
        self.fails(&["patch", "configmap", "a", "--type=json", "-p", r#"[{"op":"test","path":"/data/l","value":"y"}]"#], "the server rejected our request").await;
        self.says(&["patch", "deployment", "web", "--subresource=status", "--type=merge", "-p", r#"{"status":{"replicas":1}}"#], &["patched"]).await;
        let editor = self.file("editor", "#!/bin/sh\nsed -i 's/l: x/l: edited/' \"$1\"\n");
        let mut edit = self.command(&["edit", "configmap", "a"]);
        edit.env("KUBE_EDITOR", format!("sh {editor}"));
        let (fine, said, complaint) = run(&mut edit).await.unwrap();
        assert!(
            fine && said.contains("edited"),
            "{}: {said}{complaint}",
            self.server
        );
        self.says(&["get", "configmap", "a", "-o", "jsonpath={.data.l}"], &["edited"]).await;
        self.says(&["set", "image", "deployment/web", "c=i:3"], &["image updated"]).await;
        self.says(&["set", "env", "deployment/web", "A=b"], &["env updated"]).await;
    }

    #[rustfmt::skip] // a command a line
    async fn workloads(&self) {
        self.says(&["scale", "deployment", "web", "--replicas=3"], &["scaled"]).await;
        self.says(&["scale", "deployment", "web", "--current-replicas=3", "--replicas=1"], &["scaled"]).await;
        self.says(&["autoscale", "deployment", "web", "--max=4"], &["autoscaled"]).await;
        // Nobody rolls anything out here: the status says what a controller would.
        let generation = self
            .says(
                &[
                    "get",
                    "deployment",
                    "web",
                    "-o",
                    "jsonpath={.metadata.generation}",
                ],
                &[],
            )
            .await;
        let status = format!(
            r#"{{"status":{{"observedGeneration":{generation},"replicas":1,"updatedReplicas":1,"readyReplicas":1,"availableReplicas":1,"conditions":[{{"type":"Available","status":"True"}}]}}}}"#
        );
        self.says(&["patch", "deployment", "web", "--subresource=status", "--type=merge", "-p", &status], &["patched"]).await;
        self.says(&["rollout", "status", "deployment/web"], &["successfully rolled out"]).await;
        self.says(&["wait", "deployment/web", "--for=condition=Available", "--timeout=20s"], &["condition met"]).await;
        self.says(&["rollout", "restart", "deployment/web"], &["restarted"]).await;
        self.says(&["rollout", "pause", "deployment/web"], &["paused"]).await;
        self.says(&["wait", "configmap/a", "--for=jsonpath={.data.l}=edited", "--timeout=20s"], &["condition met"]).await;
        self.fails(&["wait", "deployment/web", "--for=condition=Nonsense", "--timeout=1s"], "timed out").await;
        self.says(&["get", "deployment", "web"], &["READY", "AVAILABLE"]).await;
        self.says(&["describe", "deployment", "web"], &["Replicas:", "Pod Template:"]).await;
        self.says(&["run", "p", "--image=i:1"], &["pod/p created"]).await;
        self.says(&["get", "pods"], &["p", "Pending"]).await;
        self.says(&["describe", "pod", "p"], &["Status:", "Pending", "Containers:"]).await;
        self.says(&["create", "job", "j", "--image=i:1"], &["created"]).await;
        self.says(&["create", "cronjob", "c", "--image=i:1", "--schedule=*/5 * * * *"], &["created"]).await;
        self.says(&["expose", "deployment", "web", "--port=80", "--name=exposed"], &["exposed"]).await;
        self.says(&["get", "all"], &["pod/p", "deployment.apps/web", "job.batch/j"]).await;
        self.says(&["get", "events"], &[]).await;
        let node = self.file(
            "node.yaml",
            "apiVersion: v1\nkind: Node\nmetadata: {name: worker}\n",
        );
        self.says(&["create", "-f", &node], &["created"]).await;
        self.says(&["cordon", "worker"], &["cordoned"]).await;
        self.says(&["taint", "nodes", "worker", "k=v:NoSchedule"], &["tainted"]).await;
        self.says(&["taint", "nodes", "worker", "k-"], &["untainted"]).await;
        self.says(&["get", "nodes"], &["worker"]).await;
        self.says(&["delete", "node", "worker"], &["deleted"]).await;
        // A watch prints what is, then what becomes; it ends with its pipe.
        let mut watch = self.command(&[
            "get",
            "configmap",
            "a",
            "-w",
            "--output-watch-events",
            "--request-timeout=3s",
        ]);
        let (said, _) = tokio::join!(run(&mut watch), async {
            tokio::time::sleep(std::time::Duration::from_millis(1500)).await;
            self.says(&["annotate", "configmap", "a", "seen=1"], &[]).await
        });
        let (_, said, complaint) = said.unwrap();
        assert!(
            said.contains("ADDED") && said.contains("MODIFIED"),
            "{}: {said}{complaint}",
            self.server
        );
    }

    #[rustfmt::skip] // a command a line
    async fn definitions(&self) {
        let crd = self.file(
            "crd.yaml",
            "
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: gears.walk.example.com}
spec:
  group: walk.example.com
  scope: Namespaced
  names: {plural: gears, kind: Gear, shortNames: [gr], categories: [all]}
  versions:
  - name: v1
    served: true
    storage: true
    additionalPrinterColumns: [{name: Teeth, type: integer, jsonPath: .spec.teeth}]
    subresources: {status: {}}
    schema:
      openAPIV3Schema:
        type: object
        description: A wheel with teeth.
        properties:
          spec: {type: object, properties: {teeth: {type: integer, minimum: 1, description: How many.}}}
          status: {type: object, properties: {teeth: {type: integer}}}
",
        );
        self.says(&["apply", "-f", &crd], &["created"]).await;
        self.says(&["wait", "crd/gears.walk.example.com", "--for=condition=Established", "--timeout=20s"], &["condition met"]).await;
        let gear = self.file(
            "gear.yaml",
            "apiVersion: walk.example.com/v1\nkind: Gear\nmetadata: {name: g}\nspec: {teeth: 8}\n",
        );
        for attempt in 0.. {
            let mut apply = self.command(&["apply", "-f", &gear]);
            let (fine, said, complaint) = run(&mut apply).await.unwrap();
            if fine {
                break;
            }
            assert!(attempt < 50, "{}: {said}{complaint}", self.server);
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
        self.says(&["get", "gr"], &["TEETH", "8"]).await;
        self.fails(&["patch", "gear", "g", "--type=merge", "-p", r#"{"spec":{"teeth":0}}"#], "should be greater than or equal to 1").await;
        self.says(&["apply", "--server-side", "--force-conflicts", "-f", &gear], &["serverside-applied"]).await;
        self.says(&["describe", "gear", "g"], &["Teeth:", "8"]).await;
        for attempt in 0.. {
            // The description is published a moment later.
            let mut explain = self.command(&["explain", "gear.spec"]);
            let (fine, said, complaint) = run(&mut explain).await.unwrap();
            if fine && said.contains("How many.") {
                break;
            }
            assert!(attempt < 50, "{}: {said}{complaint}", self.server);
            tokio::time::sleep(std::time::Duration::from_millis(200)).await;
        }
        self.says(&["delete", "crd", "gears.walk.example.com"], &["deleted"]).await;
    }

    #[rustfmt::skip] // a command a line
    async fn permissions(&self) {
        self.says(&["auth", "can-i", "create", "pods"], &["yes"]).await;
        self.fails(&["auth", "can-i", "create", "pods", "--as=nobody"], "no").await;
        self.says(&["auth", "whoami"], &["Username"]).await;
        self.says(&["create", "role", "reader", "--verb=get,list", "--resource=configmaps"], &["created"]).await;
        self.says(&["create", "rolebinding", "reads", "--role=reader", "--serviceaccount=walk:robot"], &["created"]).await;
        for attempt in 0.. {
            // Authorizers learn of bindings a moment later.
            let mut get =
                self.command(&["get", "configmaps", "--as=system:serviceaccount:walk:robot"]);
            if run(&mut get).await.unwrap().0 {
                break;
            }
            assert!(attempt < 50, "{}: the binding has no effect", self.server);
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
        self.fails(&["get", "secrets", "--as=system:serviceaccount:walk:robot"], "Forbidden").await;
        let token = self.says(&["create", "token", "robot"], &["ey"]).await;
        let mut get = self.command(&["get", "configmaps", "--token", token.trim()]);
        let (fine, said, complaint) = run(&mut get).await.unwrap();
        assert!(fine, "{}: {said}{complaint}", self.server);
    }

    #[rustfmt::skip] // a command a line
    async fn deletions(&self) {
        self.says(&["delete", "configmap", "a"], &["deleted"]).await;
        self.fails(&["delete", "configmap", "a"], "NotFound").await;
        self.says(&["delete", "configmap", "a", "--ignore-not-found"], &[]).await;
        self.says(&["delete", "deployment", "web", "--cascade=orphan"], &["deleted"]).await;
        self.says(&["delete", "job", "j", "--cascade=foreground"], &["deleted"]).await;
        self.says(&["delete", "cronjob", "c", "--cascade=background"], &["deleted"]).await;
        self.says(&["delete", "pod", "p", "--now"], &["deleted"]).await;
        self.says(&["delete", "services", "--all"], &["deleted"]).await;
        self.says(&["delete", "secret", "s", "--dry-run=server"], &["server dry run"]).await;
        self.says(&["delete", "namespace", "walk", "--timeout=60s"], &["deleted"]).await;
        self.fails(&["get", "namespace", "walk"], "NotFound").await;
    }
}
