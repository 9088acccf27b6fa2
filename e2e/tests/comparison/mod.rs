//! One set of API conversations, held with the embedded server and with a real one, and compared
//! answer by answer.
//!
//! `data/` has the conversations, `recorded/` the answers of a real kube-apiserver, so that the
//! comparison runs everywhere. Where `KUBEBUILDER_ASSETS` names a folder with etcd and
//! kube-apiserver (and kube-controller-manager), a real API is started and its live answers are
//! compared instead; with `MUSTER_RECORD=1` they are also written to `recorded/`.
//! `MUSTER_CONVERSATION=text` holds only the conversations whose name contains the text.
//!
//! A difference that stays says so where it shows (`differs:` in a step, `known.yaml` for all of
//! them), and one that is declared and does not show is a failure as well. Words are not compared:
//! of a refusal its code, its reason and the fields and reasons of its causes count.

mod normal;
mod recording;
mod script;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::Context;
use futures::StreamExt;
use kube::config::{KubeConfigOptions, Kubeconfig};
use muster_e2e::apiserver::ApiServer;
use muster_e2e::harness::envtest::{Envtest, Options};
use serde_json::Value;

use script::{COMPACTION, Conversation, Server, Step, hold};

/// Conversations held at the same time with one server.
const AT_ONCE: usize = 12;

/// What a conversation is known by: its file and its name.
type Key = (String, String);

fn directory(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/comparison")
        .join(name)
}

/// Reads all conversations, and returns them with the names of their files.
fn conversations() -> anyhow::Result<BTreeMap<Key, Conversation>> {
    let mut all = BTreeMap::new();
    for entry in std::fs::read_dir(directory("data"))? {
        let path = entry?.path();
        let text = std::fs::read_to_string(&path)?;
        let parsed: Vec<Conversation> =
            serde_saphyr::from_str(&text).with_context(|| format!("reading {}", path.display()))?;
        let file = path.file_stem().and_then(|stem| stem.to_str());
        let file = file.context("a file without a name")?;
        for conversation in parsed {
            let key = (file.to_owned(), conversation.name.clone());
            if let Some(twice) = all.insert(key, conversation) {
                anyhow::bail!("{file}: {:?} is there twice", twice.name);
            }
        }
    }
    Ok(all)
}

/// Returns the differences that may show in every answer: pointer to reason.
fn known() -> anyhow::Result<BTreeMap<String, String>> {
    let text = std::fs::read_to_string(directory("known.yaml"))?;
    serde_saphyr::from_str(&text).context("reading known.yaml")
}

async fn client(kubeconfig: Kubeconfig) -> anyhow::Result<kube::Client> {
    let options = KubeConfigOptions::default();
    let mut config = kube::Config::from_custom_kubeconfig(kubeconfig, &options).await?;
    config.default_retry = false;
    Ok(kube::Client::try_from(config)?)
}

/// Holds those conversations with a server that do or do not forget history.
async fn answers(
    server: &Server<'_>,
    forgets: bool,
    conversations: &BTreeMap<Key, Conversation>,
) -> BTreeMap<Key, Vec<Value>> {
    let talks = conversations
        .iter()
        .filter(|(_, conversation)| conversation.forgets == forgets)
        .filter(|(_, conversation)| server.manager || !conversation.manager)
        .map(|(key, conversation)| async move { (key.clone(), hold(server, conversation).await) });
    futures::stream::iter(talks)
        .buffer_unordered(if forgets { 1 } else { AT_ONCE })
        .collect()
        .await
}

/// Holds the conversations with the embedded server, and returns its answers.
async fn embedded(
    conversations: &BTreeMap<Key, Conversation>,
) -> anyhow::Result<BTreeMap<Key, Vec<Value>>> {
    let mut all = BTreeMap::new();
    for forgets in [false, true] {
        let running = ApiServer::for_test().await;
        let server = Server {
            client: client(running.admin_kubeconfig()?).await?,
            manager: true,
            embedded: Some(&running),
        };
        all.extend(answers(&server, forgets, conversations).await);
    }
    Ok(all)
}

/// Returns the answers of a real server: those recorded, and over them those of a live one if there
/// is one.
async fn reference(
    conversations: &BTreeMap<Key, Conversation>,
) -> anyhow::Result<BTreeMap<Key, Vec<Value>>> {
    let mut recorded = recording::read(&directory("recorded"))?;
    let mut minor = 0;
    for forgets in [false, true] {
        let Some(mut options) = Options::from_environment()? else {
            return Ok(recorded);
        };
        if forgets {
            let interval = format!("--etcd-compaction-interval={}s", COMPACTION.as_secs());
            options.server_arguments.push(interval);
            // Newer servers answer from their cache what etcd has forgotten.
            if minor >= 33 {
                let gate = "--feature-gates=ListFromCacheSnapshot=false";
                options.server_arguments.push(gate.to_owned());
            }
        }
        let real = Envtest::start(options).await?;
        let server = Server {
            client: client(real.kubeconfig()?).await?,
            manager: real.has_manager(),
            embedded: None,
        };
        let version = server.client.apiserver_version().await?;
        minor = version.minor.trim_end_matches('+').parse().unwrap_or(0);
        let version = version.git_version;
        eprintln!("compared with a live kube-apiserver {version}");
        if !server.manager {
            eprintln!(
                "no kube-controller-manager: what needs it is compared with recorded answers"
            );
        }
        recorded.extend(answers(&server, forgets, conversations).await);
    }
    if std::env::var_os("MUSTER_RECORD").is_some() {
        let there = self::conversations()?;
        recorded.retain(|key, _| there.contains_key(key));
        let answers = recorded.values_mut().flatten();
        answers.for_each(normal::forget_words);
        recording::write(&directory("recorded"), &recorded)?;
    }
    Ok(recorded)
}

/// Returns how one answer of ours differs from the real one although that was not declared, or that
/// it does not differ although that was declared.
fn judge(
    step: &Step,
    known: &BTreeMap<String, String>,
    mut real: Value,
    mut ours: Value,
) -> Vec<String> {
    for answer in [&mut real, &mut ours] {
        normal::forget_words(answer);
        normal::sort_owners(answer);
        if step.unordered {
            normal::sort_causes(answer);
        }
        for pointer in step.varies.keys().chain(known.keys()) {
            normal::forget(answer, pointer);
        }
    }
    let undisturbed = (real.clone(), ours.clone());
    let mut found = Vec::new();
    for pointer in step.differs.keys() {
        normal::forget(&mut real, pointer);
        normal::forget(&mut ours, pointer);
        // Declared alone, does it make a difference?
        let (mut left, mut right) = undisturbed.clone();
        let before = normal::differences(&left, &right).len();
        normal::forget(&mut left, pointer);
        normal::forget(&mut right, pointer);
        if normal::differences(&left, &right).len() == before {
            found.push(format!("{pointer}: is declared to differ and does not"));
        }
    }
    found.extend(normal::differences(&real, &ours));
    found
}

#[tokio::test]
async fn the_embedded_server_answers_as_a_real_one() -> anyhow::Result<()> {
    let mut conversations = conversations()?;
    if let Ok(only) = std::env::var("MUSTER_CONVERSATION") {
        conversations.retain(|(_, name), _| name.contains(&only));
    }
    let known = known()?;
    let (expected, found) = tokio::try_join!(reference(&conversations), embedded(&conversations))?;
    let mut differences = Vec::new();
    for (key, conversation) in &conversations {
        let (file, name) = key;
        for (i, step) in conversation.steps.iter().enumerate() {
            let real = expected.get(key).and_then(|answers| answers.get(i));
            let Some(real) = real else {
                differences.push(format!("{file}: {name}: step {} is not recorded", i + 1));
                continue;
            };
            let judged = judge(step, &known, real.clone(), found[key][i].clone());
            differences.extend(
                judged
                    .into_iter()
                    .map(|difference| format!("{file}: {name}: step {}: {difference}", i + 1)),
            );
        }
    }
    assert!(
        differences.is_empty(),
        "{} differences in {} conversations\n{}",
        differences.len(),
        conversations.len(),
        differences.join("\n")
    );
    Ok(())
}
