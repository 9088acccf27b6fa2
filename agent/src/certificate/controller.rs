//! Renews the agent's certificate before it expires, and stores it in the Secret and in this
//! process.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use kube::api::PostParams;
use muster_shared::api::cluster::Cluster;
use muster_shared::certificate::answer::{self, Answer, Useless};
use muster_shared::certificate::request::{NewKey, NoKey};
use muster_shared::certificate::subject;
use muster_shared::certificate::validity::Validity;
use muster_shared::client::Gateway;
use muster_shared::clock::calendar;
use muster_shared::events::{EventType, Events};
use muster_shared::k8s::{Api, CertificateSigningRequest, Client, ResourceExt, Secret};
use muster_shared::lease::Leadership;
use muster_shared::queue::{backoff, jittered};
use muster_shared::tls;
use muster_shared::watch::Informer;
use serde_json::json;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::document::{self, Document};
use crate::measures;
use crate::write::{self, FIELD_MANAGER, merge, within};

/// How often an answer to a request is asked for. An agent may read requests and not watch them
/// (Karmada's role for agents).
const ASK: Duration = Duration::from_secs(1);
/// After this time without an answer that is told, and the answer looked for less often (Karmada
/// then makes another request, and another, each with a new key).
const PATIENCE: Duration = Duration::from_mins(5);
/// How long to wait while another agent of the member leads, or none does, as in an outage.
const WHEN_LED: Duration = Duration::from_secs(10);
/// The longest pause after a refusal.
const LONGEST: Duration = Duration::from_hours(1);

/// The Secret with the agent's kubeconfig.
#[derive(Clone, Debug)]
pub struct Place {
    /// Namespace in the member.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// Key of the kubeconfig in it.
    pub key: String,
}

/// Why the certificate could not be renewed.
#[derive(Debug, thiserror::Error)]
enum Error {
    #[error(transparent)]
    Call(#[from] write::Error),
    #[error("the member's Secret {0:?} has no key {1:?}")]
    NoKubeconfig(String, String),
    #[error(transparent)]
    Document(#[from] document::Error),
    #[error(transparent)]
    NoKey(#[from] NoKey),
    #[error("signing request {0:?} was refused: {1}")]
    Refused(String, String),
    #[error("signing request {0:?} went without an answer")]
    Gone(String),
    #[error("nobody has answered signing request {0:?} for {PATIENCE:?}: still waiting for it")]
    Unanswered(String),
    #[error("what was issued for signing request {0:?} is of no use: {1}")]
    Useless(String, Useless),
    #[error(
        "a certificate issued just now ends at {1:.0}, which is soon or past by this machine's clock ({0:.0}): one of the two \
         clocks is wrong"
    )]
    Clock(Timestamp, Timestamp),
}

impl Error {
    /// What the metric calls it.
    fn result(&self) -> &'static str {
        match self {
            Self::Refused(..) => "refused",
            Self::Unanswered(_) => "unanswered",
            Self::Useless(..) => "useless",
            _ => "error",
        }
    }

    /// Whether asking again soon would bring the same: a person has decided, or a clock is wrong.
    fn is_decision(&self) -> bool {
        matches!(
            self,
            Self::Refused(..) | Self::Useless(..) | Self::Clock(..)
        )
    }
}

/// What is under way.
enum Stage {
    /// Nothing.
    Idle,
    /// A request waits for its answer.
    Asked {
        name: String,
        key: Box<NewKey>,
        since: Instant,
        told: bool,
    },
    /// A certificate was issued, and is not in the Secret yet.
    Issued { certificate: Vec<u8>, key: String },
}

/// Renews the certificate of one agent.
pub struct Rotation {
    /// Name of the Cluster.
    pub cluster: String,
    /// Where the kubeconfig is.
    pub place: Place,
    /// The context of the kubeconfig that the agent uses.
    pub context: Option<String>,
    /// How often the certificate is looked at.
    pub interval: Duration,
    /// The share of its life that has to be left.
    pub threshold: f64,
    /// Whether we may speak for the member.
    pub leadership: Leadership,
    /// The Cluster as the fleet has it.
    pub clusters: Informer<Cluster>,
    /// The way to the fleet API, which is to show the new certificate.
    pub gateway: Arc<Gateway>,
    /// The fleet API.
    pub fleet: Client,
    /// The member's API.
    pub member: Client,
    /// Where events are published.
    pub events: Events,
}

impl Rotation {
    /// Looks after the certificate until shutdown.
    pub async fn run(self, shutdown: CancellationToken) {
        tokio::select! {
            () = shutdown.cancelled() => {}
            () = self.look_after() => {}
        }
    }

    async fn look_after(&self) {
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
                    self.tell(&error);
                    if matches!(error, Error::Unanswered(_)) {
                        self.interval.min(LONGEST)
                    } else if error.is_decision() {
                        refusals += 1;
                        self.after_refusal(refusals)
                    } else {
                        failures += 1;
                        backoff(failures).min(self.interval)
                    }
                }
            };
            tokio::time::sleep(jittered(pause)).await;
        }
    }

    /// The interval, doubled with each refusal.
    fn after_refusal(&self, refusals: u32) -> Duration {
        let doubled = self.interval.saturating_mul(1 << (refusals - 1).min(16));
        doubled.min(LONGEST.max(self.interval))
    }

    fn tell(&self, error: &Error) {
        tracing::warn!(%error, "could not renew the certificate for the fleet API");
        metrics::counter!("muster_certificate_rotations_total", "result" => error.result())
            .increment(1);
        if let Some(cluster) = self.clusters.get(None, &self.cluster) {
            let note = format!("Cannot renew the agent's certificate: {error}");
            self.events.publish(
                &*cluster,
                EventType::Warning,
                "RotateCertificateFailed",
                note,
            );
        }
    }

    /// One look, and the next thing to do. Says when to look again.
    async fn step(&self, stage: &mut Stage) -> Result<Duration, Error> {
        let secrets: Api<Secret> = Api::namespaced(self.member.clone(), &self.place.namespace);
        let read = secrets.get(&self.place.name);
        let secret = within("read the member's Secret with our kubeconfig", read).await?;
        let document = self.document(&secret)?;
        // Whoever leads, and whether or not the fleet answers: an agent whose certificate has
        // expired leads no longer, and the Secret is where a new one comes from.
        self.show_the_better(&document);
        if !self.leadership.is_current() {
            return Ok(WHEN_LED.min(self.interval));
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
        match stage {
            Stage::Idle => {
                let life = validity.map(Validity::length).unwrap_or_default();
                *stage = self.ask(&document, life).await?;
                Ok(ASK)
            }
            Stage::Asked { .. } => self.look_for_the_answer(stage, &document).await,
            Stage::Issued { certificate, key } => {
                // In use already, whatever becomes of the Secret.
                if self.gateway.certificate().as_ref() != Some(certificate) {
                    self.gateway.present(certificate, key);
                }
                self.store(&secrets, &secret, &document, (certificate, key))
                    .await?;
                let issued = tls::certificates(certificate).ok();
                *stage = Stage::Idle;
                self.doubt_the_clock(issued.as_deref().unwrap_or_default(), now)?;
                Ok(self.interval)
            }
        }
    }

    /// A certificate that has just been issued and has hardly anything left of its life says that
    /// this machine's clock is wrong: asking for another would bring another of the same kind.
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

    /// Takes the Secret's certificate up if it is good for longer than ours: another agent, or an
    /// earlier process, renewed it, and the file that we were started with does not say so yet.
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

    async fn ask(&self, document: &Document, life: Duration) -> Result<Stage, Error> {
        let key = NewKey::generate()?;
        let subject = document.chain.first().map(|leaf| leaf.subject.clone());
        let request = key.asking(&self.cluster, &subject.unwrap_or_default(), life)?;
        let name = request.name_any();
        let params = PostParams {
            field_manager: Some(FIELD_MANAGER.into()),
            ..PostParams::default()
        };
        let api = self.requests();
        within("create a signing request", api.create(&params, &request)).await?;
        tracing::info!(
            request = name,
            "asked for a new certificate for the fleet API"
        );
        Ok(Stage::Asked {
            name,
            key: Box::new(key),
            since: Instant::now(),
            told: false,
        })
    }

    async fn look_for_the_answer(
        &self,
        stage: &mut Stage,
        document: &Document,
    ) -> Result<Duration, Error> {
        let Stage::Asked {
            name,
            key,
            since,
            told,
        } = stage
        else {
            return Ok(ASK);
        };
        let api = self.requests();
        let Some(request) = within("read the signing request", api.get_opt(name)).await? else {
            // Kubernetes removes requests that nobody answered for a day.
            let error = Error::Gone(std::mem::take(name));
            *stage = Stage::Idle;
            return Err(error);
        };
        match answer::answer(&request) {
            Answer::Pending if since.elapsed() < PATIENCE => Ok(ASK),
            Answer::Pending if *told => Ok(self.interval.min(PATIENCE)),
            Answer::Pending => {
                *told = true;
                Err(Error::Unanswered(name.clone()))
            }
            Answer::Refused(why) => {
                let error = Error::Refused(std::mem::take(name), why);
                *stage = Stage::Idle;
                Err(error)
            }
            Answer::Issued(certificate) => {
                match answer::check(&certificate, &key.public(), &document.chain) {
                    Ok(_) => {
                        let key = key.pem();
                        *stage = Stage::Issued { certificate, key };
                        Ok(Duration::ZERO)
                    }
                    Err(useless) => {
                        let error = Error::Useless(std::mem::take(name), useless);
                        *stage = Stage::Idle;
                        Err(error)
                    }
                }
            }
        }
    }

    async fn store(
        &self,
        secrets: &Api<Secret>,
        secret: &Secret,
        document: &Document,
        (certificate, key): (&[u8], &str),
    ) -> Result<(), Error> {
        let text = document.with(certificate, key.as_bytes())?;
        let patch = json!({
            "metadata": { "resourceVersion": secret.metadata.resource_version },
            "data": { self.place.key.as_str(): STANDARD.encode(text) },
        });
        let write = merge(secrets, &self.place.name, None, &patch);
        within("write the member's Secret with our kubeconfig", write).await?;
        metrics::counter!("muster_certificate_rotations_total", "result" => "renewed").increment(1);
        let until = tls::not_after(certificate).ok();
        let until = until.map(|it| it.to_string()).unwrap_or_default();
        tracing::info!(until, "renewed the certificate for the fleet API");
        if let Some(cluster) = self.clusters.get(None, &self.cluster) {
            let note = format!("Renewed the agent's certificate, valid until {until}.");
            let reason = "RotateCertificateSucceed";
            self.events
                .publish(&*cluster, EventType::Normal, reason, note);
        }
        Ok(())
    }

    fn requests(&self) -> Api<CertificateSigningRequest> {
        Api::all(self.fleet.clone())
    }
}
