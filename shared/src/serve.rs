//! The admin server: `/metrics`, `/healthz` and `/livez` (is the process sound), `/readyz` (does it do its work).

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fmt::Write;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use metrics_exporter_prometheus::PrometheusHandle;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// A client that has not sent its request head by then is cut off.
const HEAD_DEADLINE: Duration = Duration::from_secs(5);

/// What the parts of a process say about themselves. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Health {
    parts: Arc<Mutex<BTreeMap<&'static str, Part>>>,
}

#[derive(Clone, Debug)]
struct Part {
    alive: Result<(), String>,
    ready: Result<(), String>,
}

impl Health {
    /// Says whether a part does its work (`Err` carries what it waits for). Until it says so, it is not ready.
    pub fn ready(&self, part: &'static str, state: Result<(), String>) {
        self.change(part, |entry| entry.ready = state);
    }

    /// Says that a part can only be helped by a restart.
    pub fn broken(&self, part: &'static str, reason: impl Into<String>) {
        let reason = reason.into();
        self.change(part, |entry| entry.alive = Err(reason));
    }

    /// Names a part that is not ready yet, so that readiness waits for it.
    pub fn expect(&self, part: &'static str) {
        self.change(part, |_| {});
    }

    fn change(&self, part: &'static str, change: impl FnOnce(&mut Part)) {
        let mut parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner);
        change(parts.entry(part).or_insert_with(|| Part {
            alive: Ok(()),
            ready: Err("starting".to_owned()),
        }));
    }

    /// Whether all parts are well, and a line for each.
    fn report(&self, of: impl Fn(&Part) -> &Result<(), String>) -> (bool, String) {
        let parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner);
        let mut text = String::new();
        let mut well = true;
        for (name, part) in parts.iter() {
            match of(part) {
                Ok(()) => _ = writeln!(text, "[+] {name} ok"),
                Err(reason) => {
                    well = false;
                    _ = writeln!(text, "[-] {name}: {reason}");
                }
            }
        }
        (well, text)
    }
}

/// Serves health and metrics on a bound listener until shutdown.
pub async fn admin(
    listener: TcpListener,
    health: Health,
    metrics: Option<PrometheusHandle>,
    shutdown: CancellationToken,
) {
    let mut upkeep = tokio::time::interval(Duration::from_secs(5));
    loop {
        let stream = tokio::select! {
            () = shutdown.cancelled() => return,
            _ = upkeep.tick() => {
                // Histograms grow without it.
                if let Some(metrics) = &metrics { metrics.run_upkeep(); }
                continue;
            }
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    tracing::warn!(%error, "admin server could not accept a connection");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    continue;
                }
            },
        };
        let (health, metrics) = (health.clone(), metrics.clone());
        tokio::spawn(async move {
            let service = service_fn(move |request| {
                let answer = answer(&request, &health, metrics.as_ref());
                async move { Ok::<_, Infallible>(answer) }
            });
            let mut server = auto::Builder::new(TokioExecutor::new());
            server
                .http1()
                .timer(TokioTimer::new())
                .header_read_timeout(HEAD_DEADLINE);
            if let Err(error) = server.serve_connection(TokioIo::new(stream), service).await {
                tracing::debug!(%error, "admin connection ended");
            }
        });
    }
}

fn answer<B>(
    request: &Request<B>,
    health: &Health,
    metrics: Option<&PrometheusHandle>,
) -> Response<Full<Bytes>> {
    let (status, body) = match (request.uri().path(), metrics) {
        ("/healthz" | "/livez", _) => judged(health.report(|part| &part.alive)),
        ("/readyz", _) => judged(health.report(|part| &part.ready)),
        ("/metrics", Some(metrics)) => (StatusCode::OK, metrics.render()),
        _ => (
            StatusCode::NOT_FOUND,
            "here are /metrics, /healthz, /livez and /readyz\n".to_owned(),
        ),
    };
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    response.headers_mut().insert(
        http::header::CONTENT_TYPE,
        http::HeaderValue::from_static("text/plain; charset=utf-8"),
    );
    response
}

fn judged((well, text): (bool, String)) -> (StatusCode, String) {
    if well {
        (StatusCode::OK, text + "ok\n")
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(health: &Health, path: &str) -> StatusCode {
        answer(&Request::get(path).body(()).unwrap(), health, None).status()
    }

    #[test]
    fn readiness_waits_for_every_part_and_liveness_for_none() {
        let health = Health::default();
        health.expect("informers");
        health.ready("lease", Ok(()));
        assert_eq!(ask(&health, "/readyz"), StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(ask(&health, "/livez"), StatusCode::OK);
        health.ready("informers", Ok(()));
        assert_eq!(ask(&health, "/readyz"), StatusCode::OK);
        health.broken("lease", "its task ended");
        assert_eq!(ask(&health, "/healthz"), StatusCode::SERVICE_UNAVAILABLE);
    }

    #[test]
    fn an_unknown_path_says_what_is_there() {
        assert_eq!(ask(&Health::default(), "/"), StatusCode::NOT_FOUND);
    }
}
