//! The order of versions of a group.

/// Returns how Kubernetes orders versions: stable before beta before alpha, newer first, anything
/// else last.
pub fn priority(version: &str) -> (u8, u32, u32) {
    let parse = || {
        let rest = version.strip_prefix('v')?;
        let end = rest
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(rest.len());
        let major: u32 = rest[..end].parse().ok()?;
        let (level, minor) = match &rest[end..] {
            "" => (3, "0"),
            beta if beta.starts_with("beta") => (2, &beta[4..]),
            alpha if alpha.starts_with("alpha") => (1, &alpha[5..]),
            _ => return None,
        };
        Some((level, major, minor.parse().ok()?))
    };
    parse().unwrap_or((0, 0, 0))
}
