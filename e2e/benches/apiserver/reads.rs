//! Objects a second that lists and watches bring, in JSON and in protobuf, and which of the two is
//! faster.

use std::time::{Duration, Instant};

use anyhow::Context;
use futures::StreamExt;
use http::Request;
use http::header::ACCEPT;
use http_body_util::BodyExt;
use kube::Client;
use kube::config::Kubeconfig;
use muster_e2e::apiserver::Running;
use serde_json::Value;

use crate::common::{Budget, Table, number, objects, usage};

const PODS: &str = "/api/v1/pods";
const JSON: &str = "application/json";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf, application/json";
/// Objects in a page.
const PAGE: usize = 500;
/// The annotation of the bookmark that ends the initial events of a watch.
const END: &[u8] = b"k8s.io/initial-events-end";

/// Fills a server with so many pods.
pub fn fill(server: &Running, pods: usize) -> anyhow::Result<()> {
    let seeds = server.seeds("", "v1", "pods")?;
    for number in 0..pods {
        seeds.put(objects::pod(number, pods.div_ceil(20), 0))?;
    }
    Ok(())
}

/// What a way of reading took for all pods.
struct Cost {
    /// Processor time of the server in seconds.
    cpu: f64,
    /// Time in seconds.
    took: f64,
    /// Bytes received.
    bytes: usize,
}

/// Measures all ways of reading so many pods from a server.
pub async fn measure(access: &Kubeconfig, server: u32, pods: usize) -> anyhow::Result<Table> {
    let client = super::client(access).await?;
    let mut table = Table::new(format!("reading {pods} pods"));
    let whole = vec![PODS.to_owned()];
    let pages = pages(&client).await?;
    let streamed = vec![format!(
        "{PODS}?watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
    )];
    for (what, paths) in [
        ("whole list", whole),
        ("list in pages", pages),
        ("watch", streamed),
    ] {
        let (mut by_cpu, mut by_time) = (Vec::new(), Vec::new());
        for (form, accept) in [("JSON", JSON), ("protobuf", PROTOBUF)] {
            // The first reading warms memory and connection.
            read(&client, &paths, accept, server).await?;
            let cost = read(&client, &paths, accept, server).await?;
            by_cpu.push(number(pods) / cost.cpu);
            by_time.push(number(pods) / cost.took);
            let mut figure = |which: &str, figure, unit| {
                table.figure(
                    format!("{what}, {form}: {which}"),
                    figure,
                    unit,
                    Budget::None,
                );
            };
            figure(
                "a second, by processor time",
                number(pods) / cost.cpu,
                "objects",
            );
            figure("a second, as it was", number(pods) / cost.took, "objects");
            figure(
                "size of an object",
                number(cost.bytes) / number(pods),
                "bytes",
            );
        }
        let mut ratio = |which: &str, of: &[f64]| {
            let goal = Budget::AtLeast(1.0);
            table.figure(
                format!("{what}: protobuf to JSON, {which}"),
                of[1] / of[0],
                "",
                goal,
            );
        };
        ratio("by processor time", &by_cpu);
        ratio("as it was", &by_time);
    }
    Ok(table)
}

/// Returns the paths of all pages.
async fn pages(client: &Client) -> anyhow::Result<Vec<String>> {
    let mut paths = vec![format!("{PODS}?limit={PAGE}")];
    loop {
        let path = paths.last().context("a page")?;
        let request = Request::get(path).body(Vec::new().into())?;
        let page = client.send(request).await?.into_body().collect().await?;
        let page: Value = serde_json::from_slice(&page.to_bytes())?;
        match page["metadata"]["continue"].as_str() {
            Some(next) if !next.is_empty() => {
                paths.push(format!("{PODS}?limit={PAGE}&continue={next}"));
            }
            _ => return Ok(paths),
        }
    }
}

/// Reads what is at these paths, up to the end or the end of the initial events, and throws it
/// away.
async fn read(
    client: &Client,
    paths: &[String],
    accept: &str,
    server: u32,
) -> anyhow::Result<Cost> {
    let (before, start) = (usage(server)?.cpu, Instant::now());
    let mut bytes = 0;
    for path in paths {
        let request = Request::get(path)
            .header(ACCEPT, accept)
            .body(Vec::new().into())?;
        let response = client.send(request).await?;
        anyhow::ensure!(
            response.status().is_success(),
            "{path}: {}",
            response.status()
        );
        let mut body = response.into_body().into_data_stream();
        // The end may stand astride of two pieces.
        let mut last = Vec::new();
        while let Some(piece) = body.next().await {
            let piece = piece.context("reading the answer")?;
            bytes += piece.len();
            last.extend_from_slice(&piece[piece.len().saturating_sub(1024)..]);
            last.drain(..last.len().saturating_sub(2048));
            if path.contains("watch") && last.windows(END.len()).any(|w| w == END) {
                break;
            }
        }
    }
    let took = start.elapsed().as_secs_f64();
    // The kernel counts in hundredths of a second.
    let cpu = (usage(server)?.cpu - before).max(Duration::from_millis(10).as_secs_f64());
    Ok(Cost { cpu, took, bytes })
}
