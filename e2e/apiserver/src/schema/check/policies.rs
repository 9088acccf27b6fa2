//! Admission policies and their bindings: what they are about, and that every expression can be
//! evaluated here.

use serde_json::Value;

use super::{Check, webhooks};
use crate::schema::cel::Names;
use crate::wire::field_error::FieldError;

/// Checks a policy. What is not implemented (parameters, the authorizer) is refused, so that no
/// policy passes for one that it is not.
pub fn policy(check: &mut Check<'_>) {
    let spec = check.at("spec");
    if !spec["paramKind"].is_null() {
        let detail = "parameters are not implemented by this API";
        check.push(FieldError::forbidden("spec.paramKind", detail));
    }
    check.one_of(
        "spec.failurePolicy",
        &spec["failurePolicy"],
        &["Fail", "Ignore"],
    );
    if spec["matchConstraints"].is_null() {
        check.push(FieldError::required("spec.matchConstraints", ""));
    }
    constraints(check, "spec.matchConstraints", &spec["matchConstraints"]);
    let rules = &spec["matchConstraints"]["resourceRules"];
    if rules.as_array().is_none_or(Vec::is_empty) {
        check.push(FieldError::required(
            "spec.matchConstraints.resourceRules",
            "",
        ));
    }
    webhooks::conditions(check, "spec.matchConditions", &spec["matchConditions"]);
    let none = |value: &Value| value.as_array().is_none_or(Vec::is_empty);
    if none(&spec["validations"]) && none(&spec["auditAnnotations"]) {
        let detail = "validations or auditAnnotations must be specified";
        check.push(FieldError::required("spec.validations", detail));
    }
    let names = match Names::of_policy(spec) {
        Ok(names) => names,
        Err((index, why)) => {
            let path = format!("spec.variables[{index}].expression");
            let value = &spec["variables"][index]["expression"];
            check.invalid(&path, value, &format!("compilation failed: {why}"));
            return;
        }
    };
    let without = Names {
        variables: Vec::new(),
        ..names.clone()
    };
    for (path, condition) in check.each("spec.matchConditions") {
        let source = condition["expression"].as_str().unwrap_or_default();
        if let Err(why) = without.compile(source) {
            let path = format!("{path}.expression");
            let detail = format!("compilation failed: {why}");
            check.invalid(&path, &condition["expression"], &detail);
        }
    }
    let reasons = [
        "Unauthorized",
        "Forbidden",
        "Invalid",
        "RequestEntityTooLarge",
    ];
    for (path, validation) in check.each("spec.validations") {
        check.one_of(&format!("{path}.reason"), &validation["reason"], &reasons);
        for field in ["expression", "messageExpression"] {
            let (path, value) = (format!("{path}.{field}"), &validation[field]);
            if field == "expression" && !check.required(&path, value) {
                continue;
            }
            if let Some(source) = value.as_str()
                && let Err(why) = names.compile(source)
            {
                check.invalid(&path, value, &format!("compilation failed: {why}"));
            }
        }
    }
}

/// Checks a binding.
pub fn binding(check: &mut Check<'_>) {
    let spec = check.at("spec");
    check.required("spec.policyName", &spec["policyName"]);
    if !spec["paramRef"].is_null() {
        let detail = "parameters are not implemented by this API";
        check.push(FieldError::forbidden("spec.paramRef", detail));
    }
    constraints(check, "spec.matchResources", &spec["matchResources"]);
    let actions = spec["validationActions"].as_array();
    let actions = actions.map_or(&[][..], Vec::as_slice);
    if actions.is_empty() {
        check.push(FieldError::required("spec.validationActions", ""));
    }
    for (index, action) in actions.iter().enumerate() {
        let path = format!("spec.validationActions[{index}]");
        check.one_of(&path, action, &["Deny", "Warn", "Audit"]);
        if actions[..index].contains(action) {
            check.push(FieldError::duplicate(path, action));
        }
    }
    let has = |action: &str| actions.iter().any(|it| it == action);
    if has("Deny") && has("Warn") {
        let detail = "must not contain both Deny and Warn (repeating the same validation failure information in the API response and headers serves no purpose)";
        check.invalid("spec.validationActions", &spec["validationActions"], detail);
    }
}

fn constraints(check: &mut Check<'_>, path: &str, constraints: &Value) {
    if constraints.is_null() {
        return;
    }
    let policies = ["Equivalent", "Exact"];
    check.one_of(
        &format!("{path}.matchPolicy"),
        &constraints["matchPolicy"],
        &policies,
    );
    for field in ["namespaceSelector", "objectSelector"] {
        webhooks::selector(check, &format!("{path}.{field}"), &constraints[field]);
    }
    for field in ["resourceRules", "excludeResourceRules"] {
        for (path, rule) in super::each(&constraints[field], &format!("{path}.{field}")) {
            webhooks::rule(check, &path, rule);
        }
    }
}
