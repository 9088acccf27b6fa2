//! Servers for administration: `/metrics` on one port; `/healthz`, `/livez` (the process need not
//! be restarted) and `/readyz` (the process does its work) on each.

mod election;
mod health;

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use anyhow::Context;
use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use hyper_util::server::conn::auto;
use metrics_exporter_prometheus::PrometheusHandle;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

pub use self::election::report_election;
pub use self::health::Health;
use crate::http_server::{self, Limits, Options};
use crate::tasks::Tasks;
use crate::telemetry;

/// Connections of one port. Probes and scrapers ask one question each; a client that says nothing,
/// or takes nothing, must not keep file descriptors or memory that the process needs for its work.
const LIMITS: Limits = Limits {
    connections: 32,
    first: Duration::from_secs(5),
    idle: Duration::from_secs(30),
    age: Duration::from_mins(1),
};
/// A client that has not sent its request head by then is cut off.
const HEAD_DEADLINE: Duration = Duration::from_secs(5);
/// Bytes of the largest request head: a probe's takes a few hundred.
const LARGEST_HEAD: usize = 16 << 10;

/// Keeps the memory of metrics bounded until shutdown: histograms grow without it, whether anybody
/// asks for them or not.
pub async fn upkeep(metrics: PrometheusHandle, shutdown: CancellationToken) {
    let mut ticks = tokio::time::interval(Duration::from_secs(5));
    loop {
        tokio::select! {
            () = shutdown.cancelled() => return,
            _ = ticks.tick() => metrics.run_upkeep(),
        }
    }
}

/// Binds a listener. That of all interfaces is one of both families of addresses where the system
/// has both, as Go reads the address: the pods of a cluster may have addresses of IPv6 alone.
///
/// # Errors
/// When the address cannot be bound.
pub async fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    if address.ip() != IpAddr::V4(Ipv4Addr::UNSPECIFIED) {
        return TcpListener::bind(address).await;
    }
    let all = SocketAddr::from((Ipv6Addr::UNSPECIFIED, address.port()));
    let both = match TcpListener::bind(all).await {
        Ok(both) => both,
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => return Err(error),
        // There is no IPv6.
        Err(_) => return TcpListener::bind(address).await,
    };
    // Where a socket of IPv6 is not one of both, the port is free yet.
    let port = both.local_addr()?.port();
    let alone = TcpListener::bind(SocketAddr::new(address.ip(), port)).await;
    Ok(alone.unwrap_or(both))
}

/// Addresses of the admin servers; `None` switches one off.
#[derive(Clone, Copy, Debug)]
pub struct Ports {
    /// Serves metrics and health.
    pub metrics: Option<SocketAddr>,
    /// Serves health alone, so that the port of the probes can be open to all.
    pub health: Option<SocketAddr>,
}

/// Binds the admin servers and starts them as tasks.
///
/// # Errors
/// When an address cannot be bound.
pub async fn open(
    ports: Ports,
    health: &Health,
    metrics: Option<PrometheusHandle>,
    tasks: &mut Tasks,
) -> anyhow::Result<()> {
    let shutdown = tasks.shutdown().clone();
    if let Some(metrics) = metrics.clone() {
        tasks.spawn("metrics upkeep", upkeep(metrics, shutdown.clone()));
    }
    if metrics.is_some() || ports.metrics.or(ports.health).is_some() {
        tasks.spawn(
            "readiness log",
            health.clone().log_changes(shutdown.clone()),
        );
    }
    let flags = ["metrics-bind-address", "health-probe-bind-address"];
    let servers = [
        ("metrics server", flags[0], ports.metrics, metrics),
        ("health server", flags[1], ports.health, None),
    ];
    for (name, flag, address, metrics) in servers {
        let Some(address) = address else { continue };
        let listener = listen(address).await.with_context(|| {
            format!("cannot serve on {address}, which --{flag} names (0 for none)")
        })?;
        let serving = admin(listener, health.clone(), metrics, shutdown.clone());
        tasks.spawn(name, serving);
    }
    Ok(())
}

/// Serves health on a bound listener until shutdown, and metrics where they are given.
pub async fn admin(
    listener: TcpListener,
    health: Health,
    metrics: Option<PrometheusHandle>,
    shutdown: CancellationToken,
) {
    let handler = move |request: Request<Incoming>| {
        std::future::ready(answer(&request, &health, metrics.as_ref()))
    };
    http_server::serve(listener, options(), handler, shutdown).await;
}

/// Returns how an admin server treats its connections.
pub(crate) fn options() -> Options {
    let mut http = auto::Builder::new(TokioExecutor::new()).http1_only();
    http.http1()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_DEADLINE)
        .max_buf_size(LARGEST_HEAD);
    Options {
        name: "admin",
        limits: LIMITS,
        tls: None,
        http,
        deadline: HEAD_DEADLINE,
        linger: Duration::ZERO,
    }
}

fn answer<B>(
    request: &Request<B>,
    health: &Health,
    metrics: Option<&PrometheusHandle>,
) -> Response<Full<Bytes>> {
    let (status, body) = match (request.uri().path(), metrics) {
        ("/healthz" | "/livez", _) => judged(health.liveness()),
        ("/readyz", _) => judged(health.readiness()),
        ("/metrics", Some(metrics)) => (StatusCode::OK, telemetry::render(metrics)),
        (_, Some(_)) => (
            StatusCode::NOT_FOUND,
            "here are /metrics, /healthz, /livez and /readyz\n".to_owned(),
        ),
        (_, None) => (
            StatusCode::NOT_FOUND,
            "here are /healthz, /livez and /readyz\n".to_owned(),
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
    use tokio::net::TcpStream;

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

    #[tokio::test]
    async fn a_port_that_is_in_use_is_refused_with_its_flag() {
        let taken = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = taken.local_addr().unwrap();
        for (metrics, health, flag) in [
            (Some(address), None, "--metrics-bind-address"),
            (None, Some(address), "--health-probe-bind-address"),
        ] {
            let mut tasks = Tasks::new(CancellationToken::new());
            let (ports, health) = (Ports { metrics, health }, Health::default());
            let opened = open(ports, &health, None, &mut tasks).await;
            let error = format!("{:#}", opened.unwrap_err());
            for words in [flag, &address.to_string(), "already in use"] {
                assert!(error.contains(words), "{error}");
            }
        }
    }

    /// Starts an admin server, which ends with the guard, and returns its port.
    async fn served() -> (u16, tokio_util::sync::DropGuard) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let shutdown = CancellationToken::new();
        let health = Health::default();
        health.ready("all", Ok(()));
        tokio::spawn(admin(listener, health, None, shutdown.clone()));
        (port, shutdown.drop_guard())
    }

    async fn connected(port: u16) -> TcpStream {
        TcpStream::connect(("127.0.0.1", port)).await.unwrap()
    }

    /// Sends a text, and returns what is answered to it.
    async fn said(stream: &mut TcpStream, text: &str) -> String {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        stream.write_all(text.as_bytes()).await.unwrap();
        let mut answer = String::new();
        // A connection that is cut may be reset.
        let _ = stream.read_to_string(&mut answer).await;
        answer
    }

    /// Requests a path on a port, and returns the first line of the answer; `None` where nobody
    /// listens.
    async fn first_line(port: u16, path: &str) -> Option<String> {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).await.ok()?;
        let question = format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        let answer = said(&mut stream, &question).await;
        answer.lines().next().map(str::to_owned)
    }

    #[tokio::test]
    async fn metrics_are_served_on_their_own_port_only_and_each_port_can_be_switched_off() {
        use metrics_exporter_prometheus::PrometheusBuilder;
        let free = || {
            let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            listener.local_addr().unwrap()
        };
        let (good, missing) = (
            Some("HTTP/1.1 200 OK".to_owned()),
            Some("HTTP/1.1 404 Not Found".to_owned()),
        );
        for (has_metrics, has_health) in [(true, true), (true, false), (false, true)] {
            let (metrics, health) = (free(), free());
            let shutdown = CancellationToken::new();
            let mut tasks = Tasks::new(shutdown.clone());
            let ports = Ports {
                metrics: has_metrics.then_some(metrics),
                health: has_health.then_some(health),
            };
            let state = Health::default();
            let handle = PrometheusBuilder::new().build_recorder().handle();
            open(ports, &state, Some(handle), &mut tasks).await.unwrap();
            for (port, on, path, expected) in [
                (metrics, has_metrics, "/metrics", &good),
                (metrics, has_metrics, "/livez", &good),
                (health, has_health, "/metrics", &missing),
                (health, has_health, "/livez", &good),
            ] {
                let answer = first_line(port.port(), path).await;
                assert_eq!(answer, expected.clone().filter(|_| on), "{ports:?} {path}");
            }
            shutdown.cancel();
        }
    }

    const QUESTION: &str = "GET /readyz HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";

    // The clock stands still until all wait for it, so that each of these would wait for ever if
    // nothing closed the connection.
    #[tokio::test(start_paused = true)]
    async fn a_connection_that_says_nothing_or_half_a_request_or_no_more_is_closed() {
        let (port, _until) = served().await;
        let keep = "GET /readyz HTTP/1.1\r\nHost: a\r\n\r\n";
        for (text, begins) in [
            ("", ""),
            ("GET /rea", ""),
            ("GET /readyz HTTP/1.1\r\nHost:", ""),
            (keep, "HTTP/1.1 200"),
            // Admin ports speak HTTP/1 only: whoever answers pings for ever is not served.
            ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", ""),
        ] {
            let begun = tokio::time::Instant::now();
            let answer = said(&mut connected(port).await, text).await;
            assert!(answer.starts_with(begins), "{text:?}: {answer:?}");
            assert!(begun.elapsed() <= LIMITS.age, "{text:?}");
        }
    }

    #[tokio::test]
    async fn a_probe_is_answered_however_many_say_nothing() {
        let (port, _until) = served().await;
        let mut silent = Vec::new();
        for _ in 0..LIMITS.connections * 4 {
            silent.push(connected(port).await);
            let answer = said(&mut connected(port).await, QUESTION).await;
            assert!(answer.starts_with("HTTP/1.1 200"), "{answer:?}");
        }
        // All but the last ones have been closed.
        assert_eq!(said(&mut silent[0], "").await, "");
    }
}
