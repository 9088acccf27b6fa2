//! The network between two parties: a forwarded TCP port whose traffic can be stopped.
//!
//! Every agent reaches the fleet API and its member through links of its own, so that one party can
//! lose another while everybody else, the test included, still reaches both. A path knows nothing
//! of TLS or Kubernetes: it works in front of any server.

use std::io;
use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// The state of a network path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// Everything passes.
    Up,
    /// Packets are lost: connections are accepted (as the other side's kernel would have), and
    /// nothing passes. What was under way passes once the path is up again, as TCP would repeat it.
    Silent,
}

/// A forwarded port on loopback. Dropping it closes every connection through it.
#[derive(Debug)]
pub struct TcpPath {
    address: SocketAddr,
    condition: watch::Sender<Condition>,
    closed: CancellationToken,
}

impl TcpPath {
    /// Opens a path to `target` on a free port.
    pub async fn open(target: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let path = Self {
            address: listener.local_addr()?,
            condition: watch::Sender::new(Condition::Up),
            closed: CancellationToken::new(),
        };
        let (condition, closed) = (path.condition.clone(), path.closed.clone());
        tokio::spawn(async move {
            tokio::select! {
                () = closed.cancelled() => {}
                () = accept(&listener, target, &condition, &closed) => {}
            }
        });
        Ok(path)
    }

    /// Returns where to connect instead of the target.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Changes the state of the path, for live connections too.
    pub fn set(&self, condition: Condition) {
        self.condition.send_replace(condition);
    }

    /// Returns the state of the path.
    pub fn condition(&self) -> Condition {
        *self.condition.borrow()
    }
}

impl Drop for TcpPath {
    fn drop(&mut self) {
        self.closed.cancel();
    }
}

async fn accept(
    listener: &TcpListener,
    target: SocketAddr,
    condition: &watch::Sender<Condition>,
    closed: &CancellationToken,
) {
    loop {
        // An error here is one connection's (it went away before it was accepted) or lack of
        // descriptors: both pass.
        let Ok((near, _)) = listener.accept().await else {
            tokio::task::yield_now().await;
            continue;
        };
        let (condition, closed) = (condition.subscribe(), closed.clone());
        tokio::spawn(async move {
            tokio::select! {
                () = closed.cancelled() => {}
                _ = forward(near, target, condition) => {}
            }
        });
    }
}

/// Carries one connection until either side ends it.
async fn forward(
    near: TcpStream,
    target: SocketAddr,
    mut condition: watch::Receiver<Condition>,
) -> io::Result<()> {
    passable(&mut condition).await;
    let far = TcpStream::connect(target).await?;
    // Small requests and answers follow each other here; waiting to fill packets would add 40 ms to
    // each.
    near.set_nodelay(true)?;
    far.set_nodelay(true)?;
    let (near_in, near_out) = near.into_split();
    let (far_in, far_out) = far.into_split();
    tokio::try_join!(
        carry(near_in, far_out, condition.clone()),
        carry(far_in, near_out, condition),
    )?;
    Ok(())
}

async fn carry(
    mut from: tokio::net::tcp::OwnedReadHalf,
    mut to: tokio::net::tcp::OwnedWriteHalf,
    mut condition: watch::Receiver<Condition>,
) -> io::Result<()> {
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let read = from.read(&mut buffer).await?;
        // The end of a connection is information as well: it does not pass a silent path either.
        passable(&mut condition).await;
        if read == 0 {
            return to.shutdown().await;
        }
        to.write_all(&buffer[..read]).await?;
    }
}

/// Waits until the path is not silent.
async fn passable(condition: &mut watch::Receiver<Condition>) {
    let is_up = condition
        .wait_for(|now| *now == Condition::Up)
        .await
        .is_ok();
    if !is_up {
        // The path is gone, and the task that asks with it.
        std::future::pending::<()>().await;
    }
}
