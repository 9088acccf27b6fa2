//! Obtains the agent's credentials with a bootstrap kubeconfig (`--bootstrap-kubeconfig`): when
//! none are stored, when the stored certificate has expired, when the fleet API refuses it, and
//! when the kubeconfig leads to another server that does not accept it.
//!
//! The bootstrap credentials create one signing request and read its answer, and are used for
//! nothing else. The issued certificate is stored in the Secret of the member in which
//! [`Rotation`](super::Rotation) renews it. The Secret is read before each step, because another
//! agent of the member may be faster.

mod moved;
mod pins;
mod refused;
mod reporting;
mod way;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use kube::Config;
use muster_shared::certificate::hash::Hash;
use muster_shared::certificate::kubeconfig::Way;
use muster_shared::client::{self, Gateway, Profile};
use muster_shared::clock::calendar;
use muster_shared::events::Events;
use muster_shared::k8s::{Api, CertificateSigningRequest, Client, ObjectMeta, Secret};
use muster_shared::queue::jittered;
use muster_shared::serve::Health;
use muster_shared::tls;
use parking_lot::Mutex;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use self::refused::Trial;
use self::reporting::{Error, Stranger, Trouble};
use self::way::{way_in, way_of};
use super::Place;
use super::asking::{Asked, LONGEST};
use super::document::Document;
use super::stored::{self, Reason, Verdict};
use crate::fleet_server::Restart;
use crate::write::{self, merge, within};

/// Name of the credentials in `/readyz`.
pub const PART: &str = "credentials";
/// Requested lifetime of a certificate, as for `kubectl muster register`.
const LIFE: Duration = Duration::from_hours(90 * 24);
/// Interval at which the bootstrap kubeconfig is checked for a change, and the certificate for its
/// expiry.
const CHECK_EVERY: Duration = Duration::from_secs(10);
/// The bootstrap kubeconfig of one agent, and the Secret for its credentials.
pub struct Bootstrap {
    /// Name of the Cluster.
    pub cluster: String,
    /// The bootstrap kubeconfig.
    pub file: PathBuf,
    /// Hashes of authorities, one of which the file has to have; if empty, it may have any.
    pub pins: Vec<Hash>,
    /// File with the stored kubeconfig: the Secret as it is mounted.
    pub mounted: Option<PathBuf>,
    /// The Secret for the kubeconfig.
    pub place: Place,
    /// The member's API.
    pub member: Client,
    /// Publishes events in the member.
    pub events: Events,
    /// State of this part.
    pub health: Health,
    /// Certificate that the fleet API has refused.
    pub refused: Mutex<Option<Vec<u8>>>,
}

impl Bootstrap {
    /// Returns valid credentials: at once if they are stored, otherwise once they were issued.
    pub async fn obtain(&self) -> Config {
        let mut asked = None;
        let mut trouble = Trouble::default();
        loop {
            let seen = std::fs::read(&self.file).ok();
            let error = match self.step(&mut asked).await {
                Ok(config) => {
                    self.health.ready(PART, Ok(()));
                    return config;
                }
                Err(error) => error,
            };
            let pause = self.note(&mut trouble, &error, asked.as_ref());
            tokio::select! {
                () = tokio::time::sleep(jittered(pause)) => {}
                () = self.changed(seen) => trouble = Trouble::default(),
            }
        }
    }

    /// Obtains new credentials whenever the certificate has expired, and where the fleet API
    /// refuses the one that the agent began with, until shutdown. An agent that is refused later
    /// begins anew when its bootstrap kubeconfig is replaced.
    pub async fn keep(
        self: Arc<Self>,
        gateway: Arc<Gateway>,
        restart: Restart,
        shutdown: CancellationToken,
    ) {
        let keeping = Box::pin(async {
            let mut known = self.way().await.ok().map(|way| way_of(&way));
            let mut seen = std::fs::read(&self.file).ok();
            let mut trial = Trial::Begun;
            loop {
                let rest = left(&gateway);
                if !rest.is_zero() {
                    tokio::time::sleep(rest.min(CHECK_EVERY)).await;
                    self.follow_way(&mut known, &gateway).await;
                    let now = std::fs::read(&self.file).ok();
                    if now.is_some() && now != seen {
                        trial = trial.after_replacement();
                        seen = now;
                    }
                    trial = self.go_on(trial, &gateway).await;
                    if trial == Trial::Refused {
                        restart.begin(&shutdown);
                    }
                    continue;
                }
                gateway.take(self.obtain().await);
                if left(&gateway).is_zero() {
                    // The new certificate has expired by this machine's clock, and so would the
                    // next one.
                    tokio::time::sleep(LONGEST).await;
                }
            }
        });
        shutdown.run_until_cancelled(keeping).await;
    }

    /// Takes over a changed certificate authority or proxy of the bootstrap kubeconfig for the same
    /// server. Another server may be another fleet: it is followed only after a restart.
    async fn follow_way(&self, known: &mut Option<Way>, gateway: &Gateway) {
        let Ok(config) = self.way().await else { return };
        let way = way_of(&config);
        if known.as_ref() == Some(&way) {
            return;
        }
        if let Err(error) = pins::accept(&config, &self.pins) {
            self.warn_of(Some(&error));
            *known = Some(way);
            return;
        }
        let file = self.file.display();
        if stored::is_same_server(&way.server, &gateway.own_server().to_string()) {
            if let (Some(certificate), Some(key)) = (gateway.certificate(), gateway.key()) {
                gateway.take(client::certified(config, &certificate, &key));
                tracing::info!(%file, "the way to the fleet API changed");
            }
        } else {
            tracing::warn!(%file, server = way.server, "the bootstrap kubeconfig leads to another server: restart the agent to follow it");
        }
        *known = Some(way);
    }

    /// Looks for stored credentials; if there are none, creates a signing request, or reads its
    /// answer.
    async fn step(&self, asked: &mut Option<Asked>) -> Result<Config, Error> {
        let way = self.way().await;
        let read = way.as_ref().ok();
        let stranger = read.and_then(|it| pins::accept(it, &self.pins).err());
        // An agent that has credentials has the fleet's authority with them, and goes on with that.
        let trusted = read.filter(|_| stranger.is_none());
        let server = trusted.map(|way| way.cluster_url.to_string());
        let mounted = self.mounted.as_ref().and_then(|it| std::fs::read(it).ok());
        let mounted = mounted.as_deref();
        // Mounted credentials are read without the member's API, so that the lease does not wait
        // for it.
        if let Verdict::Use(document) = self.judge(mounted, server.as_deref())
            && let Ok(config) = self.config(mounted, &document, trusted).await
        {
            self.warn_of(stranger.as_ref());
            return Ok(config);
        }
        let secrets = self.secrets();
        let read = client::get_opt(&secrets, &self.place.name);
        let secret = within("read the member's Secret with our kubeconfig", read).await?;
        let text = self.text(secret.as_ref());
        let why = match self.judge(text, server.as_deref()) {
            Verdict::Use(document) => match self.config(text, &document, trusted).await {
                Ok(config) => {
                    self.warn_of(stranger.as_ref());
                    return Ok(config);
                }
                Err(why) => Reason::Way(why),
            },
            Verdict::Ask(why) => why,
            Verdict::Leave => {
                let name = format!("{}/{}", self.place.namespace, self.place.name);
                return Err(Error::Foreign(name, self.cluster.clone()));
            }
        };
        if let Some(stranger) = stranger {
            return Err(stranger.into());
        }
        let way = match way {
            Ok(way) => way,
            Err(error) => return Err(Error::Kubeconfig(why, error)),
        };
        if asked.is_none()
            && matches!(why, Reason::Moved { .. })
            && let Some(config) = self.accepted(secret.as_ref(), &way).await
        {
            return Ok(config);
        }
        let (certificate, key) = self.ask(asked, why).await?;
        let document = way_of(&way).with_certificate(&self.cluster, &certificate, key.as_bytes());
        let document = serde_saphyr::to_string(&document);
        let document = document.map_err(|error| Error::Write(error.to_string()))?;
        // The certificate is used even if the Secret cannot be written: the rotation stores it
        // later.
        if let Err(error) = self.store(secret.as_ref(), &document).await {
            tracing::warn!(%error, "could not store the new certificate for the fleet API");
        }
        self.report_success(&certificate);
        Ok(client::certified(way, &certificate, key.as_bytes()))
    }

    /// Creates a signing request, or reads its answer. The request is kept after errors that do not
    /// end it.
    async fn ask(
        &self,
        asked: &mut Option<Asked>,
        why: Reason,
    ) -> Result<(Vec<u8>, String), Error> {
        let read = client::kubeconfig(Some(&self.file), None).await;
        let read = read.map(|config| pins::narrow(config, &self.pins));
        let fleet = read.and_then(|config| client::connect(&config, Profile::Write));
        let fleet = match fleet {
            Ok(fleet) => fleet,
            Err(error) => return Err(Error::Kubeconfig(why, error)),
        };
        let api: Api<CertificateSigningRequest> = Api::all(fleet);
        let answer = match asked.take() {
            None => {
                tracing::info!(%why, "asking the fleet API for a certificate");
                let subject = stored::subject_of(&self.cluster);
                let made = Asked::ask(&api, &self.cluster, &subject, LIFE).await;
                made.map(|made| (made, None))
            }
            Some(request) => match request.answer(&api, &[]).await {
                Ok(answer) => Ok((request, answer)),
                Err(error) => {
                    if !error.ends() {
                        *asked = Some(request);
                    }
                    Err(error)
                }
            },
        };
        match answer {
            Ok((request, Some(certificate))) => Ok((certificate, request.key())),
            Ok((request, None)) => {
                let name = request.name.clone();
                *asked = Some(request);
                Err(Error::Waits { why, name })
            }
            Err(error) if error.is_unknown_user() => Err(Error::Token {
                why,
                file: self.file.clone(),
                cluster: self.cluster.clone(),
            }),
            Err(error) => Err(Error::Asking(why, error)),
        }
    }

    /// Stores the certificate in use if the Secret has none, or the one that the fleet API refuses:
    /// it was deleted, or could not be written when the certificate was issued. It is stored with
    /// the server of the bootstrap kubeconfig: at the next start, credentials for another one of
    /// the fleet's servers would count as those of another fleet. Returns the Secret afterwards.
    pub async fn secured(&self, gateway: &Gateway) -> Result<Option<Secret>, write::Error> {
        let secrets = self.secrets();
        let step = "read the member's Secret with our kubeconfig";
        let secret = within(step, client::get_opt(&secrets, &self.place.name)).await?;
        let stored = self.judge(self.text(secret.as_ref()), None);
        let (Some(certificate), Some(key)) = (gateway.certificate(), gateway.key()) else {
            return Ok(secret);
        };
        let is_refused = self.refused.lock().as_ref() == Some(&certificate);
        if is_refused || left(gateway).is_zero() || !matches!(stored, Verdict::Ask(_)) {
            return Ok(secret);
        }
        let way = way_of(&gateway.own_config());
        let document = way.with_certificate(&self.cluster, &certificate, &key);
        let Ok(document) = serde_saphyr::to_string(&document) else {
            return Ok(secret);
        };
        let written = self.store(secret.as_ref(), &document).await?;
        tracing::info!("stored the certificate for the fleet API, which was not in the Secret");
        Ok(Some(written))
    }

    /// Writes the authorities and the proxy in use into the Secret where it has others for the same
    /// server, so that an agent without its bootstrap kubeconfig can connect after the fleet has
    /// replaced its authority. Returns whether it wrote.
    pub async fn remember_way(
        &self,
        secret: &Secret,
        document: &Document,
        gateway: &Gateway,
    ) -> Result<bool, write::Error> {
        let text = String::from_utf8_lossy(self.text(Some(secret)).unwrap_or_default());
        let stored = client::from_text(&text, "of the member's Secret").await;
        let Ok(stored) = stored.map(|config| way_in(&text, &config)) else {
            return Ok(false);
        };
        let used = way_of(&gateway.config());
        if stored == used || !stored::is_same_server(&stored.server, &used.server) {
            return Ok(false);
        }
        let text = used.with_certificate(&self.cluster, &document.certificate, &document.key);
        let Ok(text) = serde_saphyr::to_string(&text) else {
            return Ok(false);
        };
        self.store(Some(secret), &text).await?;
        tracing::info!("stored the changed way to the fleet API");
        Ok(true)
    }

    async fn store(&self, found: Option<&Secret>, text: &str) -> Result<Secret, write::Error> {
        let (secrets, name) = (self.secrets(), &self.place.name);
        let data = json!({ self.place.key.as_str(): STANDARD.encode(text) });
        let step = "write the member's Secret with our kubeconfig";
        if let Some(found) = found {
            let version = &found.metadata.resource_version;
            let patch = json!({ "metadata": { "resourceVersion": version }, "data": data });
            return within(step, merge(&secrets, name, None, &patch)).await;
        }
        let data = [(self.place.key.clone(), text.to_owned())];
        let secret = Secret {
            metadata: ObjectMeta {
                name: Some(name.clone()),
                ..ObjectMeta::default()
            },
            string_data: Some(data.into()),
            ..Secret::default()
        };
        within(step, write::create(&secrets, name, &secret)).await
    }

    /// Returns the configuration of the bootstrap kubeconfig, without its credentials.
    async fn way(&self) -> Result<Config, client::Error> {
        let mut way = client::kubeconfig(Some(&self.file), None).await?;
        way.auth_info = kube::config::AuthInfo::default();
        Ok(way)
    }

    /// Returns the configuration of stored credentials. The server is that of the bootstrap
    /// kubeconfig; without one, as after its Secret was deleted, that of the stored kubeconfig.
    async fn config(
        &self,
        text: Option<&[u8]>,
        document: &Document,
        way: Option<&Config>,
    ) -> Result<Config, client::Error> {
        let way = if let Some(way) = way {
            way.clone()
        } else {
            let text = String::from_utf8_lossy(text.unwrap_or_default());
            let name = "of the member's Secret";
            client::from_text(&text, name).await?
        };
        Ok(client::certified(way, &document.certificate, &document.key))
    }

    /// Warns of a bootstrap kubeconfig that credentials are used without.
    fn warn_of(&self, stranger: Option<&Stranger>) {
        if let Some(error) = stranger {
            tracing::warn!(file = %self.file.display(), %error, "the bootstrap kubeconfig is not followed");
        }
    }

    fn judge(&self, text: Option<&[u8]>, server: Option<&str>) -> Verdict {
        let refused = self.refused.lock();
        stored::judge(text, &self.cluster, server, refused.as_deref(), calendar())
    }

    fn text<'a>(&self, secret: Option<&'a Secret>) -> Option<&'a [u8]> {
        let data = secret.and_then(|it| it.data.as_ref());
        Some(&data?.get(&self.place.key)?.0)
    }

    fn secrets(&self) -> Api<Secret> {
        Api::namespaced(self.member.clone(), &self.place.namespace)
    }

    /// Waits until the bootstrap kubeconfig differs from `seen`.
    async fn changed(&self, seen: Option<Vec<u8>>) {
        loop {
            tokio::time::sleep(CHECK_EVERY).await;
            let now = std::fs::read(&self.file).ok();
            if now.is_some() && now != seen {
                return;
            }
        }
    }
}

/// Returns the remaining lifetime of the certificate in use; zero once it has expired.
fn left(gateway: &Gateway) -> Duration {
    let end = gateway.certificate();
    let end = end.and_then(|pem| tls::not_after(&pem).ok());
    let left = end.map(|end| end.duration_since(calendar()));
    left.and_then(|left| Duration::try_from(left).ok())
        .unwrap_or_default()
}
