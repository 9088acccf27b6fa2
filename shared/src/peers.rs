//! Clusters that watch each other: what the control plane asks of an agent, what the agent reports,
//! and when a peer counts as lost.
//!
//! The control plane names the peers of a cluster in its annotation [`PEERS`]. The agent reports on
//! its own Cluster only, with one condition per peer, whose type is [`REACHES`] and the name of the
//! peer.

use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::conditions::{self, FALSE, TRUE, UNKNOWN};
use crate::k8s::Condition;
pub use crate::names::annotation::{PEER_ADDRESS, PEERS};
pub use crate::names::condition::{REACHES, SEEN_BY_PEERS};

/// Maximum number of witnesses of a cluster (`--peers-per-cluster`).
pub const MOST_WITNESSES: usize = 5;
/// Maximum number of peers that an agent watches, whatever it is asked.
pub const MOST_PEERS: usize = 2 * MOST_WITNESSES;
/// Maximum length of an address, as long as a DNS name with scheme, port and a short path.
const LONGEST_ADDRESS: usize = 300;
/// Pause between two handshakes with a peer, which callers spread by a fifth, so that the witnesses
/// of a cluster do not call at once.
const PAUSE: Duration = Duration::from_secs(25);
/// Pause after the first handshake that failed, so that a loss is confirmed soon.
const CONFIRMATION: Duration = Duration::from_secs(8);
/// Handshakes that have to fail one after another before a peer counts as lost: packets get lost,
/// and API servers restart.
const FAILURES: u32 = 2;

/// A cluster that an agent is asked to watch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Peer {
    /// Name of the Cluster.
    pub name: String,
    /// URL of its API server, or of whatever else answers TLS handshakes for it.
    pub address: String,
}

/// Host and port of an address.
pub type Endpoint = (String, u16);

/// Returns the host and the port of an address: an https URL.
///
/// # Errors
/// A predicate that says what is wrong with the address.
pub fn endpoint(address: &str) -> Result<Endpoint, &'static str> {
    if address.len() > LONGEST_ADDRESS {
        return Err("is longer than 300 characters");
    }
    let Ok(uri) = address.parse::<http::Uri>() else {
        return Err("is not a URL");
    };
    if uri.scheme_str() != Some("https") {
        return Err("does not begin with https://");
    }
    let Some(host) = uri.host().filter(|host| !host.is_empty()) else {
        return Err("has no host");
    };
    if address.contains('@') {
        return Err("has a user");
    }
    let host = host.trim_start_matches('[').trim_end_matches(']');
    Ok((host.to_owned(), uri.port_u16().unwrap_or(443)))
}

/// Returns the peers that an annotation names, at most [`MOST_PEERS`]; none if it cannot be read.
pub fn read(annotation: Option<&str>) -> Vec<Peer> {
    let read = annotation.and_then(|text| serde_json::from_str::<Vec<Peer>>(text).ok());
    let mut peers = read.unwrap_or_default();
    peers.truncate(MOST_PEERS);
    peers
}

/// Returns the annotation that names peers; `None` for none.
pub fn write(peers: &[Peer]) -> Option<String> {
    (!peers.is_empty()).then(|| serde_json::to_string(peers).unwrap_or_default())
}

/// Returns the type of the condition by which an agent reports about a peer.
pub fn condition_type(peer: &str) -> String {
    format!("{REACHES}{peer}")
}

/// Answer of an agent to the question whether it reaches a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// The last handshake succeeded.
    Reached,
    /// Handshakes succeeded once, and the last ones failed.
    Lost,
    /// No handshake has succeeded yet: the peer may be out of reach of this cluster.
    Never,
}

impl Reach {
    /// Reads the report of an agent, with the time since when it says so; `None` without a report.
    pub fn reported(reports: &[Condition], peer: &str) -> Option<(Self, Timestamp)> {
        let kind = condition_type(peer);
        let report = conditions::get(reports, &kind)?;
        let reach = match &*report.status {
            TRUE => Self::Reached,
            FALSE => Self::Lost,
            _ => Self::Never,
        };
        Some((reach, report.last_transition_time.0))
    }
}

/// State of one peer as an agent sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sight {
    /// Address of the peer.
    pub address: String,
    /// Answer to report; `None` before the first handshake.
    pub reach: Option<Reach>,
    /// Handshakes that have failed since the last that succeeded.
    failures: u32,
}

impl Sight {
    /// Begins to watch a peer. The report of an earlier process about the same address stands until
    /// it is refuted.
    pub fn begin(peer: &Peer, reports: &[Condition]) -> Self {
        let report = conditions::get(reports, &condition_type(&peer.name));
        let is_same = report.is_some_and(|it| it.message.ends_with(&*format!(" {}", peer.address)));
        let earlier = Reach::reported(reports, &peer.name).filter(|_| is_same);
        Self {
            address: peer.address.clone(),
            reach: earlier.map(|(reach, _)| reach),
            failures: 0,
        }
    }

    /// Takes note of a handshake.
    pub fn note(&mut self, has_succeeded: bool) {
        if has_succeeded {
            self.failures = 0;
            self.reach = Some(Reach::Reached);
            return;
        }
        self.failures = self.failures.saturating_add(1);
        self.reach = match self.reach {
            None | Some(Reach::Never) => Some(Reach::Never),
            Some(Reach::Reached) if self.failures < FAILURES => Some(Reach::Reached),
            Some(Reach::Reached | Reach::Lost) => Some(Reach::Lost),
        };
    }

    /// Returns the pause before the next handshake, before it is spread.
    pub fn pause(&self) -> Duration {
        if self.failures > 0 && self.reach == Some(Reach::Reached) {
            CONFIRMATION
        } else {
            PAUSE
        }
    }

    /// Returns the condition to report about a peer of a name; `None` before the first handshake.
    /// The message has the address alone, so that it stays the same while nothing changes.
    pub fn condition(&self, peer: &str, now: Timestamp) -> Option<Condition> {
        let (status, reason, what) = match self.reach? {
            Reach::Reached => (TRUE, "Reached", "TLS handshakes succeed with"),
            Reach::Lost => (FALSE, "Lost", "TLS handshakes fail with"),
            Reach::Never => (
                UNKNOWN,
                "NeverReached",
                "no TLS handshake has succeeded with",
            ),
        };
        let message = format!("{what} {}", self.address);
        Some(conditions::new(
            &condition_type(peer),
            status,
            reason,
            &message,
            now,
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(address: &str) -> Peer {
        Peer {
            name: "m2".to_owned(),
            address: address.to_owned(),
        }
    }

    #[test]
    fn an_address_is_an_https_url() {
        let long = format!("https://{}.example.com", "a".repeat(300));
        for (address, expected) in [
            ("https://m2.example.com", Ok(("m2.example.com", 443))),
            ("https://10.0.0.1:6443", Ok(("10.0.0.1", 6443))),
            ("https://[fd00::1]:6443/path", Ok(("fd00::1", 6443))),
            ("http://m2.example.com", Err("does not begin with https://")),
            ("m2.example.com:6443", Err("does not begin with https://")),
            ("https://user@m2.example.com", Err("has a user")),
            ("not a url", Err("is not a URL")),
            (&long, Err("is longer than 300 characters")),
        ] {
            let expected = expected.map(|(host, port)| (host.to_owned(), port));
            assert_eq!(endpoint(address), expected, "{address}");
        }
    }

    #[test]
    fn an_annotation_names_a_bounded_number_of_peers() {
        let many = vec![peer("https://a"); 3 * MOST_PEERS];
        let text = write(&many).unwrap();
        assert_eq!(read(Some(&text)), many[..MOST_PEERS]);
        assert_eq!(write(&[]), None);
        for odd in [None, Some(""), Some("{}"), Some("[{\"name\":7}]")] {
            assert_eq!(read(odd), [], "{odd:?}");
        }
    }

    #[test]
    fn a_peer_is_lost_after_two_failures_in_a_row_and_only_if_it_was_ever_reached() {
        use Reach::{Lost, Never, Reached};
        for (handshakes, expected) in [
            (&[true][..], Reached),
            (&[true, false], Reached),
            (&[true, false, true, false], Reached),
            (&[true, false, false], Lost),
            (&[true, false, false, false], Lost),
            (&[true, false, false, true], Reached),
            (&[false], Never),
            (&[false, false, false], Never),
            (&[false, true], Reached),
        ] {
            let mut sight = Sight::begin(&peer("https://a"), &[]);
            assert_eq!(sight.condition("m2", Timestamp::UNIX_EPOCH), None);
            for success in handshakes {
                sight.note(*success);
            }
            assert_eq!(sight.reach, Some(expected), "{handshakes:?}");
        }
    }

    #[test]
    fn a_restarted_agent_resumes_its_report_about_the_same_address() {
        use Reach::{Lost, Never, Reached};
        for (before, address, failures, expected) in [
            (Reached, "https://a", 1, Reached),
            (Reached, "https://a", 2, Lost),
            (Lost, "https://a", 1, Lost),
            (Never, "https://a", 2, Never),
            // Nothing is known of another address.
            (Reached, "https://b", 2, Never),
            (Reached, "https://ba", 2, Never),
        ] {
            let known = Sight {
                address: "https://a".to_owned(),
                reach: Some(before),
                failures: 0,
            };
            let reports = [known.condition("m2", Timestamp::UNIX_EPOCH).unwrap()];
            let mut sight = Sight::begin(&peer(address), &reports);
            for _ in 0..failures {
                sight.note(false);
            }
            assert_eq!(sight.reach, Some(expected), "{before:?} {address}");
        }
    }

    #[test]
    fn an_agent_calls_a_peer_a_few_times_a_minute() {
        let mut sight = Sight::begin(&peer("https://a"), &[]);
        for (success, seconds) in [(true, 25), (true, 25), (false, 8), (false, 25), (false, 25)] {
            sight.note(success);
            assert_eq!(sight.pause(), Duration::from_secs(seconds));
        }
    }

    #[test]
    fn a_report_is_read_as_it_was_written() {
        let now = Timestamp::UNIX_EPOCH;
        for reach in [Reach::Reached, Reach::Lost, Reach::Never] {
            let sight = Sight {
                address: "https://a".to_owned(),
                reach: Some(reach),
                failures: 0,
            };
            let reports = [sight.condition("m2", now).unwrap()];
            assert_eq!(Reach::reported(&reports, "m2"), Some((reach, now)));
            assert_eq!(Reach::reported(&reports, "m22"), None);
        }
    }
}
