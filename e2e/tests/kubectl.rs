//! A client that nobody here wrote: kubectl does with an embedded fleet API, as that of the sandbox
//! is, what people do by hand.

use std::path::Path;
use std::process::Stdio;

use muster_e2e::harness::test_bed::TestBed;
use tokio::process::Command;

const FILES: [(&str, &str); 4] = [
    (
        "cluster.yaml",
        "
apiVersion: cluster.karmada.io/v1alpha1
kind: Cluster
metadata: {name: m1}
spec: {syncMode: Pull}
",
    ),
    (
        "unknown.yaml",
        "
apiVersion: example.com/v1
kind: Nonesuch
metadata: {name: a}
",
    ),
    (
        "web.yaml",
        "
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
",
    ),
    (
        "node.yaml",
        "
apiVersion: v1
kind: Node
metadata: {name: worker}
",
    ),
];

/// Arguments of kubectl, and a part of what it says; of its complaint where it is to fail.
const WALK: &[(&str, Result<&str, &str>)] = &[
    (
        "create -f cluster.yaml",
        Ok("cluster.karmada.io/m1 created"),
    ),
    ("get clusters", Ok("m1")),
    ("get rb -A -o wide", Ok("")),
    ("describe cluster m1", Ok("Spec:")),
    ("api-resources --api-group=apps", Ok("deployments")),
    ("create namespace walk", Ok("created")),
    // Objects that kubectl makes by itself are sent in protobuf.
    ("create configmap a --from-literal=k=v", Ok("created")),
    ("create configmap a", Err("already exists")),
    ("create configmap b --dry-run=server", Ok("created")),
    ("get configmap b", Err("NotFound")),
    ("get configmap a -o yaml", Ok("k: v")),
    ("label configmap a x=1", Ok("labeled")),
    ("get configmaps -l x=1", Ok("NAME")),
    ("get configmaps --field-selector metadata.name=a", Ok("AGE")),
    ("describe configmap a", Ok("x=1")),
    ("apply -f unknown.yaml", Err("no matches for kind")),
    ("apply -f web.yaml", Ok("deployment.apps/web created")),
    ("apply -f web.yaml", Ok("unchanged")),
    ("diff -f changed.yaml", Err("+      - image: i:2")),
    ("apply -f changed.yaml", Ok("configured")),
    ("apply -f wrong.yaml", Err("unknown field \"spec.colour\"")),
    (
        "apply --server-side -f web.yaml --field-manager=other",
        Err("conflict"),
    ),
    (
        "apply --server-side -f web.yaml --force-conflicts",
        Ok("serverside-applied"),
    ),
    ("set image deployment/web c=i:3", Ok("image updated")),
    ("scale deployment web --replicas=3", Ok("scaled")),
    ("rollout restart deployment/web", Ok("restarted")),
    ("get deployment web", Ok("READY")),
    (
        r#"patch configmap a --type=merge -p {"data":{"k":"w"}}"#,
        Ok("patched"),
    ),
    (
        "wait configmap/a --for=jsonpath={.data.k}=w --timeout=20s",
        Ok("condition met"),
    ),
    ("create -f node.yaml", Ok("created")),
    ("cordon worker", Ok("cordoned")),
    ("taint nodes worker k=v:NoSchedule", Ok("tainted")),
    ("auth can-i create pods --as=nobody", Err("no")),
    ("create serviceaccount robot", Ok("created")),
    ("create token robot", Ok("ey")),
    ("delete deployment web --cascade=foreground", Ok("deleted")),
    ("delete namespace walk --timeout=60s", Ok("deleted")),
    ("get namespace walk", Err("NotFound")),
];

/// Runs kubectl with these words: whether it succeeded, and what it said and complained.
async fn run(directory: &Path, words: &str) -> std::io::Result<(bool, String)> {
    let mut command = Command::new("kubectl");
    command
        .args(words.split(' '))
        .args(["--namespace", "walk"])
        .args(["--kubeconfig", "administrator.kubeconfig"])
        .current_dir(directory)
        .env("HOME", directory)
        .env("KUBECTL_EXTERNAL_DIFF", "diff -u")
        .stdin(Stdio::null())
        .kill_on_drop(true);
    let output = command.output().await?;
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text).into_owned();
    Ok((output.status.success(), text))
}

#[tokio::test]
async fn kubectl_works() {
    let bed = TestBed::fleet("kubectl").await.unwrap();
    let directory = bed.directory();
    if run(directory, "version --client").await.is_err() {
        eprintln!("skipped: there is no kubectl here");
        return;
    }
    bed.administrator().unwrap();
    let web = FILES[2].1;
    let changed = web.replace("i:1", "i:2");
    let wrong = web.replace("replicas: 2", "replicas: 2\n  colour: blue");
    let more = [("changed.yaml", &*changed), ("wrong.yaml", &*wrong)];
    for (name, text) in FILES.into_iter().chain(more) {
        std::fs::write(directory.join(name), text).unwrap();
    }
    for &(words, expected) in WALK {
        let (fine, said) = run(directory, words).await.unwrap();
        let (Ok(part) | Err(part)) = expected;
        assert_eq!(fine, expected.is_ok(), "kubectl {words}: {said}");
        assert!(
            said.contains(part),
            "kubectl {words} does not say {part:?}: {said}"
        );
    }
}
