//! What must differ between two servers, made equal: identities, times, versions, tokens.

use std::collections::HashMap;
use std::sync::LazyLock;

use regex::Regex;
use serde_json::Value;

static UID: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}").expect("a pattern")
});
static TIME: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z").expect("a pattern"));
static ADDRESS: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"127\.0\.0\.1:\d+").expect("a pattern"));
static SERVICE: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"10\.96\.\d+\.\d+").expect("a pattern"));
static AGE: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"^\d+s$").expect("a pattern"));
static NUMBER: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"\d+").expect("a pattern"));

/// Makes the answers of one conversation comparable. Equal identities and versions stay equal,
/// different ones different.
pub struct Normal {
    namespace: String,
    uids: HashMap<String, usize>,
    versions: HashMap<String, usize>,
}

impl Normal {
    /// Makes what compares the answers of a conversation in this namespace.
    pub fn new(namespace: &str) -> Self {
        Self {
            namespace: namespace.to_owned(),
            uids: HashMap::new(),
            versions: HashMap::new(),
        }
    }

    /// Returns the comparable form of an answer.
    pub fn of(&mut self, mut value: Value) -> Value {
        self.walk(&mut value, "");
        value
    }

    fn walk(&mut self, value: &mut Value, key: &str) {
        match value {
            Value::Object(members) => {
                if let Some(prefix) = members.get("generateName").and_then(Value::as_str) {
                    let generated = format!("{prefix}*****");
                    if members.get("name").is_some_and(|n| n != &generated) {
                        members.insert("name".to_owned(), generated.into());
                    }
                }
                // The version of a list is that of the whole store, where others write, too.
                let list = members.contains_key("items") || members.contains_key("rows");
                let version = members
                    .get_mut("metadata")
                    .and_then(|m| m.get_mut("resourceVersion"));
                if let Some(version) = version.filter(|_| list) {
                    *version = "any".into();
                }
                // So is that of a bookmark.
                if members.get("type").is_some_and(|t| t == "BOOKMARK")
                    && let Some(version) = members
                        .get_mut("object")
                        .and_then(|o| o.pointer_mut("/metadata/resourceVersion"))
                {
                    *version = "any".into();
                }
                for (key, mut value) in std::mem::take(members) {
                    self.walk(&mut value, &key);
                    // Field owners are keyed by identities, too.
                    let key = if key.starts_with("k:") {
                        self.text(&key, "")
                    } else {
                        key
                    };
                    members.insert(key, value);
                }
            }
            Value::Array(items) => items.iter_mut().for_each(|item| self.walk(item, key)),
            Value::String(text) => *text = self.text(text, key),
            _ => {}
        }
    }

    fn text(&mut self, text: &str, key: &str) -> String {
        if text.is_empty() {
            return String::new();
        }
        match key {
            "resourceVersion" if text != "any" => {
                let next = self.versions.len() + 1;
                return format!(
                    "version {}",
                    self.versions.entry(text.to_owned()).or_insert(next)
                );
            }
            "continue" => return "token".to_owned(),
            "token" => return "secret".to_owned(),
            "cells" if AGE.is_match(text) => return "age".to_owned(),
            _ => {}
        }
        let text = text.replace(&self.namespace, "{ns}");
        let text = TIME.replace_all(&text, "time");
        let text = ADDRESS.replace_all(&text, "address of the server");
        let text = SERVICE.replace_all(&text, "address of a service");
        let uids = &mut self.uids;
        let mut text = UID
            .replace_all(&text, |found: &regex::Captures<'_>| {
                let next = uids.len() + 1;
                format!("uid {}", uids.entry(found[0].to_owned()).or_insert(next))
            })
            .into_owned();
        if key == "message"
            && text
                .to_lowercase()
                .replace(' ', "")
                .contains("resourceversion")
        {
            text = NUMBER.replace_all(&text, "N").into_owned();
        }
        text
    }
}

/// Puts the owners of fields in one order: servers sort them by time, and two writes may or may not
/// share a second.
pub fn sort_owners(value: &mut Value) {
    match value {
        Value::Object(members) => {
            if let Some(Value::Array(owners)) = members.get_mut("managedFields") {
                owners.sort_by_key(Value::to_string);
            }
            members.values_mut().for_each(sort_owners);
        }
        Value::Array(items) => items.iter_mut().for_each(sort_owners),
        _ => {}
    }
}

/// Puts the causes of a refusal in one order.
pub fn sort_causes(answer: &mut Value) {
    if let Some(Value::Array(causes)) = answer.pointer_mut("/body/details/causes") {
        causes.sort_by_key(Value::to_string);
    }
}

/// Leaves out words: the messages of refusals and of their causes, and the descriptions of columns.
/// Codes, reasons and fields stay.
pub fn forget_words(value: &mut Value) {
    let is_refusal = value["kind"] == "Status" && value["status"] == "Failure";
    if is_refusal {
        forget(value, "/message");
        forget(value, "/details/causes/*/message");
    }
    forget(value, "/columnDefinitions/*/description");
    match value {
        Value::Object(members) => members.values_mut().for_each(forget_words),
        Value::Array(items) => items.iter_mut().for_each(forget_words),
        _ => {}
    }
}

/// Removes what a pointer points at; `*` stands for every element or member.
pub fn forget(value: &mut Value, pointer: &str) {
    let parts: Vec<&str> = pointer.split('/').skip(1).collect();
    remove(value, &parts);
}

fn remove(value: &mut Value, parts: &[&str]) {
    let Some((first, rest)) = parts.split_first() else {
        return;
    };
    let name = first.replace("~1", "/");
    match value {
        Value::Object(members) if name == "*" => members.values_mut().for_each(|v| remove(v, rest)),
        Value::Array(items) if name == "*" => items.iter_mut().for_each(|v| remove(v, rest)),
        Value::Object(members) if rest.is_empty() => {
            members.remove(&name);
        }
        Value::Object(members) => {
            if let Some(inner) = members.get_mut(&name) {
                remove(inner, rest);
            }
        }
        // Elements keep their place.
        Value::Array(items) if rest.is_empty() => {
            if let Some(item) = name.parse::<usize>().ok().and_then(|i| items.get_mut(i)) {
                *item = Value::Null;
            }
        }
        Value::Array(items) => {
            if let Some(inner) = name.parse::<usize>().ok().and_then(|i| items.get_mut(i)) {
                remove(inner, rest);
            }
        }
        _ => {}
    }
}

/// Returns where two answers differ, as sentences.
pub fn differences(real: &Value, ours: &Value) -> Vec<String> {
    let mut found = Vec::new();
    compare(real, ours, "", &mut found);
    found
}

fn compare(real: &Value, ours: &Value, path: &str, found: &mut Vec<String>) {
    match (real, ours) {
        (Value::Object(a), Value::Object(b)) => {
            for (key, value) in a {
                let path = format!("{path}/{}", key.replace('/', "~1"));
                match b.get(key) {
                    Some(other) => compare(value, other, &path, found),
                    None => found.push(format!("{path}: missing, real: {value}")),
                }
            }
            for (key, value) in b.iter().filter(|(key, _)| !a.contains_key(*key)) {
                found.push(format!(
                    "{path}/{}: surplus: {value}",
                    key.replace('/', "~1")
                ));
            }
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            for (i, (x, y)) in a.iter().zip(b).enumerate() {
                compare(x, y, &format!("{path}/{i}"), found);
            }
        }
        (a, b) if a == b => {}
        (a, b) => found.push(format!("{path}:\n    real: {a}\n    ours: {b}")),
    }
}
