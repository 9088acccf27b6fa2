//! Remembers what was reported of templates, so that each thing is reported once.

use std::collections::HashMap;

use parking_lot::Mutex;

use crate::fleet::template::TemplateKey;

/// Notes that were published last about each template, by what they are about. May be lost.
#[derive(Default)]
pub(super) struct Reported(Mutex<HashMap<TemplateKey, HashMap<String, String>>>);

impl Reported {
    /// Notes what is reported of a template about a subject, and returns whether it is something
    /// else than before.
    pub(super) fn is_update(&self, key: &TemplateKey, subject: &str, note: &str) -> bool {
        let mut all = self.0.lock();
        let of_template = all.entry(key.clone()).or_default();
        let known = of_template.insert(subject.to_owned(), note.to_owned());
        known.as_deref() != Some(note)
    }

    /// Forgets what was reported of a template about a subject: it is over, and is reported anew
    /// when it comes again.
    pub(super) fn settle(&self, key: &TemplateKey, subject: &str) {
        if let Some(of_template) = self.0.lock().get_mut(key) {
            of_template.remove(subject);
        }
    }

    /// Forgets everything that was reported of a template.
    pub(super) fn forget(&self, key: &TemplateKey) {
        self.0.lock().remove(key);
    }
}
