//! The live display: a table that is drawn over itself on a terminal, lines with times elsewhere.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io::IsTerminal as _;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::draw::{Palette, Scene, Tone, draw};
use super::picture::{Picture, events};
use super::timeline::Timeline;
use muster_test_fleet::harness::observer::{Observer, View};

/// How often the clock on a terminal moves.
const TICK: Duration = Duration::from_millis(500);
/// The shortest time between two drawings: quicker is not seen, and costs the fleet its CPU.
const PAUSE: Duration = Duration::from_millis(100);

/// Where the story is printed.
#[derive(Clone)]
pub struct Screen {
    inner: Arc<Mutex<Inner>>,
    palette: Palette,
    manner: Manner,
}

/// How the story is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Manner {
    /// A table that is drawn over itself.
    Live,
    /// Lines with times.
    Plain,
    /// Not at all, as in tests.
    Silent,
}

struct Inner {
    timeline: Timeline,
    headline: String,
    because: String,
    cut: BTreeSet<String>,
    picture: Picture,
    events: Vec<String>,
    /// Lines of the table that is on the terminal now.
    drawn: usize,
}

impl Screen {
    /// Returns a screen with a live table if standard output is a terminal and nobody asked for
    /// plain lines (`--plain`, `NO_COLOR`).
    pub fn new(plain: bool) -> Self {
        let no_colour = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let live = !plain && !no_colour && std::io::stdout().is_terminal();
        Self::printing(if live { Manner::Live } else { Manner::Plain })
    }

    /// Returns a screen that shows nothing and only keeps the time.
    pub fn silent() -> Self {
        Self::printing(Manner::Silent)
    }

    fn printing(manner: Manner) -> Self {
        let inner = Inner {
            timeline: Timeline::begin(),
            headline: String::new(),
            because: String::new(),
            cut: BTreeSet::new(),
            picture: Picture::default(),
            events: Vec::new(),
            drawn: 0,
        };
        Self {
            inner: Arc::new(Mutex::new(inner)),
            palette: Palette {
                colours: manner == Manner::Live,
            },
            manner,
        }
    }

    /// Returns the colours of this screen.
    pub fn palette(&self) -> Palette {
        self.palette
    }

    /// Prints a line above the table.
    pub fn say(&self, line: &str) {
        let mut inner = self.inner.lock();
        if self.manner != Manner::Silent {
            self.erase(&mut inner);
            put(&format!("{line}\n"));
            self.redraw(&mut inner);
        }
    }

    /// Says what happens now, and why.
    pub fn headline(&self, headline: &str, because: &str) {
        let mut inner = self.inner.lock();
        headline.clone_into(&mut inner.headline);
        because.clone_into(&mut inner.because);
        self.stamp(&inner, &format!("— {headline}"));
        if !because.is_empty() {
            self.stamp(&inner, &format!("  {because}"));
        }
        self.redraw(&mut inner);
    }

    /// Shows whether a cluster is cut off.
    pub fn mark_cut(&self, cluster: &str, cut: bool) {
        let mut inner = self.inner.lock();
        if cut {
            inner.cut.insert(cluster.to_owned());
        } else {
            inner.cut.remove(cluster);
        }
        self.redraw(&mut inner);
    }

    /// Notes a milestone.
    pub fn reach(&self, what: &str) {
        let mut inner = self.inner.lock();
        inner.timeline.reach(what);
        self.stamp(&inner, &format!("✓ {what}"));
    }

    /// Returns the milestones so far, a line each.
    pub fn timeline(&self) -> Vec<String> {
        self.inner.lock().timeline.lines()
    }

    /// Follows what is observed until the guard is dropped.
    pub fn follow(&self, observer: &Observer) -> DropGuard {
        let ending = CancellationToken::new();
        let (screen, mut changes, view) = (self.clone(), observer.changes(), observer.view.clone());
        let ended = ending.clone();
        tokio::spawn(async move {
            loop {
                screen.show(&view);
                let stir = async {
                    // The observer may be gone; then only the guard ends us.
                    if tokio::time::timeout(TICK, changes.changed())
                        .await
                        .is_ok_and(|read| read.is_err())
                    {
                        std::future::pending::<()>().await;
                    }
                };
                tokio::select! {
                    () = ended.cancelled() => return,
                    () = async { tokio::join!(stir, tokio::time::sleep(PAUSE)); } => {}
                }
            }
        });
        ending.drop_guard()
    }

    /// Ends the live table and leaves it on the terminal.
    pub fn finish(&self) {
        let mut inner = self.inner.lock();
        if inner.drawn > 0 {
            // Lines wrap again, and the cursor is back.
            put("\x1b[?7h\x1b[?25h");
        }
        inner.drawn = 0;
        inner.headline.clear();
    }

    fn show(&self, view: &View) {
        let picture = Picture::of(view);
        let mut inner = self.inner.lock();
        let lines = events(&inner.picture, &picture);
        let elapsed = inner.timeline.elapsed();
        for line in lines {
            self.stamp(&inner, &format!("  {line}"));
            inner
                .events
                .push(format!("{:>5.1} s  {line}", elapsed.as_secs_f64()));
        }
        inner.picture = picture;
        self.redraw(&mut inner);
    }

    /// Prints a line with its time, where the story is printed in lines.
    fn stamp(&self, inner: &Inner, line: &str) {
        if self.manner != Manner::Plain {
            return;
        }
        let seconds = format!("{:>6.1} s", inner.timeline.elapsed().as_secs_f64());
        put(&format!(
            "{}  {line}
",
            self.palette.paint(Tone::Quiet, &seconds)
        ));
    }

    fn erase(&self, inner: &mut Inner) {
        if self.manner == Manner::Live && inner.drawn > 0 {
            put(&format!("\x1b[{}A\x1b[J", inner.drawn));
            inner.drawn = 0;
        }
    }

    fn redraw(&self, inner: &mut Inner) {
        if self.manner != Manner::Live || inner.headline.is_empty() {
            return;
        }
        let scene = Scene {
            elapsed: inner.timeline.elapsed(),
            headline: &inner.headline,
            because: &inner.because,
            picture: &inner.picture,
            cut: &inner.cut,
            events: &inner.events,
        };
        let lines = draw(&scene, self.palette, rows());
        // One write for the whole picture, without a visible cursor and without wrapped lines:
        // nothing flickers.
        let mut text = String::from("\x1b[?25l\x1b[?7l");
        if inner.drawn > 0 {
            let _ = write!(text, "\x1b[{}A", inner.drawn);
        }
        for line in &lines {
            text.push_str(line);
            text.push_str("\x1b[K\n");
        }
        inner.drawn = lines.len();
        put(&text);
    }
}

/// Rows of the terminal, asked at each drawing because people resize it; those of the classic
/// terminal if it does not say.
fn rows() -> usize {
    terminal_size::terminal_size().map_or(24, |(_, height)| usize::from(height.0))
}

/// Writes to standard output. Whoever closed it does not want to read on, which is no reason to
/// end.
fn put(text: &str) {
    use std::io::Write as _;
    let mut output = std::io::stdout().lock();
    let _ = output
        .write_all(text.as_bytes())
        .and_then(|()| output.flush());
}
