//! Resource quantities of Kubernetes (`500m`, `16Gi`, `12e6`), computed exactly.
//!
//! A [`Quantity`] counts nano units in 128 bits: sums neither round nor wrap, where Go's fall back
//! to arbitrary precision; amounts above 1.7e29 units saturate. Parsing, rounding and printing
//! follow `k8s.io/apimachinery/pkg/api/resource`: finer fractions than nano are rounded away from
//! zero, binary notation is limited to 2^63-1, and a sum has the notation of its first operand.
//!
//! ```
//! use muster_quantity::{ParseError, Quantity};
//!
//! let limit: Quantity = "1500m".parse()?;
//! let request: Quantity = "0.5".parse()?;
//! assert_eq!((limit + request).to_string(), "2");
//! assert_eq!((limit - request).to_string(), "1");
//! assert!("2Gi".parse::<Quantity>()? > "2G".parse()?);
//! assert_eq!("1024Mi".parse::<Quantity>()?, "1Gi".parse()?); // compared by amount
//! assert_eq!(limit.value(), 2); // whole units, rounded away from zero
//! assert!("1.5 Gi".parse::<Quantity>().is_err());
//! # Ok::<(), ParseError>(())
//! ```

use std::{
    cmp::Ordering,
    fmt,
    iter::Sum,
    ops::{Add, AddAssign, Neg, Sub, SubAssign},
    str::FromStr,
};

use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Wire;

#[cfg(test)]
mod tests;

const NANO: i128 = 1_000_000_000;
const MILLI_IN_NANO: i128 = 1_000_000;

/// Decimal suffixes with their powers of ten.
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

/// Binary suffixes; each is 1024 times the one before.
const BINARY: &[&str] = &["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];

/// Notation of a quantity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// Decimal suffixes, powers of 1000: `1500m`, `2k`.
    #[default]
    DecimalSi,
    /// Binary suffixes, powers of 1024: `512Mi`.
    BinarySi,
    /// Decimal exponents: `12e6`.
    DecimalExponent,
}

/// Error: the string is not a quantity.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("quantity {0:?} is not a number with a suffix that Kubernetes knows")]
pub struct ParseError(String);

/// Exact amount and its notation. Equality and order compare amounts only.
#[derive(Clone, Copy, Debug, Default)]
pub struct Quantity {
    nano: i128,
    format: Format,
}

impl Quantity {
    /// The amount 0.
    pub const ZERO: Self = Self {
        nano: 0,
        format: Format::DecimalSi,
    };

    /// Makes a quantity of whole units.
    pub const fn units(units: i64, format: Format) -> Self {
        Self {
            nano: units as i128 * NANO,
            format,
        }
    }

    /// Makes a quantity of nano units.
    pub const fn from_nano(nano: i128, format: Format) -> Self {
        Self { nano, format }
    }

    /// Returns the amount in nano units.
    pub const fn nano(self) -> i128 {
        self.nano
    }

    /// Returns the notation.
    pub const fn format(self) -> Format {
        self.format
    }

    /// Returns whether the amount is 0.
    pub const fn is_zero(self) -> bool {
        self.nano == 0
    }

    /// Returns -1, 0 or 1.
    pub const fn sign(self) -> i32 {
        self.nano.signum() as i32
    }

    /// Returns whole units, rounded away from zero as by Go's `Value`, and saturating where that
    /// wraps.
    pub fn value(self) -> i64 {
        saturate(divide_away(self.nano, NANO))
    }

    /// Returns units as a number for people, such as that of a gauge.
    #[expect(clippy::cast_precision_loss, reason = "a gauge is read by people")]
    pub fn as_f64(self) -> f64 {
        self.nano as f64 / 1e9
    }

    /// Returns thousandths, rounded away from zero as by Go's `MilliValue`, and saturating where
    /// that wraps.
    pub fn milli_value(self) -> i64 {
        saturate(divide_away(self.nano, MILLI_IN_NANO))
    }

    /// Parses a quantity of the API; the notation is kept, the spelling is not. White space around
    /// it has no meaning there.
    pub fn from_wire(wire: &Wire) -> Result<Self, ParseError> {
        wire.0.trim().parse()
    }

    /// Returns the quantity for the API, in canonical form.
    pub fn to_wire(self) -> Wire {
        Wire(self.to_string())
    }
}

/// Divides, rounding away from zero.
fn divide_away(number: i128, by: i128) -> i128 {
    number / by + if number % by == 0 { 0 } else { number.signum() }
}

fn saturate(number: i128) -> i64 {
    i64::try_from(number).unwrap_or(if number < 0 { i64::MIN } else { i64::MAX })
}

// === parsing ===

impl FromStr for Quantity {
    type Err = ParseError;

    /// Reads what Kubernetes reads, including a number without digits (`m`), which is zero there.
    fn from_str(text: &str) -> Result<Self, ParseError> {
        parse(text).ok_or_else(|| ParseError(text.to_owned()))
    }
}

fn parse(text: &str) -> Option<Quantity> {
    if text.is_empty() {
        return None;
    }
    let (negative, rest) = match text.as_bytes()[0] {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let (whole, rest) = digits(rest);
    let (fraction, suffix) = rest.strip_prefix('.').map_or(("", rest), digits);

    let (nano, format) = if let Some(power) = BINARY.iter().position(|known| *known == suffix) {
        let nano = binary_nano(
            whole,
            fraction,
            1024_i128.pow(u32::try_from(power).ok()? + 1),
        );
        // Less than one is written in thousandths anyway.
        (
            nano,
            if 0 < nano && nano < NANO {
                Format::DecimalSi
            } else {
                Format::BinarySi
            },
        )
    } else {
        let (exponent, format) = decimal_exponent(suffix)?;
        (decimal_nano(whole, fraction, exponent), format)
    };
    Some(Quantity {
        nano: if negative { -nano } else { nano },
        format,
    })
}

/// Splits the leading digits off.
fn digits(text: &str) -> (&str, &str) {
    text.split_at(text.bytes().take_while(u8::is_ascii_digit).count())
}

fn decimal_exponent(suffix: &str) -> Option<(i32, Format)> {
    if let Some((_, exponent)) = DECIMAL.iter().find(|(known, _)| *known == suffix) {
        return Some((*exponent, Format::DecimalSi));
    }
    let exponent = suffix.strip_prefix(['e', 'E'])?;
    Some((exponent.parse().ok()?, Format::DecimalExponent))
}

/// Returns `whole.fraction * 10^exponent` in nano units, rounded up, saturating.
fn decimal_nano(whole: &str, fraction: &str, exponent: i32) -> i128 {
    let number = [whole, fraction].concat();
    let number = number.trim_start_matches('0');
    if number.is_empty() {
        return 0;
    }
    let places = i64::try_from(fraction.len()).unwrap_or(i64::MAX);
    let shift = i64::from(exponent) + 9 - places;
    if shift >= 0 {
        let power = u32::try_from(shift)
            .ok()
            .and_then(|shift| 10_i128.checked_pow(shift));
        let exact = number
            .parse::<i128>()
            .ok()
            .zip(power)
            .and_then(|(n, p)| n.checked_mul(p));
        return exact.unwrap_or(i128::MAX);
    }
    let dropped = usize::try_from(-shift).unwrap_or(usize::MAX);
    let (kept, dropped) = number.split_at(number.len().saturating_sub(dropped));
    let kept = if kept.is_empty() {
        0
    } else {
        kept.parse().unwrap_or(i128::MAX)
    };
    // A place that was dropped without standing in the number is a zero, but then the number
    // itself, which is not zero, was dropped with it.
    kept.saturating_add(i128::from(dropped.bytes().any(|digit| digit != b'0')))
}

/// Returns `whole.fraction * factor` in nano units, rounded up, capped at 2^63-1 units as
/// Kubernetes does.
fn binary_nano(whole: &str, fraction: &str, factor: i128) -> i128 {
    const CAP: i128 = i64::MAX as i128 * NANO;
    let unit = factor * NANO;
    let mut inexact = false;
    // From the last digit to the first, so that every step divides by ten only; flooring at each
    // step equals flooring once.
    let part = fraction.bytes().rev().fold(0_i128, |below, digit| {
        let sum = i128::from(digit - b'0') * unit + below;
        inexact |= sum % 10 != 0;
        sum / 10
    }) + i128::from(inexact);
    let whole = match whole.trim_start_matches('0') {
        "" => Some(0),
        whole => whole
            .parse::<i128>()
            .ok()
            .and_then(|whole| whole.checked_mul(unit)),
    };
    whole
        .and_then(|whole| whole.checked_add(part))
        .map_or(CAP, |nano| nano.min(CAP))
}

// === printing ===

impl fmt::Display for Quantity {
    /// Writes the canonical form: no precision lost, no fraction, the largest suffix.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.nano == 0 {
            return f.write_str("0");
        }
        let whole = self.nano % NANO == 0;
        let small = self.nano.unsigned_abs() < 1024 * NANO.unsigned_abs();
        match self.format {
            Format::BinarySi if whole && !small => write_binary(f, self.nano / NANO),
            Format::BinarySi | Format::DecimalSi => write_decimal(f, self.nano, true),
            Format::DecimalExponent => write_decimal(f, self.nano, false),
        }
    }
}

fn write_binary(f: &mut fmt::Formatter<'_>, mut number: i128) -> fmt::Result {
    let mut suffix = "";
    for larger in BINARY {
        if number % 1024 != 0 {
            break;
        }
        number /= 1024;
        suffix = larger;
    }
    write!(f, "{number}{suffix}")
}

fn write_decimal(f: &mut fmt::Formatter<'_>, mut number: i128, suffixes: bool) -> fmt::Result {
    let mut exponent = -9;
    while number % 1000 == 0 {
        number /= 1000;
        exponent += 3;
    }
    let suffix = DECIMAL.iter().find(|(_, power)| *power == exponent);
    match suffix {
        Some((suffix, _)) if suffixes => write!(f, "{number}{suffix}"),
        _ if exponent == 0 => write!(f, "{number}"),
        // There is no suffix above E; Go dropped the exponent there before 1.37.
        _ => write!(f, "{number}e{exponent}"),
    }
}

// === arithmetic ===

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.nano == other.nano
    }
}

impl Eq for Quantity {}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Quantity {
    fn cmp(&self, other: &Self) -> Ordering {
        self.nano.cmp(&other.nano)
    }
}

impl Add for Quantity {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        let format = if self.is_zero() {
            other.format
        } else {
            self.format
        };
        Self {
            nano: self.nano.saturating_add(other.nano),
            format,
        }
    }
}

impl Neg for Quantity {
    type Output = Self;

    fn neg(self) -> Self {
        Self {
            nano: self.nano.saturating_neg(),
            ..self
        }
    }
}

impl Sub for Quantity {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        self + -other
    }
}

impl AddAssign for Quantity {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl SubAssign for Quantity {
    fn sub_assign(&mut self, other: Self) {
        *self = *self - other;
    }
}

impl Sum for Quantity {
    fn sum<I: Iterator<Item = Self>>(quantities: I) -> Self {
        quantities.fold(Self::ZERO, Self::add)
    }
}
