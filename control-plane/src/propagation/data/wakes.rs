//! Which workloads and objects to reconcile again when the other ones change.

use muster_shared::api::any_binding::AnyBinding;
use muster_shared::queue::Queue;
use muster_shared::watch::Change;

use crate::fleet::Fleet;
use crate::fleet::binding::BindingKey;
use crate::fleet::followers::{Followers, objects_of};
use crate::fleet::works::{CachedWork, binding_of};

/// Follows bindings and Works; adds the bindings of objects and workloads to the queue whose
/// counterparts change.
pub fn follow(fleet: &Fleet, queue: &Queue<BindingKey>) {
    let (queued, cache) = (queue.clone(), fleet.bindings.clone());
    fleet.bindings.on_change(move |change| {
        let (old, new) = change.sides();
        let is_gone = || cache.presence(&BindingKey::of(change.object())).is_gone();
        // A list may have lacked it.
        if new.is_none() && !is_gone() {
            return;
        }
        let generation = |it: Option<&AnyBinding>| it.and_then(|it| it.metadata.generation);
        if old.is_none() || generation(old) != generation(new) {
            for object in old.into_iter().chain(new).flat_map(objects_of) {
                queued.add(object);
            }
        }
    });
    let (followers, queue) = (fleet.bindings.followers().clone(), queue.clone());
    fleet.works.on_change(move |change| {
        if !followers.is_empty()
            && let Some(key) = binding_of(change.object())
        {
            wake(&followers, &key, change, |it| queue.add(it));
        }
    });
}

/// Adds to the queue what depends on a Work that has changed.
fn wake(
    followers: &Followers,
    key: &BindingKey,
    change: &Change<CachedWork>,
    mut wake: impl FnMut(BindingKey),
) {
    // The data is free once the copy is gone, or its deletion has been ordered.
    let deletion = |it: &CachedWork| it.metadata.deletion_timestamp.clone();
    if change.differs(|old, new| deletion(old) != deletion(new)) {
        followers.objects(key).into_iter().for_each(&mut wake);
    }
    let is_update = |old: &CachedWork, new: &CachedWork| {
        !new.reports_as(old) || new.metadata.annotations != old.metadata.annotations
    };
    if change.differs(is_update) {
        let workloads = followers.of(key);
        if !workloads.is_empty() {
            wake(key.clone());
        }
        workloads.into_iter().for_each(wake);
    }
}
