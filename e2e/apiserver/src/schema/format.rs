//! Named formats of strings that CRDs may demand. Formats that nobody here uses are no demand.

/// Returns whether `text` has the format.
pub fn matches(format: &str, text: &str) -> bool {
    match format {
        "date-time" => text.parse::<jiff::Timestamp>().is_ok(),
        "byte" => {
            use base64::Engine as _;
            let standard = &base64::engine::general_purpose::STANDARD;
            standard.decode(text).is_ok()
        }
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn formats_are_what_their_names_say() {
        for (format, text, fits) in [
            ("date-time", "2026-01-02T03:04:05Z", true),
            ("date-time", "2026-01-02", false),
            ("byte", "aGk=", true),
            ("byte", "aGk", false),
            ("hostname", "-a", true),
        ] {
            assert_eq!(matches(format, text), fits, "{format} {text}");
        }
    }
}
