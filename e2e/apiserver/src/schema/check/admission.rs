//! Webhook configurations, admission policies and their bindings: what they are about, and that
//! every expression can be evaluated here.

use serde_json::Value;

use super::{Check, each};
use crate::schema::cel::{self, Names};
use crate::wire::field_error::FieldError;
use crate::wire::selectors::Selector;

/// Checks mutating and validating configurations. Nobody is asked twice here, so that who wants to
/// be is refused.
pub fn webhooks(check: &mut Check<'_>) {
    for (path, webhook) in check.each("webhooks") {
        check.required(&format!("{path}.name"), &webhook["name"]);
        constraints(check, &path, webhook);
        check.one_of(
            &format!("{path}.failurePolicy"),
            &webhook["failurePolicy"],
            &["Fail", "Ignore"],
        );
        check.one_of(
            &format!("{path}.reinvocationPolicy"),
            &webhook["reinvocationPolicy"],
            &["Never"],
        );
        let (effects, allowed) = (&webhook["sideEffects"], ["None", "NoneOnDryRun"]);
        if check.required(&format!("{path}.sideEffects"), effects) {
            check.one_of(&format!("{path}.sideEffects"), effects, &allowed);
        }
        let seconds = &webhook["timeoutSeconds"];
        if seconds.as_i64().is_some_and(|s| !(1..=30).contains(&s)) {
            let detail = "the timeout value must be between 1 and 30 seconds";
            check.invalid(&format!("{path}.timeoutSeconds"), seconds, detail);
        }
        let client = &webhook["clientConfig"];
        let https = |url: &str| url.starts_with("https://");
        if client["url"].is_null() == client["service"].is_null() {
            let detail = "exactly one of url or service is required";
            check.push(FieldError::required(format!("{path}.clientConfig"), detail));
        } else if client["url"].as_str().is_some_and(|url| !https(url)) {
            let detail = "'https' is the only allowed URL scheme";
            check.invalid(&format!("{path}.clientConfig.url"), &client["url"], detail);
        }
        for (path, condition) in each(
            &webhook["matchConditions"],
            &format!("{path}.matchConditions"),
        ) {
            compiles(check, &path, "expression", condition, |source| {
                cel::parse(source).map(drop)
            });
        }
        let versions = format!("{path}.admissionReviewVersions");
        let spoken = webhook["admissionReviewVersions"].as_array();
        if spoken.is_none_or(|list| !list.iter().any(|it| it == "v1")) {
            check.push(FieldError::required(versions, "must specify one of v1"));
        }
    }
}

/// Checks a policy. What is not implemented (parameters, the authorizer, failures that are ignored)
/// is refused, so that no policy passes for one that it is not.
pub fn policy(check: &mut Check<'_>) {
    let spec = check.at("spec");
    if !spec["paramKind"].is_null() {
        let detail = "parameters are not implemented by this API";
        check.push(FieldError::forbidden("spec.paramKind", detail));
    }
    check.one_of("spec.failurePolicy", &spec["failurePolicy"], &["Fail"]);
    let about = &spec["matchConstraints"];
    constraints(check, "spec.matchConstraints", about);
    let rules = "spec.matchConstraints.resourceRules";
    check.filled(rules, &about["resourceRules"], "");
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
        compiles(check, &path, "expression", condition, |source| {
            without.compile(source).map(drop)
        });
    }
    let reasons = [
        "Unauthorized",
        "Forbidden",
        "Invalid",
        "RequestEntityTooLarge",
    ];
    for (path, validation) in check.each("spec.validations") {
        check.one_of(&format!("{path}.reason"), &validation["reason"], &reasons);
        let compile = |source: &str| names.compile(source).map(drop);
        compiles(check, &path, "expression", validation, compile);
        if !validation["messageExpression"].is_null() {
            let detail = "computed messages are not implemented by this API";
            check.push(FieldError::forbidden(
                format!("{path}.messageExpression"),
                detail,
            ));
        }
    }
}

/// Checks that an expression is there and makes sense.
fn compiles(
    check: &mut Check<'_>,
    path: &str,
    field: &str,
    object: &Value,
    compile: impl Fn(&str) -> Result<(), String>,
) {
    let (path, value) = (format!("{path}.{field}"), &object[field]);
    if check.required(&path, value)
        && let Err(why) = compile(value.as_str().unwrap_or_default())
    {
        check.invalid(&path, value, &format!("compilation failed: {why}"));
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
    if !spec["matchResources"].is_null() {
        let detail = "bindings narrow no policy in this API";
        check.push(FieldError::forbidden("spec.matchResources", detail));
    }
    let actions = "spec.validationActions";
    check.filled(actions, &spec["validationActions"], "");
    for (path, action) in check.each(actions) {
        check.one_of(&path, action, &["Deny"]);
    }
}

/// Checks what a webhook or a policy is about. Selectors and exclusions are not implemented, so
/// that who has some is refused.
fn constraints(check: &mut Check<'_>, path: &str, constraints: &Value) {
    check.one_of(
        &format!("{path}.matchPolicy"),
        &constraints["matchPolicy"],
        &["Equivalent", "Exact"],
    );
    for field in [
        "namespaceSelector",
        "objectSelector",
        "excludeResourceRules",
    ] {
        let value = &constraints[field];
        let excludes = value.as_array().is_some_and(|list| !list.is_empty());
        if excludes || !Selector::read(value).is_empty() {
            let detail = "selectors and exclusions are not implemented by this API";
            check.push(FieldError::forbidden(format!("{path}.{field}"), detail));
        }
    }
    for list in ["rules", "resourceRules"] {
        for (path, rule) in each(&constraints[list], &format!("{path}.{list}")) {
            for field in ["operations", "apiGroups", "apiVersions", "resources"] {
                check.filled(&format!("{path}.{field}"), &rule[field], "");
            }
            let operations = ["*", "CONNECT", "CREATE", "DELETE", "UPDATE"];
            for (path, operation) in each(&rule["operations"], &format!("{path}.operations")) {
                check.one_of(&path, operation, &operations);
            }
        }
    }
}
