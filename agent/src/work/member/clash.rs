//! Reads from a refused apply which fields of others exclude those that are applied. Pure.
//!
//! A server-side apply leaves the fields of others. Where a person has changed the port of an
//! entry, the source of a variable or the kind of a probe in the member, the apply of the manifest
//! adds the former one beside it, and Kubernetes allows only one of the two.

use kube::core::response::StatusCause;
use serde_json::Value;

/// Place in an applied object at which fields of others exclude those that are applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Clash {
    /// Names of the fields from the root of the object to the place. The name of a list leads to
    /// each of its entries.
    pub path: Vec<String>,
    /// Fields of others for which the apply is refused.
    pub obstacle: Obstacle,
}

/// Fields of others, at the place of a clash, for which an apply is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Obstacle {
    /// Entries of a list that the applied list lacks. If a field is given: those whose value of the
    /// field an applied entry has as well.
    Entries(Option<String>),
    /// Entries or objects that the applied object lacks, and of which others own some fields. If a
    /// field is given: those of which others do not own that field.
    Rest(Option<String>),
    /// Field that the applied object lacks, and that excludes fields which are applied.
    Field(String),
    /// All fields that the applied object lacks: one of them excludes fields which are applied.
    Others,
}

/// Words by which Kubernetes says that one field excludes another.
const EXCLUSIONS: [&str; 7] = [
    " when ",
    "only allowed for",
    "more than 1 ",
    "more than one",
    "both ",
    "exclusive",
    "together",
];
/// Words by which Kubernetes says that a field cannot be changed, whatever fields others own.
const CHANGES: [&str; 5] = ["immutable", "change", "updated", "updates", "modified"];

impl Clash {
    /// Reads a cause of the refusal of an applied object; `None` where no field of others explains
    /// it.
    pub(super) fn of(cause: &StatusCause, applied: &Value) -> Option<Self> {
        let (reason, message) = (cause.reason.as_str(), cause.message.as_str());
        let says = |words: &[&str]| words.iter().any(|it| message.contains(it));
        let excludes = says(&EXCLUSIONS) && !says(&CHANGES);
        let mut path: Vec<&str> = cause.field.split('.').collect();
        let last = path.pop()?;
        // The cause names the object in which only one of several fields is allowed.
        let is_above = reason == "FieldValueInvalid" && says(&["more than one", "both set"]);
        let is_entry = last.contains('[');
        if is_above || is_entry {
            path.push(last);
        }
        let name = |part: &str| part.split('[').next().unwrap_or_default().to_owned();
        let path: Vec<String> = path.into_iter().map(name).collect();
        if path.is_empty() {
            return None;
        }
        let found = reached(applied, &path);
        let has_it = |it: &&Value| !it[last].is_null();
        let field = (!is_entry).then(|| last.to_owned());
        let obstacle = match reason {
            "FieldValueDuplicate" => Obstacle::Entries(field),
            // The field is missing where others own a part of an entry or of an object that is
            // not applied any more.
            "FieldValueRequired" if found.iter().all(has_it) => Obstacle::Rest(field),
            "FieldValueForbidden" | "FieldValueInvalid" if excludes => match field {
                Some(field) if !is_above && !found.iter().any(has_it) => Obstacle::Field(field),
                _ => Obstacle::Others,
            },
            _ => return None,
        };
        Some(Self { path, obstacle })
    }
}

/// Returns the values at the end of a path, which leads through all entries of the lists on it.
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

    fn clash(
        (reason, message): (&str, &str),
        field: &str,
        applied: &Value,
    ) -> Option<(String, Obstacle)> {
        let [reason, message, field] = [reason, message, field].map(str::to_owned);
        let cause = StatusCause {
            reason,
            message,
            field,
        };
        let clash = Clash::of(&cause, applied)?;
        Some((clash.path.join("."), clash.obstacle))
    }

    fn deployment(containers: &Value) -> Value {
        json!({"spec": {"template": {"spec": {"containers": containers}}, "selector": {}}})
    }

    #[test]
    fn entries_that_others_may_have_written_are_told_from_what_the_template_lacks() {
        let whole = deployment(&json!([{"name": "web", "image": "web:1"}]));
        let part = deployment(&json!([{"name": "web"}]));
        let (duplicate, required) = ("FieldValueDuplicate", "FieldValueRequired");
        let entries = |field: Option<&str>| Obstacle::Entries(field.map(str::to_owned));
        let rest = |field: Option<&str>| Obstacle::Rest(field.map(str::to_owned));
        let list = "spec.template.spec.containers";
        let ports = "spec.template.spec.containers.ports";
        let [second_port, image, other_image] =
            ["[0].ports[1]", "[0].image", "[1].image"].map(|it| format!("{list}{it}"));
        let named = ("spec.ports", entries(Some("name")));
        let strategy = ("spec.conversion", rest(Some("strategy")));
        let volumes = ("spec.template.spec.volumes", rest(None));
        for (reason, field, applied, expected) in [
            (duplicate, "spec.ports[1].name", &whole, Some(named)),
            (
                duplicate,
                second_port.as_str(),
                &whole,
                Some((ports, entries(None))),
            ),
            (
                required,
                other_image.as_str(),
                &whole,
                Some((list, rest(Some("image")))),
            ),
            (required, image.as_str(), &part, None),
            (required, "spec.conversion.strategy", &whole, Some(strategy)),
            (
                required,
                "spec.template.spec.volumes[0]",
                &whole,
                Some(volumes),
            ),
            (required, "spec.replicas", &whole, None),
            ("FieldValueNotSupported", "spec.type", &whole, None),
        ] {
            let expected = expected.map(|(path, obstacle)| (path.to_owned(), obstacle));
            let found = clash((reason, ""), field, applied);
            assert_eq!(found, expected, "{reason} {field}");
        }
    }

    #[test]
    fn a_field_that_another_excludes_is_told_from_one_that_is_wrong() {
        let probe = json!({"exec": {"command": ["a"]}});
        let variable = json!({"name": "A", "valueFrom": {"fieldRef": {}}});
        let applied = deployment(&json!([
            {"name": "web", "image": "web:1", "livenessProbe": probe, "env": [variable]},
        ]));
        let (forbidden, invalid) = ("FieldValueForbidden", "FieldValueInvalid");
        let container = "spec.template.spec.containers";
        let source = format!("{container}[0].env[2].valueFrom");
        let field = |name: &str| Obstacle::Field(name.to_owned());
        let probe = format!("{container}.livenessProbe");
        let probed = |kind: &str| format!("{container}[0].livenessProbe.{kind}");
        let one_handler = "may not specify more than 1 handler type";
        let is_string = "may not be specified when `value` is not empty";
        let one = "may not have more than one field specified at a time";
        let both = "minAvailable and maxUnavailable cannot be both set";
        let rolling = "only allowed for updateStrategy 'RollingUpdate'";
        let update = "spec.updateStrategy";
        for (reason, message, place, path, expected) in [
            (
                forbidden,
                one_handler,
                probed("httpGet"),
                probe.clone(),
                field("httpGet"),
            ),
            (
                forbidden,
                one_handler,
                probed("exec"),
                probe,
                Obstacle::Others,
            ),
            (
                invalid,
                is_string,
                source.clone(),
                format!("{container}.env"),
                Obstacle::Others,
            ),
            (
                invalid,
                one,
                source,
                format!("{container}.env.valueFrom"),
                Obstacle::Others,
            ),
            (
                invalid,
                both,
                "spec".to_owned(),
                "spec".to_owned(),
                Obstacle::Others,
            ),
            (
                invalid,
                rolling,
                format!("{update}.rollingUpdate"),
                update.to_owned(),
                field("rollingUpdate"),
            ),
        ] {
            let found = clash((reason, message), &place, &applied);
            assert_eq!(found, Some((path, expected)), "{place}: {message}");
        }
        let size = "spec.resources.requests.storage";
        for (reason, message, field) in [
            (invalid, "must be greater than 0", "spec.replicas"),
            (invalid, "field is immutable", "spec.selector"),
            (
                forbidden,
                "spec is immutable after creation",
                "spec.volumeName",
            ),
            (forbidden, "pod updates may not change fields", "spec"),
            (
                forbidden,
                "may not be changed when it is bound",
                "spec.class.name",
            ),
            (
                forbidden,
                "field can not be less than status.capacity",
                size,
            ),
            (
                forbidden,
                "disabled by feature gate",
                "spec.template.spec.hostUsers",
            ),
        ] {
            assert_eq!(clash((reason, message), field, &applied), None, "{message}");
        }
    }
}
