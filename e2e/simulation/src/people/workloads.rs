//! Random templates: workloads of several kinds and what they refer to.

use serde_json::{Value, json};

use super::Dice;
use crate::feature::NEED;

/// A template of a script, with what steps need to know of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Template {
    /// The object.
    pub object: Value,
    /// What it refers to: ConfigMaps and Secrets, which are templates as well.
    pub needs: Vec<Value>,
    /// Number of its edits so far.
    pub edits: u64,
}

/// Draws a template of a name. One in two workloads refers to a ConfigMap.
pub fn draw(dice: &mut impl Dice, namespace: &str, name: &str) -> Template {
    let (kind, has_replicas) = match dice.share(&[50, 15, 8, 7, 12, 8]) {
        0 => ("Deployment", true),
        1 => ("StatefulSet", true),
        2 => ("Job", false),
        3 => ("DaemonSet", false),
        4 => ("ConfigMap", false),
        _ => ("Widget", false),
    };
    let metadata = json!({"namespace": namespace, "name": name, "labels": {"app": name}});
    if kind == "ConfigMap" {
        let object = json!({"apiVersion": "v1", "kind": kind, "metadata": metadata,
            "data": {"edit": "0"}});
        return Template::new(object, Vec::new());
    }
    if kind == "Widget" {
        let object = json!({"apiVersion": "example.com/v1", "kind": kind, "metadata": metadata,
            "spec": {"color": "red"}});
        return Template::new(object, Vec::new());
    }
    let needs = if dice.percent(50) {
        vec![json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"namespace": namespace, "name": format!("{name}{NEED}")},
            "data": {"edit": "0"}})]
    } else {
        Vec::new()
    };
    let mut pod = json!({"containers": [container(dice, 0)]});
    if let Some(need) = needs.first() {
        let source = json!({"name": "settings", "configMap": {"name": need["metadata"]["name"]}});
        pod["volumes"] = json!([source]);
    }
    let selector = json!({"matchLabels": {"app": name}});
    let template = json!({"metadata": {"labels": {"app": name}}, "spec": pod});
    let mut spec = json!({ "template": template });
    match kind {
        "Job" => {
            spec["template"]["spec"]["restartPolicy"] = json!("Never");
            spec["parallelism"] = json!(dice.between(1, 2));
            spec["completions"] = spec["parallelism"].clone();
        }
        _ => spec["selector"] = selector,
    }
    if kind == "StatefulSet" {
        spec["serviceName"] = json!(name);
    }
    if has_replicas {
        spec["replicas"] = json!(dice.between(0, 6));
    }
    let version = if kind == "Job" { "batch/v1" } else { "apps/v1" };
    let object = json!({"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec});
    Template::new(object, needs)
}

/// Draws a workload that always has replicas: a Deployment or a StatefulSet.
pub fn steady(dice: &mut impl Dice, namespace: &str, name: &str) -> Template {
    loop {
        let mut template = draw(dice, namespace, name);
        if ["Deployment", "StatefulSet"].contains(&template.kind()) {
            template.object["spec"]["replicas"] = json!(dice.between(1, 4));
            return template;
        }
    }
}

fn container(dice: &mut impl Dice, edit: u64) -> Value {
    let mut container = json!({"name": "main", "image": format!("nginx:1.{edit}")});
    if dice.percent(70) {
        let cpu = dice.one(&["50m", "100m", "500m"]);
        container["resources"] = json!({"requests": {"cpu": cpu, "memory": "64Mi"}});
    }
    container
}

impl Template {
    fn new(object: Value, needs: Vec<Value>) -> Self {
        Self {
            object,
            needs,
            edits: 0,
        }
    }

    /// Returns the kind of the object.
    pub fn kind(&self) -> &str {
        self.object["kind"].as_str().unwrap_or_default()
    }

    /// Returns the name of the object's binding.
    pub fn binding(&self) -> String {
        let name = self.object["metadata"]["name"].as_str().unwrap_or_default();
        format!("{name}-{}", self.kind().to_lowercase())
    }

    /// Asks for another number of replicas.
    pub fn scale(&mut self, dice: &mut impl Dice) -> Value {
        self.object["spec"]["replicas"] = json!(dice.between(0, 8));
        self.object.clone()
    }

    /// Edits it: another image, other data, another number of replicas. What cannot be changed in
    /// place (a Job) stays.
    pub fn edit(&mut self, dice: &mut impl Dice) -> Value {
        self.edits += 1;
        let edit = self.edits;
        match self.kind() {
            "ConfigMap" => self.object["data"]["edit"] = json!(edit.to_string()),
            "Widget" => self.object["spec"]["color"] = json!(format!("color-{edit}")),
            "Job" => self.object["metadata"]["labels"]["edit"] = json!(edit.to_string()),
            "Deployment" | "StatefulSet" if dice.percent(50) => return self.scale(dice),
            _ => {
                let image = json!(format!("nginx:1.{edit}"));
                self.object["spec"]["template"]["spec"]["containers"][0]["image"] = image;
            }
        }
        self.object.clone()
    }
}
