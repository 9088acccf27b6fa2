//! `kubectl muster ui`: a page of the fleet, served on loopback with the rights of whoever runs it,
//! or to others, who sign in.
//!
//! The page decides nothing: each of its answers is what another command prints with `-o json`.

mod answers;
mod files;
mod server;
mod sign_in;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context as _, bail, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use clap::Args;
use kube::Config;
use muster_shared::client::{self, Gateway, Limits, Profile, Source};
use muster_shared::https::{self, Certificate};
use muster_shared::k8s::Client;
use muster_shared::serve::{self, Health};
use muster_shared::telemetry;
use ring::rand::{SecureRandom as _, SystemRandom};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use self::answers::Answers;
use self::server::{AccessMode, LocalAddress, is_name};
use self::sign_in::SignIn;
use super::connection::Connection;
use super::output::{INTERRUPTED, Reply};

/// Bytes of the secret in the address.
const SECRET: usize = 24;

#[derive(Debug, Args)]
pub(super) struct Options {
    /// Port on 127.0.0.1; 0 for one that is free.
    #[arg(long, default_value_t = 0)]
    port: u16,
    /// Part of the page that the address opens: `cluster/NAME`, `failover/NAME` or
    /// `workload/NAMESPACE/KIND/NAME` (`-` for no namespace), as the page shows it to be passed on.
    #[arg(value_name = "STORY", value_parser = story)]
    story: Option<String>,
    /// Address and port on which the page is served to others, such as 0.0.0.0:8443. Users have to
    /// sign in: a request needs a bearer token that an API knows (TokenReview) of a user who may
    /// get the path /muster.io/page there (SubjectAccessReview). Everybody sees what this command's
    /// own rights show. Beyond loopback it takes a certificate.
    #[arg(long, value_name = "ADDRESS", conflicts_with_all = ["port", "story"])]
    serve: Option<SocketAddr>,
    /// Kubeconfig of the API that is asked who signs in; without it that of the cluster whose pod
    /// this is.
    #[arg(long, value_name = "FILE", requires = "serve")]
    sign_in_kubeconfig: Option<PathBuf>,
    /// Certificate chain of the page (PEM). The files may be replaced at any time.
    #[arg(long, value_name = "FILE", requires_all = ["serve", "tls_private_key_file"])]
    tls_cert_file: Option<PathBuf>,
    /// Private key of the certificate (PEM).
    #[arg(long, value_name = "FILE", requires_all = ["serve", "tls_cert_file"])]
    tls_private_key_file: Option<PathBuf>,
    /// Flags of the control plane, behind `--`, in place of those that its leader publishes on its
    /// lease, as `status` and `simulate` take them.
    #[arg(last = true, value_name = "FLAGS")]
    flags: Vec<String>,
}

impl Options {
    /// Returns the end of the address that opens a part of the page.
    fn fragment(&self) -> String {
        let story = self.story.as_ref();
        story.map_or_else(String::new, |it| format!("#{it}"))
    }
}

/// Reads the name of a part of the page.
fn story(text: &str) -> Result<String, String> {
    let parts: Vec<&str> = text.split('/').collect();
    let is_story = match parts[..] {
        ["cluster" | "failover", name] => is_name(name),
        ["workload", namespace, kind, name] => {
            (namespace == "-" || is_name(namespace)) && is_name(kind) && is_name(name)
        }
        _ => false,
    };
    let wanted = "cluster/NAME, failover/NAME or workload/NAMESPACE/KIND/NAME";
    is_story
        .then(|| text.to_owned())
        .ok_or_else(|| format!("{text:?} is not {wanted}"))
}

/// A page that has its port and its address.
pub struct Page {
    listener: TcpListener,
    certificate: Option<Arc<Certificate>>,
    address: String,
    access_mode: AccessMode,
    answers: Arc<Answers>,
}

impl Page {
    /// Takes the port. `server` is the address of the fleet API.
    pub(super) async fn open(
        client: Client,
        server: &str,
        options: &Options,
    ) -> anyhow::Result<Self> {
        let answers = Arc::new(Answers::new(client, server, options.flags.clone()));
        match options.serve {
            Some(address) => Self::open_to_others(answers, options, address).await,
            None => Self::open_to_one(answers, options.port).await,
        }
    }

    /// Takes a port for those who sign in.
    async fn open_to_others(
        answers: Arc<Answers>,
        options: &Options,
        address: SocketAddr,
    ) -> anyhow::Result<Self> {
        let certificate = match (&options.tls_cert_file, &options.tls_private_key_file) {
            (Some(chain), Some(key)) => Some(Certificate::new(chain.clone(), key.clone())),
            _ => None,
        };
        ensure!(
            certificate.is_some() || address.ip().is_loopback(),
            "--serve {address} needs --tls-cert-file and --tls-private-key-file: tokens are sent there. Without them only loopback is allowed, for a proxy beside it"
        );
        if let Some(certificate) = &certificate {
            certificate.reload().await?;
        }
        let known_by = match &options.sign_in_kubeconfig {
            Some(path) => client::kubeconfig(Some(path), None).await?,
            None => match Config::incluster() {
                Ok(config) => config,
                Err(error) => bail!(
                    "the page has no API that checks the tokens of those who sign in: it does not run in a pod ({error}); name one with --sign-in-kubeconfig"
                ),
            },
        };
        let sign_in = SignIn::new(client::connect(&known_by, Profile::Write)?);
        let listener = serve::listen(address)
            .await
            .with_context(|| format!("cannot serve on {address}, which --serve names"))?;
        let scheme = if certificate.is_some() {
            "https"
        } else {
            "http"
        };
        Ok(Self {
            address: format!("{scheme}://{}/", listener.local_addr()?),
            listener,
            certificate: certificate.map(Arc::new),
            access_mode: AccessMode::SignIn(sign_in),
            answers,
        })
    }

    /// Listens on a port of loopback alone, for the person who started the program.
    async fn open_to_one(answers: Arc<Answers>, port: u16) -> anyhow::Result<Self> {
        let address = (Ipv4Addr::LOCALHOST, port);
        let listener = TcpListener::bind(address).await.with_context(|| {
            format!("cannot serve on 127.0.0.1:{port}, which --port names (0 for a free one)")
        })?;
        let mut secret = [0; SECRET];
        SystemRandom::new()
            .fill(&mut secret)
            .ok()
            .context("the system provided no randomness")?;
        let local_address = LocalAddress {
            port: listener.local_addr()?.port(),
            token: URL_SAFE_NO_PAD.encode(secret),
        };
        Ok(Self {
            address: format!(
                "http://127.0.0.1:{}/{}/",
                local_address.port, local_address.token
            ),
            listener,
            certificate: None,
            access_mode: AccessMode::Address(local_address),
            answers,
        })
    }

    /// Returns the address of the page, with the secret.
    pub fn url(&self) -> String {
        self.address.clone()
    }

    /// Serves it until shutdown.
    pub async fn serve(self, shutdown: CancellationToken) {
        let access_mode = Arc::new(self.access_mode);
        let answers = self.answers;
        let handler = move |request: http::request::Parts| {
            let (access_mode, answers) = (Arc::clone(&access_mode), Arc::clone(&answers));
            async move { server::answer(&access_mode, &answers, &request).await }
        };
        if let Some(certificate) = self.certificate.clone() {
            let following = certificate.follow(Health::default(), "page", shutdown.clone());
            muster_shared::clock::spawn(following);
        }
        https::page(self.listener, self.certificate, handler, shutdown).await;
    }
}

/// Serves the page until the program is interrupted.
pub(super) async fn carry_out(
    client: Client,
    connection: &Connection,
    config: &Config,
    options: &Options,
) -> anyhow::Result<Reply> {
    let shutdown = CancellationToken::new();
    let mut client = client;
    if options.serve.is_some() {
        if let Some(flag) = connection.changing() {
            bail!(
                "with --serve {flag} has no effect, since the kubeconfig is read anew: write it there"
            );
        }
        // A page that is served for months takes the credentials that its file has by then.
        let source = Source {
            kubeconfig: connection.kubeconfig.clone(),
            context: connection.context.clone(),
        };
        let gateway = Gateway::open("fleet", source).await?;
        client = gateway.client(Profile::Write, Limits::NONE)?;
        muster_shared::clock::spawn(gateway.follow(shutdown.clone()));
    }
    let page = Page::open(client, &client::address(config), options).await?;
    let whose = if options.serve.is_some() {
        "Whoever signs in and may see it reads it with the rights of this program."
    } else {
        "Only with this address can it be read, with your rights. Ctrl-C ends it."
    };
    telemetry::print(&format!(
        "The fleet is shown at {}{}\n{whose}\n",
        page.url(),
        options.fragment()
    ))?;
    muster_shared::clock::spawn(muster_shared::tasks::stop_on_signal(shutdown.clone()));
    page.serve(shutdown).await;
    Ok(Reply {
        text: String::new(),
        code: INTERRUPTED,
    })
}
