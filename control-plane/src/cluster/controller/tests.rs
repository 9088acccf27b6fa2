use serde_json::json;

use super::*;

#[test]
fn a_cluster_is_monitored_by_its_lease_by_a_connection_or_not_at_all() {
    for (mode, connects, expected) in [
        ("Pull", true, Some(Monitoring::Lease)),
        ("Pull", false, Some(Monitoring::Lease)),
        ("Push", true, None),
        ("Push", false, Some(Monitoring::Off)),
    ] {
        let mode = serde_json::from_value(json!(mode)).unwrap();
        assert_eq!(monitoring(&mode, connects), expected);
    }
}
