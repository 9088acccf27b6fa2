//! Remembers what was reported of templates, so that each thing is reported once.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;

use crate::fleet::memory::Since;
use crate::fleet::template::TemplateKey;

/// What was reported of templates. May be lost.
#[derive(Default)]
pub(super) struct Reported {
    /// Notes that were published last about each template, by what they are about.
    notes: Mutex<HashMap<TemplateKey, HashMap<String, String>>>,
    /// Times since when templates wait for something that may come.
    waiting: Since<TemplateKey>,
}

impl Reported {
    /// Notes what is reported of a template about a subject, and returns whether it is something
    /// else than before.
    pub(super) fn is_update(&self, key: &TemplateKey, subject: &str, note: &str) -> bool {
        let mut all = self.notes.lock();
        let of_template = all.entry(key.clone()).or_default();
        let known = of_template.insert(subject.to_owned(), note.to_owned());
        known.as_deref() != Some(note)
    }

    /// Forgets what was reported of a template about a subject: it is over, and is reported anew
    /// when it comes again.
    pub(super) fn settle(&self, key: &TemplateKey, subject: &str) {
        self.settle_each(key, |it| it == subject);
    }

    /// Forgets what was reported of a template about each subject that is over.
    pub(super) fn settle_each(&self, key: &TemplateKey, is_over: impl Fn(&str) -> bool) {
        let mut all = self.notes.lock();
        if let Some(of_template) = all.get_mut(key) {
            of_template.retain(|subject, _| !is_over(subject));
            if of_template.is_empty() {
                all.remove(key);
            }
        }
    }

    /// Forgets everything that was reported of a template.
    pub(super) fn forget(&self, key: &TemplateKey) {
        self.notes.lock().remove(key);
        self.arrived(key);
    }

    /// Returns how much longer a template waits for something that may come, of this time in all;
    /// `None` once it has waited for so long.
    pub(super) fn waits(&self, key: &TemplateKey, time: Duration) -> Option<Duration> {
        self.waiting.rest(key, (), time)
    }

    /// Forgets that a template waited: what it waited for is there.
    pub(super) fn arrived(&self, key: &TemplateKey) {
        self.waiting.forget(key);
    }
}
