//! What is wrong with one field, in the words of the real API server.

use std::fmt;

use serde_json::Value;

/// The `reason` of a cause in an `Invalid` status.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Reason {
    /// `FieldValueNotFound`
    NotFound,
    /// `FieldValueRequired`
    Required,
    /// `FieldValueDuplicate`
    Duplicate,
    /// `FieldValueInvalid`
    Invalid,
    /// `FieldValueNotSupported`
    NotSupported,
    /// `FieldValueForbidden`
    Forbidden,
    /// `FieldValueTooLong`
    TooLong,
    /// `FieldValueTooMany`
    TooMany,
    /// `FieldValueTypeInvalid`
    TypeInvalid,
}

impl Reason {
    /// Returns the reason as it is spelled on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NotFound => "FieldValueNotFound",
            Self::Required => "FieldValueRequired",
            Self::Duplicate => "FieldValueDuplicate",
            Self::Invalid => "FieldValueInvalid",
            Self::NotSupported => "FieldValueNotSupported",
            Self::Forbidden => "FieldValueForbidden",
            Self::TooLong => "FieldValueTooLong",
            Self::TooMany => "FieldValueTooMany",
            Self::TypeInvalid => "FieldValueTypeInvalid",
        }
    }
}

/// One thing that is wrong: a cause of an `Invalid` status (`reason`, `message`, `field`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldError {
    /// Path, `spec.template.spec.containers[0].image`.
    pub field: String,
    /// Kind of fault.
    pub reason: Reason,
    /// Message without the path, `Invalid value: "x": must be …`.
    pub message: String,
}

impl FieldError {
    /// Returns `Invalid value: <value>: <detail>`.
    pub fn invalid(field: impl Into<String>, value: &Value, detail: impl fmt::Display) -> Self {
        Self::new(
            field,
            Reason::Invalid,
            format!("Invalid value: {}: {detail}", shown(value)),
        )
    }

    /// Returns `Invalid value: <detail>`, where the value is too long to be quoted.
    pub fn omitted(field: impl Into<String>, detail: impl fmt::Display) -> Self {
        Self::new(field, Reason::Invalid, format!("Invalid value: {detail}"))
    }

    /// Returns `Required value` or `Required value: <detail>`.
    pub fn required(field: impl Into<String>, detail: &str) -> Self {
        let message = if detail.is_empty() {
            "Required value".to_owned()
        } else {
            format!("Required value: {detail}")
        };
        Self::new(field, Reason::Required, message)
    }

    /// Returns `Duplicate value: <value>`.
    pub fn duplicate(field: impl Into<String>, value: &Value) -> Self {
        Self::new(
            field,
            Reason::Duplicate,
            format!("Duplicate value: {}", shown(value)),
        )
    }

    /// Returns `Unsupported value: <value>: supported values: "A", "B"`.
    pub fn unsupported(field: impl Into<String>, value: &Value, allowed: &[&str]) -> Self {
        let allowed: Vec<String> = allowed.iter().map(|a| format!("{a:?}")).collect();
        let mut message = format!("Unsupported value: {}", shown(value));
        if !allowed.is_empty() {
            message.push_str(": supported values: ");
            message.push_str(&allowed.join(", "));
        }
        Self::new(field, Reason::NotSupported, message)
    }

    /// Returns `Forbidden: <detail>`.
    pub fn forbidden(field: impl Into<String>, detail: impl fmt::Display) -> Self {
        Self::new(field, Reason::Forbidden, format!("Forbidden: {detail}"))
    }

    /// Returns `Too long: may not be more than N bytes`.
    pub fn too_long(field: impl Into<String>, max: usize) -> Self {
        Self::new(
            field,
            Reason::TooLong,
            format!("Too long: may not be more than {max} bytes"),
        )
    }

    /// Returns `Too many: N: must have at most M items`.
    pub fn too_many(field: impl Into<String>, actual: usize, max: usize) -> Self {
        let message = format!("Too many: {actual}: must have at most {max} items");
        Self::new(field, Reason::TooMany, message)
    }

    /// Returns `Not found: <value>`.
    pub fn not_found(field: impl Into<String>, value: &Value) -> Self {
        Self::new(
            field,
            Reason::NotFound,
            format!("Not found: {}", shown(value)),
        )
    }

    /// Returns `Invalid value: "string": <detail>` as of a schema: the value shown is the type that
    /// was found.
    pub fn type_invalid(
        field: impl Into<String>,
        found: &Value,
        detail: impl fmt::Display,
    ) -> Self {
        let message = format!("Invalid value: {}: {detail}", shown(found));
        Self::new(field, Reason::TypeInvalid, message)
    }

    fn new(field: impl Into<String>, reason: Reason, message: String) -> Self {
        Self {
            field: field.into(),
            reason,
            message,
        }
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.message)
    }
}

/// Returns all errors as the message of a status has them: alone as it is, several in brackets.
pub fn aggregate(errors: &[FieldError]) -> String {
    let mut texts: Vec<String> = Vec::new();
    for error in errors {
        let text = error.to_string();
        if !texts.contains(&text) {
            texts.push(text);
        }
    }
    match texts.as_slice() {
        [only] => only.clone(),
        many => format!("[{}]", many.join(", ")),
    }
}

/// Values as messages quote them: as JSON, text in quotes.
fn shown(value: &Value) -> String {
    value.to_string()
}
