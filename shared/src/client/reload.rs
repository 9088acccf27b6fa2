//! Clients whose credentials follow the files on disk, without a restart.

use std::hash::{DefaultHasher, Hasher};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use jiff::Timestamp;
use kube::config::Kubeconfig;
use kube::{Client, Config};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::sync::{Semaphore, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::gate::Gate;
use super::network::{Network, open};
use super::route::Routed;
use super::service::{Bucket, Switched, UNDER_WAY};
use super::traffic::{Priority, Traffic};
use super::writer::Writer;
use super::{Error, Limits, Profile, kubeconfig};
use crate::clock::{ServerClock, calendar};
use crate::remind::Reminder;

/// How often the files are checked. A mounted Secret takes up to a minute to change anyway.
const CHECK_EVERY: Duration = Duration::from_secs(10);

/// Source of the address of and the credentials for an API.
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
    /// The configuration with which clients connect.
    config: watch::Sender<Config>,
    /// Its origin: the configuration as last read, and the server in place of its own.
    pub(super) routed: Mutex<Routed>,
    /// Whether requests are sent.
    pub(super) gate: watch::Sender<Gate>,
    /// Carries the requests; `None` for TCP and TLS.
    network: Option<Arc<dyn Network>>,
    /// Reminder that reports credentials again that have run out, or soon will.
    reminder: Mutex<Reminder>,
    /// The clock of the API's server, as its answers show it.
    server_clock: Arc<ServerClock>,
}

/// Clients of one API that share a rate limit and the number of requests in flight.
#[derive(Debug)]
pub struct Pool {
    gateway: Arc<Gateway>,
    profile: Profile,
    bucket: Arc<Bucket>,
    places: Option<Arc<Semaphore>>,
    traffic: Traffic,
}

impl Pool {
    /// Opens a client whose requests wait for no others.
    pub fn client(&self) -> Result<Client, Error> {
        self.gateway.open_client(self, Priority::Placement)
    }

    /// Opens a client whose requests each wait for all others, up to 50 ms.
    pub fn background_client(&self) -> Result<Client, Error> {
        self.gateway.open_client(self, Priority::Event)
    }

    /// Opens the write path of a priority.
    pub fn writer(&self, priority: Priority) -> Result<Writer, Error> {
        let client = self.gateway.open_client(self, priority)?;
        Ok(Writer::new(client, self.traffic.clone(), priority))
    }
}

impl Gateway {
    /// Reads the configuration. `api` labels metrics and log lines (`fleet`, `member`).
    pub async fn open(api: &'static str, source: Source) -> Result<Arc<Self>, Error> {
        let config = kubeconfig(source.kubeconfig.as_deref(), source.context.as_deref()).await?;
        Ok(Self::with(api, source, config, None))
    }

    /// Takes a configuration that is on no disk: it stays until another is [taken](Self::take).
    pub fn given(api: &'static str, config: Config) -> Arc<Self> {
        Self::with(api, Source::default(), config, None)
    }

    /// Takes a configuration as [`given`](Self::given) does; requests go over a network other than
    /// TCP and TLS.
    pub fn over(network: Arc<dyn Network>, api: &'static str, config: Config) -> Arc<Self> {
        Self::with(api, Source::default(), config, Some(network))
    }

    /// Takes a configuration of another API, which is reached over the same network.
    pub fn beside(&self, api: &'static str, config: Config) -> Arc<Self> {
        Self::with(api, Source::default(), config, self.network.clone())
    }

    fn with(
        api: &'static str,
        source: Source,
        config: Config,
        network: Option<Arc<dyn Network>>,
    ) -> Arc<Self> {
        let gateway = Self {
            api,
            source,
            config: watch::Sender::new(config.clone()),
            routed: Mutex::new(Routed {
                own: config,
                route: None,
            }),
            gate: watch::Sender::new(Gate::Open),
            network,
            reminder: Mutex::new(Reminder::at_once()),
            server_clock: Arc::default(),
        };
        gateway.report_state();
        Arc::new(gateway)
    }

    /// Uses another configuration from the next request on.
    pub fn take(&self, config: Config) {
        self.change(|routed| routed.own = config);
    }

    /// Changes the configuration, or the server in place of its own, from the next request on.
    pub(super) fn change(&self, change: impl FnOnce(&mut Routed)) {
        let mut routed = self.routed.lock();
        change(&mut routed);
        self.config.send_replace(routed.config());
        drop(routed);
        self.report_state();
    }

    /// Returns the network that carries the requests in place of TCP and TLS, if there is one.
    pub const fn network(&self) -> Option<&Arc<dyn Network>> {
        self.network.as_ref()
    }

    /// Shows for how long the credentials are still good and how well the server is known, and says
    /// loudly what is wrong with them.
    fn report_state(&self) {
        let (api, config) = (self.api, self.config());
        let plain = config.cluster_url.scheme_str() == Some("http");
        let unverified = plain || config.accept_invalid_certs;
        metrics::gauge!("muster_client_connection_verified", "api" => api).set(if unverified {
            0.0
        } else {
            1.0
        });
        let remaining = remaining(api, &config, self.now());
        let words = if remaining.is_some_and(|left| left <= 0.0) {
            "the credentials have expired: the API refuses us until they are replaced"
        } else if plain {
            "the connection is not encrypted (http://): whoever is on the way reads and changes everything, credentials included"
        } else if unverified {
            "the server's certificate is not verified (insecure-skip-tls-verify): whoever is on the way can be the server"
        } else {
            let mut reminder = self.reminder.lock();
            reminder.over(Instant::now());
            return;
        };
        let mut reminder = self.reminder.lock();
        if reminder.trouble(Instant::now()).is_some() {
            tracing::warn!(api, server = %config.cluster_url, "{words}");
        }
    }

    /// Returns the life of the credentials; `None` for those that name no end.
    pub fn credentials(&self) -> Option<Life> {
        credentials(&self.config.borrow())
    }

    /// Returns the clock of the API's server, as the answers to all clients of this gateway show
    /// it.
    pub const fn server_clock(&self) -> &Arc<ServerClock> {
        &self.server_clock
    }

    /// Returns the host name of this program, if its network gives it one.
    pub fn host(&self) -> Option<String> {
        self.network.as_ref().map(|network| network.host())
    }

    /// Returns the configuration as last read.
    pub fn config(&self) -> Config {
        self.config.borrow().clone()
    }

    /// Shows another client certificate (PEM texts) from the next request on. The files stay what
    /// they are, and count again when they change: for a certificate that was renewed and will be
    /// on disk in a minute.
    pub fn present(&self, certificate: &[u8], key: &str) {
        self.change(|routed| {
            let user = &mut routed.own.auth_info;
            user.client_certificate_data = Some(encode(certificate));
            user.client_key_data = Some(encode(key.as_bytes()).into());
            (user.client_certificate, user.client_key) = (None, None);
        });
    }

    /// Returns the client certificate that is shown (PEM text), if there is one.
    pub fn certificate(&self) -> Option<Vec<u8>> {
        certificate(&self.config.borrow())
    }

    /// Returns the private key of that certificate (PEM text), where the configuration itself has
    /// it.
    pub fn key(&self) -> Option<Vec<u8>> {
        decode(&private(&self.config.borrow(), "client-key-data")?)
    }

    /// Returns a client with the deadlines of a profile. Requests that begin after the credentials
    /// changed use the new ones.
    pub fn client(self: &Arc<Self>, profile: Profile, limits: Limits) -> Result<Client, Error> {
        self.pool(profile, limits).client()
    }

    /// Returns a pool of clients that share limits, and of which some let the others pass.
    pub fn pool(self: &Arc<Self>, profile: Profile, limits: Limits) -> Pool {
        Pool {
            gateway: Arc::clone(self),
            profile,
            bucket: Arc::new(Bucket::new(limits)),
            // A watch keeps its connection, and a question about health must not wait behind
            // anything.
            places: (profile == Profile::Write).then(|| Arc::new(Semaphore::new(UNDER_WAY))),
            traffic: Traffic::default(),
        }
    }

    fn open_client(self: &Arc<Self>, pool: &Pool, priority: Priority) -> Result<Client, Error> {
        let profile = pool.profile;
        let config = self.config();
        let namespace = config.default_namespace.clone();
        let network = self.network.clone();
        let connect = move |config: &Config| open(network.as_ref(), config, profile);
        let current = watch::Sender::new(connect(&config)?);
        let service = Switched {
            current: current.subscribe(),
            bucket: Arc::clone(&pool.bucket),
            traffic: pool.traffic.clone(),
            priority,
            places: pool.places.clone(),
            gate: self.gate.subscribe(),
            api: self.api,
            server_clock: Arc::clone(&self.server_clock),
        };
        let mut changes = self.config.subscribe();
        let api = self.api;
        crate::clock::spawn(async move {
            // Ends with the gateway, or with the last clone of the client.
            loop {
                tokio::select! {
                    alive = changes.changed() => if alive.is_err() { return },
                    () = current.closed() => return,
                }
                let renewed = changes.borrow_and_update().clone();
                match connect(&renewed) {
                    Ok(client) => _ = current.send_replace(client),
                    Err(error) => {
                        tracing::error!(api, %error, "new credentials cannot be used; keeping the old ones");
                    }
                }
            }
        });
        Ok(Client::new(service, namespace))
    }

    /// Returns the time by the clock of the API's server, which judges the credentials; by that of
    /// the machine while it is not known.
    fn now(&self) -> Timestamp {
        let reported = self.server_clock.at(Instant::now());
        reported.unwrap_or_else(calendar)
    }

    /// Returns whether the credentials of a configuration have expired, and those in use end later.
    fn is_outlived(&self, config: &Config) -> bool {
        let now = self.now();
        let (held, found) = (self.credentials(), credentials(config));
        found.is_some_and(|found| found.end <= now && held.is_none_or(|held| held.end > found.end))
    }

    /// Watches the files until shutdown.
    pub async fn follow(self: Arc<Self>, shutdown: CancellationToken) {
        // kube itself re-reads a service account's token and certificate authority.
        let path = self.source.kubeconfig.as_deref();
        let mut seen = path.and_then(fingerprint);
        let mut refused = None;
        loop {
            tokio::select! {
                () = shutdown.cancelled() => return,
                () = tokio::time::sleep(CHECK_EVERY) => {}
            }
            let now = path.and_then(fingerprint);
            let Some(path) = path.filter(|_| now.is_some() && now != seen) else {
                self.report_state();
                continue;
            };
            match kubeconfig(Some(path), self.source.context.as_deref()).await {
                // A backup or a repository has put former credentials back on disk. They are
                // examined at each check: a clock that is ahead may be set back.
                Ok(config) if self.is_outlived(&config) => {
                    if refused != now {
                        tracing::warn!(
                            api = self.api,
                            path = %path.display(),
                            "the credentials on disk have expired: those in use stay"
                        );
                    }
                    refused = now;
                    self.report_state();
                }
                Ok(config) => {
                    tracing::info!(api = self.api, path = %path.display(), "credentials changed on disk");
                    self.take(config);
                    seen = now;
                }
                // Half-written, perhaps: checked again.
                Err(error) => {
                    tracing::warn!(api = self.api, %error, "changed credentials cannot be read yet");
                }
            }
        }
    }
}

/// Returns a number that changes when the kubeconfig, or a file that it names, changes. `None`
/// while it cannot be read.
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

/// Returns for how many seconds the credentials are still good, and shows that as metrics; `None`
/// for those that name no end.
fn remaining(api: &'static str, config: &Config, now: Timestamp) -> Option<f64> {
    let left = |life: Life| life.end.duration_since(now).as_secs_f64();
    let (certificate, token) = lives(config);
    let (certificate, token) = (certificate.map(left), token.map(left));
    if let Some(left) = certificate {
        metrics::gauge!("muster_client_certificate_remaining_seconds", "api" => api).set(left);
    }
    if let Some(left) = token {
        metrics::gauge!("muster_client_token_remaining_seconds", "api" => api).set(left);
    }
    certificate.into_iter().chain(token).reduce(f64::min)
}

/// Time in which credentials are valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Life {
    /// Begin; `None` if it is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub begin: Option<Timestamp>,
    /// End.
    pub end: Timestamp,
}

impl Life {
    /// Returns the life of the first certificate of a PEM text.
    pub fn of_certificate(pem: &[u8]) -> Option<Self> {
        let certificate = crate::tls::certificates(pem).ok()?.into_iter().next()?;
        Some(Self {
            begin: Some(certificate.not_before),
            end: certificate.not_after,
        })
    }

    /// Returns the life of a JSON Web Token; `None` for other tokens, which do not say it.
    pub fn of_token(token: &str) -> Option<Self> {
        Some(Self {
            begin: claimed(token, "iat"),
            end: claimed(token, "exp")?,
        })
    }
}

/// Returns the life of the credentials of a configuration: of its client certificate or its token,
/// whichever ends first. `None` for those that name no end.
pub fn credentials(config: &Config) -> Option<Life> {
    let (certificate, token) = lives(config);
    let lives = certificate.into_iter().chain(token);
    lives.min_by_key(|life| life.end)
}

/// Returns the lives of the client certificate and of the token of a configuration.
fn lives(config: &Config) -> (Option<Life>, Option<Life>) {
    let certificate = certificate(config).and_then(|pem| Life::of_certificate(&pem));
    let token = token(config).and_then(|token| Life::of_token(&token));
    (certificate, token)
}

/// Returns the bearer token of a configuration.
fn token(config: &Config) -> Option<String> {
    let user = &config.auth_info;
    if let Some(file) = &user.token_file {
        return std::fs::read_to_string(file).ok();
    }
    private(config, "token")
}

/// Returns a field of the credentials that is secret: it gives its content to a serializer only.
fn private(config: &Config, field: &str) -> Option<String> {
    let user = serde_json::to_value(&config.auth_info).ok()?;
    user[field].as_str().map(str::to_owned)
}

/// Returns a time that a JSON Web Token claims.
fn claimed(token: &str, claim: &str) -> Option<Timestamp> {
    let claims = token.trim().split('.').nth(1)?.trim_end_matches('=');
    let claims = URL_SAFE_NO_PAD.decode(claims).ok()?;
    let claims: serde_json::Value = serde_json::from_slice(&claims).ok()?;
    // Seconds, with a fraction where the issuer likes one.
    let seconds = claims[claim].as_f64()?;
    Timestamp::from_duration(jiff::SignedDuration::try_from_secs_f64(seconds).ok()?).ok()
}

/// Returns the client certificate of a configuration as PEM text.
fn certificate(config: &Config) -> Option<Vec<u8>> {
    let user = &config.auth_info;
    match (&user.client_certificate_data, &user.client_certificate) {
        (Some(data), _) => decode(data),
        (None, Some(file)) => std::fs::read(file).ok(),
        (None, None) => None,
    }
}

fn encode(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

/// Decodes Base64, as which kube's kubeconfig holds the certificate.
fn decode(text: &str) -> Option<Vec<u8>> {
    STANDARD.decode(text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_token_is_read_where_it_names_one() {
        use base64::Engine;
        let token = |claims: &str| {
            let claims = base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(claims);
            format!("eyJhbGciOiJSUzI1NiJ9.{claims}.c2ln")
        };
        for (token, expected) in [
            (token(r#"{"exp": 1800000000}"#), Some(1_800_000_000)),
            (
                token(r#"{"exp": 1800000000.5}"#) + "\n",
                Some(1_800_000_000),
            ),
            (token(r#"{"iat": 1}"#), None),
            (token(r#"{"exp": "soon"}"#), None),
            (token(r#"{"exp": 1e300}"#), None),
            (token("no JSON"), None),
            ("abcdef.0123456789abcdef".to_owned(), None),
            (String::new(), None),
        ] {
            let end = claimed(&token, "exp").map(Timestamp::as_second);
            assert_eq!(end, expected, "{token}");
        }
        let mut config = Config::new("https://h".parse().unwrap());
        config.auth_info.token = Some(token(r#"{"exp": 1800000000}"#).into());
        let now = Timestamp::from_second(1_800_000_100).unwrap();
        assert_eq!(remaining("test", &config, now), Some(-100.0));
    }

    /// Kubeconfig on disk, whose token can be given another end.
    struct OnDisk {
        folder: PathBuf,
        gateway: Arc<Gateway>,
    }

    impl OnDisk {
        async fn of(name: &str, end: i64) -> Self {
            let folder = std::env::temp_dir().join(format!("muster-{name}-{}", std::process::id()));
            std::fs::create_dir_all(&folder).unwrap();
            Self::write(&folder, end);
            let source = Source {
                kubeconfig: Some(folder.join("kubeconfig")),
                ..Source::default()
            };
            let gateway = Gateway::open("test", source).await.unwrap();
            Self { folder, gateway }
        }

        fn write(folder: &Path, end: i64) {
            let claims = URL_SAFE_NO_PAD.encode(format!(r#"{{"exp": {end}}}"#));
            let text = format!(
                "apiVersion: v1\nkind: Config\ncurrent-context: c\n\
                 clusters: [{{name: c, cluster: {{server: 'https://h'}}}}]\n\
                 contexts: [{{name: c, context: {{cluster: c, user: c}}}}]\n\
                 users: [{{name: c, user: {{token: e30.{claims}.c2ln}}}}]\n"
            );
            std::fs::write(folder.join("kubeconfig"), text).unwrap();
        }

        /// Returns the end of the credentials in use.
        fn end(&self) -> i64 {
            self.gateway.credentials().unwrap().end.as_second()
        }

        /// Follows the file until it was checked twice, while a future runs beside it.
        async fn follow(&self, beside: impl Future<Output = ()>) {
            let follow = Arc::clone(&self.gateway).follow(CancellationToken::new());
            let follow = tokio::time::timeout(CHECK_EVERY * 5 / 2, follow);
            let (stopped, ()) = tokio::join!(follow, beside);
            assert!(stopped.is_err());
        }
    }

    impl Drop for OnDisk {
        fn drop(&mut self) {
            _ = std::fs::remove_dir_all(&self.folder);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn credentials_that_have_expired_do_not_take_the_place_of_good_ones() {
        let now = calendar().as_second();
        let (past, good, better) = (now - 3_600, now + 3_600, now + 7_200);
        let disk = OnDisk::of("expired", good).await;
        for (end, expected) in [(past, good), (better, better), (good, good)] {
            disk.follow(async { OnDisk::write(&disk.folder, end) })
                .await;
            assert_eq!(disk.end(), expected, "{end}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn credentials_that_are_good_by_the_clock_of_their_server_are_taken() {
        let now = calendar();
        let (end, good) = (now.as_second() - 3_600, now.as_second() + 3_600);
        let disk = OnDisk::of("ahead", good).await;
        let (clock, servers) = (disk.gateway.server_clock(), now.as_second() - 7_200);
        let servers = Timestamp::from_second(servers).unwrap();
        disk.follow(async {
            OnDisk::write(&disk.folder, end);
            tokio::time::sleep(CHECK_EVERY * 3 / 2).await; // allowed: paused time
            assert_eq!(disk.end(), good);
            clock.observe(servers, Instant::now(), Instant::now());
        })
        .await;
        assert_eq!(disk.end(), end);
    }

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
