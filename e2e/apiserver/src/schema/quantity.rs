//! The canonical spelling of quantities, which is what a server stores.

use muster_quantity::Quantity;

/// The error of kube-apiserver.
const MALFORMED: &str =
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";

/// Returns `text` in canonical form: no fraction, the largest suffix of its family that loses
/// nothing (`1.5Gi` → `1536Mi`, `0.5` → `500m`, `1000m` → `1`).
pub fn canonical(text: &str) -> Result<String, String> {
    let quantity: Result<Quantity, _> = text.parse();
    quantity.map_or_else(|_| Err(MALFORMED.to_owned()), |it| Ok(it.to_string()))
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
            ("Mi", "0"),
        ] {
            assert_eq!(canonical(given).as_deref(), Ok(expected), "{given}");
        }
    }

    #[test]
    fn other_text_is_refused_in_the_words_of_the_server() {
        for given in ["", "x", "1.2.3", "1 Gi", "1gi", "--1"] {
            assert!(
                canonical(given).is_err_and(|e| e.starts_with("quantities must match")),
                "{given}"
            );
        }
    }
}
