//! `metadata.managedFields`: who owns what, since when, and how it is written down.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::set::FieldSet;

/// Who a set belongs to. Appliers are told apart by name alone, updaters by version too.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Manager {
    /// Whether it applies; else it updates.
    pub applies: bool,
    /// Name.
    pub name: String,
    /// Version that it wrote in; empty for appliers.
    version: String,
    /// Subresource that it wrote through; empty for the object itself.
    pub subresource: String,
}

impl Manager {
    /// Returns the manager of an apply.
    pub fn applier(name: &str, subresource: &str) -> Self {
        Self {
            applies: true,
            name: named(name),
            version: String::new(),
            subresource: subresource.to_owned(),
        }
    }

    /// Returns the manager of any other write.
    pub fn updater(name: &str, version: &str, subresource: &str) -> Self {
        Self {
            applies: false,
            name: named(name),
            version: version.to_owned(),
            subresource: subresource.to_owned(),
        }
    }
}

fn named(name: &str) -> String {
    if name.is_empty() {
        "unknown".to_owned()
    } else {
        name.to_owned()
    }
}

/// What a manager owns.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Owned {
    /// The fields.
    pub set: FieldSet,
    /// Version of the object that the paths are of.
    pub version: String,
    /// When the set last changed.
    pub time: Option<String>,
}

/// All managers of an object.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Managed(pub BTreeMap<Manager, Owned>);

impl Managed {
    /// Reads `metadata.managedFields`; `None` where an entry is malformed. An absent list is an
    /// empty one.
    pub fn read(object: &Value) -> Option<Self> {
        let entries = object["metadata"]["managedFields"]
            .as_array()
            .map_or(&[][..], Vec::as_slice);
        let mut managers = BTreeMap::new();
        for entry in entries {
            let text = |name: &str| entry[name].as_str().unwrap_or_default();
            let version = Some(text("apiVersion")).filter(|version| !version.is_empty())?;
            let manager = match text("operation") {
                "Apply" => Manager {
                    name: text("manager").to_owned(),
                    ..Manager::applier("", text("subresource"))
                },
                "Update" => Manager {
                    name: text("manager").to_owned(),
                    ..Manager::updater("", version, text("subresource"))
                },
                _ => return None,
            };
            if text("fieldsType") != "FieldsV1" {
                return None;
            }
            let empty = json!({});
            let fields = entry
                .get("fieldsV1")
                .filter(|fields| !fields.is_null())
                .unwrap_or(&empty);
            let owned = Owned {
                set: FieldSet::from_json(fields)?,
                version: version.to_owned(),
                time: entry["time"].as_str().map(str::to_owned),
            };
            managers.insert(manager, owned);
        }
        Some(Self(managers))
    }

    /// Writes `metadata.managedFields`; an empty list is left out.
    pub fn write(&self, object: &mut Value) {
        let mut entries: Vec<(&Manager, &Owned)> = self.0.iter().collect();
        entries.sort_by_key(|(manager, owned)| {
            (
                !manager.applies,
                seconds(owned),
                &manager.name,
                &owned.version,
                &manager.subresource,
            )
        });
        let entries: Vec<Value> = entries
            .into_iter()
            .map(|(manager, owned)| entry(manager, owned))
            .collect();
        let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) else {
            return;
        };
        if entries.is_empty() {
            metadata.remove("managedFields");
        } else {
            metadata.insert("managedFields".to_owned(), Value::Array(entries));
        }
    }

    /// Notes that the set of `manager` changed now.
    pub fn touch(&mut self, manager: &Manager, now: Timestamp) {
        if let Some(owned) = self.0.get_mut(manager) {
            owned.time = Some(now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string());
        }
    }

    /// Removes managers that own nothing.
    pub fn drop_empty(&mut self) {
        self.0.retain(|_, owned| !owned.set.is_empty());
    }
}

fn seconds(owned: &Owned) -> i64 {
    let time = owned
        .time
        .as_deref()
        .and_then(|time| time.parse::<Timestamp>().ok());
    time.map_or(0, Timestamp::as_second)
}

fn entry(manager: &Manager, owned: &Owned) -> Value {
    let mut entry = Map::new();
    let mut put = |name: &str, value: Value| entry.insert(name.to_owned(), value);
    if !manager.name.is_empty() {
        put("manager", json!(manager.name));
    }
    put(
        "operation",
        json!(if manager.applies { "Apply" } else { "Update" }),
    );
    put("apiVersion", json!(owned.version));
    if let Some(time) = &owned.time {
        put("time", json!(time));
    }
    put("fieldsType", json!("FieldsV1"));
    put("fieldsV1", owned.set.to_json());
    if !manager.subresource.is_empty() {
        put("subresource", json!(manager.subresource));
    }
    Value::Object(entry)
}
