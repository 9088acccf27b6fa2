//! What a pause says, and how it is written.
//!
//! That the record is there means that movement is paused, whatever it says: a typing error in it
//! must not let anything move.

use std::collections::BTreeMap;
use std::fmt;

use jiff::{SignedDuration, Timestamp};
use muster_shared::api::cluster::Cluster;
use muster_shared::k8s::{ConfigMap, ObjectMeta, ResourceExt};
use muster_shared::names::annotation::PAUSED;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::fleet::attribution::{Attribution, COMMAND, order, plain};

/// Time after which a pause ends by itself that is a step of an order about several clusters.
pub const STEP: SignedDuration = SignedDuration::from_mins(1);

/// A pause of movement.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pause {
    /// Name of the cluster that is paused; `None` for the whole fleet.
    pub cluster: Option<String>,
    /// Reason, in the words of the person who paused.
    pub reason: String,
    /// User that paused.
    pub by: String,
    /// Time of the command.
    pub since: Option<Timestamp>,
    /// End of the pause; `None`: until somebody resumes.
    pub until: Option<Timestamp>,
    /// A part of the record that cannot be read.
    pub garbled: Option<String>,
    /// Order to end the pause of the fleet, which is recorded just before it ends.
    pub resumed: Option<Attribution>,
}

/// The record as it is written.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
struct Record {
    #[serde(default)]
    reason: String,
    #[serde(default)]
    by: String,
    #[serde(default)]
    since: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    until: String,
}

impl Pause {
    /// Returns the pause of the fleet that a ConfigMap records.
    pub fn of_fleet(record: &ConfigMap) -> Self {
        let empty = BTreeMap::new();
        let data = record.data.as_ref().unwrap_or(&empty);
        let text = |key: &str| data.get(key).cloned().unwrap_or_default();
        let pause = Self::read(&Record {
            reason: text("reason"),
            by: text("by"),
            since: text("since"),
            until: text("until"),
        });
        let resumed = Attribution::in_force(&record.metadata, order::RESUME, order::PAUSE, None);
        Self { resumed, ..pause }
    }

    /// Returns the pauses that hold: that of the fleet, if there is one, and then those of the
    /// clusters. Of one that somebody wrote by hand, the API server names the program and the time.
    pub fn all<'a>(
        record: Option<&ConfigMap>,
        clusters: impl IntoIterator<Item = &'a Cluster>,
        now: Timestamp,
    ) -> impl Iterator<Item = Self> {
        let own = clusters.into_iter().filter_map(|it| {
            let path = ["metadata", "annotations", PAUSED];
            Some(Self::of_cluster(it)?.written(&it.metadata, &path))
        });
        let fleet = record.map(|it| Self::of_fleet(it).written(&it.metadata, &[]));
        let all = fleet.into_iter().chain(own);
        all.filter(move |pause| pause.holds(now))
    }

    /// Returns the pause with whoever wrote the field at `path`, if it names nobody.
    fn written(mut self, metadata: &ObjectMeta, path: &[&str]) -> Self {
        if self.by.is_empty()
            && let Some(order) = Attribution::by_program(metadata, order::PAUSE, path)
        {
            self.by = order.by;
            self.since = self.since.or(order.at);
        }
        self
    }

    /// Returns the pause of a cluster, if its annotation says so.
    pub fn of_cluster(cluster: &Cluster) -> Option<Self> {
        let pause = Self::of_annotations(&cluster.metadata)?;
        let cluster = Some(cluster.name_any());
        Some(Self { cluster, ..pause })
    }

    /// Returns the pause that the annotations of a cluster report, without the cluster's name.
    pub fn of_annotations(metadata: &ObjectMeta) -> Option<Self> {
        let text = metadata.annotations.as_ref()?.get(PAUSED)?;
        Some(match serde_json::from_str::<Record>(text) {
            Ok(record) => Self::read(&record),
            // A person may have annotated the cluster by hand, with a reason.
            Err(_) => Self {
                reason: plain(text),
                ..Self::default()
            },
        })
    }

    fn read(record: &Record) -> Self {
        let mut garbled = None;
        let mut time = |key: &str, text: &str| {
            if text.is_empty() {
                return None;
            }
            let read = text.parse::<Timestamp>().ok();
            if read.is_none() {
                garbled = Some(format!("{key} is {:?}, which is no time", plain(text)));
            }
            read
        };
        let since = time("since", &record.since);
        // Last, so that of two faults the one that matters is reported.
        let until = time("until", &record.until);
        Self {
            cluster: None,
            reason: plain(&record.reason),
            by: plain(&record.by),
            since,
            until,
            garbled,
            resumed: None,
        }
    }

    /// Returns the fields of the record, for a ConfigMap's data.
    pub fn fields(&self) -> BTreeMap<String, String> {
        let time = |time: Option<Timestamp>| time.map(|it| format!("{it:.0}"));
        let fields = [
            ("reason", Some(self.reason.clone())),
            ("by", Some(self.by.clone())),
            ("since", time(self.since)),
            ("until", time(self.until)),
        ];
        let fields = fields.into_iter();
        fields
            .filter_map(|(key, value)| Some((key.to_owned(), value?)))
            .collect()
    }

    /// Returns whether the pause is a step of an order of `kubectl muster` about several clusters,
    /// which lasts for a moment.
    pub fn is_step(&self, now: Timestamp) -> bool {
        let end = self.until.map(|until| until.duration_since(now));
        self.by == COMMAND && end.is_some_and(|end| end <= 2 * STEP)
    }

    /// Returns the annotation of a cluster with a pause that names the user who writes it; `None`
    /// if it does so already, or cannot be read. `old` is the cluster as it was: nothing that holds
    /// is prolonged as a step of an order.
    pub fn attributed(
        metadata: &ObjectMeta,
        old: &ObjectMeta,
        user: &str,
        now: Timestamp,
    ) -> Option<String> {
        let text = metadata.annotations.as_ref()?.get(PAUSED)?;
        let record: Record = serde_json::from_str(text).ok()?;
        let is_held = Self::of_annotations(old).is_some_and(|it| it.holds(now));
        if record.by == user || !is_held && Self::read(&record).is_step(now) {
            return None;
        }
        // Other fields that people write into the record stay.
        let mut written: Value = serde_json::from_str(text).ok()?;
        written["by"] = user.into();
        Some(written.to_string())
    }

    /// Returns whether the pause is not over at `now`.
    pub fn holds(&self, now: Timestamp) -> bool {
        self.until.is_none_or(|until| now < until)
    }

    /// Describes the pause in a sentence, with its times as `clock` writes them.
    pub fn describe(&self, clock: impl Fn(Timestamp) -> String) -> String {
        let mut text = match &self.cluster {
            None => "all movement is paused".to_owned(),
            Some(cluster) => format!("movement out of {cluster} is paused"),
        };
        if !self.by.is_empty() {
            text = format!("{text} by {}", self.by);
        }
        if let Some(since) = self.since {
            text = format!("{text} since {}", clock(since));
        }
        text = match self.until {
            Some(until) => format!("{text} until {}", clock(until)),
            None => format!("{text} until somebody resumes it"),
        };
        if !self.reason.is_empty() {
            // A time that the reason names is not to be taken for the end.
            let names_time = self.reason.contains(|it: char| it.is_ascii_digit());
            let is_endless = self.until.is_none() && names_time;
            let no_end = if is_endless {
                ", which ends nothing"
            } else {
                ""
            };
            text = format!("{text} (reason: \"{}\"{no_end})", self.reason);
        }
        if let Some(garbled) = &self.garbled {
            text = format!("{text} (the record cannot be read whole: {garbled})");
        }
        text
    }
}

impl fmt::Display for Pause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.describe(|time| format!("{time:.0}")))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::fleet::testing::at;

    #[test]
    fn a_pause_that_names_nobody_is_reported_with_the_program_that_wrote_it() {
        let writers = |fields: serde_json::Value| {
            json!([{
                "manager": "kubectl-create", "operation": "Update", "apiVersion": "v1",
                "fieldsType": "FieldsV1", "fieldsV1": fields, "time": "1970-01-01T00:00:05Z",
            }])
        };
        let record: ConfigMap = serde_json::from_value(json!({ "metadata": {
            "name": "muster-pause", "managedFields": writers(json!({ "f:data": {} })),
        } }))
        .unwrap();
        let own = json!({ "f:metadata": { "f:annotations": { format!("f:{PAUSED}"): {} } } });
        let cluster: Cluster = serde_json::from_value(json!({ "metadata": {
            "name": "m1", "annotations": { PAUSED: "upgrade" }, "managedFields": writers(own),
        }, "spec": { "syncMode": "Pull" } }))
        .unwrap();
        let reported = Pause::all(Some(&record), [&cluster], at(9)).map(|it| it.to_string());
        let by = "by somebody with kubectl-create since 1970-01-01T00:00:05Z";
        assert_eq!(
            reported.collect::<Vec<_>>(),
            [
                format!("all movement is paused {by} until somebody resumes it"),
                format!(
                    "movement out of m1 is paused {by} until somebody resumes it (reason: \"upgrade\")"
                ),
            ]
        );
    }

    #[test]
    fn a_pause_is_read_as_it_was_written() {
        let pause = Pause {
            reason: "change freeze".into(),
            by: "alice".into(),
            since: Some(at(10)),
            until: Some(at(70)),
            ..Pause::default()
        };
        let record = ConfigMap {
            data: Some(pause.fields()),
            ..ConfigMap::default()
        };
        assert_eq!(Pause::of_fleet(&record), pause);
        assert_eq!(
            pause.to_string(),
            "all movement is paused by alice since 1970-01-01T00:00:10Z until 1970-01-01T00:01:10Z (reason: \"change freeze\")"
        );
        assert!(pause.holds(at(69)) && !pause.holds(at(70)));
    }

    #[test]
    fn whatever_the_record_says_movement_is_paused_while_it_is_there() {
        let always = "all movement is paused until somebody resumes it";
        for (data, expected) in [
            (json!(null), always),
            (json!({}), always),
            (
                json!({"until": "tomorrow", "by": "bob"}),
                "all movement is paused by bob until somebody resumes it (the record cannot be read whole: until is \"tomorrow\", which is no time)",
            ),
            (
                json!({"since": "?", "until": "1970-01-01T00:01:10Z"}),
                "all movement is paused until 1970-01-01T00:01:10Z (the record cannot be read whole: since is \"?\", which is no time)",
            ),
        ] {
            let record: ConfigMap = serde_json::from_value(json!({ "data": data })).unwrap();
            let pause = Pause::of_fleet(&record);
            assert_eq!(pause.to_string(), expected);
            assert!(pause.holds(at(0)));
        }
    }

    #[test]
    fn a_cluster_is_paused_by_its_annotation_in_any_words() {
        let cluster = |text: Option<&str>| -> Cluster {
            let annotations = text.map(|text| json!({ PAUSED: text }));
            serde_json::from_value(json!({
                "metadata": {"name": "m1", "annotations": annotations}, "spec": {"syncMode": "Pull"},
            }))
            .unwrap()
        };
        assert_eq!(Pause::of_cluster(&cluster(None)), None);
        for (text, expected) in [
            ("", "movement out of m1 is paused until somebody resumes it"),
            (
                "upgrade",
                "movement out of m1 is paused until somebody resumes it (reason: \"upgrade\")",
            ),
            (
                "until 23:00",
                "movement out of m1 is paused until somebody resumes it (reason: \"until 23:00\", which ends nothing)",
            ),
            (
                r#"{"reason":"upgrade","by":"alice","until":"1970-01-01T00:01:10Z"}"#,
                "movement out of m1 is paused by alice until 1970-01-01T00:01:10Z (reason: \"upgrade\")",
            ),
        ] {
            let pause = Pause::of_cluster(&cluster(Some(text))).unwrap();
            assert_eq!(pause.to_string(), expected);
        }
    }

    #[test]
    fn no_text_of_a_pause_moves_the_cursor_of_a_terminal() {
        let evil = "\u{1b}[2J\u{1b}[Hall is well\r\n";
        let written = json!({"reason": evil, "by": evil}).to_string();
        let data = json!({"data": {"reason": evil, "by": evil, "until": evil}});
        let mut reported = vec![Pause::of_fleet(&serde_json::from_value(data).unwrap())];
        for text in [evil, &written] {
            let annotations = json!({"annotations": {PAUSED: text}});
            let metadata: ObjectMeta = serde_json::from_value(annotations).unwrap();
            reported.extend(Pause::of_annotations(&metadata));
        }
        for pause in reported {
            let text = pause.to_string();
            assert!(!text.contains(char::is_control), "{text:?}");
        }
    }
}
