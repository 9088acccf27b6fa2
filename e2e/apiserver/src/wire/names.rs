//! What may be a name, a label key or a label value, and the sentences that say so.

/// The rule for the names of a kind's objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NameRule {
    /// Most kinds.
    Subdomain,
    /// Namespaces.
    Label,
    /// Services.
    Label1035,
    /// RBAC kinds: anything that fits in a path.
    PathSegment,
}

const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
const LABEL_1035: &str = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')";
const LABEL_VALUE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";
const QUALIFIED: &str = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";

impl NameRule {
    /// Says what is wrong with a name, or with the front part of one when `prefix` is set
    /// (generateName).
    pub fn check(self, name: &str, prefix: bool) -> Vec<String> {
        // A prefix may end in a dash, since something follows it.
        let masked = if prefix && name.ends_with('-') {
            format!("{}a", &name[..name.len() - 1])
        } else {
            name.to_owned()
        };
        let (limit, fits, sentence) = match self {
            Self::Subdomain => (253, masked.split('.').all(is_label), SUBDOMAIN),
            Self::Label => (63, is_label(&masked), LABEL),
            Self::Label1035 => (
                63,
                is_label(&masked) && masked.starts_with(|c: char| c.is_ascii_lowercase()),
                LABEL_1035,
            ),
            Self::PathSegment => return path_segment(name, prefix),
        };
        let mut wrong = Vec::new();
        if masked.len() > limit {
            wrong.push(format!("must be no more than {limit} characters"));
        }
        if !fits {
            let dots = self == Self::Label && masked.split('.').all(is_label);
            wrong.push(
                if dots {
                    "must not contain dots"
                } else {
                    sentence
                }
                .to_owned(),
            );
        }
        wrong
    }
}

fn path_segment(name: &str, prefix: bool) -> Vec<String> {
    if !prefix && (name == "." || name == "..") {
        return vec![format!("may not be '{name}'")];
    }
    ['/', '%']
        .iter()
        .filter(|c| name.contains(**c))
        .map(|c| format!("may not contain '{c}'"))
        .collect()
}

/// Returns whether a text is letters, digits and `-`, alphanumeric at both ends.
pub(crate) fn is_label(text: &str) -> bool {
    let alphanumeric = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    text.starts_with(alphanumeric)
        && text.ends_with(alphanumeric)
        && text.chars().all(|c| alphanumeric(c) || c == '-')
}

/// Letters, digits, `-`, `_` and `.`, alphanumeric at both ends.
fn is_qualified(text: &str) -> bool {
    let alphanumeric = |c: char| c.is_ascii_alphanumeric();
    text.starts_with(alphanumeric)
        && text.ends_with(alphanumeric)
        && text.chars().all(|c| alphanumeric(c) || "-_.".contains(c))
}

/// Says what is wrong with a label or annotation key.
pub fn label_key(key: &str) -> Result<(), String> {
    let name = match key.split_once('/') {
        None => key,
        Some((prefix, name)) => {
            if prefix.is_empty() {
                return Err("prefix part must be non-empty".to_owned());
            }
            if let Some(wrong) = NameRule::Subdomain.check(prefix, false).first() {
                return Err(format!("prefix part {wrong}"));
            }
            if name.contains('/') {
                return Err("a qualified name must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]') with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')".to_owned());
            }
            name
        }
    };
    if name.is_empty() {
        Err("name part must be non-empty".to_owned())
    } else if name.len() > 63 {
        Err("name part must be no more than 63 bytes".to_owned())
    } else if is_qualified(name) {
        Ok(())
    } else {
        Err(QUALIFIED.to_owned())
    }
}

/// Says what is wrong with a label's value.
pub fn label_value(value: &str) -> Result<(), String> {
    if value.len() > 63 {
        Err("must be no more than 63 bytes".to_owned())
    } else if value.is_empty() || is_qualified(value) {
        Ok(())
    } else {
        Err(LABEL_VALUE.to_owned())
    }
}
