//! Admission of customizations.

use crate::lua::{customization::Customization, engine::Engine, error::Error, limits::Limits};
use crate::operation::Operation;

/// Checks the scripts of a customization: each must be Lua, run to its end within the limits, and
/// define the function of its operation.
///
/// Each call sets up a Lua state, which takes about a millisecond.
///
/// # Errors
/// One for each script that does not, with customization, kind, operation and line.
pub fn check(customization: &Customization, limits: Limits) -> Result<(), Vec<Error>> {
    let engine = Engine::new(limits);
    let scripts = customization.present();
    let errors: Vec<Error> = scripts
        .filter_map(|(operation, text)| {
            let script = customization.script(operation, text, false);
            engine.define(&script).err()
        })
        .collect();
    if errors.is_empty() {
        Ok(())
    } else {
        Err(errors)
    }
}

/// An operation that another customization has a script for already.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{operation} of {api_version} {kind} is customized by ResourceInterpreterCustomization {other:?} already"
)]
pub struct Conflict {
    /// The operation.
    pub operation: Operation,
    /// API version of the kind.
    pub api_version: String,
    /// The kind.
    pub kind: String,
    /// Name of the other customization.
    pub other: String,
}

/// Compares a customization with those that exist; the one of the same name is the one that it
/// replaces. For `InterpretDependency` any number of scripts go together.
///
/// # Errors
/// The first operation that both have a script for.
pub fn conflict<'a>(
    new: &Customization,
    existing: impl IntoIterator<Item = &'a Customization>,
) -> Result<(), Conflict> {
    let others = existing.into_iter().filter(|other| {
        other.name != new.name && other.api_version == new.api_version && other.kind == new.kind
    });
    for other in others {
        let both = new.present().find(|(operation, _)| {
            *operation != Operation::InterpretDependency
                && other.present().any(|(one, _)| one == *operation)
        });
        if let Some((operation, _)) = both {
            return Err(Conflict {
                operation,
                api_version: new.api_version.clone(),
                kind: new.kind.clone(),
                other: other.name.clone(),
            });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn customization(name: &str, operation: Operation, text: &str) -> Customization {
        Customization::new(name, ("example.com/v1", "Widget"), &[(operation, text)])
    }

    fn errors(text: &str) -> Vec<String> {
        let one = customization("widgets", Operation::InterpretHealth, text);
        let errors = check(&one, Limits::default()).err().unwrap_or_default();
        errors.iter().map(ToString::to_string).collect()
    }

    const AT: &str =
        "InterpretHealth of example.com/v1 Widget by ResourceInterpreterCustomization \"widgets\"";

    #[test]
    fn a_script_is_refused_with_customization_kind_operation_and_line() {
        let fine = "function InterpretHealth(o) return true end";
        assert_eq!(errors(fine), Vec::<String>::new());
        for (text, expected) in [
            (
                "\nfunction InterpretHealth(",
                "line 2: <name> or '...' expected near '<eof>'",
            ),
            ("local x = 1\nx = = 2", "line 2: unexpected symbol near '='"),
            (
                "function Retain() end",
                "the script defines no function InterpretHealth",
            ),
            (
                "InterpretHealth = 1",
                "the script defines no function InterpretHealth",
            ),
            (
                "\n\nlocal x = nil + 1",
                "line 3: attempt to perform arithmetic on a nil value",
            ),
            (
                "\u{1b}Lua",
                "line 0: attempt to load a binary chunk (mode is 't')",
            ),
        ] {
            assert_eq!(errors(text), [format!("{AT}: {expected}")], "{text:?}");
        }
    }

    #[test]
    fn a_script_that_loops_outside_of_its_function_is_refused() {
        let limits = Limits {
            instructions: 10_000,
            ..Limits::default()
        };
        let one = customization("widgets", Operation::Retain, "while true do end");
        let errors = check(&one, limits).unwrap_err();
        assert!(matches!(errors[..], [Error::Limit { .. }]), "{errors:?}");
    }

    #[test]
    fn two_customizations_cannot_have_one_operation_of_a_kind() {
        let health = |name| customization(name, Operation::InterpretHealth, "x");
        let found = conflict(&health("new"), &[health("new"), health("old")]).unwrap_err();
        assert_eq!(
            found.to_string(),
            "InterpretHealth of example.com/v1 Widget is customized by ResourceInterpreterCustomization \"old\" already"
        );
        let dependencies = |name| customization(name, Operation::InterpretDependency, "x");
        assert_eq!(
            conflict(&dependencies("new"), &[dependencies("old")]),
            Ok(())
        );
        assert_eq!(conflict(&health("new"), &[dependencies("old")]), Ok(()));
        let other = Customization {
            kind: "Gadget".to_owned(),
            ..health("old")
        };
        assert_eq!(conflict(&health("new"), &[other]), Ok(()));
    }
}
