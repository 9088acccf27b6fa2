//! Middleware of every request: the current connection, the rate limit and the metrics.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::{Request, Response, StatusCode};
use kube::Client;
use kube::client::Body;
use parking_lot::Mutex;
use tokio::sync::{Semaphore, watch};
use tokio::time::Instant;
use tower::Service;

use super::gate::{self, Gate};
use super::traffic::{Priority, Traffic};
use crate::clock::{self, ServerClock};

/// The longest time for which an answer can make us wait. An API server asks for up to 32 s when it
/// sheds load, and a proxy may ask for anything. A request waits inside of the deadline of its
/// caller, 10 s and more, who would take a longer rest for a server that does not answer.
const LONGEST_REST: Duration = Duration::from_secs(5);

/// How many requests of one pool of clients are under way at a time, watches and questions about
/// health apart. HTTP/1 gives each a connection of its own, which costs both sides memory and a TLS
/// handshake; an API server does not answer more of them any faster.
pub(super) const UNDER_WAY: usize = 32;

/// Rate limit of a client: Karmada's `--kube-api-qps` and `--kube-api-burst`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limits {
    /// Requests per second; 0 for no limit (the API server's priority and fairness then decides).
    pub qps: f64,
    /// Requests that may be sent at once after a pause; at least 1.
    pub burst: u32,
}

impl Limits {
    /// No limit.
    pub const NONE: Self = Self { qps: 0.0, burst: 1 };
}

/// A token bucket that returns the time at which each request may go.
#[derive(Debug)]
pub(super) struct Bucket {
    limits: Limits,
    /// Time at which the bucket would be full again.
    full_at: Mutex<Instant>,
}

impl Bucket {
    pub(super) fn new(limits: Limits) -> Self {
        Self {
            limits,
            full_at: Mutex::new(Instant::now()),
        }
    }

    /// Takes a token and says how long to wait for it.
    fn take(&self, now: Instant) -> Duration {
        if self.limits.qps <= 0.0 {
            return Duration::ZERO;
        }
        let token = Duration::from_secs_f64(1.0 / self.limits.qps);
        let mut full_at = self.full_at.lock();
        *full_at = (*full_at).max(now) + token;
        full_at
            .duration_since(now)
            .saturating_sub(token * self.limits.burst.max(1))
    }

    /// Lets nothing go for a while, and afterwards nothing in bursts: the server has too much to
    /// do. A client without limits is one that must not wait (leases, probes) or that keeps the
    /// time itself (watches).
    fn rest(&self, now: Instant, pause: Duration) {
        if self.limits.qps <= 0.0 {
            return;
        }
        let token = Duration::from_secs_f64(1.0 / self.limits.qps);
        let full = now + pause.min(LONGEST_REST) + token * self.limits.burst.max(1);
        let mut full_at = self.full_at.lock();
        *full_at = (*full_at).max(full);
    }
}

/// Returns whether something on the way may have answered in place of the server.
fn is_gateways(code: StatusCode) -> bool {
    matches!(code.as_u16(), 502..=504)
}

/// Returns how long a server that refuses because it has too much to do, or has just started, wants
/// to be left alone.
pub fn retry_after(answer: &Response<Body>) -> Option<Duration> {
    let busy = [
        StatusCode::TOO_MANY_REQUESTS,
        StatusCode::SERVICE_UNAVAILABLE,
    ];
    if !busy.contains(&answer.status()) {
        return None;
    }
    clock::retry_after(answer.headers())
}

/// A kube client whose connection can be replaced while it is in use.
#[derive(Clone)]
pub(super) struct Switched {
    pub(super) current: watch::Receiver<Client>,
    pub(super) bucket: Arc<Bucket>,
    pub(super) traffic: Traffic,
    /// Priority of the requests. Events wait here; for the other priorities, the
    /// [`Writer`](super::Writer) waits, before its user reads.
    pub(super) priority: Priority,
    /// As many places as requests may be under way; `None` for no bound.
    pub(super) places: Option<Arc<Semaphore>>,
    /// Whether requests are sent.
    pub(super) gate: watch::Receiver<Gate>,
    /// Label of the metrics: which API is talked to.
    pub(super) api: &'static str,
    /// Learns the time from the answers.
    pub(super) server_clock: Arc<ServerClock>,
}

impl Service<Request<Body>> for Switched {
    type Response = Response<Body>;
    type Error = kube::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        // Waiting for a token happens in the request's own future, so that one request never holds
        // up another.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let (current, bucket, api) = (self.current.clone(), Arc::clone(&self.bucket), self.api);
        let (traffic, priority) = (self.traffic.clone(), self.priority);
        let places = self.places.clone();
        let server_clock = Arc::clone(&self.server_clock);
        let mut gate = self.gate.clone();
        Box::pin(async move {
            gate::pass(&mut gate).await?;
            let wait = bucket.take(Instant::now());
            if !wait.is_zero() {
                tokio::time::sleep(wait).await;
            }
            if priority == Priority::Event {
                traffic.idle(priority).await;
            }
            let _in_flight = traffic.enter(priority);
            let _place = match places {
                // Nobody closes it, so that there is always a place to come.
                Some(places) => places.acquire_owned().await.ok(),
                None => None,
            };
            let method = request.method().as_str().to_owned();
            let client = current.borrow().clone();
            let begun = Instant::now();
            let answer = client.send(request).await;
            if let Ok(answer) = &answer {
                let answered = Instant::now();
                if !is_gateways(answer.status())
                    && let Some(date) = clock::date(answer.headers())
                {
                    server_clock.observe(date, begun, answered);
                }
                if let Some(pause) = retry_after(answer) {
                    bucket.rest(answered, pause);
                }
            }
            let code = match &answer {
                Ok(answer) => answer.status().as_str().to_owned(),
                Err(_) => "none".to_owned(),
            };
            metrics::counter!("muster_api_requests_total", "api" => api, "method" => method.clone(), "code" => code)
                .increment(1);
            metrics::histogram!("muster_api_request_duration_seconds", "api" => api, "method" => method)
                .record(begun.elapsed().as_secs_f64());
            answer
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_burst_goes_at_once_and_the_rest_at_the_rate() {
        let bucket = Bucket::new(Limits {
            qps: 10.0,
            burst: 3,
        });
        let now = Instant::now();
        let waits: Vec<u128> = (0..5).map(|_| bucket.take(now).as_millis()).collect();
        assert_eq!(waits, [0, 0, 0, 100, 200]);
        let later = now + Duration::from_secs(10);
        assert_eq!(
            bucket.take(later),
            Duration::ZERO,
            "a quiet time fills the bucket"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_asks_for_rest_gets_it_and_no_burst_afterwards() {
        let bucket = Bucket::new(Limits {
            qps: 10.0,
            burst: 3,
        });
        let now = Instant::now();
        bucket.rest(now, Duration::from_secs(2));
        let waits: Vec<u128> = (0..3).map(|_| bucket.take(now).as_millis()).collect();
        assert_eq!(waits, [2100, 2200, 2300]);
        bucket.rest(now, Duration::from_hours(1));
        let wait = bucket.take(now);
        let shortest_deadline = Duration::from_secs(10);
        assert!(wait * 3 / 2 < shortest_deadline, "{wait:?}");
    }

    /// Returns a client of an API that answers when the test says so, and the counts of requests
    /// that it has got and may answer.
    fn patient_api() -> (Client, Arc<std::sync::atomic::AtomicUsize>, Arc<Semaphore>) {
        let arrived = Arc::new(std::sync::atomic::AtomicUsize::new(0));
        let answers = Arc::new(Semaphore::new(0));
        let (count, may_answer) = (Arc::clone(&arrived), Arc::clone(&answers));
        let api = tower::service_fn(move |_: Request<Body>| {
            count.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            let may_answer = Arc::clone(&may_answer);
            async move {
                may_answer.acquire().await.unwrap().forget();
                Ok::<_, std::convert::Infallible>(Response::new(Body::empty()))
            }
        });
        (Client::new(api, "default"), arrived, answers)
    }

    fn service(
        api: Client,
        traffic: Traffic,
        priority: Priority,
        places: &Arc<Semaphore>,
    ) -> Switched {
        Switched {
            current: watch::Sender::new(api).subscribe(),
            bucket: Arc::new(Bucket::new(Limits::NONE)),
            traffic,
            priority,
            places: Some(Arc::clone(places)),
            gate: watch::Sender::new(Gate::Open).subscribe(),
            api: "fleet",
            server_clock: Arc::default(),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn no_more_requests_are_in_flight_than_there_are_places() {
        let (client, arrived, answers) = patient_api();
        let places = Arc::new(Semaphore::new(2));
        let (traffic, priority) = (Traffic::default(), Priority::Placement);
        let service = service(client, traffic, priority, &places);
        let mut requests = tokio::task::JoinSet::new();
        for _ in 0..5 {
            requests.spawn(service.clone().call(Request::new(Body::empty())));
        }
        for answered in 0..=3 {
            // Time is paused: it moves on when nothing else can.
            tokio::time::sleep(Duration::from_secs(1)).await;
            let got = arrived.load(std::sync::atomic::Ordering::SeqCst);
            assert_eq!(got, answered + 2, "after {answered} answers");
            answers.add_permits(1);
        }
        answers.add_permits(1);
        assert!(requests.join_all().await.iter().all(Result::is_ok));
        assert_eq!(places.available_permits(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn events_arrive_while_decisions_never_pause() {
        let (count, api) = {
            let arrived = Arc::new(std::sync::atomic::AtomicUsize::new(0));
            let count = Arc::clone(&arrived);
            let api = tower::service_fn(move |_: Request<Body>| {
                arrived.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                async {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                    let event = r#"{"metadata":{"name":"e"},"involvedObject":{}}"#;
                    let answer = Response::builder().status(201);
                    let answer = answer.body(Body::from(event.as_bytes().to_vec()));
                    Ok::<_, std::convert::Infallible>(answer.unwrap())
                }
            });
            (count, Client::new(api, "default"))
        };
        let traffic = Traffic::default();
        let _never_pauses = traffic.enter(Priority::Placement);
        let service = service(api, traffic, Priority::Event, &Arc::new(Semaphore::new(32)));
        let shutdown = tokio_util::sync::CancellationToken::new();
        let client = Client::new(service, "default");
        let (events, delivery) = crate::events::Events::new(client, "test", shutdown.clone());
        let delivery = tokio::spawn(delivery);
        let publish = |n: usize| {
            let about = k8s_openapi::api::core::v1::ObjectReference {
                name: Some(format!("binding-{n}")),
                ..Default::default()
            };
            let kind = crate::events::EventType::Normal;
            events.publish_about(about, kind, "Evicted", "left m1 for m2");
        };
        // 10,000 workloads are moved in 100 seconds; each has two events. Few of these give way to
        // the moves, and none is lost.
        for second in 0..100 {
            (0..200).for_each(|n| publish(second * 200 + n));
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        let on_time = count.load(std::sync::atomic::Ordering::SeqCst);
        assert!(on_time > 17_500, "{on_time} of 20,000 events");
        tokio::time::sleep(Duration::from_mins(2)).await;
        assert_eq!(count.load(std::sync::atomic::Ordering::SeqCst), 20_000);
        shutdown.cancel();
        delivery.await.unwrap();
    }

    #[test]
    fn only_a_busy_server_can_ask_for_rest() {
        for (code, header, expected) in [
            (429, Some("2"), Some(2)),
            (503, Some(" 7 "), Some(7)),
            (429, None, None),
            (429, Some("Wed, 21 Oct 2026 07:28:00 GMT"), None),
            (200, Some("2"), None),
        ] {
            let mut answer = Response::builder().status(code);
            if let Some(header) = header {
                answer = answer.header("Retry-After", header);
            }
            let answer = answer.body(Body::empty()).unwrap();
            let expected = expected.map(Duration::from_secs);
            assert_eq!(retry_after(&answer), expected, "{code} {header:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn no_limit_never_waits() {
        let bucket = Bucket::new(Limits::NONE);
        assert!((0..1000).all(|_| bucket.take(Instant::now()).is_zero()));
    }
}
