//! `kubectl muster drain` and `undrain`.

use clap::Args;
use kube::Config;
use muster_control_plane::fleet::attribution;
use muster_control_plane::movement::eviction::drain;
use muster_control_plane::movement::eviction::judge::Switches;
use muster_shared::api::cluster::Cluster;
use muster_shared::clock::calendar;
use muster_shared::k8s::{Api, Client, ResourceExt as _};
use muster_shared::names::annotation::DRAIN_RATE;
use muster_shared::names::execution_namespace;
use muster_shared::names::taint::DRAIN;
use muster_shared::settings::Duration;
use muster_shared::taints::{NO_EXECUTE, NO_SCHEDULE, is_drain};

use super::follow::follow;
use super::order::{self, Before, Order};
use super::preview::{Preview, preview};
use super::progress::End;
use crate::author::Why;
use crate::chosen::{Clusters, required};
use crate::follow::Waiting;
use crate::forecast::{Fleet, disaster};
use crate::jobs::Jobs;
use crate::old_copies::old_copies;
use crate::output::{Format, Reply, STRANDED, plain, warn};
use crate::request::find_cluster;
use crate::running::Running;
use crate::standstill::MovementState;
use crate::table::{LISTED, count};
use crate::{dependencies, list};

/// Word for the rate of the fleet alone.
const FLEET: &str = "fleet";

#[derive(Debug, Args)]
#[command(mut_arg("clusters", required))]
pub(crate) struct Options {
    #[command(flatten)]
    clusters: Clusters,
    #[command(flatten)]
    why: Why,
    /// Evictions per second from each of the clusters at most, such as 0.2. The rate of the fleet
    /// holds in any case; `fleet` takes such a rate away again. Without the option the rate of a
    /// drain that is under way stays.
    #[arg(long, value_name = "RATE", value_parser = rate)]
    rate: Option<String>,
    /// Say what would leave, stay, and be stranded, and do nothing.
    #[arg(long)]
    dry_run: bool,
    /// Show the progress until nothing is left that can leave.
    #[arg(long, conflicts_with = "dry_run")]
    wait: bool,
    /// For how long to wait; 0 for ever.
    #[arg(long, requires = "wait", default_value = "0s", value_name = "DURATION")]
    timeout: Duration,
    /// Format of the answer.
    #[arg(long, short, value_enum, default_value_t)]
    output: Format,
}

fn rate(text: &str) -> Result<String, String> {
    if text != FLEET {
        drain::parse(text).map_err(|_| {
            format!("{text:?} is not a rate: write evictions per second, such as 0.2, or {FLEET}")
        })?;
    }
    Ok(text.to_owned())
}

/// Returns the order to empty a cluster; without a rate that of an earlier order stays.
pub(super) fn order(rate: Option<&String>) -> Order {
    let annotations = rate.map(|rate| (DRAIN_RATE, (rate != FLEET).then(|| rate.clone())));
    Order {
        name: attribution::order::DRAIN,
        done: "is being drained",
        already: "was being drained already",
        add: vec![(DRAIN, NO_SCHEDULE), (DRAIN, NO_EXECUTE)],
        annotations: annotations.into_iter().collect(),
        before: Some(Before::KeepAway),
        ..Order::default()
    }
}

/// Returns the order that ends the drain of a cluster.
pub(super) fn undrain() -> Order {
    Order {
        name: attribution::order::UNDRAIN,
        done: "is not drained any more: nothing moves back by itself, unless failback is asked for",
        already: "was not drained",
        remove: vec![(DRAIN, NO_SCHEDULE), (DRAIN, NO_EXECUTE)],
        annotations: vec![(DRAIN_RATE, None)],
        before: Some(Before::Hold),
        ..Order::default()
    }
}

pub(super) async fn carry_out(
    client: &Client,
    config: &Config,
    options: &Options,
) -> anyhow::Result<Reply> {
    let chosen = options.clusters.ordered(client).await?;
    let names = &chosen.unwrap_or_default();
    let mut is_resumed = false;
    for name in names {
        let cluster = find_cluster(client, name).await?;
        is_resumed |= cluster.spec.taints.iter().any(is_drain);
    }
    let (preview, running) = check(client, names, options.rate.is_some()).await?;
    let is_stranded = preview.is_stranded();
    let most = options.output.most(LISTED);
    if options.dry_run {
        let reported = options.output.print(|| preview.table(most), &preview)?;
        return Ok(Reply::with(reported, is_stranded.then_some(STRANDED)));
    }
    // Printed first: a person who reads it may still end the order.
    if options.wait {
        eprint!("{}", plain(&preview.table(most)));
    }
    let author = options.why.author(client).await;
    let order = order(options.rate.as_ref());
    let given = order::give(client, names, &order, &author).await?;
    if !options.wait {
        let more = format!(
            "{given}It goes on until kubectl muster undrain {0}; kubectl muster drain {0} --wait shows the progress\n",
            names.join(" ")
        );
        let text = options
            .output
            .print(|| preview.table(most) + &more, &preview)?;
        return Ok(Reply::with(text, is_stranded.then_some(STRANDED)));
    }
    eprint!("{given}");
    let waiting = Waiting::of(*options.timeout);
    let (last, how) = follow(config, names, waiting, is_resumed, &running).await?;
    let code = match how {
        Ok(End::Done) => last.is_stranded().then_some(STRANDED),
        Err(stopped) => Some(stopped.code()),
        Ok(End::Undrained) => anyhow::bail!(
            "{} is not drained any more: somebody ended the drain",
            names.join(" ")
        ),
        Ok(End::Removed) => anyhow::bail!(
            "a cluster was removed from the fleet while it was drained, and is not seen any more:\n{}",
            last.report(names, how, most)
        ),
    };
    let reported = || last.report(names, how, most);
    let text = options.output.print(reported, &last)?;
    for left in left(client, names).await {
        warn(&left);
    }
    Ok(Reply::with(text, code))
}

/// Returns the clusters in which old copies of workloads may still run, and those of which that is
/// not known.
async fn left(client: &Client, names: &[String]) -> Vec<String> {
    let unread = |cluster: &str, why: &str| {
        format!("it is not known whether old copies may still run in {cluster}: {why}")
    };
    let bindings = match list::bindings(client).await {
        Ok(bindings) => bindings,
        Err(why) => return vec![unread(&names.join(", "), &why)],
    };
    let mut left = Vec::new();
    for name in names {
        let works = Api::namespaced(client.clone(), &execution_namespace(name));
        let works = match list::works(works).await {
            Ok(works) => works,
            Err(why) => {
                left.push(unread(name, &why));
                continue;
            }
        };
        let copies = old_copies(&works, &bindings).len();
        if copies > 0 {
            let copies = count(copies, "old copy");
            left.push(format!(
                "not confirmed gone, and may still run: {copies} in {name}; kubectl muster explain says of each what it waits for"
            ));
        }
    }
    left
}

/// Reads what would leave clusters, and by which settings. `has_rate`: they are given a rate.
async fn check(
    client: &Client,
    names: &[String],
    has_rate: bool,
) -> anyhow::Result<(Preview, Running)> {
    let clusters = list::all::<Cluster>(Api::all(client.clone()));
    let clusters = clusters.await.map_err(anyhow::Error::msg)?;
    let bindings = list::bindings(client).await.map_err(anyhow::Error::msg)?;
    let fleet = Fleet {
        needs: dependencies::read(client, &bindings).await,
        jobs: Jobs::read(client, &bindings, names).await,
        // They put no taint on a cluster because it is drained.
        policies: Vec::new(),
        clusters,
        bindings,
    };
    let running = Running::read(client, &[]).await?;
    let now = calendar();
    let clusters = fleet.clusters.iter();
    let left = clusters.filter(|it| names.contains(&it.name_any()));
    let left = left.map(|it| {
        let mut drained = disaster::drain(it, now).cluster;
        if has_rate {
            drained.annotations_mut().remove(DRAIN_RATE);
        }
        drained
    });
    let left: Vec<Cluster> = left.collect();
    let mut standstill = MovementState::read(client).await.of(&left, now);
    let hindered = hindered(&left, &running);
    standstill.is_whole |= running.ignores_taints().is_some() || hindered.len() == left.len();
    standstill.reasons.extend(hindered);
    let preview = Preview {
        standstill,
        ..preview(&fleet, names, &running.settings, now)
    };
    Ok((preview, running))
}

/// Returns why nothing leaves clusters that are drained, beside what holds all movement up.
pub(super) fn hindered<'a>(
    clusters: impl IntoIterator<Item = &'a Cluster>,
    running: &Running,
) -> Vec<String> {
    let switches = Switches::of(&running.settings);
    let rates = clusters.into_iter().filter_map(|it| {
        let fault = drain::rate(it, &switches).err()?;
        let name = it.name_any();
        Some(format!(
            "the rate of the drain of {name} cannot be read: {fault}"
        ))
    });
    let ignored = running.ignores_taints().map(str::to_owned);
    ignored.into_iter().chain(rates).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[tokio::test]
    async fn old_copies_that_cannot_be_read_are_no_absent_ones() {
        for (refused, expected) in [
            ("", &[][..]),
            ("/karmada-es-m1/works", &["in m1: list works: "]),
            ("/resourcebindings", &["in m1, m2: list resourcebindings: "]),
        ] {
            let client = crate::fixtures::api(move |request| {
                if !refused.is_empty() && request.uri().path().ends_with(refused) {
                    return (
                        403,
                        json!({"kind": "Status", "reason": "Forbidden", "code": 403}),
                    );
                }
                (200, json!({"metadata": {}, "items": []}))
            });
            let found = left(&client, &["m1", "m2"].map(str::to_owned)).await;
            assert_eq!(found.len(), expected.len(), "{found:?}");
            for (found, expected) in found.iter().zip(expected) {
                assert!(found.contains(expected), "{found}");
            }
        }
    }

    #[test]
    fn what_keeps_workloads_in_a_drained_cluster_is_reported() {
        let off = "--enable-taint-manager=false";
        for (flags, rate, expected) in [
            (&[][..], "0.5", &[][..]),
            (&[off], "0.5", &["without the controller taintmanager"]),
            (&[], "fast", &["the rate of the drain of m1 cannot be read"]),
            (&[off], "fast", &["taintmanager", "the drain of m1"]),
        ] {
            let changes = json!({
                "metadata": { "annotations": { DRAIN_RATE: rate } },
                "spec": { "taints": [{ "key": DRAIN, "effect": NO_EXECUTE }] },
            });
            let drained = crate::fixtures::member("m1", &changes);
            let flags: Vec<String> = flags.iter().map(|it: &&str| (*it).to_owned()).collect();
            let running = Running::of(&flags, None).unwrap();
            let found = hindered([&drained], &running);
            assert_eq!(found.len(), expected.len(), "{found:?}");
            for (found, part) in found.iter().zip(expected) {
                assert!(found.contains(part), "{found}");
            }
        }
    }

    #[test]
    fn a_rate_is_a_number_or_that_of_the_fleet() {
        for (text, is_rate) in [
            ("0.2", true),
            ("fleet", true),
            ("0", false),
            ("-1", false),
            ("fast", false),
        ] {
            assert_eq!(rate(text).is_ok(), is_rate, "{text}");
        }
        let fleet = order(Some(&FLEET.to_owned()));
        assert_eq!(fleet.annotations, [(DRAIN_RATE, None)]);
    }
}
