//! Decodes conditions that a member wrote.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use serde::{Deserialize, Deserializer};

use super::nullable;

/// A condition whose time may be anything.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Decoded {
    #[serde(rename = "type")]
    kind: Option<String>,
    status: Option<String>,
    reason: Option<String>,
    message: Option<String>,
    observed_generation: Option<i64>,
    last_transition_time: Option<String>,
}

impl From<Decoded> for Condition {
    fn from(decoded: Decoded) -> Self {
        let time = decoded.last_transition_time;
        let time = time.and_then(|time| time.parse::<Timestamp>().ok());
        Self {
            type_: decoded.kind.unwrap_or_default(),
            status: decoded.status.unwrap_or_default(),
            reason: decoded.reason.unwrap_or_default(),
            message: decoded.message.unwrap_or_default(),
            observed_generation: decoded.observed_generation,
            last_transition_time: Time(time.unwrap_or(Timestamp::UNIX_EPOCH)),
        }
    }
}

/// Deserialises conditions, whatever their times are. The API takes times that [`Timestamp`] does
/// not hold: the last day of the year 9999, or an offset of 99 hours. Such a time counts as that of
/// long ago, so that no member can make its own Cluster or Works unreadable.
///
/// # Errors
/// They are no list, or have fields of other types.
pub fn decoded<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Condition>, D::Error> {
    let decoded: Vec<Decoded> = nullable(deserializer)?;
    Ok(decoded.into_iter().map(Condition::from).collect())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::api::cluster::Cluster;
    use crate::api::work::Work;

    #[test]
    fn no_time_that_the_api_takes_makes_a_cluster_or_a_work_unreadable() {
        for (time, expected) in [
            (json!("1970-01-01T00:00:07Z"), 7),
            (json!("9999-12-31T23:59:59Z"), 0),
            (json!("2024-01-01T00:00:00+99:99"), 0),
            (json!("soon"), 0),
            (json!(null), 0),
        ] {
            let condition = json!({
                "type": "Ready", "status": "True", "reason": "R", "message": "M",
                "lastTransitionTime": time,
            });
            let status = json!({"conditions": [condition]});
            let cluster = json!({"metadata": {}, "spec": {"syncMode": "Pull"}, "status": status});
            let cluster: Cluster = serde_json::from_value(cluster).unwrap();
            let work = json!({"metadata": {}, "spec": {}, "status": status});
            let work: Work = serde_json::from_value(work).unwrap();
            for conditions in [
                cluster.status.unwrap().conditions,
                work.status.unwrap().conditions,
            ] {
                let [condition] = &conditions[..] else {
                    panic!("{conditions:?}");
                };
                let second = condition.last_transition_time.0.as_second();
                assert_eq!(second, expected, "{time}");
                assert_eq!(
                    (&*condition.type_, &*condition.status, &*condition.message),
                    ("Ready", "True", "M")
                );
            }
        }
    }
}
