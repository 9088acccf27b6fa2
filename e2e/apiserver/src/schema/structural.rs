//! Whether the schema of a CRD is structural, as Kubernetes calls it: every place has one type, and
//! nothing but type and restrictions is said of it. Its defaults must fit it.

use serde_json::Value;

use super::build::Builder;
use super::node::At;
use super::{builtin, cel, known, validate, walk};
use crate::wire::field_error::FieldError;

const TYPES: &[&str] = &["array", "boolean", "integer", "number", "object", "string"];

/// Keywords that no definition of this project uses.
const UNUSED: &[&str] = &[
    "allOf",
    "anyOf",
    "exclusiveMaximum",
    "exclusiveMinimum",
    "maxProperties",
    "minProperties",
    "multipleOf",
    "not",
    "oneOf",
    "uniqueItems",
    "x-kubernetes-embedded-resource",
];

/// Fields of rules in CEL that no definition of this project uses.
const UNUSED_OF_RULES: &[&str] = &[
    "fieldPath",
    "messageExpression",
    "optionalOldSelf",
    "reason",
];

/// Why they are refused.
const ABSENT: &str = "is not implemented by this API";

/// Where in a schema one is; what must be there differs.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Level {
    Root,
    Item,
    Field,
}

/// Returns what is wrong with the schema of a version at this path of its CRD.
pub fn faults(schema: &Value, path: &str) -> Vec<FieldError> {
    let mut found = Vec::new();
    structural(schema, Level::Root, path, &mut found);
    found.sort_by_key(ToString::to_string);
    if found.is_empty() {
        defaults(schema, path, &mut found);
    }
    found
}

/// Checks the invariants of structural schemas.
fn structural(schema: &Value, level: Level, path: &str, errors: &mut Vec<FieldError>) {
    let flag = |name: &str| schema[name] == true;
    let (free, either) = (
        flag("x-kubernetes-preserve-unknown-fields"),
        flag("x-kubernetes-int-or-string"),
    );
    let kind = schema["type"].as_str().unwrap_or_default();
    check_type(schema, level, path, errors);
    if kind == "array" && !schema["items"].is_object() {
        errors.push(FieldError::required(
            format!("{path}.items"),
            "must be specified",
        ));
    }
    if schema["items"].is_object() {
        structural(
            &schema["items"],
            Level::Item,
            &format!("{path}.items"),
            errors,
        );
    }
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        let path = format!("{path}.properties[{name}]");
        if name == "metadata" && level == Level::Root {
            let only_names = property["properties"].as_object().is_none_or(|p| {
                p.keys()
                    .all(|name| name == "name" || name == "generateName")
            });
            if !only_names {
                let detail = "must not specify anything other than name and generateName, but metadata is implicitly specified";
                errors.push(FieldError::forbidden(path.clone(), detail));
            }
        } else {
            structural(property, Level::Field, &path, errors);
        }
    }
    let more = &schema["additionalProperties"];
    if !more.is_null() {
        let path = format!("{path}.additionalProperties");
        if level == Level::Root {
            errors.push(FieldError::forbidden(
                path.clone(),
                "must not be used at the root",
            ));
        }
        if schema["properties"].is_object() {
            let detail = "additionalProperties and properties are mutual exclusive";
            errors.push(FieldError::forbidden(path.clone(), detail));
        }
        if more.is_object() {
            structural(more, Level::Field, &path, errors);
        } else if *more == false {
            errors.push(FieldError::forbidden(
                path,
                "additionalProperties cannot be set to false",
            ));
        }
    }
    if either && free {
        let detail = "must be false if x-kubernetes-int-or-string is true";
        let path = format!("{path}.x-kubernetes-preserve-unknown-fields");
        errors.push(FieldError::invalid(path, &Value::from(true), detail));
    }
    list_type(schema, path, errors);
    unused(schema, path, either, errors);
    pattern(schema, path, errors);
    expressions(schema, path, errors);
}

/// Checks all defaults of a schema that is structural.
fn defaults(schema: &Value, path: &str, errors: &mut Vec<FieldError>) {
    default(schema, path, errors);
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        defaults(property, &format!("{path}.properties[{name}]"), errors);
    }
    for below in ["items", "additionalProperties"] {
        if schema[below].is_object() {
            defaults(&schema[below], &format!("{path}.{below}"), errors);
        }
    }
}

/// Checks that a default fits its own schema.
fn default(schema: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let Some(default) = schema.get("default") else {
        return;
    };
    let path = format!("{path}.default");
    let mut builder = Builder::new(&builtin::DEFINITIONS);
    let root = builder.node(schema);
    let (arena, _) = builder.finish();
    let at = At::new(&arena, root);
    let mut unknown = Vec::new();
    walk::prune(at, &mut default.clone(), "", &mut unknown);
    if !unknown.is_empty() {
        let detail = "must not have unknown fields";
        errors.push(FieldError::invalid(path.clone(), default, detail));
    }
    for mut error in validate::validate(at, default, None) {
        if error.field == "<nil>" {
            error.field.clone_from(&path);
            // The place of the whole value has no name, but its space.
            error.message = error.message.replacen(": in body", ":  in body", 1);
        } else {
            error.field = format!("{path}.{}", error.field);
        }
        errors.push(error);
    }
}

/// Checks that rules in CEL can be read, and have nothing but a message besides.
fn expressions(schema: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let rules = schema["x-kubernetes-validations"]
        .as_array()
        .map_or(&[][..], Vec::as_slice);
    for (index, rule) in rules.iter().enumerate() {
        let path = format!("{path}.x-kubernetes-validations[{index}]");
        let source = rule["rule"].as_str().unwrap_or_default();
        if source.trim().is_empty() {
            errors.push(FieldError::required(
                format!("{path}.rule"),
                "rule is not specified",
            ));
        } else if let Err(error) = cel::parse(source) {
            let detail = format!("compilation failed: {error}");
            errors.push(FieldError::invalid(
                format!("{path}.rule"),
                &rule["rule"],
                detail,
            ));
        }
        for field in UNUSED_OF_RULES
            .iter()
            .filter(|field| !rule[**field].is_null())
        {
            errors.push(FieldError::forbidden(format!("{path}.{field}"), ABSENT));
        }
    }
}

fn check_type(schema: &Value, level: Level, path: &str, errors: &mut Vec<FieldError>) {
    let flag = |name: &str| schema[name] == true;
    let kind = schema["type"].as_str().unwrap_or_default();
    let path = format!("{path}.type");
    if kind.is_empty() {
        if !flag("x-kubernetes-int-or-string") && !flag("x-kubernetes-preserve-unknown-fields") {
            let detail = match level {
                Level::Root => "must not be empty at the root",
                Level::Item => "must not be empty for specified array items",
                Level::Field => "must not be empty for specified object fields",
            };
            errors.push(FieldError::required(path, detail));
        }
    } else if !TYPES.contains(&kind) {
        errors.push(FieldError::unsupported(path, &schema["type"], TYPES));
    } else if level == Level::Root && kind != "object" {
        errors.push(FieldError::invalid(
            path,
            &schema["type"],
            "must be object at the root",
        ));
    }
}

fn list_type(schema: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let keys: Vec<&str> = schema["x-kubernetes-list-map-keys"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    let kind = &schema["x-kubernetes-list-type"];
    let type_path = format!("{path}.x-kubernetes-list-type");
    let keys_path = format!("{path}.x-kubernetes-list-map-keys");
    match kind.as_str() {
        Some("map") if keys.is_empty() => {
            let detail = "must not be empty if x-kubernetes-list-type is map";
            errors.push(FieldError::required(keys_path.clone(), detail));
        }
        None | Some("atomic" | "set" | "map") => {}
        Some(_) => errors.push(FieldError::unsupported(
            type_path.clone(),
            kind,
            &["atomic", "map", "set"],
        )),
    }
    if kind.is_string() && schema["type"] != "array" {
        let detail = "must be array if x-kubernetes-list-type is specified";
        errors.push(FieldError::invalid(
            format!("{path}.type"),
            &schema["type"],
            detail,
        ));
    }
    if !keys.is_empty() && kind != "map" {
        errors.push(FieldError::invalid(
            type_path,
            kind,
            "must be map if x-kubernetes-list-map-keys is non-empty",
        ));
    }
    let items = &schema["items"];
    for (index, key) in keys.iter().enumerate().filter(|_| kind == "map") {
        let property = &items["properties"][*key];
        if property.is_null() {
            let detail = "entries must all be names of item properties";
            errors.push(FieldError::invalid(
                format!("{keys_path}[{index}]"),
                &Value::from(*key),
                detail,
            ));
            continue;
        }
        let required = items["required"]
            .as_array()
            .is_some_and(|required| required.iter().any(|r| r == key));
        if !required && property.get("default").is_none() {
            let detail = "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property";
            errors.push(FieldError::required(
                format!("{path}.items.properties[{key}].default"),
                detail,
            ));
        }
    }
}

/// Refuses keywords that are not implemented here, so that no definition passes for one that it is
/// not.
fn unused(schema: &Value, path: &str, int_or_string: bool, errors: &mut Vec<FieldError>) {
    for keyword in UNUSED {
        // `anyOf: [{type: integer}, {type: string}]` is how int-or-string is spelt out.
        let spelt_out = int_or_string && *keyword == "anyOf";
        let value = &schema[*keyword];
        if !spelt_out && !value.is_null() && *value != false {
            errors.push(FieldError::forbidden(format!("{path}.{keyword}"), ABSENT));
        }
    }
}

fn pattern(schema: &Value, path: &str, errors: &mut Vec<FieldError>) {
    if let Some(pattern) = schema["pattern"].as_str()
        && let Err(error) = known::pattern(pattern)
    {
        let detail = format!("must be a valid regular expression, but isn't: {error}");
        errors.push(FieldError::invalid(
            format!("{path}.pattern"),
            &schema["pattern"],
            detail,
        ));
    }
}
