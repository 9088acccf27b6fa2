//! Says why clusters have more replicas of a workload than the binding gives them.
//!
//! See [`super::shrink`] for the rule.

use std::time::Duration;

use jiff::Timestamp;
use kube::Client;
use muster_shared::api::any_binding::AnyBinding;
use muster_shared::conditions;
use muster_shared::k8s::Condition;
use muster_shared::queue::Next;

use super::hold_condition::report_hold;
use crate::fleet::Fleet;
use crate::fleet::binding::BindingKey;
use crate::fleet::memory::Since;

/// Type of the condition on a binding: True while clusters keep ready replicas beyond their share.
pub const CONDITION: &str = "ReplicasKept";
/// Reason of that condition while it is True.
const KEPT: &str = "WaitingForReplacement";
/// Reason of that condition once it is False.
const FREE: &str = "NothingKept";
/// Time for which replicas are kept before the condition says so: most are replaced by then.
const UNREPORTED: Duration = Duration::from_secs(15);

/// Says which clusters keep more than their share, once that has lasted; returns when to check
/// again for that. `kept` remembers since when this process knows of it.
pub(super) async fn report(
    kept: &Since<BindingKey>,
    fleet: &Fleet,
    client: &Client,
    key: &BindingKey,
    binding: &AnyBinding,
    keepers: Option<String>,
) -> Next {
    let wait = if keepers.is_some() {
        kept.rest(key, (), UNREPORTED)
    } else {
        kept.forget(key);
        None
    };
    let before = &binding.status().conditions;
    let is_due = keepers.is_some() && wait.is_none();
    let condition = condition(keepers.as_deref(), is_due, before, fleet.clock.now());
    if !report_hold(fleet, client, key, binding, condition).await {
        return Next::Again;
    }
    wait.map_or(Next::Done, Next::After)
}

/// Returns the condition while `keepers`, clusters with commas between them, keep replicas, and
/// once none does any more; `None` where nothing has to be reported. The message changes only with
/// the clusters: numbers would be written with each report.
pub fn condition(
    keepers: Option<&str>,
    is_due: bool,
    before: &[Condition],
    now: Timestamp,
) -> Option<Condition> {
    let is_reported = conditions::is_true(before, CONDITION);
    if let Some(keepers) = keepers {
        let message = format!(
            "{keepers}: ready replicas beyond the share that spec.clusters gives are kept until as many are ready elsewhere"
        );
        return (is_due || is_reported)
            .then(|| conditions::new(CONDITION, conditions::TRUE, KEPT, &message, now));
    }
    is_reported.then(|| {
        let message = "every cluster has the replicas that spec.clusters gives it";
        conditions::new(CONDITION, conditions::FALSE, FREE, message, now)
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::leaving_tests::{bound, work_of};
    use super::super::replacing_tests::to;
    use super::*;
    use crate::fleet::testing::{cluster, deployment};

    #[test]
    fn what_is_kept_for_long_is_reported_once_and_its_end_too() {
        let now = Timestamp::UNIX_EPOCH;
        assert_eq!(condition(Some("m1"), false, &[], now), None);
        assert_eq!(condition(None, false, &[], now), None);
        let reported = condition(Some("m1"), true, &[], now).unwrap();
        assert_eq!((&*reported.status, &*reported.reason), ("True", KEPT));
        let reported = [reported];
        let again = condition(Some("m1, m2"), false, &reported, now).unwrap();
        assert!(again.message.starts_with("m1, m2: "), "{}", again.message);
        let over = condition(None, false, &reported, now).unwrap();
        assert_eq!((&*over.status, &*over.reason), ("False", FREE));
        assert_eq!(condition(None, false, &[over], now), None);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_scaled_to_none_keeps_nothing_and_does_not_say_so_any_more() {
        for requirements in [json!({ "resourceRequest": { "cpu": "1" } }), json!(null)] {
            let mut binding = to(&[], 1);
            binding["spec"]["replicas"] = json!(0);
            binding["spec"]["replicaRequirements"] = requirements;
            let reported = condition(Some("m2"), true, &[], Timestamp::UNIX_EPOCH);
            binding["status"] = json!({"conditions": [reported]});
            let works = ["m1", "m2"].map(|cluster| work_of(&binding, cluster));
            let clusters = ["m1", "m2"].map(cluster);
            let mut bench = bound(clusters, deployment(0), binding, works);
            bench.follow_for(10 * 60).await;
            let works = bench.api.all("works").into_iter();
            let left = works.filter(|it| it["metadata"]["deletionTimestamp"].is_null());
            assert_eq!(left.count(), 0, "the template asks for no replicas");
            let bound = bench.binding("web-deployment").unwrap();
            let over = conditions::get(&bound.status().conditions, CONDITION).unwrap();
            assert_eq!((&*over.status, &*over.reason), ("False", FREE));
        }
    }
}
