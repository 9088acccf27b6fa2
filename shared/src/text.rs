//! Texts of others, cut to the room that there is for them.

/// Returns a text of at most this many bytes; one that was cut ends with a mark.
pub fn cut(text: &str, longest: usize, mark: &str) -> String {
    if text.len() <= longest {
        return text.to_owned();
    }
    let end = text.floor_char_boundary(longest.saturating_sub(mark.len()));
    format!("{}{mark}", &text[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_cut_between_characters_and_the_mark_is_a_part_of_it() {
        for (text, longest, mark, expected) in [
            ("short", 5, "...", "short"),
            ("longer", 5, "...", "lo..."),
            ("longer", 5, "", "longe"),
            ("äää", 5, "", "ää"),
            ("ääää", 7, "…", "ää…"),
            ("", 0, "...", ""),
        ] {
            assert_eq!(cut(text, longest, mark), expected, "{text} {longest}");
        }
    }
}
