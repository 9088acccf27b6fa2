//! Image references and changes of their parts.

use std::fmt;

use muster_shared::api::override_policy::{ImageComponent, ImageOverrider, OverriderOperator};

/// Characters of the longest registry, and of the longest repository (distribution's limit for
/// both together is 255).
const LONGEST_PART: usize = 255;

/// Reference of an image: `[registry[:port]/]repository[:tag][@digest]`. Where it has both, the
/// digest says what is pulled (Karmada drops it).
#[derive(Clone, Debug, PartialEq, Eq)]
struct Image {
    registry: String,
    repository: String,
    tag: Option<String>,
    digest: Option<String>,
}

impl fmt::Display for Image {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.registry.is_empty() {
            write!(f, "{}/", self.registry)?;
        }
        f.write_str(&self.repository)?;
        if let Some(tag) = &self.tag {
            write!(f, ":{tag}")?;
        }
        match &self.digest {
            Some(digest) => write!(f, "@{digest}"),
            None => Ok(()),
        }
    }
}

impl Image {
    /// Reads a reference. The part before the first `/` is a registry if it contains `.` or `:`, or
    /// is `localhost`.
    fn parse(text: &str) -> Result<Self, String> {
        let wrong = |what: &str| Err(format!("the text is no image reference: {what}"));
        let (name, digest) = match text.split_once('@') {
            Some((name, digest)) => (name, Some(digest)),
            None => (text, None),
        };
        let (registry, rest) = match name.split_once('/') {
            Some((first, rest)) if first.contains(['.', ':']) || first == "localhost" => {
                (first, rest)
            }
            _ => ("", name),
        };
        let (repository, tag) = match rest.rsplit_once(':') {
            Some((repository, tag)) => (repository, Some(tag)),
            None => (rest, None),
        };
        if !is_registry(registry) {
            return wrong("the registry is a host with an optional port");
        }
        if !is_repository(repository) {
            return wrong(
                "the repository consists of lower-case letters, digits, and . _ - / between",
            );
        }
        if tag.is_some_and(|tag| !is_tag(tag)) {
            return wrong("the tag consists of up to 128 letters, digits, and _ . -");
        }
        if digest.is_some_and(|digest| !is_digest(digest)) {
            return wrong("the digest is an algorithm, a colon and at least 32 hexadecimal digits");
        }
        Ok(Self {
            registry: registry.to_owned(),
            repository: repository.to_owned(),
            tag: tag.map(str::to_owned),
            digest: digest.map(str::to_owned),
        })
    }
}

/// Changes one part of an image reference.
///
/// # Errors
/// A text that says why: `image` is no reference, or the change would leave none. It quotes neither
/// the image nor the value, which may be from a Secret.
pub(super) fn change(image: &str, overrider: &ImageOverrider) -> Result<String, String> {
    let mut changed = Image::parse(image)?;
    let value = &overrider.value;
    let edit = |part: &str| match &overrider.operator {
        OverriderOperator::Add => Ok(format!("{part}{value}")),
        OverriderOperator::Replace => Ok(value.clone()),
        OverriderOperator::Remove => Ok(String::new()),
        OverriderOperator::Other(other) => Err(format!(
            "operator {other:?} is not known: use add, remove or replace"
        )),
    };
    match &overrider.component {
        ImageComponent::Registry => {
            changed.registry = edit(&changed.registry)?;
            if !is_registry(&changed.registry) {
                return Err(format!(
                    "the registry would be no host with an optional port and path of at most {LONGEST_PART} characters"
                ));
            }
        }
        ImageComponent::Repository => {
            changed.repository = edit(&changed.repository)?;
            if changed.repository.is_empty() {
                return Err("the image would be left without a repository".to_owned());
            }
            if changed.repository.len() > LONGEST_PART || !is_repository(&changed.repository) {
                return Err(format!(
                    "the repository would be no path of lower-case letters, digits, and . _ - / between, of at most {LONGEST_PART} characters"
                ));
            }
        }
        ImageComponent::Tag => {
            // What is asked for is another image: a digest of the former one goes with its tag.
            let version = changed.tag.as_deref().or(changed.digest.as_deref());
            let edited = edit(version.unwrap_or_default())?;
            let is_removed = overrider.operator == OverriderOperator::Remove;
            // A text that is neither a tag nor a digest, such as none, changes nothing (Karmada
            // behaviour).
            if is_removed || is_tag(&edited) || is_digest(&edited) {
                let is_digest = is_digest(&edited);
                let edited = Some(edited).filter(|it| !it.is_empty());
                (changed.tag, changed.digest) = if is_digest {
                    (None, edited)
                } else {
                    (edited, None)
                };
            }
        }
        ImageComponent::Other(other) => {
            return Err(format!(
                "component {other:?} is not known: use Registry, Repository or Tag"
            ));
        }
    }
    // A registry without a point, a colon or `localhost` is read as a part of the repository.
    let text = changed.to_string();
    match Image::parse(&text) {
        Ok(_) => Ok(text),
        Err(_) => Err("the image would be no reference: its registry is no host".to_owned()),
    }
}

/// Returns whether a text is a registry: nothing, or a host with an optional port and path.
fn is_registry(text: &str) -> bool {
    let (host, path) = match text.split_once('/') {
        Some((host, path)) => (host, Some(path)),
        None => (text, None),
    };
    let is_host = host
        .bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || b".-_:[]".contains(&byte));
    let is_named = !host.is_empty() || path.is_none();
    text.len() <= LONGEST_PART && is_host && is_named && path.is_none_or(is_repository)
}

/// Returns whether a text is a repository: path components of lower-case letters and digits, with
/// separators between.
fn is_repository(text: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    text.split('/').all(|part| {
        let bytes = part.as_bytes();
        bytes.first().is_some_and(|byte| inner(*byte))
            && bytes.last().is_some_and(|byte| inner(*byte))
            && bytes
                .iter()
                .all(|byte| inner(*byte) || b"._-".contains(byte))
    })
}

/// Returns whether a text is a tag: `[\w][\w.-]{0,127}`.
fn is_tag(text: &str) -> bool {
    let word = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    let bytes = text.as_bytes();
    bytes.first().is_some_and(word)
        && bytes.len() <= 128
        && bytes.iter().all(|byte| word(byte) || b".-".contains(byte))
}

/// Returns whether a text is a digest: an algorithm (letters and digits in parts that begin with a
/// letter), a colon and at least 32 hexadecimal digits.
fn is_digest(text: &str) -> bool {
    let Some((algorithm, hex)) = text.split_once(':') else {
        return false;
    };
    let is_part = |part: &str| {
        part.as_bytes().first().is_some_and(u8::is_ascii_alphabetic)
            && part.bytes().all(|byte| byte.is_ascii_alphanumeric())
    };
    algorithm.split(['-', '_', '+', '.']).all(is_part)
        && hex.len() >= 32
        && hex.bytes().all(|byte| byte.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIGEST: &str = "sha256:50d858e0985ecc7f60418aaf0cc5ab587f42c2570a884095a9e8ccacd0f6545c";

    fn overrider(component: &str, operator: &str, value: &str) -> ImageOverrider {
        serde_json::from_value(serde_json::json!({
            "component": component, "operator": operator, "value": value,
        }))
        .unwrap()
    }

    /// Checks changes of one part: image, operator, value, and what the image becomes.
    fn check(component: &str, cases: &[(&str, &str, &str, &str)]) {
        for (image, operator, value, expected) in cases {
            let overrider = overrider(component, operator, value);
            let changed = change(image, &overrider);
            assert_eq!(changed.as_deref(), Ok(*expected), "{image} {overrider:?}");
        }
    }

    #[test]
    fn one_part_of_a_reference_is_changed() {
        let digested = format!("quay.io/team/app@{DIGEST}");
        // Of both, the digest says what is pulled: another registry does not change that.
        let both = format!("app:v1@{DIGEST}");
        check(
            "Registry",
            &[
                ("nginx", "replace", "eu.io:5000", "eu.io:5000/nginx"),
                ("quay.io/a/b:v1", "replace", "eu.io", "eu.io/a/b:v1"),
                ("quay.io/a/b:v1", "add", ".cn", "quay.io.cn/a/b:v1"),
                ("localhost/b", "remove", "", "b"),
                ("library/nginx", "add", "eu.io", "eu.io/library/nginx"),
                (&both, "replace", "eu.io", &format!("eu.io/{both}")),
            ],
        );
        let mirrored = format!("mirror/{both}");
        check(
            "Repository",
            &[
                ("quay.io:443/a/b", "replace", "c/d", "quay.io:443/c/d"),
                ("a/b:v1", "add", "-arm", "a/b-arm:v1"),
                (&both, "replace", "mirror/app", &mirrored),
            ],
        );
        check(
            "Tag",
            &[
                ("a/b:v1", "add", "-eu", "a/b:v1-eu"),
                ("a/b", "add", "v2", "a/b:v2"),
                ("a/b:v1", "replace", DIGEST, &format!("a/b@{DIGEST}")),
                (&digested, "replace", "v3", "quay.io/team/app:v3"),
                (&digested, "remove", "", "quay.io/team/app"),
                ("a/b:v1", "replace", "not a tag", "a/b:v1"),
                ("a/b:v1", "replace", "", "a/b:v1"),
                (&digested, "replace", "", &digested),
                ("a/b", "add", "", "a/b"),
                ("host:5000/b", "remove", "", "host:5000/b"),
                (&both, "replace", "v2", "app:v2"),
                (&both, "remove", "", "app"),
            ],
        );
    }

    #[test]
    fn bad_references_and_changes_are_refused_with_their_reason() {
        for (image, component, operator, reason) in [
            ("", "Registry", "replace", "repository"),
            ("UPPER/case", "Registry", "replace", "repository"),
            ("?:/a", "Tag", "replace", "registry"),
            ("a/b:", "Tag", "replace", "tag"),
            ("a@sha256:12", "Tag", "replace", "digest"),
            ("a", "Repository", "remove", "without a repository"),
            ("a", "Name", "remove", "Registry, Repository or Tag"),
            ("a", "Tag", "move", "add, remove or replace"),
            ("SECRET", "Tag", "replace", "repository"),
        ] {
            let error = change(image, &overrider(component, operator, "v")).unwrap_err();
            assert!(error.contains(reason), "{image}: {error}");
            assert!(!error.contains("SECRET"), "{error}");
        }
    }

    #[test]
    fn a_change_leaves_a_registry_and_a_repository_of_limited_length() {
        let long = "x".repeat(1_300_000);
        for (component, operator, value) in [
            ("Registry", "add", &*long),
            ("Registry", "replace", "SECRET host"),
            ("Registry", "replace", "/mirror"),
            ("Registry", "replace", "eu.io/"),
            ("Registry", "replace", "UPPER"),
            ("Registry", "replace", "-"),
            ("Repository", "add", &*long),
            ("Repository", "replace", "SECRET"),
            ("Repository", "replace", "a/b:v1"),
        ] {
            let error =
                change("quay.io/a/b:v1", &overrider(component, operator, value)).unwrap_err();
            assert!(
                error.contains("would be no") && error.len() < 300,
                "{error}"
            );
            assert!(!error.contains("SECRET"), "{error}");
        }
        let mirror = overrider("Registry", "replace", "eu.io:5000/mirror");
        assert_eq!(
            change("a/b", &mirror).as_deref(),
            Ok("eu.io:5000/mirror/a/b")
        );
    }
}
