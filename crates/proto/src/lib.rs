//! Generated code of the public contract: messages, clients and servers of
//! `palimpsest.context.v1`, and its descriptors for reflection.
//!
//! Not here: any logic. Resource names and every conversion to the domain's types live elsewhere;
//! the comments on the types are those of the `.proto` files, which are the reference.

/// Services and messages by package, as the `.proto` files have them.
pub mod context {
    /// The package `palimpsest.context.v1`.
    #[expect(
        clippy::pedantic,
        clippy::allow_attributes,
        clippy::doc_lazy_continuation,
        unused_qualifications,
        reason = "the code is generated; its style is prost's and tonic's"
    )]
    pub mod v1 {
        tonic::include_proto!("palimpsest.context.v1");
    }
}

/// The compiled descriptors of the contract and of all that it imports, comments included: a
/// serialized `google.protobuf.FileDescriptorSet`, for the reflection service.
pub const FILE_DESCRIPTOR_SET: &[u8] = tonic::include_file_descriptor_set!("palimpsest_context_v1");
