//! Webhook configurations: where they are, what they are asked about, and how long they have.

use serde_json::{Value, json};

use super::Check;
use crate::schema::cel;
use crate::wire::field_error::FieldError;
use crate::wire::names::{self, NameRule};

const MAX_CONDITIONS: usize = 64;
const URL_FORM: &str = "; desired format: https://host[/path]";

/// Checks mutating and validating configurations.
pub fn configuration(check: &mut Check<'_>) {
    let mut seen: Vec<&Value> = Vec::new();
    for (path, webhook) in check.each("webhooks") {
        name(check, &format!("{path}.name"), &webhook["name"]);
        for (path, rule) in super::each(&webhook["rules"], &format!("{path}.rules")) {
            self::rule(check, &path, rule);
        }
        let choices: [(&str, &[&str]); 3] = [
            ("failurePolicy", &["Fail", "Ignore"]),
            ("matchPolicy", &["Equivalent", "Exact"]),
            ("sideEffects", &["None", "NoneOnDryRun"]),
        ];
        for (field, allowed) in choices {
            check.one_of(&format!("{path}.{field}"), &webhook[field], allowed);
        }
        if webhook["sideEffects"].is_null() {
            let detail = "must specify one of None, NoneOnDryRun";
            check.push(FieldError::required(format!("{path}.sideEffects"), detail));
        }
        let seconds = &webhook["timeoutSeconds"];
        if seconds.as_i64().is_some_and(|s| !(1..=30).contains(&s)) {
            let detail = "the timeout value must be between 1 and 30 seconds";
            check.invalid(&format!("{path}.timeoutSeconds"), seconds, detail);
        }
        for field in ["namespaceSelector", "objectSelector"] {
            selector(check, &format!("{path}.{field}"), &webhook[field]);
        }
        client(
            check,
            &format!("{path}.clientConfig"),
            &webhook["clientConfig"],
        );
        let again = format!("{path}.reinvocationPolicy");
        check.one_of(
            &again,
            &webhook["reinvocationPolicy"],
            &["IfNeeded", "Never"],
        );
        conditions(
            check,
            &format!("{path}.matchConditions"),
            &webhook["matchConditions"],
        );
        versions(
            check,
            &format!("{path}.admissionReviewVersions"),
            &webhook["admissionReviewVersions"],
        );
        if seen.contains(&&webhook["name"]) {
            check.push(FieldError::duplicate(
                format!("{path}.name"),
                &webhook["name"],
            ));
        }
        seen.push(&webhook["name"]);
    }
}

fn name(check: &mut Check<'_>, path: &str, value: &Value) {
    if !check.required(path, value) {
        return;
    }
    let text = value.as_str().unwrap_or_default();
    let wrong = NameRule::Subdomain.check(text, false);
    if wrong.is_empty() && text.split('.').count() < 3 {
        let detail = "should be a domain with at least three segments separated by dots";
        check.invalid(path, value, detail);
    }
    for detail in wrong {
        check.invalid(path, value, &detail);
    }
}

fn texts(list: &Value) -> Vec<&str> {
    let items = list.as_array().into_iter().flatten();
    items.filter_map(Value::as_str).collect()
}

pub fn rule(check: &mut Check<'_>, path: &str, rule: &Value) {
    const OPERATIONS: [&str; 5] = ["*", "CONNECT", "CREATE", "DELETE", "UPDATE"];
    let lists = [
        ("operations", "operations"),
        ("apiGroups", "API groups"),
        ("apiVersions", "API versions"),
    ];
    for (field, plural) in lists {
        let path = format!("{path}.{field}");
        let items = texts(&rule[field]);
        if items.is_empty() {
            check.push(FieldError::required(&*path, ""));
        } else if items.len() > 1 && items.contains(&"*") {
            let detail = format!("if '*' is present, must not specify other {plural}");
            check.invalid(&path, &rule[field], &detail);
        }
        for (index, item) in items.iter().enumerate() {
            let at = format!("{path}[{index}]");
            if field == "operations" {
                check.one_of(&at, &json!(item), &OPERATIONS);
            } else if field == "apiVersions" && item.is_empty() {
                check.push(FieldError::required(at, ""));
            }
        }
    }
    resources(check, &format!("{path}.resources"), &rule["resources"]);
    let scope = format!("{path}.scope");
    check.one_of(&scope, &rule["scope"], &["*", "Cluster", "Namespaced"]);
}

/// Checks that nothing is named that a wildcard of the list covers already.
fn resources(check: &mut Check<'_>, path: &str, list: &Value) {
    let items = texts(list);
    if items.is_empty() {
        check.push(FieldError::required(path, ""));
    }
    let (mut whole, mut parts) = (Vec::new(), Vec::new());
    for (index, item) in items.iter().enumerate() {
        let at = format!("{path}[{index}]");
        if item.is_empty() {
            check.push(FieldError::required(&*at, ""));
        }
        let Some((resource, subresource)) = item.split_once('/') else {
            continue;
        };
        for (seen, own, all) in [
            (&mut whole, resource, format!("{resource}/*")),
            (&mut parts, subresource, format!("*/{subresource}")),
        ] {
            if seen.contains(&own) {
                let detail = format!("if '{all}' is present, must not specify {item}");
                check.invalid(&at, &json!(item), &detail);
            } else if *item == all {
                seen.push(own);
            }
        }
    }
    if items.len() > 1 && items.contains(&"*/*") {
        let detail = "if '*/*' is present, must not specify other resources";
        check.invalid(path, list, detail);
    }
    let plain = items.iter().filter(|i| !i.contains('/')).count();
    if plain > 1 && items.contains(&"*") {
        let detail = "if '*' is present, must not specify other resources without subresources";
        check.invalid(path, list, detail);
    }
}

pub fn selector(check: &mut Check<'_>, path: &str, selector: &Value) {
    let labels = format!("{path}.matchLabels");
    for (key, value) in selector["matchLabels"].as_object().into_iter().flatten() {
        if let Err(detail) = names::label_key(key) {
            check.invalid(&labels, &json!(key), &detail);
        }
        if let Err(detail) = names::label_value(value.as_str().unwrap_or_default()) {
            check.invalid(&labels, value, &detail);
        }
    }
    let expressions = super::each(
        &selector["matchExpressions"],
        &format!("{path}.matchExpressions"),
    );
    for (path, expression) in expressions {
        let empty = expression["values"].as_array().is_none_or(Vec::is_empty);
        match expression["operator"].as_str() {
            Some("In" | "NotIn") if empty => {
                let detail = "must be specified when `operator` is 'In' or 'NotIn'";
                check.push(FieldError::required(format!("{path}.values"), detail));
            }
            Some("Exists" | "DoesNotExist") if !empty => {
                let detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
                check.push(FieldError::forbidden(format!("{path}.values"), detail));
            }
            Some("In" | "NotIn" | "Exists" | "DoesNotExist") => {}
            _ => {
                let detail = "not a valid selector operator";
                check.invalid(&format!("{path}.operator"), &expression["operator"], detail);
            }
        }
        if let Err(detail) = names::label_key(expression["key"].as_str().unwrap_or_default()) {
            check.invalid(&format!("{path}.key"), &expression["key"], &detail);
        }
    }
}

fn client(check: &mut Check<'_>, path: &str, client: &Value) {
    let (url, service) = (&client["url"], &client["service"]);
    if url.is_null() == service.is_null() {
        let detail = "exactly one of url or service is required";
        check.push(FieldError::required(path, detail));
    } else if let Some(url) = url.as_str() {
        self::url(check, &format!("{path}.url"), url);
    } else {
        self::service(check, &format!("{path}.service"), service);
    }
}

fn url(check: &mut Check<'_>, path: &str, url: &str) {
    let (rest, fragment) = url.split_once('#').unwrap_or((url, ""));
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (scheme, rest) = rest.split_once("://").unwrap_or(("", ""));
    let authority = rest.split('/').next().unwrap_or_default();
    let (user, host) = authority.rsplit_once('@').unwrap_or(("", authority));
    if let Some(at) = host.find('%') {
        let detail = format!(
            "url must be a valid URL: parse {url:?}: invalid URL escape {:?}{URL_FORM}",
            host.get(at..at + 3).unwrap_or_default()
        );
        check.push(FieldError::required(path, &detail));
        return;
    }
    let mut wrong = |value: &str, detail: &str| check.invalid(path, &json!(value), detail);
    if scheme != "https" {
        wrong(
            scheme,
            &format!("'https' is the only allowed URL scheme{URL_FORM}"),
        );
    }
    if host.is_empty() {
        wrong("", &format!("host must be specified{URL_FORM}"));
    }
    if !user.is_empty() {
        wrong(user, "user information is not permitted in the URL");
    }
    if !fragment.is_empty() {
        wrong(fragment, "fragments are not permitted in the URL");
    }
    if !query.is_empty() {
        wrong(query, "query parameters are not permitted in the URL");
    }
}

fn service(check: &mut Check<'_>, path: &str, service: &Value) {
    for field in ["name", "namespace"] {
        check.required(&format!("{path}.{field}"), &service[field]);
    }
    let port = &service["port"];
    if port.as_i64().is_some_and(|p| !(1..=65535).contains(&p)) {
        let detail = "port is not valid: must be between 1 and 65535, inclusive";
        check.invalid(&format!("{path}.port"), port, detail);
    }
    let place = format!("{path}.path");
    let Some(text) = service["path"]
        .as_str()
        .filter(|p| *p != "/" && !p.is_empty())
    else {
        return;
    };
    if !text.starts_with('/') {
        check.invalid(&place, &service["path"], "must start with a '/'");
    }
    let mut steps: Vec<&str> = text.get(1..).unwrap_or_default().split('/').collect();
    if steps.len() > 1 && steps.last() == Some(&"") {
        steps.pop();
    }
    for (index, step) in steps.into_iter().enumerate() {
        if step.is_empty() {
            let detail = format!("segment[{index}] may not be empty");
            check.invalid(&place, &service["path"], &detail);
            continue;
        }
        for wrong in NameRule::Subdomain.check(step, false) {
            let detail = format!("segment[{index}]: {wrong}");
            check.invalid(&place, &service["path"], &detail);
        }
    }
}

pub fn conditions(check: &mut Check<'_>, path: &str, conditions: &Value) {
    let count = conditions.as_array().map_or(0, Vec::len);
    if count > MAX_CONDITIONS {
        check.push(FieldError::too_many(path, count, MAX_CONDITIONS));
        return;
    }
    let mut seen: Vec<&str> = Vec::new();
    for (path, condition) in super::each(conditions, path) {
        let expression = &condition["expression"];
        let place = format!("{path}.expression");
        if check.required(&place, expression)
            && let Err(error) = cel::parse(expression.as_str().unwrap_or_default())
        {
            let detail = format!("compilation failed: {error}");
            check.invalid(&place, expression, &detail);
        }
        let place = format!("{path}.name");
        if !check.required(&place, &condition["name"]) {
            continue;
        }
        let name = condition["name"].as_str().unwrap_or_default();
        if seen.contains(&name) {
            check.push(FieldError::duplicate(&*place, &condition["name"]));
        }
        seen.push(name);
        if let Err(detail) = names::label_key(name) {
            check.invalid(&place, &condition["name"], &detail);
        }
    }
}

fn versions(check: &mut Check<'_>, path: &str, list: &Value) {
    let versions = texts(list);
    if versions.is_empty() {
        let detail = "must specify one of v1, v1beta1";
        check.push(FieldError::required(path, detail));
        return;
    }
    let mut wrong = false;
    for (index, version) in versions.iter().enumerate() {
        let at = format!("{path}[{index}]");
        for detail in NameRule::Label1035.check(version, false) {
            wrong = true;
            check.invalid(&at, &json!(version), &detail);
        }
        if versions[..index].contains(version) {
            check.invalid(&at, &json!(version), "duplicate version");
        }
    }
    if !wrong && !versions.iter().any(|v| matches!(*v, "v1" | "v1beta1")) {
        check.invalid(path, list, "must include at least one of v1, v1beta1");
    }
}
