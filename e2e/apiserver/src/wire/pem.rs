//! PEM as Go's `encoding/pem` reads it, which is what kube-apiserver and the signers see of a
//! request. Pure.
//!
//! A block that is not exactly right is not an error but skipped, and the next one is taken.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

const BEGIN: &str = "-----BEGIN ";
const END: &str = "\n-----END ";
const DASHES: &str = "-----";

/// Returns the label and the content of the first sound block.
pub fn first(text: &str) -> Option<(String, Vec<u8>)> {
    let mut rest = text;
    loop {
        rest = match rest.strip_prefix(BEGIN) {
            Some(after) => after,
            None => rest.split_once(&format!("\n{BEGIN}"))?.1,
        };
        let (label, behind) = line(rest);
        rest = behind;
        let Some(label) = label.strip_suffix(DASHES) else {
            continue;
        };
        let mut body = rest;
        while !body.is_empty() && line(body).0.contains(':') {
            body = line(body).1;
        }
        let (content, behind) = match body.strip_prefix(&END[1..]) {
            Some(behind) => ("", behind),
            None => match body.split_once(END) {
                Some(parts) => parts,
                None => continue,
            },
        };
        let Some(behind) = behind.strip_prefix(&format!("{label}{DASHES}")) else {
            continue;
        };
        if !line(behind).0.is_empty() {
            continue;
        }
        let plain: String = content
            .chars()
            .filter(|c| !" \t\r\n".contains(*c))
            .collect();
        if let Ok(content) = STANDARD.decode(plain) {
            return Some((label.to_owned(), content));
        }
    }
}

/// Returns the first line without white space at its end, and what follows it.
fn line(text: &str) -> (&str, &str) {
    let (line, rest) = text.split_once('\n').unwrap_or((text, ""));
    let line = line.strip_suffix('\r').unwrap_or(line);
    (line.trim_end_matches([' ', '\t']), rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(content: &str) -> String {
        format!(
            "-----BEGIN X-----\n{}\n-----END X-----\n",
            STANDARD.encode(content)
        )
    }

    #[test]
    fn a_block_that_is_not_right_is_skipped() {
        let (a, b) = (block("a"), block("bb"));
        let bare = a.trim_end();
        for (text, expected) in [
            (a.clone(), Some("a")),
            (format!("{a}{b}"), Some("a")),
            (format!("text\n{a}"), Some("a")),
            (format!("{bare} \t\r\n{b}"), Some("a")),
            (a.replace('\n', "\r\n"), Some("a")),
            (format!("{bare}x\n{b}"), Some("bb")),
            (format!("{}\n{b}", bare.replace('=', "")), Some("bb")),
            (a.replace("END X", "END Y") + &b, Some("bb")),
            (a.replace("-----\n", "-----\nA: b\n\n"), Some("a")),
            (bare.replace("-----END", ""), None),
            (String::new(), None),
        ] {
            let found = first(&text).map(|(_, content)| String::from_utf8(content).unwrap());
            assert_eq!(found.as_deref(), expected, "{text:?}");
        }
    }
}
