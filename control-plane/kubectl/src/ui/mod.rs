//! `kubectl muster ui`: a page of the fleet, served on loopback with the rights of whoever runs it.
//!
//! The page decides nothing: each of its answers is what another command prints with `-o json`.

mod answers;
mod files;
mod server;

use std::net::Ipv4Addr;
use std::sync::Arc;

use anyhow::Context as _;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use clap::Args;
use muster_shared::k8s::Client;
use muster_shared::{serve, telemetry};
use ring::rand::{SecureRandom as _, SystemRandom};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use self::answers::Answers;
use self::server::{Door, is_name};
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
    door: Door,
    answers: Arc<Answers>,
}

impl Page {
    /// Takes the port, on loopback alone.
    pub(super) async fn open(client: Client, options: &Options) -> anyhow::Result<Self> {
        let address = (Ipv4Addr::LOCALHOST, options.port);
        let listener = TcpListener::bind(address).await.with_context(|| {
            format!(
                "cannot serve on 127.0.0.1:{}, which --port names (0 for a free one)",
                options.port
            )
        })?;
        let mut secret = [0; SECRET];
        SystemRandom::new()
            .fill(&mut secret)
            .ok()
            .context("the system provided no randomness")?;
        let door = Door {
            port: listener.local_addr()?.port(),
            token: URL_SAFE_NO_PAD.encode(secret),
        };
        Ok(Self {
            listener,
            door,
            answers: Arc::new(Answers::new(client, options.flags.clone())),
        })
    }

    /// Returns the address of the page, with the secret.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}/{}/", self.door.port, self.door.token)
    }

    /// Serves it until shutdown.
    pub async fn serve(self, shutdown: CancellationToken) {
        let door = Arc::new(self.door);
        let answers = self.answers;
        let handler = move |request: http::request::Parts| {
            let (door, answers) = (Arc::clone(&door), Arc::clone(&answers));
            async move { server::answer(&door, &answers, &request).await }
        };
        serve::page(self.listener, handler, shutdown).await;
    }
}

/// Serves the page until the program is interrupted.
pub(super) async fn carry_out(client: Client, options: &Options) -> anyhow::Result<Reply> {
    let page = Page::open(client, options).await?;
    telemetry::print(&format!(
        "The fleet is shown at {}\nOnly with this address can it be read, with your rights. Ctrl-C ends it.\n",
        format_args!("{}{}", page.url(), options.fragment())
    ))?;
    let shutdown = CancellationToken::new();
    let until = shutdown.clone();
    muster_shared::clock::spawn(async move {
        // Without the signal the program is ended by the system.
        if tokio::signal::ctrl_c().await.is_ok() {
            until.cancel();
        }
    });
    page.serve(shutdown).await;
    Ok(Reply {
        text: String::new(),
        code: INTERRUPTED,
    })
}
