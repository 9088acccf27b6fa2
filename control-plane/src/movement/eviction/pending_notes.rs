//! What is known of the evictions of one workload, and what of it was written.

use std::time::Duration;

use muster_shared::conditions;
use muster_shared::k8s::Condition;
use tokio::time::Instant;

use super::explain::{self, EvictionState, Note};

/// How long the reason why no cluster takes a workload may be out of date, while that there is none
/// stays true: the numbers in it change with every report of any cluster.
const STALE: Duration = Duration::from_mins(5);
/// How long a process that has just begun to act leaves alone what was said of a workload before,
/// when all it knows itself is that the workload waits for the rate, or stays as it did.
pub const LONGEST_START: Duration = Duration::from_mins(1);

/// What is known of one workload: what is pending, and what came to an end and was not reported
/// yet. One entry for each cluster, by name. A list, since there are as many of these as workloads
/// wait, and most have one entry.
#[derive(Clone, Debug, Default)]
pub struct PendingNotes(Vec<Entry>);

#[derive(Clone, Debug)]
struct Entry {
    note: Note,
    /// Time at which the note was written.
    reported: Option<Instant>,
    /// When it was taken, if this process knew nothing of the workload on the cluster before.
    first: Option<Instant>,
    /// The note that came within [`STALE`] after this one was written. It is written after that
    /// time.
    later: Option<Box<Note>>,
}

/// Time at which a note is to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteAt {
    /// The note is known, or waits already to be written.
    None,
    /// At once.
    Now,
    /// After a while, if it is still true.
    In(Duration),
}

/// Result of comparing a note with the present state, before the note is written.
#[derive(Clone, Debug, PartialEq)]
pub enum Revision {
    /// The note is still true.
    Kept,
    /// The note is not true any more; this state is written in its place.
    Over(EvictionState),
    /// The note is not true any more and was never written, so that it is dropped.
    Forgotten,
}

impl PendingNotes {
    /// Takes a note; says whether it is new.
    pub fn take(&mut self, note: Note, now: Instant) -> WriteAt {
        match self.place(&note.cluster) {
            Ok(at) => {
                let known = &mut self.0[at];
                let is_same = known.note == note;
                let both_nowhere = matches!(
                    (&known.note.state, &note.state),
                    (EvictionState::Nowhere { .. }, EvictionState::Nowhere { .. })
                );
                if let Some(reported) = known.reported {
                    let wait = STALE.saturating_sub(now.duration_since(reported));
                    if is_same {
                        known.later = None;
                        return WriteAt::None;
                    }
                    if both_nowhere && !wait.is_zero() {
                        let is_awaited = known.later.replace(Box::new(note)).is_some();
                        return if is_awaited {
                            WriteAt::None
                        } else {
                            WriteAt::In(wait)
                        };
                    }
                }
                *known = Entry {
                    note,
                    reported: None,
                    first: known.first.filter(|_| is_same),
                    later: None,
                };
                WriteAt::Now
            }
            Err(at) => {
                self.0.reserve_exact(1);
                let entry = Entry {
                    note,
                    reported: None,
                    first: Some(now),
                    later: None,
                };
                self.0.insert(at, entry);
                WriteAt::Now
            }
        }
    }

    /// Puts each later note in the place of the written one that has become older than [`STALE`].
    pub fn ripen(&mut self, now: Instant) {
        for entry in &mut self.0 {
            let is_stale = |reported: Instant| now.duration_since(reported) >= STALE;
            if entry.reported.is_some_and(is_stale)
                && let Some(later) = entry.later.take()
            {
                (entry.note, entry.reported) = (*later, None);
            }
        }
    }

    /// Returns the time until the first later note has to be written; `None` if there is none.
    pub fn ripens(&self, now: Instant) -> Option<Duration> {
        let waiting = self.0.iter().filter(|entry| entry.later.is_some());
        let reported = waiting.filter_map(|entry| entry.reported).min()?;
        Some(STALE.saturating_sub(now.duration_since(reported)))
    }

    /// Returns all notes.
    pub fn notes(&self) -> Vec<Note> {
        self.0.iter().map(|entry| entry.note.clone()).collect()
    }

    /// Returns the notes that were not written yet.
    pub fn to_publish(&self) -> impl Iterator<Item = &Note> {
        let to_publish = self.0.iter().filter(|entry| entry.reported.is_none());
        to_publish.map(|entry| &entry.note)
    }

    /// Returns how long the present message of the condition is left as it is. A process that has
    /// just begun to act knows that a workload waits for the rate before it learns the reason that
    /// was known before, and that is written on the binding.
    pub fn wait(&self, known: Option<&Condition>, now: Instant) -> Option<Duration> {
        let known = known.filter(|it| it.status == conditions::TRUE)?;
        if !explain::STRANDED.contains(&known.reason.as_str()) {
            // A pause, say, may have ended meanwhile.
            return None;
        }
        let to_publish = || self.0.iter().filter(|entry| entry.reported.is_none());
        let is_said = |entry: &Entry| {
            let Note { cluster, state } = &entry.note;
            entry.first.is_some()
                && matches!(state, EvictionState::Queued { .. })
                && explain::names_cluster(&known.message, cluster)
        };
        let since = self.0.iter().filter_map(|entry| entry.first).min()?;
        let wait = LONGEST_START.saturating_sub(now.duration_since(since));
        // The condition does not speak of clusters that it need not leave while there is another.
        let is_silent = |entry: &Entry| matches!(entry.note.state, EvictionState::Stays { .. });
        let is_known =
            to_publish().all(|it| is_said(it) || is_silent(it)) && to_publish().any(is_said);
        (!wait.is_zero() && is_known).then_some(wait)
    }

    /// Notes that these notes were written, and forgets what came to an end.
    pub fn reported(&mut self, notes: &[Note], now: Instant) {
        for note in notes {
            let Ok(at) = self.place(&note.cluster) else {
                continue;
            };
            if self.0[at].note != *note {
                // There has been another note since.
                continue;
            }
            if note.is_pending() {
                self.0[at].reported.get_or_insert(now);
            } else {
                self.0.remove(at);
            }
        }
    }

    /// Applies a revision to each note.
    pub fn revise(&mut self, revision: impl Fn(&Note) -> Revision) {
        self.0.retain_mut(|entry| match revision(&entry.note) {
            Revision::Kept => true,
            Revision::Over(state) => {
                (entry.note.state, entry.reported, entry.later) = (state, None, None);
                true
            }
            Revision::Forgotten => false,
        });
    }

    /// Returns whether there are no notes.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn place(&self, cluster: &str) -> Result<usize, usize> {
        self.0
            .binary_search_by(|entry| entry.note.cluster.as_str().cmp(cluster))
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    fn note(cluster: &str, state: EvictionState) -> Note {
        Note {
            cluster: cluster.into(),
            state,
        }
    }

    /// Returns the note that no other cluster takes the workload of a cluster.
    pub fn nowhere(cluster: &str, why: &str) -> Note {
        let (cause, why) = ("taint x:NoExecute".into(), why.into());
        note(cluster, EvictionState::Nowhere { cause, why })
    }

    #[tokio::test(start_paused = true)]
    async fn that_there_is_no_place_is_written_once_and_its_numbers_not_with_every_report() {
        let start = Instant::now();
        let mut pending = PendingNotes::default();
        assert_eq!(
            pending.take(nowhere("m1", "3 are full"), start),
            WriteAt::Now
        );
        pending.reported(&pending.notes(), start);
        let mut written = Vec::new();
        for second in 0..3_600 {
            let now = start + Duration::from_secs(second);
            let when = pending.take(nowhere("m1", &format!("{second} are full")), now);
            if when == WriteAt::Now {
                written.push(second);
                pending.reported(&pending.notes(), now);
            }
        }
        let expected: Vec<u64> = (1..12).map(|five| five * 300).collect();
        assert_eq!(written, expected, "one every five minutes");
        let queued = note("m1", EvictionState::Queued { cause: "x".into() });
        let when = pending.take(queued.clone(), start);
        assert_eq!(when, WriteAt::Now, "another state");
        pending.reported(&pending.notes(), start);
        assert_eq!(pending.take(queued, start), WriteAt::None, "the same");
    }

    #[tokio::test(start_paused = true)]
    async fn the_last_numbers_are_written_though_nothing_comes_after_them() {
        let start = Instant::now();
        let later = |seconds| start + Duration::from_secs(seconds);
        let mut pending = PendingNotes::default();
        pending.take(nowhere("m1", "3 are full"), start);
        pending.reported(&pending.notes(), start);
        let wait = WriteAt::In(Duration::from_secs(290));
        assert_eq!(pending.take(nowhere("m1", "4 are full"), later(10)), wait);
        let when = pending.take(nowhere("m1", "5 are full"), later(20));
        assert_eq!(when, WriteAt::None, "that is awaited already");
        pending.ripen(later(299));
        assert_eq!(pending.to_publish().count(), 0);
        assert_eq!(pending.ripens(later(299)), Some(Duration::from_secs(1)));
        pending.ripen(later(300));
        let to_publish: Vec<&Note> = pending.to_publish().collect();
        assert_eq!(to_publish, [&nowhere("m1", "5 are full")]);
        pending.reported(&pending.notes(), later(300));
        let when = pending.take(nowhere("m1", "6 are full"), later(310));
        assert_eq!(when, wait, "and so on");
        pending.take(nowhere("m1", "5 are full"), later(320));
        pending.ripen(later(600));
        assert_eq!(pending.to_publish().count(), 0, "it is as it was reported");
        assert_eq!(pending.ripens(later(600)), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_fresh_process_leaves_what_was_said_until_it_has_judged_anew_or_a_minute_is_over() {
        let start = Instant::now();
        let later = |seconds| start + Duration::from_secs(seconds);
        let queued = |cluster| note(cluster, EvictionState::Queued { cause: "x".into() });
        let said = |notes: &[Note]| explain::condition(notes, jiff::Timestamp::UNIX_EPOCH);
        let stranded = said(&[nowhere("m1", "full")]);
        let stays = |cluster| {
            let state = EvictionState::Stays {
                rule: crate::movement::eviction::judge::Stay::NotAsked,
                taints: "x".to_owned(),
                since: None,
            };
            note(cluster, state)
        };
        let (cause, why) = ("x".to_owned(), "of an upgrade".to_owned());
        let paused = said(&[note("m1", EvictionState::Paused { cause, why })]);
        let over = said(&[note("m1", EvictionState::Recovered)]);
        let (one, full) = (queued("m1"), nowhere("m1", "full"));
        let (two, twice) = ([&one, &queued("m2")], [&one, &one]);
        let (need_not, judged) = ([&one, &stays("m2")], [&full, &one]);
        for (what, known, notes, second, expected) in [
            ("it was said", &stranded, &[&one][..], 1, Some(59)),
            ("for long", &stranded, &[&one], 60, None),
            ("of another", &stranded, &[&queued("m2")], 1, None),
            ("of one", &stranded, &two, 1, None),
            ("need not leave another", &stranded, &need_not, 1, Some(59)),
            ("need not leave it", &stranded, &[&stays("m1")], 1, None),
            ("nothing", &None, &[&one], 1, None),
            ("a pause", &paused, &[&one], 1, None),
            ("it is over", &over, &[&one], 1, None),
            ("twice", &stranded, &twice, 1, Some(59)),
            ("judged", &stranded, &[&nowhere("m1", "gone")], 1, None),
            ("judged, then queued", &stranded, &judged, 1, None),
        ] {
            let mut pending = PendingNotes::default();
            for note in notes {
                pending.take(Note::clone(note), start);
            }
            let wait = pending.wait(known.as_ref(), later(second));
            assert_eq!(wait.map(|it| it.as_secs()), expected, "{what}");
        }
    }

    #[test]
    fn what_has_come_to_an_end_before_it_was_reported_is_reported_so_or_forgotten() {
        let now = Instant::now();
        let mut pending = PendingNotes::default();
        for cluster in ["m1", "m2", "m3"] {
            pending.take(nowhere(cluster, "full"), now);
        }
        pending.reported(&pending.notes(), now);
        pending.revise(|note| match note.cluster.as_str() {
            "m1" => Revision::Kept,
            "m2" => Revision::Over(EvictionState::Recovered),
            _ => Revision::Forgotten,
        });
        let to_publish: Vec<&Note> = pending.to_publish().collect();
        assert_eq!(to_publish, [&note("m2", EvictionState::Recovered)]);
        assert_eq!(pending.notes().len(), 2);
    }

    #[test]
    fn memory_keeps_what_is_pending_until_that_comes_to_an_end() {
        let now = Instant::now();
        let mut pending = PendingNotes::default();
        pending.take(nowhere("m1", "full"), now);
        pending.take(nowhere("m2", "full"), now);
        pending.reported(&pending.notes(), now);
        pending.take(note("m1", EvictionState::Recovered), now);
        let to_publish: Vec<&Note> = pending.to_publish().collect();
        assert_eq!(to_publish, [&note("m1", EvictionState::Recovered)]);
        assert_eq!(pending.notes().len(), 2, "the condition speaks of both");
        let written = pending.notes();
        pending.take(nowhere("m1", "full"), now);
        pending.reported(&written, now);
        assert_eq!(
            pending.to_publish().count(),
            1,
            "what came meanwhile is written, too"
        );
        pending.take(note("m1", EvictionState::Moved), now);
        pending.take(note("m2", EvictionState::Moved), now);
        pending.reported(&pending.notes(), now);
        assert!(pending.0.is_empty());
    }
}
