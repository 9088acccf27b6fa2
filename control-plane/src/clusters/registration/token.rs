//! Bootstrap tokens and their Secrets, by Kubernetes' rules. Pure, except that a new token needs
//! randomness.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use anyhow::{anyhow, bail, ensure};
use jiff::Timestamp;
use muster_shared::k8s::{ByteString, ObjectMeta, Secret};
use ring::rand::{SecureRandom, SystemRandom};

/// Namespace of the Secrets.
pub const NAMESPACE: &str = "kube-system";
/// Type of the Secrets of bootstrap tokens.
pub const SECRET_TYPE: &str = "bootstrap.kubernetes.io/token";
/// Beginning of the names of the Secrets; the token's id follows.
const PREFIX: &str = "bootstrap-token-";
/// Uses that a token may have.
pub const USAGES: [&str; 2] = ["signing", "authentication"];
/// Beginning of the groups of a token.
const GROUP_PREFIX: &str = "system:bootstrappers:";
/// Of these a token consists.
const LETTERS: &[u8; 36] = b"0123456789abcdefghijklmnopqrstuvwxyz";

/// A token: an id that anybody may know, and a secret.
#[derive(Clone, PartialEq, Eq)]
pub struct Token {
    /// Six letters and digits.
    pub id: String,
    /// Sixteen.
    pub secret: String,
}

impl Token {
    /// Makes a new one.
    pub fn generate() -> anyhow::Result<Self> {
        let random = SystemRandom::new();
        Ok(Self {
            id: letters(&random, 6)?,
            secret: letters(&random, 16)?,
        })
    }

    /// Returns the name of the token's Secret.
    pub fn name(&self) -> String {
        name_of(&self.id)
    }
}

/// Returns the name of the Secret of a token.
pub fn name_of(id: &str) -> String {
    format!("{PREFIX}{id}")
}

/// Letters that are equally likely: a byte above the largest multiple of their number is thrown
/// away.
fn letters(random: &SystemRandom, length: usize) -> anyhow::Result<String> {
    let mut text = String::with_capacity(length);
    while text.len() < length {
        let mut bytes = [0; 32];
        let filled = random.fill(&mut bytes);
        filled.map_err(|_| anyhow!("cannot make a new token"))?;
        let fair = bytes.iter().filter(|byte| **byte < 252);
        let letters = fair.map(|byte| char::from(LETTERS[usize::from(*byte) % LETTERS.len()]));
        text.extend(letters.take(length - text.len()));
    }
    Ok(text)
}

/// Returns whether a text is such letters and nothing else, so many of them.
pub fn is_plain(text: &str, length: usize) -> bool {
    text.len() == length && text.bytes().all(|byte| LETTERS.contains(&byte))
}

impl FromStr for Token {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        let (id, secret) = text.split_once('.').unwrap_or_default();
        // The text is not repeated, because it may be a secret.
        ensure!(
            is_plain(id, 6) && is_plain(secret, 16),
            "this is not a bootstrap token: it is six letters and digits, a dot and sixteen more, all of them lower-case"
        );
        Ok(Self {
            id: id.to_owned(),
            secret: secret.to_owned(),
        })
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.id, self.secret)
    }
}

/// Shows the id alone.
impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.***", self.id)
    }
}

/// Bootstrap token as the fleet API knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The token.
    pub token: Token,
    /// Purpose of the token, in somebody's words.
    pub description: String,
    /// Time from which on the token is not accepted; `None` for never.
    pub expiration: Option<Timestamp>,
    /// Uses of the token, of [`USAGES`].
    pub usages: Vec<String>,
    /// The groups of whoever comes with it.
    pub groups: Vec<String>,
}

impl Entry {
    /// Refuses what the API would not understand.
    pub fn check(&self) -> anyhow::Result<()> {
        if let Some(usage) = self.usages.iter().find(|it| !USAGES.contains(&it.as_str())) {
            bail!("{usage:?} is no use of a token: signing and authentication are");
        }
        if let Some(group) = self.groups.iter().find(|it| !is_group(it)) {
            bail!(
                "{group:?} cannot be the group of a token: system:bootstrappers: and lower-case letters, digits, colons and dashes"
            );
        }
        Ok(())
    }

    /// Returns the Secret of the token.
    pub fn secret(&self) -> Secret {
        let mut data = BTreeMap::from([
            ("token-id".to_owned(), self.token.id.clone()),
            ("token-secret".to_owned(), self.token.secret.clone()),
        ]);
        let mut say = |key: &str, value: String| {
            if !value.is_empty() {
                data.insert(key.to_owned(), value);
            }
        };
        say("description", self.description.clone());
        say("auth-extra-groups", self.groups.join(","));
        let end = self.expiration.map(|it| format!("{it:.0}"));
        say("expiration", end.unwrap_or_default());
        for usage in &self.usages {
            say(&format!("usage-bootstrap-{usage}"), "true".to_owned());
        }
        let bytes = |(key, value): (String, String)| (key, ByteString(value.into_bytes()));
        Secret {
            metadata: ObjectMeta {
                name: Some(self.token.name()),
                namespace: Some(NAMESPACE.to_owned()),
                ..ObjectMeta::default()
            },
            type_: Some(SECRET_TYPE.to_owned()),
            data: Some(data.into_iter().map(bytes).collect()),
            ..Secret::default()
        }
    }

    /// Reads a Secret as the API does; `None` when it knows no token by it.
    pub fn read(secret: &Secret) -> Option<Self> {
        if secret.type_.as_deref() != Some(SECRET_TYPE) {
            return None;
        }
        let field = |key: &str| {
            let value = secret.data.as_ref()?.get(key)?;
            String::from_utf8(value.0.clone()).ok()
        };
        let token = format!("{}.{}", field("token-id")?, field("token-secret")?);
        let token: Token = token.parse().ok()?;
        if secret.metadata.name.as_deref() != Some(&*token.name()) {
            return None;
        }
        let is_for = |usage: &&str| {
            field(&format!("usage-bootstrap-{usage}")).is_some_and(|it| it == "true")
        };
        let groups = field("auth-extra-groups").unwrap_or_default();
        let groups = groups.split(',').filter(|it| !it.is_empty());
        Some(Self {
            token,
            description: field("description").unwrap_or_default(),
            // A date that nobody understands is none that is to come.
            expiration: field("expiration")
                .filter(|it| !it.is_empty())
                .map(|end| read_time(&end).unwrap_or(Timestamp::UNIX_EPOCH)),
            usages: USAGES
                .iter()
                .filter(|it| is_for(it))
                .map(|it| (*it).to_owned())
                .collect(),
            groups: groups.map(str::to_owned).collect(),
        })
    }
}

/// Returns a time as RFC 3339 has it, and in no other form: for the API a token with any other has
/// expired.
fn read_time(text: &str) -> Option<Timestamp> {
    let form: String = text
        .chars()
        .map(|c| if c.is_ascii_digit() { '0' } else { c })
        .collect();
    let rest = form.strip_prefix("0000-00-00T00:00:00")?;
    // A fraction of a second may come before the offset.
    let offset = match rest.strip_prefix('.') {
        Some(fraction) => fraction.strip_prefix('0')?.trim_start_matches('0'),
        None => rest,
    };
    if !["Z", "+00:00", "-00:00"].contains(&offset) {
        return None;
    }
    text.parse().ok()
}

/// Returns whether a name is that of a group of bootstrap tokens:
/// `\Asystem:bootstrappers:[a-z0-9:-]{0,255}[a-z0-9]\z`.
fn is_group(name: &str) -> bool {
    let own = name.strip_prefix(GROUP_PREFIX).unwrap_or_default();
    let plain = |byte: u8| LETTERS.contains(&byte);
    own.len() <= 256
        && own
            .bytes()
            .all(|byte| plain(byte) || byte == b':' || byte == b'-')
        && own.bytes().last().is_some_and(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_six_and_sixteen_letters_and_never_shown_by_accident() {
        let token = Token::generate().unwrap();
        assert_eq!(token.to_string().parse::<Token>().unwrap(), token);
        assert!(!format!("{token:?}").contains(&token.secret));
        assert_ne!(Token::generate().unwrap(), token);
        for text in [
            "",
            "abcdef",
            "abcdef.",
            "abcde.0123456789abcdef",
            "abcdef.0123456789abcdeF",
        ] {
            assert!(text.parse::<Token>().is_err(), "{text}");
        }
    }

    #[test]
    fn what_is_written_is_read() {
        let full = Entry {
            token: Token::generate().unwrap(),
            description: "for m1".to_owned(),
            expiration: Some("2030-01-01T00:00:00Z".parse().unwrap()),
            usages: USAGES.map(str::to_owned).to_vec(),
            groups: vec![
                "system:bootstrappers:a:m-1".to_owned(),
                "system:bootstrappers:b".to_owned(),
            ],
        };
        let bare = Entry {
            description: String::new(),
            expiration: None,
            usages: Vec::new(),
            groups: Vec::new(),
            ..full.clone()
        };
        for entry in [full, bare] {
            entry.check().unwrap();
            assert_eq!(Entry::read(&entry.secret()).as_ref(), Some(&entry));
        }
    }

    #[test]
    fn what_the_api_would_not_take_is_refused_by_name() {
        let entry = |usage: &str, group: &str| Entry {
            token: Token::generate().unwrap(),
            description: String::new(),
            expiration: None,
            usages: vec![usage.to_owned()],
            groups: vec![group.to_owned()],
        };
        for (usage, group, words) in [
            ("lunch", "system:bootstrappers:a", "\"lunch\""),
            ("signing", "system:masters", "\"system:masters\""),
            (
                "signing",
                "system:bootstrappers:",
                "\"system:bootstrappers:\"",
            ),
            ("signing", "system:bootstrappers:A", "bootstrappers:A"),
            ("signing", "system:bootstrappers:a-", "bootstrappers:a-"),
        ] {
            let error = entry(usage, group).check().unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
    }

    #[test]
    fn only_what_the_api_takes_for_a_token_is_one() {
        let entry = Entry {
            token: Token::generate().unwrap(),
            description: String::new(),
            expiration: None,
            usages: Vec::new(),
            groups: Vec::new(),
        };
        let with = |edit: &dyn Fn(&mut Secret)| {
            let mut secret = entry.secret();
            edit(&mut secret);
            Entry::read(&secret).is_some()
        };
        assert!(with(&|_| ()));
        assert!(!with(&|it| it.type_ = Some("Opaque".to_owned())));
        assert!(!with(
            &|it| it.metadata.name = Some("bootstrap-token-xxxxxx".to_owned())
        ));
    }

    #[test]
    fn the_end_of_a_token_is_read_as_the_api_reads_it() {
        for (text, good) in [
            ("2030-01-01T00:00:00Z", true),
            ("2030-01-01T00:00:00+02:00", true),
            ("2030-01-01T00:00:00.25Z", true),
            ("2030-01-01T00:00:00.Z", false),
            ("2030-01-01T00:00Z", false),
            ("2030-01-01t00:00:00z", false),
            ("2030-01-01 00:00:00Z", false),
            ("2030-01-01T00:00:00Z[UTC]", false),
            ("2030-01-01T00:00:00", false),
            ("2030-13-01T00:00:00Z", false),
            ("", false),
        ] {
            assert_eq!(read_time(text).is_some(), good, "{text:?}");
        }
    }
}
