//! Quantities: reading, rounding, printing, adding.

use muster_shared::k8s::Quantity as Wire;
use muster_shared::quantity::{Format, Quantity};
use muster_vectors::{Case, Difference};
use serde_json::{Value, json};

use crate::replay;

#[test]
fn quantities_compute_as_in_kubernetes() {
    replay("quantity", |case| {
        let text = |name: &str| case.input[name].as_str().unwrap_or_default().to_owned();
        match case.input["op"].as_str() {
            Some("parse") => compare(case, text("text").parse().ok()),
            Some("json") => compare(case, decode(&text("text"))),
            Some("pair") => pair(case, text("a").parse().unwrap(), text("b").parse().unwrap()),
            other => Err(format!("unknown operation {other:?}").into()),
        }
    });
}

/// Reads a quantity from a JSON token: a number counts as its own text.
fn decode(token: &str) -> Option<Quantity> {
    if token == "null" {
        return Some(Quantity::ZERO);
    }
    let quoted = token.strip_prefix('"').and_then(|it| it.strip_suffix('"'));
    Quantity::from_wire(&Wire(quoted.unwrap_or(token).to_owned())).ok()
}

fn compare(case: &Case, quantity: Option<Quantity>) -> Result<(), Difference> {
    let expected = &case.output;
    let Some(quantity) = quantity else {
        return if expected["error"] == json!(true) {
            Ok(())
        } else {
            Err("was refused".into())
        };
    };
    let format = match quantity.format() {
        Format::DecimalSi if case.input["text"] == "null" => "",
        Format::DecimalSi => "DecimalSI",
        Format::BinarySi => "BinarySI",
        Format::DecimalExponent => "DecimalExponent",
    };
    let actual = json!({
        "canonical": spelled(&expected["canonical"], quantity),
        "decimal": expected["decimal"].as_str().filter(|text| nano(text) == Some(quantity.nano())),
        "format": format,
        "milliValue": quantity.milli_value().to_string(),
        "sign": quantity.sign(),
        "value": quantity.value().to_string(),
    });
    if *expected == actual {
        Ok(())
    } else {
        Err(Difference::new(expected, actual))
    }
}

/// Returns how the reference spells a quantity. It prints some inputs as they were written (`+1`,
/// `5.`, `0012`). The amount must be the same then; whatever it prints anew, we print alike.
fn spelled(expected: &Value, quantity: Quantity) -> Value {
    let printed = quantity.to_string();
    let kept = expected
        .as_str()
        .and_then(|text| text.parse::<Quantity>().ok());
    match kept {
        Some(kept) if kept == quantity && kept.to_string() == printed => expected.clone(),
        _ => printed.into(),
    }
}

/// Returns a decimal number in nano units.
fn nano(decimal: &str) -> Option<i128> {
    let (whole, fraction) = decimal.split_once('.').unwrap_or((decimal, ""));
    format!("{whole}{fraction:0<9}").parse().ok()
}

fn pair(case: &Case, a: Quantity, b: Quantity) -> Result<(), Difference> {
    let actual = json!({
        "add": (a + b).to_string(),
        "sub": (a - b).to_string(),
        "cmp": a.cmp(&b) as i32,
        "equal": a == b,
    });
    if case.output == actual {
        return Ok(());
    }
    Err(Difference::new(&case.output, actual))
}
