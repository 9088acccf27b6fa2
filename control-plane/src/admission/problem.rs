//! Problems of an object: field, value and accepted values, in the format of Kubernetes' field
//! errors.

use std::fmt;

use serde::Serialize;
use serde_json::json;

/// One thing for which an object is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Path of the field, such as `spec.taints[0].key`.
    pub field: String,
    /// Kind of the fault, the value, and what is allowed.
    pub fault: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.fault)
    }
}

/// Everything that is to be said about an object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Findings {
    /// Problems for which the object is refused.
    pub problems: Vec<Problem>,
    /// Warnings to the author of an object that is accepted, and part of which has no effect.
    pub warnings: Vec<String>,
}

impl Findings {
    fn add(&mut self, field: impl Into<String>, fault: String) {
        let field = field.into();
        self.problems.push(Problem { field, fault });
    }

    /// Adds the problem `Invalid value: ...`: the value is not allowed.
    pub fn invalid(&mut self, field: impl Into<String>, value: &impl Serialize, detail: &str) {
        self.add(field, format!("Invalid value: {}: {detail}", json!(value)));
    }

    /// Adds the problem `Required value: ...`: there has to be a value.
    pub fn required(&mut self, field: impl Into<String>, detail: &str) {
        self.add(field, format!("Required value: {detail}"));
    }

    /// Adds the problem `Too many: ...`: there are `count` of them, and that is more than are
    /// taken.
    pub fn too_many(&mut self, field: impl Into<String>, count: usize, limit: &str) {
        self.add(
            field,
            format!("Too many: {count}: must have at most {limit}"),
        );
    }

    /// Adds the problem `Duplicate value: ...`: the value is there already.
    pub fn duplicate(&mut self, field: impl Into<String>, value: &impl Serialize) {
        self.add(field, format!("Duplicate value: {}", json!(value)));
    }

    /// Adds the problem `Forbidden: ...`: the field cannot be used here.
    pub fn forbidden(&mut self, field: impl Into<String>, detail: &str) {
        self.add(field, format!("Forbidden: {detail}"));
    }

    /// Adds the problem `Unsupported value: ...`: the value is none of those that are allowed.
    pub fn unsupported(&mut self, field: impl Into<String>, value: &str, allowed: &[&str]) {
        let allowed: Vec<_> = allowed.iter().map(|each| json!(each).to_string()).collect();
        let allowed = allowed.join(", ");
        self.add(
            field,
            format!(
                "Unsupported value: {}: supported values: {allowed}",
                json!(value)
            ),
        );
    }

    /// Adds a warning: part of the object has no effect.
    pub fn warn(&mut self, field: impl fmt::Display, text: &str) {
        self.warnings.push(format!("{field}: {text}"));
    }

    /// Returns what is new compared with what was wrong before. An object that was admitted stays
    /// writable: its author may repair one thing after the other, and the control plane may take
    /// its finalizer off, whatever rule came later.
    #[must_use]
    pub fn since(mut self, before: &Self) -> Self {
        self.problems
            .retain(|problem| !before.problems.contains(problem));
        self
    }

    /// Returns all problems in one line, as Kubernetes joins them; `None` without any.
    pub fn refusal(&self) -> Option<String> {
        let texts: Vec<String> = self.problems.iter().map(Problem::to_string).collect();
        match texts.as_slice() {
            [] => None,
            [one] => Some(one.clone()),
            several => Some(format!("[{}]", several.join(", "))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_problem_stands_alone_and_several_in_brackets() {
        let mut found = Findings::default();
        assert_eq!(found.refusal(), None);
        found.invalid("spec.a", &-1, "must be at least 0");
        assert_eq!(
            found.refusal().unwrap(),
            "spec.a: Invalid value: -1: must be at least 0"
        );
        found.unsupported("spec.b", "x", &["", "y"]);
        found.duplicate("spec.c[1]", &"z");
        assert_eq!(
            found.refusal().unwrap(),
            r#"[spec.a: Invalid value: -1: must be at least 0, spec.b: Unsupported value: "x": supported values: "", "y", spec.c[1]: Duplicate value: "z"]"#
        );
    }

    #[test]
    fn what_was_wrong_before_is_not_held_against_a_change() {
        let (mut before, mut now) = (Findings::default(), Findings::default());
        before.required("spec.a", "it is");
        now.required("spec.a", "it is");
        assert_eq!(now.clone().since(&before).refusal(), None);
        now.required("spec.b", "it is");
        let refusal = now.since(&before).refusal();
        assert_eq!(refusal.unwrap(), "spec.b: Required value: it is");
    }
}
