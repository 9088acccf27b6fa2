//! Credentials that change on disk are taken up without a restart.

use std::hash::{DefaultHasher, Hasher};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use kube::config::Kubeconfig;
use kube::{Client, Config};
use tokio::sync::{Semaphore, watch};
use tokio_util::sync::CancellationToken;

use super::service::{Bucket, Switched, UNDER_WAY};
use super::traffic::{Rank, Traffic};
use super::{Error, Limits, Profile, connect, kubeconfig};

/// How often the files are looked at. A mounted Secret takes up to a minute to change anyway.
const LOOK_EVERY: Duration = Duration::from_secs(10);

/// Where the way to an API is written down.
#[derive(Clone, Debug, Default)]
pub struct Source {
    /// A kubeconfig file; `None` for the pod's service account or the user's default.
    pub kubeconfig: Option<PathBuf>,
    /// A context within it; `None` for its current one.
    pub context: Option<String>,
}

/// A way to an API: opens clients that follow the credentials on disk.
#[derive(Debug)]
pub struct Gateway {
    api: &'static str,
    source: Source,
    config: watch::Sender<Config>,
}

/// Clients of one API that share a rate limit and the number of requests under way.
#[derive(Debug)]
pub struct Pool {
    gateway: Arc<Gateway>,
    profile: Profile,
    bucket: Arc<Bucket>,
    places: Option<Arc<Semaphore>>,
    traffic: Traffic,
}

impl Pool {
    /// A client for requests of one rank.
    pub fn client(&self, rank: Rank) -> Result<Client, Error> {
        self.gateway.open_client(self, rank)
    }

    /// What is under way by the clients of this pool.
    pub fn traffic(&self) -> &Traffic {
        &self.traffic
    }
}

impl Gateway {
    /// Reads the configuration. `api` labels metrics and log lines (`fleet`, `member`).
    pub async fn open(api: &'static str, source: Source) -> Result<Arc<Self>, Error> {
        let config = kubeconfig(source.kubeconfig.as_deref(), source.context.as_deref()).await?;
        report_validity(api, &config);
        Ok(Arc::new(Self {
            api,
            source,
            config: watch::Sender::new(config),
        }))
    }

    /// The configuration as last read.
    pub fn config(&self) -> Config {
        self.config.borrow().clone()
    }

    /// Shows another client certificate (PEM texts) from the next request on. The files stay what they are, and count again when
    /// they change: for a certificate that was renewed and will be on disk in a minute.
    pub fn present(&self, certificate: &[u8], key: &str) {
        self.config.send_modify(|config| {
            let user = &mut config.auth_info;
            user.client_certificate_data = Some(encode(certificate));
            user.client_key_data = Some(encode(key.as_bytes()).into());
            (user.client_certificate, user.client_key) = (None, None);
        });
        report_validity(self.api, &self.config.borrow());
    }

    /// The client certificate that is shown (PEM text), if there is one.
    pub fn certificate(&self) -> Option<Vec<u8>> {
        certificate(&self.config.borrow())
    }

    /// A client with the deadlines of a profile. Requests that begin after the credentials changed use the new ones.
    pub fn client(self: &Arc<Self>, profile: Profile, limits: Limits) -> Result<Client, Error> {
        self.pool(profile, limits).client(Rank::Decision)
    }

    /// Clients that share limits, and of which some let the others pass.
    pub fn pool(self: &Arc<Self>, profile: Profile, limits: Limits) -> Pool {
        Pool {
            gateway: Arc::clone(self),
            profile,
            bucket: Arc::new(Bucket::new(limits)),
            // A watch keeps its connection, and a question about health must not wait behind anything.
            places: (profile == Profile::Write).then(|| Arc::new(Semaphore::new(UNDER_WAY))),
            traffic: Traffic::default(),
        }
    }

    fn open_client(self: &Arc<Self>, pool: &Pool, rank: Rank) -> Result<Client, Error> {
        let profile = pool.profile;
        let config = self.config();
        let namespace = config.default_namespace.clone();
        let current = watch::Sender::new(connect(&config, profile)?);
        let service = Switched {
            current: current.subscribe(),
            bucket: Arc::clone(&pool.bucket),
            traffic: pool.traffic.clone(),
            rank,
            places: pool.places.clone(),
            api: self.api,
        };
        let mut changes = self.config.subscribe();
        let api = self.api;
        tokio::spawn(async move {
            // Ends with the gateway, or with the last clone of the client.
            loop {
                tokio::select! {
                    alive = changes.changed() => if alive.is_err() { return },
                    () = current.closed() => return,
                }
                let renewed = changes.borrow_and_update().clone();
                match connect(&renewed, profile) {
                    Ok(client) => _ = current.send_replace(client),
                    Err(error) => {
                        tracing::error!(api, %error, "new credentials cannot be used; keeping the old ones");
                    }
                }
            }
        });
        Ok(Client::new(service, namespace))
    }

    /// Watches the files until shutdown.
    pub async fn follow(self: Arc<Self>, shutdown: CancellationToken) {
        let Some(path) = self.source.kubeconfig.clone() else {
            // kube itself re-reads a service account's token and certificate authority.
            return shutdown.cancelled().await;
        };
        let mut seen = fingerprint(&path);
        loop {
            tokio::select! {
                () = shutdown.cancelled() => return,
                () = tokio::time::sleep(LOOK_EVERY) => {}
            }
            let now = fingerprint(&path);
            if now.is_none() || now == seen {
                report_validity(self.api, &self.config.borrow());
                continue;
            }
            match kubeconfig(Some(&path), self.source.context.as_deref()).await {
                Ok(config) => {
                    tracing::info!(api = self.api, path = %path.display(), "credentials changed on disk");
                    report_validity(self.api, &config);
                    self.config.send_replace(config);
                    seen = now;
                }
                // Half-written, perhaps: looked at again.
                Err(error) => {
                    tracing::warn!(api = self.api, %error, "changed credentials cannot be read yet");
                }
            }
        }
    }
}

/// A number that changes when the kubeconfig, or a file that it names, changes. `None` while it cannot be read.
fn fingerprint(path: &Path) -> Option<u64> {
    let mut hasher = DefaultHasher::new();
    hasher.write(&std::fs::read(path).ok()?);
    let parsed = Kubeconfig::read_from(path).ok()?;
    let users = parsed
        .auth_infos
        .iter()
        .filter_map(|named| named.auth_info.as_ref());
    let clusters = parsed
        .clusters
        .iter()
        .filter_map(|named| named.cluster.as_ref());
    let files = users
        .flat_map(|user| [&user.client_certificate, &user.client_key])
        .chain(clusters.map(|cluster| &cluster.certificate_authority));
    for file in files.flatten() {
        hasher.write(&std::fs::read(file).ok()?);
    }
    Some(hasher.finish())
}

/// Says how long the client certificate is still good, and loudly when it no longer is.
fn report_validity(api: &'static str, config: &Config) {
    let Some(not_after) = certificate(config).and_then(|pem| crate::tls::not_after(&pem).ok())
    else {
        return;
    };
    let remaining = not_after
        .duration_since(jiff::Timestamp::now())
        .as_secs_f64();
    metrics::gauge!("muster_client_certificate_remaining_seconds", "api" => api).set(remaining);
    if remaining <= 0.0 {
        tracing::error!(api, expired = %not_after, "the client certificate has expired: the API will refuse us until it is replaced");
    }
}

/// The client certificate of a configuration as PEM text.
fn certificate(config: &Config) -> Option<Vec<u8>> {
    let user = &config.auth_info;
    match (&user.client_certificate_data, &user.client_certificate) {
        (Some(data), _) => decode(data),
        (None, Some(file)) => std::fs::read(file).ok(),
        (None, None) => None,
    }
}

fn encode(bytes: &[u8]) -> String {
    use base64::Engine;
    base64::engine::general_purpose::STANDARD.encode(bytes)
}

/// Base64, as which kube's kubeconfig holds the certificate.
fn decode(text: &str) -> Option<Vec<u8>> {
    use base64::Engine;
    base64::engine::general_purpose::STANDARD.decode(text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fingerprint_covers_files_that_the_kubeconfig_names() {
        let folder = std::env::temp_dir().join(format!("muster-reload-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let (path, certificate) = (folder.join("kubeconfig"), folder.join("client.crt"));
        let text = "apiVersion: v1\nkind: Config\nusers:\n- name: a\n  user: {client-certificate: client.crt}\n";
        std::fs::write(&path, text).unwrap();
        std::fs::write(&certificate, "one").unwrap();
        let before = fingerprint(&path);
        assert!(before.is_some());
        assert_eq!(before, fingerprint(&path));
        std::fs::write(&certificate, "two").unwrap();
        assert_ne!(before, fingerprint(&path));
        std::fs::remove_file(&path).unwrap();
        assert_eq!(fingerprint(&path), None);
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
