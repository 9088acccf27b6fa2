//! Columns of custom resources: `additionalPrinterColumns`, or the age where there are none.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{age, definition, path::Path};

/// One column.
#[derive(Debug, Clone)]
pub struct CustomColumn {
    name: String,
    kind: String,
    format: String,
    description: String,
    priority: i64,
    path: Option<Path>,
}

/// Returns the columns of one version, in order.
pub fn columns(crd: &Value, version: &str) -> Vec<CustomColumn> {
    let versions = crd["spec"]["versions"].as_array().into_iter().flatten();
    let declared: Vec<CustomColumn> = versions
        .filter(|v| v["name"] == version)
        .flat_map(|v| {
            v["additionalPrinterColumns"]
                .as_array()
                .into_iter()
                .flatten()
        })
        .map(CustomColumn::read)
        .collect();
    if !declared.is_empty() {
        return declared;
    }
    let age = json!({"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"});
    vec![CustomColumn::read(&age)]
}

impl CustomColumn {
    fn read(column: &Value) -> Self {
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

    /// Returns the column as it stands in the head of a table.
    pub fn definition(&self) -> Value {
        definition(
            &self.name,
            &self.kind,
            &self.format,
            &self.description,
            self.priority,
        )
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
