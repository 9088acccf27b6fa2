//! Roles and bindings.

use serde_json::json;

use super::Check;
use crate::wire::field_error::FieldError;

const GROUP: &str = "rbac.authorization.k8s.io";

/// Checks that the rules of a role allow something, on something.
pub fn role(check: &mut Check<'_>, namespaced: bool) {
    for (path, rule) in check.each("rules") {
        let detail = "verbs must contain at least one value";
        check.filled(&format!("{path}.verbs"), &rule["verbs"], detail);
        let empty = |name: &str| rule[name].as_array().is_none_or(Vec::is_empty);
        if empty("nonResourceURLs") {
            for (field, what) in [("apiGroups", "api group"), ("resources", "resource")] {
                let detail = format!("resource rules must supply at least one {what}");
                check.filled(&format!("{path}.{field}"), &rule[field], &detail);
            }
            continue;
        }
        let (path, urls) = (format!("{path}.nonResourceURLs"), &rule["nonResourceURLs"]);
        if namespaced {
            let detail = "namespaced rules cannot apply to non-resource URLs";
            check.invalid(&path, urls, detail);
        }
        if !empty("apiGroups") || !empty("resources") || !empty("resourceNames") {
            let detail = "rules cannot apply to both regular resources and non-resource URLs";
            check.invalid(&path, urls, detail);
        }
    }
}

/// Checks that a binding names a role, for good, and subjects.
pub fn binding(check: &mut Check<'_>, namespaced: bool) {
    let role = check.at("roleRef");
    check.one_of("roleRef.apiGroup", &role["apiGroup"], &[GROUP]);
    let kinds = ["ClusterRole", "Role"];
    let kinds = &kinds[..if namespaced { 2 } else { 1 }];
    if !role["kind"].as_str().is_some_and(|it| kinds.contains(&it)) {
        let kind = &role["kind"];
        check.push(FieldError::unsupported("roleRef.kind", kind, kinds));
    }
    check.required("roleRef.name", &role["name"]);
    if check.was("roleRef").is_some_and(|old| old != role) {
        // The server quotes its internal type, whose fields are spelt as in Go.
        let shown =
            json!({"APIGroup": role["apiGroup"], "Kind": role["kind"], "Name": role["name"]});
        check.invalid("roleRef", &shown, "cannot change roleRef");
    }
    for (path, subject) in check.each("subjects") {
        check.required(&format!("{path}.name"), &subject["name"]);
        let group = format!("{path}.apiGroup");
        match subject["kind"].as_str() {
            Some("ServiceAccount") => {
                check.one_of(&group, &subject["apiGroup"], &[""]);
                check.required(&format!("{path}.namespace"), &subject["namespace"]);
            }
            Some("User" | "Group") => check.one_of(&group, &subject["apiGroup"], &[GROUP]),
            _ => {
                let kinds = ["ServiceAccount", "User", "Group"];
                let (path, kind) = (format!("{path}.kind"), &subject["kind"]);
                check.push(FieldError::unsupported(path, kind, &kinds));
            }
        }
    }
}
