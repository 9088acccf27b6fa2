//! The last orders of people about a cluster, with which its history ends.

use muster_control_plane::fleet::attribution::Attribution;
use muster_shared::api::cluster::Cluster;
use muster_shared::client;
use muster_shared::k8s::{Api, Client};

use crate::request::find_cluster;
use crate::table::Table;

/// The orders that a Cluster names, the newest last, or why they are not known.
pub(super) type Orders = Result<Vec<Attribution>, String>;

/// Reads the orders about a cluster. One that has left the fleet has none, and may have records
/// (`is_recorded`); one that never was there has none of both, and is an error.
pub(super) async fn read(client: &Client, name: &str, is_recorded: bool) -> anyhow::Result<Orders> {
    if !is_recorded {
        let cluster = find_cluster(client, name).await?;
        return Ok(Ok(Attribution::all(&cluster.metadata)));
    }
    let api: Api<Cluster> = Api::all(client.clone());
    let found = client::get_opt(&api, name).await;
    let orders = found.map(|it| {
        it.map(|it| Attribution::all(&it.metadata))
            .unwrap_or_default()
    });
    Ok(orders.map_err(|error| client::brief(&error)))
}

/// Returns the orders as text, the newest first; none where there are none.
pub(super) fn table(orders: &Orders) -> String {
    let orders = match orders {
        Ok(orders) if orders.is_empty() => return String::new(),
        Ok(orders) => orders,
        Err(why) => return format!("\nThe last orders are not known: {why}\n"),
    };
    let mut table = Table::new(["LAST ORDERS", "BY", "WHEN", "REASON"]);
    for it in orders.iter().rev() {
        let what = if it.change.is_empty() {
            &it.order
        } else {
            &it.change
        };
        let reason = if it.reason.is_empty() {
            "-"
        } else {
            &it.reason
        };
        table.row([
            what.clone(),
            it.author().to_owned(),
            it.at
                .map_or_else(|| "-".to_owned(), |at| format!("{at:.0}")),
            reason.to_owned(),
        ]);
    }
    format!("\n{table}")
}

#[cfg(test)]
mod tests {
    use muster_shared::names::annotation::ORDERED_BY;
    use serde_json::json;

    use super::*;
    use crate::fixtures;

    #[tokio::test]
    async fn the_orders_about_a_cluster_come_with_who_gave_them_when_and_why() {
        let orders = json!([
            { "order": "drain", "by": "alice", "at": "2026-01-01T00:00:00Z", "reason": "new kernel" },
            { "order": "taint", "change": "tainted a:NoExecute", "by": "", "at": null },
        ])
        .to_string();
        let client = fixtures::api(move |request| {
            let path = request.uri().path();
            if path.ends_with("/clusters/gone") {
                let details = json!({ "name": "gone" });
                let status = json!({ "kind": "Status", "status": "Failure", "reason": "NotFound", "code": 404, "details": details });
                return (404, status);
            }
            if path.ends_with("/clusters/secret") {
                return (
                    403,
                    json!({ "kind": "Status", "status": "Failure", "reason": "Forbidden", "code": 403 }),
                );
            }
            let metadata = json!({ "name": "m1", "annotations": { ORDERED_BY: orders } });
            (
                200,
                json!({ "metadata": metadata, "spec": { "syncMode": "Pull" } }),
            )
        });
        let shown = "LAST ORDERS BY WHEN REASON|tainted a:NoExecute somebody - -|drain alice 2026-01-01T00:00:00Z new kernel";
        for (name, is_recorded, expected) in [
            ("m1", true, shown),
            ("m1", false, shown),
            ("gone", true, ""),
            ("secret", true, "The last orders are not known:"),
        ] {
            let text = table(&read(&client, name, is_recorded).await.unwrap());
            let lines = text.lines().skip(1);
            let lines = lines.map(|it| it.split_whitespace().collect::<Vec<_>>().join(" "));
            let found = lines.collect::<Vec<_>>().join("|");
            assert!(found.starts_with(expected), "{name}: {found}");
            assert_eq!(found.is_empty(), expected.is_empty(), "{name}: {found}");
        }
    }
}
