//! Validation of built-in kinds: what their types alone do not say, as far as charts, scenarios and
//! members trip over it. `DIFFERENCES.md` lists what is not asked.
//!
//! The wording is that of the real API server, from 1.36 on, which quotes whole values as JSON.

mod admission;
mod jobs;
mod objects;
mod pods;
mod rbac;
mod workloads;

use serde_json::Value;

use super::crd;
use crate::catalog::Kind;
use crate::wire::field_error::FieldError;
use crate::wire::names::{self, NameRule};

/// Returns what is wrong with an object of a built-in kind, as create (`old` is `None`) or as
/// update.
pub fn builtin(kind: &Kind, new: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut check = Check {
        new,
        old,
        errors: Vec::new(),
    };
    match (kind.group, kind.kind) {
        ("", "Pod") => pods::pod(&mut check),
        ("apps", "Deployment" | "DaemonSet" | "ReplicaSet" | "StatefulSet") => {
            workloads::apps(&mut check, kind);
        }
        ("batch", "Job") => jobs::job(&mut check),
        ("batch", "CronJob") => jobs::cron_job(&mut check),
        ("", "Service") => objects::service(&mut check),
        ("", "ConfigMap") => objects::config_map(&mut check),
        ("", "Secret") => objects::secret(&mut check),
        ("", "Node") => objects::node(&mut check),
        ("coordination.k8s.io", _) => objects::lease(&mut check),
        ("certificates.k8s.io", _) => objects::signing_request(&mut check),
        ("admissionregistration.k8s.io", "ValidatingAdmissionPolicy") => {
            admission::policy(&mut check);
        }
        ("admissionregistration.k8s.io", "ValidatingAdmissionPolicyBinding") => {
            admission::binding(&mut check);
        }
        ("admissionregistration.k8s.io", _) => admission::webhooks(&mut check),
        ("rbac.authorization.k8s.io", "Role" | "ClusterRole") => {
            rbac::role(&mut check, kind.namespaced);
        }
        ("rbac.authorization.k8s.io", _) => rbac::binding(&mut check, kind.namespaced),
        ("apiextensions.k8s.io", _) => definition(&mut check),
        _ => {}
    }
    check.errors
}

/// What is being checked, and what was found wrong so far. Paths are those of messages:
/// `spec.containers[0].name`.
struct Check<'a> {
    new: &'a Value,
    old: Option<&'a Value>,
    errors: Vec<FieldError>,
}

impl<'a> Check<'a> {
    /// Returns the value at a path of names (`spec.template`), null where there is none.
    fn at(&self, path: &str) -> &'a Value {
        get(self.new, path)
    }

    /// Returns the value at a path of names in the object as it was; `None` on creation.
    fn was(&self, path: &str) -> Option<&'a Value> {
        self.old.map(|old| get(old, path))
    }

    /// Returns the elements at a path of names, with their paths.
    fn each(&self, path: &str) -> Vec<(String, &'a Value)> {
        each(self.at(path), path)
    }

    fn push(&mut self, error: FieldError) {
        self.errors.push(error);
    }

    fn invalid(&mut self, path: &str, value: &Value, detail: &str) {
        self.push(FieldError::invalid(path, value, detail));
    }

    /// Refuses an absent or empty text.
    fn required(&mut self, path: &str, value: &Value) -> bool {
        let there = value.as_str().is_some_and(|text| !text.is_empty());
        if !there {
            self.push(FieldError::required(path, ""));
        }
        there
    }

    /// Refuses an absent or empty list.
    fn filled(&mut self, path: &str, value: &Value, detail: &str) {
        if value.as_array().is_none_or(Vec::is_empty) {
            self.push(FieldError::required(path, detail));
        }
    }

    /// Refuses a text that is none of `allowed`. Absent ones are somebody else's matter.
    fn one_of(&mut self, path: &str, value: &Value, allowed: &[&str]) {
        if value.as_str().is_some_and(|text| !allowed.contains(&text)) {
            self.push(FieldError::unsupported(path, value, allowed));
        }
    }

    /// Refuses numbers below `least` at paths of names.
    fn at_least(&mut self, least: i64, paths: &[&str]) {
        for path in paths {
            let value = self.at(path);
            if value.as_i64().is_some_and(|number| number < least) {
                let detail = match least {
                    1 => "must be greater than 0".to_owned(),
                    _ => format!("must be greater than or equal to {least}"),
                };
                self.invalid(path, value, &detail);
            }
        }
    }

    /// Refuses ports other than 1 to 65535.
    fn port(&mut self, path: &str, value: &Value) {
        let port = value.as_i64();
        if port.is_some_and(|port| !(1..=65535).contains(&port)) {
            self.invalid(path, value, "must be between 1 and 65535, inclusive");
        }
    }

    /// Refuses a change of the value at a path of names.
    fn immutable(&mut self, path: &str) {
        let new = self.at(path);
        if self.was(path).is_some_and(|old| old != new) {
            self.invalid(path, new, "field is immutable");
        }
    }

    /// Refuses a name that is absent, no DNS label, or among those seen before.
    fn unique_label(&mut self, path: &str, value: &'a Value, seen: &mut Vec<&'a Value>) {
        if !self.required(path, value) {
            return;
        }
        for detail in NameRule::Label.check(value.as_str().unwrap_or_default(), false) {
            self.invalid(path, value, &detail);
        }
        if seen.contains(&value) {
            self.push(FieldError::duplicate(path, value));
        }
        seen.push(value);
    }

    /// Checks that a label selector can be evaluated.
    fn selector(&mut self, path: &str, selector: &Value) {
        let labels = format!("{path}.matchLabels");
        for (key, value) in selector["matchLabels"].as_object().into_iter().flatten() {
            let text = value.as_str().unwrap_or_default();
            for detail in [names::label_key(key), names::label_value(text)] {
                if let Err(detail) = detail {
                    self.invalid(&labels, value, &detail);
                }
            }
        }
        let expressions = format!("{path}.matchExpressions");
        for (path, expression) in each(&selector["matchExpressions"], &expressions) {
            let empty = expression["values"].as_array().is_none_or(Vec::is_empty);
            let values = format!("{path}.values");
            match expression["operator"].as_str() {
                Some("In" | "NotIn") if empty => {
                    let detail = "must be specified when `operator` is 'In' or 'NotIn'";
                    self.push(FieldError::required(values, detail));
                }
                Some("Exists" | "DoesNotExist") if !empty => {
                    let detail =
                        "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
                    self.push(FieldError::forbidden(values, detail));
                }
                Some("In" | "NotIn" | "Exists" | "DoesNotExist") => {}
                _ => self.invalid(
                    &format!("{path}.operator"),
                    &expression["operator"],
                    "not a valid selector operator",
                ),
            }
        }
    }
}

fn get<'a>(object: &'a Value, path: &str) -> &'a Value {
    path.split('.').fold(object, |value, name| &value[name])
}

fn each<'a>(list: &'a Value, path: &str) -> Vec<(String, &'a Value)> {
    let items = list.as_array().into_iter().flatten().enumerate();
    items
        .map(|(index, item)| (format!("{path}[{index}]"), item))
        .collect()
}

/// Definitions keep their group, and what they are called once they are established.
fn definition(check: &mut Check<'_>) {
    check.errors.extend(crd::check_crd(check.new));
    check.immutable("spec.group");
    let established = check
        .was("status.conditions")
        .and_then(Value::as_array)
        .is_some_and(|conditions| {
            conditions
                .iter()
                .any(|c| c["type"] == "Established" && c["status"] == "True")
        });
    if established {
        for path in ["spec.scope", "spec.names.kind", "spec.names.plural"] {
            check.immutable(path);
        }
    }
}

#[cfg(test)]
mod tests;
