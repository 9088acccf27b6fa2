//! An audit log of writes, for tests that want none.

use http::{Method, StatusCode};
use parking_lot::Mutex;
use tokio::sync::Notify;

/// A request to change something, whatever the answer was.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Write {
    /// Who asked.
    pub user: String,
    /// The HTTP method.
    pub method: String,
    /// The path, without its query.
    pub path: String,
    /// Whether it was refused.
    pub refused: bool,
}

/// Writes since the log was begun; nothing is kept before that.
#[derive(Debug, Default)]
pub struct Audit {
    log: Mutex<Option<Vec<Write>>>,
    noted: Notify,
}

impl Audit {
    /// Begins a new log.
    pub fn begin(&self) {
        *self.log.lock() = Some(Vec::new());
    }

    /// Ends the log and gives it.
    pub fn end(&self) -> Vec<Write> {
        self.log.lock().take().unwrap_or_default()
    }

    /// Waits until the log holds a number of writes whose path contains a text.
    pub async fn reaches(&self, count: usize, path: &str) {
        loop {
            let noted = self.noted.notified();
            let is_one = |write: &&Write| write.path.contains(path);
            let held = self.log.lock().iter().flatten().filter(is_one).count();
            if held >= count {
                return;
            }
            noted.await;
        }
    }

    pub(super) fn note(&self, user: &str, method: &Method, path: &str, answer: StatusCode) {
        if method.is_safe() {
            return;
        }
        if let Some(log) = self.log.lock().as_mut() {
            log.push(Write {
                user: user.to_owned(),
                method: method.to_string(),
                path: path.to_owned(),
                refused: !answer.is_success(),
            });
            self.noted.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_writes_are_kept_and_only_while_somebody_wants_them() {
        let audit = Audit::default();
        audit.note("a", &Method::POST, "/before", StatusCode::OK);
        audit.begin();
        audit.note("a", &Method::GET, "/x", StatusCode::OK);
        audit.note("a", &Method::PATCH, "/x", StatusCode::CONFLICT);
        let log = audit.end();
        assert_eq!(log.len(), 1);
        assert_eq!((log[0].method.as_str(), log[0].refused), ("PATCH", true));
        audit.note("a", &Method::DELETE, "/after", StatusCode::OK);
        assert!(audit.end().is_empty());
    }
}
