//! Connections without a credential that send only the preface, on both ports.

use std::io;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::attack::{Assault, Attack};

pub(super) const ATTACK: Attack = Attack {
    name: "idle_connections",
    needs: &[],
    run: |assault| Box::pin(run(assault)),
};

/// Number of connections to each port. Exceeds the usual soft limit of file handles.
const CONNECTIONS: usize = 1_100;
/// The preface of HTTP/2 and empty settings.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
/// An HTTP/1.1 request without an end.
const UNFINISHED: &[u8] = b"GET /healthz HTTP/1.1\r\n";
/// Pause before a rejected or closed connection is opened again.
const AGAIN: Duration = Duration::from_millis(250);
/// Time limit to open a connection.
const DIAL: Duration = Duration::from_secs(5);

async fn run(assault: Assault) {
    let mut all = JoinSet::new();
    let ports = [
        (assault.target.address.clone(), PREFACE),
        (assault.target.admin.clone(), UNFINISHED),
    ];
    for (address, greeting) in ports {
        for _ in 0..assault.scale.of(CONNECTIONS) {
            let (assault, address) = (assault.clone(), address.clone());
            all.spawn(async move {
                loop {
                    assault.tally.tried();
                    let outcome = match idle(&assault, &address, greeting).await {
                        Ok(()) => "closed by the server",
                        Err(_) => "refused or reset",
                    };
                    assault.tally.ended(outcome);
                    tokio::time::sleep(AGAIN).await;
                }
            });
        }
    }
    all.join_all().await;
}

/// Sends the greeting, and waits for the end of the connection without answering anything.
async fn idle(assault: &Assault, address: &str, greeting: &[u8]) -> io::Result<()> {
    let mut stream = timeout(DIAL, TcpStream::connect(address)).await??;
    assault.tally.connected();
    stream.write_all(greeting).await?;
    let mut ignored = [0; 256];
    while stream.read(&mut ignored).await? > 0 {}
    Ok(())
}
