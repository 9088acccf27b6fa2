//! The listener: TLS, connections, and what faults do to them.

use std::net::SocketAddr;
use std::sync::Arc;

use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use crate::auth::identity::user_of_certificate;
use crate::context::Server;
use crate::faults::Effect;

/// Connections that wait to be accepted.
const BACKLOG: u32 = 1024;

/// A TLS handshake that takes longer is given up.
const HANDSHAKE: std::time::Duration = std::time::Duration::from_secs(10);

/// Binds a loopback address; port 0 lets the system choose.
pub fn bind(port: u16) -> std::io::Result<TcpSocket> {
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    socket.bind(SocketAddr::from(([127, 0, 0, 1], port)))?;
    Ok(socket)
}

/// Begins to listen: from now on connections wait to be accepted.
pub fn listen(socket: TcpSocket) -> std::io::Result<TcpListener> {
    socket.listen(BACKLOG)
}

/// Accepts connections until `shutdown`; while it is `down`, the port is kept but nothing
/// listens.
pub async fn run(
    server: Arc<Server>,
    listener: TcpListener,
    tls: TlsAcceptor,
    mut down: watch::Receiver<bool>,
    shutdown: CancellationToken,
) -> std::io::Result<()> {
    let port = listener.local_addr()?.port();
    let mut listening = Some(listener);
    let mut socket = None;
    loop {
        if *down.borrow_and_update() {
            // Bound without listening: nobody else gets the port, and connections are refused.
            listening = None;
            if socket.is_none() {
                socket = Some(bind(port)?);
            }
            tokio::select! {
                () = shutdown.cancelled() => return Ok(()),
                _ = down.changed() => {}
            }
            continue;
        }
        let listener = match (listening.take(), socket.take()) {
            (Some(listener), _) => listener,
            (None, Some(bound)) => listen(bound)?,
            (None, None) => listen(bind(port)?)?,
        };
        tokio::select! {
            () = shutdown.cancelled() => return Ok(()),
            () = accept(&server, &listener, &tls, &shutdown) => {}
            () = until_down(&mut down) => {}
        }
    }
}

async fn until_down(down: &mut watch::Receiver<bool>) {
    _ = down.wait_for(|is_down| *is_down).await;
}

async fn accept(
    server: &Arc<Server>,
    listener: &TcpListener,
    tls: &TlsAcceptor,
    shutdown: &CancellationToken,
) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let server = Arc::clone(server);
                let tls = tls.clone();
                let shutdown = shutdown.clone();
                tokio::spawn(async move {
                    let cut = server.faults.connection();
                    tokio::select! {
                        () = shutdown.cancelled() => {}
                        () = cut.cancelled() => {}
                        () = connection(Arc::clone(&server), stream, tls) => {}
                    }
                });
            }
            Err(error) => {
                tracing::warn!(server = server.name, %error, "accepting a connection");
                // Out of file descriptors, most likely: give others time to close theirs.
                tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            }
        }
    }
}

async fn connection(server: Arc<Server>, stream: TcpStream, tls: TlsAcceptor) {
    let effects = server.faults.effects(None, None);
    if effects.contains(&Effect::Hang) {
        // Held open, never spoken to; healing cuts it.
        std::future::pending::<()>().await;
    }
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "setting nodelay");
    }
    let Ok(Ok(stream)) = tokio::time::timeout(HANDSHAKE, tls.accept(stream)).await else {
        return;
    };
    let certificates = stream.get_ref().1.peer_certificates();
    let peer = certificates
        .and_then(|c| c.first())
        .and_then(|c| user_of_certificate(c));
    let service = service_fn(move |request| Arc::clone(&server).handle(peer.clone(), request));
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new());
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(1000);
    if let Err(error) = builder
        .serve_connection(TokioIo::new(stream), service)
        .await
    {
        tracing::trace!(%error, "connection ended");
    }
}
