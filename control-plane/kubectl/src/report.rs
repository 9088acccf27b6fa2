//! `kubectl muster report`: what somebody needs who helps from afar, in one archive, without
//! secrets.
//!
//! Objects of Muster's own kinds, leases, events and what the other commands say. Secrets are never
//! read, nor are templates and the manifests in Works. What is left is redacted ([`mod@redact`]).

mod archive;
mod redact;

use std::fmt::Write as _;
use std::io::BufWriter;
use std::path::PathBuf;

use anyhow::Context as _;
use clap::Args;
use kube::api::{DynamicObject, ListParams};
use kube::core::{ApiResource, GroupVersionKind};
use muster_shared::client;
use muster_shared::k8s::{Api, Client};
use serde_json::json;

use self::redact::redact;

/// Objects of a kind that are taken at most.
const MOST: u32 = 2_000;
/// Bytes of one file in the archive at most; further objects are only counted.
const LARGEST: usize = 16 << 20;

/// Kinds that are read: group, version, kind.
const KINDS: [(&str, &str, &str); 13] = [
    ("cluster.karmada.io", "v1alpha1", "Cluster"),
    ("policy.karmada.io", "v1alpha1", "ClusterTaintPolicy"),
    ("policy.karmada.io", "v1alpha1", "PropagationPolicy"),
    ("policy.karmada.io", "v1alpha1", "ClusterPropagationPolicy"),
    ("policy.karmada.io", "v1alpha1", "OverridePolicy"),
    ("policy.karmada.io", "v1alpha1", "ClusterOverridePolicy"),
    ("work.karmada.io", "v1alpha2", "ResourceBinding"),
    ("work.karmada.io", "v1alpha2", "ClusterResourceBinding"),
    ("work.karmada.io", "v1alpha1", "Work"),
    ("failover.muster.io", "v1alpha1", "Failover"),
    ("coordination.k8s.io", "v1", "Lease"),
    ("apiextensions.k8s.io", "v1", "CustomResourceDefinition"),
    ("", "v1", "Event"),
];

#[derive(Debug, Args)]
pub(super) struct Options {
    /// File that is written; it must not be there yet.
    #[arg(
        long,
        short = 'f',
        visible_alias = "output",
        visible_short_alias = 'o',
        value_name = "FILE",
        default_value = "muster-report.tar.gz"
    )]
    file: PathBuf,
}

/// A file of the archive.
pub(super) struct File {
    pub name: String,
    pub content: String,
}

/// Writes the archive; says what is in it, and what could not be read.
pub(super) async fn carry_out(
    client: &Client,
    options: &Options,
    said: Vec<File>,
) -> anyhow::Result<String> {
    let path = options.file.display();
    let archive = std::fs::File::create_new(&options.file);
    let archive = archive.with_context(|| format!("cannot create {path}"))?;
    let mut files = said;
    let mut missing = Vec::new();
    for (group, version, kind) in KINDS {
        let kind = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        let plural = &kind.plural;
        match read(client, &kind).await {
            Ok(content) => files.push(File {
                name: format!("objects/{plural}.json"),
                content,
            }),
            Err(error) => missing.push(format!("{plural}: {error}")),
        }
    }
    files.push(File {
        name: "missing.txt".to_owned(),
        content: missing.join("\n"),
    });
    archive::write(BufWriter::new(archive), "muster-report", &files)
        .with_context(|| format!("cannot write {path}"))?;
    let mut text = format!(
        "Wrote {path}, {} files. Secrets, templates and manifests are not in it; look through it before you send it.\n",
        files.len()
    );
    for it in missing {
        let _ = writeln!(text, "Not in it: {it}");
    }
    Ok(text)
}

async fn read(client: &Client, kind: &ApiResource) -> Result<String, String> {
    let api: Api<DynamicObject> = Api::all_with(client.clone(), kind);
    let list = api.list(&ListParams::default().limit(MOST)).await;
    let list = list.map_err(|error| client::brief(&error))?;
    let rest = list.metadata.continue_.filter(|it| !it.is_empty());
    let mut lines = String::new();
    let mut left_out = 0;
    for object in &list.items {
        let object = serde_json::to_value(object).map_err(|error| error.to_string())?;
        let line = redact(object).to_string();
        if lines.len() + line.len() > LARGEST {
            left_out += 1;
            continue;
        }
        lines.push_str(&line);
        lines.push('\n');
    }
    if left_out > 0 || rest.is_some() {
        let note = json!({"leftOut": left_out, "andMore": rest.is_some()});
        let _ = writeln!(lines, "{note}");
    }
    Ok(lines)
}
