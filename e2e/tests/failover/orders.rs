//! A person's orders: the commands of `kubectl muster` against real members.

use anyhow::Context as _;
use muster_e2e::sandbox::scenario::VICTIM;
use muster_e2e::sandbox::story::Story;

use super::support::{Setting, scenario};

/// What a command prints, whatever its exit code.
async fn muster(story: &Story, words: &[&str]) -> anyhow::Result<String> {
    let kubeconfig = story.fleet().api.kubeconfig.display().to_string();
    let mut line = vec!["kubectl-muster", "--kubeconfig", kubeconfig.as_str()];
    line.extend(words);
    match muster_control_plane::kubectl::answer(line).await {
        Ok(text) => Ok(text),
        Err(error) => Ok(error.to_string()),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drain_empties_a_cluster_while_failover_is_off_and_each_copy_waits_for_its_successor() {
    let setting = Setting {
        plan: |plan| {
            plan.control_plane
                .retain(|flag| !flag.starts_with("--feature-gates"));
            plan.control_plane
                .push("--feature-gates=Failover=false".to_owned());
        },
        ..Setting::named("drain-gate-off")
    };
    scenario(setting, async |story: &Story| Ok(drain(story).await?)).await;
}

async fn drain(story: &Story) -> anyhow::Result<()> {
    let preview = muster(story, &["drain", VICTIM, "--dry-run"]).await?;
    println!("{preview}");
    let told = muster(story, &["drain", VICTIM, "--wait", "--timeout=90s"]).await?;
    println!("{told}");
    anyhow::ensure!(told.contains(&format!("{VICTIM}: drained")), "{told}");
    let left = told.split(" of ").nth(1).context("a count")?;
    anyhow::ensure!(!left.starts_with("0 "), "nothing was there: {told}");
    let told = muster(story, &["undrain", VICTIM]).await?;
    anyhow::ensure!(told.contains("nothing moves back"), "{told}");
    Ok(())
}
