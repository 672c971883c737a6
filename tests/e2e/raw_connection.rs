//! A connection of HTTP/2 whose calls can stay incomplete or unread.

use bytes::{BufMut as _, Bytes, BytesMut};
use h2::client::{Builder, ResponseFuture, SendRequest};
use h2::{PingPong, SendStream};
use http::Request;
use palimpsest_tests::Server;
use prost::Message;
use tokio::net::TcpStream;
use tokio::task::JoinSet;

/// A connection that answers PINGs.
pub(crate) struct RawConnection {
    calls: SendRequest<Bytes>,
    pub(crate) pings: PingPong,
    address: String,
    /// Drives the connection, and closes it on drop. The task ends with the connection.
    pub(crate) driver: JoinSet<()>,
}

impl RawConnection {
    /// Opens a connection. `builder` has its settings, such as the window of each reply.
    pub(crate) async fn open(server: &Server, builder: &Builder) -> Self {
        let stream = TcpStream::connect(server.address()).await.unwrap();
        let (calls, mut connection) = builder.handshake(stream).await.unwrap();
        let pings = connection.ping_pong().unwrap();
        let mut driver = JoinSet::new();
        driver.spawn(async move {
            // An error ends the connection too, and its calls report it.
            let _ = connection.await;
        });
        Self {
            calls,
            pings,
            address: server.address().to_owned(),
            driver,
        }
    }

    /// Sends the beginning of a call of a method such as `SessionService/ListMessages`. The body is not complete.
    pub(crate) async fn begin(
        &self,
        method: &str,
        body: Bytes,
    ) -> (ResponseFuture, SendStream<Bytes>) {
        let url = format!("http://{}/palimpsest.context.v1.{method}", self.address);
        let head = Request::post(url)
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .body(())
            .unwrap();
        let mut calls = self.calls.clone().ready().await.unwrap();
        let (reply, mut rest) = calls.send_request(head, false).unwrap();
        rest.send_data(body, false).unwrap();
        (reply, rest)
    }

    /// Sends a whole call.
    pub(crate) async fn call(&self, method: &str, request: &impl Message) -> ResponseFuture {
        let message = request.encode_to_vec();
        // A message of gRPC follows a byte for its compression and four bytes for its length.
        let mut frame = BytesMut::with_capacity(5 + message.len());
        frame.put_u8(0);
        frame.put_u32(u32::try_from(message.len()).unwrap());
        frame.put(&message[..]);
        let (reply, mut rest) = self.begin(method, frame.freeze()).await;
        rest.send_data(Bytes::new(), true).unwrap();
        reply
    }
}
