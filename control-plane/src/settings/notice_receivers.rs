//! Receivers of notices of failovers: `--notice-receivers`. No secret is among them, only names of
//! files.

use std::collections::BTreeSet;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use muster_shared::settings::Error;
use serde::de::value::SeqAccessDeserializer;
use serde::de::{SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

/// Name of the flag.
const FLAG: &str = "notice-receivers";
/// Receivers at most: each keeps an annotation on each record of a failover.
const MOST: usize = 16;
/// Notices a minute that a receiver gets at most, if it does not say: chat services refuse more
/// than about one a second.
const PER_MINUTE: u32 = 20;
/// Bytes of the longest template.
const LONGEST_TEMPLATE: usize = 16 << 10;

/// Defines a word of a setting with its spellings.
macro_rules! words {
    ($(#[$meta:meta])* $name:ident { $($(#[$doc:meta])* $variant:ident = $text:literal,)* }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum $name { $($(#[$doc])* $variant,)* }

        impl $name {
            /// All of them, in their order.
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            /// Returns the name in settings and notices.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $text,)* }
            }

            fn read(field: &str, text: &str) -> Result<Self, String> {
                let found = Self::ALL.iter().find(|it| it.name() == text);
                let known = Self::ALL.iter().map(|it| it.name()).collect::<Vec<_>>().join(", ");
                found.copied().ok_or_else(|| format!("{field} is {text:?}; it may be {known}"))
            }
        }
    };
}

words! {
    /// Moment of a failover of which people are told.
    Phase {
        /// The cause began, or came back.
        Began = "began",
        /// Workloads stay where they are: held, or with nowhere to go.
        Held = "held",
        /// No workload stays for such a reason any more.
        Resumed = "resumed",
        /// All workloads that moved are healthy elsewhere.
        Healed = "healed",
        /// The cause is over: the cluster is well again or left the fleet.
        Recovered = "recovered",
        /// Everything is in order again.
        Ended = "ended",
    }
}

words! {
    /// Weight of a failover.
    Severity {
        /// A person ordered it, or no workload is in the cluster.
        Info = "info",
        /// Workloads have to leave a cluster.
        Warning = "warning",
        /// Workloads that have to leave were kept from it, or had nowhere to go.
        Critical = "critical",
    }
}

words! {
    /// Form of the body of a request.
    Format {
        /// CloudEvents 1.0 in JSON, structured mode.
        CloudEvents = "cloudevents",
        /// A message for an incoming webhook of Slack, or of what understands these.
        Slack = "slack",
        /// An adaptive card for a webhook of Microsoft Teams.
        Teams = "teams",
        /// The text that `template` makes.
        Template = "template",
    }
}

/// Receiver as it is written in settings.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Written {
    name: String,
    url: Option<String>,
    url_file: Option<PathBuf>,
    format: Option<String>,
    template: Option<String>,
    content_type: Option<String>,
    secret_file: Option<PathBuf>,
    ca_file: Option<PathBuf>,
    phases: Vec<String>,
    minimum_severity: Option<String>,
    per_minute: Option<u32>,
}

/// Place from which the address of a receiver is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// The address itself.
    Url(String),
    /// A file with the address, for one that is a secret.
    File(PathBuf),
}

/// Receiver of notices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Receiver {
    /// Name in annotations, metrics and log lines.
    pub name: String,
    /// Address that notices are sent to.
    pub address: Address,
    /// Form of the body.
    pub format: Format,
    /// Template of the body; empty for other formats than that.
    pub template: String,
    /// Content type of what the template makes.
    pub content_type: String,
    /// File with the keys that sign, if notices are signed.
    pub secret_file: Option<PathBuf>,
    /// File with the authorities that are trusted instead of those of the system.
    pub ca_file: Option<PathBuf>,
    /// Phases that are told.
    pub phases: Vec<Phase>,
    /// Least severity of failovers that are told.
    pub minimum_severity: Severity,
    /// Number of notices a minute at most.
    pub per_minute: u32,
}

/// Receivers of notices, given as a YAML list or as JSON in a text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NoticeReceivers(Vec<Written>);

impl NoticeReceivers {
    /// Returns whether nobody is told anything.
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Reads the receivers.
    ///
    /// # Errors
    /// When a field is missing or has a value that is not allowed; the error names both.
    pub fn parse(&self) -> Result<Vec<Receiver>, Error> {
        if self.0.len() > MOST {
            let problem = format!("there are {}; at most {MOST} are told", self.0.len());
            return Err(Error::invalid(FLAG, problem));
        }
        let mut names = BTreeSet::new();
        let mut receivers = Vec::new();
        for (place, written) in self.0.iter().enumerate() {
            let receiver = written.parse().and_then(|it| {
                let is_new = names.insert(it.name.clone());
                is_new
                    .then_some(it)
                    .ok_or_else(|| "name is that of another receiver, too".into())
            });
            receivers.push(receiver.map_err(|problem: String| {
                let title = match written.name.as_str() {
                    "" => format!("receiver {}", place + 1),
                    name => format!("receiver {name:?}"),
                };
                Error::invalid(FLAG, format!("{title}: {problem}"))
            })?);
        }
        Ok(receivers)
    }
}

/// Checks an address that notices are sent to. The error does not quote it, since it may be a
/// secret.
pub fn check_url(url: &str) -> Result<http::Uri, &'static str> {
    const PROBLEM: &str = "is no address such as https://example.com/path";
    let uri: http::Uri = url.parse().map_err(|_| PROBLEM)?;
    let is_known = matches!(uri.scheme_str(), Some("https" | "http"));
    let has_host = uri.host().is_some_and(|it| !it.is_empty());
    let has_user = uri.authority().is_some_and(|it| it.as_str().contains('@'));
    if has_user {
        return Err("names a user: notices are signed, and carry no password");
    }
    (is_known && has_host).then_some(uri).ok_or(PROBLEM)
}

impl Written {
    fn parse(&self) -> Result<Receiver, String> {
        let allowed = |it: char| it.is_ascii_lowercase() || it.is_ascii_digit() || it == '-';
        let is_name = (1..=40).contains(&self.name.len())
            && self.name.chars().all(allowed)
            && !self.name.starts_with('-')
            && !self.name.ends_with('-');
        if !is_name {
            let rule = "it has up to 40 lower-case letters, digits and inner hyphens";
            return Err(format!("name is {:?}; {rule}", self.name));
        }
        let address = match (&self.url, &self.url_file) {
            (Some(url), None) => {
                check_url(url).map_err(|problem| format!("url {problem}"))?;
                Address::Url(url.clone())
            }
            (None, Some(file)) => Address::File(file.clone()),
            _ => return Err("one of url and urlFile is required, and not both".to_owned()),
        };
        let format = self.format.as_deref();
        let format = format.map_or(Ok(Format::CloudEvents), |it| Format::read("format", it))?;
        let template = self.template.clone().unwrap_or_default();
        if (format == Format::Template) == template.is_empty() {
            return Err("template is required by format template, and by no other".to_owned());
        }
        if template.len() > LONGEST_TEMPLATE {
            return Err(format!("template is longer than {LONGEST_TEMPLATE} bytes"));
        }
        let content_type = self.content_type.clone();
        if content_type.is_some() && format != Format::Template {
            return Err("contentType is for format template alone".to_owned());
        }
        let content_type = content_type.unwrap_or_else(|| "application/json".to_owned());
        if http::HeaderValue::from_str(&content_type).is_err() || content_type.is_empty() {
            return Err("contentType is no value of a header, such as text/plain".to_owned());
        }
        let phases = self.phases.iter();
        let phases: Result<Vec<_>, _> = phases.map(|it| Phase::read("phases", it)).collect();
        let phases = Some(phases?).filter(|it| !it.is_empty());
        let severity = self.minimum_severity.as_deref();
        let severity = severity.map(|it| Severity::read("minimumSeverity", it));
        let per_minute = self.per_minute.unwrap_or(PER_MINUTE);
        if !(1..=600).contains(&per_minute) {
            return Err(format!("perMinute is {per_minute}; it may be 1 to 600"));
        }
        Ok(Receiver {
            name: self.name.clone(),
            address,
            format,
            template,
            content_type,
            secret_file: self.secret_file.clone(),
            ca_file: self.ca_file.clone(),
            phases: phases.unwrap_or_else(|| Phase::ALL.to_vec()),
            minimum_severity: severity.transpose()?.unwrap_or(Severity::Info),
            per_minute,
        })
    }
}

impl FromStr for NoticeReceivers {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        if text.trim().is_empty() {
            return Ok(Self::default());
        }
        let read = serde_json::from_str(text).map(Self);
        read.map_err(|error| format!("{FLAG} is no JSON list of receivers: {error}"))
    }
}

impl fmt::Display for NoticeReceivers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return Ok(());
        }
        f.write_str(&serde_json::to_string(&self.0).map_err(|_| fmt::Error)?)
    }
}

impl<'de> Deserialize<'de> for NoticeReceivers {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Spelling;
        impl<'de> Visitor<'de> for Spelling {
            type Value = NoticeReceivers;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{FLAG} as a list of receivers, or as JSON in a text")
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Self::Value, E> {
                text.parse().map_err(E::custom)
            }

            fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<Self::Value, A::Error> {
                Deserialize::deserialize(SeqAccessDeserializer::new(list)).map(NoticeReceivers)
            }
        }
        deserializer.deserialize_any(Spelling)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn read(receivers: &Value) -> Result<Vec<Receiver>, String> {
        let read: NoticeReceivers = receivers.to_string().parse()?;
        read.parse().map_err(|error| error.to_string())
    }

    #[test]
    fn a_receiver_of_which_the_address_alone_is_known_gets_all_as_cloudevents() {
        let found = read(&json!([{ "name": "pager", "url": "https://example.com/x" }])).unwrap();
        let [receiver] = &found[..] else {
            panic!("{found:?}")
        };
        assert_eq!(receiver.phases, Phase::ALL);
        assert_eq!(receiver.format, Format::CloudEvents);
        assert_eq!(receiver.minimum_severity, Severity::Info);
        assert_eq!(receiver.per_minute, PER_MINUTE);
    }

    #[test]
    fn what_is_not_allowed_is_named_with_what_is() {
        let url = "https://example.com";
        for (receiver, words) in [
            (json!({ "url": url }), &["receiver 1", "name"][..]),
            (json!({ "name": "A_b", "url": url }), &["A_b", "lower-case"]),
            (json!({ "name": "a" }), &["\"a\"", "url", "urlFile"]),
            (
                json!({ "name": "a", "url": url, "urlFile": "/x" }),
                &["not both"],
            ),
            (
                json!({ "name": "a", "url": "ftp://x" }),
                &["url", "https://"],
            ),
            (
                json!({ "name": "a", "url": "https://u:pw@x/" }),
                &["url", "password"],
            ),
            (
                json!({ "name": "a", "url": url, "format": "mail" }),
                &["format", "cloudevents, slack, teams, template"],
            ),
            (
                json!({ "name": "a", "url": url, "format": "template" }),
                &["template is required"],
            ),
            (
                json!({ "name": "a", "url": url, "template": "x" }),
                &["by no other"],
            ),
            (
                json!({ "name": "a", "url": url, "contentType": "text/plain" }),
                &["contentType"],
            ),
            (
                json!({ "name": "a", "url": url, "phases": ["begin"] }),
                &["phases", "\"begin\"", "began, held"],
            ),
            (
                json!({ "name": "a", "url": url, "minimumSeverity": "high" }),
                &["minimumSeverity", "info, warning, critical"],
            ),
            (
                json!({ "name": "a", "url": url, "perMinute": 0 }),
                &["perMinute", "1 to 600"],
            ),
            (
                json!({ "name": "a", "secret": "s" }),
                &["secret", "secretFile"],
            ),
        ] {
            let error = read(&json!([receiver])).unwrap_err();
            let found = words.iter().all(|it| error.contains(it));
            assert!(found && error.contains(FLAG), "{words:?}: {error}");
            assert!(!error.contains("pw"), "no secret is quoted: {error}");
        }
        let twice = json!({ "name": "a", "url": url });
        let error = read(&json!([twice, twice])).unwrap_err();
        assert!(error.contains("another receiver"), "{error}");
        let error = read(&json!(vec![twice; MOST + 1])).unwrap_err();
        assert!(error.contains("at most 16"), "{error}");
    }
}
