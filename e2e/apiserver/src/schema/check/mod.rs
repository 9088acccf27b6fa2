//! Validation of built-in kinds: what their types alone do not say, for what matters to workloads
//! and their clusters.
//!
//! The wording is that of the real API server, from 1.36 on, which quotes whole values as JSON.

mod config;
mod jobs;
mod network;
mod nodes;
mod pods;
mod policies;
mod rbac;
mod webhooks;
mod workloads;

use serde_json::Value;

use super::crd;
use crate::kinds::catalog::Kind;
use crate::wire::field_error::FieldError;

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
        ("", "PodTemplate") => pods::spec(&mut check, "template.spec", pods::Restarts::Any),
        ("apps", _) | ("", "ReplicationController") => workloads::apps(&mut check, kind),
        ("batch", "Job") => {
            workloads::job(&mut check);
            jobs::status(&mut check);
        }
        ("batch", "CronJob") => workloads::cron_job(&mut check),
        ("autoscaling", _) => workloads::autoscaler(&mut check),
        ("policy", _) => workloads::disruption_budget(&mut check),
        ("", "Service") => network::service(&mut check),
        ("networking.k8s.io", "Ingress") => network::ingress(&mut check),
        ("", "Endpoints") => network::endpoints(&mut check),
        ("discovery.k8s.io", "EndpointSlice") => network::endpoint_slice(&mut check),
        ("", "ConfigMap") => config::config_map(&mut check),
        ("", "Secret") => config::secret(&mut check),
        ("", "PersistentVolumeClaim") => config::claim(&mut check),
        ("storage.k8s.io", _) => config::storage_class(&mut check),
        ("scheduling.k8s.io", _) => config::priority_class(&mut check),
        ("coordination.k8s.io", _) => config::lease(&mut check),
        ("events.k8s.io", _) => config::event(&mut check),
        ("admissionregistration.k8s.io", "ValidatingAdmissionPolicy") => {
            policies::policy(&mut check);
        }
        ("admissionregistration.k8s.io", "ValidatingAdmissionPolicyBinding") => {
            policies::binding(&mut check);
        }
        ("admissionregistration.k8s.io", _) => webhooks::configuration(&mut check),
        ("certificates.k8s.io", _) => config::signing_request(&mut check),
        ("", "Node") => nodes::node(&mut check),
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

    /// Refuses a text that is none of `allowed`. Absent ones are somebody else's matter.
    fn one_of(&mut self, path: &str, value: &Value, allowed: &[&str]) {
        if value.as_str().is_some_and(|text| !allowed.contains(&text)) {
            self.push(FieldError::unsupported(path, value, allowed));
        }
    }

    /// Refuses numbers below `least`.
    fn at_least(&mut self, path: &str, value: &Value, least: i64) {
        if value.as_i64().is_some_and(|number| number < least) {
            let detail = match least {
                1 => "must be greater than 0".to_owned(),
                _ => format!("must be greater than or equal to {least}"),
            };
            self.invalid(path, value, &detail);
        }
    }

    /// Refuses a change of the value at a path of names.
    fn immutable(&mut self, path: &str) {
        let new = self.at(path);
        if self.was(path).is_some_and(|old| old != new) {
            self.invalid(path, new, "field is immutable");
        }
    }
}

fn get<'a>(object: &'a Value, path: &str) -> &'a Value {
    path.split('.').fold(object, |value, name| &value[name])
}

fn each<'a>(list: &'a Value, path: &str) -> Vec<(String, &'a Value)> {
    let items = list
        .as_array()
        .map_or(&[][..], Vec::as_slice)
        .iter()
        .enumerate();
    items
        .map(|(index, item)| (format!("{path}[{index}]"), item))
        .collect()
}

/// Ports are 1 to 65535.
fn port(check: &mut Check<'_>, path: &str, value: &Value) {
    if value
        .as_i64()
        .is_some_and(|port| !(1..=65535).contains(&port))
    {
        check.invalid(path, value, "must be between 1 and 65535, inclusive");
    }
}

const LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";

/// Names of containers, volumes and ports of services are DNS labels.
fn label(check: &mut Check<'_>, path: &str, value: &Value) {
    let Some(text) = value.as_str() else {
        return;
    };
    let alphanumeric = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let fits = text.starts_with(alphanumeric)
        && text.ends_with(alphanumeric)
        && text.chars().all(|c| alphanumeric(c) || c == '-');
    if text.len() > 63 {
        check.invalid(path, value, "must be no more than 63 bytes");
    }
    if !fits {
        check.invalid(path, value, LABEL);
    }
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
