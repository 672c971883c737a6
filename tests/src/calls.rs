//! Calls of any rpc by its descriptor, so that new rpcs are tested automatically.

use std::time::Duration;

use bytes::{Buf as _, BufMut as _};
use palimpsest_proto::FILE_DESCRIPTOR_SET;
use prost::Message as _;
use prost_types::{DescriptorProto, FileDescriptorSet};
use tonic::client::Grpc;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::transport::Channel;
use tonic::{Request, Status, Streaming};

const PACKAGE: &str = "palimpsest.context.v1";

/// An rpc, and the field of its request that names the resource.
#[derive(Debug, Clone)]
pub struct Rpc {
    /// The path of the rpc.
    pub path: String,
    /// The name of the method.
    pub method: String,
    /// The field numbers that lead to the resource name.
    name_at: Vec<u32>,
    /// True if the resource is a project. False for a session.
    pub of_project: bool,
}

/// Returns all rpcs of the service that name a resource.
pub fn all() -> Vec<Rpc> {
    let set = FileDescriptorSet::decode(FILE_DESCRIPTOR_SET).unwrap();
    let files: Vec<_> = set
        .file
        .iter()
        .filter(|file| file.package() == PACKAGE)
        .collect();
    let message = |name: &str| -> &DescriptorProto {
        let name = name.rsplit_once('.').unwrap().1;
        let mut all = files.iter().flat_map(|file| &file.message_type);
        all.find(|message| message.name() == name).unwrap()
    };
    let mut found = Vec::new();
    for service in files.iter().flat_map(|file| &file.service) {
        // Callers implement this service, not the server.
        if service.name() == "HookService" {
            continue;
        }
        for method in &service.method {
            let request = message(method.input_type());
            let field = |message: &DescriptorProto, name: &str| {
                message
                    .field
                    .iter()
                    .find(|field| field.name() == name)
                    .cloned()
            };
            let parent = field(request, "parent");
            let Some(at) = parent.clone().or_else(|| field(request, "session")) else {
                // A call about all projects of a credential. It has tests of its own.
                assert_eq!(method.name(), "ListProjects");
                continue;
            };
            let mut name_at = vec![u32::try_from(at.number()).unwrap()];
            // Some requests contain the resource itself. Its field `name` has the name.
            if !at.type_name().is_empty() {
                let inner = field(message(at.type_name()), "name").unwrap();
                name_at.push(u32::try_from(inner.number()).unwrap());
            }
            found.push(Rpc {
                path: format!("/{PACKAGE}.{}/{}", service.name(), method.name()),
                method: method.name().to_owned(),
                name_at,
                of_project: parent.is_some(),
            });
        }
    }
    assert!(found.len() > 20);
    found
}

impl Rpc {
    /// Returns a request that contains only the resource name.
    fn request(&self, name: &str) -> Vec<u8> {
        let bytes = name.as_bytes().to_vec();
        // From the inside out: the bytes of the name, then each enclosing field with its length.
        self.name_at.iter().rev().fold(bytes, |inner, number| {
            let mut out = Vec::new();
            let kind = prost::encoding::WireType::LengthDelimited;
            prost::encoding::encode_key(*number, kind, &mut out);
            prost::encoding::encode_varint(inner.len() as u64, &mut out);
            out.extend(inner);
            out
        })
    }

    /// Makes a call and returns the first message of the reply.
    pub async fn call(
        &self,
        channel: &Channel,
        credential: Option<&str>,
        name: &str,
    ) -> Result<Vec<u8>, Status> {
        let mut answer = self.open(channel, credential, name).await?;
        let first = tokio::time::timeout(Duration::from_secs(30), answer.message());
        // A watch of an empty session sends no message, so a timeout counts as an empty reply.
        first
            .await
            .map_or(Ok(Vec::new()), |first| Ok(first?.unwrap_or_default()))
    }
}

impl Rpc {
    /// Starts a call and returns the stream of replies.
    pub async fn open(
        &self,
        channel: &Channel,
        credential: Option<&str>,
        name: &str,
    ) -> Result<Streaming<Vec<u8>>, Status> {
        let mut request = Request::new(self.request(name));
        if let Some(credential) = credential {
            let bearer = format!("Bearer {credential}").parse().unwrap();
            request.metadata_mut().insert("authorization", bearer);
        }
        let mut client = Grpc::new(channel.clone());
        let unready = |error| Status::unavailable(format!("{error}"));
        client.ready().await.map_err(unready)?;
        let path = self.path.parse().unwrap();
        let answer = client.server_streaming(request, path, Raw).await?;
        Ok(answer.into_inner())
    }
}

/// A codec that passes messages as bytes.
#[derive(Debug, Clone, Copy, Default)]
struct Raw;

impl Codec for Raw {
    type Encode = Vec<u8>;
    type Decode = Vec<u8>;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for Raw {
    type Item = Vec<u8>;
    type Error = Status;

    fn encode(&mut self, item: Vec<u8>, to: &mut EncodeBuf<'_>) -> Result<(), Status> {
        to.put_slice(&item);
        Ok(())
    }
}

impl Decoder for Raw {
    type Item = Vec<u8>;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<Vec<u8>>, Status> {
        let length = from.remaining();
        Ok(Some(from.copy_to_bytes(length).to_vec()))
    }
}
