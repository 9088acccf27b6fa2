//! Kubeconfig files, one per party.

use std::path::Path;

use anyhow::Context;
use kube::config::Kubeconfig;

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
