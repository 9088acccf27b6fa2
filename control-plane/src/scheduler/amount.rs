//! Amounts of resources in the units in which capacity is computed. To be replaced by `muster_shared::quantity`.

use muster_shared::api::cluster::ResourceSummary;
use muster_shared::k8s::Quantity;

const NANO: i128 = 1_000_000_000;

/// The amount of a resource: thousandths of a core for CPU, whole units for all else; fractions are rounded up.
pub fn of(name: &str, quantity: &Quantity) -> i64 {
    scale(name, nanos(&quantity.0))
}

/// What is free of a resource.
pub fn free(summary: &ResourceSummary, name: &str) -> i64 {
    let get = |map: &std::collections::BTreeMap<String, Quantity>| {
        map.get(name).map_or(0, |q| nanos(&q.0))
    };
    scale(
        name,
        get(&summary.allocatable) - get(&summary.allocated) - get(&summary.allocating),
    )
}

fn scale(name: &str, nanos: i128) -> i64 {
    let unit = if name == "cpu" { NANO / 1000 } else { NANO };
    // Away from zero, as Kubernetes rounds.
    let rounded = (nanos.abs() + unit - 1) / unit * nanos.signum();
    i64::try_from(rounded).unwrap_or(if rounded < 0 { i64::MIN } else { i64::MAX })
}

fn nanos(text: &str) -> i128 {
    let end = text
        .find(|c: char| !(c.is_ascii_digit() || c == '.' || c == '-' || c == '+'))
        .unwrap_or(text.len());
    let (number, suffix) = text.split_at(end);
    let unit: i128 = match suffix {
        "n" => 1,
        "u" => 1000,
        "m" => 1_000_000,
        "" => NANO,
        "k" => NANO * 1000,
        "M" => NANO * 1_000_000,
        "G" => NANO * NANO,
        "T" => NANO * NANO * 1000,
        "P" => NANO * NANO * 1_000_000,
        "E" => NANO * NANO * NANO,
        "Ki" => NANO << 10,
        "Mi" => NANO << 20,
        "Gi" => NANO << 30,
        "Ti" => NANO << 40,
        "Pi" => NANO << 50,
        "Ei" => NANO << 60,
        _ => return 0,
    };
    let negative = number.starts_with('-');
    let number = number.trim_start_matches(['-', '+']);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let mut result = whole.parse::<i128>().unwrap_or(0) * unit;
    let mut scale = 10;
    for digit in fraction.chars().filter_map(|c| c.to_digit(10)) {
        result += i128::from(digit) * unit / scale;
        scale *= 10;
    }
    if negative { -result } else { result }
}
