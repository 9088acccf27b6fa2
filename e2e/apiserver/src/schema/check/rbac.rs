//! Roles and bindings.

use serde_json::json;

use super::Check;
use crate::wire::field_error::FieldError;

const GROUP: &str = "rbac.authorization.k8s.io";

/// Rules allow something, on something.
pub fn role(check: &mut Check<'_>, namespaced: bool) {
    for (path, rule) in check.each("rules") {
        let empty = |name: &str| rule[name].as_array().is_none_or(Vec::is_empty);
        if empty("verbs") {
            let detail = "verbs must contain at least one value";
            check.push(FieldError::required(format!("{path}.verbs"), detail));
        }
        if !empty("nonResourceURLs") {
            if namespaced {
                let detail = "namespaced rules cannot apply to non-resource URLs";
                check.invalid(
                    &format!("{path}.nonResourceURLs"),
                    &rule["nonResourceURLs"],
                    detail,
                );
            }
            if !empty("apiGroups") || !empty("resources") || !empty("resourceNames") {
                let urls = &rule["nonResourceURLs"];
                let detail = "rules cannot apply to both regular resources and non-resource URLs";
                check.invalid(&format!("{path}.nonResourceURLs"), urls, detail);
            }
            continue;
        }
        if empty("apiGroups") {
            let detail = "resource rules must supply at least one api group";
            check.push(FieldError::required(format!("{path}.apiGroups"), detail));
        }
        if empty("resources") {
            let detail = "resource rules must supply at least one resource";
            check.push(FieldError::required(format!("{path}.resources"), detail));
        }
    }
}

/// Bindings name a role, for good, and subjects.
pub fn binding(check: &mut Check<'_>, namespaced: bool) {
    let role = check.at("roleRef");
    if role["apiGroup"] != GROUP {
        check.push(FieldError::unsupported(
            "roleRef.apiGroup",
            &role["apiGroup"],
            &[GROUP],
        ));
    }
    let kinds: &[&str] = if namespaced {
        &["Role", "ClusterRole"]
    } else {
        &["ClusterRole"]
    };
    if role["kind"]
        .as_str()
        .is_none_or(|kind| !kinds.contains(&kind))
    {
        check.push(FieldError::unsupported(
            "roleRef.kind",
            &role["kind"],
            kinds,
        ));
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
        match subject["kind"].as_str() {
            Some("ServiceAccount") => {
                if subject["apiGroup"]
                    .as_str()
                    .is_some_and(|group| !group.is_empty())
                {
                    let group = &subject["apiGroup"];
                    check.push(FieldError::unsupported(
                        format!("{path}.apiGroup"),
                        group,
                        &[""],
                    ));
                }
                check.required(&format!("{path}.namespace"), &subject["namespace"]);
            }
            Some("User" | "Group") => {
                check.one_of(&format!("{path}.apiGroup"), &subject["apiGroup"], &[GROUP]);
            }
            _ => {
                let kinds = ["ServiceAccount", "User", "Group"];
                check.push(FieldError::unsupported(
                    format!("{path}.kind"),
                    &subject["kind"],
                    &kinds,
                ));
            }
        }
    }
}
