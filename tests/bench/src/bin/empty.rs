//! A tonic service without any work. It reads and decodes complete requests of the real method and answers each one
//! with the reply that it was started with. The cost of the real service is its difference from this one.
//!
//! It has no layers. Its settings equal those of the real server that affect the wire: streams per connection,
//! `TCP_NODELAY` and message size. It prints its address to standard output and ends when its standard input closes.

#![expect(
    clippy::print_stdout,
    reason = "whoever started it reads where it listens"
)]

use std::convert::Infallible;
use std::fs;
use std::future::Future;
use std::io::Read as _;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use anyhow::{Context as _, Result, bail};
use palimpsest_proto::context::v1 as api;
use prost::Message;
use tokio::net::TcpListener;
use tokio_stream::StreamExt as _;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::body::Body;
use tonic::server::{Grpc, NamedService, UnaryService};
use tonic::transport::Server;
use tonic::{Request, Response, Status};
use tonic_prost::ProstCodec;
use tower::Service;

type Answering<T> = Pin<Box<dyn Future<Output = T> + Send>>;
/// Decodes a request and encodes a reply with the types of one method.
type Handler = Arc<dyn Fn(http::Request<Body>) -> Answering<http::Response<Body>> + Send + Sync>;

/// The server's default number of streams per connection.
const STREAMS: u32 = 256;
/// Larger than any message in the bench.
const MESSAGE_BYTES: usize = 64 << 20;

/// A service with one method.
#[derive(Clone)]
struct Empty(Handler);

impl NamedService for Empty {
    const NAME: &'static str = "palimpsest.context.v1.ContextService";
}

impl Service<http::Request<Body>> for Empty {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Answering<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let answering = (self.0)(request);
        Box::pin(async move { Ok(answering.await) })
    }
}

/// Returns the same reply to every request.
struct Same<R>(Arc<R>);

impl<Q, R: Clone + Send + Sync + 'static> UnaryService<Q> for Same<R> {
    type Response = R;
    type Future = std::future::Ready<Result<Response<R>, Status>>;

    fn call(&mut self, _request: Request<Q>) -> Self::Future {
        std::future::ready(Ok(Response::new(R::clone(&self.0))))
    }
}

/// Does the work of the generated code of a method.
fn handler<Q, R>(reply: &[u8]) -> Result<Handler>
where
    Q: Message + Default + Send + 'static,
    R: Message + Default + Clone + Send + Sync + 'static,
{
    let reply = R::decode(reply).context("the reply is none of this method")?;
    let reply = Arc::new(reply);
    Ok(Arc::new(move |request| {
        let reply = Arc::clone(&reply);
        Box::pin(async move {
            let codec = ProstCodec::<R, Q>::default();
            let mut grpc = Grpc::new(codec).max_decoding_message_size(MESSAGE_BYTES);
            grpc.unary(Same(reply), request).await
        })
    }))
}

fn of_method(method: &str, reply: &[u8]) -> Result<Empty> {
    use api::{
        AppendMessagesRequest, AppendMessagesResponse, GetSessionMemoryRequest,
        GetSessionMemoryResponse, PersistToolResultRequest, PersistToolResultResponse,
        PrepareContextRequest, PrepareContextResponse, SnipRequest, SnipResponse,
    };
    let handler = match method {
        "AppendMessages" => handler::<AppendMessagesRequest, AppendMessagesResponse>(reply),
        "PrepareContext" => handler::<PrepareContextRequest, PrepareContextResponse>(reply),
        "PersistToolResult" => {
            handler::<PersistToolResultRequest, PersistToolResultResponse>(reply)
        }
        "Snip" => handler::<SnipRequest, SnipResponse>(reply),
        "GetSessionMemory" => handler::<GetSessionMemoryRequest, GetSessionMemoryResponse>(reply),
        other => bail!("no method {other} is measured"),
    };
    handler.map(Empty)
}

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let (Some(method), Some(file)) = (arguments.next(), arguments.next()) else {
        bail!("usage: palimpsest-empty METHOD FILE, where the file holds an encoded reply");
    };
    let reply = fs::read(&file).with_context(|| format!("{file} cannot be read"))?;
    let service = of_method(&method, &reply)?;
    // The same kind of runtime as the server's.
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    // Ends with its parent: standard input closes even if the parent is killed.
    std::thread::spawn(|| {
        let _ = std::io::stdin().read(&mut [0]);
        std::process::exit(0);
    });
    runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        println!("{}", listener.local_addr()?);
        let connections = TcpListenerStream::new(listener).map(|stream| {
            let stream = stream?;
            stream.set_nodelay(true)?;
            Ok::<_, std::io::Error>(stream)
        });
        let mut server = Server::builder().max_concurrent_streams(STREAMS);
        server
            .add_service(service)
            .serve_with_incoming(connections)
            .await?;
        Ok(())
    })
}
