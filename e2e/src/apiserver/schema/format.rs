//! Named formats of strings that CRDs may demand. Formats that nobody knows are no demand.

use std::net::{Ipv4Addr, Ipv6Addr};

/// Whether `text` has the format.
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
        "uri" => text.split_once(':').is_some_and(|(scheme, rest)| {
            scheme.starts_with(|c: char| c.is_ascii_alphabetic()) && !rest.is_empty()
        }),
        _ => true,
    }
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
        ] {
            assert_eq!(matches(format, text), fits, "{format} {text}");
        }
    }
}
