//! Runs an embedded API server until interrupted: `cargo run --example apiserver -- KUBECONFIG [PORT]`.

use anyhow::Context;
use muster_e2e::apiserver::{ApiServer, Options};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    tracing_subscriber::fmt().with_env_filter("info").init();
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().context("name the kubeconfig to write")?;
    let port = arguments
        .next()
        .map_or(Ok(0), |p| p.parse())
        .context("the port is no number")?;
    let running = ApiServer::start(Options {
        port,
        ..Options::default()
    })
    .await?;
    let kubeconfig = serde_json::to_string_pretty(&running.admin_kubeconfig()?)?;
    std::fs::write(&path, kubeconfig).with_context(|| format!("writing {path:?}"))?;
    println!("{} serves; kubectl --kubeconfig {path}", running.url());
    tokio::signal::ctrl_c()
        .await
        .context("waiting for an interrupt")
}
