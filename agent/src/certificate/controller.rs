//! Renews the agent's certificate before it expires, and stores it in the Secret and in this
//! process.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use muster_shared::api::cluster::Cluster;
use muster_shared::certificate::subject;
use muster_shared::certificate::validity::Validity;
use muster_shared::client::Gateway;
use muster_shared::clock::calendar;
use muster_shared::events::Events;
use muster_shared::k8s::{Api, CertificateSigningRequest, Client, ResourceExt, Secret};
use muster_shared::lease::Leadership;
use muster_shared::queue::{backoff, jittered};
use muster_shared::tls;
use muster_shared::watch::Informer;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::asking::{self, ASK, Asked, LONGEST, PATIENCE, after_refusal};
use super::document::{self, Document};
use super::{Bootstrap, Place, stored};
use crate::measures;
use crate::write::{self, merge, within};

/// Pause while this agent does not lead the member.
const WHEN_LED: Duration = Duration::from_secs(10);
/// Reason why the certificate was not renewed.
#[derive(Debug, thiserror::Error)]
enum Error {
    #[error(transparent)]
    Call(#[from] write::Error),
    #[error("the member's Secret {0:?} has no key {1:?}")]
    NoKubeconfig(String, String),
    #[error(transparent)]
    Document(#[from] document::Error),
    #[error(
        "the member's Secret {0:?} has the certificate of another user than the agent of cluster {1:?}"
    )]
    Stranger(String, String),
    #[error(transparent)]
    Asking(#[from] asking::Error),
    #[error(
        "signing request {0:?} has not been answered for {PATIENCE:?}: still waiting for an answer"
    )]
    Unanswered(String),
    #[error(
        "a certificate issued just now ends at {1:.0}, which is soon or past by this machine's clock ({0:.0}): one of the two \
         clocks is wrong"
    )]
    Clock(Timestamp, Timestamp),
}

impl Error {
    /// Returns the value of the metric's label `result`.
    fn result(&self) -> &'static str {
        match self {
            Self::Asking(asking::Error::Refused(..)) => "refused",
            Self::Unanswered(_) => "unanswered",
            Self::Asking(asking::Error::Useless(..)) => "useless",
            _ => "error",
        }
    }

    /// Returns whether another request soon would have the same result, because a person decided or
    /// a clock is wrong.
    fn is_decision(&self) -> bool {
        use asking::Error::{Refused, Useless};
        matches!(
            self,
            Self::Asking(Refused(..) | Useless(..)) | Self::Clock(..)
        )
    }
}

/// Stage of a renewal.
enum Stage {
    /// No renewal is under way.
    Idle,
    /// A signing request has no answer yet. `reported` says whether that was reported.
    Asked { request: Asked, reported: bool },
    /// A certificate was issued, and is not stored in the Secret yet.
    Issued(Issued),
}

/// A certificate that was issued, and its key.
struct Issued {
    /// The certificate as PEM text.
    certificate: Vec<u8>,
    /// The private key as PEM text.
    key: String,
}

/// Renews the certificate of one agent.
pub struct Rotation {
    /// Name of the Cluster.
    pub cluster: String,
    /// The Secret with the kubeconfig.
    pub place: Place,
    /// The context of the kubeconfig that the agent uses.
    pub context: Option<String>,
    /// Interval at which the certificate is checked.
    pub interval: Duration,
    /// Remaining share of the certificate's lifetime at which it is renewed.
    pub threshold: f64,
    /// Whether this agent may act for the member.
    pub leadership: Leadership,
    /// The Cluster as the fleet has it.
    pub clusters: Informer<Cluster>,
    /// The connection to the fleet API, which takes the new certificate.
    pub gateway: Arc<Gateway>,
    /// The fleet API.
    pub fleet: Client,
    /// The member's API.
    pub member: Client,
    /// Obtains credentials if there are none; `None` without a bootstrap kubeconfig.
    pub bootstrap: Option<Arc<Bootstrap>>,
    /// Publisher of events.
    pub events: Events,
}

impl Rotation {
    /// Renews the certificate until shutdown.
    pub async fn run(self, shutdown: CancellationToken) {
        shutdown.run_until_cancelled(self.keep_renewed()).await;
    }

    async fn keep_renewed(&self) {
        let mut stage = Stage::Idle;
        let mut failures = 0;
        let mut refusals = 0;
        loop {
            let pause = match self.step(&mut stage).await {
                Ok(pause) => {
                    failures = 0;
                    if matches!(stage, Stage::Idle) {
                        refusals = 0;
                    }
                    pause
                }
                Err(error) => {
                    self.report(&error);
                    if matches!(error, Error::Unanswered(_)) {
                        self.interval.min(LONGEST)
                    } else if error.is_decision() {
                        refusals += 1;
                        after_refusal(self.interval, refusals)
                    } else {
                        failures += 1;
                        backoff(failures).min(self.interval)
                    }
                }
            };
            tokio::time::sleep(jittered(pause)).await;
        }
    }

    fn report(&self, error: &Error) {
        tracing::warn!(%error, "could not renew the certificate for the fleet API");
        metrics::counter!("muster_certificate_rotations_total", "result" => error.result())
            .increment(1);
        if let Some(cluster) = self.clusters.get(None, &self.cluster) {
            let note = format!("Cannot renew the agent's certificate: {error}");
            self.events.warn(&*cluster, "RotateCertificateFailed", note);
        }
    }

    /// Takes the next step of a renewal. Returns the pause before the following one.
    async fn step(&self, stage: &mut Stage) -> Result<Duration, Error> {
        let secrets: Api<Secret> = Api::namespaced(self.member.clone(), &self.place.namespace);
        let secret = self.secret(&secrets).await?;
        let document = self.document(&secret)?;
        self.refuse_a_stranger(&document)?;
        // Before leadership is checked, and without the fleet API: an agent whose certificate has
        // expired does not lead, and gets a new one from the Secret.
        self.show_the_better(&document);
        if !self.leadership.is_current() {
            return Ok(WHEN_LED.min(self.interval));
        }
        if let Some(bootstrap) = &self.bootstrap {
            let remembered = bootstrap.remember_way(&secret, &document, &self.gateway);
            if remembered.await? {
                return Ok(Duration::ZERO);
            }
        }
        let cluster = self.clusters.get(None, &self.cluster);
        let stays = |cluster: &Arc<Cluster>| cluster.metadata.deletion_timestamp.is_none();
        if !cluster.as_ref().is_some_and(stays) {
            return Ok(self.interval);
        }
        let validity = Validity::of(&document.chain);
        let now = calendar();
        if validity.is_none_or(|it| !it.is_short(self.threshold, now)) {
            *stage = Stage::Idle;
            measures::Step::Certificate.succeeded(now);
            return Ok(self.interval);
        }
        if self.bootstrap.is_some() && validity.is_some_and(|it| it.until <= now) {
            // The fleet API rejects an expired certificate: the bootstrap credentials obtain a new
            // one.
            *stage = Stage::Idle;
            return Ok(self.interval);
        }
        match stage {
            Stage::Idle => {
                let life = validity.map(Validity::length).unwrap_or_default();
                *stage = self.ask(&document, life).await?;
                Ok(ASK)
            }
            Stage::Asked { .. } => self.read_answer(stage, &document).await,
            Stage::Issued(issued) => {
                // The certificate is used even if the Secret cannot be written.
                if self.gateway.certificate().as_ref() != Some(&issued.certificate) {
                    self.gateway.present(&issued.certificate, &issued.key);
                }
                self.store(&secrets, &secret, &document, issued).await?;
                let chain = tls::certificates(&issued.certificate).unwrap_or_default();
                *stage = Stage::Idle;
                self.doubt_the_clock(&chain, now)?;
                Ok(self.interval)
            }
        }
    }

    /// Refuses a certificate that was just issued and is about to expire. This machine's clock is
    /// wrong then, and another certificate would be the same.
    fn doubt_the_clock(&self, issued: &[tls::Certificate], now: Timestamp) -> Result<(), Error> {
        match Validity::of(issued).filter(|it| it.is_short(self.threshold, now)) {
            Some(validity) => Err(Error::Clock(now, validity.until)),
            None => Ok(()),
        }
    }

    fn document(&self, secret: &Secret) -> Result<Document, Error> {
        let key = &self.place.key;
        let data = secret.data.as_ref().and_then(|data| data.get(key));
        let missing = || Error::NoKubeconfig(secret.name_any(), key.clone());
        let text = &data.ok_or_else(missing)?.0;
        Ok(Document::read(text, self.context.as_deref())?)
    }

    /// Uses the Secret's certificate if it is valid for longer than the one in use: another agent,
    /// or an earlier process, renewed it, and the mounted file is not updated yet.
    fn show_the_better(&self, document: &Document) {
        let until = |chain: &[tls::Certificate]| Validity::of(chain).map(|it| it.until);
        let shown = self.gateway.certificate();
        let Some(shown) = shown.and_then(|pem| tls::certificates(&pem).ok()) else {
            return;
        };
        let same = |(ours, theirs): (&tls::Certificate, &tls::Certificate)| {
            subject::are_same(&ours.subject, &theirs.subject)
        };
        if shown.first().zip(document.chain.first()).is_some_and(same)
            && until(&document.chain) > until(&shown)
            && let Ok(key) = std::str::from_utf8(&document.key)
        {
            tracing::info!("the Secret has a newer certificate for the fleet API than we do");
            self.gateway.present(&document.certificate, key);
        }
    }

    /// Refuses the Secret of another agent. Only with a bootstrap kubeconfig is the agent's own
    /// subject known.
    fn refuse_a_stranger(&self, document: &Document) -> Result<(), Error> {
        if self.bootstrap.is_none() || stored::is_agents(document, &self.cluster) {
            return Ok(());
        }
        let name = self.place.name.clone();
        Err(Error::Stranger(name, self.cluster.clone()))
    }

    /// Returns the Secret. With a bootstrap kubeconfig the certificate in use is stored in it first
    /// if it has none.
    async fn secret(&self, secrets: &Api<Secret>) -> Result<Secret, Error> {
        if let Some(bootstrap) = &self.bootstrap
            && let Some(secret) = bootstrap.secured(&self.gateway).await?
        {
            return Ok(secret);
        }
        let read = secrets.get(&self.place.name);
        Ok(within("read the member's Secret with our kubeconfig", read).await?)
    }

    async fn ask(&self, document: &Document, life: Duration) -> Result<Stage, Error> {
        let subject = document.chain.first().map(|leaf| leaf.subject.clone());
        let subject = subject.unwrap_or_default();
        let request = Asked::ask(&self.requests(), &self.cluster, &subject, life).await?;
        let reported = false;
        Ok(Stage::Asked { request, reported })
    }

    async fn read_answer(&self, stage: &mut Stage, document: &Document) -> Result<Duration, Error> {
        let Stage::Asked { request, reported } = stage else {
            return Ok(ASK);
        };
        match request.answer(&self.requests(), &document.chain).await {
            Ok(Some(certificate)) => {
                let key = request.key();
                *stage = Stage::Issued(Issued { certificate, key });
                Ok(Duration::ZERO)
            }
            Ok(None) if request.since.elapsed() < PATIENCE => Ok(ASK),
            Ok(None) if *reported => Ok(self.interval.min(PATIENCE)),
            Ok(None) => {
                *reported = true;
                Err(Error::Unanswered(request.name.clone()))
            }
            Err(error) => {
                if error.ends() {
                    *stage = Stage::Idle;
                }
                Err(error.into())
            }
        }
    }

    async fn store(
        &self,
        secrets: &Api<Secret>,
        secret: &Secret,
        document: &Document,
        issued: &Issued,
    ) -> Result<(), Error> {
        let text = document.with(&issued.certificate, issued.key.as_bytes())?;
        let patch = json!({
            "metadata": { "resourceVersion": secret.metadata.resource_version },
            "data": { self.place.key.as_str(): STANDARD.encode(text) },
        });
        let write = merge(secrets, &self.place.name, None, &patch);
        within("write the member's Secret with our kubeconfig", write).await?;
        metrics::counter!("muster_certificate_rotations_total", "result" => "renewed").increment(1);
        let until = tls::not_after(&issued.certificate).ok();
        let until = until.map(|it| it.to_string()).unwrap_or_default();
        tracing::info!(until, "renewed the certificate for the fleet API");
        if let Some(cluster) = self.clusters.get(None, &self.cluster) {
            let note = format!("Renewed the agent's certificate, valid until {until}.");
            let reason = "RotateCertificateSucceed";
            self.events.inform(&*cluster, reason, note);
        }
        Ok(())
    }

    fn requests(&self) -> Api<CertificateSigningRequest> {
        Api::all(self.fleet.clone())
    }
}
