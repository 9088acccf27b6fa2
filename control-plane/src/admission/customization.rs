//! Admission of ResourceInterpreterCustomization: what its scripts are, and whether another
//! customization has one for the same operation.

use std::time::Duration;

use muster_interpreter::lua::{self, Customization as Scripts, Error as ScriptError, Limits};
use muster_shared::api::interpreter::{
    ResourceInterpreterCustomization, ResourceInterpreterCustomizationSpec,
};

use super::Object;
use super::problem::Findings;

/// Longest part of a script that a refusal quotes, in characters.
const QUOTED: usize = 80;

/// Limits within which a script defines its functions. All eight together take less than the three
/// seconds after which the API server gives up.
const LIMITS: Limits = Limits {
    memory: 16 << 20,
    instructions: 1_000_000,
    time: Duration::from_millis(250),
};

/// A customization.
pub type Customization = Object<ResourceInterpreterCustomizationSpec>;

/// Returns everything that is wrong with a customization. `others` are those that exist.
pub fn check(customization: &Customization, others: &[Scripts]) -> Findings {
    let mut found = Findings::default();
    let target = &customization.spec.target;
    for (field, value) in [("apiVersion", &target.api_version), ("kind", &target.kind)] {
        if value.is_empty() {
            found.required(
                format!("spec.target.{field}"),
                "names the kind to interpret",
            );
        }
    }
    let mut object = ResourceInterpreterCustomization {
        metadata: customization.metadata.clone(),
        ..ResourceInterpreterCustomization::default()
    };
    object.spec = customization.spec.clone();
    let one = Scripts::of(&object);
    for error in lua::check(&one, LIMITS).err().unwrap_or_default() {
        let operation = error.source_of_script().operation;
        let field = format!("spec.customizations.{}.luaScript", operation.field());
        let script = one.scripts.iter().find(|(of, _)| *of == operation);
        let script = script.map_or("", |(_, script)| script.as_str());
        let (line, detail) = match &error {
            ScriptError::Syntax { line, message, .. }
            | ScriptError::Script { line, message, .. } => {
                (*line, format!("line {line}: {message}"))
            }
            ScriptError::MissingFunction { function, .. } => {
                (0, format!("the script defines no function {function}"))
            }
            ScriptError::Limit { limit, .. } => (
                0,
                format!(
                    "the script was stopped at its limit of {limit} before it had defined its function"
                ),
            ),
            other => (0, other.to_string()),
        };
        found.invalid(field, &quoted(script, line), &detail);
    }
    if let Err(conflict) = lua::conflict(&one, others) {
        let field = conflict.operation.field();
        found.forbidden(
            format!("spec.customizations.{field}"),
            &conflict.to_string(),
        );
    }
    found
}

/// Returns the line of a script, or its beginning.
fn quoted(script: &str, line: u32) -> String {
    let line = usize::try_from(line).unwrap_or_default().saturating_sub(1);
    let text = script.lines().nth(line).unwrap_or_default();
    text.chars().take(QUOTED).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn customization(name: &str, customizations: &Value) -> Customization {
        let object = json!({ "metadata": { "name": name }, "spec": {
            "target": { "apiVersion": "example.com/v1", "kind": "Widget" },
            "customizations": customizations,
        } });
        serde_json::from_value(object).unwrap()
    }

    fn health(script: &str) -> Value {
        json!({ "healthInterpretation": { "luaScript": script } })
    }

    #[test]
    fn a_script_is_refused_with_its_field_and_line() {
        let at = "spec.customizations.healthInterpretation.luaScript: Invalid value: ";
        for (script, expected) in [
            ("function InterpretHealth(o) return true end", None),
            ("", None),
            (
                "local a = 1\nfunction InterpretHealth( o",
                Some("\"function InterpretHealth( o\": line 2: ')' expected near '<eof>'"),
            ),
            (
                "function Health() end",
                Some("\"function Health() end\": the script defines no function InterpretHealth"),
            ),
        ] {
            let found = check(&customization("w", &health(script)), &[]).refusal();
            let expected = expected.map(|expected| format!("{at}{expected}"));
            assert_eq!(found, expected, "{script}");
        }
        let endless = check(&customization("w", &health("while true do end")), &[]);
        assert!(endless.refusal().unwrap().contains("stopped at its limit"));
        let nothing = check(&Customization::default(), &[]).refusal().unwrap();
        assert!(
            nothing.contains("spec.target.kind: Required value"),
            "{nothing}"
        );
    }

    #[test]
    fn an_operation_that_another_customization_has_is_refused_and_one_may_be_changed() {
        let script = health("function InterpretHealth(o) return true end");
        let held = Scripts {
            name: "held".to_owned(),
            api_version: "example.com/v1".to_owned(),
            kind: "Widget".to_owned(),
            scripts: vec![(
                muster_interpreter::Operation::InterpretHealth,
                "x".to_owned(),
            )],
        };
        let others = [held];
        assert_eq!(
            check(&customization("held", &script), &others).refusal(),
            None
        );
        let refusal = check(&customization("new", &script), &others).refusal();
        let refusal = refusal.unwrap_or_default();
        let expected = "spec.customizations.healthInterpretation: Forbidden: ";
        assert!(refusal.starts_with(expected), "{refusal}");
        assert!(refusal.contains("\"held\" already"), "{refusal}");
    }
}
