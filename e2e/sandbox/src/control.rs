//! Faults by hand: `sandbox cut NAME --dir DIR` talks to the sandbox that runs in DIR, over a
//! socket there.
//!
//! One line asks (`cut member1`, `cut --all`), one line answers (`ok`, or what is wrong).

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{UnixListener, UnixStream};

use super::screen::Screen;
use muster_test_fleet::harness::fleet::Fleet;

/// How long an answer may take.
const ANSWER: Duration = Duration::from_secs(10);

/// What a request has in place of a name to ask about all members.
pub const ALL: &str = "--all";

fn socket(directory: &Path) -> PathBuf {
    directory.join("control.sock")
}

/// Listens for requests until dropped.
pub fn listen(
    directory: &Path,
    fleet: Arc<Fleet>,
    screen: Screen,
) -> anyhow::Result<impl Future<Output = ()>> {
    let path = socket(directory);
    // What an earlier run left behind: the directory is locked, so that no other one listens there.
    let _ = std::fs::remove_file(&path);
    let listener = UnixListener::bind(&path).with_context(|| {
        format!(
            "cannot listen on {} (the path of a socket has at most 107 bytes, on macOS 103)",
            path.display()
        )
    })?;
    Ok(async move {
        loop {
            let Ok((stream, _)) = listener.accept().await else {
                continue;
            };
            let (fleet, screen) = (Arc::clone(&fleet), screen.clone());
            tokio::spawn(async move {
                // Whoever asked and left does not need the answer.
                let _ = answer(stream, &fleet, &screen).await;
            });
        }
    })
}

async fn answer(stream: UnixStream, fleet: &Fleet, screen: &Screen) -> std::io::Result<()> {
    let mut stream = BufReader::new(stream);
    let mut request = String::new();
    stream.read_line(&mut request).await?;
    let words: Vec<&str> = request.split_whitespace().collect();
    let done = match words.as_slice() {
        [verb @ ("cut" | "heal"), ALL] => {
            let mut names = fleet.members.keys();
            names.try_for_each(|name| carry_out(verb, name, fleet, screen))
        }
        [verb @ ("cut" | "heal"), name] => carry_out(verb, name, fleet, screen),
        _ => Err(anyhow::anyhow!(
            "unknown request {:?}: cut NAME, heal NAME, or {ALL} in place of a name",
            request.trim()
        )),
    };
    let text = match done {
        Ok(()) => "ok\n".to_owned(),
        Err(error) => format!("{error:#}\n"),
    };
    stream.write_all(text.as_bytes()).await
}

fn carry_out(verb: &str, name: &str, fleet: &Fleet, screen: &Screen) -> anyhow::Result<()> {
    let is_cut = verb == "cut";
    if is_cut {
        fleet.cut(name)?;
        let how = "by hand; heal it with: sandbox heal";
        screen.headline(&format!("{name} is cut off"), how);
    } else {
        fleet.heal(name)?;
        screen.headline(&format!("the network of {name} is back"), "by hand");
    }
    screen.mark_cut(name, is_cut);
    Ok(())
}

/// Asks the sandbox that runs in a directory.
pub async fn ask(directory: &Path, request: &str) -> anyhow::Result<()> {
    let path = socket(directory);
    let conversation = async {
        let stream = UnixStream::connect(&path).await.with_context(|| {
            format!(
                "no sandbox runs in {} (start one with: sandbox up --dir)",
                directory.display()
            )
        })?;
        let mut stream = BufReader::new(stream);
        stream.write_all(format!("{request}\n").as_bytes()).await?;
        let mut answer = String::new();
        stream.read_line(&mut answer).await?;
        match answer.trim() {
            "ok" => Ok(()),
            problem => anyhow::bail!("{problem}"),
        }
    };
    tokio::time::timeout(ANSWER, conversation)
        .await
        .context("the sandbox does not answer")?
}
