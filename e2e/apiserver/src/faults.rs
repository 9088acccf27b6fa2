//! Failures on demand: what a server does to connections and requests while a fault is on.

use http::StatusCode;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// What goes wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// Connections are closed as soon as they ask something; live watches are cut.
    Cut,
    /// Nothing is ever answered; live watches fall silent.
    Hang,
    /// Requests that change something wait until all faults are taken away, and are carried out
    /// then.
    Hold,
    /// Requests are answered with this code (429, 500, 503, ...).
    Answer(StatusCode),
}

/// Whom a fault concerns: everybody, unless narrowed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Scope {
    /// Only this user.
    pub user: Option<String>,
    /// Only paths that contain this.
    pub path: Option<String>,
}

impl Scope {
    /// Returns the requests of a user.
    pub fn user(name: impl Into<String>) -> Self {
        Self {
            user: Some(name.into()),
            path: None,
        }
    }

    /// Returns the requests whose paths contain this.
    pub fn path(part: impl Into<String>) -> Self {
        Self::default().at(part)
    }

    /// Returns those of the requests whose paths contain this.
    #[must_use]
    pub fn at(self, part: impl Into<String>) -> Self {
        Self {
            path: Some(part.into()),
            ..self
        }
    }

    fn concerns(&self, user: Option<&str>, path: Option<&str>) -> bool {
        self.user.as_deref().is_none_or(|u| user == Some(u))
            && self
                .path
                .as_deref()
                .is_none_or(|p| path.is_some_and(|path| path.contains(p)))
    }
}

/// The faults of one server. Every change cuts what it has to cut at once.
#[derive(Debug)]
pub struct Faults {
    active: watch::Sender<Vec<(Scope, Effect)>>,
    /// How many requests were held since the faults were taken away last.
    held: watch::Sender<usize>,
    /// Cancelled to cut every live connection.
    connections: Mutex<CancellationToken>,
}

impl Default for Faults {
    fn default() -> Self {
        Self {
            active: watch::Sender::new(Vec::new()),
            held: watch::Sender::new(0),
            connections: Mutex::default(),
        }
    }
}

impl Faults {
    /// Adds a fault for those in the scope.
    pub fn inject_for(&self, scope: Scope, effect: Effect) {
        self.active
            .send_modify(|active| active.push((scope, effect)));
    }

    /// Takes all faults away. What hung until now is cut, as a healed network would find it dead.
    pub fn heal(&self) {
        let hung = self
            .active
            .borrow()
            .iter()
            .any(|(_, effect)| *effect == Effect::Hang);
        self.held.send_replace(0);
        self.active.send_modify(Vec::clear);
        if hung {
            self.cut_connections();
        }
    }

    /// Keeps a request back for as long as a fault holds it.
    pub async fn hold(&self, user: Option<&str>, path: &str) {
        let mut changes = self.subscribe();
        self.held.send_modify(|held| *held += 1);
        while self.effects(user, Some(path)).contains(&Effect::Hold) {
            if changes.changed().await.is_err() {
                break;
            }
        }
    }

    /// Waits until so many requests were held since the faults were taken away last.
    pub async fn has_held(&self, count: usize) {
        // The sender lives as long as this.
        _ = self.held.subscribe().wait_for(|held| *held >= count).await;
    }

    /// Cuts every live connection once; new ones are accepted.
    pub fn cut_connections(&self) {
        let mut guard = self.connections.lock();
        std::mem::take(&mut *guard).cancel();
    }

    /// Returns a token that is cancelled when the connections of now are to be cut.
    pub fn connection(&self) -> CancellationToken {
        self.connections.lock().clone()
    }

    /// Notifies of changes.
    pub fn subscribe(&self) -> watch::Receiver<Vec<(Scope, Effect)>> {
        self.active.subscribe()
    }

    /// Returns the effects on somebody's request; `None` where user or path are not known yet.
    pub fn effects(&self, user: Option<&str>, path: Option<&str>) -> Vec<Effect> {
        let active = self.active.borrow();
        if active.is_empty() {
            return Vec::new();
        }
        active
            .iter()
            .filter(|(s, _)| s.concerns(user, path))
            .map(|(_, e)| e.clone())
            .collect()
    }
}

/// Returns the effect that ends or silences a live stream of this user on this path; `None` if the
/// stream may go on.
pub fn silences(active: &[(Scope, Effect)], user: &str, path: &str) -> Option<Effect> {
    let concerned = active
        .iter()
        .filter(|(scope, _)| scope.concerns(Some(user), Some(path)));
    let mut effects = concerned.map(|(_, effect)| effect);
    effects
        .find(|e| matches!(e, Effect::Hang | Effect::Cut))
        .cloned()
}
