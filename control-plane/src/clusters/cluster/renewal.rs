//! Leases of members, read so that what one of them writes keeps no other from being read.

use jiff::Timestamp;
use kube::ResourceExt;
use muster_shared::k8s::{Lease, ObjectMeta};
use serde::{Deserialize, Deserializer};

/// The renewal time in a cluster's lease.
///
/// A member writes its own lease, and the API takes times that [`Timestamp`] does not hold, such as
/// the last second of the year 9999. Such a time counts as none.
#[derive(Clone, Debug)]
pub struct Renewal {
    /// The name of the lease, and nothing else.
    metadata: ObjectMeta,
    /// Time of the renewal by the member's clock.
    pub renewed: Option<Timestamp>,
}

#[derive(Deserialize)]
struct Whole {
    metadata: Metadata,
    #[serde(default)]
    spec: Option<Spec>,
}

#[derive(Deserialize)]
struct Metadata {
    name: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Spec {
    renew_time: Option<String>,
}

impl<'de> Deserialize<'de> for Renewal {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Whole { metadata, spec } = Whole::deserialize(deserializer)?;
        let renewed = spec.and_then(|spec| spec.renew_time);
        Ok(Self {
            metadata: ObjectMeta {
                name: Some(metadata.name),
                ..ObjectMeta::default()
            },
            renewed: renewed.and_then(|time| time.parse().ok()),
        })
    }
}

impl From<&Lease> for Renewal {
    fn from(lease: &Lease) -> Self {
        let renewed = lease.spec.as_ref().and_then(|it| it.renew_time.as_ref());
        Self {
            metadata: ObjectMeta {
                name: Some(lease.name_any()),
                ..ObjectMeta::default()
            },
            renewed: renewed.map(|at| at.0),
        }
    }
}

muster_shared::resource_as!(Renewal as Lease);

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_time_that_cannot_be_read_counts_as_none() {
        let second = |second| Timestamp::from_second(second).unwrap();
        for (spec, expected) in [
            (
                json!({"renewTime": "1970-01-01T00:00:07.000000Z"}),
                Some(second(7)),
            ),
            (json!({"renewTime": "9999-12-31T23:59:59.000000Z"}), None),
            (json!({"renewTime": null}), None),
            (json!({}), None),
            (json!(null), None),
        ] {
            let what = spec.to_string();
            // Whatever else is in it does not matter.
            let lease = json!({
                "metadata": {"name": "m1", "creationTimestamp": "?"}, "spec": spec,
            });
            let read: Renewal = serde_json::from_value(lease).unwrap();
            assert_eq!(
                (read.name_any().as_str(), read.renewed),
                ("m1", expected),
                "{what}"
            );
        }
    }
}
