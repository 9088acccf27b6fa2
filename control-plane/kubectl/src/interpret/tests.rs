use std::sync::atomic::{AtomicU32, Ordering};

use clap::Parser;

use super::*;

#[derive(Debug, Parser)]
struct CommandLine {
    #[command(flatten)]
    options: Options,
}

/// A folder for files, which goes with the test.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("muster-interpret-{}-{number}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }

    fn write(&self, name: &str, text: &str) -> String {
        let path = self.0.join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).ok();
    }
}

fn run(arguments: &[&str]) -> Result<String, String> {
    let line = CommandLine::try_parse_from([&["interpret"], arguments].concat());
    let options = line.map_err(|error| error.to_string())?.options;
    carry_out(&options).map_err(|error| format!("{error:#}"))
}

const WIDGETS: &str = "
apiVersion: config.karmada.io/v1alpha1
kind: ResourceInterpreterCustomization
metadata: { name: widgets }
spec:
  target: { apiVersion: example.com/v1, kind: Widget }
  customizations:
    healthInterpretation:
      luaScript: function InterpretHealth(o) return o.status.phase == 'Running' end
    replicaResource:
      luaScript: function GetReplicas(o) return o.spec.size, { resourceRequest = { cpu = '1' } } end
    replicaRevision:
      luaScript: function ReviseReplica(o, n) o.spec.size = n return o end
    retention:
      luaScript: function Retain(d, o) d.spec.size = o.spec.size return d end
    statusReflection:
      luaScript: function ReflectStatus(o) return { phase = o.status.phase } end
    statusAggregation:
      luaScript: |
        function AggregateStatus(o, items)
          o.status = { clusters = #items }
          return o
        end
    dependencyInterpretation:
      luaScript: |
        function GetDependencies(o)
          return { { apiVersion = 'v1', kind = 'Secret', namespace = 'shop', name = 's' } }
        end
";

const WIDGET: &str = "
apiVersion: example.com/v1
kind: Widget
metadata: { name: w, namespace: shop }
spec: { size: 3 }
status: { phase: Running }
";

#[test]
fn every_operation_is_carried_out_by_the_scripts_of_the_file() {
    let folder = Folder::new();
    let (rules, widget) = (
        folder.write("rules.yaml", WIDGETS),
        folder.write("widget.yaml", WIDGET),
    );
    let desired = folder.write("desired.yaml", &WIDGET.replace("size: 3", "size: 8"));
    let items = folder.write("items.yaml", "clusterName: m1\n---\nclusterName: m2\n");
    let interpreted = |operation: &str, more: &[&str]| -> Value {
        let line = [
            "-f",
            &rules,
            "--observed",
            &widget,
            "--operation",
            operation,
        ];
        serde_saphyr::from_str(&run(&[&line[..], more].concat()).unwrap()).unwrap()
    };
    for (operation, more, expected) in [
        ("InterpretHealth", &[][..], json!({ "healthy": true })),
        ("interprethealth", &[], json!({ "healthy": true })),
        (
            "InterpretReplica",
            &[],
            json!({ "replicas": 3, "requirements": { "resourceRequest": { "cpu": "1" } } }),
        ),
        (
            "InterpretStatus",
            &[],
            json!({ "status": { "phase": "Running" } }),
        ),
        (
            "InterpretDependency",
            &[],
            json!({ "dependencies": [{ "apiVersion": "v1", "kind": "Secret", "namespace": "shop", "name": "s" }] }),
        ),
        (
            "AggregateStatus",
            &["--status-file", &items],
            json!({ "status": { "clusters": 2 } }),
        ),
    ] {
        assert_eq!(interpreted(operation, more), expected, "{operation}");
    }
    for (operation, more, size) in [
        ("ReviseReplica", ["--desired-replica", "5"], 5),
        ("Retain", ["--desired", &desired], 3),
    ] {
        let found = interpreted(operation, &more);
        assert_eq!(found["spec"]["size"], size, "{operation}");
    }
}

#[test]
fn a_check_lists_what_is_set_and_fails_for_what_is_not_valid() {
    let folder = Folder::new();
    let text = run(&["-f", &folder.write("rules.yaml", WIDGETS), "--check"]).unwrap();
    for line in [
        "TARGET: example.com/v1 Widget",
        "    InterpretHealth:      PASS",
        "    InterpretComponent:   UNSET",
    ] {
        assert!(text.lines().any(|one| one == line), "{line:?} in {text}");
    }
    let broken = WIDGETS.replace("return o.status.phase ==", "return ==");
    let file = folder.write("broken.yaml", &broken);
    let reported = run(&["-f", &file, "--check"]).unwrap_err();
    assert!(
        reported.contains("InterpretHealth:      ERROR: "),
        "{reported}"
    );
    assert!(
        reported.contains("line 1: unexpected symbol near '=='"),
        "{reported}"
    );
    assert!(reported.ends_with("1 scripts are not valid"), "{reported}");
    let twice = format!(
        "{WIDGETS}\n---\n{}",
        WIDGETS.replace("name: widgets", "name: more")
    );
    let reported = run(&["-f", &folder.write("twice.yaml", &twice), "--check"]).unwrap_err();
    assert!(reported.contains("customized by"), "{reported}");
}

#[test]
fn the_health_of_a_kind_without_a_rule_is_the_one_that_its_agent_reports() {
    let folder = Folder::new();
    let ready = |status: &str| {
        format!(
            "{{ apiVersion: example.com/v1, kind: Gadget, \
             status: {{ conditions: [{{ type: Ready, status: '{status}' }}] }} }}"
        )
    };
    let going = "{ apiVersion: v1, kind: ConfigMap, \
                 metadata: { name: c, deletionTimestamp: '2026-01-01T00:00:00Z' } }";
    for (object, expected) in [
        (ready("True"), "healthy: true"),
        (ready("False"), "healthy: false"),
        (
            "{ apiVersion: example.com/v1, kind: Gadget }".to_owned(),
            "healthy: true",
        ),
        (
            "{ apiVersion: batch/v1, kind: Job, status: {} }".to_owned(),
            "healthy: false",
        ),
        (going.to_owned(), "healthy: false"),
    ] {
        let file = folder.write("object.yaml", &object);
        let line = ["--operation", "InterpretHealth", "--observed-file", &file];
        assert_eq!(run(&line).unwrap().trim(), expected, "{object}");
    }
}

#[test]
fn what_is_missing_or_wrong_is_named() {
    let folder = Folder::new();
    let (rules, widget) = (
        folder.write("rules.yaml", WIDGETS),
        folder.write("widget.yaml", WIDGET),
    );
    let other = folder.write("other.yaml", "{ apiVersion: example.com/v1, kind: Gadget }");
    let bare = folder.write("bare.yaml", "{ apiVersion: example.com/v1, kind: Widget }");
    let health = "--operation InterpretHealth";
    for (line, expected) in [
        (health.to_owned(), "--observed-file is missing"),
        ("--check".to_owned(), "--filename"),
        (format!("-f {rules}"), "--operation"),
        (
            "--operation Guess".to_owned(),
            "is none of InterpretReplica, ",
        ),
        (
            format!("-f {rules} --operation Retain --observed {widget}"),
            "--desired-file is missing",
        ),
        (
            format!("-f {rules} {health} --observed {other}"),
            "no script of the customizations is for InterpretHealth of example.com/v1 Gadget",
        ),
        (
            format!("--operation InterpretReplica --observed {other}"),
            "there is no rule for InterpretReplica of example.com/v1 Gadget",
        ),
        (
            format!("-f {rules} {health} --observed {bare}"),
            "line 1: attempt to index field 'status'",
        ),
        (
            format!("-f {widget} --check"),
            "is no ResourceInterpreterCustomization",
        ),
        ("-f /nowhere --check".to_owned(), "read /nowhere"),
    ] {
        let line: Vec<&str> = line.split(' ').collect();
        let reported = run(&line).unwrap_err();
        assert!(reported.contains(expected), "{line:?}: {reported}");
    }
}

const WEBHOOKS: &str = "
apiVersion: config.karmada.io/v1alpha1
kind: ResourceInterpreterWebhookConfiguration
metadata: { name: hooks }
webhooks:
  - name: gadgets.example.com
    clientConfig: { url: ADDRESS }
    interpreterContextVersions: [v1alpha1]
    rules:
      - { operations: ['*'], apiGroups: [example.com], apiVersions: [v1], kinds: [Widget, Gadget] }
";

#[test]
fn where_a_webhook_would_answer_is_reported_and_a_script_goes_before_it() {
    muster_shared::tls::install_provider();
    let folder = Folder::new();
    let good = WEBHOOKS.replace("ADDRESS", "'https://hook.example.com'");
    let good = folder.write("good.yaml", &good);
    let bad = WEBHOOKS.replace("ADDRESS", "'http://hook.example.com'");
    let bad = folder.write("bad.yaml", &bad);
    let rules = folder.write("rules.yaml", WIDGETS);
    let gadget = folder.write(
        "gadget.yaml",
        "{ apiVersion: example.com/v1, kind: Gadget, metadata: { name: g } }",
    );
    let widget = folder.write(
        "widget.yaml",
        "{ apiVersion: example.com/v1, kind: Widget, status: { phase: Running } }",
    );
    let health = ["--operation", "InterpretHealth", "--observed"];
    let both = ["-f", &good, "-f", &rules];
    let reported = run(&[&both[..], &health, &[&gadget]].concat()).unwrap_err();
    assert_eq!(
        reported,
        "webhook \"gadgets.example.com\" of ResourceInterpreterWebhookConfiguration \"hooks\" answers \
         InterpretHealth of example.com/v1 Gadget, and no webhook is asked from here"
    );
    let found = run(&[&both[..], &health, &[&widget]].concat()).unwrap();
    assert_eq!(found.trim(), "healthy: true");
    let reported = run(&["-f", &bad, "--check"]).unwrap_err();
    assert!(
        reported.contains("does not begin with https://"),
        "{reported}"
    );
}
