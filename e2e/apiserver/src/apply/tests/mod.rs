//! Server-side apply by its documentation's rules.

mod owners;
mod properties;
mod record;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{ApplyError, apply, track_update};
use crate::kinds::catalog;
use crate::schema::Schema;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_700_000_000 + second).expect("a time")
}

fn builtin(api_version: &str, kind: &str) -> Schema {
    Schema::builtin(catalog::of_object(api_version, kind).expect("a built-in kind"))
}

/// An object that several managers write to, one step after the other.
struct Story {
    schema: Schema,
    api_version: &'static str,
    object: Option<Value>,
    clock: i64,
}

impl Story {
    fn new(schema: Schema, api_version: &'static str) -> Self {
        Self {
            schema,
            api_version,
            object: None,
            clock: 0,
        }
    }

    fn try_apply(&mut self, manager: &str, config: &Value, force: bool) -> Result<(), ApplyError> {
        self.clock += 1;
        let live = self.object.as_ref();
        let mut object = apply(
            live,
            config,
            manager,
            self.api_version,
            "",
            force,
            &self.schema,
            at(self.clock),
        )?;
        self.schema.decode(&mut object).expect("decodes");
        self.schema.default(&mut object);
        object["metadata"]["uid"] = json!("u");
        self.object = Some(object);
        Ok(())
    }

    fn apply(&mut self, manager: &str, config: &Value) {
        self.try_apply(manager, config, false).expect("no conflict");
    }

    fn conflicts(&mut self, manager: &str, config: &Value) -> String {
        self.try_apply(manager, config, false)
            .expect_err("a conflict")
            .to_string()
    }

    fn update(&mut self, manager: &str, subresource: &str, change: impl FnOnce(&mut Value)) {
        self.clock += 1;
        let old = self.object.clone();
        let mut new = old
            .clone()
            .unwrap_or_else(|| json!({"apiVersion": self.api_version, "metadata": {}}));
        change(&mut new);
        self.schema.decode(&mut new).expect("decodes");
        self.schema.default(&mut new);
        track_update(
            old.as_ref(),
            &mut new,
            manager,
            self.api_version,
            subresource,
            &self.schema,
            at(self.clock),
        );
        self.object = Some(new);
    }

    fn object(&self) -> &Value {
        self.object.as_ref().expect("an object")
    }

    /// Returns the fields of one manager; null where it owns nothing.
    fn fields(&self, manager: &str, operation: &str) -> Value {
        let entries = self.object()["metadata"]["managedFields"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        let found = entries
            .iter()
            .find(|e| e["manager"] == manager && e["operation"] == operation);
        found.map_or(Value::Null, |entry| entry["fieldsV1"].clone())
    }
}

fn config_map(data: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "namespace": "default"}, "data": data})
}

fn config_maps() -> Story {
    Story::new(builtin("v1", "ConfigMap"), "v1")
}

fn deployment(spec: &Value) -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": "default"}, "spec": spec})
}

fn deployments() -> Story {
    Story::new(builtin("apps/v1", "Deployment"), "apps/v1")
}

fn nginx(replicas: Option<i64>) -> Value {
    let mut spec = json!({"selector": {"matchLabels": {"app": "nginx"}}, "template": {
        "metadata": {"labels": {"app": "nginx"}},
        "spec": {"containers": [{"name": "nginx", "image": "nginx:1.14.2", "ports": [{"containerPort": 80}]}]}}});
    if let Some(replicas) = replicas {
        spec["replicas"] = json!(replicas);
    }
    deployment(&spec)
}
