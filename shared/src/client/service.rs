//! What every request passes through: the current connection, the rate limit, the stop-watch.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use http::{Request, Response};
use kube::Client;
use kube::client::Body;
use tokio::sync::watch;
use tokio::time::Instant;
use tower::Service;

use super::traffic::Traffic;

/// How fast a client may send; Karmada's `--kube-api-qps` and `--kube-api-burst`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limits {
    /// Requests a second; 0 for no limit of our own (the API server's priority and fairness then decides).
    pub qps: f64,
    /// How many may be sent at once after a quiet time; at least 1.
    pub burst: u32,
}

impl Limits {
    /// No limit of our own.
    pub const NONE: Self = Self { qps: 0.0, burst: 1 };
}

/// A token bucket that hands out the time at which each request may go.
#[derive(Debug)]
pub(super) struct Bucket {
    limits: Limits,
    /// When the bucket would be full again.
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
        let mut full_at = self.full_at.lock().unwrap_or_else(PoisonError::into_inner);
        *full_at = (*full_at).max(now) + token;
        full_at
            .duration_since(now)
            .saturating_sub(token * self.limits.burst.max(1))
    }
}

/// A kube client whose connection can be replaced while it is in use.
#[derive(Clone)]
pub(super) struct Switched {
    pub(super) current: watch::Receiver<Client>,
    pub(super) bucket: Arc<Bucket>,
    pub(super) traffic: Traffic,
    /// Whether requests let those of other clients pass.
    pub(super) yields: bool,
    /// Label of the metrics: which API is talked to.
    pub(super) api: &'static str,
}

impl Service<Request<Body>> for Switched {
    type Response = Response<Body>;
    type Error = kube::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        // Waiting for a token happens in the request's own future, so that one request never holds up another.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let (current, bucket, api) = (self.current.clone(), Arc::clone(&self.bucket), self.api);
        let (traffic, yields) = (self.traffic.clone(), self.yields);
        Box::pin(async move {
            let wait = bucket.take(Instant::now());
            if !wait.is_zero() {
                tokio::time::sleep(wait).await;
            }
            let _under_way = if yields {
                traffic.lull().await;
                None
            } else {
                Some(traffic.enter())
            };
            let method = request.method().as_str().to_owned();
            let client = current.borrow().clone();
            let begun = Instant::now();
            let answer = client.send(request).await;
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
    async fn no_limit_never_waits() {
        let bucket = Bucket::new(Limits::NONE);
        assert!((0..1000).all(|_| bucket.take(Instant::now()).is_zero()));
    }
}
