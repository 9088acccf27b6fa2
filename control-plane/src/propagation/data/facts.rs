//! Gathers what a role is decided by, and decides it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use kube::api::Api;
use muster_shared::api::any_binding::AnyBinding;
use muster_shared::api::binding::{ResourceBindingSpec, TargetCluster};
use muster_shared::api::data_replication::{DataReference, DataRole};
use muster_shared::client;
use muster_shared::names::execution_namespace;
use serde_json::Value;
use tokio::time::Instant;

use super::mark::{Mark, Step, orders};
use super::roles::{Copy, Decision, Order, Reach, Scene, decide};
use crate::fleet::Fleet;
use crate::fleet::api_error::ApiError;
use crate::fleet::availability::is_ready;
use crate::fleet::binding::BindingKey;
use crate::fleet::fencing::{self, Verdict};
use crate::fleet::followers::object_key;
use crate::fleet::works::{CachedWork, cluster_of, in_cluster};

/// Roles of an object, by cluster.
#[derive(Default)]
pub struct Roles {
    marks: BTreeMap<String, Mark>,
    /// Rule and time after which a primary is demoted by the agent of a cluster that is cut off.
    fencing: Option<(DataRole, u32)>,
    /// Reasons why roles do not change yet.
    pub wait: Option<String>,
    /// Clusters that the object is not propagated to any more, and that have it until it is demoted
    /// there.
    pub stays: Vec<String>,
}

impl Roles {
    /// Returns the spec of the binding with the clusters that keep the object for now, if any does.
    pub fn with_stays(&self, spec: &ResourceBindingSpec) -> Option<ResourceBindingSpec> {
        let mut spec = (!self.stays.is_empty()).then(|| spec.clone())?;
        spec.clusters
            .extend(self.stays.iter().map(|it| TargetCluster {
                name: it.clone(),
                ..TargetCluster::default()
            }));
        Some(spec)
    }

    /// Writes the role of a cluster into the manifest for it; returns the annotation of its Work.
    pub fn write(&self, manifest: &mut Value, cluster: &str) -> Option<(String, String)> {
        let mark = self.marks.get(cluster)?;
        let annotation = mark.write(manifest);
        if let Some((role, after)) = self
            .fencing
            .as_ref()
            .filter(|_| mark.step != Step::Secondary)
        {
            orders(role, *after).write(manifest);
        }
        Some(annotation)
    }
}

/// A workload that an object follows.
struct Followed {
    key: BindingKey,
    binding: Arc<AnyBinding>,
    role: DataRole,
}

/// Returns the workloads that give the object of a binding a role.
fn followed(
    fleet: &Fleet,
    key: &BindingKey,
    is_object: impl Fn(&DataReference) -> bool,
) -> Vec<Followed> {
    let workloads = fleet.bindings.followers().of(key).into_iter();
    let followed = workloads.filter_map(|key| {
        let binding = fleet.bindings.get(&key)?;
        let data = binding.spec.data_replication.as_ref()?;
        let role = data.roles.iter().find(|it| is_object(&it.object))?.clone();
        Some(Followed { key, binding, role })
    });
    followed.collect()
}

/// Returns whether several workloads give an object a role, so that it does not change.
pub fn is_shared(fleet: &Fleet, workload: &BindingKey, object: &DataReference) -> bool {
    let key = object_key(workload, object);
    followed(fleet, &key, |it| it == object).len() > 1
}

impl Followed {
    /// Returns the time after which the agent of a cluster that is cut off stops the workload.
    fn fencing(&self) -> Option<Duration> {
        fencing::asked(&self.binding.spec)
    }
}

/// Decides the roles of the object of a binding; `None` if it has none. `targets` are the clusters
/// that it is propagated to.
///
/// Without a workload, and with several, the roles stay as the Works record them.
///
/// # Errors
/// The API does not answer what the caches may not show.
pub async fn roles(
    fleet: &Fleet,
    client: &Client,
    binding: &AnyBinding,
    targets: &[TargetCluster],
    works: &[Arc<CachedWork>],
) -> Result<Option<Roles>, ApiError> {
    let key = BindingKey::of(binding);
    let resource = &binding.spec.resource;
    let followed = followed(fleet, &key, |it| it.is(resource));
    let [followed] = &*followed else {
        let kept = works
            .iter()
            .filter_map(|it| Some((cluster_of(it)?.to_owned(), Mark::on(it)?)));
        let marks: BTreeMap<_, _> = kept.collect();
        let wait = (followed.len() > 1).then(|| {
            let names = followed
                .iter()
                .map(|it| it.binding.spec.resource.name.as_str());
            let names: Vec<_> = names.collect();
            format!(
                "several workloads give it a role, so that it keeps the one it has until one workload alone does: {}",
                names.join(", ")
            )
        });
        let is_none = marks.is_empty() && wait.is_none();
        let roles = Roles {
            marks,
            wait,
            ..Roles::default()
        };
        return Ok((!is_none).then_some(roles));
    };
    let targets: Vec<_> = targets.iter().map(|it| &*it.name).collect();
    let mut decision = decided(fleet, client, followed, &targets, works).await?;
    let mut known = works.to_vec();
    if decision.promotes {
        // What this process or a former one wrote a moment ago may not be in the cache.
        known = read(client, fleet, &key, works).await?;
        decision = decided(fleet, client, followed, &targets, &known).await?;
    }
    let marks = decision.steps.iter().filter_map(|(cluster, step)| {
        let before = in_cluster(&known, cluster).and_then(|it| Mark::on(it));
        let mark = Mark::after(before.as_ref(), (*step)?, &followed.role);
        Some((cluster.clone(), mark))
    });
    let stays = decision.steps.iter();
    let stays = stays.filter(|it| !targets.contains(&&*it.0));
    let after = followed
        .fencing()
        .and_then(|it| u32::try_from(it.as_secs()).ok());
    Ok(Some(Roles {
        marks: marks.collect(),
        fencing: after.map(|after| (followed.role.clone(), after)),
        wait: decision.wait,
        stays: stays.map(|it| it.0.clone()).collect(),
    }))
}

/// Reads the Works of an object from the API.
async fn read(
    client: &Client,
    fleet: &Fleet,
    key: &BindingKey,
    works: &[Arc<CachedWork>],
) -> Result<Vec<Arc<CachedWork>>, ApiError> {
    fleet.unseen_works.compare(fleet).await?;
    let unseen = fleet.unseen_works.read(fleet, key).await?;
    let unseen = unseen.iter().map(|it| &it.metadata);
    let places = works.iter().map(|it| &it.metadata).chain(unseen);
    let mut found = Vec::new();
    for place in places {
        let (namespace, name) = (place.namespace.as_deref(), place.name.as_deref());
        let api: Api<CachedWork> = Api::namespaced(client.clone(), namespace.unwrap_or_default());
        let work = client::get_opt(&api, name.unwrap_or_default()).await;
        let work = work.map_err(ApiError::of("read the works of", key))?;
        found.extend(work.map(Arc::new));
    }
    Ok(found)
}

async fn decided(
    fleet: &Fleet,
    client: &Client,
    followed: &Followed,
    targets: &[&str],
    works: &[Arc<CachedWork>],
) -> Result<Decision, ApiError> {
    let spec = &followed.binding.spec;
    let holders: Vec<_> = spec.clusters.iter().map(|it| it.name.clone()).collect();
    let elsewhere = works.iter().filter_map(|it| cluster_of(it));
    let mut clusters: Vec<_> = targets.iter().copied().chain(elsewhere).collect();
    clusters.sort_unstable();
    clusters.dedup();
    let mut copies = Vec::new();
    for cluster in clusters {
        let order = in_cluster(works, cluster).map(|work| {
            let mark = Mark::on(work);
            let reported = mark
                .as_ref()
                .map(|it| it.reported(&followed.role, &work.status()));
            Order {
                step: mark.map(|it| it.step),
                reported: reported.unwrap_or_default(),
            }
        });
        let is_holder = holders.iter().any(|it| it == cluster);
        let is_demoted = order.is_some_and(|it| it.step == Some(Step::Secondary));
        // The cluster may still have the primary, or the workload, although it is to have neither.
        let is_judged = !is_holder && !is_demoted;
        let reach = if is_ready(fleet, cluster) {
            Reach::Reporting
        } else if is_judged {
            let work = in_cluster(works, cluster).map(|it| &**it);
            let stopped = stopped(fleet, client, followed, cluster, work).await?;
            stopped.map_or_else(Reach::Silent, |()| Reach::Fenced)
        } else {
            Reach::Silent(String::new())
        };
        let in_use = if is_judged {
            in_use(fleet, client, followed, cluster).await?
        } else {
            None
        };
        copies.push(Copy {
            cluster,
            is_target: targets.contains(&cluster),
            order,
            reach,
            in_use,
        });
    }
    let scene = Scene {
        workload: &format!("{} {}", spec.resource.kind, spec.resource.name),
        holders: &holders,
        copies,
        promotes_unreachable: followed.role.promotes_unreachable(),
    };
    Ok(decide(&scene))
}

/// Returns why the data is not demoted yet in a cluster that the workload is not placed in: it may
/// still use it. In a cluster that is silent that is no reason once the copy is to go and the
/// role says `whenUnreachable: Promote`.
async fn in_use(
    fleet: &Fleet,
    client: &Client,
    followed: &Followed,
    cluster: &str,
) -> Result<Option<String>, ApiError> {
    let works = fleet.work_index.of(&followed.key);
    let Some(work) = in_cluster(&works, cluster) else {
        fleet.unseen_works.compare(fleet).await?;
        let unseen = fleet.unseen_works.read(fleet, &followed.key).await?;
        let lies_in = Some(execution_namespace(cluster));
        let is_unseen = unseen.iter().any(|it| it.metadata.namespace == lies_in);
        return Ok(is_unseen.then(|| "a copy was made there a moment ago".to_owned()));
    };
    if !fleet.deleted_works.is_to_go(work) {
        return Ok(Some("its copy there is kept".to_owned()));
    }
    if is_ready(fleet, cluster) {
        return Ok(Some("its copy there is being removed".to_owned()));
    }
    if followed.role.promotes_unreachable() {
        return Ok(None);
    }
    let stopped = stopped(fleet, client, followed, cluster, Some(work)).await?;
    Ok(stopped
        .err()
        .map(|why| format!("its copy there may still run: {why}")))
}

/// Returns whether what a Work has made in a cluster that is silent has certainly been
/// stopped by the agent there; otherwise why not.
async fn stopped(
    fleet: &Fleet,
    client: &Client,
    followed: &Followed,
    cluster: &str,
    work: Option<&CachedWork>,
) -> Result<Result<(), String>, ApiError> {
    let Some(after) = followed.fencing() else {
        let why = "the policy of the workload has no failover.cluster.fencing";
        return Ok(Err(why.to_owned()));
    };
    let (verdict, last_change) = fencing::of_work(fleet, cluster, work, after, Instant::now());
    Ok(match verdict {
        Verdict::Stopped
            if fencing::is_unrenewed(client, cluster, last_change.as_ref()).await? =>
        {
            Ok(())
        }
        Verdict::Stopped => Err("its lease is renewed again".to_owned()),
        Verdict::Waits { time, .. } => {
            let seconds = time.as_secs();
            Err(format!(
                "{seconds} s have to pass since the last renewal of its lease"
            ))
        }
        Verdict::Unfenced(why) => Err(why),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet::testing::{Bench, key, work};

    #[tokio::test(start_paused = true)]
    async fn no_work_of_data_is_gone_because_the_api_does_not_serve_works() {
        for (named, expected) in [("web", Some(0)), ("", None)] {
            let bench = Bench::followed([("works", work("m1", "Healthy"))]).await;
            let works = bench.fleet.works.list();
            assert_eq!(works.len(), 1);
            bench
                .api
                .refuse(http::Method::GET, "/works/web", 404, named);
            let key = key("web-deployment");
            let fleet = &bench.fleet;
            let found = read(&fleet.client, fleet, &key, &works).await;
            assert_eq!(found.ok().map(|it| it.len()), expected, "{named}");
        }
    }
}
