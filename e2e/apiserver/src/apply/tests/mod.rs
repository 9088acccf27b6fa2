//! Server-side apply by its documentation's rules.

mod properties;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{ApplyError, apply, keep_times};
use crate::schema::Schema;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_700_000_000 + second).expect("a time")
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

#[test]
fn times_alone_are_no_difference() {
    let object = |time: &str, value: &str| json!({"metadata": {"managedFields": [{"manager": "m", "time": time}]}, "data": {"a": value}});
    let old = object("1", "x");
    for (new, kept) in [(object("2", "x"), true), (object("2", "y"), false)] {
        let mut settled = new.clone();
        keep_times(&old, &mut settled);
        assert_eq!(settled == old, kept, "{new}");
        assert_eq!(settled == new, !kept, "{new}");
    }
}
