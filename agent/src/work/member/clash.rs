//! Parts of an applied object that an API server refuses beside what others have written. Pure.
//!
//! A server-side apply leaves what others own. Where a person has changed the port of an entry, the
//! source of a variable or the kind of a probe in the member, the apply of the manifest adds the
//! former one to that, and Kubernetes takes one of them alone.

use serde_json::Value;

/// Place at which an applied object does not go together with what the server has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Clash {
    /// Names of the fields that lead there. Lists stand for their entries.
    pub path: Vec<String>,
    /// Whether entries that are not applied are in the way there, and not fields beside applied
    /// ones.
    pub is_of_entries: bool,
}

impl Clash {
    /// Reads a cause of a refusal, by its reason, its message and the path of the field; `None`
    /// where nothing that others have written would be in the way.
    pub(super) fn of(
        (reason, message): (&str, &str),
        field: &str,
        applied: &Value,
    ) -> Option<Self> {
        let says = |words: &[&str]| words.iter().any(|it| message.contains(it));
        let mut path: Vec<&str> = field.split('.').collect();
        let last = path.pop()?;
        // Of several fields below the one that is named, one alone is allowed.
        let is_above = reason == "FieldValueInvalid" && says(&["more than one", "both set"]);
        if is_above || last.contains('[') {
            path.push(last);
        }
        let name = |part: &str| part.split('[').next().unwrap_or_default().to_owned();
        let path: Vec<String> = path.into_iter().map(name).collect();
        let is_of_entries = match reason {
            "FieldValueDuplicate" => true,
            // Of an entry or an object that is applied no more, others own the rest.
            "FieldValueRequired" => {
                let found = reached(applied, &path);
                if found.iter().any(|it| it[last].is_null()) {
                    return None;
                }
                true
            }
            _ if says(&["immutable"]) => return None,
            "FieldValueForbidden" => false,
            // Words by which Kubernetes says that one field excludes another.
            "FieldValueInvalid" if is_above || says(&[" when ", "only allowed for"]) => false,
            _ => return None,
        };
        (!path.is_empty()).then_some(Self {
            path,
            is_of_entries,
        })
    }
}

/// Returns what a path leads to, through all entries of the lists on the way.
fn reached<'a>(value: &'a Value, path: &[String]) -> Vec<&'a Value> {
    match (value, path.split_first()) {
        (Value::Null, _) => Vec::new(),
        (Value::Array(entries), _) => entries.iter().flat_map(|it| reached(it, path)).collect(),
        (value, Some((name, rest))) => reached(&value[name], rest),
        (value, None) => vec![value],
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn clash(cause: (&str, &str), field: &str, applied: &Value) -> Option<(String, bool)> {
        let clash = Clash::of(cause, field, applied)?;
        Some((clash.path.join("."), clash.is_of_entries))
    }

    fn deployment(containers: &Value) -> Value {
        json!({"spec": {"template": {"spec": {"containers": containers}}, "selector": {}}})
    }

    #[test]
    fn entries_that_others_may_have_written_are_told_from_what_the_template_lacks() {
        let whole = deployment(&json!([{"name": "web", "image": "web:1"}]));
        let part = deployment(&json!([{"name": "web"}]));
        let (duplicate, required) = ("FieldValueDuplicate", "FieldValueRequired");
        let list = "spec.template.spec.containers";
        let ports = "spec.template.spec.containers.ports";
        let [second_port, image, other_image] =
            ["[0].ports[1]", "[0].image", "[1].image"].map(|it| format!("{list}{it}"));
        for (reason, field, applied, expected) in [
            (duplicate, "spec.ports[1].name", &whole, Some("spec.ports")),
            (duplicate, second_port.as_str(), &whole, Some(ports)),
            (required, other_image.as_str(), &whole, Some(list)),
            (required, image.as_str(), &part, None),
            (
                required,
                "spec.conversion.strategy",
                &whole,
                Some("spec.conversion"),
            ),
            (required, "spec.replicas", &whole, None),
            ("FieldValueNotSupported", "spec.type", &whole, None),
        ] {
            let expected = expected.map(|path| (path.to_owned(), true));
            assert_eq!(
                clash((reason, ""), field, applied),
                expected,
                "{reason} {field}"
            );
        }
    }

    #[test]
    fn a_field_that_another_excludes_is_told_from_one_that_is_wrong() {
        let applied = deployment(&json!([{"name": "web", "image": "web:1"}]));
        let (forbidden, invalid) = ("FieldValueForbidden", "FieldValueInvalid");
        let container = "spec.template.spec.containers";
        let source = format!("{container}[0].env[2].valueFrom");
        for (reason, message, field, expected) in [
            (
                forbidden,
                "may not specify more than 1 handler type",
                format!("{container}[0].livenessProbe.httpGet"),
                Some(format!("{container}.livenessProbe")),
            ),
            (
                invalid,
                "may not be specified when `value` is not empty",
                source.clone(),
                Some(format!("{container}.env")),
            ),
            (
                invalid,
                "may not have more than one field specified at a time",
                source,
                Some(format!("{container}.env.valueFrom")),
            ),
            (
                invalid,
                "minAvailable and maxUnavailable cannot be both set",
                "spec".to_owned(),
                Some("spec".to_owned()),
            ),
            (
                invalid,
                "only allowed for updateStrategy 'RollingUpdate'",
                "spec.updateStrategy.rollingUpdate".to_owned(),
                Some("spec.updateStrategy".to_owned()),
            ),
        ] {
            let expected = expected.map(|path| (path, false));
            assert_eq!(clash((reason, message), &field, &applied), expected);
        }
        for (reason, message, field) in [
            (invalid, "must be greater than 0", "spec.replicas"),
            (invalid, "field is immutable", "spec.selector"),
            (
                forbidden,
                "spec is immutable after creation",
                "spec.volumeName",
            ),
            (forbidden, "pod updates may not change fields", "spec"),
        ] {
            assert_eq!(clash((reason, message), field, &applied), None, "{message}");
        }
    }
}
