//! Creates the service accounts in the member, and keeps the copies of their tokens in the fleet up
//! to date. Removes those that are no longer reported.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use muster_shared::api::cluster::Cluster;
use muster_shared::client;
use muster_shared::clock::calendar;
use muster_shared::events::Events;
use muster_shared::fleet_id::FleetId;
use muster_shared::k8s::{Api, Client, Resource, ResourceExt, Secret, ServiceAccount};
use muster_shared::lease::Leadership;
use muster_shared::names::annotation;
use muster_shared::queue::{backoff, jittered};
use muster_shared::watch::{Change, Informer, Selection};
use muster_shared::write::post_params;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::ownership;
use super::report::{Delivery, Step};
use crate::accounts::{self, Held, Report, TOKEN_TYPE};
use crate::fleet_id::{self, Foreign};
use crate::join::ensure_namespace;
use crate::measures;
use crate::write::{self, FIELD_MANAGER, merge, within};

/// Interval at which the fleet's copies are compared without a change in the member. Another writer
/// may have changed the copies.
const CHECK_AGAIN: Duration = Duration::from_mins(5);
/// Time for which the member may take to write a token before that is reported (Karmada waits as
/// long, and then gives up).
const TOKEN_GRACE: Duration = Duration::from_secs(30);
/// Attempts to write an object when others write it at the same time.
pub(super) const ATTEMPTS: usize = 4;
/// Pause before a missing token is asked for again. The watch usually shows it earlier.
const TOKEN_PAUSE: Duration = Duration::from_secs(1);

/// Reason why credentials were not reported, or not removed.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    #[error(transparent)]
    Call(#[from] write::Error),
    #[error("the member's Secret {0:?} is not ours: {1}")]
    Occupied(String, String),
    #[error("the member's {0} {1:?} is not ours, and its token is not reported: {2}")]
    Foreign(String, String, Foreign),
    #[error("the member's {0} {1:?} is written by others again and again")]
    Contended(String, String),
    #[error("the fleet's Secret {0:?} holds the credentials of cluster {1:?}")]
    Taken(String, String),
    #[error("the member has written no token into Secret {0:?} for {TOKEN_GRACE:?}")]
    NoToken(String),
    #[error("it is not clear to which fleet the account belongs: {0}")]
    Unclear(Foreign),
}

/// Progress of one report.
enum Progress {
    /// The fleet has what it should have.
    Reported,
    /// The member has not written the token yet.
    AwaitsToken,
}

/// Reports credentials of one member to the fleet, and removes the others.
pub struct Credentials {
    /// Name of the Cluster.
    pub cluster: String,
    /// Namespace for credentials, in the fleet API and in the member.
    pub namespace: String,
    /// Credentials to report. The others are removed, once in the life of the process.
    pub reports: Vec<Report>,
    /// Whether this agent may act for the member.
    pub leadership: Leadership,
    /// The Cluster as the fleet has it.
    pub clusters: Informer<Cluster>,
    /// The fleet API.
    pub fleet: Client,
    /// The member's API.
    pub member: Client,
    /// The member's API, for the watch.
    pub watching: Client,
    /// Publisher of events.
    pub events: Events,
    /// The id that marks the objects that the agent makes in the member.
    pub fleet_id: fleet_id::Known,
}

impl Credentials {
    /// Removes what is not reported, and reports the rest until shutdown: at once, when a token
    /// changes in the member, and every [`CHECK_AGAIN`].
    pub async fn run(self, shutdown: CancellationToken) {
        let both = Box::pin(async {
            self.clusters.synced().await;
            self.fleet_id.settled().await;
            tokio::join!(self.withdraw_all(), self.keep_reporting(&shutdown));
        });
        if shutdown.run_until_cancelled(both).await.is_some() {
            shutdown.cancelled().await;
        }
    }

    async fn keep_reporting(&self, shutdown: &CancellationToken) {
        if self.reports.is_empty() {
            return;
        }
        let changed = Arc::new(Notify::new());
        let tokens: Informer<Secret> = Informer::new(
            Api::namespaced(self.watching.clone(), &self.namespace),
            Selection::everything().fields(format!("type={TOKEN_TYPE}")),
        );
        let wake = Arc::clone(&changed);
        tokens.on_change(move |_| wake.notify_one());
        let wake = Arc::clone(&changed);
        self.clusters.on_change(move |change| {
            if matters(change) {
                wake.notify_one();
            }
        });
        tokio::join!(tokens.run(shutdown.clone()), self.report_again(&changed));
    }

    async fn report_again(&self, changed: &Notify) {
        let mut fleet_id = self.fleet_id.clone();
        let mut failures = 0;
        let mut awaited: Option<Instant> = None;
        loop {
            let pause = match self.report_all(&mut awaited).await {
                Ok(pause) => {
                    failures = 0;
                    pause
                }
                Err(pause_after) => {
                    failures += 1;
                    backoff(failures).max(pause_after)
                }
            };
            tokio::select! {
                () = changed.notified() => {}
                () = fleet_id.changed() => {}
                () = tokio::time::sleep(jittered(pause)) => {}
            }
        }
    }

    /// Reports everything once, without stopping at a failure. Returns the pause before the next
    /// report, as an error if something failed.
    async fn report_all(&self, awaited: &mut Option<Instant>) -> Result<Duration, Duration> {
        let cluster = self.clusters.get(None, &self.cluster);
        let stays = |cluster: &Arc<Cluster>| cluster.metadata.deletion_timestamp.is_none();
        let Some(cluster) = cluster.filter(stays) else {
            return Ok(CHECK_AGAIN);
        };
        if !self.leadership.is_current() {
            return Ok(TOKEN_PAUSE);
        }
        let (mut failed, mut waits) = (false, false);
        for report in &self.reports {
            let error = match self.report(*report, &cluster).await {
                Ok(Progress::Reported) => continue,
                Ok(Progress::AwaitsToken) => {
                    waits = true;
                    let since = *awaited.get_or_insert_with(Instant::now);
                    if since.elapsed() < TOKEN_GRACE {
                        continue;
                    }
                    Error::NoToken(report.account(&self.cluster))
                }
                Err(error) => error,
            };
            failed = true;
            self.log_failure(*report, &cluster, &error);
        }
        if !waits {
            *awaited = None;
        }
        match (failed, waits) {
            (true, _) => Err(TOKEN_PAUSE),
            (false, true) => Ok(TOKEN_PAUSE),
            (false, false) => {
                measures::Step::Credentials.succeeded(calendar());
                Ok(CHECK_AGAIN)
            }
        }
    }

    fn log_failure(&self, report: Report, cluster: &Cluster, error: &Error) {
        let secret = report.name();
        tracing::warn!(secret, %error, "could not report credentials; everything else goes on");
        metrics::counter!("muster_credential_report_failures_total", "secret" => secret)
            .increment(1);
        let note = format!("Cannot report {secret}: {error}");
        self.events.warn(cluster, "ReportSecretFailed", note);
    }

    async fn report(&self, report: Report, cluster: &Cluster) -> Result<Progress, Error> {
        let account = report.account(&self.cluster);
        let secret = self.prepare(report, &account).await?;
        let (token, authority) = match accounts::held(&secret, &account) {
            Held::Token { token, authority } => (token, authority),
            Held::Nothing => return Ok(Progress::AwaitsToken),
            Held::Foreign(why) => return Err(Error::Occupied(account, why)),
        };
        let delivery = Delivery {
            report,
            cluster: &self.cluster,
            uid: cluster.metadata.uid.as_deref().unwrap_or_default(),
            namespace: &self.namespace,
            token,
            authority,
        };
        self.deliver(&delivery, cluster).await?;
        Ok(Progress::Reported)
    }

    /// Creates the account and the objects that belong to it where they are missing, and returns
    /// the Secret with its token.
    async fn prepare(&self, report: Report, account: &str) -> Result<Secret, Error> {
        let (member, namespace) = (&self.member, self.namespace.as_str());
        let secrets: Api<Secret> = Api::namespaced(member.clone(), namespace);
        let fleet = self.fleet_id.now();
        ensure_namespace(member, namespace).await?;
        let accounts: Api<ServiceAccount> = Api::namespaced(member.clone(), namespace);
        let wanted = accounts::service_account(namespace, account);
        let step = "read or create the member's ServiceAccount";
        ensure(step, &accounts, wanted, &fleet).await?;
        if report == Report::KubeCredentials {
            let (role, binding) = accounts::full_access(namespace, account);
            let step = "read or create the member's ClusterRole";
            ensure(step, &Api::all(member.clone()), role, &fleet).await?;
            let step = "read or create the member's ClusterRoleBinding";
            ensure(step, &Api::all(member.clone()), binding, &fleet).await?;
        }
        let wanted = accounts::token_secret(namespace, account);
        ensure(
            "read or create the member's Secret",
            &secrets,
            wanted,
            &fleet,
        )
        .await?;
        Ok(within("read the member's Secret", secrets.get(account)).await?)
    }

    async fn deliver(&self, delivery: &Delivery<'_>, cluster: &Cluster) -> Result<(), Error> {
        let name = delivery.report.secret(&self.cluster);
        ensure_namespace(&self.fleet, &self.namespace).await?;
        let secrets: Api<Secret> = Api::namespaced(self.fleet.clone(), &self.namespace);
        let found = within("read the fleet's Secret", client::get_opt(&secrets, &name)).await?;
        match delivery.step(found.as_ref()) {
            Step::Nothing => {}
            Step::Create(secret) => {
                let call = write::create(&secrets, &name, &*secret);
                within("create the fleet's Secret", call).await?;
                self.said(delivery.report, cluster, &name);
            }
            Step::Patch(patch) => {
                let call = merge(&secrets, &name, None, &patch);
                within("update the fleet's Secret", call).await?;
                self.said(delivery.report, cluster, &name);
            }
            Step::Foreign(other) => return Err(Error::Taken(name, other)),
        }
        if let Some(patch) = delivery.reference(cluster) {
            let clusters: Api<Cluster> = Api::all(self.fleet.clone());
            let call = merge(&clusters, &self.cluster, None, &patch);
            within("name the Secret in the Cluster", call).await?;
        }
        Ok(())
    }

    fn said(&self, report: Report, cluster: &Cluster, name: &str) {
        let secret = format!("{}/{name}", self.namespace);
        tracing::info!(secret, "reported {}", report.name());
        let note = format!("Reported {} in Secret {secret}.", report.name());
        self.events.inform(cluster, "ReportSecretSucceed", note);
    }
}

/// Returns whether a change of the Cluster may require a report. Changes of its status, which are
/// frequent, do not.
fn matters(change: &Change<Cluster>) -> bool {
    match change {
        Change::Applied { old: None, .. } => true,
        Change::Applied {
            old: Some(old),
            new,
        } => {
            let seen = |cluster: &Cluster| {
                let spec = &cluster.spec;
                (
                    cluster.uid(),
                    spec.secret_ref.clone(),
                    spec.impersonator_secret_ref.clone(),
                )
            };
            seen(old) != seen(new)
        }
        Change::Deleted { .. } => false,
    }
}

/// Creates an object in the member, or adds the mark of the fleet to the existing one. An object of
/// another fleet is an error.
async fn ensure<K>(
    step: &'static str,
    api: &Api<K>,
    mut wanted: K,
    fleet: &FleetId,
) -> Result<(), Error>
where
    K: Resource<DynamicType = ()> + Clone + Debug + Serialize + DeserializeOwned,
{
    let name = wanted.name_any();
    if let Some(mark) = fleet.mark() {
        let annotations = wanted.annotations_mut();
        annotations.insert(annotation::FLEET.to_owned(), mark.to_owned());
    }
    for _ in 0..ATTEMPTS {
        let found = within(step, client::get_metadata_opt(api, &name)).await?;
        let written = if let Some(found) = found {
            ownership::check(&found.metadata, fleet)
                .map_err(|why| Error::Foreign(K::kind(&()).into_owned(), name.clone(), why))?;
            let Some(patch) = ownership::marking(&found.metadata, fleet) else {
                return Ok(());
            };
            within(step, merge(api, &name, None, &patch)).await
        } else {
            within(step, api.create(&post_params(FIELD_MANAGER), &wanted)).await
        };
        match written {
            // Another writer was faster, perhaps the agent of another fleet: the object is read
            // again.
            Err(error) if error.is_conflict() || error.is_gone() => {}
            other => return Ok(other.map(drop)?),
        }
    }
    Err(Error::Contended(K::kind(&()).into_owned(), name))
}
