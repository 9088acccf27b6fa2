//! `kubectl muster pause` and `resume`.

use std::fmt::Write as _;

use anyhow::{Context as _, bail};
use clap::Args;
use jiff::Timestamp;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use muster_control_plane::fleet::attribution::{Attribution, order};
use muster_control_plane::fleet::pause::{NAME, Pause};
use muster_shared::api::cluster::Cluster;
use muster_shared::check::listed;
use muster_shared::client;
use muster_shared::clock::later;
use muster_shared::k8s::{Api, Client, ConfigMap, ObjectMeta};
use muster_shared::names::SYSTEM_NAMESPACE;
use muster_shared::names::annotation::{ORDERED_BY, PAUSED};
use muster_shared::settings::Duration;
use muster_shared::write::patch_params;
use serde_json::json;

use super::order::{change, half};
use super::server_time;
use crate::author::Why;
use crate::chosen::Clusters;
use crate::request::{FIELD_MANAGER, call, delete, find_cluster};
use crate::{list, view};

/// Clusters that one line names at most.
const MOST_NAMED: usize = 10;

/// Clusters of an order that is about the whole fleet where it names none.
#[derive(Debug, Default, Args)]
pub(crate) struct Members {
    #[command(flatten)]
    clusters: Clusters,
    /// Further names: without this the flag would name a cluster of the kubeconfig, and the order
    /// be one about the whole fleet.
    #[arg(
        long = "cluster",
        hide = true,
        value_name = "CLUSTER",
        value_delimiter = ','
    )]
    named: Vec<String>,
}

impl Members {
    fn chosen(&self) -> Clusters {
        self.clusters.and(&self.named)
    }
}

#[derive(Debug, Args)]
#[command(mut_arg("clusters", |it| it.help(
    "Clusters that nothing is to be moved out of (`a b`, `a,b`, `cluster/a`); without any, all movement pauses"
)))]
pub(crate) struct Options {
    #[command(flatten)]
    members: Members,
    #[command(flatten)]
    why: Why,
    /// Time after which movement goes on by itself; without it somebody has to resume.
    #[arg(long = "for", value_name = "DURATION")]
    time: Option<Duration>,
}

#[derive(Debug, Args)]
#[command(mut_arg("clusters", |it| it.help(
    "Clusters that were paused (`a b`, `a,b`, `cluster/a`); without any, the pause of the fleet ends"
)))]
pub(crate) struct Resuming {
    #[command(flatten)]
    members: Members,
    #[command(flatten)]
    why: Why,
}

pub(super) async fn carry_out(client: &Client, options: &Options) -> anyhow::Result<String> {
    let chosen = options.members.chosen().ordered(client).await?;
    let now = server_time::now(client).await;
    let author = options.why.author(client).await;
    let order = author.order(order::PAUSE, now);
    let pause = Pause {
        reason: author.reason,
        by: author.by,
        since: Some(now),
        until: options.time.map(|it| later(now, it.0)),
        ..Pause::default()
    };
    let Some(names) = chosen else {
        write(client, &record(&pause, order)).await?;
        return Ok(format!(
            "From now on {pause}\nkubectl muster resume ends it\n"
        ));
    };
    let mut reported = String::new();
    for name in &names {
        find_cluster(client, name).await?;
    }
    for name in &names {
        let text = json!(pause.fields()).to_string();
        change(client, name, Some(&order), |_| {
            Ok(Some(
                json!({"metadata": {"annotations": {PAUSED: text.clone()}}}),
            ))
        })
        .await
        .with_context(|| half(&reported))?;
        let pause = Pause {
            cluster: Some(name.clone()),
            ..pause.clone()
        };
        let _ = writeln!(reported, "From now on {pause}");
    }
    let _ = writeln!(
        reported,
        "kubectl muster resume {} ends it",
        names.join(" ")
    );
    Ok(reported)
}

/// Returns the record of a pause of the fleet.
pub(super) fn record(pause: &Pause, order: Attribution) -> ConfigMap {
    let orders = Attribution::added(&ObjectMeta::default(), order);
    ConfigMap {
        metadata: ObjectMeta {
            name: Some(NAME.to_owned()),
            annotations: Some([(ORDERED_BY.to_owned(), orders)].into()),
            ..ObjectMeta::default()
        },
        data: Some(pause.fields()),
        ..ConfigMap::default()
    }
}

/// Writes the record, in place of one that is there.
pub(super) async fn write(client: &Client, record: &ConfigMap) -> anyhow::Result<()> {
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), SYSTEM_NAMESPACE);
    match api.create(&PostParams::default(), record).await {
        Ok(_) => return Ok(()),
        Err(kube::Error::Api(status)) if status.code == 409 => {}
        Err(error) => bail!("record the pause: {}", client::brief(&error)),
    }
    let parameters = patch_params(FIELD_MANAGER);
    // A field of the earlier pause must not outlive it; the record itself stays all the time.
    let mut data = json!(record.data);
    if data.get("until").is_none() {
        data["until"] = serde_json::Value::Null;
    }
    let annotations = &record.metadata.annotations;
    let patch = json!({"metadata": {"annotations": annotations}, "data": data});
    call(
        "record the pause",
        api.patch(NAME, &parameters, &Patch::Merge(&patch)),
    )
    .await?;
    Ok(())
}

/// Returns the clusters that are paused by themselves; `None` if they cannot be read.
async fn paused_alone(client: &Client, now: Timestamp) -> Option<Vec<String>> {
    let clusters = list::all::<Cluster>(Api::all(client.clone())).await.ok()?;
    let pauses = Pause::all(None, &clusters, now);
    Some(pauses.filter_map(|it| it.cluster).collect())
}

/// Returns what is said of the end of the pause of the fleet, and of the clusters that are paused
/// by themselves, as far as these are known.
fn ended(was_paused: bool, own: Option<&[String]>) -> String {
    let fleet = if was_paused {
        "Movement goes on"
    } else {
        "The fleet was not paused"
    };
    match own {
        None => format!("{fleet}; clusters that are paused by themselves stay so\n"),
        Some([]) if was_paused => format!("{fleet}\n"),
        Some([]) => "Movement was not paused\n".to_owned(),
        Some(names) => {
            let clusters = if names.len() > MOST_NAMED {
                "CLUSTER ...".to_owned()
            } else {
                names.join(" ")
            };
            format!(
                "{fleet}; movement out of {} stays paused by itself: kubectl muster resume {clusters} ends that\n",
                listed(names, MOST_NAMED)
            )
        }
    }
}

pub(super) async fn resume(client: &Client, options: &Resuming) -> anyhow::Result<String> {
    let chosen = options.members.chosen().ordered(client).await?;
    let now = server_time::now(client).await;
    let order = options.why.author(client).await.order(order::RESUME, now);
    let Some(names) = chosen else {
        let api: Api<ConfigMap> = Api::namespaced(client.clone(), SYSTEM_NAMESPACE);
        // Whoever may not end the pause is not recorded to have done so.
        let trial = DeleteParams::default().dry_run();
        if !delete("end the pause", api.delete(NAME, &trial)).await? {
            return Ok(ended(false, paused_alone(client, now).await.as_deref()));
        }
        // Whoever watches the record learns thereby who ended the pause. That it ends does not
        // depend on it.
        let orders = Attribution::added(&ObjectMeta::default(), order);
        let patch = json!({"metadata": {"annotations": {ORDERED_BY: orders}}});
        _ = api
            .patch_metadata(NAME, &PatchParams::default(), &Patch::Merge(&patch))
            .await;
        let whole = DeleteParams::default();
        let was_paused = delete("end the pause", api.delete(NAME, &whole)).await?;
        let own = paused_alone(client, now).await;
        return Ok(ended(was_paused, own.as_deref()));
    };
    let mut reported = String::new();
    for name in &names {
        find_cluster(client, name).await?;
    }
    for name in &names {
        let changed = change(client, name, Some(&order), |cluster| {
            let annotations = cluster.metadata.annotations.as_ref();
            let is_paused = annotations.is_some_and(|all| all.contains_key(PAUSED));
            Ok(is_paused.then(|| json!({"metadata": {"annotations": {PAUSED: null}}})))
        })
        .await
        .with_context(|| half(&reported))?;
        let _ = if changed {
            writeln!(reported, "Movement out of {name} goes on")
        } else {
            writeln!(reported, "Movement out of {name} was not paused on its own")
        };
    }
    let fleet = view::pause(client).await.ok().flatten();
    if let Some(pause) = Pause::all(fleet.as_ref(), [], now).next() {
        let _ = writeln!(
            reported,
            "Nothing moves so far: {pause}; kubectl muster resume ends that"
        );
    }
    Ok(reported)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use http::Method;
    use parking_lot::Mutex;

    use super::*;
    use crate::fixtures;

    #[test]
    fn a_cluster_that_is_named_by_a_flag_is_a_member_and_not_the_whole_fleet() {
        use crate::Question;
        use crate::orders::Command;
        for words in ["pause --cluster m1", "resume m1", "resume --cluster=m1"] {
            let words = format!("kubectl-muster {words}");
            let line = crate::line::parse(words.split(' ')).unwrap();
            assert_eq!(line.connection.cluster, None);
            let chosen = match line.question {
                Question::Order(Command::Pause(it)) => it.members.chosen(),
                Question::Order(Command::Resume(it)) => it.members.chosen(),
                other => panic!("{other:?}"),
            };
            assert_eq!(chosen, Clusters::of(vec!["m1".to_owned()], None), "{words}");
        }
    }

    #[test]
    fn the_end_of_a_pause_names_the_clusters_that_stay_paused() {
        let names = ["m1", "m2"].map(str::to_owned);
        let of_both = "; movement out of m1, m2 stays paused by itself: kubectl muster resume m1 m2 ends that\n";
        let many: Vec<String> = (1..=12).map(|at| format!("m{at}")).collect();
        let of_twelve = "; movement out of m1, m2, m3, m4, m5, m6, m7, m8, m9, m10 and 2 more stays paused by itself: kubectl muster resume CLUSTER ... ends that\n";
        let others = "; clusters that are paused by themselves stay so\n";
        let (goes_on, was_not) = ("Movement goes on", "The fleet was not paused");
        for (was_paused, own, expected) in [
            (true, Some(&names[..]), format!("{goes_on}{of_both}")),
            (true, Some(&many[..]), format!("{goes_on}{of_twelve}")),
            (true, Some(&names[..0]), format!("{goes_on}\n")),
            (true, None, format!("{goes_on}{others}")),
            (false, Some(&names[..]), format!("{was_not}{of_both}")),
            (
                false,
                Some(&names[..0]),
                "Movement was not paused\n".to_owned(),
            ),
            (false, None, format!("{was_not}{others}")),
        ] {
            assert_eq!(ended(was_paused, own), expected);
        }
    }

    #[tokio::test]
    async fn a_cluster_that_is_paused_alone_is_named_where_the_fleet_was_not_paused() {
        let client = fixtures::api(|request| match *request.method() {
            Method::DELETE => {
                let details = json!({"name": NAME});
                let absent = json!({"kind": "Status", "code": 404, "reason": "NotFound", "details": details});
                (404, absent)
            }
            Method::GET => {
                let cluster = |name: &str, paused: &str| {
                    json!({
                        "metadata": {"name": name, "annotations": {PAUSED: paused}},
                        "spec": {"syncMode": "Pull"},
                    })
                };
                let over = r#"{"until": "2026-01-01T00:00:00Z"}"#;
                let items = json!([cluster("m1", "disks"), cluster("m2", over)]);
                (200, json!({"metadata": {}, "items": items}))
            }
            _ => (200, json!({"status": {"userInfo": {"username": "bob"}}})),
        });
        let options = Resuming {
            members: Members::default(),
            why: Why::default(),
        };
        let reported = resume(&client, &options).await.unwrap();
        assert!(reported.contains("out of m1 stays paused"), "{reported}");
    }

    #[tokio::test]
    async fn a_cluster_that_is_resumed_is_told_of_while_the_whole_fleet_is_paused() {
        let client = fixtures::api(|request| match *request.method() {
            Method::POST => (200, json!({"status": {"userInfo": {"username": "bob"}}})),
            _ if request.uri().path().contains("configmaps") => (
                200,
                json!({"metadata": {"name": NAME}, "data": {"by": "ann"}}),
            ),
            _ => {
                let metadata = json!({"name": "m1", "annotations": {PAUSED: "disks"}});
                (
                    200,
                    json!({"metadata": metadata, "spec": {"syncMode": "Pull"}}),
                )
            }
        });
        let options = Resuming {
            members: Members {
                named: vec!["m1".to_owned()],
                ..Members::default()
            },
            why: Why::default(),
        };
        assert_eq!(
            resume(&client, &options).await.unwrap(),
            "Movement out of m1 goes on\nNothing moves so far: all movement is paused by ann until somebody resumes it; kubectl muster resume ends that\n"
        );
    }

    #[tokio::test]
    async fn whoever_may_not_end_a_pause_is_not_recorded_to_have_ended_it() {
        // The role of bob has `patch`, and not `delete`, for ConfigMaps.
        let record = Arc::new(Mutex::new(json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": NAME, "namespace": SYSTEM_NAMESPACE},
        })));
        let held = Arc::clone(&record);
        let client = fixtures::api(move |request| {
            let mut record = held.lock();
            match *request.method() {
                Method::DELETE => {
                    let refused = json!({
                        "kind": "Status", "code": 403, "reason": "Forbidden", "message": "no",
                    });
                    (403, refused)
                }
                Method::PATCH => {
                    json_patch::merge(&mut record, request.body());
                    (200, record.clone())
                }
                _ => (200, json!({"status": {"userInfo": {"username": "bob"}}})),
            }
        });
        let options = Resuming {
            members: Members::default(),
            why: Why::default(),
        };
        resume(&client, &options).await.unwrap_err();
        let record: ConfigMap = serde_json::from_value(record.lock().clone()).unwrap();
        // alice ends the pause with plain kubectl a day later: who is said to have done it?
        assert_eq!(Pause::of_fleet(&record).resumed, None);
    }
}
