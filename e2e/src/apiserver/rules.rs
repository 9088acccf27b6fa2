//! Validation of single built-in kinds beyond what a schema says: selectors, immutable fields, references.

use serde_json::Value;

use super::schema::FieldError;

/// What is wrong with an object of a kind, as create (`old` is `None`) or as update.
pub fn check(kind: (&str, &str), new: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    match kind {
        ("apps", "deployments" | "replicasets" | "statefulsets" | "daemonsets") => {
            selector(new, old, kind.1, &mut errors);
        }
        ("", "configmaps" | "secrets") => immutable_data(new, old, &mut errors),
        ("rbac.authorization.k8s.io", "rolebindings" | "clusterrolebindings") => {
            if let Some(old) = old
                && old["roleRef"] != new["roleRef"]
            {
                errors.push(FieldError::invalid(
                    "roleRef",
                    &new["roleRef"],
                    "cannot change roleRef",
                ));
            }
        }
        ("apiextensions.k8s.io", "customresourcedefinitions") => {
            errors.extend(super::schema::check_crd(new))
        }
        _ => {}
    }
    errors
}

fn selector(new: &Value, old: Option<&Value>, plural: &str, errors: &mut Vec<FieldError>) {
    let selector = &new["spec"]["selector"];
    if let Some(old) = old
        && &old["spec"]["selector"] != selector
        && plural != "statefulsets"
    {
        errors.push(FieldError::invalid(
            "spec.selector",
            selector,
            "field is immutable",
        ));
    }
    let labels = &new["spec"]["template"]["metadata"]["labels"];
    let Some(wanted) = selector["matchLabels"].as_object() else {
        return;
    };
    if wanted
        .iter()
        .any(|(key, value)| labels[key.as_str()] != *value)
    {
        errors.push(FieldError::invalid(
            "spec.template.metadata.labels",
            &labels
                .as_object()
                .map_or_else(|| serde_json::json!({}), |l| l.clone().into()),
            "`selector` does not match template `labels`",
        ));
    }
}

fn immutable_data(new: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    let Some(old) = old.filter(|old| old["immutable"] == true) else {
        return;
    };
    if new["immutable"] != true {
        errors.push(FieldError::forbidden(
            "immutable",
            "field is immutable when `immutable` is set",
        ));
    }
    for field in ["data", "binaryData"] {
        if old[field] != new[field] {
            errors.push(FieldError::forbidden(
                field,
                "field is immutable when `immutable` is set",
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_selector_must_match_the_template() {
        let deployment = |label: &str| {
            json!({ "spec": {
                "selector": { "matchLabels": { "app": "a" } },
                "template": { "metadata": { "labels": { "app": label } } },
            }})
        };
        assert!(check(("apps", "deployments"), &deployment("a"), None).is_empty());
        let errors = check(("apps", "deployments"), &deployment("b"), None);
        assert_eq!(errors[0].field, "spec.template.metadata.labels");
    }

    #[test]
    fn an_immutable_config_map_stays_as_it_is() {
        let old = json!({ "immutable": true, "data": { "a": "1" } });
        let new = json!({ "immutable": true, "data": { "a": "2" } });
        let errors = check(("", "configmaps"), &new, Some(&old));
        assert_eq!(
            errors[0].to_string(),
            "data: Forbidden: field is immutable when `immutable` is set"
        );
    }
}
