//! Named formats of strings that CRDs may demand. Formats that nobody knows are no demand.

use std::net::{Ipv4Addr, Ipv6Addr};

/// Returns whether `text` has the format.
pub fn matches(format: &str, text: &str) -> bool {
    match format {
        "date-time" | "datetime" => text.parse::<jiff::Timestamp>().is_ok(),
        "date" => text.parse::<jiff::civil::Date>().is_ok(),
        "ipv4" => text.parse::<Ipv4Addr>().is_ok(),
        "ipv6" => text.parse::<Ipv6Addr>().is_ok(),
        "cidr" => is_cidr(text),
        "uuid" | "uuid3" | "uuid4" | "uuid5" => is_uuid(text),
        "byte" => {
            use base64::Engine as _;
            base64::engine::general_purpose::STANDARD
                .decode(text)
                .is_ok()
        }
        "duration" => is_duration(text),
        "hostname" => text.len() < 256 && text.split('.').all(is_host_label),
        "email" => text
            .split_once('@')
            .is_some_and(|(user, host)| !user.is_empty() && host.split('.').all(is_host_label)),
        "mac" => {
            let parts: Vec<&str> = text.split([':', '-']).collect();
            [6, 8, 20].contains(&parts.len())
                && parts
                    .iter()
                    .all(|part| part.len() == 2 && part.chars().all(|c| c.is_ascii_hexdigit()))
        }
        "uri" => text.split_once(':').is_some_and(|(scheme, rest)| {
            scheme.starts_with(|c: char| c.is_ascii_alphabetic()) && !rest.is_empty()
        }),
        _ => true,
    }
}

/// Returns whether a text is one of Go's durations (`1h30m`), or a number with a unit in words
/// (`3 days`).
fn is_duration(text: &str) -> bool {
    const UNITS: [&str; 7] = ["ns", "us", "µs", "ms", "s", "m", "h"];
    const WORDS: [&str; 7] = [
        "nanosecond",
        "microsecond",
        "millisecond",
        "second",
        "minute",
        "hour",
        "day",
    ];
    if let Some((number, word)) = text.split_once(' ') {
        let word = word.trim().trim_end_matches('s');
        return number.parse::<u64>().is_ok() && (WORDS.contains(&word) || word == "week");
    }
    let mut rest = text.trim_start_matches(['+', '-']);
    if rest == "0" {
        return true;
    }
    let mut any = false;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.');
        let Some(digits) = digits.filter(|digits| *digits > 0) else {
            return false;
        };
        let unit = rest[digits..].find(|c: char| c.is_ascii_digit());
        let end = unit.map_or(rest.len(), |unit| digits + unit);
        if rest[..digits].parse::<f64>().is_err() || !UNITS.contains(&&rest[digits..end]) {
            return false;
        }
        any = true;
        rest = &rest[end..];
    }
    any
}

fn is_host_label(label: &str) -> bool {
    !label.is_empty()
        && label.len() < 64
        && !label.starts_with('-')
        && !label.ends_with('-')
        && label
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_')
}

fn is_cidr(text: &str) -> bool {
    text.split_once('/').is_some_and(|(address, bits)| {
        let most = if address.parse::<Ipv4Addr>().is_ok() {
            32
        } else if address.parse::<Ipv6Addr>().is_ok() {
            128
        } else {
            return false;
        };
        bits.parse::<u8>().is_ok_and(|bits| bits <= most)
    })
}

fn is_uuid(text: &str) -> bool {
    let digits: Vec<char> = text.chars().filter(|c| *c != '-').collect();
    digits.len() == 32 && digits.iter().all(char::is_ascii_hexdigit)
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn formats_are_what_their_names_say() {
        for (format, text, fits) in [
            ("date-time", "2026-01-02T03:04:05Z", true),
            ("date-time", "2026-01-02", false),
            ("date", "2026-01-02", true),
            ("ipv4", "10.0.0.1", true),
            ("ipv4", "10.0.0.256", false),
            ("cidr", "10.0.0.0/8", true),
            ("cidr", "10.0.0.0/33", false),
            ("uuid", "9b2f7b0e-2f55-4a35-9d6a-0d9a6c0a1c11", true),
            ("uri", "https://a/b", true),
            ("uri", "nothing", false),
            ("byte", "aGk=", true),
            ("duration", "1h30m", true),
            ("duration", "1.5s", true),
            ("duration", "3 days", true),
            ("duration", "long", false),
            ("duration", "5", false),
            ("hostname", "a.example.com", true),
            ("hostname", "-a", false),
            ("email", "a@example.com", true),
            ("email", "example.com", false),
            ("mac", "00:1a:2b:3c:4d:5e", true),
            ("mac", "00:1a", false),
        ] {
            assert_eq!(matches(format, text), fits, "{format} {text}");
        }
    }
}
