//! Quantities, against a second reader that computes with fractions.

use muster_fuzz::{Fuzz, sentence};
use muster_quantity::Quantity;

use crate::MEMORY;

const WORDS: &[&str] = &[
    "0",
    "1",
    "12",
    "999",
    "1000",
    "1024",
    "1048576",
    ".",
    ".5",
    "0.1",
    "1.024",
    "n",
    "u",
    "m",
    "k",
    "M",
    "G",
    "T",
    "P",
    "E",
    "Ki",
    "Mi",
    "Gi",
    "Ti",
    "Pi",
    "Ei",
    "e3",
    "E3",
    "e-9",
    "e+6",
    "e",
    "i",
    "+",
    "-",
    " ",
    "0000000000",
    "8Ei",
    "9223372036854775807",
];

/// Returns the amount of a short text in nano units, and whether a part of it is finer. The rules
/// are those of the documentation of `Quantity` in `k8s.io/apimachinery`.
fn amount(text: &str) -> Option<(i128, bool)> {
    if text.is_empty() {
        return None;
    }
    let (sign, rest) = match text.strip_prefix('-') {
        Some(rest) => (-1, rest),
        None => (1, text.strip_prefix('+').unwrap_or(text)),
    };
    let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.');
    let (number, suffix) = rest.split_at(end.unwrap_or(rest.len()));
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let digits = format!("0{whole}{fraction}");
    if digits.len() > 10 || fraction.contains('.') {
        return None;
    }
    let ten = |power: u32| 10_i128.pow(power);
    let factor = match suffix {
        "n" => 1,
        "u" => ten(3),
        "m" => ten(6),
        "" => ten(9),
        "k" => ten(12),
        "M" => ten(15),
        "G" => ten(18),
        "T" => ten(21),
        "P" => ten(24),
        "E" => ten(27),
        "Ki" => 1024 * ten(9),
        "Mi" => 1024_i128.pow(2) * ten(9),
        "Gi" => 1024_i128.pow(3) * ten(9),
        "Ti" => 1024_i128.pow(4) * ten(9),
        _ => return None,
    };
    let product = digits.parse::<i128>().ok()?.checked_mul(factor)?;
    let divisor = ten(u32::try_from(fraction.len()).ok()?);
    Some((sign * (product / divisor), product % divisor != 0))
}

#[test]
fn a_quantity_is_read_as_a_second_reader_reads_it_and_as_it_is_printed() {
    Fuzz::new("quantity")
        .words(WORDS)
        .generator(|random| sentence(WORDS, random))
        .executions(20_000)
        .longest(200)
        .memory(MEMORY)
        .run_text(|text| {
            let Ok(quantity) = text.parse::<Quantity>() else {
                assert_eq!(amount(text), None, "{text:?} is refused");
                return "refused".to_owned();
            };
            if let Some((nano, is_finer)) = amount(text) {
                let away = if text.starts_with('-') { -1 } else { 1 };
                let cap = i128::from(i64::MAX) * 1_000_000_000;
                let expected = nano + if is_finer { away } else { 0 };
                let expected = if text.contains('i') {
                    expected.clamp(-cap, cap)
                } else {
                    expected
                };
                assert_eq!(quantity.nano(), expected, "{text:?}");
            }
            let printed = quantity.to_string();
            let again: Quantity = printed.parse().unwrap();
            assert_eq!(
                again.nano(),
                quantity.nano(),
                "{text:?} is printed {printed}"
            );
            assert_eq!(again.to_string(), printed, "{text:?}");
            for sum in [quantity + again, quantity - again, -quantity] {
                let printed = sum.to_string();
                let again: Quantity = printed.parse().unwrap();
                let cap = u128::from(i64::MAX.unsigned_abs()) * 1_000_000_000;
                if sum.nano().unsigned_abs() <= cap {
                    assert_eq!(again, sum, "{printed}");
                }
                _ = (sum.value(), sum.milli_value(), sum.sign());
            }
            let form = printed.trim_start_matches(|c: char| c.is_ascii_digit() || c == '-');
            format!("{:?} {form} from {text}", quantity.format())
        });
}
