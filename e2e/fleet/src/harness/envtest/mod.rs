//! A real Kubernetes API from released binaries: etcd, kube-apiserver and, where it is there,
//! kube-controller-manager.
//!
//! The folder of the binaries is the one that Kubebuilder's `setup-envtest` fills and that
//! [`ASSETS`] names. Everything else is made here: certificates, free ports, a directory of its
//! own. Dropping an [`Envtest`] kills the processes.

mod certificates;
mod child;

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::{Context as _, bail};
use kube::config::{KubeConfigOptions, Kubeconfig};

use super::process::{free_ports, last_lines};
use certificates::Authority;
use child::Child;

/// The environment variable that names the folder of the binaries, as Kubebuilder has it.
pub const ASSETS: &str = "KUBEBUILDER_ASSETS";

/// A server starts in a few seconds; one that takes this long never will.
const START: Duration = Duration::from_secs(90);

/// Pause between two questions whether a server is ready: nothing announces it.
const READY_PAUSE: Duration = Duration::from_millis(50);

/// The controllers that belong to an API rather than to its workloads: the harness plays the latter
/// itself.
const CONTROLLERS: &[&str] = &[
    "garbagecollector",
    "namespace",
    "serviceaccount",
    "serviceaccount-token",
    "root-ca-cert-publisher",
    "csrapproving",
    "csrsigning",
    "csrcleaner",
    "clusterrole-aggregation",
];

/// How a real API is started.
#[derive(Debug, Clone)]
pub struct Options {
    /// The folder with the binaries.
    pub assets: PathBuf,
    /// Where data, certificates and logs go; a temporary directory, removed at the end, if none is
    /// given.
    pub directory: Option<PathBuf>,
    /// Further arguments for kube-apiserver.
    pub server_arguments: Vec<String>,
}

impl Options {
    /// Returns the binaries that [`ASSETS`] names, or `None` if it names none. A folder that lacks
    /// them is an error: whoever set the variable expects a real server.
    pub fn from_environment() -> anyhow::Result<Option<Self>> {
        let Some(assets) = std::env::var_os(ASSETS).filter(|value| !value.is_empty()) else {
            return Ok(None);
        };
        let options = Self {
            assets: PathBuf::from(assets),
            directory: None,
            server_arguments: Vec::new(),
        };
        for name in ["etcd", "kube-apiserver"] {
            let binary = options.assets.join(name);
            if !binary.is_file() {
                bail!("{ASSETS}: there is no {}", binary.display());
            }
        }
        Ok(Some(options))
    }

    /// Returns whether kube-controller-manager will run.
    pub fn has_manager(&self) -> bool {
        self.assets.join("kube-controller-manager").is_file()
    }
}

/// A directory that is removed at the end if it was made for the purpose.
#[derive(Debug)]
struct Directory {
    path: PathBuf,
    temporary: bool,
}

impl Directory {
    fn new(given: Option<PathBuf>) -> anyhow::Result<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let temporary = given.is_none();
        let path = given.unwrap_or_else(|| {
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            std::env::temp_dir().join(format!("muster-envtest-{}-{number}", std::process::id()))
        });
        std::fs::create_dir_all(&path)
            .with_context(|| format!("cannot make {}", path.display()))?;
        Ok(Self { path, temporary })
    }

    fn file(&self, name: &str) -> String {
        self.path.join(name).display().to_string()
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        if self.temporary {
            // What is left behind in a temporary directory harms nobody.
            let _ = std::fs::remove_dir_all(&self.path);
        }
    }
}

/// A running API. Dropping it kills its processes and removes its temporary directory.
#[derive(Debug)]
pub struct Envtest {
    // Fields are dropped in this order: whoever needs another goes first.
    manager: Option<Child>,
    server: Child,
    _etcd: Child,
    authority: Authority,
    /// Of the server, of etcd for clients, of etcd for its peers.
    ports: [u16; 3],
    options: Options,
    address: String,
    directory: Directory,
}

impl Envtest {
    /// Starts an API and waits until it is ready.
    pub async fn start(options: Options) -> anyhow::Result<Self> {
        let directory = Directory::new(options.directory.clone())?;
        let authority = Authority::new().context("making certificates")?;
        authority
            .write(&directory.path)
            .context("writing certificates")?;

        let ports = free_ports::<3>()?;
        let etcd = start_etcd(&options, &directory, ports[1], ports[2])?;
        let server = start_server(&options, &directory, ports[0], ports[1])?;
        let mut api = Self {
            manager: None,
            server,
            _etcd: etcd,
            authority,
            ports,
            address: format!("https://127.0.0.1:{}", ports[0]),
            directory,
            options,
        };
        api.become_ready().await?;
        if api.options.has_manager() {
            api.manager = Some(api.start_manager()?);
        }
        Ok(api)
    }

    async fn become_ready(&mut self) -> anyhow::Result<()> {
        tokio::time::timeout(START, self.ready())
            .await
            .unwrap_or_else(|_| bail!("kube-apiserver is not ready after {START:?}"))
            .with_context(|| self.report())
    }

    /// Kills kube-apiserver and starts it again after `down`, on the same port, with what etcd
    /// kept: the objects, and not the history of watches.
    pub async fn restart(&mut self, down: Duration) -> anyhow::Result<()> {
        self.server.kill();
        tokio::time::sleep(down).await;
        let [server, etcd, _] = self.ports;
        self.server = start_server(&self.options, &self.directory, server, etcd)?;
        self.become_ready().await
    }

    /// Returns access for the administrator.
    pub fn kubeconfig(&self) -> anyhow::Result<Kubeconfig> {
        self.authority
            .kubeconfig(&self.address, "admin", &["system:masters"])
            .context("making the administrator's kubeconfig")
    }

    /// Returns the administrator's access as configuration of a client.
    async fn config(&self) -> anyhow::Result<kube::Config> {
        let options = KubeConfigOptions::default();
        Ok(kube::Config::from_custom_kubeconfig(self.kubeconfig()?, &options).await?)
    }

    /// Returns whether kube-controller-manager runs: garbage is collected, namespaces are emptied,
    /// certificates signed.
    pub fn has_manager(&self) -> bool {
        self.manager.is_some()
    }

    async fn ready(&mut self) -> anyhow::Result<()> {
        let client = kube::Client::try_from(self.config().await?)?;
        loop {
            if let Some(status) = self.server.ended()? {
                bail!("kube-apiserver ended: {status}");
            }
            let request = http::Request::get("/readyz").body(Vec::new())?;
            if client.request_text(request).await.is_ok() {
                return Ok(());
            }
            tokio::time::sleep(READY_PAUSE).await;
        }
    }

    fn start_manager(&self) -> anyhow::Result<Child> {
        let kubeconfig = self.directory.path.join("manager.kubeconfig");
        super::kubeconfig::write(&self.kubeconfig()?, &kubeconfig)?;
        let file = |name: &str| self.directory.file(name);
        let arguments = vec![
            format!("--kubeconfig={}", kubeconfig.display()),
            format!("--controllers={}", CONTROLLERS.join(",")),
            "--leader-elect=false".to_owned(),
            "--use-service-account-credentials=false".to_owned(),
            format!(
                "--service-account-private-key-file={}",
                file(certificates::TOKEN_KEY)
            ),
            format!("--root-ca-file={}", file(certificates::ROOT)),
            format!("--cluster-signing-cert-file={}", file(certificates::ROOT)),
            format!(
                "--cluster-signing-key-file={}",
                file(certificates::ROOT_KEY)
            ),
            // Nobody asks it anything.
            "--secure-port=0".to_owned(),
        ];
        let binary = self.options.assets.join("kube-controller-manager");
        Child::start(&binary, &arguments, &[], &self.directory.path)
    }

    /// Returns the last lines of the logs, for a report.
    fn report(&self) -> String {
        let lines = |name: &str| {
            last_lines(&self.directory.path.join(format!("{name}.log")), 5).join("\n  ")
        };
        format!(
            "starting a real API\nkube-apiserver:\n  {}\netcd:\n  {}",
            lines("kube-apiserver"),
            lines("etcd")
        )
    }
}

fn start_etcd(
    options: &Options,
    directory: &Directory,
    clients: u16,
    peers: u16,
) -> anyhow::Result<Child> {
    let clients = format!("http://127.0.0.1:{clients}");
    let peers = format!("http://127.0.0.1:{peers}");
    let arguments = vec![
        format!("--data-dir={}", directory.file("etcd")),
        format!("--listen-client-urls={clients}"),
        format!("--listen-peer-urls={peers}"),
    ];
    // What a lone member must say although it follows from the above, and that nobody needs its
    // data after a crash.
    let environment = [
        ("ETCD_ADVERTISE_CLIENT_URLS", clients),
        ("ETCD_INITIAL_ADVERTISE_PEER_URLS", peers.clone()),
        ("ETCD_INITIAL_CLUSTER", format!("default={peers}")),
        ("ETCD_UNSAFE_NO_FSYNC", "true".to_owned()),
    ];
    let binary = options.assets.join("etcd");
    Child::start(&binary, &arguments, &environment, &directory.path)
}

fn start_server(
    options: &Options,
    directory: &Directory,
    port: u16,
    etcd: u16,
) -> anyhow::Result<Child> {
    let file = |name: &str| directory.file(name);
    let mut arguments = vec![
        format!("--etcd-servers=http://127.0.0.1:{etcd}"),
        "--bind-address=127.0.0.1".to_owned(),
        "--advertise-address=127.0.0.1".to_owned(),
        format!("--secure-port={port}"),
        format!("--cert-dir={}", file("generated")),
        format!("--tls-cert-file={}", file(certificates::SERVING)),
        format!("--tls-private-key-file={}", file(certificates::SERVING_KEY)),
        format!("--client-ca-file={}", file(certificates::ROOT)),
        format!(
            "--service-account-key-file={}",
            file(certificates::TOKEN_PUBLIC)
        ),
        format!(
            "--service-account-signing-key-file={}",
            file(certificates::TOKEN_KEY)
        ),
        "--service-account-issuer=https://kubernetes.default.svc.cluster.local".to_owned(),
        "--service-cluster-ip-range=10.96.0.0/16".to_owned(),
        "--authorization-mode=RBAC".to_owned(),
        "--allow-privileged=true".to_owned(),
        // Pods here are made by whoever plays the workload controllers, in namespaces that may have
        // no accounts yet.
        "--disable-admission-plugins=ServiceAccount".to_owned(),
    ];
    arguments.extend(options.server_arguments.iter().cloned());
    let binary = options.assets.join("kube-apiserver");
    Child::start(&binary, &arguments, &[], &directory.path)
}
