//! One set of API conversations, held with the embedded server and with a real one, and compared answer by answer.
//!
//! The answers of a real kube-apiserver are kept in `recorded/`, so that the comparison runs everywhere. With
//! `MUSTER_REFERENCE_KUBECONFIG` set to an administrator's kubeconfig of a real, empty cluster (kube-apiserver, etcd and
//! kube-controller-manager), the conversations are held with that one instead and the recordings are written anew.

mod normal;
mod script;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::Context;
use futures::StreamExt;
use kube::config::{KubeConfigOptions, Kubeconfig};
use muster_e2e::apiserver::ApiServer;
use serde_json::Value;

use script::{Conversation, hold};

/// Conversations held at the same time.
const AT_ONCE: usize = 8;

fn directory(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/comparison")
        .join(name)
}

/// The conversations by the name of their file.
fn conversations() -> anyhow::Result<BTreeMap<String, Vec<Conversation>>> {
    let mut all = BTreeMap::new();
    for entry in std::fs::read_dir(directory("data"))? {
        let path = entry?.path();
        let text = std::fs::read_to_string(&path)?;
        let parsed =
            serde_saphyr::from_str(&text).with_context(|| format!("reading {}", path.display()))?;
        let name = path
            .file_stem()
            .and_then(|s| s.to_str())
            .context("a file without a name")?;
        all.insert(name.to_owned(), parsed);
    }
    Ok(all)
}

async fn client(kubeconfig: Kubeconfig) -> anyhow::Result<kube::Client> {
    let options = KubeConfigOptions::default();
    let mut config = kube::Config::from_custom_kubeconfig(kubeconfig, &options).await?;
    config.default_retry = false;
    Ok(kube::Client::try_from(config)?)
}

async fn answers(
    client: &kube::Client,
    conversations: &[Conversation],
) -> BTreeMap<String, Vec<Value>> {
    let only = std::env::var("MUSTER_CONVERSATION").ok();
    let chosen = |c: &&Conversation| only.as_deref().is_none_or(|o| c.conversation.contains(o));
    let talks = conversations
        .iter()
        .filter(chosen)
        .map(|c| async move { (c.conversation.clone(), hold(client, c).await) });
    futures::stream::iter(talks)
        .buffer_unordered(AT_ONCE)
        .collect()
        .await
}

#[tokio::test]
async fn the_embedded_server_answers_as_a_real_one() -> anyhow::Result<()> {
    let reference = match std::env::var("MUSTER_REFERENCE_KUBECONFIG") {
        Ok(path) => Some(client(Kubeconfig::read_from(path)?).await?),
        Err(_) => None,
    };
    let api = ApiServer::for_test().await;
    let embedded = client(api.admin_kubeconfig()?).await?;
    let mut differences = Vec::new();
    let mut count = 0;
    for (file, conversations) in conversations()? {
        let recording = directory("recorded").join(format!("{file}.json"));
        let mut expected: BTreeMap<String, Vec<Value>> = match std::fs::read(&recording) {
            Ok(bytes) => serde_json::from_slice(&bytes)?,
            Err(_) => BTreeMap::new(),
        };
        if let Some(reference) = &reference {
            expected.extend(answers(reference, &conversations).await);
            expected.retain(|name, _| conversations.iter().any(|c| c.conversation == *name));
            std::fs::write(&recording, serde_json::to_string_pretty(&expected)? + "\n")?;
        }
        for (name, found) in answers(&embedded, &conversations).await {
            count += 1;
            let conversation = conversations.iter().find(|c| c.conversation == name);
            let Some(expected) = expected.get(&name) else {
                differences.push(format!("{file}: {name}: not recorded"));
                continue;
            };
            for (i, step) in conversation
                .into_iter()
                .flat_map(|c| c.steps.iter().enumerate())
            {
                let (mut real, mut ours) = (expected[i].clone(), found[i].clone());
                normal::sort_owners(&mut real);
                normal::sort_owners(&mut ours);
                for pointer in step.differs.keys() {
                    normal::forget(&mut real, pointer);
                    normal::forget(&mut ours, pointer);
                }
                for difference in normal::differences(&real, &ours) {
                    differences.push(format!("{file}: {name}: step {}: {difference}", i + 1));
                }
            }
        }
    }
    let total = differences.len();
    assert!(
        differences.is_empty(),
        "{total} differences in {count} conversations\n{}",
        differences.join("\n")
    );
    Ok(())
}
