//! JSON pointers (RFC 6901).

use json_patch::jsonptr::PointerBuf;

use super::limits::DEEPEST_MANIFEST;

/// Reads a JSON pointer.
///
/// # Errors
/// A text that says what is wrong: a pointer is empty or begins with `/`, `~` stands only in `~0`
/// and `~1`, and it leads no deeper than the deepest manifest.
pub(super) fn parse(text: &str) -> Result<PointerBuf, String> {
    let tokens = text.bytes().filter(|byte| *byte == b'/').count();
    if tokens > DEEPEST_MANIFEST {
        return Err(format!(
            "a JSON pointer of {tokens} parts leads deeper than the {DEEPEST_MANIFEST} levels that fit into a work"
        ));
    }
    PointerBuf::parse(text).map_err(|error| format!("{text:?} is no JSON pointer: {error}"))
}

/// Returns what is wrong with a JSON pointer.
pub fn fault(text: &str) -> Option<String> {
    parse(text).err()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pointer_leads_no_deeper_than_a_manifest_may_be() {
        assert_eq!(fault(&"/a".repeat(DEEPEST_MANIFEST)), None);
        let fault = fault(&"/a".repeat(DEEPEST_MANIFEST + 1)).unwrap();
        assert!(fault.contains("101 parts"), "{fault}");
    }
}
