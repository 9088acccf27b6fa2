//! The sandbox: a whole fleet on this machine, to see a failover and to try one by hand.

pub mod continuity;
pub mod expect;
pub mod picture;
pub mod scenario;
pub mod screen;
pub mod story;

mod control;
mod draw;
mod intervals;
mod timeline;

use std::ffi::OsString;
use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context as _;
use clap::{Args, Parser, Subcommand};
use draw::Tone;
use muster_test_fleet::harness::dump::dump;
use muster_test_fleet::harness::fleet::Fleet;
use muster_test_fleet::harness::process;
use screen::Screen;
use story::{Failure, Story};
use tracing_subscriber::EnvFilter;

/// Shows a cluster failover from beginning to end on this machine: a fleet API, members, real
/// agents, the real control plane.
#[derive(Debug, Parser)]
#[command(name = "sandbox", version, args_conflicts_with_subcommands = true)]
struct Command {
    #[command(subcommand)]
    action: Option<Action>,
    #[command(flatten)]
    run: Run,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Start a fleet and keep it, to explore by hand with kubectl.
    Up(Run),
    /// Cut members of a running sandbox off from the fleet API.
    Cut(Target),
    /// Let members of a running sandbox back.
    Heal(Target),
}

#[derive(Debug, Args)]
struct Run {
    /// Where kubeconfigs and logs go; a temporary directory, removed in the end, when not given.
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// How many members.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u8).range(3..=50))]
    members: u8,
    /// Lines with times instead of a live table.
    #[arg(long)]
    plain: bool,
}

#[derive(Debug, Args)]
struct Target {
    /// Names of the members.
    #[arg(
        required_unless_present = "all",
        conflicts_with = "all",
        value_name = "NAME"
    )]
    names: Vec<String>,
    /// All members.
    #[arg(long)]
    all: bool,
    /// Directory of the running sandbox.
    #[arg(long, value_name = "DIR")]
    dir: PathBuf,
}

/// Runs the program. `arguments` begin with its own name.
pub fn execute(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    if let Some(code) = process::become_program(arguments.get(1..).unwrap_or_default()) {
        return code;
    }
    muster_shared::tls::install_provider();
    let command = match Command::try_parse_from(arguments) {
        Ok(command) => command,
        Err(error) => error.exit(),
    };
    match serve(command) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("sandbox: {error:#}");
            ExitCode::FAILURE
        }
    }
}

#[tokio::main]
async fn serve(command: Command) -> anyhow::Result<ExitCode> {
    match command.action {
        None => demonstrate(command.run).await,
        Some(Action::Up(run)) => stay_up(run).await,
        Some(Action::Cut(target)) => ask(&target, "cut").await,
        Some(Action::Heal(target)) => ask(&target, "heal").await,
    }
}

async fn ask(target: &Target, verb: &str) -> anyhow::Result<ExitCode> {
    let done = match verb {
        "cut" => "is cut off from the fleet API; let it back with: sandbox heal",
        _ => "reaches the fleet API again",
    };
    let all = target.all.then(|| control::ALL.to_owned());
    for name in all.iter().chain(&target.names) {
        control::ask(&target.dir, &format!("{verb} {name}")).await?;
        let who = if target.all {
            "every member"
        } else {
            name.as_str()
        };
        println!("{who} {done}");
    }
    Ok(ExitCode::SUCCESS)
}

/// A directory for a run: given and kept, or made and removed unless it is to be kept. It is locked
/// as long as the run lasts, so that no second one overwrites its files.
#[derive(Debug)]
struct Place {
    path: PathBuf,
    temporary: bool,
    /// Released by the system when the process ends, however it ends.
    _lock: File,
}

impl Place {
    fn new(given: Option<PathBuf>) -> anyhow::Result<Self> {
        let temporary = given.is_none();
        let path = given.unwrap_or_else(|| {
            let now = jiff::Timestamp::now().as_millisecond();
            // Short: temporary directories of macOS have 57 bytes, and the path of a socket in this
            // one has at most 103.
            std::env::temp_dir().join(format!("muster-{:x}-{now:x}", std::process::id()))
        });
        std::fs::create_dir_all(&path)
            .with_context(|| format!("cannot make {}", path.display()))?;
        let path = path
            .canonicalize()
            .with_context(|| format!("cannot use {}", path.display()))?;
        let lock = File::create(path.join("sandbox.lock"))
            .with_context(|| format!("cannot write to {}", path.display()))?;
        match lock.try_lock() {
            Ok(()) => Ok(Self {
                path,
                temporary,
                _lock: lock,
            }),
            Err(TryLockError::WouldBlock) => anyhow::bail!(
                "a sandbox runs in {} already: end it with Ctrl-C, or give another --dir",
                path.display()
            ),
            Err(TryLockError::Error(error)) => {
                Err(error).with_context(|| format!("cannot lock {}", path.display()))
            }
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if self.temporary {
            // It is in the system's place for temporary files: what cannot be removed now is
            // removed some day.
            let _ = std::fs::remove_dir_all(&self.path);
        }
    }
}

/// Members that a table on a usual terminal has room for; more are printed in lines.
const TABLE_MEMBERS: u8 = 12;

async fn start(run: &Run, place: &Place, screen: &Screen) -> anyhow::Result<Arc<Fleet>> {
    log_to(&place.path)?;
    let binary = std::env::current_exe().context("finding the sandbox's own binary")?;
    screen.say(&format!(
        "Starting a fleet API and {} members, with real agents and the real control plane (logs in {}).",
        run.members,
        place.path.join("logs").display()
    ));
    Fleet::start(scenario::plan(
        binary,
        place.path.clone(),
        run.members.into(),
    ))
    .await
}

/// Starts the log of what this process itself has to say: the embedded servers and the simulated
/// members.
fn log_to(directory: &Path) -> anyhow::Result<()> {
    let logs = directory.join("logs");
    std::fs::create_dir_all(&logs).with_context(|| format!("cannot make {}", logs.display()))?;
    let file =
        std::fs::File::create(logs.join("sandbox.log")).context("cannot write sandbox.log")?;
    tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::new("info,kube_client=error"))
        .with_writer(std::sync::Arc::new(file))
        .with_ansi(false)
        .with_target(false)
        .try_init()
        .map_err(|error| anyhow::anyhow!("cannot start logging: {error}"))
}

fn introduce(screen: &Screen) {
    let palette = screen.palette();
    screen.say(&palette.paint(
        Tone::Strong,
        "Muster: one member of a fleet is cut off, and its workloads come up elsewhere.",
    ));
    screen.say("");
    screen.say("Shortened so that it takes about a minute:");
    for interval in intervals::shortened() {
        let line = format!(
            "  {:<14}{:<32}{:>6}   in production {}",
            interval.whose, interval.name, interval.here, interval.usual
        );
        screen.say(&palette.paint(Tone::Quiet, &line));
    }
    screen.say("");
}

async fn demonstrate(run: Run) -> anyhow::Result<ExitCode> {
    let mut place = Place::new(run.dir.clone())?;
    let screen = Screen::new(run.plain || run.members > TABLE_MEMBERS);
    introduce(&screen);
    let outcome = tokio::select! {
        outcome = play(&run, &place, &screen) => outcome,
        () = until_signal() => {
            screen.finish();
            screen.say("Interrupted: everything is ended and cleaned up.");
            return Ok(ExitCode::from(130));
        }
    };
    match outcome {
        Ok(true) => Ok(ExitCode::SUCCESS),
        other => {
            place.temporary = false;
            screen.say(&format!(
                "Logs are kept in {}",
                place.path.join("logs").display()
            ));
            other.map(|_| ExitCode::FAILURE)
        }
    }
}

/// Plays the story; `false` when it did not end as expected.
async fn play(run: &Run, place: &Place, screen: &Screen) -> anyhow::Result<bool> {
    let fleet = start(run, place, screen).await?;
    let following = screen.follow(&fleet.observer);
    let mut story = None;
    let outcome = async {
        let story = story.insert(Story::begin(Arc::clone(&fleet), screen.clone()).await?);
        story.cut()?;
        story.until_unknown().await?;
        story.until_tainted().await?;
        story.until_moved().await?;
        story.until_healthy_elsewhere().await?;
        story.heal()?;
        story.until_old_copies_removed().await?;
        story.until_back().await?;
        story.rest().await
    }
    .await;
    drop(following);
    screen.finish();
    Ok(conclude(&fleet, screen, story.as_ref(), outcome).await)
}

async fn conclude(
    fleet: &Fleet,
    screen: &Screen,
    story: Option<&Story>,
    outcome: Result<(), Failure>,
) -> bool {
    let palette = screen.palette();
    let title = |text: &str| screen.say(&format!("\n{}", palette.paint(Tone::Strong, text)));
    title("Timeline");
    for line in screen.timeline() {
        screen.say(&format!("  {line}"));
    }
    let report = story.map(Story::report).unwrap_or_default();
    if !report.is_empty() {
        title("Observed through the APIs");
    }
    for (what, verdict) in &report {
        match verdict {
            Ok(()) => screen.say(&format!("  {} {what}", palette.paint(Tone::Good, "✓"))),
            Err(missing) => {
                let cross = palette.paint(Tone::Bad, "✗");
                screen.say(&format!("  {cross} {what}\n      {missing}"));
            }
        }
    }
    let memory = fleet.memory();
    let shown = ["control plane", "agent of member2"].into_iter();
    let shown: Vec<String> = shown
        .filter_map(|name| Some(format!("{name} {} MiB", memory.get(name)? / (1024 * 1024))))
        .collect();
    let build = if cfg!(debug_assertions) {
        " (an unoptimized build; about half with --release)"
    } else {
        ""
    };
    screen.say(&format!("\n  Memory: {}{build}", shown.join(", ")));
    let failure = match outcome {
        Err(failure) => failure.to_string(),
        Ok(()) if report.iter().any(|(_, verdict)| verdict.is_err()) => {
            "the end state did not last".to_owned()
        }
        Ok(()) => {
            let good = "The failover happened, and nothing was without a copy on the way.";
            screen.say(&format!("\n{}", palette.paint(Tone::Good, good)));
            return true;
        }
    };
    screen.say(&format!("\n{}", dump(fleet).await));
    screen.say(&format!(
        "{} {failure}",
        palette.paint(Tone::Bad, "Failed:")
    ));
    false
}

async fn stay_up(run: Run) -> anyhow::Result<ExitCode> {
    let place = Place::new(run.dir.clone())?;
    let screen = Screen::new(run.plain || run.members > TABLE_MEMBERS);
    let fleet = start(&run, &place, &screen).await?;
    let directory = place.path.display();
    std::fs::create_dir_all(place.path.join("manifests"))?;
    for (name, manifest) in scenario::MANIFESTS {
        std::fs::write(place.path.join("manifests").join(name), manifest)?;
    }
    let control = control::listen(&place.path, Arc::clone(&fleet), screen.clone())?;
    for line in [
        String::new(),
        "The fleet is up. Try, in another terminal:".to_owned(),
        format!("  export KUBECONFIG={directory}/fleet.kubeconfig"),
        "  kubectl get clusters".to_owned(),
        format!("  kubectl apply -f {directory}/manifests"),
        "  kubectl get rb -A -o wide".to_owned(),
        format!("  sandbox cut member1 --dir {directory}"),
        format!("  sandbox heal member1 --dir {directory}"),
        format!("Members: {directory}/member1.kubeconfig and so on. End with Ctrl-C."),
        String::new(),
    ] {
        screen.say(&line);
    }
    screen.headline("the fleet is up", "watching what you do");
    let _following = screen.follow(&fleet.observer);
    tokio::select! {
        () = control => {}
        () = until_signal() => {}
    }
    screen.finish();
    screen.say("Ended.");
    Ok(ExitCode::SUCCESS)
}

/// Waits for an interrupt or a request to end.
async fn until_signal() {
    let signal = tokio_util::sync::CancellationToken::new();
    muster_shared::tasks::stop_on_signal(signal).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_cut_off_and_healed_by_name_or_all_at_once() {
        for (words, expected) in [
            (&["member1", "member2"][..], Some((false, 2))),
            (&["--all"], Some((true, 0))),
            (&["member1", "--all"], None),
            (&[], None),
        ] {
            for verb in ["cut", "heal"] {
                let line = ["sandbox", verb, "--dir=/tmp"].into_iter();
                let parsed = Command::try_parse_from(line.chain(words.iter().copied()));
                let found = parsed.ok().and_then(|it| match it.action? {
                    Action::Cut(it) | Action::Heal(it) => Some((it.all, it.names.len())),
                    Action::Up(_) => None,
                });
                assert_eq!(found, expected, "{verb} {words:?}");
            }
        }
    }

    #[test]
    fn a_directory_belongs_to_the_sandbox_that_runs_in_it() {
        let directory = std::env::temp_dir().join(format!("muster-place-{}", std::process::id()));
        let first = Place::new(Some(directory.clone())).unwrap();
        let kubeconfig = first.path.join("fleet.kubeconfig");
        std::fs::write(&kubeconfig, "the first one's").unwrap();
        let refusal = Place::new(Some(directory.clone())).unwrap_err().to_string();
        assert!(refusal.contains("already"), "{refusal}");
        assert_eq!(
            std::fs::read_to_string(&kubeconfig).unwrap(),
            "the first one's"
        );
        drop(first);
        drop(Place::new(Some(directory.clone())).unwrap());
        std::fs::remove_dir_all(directory).unwrap();
    }
}
