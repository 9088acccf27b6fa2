//! JSON pointers (RFC 6901).

use json_patch::jsonptr::PointerBuf;

/// Reads a JSON pointer.
///
/// # Errors
/// A text that says what is wrong: a pointer is empty or begins with `/`, and `~` stands only in
/// `~0` and `~1`.
pub(super) fn parse(text: &str) -> Result<PointerBuf, String> {
    PointerBuf::parse(text).map_err(|error| format!("{text:?} is no JSON pointer: {error}"))
}

/// Returns what is wrong with a JSON pointer.
pub fn fault(text: &str) -> Option<String> {
    parse(text).err()
}
