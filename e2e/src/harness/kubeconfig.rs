//! Kubeconfig files, one per party.

use std::path::Path;

use anyhow::Context;
use kube::config::Kubeconfig;

/// The same access through another address (a [`Link`](super::link::Link)); the server is still known by its own name.
pub fn through(
    mut config: Kubeconfig,
    address: std::net::SocketAddr,
) -> anyhow::Result<Kubeconfig> {
    for named in &mut config.clusters {
        let Some(cluster) = &mut named.cluster else {
            continue;
        };
        let url: http::Uri = cluster
            .server
            .as_deref()
            .unwrap_or_default()
            .parse()
            .with_context(|| format!("kubeconfig: address of cluster {:?}", named.name))?;
        let host = url
            .host()
            .unwrap_or_default()
            .trim_matches(['[', ']'])
            .to_owned();
        if cluster.tls_server_name.is_none() && host != address.ip().to_string() {
            cluster.tls_server_name = Some(host);
        }
        cluster.server = Some(format!(
            "https://{address}{}",
            url.path().trim_end_matches('/')
        ));
    }
    Ok(config)
}

/// The address behind a kubeconfig, resolved.
pub async fn address(config: &Kubeconfig) -> anyhow::Result<std::net::SocketAddr> {
    let url = config
        .clusters
        .iter()
        .find_map(|named| named.cluster.as_ref()?.server.clone())
        .context("kubeconfig: no cluster with a server")?;
    let uri: http::Uri = url
        .parse()
        .with_context(|| format!("kubeconfig: server {url:?}"))?;
    let host = uri
        .host()
        .unwrap_or_default()
        .trim_matches(['[', ']'])
        .to_owned();
    let port = uri.port_u16().unwrap_or(443);
    tokio::net::lookup_host((host, port))
        .await?
        .next()
        .with_context(|| format!("kubeconfig: {url:?} has no address"))
}

/// Writes a kubeconfig that only its owner can read.
pub fn write(config: &Kubeconfig, path: &Path) -> anyhow::Result<()> {
    use std::io::Write as _;
    use std::os::unix::fs::OpenOptionsExt as _;

    let text = serde_saphyr::to_string(config).context("writing a kubeconfig as YAML")?;
    let mut file = std::fs::File::options()
        .create(true)
        .write(true)
        .truncate(true)
        .mode(0o600)
        .open(path)
        .with_context(|| format!("cannot write {}", path.display()))?;
    file.write_all(text.as_bytes())?;
    Ok(())
}
