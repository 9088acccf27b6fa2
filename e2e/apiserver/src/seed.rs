//! Objects put straight into the store, in the form in which they are to be found: without HTTP,
//! defaults, validation or admission. For benchmarks that need more objects than anybody would wait
//! for.

use std::sync::Arc;

use anyhow::{Context as _, bail};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::registry::Served;
use crate::registry::fields;
use crate::running::Running;
use crate::store::{Draft, Expect, Head};
use crate::wire::clock;
use crate::wire::metadata;

/// One resource of a server, open for objects from nowhere. Watches see the changes like any
/// others.
#[derive(Debug)]
pub struct Seeds {
    served: Served,
}

impl Running {
    /// Returns one resource of the server, into which objects can be put directly.
    pub fn seeds(&self, group: &str, version: &str, plural: &str) -> anyhow::Result<Seeds> {
        let served = self.registry().find(group, version, plural);
        let unknown = || format!("this server has no {plural:?} in group {group:?}");
        Ok(Seeds {
            served: served.with_context(unknown)?,
        })
    }
}

impl Seeds {
    /// Writes an object, new or not. One without a uid gets that of the object it replaces, or a
    /// new one.
    pub fn put(&self, mut object: Value) -> anyhow::Result<()> {
        let key = key(&object);
        let before = self.served.resource.collection.get(&key);
        if object["metadata"]["uid"].is_null() {
            let uid = before
                .as_ref()
                .map_or_else(clock::uid, |before| before.head.uid.to_string());
            object["metadata"]["uid"] = json!(uid);
        }
        let draft = self.draft(&key, &object)?;
        let expect = before.map_or(Expect::Absent, |before| Expect::Version(before.version));
        match self.served.resource.collection.put(draft, expect) {
            Ok(_) => Ok(()),
            Err(_) => bail!("object {key:?} was written by somebody else"),
        }
    }

    /// Removes an object, if it is there.
    pub fn remove(&self, namespace: &str, name: &str) -> anyhow::Result<()> {
        let key = key(&json!({"metadata": {"namespace": namespace, "name": name}}));
        let collection = &self.served.resource.collection;
        let Some(last) = collection.get(&key) else {
            return Ok(());
        };
        let draft = self.draft(&key, &last.value())?;
        match collection.remove(draft, last.version) {
            Ok(_) => Ok(()),
            Err(_) => bail!("object {key:?} was written by somebody else"),
        }
    }

    /// Returns an object as it is now.
    pub fn get(&self, namespace: &str, name: &str) -> Option<Value> {
        let key = key(&json!({"metadata": {"namespace": namespace, "name": name}}));
        let found = self.served.resource.collection.get(&key)?;
        Some(found.value())
    }

    /// Returns the version of the latest change to any of the objects.
    pub fn version(&self) -> u64 {
        self.served.resource.collection.latest_version()
    }

    /// Returns how many objects there are.
    pub fn len(&self) -> usize {
        self.served.resource.collection.len()
    }

    /// Returns whether there is no object.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns all objects as they are now, as much of each as `T` takes; those that do not decode
    /// are left out.
    pub fn all<T: DeserializeOwned>(&self) -> Vec<T> {
        let objects = self.served.resource.collection.present("");
        objects
            .iter()
            .filter_map(|object| serde_json::from_slice(&object.json()).ok())
            .collect()
    }

    fn draft(&self, key: &str, object: &Value) -> anyhow::Result<Draft> {
        let head = Head::of(
            Arc::from(key),
            object,
            fields::of(&self.served.resource, object),
        );
        Draft::new(head, object).with_context(|| format!("object {key:?} cannot be stored"))
    }
}

fn key(object: &Value) -> String {
    let text = |key| metadata::text(object, key);
    match text("namespace") {
        "" => text("name").to_owned(),
        namespace => format!("{namespace}/{}", text("name")),
    }
}
