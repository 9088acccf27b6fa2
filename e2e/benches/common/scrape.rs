//! What a process says of itself on `/metrics`.

use std::time::Duration;

use anyhow::Context;

/// Where the control plane shows its metrics.
pub const METRICS: &str = "127.0.0.1";

/// Reads the metrics of a process on this machine.
pub fn scrape(port: u16) -> anyhow::Result<String> {
    use std::io::{Read as _, Write as _};
    let mut stream =
        std::net::TcpStream::connect((METRICS, port)).context("reaching the metrics")?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    Ok(text)
}

/// Returns a port that nobody uses now.
pub fn free_port() -> anyhow::Result<u16> {
    Ok(std::net::TcpListener::bind((METRICS, 0))?
        .local_addr()?
        .port())
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
