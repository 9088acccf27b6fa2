//! The story's cast: what is applied, which cluster is cut off, how the product is set up for a run
//! of a minute.

use std::path::PathBuf;

use muster_test_fleet::harness::fleet::{MemberPlan, Plan};
use muster_test_fleet::harness::provider::Embedded;
use muster_test_fleet::member::Shape;

/// The manifests with the names of their files.
pub const MANIFESTS: [(&str, &str); 3] = [
    (
        "taint-policy.yaml",
        include_str!("manifests/taint-policy.yaml"),
    ),
    ("web.yaml", include_str!("manifests/web.yaml")),
    ("shop.yaml", include_str!("manifests/shop.yaml")),
];

/// The cluster that is cut off.
pub const VICTIM: &str = "member1";
/// Divided 1:2 over member1 and member2.
pub const WEB: &str = "web";
/// Duplicated to two of [`ALLOWED`].
pub const SHOP: &str = "shop";
/// A ConfigMap to which [`SHOP`] refers, so that it goes where that goes.
pub const SETTINGS: &str = "shop-settings";
/// Clusters that the policy of [`SHOP`] allows.
pub const ALLOWED: [&str; 4] = ["member1", "member2", "member3", "member5"];
/// Replicas of [`WEB`] in all, and of [`SHOP`] in each cluster.
pub const WEB_REPLICAS: i64 = 3;
/// Replicas of [`SHOP`] in each cluster.
pub const SHOP_REPLICAS: i64 = 2;
/// Taint of the manifest's taint policy.
pub const FAILED_TAINT: &str = "example.com/failed:NoExecute";

/// Flags of the control plane that a run of a minute needs. What is said of times is shown beside
/// the defaults.
pub const CONTROL_PLANE: [&str; 9] = [
    "--feature-gates=Failover=true",
    "--cluster-monitor-grace-period=8s",
    "--cluster-startup-grace-period=15s",
    "--resource-eviction-rate=5",
    "--leader-elect-lease-duration=6s",
    "--leader-elect-renew-deadline=4s",
    "--leader-elect-retry-period=1s",
    "--metrics-bind-address=0",
    "--health-probe-bind-address=0",
];

/// Flags of the agents that a run of a minute needs.
pub const AGENT: [&str; 9] = [
    "--cluster-status-update-frequency=2s",
    "--cluster-lease-duration=4s",
    "--cluster-failure-threshold=3s",
    "--cluster-success-threshold=2s",
    "--leader-elect-lease-duration=6s",
    "--leader-elect-renew-deadline=4s",
    "--leader-elect-retry-period=1s",
    "--metrics-bind-address=0",
    "--health-probe-bind-address=0",
];

/// Returns a fleet for the story, with `members` members (member1, member2, ...).
pub fn plan(binary: PathBuf, directory: PathBuf, members: usize) -> Plan {
    let members = (1..=members).map(|number| MemberPlan {
        name: format!("member{number}"),
        // The first two have the most room, so that a workload for two clusters begins there, as in
        // the story.
        shape: Shape {
            nodes: if number <= 2 { 3 } else { 2 },
            ..Shape::default()
        },
    });
    Plan {
        binary,
        directory,
        members: members.collect(),
        control_plane: CONTROL_PLANE.map(str::to_owned).to_vec(),
        agent: AGENT.map(str::to_owned).to_vec(),
        provider: Box::new(Embedded),
    }
}
