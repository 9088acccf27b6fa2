//! What the agent of a member reports of a Work, in bounded memory.

use muster_shared::api::binding::ResourceHealth;
use muster_shared::api::conditions;
use muster_shared::api::work::{ResourceIdentifier, WorkStatus};
use muster_shared::k8s::Condition;
use muster_shared::work_status::{Excess, LONGEST_STATUS};
use serde::de::Error as _;
use serde::ser::{Error as _, SerializeStruct as _};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

/// Bytes of JSON that are kept of the report about one Work. Our agent reports about the one object
/// of a Work no more than [`LONGEST_STATUS`], and conditions; a member may write what it likes, up
/// to the size of an object.
const LONGEST: usize = 2 * LONGEST_STATUS;

/// The report, as text: as a tree it takes about five times the memory. What is too long is left
/// out before it is parsed.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Report {
    text: Box<str>,
    excess: Option<Excess>,
}

/// The report as it is packed: its text as JSON, not as a text within JSON.
#[derive(Serialize, Deserialize)]
pub(super) struct Kept {
    text: Box<RawValue>,
    excess: Option<Excess>,
}

impl From<Kept> for Report {
    fn from(kept: Kept) -> Self {
        Self {
            text: kept.text.into(),
            excess: kept.excess,
        }
    }
}

impl Serialize for Report {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let text: &RawValue = serde_json::from_str(&self.text).map_err(S::Error::custom)?;
        let mut kept = serializer.serialize_struct("Kept", 2)?;
        kept.serialize_field("text", text)?;
        kept.serialize_field("excess", &self.excess)?;
        kept.end()
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Whole {
    #[serde(default, deserialize_with = "conditions::decoded")]
    conditions: Vec<Condition>,
    #[serde(default)]
    manifest_statuses: Option<Vec<Manifest>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Written<'a> {
    conditions: &'a [Condition],
    manifest_statuses: &'a [Manifest],
}

#[derive(Deserialize, Serialize)]
struct Manifest {
    #[serde(default)]
    identifier: ResourceIdentifier,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    status: Option<Box<RawValue>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    health: Option<ResourceHealth>,
}

impl<'de> Deserialize<'de> for Report {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Whole {
            mut conditions,
            manifest_statuses,
        } = Whole::deserialize(deserializer)?;
        let mut manifests = manifest_statuses.unwrap_or_default();
        let mut excess = None;
        for manifest in &mut manifests {
            let bytes = manifest.status.as_ref().map_or(0, |it| it.get().len());
            if bytes > LONGEST_STATUS {
                excess = excess.or(Some(Excess::Length { bytes }));
                manifest.status = None;
            }
        }
        // A report of ordinary size is kept whole; of any other what comes first.
        let mut text = written(&conditions, &manifests).map_err(D::Error::custom)?;
        if text.len() > LONGEST {
            let mut room = LONGEST;
            conditions.retain(|it| takes(&mut room, it));
            manifests.retain(|it| takes(&mut room, it));
            text = written(&conditions, &manifests).map_err(D::Error::custom)?;
        }
        Ok(Self {
            text: text.into_boxed_str(),
            excess,
        })
    }
}

fn written(
    conditions: &[Condition],
    manifest_statuses: &[Manifest],
) -> Result<String, serde_json::Error> {
    serde_json::to_string(&Written {
        conditions,
        manifest_statuses,
    })
}

/// Takes the room for a part of the report, and returns whether there was enough.
fn takes(room: &mut usize, part: &impl Serialize) -> bool {
    let bytes = serde_json::to_string(part).map_or(usize::MAX, |text| text.len());
    let left = room.checked_sub(bytes);
    *room = left.unwrap_or(*room);
    left.is_some()
}

impl Report {
    /// Returns the report; it is parsed anew at each call.
    pub(super) fn read(&self) -> WorkStatus {
        serde_json::from_str(&self.text).unwrap_or_default()
    }

    /// Returns why the status of an object is left out, if one is.
    pub(super) fn excess(&self) -> Option<&Excess> {
        self.excess.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn report(status: &Value) -> Report {
        serde_json::from_str(&status.to_string()).unwrap()
    }

    fn manifest(name: &str, status: &Value) -> Value {
        json!({
            "identifier": {
                "ordinal": 0, "version": "v1", "kind": "ConfigMap", "resource": "", "name": name,
            },
            "health": "Healthy", "status": status,
        })
    }

    #[test]
    fn an_ordinary_report_is_kept_whole() {
        let status = json!({
            "conditions": [{
                "type": "Applied", "status": "True", "reason": "R", "message": "M",
                "lastTransitionTime": "2024-01-01T00:00:00Z",
            }],
            "manifestStatuses": [manifest("a", &json!({"replicas": 1}))],
        });
        let expected: WorkStatus = serde_json::from_value(status.clone()).unwrap();
        let report = report(&status);
        assert_eq!((report.read(), report.excess()), (expected, None));
        assert_eq!(self::report(&json!({})).read(), WorkStatus::default());
    }

    #[test]
    fn a_status_that_is_too_long_is_left_out_and_said_to_be_and_the_health_stays() {
        let long = json!("x".repeat(LONGEST_STATUS - 1));
        let manifests = [manifest("a", &long), manifest("b", &json!({"replicas": 1}))];
        let report = report(&json!({ "manifestStatuses": manifests }));
        let read = report.read().manifest_statuses;
        assert_eq!(read.len(), 2);
        assert_eq!(
            (&read[0].status, &read[0].health),
            (&None, &Some(ResourceHealth::Healthy))
        );
        assert!(read[1].status.is_some());
        let bytes = LONGEST_STATUS + 1;
        assert_eq!(report.excess(), Some(&Excess::Length { bytes }));
    }

    #[test]
    fn whatever_a_member_writes_little_of_it_is_kept() {
        let name = "n".repeat(1_000);
        let many: Vec<Value> = (0..1_000).map(|_| manifest(&name, &json!(null))).collect();
        let conditions: Vec<Value> = (0..1_000)
            .map(|_| json!({"type": name, "lastTransitionTime": "2024-01-01T00:00:00Z"}))
            .collect();
        for status in [
            json!({ "manifestStatuses": many }),
            json!({ "conditions": conditions }),
            json!({ "conditions": conditions, "manifestStatuses": many }),
        ] {
            let report = report(&status);
            assert!(report.text.len() < LONGEST + 1_000);
            let read = report.read();
            assert!(read.conditions.len() + read.manifest_statuses.len() > 50);
        }
    }
}
