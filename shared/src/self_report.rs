//! What running processes say about themselves in annotations of the leases that they renew, so
//! that no further write is needed.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::client::Life;
use crate::k8s::Lease;
use crate::names::annotation;

/// State of the leader of the control plane, in the annotation [`annotation::LEADER`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LeaderReport {
    /// Identity of the leader, as in the lease.
    pub identity: String,
    /// Version of the program.
    pub version: String,
    /// All feature gates, and whether each is on.
    pub feature_gates: BTreeMap<String, bool>,
    /// Settings that decide what moves, as flags, those with default values left out; `None` from
    /// a version that does not publish them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flags: Option<Vec<String>>,
    /// Life of its credentials for the fleet API; `None` if they name no end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub credentials: Option<Life>,
}

impl LeaderReport {
    /// Reads what the holder of a lease says; `None` if it says nothing.
    pub fn of(lease: &Lease) -> Option<Self> {
        let report: Self = serde_json::from_str(text(lease, annotation::LEADER)?).ok()?;
        let holder = lease.spec.as_ref()?.holder_identity.as_ref()?;
        (report.identity == *holder).then_some(report)
    }

    /// Writes it as the value of the annotation.
    pub fn write(&self) -> String {
        json!(self).to_string()
    }
}

/// State of the agent of a member, in the annotation [`annotation::AGENT`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AgentReport {
    /// Version of the program.
    pub version: String,
    /// Life of its credentials for the fleet API; `None` if they name no end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub credentials: Option<Life>,
}

impl AgentReport {
    /// Reads what the agent says that renewed a lease last; `None` if it says nothing, as
    /// Karmada's agent does.
    pub fn of(lease: &Lease) -> Option<Self> {
        let renewed = json!(lease.spec.as_ref()?.renew_time.as_ref()?);
        if text(lease, annotation::FENCES)? != renewed.as_str()? {
            return None;
        }
        serde_json::from_str(text(lease, annotation::AGENT)?).ok()
    }

    /// Writes it as the value of the annotation.
    pub fn write(&self) -> String {
        json!(self).to_string()
    }
}

fn text<'a>(lease: &'a Lease, key: &str) -> Option<&'a str> {
    Some(lease.metadata.annotations.as_ref()?.get(key)?.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_former_holder_said_about_itself_does_not_count() {
        let report = LeaderReport {
            identity: "a".to_owned(),
            version: "0.1.0".to_owned(),
            feature_gates: BTreeMap::from([("Failover".to_owned(), true)]),
            flags: Some(vec!["--resource-eviction-rate=5".to_owned()]),
            credentials: None,
        };
        for (holder, counts) in [("a", true), ("b", false)] {
            let lease = json!({
                "metadata": {"annotations": {annotation::LEADER: report.write()}},
                "spec": {"holderIdentity": holder},
            });
            let lease = serde_json::from_value(lease).unwrap();
            let expected = counts.then(|| report.clone());
            assert_eq!(LeaderReport::of(&lease), expected, "{holder}");
        }
        let given_up = json!({"metadata": {"annotations": {annotation::LEADER: report.write()}}});
        let given_up = serde_json::from_value(given_up).unwrap();
        assert_eq!(LeaderReport::of(&given_up), None);
    }

    #[test]
    fn what_a_former_agent_said_about_itself_does_not_count() {
        let report = AgentReport {
            version: "0.1.0".to_owned(),
            credentials: Some(Life {
                begin: None,
                end: "2030-01-01T00:00:00Z".parse().unwrap(),
            }),
        };
        let (then, now) = ("2029-01-01T00:00:00.000000Z", "2029-01-01T00:00:10.000000Z");
        for (renewed, counts) in [(then, true), (now, false)] {
            let annotations = json!({annotation::FENCES: then, annotation::AGENT: report.write()});
            let lease = json!({
                "metadata": {"annotations": annotations},
                "spec": {"renewTime": renewed},
            });
            let lease = serde_json::from_value(lease).unwrap();
            let expected = counts.then(|| report.clone());
            assert_eq!(AgentReport::of(&lease), expected, "{renewed}");
        }
    }
}
