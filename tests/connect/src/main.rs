//! The server that the conformance suite of Connect calls: the HTTP API of Palimpsest around the service of the suite.
//!
//! `tests/suite.rs` starts the suite, which starts this program. The only argument is the folder with the proto files
//! of the suite. They are compiled at the start, so this repository contains no copy.

mod service;

use anyhow::{Context as _, Result};
use bytes::{Buf as _, BytesMut};
use http::Request;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use palimpsest_edge::net;
use palimpsest_http::{AllowedOrigins, HttpApi, OpenTo};
use prost::Message as _;
use prost_reflect::{DescriptorPool, DynamicMessage, Value};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tonic::body::Body;
use tower::{Layer as _, ServiceExt as _};

use self::service::Conformance;

const PACKAGE: &str = "connectrpc.conformance.v1";
const FILES: [&str; 2] = [
    "connectrpc/conformance/v1/service.proto",
    "connectrpc/conformance/v1/server_compat.proto",
];

#[tokio::main]
async fn main() -> Result<()> {
    let folder = std::env::args()
        .nth(1)
        .context("the folder of the proto files is missing")?;
    let files = protox::compile(FILES, [folder])?;
    let pool = DescriptorPool::from_file_descriptor_set(files)?;
    // The suite describes the wanted server, and this program has only one.
    read_request(&pool).await?;
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    write_response(&pool, listener.local_addr()?.port()).await?;
    let api = HttpApi::for_contract(&pool, AllowedOrigins::new(&[]), OpenTo::Nobody)?;
    let service = api.layer(Conformance::new(pool));
    loop {
        let (stream, _) = listener.accept().await?;
        let service = service.clone();
        tokio::spawn(async move {
            let http = Builder::new(TokioExecutor::new());
            let answer = service_fn(move |request: Request<Incoming>| {
                let service = service.clone();
                net::answer(request, async move |request| {
                    service.oneshot(request.map(Body::new)).await
                })
            });
            let serving = http.serve_connection(TokioIo::new(stream), answer);
            // A client that disconnects is a part of some cases.
            drop(serving.await);
        });
    }
}

/// Reads the request of the suite from standard input: its size in four bytes, and the message.
async fn read_request(pool: &DescriptorPool) -> Result<DynamicMessage> {
    let mut input = tokio::io::stdin();
    let size = input.read_u32().await?;
    let mut message = BytesMut::zeroed(size as usize);
    input.read_exact(&mut message).await?;
    let descriptor = pool.get_message_by_name(&format!("{PACKAGE}.ServerCompatRequest"));
    let descriptor = descriptor.context("the proto files lack ServerCompatRequest")?;
    Ok(DynamicMessage::decode(descriptor, message.chunk())?)
}

async fn write_response(pool: &DescriptorPool, port: u16) -> Result<()> {
    let descriptor = pool.get_message_by_name(&format!("{PACKAGE}.ServerCompatResponse"));
    let descriptor = descriptor.context("the proto files lack ServerCompatResponse")?;
    let mut response = DynamicMessage::new(descriptor);
    response.set_field_by_name("host", Value::String("127.0.0.1".to_owned()));
    response.set_field_by_name("port", Value::U32(port.into()));
    let message = response.encode_to_vec();
    let mut output = tokio::io::stdout();
    output.write_u32(u32::try_from(message.len())?).await?;
    output.write_all(&message).await?;
    Ok(output.flush().await?)
}
