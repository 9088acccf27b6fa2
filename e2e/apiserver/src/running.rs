//! Starting, reaching and stopping a server.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use bytes::Bytes;
use http::{Request, Response};
use hyper::body::Body as HttpBody;
use jiff::Timestamp;
use kube::config::{KubeConfigOptions, Kubeconfig};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::{mpsc, watch};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::admission_config::Admission;
use crate::audit::Audit;
use crate::auth::authorize::Access;
use crate::auth::identity::{Authority, Credentials, GRACE, LIFE, User};
use crate::auth::rbac::Rbac;
use crate::context::Server;
use crate::controllers::{self, Inside};
use crate::faults::Faults;
use crate::registry::Registry;
use crate::registry::documents::Kept;
use crate::serve;
use crate::server::Cut;
use crate::snapshot::Snapshot;
use crate::store::{HISTORY, Store};
use crate::wire::clock::Clock;
use crate::wire::media::{Body, BoxError};

/// How a server is set up.
#[derive(Debug, Clone)]
pub struct Options {
    /// Name in logs and in kubeconfigs.
    pub name: String,
    /// Changes that each resource remembers.
    pub history: usize,
    /// CRDs that are there from the start.
    pub crds: Vec<Value>,
    /// Whether the controllers of kube-controller-manager that keep an API tidy run.
    pub manager: bool,
    /// Whether lists are streamed to watches that ask for it (the gate `WatchList`).
    pub watch_list: bool,
    /// Whether lists and watches are written in protobuf for those who prefer it.
    pub protobuf: bool,
    /// The calendar of the server's clock.
    pub calendar: fn() -> Timestamp,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            name: "embedded".to_owned(),
            history: HISTORY,
            crds: Vec::new(),
            manager: true,
            watch_list: true,
            protobuf: true,
            calendar: Timestamp::now,
        }
    }
}

/// The embedded API server.
#[derive(Debug, Clone, Copy)]
pub struct ApiServer;

/// What a restart forgets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Forget {
    /// Nothing: watches go on where they were.
    Nothing,
    /// The history: watches from before are answered 410.
    History,
}

/// A server that runs until it is dropped.
#[derive(Debug)]
pub struct Running {
    server: Arc<Server>,
    port: u16,
    down: watch::Sender<bool>,
    stop: CancellationToken,
    _guard: DropGuard,
}

impl ApiServer {
    /// Starts a server on loopback; it listens when this returns.
    pub async fn start(options: Options) -> anyhow::Result<Running> {
        Self::listen(options, Arc::new(Authority::new()?)).await
    }

    /// Starts a server on loopback with the objects of another one at the moment of a snapshot, and
    /// with its authority: whoever has credentials for that one has them for this one.
    pub async fn restore(options: Options, snapshot: &Snapshot) -> anyhow::Result<Running> {
        let running = Self::listen(options, snapshot.authority()).await?;
        running.restore(snapshot)?;
        Ok(running)
    }

    async fn listen(options: Options, authority: Arc<Authority>) -> anyhow::Result<Running> {
        let socket = serve::bind(0).context("binding a port of 127.0.0.1")?;
        let port = socket.local_addr()?.port();
        let running = Self::prepare(options, port, authority).await?;
        let server = &running.server;
        let tls = TlsAcceptor::from(Arc::new(server.authority.server_tls()?));
        let listener = serve::listen(socket)?;
        let (serving, stopped) = (Arc::clone(server), running.stop.clone());
        let is_down = running.down.subscribe();
        tokio::spawn(async move {
            let name = serving.name.clone();
            if let Err(error) = serve::run(serving, listener, tls, is_down, stopped).await {
                tracing::error!(server = name, %error, "serving");
            }
        });
        Ok(running)
    }

    /// Starts a server without a socket: it answers [`Running::answer`] alone.
    pub async fn start_in_memory(options: Options) -> anyhow::Result<Running> {
        let authority = Authority::well_known((options.calendar)())?;
        Self::prepare(options, 0, Arc::new(authority)).await
    }

    /// Makes the state of a server, its controllers and its first objects.
    async fn prepare(
        options: Options,
        port: u16,
        authority: Arc<Authority>,
    ) -> anyhow::Result<Running> {
        let store = Store::new(options.history);
        let (notices, heard) = mpsc::unbounded_channel();
        let server = Arc::new(Server {
            name: options.name.clone(),
            registry: Registry::new(&store),
            documents: Kept::default(),
            admission: Admission::new(&store),
            access: Access {
                roles: Rbac::new(&store),
            },
            store,
            authority,
            faults: Faults::default(),
            audit: Audit::default(),
            clock: Clock::new(options.calendar),
            addresses: Mutex::new(1),
            watch_list: options.watch_list,
            protobuf: options.protobuf,
            concerns_controllers: controllers::concerns,
            notices,
        });
        let stop = CancellationToken::new();
        tokio::spawn(controllers::run(
            Arc::clone(&server),
            heard,
            options.manager,
            stop.clone(),
        ));
        bootstrap(&server, port, &options.crds).await?;
        Ok(Running {
            server,
            port,
            down: watch::Sender::new(false),
            stop: stop.clone(),
            _guard: stop.drop_guard(),
        })
    }
}

/// Makes what every cluster has from its first second.
async fn bootstrap(server: &Arc<Server>, port: u16, crds: &[Value]) -> anyhow::Result<()> {
    let inside = Inside::new(Arc::clone(server), "system:apiserver", "kube-apiserver");
    let failed = |refusal: crate::wire::status_error::StatusError| {
        anyhow!("making the first objects: {refusal}")
    };
    for name in ["kube-system", "kube-public", "kube-node-lease", "default"] {
        let object =
            json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } });
        inside
            .create(&inside.builtin("", "namespaces"), "", &object)
            .await
            .map_err(failed)?;
    }
    let service = json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {
            "name": "kubernetes", "namespace": "default",
            "labels": { "component": "apiserver", "provider": "kubernetes" },
        },
        "spec": {
            "clusterIP": "10.96.0.1",
            "ports": [{ "name": "https", "port": 443, "protocol": "TCP", "targetPort": port }],
        },
    });
    inside
        .create(&inside.builtin("", "services"), "default", &service)
        .await
        .map_err(failed)?;
    for (plural, object) in crate::auth::rbac::bootstrap() {
        let roles = inside.builtin("rbac.authorization.k8s.io", plural);
        inside.create(&roles, "", &object).await.map_err(failed)?;
    }
    let definitions = inside.builtin("apiextensions.k8s.io", "customresourcedefinitions");
    for crd in crds {
        inside.create(&definitions, "", crd).await.map_err(failed)?;
    }
    // The controllers serve them in the order of creation; a start is complete when the last one is
    // there.
    for crd in crds {
        let name = crate::wire::metadata::text(crd, "name");
        for _ in 0..1000 {
            let there = server
                .registry
                .all()
                .iter()
                .any(|r| r.custom.as_ref().is_some_and(|c| c.crd == name));
            if there {
                break;
            }
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    }
    Ok(())
}

impl Running {
    /// `https://127.0.0.1:PORT`
    pub fn url(&self) -> String {
        format!("https://127.0.0.1:{}", self.port)
    }

    /// Returns the root certificate that the server's is signed by, as PEM.
    pub fn ca(&self) -> &str {
        self.server.authority.root()
    }

    /// Returns the store of the objects.
    pub fn store(&self) -> &crate::store::Store {
        &self.server.store
    }

    /// Returns the registry of what is served.
    pub(super) fn registry(&self) -> &Registry {
        &self.server.registry
    }

    /// Failures on demand.
    pub fn faults(&self) -> &Faults {
        &self.server.faults
    }

    /// Writes that were asked for.
    pub fn audit(&self) -> &Audit {
        &self.server.audit
    }

    /// Returns the server's wall clock.
    pub fn clock(&self) -> &Clock {
        &self.server.clock
    }

    /// Answers a request of a user as if a client certificate had named them; the body of the
    /// answer may be a watch.
    ///
    /// # Errors
    /// When an injected fault closes the connection.
    pub async fn answer<B>(&self, user: User, request: Request<B>) -> Result<Response<Body>, Cut>
    where
        B: HttpBody<Data = Bytes> + Send,
        B::Error: Into<BoxError>,
    {
        Arc::clone(&self.server).handle(Some(user), request).await
    }

    /// Returns a kubeconfig for an administrator, in `system:masters`.
    pub fn admin_kubeconfig(&self) -> anyhow::Result<Kubeconfig> {
        self.kubeconfig("kubernetes-admin", &["system:masters"])
    }

    /// Returns a kubeconfig with a client certificate for a user in these groups.
    pub fn kubeconfig(&self, user: &str, groups: &[&str]) -> anyhow::Result<Kubeconfig> {
        self.kubeconfig_for(user, groups, GRACE + LIFE)
    }

    /// Returns a kubeconfig with a client certificate that ran out an hour ago, for a user in these
    /// groups.
    pub fn expired_kubeconfig(&self, user: &str, groups: &[&str]) -> anyhow::Result<Kubeconfig> {
        self.kubeconfig_for(user, groups, GRACE.saturating_sub(Duration::from_hours(1)))
    }

    /// Returns a kubeconfig with a client certificate of which only so much is left, for a user in
    /// these groups; the certificate began a day ago.
    pub fn ending_kubeconfig(
        &self,
        user: &str,
        groups: &[&str],
        left: Duration,
    ) -> anyhow::Result<Kubeconfig> {
        self.kubeconfig_for(user, groups, GRACE + left)
    }

    fn kubeconfig_for(
        &self,
        user: &str,
        groups: &[&str],
        life: Duration,
    ) -> anyhow::Result<Kubeconfig> {
        let credentials = self.server.authority.client(user, groups, life)?;
        self.kubeconfig_with(user, &certified(&credentials))
    }

    /// Returns a kubeconfig with a bearer token for a user in these groups.
    pub fn token_kubeconfig(&self, user: &str, groups: &[&str]) -> anyhow::Result<Kubeconfig> {
        let token = crate::wire::clock::secret();
        self.server
            .authority
            .allow_token(&token, User::authenticated(user, groups));
        self.kubeconfig_with(user, &json!({ "token": token }))
    }

    fn kubeconfig_with(&self, user: &str, auth: &Value) -> anyhow::Result<Kubeconfig> {
        let name = &self.server.name;
        let config = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{
                "name": name,
                "cluster": { "server": self.url(), "certificate-authority-data": base64(self.ca()) },
            }],
            "users": [{ "name": user, "user": auth }],
            "contexts": [{ "name": name, "context": { "cluster": name, "user": user } }],
            "current-context": name,
        });
        Ok(serde_json::from_value(config)?)
    }

    /// Returns a client for an administrator.
    pub async fn client(&self) -> anyhow::Result<kube::Client> {
        self.client_for(self.admin_kubeconfig()?).await
    }

    /// Returns a client for a user in these groups.
    pub async fn client_as(&self, user: &str, groups: &[&str]) -> anyhow::Result<kube::Client> {
        self.client_for(self.kubeconfig(user, groups)?).await
    }

    async fn client_for(&self, kubeconfig: Kubeconfig) -> anyhow::Result<kube::Client> {
        let options = KubeConfigOptions::default();
        let config = kube::Config::from_custom_kubeconfig(kubeconfig, &options).await?;
        Ok(kube::Client::try_from(config)?)
    }

    /// Returns the objects of this moment, from which another server can start.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot::take(&self.server.store, &self.server.authority)
    }

    /// Writes the objects of a snapshot, in place of those of the same names.
    pub fn restore(&self, snapshot: &Snapshot) -> anyhow::Result<()> {
        Ok(snapshot.restore(&self.server)?)
    }

    /// Stops listening and cuts every connection; the objects stay.
    pub fn stop(&self) {
        self.down.send_replace(true);
        self.server.faults.cut_connections();
    }

    /// Listens again after [`Running::stop`]; a server that runs is stopped first.
    pub fn restart(&self, forget: Forget) {
        self.stop();
        if forget == Forget::History {
            self.server.store.forget_history();
        }
        self.down.send_replace(false);
    }
}

fn certified(credentials: &Credentials) -> Value {
    json!({
        "client-certificate-data": base64(&credentials.certificate),
        "client-key-data": base64(&credentials.key),
    })
}

fn base64(text: &str) -> String {
    use base64::Engine;
    base64::engine::general_purpose::STANDARD.encode(text)
}
