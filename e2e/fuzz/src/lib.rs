//! Gives a parser inputs that are mutated from a kept corpus.
//!
//! A target is a function that reads bytes, checks what it got, and panics where a promise does not
//! hold: that reading ends, that what is printed is read as the same, that a second reader agrees.
//! It returns in a few words what became of the input. An input that brings a new outcome is kept
//! for further mutation: outcomes take the place of the coverage that fuzzers of nightly Rust
//! measure.
//!
//! ```
//! use muster_fuzz::Fuzz;
//!
//! let fuzz = Fuzz::new("example").words(&["true", "false", " "]);
//! let done = fuzz.run_text(|text| match text.trim().parse::<bool>() {
//!     Ok(truth) => {
//!         assert_eq!(truth.to_string().parse(), Ok(truth));
//!         format!("reads {truth}")
//!     }
//!     Err(_) => "refused".to_owned(),
//! });
//! assert!(done.executions >= 1_000);
//! ```
//!
//! # Where inputs come from
//!
//! The files of `corpus/NAME` and `regressions/NAME` are run first. Then inputs are mutated, from a
//! fixed seed and so many times ([`Fuzz::executions`]), so that every run is the same. These
//! variables change that:
//!
//! | variable | meaning |
//! |---|---|
//! | `MUSTER_FUZZ_MINUTES` | minutes for each target, instead of a number of executions |
//! | `MUSTER_FUZZ_SEED` | another seed; with minutes, the time of the day if it is not given |
//! | `MUSTER_FUZZ_KEEP` | if set, short inputs with new outcomes are written to the corpus |
//!
//! # What fails
//!
//! A panic; an execution that takes more processor time than [`Fuzz::longest_time`] three times in
//! a row; one that allocates more than [`Fuzz::memory`]. The input is made shorter as long as it
//! still fails, and written to `regressions/NAME`, where it stays as a test. An input that ends the
//! process (a stack overflow) cannot be written: with minutes, each input is written to
//! `target/fuzz/NAME` before it is run.

mod bounds;
mod corpus;
mod mutate;
mod random;

use std::borrow::Cow;
use std::cell::Cell;
use std::collections::HashSet;
use std::env;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;
use std::time::{Duration, Instant, SystemTime};

pub use bounds::Memory;
pub use mutate::sentence;
use parking_lot::Mutex;
pub use random::Random;

/// Inputs with different outcomes that are kept in memory for mutation.
const MOST_KEPT: usize = 4_000;
/// Attempts to make a failing input shorter.
const SHRINKING: usize = 2_000;
/// Seed of runs that are always the same.
const SEED: u64 = 0x6d75_7374_6572;

/// One target at a time: allocations are counted for the whole process.
static ALONE: Mutex<()> = Mutex::new(());

/// Inputs and limits of a target.
pub struct Fuzz {
    name: &'static str,
    words: &'static [&'static str],
    generator: Option<fn(&mut Random) -> Vec<u8>>,
    seeds: Vec<Vec<u8>>,
    executions: usize,
    longest: usize,
    time: Duration,
    memory: Option<Memory>,
}

/// What a run did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Done {
    /// Executions of the target.
    pub executions: usize,
    /// Different outcomes.
    pub outcomes: usize,
}

impl Fuzz {
    /// Names a target. Its corpus is `corpus/NAME`.
    pub fn new(name: &'static str) -> Self {
        Self {
            name,
            words: &[],
            generator: None,
            seeds: Vec::new(),
            executions: 1_000,
            longest: 2_048,
            time: Duration::from_millis(500),
            memory: None,
        }
    }

    /// Sets texts of the format, of which inputs are made.
    #[must_use]
    pub const fn words(mut self, words: &'static [&'static str]) -> Self {
        self.words = words;
        self
    }

    /// Sets a function that makes inputs which are mostly well formed.
    #[must_use]
    pub const fn generator(mut self, generator: fn(&mut Random) -> Vec<u8>) -> Self {
        self.generator = Some(generator);
        self
    }

    /// Adds an input that is no file, such as one with a key that is made anew.
    #[must_use]
    pub fn seed(mut self, input: impl Into<Vec<u8>>) -> Self {
        self.seeds.push(input.into());
        self
    }

    /// Sets the number of mutated inputs of a run without minutes.
    #[must_use]
    pub const fn executions(mut self, executions: usize) -> Self {
        self.executions = executions;
        self
    }

    /// Sets the bytes of the longest input.
    #[must_use]
    pub const fn longest(mut self, bytes: usize) -> Self {
        self.longest = bytes;
        self
    }

    /// Sets the processor time that an execution may take in a debug build.
    #[must_use]
    pub const fn longest_time(mut self, time: Duration) -> Self {
        self.time = time;
        self
    }

    /// Sets the bytes that an execution may allocate.
    #[must_use]
    pub const fn memory(mut self, memory: Memory) -> Self {
        self.memory = Some(memory);
        self
    }

    /// Runs a target that reads text. Bytes that are no UTF-8 are replaced.
    ///
    /// # Panics
    /// As [`Fuzz::run`].
    pub fn run_text(&self, target: impl Fn(&str) -> String) -> Done {
        self.run(|bytes| target(&String::from_utf8_lossy(bytes)))
    }

    /// Runs a target.
    ///
    /// # Panics
    /// The target panics or exceeds a limit. The message has the shortest input that does so.
    pub fn run(&self, target: impl Fn(&[u8]) -> String) -> Done {
        let _alone = ALONE.lock();
        let minutes: Option<f64> = variable("MUSTER_FUZZ_MINUTES");
        let end = minutes.map(|minutes| Instant::now() + Duration::from_secs_f64(60.0 * minutes));
        let seed = variable("MUSTER_FUZZ_SEED").unwrap_or_else(|| fresh_seed(minutes.is_some()));
        let keep = env::var_os("MUSTER_FUZZ_KEEP").is_some();

        let mut inputs = corpus::load(self.name);
        inputs.extend(self.seeds.iter().cloned());
        inputs.push(Vec::new());
        let mut outcomes = HashSet::new();
        let mut executions = 0;
        for input in &inputs {
            outcomes.insert(self.execute(&target, input, seed));
            executions += 1;
        }
        let mut random = Random::new(seed);
        let mut mutated = 0;
        while end.map_or(mutated < self.executions, |end| Instant::now() < end) {
            let input = self.next(&inputs, &mut random);
            if end.is_some() {
                corpus::note(self.name, &input);
            }
            let outcome = self.execute(&target, &input, seed);
            mutated += 1;
            if inputs.len() < MOST_KEPT && outcomes.insert(outcome) {
                if keep {
                    corpus::keep(self.name, &input);
                }
                inputs.push(input);
            }
        }
        let done = Done {
            executions: executions + mutated,
            outcomes: outcomes.len(),
        };
        println!(
            "fuzz {}: {} executions, {} outcomes, seed {seed}",
            self.name, done.executions, done.outcomes
        );
        done
    }

    fn next(&self, inputs: &[Vec<u8>], random: &mut Random) -> Vec<u8> {
        let mut input = match (random.below(4), self.generator) {
            (0 | 1, Some(generator)) => generator(random),
            (0, None) => mutate::sentence(self.words, random),
            _ => random.one_of(inputs).clone(),
        };
        input.truncate(self.longest);
        if self.generator.is_none() || !random.once_in(4) {
            let other = random.one_of(inputs);
            mutate::mutate(&mut input, other, self.words, self.longest, random);
        }
        input
    }

    /// Runs one input and returns its outcome, shortened.
    fn execute(&self, target: &dyn Fn(&[u8]) -> String, input: &[u8], seed: u64) -> String {
        match self.attempt(target, input) {
            Ok(outcome) => outcome,
            Err(failure) => self.fail(target, input, &failure, seed),
        }
    }

    fn attempt(&self, target: &dyn Fn(&[u8]) -> String, input: &[u8]) -> Result<String, String> {
        let allocated = || self.memory.map_or(0, |memory| (memory.allocated)());
        let (before, start) = (allocated(), Instant::now());
        let outcome = caught(|| target(input))?;
        let used = allocated() - before;
        if start.elapsed() > self.time {
            let again = || bounds::measure(|| drop(caught(|| target(input))));
            let times: [Duration; 3] = std::array::from_fn(|_| again());
            if let Some(least) = times.into_iter().min().filter(|least| *least > self.time) {
                return Err(format!("took {least:?}, more than {:?}", self.time));
            }
        }
        let limit = self.memory.map_or(usize::MAX, |it| it.limit(input.len()));
        if used > limit {
            return Err(format!("allocated {used} bytes, more than {limit}"));
        }
        Ok(class(&outcome))
    }

    fn fail(&self, target: &dyn Fn(&[u8]) -> String, input: &[u8], failure: &str, seed: u64) -> ! {
        let (mut input, mut failure) = (input.to_vec(), failure.to_owned());
        let mut left = SHRINKING;
        let mut piece = input.len().div_ceil(2);
        while piece > 0 && left > 0 {
            let mut at = 0;
            while at < input.len() && left > 0 {
                let mut shorter = input.clone();
                shorter.drain(at..input.len().min(at + piece));
                left -= 1;
                match self.attempt(target, &shorter) {
                    Err(again) => (input, failure) = (shorter, again),
                    Ok(_) => at += piece,
                }
            }
            piece /= 2;
        }
        let file = corpus::regression(self.name, &input);
        #[expect(clippy::panic, reason = "the test fails")]
        {
            panic!(
                "fuzz {}: {failure}\ninput: b\"{}\"\nwritten to {file}; seed {seed}",
                self.name,
                input.escape_ascii(),
            )
        }
    }
}

/// Returns the value of a variable that is set and can be read.
fn variable<T: std::str::FromStr>(name: &str) -> Option<T> {
    env::var(name).ok()?.parse().ok()
}

fn fresh_seed(fresh: bool) -> u64 {
    let now = || SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let nanoseconds = || now().map_or(SEED, |since| since.as_secs());
    if fresh { nanoseconds() } else { SEED }
}

/// Returns the kind of an outcome: its text without digits, and without what is between
/// quotation marks.
fn class(outcome: &str) -> String {
    const LONGEST: usize = 120;
    let mut quoted = false;
    outcome
        .chars()
        .filter(|character| {
            quoted ^= *character == '"';
            !quoted && !character.is_ascii_digit()
        })
        .take(LONGEST)
        .collect()
}

thread_local! {
    /// Whether panics of this thread are expected, and not to be printed.
    static QUIET: Cell<bool> = const { Cell::new(false) };
}

/// Runs a function; a panic becomes its message.
fn caught<T>(run: impl FnOnce() -> T) -> Result<T, String> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            if !QUIET.get() {
                before(panic);
            }
        }));
    });
    QUIET.set(true);
    let result = catch_unwind(AssertUnwindSafe(run));
    QUIET.set(false);
    result.map_err(|panic| {
        let text = panic
            .downcast_ref::<String>()
            .map(|text| Cow::Borrowed(&**text));
        let text = text.or_else(|| {
            panic
                .downcast_ref::<&str>()
                .map(|text| Cow::Borrowed(*text))
        });
        format!("panicked: {}", text.unwrap_or_default())
    })
}
