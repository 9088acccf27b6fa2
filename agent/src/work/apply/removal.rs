//! Removes the objects that a Work no longer contains, and all objects of a deleted Work.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::SignedDuration;
use muster_shared::api::cluster::Cluster;
use muster_shared::api::work::Work;
use muster_shared::events::EventType;
use muster_shared::finalizers;
use muster_shared::k8s::ResourceExt;
use muster_shared::queue::Next;
use serde_json::json;
use tokio::time::Instant;

use super::conditions::{self, Failures};
use super::status::is_update;
use super::{Applier, Error, count};
use crate::work::CachedWork;
use crate::work::desired::{Container, ObjectKey};
use crate::work::manifests::{FINALIZER, dropped, has_finalizer, known, origin, path, unnamed};
use crate::work::object::{self, Removal};
use crate::work::waits::Deletion;
use crate::work::works::Whole;

/// Time for which a silent API of a member is asked again, while the cluster leaves the fleet and
/// is ready, before what it has is left behind.
const PATIENCE: Duration = Duration::from_mins(2);
/// Time within which Works that go together are all being deleted, such as those of a namespace.
const TOGETHER: Duration = Duration::from_secs(30);

impl Applier {
    /// Writes the names of the objects of a Work into its status, before any of them is made: what
    /// has been done is remembered before it is done, so that each object is removed when the Work
    /// no longer has it, whatever happens in between. Returns the Work afterwards; `None` if
    /// another client wrote it meanwhile.
    pub(super) async fn remember(&self, work: Arc<Work>) -> Result<Option<Arc<Work>>, Error> {
        let unnamed = unnamed(&work);
        if unnamed.is_empty() {
            return Ok(Some(work));
        }
        let mut work = Arc::unwrap_or_clone(work);
        let status = work.status.get_or_insert_default();
        let stored = status.manifest_statuses.len();
        status.manifest_statuses.extend(unnamed);
        let patch = json!({ "status": { "manifestStatuses": status.manifest_statuses } });
        match self.patch(&work, Some("status"), patch).await {
            Ok(after) => {
                let version = &after.metadata.resource_version;
                work.metadata.resource_version.clone_from(version);
            }
            // Its spec alone names the objects of a Work of this size.
            Err(error) if error.refuses_content() => {
                tracing::warn!(work = path(&work), %error, "cannot name the objects in the status");
                // Names that are not stored would be refused again together with the conditions.
                let status = work.status.get_or_insert_default();
                status.manifest_statuses.truncate(stored);
            }
            Err(error) if error.is_conflict() => return Ok(None),
            Err(error) => return Err(error.into()),
        }
        Ok(Some(Arc::new(work)))
    }

    /// Removes objects that an earlier version of the Work had and this one has not. Karmada leaves
    /// them behind. Returns those that are gone; failures are added to `failures`.
    pub(super) async fn remove_dropped(
        &self,
        work: &Work,
        failures: &mut Failures,
    ) -> Result<Vec<ObjectKey>, Error> {
        let (dropped, mut gone) = (dropped(work), Vec::new());
        if dropped.is_empty() {
            return Ok(gone);
        }
        // The cache may have an old version, so the present one is read.
        let name = work.name_any();
        let Some(fresh) = self.store.works.read(&name).await? else {
            return Ok(gone);
        };
        let same = fresh.work.is_ok_and(|fresh| fresh.spec == work.spec);
        if fresh.cached.metadata.uid != work.metadata.uid || !same {
            return Ok(gone);
        }
        // Two names may be those of one object, which is still wanted then.
        let mut wanted: HashMap<_, Vec<ObjectKey>> = HashMap::new();
        for (ordinal, manifest) in work.spec.workload.manifests.iter().enumerate() {
            match self.place(&manifest.0, ordinal).await {
                Ok((_, place)) => wanted.entry(place.across_groups()).or_default().push(place),
                Err(error) => {
                    failures.unremoved.push(error.to_string());
                    return Ok(gone);
                }
            }
        }
        for key in dropped {
            let outcome = match self.objects.member.place_served(&key).await {
                Ok(None) => Ok(false),
                Ok(Some(place)) => {
                    let wanted = wanted.get(&place.across_groups());
                    let wanted = wanted.map_or(&[][..], Vec::as_slice);
                    if wanted.iter().any(|it| it.object() == place.object()) {
                        Ok(false)
                    } else {
                        self.remove_or_release(work, &key, wanted).await
                    }
                }
                Err(error) => Err(error.into()),
            };
            match outcome {
                Ok(_) => {
                    tracing::info!(object = %key, work = name, "removed: the work no longer has it");
                    self.store.statuses.forget_object(&name, &key);
                    gone.push(key);
                }
                Err(error) => {
                    count_failure(&key, &error);
                    failures.add_unremoved(&error);
                }
            }
        }
        Ok(gone)
    }

    /// Removes the objects of a Work that is being deleted, then the finalizer.
    pub(super) async fn remove(&self, cached: &CachedWork) -> Result<Next, Error> {
        let name = cached.name_any();
        let Some(Whole {
            cached: fresh,
            work,
        }) = self.store.works.read(&name).await?
        else {
            return Ok(Next::Done);
        };
        let same = fresh.metadata.uid == cached.metadata.uid;
        if !same || fresh.metadata.deletion_timestamp.is_none() {
            return Ok(Next::Done);
        }
        let work = match work {
            Ok(work) => work,
            // The objects of an unreadable Work are not known.
            Err(why) => return self.refuse(&fresh, &why).await,
        };
        if !has_finalizer(&work) {
            return Ok(Next::Done);
        }
        let failures = self.remove_all(&work).await;
        if !self.objects.member.may_act() {
            return Err(Error::Dismissed);
        }
        let now = self.clock.now();
        let known = conditions::applied(0, &failures, now);
        if !failures.is_empty() {
            let failure = failures.message();
            let (work_path, cluster) = (path(&work), &self.objects.cluster);
            let note = format!(
                "Failed to delete work({work_path}) from cluster({cluster}), err: {failure}"
            );
            if is_update(&work, &known) {
                self.events.warn(&work, "SyncFailed", note);
            }
            self.conclude(Arc::new(work), vec![known], &[]).await?;
            return Err(Error::Objects(failure));
        }
        if let Some(pause) = failures.check_again(now) {
            self.conclude(Arc::new(work), vec![known], &[]).await?;
            return Ok(Next::After(pause));
        }
        let patch = finalizers::release(&work.metadata, FINALIZER);
        match self.patch(&work, None, patch).await {
            Err(error) if !error.is_gone() => return Err(error.into()),
            _ => {}
        }
        self.store.waits.forget(&name);
        Ok(Next::Done)
    }

    /// Removes all objects of a Work, without stopping at a failure. An API group that does not
    /// answer may be an aggregated one whose server is down; when a second one does not answer
    /// either, the rest is not tried.
    async fn remove_all(&self, work: &Work) -> Failures {
        let name = work.name_any();
        let (mut failures, mut silent) = (Failures::default(), None);
        let waits = &self.store.waits;
        for key in known(work) {
            let asked = waits.deletion(work, |it| it.objects.get(&key).copied());
            if asked == Some(true) || silent.as_ref() == Some(&key.kind.group) {
                continue;
            }
            let removed = self.remove_or_release(work, &key, &[]).await;
            if removed
                .as_ref()
                .err()
                .is_none_or(|error| !error.is_silence())
            {
                waits.deletion(work, |it| it.silent = None);
            }
            match removed {
                Ok(done) => {
                    if done || asked.is_some() {
                        count(&key, "removed");
                        tracing::info!(object = %key, work = name, "removed");
                    }
                    waits.deletion(work, |it| it.objects.insert(key, true));
                }
                // The objects of other Works may be on their way, too.
                Err(error) if error.is_in_use() => {
                    let kept = waits.deletion(work, |it| it.kept.map(|kept| kept.elapsed()));
                    let kept = SignedDuration::try_from(kept.unwrap_or_default());
                    let since = self.clock.now().checked_sub(kept.unwrap_or_default());
                    failures.add_waiting(&error, since.unwrap_or_default());
                }
                Err(error) if error.is_silence() && self.gives_up(work) => {
                    tracing::warn!(object = %key, %error, "left behind: the cluster leaves the fleet and its API is silent");
                    self.report_left_behind();
                }
                Err(error) => {
                    count_failure(&key, &error);
                    failures.add_unremoved(&error);
                    if error.terminates_since().is_some() {
                        waits.deletion(work, |it| it.objects.insert(key, false));
                        continue;
                    }
                    if error.is_dismissal() || (error.is_silence() && silent.is_some()) {
                        break;
                    }
                    if error.is_silence() {
                        silent = Some(key.kind.group.clone());
                    }
                }
            }
        }
        failures
    }

    /// Removes an object, unless it is another fleet's by now. A namespace or a definition with
    /// which objects of other Works would go is released to the member instead, once those have had
    /// the time to be deleted as well. Returns whether anything was done.
    async fn remove_or_release(
        &self,
        work: &Work,
        key: &ObjectKey,
        wanted: &[ObjectKey],
    ) -> Result<bool, object::Error> {
        let name = work.name_any();
        let is_deleted = work.metadata.deletion_timestamp.is_some();
        let removal = Removal {
            work: origin(work),
            wanted,
            preserve: work.spec.preserve_resources_on_deletion == Some(true),
            waits: !is_deleted || !self.cluster_is_leaving(),
            user: &|container| self.user_of(&name, container),
            fleet: &self.store.fleet.now(),
        };
        let (kind, reason, error, done) = match self.objects.remove(key, &removal).await {
            Err(error) if error.is_other_fleets() => {
                (EventType::Normal, "LeftToOtherFleet", error, false)
            }
            Err(error) if error.is_in_use() => {
                if is_deleted {
                    let kept = |it: &mut Deletion| *it.kept.get_or_insert_with(Instant::now);
                    if self.store.waits.deletion(work, kept).elapsed() < TOGETHER {
                        return Err(error);
                    }
                }
                let released = Removal {
                    preserve: true,
                    ..removal
                };
                let done = self.objects.remove(key, &released).await?;
                (EventType::Warning, "LeftWithContents", error, done)
            }
            outcome => return outcome,
        };
        let (name, cluster) = (path(work), &self.objects.cluster);
        tracing::warn!(work = name, %error, "left in the member");
        let note = format!("Left in cluster({cluster}) without work({name}): {error}");
        self.events.publish(work, kind, reason, note);
        Ok(done)
    }

    /// Returns the name of another Work whose objects would go with a container, and that is not
    /// being deleted.
    fn user_of(&self, own: &str, container: &Container<'_>) -> Option<String> {
        let works = self.store.works.cache.list();
        let others = works
            .iter()
            .filter(|work| work.metadata.deletion_timestamp.is_none() && work.may_be_in(container));
        others.map(|work| work.name_any()).find(|name| name != own)
    }

    /// Returns whether the objects of a Work are left behind that cannot be reached: the cluster
    /// leaves the fleet, and has not answered for long. An API that comes and goes is waited for.
    fn gives_up(&self, work: &Work) -> bool {
        let silent = |it: &mut Deletion| it.silent.get_or_insert_with(Instant::now).elapsed();
        self.cluster_is_leaving() && self.store.waits.deletion(work, silent) >= PATIENCE
    }

    /// Reports that an object is left behind, on the Cluster: the events of its Work go with the
    /// execution namespace. The same text for each object, so that they are counted in one event.
    fn report_left_behind(&self) {
        let Some(cluster) = self.leaving_cluster() else {
            return;
        };
        let note = format!(
            "An object of the fleet is left behind in cluster({}), which leaves: the API there has not answered the agent for {PATIENCE:?}. \
             The agent's log names each: delete them there with kubectl",
            self.objects.cluster
        );
        self.events.warn(&*cluster, "LeftBehind", note);
    }

    /// Returns the Cluster of the member if it is leaving the fleet.
    fn leaving_cluster(&self) -> Option<Arc<Cluster>> {
        let cluster = self.clusters.get(None, &self.objects.cluster);
        cluster.filter(|it| it.metadata.deletion_timestamp.is_some())
    }

    fn cluster_is_leaving(&self) -> bool {
        self.leaving_cluster().is_some()
    }
}

/// Counts an object that could not be removed. One that is being deleted is on its way.
fn count_failure(key: &ObjectKey, error: &object::Error) {
    if error.terminates_since().is_none() {
        count(key, "error");
    }
}
