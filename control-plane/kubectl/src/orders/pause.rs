//! `kubectl muster pause` and `resume`.

use std::fmt::Write as _;

use anyhow::bail;
use clap::Args;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use muster_control_plane::fleet::pause::{NAME, Pause};
use muster_shared::client;
use muster_shared::k8s::{Api, Client, ConfigMap};
use muster_shared::names::SYSTEM_NAMESPACE;
use muster_shared::names::annotation::PAUSED;
use muster_shared::settings::Duration;
use serde_json::json;

use super::order::{change, once};
use super::server_time::ServerTime;
use crate::request::{FIELD_MANAGER, call, find_cluster};

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Names of Clusters that nothing is to be moved out of; without any, all movement pauses.
    #[arg(value_name = "CLUSTER")]
    clusters: Vec<String>,
    /// Reason, for everyone who asks why nothing moves.
    #[arg(
        long,
        default_value = "",
        hide_default_value = true,
        value_name = "TEXT"
    )]
    reason: String,
    /// Time after which movement goes on by itself; without it somebody has to resume.
    #[arg(long = "for", value_name = "DURATION")]
    time: Option<Duration>,
}

#[derive(Debug, Args)]
pub(crate) struct Resuming {
    /// Names of Clusters that were paused; without any, the pause of the fleet ends.
    #[arg(value_name = "CLUSTER")]
    clusters: Vec<String>,
}

pub(super) async fn carry_out(client: &Client, options: &Options) -> anyhow::Result<String> {
    let now = ServerTime::ask(client).await.now();
    let time = options.time.map(|it| SignedDuration::try_from(it.0));
    let time = time.transpose()?;
    let pause = Pause {
        reason: options.reason.clone(),
        by: user(client).await,
        since: Some(now),
        until: time.map(|time| now.saturating_add(time).unwrap_or(Timestamp::MAX)),
        ..Pause::default()
    };
    if options.clusters.is_empty() {
        let record = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": NAME, "namespace": SYSTEM_NAMESPACE},
            "data": pause.fields(),
        });
        write(client, &record).await?;
        return Ok(format!(
            "From now on {pause}\nkubectl muster resume ends it\n"
        ));
    }
    let mut told = String::new();
    let names = once(&options.clusters);
    for name in &names {
        find_cluster(client, name).await?;
    }
    for name in &names {
        let text = json!(pause.fields()).to_string();
        change(client, name, |_| {
            Ok(Some(
                json!({"metadata": {"annotations": {PAUSED: text.clone()}}}),
            ))
        })
        .await?;
        let pause = Pause {
            cluster: Some(name.clone()),
            ..pause.clone()
        };
        let _ = writeln!(told, "From now on {pause}");
    }
    Ok(told)
}

/// Writes the record, in place of one that is there.
async fn write(client: &Client, record: &serde_json::Value) -> anyhow::Result<()> {
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), SYSTEM_NAMESPACE);
    let created = api
        .create(
            &PostParams::default(),
            &serde_json::from_value(record.clone())?,
        )
        .await;
    match created {
        Ok(_) => return Ok(()),
        Err(kube::Error::Api(status)) if status.code == 409 => {}
        Err(error) => bail!("record the pause: {}", client::brief(&error)),
    }
    let parameters = PatchParams {
        field_manager: Some(FIELD_MANAGER.to_owned()),
        ..PatchParams::default()
    };
    // A field of the earlier pause must not outlive it; the record itself stays all the time.
    let mut data = record["data"].clone();
    if data.get("until").is_none() {
        data["until"] = serde_json::Value::Null;
    }
    let patch = json!({ "data": data });
    call(
        "record the pause",
        api.patch(NAME, &parameters, &Patch::Merge(&patch)),
    )
    .await?;
    Ok(())
}

/// Returns the name of the user as the API knows them.
async fn user(client: &Client) -> String {
    let api: Api<SelfSubjectReview> = Api::all(client.clone());
    let review = api
        .create(&PostParams::default(), &SelfSubjectReview::default())
        .await;
    let known = review.ok().and_then(|it| it.status?.user_info?.username);
    known
        .filter(|name| !name.is_empty())
        .or_else(|| std::env::var("USER").ok())
        .unwrap_or_default()
}

pub(super) async fn resume(client: &Client, options: &Resuming) -> anyhow::Result<String> {
    if options.clusters.is_empty() {
        let api: Api<ConfigMap> = Api::namespaced(client.clone(), SYSTEM_NAMESPACE);
        return match api.delete(NAME, &DeleteParams::default()).await {
            Ok(_) => {
                Ok("Movement goes on; clusters that are paused by themselves stay so\n".to_owned())
            }
            Err(error) if client::is_not_found(&error) => {
                Ok("Movement was not paused\n".to_owned())
            }
            Err(error) => bail!("end the pause: {}", client::brief(&error)),
        };
    }
    let mut told = String::new();
    let names = once(&options.clusters);
    for name in &names {
        find_cluster(client, name).await?;
    }
    for name in &names {
        let changed = change(client, name, |cluster| {
            let annotations = cluster.metadata.annotations.as_ref();
            let is_paused = annotations.is_some_and(|all| all.contains_key(PAUSED));
            Ok(is_paused.then(|| json!({"metadata": {"annotations": {PAUSED: null}}})))
        })
        .await?;
        let _ = if changed {
            writeln!(told, "Movement out of {name} goes on")
        } else {
            writeln!(told, "Movement out of {name} was not paused by itself")
        };
    }
    Ok(told)
}
