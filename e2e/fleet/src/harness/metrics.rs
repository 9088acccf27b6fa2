//! What a process on this machine says of itself on `/metrics`.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use anyhow::Context as _;

/// Where a process shows its metrics.
pub const METRICS: &str = "127.0.0.1";

/// Requests the metrics of a process, and returns the answer, head and body.
pub fn scrape(port: u16) -> anyhow::Result<String> {
    let mut stream = TcpStream::connect((METRICS, port)).context("reaching the metrics")?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    stream.write_all(b"GET /metrics HTTP/1.0\r\nhost: localhost\r\n\r\n")?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    Ok(text)
}

/// Returns the sum of a metric's values over all its labels that contain `labels`.
pub fn sum(text: &str, metric: &str, labels: &str) -> f64 {
    let values = text.lines().filter_map(|line| {
        let (name, value) = line.rsplit_once(' ')?;
        let (name, of) = name.split_once('{').unwrap_or((name, ""));
        (name == metric && of.contains(labels)).then(|| value.parse::<f64>().ok())?
    });
    values.sum()
}
