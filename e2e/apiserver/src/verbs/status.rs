//! The status of kinds where a subresource writes it: it is taken out of new objects, and each path
//! writes its own part.

use serde_json::Value;

use crate::context::RequestContext;
use crate::kinds::strategy;
use crate::wire::metadata;

/// Takes the status out of an object that is to be made: only the subresource writes it.
pub fn forget(context: &RequestContext<'_>, object: &mut Value) {
    let resource = &context.served.resource;
    let is_new =
        || context.path.name.is_empty() || resource.collection.get(&context.key()).is_none();
    let writes = !context.served.version().has_status() || strategy(resource).brings_status();
    if !writes && context.path.subresource.is_empty() && is_new() {
        remove(object, "status");
    }
}

/// Puts back the parts of a changed object that this path does not write; before its defaults.
pub fn keep(context: &RequestContext<'_>, old: &Value, new: &mut Value) {
    let strategy = strategy(&context.served.resource);
    let facts = context.served.resource.facts;
    match context.path.subresource.as_ref() {
        "status" => {
            strategy.prepare_status(new);
            let status = new.get("status").cloned();
            let written = std::mem::replace(new, old.clone());
            put(new, "status", status);
            if facts.status_keeps_metadata {
                // Who owns the status may still be said.
                carry(&written, new, "managedFields");
            } else {
                let labels = old["metadata"].get("labels").cloned();
                new["metadata"] = written["metadata"].clone();
                if facts.status_keeps_labels {
                    let fields = metadata::of(new);
                    match labels {
                        Some(labels) => fields.insert("labels".to_owned(), labels),
                        None => fields.remove("labels"),
                    };
                }
            }
            carry(&written, new, "resourceVersion");
        }
        "" => {
            strategy.prepare_for_update(old, new);
            if context.served.version().has_status() {
                put(new, "status", old.get("status").cloned());
            }
        }
        _ => {}
    }
    strategy.keep(context, old, new);
}

fn put(object: &mut Value, member: &str, value: Option<Value>) {
    match value {
        Some(value) => object[member] = value,
        None => remove(object, member),
    }
}

fn remove(object: &mut Value, member: &str) {
    if let Some(members) = object.as_object_mut() {
        members.remove(member);
    }
}

fn carry(from: &Value, to: &mut Value, field: &str) {
    let fields = metadata::of(to);
    match from["metadata"].get(field) {
        Some(value) => fields.insert(field.to_owned(), value.clone()),
        None => fields.remove(field),
    };
}
