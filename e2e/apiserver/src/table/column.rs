//! One column: a path into the object, and the type of what is there.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{age, path::Path};

/// One column.
#[derive(Debug, Clone)]
pub struct Column {
    name: String,
    kind: String,
    format: String,
    description: String,
    priority: i64,
    path: Option<Path>,
}

impl Column {
    /// Returns the column of the age, which kinds have that declare none.
    pub fn age() -> Self {
        let path = ".metadata.creationTimestamp";
        Self::read(&json!({ "name": "Age", "type": "date", "jsonPath": path }))
    }

    /// Reads an entry of `additionalPrinterColumns`.
    pub fn read(column: &Value) -> Self {
        let text = |name: &str| column[name].as_str().unwrap_or_default().to_owned();
        let mut description = text("description");
        if description.is_empty() {
            let path = text("jsonPath");
            description = format!("Custom resource definition column (in JSONPath format): {path}");
        }
        Self {
            name: text("name"),
            kind: text("type"),
            format: text("format"),
            description,
            priority: column["priority"].as_i64().unwrap_or(0),
            path: Path::parse(&text("jsonPath")),
        }
    }

    /// Returns the column as it is in the head of a table.
    pub fn definition(&self) -> Value {
        json!({
            "name": self.name,
            "type": self.kind,
            "format": self.format,
            "description": self.description,
            "priority": self.priority,
        })
    }

    /// Returns the cell of one object; `null` where there is nothing, or nothing of the column's
    /// type.
    pub fn cell(&self, object: &Value, now: Timestamp) -> Value {
        let found = self
            .path
            .as_ref()
            .map(|path| path.find(object))
            .unwrap_or_default();
        let Some(value) = found.first().filter(|value| !value.is_null()) else {
            return Value::Null;
        };
        match self.kind.as_str() {
            "integer" => {
                #[allow(clippy::cast_possible_truncation)]
                let whole = value.as_i64().or_else(|| value.as_f64().map(|n| n as i64));
                whole.map_or(Value::Null, Value::from)
            }
            "number" => value.as_f64().map_or(Value::Null, Value::from),
            "boolean" => value.as_bool().map_or(Value::Null, Value::from),
            "date" if value.is_string() => age::since(value, now).into(),
            "string" => match value {
                Value::String(_) => (*value).clone(),
                other => other.to_string().into(),
            },
            _ => Value::Null,
        }
    }
}
