//! Backups of the fleet API's store. etcd's own programs write and restore them; their images have
//! no shell, and know no object storage.
//!
//! * `muster-control-plane keep-snapshots` removes all but the newest snapshots from a directory,
//!   copies the one that was just taken to object storage, and keeps the newest there likewise.
//! * `muster-control-plane fetch-snapshot` gets one back from there.
//! * [`directory`]: which files are removed.
//! * [`storage`]: object storage by S3's protocol.

mod directory;
mod storage;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use clap::{Args, Parser};

use self::storage::{Object, Storage, Trouble};

/// Name of the command that keeps snapshots.
pub(crate) const KEEP: &str = "keep-snapshots";
/// Description of the command that keeps snapshots.
pub(crate) const KEEP_ABOUT: &str =
    "Keep the newest snapshots of etcd: in a directory, and in object storage";
/// Name of the command that fetches a snapshot.
pub(crate) const FETCH: &str = "fetch-snapshot";
/// Description of the command that fetches a snapshot.
pub(crate) const FETCH_ABOUT: &str = "Fetch a snapshot of etcd from object storage";

/// Pauses before a request that failed in passing is made again.
const PAUSES: [Duration; 2] = [Duration::from_secs(5), Duration::from_secs(20)];

#[derive(Debug, Parser)]
#[command(about = KEEP_ABOUT)]
struct Keeping {
    /// Directory with the snapshots: files whose names end with .db.
    #[arg(long, value_name = "DIRECTORY")]
    directory: PathBuf,
    /// Number of snapshots to keep there.
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u16).range(1..))]
    keep: u16,
    /// Name of the snapshot in the directory that is copied to object storage.
    #[arg(long, value_name = "NAME", requires = "to")]
    upload: Option<String>,
    /// Bucket and beginning of the keys that it is copied to.
    #[arg(long, value_name = "s3://BUCKET/PREFIX", requires_all = ["upload", "endpoint"])]
    to: Option<Place>,
    /// Number of snapshots to keep under that beginning; with 0 none is removed.
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    keep_objects: u16,
    #[command(flatten)]
    way: Option<Way>,
}

#[derive(Debug, Parser)]
#[command(about = FETCH_ABOUT)]
struct Fetching {
    /// Bucket and key of the snapshot.
    #[arg(long, value_name = "s3://BUCKET/KEY")]
    from: Place,
    /// File that it is written to.
    #[arg(long, value_name = "FILE")]
    file: PathBuf,
    #[command(flatten)]
    way: Way,
}

/// Address of and access to object storage.
#[derive(Debug, Args)]
struct Way {
    /// URL of the object storage; buckets are in its path.
    #[arg(long, value_name = "URL")]
    endpoint: String,
    /// Region that requests are signed for.
    #[arg(long, value_name = "NAME")]
    region: String,
    /// Directory with the files access-key-id and secret-access-key, and perhaps session-token.
    #[arg(long, value_name = "DIRECTORY")]
    credentials: PathBuf,
    /// File with the authorities that are trusted (PEM) in place of the system's.
    #[arg(long, value_name = "FILE")]
    authority: Option<PathBuf>,
}

/// A bucket, and a key or the beginning of one.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Place {
    bucket: String,
    key: String,
}

impl FromStr for Place {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts = text.strip_prefix("s3://").and_then(|it| it.split_once('/'));
        // Parts of a URL's path that are dots lead elsewhere.
        let is_dots = |part: &str| part == "." || part == "..";
        match parts {
            Some((bucket, key)) if !bucket.is_empty() && !key.split('/').any(is_dots) => Ok(Self {
                bucket: bucket.to_owned(),
                key: key.to_owned(),
            }),
            _ => Err("it is no s3://BUCKET/KEY".to_owned()),
        }
    }
}

/// Runs the command that keeps snapshots: reads arguments, and prints what was copied and removed.
pub(crate) fn keep(mut arguments: Vec<OsString>) -> ExitCode {
    arguments.remove(1);
    ended(kept(&Keeping::parse_from(arguments)))
}

/// Runs the command that fetches a snapshot: reads arguments, and prints what was fetched.
pub(crate) fn fetch(mut arguments: Vec<OsString>) -> ExitCode {
    arguments.remove(1);
    ended(fetched(&Fetching::parse_from(arguments)))
}

fn ended(done: anyhow::Result<()>) -> ExitCode {
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => crate::settings::refuse(&format!("{error:#}")),
    }
}

#[tokio::main(flavor = "current_thread")]
async fn kept(options: &Keeping) -> anyhow::Result<()> {
    for path in directory::prune(&options.directory, usize::from(options.keep))? {
        println!("removed {}", path.display());
    }
    let (Some(name), Some(to), Some(way)) = (&options.upload, &options.to, &options.way) else {
        return Ok(());
    };
    let file = options.directory.join(name);
    let copied = copy(&file, name, to, way, usize::from(options.keep_objects));
    copied.await.with_context(|| {
        format!(
            "snapshot {} is on its volume, and object storage does not have it as it should",
            file.display()
        )
    })
}

/// Copies a snapshot to object storage, reads it back, and removes the oldest there.
async fn copy(file: &Path, name: &str, to: &Place, way: &Way, keep: usize) -> anyhow::Result<()> {
    let storage = Storage::open(way, &to.bucket)?;
    let key = format!("{}{name}", to.key);
    let ours = storage::sum_of_file(file).await?;
    ensure!(
        ours.bytes <= storage::LARGEST,
        "it has {} bytes, and object storage takes {} in one request",
        ours.bytes,
        storage::LARGEST
    );
    persist(async || storage.put(&key, file, ours.bytes).await).await?;
    let theirs = persist(async || storage.sum(&key).await).await?;
    if theirs != ours {
        bail!(
            "s3://{}/{key} is not what was sent: {theirs} in place of {ours}",
            to.bucket
        );
    }
    println!("copied {name} to s3://{}/{key}: {ours}", to.bucket);
    if keep == 0 {
        return Ok(());
    }
    let objects = persist(async || storage.list(&to.key).await).await?;
    for old in surplus(objects, &to.key, &key, keep) {
        persist(async || storage.delete(&old).await).await?;
        println!("removed s3://{}/{old}", to.bucket);
    }
    Ok(())
}

/// Returns the keys of all snapshots but the newest. The one that was just written is among those,
/// whatever the clock of the storage says, and what is no snapshot under this beginning is not
/// touched.
fn surplus(objects: Vec<Object>, prefix: &str, newest: &str, keep: usize) -> Vec<String> {
    let is_old = |object: &Object| {
        let name = object.key.strip_prefix(prefix);
        let is_snapshot =
            name.is_some_and(|it| !it.contains('/') && it.strip_suffix(".db").is_some());
        is_snapshot && object.key != newest
    };
    let mut old: Vec<Object> = objects.into_iter().filter(is_old).collect();
    old.sort_by(|a, b| (a.written, &a.key).cmp(&(b.written, &b.key)));
    old.truncate(old.len().saturating_sub(keep.saturating_sub(1)));
    old.into_iter().map(|it| it.key).collect()
}

#[tokio::main(flavor = "current_thread")]
async fn fetched(options: &Fetching) -> anyhow::Result<()> {
    let Place { bucket, key } = &options.from;
    let storage = Storage::open(&options.way, bucket)?;
    let got = persist(async || storage.get(key, &options.file).await).await?;
    println!("fetched s3://{bucket}/{key}: {got}");
    Ok(())
}

/// Makes a request, and makes it again after pauses while it fails in passing.
async fn persist<T>(request: impl AsyncFn() -> Result<T, Trouble>) -> anyhow::Result<T> {
    for pause in PAUSES {
        match request().await {
            Err(Trouble::Passing(error)) => {
                println!("again in {} s: {error:#}", pause.as_secs());
                tokio::time::sleep(pause).await;
            }
            Err(Trouble::Lasting(error)) => return Err(error),
            Ok(answer) => return Ok(answer),
        }
    }
    request().await.map_err(|trouble| match trouble {
        Trouble::Passing(error) | Trouble::Lasting(error) => error,
    })
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;

    #[test]
    fn a_place_has_a_bucket_and_a_key_that_leads_nowhere_else() {
        let place = |text: &str| text.parse::<Place>().map(|it| (it.bucket, it.key));
        let pair = |bucket: &str, key: &str| Ok((bucket.to_owned(), key.to_owned()));
        assert_eq!(
            place("s3://b/host/muster/x.db"),
            pair("b", "host/muster/x.db")
        );
        assert_eq!(place("s3://b/"), pair("b", ""));
        for wrong in [
            "b/x.db",
            "s3://b",
            "s3:///x",
            "s3://b/../other/x.db",
            "s3://b/a/./x.db",
        ] {
            assert!(place(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_newest_objects_stay_and_those_of_others_are_not_touched() {
        let objects = || {
            [
                ("m/a.db", 1),
                ("m/b.db", 3),
                ("m/c.db", 2),
                ("m/new.db", 0),
                ("m/other/d.db", 0),
                ("m/notes.txt", 0),
                ("z.db", 0),
            ]
            .map(|(key, second)| Object {
                key: key.to_owned(),
                written: Timestamp::from_second(second).unwrap(),
            })
            .to_vec()
        };
        let removed = |keep| surplus(objects(), "m/", "m/new.db", keep);
        assert_eq!(removed(1), ["m/a.db", "m/c.db", "m/b.db"]);
        assert_eq!(removed(2), ["m/a.db", "m/c.db"]);
        assert_eq!(removed(9), [""; 0]);
    }
}
