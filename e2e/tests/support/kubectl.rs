//! `kubectl muster` with a kubeconfig.

use std::path::Path;

use muster_kubectl::Reply;

/// Returns the command line of `kubectl muster` with a kubeconfig and these words.
pub fn line(kubeconfig: &Path, words: &[&str]) -> Vec<String> {
    let kubeconfig = kubeconfig.to_str().expect("a path that can be written");
    let line = [&["kubectl-muster", "--kubeconfig", kubeconfig], words].concat();
    line.into_iter().map(str::to_owned).collect()
}

/// Runs a command, and returns what it prints; an error where its exit code is not 0.
pub async fn answer(kubeconfig: &Path, words: &[&str]) -> anyhow::Result<String> {
    Ok(outcome(kubeconfig, words).await?.text)
}

/// Runs a command, and returns what it prints, whatever its exit code.
pub async fn reported(kubeconfig: &Path, words: &[&str]) -> String {
    let answer = answer(kubeconfig, words).await;
    answer.unwrap_or_else(|error| error.to_string())
}

/// Runs a command, and returns what it prints and its exit code.
pub async fn outcome(kubeconfig: &Path, words: &[&str]) -> anyhow::Result<Reply> {
    muster_kubectl::outcome(line(kubeconfig, words)).await
}
