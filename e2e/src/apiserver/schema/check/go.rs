//! Values as Go's `%#v` prints them, for the few whose message is worth matching to the letter.

use serde_json::Value;

use crate::apiserver::schema::error::{FieldError, Reason};

/// An `Invalid value` error whose value is printed by Go.
pub fn invalid(path: &str, shown: &str, detail: &str) -> FieldError {
    FieldError {
        field: path.to_owned(),
        reason: Reason::Invalid,
        message: format!("Invalid value: {shown}: {detail}"),
    }
}

/// `map[string]string{"app":"web"}`
pub fn labels(map: &Value) -> String {
    let Some(map) = map.as_object() else {
        return "map[string]string(nil)".to_owned();
    };
    let mut pairs: Vec<String> = map
        .iter()
        .map(|(key, value)| format!("{key:?}:{value}"))
        .collect();
    pairs.sort();
    format!("map[string]string{{{}}}", pairs.join(", "))
}

/// `v1.LabelSelector{MatchLabels:…, MatchExpressions:…}`
pub fn selector(selector: &Value) -> String {
    let expressions = match selector["matchExpressions"].as_array() {
        None => "[]v1.LabelSelectorRequirement(nil)".to_owned(),
        Some(list) => {
            let shown: Vec<String> = list
                .iter()
                .map(|e| {
                    let values = match e["values"].as_array() {
                        None => "[]string(nil)".to_owned(),
                        Some(values) => {
                            let values: Vec<String> = values.iter().map(Value::to_string).collect();
                            format!("[]string{{{}}}", values.join(", "))
                        }
                    };
                    format!(
                        "v1.LabelSelectorRequirement{{Key:{}, Operator:{}, Values:{values}}}",
                        e["key"], e["operator"]
                    )
                })
                .collect();
            format!("[]v1.LabelSelectorRequirement{{{}}}", shown.join(", "))
        }
    };
    format!(
        "v1.LabelSelector{{MatchLabels:{}, MatchExpressions:{expressions}}}",
        labels(&selector["matchLabels"])
    )
}
