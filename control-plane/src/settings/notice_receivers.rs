//! Receivers of notices of failovers: `--notice-receivers`. No secret is among them, only names of
//! files.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::str::FromStr;

use muster_shared::names::is_label;
use muster_shared::settings::{Error, from_json, list_or_json};
use serde::{Deserialize, Deserializer};

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
    ($(#[$meta:meta])* $name:ident, $field:literal { $($(#[$doc:meta])* $variant:ident = $text:literal,)* }) => {
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
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = String::deserialize(deserializer)?;
                let found = Self::ALL.iter().find(|it| it.name() == text);
                found.copied().ok_or_else(|| {
                    let known: Vec<_> = Self::ALL.iter().map(|it| it.name()).collect();
                    let known = known.join(", ");
                    serde::de::Error::custom(format!("{} is {text:?}; it may be {known}", $field))
                })
            }
        }
    };
}

words! {
    /// Moment of a failover at which notices are sent.
    Phase, "one of phases" {
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
    Severity, "minimumSeverity" {
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
    Format, "format" {
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

/// Receiver of notices.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Receiver {
    /// Name in annotations, metrics and log lines.
    pub name: String,
    /// Address that notices are sent to, unless it is in a file.
    pub url: Option<String>,
    /// File with the address, for one that is a secret.
    pub url_file: Option<PathBuf>,
    /// Form of the body.
    #[serde(default = "cloudevents")]
    pub format: Format,
    /// Template of the body, for that format alone.
    pub template: Option<String>,
    /// Content type of what the template makes; JSON if absent.
    pub content_type: Option<String>,
    /// File with the keys that sign, if notices are signed.
    pub secret_file: Option<PathBuf>,
    /// File with the authorities that are trusted instead of those of the system.
    pub ca_file: Option<PathBuf>,
    /// Phases that are sent; all if there are none.
    #[serde(default)]
    pub phases: Vec<Phase>,
    /// Least severity of failovers that are sent.
    #[serde(default = "info")]
    pub minimum_severity: Severity,
    /// Number of notices a minute at most.
    #[serde(default = "per_minute")]
    pub per_minute: u32,
}

const fn cloudevents() -> Format {
    Format::CloudEvents
}

const fn info() -> Severity {
    Severity::Info
}

const fn per_minute() -> u32 {
    PER_MINUTE
}

/// Receivers of notices, given as a YAML list or as JSON in a text.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct NoticeReceivers(#[serde(deserialize_with = "list_or_json")] pub Vec<Receiver>);

impl NoticeReceivers {
    /// Rejects receivers that nothing could be sent to.
    ///
    /// # Errors
    /// When a field is missing or has a value that is not allowed; the error names both.
    pub fn check(&self) -> Result<(), Error> {
        if self.0.len() > MOST {
            let problem = format!("there are {}; at most {MOST} are allowed", self.0.len());
            return Err(Error::invalid(FLAG, problem));
        }
        let mut names = BTreeSet::new();
        for receiver in &self.0 {
            let is_new = names.insert(&receiver.name);
            let twice = || "name is that of another receiver, too".to_owned();
            let checked = receiver
                .check()
                .and_then(|()| is_new.then_some(()).ok_or_else(twice));
            checked.map_err(|problem| receiver.refused(&problem))?;
        }
        Ok(())
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

impl Receiver {
    /// Makes the error for a receiver that cannot be used.
    pub fn refused(&self, problem: &str) -> Error {
        Error::invalid(FLAG, format!("receiver {:?}: {problem}", self.name))
    }

    fn check(&self) -> Result<(), String> {
        if self.name.len() > 40 || !is_label(&self.name) {
            return Err(
                "name has up to 40 lower-case letters, digits and inner hyphens".to_owned(),
            );
        }
        if self.url.is_some() == self.url_file.is_some() {
            return Err("one of url and urlFile is required, and not both".to_owned());
        }
        if let Some(url) = &self.url {
            check_url(url).map_err(|problem| format!("url {problem}"))?;
        }
        let is_template = self.format == Format::Template;
        if is_template != self.template.is_some() || !is_template && self.content_type.is_some() {
            let rule = "required by format template, and contentType allowed; by no other";
            return Err(format!("template is {rule}"));
        }
        if self
            .template
            .as_ref()
            .is_some_and(|it| it.len() > LONGEST_TEMPLATE)
        {
            return Err(format!("template is longer than {LONGEST_TEMPLATE} bytes"));
        }
        let kind = self
            .content_type
            .as_deref()
            .map(http::HeaderValue::from_str);
        if kind.is_some_and(|it| it.is_err()) {
            return Err("contentType is no value of a header, such as text/plain".to_owned());
        }
        if !(1..=600).contains(&self.per_minute) {
            let number = self.per_minute;
            return Err(format!("perMinute is {number}; it may be 1 to 600"));
        }
        Ok(())
    }

    /// Returns whether a phase is sent.
    pub fn wants(&self, phase: Phase) -> bool {
        self.phases.is_empty() || self.phases.contains(&phase)
    }
}

impl FromStr for NoticeReceivers {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let read = from_json(text).map(Self);
        read.map_err(|error| format!("{FLAG} is no JSON list of receivers: {error}"))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn read(receivers: &Value) -> Result<Vec<Receiver>, String> {
        let read: NoticeReceivers = receivers.to_string().parse()?;
        read.check().map_err(|error| error.to_string())?;
        Ok(read.0)
    }

    #[test]
    fn a_receiver_of_which_the_address_alone_is_known_gets_all_as_cloudevents() {
        let found = read(&json!([{ "name": "pager", "url": "https://example.com/x" }])).unwrap();
        let [receiver] = &found[..] else {
            panic!("{found:?}")
        };
        assert!(Phase::ALL.iter().all(|it| receiver.wants(*it)));
        assert_eq!(receiver.format, Format::CloudEvents);
        assert_eq!(receiver.minimum_severity, Severity::Info);
        assert_eq!(receiver.per_minute, PER_MINUTE);
    }

    #[test]
    fn what_is_not_allowed_is_named_with_what_is() {
        let url = "https://example.com";
        let refuse = |receiver: Value, words: &[&str]| {
            let error = read(&json!([receiver])).unwrap_err();
            let found = words.iter().all(|it| error.contains(it));
            assert!(found && error.contains(FLAG), "{words:?}: {error}");
            assert!(!error.contains("pw"), "no secret is quoted: {error}");
        };
        refuse(json!({ "url": url }), &["name"]);
        refuse(json!({ "name": "a" }), &["\"a\"", "url", "urlFile"]);
        let secret = json!({ "name": "a", "secret": "s" });
        refuse(secret, &["secret", "secretFile"]);
        let formats = "cloudevents, slack, teams, template";
        let severities = ["minimumSeverity", "info, warning, critical"];
        for (field, value, words) in [
            ("name", json!("A_b"), &["A_b", "lower-case"][..]),
            ("urlFile", json!("/x"), &["not both"]),
            ("url", json!("ftp://x"), &["url", "https://"]),
            ("url", json!("https://u:pw@x/"), &["url", "password"]),
            ("format", json!("mail"), &["format", formats]),
            ("format", json!("template"), &["template is required"]),
            ("template", json!("x"), &["by no other"]),
            ("contentType", json!("text/plain"), &["contentType"]),
            ("phases", json!(["begin"]), &["phases", "\"begin\""]),
            ("phases", json!(["begin"]), &["began, held"]),
            ("minimumSeverity", json!("high"), &severities),
            ("perMinute", json!(0), &["perMinute", "1 to 600"]),
        ] {
            let mut receiver = json!({ "name": "a", "url": url });
            receiver[field] = value;
            refuse(receiver, words);
        }
        let twice = json!({ "name": "a", "url": url });
        let error = read(&json!([twice, twice])).unwrap_err();
        assert!(error.contains("another receiver"), "{error}");
        let error = read(&json!(vec![twice; MOST + 1])).unwrap_err();
        assert!(error.contains("at most 16"), "{error}");
    }
}
