//! Whether a `CustomResourceDefinition` is one: names, versions, columns, and schemas that are structural.

use regex::Regex;
use serde_json::{Value, json};

use super::build::Builder;
use super::error::FieldError;
use super::node::At;
use super::{builtin, cel, validate, walk};

const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const LABEL_1035: &str = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')";
const TYPES: &[&str] = &["array", "boolean", "integer", "number", "object", "string"];
const COLUMN_TYPES: &[&str] = &["boolean", "date", "integer", "number", "string"];

/// What is wrong with a `CustomResourceDefinition`: names, versions, and whether its schemas are structural.
/// `metadata` itself is not looked at, but for the name, which follows from the specification.
pub fn check_crd(crd: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let spec = &crd["spec"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (group, plural) = (text(&spec["group"]), text(&spec["names"]["plural"]));
    if crd["metadata"]["name"] != format!("{plural}.{group}") {
        let detail = "must be spec.names.plural+\".\"+spec.group";
        errors.push(FieldError::invalid(
            "metadata.name",
            &crd["metadata"]["name"],
            detail,
        ));
    }
    if group.is_empty() {
        errors.push(FieldError::required("spec.group", ""));
    } else if !group.split('.').all(is_label) {
        errors.push(FieldError::invalid("spec.group", &spec["group"], SUBDOMAIN));
    } else if !group.contains('.') {
        let detail = "should be a domain with at least one dot";
        errors.push(FieldError::invalid("spec.group", &spec["group"], detail));
    }
    match spec["scope"].as_str() {
        Some("Cluster" | "Namespaced") => {}
        None | Some("") => errors.push(FieldError::required("spec.scope", "")),
        Some(_) => errors.push(FieldError::unsupported(
            "spec.scope",
            &spec["scope"],
            &["Cluster", "Namespaced"],
        )),
    }
    let versions = spec["versions"].as_array().map_or(&[][..], Vec::as_slice);
    for (index, version) in versions.iter().enumerate() {
        // What all versions share is checked where older versions of the API had it: above the versions.
        let shared = |field: &str| versions.iter().all(|other| other[field] == version[field]);
        let at = format!("spec.versions[{index}]");
        if shared("schema") && version["schema"].is_object() {
            if index == 0 {
                check_schema(version, "spec.validation", &at, &mut errors);
            }
        } else {
            check_schema(version, &format!("{at}.schema"), &at, &mut errors);
        }
        let above = |field: &str| {
            if shared(field) {
                "spec".to_owned()
            } else {
                at.clone()
            }
        };
        check_columns(version, &above("additionalPrinterColumns"), &mut errors);
        check_scale(version, &above("subresources"), &mut errors);
        if !version["name"].as_str().is_some_and(is_1035) {
            errors.push(FieldError::invalid(
                format!("{at}.name"),
                &version["name"],
                LABEL_1035,
            ));
        }
    }
    let duplicated = versions
        .iter()
        .enumerate()
        .any(|(i, v)| versions[..i].iter().any(|w| w["name"] == v["name"]));
    if duplicated {
        let detail = "must contain unique version names";
        errors.push(FieldError::invalid(
            "spec.versions",
            &spec["versions"],
            detail,
        ));
    }
    if versions
        .iter()
        .filter(|version| version["storage"] == true)
        .count()
        != 1
    {
        let detail = "must have exactly one version marked as storage version";
        errors.push(FieldError::invalid(
            "spec.versions",
            &spec["versions"],
            detail,
        ));
    }
    check_names(&spec["names"], &mut errors);
    check_stored(&crd["status"]["storedVersions"], versions, &mut errors);
    errors
}

/// Versions in which objects may be stored stay among the versions.
fn check_stored(stored: &Value, versions: &[Value], errors: &mut Vec<FieldError>) {
    let path = "status.storedVersions";
    let Some(stored) = stored.as_array() else {
        return;
    };
    if stored.is_empty() {
        let detail = "must have at least one stored version";
        errors.push(FieldError::invalid(path, &Value::Null, detail));
    }
    for (index, stored) in stored.iter().enumerate() {
        if versions.iter().all(|version| version["name"] != *stored) {
            let name = stored.as_str().unwrap_or_default();
            let detail = format!(
                "missing from spec.versions; {name} was previously a storage version, and must remain in spec.versions until a storage migration ensures no data remains persisted in {name} and removes {name} from status.storedVersions"
            );
            let path = format!("{path}[{index}]");
            errors.push(FieldError::invalid(path, stored, detail));
        }
    }
}

fn check_names(names: &Value, errors: &mut Vec<FieldError>) {
    for field in ["plural", "singular", "kind", "listKind"] {
        let path = format!("spec.names.{field}");
        let name = names[field].as_str().unwrap_or_default();
        if name.is_empty() {
            errors.push(FieldError::required(path, ""));
        } else if matches!(field, "kind" | "listKind") {
            if !is_1035(&name.to_lowercase()) {
                let detail =
                    format!("may have mixed case, but should otherwise match: {LABEL_1035}");
                errors.push(FieldError::invalid(path, &names[field], detail));
            }
        } else if !is_1035(name) {
            errors.push(FieldError::invalid(path, &names[field], LABEL_1035));
        }
    }
    for list in ["shortNames", "categories"] {
        for (index, name) in names[list].as_array().into_iter().flatten().enumerate() {
            if !name.as_str().is_some_and(is_1035) {
                errors.push(FieldError::invalid(
                    format!("spec.names.{list}[{index}]"),
                    name,
                    LABEL_1035,
                ));
            }
        }
    }
    if names["kind"].is_string() && names["kind"] == names["listKind"] {
        let detail = "kind and listKind may not be the same";
        errors.push(FieldError::invalid(
            "spec.names.listKind",
            &names["listKind"],
            detail,
        ));
    }
}

fn check_schema(version: &Value, path: &str, at: &str, errors: &mut Vec<FieldError>) {
    let schema = &version["schema"]["openAPIV3Schema"];
    if schema.is_object() {
        let mut found = Vec::new();
        let path = format!("{path}.openAPIV3Schema");
        structural(schema, Level::Root, &path, &mut found);
        found.sort_by_key(ToString::to_string);
        if found.is_empty() {
            defaults(schema, &path, &mut found);
        }
        errors.extend(found);
    } else {
        let path = format!("{at}.schema.openAPIV3Schema");
        errors.push(FieldError::required(path, "schemas are required"));
    }
}

fn check_columns(version: &Value, path: &str, errors: &mut Vec<FieldError>) {
    for (index, column) in version["additionalPrinterColumns"]
        .as_array()
        .into_iter()
        .flatten()
        .enumerate()
    {
        check_column(
            column,
            &format!("{path}.additionalPrinterColumns[{index}]"),
            errors,
        );
    }
}

fn check_scale(version: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let scale = &version["subresources"]["scale"];
    if scale.is_object() {
        let path = format!("{path}.subresources.scale");
        for (field, below) in [
            ("specReplicasPath", ".spec."),
            ("statusReplicasPath", ".status."),
        ] {
            match scale[field].as_str().unwrap_or_default() {
                "" => errors.push(FieldError::required(format!("{path}.{field}"), "")),
                value if value.starts_with(below) => {}
                _ => {
                    let detail = format!(
                        "should be a json path under {}",
                        below.trim_end_matches('.')
                    );
                    errors.push(FieldError::invalid(
                        format!("{path}.{field}"),
                        &scale[field],
                        detail,
                    ));
                }
            }
        }
    }
}

fn check_column(column: &Value, path: &str, errors: &mut Vec<FieldError>) {
    if column["name"].as_str().unwrap_or_default().is_empty() {
        errors.push(FieldError::required(format!("{path}.name"), ""));
    }
    match column["type"].as_str().unwrap_or_default() {
        "" => errors.push(FieldError::required(
            format!("{path}.type"),
            &format!("must be one of {}", COLUMN_TYPES.join(",")),
        )),
        kind if COLUMN_TYPES.contains(&kind) => {}
        _ => {
            let detail = format!("must be one of {}", COLUMN_TYPES.join(","));
            errors.push(FieldError::invalid(
                format!("{path}.type"),
                &column["type"],
                detail,
            ));
        }
    }
    match column["jsonPath"].as_str().unwrap_or_default() {
        "" => errors.push(FieldError::required(format!("{path}.jsonPath"), "")),
        json_path if json_path.starts_with('.') => {}
        _ => {
            let detail = "must be a simple json path starting with .";
            errors.push(FieldError::invalid(
                format!("{path}.jsonPath"),
                &column["jsonPath"],
                detail,
            ));
        }
    }
}

/// Where in a schema one is; what must be there differs.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Level {
    Root,
    Item,
    Field,
}

/// The invariants of structural schemas.
fn structural(schema: &Value, level: Level, path: &str, errors: &mut Vec<FieldError>) {
    let flag = |name: &str| schema[name] == true;
    let (free, either) = (
        flag("x-kubernetes-preserve-unknown-fields"),
        flag("x-kubernetes-int-or-string"),
    );
    let embedded = flag("x-kubernetes-embedded-resource");
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
    if embedded && !free && !schema["properties"].is_object() {
        let detail = "must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields";
        errors.push(FieldError::required(format!("{path}.properties"), detail));
    }
    if either && free {
        let detail = "must be false if x-kubernetes-int-or-string is true";
        let path = format!("{path}.x-kubernetes-preserve-unknown-fields");
        errors.push(FieldError::invalid(path, &Value::from(true), detail));
    }
    forbidden(schema, path, errors);
    list_type(schema, path, errors);
    nested(schema, path, either, errors);
    pattern(schema, path, errors);
    expressions(schema, path, errors);
}

/// All defaults of a schema that is structural.
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

/// A default fits its own schema.
fn default(schema: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let Some(default) = schema.get("default") else {
        return;
    };
    let path = format!("{path}.default");
    let mut builder = Builder::new(&builtin::DEFINITIONS);
    let root = builder.node(schema);
    let (arena, _) = builder.finish();
    let at = At::new(&arena, root);
    let (mut unknown, mut late) = (Vec::new(), Vec::new());
    walk::prune(at, &mut default.clone(), &mut unknown, &mut late);
    if !(unknown.is_empty() && late.is_empty()) {
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

/// Rules in CEL can at least be read.
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
            let text = |name: &str| rule[name].as_str().unwrap_or_default();
            let shown = json!({"Rule": source, "Message": text("message"), "MessageExpression": text("messageExpression"),
                "Reason": rule["reason"], "FieldPath": text("fieldPath"), "OptionalOldSelf": rule["optionalOldSelf"]});
            let detail = format!("compilation failed: ERROR: <input>: Syntax error: {error}");
            errors.push(FieldError::invalid(format!("{path}.rule"), &shown, detail));
        }
    }
}

fn check_type(schema: &Value, level: Level, path: &str, errors: &mut Vec<FieldError>) {
    let flag = |name: &str| schema[name] == true;
    let kind = schema["type"].as_str().unwrap_or_default();
    let path = format!("{path}.type");
    if flag("x-kubernetes-embedded-resource") && kind != "object" {
        let detail = "must be object if x-kubernetes-embedded-resource is true";
        errors.push(if kind.is_empty() {
            FieldError::required(path, detail)
        } else {
            FieldError::invalid(path, &schema["type"], detail)
        });
    } else if kind.is_empty() {
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

/// Keywords of JSON schema that a CRD may not use.
fn forbidden(schema: &Value, path: &str, errors: &mut Vec<FieldError>) {
    if schema["uniqueItems"] == true {
        let detail =
            "uniqueItems cannot be set to true since the runtime complexity becomes quadratic";
        errors.push(FieldError::forbidden(format!("{path}.uniqueItems"), detail));
    }
    for keyword in [
        "patternProperties",
        "definitions",
        "dependencies",
        "additionalItems",
        "id",
        "$ref",
    ] {
        if schema.get(keyword).is_some_and(|value| !value.is_null()) {
            let detail = format!("{keyword} is not supported");
            errors.push(FieldError::forbidden(format!("{path}.{keyword}"), detail));
        }
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

/// Below `allOf` and the like, a schema may restrict, but not shape.
fn nested(schema: &Value, path: &str, int_or_string: bool, errors: &mut Vec<FieldError>) {
    for junctor in ["allOf", "anyOf", "oneOf"] {
        for (index, inner) in schema[junctor].as_array().into_iter().flatten().enumerate() {
            // `anyOf: [{type: integer}, {type: string}]` is how int-or-string is spelt out.
            if !(int_or_string && matches!(junctor, "anyOf" | "allOf")) {
                restricts_only(inner, &format!("{path}.{junctor}[{index}]"), errors);
            }
        }
    }
    if schema["not"].is_object() {
        restricts_only(&schema["not"], &format!("{path}.not"), errors);
    }
}

fn restricts_only(schema: &Value, path: &str, errors: &mut Vec<FieldError>) {
    for (keyword, what) in [
        ("type", "must be empty to be structural"),
        ("default", "must be undefined to be structural"),
        ("additionalProperties", "must be undefined to be structural"),
        ("nullable", "must be false to be structural"),
        ("title", "must be empty to be structural"),
        ("description", "must be empty to be structural"),
        (
            "x-kubernetes-preserve-unknown-fields",
            "must be undefined to be structural",
        ),
        (
            "x-kubernetes-embedded-resource",
            "must be false to be structural",
        ),
        (
            "x-kubernetes-int-or-string",
            "must be false to be structural",
        ),
        (
            "x-kubernetes-list-type",
            "must be undefined to be structural",
        ),
    ] {
        if schema
            .get(keyword)
            .is_some_and(|value| !value.is_null() && *value != false && *value != "")
        {
            errors.push(FieldError::forbidden(format!("{path}.{keyword}"), what));
        }
    }
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        restricts_only(property, &format!("{path}.properties[{name}]"), errors);
    }
    if schema["items"].is_object() {
        restricts_only(&schema["items"], &format!("{path}.items"), errors);
    }
    nested(schema, path, false, errors);
    pattern(schema, path, errors);
}

fn pattern(schema: &Value, path: &str, errors: &mut Vec<FieldError>) {
    if let Some(pattern) = schema["pattern"].as_str()
        && let Err(error) = Regex::new(pattern)
    {
        let detail = format!("must be a valid regular expression, but isn't: {error}");
        errors.push(FieldError::invalid(
            format!("{path}.pattern"),
            &schema["pattern"],
            detail,
        ));
    }
}

fn is_label(text: &str) -> bool {
    let alphanumeric = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    text.starts_with(alphanumeric)
        && text.ends_with(alphanumeric)
        && text.chars().all(|c| alphanumeric(c) || c == '-')
}

fn is_1035(text: &str) -> bool {
    text.len() <= 63 && is_label(text) && text.starts_with(|c: char| c.is_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::check_crd;

    fn crd() -> Value {
        json!({
            "metadata": {"name": "widgets.a.b"},
            "spec": {"group": "a.b", "scope": "Namespaced",
                "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
                "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema":
                    {"type": "object", "properties": {"spec": {"type": "object"}}}}}]},
        })
    }

    fn errors(pointer: &str, value: Value) -> Vec<String> {
        let mut crd = crd();
        *crd.pointer_mut(pointer).expect(pointer) = value;
        check_crd(&crd).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_plain_definition_is_accepted() {
        assert_eq!(check_crd(&crd()), []);
    }

    #[test]
    fn the_definitions_of_our_own_kinds_are_accepted() {
        for crd in muster_shared::api::crds() {
            let crd = serde_json::to_value(crd).expect("serializes");
            let mut named = crd.clone();
            crate::apiserver::schema::Schema::builtin(
                crate::apiserver::kinds::of_object(
                    "apiextensions.k8s.io/v1",
                    "CustomResourceDefinition",
                )
                .unwrap(),
            )
            .default(&mut named);
            assert_eq!(check_crd(&named), [], "{}", crd["metadata"]["name"]);
        }
    }

    #[test]
    fn faults_are_named_in_the_words_of_the_real_server() {
        let schema = "/spec/versions/0/schema/openAPIV3Schema";
        let spec = "/spec/versions/0/schema/openAPIV3Schema/properties/spec";
        let at = "spec.validation.openAPIV3Schema";
        let below = "spec.validation.openAPIV3Schema.properties[spec]";
        for (pointer, value, expected) in [
            ("/metadata/name", json!("x"),
                "metadata.name: Invalid value: \"x\": must be spec.names.plural+\".\"+spec.group".to_owned()),
            ("/spec/scope", json!("Galaxy"),
                "spec.scope: Unsupported value: \"Galaxy\": supported values: \"Cluster\", \"Namespaced\"".to_owned()),
            ("/spec/names/kind", json!(""), "spec.names.kind: Required value".to_owned()),
            ("/spec/versions/0/schema", json!({}), "spec.versions[0].schema.openAPIV3Schema: Required value: schemas are required".to_owned()),
            (schema, json!({"properties": {}}), format!("{at}.type: Required value: must not be empty at the root")),
            (schema, json!({"type": "string"}), format!("{at}.type: Invalid value: \"string\": must be object at the root")),
            (spec, json!({"type": "array"}), format!("{below}.items: Required value: must be specified")),
            (spec, json!({}), format!("{below}.type: Required value: must not be empty for specified object fields")),
            (spec, json!({"type": "object", "anyOf": [{"type": "string"}]}),
                format!("{below}.anyOf[0].type: Forbidden: must be empty to be structural")),
            (spec, json!({"type": "array", "items": {"type": "object", "properties": {"a": {"type": "string"}}},
                "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["a"]}),
                format!("{below}.items.properties[a].default: Required value: this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property")),
            (spec, json!({"type": "object", "properties": {}, "additionalProperties": {"type": "string"}}),
                format!("{below}.additionalProperties: Forbidden: additionalProperties and properties are mutual exclusive")),
        ] {
            assert_eq!(errors(pointer, value), [expected]);
        }
        assert!(
            errors("/spec/versions/0/storage", json!(false))[0]
                .ends_with("must have exactly one version marked as storage version")
        );
    }
}
