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

    #[test]
    fn what_others_may_have_written_is_told_from_what_the_template_has_wrong() {
        let containers = |entries: Value| json!({"spec": {"template": {"spec": {"containers": entries}}, "selector": {}}});
        let whole = containers(json!([{"name": "web", "image": "web:1"}]));
        let part = containers(json!([{"name": "web"}]));
        let (forbidden, invalid) = ("FieldValueForbidden", "FieldValueInvalid");
        let one = "may not specify more than 1 handler type";
        let source = "may not be specified when `value` is not empty";
        let list = "spec.template.spec.containers";
        for (reason, message, field, applied, expected) in [
            (
                "FieldValueDuplicate",
                "",
                "spec.ports[1].name",
                &whole,
                Some(("spec.ports", true)),
            ),
            (
                "FieldValueDuplicate",
                "",
                "spec.template.spec.containers[0].ports[1]",
                &whole,
                Some(("spec.template.spec.containers.ports", true)),
            ),
            (
                "FieldValueRequired",
                "",
                "spec.template.spec.containers[1].image",
                &whole,
                Some((list, true)),
            ),
            (
                "FieldValueRequired",
                "",
                "spec.template.spec.containers[0].image",
                &part,
                None,
            ),
            (
                "FieldValueRequired",
                "",
                "spec.conversion.strategy",
                &whole,
                Some(("spec.conversion", true)),
            ),
            ("FieldValueRequired", "", "spec.replicas", &whole, None),
            (
                forbidden,
                one,
                "spec.template.spec.containers[0].livenessProbe.httpGet",
                &whole,
                Some(("spec.template.spec.containers.livenessProbe", false)),
            ),
            (
                invalid,
                source,
                "spec.template.spec.containers[0].env[2].valueFrom",
                &whole,
                Some(("spec.template.spec.containers.env", false)),
            ),
            (
                invalid,
                "may not have more than one field specified at a time",
                "spec.template.spec.containers[0].env[2].valueFrom",
                &whole,
                Some(("spec.template.spec.containers.env.valueFrom", false)),
            ),
            (
                invalid,
                "minAvailable and maxUnavailable cannot be both set",
                "spec",
                &whole,
                Some(("spec", false)),
            ),
            (
                invalid,
                "only allowed for updateStrategy 'RollingUpdate'",
                "spec.updateStrategy.rollingUpdate",
                &whole,
                Some(("spec.updateStrategy", false)),
            ),
            (
                invalid,
                "must be greater than 0",
                "spec.replicas",
                &whole,
                None,
            ),
            (invalid, "field is immutable", "spec.selector", &whole, None),
            (
                forbidden,
                "spec is immutable after creation",
                "spec.volumeName",
                &whole,
                None,
            ),
            (
                forbidden,
                "pod updates may not change fields",
                "spec",
                &whole,
                None,
            ),
            ("FieldValueNotSupported", "", "spec.type", &whole, None),
        ] {
            let clash = Clash::of((reason, message), field, applied);
            let clash = clash.map(|it| (it.path.join("."), it.is_of_entries));
            let expected = expected.map(|(path, is_of_entries)| (path.to_owned(), is_of_entries));
            assert_eq!(clash, expected, "{reason} {field}");
        }
    }
}
