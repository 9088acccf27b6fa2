//! The canonical spelling of quantities, which is what a server stores.

/// What Go answers when it cannot read a quantity.
const MALFORMED: &str =
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";

const DECIMAL: &[(&str, i32)] = &[
    ("n", -9),
    ("u", -6),
    ("m", -3),
    ("", 0),
    ("k", 3),
    ("M", 6),
    ("G", 9),
    ("T", 12),
    ("P", 15),
    ("E", 18),
];
const BINARY: &[&str] = &["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];

/// `text` in canonical form: no fraction, the largest suffix of its family that loses nothing
/// (`1.5Gi` → `1536Mi`, `0.5` → `500m`, `1000m` → `1`).
pub fn canonical(text: &str) -> Result<String, String> {
    let malformed = || MALFORMED.to_owned();
    let (negative, digits) = match text.as_bytes().first() {
        Some(b'-') => (true, &text[1..]),
        Some(b'+') => (false, &text[1..]),
        _ => (false, text),
    };
    let end = digits
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(digits.len());
    let (number, suffix) = digits.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') || number.len() > 30 {
        return Err(malformed());
    }
    let mantissa: i128 = format!("{whole}{fraction}")
        .parse()
        .map_err(|_| malformed())?;
    let scale = i32::try_from(fraction.len()).map_err(|_| malformed())?;
    let printed = if let Some(power) = BINARY.iter().skip(1).position(|s| *s == suffix) {
        binary(mantissa, scale, power + 1).ok_or_else(malformed)?
    } else if let Some((_, exponent)) = DECIMAL.iter().find(|(s, _)| *s == suffix) {
        decimal(mantissa, exponent - scale, false)
    } else {
        let exponent = suffix
            .strip_prefix(['e', 'E'])
            .and_then(|e| e.parse::<i32>().ok());
        let exponent = exponent.filter(|e| e.abs() <= 18).ok_or_else(malformed)?;
        decimal(mantissa, exponent - scale, true)
    };
    Ok(if negative && printed != "0" {
        format!("-{printed}")
    } else {
        printed
    })
}

/// `mantissa` × 10^-scale × 1024^power.
fn binary(mantissa: i128, scale: i32, power: usize) -> Option<String> {
    let value = mantissa.checked_mul(1024_i128.checked_pow(u32::try_from(power).ok()?)?)?;
    let unit = 10_i128.pow(u32::try_from(scale).ok()?);
    if value % unit != 0 {
        // A fraction of a byte: Go falls back to the decimal family.
        return Some(decimal(value, -scale, false));
    }
    let mut value = value / unit;
    if value < 1024 {
        return Some(decimal(value, 0, false));
    }
    let mut power = 0;
    while value != 0 && value % 1024 == 0 && power + 1 < BINARY.len() {
        value /= 1024;
        power += 1;
    }
    Some(format!("{value}{}", BINARY[power]))
}

/// `mantissa` × 10^exponent, rounded up to nanos.
fn decimal(mut mantissa: i128, mut exponent: i32, scientific: bool) -> String {
    if mantissa == 0 {
        return "0".to_owned();
    }
    while exponent < -9 {
        mantissa = mantissa / 10 + i128::from(mantissa % 10 != 0);
        exponent += 1;
    }
    while mantissa % 10 == 0 {
        mantissa /= 10;
        exponent += 1;
    }
    while exponent.rem_euclid(3) != 0 || exponent > 18 {
        mantissa *= 10;
        exponent -= 1;
    }
    if scientific {
        return if exponent == 0 {
            mantissa.to_string()
        } else {
            format!("{mantissa}e{exponent}")
        };
    }
    let suffix = DECIMAL
        .iter()
        .find(|(_, e)| *e == exponent)
        .map_or("", |(s, _)| s);
    format!("{mantissa}{suffix}")
}

#[cfg(test)]
mod tests {
    use super::canonical;

    #[test]
    fn quantities_take_their_canonical_spelling() {
        for (given, expected) in [
            ("1", "1"),
            ("0.5", "500m"),
            ("1000m", "1"),
            ("1.5Gi", "1536Mi"),
            ("1024Mi", "1Gi"),
            ("100m", "100m"),
            ("1e3", "1e3"),
            ("12e6", "12e6"),
            ("1000", "1k"),
            ("128Mi", "128Mi"),
            ("0", "0"),
            ("0Gi", "0"),
            ("-1.5", "-1500m"),
            ("500Ki", "500Ki"),
            ("1023", "1023"),
            ("1500k", "1500k"),
            ("1.0", "1"),
            ("110", "110"),
            ("+3", "3"),
            ("0.1n", "1n"),
            ("1G", "1G"),
        ] {
            assert_eq!(canonical(given).as_deref(), Ok(expected), "{given}");
        }
    }

    #[test]
    fn other_text_is_refused_in_the_words_of_the_server() {
        for given in ["", "x", "1.2.3", "1 Gi", "1gi", "Mi", "--1"] {
            assert!(
                canonical(given).is_err_and(|e| e.starts_with("quantities must match")),
                "{given}"
            );
        }
    }
}
