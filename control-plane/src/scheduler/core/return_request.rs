//! Requests by which workloads return to clusters that they left. Pure.

use std::borrow::Cow;

use jiff::Timestamp;
use muster_shared::api::any_binding::AnyBinding;
use muster_shared::k8s::{ResourceExt as _, Time};
use muster_shared::names::annotation::FAILBACK_ASKED;

use super::cycle::is_reschedule_requested;

/// Returns the time of the last request by which a workload was to return, and that of the request
/// before it, if there was one.
fn marked(binding: &AnyBinding) -> Option<(Timestamp, Option<Timestamp>)> {
    let text = binding.annotations().get(FAILBACK_ASKED)?.as_str();
    let (asked, before) = text.split_once(' ').unwrap_or((text, ""));
    Some((asked.parse().ok()?, before.parse().ok()))
}

/// Returns whether a workload is asked to return to a cluster that it left, and the scheduler has
/// not placed it anew since: one that it could not place yet is placed once there is room. What a
/// person asked for has another time.
pub fn is_pending(binding: &AnyBinding) -> bool {
    let asked = binding.spec.reschedule_triggered_at.as_ref().map(|it| it.0);
    let is_ours = marked(binding).is_some_and(|(marked, _)| asked == Some(marked));
    is_ours && is_reschedule_requested(&binding.spec, binding.status())
}

/// Returns the request before the one by which a workload was to return, which was answered.
pub fn before(binding: &AnyBinding) -> Option<Time> {
    marked(binding).and_then(|(_, before)| before).map(Time)
}

/// Returns a binding as if nobody had asked its workload to return, if returns are barred. That is
/// asked only where such a request is pending.
pub fn without_if(binding: &AnyBinding, is_barred: impl FnOnce() -> bool) -> Cow<'_, AnyBinding> {
    if !is_pending(binding) || !is_barred() {
        return Cow::Borrowed(binding);
    }
    let mut unasked = binding.clone();
    unasked.spec.reschedule_triggered_at = before(binding);
    Cow::Owned(unasked)
}
