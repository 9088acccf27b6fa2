//! Certificate of a server, read from two PEM files and reloaded when they change, or provided by
//! the caller.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::Mutex;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use tokio_util::sync::CancellationToken;

use super::provider;
use crate::clock::calendar;
use crate::serve::Health;
use crate::tls;

/// How often the certificate's files are checked: mounted secrets change a minute after they were
/// written.
const CHECK_EVERY: Duration = Duration::from_secs(10);

/// Reason why a certificate was not loaded.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    File {
        /// Path of the file.
        path: PathBuf,
        /// Error of the system.
        source: std::io::Error,
    },
    /// A file does not contain the expected PEM.
    #[error("cannot read {}: {source}", path.display())]
    Pem {
        /// Path of the file.
        path: PathBuf,
        /// Error of the parser.
        source: rustls::pki_types::pem::Error,
    },
    /// Certificate and key do not belong together.
    #[error("cannot use the certificate in {}: {source}", path.display())]
    Pair {
        /// Path of the certificate.
        path: PathBuf,
        /// Error of the TLS library.
        source: rustls::Error,
    },
}

/// Certificate and key of a server. Clients are shown the last valid one.
#[derive(Debug, Default)]
pub struct Certificate {
    /// Path that errors name, also if nothing is read from files.
    chain: PathBuf,
    key: PathBuf,
    current: Mutex<Option<Current>>,
}

#[derive(Debug)]
struct Current {
    /// The last moment at which the certificate is good, where that can be read.
    end: Option<Timestamp>,
    texts: (Vec<u8>, Vec<u8>),
    pair: Arc<CertifiedKey>,
}

impl Certificate {
    /// Returns a certificate that has not been read yet.
    pub fn new(chain: PathBuf, key: PathBuf) -> Self {
        Self {
            chain,
            key,
            current: Mutex::default(),
        }
    }

    /// Reads the files. On an error the certificate stays what it was. Returns whether there is a
    /// new one.
    pub async fn reload(&self) -> Result<bool, Error> {
        let read = async |path: &PathBuf| {
            tokio::fs::read(path).await.map_err(|source| Error::File {
                path: path.clone(),
                source,
            })
        };
        let (chain, key) = (read(&self.chain).await?, read(&self.key).await?);
        self.give(chain, key)
    }

    /// Returns whether there is a certificate to serve with.
    pub fn is_there(&self) -> bool {
        self.current.lock().is_some()
    }

    /// Takes a certificate and its key as PEM texts. On an error the certificate stays what it was.
    /// Says whether it is a new one.
    ///
    /// # Errors
    /// When a text is not what it should be, or the key is not the certificate's.
    pub fn give(&self, chain: Vec<u8>, key: Vec<u8>) -> Result<bool, Error> {
        let texts = (chain, key);
        if self
            .current
            .lock()
            .as_ref()
            .is_some_and(|current| current.texts == texts)
        {
            return Ok(false);
        }
        let pem = |path: &PathBuf| {
            let path = path.clone();
            |source| Error::Pem { path, source }
        };
        let chain: Vec<_> = CertificateDer::pem_slice_iter(&texts.0)
            .collect::<Result<_, _>>()
            .map_err(pem(&self.chain))?;
        let key = PrivateKeyDer::from_pem_slice(&texts.1).map_err(pem(&self.key))?;
        // Refuses a key that is not the certificate's: of two files one may have been replaced
        // before the other.
        let pair =
            CertifiedKey::from_der(chain, key, &provider()).map_err(|source| Error::Pair {
                path: self.chain.clone(),
                source,
            })?;
        *self.current.lock() = Some(Current {
            end: tls::not_after(&texts.0).ok(),
            texts,
            pair: Arc::new(pair),
        });
        Ok(true)
    }

    /// Shows for how long the certificate that is served is still good.
    pub fn measure(&self, now: Timestamp) {
        let end = self.current.lock().as_ref().map(|current| current.end);
        if let Some(end) = end {
            let left = end.map(|end| end.duration_since(now).as_secs_f64());
            metrics::gauge!("muster_serving_certificate_remaining_seconds")
                .set(left.unwrap_or_default());
        }
    }

    /// Follows the files until shutdown; `part` of `health` is ready once there is a certificate.
    pub async fn follow(
        self: Arc<Self>,
        health: Health,
        part: &'static str,
        shutdown: CancellationToken,
    ) {
        let mut checks = tokio::time::interval(CHECK_EVERY);
        loop {
            tokio::select! {
                _ = checks.tick() => {}
                () = shutdown.cancelled() => return,
            }
            match self.reload().await {
                Ok(is_new) => {
                    health.ready(part, Ok(()));
                    if is_new {
                        tracing::info!(file = %self.chain.display(), "serving with a new certificate");
                    }
                }
                Err(error) => {
                    if self.current.lock().is_none() {
                        health.ready(part, Err(error.to_string()));
                    }
                    tracing::warn!(%error, "no new certificate to serve with");
                }
            }
            self.measure(calendar());
        }
    }
}

impl ResolvesServerCert for Certificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.current
            .lock()
            .as_ref()
            .map(|current| Arc::clone(&current.pair))
    }
}

#[cfg(test)]
mod tests {
    use metrics_exporter_prometheus::PrometheusBuilder;
    use rcgen::{CertificateParams, KeyPair};

    use super::*;

    #[test]
    fn the_time_that_a_certificate_has_left_counts_down_while_its_files_stay_the_same() {
        tls::install_provider();
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(["a".to_owned()]).unwrap();
        let served = params.self_signed(&key).unwrap();
        let certificate = Certificate::default();
        let texts = (served.pem().into_bytes(), key.serialize_pem().into_bytes());
        assert!(certificate.give(texts.0.clone(), texts.1.clone()).unwrap());
        let end = tls::not_after(&texts.0).unwrap();
        let recorder = PrometheusBuilder::new().build_recorder();
        let metrics = recorder.handle();
        metrics::with_local_recorder(&recorder, || {
            for left in [7200, 3600, 0, -60] {
                assert!(!certificate.give(texts.0.clone(), texts.1.clone()).unwrap());
                certificate.measure(end - jiff::SignedDuration::from_secs(left));
                let shown = format!("muster_serving_certificate_remaining_seconds {left}\n");
                let text = metrics.render();
                assert!(text.contains(&shown), "{left}: {text}");
            }
        });
    }
}
