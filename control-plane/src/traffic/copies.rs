//! Judges where the copies of a Service or an Ingress serve, by its binding, by that of the
//! workload that it follows, and by the clusters. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use muster_shared::api::binding::{ResourceBindingSpec, ResourceBindingStatus, ResourceHealth};
use muster_shared::api::cluster::Cluster;
use muster_shared::names::is_hostname;
use serde_json::Value;

use super::decide::State;
use crate::fleet::availability::{Unavailable, Workload, can_hold};

/// Most addresses that are taken of one cluster, which writes them.
const MOST_ADDRESSES: usize = 16;

/// A binding, and the switches of what makes its workload leave.
#[derive(Clone, Copy, Debug)]
pub struct Placed<'a> {
    /// Name of the placed object as people read it: `Service shop/web`.
    pub name: &'a str,
    /// Placement of the object.
    pub spec: &'a ResourceBindingSpec,
    /// Reports of the clusters.
    pub status: &'a ResourceBindingStatus,
    /// The gate `Failover`.
    pub failover: bool,
    /// Whether NoExecute taints evict.
    pub no_execute: bool,
}

/// Judges each copy of an entry that may live somewhere, with its addresses. A cluster that is not
/// in the result has none.
///
/// An address that is `hostname`, the one that is asked for, is none.
///
/// `followed` is the workload whose copies have to be healthy, too: `Some(Err(name))` while it is
/// not propagated.
pub fn copies<C: AsRef<Cluster>>(
    entry: Placed<'_>,
    followed: Option<Result<Placed<'_>, &str>>,
    hostname: &str,
    cluster: impl Fn(&str) -> Option<C>,
) -> BTreeMap<String, (State, BTreeSet<String>)> {
    let judged = |name: &String| {
        let found = cluster(name);
        let found = found.as_ref().map(AsRef::as_ref);
        let mut state = judge(entry, name, found)?;
        match followed {
            None => {}
            Some(Ok(workload)) => state = worse(state, judge(workload, name, found)?),
            Some(Err(workload)) => {
                state = worse(
                    state,
                    State::Lost(format!(
                        "has no copy of {workload}, which is not propagated"
                    )),
                );
            }
        }
        let item = entry.status.report(name);
        let addresses = item
            .and_then(|it| it.status.as_ref())
            .map(|it| addresses(&it.0));
        let mut addresses = addresses.unwrap_or_default();
        // Some clouds have their users write the name of a load balancer into its status.
        addresses.remove(hostname);
        if addresses.is_empty() {
            let why = "reports no address of a load balancer".to_owned();
            state = worse(state, State::Lost(why));
        }
        Some((name.clone(), (state, addresses)))
    };
    names(entry).iter().filter_map(judged).collect()
}

/// Returns the clusters that are to have a copy, or report one.
fn names(placed: Placed<'_>) -> BTreeSet<String> {
    let reporting = placed.status.aggregated_status.iter();
    let mut names: BTreeSet<String> = reporting.map(|it| it.cluster_name.clone()).collect();
    let required = placed.spec.required_by.iter().flat_map(|it| &it.clusters);
    let targets = placed.spec.clusters.iter().chain(required);
    names.extend(targets.map(|it| it.name.clone()));
    names.extend(
        placed
            .spec
            .graceful_eviction_tasks
            .iter()
            .map(|it| it.from_cluster.clone()),
    );
    names
}

/// Returns the state of the copy in a cluster; `None` if there is none any more.
fn judge(placed: Placed<'_>, name: &str, cluster: Option<&Cluster>) -> Option<State> {
    let Placed { spec, status, .. } = placed;
    let mut required = spec.required_by.iter().flat_map(|it| &it.clusters);
    let is_target = spec.target(name).is_some() || required.any(|it| it.name == name);
    let item = status.report(name);
    if !is_target && item.is_none() && spec.eviction_task(name).is_none() {
        return None;
    }
    let workload = Workload::of(spec, spec.placement.as_deref());
    let held = can_hold(cluster, &workload.under(placed.failover, placed.no_execute));
    let lost = |why: String| Some(State::Lost(why));
    let tainted = match held {
        Ok(()) => None,
        Err(taint @ Unavailable::Tainted(_)) => Some(taint.to_string()),
        Err(other) => return lost(other.to_string()),
    };
    let target = spec.target(name).filter(|_| spec.replicas > 0);
    if target.is_some_and(|it| it.replicas <= 0) && !spec.is_undivided() {
        return lost(format!("is to have no replica of {}", placed.name));
    }
    let Some(item) = item else {
        return lost(format!("has not reported {}", placed.name));
    };
    if !item.applied {
        return lost(format!("has not applied {}", placed.name));
    }
    if item.health != Some(ResourceHealth::Healthy) {
        let health = item
            .health
            .as_ref()
            .map_or("Unknown", ResourceHealth::as_str);
        return lost(format!("reports {} as {health}", placed.name));
    }
    let leaves = || format!("has a copy of {} that is leaving", placed.name);
    let why = tainted.or_else(|| (!is_target).then(leaves));
    Some(why.map_or(State::Serves, State::Leaves))
}

/// Returns the worse of two states, the first of two that are as bad.
fn worse(first: State, second: State) -> State {
    let rank = |state: &State| match state {
        State::Serves => 0,
        State::Leaves(_) => 1,
        State::Lost(_) => 2,
    };
    if rank(&second) > rank(&first) {
        second
    } else {
        first
    }
}

/// Returns the addresses in the status of a Service or an Ingress to which a client can connect
/// from elsewhere.
fn addresses(status: &Value) -> BTreeSet<String> {
    let ingress = status["loadBalancer"]["ingress"].as_array();
    let ingress = ingress.into_iter().flatten();
    let address = |it: &Value| {
        let ip = it["ip"].as_str().filter(|it| !it.is_empty());
        if let Some(ip) = ip {
            // An IPv4 address that is written as one of IPv6 belongs into an A record.
            let ip = ip.parse::<IpAddr>().ok()?.to_canonical();
            return is_reachable(ip).then(|| ip.to_string());
        }
        let name = it["hostname"].as_str()?.to_ascii_lowercase();
        let name = name.strip_suffix('.').unwrap_or(&name);
        is_hostname(name).then(|| name.to_owned())
    };
    ingress.filter_map(address).take(MOST_ADDRESSES).collect()
}

/// Returns whether an address, in its canonical form, can be that of another machine. A member must
/// not lead clients to themselves.
fn is_reachable(ip: IpAddr) -> bool {
    let is_local = match ip {
        IpAddr::V4(ip) => ip.is_link_local() || ip.is_broadcast(),
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    };
    !is_local && !ip.is_loopback() && !ip.is_unspecified() && !ip.is_multicast()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;
    use crate::fleet::testing;

    struct Bound(ResourceBindingSpec, ResourceBindingStatus);

    impl Bound {
        /// Makes a binding for clusters that leaves others, with reports: cluster, whether it is
        /// applied, health.
        fn new(targets: &[&str], leaves: &[&str], reports: &[(&str, bool, &str)]) -> Self {
            let named = |key: &str, names: &[&str]| -> Vec<Value> {
                names.iter().map(|it| json!({ key: it })).collect()
            };
            let reports = reports.iter().map(|(cluster, applied, health)| {
                let ingress = json!({"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}});
                json!({"clusterName": cluster, "applied": applied, "health": health, "status": ingress})
            });
            let spec = json!({
                "resource": {"apiVersion": "v1", "kind": "Service", "name": "web"},
                "clusters": named("name", targets),
                "gracefulEvictionTasks": named("fromCluster", leaves),
            });
            let status = json!({ "aggregatedStatus": reports.collect::<Vec<_>>() });
            let read = |it| serde_json::from_value(it).unwrap();
            Self(read(spec), serde_json::from_value(status).unwrap())
        }

        fn placed<'a>(&'a self, name: &'a str) -> Placed<'a> {
            Placed {
                name,
                spec: &self.0,
                status: &self.1,
                failover: true,
                no_execute: true,
            }
        }
    }

    /// Returns the cluster of a name: `m1` and `m2` are well, `silent`, `tainted`, `leaving`.
    fn cluster(name: &str) -> Option<Arc<Cluster>> {
        let mut cluster = testing::cluster(name);
        match name {
            "m1" | "m2" => {}
            "silent" => cluster["status"]["conditions"][0]["status"] = json!("Unknown"),
            "tainted" => {
                cluster["spec"]["taints"] = json!([{"key": "x", "effect": "NoExecute"}]);
            }
            "leaving" => {
                cluster["metadata"]["deletionTimestamp"] = json!("2024-01-01T00:00:00Z");
            }
            _ => return None,
        }
        Some(Arc::new(serde_json::from_value(cluster).unwrap()))
    }

    fn state(
        entry: &Bound,
        followed: Option<Result<&Bound, &'static str>>,
        name: &str,
    ) -> Option<State> {
        let followed = followed.map(|it| it.map(|it| it.placed("Deployment shop")));
        let mut copies = copies(entry.placed("Service web"), followed, "h", cluster);
        copies.remove(name).map(|it| it.0)
    }

    #[test]
    fn a_copy_serves_where_it_is_healthy_in_a_cluster_that_reports_and_that_it_does_not_leave() {
        let leaving = "leaves: has a copy of Service web that is leaving";
        let tainted = "leaves: has taint x:NoExecute, which is not tolerated";
        let ill = "lost: reports Service web as Unhealthy";
        let unknown = "lost: reports Service web as Unknown";
        let unapplied = "lost: has not applied Service web";
        let silent = "lost: has Ready=Unknown";
        let deleted = "lost: is being deleted";
        let gone = "lost: is not known to the control plane";
        for (name, leaves, applied, health, expected) in [
            ("m1", false, true, "Healthy", "serves"),
            ("m1", true, true, "Healthy", leaving),
            ("tainted", false, true, "Healthy", tainted),
            ("m1", false, true, "Unhealthy", ill),
            ("m1", true, true, "Unknown", unknown),
            ("m1", false, false, "Healthy", unapplied),
            ("silent", false, true, "Healthy", silent),
            ("leaving", false, true, "Healthy", deleted),
            ("gone", false, true, "Healthy", gone),
        ] {
            let here = [name];
            let (targets, left): (&[&str], &[&str]) =
                if leaves { (&[], &here) } else { (&here, &[]) };
            let bound = Bound::new(targets, left, &[(name, applied, health)]);
            let reported = match state(&bound, None, name) {
                Some(State::Serves) => "serves".to_owned(),
                Some(State::Leaves(why)) => format!("leaves: {why}"),
                Some(State::Lost(why)) => format!("lost: {why}"),
                None => "none".to_owned(),
            };
            assert_eq!(reported, expected);
        }
        let rendered = Bound::new(&["m1"], &[], &[]);
        let lost = State::Lost("has not reported Service web".to_owned());
        assert_eq!(state(&rendered, None, "m1"), Some(lost));
        assert_eq!(state(&rendered, None, "m2"), None);
    }

    #[test]
    fn a_copy_is_as_good_as_the_workload_that_it_follows() {
        let both = [("m1", true, "Healthy"), ("m2", true, "Healthy")];
        let everywhere = Bound::new(&["m1", "m2"], &[], &both);
        let in_m2 = |health| Bound::new(&["m2"], &[], &[("m2", true, health)]);
        let reports = [("m1", true, "Healthy"), ("m2", true, "Unknown")];
        let moving = Bound::new(&["m2"], &["m1"], &reports);
        let ill = |name: &str| Some(State::Lost(format!("reports Deployment shop as {name}")));
        let leaves = State::Leaves("has a copy of Deployment shop that is leaving".to_owned());
        for (what, workload, in_m1, in_m2) in [
            ("well", in_m2("Healthy"), None, Some(State::Serves)),
            ("ill", in_m2("Unhealthy"), None, ill("Unhealthy")),
            ("moving", moving, Some(leaves), ill("Unknown")),
        ] {
            let got = ["m1", "m2"].map(|name| state(&everywhere, Some(Ok(&workload)), name));
            assert_eq!(got, [in_m1, in_m2], "{what}");
        }
        let why = "has no copy of Deployment shop, which is not propagated".to_owned();
        let unknown = state(&everywhere, Some(Err("Deployment shop")), "m1");
        assert_eq!(unknown, Some(State::Lost(why)));
    }

    #[test]
    fn addresses_are_those_of_other_machines() {
        for (entry, expected) in [
            (json!({"ip": "192.0.2.1"}), Some("192.0.2.1")),
            (json!({"ip": "2001:DB8:0::1"}), Some("2001:db8::1")),
            (
                json!({"ip": "", "hostname": "LB.example."}),
                Some("lb.example"),
            ),
            (json!({"ip": "::ffff:192.0.2.1"}), Some("192.0.2.1")),
            (json!({"ip": "127.0.0.1"}), None),
            (json!({"ip": "::ffff:127.0.0.1"}), None),
            (json!({"ip": "169.254.169.254"}), None),
            (json!({"ip": "fe80::1"}), None),
            (json!({"ip": "0.0.0.0"}), None),
            (json!({"ip": "224.0.0.1"}), None),
            (json!({"ip": "here"}), None),
            (json!({"hostname": "localhost"}), None),
            (json!("here"), None),
        ] {
            let status = json!({"loadBalancer": {"ingress": [entry]}});
            let got: Vec<String> = addresses(&status).into_iter().collect();
            let expected: Vec<&str> = expected.into_iter().collect();
            assert_eq!(got, expected, "{entry}");
        }
        let many: Vec<Value> = (0..99)
            .map(|it| json!({"ip": format!("192.0.2.{it}")}))
            .collect();
        let status = json!({"loadBalancer": {"ingress": many}});
        assert_eq!(addresses(&status).len(), MOST_ADDRESSES);
        assert!(addresses(&json!({"loadBalancer": {"ingress": "here"}})).is_empty());
        assert!(addresses(&Value::Null).is_empty());
    }
}
