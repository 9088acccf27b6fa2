//! Pruning and defaulting: both walk an object along its schema.

use serde_json::Value;

use super::node::{Absent, At, Shape};

/// Removes what the schema does not know below a path and reports the paths, as
/// `unknown field "…"` quotes them.
pub fn prune(at: At<'_>, value: &mut Value, path: &str, unknown: &mut Vec<String>) {
    match value {
        Value::Object(object) => {
            let Shape::Object { fields, values } = &at.node().shape else {
                return;
            };
            let open = at.node().preserve_unknown || values.is_some();
            object.retain(|name, _| {
                let known = open || fields.contains_key(name);
                if !known {
                    unknown.push(join(path, name));
                }
                known
            });
            for (name, child) in object.iter_mut() {
                // Scalars have nothing to prune, and no need of a path.
                if (child.is_object() || child.is_array())
                    && let Some(inner) = at.field(name)
                {
                    prune(inner, child, &join(path, name), unknown);
                }
            }
        }
        Value::Array(list) => {
            if let Some(items) = at.items() {
                let nested = |i: &Value| i.is_object() || i.is_array();
                for (index, item) in list.iter_mut().enumerate().filter(|(_, i)| nested(i)) {
                    prune(items, item, &format!("{path}[{index}]"), unknown);
                }
            }
        }
        _ => {}
    }
}

/// Fills in defaults, outermost first, so that a default's own fields are defaulted too.
pub fn default(at: At<'_>, value: &mut Value) {
    if let Value::Object(object) = value {
        for (name, field, child) in at.fields() {
            let Some(default) = &field.default else {
                continue;
            };
            match object.get(name) {
                Some(Value::Null) if !child.node().nullable => {}
                // Go cannot distinguish an empty text from an absent one.
                Some(Value::String(text)) if text.is_empty() && field.absent == Absent::Zero => {}
                Some(_) => continue,
                None => {}
            }
            object.insert(name.clone(), default.clone());
        }
    }
    each(at, value, default);
}

/// Removes `null`s from objects where the schema knows the field and does not allow them. Defaults
/// have been filled in.
pub fn drop_nulls(at: At<'_>, value: &mut Value) {
    if let Value::Object(object) = value {
        object.retain(|name, child| {
            !child.is_null() || at.field(name).is_none_or(|at| at.node().nullable)
        });
    }
    each(at, value, drop_nulls);
}

/// Does something with every field and item of a value that the schema knows.
fn each(at: At<'_>, value: &mut Value, then: fn(At<'_>, &mut Value)) {
    match value {
        Value::Object(object) => {
            for (name, child) in object.iter_mut() {
                if let Some(at) = at.field(name) {
                    then(at, child);
                }
            }
        }
        Value::Array(list) => {
            if let Some(items) = at.items() {
                for item in list {
                    then(items, item);
                }
            }
        }
        _ => {}
    }
}

/// Joins a path and a name to `a.b`, or `b` at the root.
pub fn join(path: &str, name: &str) -> String {
    if path.is_empty() {
        name.to_owned()
    } else {
        format!("{path}.{name}")
    }
}
