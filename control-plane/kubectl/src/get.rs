//! `kubectl muster get clusters`, `get workloads`: what the fleet has, one line each.

mod labels;
mod rows;

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use anyhow::bail;
use clap::{Args, Subcommand};
use futures::join;
use jiff::Timestamp;
use kube::ResourceExt;
use muster_control_plane::fleet::pause::Pause;
use muster_control_plane::settings::Settings;
use muster_shared::api::any_binding::AnyBinding;
use muster_shared::api::cluster::Cluster;
use muster_shared::api::scope::ResourceScope;
use muster_shared::clock::calendar;
use muster_shared::k8s::{Api, Client};
use muster_shared::telemetry::is_read;
use strsim::levenshtein;

use self::rows::{Left, WorkloadRow};
use super::chosen::{self, Clusters};
use super::cluster_row::{ClusterRow, Counts};
use super::leader::{Leader, SILENT};
use super::list::{bindings, bindings_of, works};
use super::old_copies::{OldCopies, old_copies};
use super::output::warn;
use super::request::{find_cluster, instead, require_namespace};
use super::rows::{Format, Seen, none, print};
use super::subject::{self, Subject};
use super::view::{self, Member, State, View};

/// Pause between two reads of `--watch`.
const PAUSE: Duration = Duration::from_secs(2);

#[derive(Debug, Args)]
pub(super) struct Options {
    #[command(subcommand)]
    what: What,
    /// Format of the answer.
    #[arg(long, short, global = true, value_enum, default_value_t)]
    output: Format,
    /// Refreshes every two seconds until it is stopped, and prints the rows that changed.
    #[arg(long, short, global = true)]
    watch: bool,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Clusters: state, since when, last renewal, taints, nodes, workloads, version of the agent.
    #[command(visible_aliases = ["cluster", "cl"])]
    Clusters(Clusters),
    /// Workloads: where they are, where they are leaving, and why one waits.
    #[command(visible_aliases = ["workload", "wl"])]
    Workloads(Which),
    #[command(external_subcommand)]
    Other(Vec<String>),
}

/// Which workloads are asked about.
#[derive(Debug, Args)]
struct Which {
    /// Only these: `web`, `a,b`, `deployment/web`, `deployment web` or `rb/web-deployment`.
    #[arg(value_name = "NAME", value_delimiter = ',')]
    names: Vec<String>,
    /// In all namespaces, and what has none.
    #[arg(long, short = 'A')]
    all_namespaces: bool,
    /// Only those on this cluster, or leaving it.
    #[arg(long, value_name = "NAME", value_parser = chosen::name)]
    cluster: Option<String>,
    /// Only those whose templates have these labels, such as `app=web,tier!=test`.
    #[arg(long, short = 'l', value_name = "SELECTOR", value_parser = chosen::selector)]
    selector: Option<String>,
}

/// Returns what is said of a resource that is none of these.
fn unknown(words: &[String]) -> String {
    let word = words.first().map_or("", String::as_str);
    let known = ["clusters", "cluster", "cl", "workloads", "workload", "wl"];
    let near = known.iter().filter(|it| levenshtein(word, it) <= 2);
    let meant = match near.min_by_key(|it| levenshtein(word, it)) {
        _ if Subject::is_kind_of_binding(word) => format!(
            "kubectl get {word} shows these themselves, kubectl muster get workloads what they place"
        ),
        Some(nearest) => format!("is it {nearest}?"),
        None => {
            format!("each placed object is a workload: write kubectl muster get {word}/NAME")
        }
    };
    format!(
        "there is no resource {word:?} here: there are clusters (cluster, cl) and workloads (workload, wl); {meant}"
    )
}

/// Returns the answer as text. With `--watch` it prints until the reader of its output has gone.
pub(super) async fn carry_out(
    client: &Client,
    namespace: &str,
    options: &Options,
) -> anyhow::Result<String> {
    let mut seen = options.watch.then(Seen::default);
    loop {
        let text = match (
            Box::pin(refresh(client, namespace, options, &mut seen)).await,
            &seen,
        ) {
            (Err(error), Some(seen)) if !seen.is_new() => {
                warn(&format_args!("{error:#}"));
                String::new()
            }
            (text, _) => text?,
        };
        if seen.is_none() {
            return Ok(text);
        }
        if !is_read(&text)? {
            return Ok(String::new());
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Returns what there is, or what has changed of it.
async fn refresh(
    client: &Client,
    namespace: &str,
    options: &Options,
    seen: &mut Option<Seen>,
) -> anyhow::Result<String> {
    match &options.what {
        What::Clusters(chosen) => Box::pin(clusters(client, chosen, options.output, seen)).await,
        What::Workloads(which) => {
            let namespace = (!which.all_namespaces).then_some(namespace);
            Box::pin(workloads(client, which, namespace, options.output, seen)).await
        }
        What::Other(words) => bail!("{}", unknown(words)),
    }
}

async fn clusters(
    client: &Client,
    chosen: &Clusters,
    format: Format,
    seen: &mut Option<Seen>,
) -> anyhow::Result<String> {
    let now = calendar();
    let names = chosen.seen(client).await?;
    let own = Settings::default();
    let (view, bindings, works, record) = join!(
        View::read(client, &own),
        bindings(client),
        works(Api::all(client.clone())),
        view::pause(client),
    );
    warn_if_unread("WORKLOADS", &bindings);
    warn_if_unread("OLD COPIES", &works);
    warn_if_unread("HEARD", &view.leases);
    warn_if_unread("pauses", &record);
    let pause = record.ok().flatten().map(|it| Pause::of_fleet(&it));
    let pause = pause.filter(|it| it.holds(now));
    // Whoever may not read leases and workloads sees the clusters.
    let leases = view.leases.unwrap_or_default();
    let leader = Leader::of(&view.leader, now);
    let counts = Counts::of(bindings.ok().as_deref(), works.ok().as_deref());
    let mut clusters = view.clusters.map_err(anyhow::Error::msg)?;
    clusters.retain(|it| {
        let names = names.as_ref();
        names.is_none_or(|names| names.contains(&it.name_any()))
    });
    let members = (&leases, &leader);
    let rows = ClusterRow::all(&clusters, members, pause.is_some(), &counts, now);
    if rows.is_empty() && seen.is_none() && format.is_text() {
        return Ok(none(None, None, chosen.selector()));
    }
    print(&rows, format, seen.as_mut(), |wide| {
        rows::clusters(&rows, pause.as_ref(), wide, now)
    })
}

/// Warns of a column that could not be read, so that it is not taken for one without values.
fn warn_if_unread<T, E: fmt::Display>(column: &str, read: &Result<T, E>) {
    if let Err(error) = read {
        warn(&format_args!("{column}: not known: {error}"));
    }
}

async fn workloads(
    client: &Client,
    which: &Which,
    namespace: Option<&str>,
    format: Format,
    seen: &mut Option<Seen>,
) -> anyhow::Result<String> {
    let now = calendar();
    if let Some(cluster) = &which.cluster {
        find_cluster(client, cluster).await?;
    }
    let bindings = match namespace {
        None => bindings(client).await,
        Some(namespace) => {
            let scope = ResourceScope::Namespaced;
            let api = Api::namespaced_with(client.clone(), namespace, &scope);
            let own = bindings_of(api, scope).await;
            own.map(|it| it.into_iter().map(Arc::new).collect())
        }
    };
    let mut bindings: Vec<Arc<AnyBinding>> = bindings.map_err(anyhow::Error::msg)?;
    if let (true, Some(namespace)) = (bindings.is_empty(), namespace) {
        require_namespace(client, namespace).await?;
    }
    if !which.names.is_empty() {
        bindings = named(&which.names, bindings)?;
    }
    if let Some(selector) = &which.selector {
        bindings = labels::selected(client, namespace, bindings, selector).await?;
    }
    let left = left(client, &bindings, now).await;
    let rows: Vec<WorkloadRow> = bindings
        .iter()
        .map(|it| WorkloadRow::of(it, &left))
        .filter(|it| which.cluster.as_ref().is_none_or(|name| it.concerns(name)))
        .collect();
    if rows.is_empty() && seen.is_none() && format.is_text() {
        let (cluster, selector) = (which.cluster.as_deref(), which.selector.as_deref());
        return Ok(none(cluster, namespace, selector));
    }
    print(&rows, format, seen.as_mut(), |wide| {
        rows::workloads(&rows, wide, now)
    })
}

/// Returns the bindings of what words name; the error says what may have been meant.
fn named(words: &[String], all: Vec<Arc<AnyBinding>>) -> anyhow::Result<Vec<Arc<AnyBinding>>> {
    let (kind, names) = match words.split_first() {
        Some((kind, names)) if !names.is_empty() && !kind.contains('/') => {
            let is_kind = subject::is_kind_of(kind, all.iter().map(AsRef::as_ref));
            if is_kind {
                (Some(kind), names)
            } else {
                (None, words)
            }
        }
        _ => (None, words),
    };
    let mut subjects = Vec::new();
    for name in names {
        let subject = match kind {
            Some(kind) => Subject::of(kind, Some(name))?,
            None => Subject::of(name, None)?,
        };
        if !all.iter().any(|it| subject.is(it)) {
            let known: Vec<String> = if name.contains('/') || kind.is_some() {
                all.iter()
                    .map(|it| subject::word(&it.spec.resource))
                    .collect()
            } else {
                let names = all.iter().map(|it| it.spec.resource.name.clone());
                names.collect::<BTreeSet<_>>().into_iter().collect()
            };
            let asked = kind.map_or_else(|| name.clone(), |kind| format!("{kind}/{name}"));
            bail!("there is no workload {asked:?}{}", instead(&asked, &known));
        }
        subjects.push(subject);
    }
    let is_named = |it: &Arc<AnyBinding>| subjects.iter().any(|subject| subject.is(it));
    Ok(all.into_iter().filter(is_named).collect())
}

/// Returns what is left of workloads in clusters where they are not placed any more, as far as it
/// may be read.
async fn left(client: &Client, bindings: &[Arc<AnyBinding>], now: Timestamp) -> Left {
    let own = Settings::default();
    let (view, works) = join!(View::read(client, &own), works(Api::all(client.clone())));
    warn_if_unread("LEAVING", &works);
    warn_if_unread("clusters", &view.clusters);
    let leader = Leader::of(&view.leader, now);
    let leases = view.leases.unwrap_or_default();
    let member = |cluster: &Cluster| {
        let lease = leases.get(&cluster.name_any());
        Member::of(cluster, lease, leader.leaves_silent(lease, now))
    };
    let members: Vec<Member> = view.clusters.iter().flatten().map(member).collect();
    let named = |is_meant: fn(&Member) -> bool| -> BTreeSet<String> {
        let named = members.iter().filter(|it| is_meant(it));
        named.map(|it| it.name.clone()).collect()
    };
    Left {
        not_heard: named(|it| matches!(it.state, State::Silent | State::New)),
        unjudged: named(|it| it.reason == SILENT),
        copies: works.map_or_else(|_| OldCopies::new(), |it| old_copies(&it, bindings)),
    }
}

#[cfg(test)]
mod tests;
