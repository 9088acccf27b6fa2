//! Whether a `CustomResourceDefinition` is one: names, versions, columns. Its schemas
//! are checked in `structural.rs`.

use serde_json::Value;

use super::structural;
use crate::wire::field_error::FieldError;
use crate::wire::names::is_label;

const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const LABEL_1035: &str = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')";
const COLUMN_TYPES: &[&str] = &["boolean", "date", "integer", "number", "string"];

/// Returns what is wrong with a `CustomResourceDefinition`: names, versions, and whether its
/// schemas are structural. `metadata` itself is not checked, but for the name, which follows from
/// the specification.
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
    match versions {
        [version] if version["served"] == true && version["storage"] == true => {
            check_version(version, &mut errors);
        }
        _ => {
            let detail = "must be one version, which is served and stored, in this API";
            errors.push(FieldError::invalid(
                "spec.versions",
                &spec["versions"],
                detail,
            ));
        }
    }
    check_names(&spec["names"], &mut errors);
    errors
}

/// Checks the version of a CRD. Schema and columns are checked where older versions of the API had
/// them: above the versions.
fn check_version(version: &Value, errors: &mut Vec<FieldError>) {
    let schema = &version["schema"]["openAPIV3Schema"];
    if schema.is_object() {
        let path = "spec.validation.openAPIV3Schema";
        errors.extend(structural::faults(schema, path));
    } else {
        let path = "spec.versions[0].schema.openAPIV3Schema";
        errors.push(FieldError::required(path, "schemas are required"));
    }
    let columns = version["additionalPrinterColumns"].as_array();
    for (index, column) in columns.into_iter().flatten().enumerate() {
        let path = format!("spec.additionalPrinterColumns[{index}]");
        check_column(column, &path, errors);
    }
    let name = &version["name"];
    if !name.as_str().is_some_and(is_1035) {
        errors.push(FieldError::invalid(
            "spec.versions[0].name",
            name,
            LABEL_1035,
        ));
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

fn is_1035(text: &str) -> bool {
    text.len() <= 63 && is_label(text) && text.starts_with(|c: char| c.is_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::check_crd;

    #[test]
    fn the_definitions_of_our_own_kinds_are_accepted() {
        for crd in muster_shared::api::crds() {
            let crd = serde_json::to_value(crd).expect("serializes");
            let mut named = crd.clone();
            crate::schema::Schema::builtin(
                crate::catalog::of_object("apiextensions.k8s.io/v1", "CustomResourceDefinition")
                    .unwrap(),
            )
            .default(&mut named);
            assert_eq!(check_crd(&named), [], "{}", crd["metadata"]["name"]);
        }
    }
}
